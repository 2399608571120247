//! The question people ask and its answer: how many more fit, where, and why not one more.
//!
//! Owned here: the order of the parts (namespace, nodes, quotas), bounds and which of them binds. Not owned: rules
//! ([`crate::plugin`]), placing ([`crate::engine`]), words for people (whoever prints).

mod count;
mod help;
mod message;
mod place;
mod prepared;
mod reserve;
mod tell;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use count::tally;
pub use count::{Ask, AskError, Shape, Steps, ask};
pub use help::Help;
pub(crate) use help::amount_text;
pub use message::fit_error;
pub use place::{PlacedPod, place, settle};
pub(crate) use prepared::Prepared;
pub(crate) use reserve::Reserve;

/// Why no further pod was placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// No node takes it.
    Unschedulable,
    /// As many as were asked for.
    LimitReached,
    /// A quota (or limit range) of its namespace.
    QuotaExceeded,
    /// The API server takes no such pod.
    Refused,
    /// Whoever asked went away.
    Cancelled,
}

/// The answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CapacityAnswer {
    /// How many fit; complete sets where there are several shapes.
    pub count: u64,
    /// How many on each node; nodes with none are left out.
    pub per_node: BTreeMap<String, u64>,
    /// Node of each, in order; only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sequence: Option<Vec<String>>,
    /// Why it ends.
    pub stop: StopReason,
    /// The scheduler's or the quota's own words.
    pub message: String,
    /// Why the pod is refused before any node is looked at; else empty.
    pub pre_filter_msg: String,
    /// Each bound by name.
    pub bounds: BTreeMap<String, u64>,
    /// Name of the bound that holds.
    pub binding: String,
    /// Per node, why not one more; empty when the limit was reached.
    pub nodes: Vec<NodeAnswer>,
    /// What the first placings looked like; only when asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Vec<StepAnswer>>,
    /// Where the pods went that were placed first; only when there were some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placed: Option<Vec<PlacedPod>>,
    /// Each shape's part, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shapes: Option<Vec<ShapeAnswer>>,
    /// How many would fit if nodes had no borders, and how many do not for that reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fragmentation: Option<Fragmentation>,
    /// The smallest changes that admit one more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub help: Vec<Help>,
    /// What the count does not show: what is not known or not simulated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What the API server and the namespace filled in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
}

/// Why one node takes no further pod.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct NodeAnswer {
    /// Node.
    pub node: String,
    /// Whether displacing pods could help.
    pub code: crate::plugin::Code,
    /// The scheduler's words.
    pub reasons: Vec<String>,
    /// How much of each short resource is missing, as text.
    pub short: BTreeMap<String, String>,
}

/// One placing, as kube-scheduler's own answers are recorded.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StepAnswer {
    /// Nodes with the highest total.
    pub best: Vec<String>,
    /// Nodes that would take it.
    pub feasible: BTreeMap<String, ScoreAnswer>,
    /// Nodes that would not.
    pub infeasible: BTreeMap<String, StatusAnswer>,
}

/// Scores of one node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScoreAnswer {
    /// Sum.
    pub total: i64,
    /// Weight times score, by plugin.
    pub weighted: BTreeMap<Cow<'static, str>, i64>,
}

/// Why a node is refused.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StatusAnswer {
    /// Whether displacing pods could help.
    pub code: crate::plugin::Code,
    /// The scheduler's words.
    pub reasons: Vec<String>,
}

/// One of several shapes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ShapeAnswer {
    /// Name of the pod.
    pub name: String,
    /// How many belong to a complete set.
    pub wanted: u64,
    /// How many were placed.
    pub placed: u64,
    /// How many on each node.
    pub per_node: BTreeMap<String, u64>,
    /// Why not one more; empty for a shape that did not end the placing.
    pub message: String,
}

/// What borders between nodes cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fragmentation {
    /// How many the sum of all nodes would hold.
    pub aggregate: u64,
    /// How many the nodes hold.
    pub nodes: u64,
    /// The difference.
    pub lost: u64,
    /// The resource that runs out first in the sum.
    pub resource: String,
}
