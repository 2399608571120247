//! The whole desired state of a node in one call: the knobs and scores of every container and of every cgroup between
//! an owned root and its containers, each with its reason.
//!
//! Owned here: which input decides which knob. Rules that remember something give their last word as an input: who takes
//! part in excess CPU ([`crate::fair`]), who is ranked by use ([`crate::dynamic`]), who has processors of its own
//! ([`crate::cores`]); recommended requests in force stand in [`Workload::requested`]. Nothing is put into a desired
//! state afterwards. There is no clock here: an input that is too old is taken back by the rule that gave it.
//! Not owned: finding containers, what the kernel holds, writing.
//!
//! [`container`] and [`inner`] are the two halves of [`desired`], for callers of which one container changed.

use std::collections::BTreeMap;

use evenkeel_model::node::NodeFacts;
use evenkeel_model::units::{Bytes, MilliCpu, OomScoreAdj};
use evenkeel_model::workload::Workload;

use crate::container::plan_container;
use crate::cores::Allocation;
use crate::fair::Allotment;
use crate::own::{self, InnerCgroup, Leaf, Rule, below};
use crate::plan::{ContainerPlan, PlanConfig, PlanStatus, Wish};
use crate::rules::cpu_request_of;
use crate::wishes::{Cpus, OtherDecisions};

/// What holds for the whole node.
#[derive(Debug, Clone, Copy)]
pub struct NodeInputs<'a> {
    /// The machine.
    pub facts: &'a NodeFacts,
    /// The rule set, the switches and the numbers of the rules.
    pub config: &'a PlanConfig,
    /// Roots of the subtrees given to the agent, none of which lies in another.
    pub own: &'a [String],
    /// Who has processors of its own; `None` while nobody has.
    pub cores: Option<&'a Allocation>,
    /// Fair parts of the CPU of cgroups between an owned root and its containers, by path.
    pub parts: &'a BTreeMap<String, Allotment>,
}

/// One container as it was found, with what rules that remember decided of it.
#[derive(Debug, Clone, Copy)]
pub struct ContainerInputs<'a> {
    /// Who it is and what it asks for, or is given instead on recommendation.
    pub workload: &'a Workload,
    /// Path of its cgroup below the hierarchy's root.
    pub path: &'a str,
    /// Its cgroup has `cpu.idle`: a cgroup that is idle takes no weight.
    pub can_idle: bool,
    /// Its fair part of the CPU.
    pub part: Option<&'a Allotment>,
    /// Its score by use and priority, which counts while it is Burstable.
    pub score: Option<&'a Wish<OomScoreAdj>>,
    /// Protection that it holds now, and that its ancestors must cover until it has let go of it.
    pub held: Protection,
}

/// Protected memory of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Protection {
    /// `memory.min`.
    pub min: Bytes,
    /// `memory.low`.
    pub low: Bytes,
}

/// Everything that is known of a node when its desired state is made.
#[derive(Debug, Clone)]
pub struct NodeView<'a> {
    /// What holds for all of it.
    pub node: NodeInputs<'a>,
    /// Every container.
    pub containers: Vec<ContainerInputs<'a>>,
}

/// What every cgroup of a node should hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Desired {
    /// Containers, in the order of the view.
    pub containers: Vec<ContainerPlan>,
    /// Cgroups between owned roots and their containers, the roots among them, by path.
    pub inner: BTreeMap<String, InnerCgroup>,
}

/// The desired state of a node.
#[must_use]
pub fn desired(view: &NodeView<'_>) -> Desired {
    let containers: Vec<_> = view.containers.iter().map(|of| container(&view.node, of)).collect();
    let leaves: Vec<_> = view.containers.iter().zip(&containers).filter_map(|(of, c)| leaf(of, c)).collect();
    let inner = inner(&view.node, &leaves);
    Desired { containers, inner }
}

/// What is desired of one container.
#[must_use]
pub fn container(node: &NodeInputs<'_>, of: &ContainerInputs<'_>) -> ContainerPlan {
    let config =
        PlanConfig { cpu_idle_best_effort: node.config.cpu_idle_best_effort && of.can_idle, ..*node.config };
    let given = OtherDecisions {
        part: of.part,
        score: of.score,
        cpus: node.cores.map(|allocation| Cpus::of(allocation, &of.workload.id)),
        is_owned: node.own.iter().any(|root| below(root, of.path)),
    };
    plan_container(node.facts, &config, of.workload, &given)
}

/// What is desired of cgroups between owned roots and these containers.
#[must_use]
pub fn inner(node: &NodeInputs<'_>, leaves: &[Leaf]) -> BTreeMap<String, InnerCgroup> {
    // As the kubelet gives its own tier all that may be allocated.
    let cpu = node.facts.cpu_milli;
    let rule = Rule { conversion: node.config.cpu_weight, root_request: cpu, node: cpu };
    node.own.iter().flat_map(|root| own::divided(root, rule, leaves, node.parts)).collect()
}

/// What ancestors count of a container; nothing of one that is not written.
fn leaf(of: &ContainerInputs<'_>, planned: &ContainerPlan) -> Option<Leaf> {
    if planned.standing != PlanStatus::Planned || planned.wishes.is_empty() {
        return None;
    }
    let larger = |wish: &Option<Wish<Bytes>>, held: Bytes| wish.as_ref().map_or(held, |w| w.value.max(held));
    Some(Leaf {
        path: of.path.to_owned(),
        min: larger(&planned.wishes.memory_min, of.held.min),
        low: larger(&planned.wishes.memory_low, of.held.low),
        request: cpu_request_of(&of.workload.requested).unwrap_or(MilliCpu::ZERO),
    })
}
