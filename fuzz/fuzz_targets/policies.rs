//! `scripts/fuzz policies`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| evenkeel_fuzz::target("policies").run(bytes));
