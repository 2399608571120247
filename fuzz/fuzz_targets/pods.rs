//! `scripts/fuzz pods`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| evenkeel_fuzz::target("pods").run(bytes));
