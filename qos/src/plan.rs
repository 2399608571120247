//! The plan of a container: what the kernel should hold for it, each value with its reason.
//!
//! Owned here: the shape of a plan, and its making from what containers ask for. Not owned: the desired state of a
//! node, to which other rules contribute ([`crate::desired`]).

use std::fmt::Display;

use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, CpuShares, CpuWeight, Limit, OomScoreAdj};
use evenkeel_model::workload::{ContainerKind, PodRef, Workload};
use serde::Serialize;

pub use crate::config::{BurstPercent, CpuPeriod, KnobSwitches, MemoryHighFactor, PlanConfig};
use crate::container::plan_container;
pub use crate::cores::CpuList;
pub use crate::cpu::CpuQuota;
pub use crate::rules::ResourceClasses;
use crate::why::{self, Why};
use crate::wishes::OtherDecisions;

/// A value the kernel should hold, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Wish<T> {
    /// The value.
    pub value: T,
    /// Why.
    #[serde(serialize_with = "why::shown")]
    pub reason: Why,
}

/// What is wished of one container, knob by knob; `None` means the knob is not written.
///
/// Both `cpu_shares` and `cpu_weight` are given: the node's hierarchy decides which exists. On v1, `memory_min`
/// or `memory_low`, whichever is given, is the soft limit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Wishes {
    /// `oom_score_adj` of every process in the container's subtree.
    pub oom_score_adj: Option<Wish<OomScoreAdj>>,
    /// `cpu.shares` (v1).
    pub cpu_shares: Option<Wish<CpuShares>>,
    /// `cpu.weight` (v2).
    pub cpu_weight: Option<Wish<CpuWeight>>,
    /// CPU bandwidth: `cpu.max` (v2), `cpu.cfs_quota_us` with `cpu.cfs_period_us` (v1).
    pub cpu_quota: Option<Wish<CpuQuota>>,
    /// `cpu.max.burst` (v2), `cpu.cfs_burst_us` (v1), microseconds; never without a quota.
    pub cpu_burst: Option<Wish<u64>>,
    /// `cpu.idle`: true when the container runs only on CPU time nobody else wants.
    pub cpu_idle: Option<Wish<bool>>,
    /// `cpuset.cpus`; only where somebody has processors of its own, see [`crate::cores`].
    pub cpuset_cpus: Option<Wish<CpuList>>,
    /// `memory.min` (v2).
    pub memory_min: Option<Wish<Bytes>>,
    /// `memory.low` (v2).
    pub memory_low: Option<Wish<Bytes>>,
    /// `memory.high` (v2).
    pub memory_high: Option<Wish<Bytes>>,
    /// `memory.max` (v2), `memory.limit_in_bytes` (v1).
    pub memory_max: Option<Wish<Limit<Bytes>>>,
    /// `memory.oom.group` (v2): true when the container dies as a whole.
    pub memory_oom_group: Option<Wish<bool>>,
    /// `memory.swap.max` (v2): swap alone. On v1 `memory.memsw.limit_in_bytes` is memory and swap together: see
    /// [`crate::memory::with_swap`].
    pub memory_swap_max: Option<Wish<Bytes>>,
}

impl Wishes {
    /// True when nothing is to be written.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Every knob wished, by its JSON name, with the value and the reason, in the order of the fields.
    pub fn reasons(&self) -> Vec<(&'static str, String, &Why)> {
        let all = [
            entry("oomScoreAdj", &self.oom_score_adj),
            entry("cpuShares", &self.cpu_shares),
            entry("cpuWeight", &self.cpu_weight),
            entry("cpuQuotaUs", &self.cpu_quota),
            entry("cpuBurstUs", &self.cpu_burst),
            entry("cpuIdle", &self.cpu_idle),
            entry("cpusetCpus", &self.cpuset_cpus),
            entry("memoryMin", &self.memory_min),
            entry("memoryLow", &self.memory_low),
            entry("memoryHigh", &self.memory_high),
            entry("memoryMax", &self.memory_max),
            entry("memoryOomGroup", &self.memory_oom_group),
            entry("memorySwapMax", &self.memory_swap_max),
        ];
        all.into_iter().flatten().collect()
    }
}

fn entry<'a, T: Display>(
    name: &'static str,
    wish: &'a Option<Wish<T>>,
) -> Option<(&'static str, String, &'a Why)> {
    wish.as_ref().map(|w| (name, w.value.to_string(), &w.reason))
}

/// Whether wishes were made for a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state", content = "reason")]
pub enum PlanStatus {
    /// Yes.
    Planned,
    /// Not ours to write: sampled only, for this reason.
    Unmanaged(String),
    /// Nothing is known of what it asked for: sampled only.
    Unclassified(String),
}

/// The plan for one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerPlan {
    /// The workload's id.
    pub id: String,
    /// Its pod.
    pub pod: PodRef,
    /// Its name in the pod.
    pub container: String,
    /// Part of the pod.
    pub kind: ContainerKind,
    /// Class under the rule set in force: by memory (proposal) or of the pod (kubelet). `None` for
    /// infrastructure and where memory is unknown.
    pub qos_class: Option<QosClass>,
    /// Classes by resource under the rule set in force.
    pub classes: ResourceClasses,
    /// Where the class comes from.
    #[serde(serialize_with = "why::shown")]
    pub class_reason: Why,
    /// True when what it asked for was inverted from a runtime's record rather than stated.
    pub estimated: bool,
    /// Whether wishes were made.
    pub standing: PlanStatus,
    /// The wishes; empty unless planned.
    pub wishes: Wishes,
}

/// What containers should hold by what they ask for, in the order the workloads were given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// One entry for every workload.
    pub containers: Vec<ContainerPlan>,
}

/// Plans every workload by what it asks for alone: [`crate::desired`] without any other input. Workloads that may not be written or of which nothing is known get an entry
/// without wishes that says so.
pub fn plan(node: &NodeFacts, config: &PlanConfig, workloads: &[Workload]) -> Plan {
    let given = OtherDecisions::default();
    Plan { containers: workloads.iter().map(|w| plan_container(node, config, w, &given)).collect() }
}
