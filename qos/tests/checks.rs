//! Settings of a node that break promises.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use evenkeel_model::units::Bytes;
use evenkeel_qos::checks::{overcommit, panic_on_oom, swap};

#[test]
fn what_is_right_is_not_reported() {
    assert_eq!((overcommit(1), panic_on_oom(0), swap(Bytes::ZERO, false)), (None, None, None));
}

#[test]
fn what_is_wrong_says_what_why_and_what_to_do() {
    let found = [
        overcommit(0),
        overcommit(2),
        panic_on_oom(1),
        swap(Bytes::new(7), false),
        swap(Bytes::new(7), true),
    ];
    let what: Vec<_> = found.iter().map(|f| f.as_ref().unwrap().what.as_str()).collect();
    let expected = [
        "vm.overcommit_memory is 0, not 1",
        "vm.overcommit_memory is 2, not 1",
        "vm.panic_on_oom is 1, not 0",
        "swap is on: 7 bytes",
        "swap is on: 7 bytes",
    ];
    assert_eq!(what, expected);
    for f in found.into_iter().flatten() {
        assert!(f.why.len() > 40 && f.remedy.starts_with("run "), "{f:?}");
    }
    assert_ne!(overcommit(0), overcommit(2));
}
