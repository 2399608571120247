//! `scripts/fuzz kernel_log`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| evenkeel_fuzz::target("kernel_log").run(bytes));
