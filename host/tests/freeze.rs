//! The bounded freeze, on a kernel in memory.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::Duration;

use evenkeel_host::error::Category;
use evenkeel_host::fake::FakeKernel;
use evenkeel_host::freeze::{FreezeError, freeze_write, with_frozen};
use evenkeel_host::hierarchy::{CgroupMode, Controller, Hierarchy};
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, HostWriter};
use evenkeel_model::units::OomScoreAdj;

const NO_TIME: Duration = Duration::ZERO;

fn machine(mode: CgroupMode) -> (FakeKernel, CgroupRef) {
    let kernel = FakeKernel::new(mode);
    kernel.with(|k| {
        k.add_cgroup("/c");
        k.add_process(10, 1, OomScoreAdj::clamped(0), "/c");
    });
    let hierarchy = match mode {
        CgroupMode::V2 => Hierarchy::V2,
        CgroupMode::V1 | CgroupMode::Hybrid => Hierarchy::V1(Controller::Freezer),
    };
    let place = kernel.cgroup("/c").unwrap().place(hierarchy).unwrap().clone();
    (kernel, place)
}

fn frozen(kernel: &FakeKernel) -> bool {
    kernel.with(|k| {
        [Knob::CgroupFreeze, Knob::FreezerState].into_iter().any(|knob| {
            matches!(k.value("/c", knob), Some(Setting::CgroupFreeze(true) | Setting::FreezerState(true)))
        })
    })
}

#[test]
fn nothing_forks_during_the_work_and_it_is_thawed_after_it() {
    for mode in [CgroupMode::V1, CgroupMode::V2, CgroupMode::Hybrid] {
        let (kernel, place) = machine(mode);
        let mut next = 11;
        kernel.before_listing(move |k| {
            k.fork(10, next, 2);
            next += 1;
        });
        assert_eq!(kernel.pids(&place).unwrap().len(), 2);
        let mut writer = kernel.clone();
        let (counts, thawed) = with_frozen(&kernel, &mut writer, &place, NO_TIME, |_| {
            [kernel.pids(&place).unwrap().len(), kernel.pids(&place).unwrap().len()]
        })
        .unwrap();
        assert_eq!((counts, thawed.is_done(), frozen(&kernel)), ([2, 2], true, false));
    }
}

#[test]
fn a_cgroup_that_does_not_freeze_in_time_is_thawed_without_the_work() {
    let (kernel, place) = machine(CgroupMode::V1);
    kernel.with(|k| k.never_freezes("/c"));
    let error =
        with_frozen(&kernel, &mut kernel.clone(), &place, NO_TIME, |_| panic!("not frozen")).unwrap_err();
    assert!(matches!(error, FreezeError::TooSlow { .. }), "{error}");
    assert!(!frozen(&kernel));
}

#[test]
fn it_is_thawed_when_the_work_panics() {
    let (kernel, place) = machine(CgroupMode::V2);
    let (hand, at) = (kernel.clone(), place);
    let done = std::thread::spawn(move || {
        with_frozen(&hand, &mut hand.clone(), &at, NO_TIME, |_| panic!("the work fails"))
    })
    .join();
    assert!(done.is_err());
    assert!(!frozen(&kernel));
}

#[test]
fn what_others_froze_is_left_frozen_and_what_vanished_is_gone() {
    let (kernel, place) = machine(CgroupMode::V2);
    kernel.clone().apply(&freeze_write(&place, true));
    let error = with_frozen(&kernel, &mut kernel.clone(), &place, NO_TIME, |_| ()).unwrap_err();
    assert!(matches!(error, FreezeError::AlreadyFrozen { .. }), "{error}");
    assert!(frozen(&kernel));
    kernel.with(|k| k.remove_cgroup("/c"));
    let error = with_frozen(&kernel, &mut kernel.clone(), &place, NO_TIME, |_| ()).unwrap_err();
    assert_eq!(error.category(), Category::Gone);
}
