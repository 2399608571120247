//! Classes by hand-made tables, both rule sets.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use evenkeel_model::qos_class::QosClass::{self, BestEffort, Burstable, Guaranteed};
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::ContainerResources;
use evenkeel_qos::rules::{PodShape, cpu_class, defaulted, memory_class, pod_class};
use proptest::prelude::*;

/// CPU request and limit in milli, memory request and limit in bytes.
fn asks(
    cpu_request: Option<u64>,
    cpu_limit: Option<u64>,
    memory_request: Option<u64>,
    memory_limit: Option<u64>,
) -> ContainerResources {
    ContainerResources {
        cpu_request: cpu_request.map(MilliCpu::new),
        cpu_limit: cpu_limit.map(MilliCpu::new),
        memory_request: memory_request.map(Bytes::new),
        memory_limit: memory_limit.map(Bytes::new),
    }
}

#[test]
fn the_proposal_classifies_each_resource_of_each_container_by_itself() {
    let table: [(Option<u64>, Option<u64>, QosClass); 9] = [
        (None, None, BestEffort),
        (Some(0), None, BestEffort),
        (Some(0), Some(100), BestEffort),
        (Some(0), Some(0), BestEffort),
        (None, Some(0), BestEffort),
        (None, Some(100), Guaranteed),
        (Some(100), Some(100), Guaranteed),
        (Some(50), Some(100), Burstable),
        (Some(50), None, Burstable),
    ];
    for (request, limit, expected) in table {
        assert_eq!(memory_class(&asks(None, None, request, limit)), expected, "memory {request:?} {limit:?}");
        assert_eq!(cpu_class(&asks(request, limit, None, None)), expected, "cpu {request:?} {limit:?}");
        // The other resource plays no part.
        assert_eq!(memory_class(&asks(Some(7), Some(9), request, limit)), expected);
        assert_eq!(cpu_class(&asks(request, limit, Some(7), Some(7))), expected);
    }
}

#[test]
fn an_absent_request_becomes_the_limit_and_a_zero_one_stays() {
    let r = defaulted(asks(None, Some(200), Some(0), Some(64)));
    assert_eq!(r, asks(Some(200), Some(200), Some(0), Some(64)));
}

#[test]
fn kubernetes_classifies_the_pod_from_cpu_and_memory() {
    let full = asks(Some(100), Some(100), Some(64), Some(64));
    let by_limits = asks(None, Some(100), None, Some(64));
    let burst = asks(Some(50), Some(100), Some(64), Some(64));
    let nothing = asks(None, None, None, None);
    let zeros = asks(Some(0), Some(0), Some(0), Some(0));
    let memory_only = asks(None, None, Some(64), Some(64));
    let no_cpu_limit = asks(Some(100), None, Some(64), Some(64));
    // Requests and limits that differ in each container but sum to the same.
    let less = asks(Some(50), Some(100), Some(32), Some(64));
    let more = asks(Some(150), Some(100), Some(96), Some(64));
    let table: [(&str, Vec<ContainerResources>, QosClass); 12] = [
        ("no containers", vec![], BestEffort),
        ("nothing set", vec![nothing, nothing], BestEffort),
        ("zero is unset", vec![zeros], BestEffort),
        ("every limit set and equal", vec![full, full], Guaranteed),
        ("requests default to limits", vec![by_limits, full], Guaranteed),
        ("a smaller request", vec![full, burst], Burstable),
        ("memory alone is not enough", vec![memory_only], Burstable),
        ("a cpu limit is missing", vec![no_cpu_limit], Burstable),
        ("one container says nothing", vec![full, nothing], Burstable),
        ("one container says zero", vec![full, zeros], Burstable),
        ("sums are compared, not pairs", vec![less, more], Guaranteed),
        ("only requests", vec![asks(Some(1), None, Some(1), None)], Burstable),
    ];
    for (why, containers, expected) in table {
        assert_eq!(pod_class(PodShape::Containers(&containers)), expected, "{why}");
    }
}

#[test]
fn pod_level_resources_replace_those_of_the_containers() {
    let table = [
        (asks(Some(100), Some(100), Some(64), Some(64)), Guaranteed),
        (asks(None, Some(100), None, Some(64)), Guaranteed),
        (asks(Some(100), None, Some(64), Some(64)), Burstable),
        (asks(None, None, None, None), BestEffort),
    ];
    for (level, expected) in table {
        assert_eq!(pod_class(PodShape::PodLevel(&level)), expected, "{level:?}");
    }
}

fn any_resources() -> impl Strategy<Value = ContainerResources> {
    let amount = || proptest::option::of(prop_oneof![Just(0), 1..4_u64, Just(u64::MAX)]);
    (amount(), amount(), amount(), amount()).prop_map(|(a, b, c, d)| asks(a, b, c, d))
}

proptest! {
    /// A pod of one container, whose memory and CPU classes agree, has that class; and huge sums do not overflow.
    #[test]
    fn a_pod_of_one_agrees_with_its_container(r in any_resources()) {
        let pod = pod_class(PodShape::Containers(&[r]));
        let d = defaulted(r);
        let limit_zero_or_less = d.cpu_limit.is_some_and(MilliCpu::is_zero) || d.memory_limit.is_some_and(Bytes::is_zero);
        if memory_class(&r) == Guaranteed && cpu_class(&r) == Guaranteed {
            prop_assert_eq!(pod, Guaranteed);
        }
        if pod == Guaranteed {
            prop_assert!(!limit_zero_or_less);
            prop_assert_eq!(memory_class(&r), Guaranteed);
            prop_assert_eq!(cpu_class(&r), Guaranteed);
        }
    }

    #[test]
    fn order_of_containers_does_not_matter(mut rs in proptest::collection::vec(any_resources(), 0..5)) {
        let one = pod_class(PodShape::Containers(&rs));
        rs.reverse();
        prop_assert_eq!(one, pod_class(PodShape::Containers(&rs)));
    }
}
