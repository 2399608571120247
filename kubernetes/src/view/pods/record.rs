//! What is kept of one pod.

use std::sync::Arc;
use std::time::Instant;

use evenkeel_model::qos_class::QosClass;

use super::super::failures::PodFailure;
use super::Common;

/// One pod.
#[derive(Debug)]
pub(crate) struct PodRecord {
    pub(crate) common: Arc<Common>,
    pub(crate) uid: Box<str>,
    /// Empty where it has none.
    pub(crate) node: Arc<str>,
    /// Empty before a kubelet took it.
    pub(crate) started: Box<str>,
    pub(crate) has_ended: bool,
    pub(crate) told: NodePodDetails,
    /// What its kubelet says went wrong; of few pods.
    pub(crate) failures: Box<[PodFailure]>,
    /// The generation in which what it requires changed last.
    pub(crate) changed: u64,
    pub(super) mark: u32,
}

/// What of a pod only its node is told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodePodDetails {
    /// Of the mirror of a static pod: the uid that the node's runtime has; else empty.
    pub(crate) config_hash: Box<str>,
    pub(crate) qos_class: Option<QosClass>,
}

impl PodRecord {
    /// Whether a node runs it, or is to.
    pub(super) fn is_on_node(&self) -> bool {
        !self.node.is_empty() && !self.has_ended
    }
}

/// Where a pod was that is gone.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) node: Arc<str>,
    /// The controller at its top.
    pub(crate) workload: Option<Box<str>>,
    /// Since when it is.
    pub(crate) since: Instant,
}
