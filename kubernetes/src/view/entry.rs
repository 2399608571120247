//! What is kept of one object of the cluster.

use evenkeel_capacity::object::{Object, OwnerReference};
use evenkeel_model::qos_class::QosClass;
use serde::Deserialize;

use super::failures;
use super::pods::NodePodDetails;

#[derive(Debug)]
pub(super) struct ObjectEntry {
    pub(super) mark: u32,
    pub(super) of: ObjectContent,
}

/// What is kept of an object.
#[derive(Debug)]
pub(super) enum ObjectContent {
    Object(Object),
    /// Who controls it.
    Owner(Option<OwnerReference>),
}

impl ObjectContent {
    /// Whether the simulator's cluster is the same with either.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Object(one), Self::Object(other)) => one == other,
            (Self::Owner(_), Self::Owner(_)) => true,
            _ => false,
        }
    }
}

/// What is looked at of every object.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ObjectHead {
    pub(super) metadata: NamedMetadata,
    pub(super) status: Option<NamedStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NamedMetadata {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    owner_references: Option<Vec<OwnerReference>>,
    annotations: Option<NamedAnnotations>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedAnnotations {
    /// Of mirror pods (`evenkeel_model::pod::CONFIG_HASH`, `CONFIG_MIRROR`).
    #[serde(rename = "kubernetes.io/config.hash")]
    config_hash: Option<String>,
    #[serde(rename = "kubernetes.io/config.mirror")]
    config_mirror: Option<String>,
    /// Of namespaces ([`PANIC`]).
    #[serde(rename = "evenkeel.dev/panic")]
    panic: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NamedStatus {
    /// Of pods.
    qos_class: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) message: Option<String>,
    pub(super) container_statuses: Option<Vec<failures::FailedContainer>>,
    pub(super) init_container_statuses: Option<Vec<failures::FailedContainer>>,
    pub(super) conditions: Option<Vec<failures::PodCondition>>,
}

impl ObjectHead {
    /// Whether nothing of the namespace is to be changed.
    pub(super) fn freezes(&self) -> bool {
        let panic = self.metadata.annotations.as_ref().and_then(|all| all.panic.as_deref());
        panic.is_some_and(|says| says != "false")
    }

    pub(super) fn controller(&self) -> Option<OwnerReference> {
        self.metadata.owner_references.iter().flatten().find(|owner| owner.controller).cloned()
    }

    /// What of a pod the simulator does not look at.
    pub(super) fn told(&self) -> NodePodDetails {
        let annotations = self.metadata.annotations.as_ref();
        let hash =
            annotations.filter(|of| of.config_mirror.is_some()).and_then(|of| of.config_hash.as_deref());
        let class = self.status.as_ref().and_then(|status| status.qos_class.as_deref());
        let classes = [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed];
        NodePodDetails {
            config_hash: hash.unwrap_or_default().into(),
            qos_class: classes.into_iter().find(|of| Some(of.as_str()) == class),
        }
    }
}
