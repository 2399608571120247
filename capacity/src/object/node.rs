//! Nodes.

use serde::Deserialize;

use super::{Metadata, ResourceList};

/// A node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Node {
    /// Name and labels.
    pub metadata: Metadata,
    /// Taints, cordon.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub spec: NodeSpec,
    /// Size and images.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub status: NodeStatus,
}

/// What keeps pods away.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSpec {
    /// Cordoned.
    pub unschedulable: bool,
    /// Taints.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub taints: Vec<Taint>,
}

/// A taint. Conditions of a node act on scheduling through these.
#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq, Hash)]
#[serde(rename_all = "camelCase", default)]
pub struct Taint {
    /// Key.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub key: String,
    /// Value.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule`, `NoExecute`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub effect: String,
}

/// Size and images.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// What pods may request in all.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub allocatable: ResourceList,
    /// Images on its disk.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub images: Vec<NodeImage>,
    /// What is known of its state. These only tell what is not known: they act through taints.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub conditions: Vec<NodeCondition>,
}

/// Reason of a condition that nobody reports, since the node is known only from its agent.
pub const NOT_REPORTED: &str = "NotReportedByAgent";

/// One thing about a node's state.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeCondition {
    /// Which, such as `DiskPressure`.
    #[serde(rename = "type", deserialize_with = "crate::object::null_is_default")]
    pub kind: String,
    /// Why it is as it is, in one word.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub reason: String,
}

/// An image on a node's disk.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeImage {
    /// Every name it has.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub names: Vec<String>,
    /// Size, bytes.
    pub size_bytes: i64,
}
