//! Owns the pod as its author wrote it: identity, containers, requirements, and what the node needs to know of it.
//!
//! What the API server says that a pod on a node requires is in `required.rs`, what a kubelet lists of its pods in `listed.rs`. Reading from YAML and JSON is in `read`, what the scheduler sets aside in `effective.rs`, the rules between a
//! pod and its containers in `check.rs`. Placement (affinity, tolerations, volumes) belongs to the simulator.

mod check;
pub mod effective;
mod listed;
mod read;
mod required;

use std::collections::BTreeMap;

use serde::Serialize;

pub use listed::{PodListing, read_pod_list};
pub use read::{
    MAX_POD_BYTES, MAX_TEXT_BYTES, PodObjects, ReadError, ReadReason, SkippedObject, check_pod_text,
    read_pod, read_pod_objects, read_pods, read_resources_by_container,
};
pub use required::{ContainerRequirements, MAX_CONTAINERS, PodRequirements};

use crate::requirements::{Requirements, ResourceList};
use crate::units::{Bytes, MilliCpu};
use crate::workload::{ContainerKind, ContainerResources, PodRef};

/// Annotation that tells where the kubelet found a static pod (`file`, `http`; `api` for an ordinary one).
pub const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
/// Annotation on the API server's copy of a static pod.
pub const CONFIG_MIRROR: &str = "kubernetes.io/config.mirror";
/// Annotation with the uid that the kubelet gives a static pod: its copy at the API server has another one.
pub const CONFIG_HASH: &str = "kubernetes.io/config.hash";

/// A pod, as written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Name, labels, owners.
    pub metadata: PodMetadata,
    /// Where it was read from.
    pub origin: PodOrigin,
    /// Containers that run side by side.
    pub containers: Vec<Container>,
    /// Init containers in their order, sidecars among them.
    pub init_containers: Vec<Container>,
    /// Containers added for debugging; they count for no class and no sum.
    pub ephemeral_containers: Vec<Container>,
    /// What the sandbox itself needs (`spec.overhead`).
    pub overhead: ResourceList,
    /// Requirements of the pod as a whole (`spec.resources`).
    pub resources: Option<Requirements>,
    /// Priority class.
    pub priority_class_name: Option<String>,
    /// Priority, where it has been resolved.
    pub priority: Option<i32>,
    /// Node it is bound to.
    pub node_name: Option<String>,
    /// What happens when a container ends.
    pub restart_policy: RestartPolicy,
}

/// Identity of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodMetadata {
    /// Name; for a template, that of the object it is in.
    pub name: String,
    /// Namespace, `default` unless written.
    pub namespace: String,
    /// Uid, where it has one.
    pub uid: Option<String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// Owners.
    pub owners: Vec<OwnerReference>,
}

/// An object that owns a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerReference {
    /// Kind, such as `ReplicaSet`.
    pub kind: String,
    /// Name.
    pub name: String,
    /// Uid.
    pub uid: Option<String>,
    /// Whether it manages the pod.
    pub controller: bool,
}

/// Where a pod was read from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodOrigin {
    /// Name of the file or other source.
    pub source: String,
    /// Place of the document in the source, from 0.
    pub document: usize,
    /// Kind of the object: `Pod`, or the controller whose template it is.
    pub kind: String,
}

/// A container, as written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Name within the pod.
    pub name: String,
    /// What part of the pod it is.
    pub kind: ContainerKind,
    /// Image reference.
    pub image: Option<String>,
    /// Entry point, where overridden.
    pub command: Vec<String>,
    /// Arguments.
    pub args: Vec<String>,
    /// Requests and limits as written.
    pub resources: Requirements,
}

/// What happens when a container of a pod ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum RestartPolicy {
    /// It is started again.
    #[default]
    Always,
    /// It is started again unless it ended well.
    OnFailure,
    /// It stays ended.
    Never,
}

impl Pod {
    /// Namespace, name and uid.
    #[must_use]
    pub fn reference(&self) -> PodRef {
        PodRef {
            namespace: self.metadata.namespace.clone(),
            name: self.metadata.name.clone(),
            uid: self.metadata.uid.clone(),
        }
    }

    /// Init containers and sidecars in their order, then the ordinary containers. Ephemeral ones are left out.
    pub fn counted_containers(&self) -> impl Iterator<Item = &Container> {
        self.init_containers.iter().chain(&self.containers)
    }

    /// The container of this name, ephemeral ones left out.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&Container> {
        self.counted_containers().find(|container| container.name == name)
    }

    /// The owner that manages the pod.
    #[must_use]
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.metadata.owners.iter().find(|owner| owner.controller)
    }

    /// Whether the kubelet found it elsewhere than at the API server.
    #[must_use]
    pub fn is_static(&self) -> bool {
        self.metadata.annotations.get(CONFIG_SOURCE).is_some_and(|source| source != "api")
    }

    /// Whether it is the API server's copy of a static pod.
    #[must_use]
    pub fn is_mirror(&self) -> bool {
        self.metadata.annotations.contains_key(CONFIG_MIRROR)
    }
}

impl Container {
    /// CPU and memory with each absent request set to the limit. An amount beyond `u64` is capped there; a negative one
    /// counts as absent.
    #[must_use]
    pub fn cpu_and_memory(&self) -> ContainerResources {
        let filled = self.resources.defaulted();
        let milli = |q: crate::quantity::Quantity| {
            (!q.is_negative()).then(|| MilliCpu::new(q.milli_u64().unwrap_or(u64::MAX)))
        };
        let bytes = |q: crate::quantity::Quantity| {
            (!q.is_negative()).then(|| Bytes::new(q.to_u64().unwrap_or(u64::MAX)))
        };
        ContainerResources {
            cpu_request: filled.requests.cpu().and_then(milli),
            cpu_limit: filled.limits.cpu().and_then(milli),
            memory_request: filled.requests.memory().and_then(bytes),
            memory_limit: filled.limits.memory().and_then(bytes),
        }
    }
}
