//! `scripts/fuzz snapshot`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| evenkeel_fuzz::target("snapshot").run(bytes));
