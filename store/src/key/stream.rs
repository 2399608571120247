//! Owns the keys of streams of frames and of the nodes that send them.

use evenkeel_proto::v1;
use prost::Message;

/// A stream: one run of an agent. It is written as it is into records of the log and checkpoints.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Message)]
pub struct StreamKey {
    /// Cluster name.
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// Node name.
    #[prost(string, tag = "2")]
    pub node: String,
    /// Epoch of the agent.
    #[prost(fixed64, tag = "3")]
    pub epoch: u64,
}

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeKey {
    /// Cluster name.
    pub cluster: String,
    /// Node name.
    pub node: String,
}

impl StreamKey {
    /// The stream a greeting opens.
    pub fn of(hello: &v1::Hello) -> Self {
        Self { cluster: hello.cluster.clone(), node: hello.node.clone(), epoch: hello.epoch }
    }

    /// Stands for the node where its name is too long to keep: the same in every run.
    pub(crate) fn node_number(&self) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(self.cluster.as_bytes()), self.node.as_bytes())
    }
}

impl NodeKey {
    /// The node of a stream.
    pub fn of(key: &StreamKey) -> Self {
        Self { cluster: key.cluster.clone(), node: key.node.clone() }
    }
}
