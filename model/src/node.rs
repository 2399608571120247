//! What is known about one node.

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, MilliCpu};

/// Facts of a node that decisions need; gathered once by the agent or given on a command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// Machine memory (`MemTotal`), the capacity that scores are relative to, not what is allocatable.
    pub memory_bytes: Bytes,
    /// Online logical CPUs in thousandths.
    pub cpu_milli: MilliCpu,
    /// Swap in use or configured; swap breaks memory guarantees.
    pub swap_total_bytes: Bytes,
    /// Page size, to which memory knobs are rounded.
    pub page_bytes: Bytes,
}

impl NodeFacts {
    /// A node of the given size without swap and with 4 KiB pages.
    pub const fn of_size(memory: Bytes, cpu: MilliCpu) -> Self {
        Self {
            memory_bytes: memory,
            cpu_milli: cpu,
            swap_total_bytes: Bytes::ZERO,
            page_bytes: Bytes::new(4096),
        }
    }
}

/// Who a stream comes from: a node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeKey {
    /// Cluster name, `default` unless configured.
    pub cluster: String,
    /// Node name.
    pub node: String,
}
