//! Every value that is decided comes out again from its own inputs, and a changed input is noticed.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use evenkeel_model::decision::{Decision, DecisionKind, DecisionResult};
use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, Limit, MilliCpu};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, Estimate, Managed, OomKill, PodFacts, PodRef,
    Requested, ScorePolicy, SourceKind, Workload,
};
use evenkeel_qos::config::{BurstPercent, CpuPeriod, MemoryHighFactor, PlanConfig};
use evenkeel_qos::cores::{CoresRequest, Cpu, allocate, wanted};
use evenkeel_qos::cpu::WeightConversion;
use evenkeel_qos::dynamic::{Dynamic, DynamicRule, ScoreCandidate};
use evenkeel_qos::effective::{Levels, PathCgroup, ProtectionKnob, ProtectionPath, WeightLevel, WeightPath};
use evenkeel_qos::eviction::{EvictionPolicy, rule};
use evenkeel_qos::fair::{Fair, Hysteresis, Layout, Member, MicroCpu};
use evenkeel_qos::own::{self, Leaf, Rule};
use evenkeel_qos::plan::{ContainerPlan, Plan, plan};
use evenkeel_qos::replay::{Replayed, replay};
use evenkeel_qos::reserve::{NodeUse, Reserve, ReserveRule};
use evenkeel_qos::rules::RuleSet;
use evenkeel_qos::why::{Inputs, Why};
use proptest::prelude::*;

use crate::desired::with_cores;

fn inputs(of: &[(&str, &str)]) -> Inputs {
    of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn decision(kind: DecisionKind, knob: &str, new: &str, inputs: Inputs) -> Decision {
    Decision {
        time_usec: 1,
        seq: 1,
        pod: None,
        container: None,
        kind,
        knob: Some(knob.to_owned()),
        old: None,
        new: Some(new.to_owned()),
        reason: String::new(),
        inputs,
        result: DecisionResult::Done,
    }
}

fn same(knob: &str, new: impl ToString, why: &Why) {
    let made = decision(DecisionKind::Set, knob, &new.to_string(), why.inputs());
    assert_eq!(replay(&made), Replayed::Same, "{made:?}");
    let other = Decision { new: Some("-7".into()), ..made };
    let Replayed::Differs { recorded, now } = replay(&other) else { panic!("{other:?}") };
    assert_eq!((recorded.as_str(), now), ("-7", new.to_string()));
}

fn limit(v: Limit<Bytes>, unlimited: &str) -> String {
    v.value().map_or_else(|| unlimited.to_owned(), |b| b.get().to_string())
}

/// Replays every wish of a container, each as every knob it is written to.
fn all_same(c: &ContainerPlan) {
    let class = c.qos_class.map_or("none", QosClass::as_str);
    if matches!(c.class_reason, Why::Class(_)) {
        let made = decision(DecisionKind::Classified, "", class, c.class_reason.inputs());
        assert_eq!(replay(&made), Replayed::Same, "{made:?}");
    }
    let w = &c.wishes;
    w.oom_score_adj.iter().for_each(|w| same("oom_score_adj", w.value, &w.reason));
    w.cpu_shares.iter().for_each(|w| same("cpu.shares", w.value, &w.reason));
    w.cpu_weight.iter().for_each(|w| same("cpu.weight", w.value, &w.reason));
    w.cpu_idle.iter().for_each(|w| same("cpu.idle", u8::from(w.value), &w.reason));
    w.cpuset_cpus.iter().for_each(|w| same("cpuset.cpus", &w.value, &w.reason));
    if let Some(w) = &w.cpu_quota {
        let q = w.value;
        same("cpu.max", format!("{} {}", q.quota_usec, q.period_usec), &w.reason);
        same("cpu.cfs_quota_us", q.quota_usec.value().map_or("-1".into(), |v| v.to_string()), &w.reason);
        same("cpu.cfs_period_us", q.period_usec, &w.reason);
    }
    if let Some(w) = &w.cpu_burst {
        same("cpu.max.burst", w.value, &w.reason);
        same("cpu.cfs_burst_us", w.value, &w.reason);
    }
    for (knob, wish) in [("memory.min", &w.memory_min), ("memory.low", &w.memory_low)] {
        if let Some(w) = wish {
            same(knob, w.value.get(), &w.reason);
            same("memory.soft_limit_in_bytes", w.value.get(), &w.reason);
        }
    }
    w.memory_high.iter().for_each(|w| same("memory.high", w.value.get(), &w.reason));
    if let Some(w) = &w.memory_max {
        same("memory.max", limit(w.value, "max"), &w.reason);
        same("memory.limit_in_bytes", limit(w.value, "-1"), &w.reason);
    }
    w.memory_oom_group.iter().for_each(|w| same("memory.oom.group", u8::from(w.value), &w.reason));
    w.memory_swap_max.iter().for_each(|w| same("memory.swap.max", w.value.get(), &w.reason));
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
        oom_kill: Some(OomKill::Container),
    }
}

fn amounts() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), Just(Some(0)), (1_u64..100_000).prop_map(Some), any::<u64>().prop_map(Some)]
}

fn resources() -> impl Strategy<Value = ContainerResources> {
    (amounts(), amounts(), amounts(), amounts()).prop_map(|(a, b, c, d)| ContainerResources {
        cpu_request: a.map(MilliCpu::new),
        cpu_limit: b.map(MilliCpu::new),
        memory_request: c.map(Bytes::new),
        memory_limit: d.map(Bytes::new),
    })
}

fn class() -> impl Strategy<Value = Option<QosClass>> {
    prop_oneof![
        Just(None),
        Just(Some(QosClass::BestEffort)),
        Just(Some(QosClass::Burstable)),
        Just(Some(QosClass::Guaranteed))
    ]
}

fn requested() -> impl Strategy<Value = Requested> {
    prop_oneof![
        Just(Requested::Unknown),
        resources().prop_map(Requested::Stated),
        (resources(), class())
            .prop_map(|(resources, memory_class)| Requested::Estimated(Estimate { resources, memory_class })),
    ]
}

fn facts() -> impl Strategy<Value = PodFacts> {
    (class(), any::<bool>(), amounts(), amounts(), amounts(), amounts()).prop_map(
        |(c, critical, a, b, m, p)| PodFacts {
            qos_class: c,
            node_critical: critical,
            min_regular_memory_request: a.map(Bytes::new),
            memory_share_per_container: b.map(Bytes::new),
            pod_memory_limit: m.map(Bytes::new),
            pod_cpu_request: p.map(MilliCpu::new),
            pod_cpu_limit: p.map(MilliCpu::new),
            requests: None,
            priority: None,
            min_available: None,
            labels: BTreeMap::new(),
            from_api: false,
        },
    )
}

fn config() -> impl Strategy<Value = PlanConfig> {
    let conversion = prop_oneof![
        Just(WeightConversion::Linear),
        Just(WeightConversion::Quadratic),
        Just(WeightConversion::Systemd)
    ];
    (any::<bool>(), conversion, 0_u16..=1000, 1_u16..=100, 1_000_u64..=1_000_000, any::<bool>()).prop_map(
        |(kubelet, cpu_weight, high, burst, period, idle)| PlanConfig {
            rules: if kubelet { RuleSet::Kubelet } else { RuleSet::Proposal },
            cpu_weight,
            memory_high: Some(MemoryHighFactor::new(high).unwrap()),
            cpu_period: CpuPeriod::new(period).unwrap(),
            cpu_burst: Some(BurstPercent::new(burst).unwrap()),
            cpu_idle_best_effort: idle,
            swap_limits: true,
            ..PlanConfig::default()
        },
    )
}

fn kind() -> impl Strategy<Value = ContainerKind> {
    prop_oneof![
        Just(ContainerKind::Regular),
        Just(ContainerKind::Init),
        Just(ContainerKind::Sidecar),
        Just(ContainerKind::Infrastructure)
    ]
}

proptest! {
    #[test]
    fn every_wish_of_every_plan_comes_out_again(
        requested in requested(), facts in facts(), config in config(), kind in kind(),
        memory in prop_oneof![Just(0_u64), 1_u64..200_000, any::<u64>()], swap: u32,
    ) {
        let node = NodeFacts {
            swap_total_bytes: Bytes::new(u64::from(swap)),
            ..NodeFacts::of_size(Bytes::new(memory), MilliCpu::new(4000))
        };
        let w = Workload { kind, pod_facts: facts, ..workload(requested) };
        plan(&node, &config, &[w]).containers.iter().for_each(all_same);
    }
}

#[test]
fn allocations_come_out_again() {
    let cpus = |n: u64| ContainerResources {
        cpu_request: Some(MilliCpu::new(n)),
        cpu_limit: Some(MilliCpu::new(n)),
        memory_request: Some(Bytes::new(1 << 20)),
        memory_limit: Some(Bytes::new(1 << 20)),
    };
    let of = |id: &str, n| Workload { id: id.into(), ..workload(Requested::Stated(cpus(n))) };
    let workloads = [of("a", 2000), of("b", 3000), of("c", 500), of("d", 64_000)];
    let node = NodeFacts::of_size(Bytes::new(1 << 30), MilliCpu::new(8000));
    let machine: Vec<_> = (0..8).map(|id| Cpu { id, numa: 0, socket: 0, core: id / 2 }).collect();
    let mut had = BTreeMap::new();
    for _ in 0..2 {
        let asked: Plan = plan(&node, &PlanConfig::default(), &workloads);
        let asks = asked.containers.iter().zip(&workloads);
        let asks: Vec<_> = asks
            .filter_map(|(c, w)| Some(CoresRequest { id: c.id.clone(), count: wanted(c, &w.requested)? }))
            .collect();
        let allocation = allocate(&machine, 1, &asks, &had);
        had = allocation.assigned();
        let made = Plan { containers: with_cores(&node, &workloads, &allocation) };
        assert_eq!(had.len(), 2);
        made.containers.iter().for_each(all_same);
    }
}

#[test]
fn fair_parts_owned_subtrees_caps_and_dynamic_scores_come_out_again() {
    let member = |key: u32, parent: &'static str, request, used| Member {
        key,
        parent,
        request: MilliCpu::new(request),
        used: Some(MicroCpu::new(used)),
        waits: false,
    };
    let members = [
        member(1, "p", 500, 900_000),
        member(2, "p", 0, 90_000),
        member(3, "q", 300, 0),
        member(4, "q", 0, 0),
    ];
    for layout in [Layout::Flat, Layout::TwoLevel] {
        let shared =
            Fair::new(layout, Hysteresis::default()).observe(0, MilliCpu::new(3000), &members).unwrap();
        for a in shared.members.values().chain(shared.parents.values()) {
            same("cpu.weight", a.weight, &a.weight_wish().reason);
            same("cpu.shares", a.shares, &a.shares_wish().reason);
        }
    }
    let rule = Rule {
        conversion: WeightConversion::Linear,
        root_request: MilliCpu::new(4000),
        node: MilliCpu::new(4000),
    };
    let leaf = Leaf {
        path: "/own/pod/c".into(),
        min: Bytes::new(4096),
        low: Bytes::new(8192),
        request: MilliCpu::new(1500),
    };
    for inner in own::inner("/own", rule, &[leaf]).values() {
        same("memory.min", inner.min.value.get(), &inner.min.reason);
        same("memory.low", inner.low.value.get(), &inner.low.reason);
        same("cpu.weight", inner.weight.value, &inner.weight.reason);
        same("cpu.shares", inner.shares.value, &inner.shares.reason);
        // One reason may serve both versions.
        same("cpu.shares", inner.shares.value, &inner.weight.reason);
    }
    let wish = own::leaf_weight(MilliCpu::new(1500), MilliCpu::new(4000));
    same("cpu.weight", wish.value, &wish.reason);

    let mut reserve = Reserve::new(ReserveRule { configured: Bytes::new(1 << 29), margin_percent: 10 });
    for minute in 0..20_u64 {
        let node = NodeUse {
            memory: Bytes::new(1 << 32),
            daemons: Bytes::new(minute << 26),
            workloads: Bytes::new(minute << 27),
            page: Bytes::new(4096),
        };
        let wish = reserve.observe(minute * 60_000_000, node);
        same("memory.max", wish.value.get(), &wish.reason);
    }

    let candidates: Vec<_> = (0..10_u64)
        .map(|i| ScoreCandidate {
            id: i.to_string(),
            request: Bytes::new(100),
            usage: Bytes::new(i * 25),
            largest: None,
            priority: 0,
        })
        .collect();
    let mut dynamic = Dynamic::new(DynamicRule::new(RuleSet::Kubelet));
    for id in dynamic.observe(Bytes::new(10_000), &candidates) {
        let wish = dynamic.wish(&id).unwrap();
        same("oom_score_adj", wish.value, &wish.reason);
    }
}

#[test]
fn rulings_on_failed_containers_come_out_again() {
    for (class, restarts, kind) in [
        (QosClass::BestEffort, 0, DecisionKind::Evict),
        (QosClass::Burstable, 2, DecisionKind::Restart),
        (QosClass::Burstable, 3, DecisionKind::Evict),
        (QosClass::Guaranteed, 99, DecisionKind::Restart),
    ] {
        let ruling = rule(&EvictionPolicy::default(), class, restarts);
        let inputs = Why::Ruling(ruling).inputs();
        assert_eq!(replay(&decision(kind, "", "", inputs.clone())), Replayed::Same, "{class} {restarts}");
        let other = if kind == DecisionKind::Evict { DecisionKind::Restart } else { DecisionKind::Evict };
        assert!(matches!(replay(&decision(other, "", "", inputs)), Replayed::Differs { .. }));
    }
}

#[test]
fn starvation_comes_out_again() {
    let numbers = [
        ("formula", "starves"),
        ("request_milli", "500"),
        ("usage_milli", "100"),
        ("waited", "3000"),
        ("throttled", "false"),
        ("node_busy", "10000"),
        ("below", "9000"),
        ("pressure", "1000"),
        ("busy", "9500"),
    ];
    let told = |new| replay(&decision(DecisionKind::Starved, "cpu", new, inputs(&numbers)));
    assert_eq!((told("starving"), told("evict")), (Replayed::Same, Replayed::Same));
    assert!(matches!(told("fine"), Replayed::Differs { .. }));
}

#[test]
fn a_proposed_limit_comes_out_again_and_so_do_steps_of_agents_that_did_not_ask_whether_memory_is_short() {
    let thrash = inputs(&[
        ("formula", "thrash"),
        ("limit", "25165824"),
        ("current", "25165824"),
        ("hits", "100"),
        ("refaulted", "325058560"),
        ("waited", "8700"),
        ("least_waited", "1000"),
        ("span_usec", "5000000"),
    ]);
    assert_eq!(replay(&decision(DecisionKind::Thrash, "memory.max", "50331648", thrash)), Replayed::Same);
    // As recorded before: frozen for stalled time alone, with 23,254 MiB available.
    let mut step = vec![
        ("formula", "pressure-step"),
        ("grade", "critical"),
        ("urgent", "false"),
        ("rung", "kill"),
        ("available", "24383586304"),
        ("floor", "104857600"),
        ("swap_free", "0"),
        ("managed", "true"),
        ("class", "BestEffort"),
        ("request", "0"),
        ("current", "67108864"),
        ("anon", "67108864"),
        ("file", "0"),
        ("age_usec", "100"),
        ("held_at", "67108864"),
        ("frozen", "false"),
        ("kill_after_usec", "2000000"),
        ("step", "1000"),
        ("can", "soft-limit,freeze,kill"),
    ];
    let before = decision(DecisionKind::Relieve, "freezer.state", "frozen", inputs(&step));
    assert_eq!(replay(&before), Replayed::Same);
    // An agent that asks would not do it.
    step.push(("short_below", "2500000000"));
    let now = decision(DecisionKind::Relieve, "freezer.state", "frozen", inputs(&step));
    assert!(matches!(replay(&now), Replayed::Differs { now, .. } if now == "none"));
}

#[test]
fn verdicts_on_effect_come_out_again() {
    let node = |path: &str, setting| PathCgroup {
        path: path.into(),
        setting: Bytes::new(setting),
        usage: Bytes::new(1 << 30),
        siblings_claim: Bytes::ZERO,
    };
    let told = |by: &str, why: Why| {
        let mut inputs = why.inputs();
        inputs.insert("by".to_owned(), by.to_owned());
        replay(&decision(DecisionKind::Ineffective, "memory.min", "1", inputs))
    };
    let nodes = [node("/a b", 1 << 20), node("/a b/c", 0), node("/a b/c/d", 1 << 20)];
    let path = |protection| {
        let levels = Levels(nodes.to_vec());
        Why::EffectiveProtection(ProtectionPath { protection, recursive: false, levels })
    };
    assert_eq!(told("/a b/c", path(ProtectionKnob::Min)), Replayed::Same);
    let now = "/a b/c".to_owned();
    let differs = Replayed::Differs { recorded: "/a b".to_owned(), now };
    assert_eq!(told("/a b", path(ProtectionKnob::Low)), differs);
    let level = |path: &str, siblings| WeightLevel {
        path: path.into(),
        populated_siblings: siblings,
        processes_beside: 0,
        is_ours: false,
    };
    let levels = [level("/a b", 1), level("/a b/c", 3), level("/a b/c/d", 0)];
    let weight = |levels| Why::EffectiveWeight(WeightPath { levels: Levels(levels) });
    assert_eq!(told("/a b/c", weight(levels.to_vec())), Replayed::Same);
    assert!(matches!(told("/a b/c", weight(Vec::new())), Replayed::NotADecision(_)));
    // A decision is bounded: a deeper path is not in it.
    assert!(matches!(told("/a b/c", weight(vec![level("/x", 1); 33])), Replayed::NotADecision(_)));
}

#[test]
fn what_cannot_be_decided_again_says_why() {
    let with = |of: &[(&str, &str)]| decision(DecisionKind::Set, "cpu.shares", "2", inputs(of));
    let table = [
        (with(&[]), "names no rule in its inputs"),
        (with(&[("formula", "magic")]), "its rule magic is not known here"),
        (with(&[("formula", "shares")]), "its inputs lack cpu_request_milli"),
        (
            with(&[("formula", "shares"), ("cpu_request_milli", "many")]),
            "its input cpu_request_milli cannot be read: many",
        ),
        (
            Decision {
                knob: Some("cpu.weight".into()),
                ..with(&[("formula", "weight"), ("conversion", "cubic"), ("cpu_request_milli", "1")])
            },
            "its input conversion cannot be read: cubic",
        ),
        (
            Decision { new: None, ..with(&[("formula", "shares"), ("cpu_request_milli", "1")]) },
            "records no value that was decided",
        ),
        (Decision { kind: DecisionKind::OomKill, ..with(&[]) }, "tells what the kernel did"),
        (
            Decision { kind: DecisionKind::Denied, ..with(&[]) },
            "tells that the kernel or the configuration refused",
        ),
        (Decision { kind: DecisionKind::Contended, ..with(&[]) }, "tells that somebody else rewrites a knob"),
        (Decision { kind: DecisionKind::Evict, ..with(&[]) }, "its inputs lack class"),
        (
            Decision {
                kind: DecisionKind::Release,
                ..with(&[("formula", "squeeze-release"), ("step", "idle")])
            },
            "tells that nobody starves any more",
        ),
        (with(&[("formula", "unclassified")]), "its rule unclassified is not known here"),
        (
            with(&[("formula", "score"), ("rules", "kubelet"), ("class", "best")]),
            "its inputs are not those of its rule: unknown variant `best`, expected one of `BestEffort`, `Burstable`, `Guaranteed`",
        ),
    ];
    for (made, why) in table {
        assert_eq!(replay(&made), Replayed::NotADecision(why.to_owned()));
    }
}

proptest! {
    #[test]
    fn any_inputs_are_taken(
        formula in prop_oneof![Just("score"), Just("fair"), Just("quota"), Just("exclusive-cores"), Just("workloads-cap"), Just("swap"), Just("dynamic-score"), Just("high"), Just("pressure-step")],
        values in prop::collection::vec("[0-9]{0,21}|true|-1|0:0/0/0|max", 40),
    ) {
        let names = [
            "class", "rules", "memory_request", "memory_capacity", "node_critical", "pod_share", "page", "swap_total",
            "memory_limit", "capacity_micro", "active_requests_micro", "active_siblings", "wake_micro", "scale", "active",
            "cpu_request_milli", "period_usec", "cpu_limit_milli", "topology", "free", "count", "kept",
            "configured_reserve", "daemons_p99", "trusted", "margin_percent", "workloads_use", "previous_cap", "step",
            "memory_usage", "largest_process", "rank", "over_request", "factor_permille",
        ];
        let mut inputs: Inputs = names.iter().zip(&values).map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
        inputs.insert("formula".into(), formula.into());
        inputs.entry("class".into()).and_modify(|c| *c = "Burstable".into());
        inputs.entry("rules".into()).and_modify(|c| *c = "kubelet".into());
        for knob in ["cpu.max", "cpu.shares", "memory.max"] {
            replay(&decision(DecisionKind::Set, knob, "1", inputs.clone()));
        }
    }
}
