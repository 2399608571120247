//! `memory.min`, `low`, `high`, `max` and the inversion of a runtime's record.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use evenkeel_model::qos_class::QosClass::{BestEffort, Burstable, Guaranteed};
use evenkeel_model::units::{Bytes, CpuShares, Limit, MilliCpu};
use evenkeel_model::workload::{ContainerResources, Estimate, Requested};
use evenkeel_qos::config::MemoryHighFactor;
use evenkeel_qos::cpu::CpuQuota;
use evenkeel_qos::estimate::{
    EngineRecord, RuntimeRecord, invert, kubelet_tier, lowered, of_engine, settle_pod,
};
use evenkeel_qos::memory::{Protection, high, max, protection, to_pages};
use evenkeel_qos::rules::RuleSet;
use evenkeel_qos::score::{ScoreInput, container_score};
use proptest::prelude::*;

const PAGE: Bytes = Bytes::new(4096);

fn kept(class: evenkeel_model::qos_class::QosClass, request: u64) -> Option<Protection> {
    protection(class, Bytes::new(request), PAGE)
}

#[test]
fn requests_are_protected_by_class_in_whole_pages() {
    assert_eq!(kept(Guaranteed, 64 << 20), Some(Protection::Min(Bytes::new(64 << 20))));
    assert_eq!(kept(Burstable, 64 << 20), Some(Protection::Low(Bytes::new(64 << 20))));
    assert_eq!(kept(BestEffort, 0), None);
    // 129M = 129,000,000 = 31,494 pages and 576 bytes.
    assert_eq!(kept(Burstable, 129_000_000), Some(Protection::Low(Bytes::new(128_999_424))));
    // Nothing requested (a container of a burstable pod) protects nothing.
    assert_eq!(kept(Burstable, 0), None);
}

#[test]
fn limits_are_whole_pages_or_max() {
    assert_eq!(max(Some(Bytes::new(129_000_000)), PAGE), Limit::Value(Bytes::new(128_999_424)));
    assert_eq!(max(None, PAGE), Limit::Max);
    assert_eq!(max(Some(Bytes::ZERO), PAGE), Limit::Max);
    assert_eq!(to_pages(Bytes::new(65_537), Bytes::new(65_536)).get(), 65_536);
    assert_eq!(to_pages(Bytes::new(5), Bytes::ZERO).get(), 5);
}

#[test]
fn memory_high_lies_between_request_and_limit() {
    let of = |request, limit: Option<u64>, permille| {
        let factor = MemoryHighFactor::new(permille).unwrap();
        high(Bytes::new(request), limit.map(Bytes::new), Bytes::new(1 << 30), factor, PAGE).map(Bytes::get)
    };
    // 100 pages + 0.9 x 100 pages.
    assert_eq!(of(409_600, Some(819_200), 900), Some(778_240));
    // No limit: the machine's memory. 0 + 0.5 x 1 GiB needs a limit or a request to be written at all.
    assert_eq!(of(1 << 20, None, 500), Some(537_395_200));
    assert_eq!(of(0, None, 500), None);
    assert_eq!(of(0, Some(8192), 500), Some(4096));
    assert_eq!(of(8192, Some(8192), 900), None);
    assert_eq!(of(8192, Some(16_384), 0), None);
    // Rounding down must not put it at the request or below.
    assert_eq!(of(8192, Some(8292), 900), None);
    assert!(MemoryHighFactor::new(1001).is_err());
}

fn estimate(record: RuntimeRecord) -> Estimate {
    match invert(&record, Bytes::new(1000 << 20)) {
        Requested::Estimated(e) => e,
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_an_engine_was_told_is_taken_as_kubernetes_would() {
    let (mib, milli) = (|n: u64| Some(Bytes::new(n << 20)), |n: u64| Some(MilliCpu::new(n)));
    let shares = |n: u32| Some(CpuShares::new(n).unwrap());
    // cpus, shares, memory, reservation; then requests for CPU and memory, and the class by memory.
    let table = [
        ((milli(500), None, mib(64), None), (milli(500), mib(64), Some(Guaranteed))),
        ((milli(500), shares(256), mib(64), mib(32)), (milli(250), mib(32), Some(Burstable))),
        ((milli(100), shares(1024), None, mib(32)), (milli(100), mib(32), Some(Burstable))),
        ((None, shares(2), mib(64), mib(128)), (milli(0), mib(64), Some(Guaranteed))),
        // Nobody said a word about memory: it is not offered to the OOM killer.
        ((milli(500), None, None, None), (milli(500), None, None)),
        // More than the machine has is none.
        ((None, shares(512), mib(4096), None), (milli(500), None, None)),
    ];
    for ((cpu_limit, cpu_shares, memory_limit, memory_reservation), want) in table {
        let record = EngineRecord { cpu_limit, cpu_shares, memory_limit, memory_reservation };
        let Requested::Estimated(e) = of_engine(&record, Bytes::new(1024 << 20)) else {
            panic!("{record:?}")
        };
        assert_eq!((e.resources.cpu_request, e.resources.memory_request, e.memory_class), want, "{record:?}");
    }
    assert_eq!(of_engine(&EngineRecord::default(), Bytes::new(1024 << 20)), Requested::Unknown);
}

fn with_score(adj: i64) -> Estimate {
    estimate(RuntimeRecord { oom_score_adj: Some(adj), ..RuntimeRecord::default() })
}

#[test]
fn the_class_comes_back_from_the_score_requested() {
    for adj in [-999, -998, -997] {
        assert_eq!(with_score(adj).memory_class, Some(Guaranteed), "{adj}");
        assert_eq!(with_score(adj).resources.memory_request, None, "{adj}");
    }
    assert_eq!(with_score(1000).memory_class, Some(BestEffort));
    assert_eq!(with_score(1000).resources.memory_request, Some(Bytes::ZERO));
    // capacity x (1000 - adj) / 1000, with a capacity of 1000 Mi.
    for (adj, mib) in [(999, 1), (750, 250), (2, 998), (0, 1000)] {
        assert_eq!(with_score(adj).memory_class, Some(Burstable), "{adj}");
        assert_eq!(with_score(adj).resources.memory_request, Some(Bytes::new(mib << 20)), "{adj}");
    }
    assert_eq!(with_score(i64::MAX).resources.memory_request, Some(Bytes::ZERO));
    assert_eq!(with_score(i64::MIN).memory_class, Some(Burstable));
}

#[test]
fn cpu_comes_back_from_shares_and_quota() {
    let record = RuntimeRecord {
        cpu_shares: Some(CpuShares::new(256).unwrap()),
        cpu_quota: Some(CpuQuota { quota_usec: Limit::Value(50_000), period_usec: 100_000 }),
        ..RuntimeRecord::default()
    };
    let e = estimate(record);
    assert_eq!(e.resources.cpu_request, Some(MilliCpu::new(250)));
    assert_eq!(e.resources.cpu_limit, Some(MilliCpu::new(500)));
    assert_eq!(e.memory_class, None);
    let least = estimate(RuntimeRecord { cpu_shares: Some(CpuShares::MIN), ..RuntimeRecord::default() });
    assert_eq!(least.resources.cpu_request, Some(MilliCpu::ZERO));
}

#[test]
fn a_memory_limit_alone_is_no_request() {
    let limit = Some(Bytes::new(64 << 20));
    let only = RuntimeRecord { memory_limit: limit, ..RuntimeRecord::default() };
    assert_eq!(invert(&only, Bytes::new(1 << 30)), Requested::Unknown);
    let burstable = estimate(RuntimeRecord { oom_score_adj: Some(900), memory_limit: limit, ..only });
    assert_eq!(burstable.resources.memory_request, limit, "a request is at most the limit");
    let guaranteed = estimate(RuntimeRecord { oom_score_adj: Some(-997), memory_limit: limit, ..only });
    assert_eq!(guaranteed.resources.memory_request, limit);
    assert_eq!(invert(&RuntimeRecord::default(), Bytes::new(1 << 30)), Requested::Unknown);
}

#[test]
fn the_tier_is_in_the_kubelets_path() {
    let table = [
        ("/kubepods/burstable/pod1/c1", Some(Burstable)),
        ("/kubepods/besteffort/pod1/c1", Some(BestEffort)),
        ("/kubepods/pod1/c1", Some(Guaranteed)),
        ("/kubelet/kubepods/burstable/pod1/c1", Some(Burstable)),
        (
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice/cri-containerd-c1.scope",
            Some(Burstable),
        ),
        (
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice/crio-c.scope",
            Some(BestEffort),
        ),
        ("/kubepods.slice/kubepods-pod1.slice/crio-c1.scope", Some(Guaranteed)),
        (
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod1.slice/x.scope",
            Some(Burstable),
        ),
        ("/kubepods/burstable/pod1", Some(Burstable)),
        ("/kubepods/burstable", None),
        ("/kubepods/pod1", None),
        ("/kubepods/other/c1", None),
        ("/kubepods-of-mine/burstable/pod1/c1", None),
        ("/system.slice/docker-c1.scope", None),
        ("/", None),
    ];
    for (path, tier) in table {
        assert_eq!(kubelet_tier(path), tier, "{path}");
    }
}

/// The managed containers of one real node (23.5 GiB, kubelet 1.36): what the runtime was told, and what the pods
/// asked for.
#[test]
fn what_a_kubelet_tells_a_runtime_gives_the_classes_back() {
    const NODE: Bytes = Bytes::new(25_232_932_864);
    let mib = |n: u64| Bytes::new(n << 20);
    let quota = |milli: u64| CpuQuota::from_limit(Some(MilliCpu::new(milli)), 100_000);
    // tier, score, shares, CPU limit, memory limit -> class by memory, memory request in MiB at most and at least
    let table = [
        ("guaranteed", Guaranteed, -997, 102, Some(100), Some(64), Some(Guaranteed), Some((64, 64))),
        ("burstable, 512Mi", Burstable, 979, 51, None, None, Some(Burstable), Some((505, 530))),
        ("best effort", BestEffort, 1000, 2, None, None, Some(BestEffort), Some((0, 0))),
        ("cpu alone (b-cpu)", Burstable, 999, 102, None, None, Some(BestEffort), Some((0, 0))),
        ("limit 16Mi, request 10Mi", Burstable, 999, 51, None, Some(16), Some(Burstable), Some((16, 16))),
        (
            "requests equal limits, 40Mi (multi/gg)",
            Burstable,
            999,
            102,
            Some(100),
            Some(40),
            Some(Guaranteed),
            Some((40, 40)),
        ),
        (
            "cpu limit above its request, 40Mi",
            Burstable,
            999,
            51,
            Some(100),
            Some(40),
            Some(Burstable),
            Some((24, 25)),
        ),
        ("critical, cpu alone", Burstable, -997, 51, None, None, None, None),
    ];
    for (name, tier, adj, shares, cpu, limit, class, request) in table {
        let record = RuntimeRecord {
            cpu_shares: CpuShares::new(shares).ok(),
            cpu_quota: cpu.map(quota),
            oom_score_adj: Some(adj),
            memory_limit: limit.map(mib),
            tier: Some(tier),
        };
        let Requested::Estimated(e) = invert(&record, NODE) else { panic!("{name}: not estimated") };
        assert_eq!(e.memory_class, class, "{name}");
        let got = e.resources.memory_request;
        assert_eq!(got.is_some(), request.is_some(), "{name}");
        if let (Some(got), Some((least, most))) = (got, request) {
            assert!(mib(least) <= got && got <= mib(most), "{name}: {got:?}");
        }
        assert_eq!(record.is_node_critical(), name.starts_with("critical"), "{name}");
    }
}

#[test]
fn a_burstable_pod_that_requests_nothing_else_requests_memory() {
    let capacity = Bytes::new(1000 << 20);
    let small = |shares| {
        let shares = CpuShares::new(shares).ok();
        let tier = Some(Burstable);
        let record =
            RuntimeRecord { cpu_shares: shares, oom_score_adj: Some(999), tier, ..RuntimeRecord::default() };
        invert(&record, capacity)
    };
    let settled = |tier, mut all: Vec<Requested>| {
        settle_pod(tier, all.iter_mut(), capacity);
        let request = |r: &Requested| match r {
            Requested::Estimated(e) => (e.memory_class, e.resources.memory_request.map(Bytes::get)),
            other => panic!("{other:?}"),
        };
        all.iter().map(request).collect::<Vec<_>>()
    };
    let (none, one_step) = ((Some(BestEffort), Some(0)), (Some(Burstable), Some(1 << 20)));
    assert_eq!(settled(Some(Burstable), vec![small(2)]), [one_step]);
    assert_eq!(
        settled(Some(Burstable), vec![small(2), small(51)]),
        [none, none],
        "the other's CPU explains the class"
    );
    assert_eq!(settled(None, vec![small(2)]), [none]);
}

#[test]
fn a_statement_without_rights_lowers_and_never_raises() {
    let resources = |cpu: u64, memory: u64, limit: Option<u64>| ContainerResources {
        cpu_request: Some(MilliCpu::new(cpu)),
        cpu_limit: None,
        memory_request: Some(Bytes::new(memory)),
        memory_limit: limit.map(Bytes::new),
    };
    let estimate = |class, resources| Requested::Estimated(Estimate { resources, memory_class: Some(class) });
    let nothing = estimate(BestEffort, resources(0, 0, None));
    let something = estimate(Burstable, resources(500, 100, None));
    let everything = estimate(Guaranteed, resources(500, 100, Some(100)));
    let evil = ContainerResources {
        cpu_limit: Some(MilliCpu::new(2000)),
        memory_limit: Some(Bytes::new(1 << 34)),
        ..ContainerResources::default()
    };
    assert_eq!(lowered(nothing, evil), (nothing, true));
    assert_eq!(lowered(something, evil), (something, true));
    assert_eq!(lowered(something, resources(500, 100, Some(100))), (something, true), "nor the class");
    assert_eq!(
        lowered(something, resources(100, 0, None)),
        (estimate(BestEffort, resources(100, 0, None)), false)
    );
    assert_eq!(
        lowered(everything, resources(500, 50, None)),
        (estimate(Burstable, resources(500, 50, Some(100))), false)
    );
    assert_eq!(lowered(everything, ContainerResources::default()), (everything, false));
    assert_eq!(lowered(Requested::Unknown, evil), (Requested::Unknown, true));
    // The same of exact words.
    let stated = Requested::Stated;
    let (something, everything) = (resources(500, 100, None), resources(500, 100, Some(100)));
    for (known, states, want, more) in [
        (resources(0, 0, None), evil, resources(0, 0, None), true),
        (something, evil, something, true),
        (something, everything, something, true),
        (something, resources(100, 0, None), resources(100, 0, None), false),
        (everything, resources(500, 50, None), resources(500, 50, Some(100)), false),
        (everything, ContainerResources::default(), everything, false),
        (ContainerResources::default(), evil, ContainerResources::default(), true),
    ] {
        assert_eq!(lowered(stated(known), states), (stated(want), more), "{known:?} {states:?}");
    }
}

proptest! {
    /// Whatever a runtime says, an estimate is within the limits and not above the class of the pod, but for
    /// containers whose CPU shows that they are limited to what they request.
    #[test]
    fn estimates_are_within_the_limits(
        adj in -1000..=1000_i64, shares in 2..300_000_i64, cpu in 0_u64..3000, limit in 1_u64..(1 << 36), tier in 0..4,
    ) {
        let tier = [None, Some(BestEffort), Some(Burstable), Some(Guaranteed)][tier as usize];
        let record = RuntimeRecord {
            cpu_shares: Some(CpuShares::clamped(shares)),
            cpu_quota: Some(CpuQuota::from_limit(Some(MilliCpu::new(cpu)), 100_000)),
            oom_score_adj: Some(adj),
            memory_limit: Some(Bytes::new(limit)),
            tier,
        };
        let Requested::Estimated(e) = invert(&record, Bytes::new(1 << 35)) else { panic!("estimated") };
        let r = e.resources;
        prop_assert!(r.memory_request.is_none_or(|request| request.get() <= limit));
        prop_assert!(r.cpu_limit.is_none_or(|limit| r.cpu_request.is_some_and(|request| request <= limit)));
        if tier == Some(BestEffort) {
            prop_assert!(e.memory_class.is_none_or(|class| class == BestEffort));
        }
    }
}

proptest! {
    /// What was estimated from a score gives that score again.
    #[test]
    fn scores_survive_the_round_trip(adj in 3..=999_i64, capacity in (1_u64 << 20)..(1 << 50)) {
        let record = RuntimeRecord { oom_score_adj: Some(adj), ..RuntimeRecord::default() };
        let Requested::Estimated(e) = invert(&record, Bytes::new(capacity)) else { panic!("estimated") };
        let input = ScoreInput {
            class: Burstable,
            memory_request: e.resources.memory_request.unwrap(),
            capacity: Bytes::new(capacity),
            node_critical: false,
            share: Bytes::ZERO,
            sidecar_of: None,
        };
        for rules in [RuleSet::Proposal, RuleSet::Kubelet] {
            prop_assert_eq!(i64::from(container_score(rules, &input).value.get()), adj);
        }
    }

    #[test]
    fn memory_high_is_above_the_request_and_below_the_limit(
        request in 0..1_u64 << 40, more in 0..1_u64 << 40, permille in 0..=1000_u16,
    ) {
        let factor = MemoryHighFactor::new(permille).unwrap();
        let limit = request + more;
        if let Some(h) = high(Bytes::new(request), Some(Bytes::new(limit)), Bytes::new(1 << 41), factor, PAGE) {
            prop_assert!(h.get() > request && h.get() <= limit && h.get().is_multiple_of(4096));
        }
    }
}

#[test]
fn swap_follows_the_request_of_burstable_containers() {
    use evenkeel_qos::memory::{swap, with_swap};
    let b = Bytes::new;
    // Class, request, limit, capacity, swap, then the part.
    let table = [
        (Burstable, 1000, None, 4000, 8000, 2000),
        (Burstable, 1000, Some(2000), 3000, 10_000, 3333),
        (Burstable, 1000, Some(1000), 4000, 8000, 0),
        (Burstable, 0, None, 4000, 8000, 0),
        (Burstable, 9000, None, 4000, 8000, 8000),
        (Burstable, u64::MAX, None, 1, u64::MAX, u64::MAX),
        (Burstable, 1000, None, 0, 8000, 0),
        (Guaranteed, 1000, Some(1000), 4000, 8000, 0),
        (BestEffort, 0, None, 4000, 8000, 0),
    ];
    for (class, request, limit, capacity, total, part) in table {
        assert_eq!(
            swap(class, b(request), limit.map(b), b(capacity), b(total), b(1)),
            b(part),
            "{class} {request}"
        );
    }
    assert_eq!(with_swap(Limit::Value(b(10)), b(5)), Limit::Value(b(15)));
    assert_eq!(with_swap(Limit::Max, b(5)), Limit::Max);
}
