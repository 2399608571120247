//! Nodes.

use super::{ObjectMeta, ResourceList};

objects! {
    /// A node.
    pub struct Node {
        /// Name and labels.
        pub metadata: ObjectMeta,
        /// Taints, cordon.
        pub spec: NodeSpec,
        /// Size and images.
        pub status: NodeStatus,
    }

    /// What keeps pods away.
    pub struct NodeSpec {
        /// Cordoned.
        pub unschedulable: bool,
        /// Taints.
        pub taints: Vec<Taint>,
    }

    /// A taint. Conditions of a node act on scheduling through these.
    #[derive(Eq, Hash)]
    pub struct Taint {
        /// Key.
        pub key: String,
        /// Value.
        pub value: String,
        /// `NoSchedule`, `PreferNoSchedule`, `NoExecute`.
        pub effect: String,
    }

    /// Size and images.
    pub struct NodeStatus {
        /// What pods may request in all.
        pub allocatable: ResourceList,
        /// Images on its disk.
        pub images: Vec<NodeImage>,
        /// What is known of its state. These only tell what is not known: they act through taints.
        pub conditions: Vec<NodeCondition>,
    }
}

/// Reason of a condition that nobody reports, since the node is known only from its agent.
pub const NOT_REPORTED: &str = "NotReportedByAgent";

objects! {
    /// One thing about a node's state.
    pub struct NodeCondition {
        /// Which, such as `DiskPressure`.
        #[serde(rename = "type")]
        pub kind: String,
        /// Why it is as it is, in one word.
        pub reason: String,
    }

    /// An image on a node's disk.
    pub struct NodeImage {
        /// Every name it has.
        pub names: Vec<String>,
        /// Size, bytes.
        pub size_bytes: i64,
    }
}
