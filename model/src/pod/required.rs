//! What the API server says that a pod on a node requires, and nothing else of the pod: what a node is told of its own.

use serde::{Deserialize, Serialize};

use super::{CONFIG_MIRROR, Container, Pod, PodMetadata};
use crate::qos_class::QosClass;
use crate::requirements::{Requirements, ResourceList};
use crate::workload::ContainerKind;

/// Containers of one pod at most, init containers included, as in a manifest.
pub const MAX_CONTAINERS: usize = 1000;

/// Requirements of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRequirements {
    /// Uid at the API server.
    pub uid: String,
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Of the mirror of a static pod: the uid that the node's runtime has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_hash: Option<String>,
    /// Priority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// Priority class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority_class_name: Option<String>,
    /// Class that the API server gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos_class: Option<QosClass>,
    /// Of the pod as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Requirements>,
    /// What the sandbox itself needs.
    #[serde(default, skip_serializing_if = "ResourceList::is_empty")]
    pub overhead: ResourceList,
    /// Init containers and sidecars in their order, then the ordinary ones.
    pub containers: Vec<ContainerRequirements>,
}

/// Requirements of one container: those in force, where a resize is on its way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRequirements {
    /// Name within the pod.
    pub name: String,
    /// What part of the pod it is.
    pub kind: ContainerKind,
    /// Requests and limits.
    #[serde(default, skip_serializing_if = "Requirements::is_empty")]
    pub resources: Requirements,
}

impl PodRequirements {
    /// The uid by which the node's runtime knows the pod.
    #[must_use]
    pub fn uid_on_node(&self) -> &str {
        self.config_hash.as_deref().unwrap_or(&self.uid)
    }

    /// The pod, as far as it is told.
    #[must_use]
    pub fn pod(&self) -> Pod {
        let mirror = self.config_hash.iter().map(|hash| (CONFIG_MIRROR.to_owned(), hash.clone()));
        let container = |told: &ContainerRequirements| Container {
            name: told.name.clone(),
            kind: told.kind,
            image: None,
            command: Vec::new(),
            args: Vec::new(),
            resources: told.resources.clone(),
        };
        let (regular, before): (Vec<_>, Vec<_>) =
            self.containers.iter().map(container).partition(|c| c.kind == ContainerKind::Regular);
        Pod {
            metadata: PodMetadata {
                name: self.name.clone(),
                namespace: self.namespace.clone(),
                uid: Some(self.uid_on_node().to_owned()),
                annotations: mirror.collect(),
                ..PodMetadata::default()
            },
            containers: regular,
            init_containers: before,
            overhead: self.overhead.clone(),
            resources: self.resources.clone(),
            priority: self.priority,
            priority_class_name: self.priority_class_name.clone(),
            ..Pod::default()
        }
    }
}
