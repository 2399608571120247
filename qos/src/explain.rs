//! `qos explain`: what would be done with a pod on a node, and why, without touching anything.
//!
//! Owned here: the form that is printed; its names are pinned. The values are those of the plan: the same code
//! makes both.

use evenkeel_model::node::NodeFacts;
use evenkeel_model::pod::{Container, Pod};
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, CpuShares, CpuWeight, Limit, MilliCpu, OomScoreAdj};
use evenkeel_model::workload::{ContainerKind, PodFacts, Requested, SourceKind};
use serde::Serialize;

use crate::container::{Subject, ask};
use crate::plan::{PlanConfig, Wish};
use crate::pod;
use crate::rules::{ResourceClasses, RuleSet};
use crate::wishes::{self, OtherDecisions};

/// The answer for one pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodExplanation {
    /// `namespace/name`.
    pub pod: String,
    /// Class of the pod by Kubernetes' rule, whatever the rule set.
    pub qos_class: QosClass,
    /// The rule set the containers were judged by.
    pub rules: RuleSet,
    /// The node assumed.
    pub node: NodeSize,
    /// Ordinary containers, then init containers and sidecars, each in the pod's order.
    pub containers: Vec<ContainerExplanation>,
}

/// Size of the node the numbers are relative to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSize {
    /// Machine memory.
    pub memory_bytes: Bytes,
    /// Logical CPUs in thousandths.
    pub cpu_milli: MilliCpu,
}

/// The answer for one container; `null` is a knob that is not written, `"max"` unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerExplanation {
    /// Name in the pod.
    pub name: String,
    /// Regular, init or sidecar.
    pub kind: ContainerKind,
    /// Class by memory under the chosen rules.
    pub qos_class: Option<QosClass>,
    /// Classes by resource.
    pub classes: ResourceClasses,
    /// Where the requirements come from.
    pub source: SourceKind,
    /// Whether they were inverted from a runtime's record.
    pub estimated: bool,
    /// `oom_score_adj`.
    pub oom_score_adj: Option<OomScoreAdj>,
    /// `cpu.shares`.
    pub cpu_shares: Option<CpuShares>,
    /// `cpu.weight`.
    pub cpu_weight: Option<CpuWeight>,
    /// Microseconds of CPU time in each period.
    pub cpu_quota_us: Option<Limit<u64>>,
    /// Length of that period in microseconds.
    pub cpu_period_us: Option<u64>,
    /// Microseconds of CPU time that may be saved up for later; left out where no burst is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_burst_us: Option<u64>,
    /// `cpu.idle`; left out where the option is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_idle: Option<bool>,
    /// `memory.min`, bytes.
    pub memory_min: Option<Bytes>,
    /// `memory.low`, bytes.
    pub memory_low: Option<Bytes>,
    /// `memory.high`, bytes.
    pub memory_high: Option<Bytes>,
    /// `memory.max`, bytes.
    pub memory_max: Option<Limit<Bytes>>,
    /// `memory.swap.max`, bytes; left out where the option is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_swap_max: Option<Bytes>,
    /// One sentence for the class and each knob written.
    pub reasons: Vec<String>,
}

/// Explains a pod as its author wrote it, on a node of the given size.
pub fn explain_pod(pod: &Pod, node: &NodeFacts, config: &PlanConfig) -> PodExplanation {
    let facts = pod::facts(pod);
    let reference = pod.reference();
    let containers = pod.containers.iter().chain(&pod.init_containers);
    PodExplanation {
        pod: format!("{}/{}", reference.namespace, reference.name),
        qos_class: pod::qos_class(pod),
        rules: config.rules,
        node: NodeSize { memory_bytes: node.memory_bytes, cpu_milli: node.cpu_milli },
        containers: containers.map(|c| explain_container(c, &facts, node, config)).collect(),
    }
}

fn explain_container(
    container: &Container,
    facts: &PodFacts,
    node: &NodeFacts,
    config: &PlanConfig,
) -> ContainerExplanation {
    let requested = Requested::Stated(container.cpu_and_memory());
    let subject =
        Subject { kind: container.kind, is_pause: false, requested: &requested, facts, oom_kill: None };
    let ask = ask(config.rules, &subject);
    let wishes = wishes::for_container(node, config, &subject, &ask, &OtherDecisions::default());
    let class = std::iter::once(format!("qosClass: {}", ask.class_reason.text()));
    let knobs = wishes
        .reasons()
        .into_iter()
        .map(|(knob, value, reason)| format!("{knob} {value}: {}", reason.text()));
    let reasons = class.chain(knobs).collect();
    ContainerExplanation {
        name: container.name.clone(),
        kind: container.kind,
        qos_class: ask.qos_class,
        classes: ask.classes,
        source: SourceKind::Manifests,
        estimated: ask.estimated,
        oom_score_adj: value(&wishes.oom_score_adj),
        cpu_shares: value(&wishes.cpu_shares),
        cpu_weight: value(&wishes.cpu_weight),
        cpu_quota_us: value(&wishes.cpu_quota).map(|q| q.quota_usec),
        cpu_period_us: value(&wishes.cpu_quota).map(|q| q.period_usec),
        cpu_burst_us: value(&wishes.cpu_burst),
        cpu_idle: value(&wishes.cpu_idle),
        memory_min: value(&wishes.memory_min),
        memory_low: value(&wishes.memory_low),
        memory_high: value(&wishes.memory_high),
        memory_max: value(&wishes.memory_max),
        memory_swap_max: value(&wishes.memory_swap_max),
        reasons,
    }
}

fn value<T: Copy>(wish: &Option<Wish<T>>) -> Option<T> {
    wish.as_ref().map(|w| w.value)
}
