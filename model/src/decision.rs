//! A decision: one change (made, refused or only proposed) with its reason and its numbers.
//!
//! One event type logs, counts, streams and explains; whoever asks "why did it do that" reads these.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a decision is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionKind {
    /// A container was found.
    Found,
    /// A container's cgroup is gone.
    Gone,
    /// A container's class was decided or changed.
    Classified,
    /// A knob was written (or would be, in dry run).
    Set,
    /// All processes of a container were verified at their score.
    Converged,
    /// A knob cannot be written here; said once, with the remedy.
    Denied,
    /// Somebody else keeps rewriting a knob.
    Contended,
    /// A knob was written but an ancestor or missing sibling takes its effect away.
    Ineffective,
    /// Processes of a container were killed by the OOM killer.
    OomKill,
    /// A reversible step against pressure was taken: reclaim, a lower `memory.high`, freeze, squeeze.
    Relieve,
    /// A step against pressure was undone.
    Release,
    /// A container does not get the CPU it requested.
    Starved,
    /// A container thrashes at its own memory limit; says what limit it should have. Nobody is touched for it.
    Thrash,
    /// The agent killed processes of a container: the rest after an OOM kill, or the last step against pressure.
    Kill,
    /// The eviction policy says that a pod should go; offered to whoever runs it.
    Evict,
    /// The eviction policy says that a container should be started again; offered to whoever runs it.
    Restart,
    /// A request was brought a step nearer to what is recommended, or back to what was asked for.
    Resize,
    /// Something about the node itself: swap, overcommit, the cap of all workloads.
    Node,
    /// Something about a source: socket lost, manifest refused, conflict.
    Source,
    /// Life cycle of the agent itself.
    Agent,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DecisionResult {
    /// Done and read back.
    Done,
    /// Dry run: would have been done.
    WouldDo,
    /// Already as wished.
    Unchanged,
    /// The kernel refused for lack of permission.
    Denied,
    /// The kernel has no such knob.
    Unsupported,
    /// The kernel refused the value.
    Rejected,
    /// The thing was gone before it could be done.
    Gone,
    /// It failed otherwise.
    Failed,
}

/// One entry of the decision log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// Wall-clock time, microseconds since 1970.
    pub time_usec: u64,
    /// Number in this agent's log, growing by one.
    pub seq: u64,
    /// Namespace and name of the pod, as `namespace/name`; `None` for the node itself.
    pub pod: Option<String>,
    /// Container name.
    pub container: Option<String>,
    /// What it is about.
    pub kind: DecisionKind,
    /// Kernel name of the knob (`oom_score_adj`, `cpu.shares`).
    pub knob: Option<String>,
    /// Value found.
    pub old: Option<String>,
    /// Value wished.
    pub new: Option<String>,
    /// Why, in a sentence a person understands.
    pub reason: String,
    /// The numbers the decision used, by name.
    pub inputs: BTreeMap<String, String>,
    /// What came of it.
    pub result: DecisionResult,
}
