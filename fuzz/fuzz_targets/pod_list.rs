//! `scripts/fuzz pod_list`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| evenkeel_fuzz::target("pod_list").run(bytes));
