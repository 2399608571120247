//! Any sequence of log records is taken without panic and by bounded memory; `cargo +nightly fuzz run kernel_log`.
#![no_main]

use evenkeel_host::kernel_log::{Joiner, Record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mut joiner = Joiner::default();
    for record in bytes.split(|&b| b == 0) {
        if let Some(kill) = joiner.take(record) {
            assert!(Record::parse(record).is_some_and(|r| r.by_kernel && r.sequence == kill.sequence));
        }
    }
});
