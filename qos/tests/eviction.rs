//! The eviction policy by tables, and what holds for every history.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use evenkeel_model::decision::{Decision, DecisionKind, DecisionResult};
use evenkeel_model::qos_class::QosClass::{self, BestEffort, Burstable, Guaranteed};
use evenkeel_qos::eviction::Remedy::{Evict, Restart};
use evenkeel_qos::eviction::{
    ContainerFailure, ContainerKey, EvictionPolicy, Failures, MOST_RESTARTS, PodKey, Remedy, rule,
};
use evenkeel_qos::replay::{Replayed, replay};
use evenkeel_qos::why::{Inputs, Why};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
/// Any moment, microseconds since 1970.
const NOW: u64 = 1_800_000_000 * SECOND;

fn key(pod: &str, uid: Option<&str>) -> ContainerKey {
    let uid = uid.map(str::to_owned);
    let pod = PodKey { namespace: "shop".into(), name: pod.into(), uid };
    ContainerKey { pod, container: "main".into() }
}

fn at(time_usec: u64, inode: u64) -> ContainerFailure {
    ContainerFailure { time_usec: NOW + time_usec, inode }
}

/// What a decision with these inputs comes to now.
fn replayed(inputs: Inputs) -> Option<Remedy> {
    let made = Decision {
        time_usec: 1,
        seq: 1,
        pod: None,
        container: None,
        kind: DecisionKind::Evict,
        knob: None,
        old: None,
        new: None,
        reason: String::new(),
        inputs,
        result: DecisionResult::Done,
    };
    match replay(&made) {
        Replayed::Same => Some(Evict),
        Replayed::Differs { now, .. } => Remedy::of(&now),
        Replayed::NotADecision(_) => None,
    }
}

#[test]
fn one_ruling_by_class_and_count() {
    let policy = EvictionPolicy::default();
    let never = EvictionPolicy { burstable_restarts: 0, ..policy };
    let turned = EvictionPolicy { best_effort: Restart, guaranteed: Evict, ..policy };
    for (policy, class, restarts, remedy, reason) in [
        (policy, BestEffort, 0, Evict, "a BestEffort container was OOM-killed: its pod should go at once"),
        (policy, BestEffort, 9, Evict, "a BestEffort container was OOM-killed: its pod should go at once"),
        (policy, Burstable, 0, Restart, "a Burstable container was OOM-killed: restart 1 of 3 in 10m"),
        (policy, Burstable, 2, Restart, "a Burstable container was OOM-killed: restart 3 of 3 in 10m"),
        (
            policy,
            Burstable,
            3,
            Evict,
            "a Burstable container was OOM-killed after 3 of 3 restarts in 10m: its pod should go",
        ),
        (
            never,
            Burstable,
            0,
            Evict,
            "a Burstable container was OOM-killed after 0 of 0 restarts in 10m: its pod should go",
        ),
        (
            policy,
            Guaranteed,
            7,
            Restart,
            "a Guaranteed container was OOM-killed: it is always started again (7 restarts in the last 10m before)",
        ),
        (
            turned,
            BestEffort,
            0,
            Restart,
            "a BestEffort container was OOM-killed: it is always started again (0 restarts in the last 10m before)",
        ),
        (turned, Guaranteed, 0, Evict, "a Guaranteed container was OOM-killed: its pod should go at once"),
    ] {
        let ruling = rule(&policy, class, restarts);
        assert_eq!((ruling.remedy(), ruling.restarts), (remedy, restarts), "{class} after {restarts}");
        assert_eq!(ruling.reason("was OOM-killed"), reason);
        assert_eq!(replayed(Why::Ruling(ruling).inputs()), Some(remedy), "{ruling:?}");
    }
}

#[test]
fn a_burstable_container_goes_after_three_restarts_in_ten_minutes() {
    let (policy, web) = (EvictionPolicy::default(), key("web", None));
    let mut failures = Failures::default();
    // Each life of the container has a cgroup of its own.
    let table = [
        (0, 1, Some((Restart, 0))),
        (SECOND, 1, None),
        (3 * SECOND, 1, None),
        (MINUTE, 2, Some((Restart, 1))),
        (2 * MINUTE, 3, Some((Restart, 2))),
        (3 * MINUTE, 4, Some((Evict, 3))),
        // Nobody took up the offer.
        (4 * MINUTE, 5, Some((Evict, 3))),
        // The first restart is ten minutes ago, no longer within.
        (10 * MINUTE, 6, Some((Restart, 2))),
        (10 * MINUTE + 5 * SECOND, 6, Some((Evict, 3))),
        // A clock set back does not make time negative.
        (MINUTE, 7, Some((Evict, 3))),
        (40 * MINUTE, 8, Some((Restart, 0))),
    ];
    for (time, inode, wanted) in table {
        let ruling = failures.judge(&policy, &web, Burstable, at(time, inode));
        assert_eq!(ruling.map(|r| (r.remedy(), r.restarts)), wanted, "at {time}, cgroup {inode}");
    }
}

#[test]
fn pods_and_containers_are_counted_apart() {
    let policy = EvictionPolicy { burstable_restarts: 1, ..EvictionPolicy::default() };
    let mut failures = Failures::default();
    let mut other = key("web", Some("u1"));
    other.container = "proxy".into();
    for (n, key) in
        [key("web", Some("u1")), key("web", Some("u2")), key("db", Some("u1")), other].iter().enumerate()
    {
        let n = n as u64;
        let first = failures.judge(&policy, key, Burstable, at(n * MINUTE, n)).unwrap();
        assert_eq!((first.remedy(), first.restarts), (Restart, 0), "{key:?}");
    }
    let again = failures.judge(&policy, &key("web", Some("u1")), Burstable, at(5 * MINUTE, 9)).unwrap();
    assert_eq!((again.remedy(), again.restarts), (Evict, 1));
}

#[test]
fn what_an_earlier_run_granted_still_counts() {
    let (policy, web) = (EvictionPolicy::default(), key("web", None));
    let mut failures = Failures::default();
    for n in 0..3 {
        failures.restore(&web, at(n * MINUTE, n));
    }
    // Seen by the earlier run, and by this one once more.
    assert_eq!(failures.judge(&policy, &web, Burstable, at(2 * MINUTE + SECOND, 2)), None);
    let ruling = failures.judge(&policy, &web, Burstable, at(3 * MINUTE, 3)).unwrap();
    assert_eq!((ruling.remedy(), ruling.restarts), (Evict, 3));
}

#[test]
fn what_is_kept_is_bounded() {
    let (policy, mut failures) = (EvictionPolicy::default(), Failures::default());
    for n in 0..5000 {
        failures.judge(&policy, &key(&n.to_string(), None), Guaranteed, at(n * SECOND, n));
    }
    assert_eq!(failures.len(), 4096);
    for n in 0..200 {
        let ruling =
            failures.judge(&policy, &key("4999", None), Guaranteed, at(6000 * SECOND + n * 4 * SECOND, n));
        assert!(ruling.unwrap().restarts <= MOST_RESTARTS);
    }
    failures.prune(&policy, NOW + 100_000 * SECOND);
    assert!(failures.is_empty());
}

#[test]
fn other_inputs_are_not_replayed() {
    let inputs = Why::Ruling(rule(&EvictionPolicy::default(), Burstable, 1)).inputs();
    for (name, value) in
        [("class", "none"), ("restarts", "x"), ("window_usec", ""), ("restarts_allowed", "often")]
    {
        let mut wrong = inputs.clone();
        wrong.insert(name.to_owned(), value.to_owned());
        assert_eq!(replayed(wrong.clone()), None, "{name} = {value}");
        wrong.remove(name);
        assert_eq!(replayed(wrong), None, "without {name}");
    }
}

fn class() -> impl Strategy<Value = QosClass> {
    prop_oneof![Just(BestEffort), Just(Burstable), Just(Guaranteed)]
}

fn remedy() -> impl Strategy<Value = Remedy> {
    prop_oneof![Just(Restart), Just(Evict)]
}

proptest! {
    #[test]
    fn no_window_ever_holds_more_restarts_than_allowed(
        allowed in 0..6u32,
        window in 1..30u64,
        gaps in prop::collection::vec(0..20u64, 1..80),
    ) {
        let policy = EvictionPolicy { burstable_restarts: allowed, burstable_window_usec: window * SECOND, ..EvictionPolicy::default() };
        let (web, mut failures) = (key("web", None), Failures::default());
        let (mut now, mut granted) = (0, Vec::new());
        for (inode, gap) in gaps.into_iter().enumerate() {
            now += gap * SECOND;
            let ruling = failures.judge(&policy, &web, Burstable, at(now, inode as u64)).unwrap();
            let within = granted.iter().filter(|t: &&u64| **t + window * SECOND > now).count();
            prop_assert_eq!(ruling.restarts as usize, within);
            if ruling.remedy() == Restart {
                granted.push(now);
            }
            let held = granted.iter().filter(|t| **t + window * SECOND > now).count();
            prop_assert!(held <= allowed as usize, "{held} of {allowed}");
            prop_assert_eq!(ruling.remedy() == Evict, within >= allowed as usize);
        }
    }

    #[test]
    fn every_ruling_is_replayed_from_its_numbers(
        class in class(), best_effort in remedy(), guaranteed in remedy(), allowed in 0..=MOST_RESTARTS,
        window in 0..1_000_000_000_000u64, restarts in 0..=MOST_RESTARTS,
    ) {
        let policy = EvictionPolicy { best_effort, guaranteed, burstable_restarts: allowed, burstable_window_usec: window };
        let ruling = rule(&policy, class, restarts);
        prop_assert_eq!(replayed(Why::Ruling(ruling).inputs()), Some(ruling.remedy()));
    }
}
