//! `scripts/fuzz notes`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| evenkeel_fuzz::target("notes").run(bytes));
