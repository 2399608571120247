//! `oom_score_adj` by hand-computed tables for every branch of both rule sets.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use evenkeel_model::qos_class::QosClass::{self, BestEffort, Burstable, Guaranteed};
use evenkeel_model::units::Bytes;
use evenkeel_qos::rules::RuleSet::{self, Kubelet, Proposal};
use evenkeel_qos::score::{ScoreBranch, ScoreInput, container_score, infrastructure_score};
use proptest::prelude::*;

const GIB: u64 = 1 << 30;

fn input(class: QosClass, request: u64, capacity: u64) -> ScoreInput {
    ScoreInput {
        class,
        memory_request: Bytes::new(request),
        capacity: Bytes::new(capacity),
        node_critical: false,
        share: Bytes::ZERO,
        sidecar_of: None,
    }
}

fn score(rules: RuleSet, input: &ScoreInput) -> i16 {
    container_score(rules, input).value.get()
}

#[test]
fn fixed_scores_of_the_outer_classes() {
    for (class, proposal, kubelet) in [(Guaranteed, -999, -997), (BestEffort, 1000, 1000)] {
        let i = input(class, GIB, 8 * GIB);
        assert_eq!((score(Proposal, &i), score(Kubelet, &i)), (proposal, kubelet), "{class}");
    }
}

#[test]
fn burstable_scores_follow_the_share_of_memory_requested() {
    // request, capacity, proposal, kubelet
    let table: [(u64, u64, i16, i16); 13] = [
        (4_000_000_000, 8_000_000_000, 500, 500),
        (1_000_000_000, 8_000_000_000, 875, 875),
        // 1000 x 256 Mi / 4 Gi = 62.5, truncated to 62.
        (256 << 20, 4 * GIB, 938, 938),
        // 100 Mi of 7.5 GiB: 13.02, truncated to 13.
        (100 << 20, 15 * GIB / 2, 987, 987),
        // One byte: 0 thousandths. The proposal has no ceiling, Kubernetes stops at 999.
        (1, 8 * GIB, 1000, 999),
        // A pod's container without a request, in a burstable pod.
        (0, 8 * GIB, 1000, 999),
        // Exactly one thousandth.
        (1_000_000, 1_000_000_000, 999, 999),
        // 99.7 %: 3 in both.
        (997, 1000, 3, 3),
        // 99.8 %: 2, and Kubernetes' floor is 3.
        (998, 1000, 2, 3),
        // Over 99.8 %: 2.
        (9981, 10_000, 2, 3),
        (999, 1000, 2, 3),
        // The whole machine, and more than it.
        (1000, 1000, 2, 3),
        (u64::MAX, 1000, 2, 3),
    ];
    for (request, capacity, proposal, kubelet) in table {
        let i = input(Burstable, request, capacity);
        assert_eq!(score(Proposal, &i), proposal, "proposal: {request} of {capacity}");
        assert_eq!(score(Kubelet, &i), kubelet, "kubelet: {request} of {capacity}");
    }
}

#[test]
fn a_machine_of_unknown_memory_gives_the_floor() {
    let i = input(Burstable, 5, 0);
    assert_eq!((score(Proposal, &i), score(Kubelet, &i)), (2, 3));
}

#[test]
fn kubelet_node_critical_pods_are_guaranteed_whatever_their_class() {
    for class in [Guaranteed, Burstable, BestEffort] {
        let i = ScoreInput { node_critical: true, ..input(class, GIB, 8 * GIB) };
        assert_eq!(score(Kubelet, &i), -997, "{class}");
        assert_eq!(container_score(Kubelet, &i).branch, ScoreBranch::NodeCritical);
        // The proposal knows no priorities.
        let plain = ScoreInput { node_critical: false, ..i };
        assert_eq!(score(Proposal, &i), score(Proposal, &plain));
    }
}

#[test]
fn kubelet_shares_the_rest_of_a_pod_level_request() {
    // 1000 - trunc(1000 x (100 + 150) / 1000) = 750.
    let i = ScoreInput { share: Bytes::new(150), ..input(Burstable, 100, 1000) };
    assert_eq!(score(Kubelet, &i), 750);
    assert_eq!(score(Proposal, &i), 900);
}

#[test]
fn kubelet_sidecars_take_the_lower_score_of_the_smallest_ordinary_container() {
    let sidecar = |own, smallest, share| ScoreInput {
        sidecar_of: Some(Bytes::new(smallest)),
        share: Bytes::new(share),
        ..input(Burstable, own, 1000)
    };
    // The ordinary container asks for more, so its score is lower and the sidecar gets it.
    assert_eq!(score(Kubelet, &sidecar(100, 400, 0)), 600);
    // The sidecar asks for more itself.
    assert_eq!(score(Kubelet, &sidecar(400, 100, 0)), 600);
    // The share counts on both sides.
    assert_eq!(score(Kubelet, &sidecar(100, 400, 50)), 550);
    // Floor and ceiling apply after it.
    assert_eq!(score(Kubelet, &sidecar(0, 1000, 0)), 3);
    assert_eq!(score(Kubelet, &sidecar(0, 0, 0)), 999);
    // The proposal has no sidecars.
    assert_eq!(score(Proposal, &sidecar(100, 400, 50)), 900);
}

#[test]
fn infrastructure_is_protected_like_the_rule_set_says() {
    let table =
        [(Proposal, true, -999), (Proposal, false, -999), (Kubelet, true, -998), (Kubelet, false, -999)];
    for (rules, is_pause, expected) in table {
        assert_eq!(infrastructure_score(rules, is_pause).get(), expected, "{rules} {is_pause}");
    }
}

proptest! {
    /// Asking for more never makes a container more killable, and every class stays in its band.
    #[test]
    fn more_requested_is_never_killed_earlier(a in any::<u64>(), b in any::<u64>(), capacity in 1..u64::MAX) {
        let (less, more) = (a.min(b), a.max(b));
        for (rules, low, high) in [(Proposal, 2, 1000), (Kubelet, 3, 999)] {
            let (l, m) = (score(rules, &input(Burstable, less, capacity)), score(rules, &input(Burstable, more, capacity)));
            prop_assert!(m <= l);
            prop_assert!((low..=high).contains(&l) && (low..=high).contains(&m));
        }
    }
}
