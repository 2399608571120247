//! Decisions as earlier agents recorded them: each rule still writes the same text and numbers, and each is replayed.
//!
//! `fixtures/decisions.jsonl` was written by the agent before reasons had a type; it is never written again.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::decision::{Decision, DecisionKind, DecisionResult};
use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass::{self, BestEffort, Burstable, Guaranteed};
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, Estimate, Managed, OomKill, PodFacts, PodRef,
    Requested, ScorePolicy, SourceKind, Workload,
};
use evenkeel_qos::config::{BurstPercent, MemoryHighFactor, PlanConfig};
use evenkeel_qos::cores::{CoresRequest, Cpu, allocate, wanted};
use evenkeel_qos::dynamic::{Dynamic, DynamicRule, ScoreCandidate};
use evenkeel_qos::effective::{Levels, PathCgroup, ProtectionKnob, ProtectionPath, WeightLevel, WeightPath};
use evenkeel_qos::eviction::{EvictionPolicy, Remedy, rule};
use evenkeel_qos::fair::{Fair, Hysteresis, Layout, Member, MicroCpu};
use evenkeel_qos::own::{self, Leaf, Rule};
use evenkeel_qos::plan::{Plan, Wishes, plan};
use evenkeel_qos::pressure::{
    self, Giving, Grade, PressureCause, Restriction, Rung, Signals, Switches, Thrashing, Waited,
};
use evenkeel_qos::replay::{Replayed, replay};
use evenkeel_qos::reserve::{NodeUse, Reserve, ReserveRule};
use evenkeel_qos::rules::RuleSet;
use evenkeel_qos::why::{Inputs, Why};
use evenkeel_qos::{overlay, starvation};

use crate::desired::with_cores;

const RECORDED: &str = include_str!("fixtures/decisions.jsonl");

/// Decisions in the order in which they were made, each text of a rule once.
#[derive(Default)]
struct Book {
    decisions: Vec<Decision>,
    known: BTreeSet<(String, String, String)>,
}

impl Book {
    fn write(&mut self, kind: DecisionKind, knob: &str, new: &str, reason: String, inputs: Inputs) {
        let seq = self.decisions.len() as u64 + 1;
        if !self.known.insert((format!("{kind:?}"), knob.to_owned(), format!("{reason}{inputs:?}"))) {
            return;
        }
        self.decisions.push(Decision {
            time_usec: 1_700_000_000_000_000 + seq,
            seq,
            pod: Some("default/web".into()),
            container: Some("app".into()),
            kind,
            knob: Some(knob.to_owned()).filter(|knob| !knob.is_empty()),
            old: None,
            new: Some(new.to_owned()),
            reason,
            inputs,
            result: DecisionResult::Done,
        });
    }

    fn because(&mut self, kind: DecisionKind, knob: &str, new: impl ToString, why: &Why) {
        self.write(kind, knob, &new.to_string(), why.text(), why.inputs());
    }

    fn set(&mut self, knob: &str, new: impl ToString, reason: &Why) {
        self.because(DecisionKind::Set, knob, new, reason);
    }

    fn plan(&mut self, made: &Plan) {
        for c in &made.containers {
            let class = c.qos_class.map_or("none", QosClass::as_str);
            self.because(DecisionKind::Classified, "", class, &c.class_reason);
            self.wishes(&c.wishes);
        }
    }

    fn wishes(&mut self, w: &Wishes) {
        w.oom_score_adj.iter().for_each(|w| self.set("oom_score_adj", w.value, &w.reason));
        w.cpu_shares.iter().for_each(|w| self.set("cpu.shares", w.value, &w.reason));
        w.cpu_weight.iter().for_each(|w| self.set("cpu.weight", w.value, &w.reason));
        w.cpu_idle.iter().for_each(|w| self.set("cpu.idle", u8::from(w.value), &w.reason));
        w.cpuset_cpus.iter().for_each(|w| self.set("cpuset.cpus", &w.value, &w.reason));
        if let Some(w) = &w.cpu_quota {
            let q = w.value;
            self.set("cpu.max", format!("{} {}", q.quota_usec, q.period_usec), &w.reason);
        }
        w.cpu_burst.iter().for_each(|w| self.set("cpu.max.burst", w.value, &w.reason));
        w.memory_min.iter().for_each(|w| self.set("memory.min", w.value.get(), &w.reason));
        w.memory_low.iter().for_each(|w| self.set("memory.low", w.value.get(), &w.reason));
        w.memory_high.iter().for_each(|w| self.set("memory.high", w.value.get(), &w.reason));
        if let Some(w) = &w.memory_max {
            let max = w.value.value().map_or_else(|| "max".to_owned(), |bytes| bytes.get().to_string());
            self.set("memory.max", max, &w.reason);
        }
        w.memory_oom_group.iter().for_each(|w| self.set("memory.oom.group", u8::from(w.value), &w.reason));
        w.memory_swap_max.iter().for_each(|w| self.set("memory.swap.max", w.value.get(), &w.reason));
    }
}

fn resources(cpu: (u64, u64), mib: (u64, u64)) -> ContainerResources {
    let some = |n: u64| (n > 0).then_some(n);
    ContainerResources {
        cpu_request: some(cpu.0).map(MilliCpu::new),
        cpu_limit: some(cpu.1).map(MilliCpu::new),
        memory_request: some(mib.0).map(|n| Bytes::new(n << 20)),
        memory_limit: some(mib.1).map(|n| Bytes::new(n << 20)),
    }
}

fn workload(requested: Requested, kind: ContainerKind, pod_facts: PodFacts) -> Workload {
    Workload {
        id: "c1".into(),
        source: SourceKind::Cri,
        pod: PodRef { namespace: "default".into(), name: "web".into(), uid: None },
        container: "app".into(),
        kind,
        workload: "web".into(),
        image: None,
        command_hash: None,
        cgroup: CgroupBinding::Path("/c1".into()),
        pid: None,
        requested,
        pod_facts,
        managed: Managed::Yes,
        score_policy: ScorePolicy::Respect,
        oom_kill: None,
    }
}

fn workloads() -> Vec<Workload> {
    use ContainerKind::{Infrastructure, Regular, Sidecar};
    let pod = PodFacts {
        qos_class: Some(Burstable),
        min_regular_memory_request: Some(Bytes::new(64 << 20)),
        memory_share_per_container: Some(Bytes::new(1 << 20)),
        pod_memory_limit: Some(Bytes::new(512 << 20)),
        pod_cpu_request: Some(MilliCpu::new(700)),
        pod_cpu_limit: Some(MilliCpu::new(900)),
        ..PodFacts::default()
    };
    let critical = PodFacts { node_critical: true, ..PodFacts::default() };
    let stated = |cpu, mib| Requested::Stated(resources(cpu, mib));
    let estimated = |cpu, mib, memory_class| {
        Requested::Estimated(Estimate { resources: resources(cpu, mib), memory_class })
    };
    let of = |requested, kind, facts: &PodFacts| workload(requested, kind, facts.clone());
    let none = PodFacts::default();
    let asked = Workload { oom_kill: Some(OomKill::Process), ..of(stated((0, 0), (0, 0)), Regular, &none) };
    vec![
        of(stated((500, 1000), (100, 100)), Regular, &none),
        of(stated((1000, 0), (250, 500)), Regular, &none),
        of(stated((0, 250), (0, 0)), Regular, &none),
        of(stated((100, 0), (0, 0)), Regular, &pod),
        of(stated((0, 0), (300, 0)), Regular, &pod),
        of(stated((50, 0), (200, 0)), Sidecar, &pod),
        of(stated((50, 0), (1_000_000, 0)), Regular, &none),
        of(stated((50, 0), (200, 300)), Regular, &critical),
        of(estimated((100, 200), (50, 60), Some(Burstable)), Regular, &none),
        of(estimated((0, 0), (0, 60), Some(Guaranteed)), Regular, &pod),
        of(estimated((0, 0), (0, 0), None), Regular, &none),
        of(Requested::Unknown, Regular, &none),
        of(Requested::Unknown, Infrastructure, &none),
        Workload { source: SourceKind::Manifests, ..of(Requested::Unknown, Infrastructure, &none) },
        asked,
    ]
}

fn node() -> NodeFacts {
    NodeFacts {
        swap_total_bytes: Bytes::new(1 << 30),
        ..NodeFacts::of_size(Bytes::new(4 << 30), MilliCpu::new(8000))
    }
}

fn plans(book: &mut Book) {
    for rules in [RuleSet::Proposal, RuleSet::Kubelet] {
        for all in [false, true] {
            let config = PlanConfig {
                rules,
                memory_high: all.then(|| MemoryHighFactor::new(900).unwrap()),
                cpu_burst: all.then(|| BurstPercent::new(50).unwrap()),
                cpu_idle_best_effort: all,
                swap_limits: all,
                oom_kill: all.then_some(OomKill::Container),
                ..PlanConfig::default()
            };
            book.plan(&plan(&node(), &config, &workloads()));
        }
    }
}

fn cores(book: &mut Book) {
    let of = |id: &str, n: u64| {
        let requested = Requested::Stated(resources((n, n), (1, 1)));
        Workload { id: id.into(), ..workload(requested, ContainerKind::Regular, PodFacts::default()) }
    };
    let workloads = [of("a", 2000), of("b", 3000), of("c", 500), of("d", 64_000)];
    let machine: Vec<_> = (0..8).map(|id| Cpu { id, numa: 0, socket: 0, core: id / 2 }).collect();
    let mut had = BTreeMap::new();
    for _ in 0..2 {
        let asked = plan(&node(), &PlanConfig::default(), &workloads);
        let asks = asked.containers.iter().zip(&workloads);
        let asks: Vec<_> = asks
            .filter_map(|(c, w)| Some(CoresRequest { id: c.id.clone(), count: wanted(c, &w.requested)? }))
            .collect();
        let allocation = allocate(&machine, 1, &asks, &had);
        had = allocation.assigned();
        let made = Plan { containers: with_cores(&node(), &workloads, &allocation) };
        book.plan(&made);
    }
}

fn fair_and_owned(book: &mut Book) {
    let member = |key: u32, request, used| Member {
        key,
        parent: "p",
        request: MilliCpu::new(request),
        used: Some(MicroCpu::new(used)),
        waits: false,
    };
    let members = [member(1, 500, 900_000), member(2, 0, 90_000), member(3, 300, 0)];
    let shared = Fair::new(Layout::TwoLevel, Hysteresis::default());
    let shared = { shared }.observe(0, MilliCpu::new(3000), &members).unwrap();
    for a in shared.members.values().chain(shared.parents.values()) {
        book.set("cpu.weight", a.weight, &a.weight_wish().reason);
        book.set("cpu.shares", a.shares, &a.shares_wish().reason);
    }
    let rule = Rule {
        conversion: evenkeel_qos::cpu::WeightConversion::Linear,
        root_request: MilliCpu::new(4000),
        node: MilliCpu::new(8000),
    };
    let leaf = Leaf {
        path: "/own/pod/c".into(),
        min: Bytes::new(4096),
        low: Bytes::new(8192),
        request: MilliCpu::new(1500),
    };
    for inner in own::inner("/own", rule, &[leaf]).values() {
        book.set("memory.min", inner.min.value.get(), &inner.min.reason);
        book.set("memory.low", inner.low.value.get(), &inner.low.reason);
        book.set("cpu.weight", inner.weight.value, &inner.weight.reason);
        book.set("cpu.shares", inner.shares.value, &inner.shares.reason);
    }
    let wish = own::leaf_weight(MilliCpu::new(1), MilliCpu::new(8000));
    book.set("cpu.weight", wish.value, &wish.reason);
}

fn node_and_dynamic(book: &mut Book) {
    let mut reserve = Reserve::new(ReserveRule { configured: Bytes::new(1 << 29), margin_percent: 10 });
    for minute in [0_u64, 1, 2, 30] {
        let measured = NodeUse {
            memory: Bytes::new(1 << 32),
            daemons: Bytes::new(minute << 26),
            workloads: Bytes::new(minute << 27),
            page: Bytes::new(4096),
        };
        let wish = reserve.observe(minute * 60_000_000, measured);
        book.because(DecisionKind::Node, "memory.max", wish.value.get(), &wish.reason);
    }
    let candidate = |id: &str, usage| ScoreCandidate {
        id: id.into(),
        request: Bytes::new(100),
        usage: Bytes::new(usage),
        largest: None,
        priority: -3,
    };
    let mut dynamic = Dynamic::new(DynamicRule::new(RuleSet::Kubelet));
    let all = [candidate("a", 50), candidate("b", 150), candidate("c", 300)];
    for id in dynamic.observe(Bytes::new(10_000), &all) {
        let wish = dynamic.wish(&id).unwrap();
        book.set("oom_score_adj", wish.value, &wish.reason);
    }
}

fn rulings(book: &mut Book) {
    let turned = EvictionPolicy {
        best_effort: Remedy::Restart,
        guaranteed: Remedy::Evict,
        ..EvictionPolicy::default()
    };
    for (policy, class, restarts) in [
        (EvictionPolicy::default(), BestEffort, 0),
        (EvictionPolicy::default(), Burstable, 2),
        (EvictionPolicy::default(), Burstable, 3),
        (EvictionPolicy::default(), Guaranteed, 9),
        (turned, BestEffort, 1),
        (turned, Guaranteed, 0),
    ] {
        let ruling = rule(&policy, class, restarts);
        let remedy = ruling.remedy();
        let kind = match remedy {
            Remedy::Evict => DecisionKind::Evict,
            Remedy::Restart => DecisionKind::Restart,
        };
        let reason = ruling.reason("was OOM-killed");
        book.write(kind, "", remedy.as_str(), reason, Why::Ruling(ruling).inputs());
    }
}

fn effects(book: &mut Book) {
    let node = |path: &str, setting| PathCgroup {
        path: path.into(),
        setting: Bytes::new(setting),
        usage: Bytes::new(1 << 30),
        siblings_claim: Bytes::ZERO,
    };
    let nodes = [node("/a b", 1 << 20), node("/a b/c", 0), node("/a b/c/d", 1 << 20)];
    let path = |protection| {
        let levels = Levels(nodes.to_vec());
        Why::EffectiveProtection(ProtectionPath { protection, recursive: false, levels })
    };
    let level = |path: &str, siblings| WeightLevel {
        path: path.into(),
        populated_siblings: siblings,
        processes_beside: 0,
        is_ours: false,
    };
    let levels = [level("/a b", 1), level("/a b/c", 3), level("/a b/c/d", 0)];
    for (knob, why) in [
        ("memory.min", path(ProtectionKnob::Min)),
        ("memory.low", path(ProtectionKnob::Low)),
        ("cpu.weight", Why::EffectiveWeight(WeightPath { levels: Levels(levels.to_vec()) })),
    ] {
        let mut inputs = why.inputs();
        inputs.insert("by".to_owned(), "/a b/c".to_owned());
        book.write(DecisionKind::Ineffective, knob, "1", String::new(), inputs);
    }
}

fn pressure(book: &mut Book) {
    let mib = |n: u64| Bytes::new(n << 20);
    let can = Switches { reclaim: true, high: true, soft_limit: false, freeze: true, kill: true };
    let base = pressure::PressureCase {
        grade: Grade::Warning,
        urgent: false,
        rung: Rung::Reclaim,
        available: mib(200),
        short_below: None,
        floor: mib(100),
        swap_free: Bytes::ZERO,
        managed: true,
        class: BestEffort,
        request: Bytes::ZERO,
        current: mib(600),
        anon: mib(300),
        file: mib(300),
        age_usec: 250,
        held_at: None,
        frozen: false,
        held_for_usec: None,
        kill_after_usec: 2_000_000,
        step: 1000,
        can,
    };
    let high = pressure::PressureCase {
        grade: Grade::High,
        rung: Rung::High,
        class: Burstable,
        request: mib(100),
        ..base
    };
    let freeze = pressure::PressureCase {
        grade: Grade::Critical,
        rung: Rung::Kill,
        short_below: Some(mib(300)),
        held_at: Some(mib(600)),
        ..base
    };
    let kill =
        pressure::PressureCase { available: mib(50), held_for_usec: Some(3_000_000), frozen: true, ..freeze };
    let soft = Switches { high: false, soft_limit: true, ..can };
    let soft = pressure::PressureCase { can: soft, ..high };
    let causes =
        [PressureCause::Exhaustion, PressureCause::Available, PressureCause::Full, PressureCause::Some];
    let signals = Signals { some: Some(1500), full: Some(3), exhaustion_usec: Some(9), ..Signals::default() };
    let none = Signals { own_limit: Some(4), ..Signals::default() };
    let act = |deed, cause, signals| pressure::PressureAction { key: 1, deed, cause, signals, retriggers: 2 };
    for (case, cause) in [base, high, freeze, kill, soft].into_iter().zip(causes.iter().cycle()) {
        let step = pressure::decide(&case).unwrap();
        let action = act(pressure::PressureChange::Restrict(step, case), Some(*cause), signals);
        let kind =
            if step == pressure::PressureStep::Kill { DecisionKind::Kill } else { DecisionKind::Relieve };
        book.because(kind, action.knob(true), action.value(), &action.why());
    }
    let giving = Giving {
        held: Restriction::High,
        grade: Grade::Calm,
        protected: false,
        available: mib(2000),
        reserve: mib(500),
        current: mib(300),
        limit: Some(mib(700)),
        peak: mib(600),
        growth: mib(1),
        cap: Some(mib(500)),
        held_for_usec: 9_000_000,
        freeze_at_most_usec: 5_000_000,
        raise: mib(40),
    };
    for case in [
        giving,
        Giving { current: mib(495), limit: None, ..giving },
        Giving { held: Restriction::Frozen, grade: Grade::High, cap: None, ..giving },
        Giving { held: Restriction::SoftLimit, protected: true, cap: None, ..giving },
    ] {
        let letting = pressure::let_go(&case).unwrap();
        let action = act(pressure::PressureChange::Release(letting, case), None, none);
        book.because(DecisionKind::Release, action.knob(false), action.value(), &action.why());
    }
    let thrash = Thrashing {
        limit: mib(24),
        current: mib(24),
        hits: 4711,
        refaulted: mib(310),
        waited: Some(Waited::Container(8700)),
        least_waited: 1000,
        span_usec: 5_200_000,
    };
    for case in [
        thrash,
        Thrashing { waited: Some(Waited::Node(8700)), ..thrash },
        Thrashing { waited: None, ..thrash },
    ] {
        let limit = case.proposed().unwrap().get();
        book.because(DecisionKind::Thrash, "memory.max", limit, &case.why("memory.max"));
    }
}

fn starvation_and_overlay(book: &mut Book) {
    use starvation::{Squeeze, StarvationAction, StarvationCase, StarvationChange, Starving, squeeze};
    let starving = Starving {
        request_milli: 500,
        usage_milli: 100,
        waited: Some(3000),
        throttled: false,
        node_busy: 10_000,
        below: 9000,
        pressure: 1000,
        busy: 9500,
    };
    let case = StarvationCase {
        managed: true,
        class: BestEffort,
        request_milli: 0,
        usage_milli: 900,
        least_weight: false,
        can_idle: true,
        quota_milli: None,
        floor_milli: 100,
        can_quota: true,
    };
    let squeezed = |case: StarvationCase| StarvationChange::Squeeze(squeeze(&case).unwrap(), case, 7);
    let held = StarvationCase { least_weight: true, can_idle: false, quota_milli: Some(400), ..case };
    for (kind, deed) in [
        (DecisionKind::Starved, StarvationChange::Report(starving)),
        (DecisionKind::Starved, StarvationChange::Evict(starving)),
        (DecisionKind::Relieve, squeezed(case)),
        (DecisionKind::Relieve, squeezed(StarvationCase { least_weight: true, ..case })),
        (DecisionKind::Relieve, squeezed(held)),
        (DecisionKind::Release, StarvationChange::Release(Squeeze::Idle)),
        (DecisionKind::Release, StarvationChange::Release(Squeeze::Quota(250))),
    ] {
        let action = StarvationAction { key: 3, deed, for_usec: 31_000_000 };
        book.because(kind, "cpu", action.value(), &action.why());
    }
    let clamp = overlay::Clamp { up_percent: 150, down_percent: 80, least: 10, most: 4000 };
    for (now, limit) in [(Some(500), None), (Some(100), Some(120)), (None, None)] {
        let case = overlay::OverlayCase { now, target: 2000, limit, free: 9000, clamp };
        let value = overlay::step(&case).unwrap().value.to_string();
        let why = Why::OverlayStep(Box::new(overlay::Advised { case, by: None }));
        book.write(DecisionKind::Resize, "cpu.request", &value, String::new(), why.inputs());
    }
}

fn made_now() -> Vec<Decision> {
    let mut book = Book::default();
    plans(&mut book);
    cores(&mut book);
    fair_and_owned(&mut book);
    node_and_dynamic(&mut book);
    rulings(&mut book);
    effects(&mut book);
    pressure(&mut book);
    starvation_and_overlay(&mut book);
    book.decisions
}

#[test]
fn every_rule_records_what_it_recorded_before() {
    let made: Vec<String> = made_now().iter().map(|made| serde_json::to_string(made).unwrap()).collect();
    for (recorded, made) in RECORDED.lines().zip(&made) {
        assert_eq!(recorded, made);
    }
    assert_eq!(RECORDED.lines().count(), made.len());
}

#[test]
fn decisions_of_earlier_agents_are_replayed() {
    let mut replayed = BTreeSet::new();
    for line in RECORDED.lines() {
        let recorded: Decision = serde_json::from_str(line).unwrap();
        let Some(rule) = recorded.inputs.get("formula").filter(|rule| *rule != "squeeze-release") else {
            continue;
        };
        assert_eq!(replay(&recorded), Replayed::Same, "{line}");
        replayed.insert(rule.clone());
    }
    assert_eq!(replayed.len(), 28, "{replayed:?}");
}
