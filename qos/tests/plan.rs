//! Whole plans: which knobs are wished for which container, and which are left alone.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass::{self, BestEffort, Burstable, Guaranteed};
use evenkeel_model::units::{Bytes, Limit, MilliCpu};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, Estimate, Managed, OomKill, PodFacts, PodRef,
    Requested, ScorePolicy, SourceKind, Workload,
};
use evenkeel_qos::config::{BurstPercent, CpuPeriod, KnobSwitches, MemoryHighFactor, PlanConfig};
use evenkeel_qos::plan::{ContainerPlan, PlanStatus, Wishes, plan};
use evenkeel_qos::rules::{ResourceClasses, RuleSet};

const MIB: u64 = 1 << 20;

fn node() -> NodeFacts {
    NodeFacts::of_size(Bytes::new(1000 * MIB), MilliCpu::new(2000))
}

fn workload(requested: Requested) -> Workload {
    Workload {
        id: "c1".into(),
        source: SourceKind::Manifests,
        pod: PodRef { namespace: "default".into(), name: "web".into(), uid: None },
        container: "app".into(),
        kind: ContainerKind::Regular,
        workload: "web".into(),
        image: None,
        command_hash: None,
        cgroup: CgroupBinding::Path("/c1".into()),
        pid: None,
        requested,
        pod_facts: PodFacts::default(),
        managed: Managed::Yes,
        score_policy: ScorePolicy::Respect,
        oom_kill: None,
    }
}

fn resources(cpu: (Option<u64>, Option<u64>), memory_mib: (Option<u64>, Option<u64>)) -> ContainerResources {
    ContainerResources {
        cpu_request: cpu.0.map(MilliCpu::new),
        cpu_limit: cpu.1.map(MilliCpu::new),
        memory_request: memory_mib.0.map(|m| Bytes::new(m * MIB)),
        memory_limit: memory_mib.1.map(|m| Bytes::new(m * MIB)),
    }
}

fn config(rules: RuleSet) -> PlanConfig {
    PlanConfig { rules, ..PlanConfig::default() }
}

fn one(config: &PlanConfig, w: Workload) -> ContainerPlan {
    let mut plan = plan(&node(), config, &[w]);
    plan.containers.remove(0)
}

/// Score, shares, weight, quota, min, low, max as numbers.
type Numbers = (
    Option<i16>,
    Option<u32>,
    Option<u32>,
    Option<Limit<u64>>,
    Option<u64>,
    Option<u64>,
    Option<Limit<Bytes>>,
);

fn numbers(w: &Wishes) -> Numbers {
    (
        w.oom_score_adj.as_ref().map(|w| w.value.get()),
        w.cpu_shares.as_ref().map(|w| w.value.get()),
        w.cpu_weight.as_ref().map(|w| w.value.get()),
        w.cpu_quota.as_ref().map(|w| w.value.quota_usec),
        w.memory_min.as_ref().map(|w| w.value.get()),
        w.memory_low.as_ref().map(|w| w.value.get()),
        w.memory_max.as_ref().map(|w| w.value),
    )
}

#[test]
fn a_container_of_each_class_under_the_proposal() {
    let max = |mib: u64| Some(Limit::Value(Bytes::new(mib * MIB)));
    let table: [(ContainerResources, QosClass, Numbers); 3] = [
        (
            resources((Some(500), Some(1000)), (Some(100), Some(100))),
            Guaranteed,
            (Some(-999), Some(512), Some(59), Some(Limit::Value(100_000)), Some(100 * MIB), None, max(100)),
        ),
        (
            resources((Some(1000), None), (Some(250), Some(500))),
            Burstable,
            (Some(750), Some(1024), Some(100), Some(Limit::Max), None, Some(250 * MIB), max(500)),
        ),
        (
            resources((None, None), (None, None)),
            BestEffort,
            (Some(1000), Some(2), Some(1), Some(Limit::Max), None, None, Some(Limit::Max)),
        ),
    ];
    for (resources, class, expected) in table {
        let p = one(&config(RuleSet::Proposal), workload(Requested::Stated(resources)));
        assert_eq!(p.qos_class, Some(class));
        assert_eq!(p.standing, PlanStatus::Planned);
        assert_eq!(numbers(&p.wishes), expected, "{class}");
        assert!(p.wishes.memory_high.is_none() && p.wishes.memory_oom_group.is_none());
    }
}

#[test]
fn every_wish_carries_its_numbers() {
    let r = resources((Some(1000), None), (Some(250), Some(500)));
    let p = one(&config(RuleSet::Proposal), workload(Requested::Stated(r)));
    let reason = p.wishes.oom_score_adj.unwrap().reason;
    assert_eq!(reason.text(), "Burstable: 1000 - trunc(1000 x 262144000 / 1048576000)");
    assert_eq!(reason.inputs()["memory_request"], "262144000");
    assert_eq!(reason.inputs()["memory_capacity"], "1048576000");
    assert_eq!(reason.inputs()["rules"], "proposal");
    assert_eq!(p.class_reason.text(), "Burstable by memory: something is requested, and more may be used");
}

#[test]
fn the_kubelet_rules_look_at_the_pod() {
    let r = resources((None, None), (Some(100), Some(100)));
    let mut w = workload(Requested::Stated(r));
    w.pod_facts.qos_class = Some(Burstable);
    let p = one(&config(RuleSet::Kubelet), w.clone());
    assert_eq!(p.classes, ResourceClasses { memory: Some(Burstable), cpu: Some(Burstable) });
    assert_eq!(numbers(&p.wishes).0, Some(900));
    assert_eq!(numbers(&p.wishes).5, Some(100 * MIB));
    // Nothing known of the pod: the container is taken as one of its own.
    w.pod_facts.qos_class = None;
    assert_eq!(one(&config(RuleSet::Kubelet), w.clone()).qos_class, Some(Burstable));
    // Memory alone makes it guaranteed under the proposal.
    assert_eq!(one(&config(RuleSet::Proposal), w).qos_class, Some(Guaranteed));
}

#[test]
fn sidecars_shares_and_critical_pods_under_kubelet() {
    let r = resources((None, None), (Some(100), None));
    let mut w = workload(Requested::Stated(r));
    w.kind = ContainerKind::Sidecar;
    w.pod_facts = PodFacts {
        qos_class: Some(Burstable),
        min_regular_memory_request: Some(Bytes::new(400 * MIB)),
        memory_share_per_container: Some(Bytes::new(50 * MIB)),
        ..PodFacts::default()
    };
    let score = |w: &Workload| numbers(&one(&config(RuleSet::Kubelet), w.clone()).wishes).0;
    assert_eq!(score(&w), Some(550));
    w.kind = ContainerKind::Regular;
    assert_eq!(score(&w), Some(850));
    w.pod_facts.node_critical = true;
    assert_eq!(score(&w), Some(-997));
}

#[test]
fn pod_level_limits_bound_a_container_that_has_none() {
    let mut w = workload(Requested::Stated(resources((Some(100), None), (Some(10), None))));
    w.pod_facts.pod_cpu_limit = Some(MilliCpu::new(500));
    w.pod_facts.pod_memory_limit = Some(Bytes::new(64 * MIB));
    let n = numbers(&one(&PlanConfig::default(), w).wishes);
    assert_eq!((n.3, n.6), (Some(Limit::Value(50_000)), Some(Limit::Value(Bytes::new(64 * MIB)))));
}

#[test]
fn a_container_without_a_cpu_request_has_the_shares_of_its_pod() {
    let shares = |own: Option<u64>, pod: Option<u64>| {
        let mut w = workload(Requested::Stated(resources((own, None), (Some(10), None))));
        w.pod_facts.pod_cpu_request = pod.map(MilliCpu::new);
        numbers(&one(&config(RuleSet::Kubelet), w).wishes).1
    };
    assert_eq!(shares(None, Some(2000)), Some(2048));
    assert_eq!(shares(Some(500), Some(2000)), Some(512), "its own request comes first");
    assert_eq!(shares(Some(0), Some(2000)), Some(2), "a request of zero is a request");
    assert_eq!(shares(None, None), Some(2));
}

#[test]
fn a_burstable_score_needs_a_known_request_unless_the_pod_is_critical() {
    let e = Estimate { resources: resources((Some(50), None), (None, None)), memory_class: None };
    let mut w = workload(Requested::Estimated(e));
    w.pod_facts.qos_class = Some(Burstable);
    let score = |rules, w: &Workload| numbers(&one(&config(rules), w.clone()).wishes).0;
    assert_eq!((score(RuleSet::Kubelet, &w), score(RuleSet::Proposal, &w)), (None, None));
    w.pod_facts.node_critical = true;
    assert_eq!((score(RuleSet::Kubelet, &w), score(RuleSet::Proposal, &w)), (Some(-997), None));
    assert_eq!(one(&config(RuleSet::Kubelet), w).qos_class, Some(Burstable));
}

#[test]
fn nothing_known_means_nothing_written() {
    for rules in [RuleSet::Proposal, RuleSet::Kubelet] {
        let p = one(&config(rules), workload(Requested::Unknown));
        assert!(matches!(p.standing, PlanStatus::Unclassified(_)), "{rules}");
        assert!(p.wishes.is_empty());
        assert_eq!((p.qos_class, p.classes), (None, ResourceClasses::default()));
        let empty = one(&config(rules), workload(Requested::Estimated(Estimate::default())));
        assert!(matches!(empty.standing, PlanStatus::Unclassified(_)), "{rules}");
    }
}

#[test]
fn unmanaged_containers_are_classified_but_not_written() {
    let mut w = workload(Requested::Stated(resources((Some(1), None), (Some(1), None))));
    w.managed = Managed::No("opted out by annotation".into());
    let p = one(&PlanConfig::default(), w);
    assert_eq!(p.standing, PlanStatus::Unmanaged("opted out by annotation".into()));
    assert_eq!(p.qos_class, Some(Burstable));
    assert!(p.wishes.is_empty());
}

#[test]
fn estimates_write_what_is_known_and_leave_the_rest() {
    let cpu_only = Estimate { resources: resources((Some(500), None), (None, None)), memory_class: None };
    let p = one(&PlanConfig::default(), workload(Requested::Estimated(cpu_only)));
    assert!(p.estimated);
    assert_eq!(numbers(&p.wishes), (None, Some(512), Some(59), None, None, None, None));
    // A limit in the record is not a request, and a score alone says nothing of the CPU.
    let score_only = Estimate {
        resources: resources((None, Some(500)), (Some(250), Some(500))),
        memory_class: Some(Burstable),
    };
    for rules in [RuleSet::Proposal, RuleSet::Kubelet] {
        let p = one(&config(rules), workload(Requested::Estimated(score_only)));
        let n = numbers(&p.wishes);
        assert_eq!((n.0, n.1, n.3), (Some(750), None, Some(Limit::Value(50_000))), "{rules}");
        assert_eq!((n.5, n.6), (Some(250 * MIB), Some(Limit::Value(Bytes::new(500 * MIB)))), "{rules}");
    }
}

#[test]
fn an_estimate_is_not_corrected_twice_by_the_pod() {
    let e = Estimate { resources: resources((None, None), (Some(100), None)), memory_class: Some(Burstable) };
    let mut w = workload(Requested::Estimated(e));
    w.kind = ContainerKind::Sidecar;
    w.pod_facts.min_regular_memory_request = Some(Bytes::new(400 * MIB));
    w.pod_facts.memory_share_per_container = Some(Bytes::new(50 * MIB));
    assert_eq!(numbers(&one(&config(RuleSet::Kubelet), w).wishes).0, Some(900));
}

#[test]
fn infrastructure_gets_its_score_and_nothing_nobody_stated() {
    let mut w = workload(Requested::Unknown);
    w.kind = ContainerKind::Infrastructure;
    for (rules, source, expected) in [
        (RuleSet::Proposal, SourceKind::Cri, -999),
        (RuleSet::Kubelet, SourceKind::Cri, -998),
        (RuleSet::Kubelet, SourceKind::Systemd, -999),
    ] {
        w.source = source;
        let p = one(&config(rules), w.clone());
        assert_eq!(p.standing, PlanStatus::Planned);
        assert_eq!(numbers(&p.wishes), (Some(expected), None, None, None, None, None, None), "{rules}");
    }
}

#[test]
fn knobs_switched_off_are_not_wished() {
    let r = resources((Some(500), Some(1000)), (Some(100), Some(200)));
    let mut w = workload(Requested::Stated(r));
    w.oom_kill = Some(OomKill::Container);
    let off = PlanConfig { knobs: KnobSwitches::NONE, ..PlanConfig::default() };
    assert!(one(&off, w.clone()).wishes.is_empty());
    let knobs = KnobSwitches { oom_score_adj: true, ..KnobSwitches::NONE };
    let only = one(&PlanConfig { knobs, ..PlanConfig::default() }, w).wishes;
    assert_eq!(only.reasons().len(), 1);
    assert_eq!(only.oom_score_adj.unwrap().value.get(), 900);
}

#[test]
fn memory_high_and_whole_container_kills_are_asked_for() {
    let r = resources((None, None), (Some(100), Some(200)));
    let mut w = workload(Requested::Stated(r));
    let config = PlanConfig {
        memory_high: Some(MemoryHighFactor::new(500).unwrap()),
        oom_kill: Some(OomKill::Container),
        ..PlanConfig::default()
    };
    let wishes = one(&config, w.clone()).wishes;
    assert_eq!(wishes.memory_high.unwrap().value, Bytes::new(150 * MIB));
    assert!(wishes.memory_oom_group.unwrap().value);
    w.oom_kill = Some(OomKill::Process);
    assert!(!one(&config, w).wishes.memory_oom_group.unwrap().value);
}

#[test]
fn quotas_have_the_configured_period_and_burst() {
    let config = PlanConfig {
        cpu_period: CpuPeriod::new(20_000).unwrap(),
        cpu_burst: Some(BurstPercent::new(50).unwrap()),
        ..PlanConfig::default()
    };
    let limited = resources((Some(500), Some(1500)), (None, None));
    let wishes = one(&config, workload(Requested::Stated(limited))).wishes;
    let quota = wishes.cpu_quota.unwrap();
    assert_eq!((quota.value.quota_usec, quota.value.period_usec), (Limit::Value(30_000), 20_000));
    assert_eq!(quota.reason.text(), "cpu limit: 1500m of each 20000 us");
    assert_eq!(wishes.cpu_burst.unwrap().value, 15_000);
    // Nothing to save up from without a quota, and none when its knob is off.
    let unlimited = resources((Some(500), None), (None, None));
    assert!(one(&config, workload(Requested::Stated(unlimited))).wishes.cpu_burst.is_none());
    let knobs = KnobSwitches { cpu_burst: false, ..KnobSwitches::ALL };
    let off = PlanConfig { knobs, ..config };
    assert!(one(&off, workload(Requested::Stated(limited))).wishes.cpu_burst.is_none());
    assert!(CpuPeriod::new(999).is_err() && CpuPeriod::new(1_000_001).is_err());
    assert!(BurstPercent::new(0).is_err() && BurstPercent::new(101).is_err());
}

#[test]
fn idle_takes_the_place_of_weight_for_containers_without_a_cpu_request() {
    let config = PlanConfig { cpu_idle_best_effort: true, ..PlanConfig::default() };
    let none = workload(Requested::Stated(ContainerResources::default()));
    let wishes = one(&config, none.clone()).wishes;
    assert!(wishes.cpu_idle.unwrap().value);
    assert!(wishes.cpu_shares.is_none() && wishes.cpu_weight.is_none());
    // Best-effort by memory alone keeps its CPU.
    let cpu = workload(Requested::Stated(resources((Some(500), None), (None, None))));
    let wishes = one(&config, cpu).wishes;
    assert!(wishes.cpu_idle.is_none() && wishes.cpu_weight.is_some());
    assert!(one(&PlanConfig::default(), none.clone()).wishes.cpu_idle.is_none());
    let daemon = Workload { kind: ContainerKind::Infrastructure, ..none };
    assert!(one(&config, daemon).wishes.cpu_idle.is_none());
}

#[test]
fn swap_is_limited_by_class() {
    let config = PlanConfig { swap_limits: true, ..PlanConfig::default() };
    let swapping = NodeFacts { swap_total_bytes: Bytes::new(500 * MIB), ..node() };
    let swap = |node: &NodeFacts, memory| {
        let w = workload(Requested::Stated(resources((None, None), memory)));
        let made = plan(node, &config, &[w]).containers.remove(0).wishes.memory_swap_max;
        made.map(|w| w.value.get())
    };
    assert_eq!(swap(&swapping, (Some(100), Some(200))), Some(50 * MIB));
    assert_eq!(swap(&swapping, (Some(100), Some(100))), Some(0));
    assert_eq!(swap(&swapping, (None, None)), Some(0));
    assert_eq!(swap(&node(), (Some(100), None)), None);
}

#[test]
fn a_plan_keeps_the_order_and_is_the_same_each_time() {
    let ws: Vec<_> = (0..5)
        .map(|i| Workload {
            id: format!("c{i}"),
            ..workload(Requested::Stated(ContainerResources::default()))
        })
        .collect();
    let first = plan(&node(), &PlanConfig::default(), &ws);
    assert_eq!(
        first.containers.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(),
        ["c0", "c1", "c2", "c3", "c4"]
    );
    assert_eq!(first, plan(&node(), &PlanConfig::default(), &ws));
}
