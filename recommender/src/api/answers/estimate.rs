//! The forms of a question about capacity and of its answer: those of `evenkeel capacity`, which read and write them.

use std::collections::BTreeMap;

use serde_json::Value;
use utoipa::ToSchema;

/// How many more pods fit? Options have the names of `evenkeel capacity`.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(as = CapacityQuestion)]
#[expect(dead_code, reason = "the form of a type that knows no documents")]
pub(crate) struct EstimateQuestion {
    /// Pods, or what makes pods; objects, or texts in YAML or JSON. Limit ranges, quotas and classes among them count where
    /// the cluster has none of the name.
    #[schema(required = false)]
    pods: Vec<Value>,
    /// Pods placed first, in order.
    #[schema(required = false)]
    place: Vec<Value>,
    /// Kubernetes objects: a List, or one list for each kind; what agents report without.
    #[schema(value_type = Object, required = false)]
    snapshot: Value,
    /// Which cluster's agents, where those of several report.
    #[schema(required = false)]
    cluster: String,
    /// Also count with recommended requests in place of current ones.
    #[schema(required = false)]
    recommended: bool,
    #[schema(required = false)]
    namespace: String,
    #[schema(required = false)]
    largest: bool,
    /// Labels such as pool=a.
    #[schema(required = false)]
    nodes: String,
    #[schema(required = false)]
    exclude_nodes: Vec<String>,
    /// Quantities by resource.
    #[schema(required = false)]
    reserve: BTreeMap<String, String>,
    #[schema(required = false)]
    max: u64,
    #[schema(required = false)]
    need: u64,
    /// A number up to 1000, or `all`.
    #[schema(required = false)]
    steps: Value,
    #[schema(value_type = Object, required = false)]
    scheduler_config: Value,
    /// `1.34` or `1.36`.
    #[schema(required = false)]
    scheduler_version: String,
    #[schema(required = false)]
    seed: u64,
    #[schema(required = false)]
    trials: u64,
    #[schema(required = false)]
    preempt: bool,
    #[schema(required = false)]
    compact: bool,
    /// Make room with at most so many moves.
    #[schema(required = false)]
    defrag: u64,
    /// node, any, a name, or zone=Z.
    #[schema(required = false)]
    lose: Vec<String>,
    #[schema(required = false)]
    drain: Vec<String>,
    /// Types of nodes as a table: name,cpu,memory,...
    #[schema(required = false)]
    add: String,
    #[schema(required = false)]
    daemonset: bool,
}

/// The answer, with what else was asked for beside it.
#[derive(ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CapacityAnswer)]
#[expect(dead_code, reason = "the form of a type that knows no documents")]
pub(crate) struct EstimateAnswer {
    /// How many fit; complete sets where there are several shapes.
    count: u64,
    /// How many on each node; nodes with none are left out.
    per_node: BTreeMap<String, u64>,
    /// Why it ends: `Unschedulable`, `LimitReached`, `QuotaExceeded` or `Refused`.
    stop: String,
    /// The scheduler's or the quota's own words.
    message: String,
    /// Why the pod is refused before any node is looked at; else empty.
    pre_filter_msg: String,
    bounds: BTreeMap<String, u64>,
    /// Name of the bound that holds.
    binding: String,
    /// Per node, why not one more; empty when the limit was reached.
    nodes: Vec<NodeRefusal>,
    /// What each pod needs.
    #[schema(value_type = Vec<Object>)]
    requirements: Vec<Value>,
    /// What was read.
    snapshot: SnapshotRead,
    /// Node of each, in order.
    #[schema(required = false)]
    sequence: Vec<String>,
    /// What the first placings looked like.
    #[schema(value_type = Vec<Object>, required = false)]
    steps: Vec<Value>,
    /// Where the pods went that were placed first.
    #[schema(value_type = Vec<Object>, required = false)]
    placed: Vec<Value>,
    /// Each shape's part, where there are several.
    #[schema(value_type = Vec<Object>, required = false)]
    shapes: Vec<Value>,
    /// How many would fit if nodes had no borders, and how many do not for that reason.
    #[schema(value_type = Object, required = false)]
    fragmentation: Value,
    /// The smallest changes that admit one more.
    #[schema(value_type = Vec<Object>, required = false)]
    help: Vec<Value>,
    /// What the count does not show: what is not known or not simulated.
    #[schema(required = false)]
    notes: Vec<String>,
    /// What the API server and the namespace filled in.
    #[schema(required = false)]
    changes: Vec<String>,
    /// How ties may fall.
    #[schema(value_type = Object, required = false)]
    trials: Value,
    /// With displacing others.
    #[schema(value_type = Object, required = false)]
    preempt: Value,
    /// Without some nodes.
    #[schema(value_type = Vec<Object>, required = false)]
    lose: Vec<Value>,
    /// With nodes drained.
    #[schema(value_type = Vec<Object>, required = false)]
    drain: Vec<Value>,
    /// Nodes to add.
    #[schema(value_type = Vec<Object>, required = false)]
    add: Vec<Value>,
    /// The cheapest mix of these, where prices are known.
    #[schema(value_type = Object, required = false)]
    cheapest: Value,
    /// As a daemon.
    #[schema(value_type = Object, required = false)]
    daemonset: Value,
    /// Fewer nodes.
    #[schema(value_type = Object, required = false)]
    compact: Value,
    /// A few moves.
    #[schema(value_type = Object, required = false)]
    defrag: Value,
    /// With recommended requests.
    #[schema(value_type = Object, required = false)]
    recommended: Value,
}

/// Why one node takes no further pod.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the form of a type that knows no documents")]
struct NodeRefusal {
    node: String,
    /// Whether displacing pods could help.
    code: String,
    /// The scheduler's words.
    reasons: Vec<String>,
    /// How much of each short resource is missing.
    short: BTreeMap<String, String>,
}

/// What was read.
#[derive(ToSchema)]
#[expect(dead_code, reason = "the form of a type that knows no documents")]
struct SnapshotRead {
    nodes: u64,
    /// Pods on them.
    pods: u64,
    /// Pods without a node.
    pending: u64,
    /// Pods that ended.
    ended: u64,
    /// Objects that do not matter, by kind.
    skipped: BTreeMap<String, u64>,
    /// Contradictions, and what was made of them.
    contradictions: Vec<String>,
}
