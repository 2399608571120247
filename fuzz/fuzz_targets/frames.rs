//! `scripts/fuzz frames`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| evenkeel_fuzz::target("frames").run(bytes));
