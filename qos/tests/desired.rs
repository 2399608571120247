//! The desired state of a whole node: every input in its place, and one container at a time the same as all at once.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;

use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, MilliCpu, OomScoreAdj};
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, Managed, PodFacts, PodRef, Requested, ScorePolicy,
    SourceKind, Workload,
};
use evenkeel_qos::cores::{Allocation, CoresRequest, Cpu, allocate, wanted};
use evenkeel_qos::desired::{
    ContainerInputs, Desired, NodeInputs, NodeView, Protection, container, desired, inner,
};
use evenkeel_qos::dynamic::{Dynamic, DynamicRule, ScoreCandidate};
use evenkeel_qos::fair::{Allotment, Fair, Hysteresis, Layout, Member, MicroCpu};
use evenkeel_qos::own::{Leaf, leaf_weight};
use evenkeel_qos::plan::{ContainerPlan, PlanConfig, PlanStatus, Wish, plan};
use evenkeel_qos::rules::{RuleSet, cpu_request_of};
use proptest::prelude::*;

const MIB: u64 = 1 << 20;

fn node() -> NodeFacts {
    NodeFacts::of_size(Bytes::new(4096 * MIB), MilliCpu::new(8000))
}

/// What containers should hold, with processors given to some of them.
pub(crate) fn with_cores(
    facts: &NodeFacts,
    workloads: &[Workload],
    cores: &Allocation,
) -> Vec<ContainerPlan> {
    let (config, parts) = (PlanConfig::default(), BTreeMap::new());
    let node = NodeInputs { facts, config: &config, own: &[], cores: Some(cores), parts: &parts };
    let containers = workloads.iter().map(|workload| inputs(workload, "/any")).collect();
    desired(&NodeView { node, containers }).containers
}

fn inputs<'a>(workload: &'a Workload, path: &'a str) -> ContainerInputs<'a> {
    ContainerInputs { workload, path, can_idle: true, part: None, score: None, held: Protection::default() }
}

fn workload(id: &str, (cpu, memory): (u64, u64), is_guaranteed: bool) -> Workload {
    let (cpu, memory) = (Some(MilliCpu::new(cpu)), Some(Bytes::new(memory * MIB)));
    Workload {
        id: id.to_owned(),
        source: SourceKind::Manifests,
        pod: PodRef { namespace: "default".into(), name: id.into(), uid: None },
        container: "main".into(),
        kind: ContainerKind::Regular,
        workload: id.into(),
        image: None,
        command_hash: None,
        cgroup: CgroupBinding::Path(format!("/{id}")),
        pid: None,
        requested: Requested::Stated(ContainerResources {
            cpu_request: cpu,
            cpu_limit: cpu.filter(|_| is_guaranteed),
            memory_request: memory,
            memory_limit: memory.filter(|_| is_guaranteed),
        }),
        pod_facts: PodFacts::default(),
        managed: Managed::Yes,
        score_policy: ScorePolicy::Respect,
        oom_kill: None,
    }
}

/// Fair parts of containers under two parents of an owned root, by key, and of the parents.
fn parts() -> (BTreeMap<u32, Allotment>, BTreeMap<String, Allotment>) {
    let member = |key: u32, parent: &str, used| Member {
        key,
        parent: parent.to_owned(),
        request: MilliCpu::new(500),
        used: Some(MicroCpu::new(used)),
        waits: false,
    };
    let members = [member(1, "/own/a", 900_000), member(2, "/own/a", 0), member(3, "/own/b", 90_000)];
    let mut fair = Fair::new(Layout::TwoLevel, Hysteresis::default());
    let shared = fair.observe(0, MilliCpu::new(8000), &members).unwrap();
    (shared.members, shared.parents)
}

fn by_use(id: &str) -> Wish<OomScoreAdj> {
    let mut dynamic = Dynamic::new(DynamicRule::new(RuleSet::Proposal));
    let (request, usage) = (Bytes::new(64 * MIB), Bytes::new(128 * MIB));
    let candidate = ScoreCandidate { id: id.to_owned(), request, usage, largest: None, priority: 0 };
    dynamic.observe(node().memory_bytes, &[candidate]);
    dynamic.wish(id).unwrap().clone()
}

#[test]
fn without_other_inputs_it_is_what_requests_ask_for() {
    let facts = node();
    let workloads = [workload("a", (500, 64), false), workload("b", (2000, 64), true)];
    let (config, none) = (PlanConfig::default(), BTreeMap::new());
    let node = NodeInputs { facts: &facts, config: &config, own: &[], cores: None, parts: &none };
    let containers = workloads.iter().map(|workload| inputs(workload, "/pods/any")).collect();
    let made = desired(&NodeView { node, containers });
    assert_eq!(made.containers, plan(&facts, &config, &workloads).containers);
    assert_eq!(made.inner, BTreeMap::new());
}

#[test]
fn each_input_decides_its_own_knobs() {
    let facts = node();
    let (config, none) =
        (PlanConfig { cpu_idle_best_effort: true, ..PlanConfig::default() }, BTreeMap::new());
    let (parts, parents) = parts();
    let own = ["/own".to_owned()];
    let bare = NodeInputs { facts: &facts, config: &config, own: &[], cores: None, parts: &none };
    let web = workload("web", (500, 64), false);
    let plain = container(&bare, &inputs(&web, "/own/a/web"));

    // A subtree of ours weighs at the finest scale; shares and all else stay.
    let node = NodeInputs { own: &own, ..bare };
    let owned = container(&node, &inputs(&web, "/own/a/web")).wishes;
    assert_eq!(owned.cpu_weight, Some(leaf_weight(MilliCpu::new(500), facts.cpu_milli)));
    assert_eq!(
        (owned.cpu_shares, owned.oom_score_adj),
        (plain.wishes.cpu_shares.clone(), plain.wishes.oom_score_adj.clone())
    );

    // A fair part is before that, in both versions' terms.
    let part = &parts[&1];
    let fair = container(&node, &ContainerInputs { part: Some(part), ..inputs(&web, "/own/a/web") }).wishes;
    assert_eq!(fair.cpu_weight, Some(part.weight_wish()));
    assert_eq!(fair.cpu_shares, Some(part.shares_wish()));
    assert_eq!(fair.memory_low, plain.wishes.memory_low);

    // A score by use holds for Burstable containers alone.
    let score = by_use("web");
    let ranked = container(&bare, &ContainerInputs { score: Some(&score), ..inputs(&web, "/any") }).wishes;
    assert_eq!(ranked.oom_score_adj, Some(score.clone()));
    let guaranteed = workload("web", (500, 64), true);
    let kept = container(&bare, &ContainerInputs { score: Some(&score), ..inputs(&guaranteed, "/any") });
    assert_eq!(kept, container(&bare, &inputs(&guaranteed, "/any")));
    assert_eq!(kept.qos_class, Some(QosClass::Guaranteed));

    // Idle is wished only where the kernel has it, and then no weight is.
    let least = workload("least", (0, 0), false);
    let idle = |can_idle| container(&bare, &ContainerInputs { can_idle, ..inputs(&least, "/any") }).wishes;
    assert!(idle(true).cpu_idle.is_some() && idle(true).cpu_weight.is_none());
    assert!(idle(false).cpu_idle.is_none() && idle(false).cpu_weight.is_some());

    // Cgroups between: sums of what lies below, or what they still hold, and their own parts.
    let held = Protection { min: Bytes::ZERO, low: Bytes::new(100 * MIB) };
    let containers = vec![ContainerInputs { held, ..inputs(&web, "/own/a/web") }];
    let made = desired(&NodeView { node: NodeInputs { parts: &parents, ..node }, containers });
    assert_eq!(made.inner.keys().collect::<Vec<_>>(), ["/own", "/own/a"]);
    assert_eq!(made.inner["/own"].low.value, Bytes::new(100 * MIB), "until it has let go");
    assert_eq!(made.inner["/own/a"].weight, parents["/own/a"].weight_wish());
    assert_eq!(made.inner["/own/a"].shares, parents["/own/a"].shares_wish());
}

/// A container with any of the inputs.
#[derive(Debug, Clone)]
struct Sketch {
    workload: Workload,
    path: String,
    can_idle: bool,
    part: Option<u32>,
    is_ranked: bool,
    held: Protection,
}

fn sketch() -> impl Strategy<Value = Sketch> {
    let sizes = (0_u64..9, 0_u64..4, any::<bool>(), any::<bool>());
    let place = prop_oneof![Just("/own/a"), Just("/own/b"), Just("/own"), Just("/pods")];
    (sizes, place, any::<bool>(), prop::option::of(1_u32..4), any::<bool>(), (0_u64..3, 0_u64..3)).prop_map(
        |((cpu, memory, is_guaranteed, is_managed), place, can_idle, part, is_ranked, (min, low))| {
            let mut workload = workload("any", (cpu * 250, memory * 64), is_guaranteed);
            if !is_managed {
                workload.managed = Managed::No("opted out".into());
            }
            let held = Protection { min: Bytes::new(min * 32 * MIB), low: Bytes::new(low * 32 * MIB) };
            Sketch { workload, path: place.to_owned(), can_idle, part, is_ranked, held }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn one_at_a_time_is_the_same_as_all_at_once(mut all in prop::collection::vec(sketch(), 0..12), is_fair: bool) {
        for (at, one) in all.iter_mut().enumerate() {
            one.workload.id = format!("c{at}");
            one.path = format!("{}/c{at}", one.path);
        }
        let (facts, config, none) = (node(), PlanConfig::default(), BTreeMap::new());
        let own = ["/own".to_owned()];
        let (parts, parents) = parts();
        let score = by_use("any");
        let workloads: Vec<Workload> = all.iter().map(|one| one.workload.clone()).collect();
        let asks = plan(&facts, &config, &workloads);
        let asks: Vec<CoresRequest> = asks.containers.iter().zip(&workloads)
            .filter_map(|(c, w)| Some(CoresRequest { id: c.id.clone(), count: wanted(c, &w.requested)? }))
            .collect();
        let machine: Vec<Cpu> = (0..8).map(|id| Cpu { id, numa: 0, socket: 0, core: id / 2 }).collect();
        let cores = allocate(&machine, 1, &asks, &BTreeMap::new());
        let node = NodeInputs {
            facts: &facts,
            config: &config,
            own: &own,
            cores: (!cores.exclusive.is_empty()).then_some(&cores),
            parts: if is_fair { &parents } else { &none },
        };
        let view = NodeView {
            node,
            containers: all.iter().map(|one| ContainerInputs {
                workload: &one.workload,
                path: &one.path,
                can_idle: one.can_idle,
                part: one.part.filter(|_| is_fair).and_then(|key| parts.get(&key)),
                score: one.is_ranked.then_some(&score),
                held: one.held,
            }).collect(),
        };
        let Desired { containers, inner: between } = desired(&view);
        let mut leaves = Vec::new();
        for (planned, of) in containers.iter().zip(&view.containers) {
            prop_assert_eq!(planned, &container(&node, of));
            let wishes = &planned.wishes;
            if planned.standing != PlanStatus::Planned {
                prop_assert!(wishes.is_empty());
                continue;
            }
            if let Some(own) = cores.exclusive.get(&planned.id) {
                prop_assert_eq!(&wishes.cpuset_cpus.as_ref().unwrap().value, &own.cpus);
                prop_assert!(wishes.cpu_quota.as_ref().unwrap().value.quota_usec.value().is_none());
            }
            let promised = |wish: &Option<Wish<Bytes>>, held: Bytes| {
                wish.as_ref().map_or(held, |wish| wish.value.max(held))
            };
            leaves.push(Leaf {
                path: of.path.to_owned(),
                min: promised(&wishes.memory_min, of.held.min),
                low: promised(&wishes.memory_low, of.held.low),
                request: cpu_request_of(&of.workload.requested).unwrap_or(MilliCpu::ZERO),
            });
        }
        prop_assert_eq!(&between, &inner(&node, &leaves));
        // What lies below a cgroup is covered by it.
        for (path, of) in &between {
            let below = leaves.iter().filter(|leaf| leaf.path.starts_with(&format!("{path}/")));
            prop_assert_eq!(of.low.value.get(), below.map(|leaf| leaf.low.get()).sum::<u64>());
        }
    }
}
