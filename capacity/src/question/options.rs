//! Options of a question by their pinned names, as a program sends them.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::answer::Steps;
use crate::object::ResourceList;
use crate::profile::Version;
use crate::scenario::NodeType;

/// What is asked besides the pods. The names are those of the command line.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct QuestionOptions {
    /// Ask for this namespace, whatever the pods say.
    pub namespace: Option<String>,
    /// Ask for the largest pod the namespace's limit ranges allow.
    pub largest: bool,
    /// Only nodes with these labels, such as `pool=a,gpu`.
    pub nodes: Option<String>,
    /// Nodes left out.
    pub exclude_nodes: Vec<String>,
    /// Amounts that must stay free over all nodes.
    pub reserve: ResourceList,
    /// Stop after so many; `None` = until none fits.
    pub max: Option<u64>,
    /// How many are needed; nodes are added up to this.
    pub need: Option<u64>,
    /// A number of placings told with scores, or `"all"` for the node of every one.
    #[serde(deserialize_with = "steps")]
    pub steps: Steps,
    /// A `KubeSchedulerConfiguration`.
    pub scheduler_config: Option<Value>,
    /// Version whose rules hold where they differ: `"1.34"` or `"1.36"`.
    #[serde(deserialize_with = "version")]
    pub scheduler_version: Version,
    /// Let ties fall by this seed.
    pub seed: Option<u64>,
    /// Let ties fall in so many ways.
    pub trials: Option<u64>,
    /// Count with displacing pods of lower priority.
    pub preempt: bool,
    /// Nodes lost: `node` or `any` (each in turn), a name, or `zone=Z`.
    pub lose: Vec<String>,
    /// Nodes drained.
    pub drain: Vec<String>,
    /// Types of nodes that could be added, as a table (CSV with a head).
    #[serde(deserialize_with = "types")]
    pub add: Option<Vec<NodeType>>,
    /// The pod is a daemon.
    pub daemonset: bool,
    /// How few nodes would hold what is there.
    pub compact: bool,
    /// Make room for more of the first pod with at most so many moves.
    pub defrag: Option<usize>,
}

fn steps<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Steps, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let number = || value.as_u64().and_then(|most| usize::try_from(most).ok());
    match value.as_str() {
        Some("all") => Ok(Steps::All),
        _ if value.is_null() => Ok(Steps::None),
        _ => number().map(Steps::First).ok_or_else(|| D::Error::custom("steps: give a number, or \"all\"")),
    }
}

fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Version, D::Error> {
    let text = String::deserialize(deserializer)?;
    super::version(&text)
        .ok_or_else(|| D::Error::custom(format_args!("schedulerVersion: {text:?} is neither 1.34 nor 1.36")))
}

fn types<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<NodeType>>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    super::node_types(&text).map(Some).map_err(|why| D::Error::custom(format_args!("add: {why}")))
}
