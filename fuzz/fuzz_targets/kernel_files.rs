//! `scripts/fuzz kernel_files`
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| evenkeel_fuzz::target("kernel_files").run(bytes));
