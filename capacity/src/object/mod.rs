//! Kubernetes objects as a snapshot holds them: only the fields that decide where pods go.
//!
//! Owned here: the shapes of the objects and reading them one by one. Unknown fields are skipped, as Kubernetes itself
//! does for fields of later versions. Not owned: what the fields mean for scheduling ([`crate::cluster`]).

/// Kubernetes' objects: a field that is absent or null is its type's default. Those whose lists are mostly about something
/// else ([`relevant`]) say so field by field instead.
macro_rules! objects {
    ($($(#[$about:meta])* pub struct $name:ident {
        $($(#[$about_field:meta])* pub $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        pub struct $name {
            $(
                $(#[$about_field])*
                #[serde(deserialize_with = "crate::object::null_is_default")]
                pub $field: $type,
            )*
        }
    )*};
}

mod node;
mod pod;
mod policy;
mod relevant;
mod storage;
mod types;

use std::collections::BTreeMap;

pub(crate) use evenkeel_model::null::null_is_default;
use evenkeel_model::quantity::Quantity;
pub use evenkeel_model::selector::{
    LabelSelector, NodeSelector, NodeSelectorTerm, PreferredTerm, SelectorRequirement,
};
use serde::{Deserialize, Serialize};

pub use node::{NOT_REPORTED, Node, NodeCondition, NodeImage, NodeSpec, NodeStatus, Taint};
pub use pod::{
    Affinity, ClaimTemplate, Container, ContainerPort, ContainerStatus, EphemeralVolume, HostDisk,
    NodeAffinity, Pod, PodAffinity, PodAffinityTerm, PodCondition, PodSpec, PodStatus, Requirements,
    SchedulingGate, SpreadConstraint, Toleration, Volume, WeightedPodAffinityTerm,
};
pub use policy::{
    DisruptionBudget, LimitRange, LimitRangeItem, Overhead, PriorityClass, ResourceQuota, RuntimeClass,
    RuntimeScheduling, ScopeRequirement,
};
pub use storage::{
    ClaimSpec, CsiDriver, CsiNode, PersistentVolume, PersistentVolumeClaim, StorageCapacity, StorageClass,
    VolumeAttachment, VolumeSpec,
};
pub(crate) use storage::{ZONE_LABELS, zone_labels};

/// Annotations that anything here asks for; others may be large, and are not kept.
pub const ANNOTATIONS: [&str; 6] = [
    "evenkeel.dev/count",
    "openshift.io/node-selector",
    "pv.kubernetes.io/bind-completed",
    "scheduler.alpha.kubernetes.io/node-selector",
    "storageclass.kubernetes.io/is-default-class",
    "volume.kubernetes.io/selected-node",
];

/// Reads the annotations that matter.
fn annotations<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<StringMap, D::Error> {
    deserializer.deserialize_option(relevant::Annotations(&ANNOTATIONS))
}

/// Amounts by resource name, as written.
pub type ResourceList = BTreeMap<String, Quantity>;
/// Labels or annotations.
pub type StringMap = BTreeMap<String, String>;

/// What every object carries.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectMeta {
    /// Name, unique among objects of one kind in a namespace.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub name: String,
    /// Namespace; empty for objects without one and for pods of the default namespace.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub namespace: String,
    /// Set by the API server; tells an object from a later one of the same name.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub uid: String,
    /// Labels.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub labels: StringMap,
    /// Annotations that matter here.
    #[serde(deserialize_with = "annotations")]
    pub annotations: StringMap,
    /// Set while the object is being deleted.
    pub deletion_timestamp: Option<String>,
    /// When it was made, RFC 3339.
    pub creation_timestamp: Option<String>,
    /// Who made it.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub owner_references: Vec<OwnerReference>,
}

objects! {
    /// One owner of an object.
    #[derive(Serialize)]
    pub struct OwnerReference {
        /// Kind, such as `DaemonSet`.
        pub kind: String,
        /// Name.
        pub name: String,
        /// True for the one that manages the object.
        pub controller: bool,
    }
}

impl ObjectMeta {
    /// The namespace, `default` where none is written.
    pub fn namespace_or_default(&self) -> &str {
        if self.namespace.is_empty() { "default" } else { &self.namespace }
    }

    /// The owner that manages the object.
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references.iter().find(|owner| owner.controller)
    }
}

objects! {
    /// A namespace.
    pub struct Namespace {
        /// Name, labels, annotations.
        pub metadata: ObjectMeta,
    }

    /// A service: its selector takes part in the default spread constraints.
    pub struct Service {
        /// Name and namespace.
        pub metadata: ObjectMeta,
        /// Selector.
        pub spec: ServiceSpec,
    }

    /// A service's or replication controller's selector: labels that must be equal.
    pub struct ServiceSpec {
        /// Labels; none selects nothing.
        pub selector: Option<StringMap>,
    }

    /// A replica set or stateful set: its selector takes part in the default spread constraints.
    pub struct ReplicaSet {
        /// Name and namespace.
        pub metadata: ObjectMeta,
        /// Selector.
        pub spec: ReplicaSetSpec,
    }

    /// Selector of a replica set.
    pub struct ReplicaSetSpec {
        /// Which pods are its own.
        pub selector: Option<LabelSelector>,
    }
}

/// One object of a kind that is understood.
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    /// A node.
    Node(Box<Node>),
    /// A pod.
    Pod(Box<Pod>),
    /// A namespace.
    Namespace(Box<Namespace>),
    /// A service.
    Service(Box<Service>),
    /// A replication controller: its selector is written as a service's.
    ReplicationController(Box<Service>),
    /// A replica set.
    ReplicaSet(Box<ReplicaSet>),
    /// A stateful set: its selector is written as a replica set's.
    StatefulSet(Box<ReplicaSet>),
    /// A persistent volume.
    PersistentVolume(Box<PersistentVolume>),
    /// A claim.
    PersistentVolumeClaim(Box<PersistentVolumeClaim>),
    /// A storage class.
    StorageClass(Box<StorageClass>),
    /// Attachment limits of one node.
    CsiNode(Box<CsiNode>),
    /// What a storage driver asks of the scheduler.
    CsiDriver(Box<CsiDriver>),
    /// Space left in one place.
    StorageCapacity(Box<StorageCapacity>),
    /// A volume attached to a node.
    VolumeAttachment(Box<VolumeAttachment>),
    /// A quota.
    ResourceQuota(Box<ResourceQuota>),
    /// Defaults and bounds of a namespace's containers and pods.
    LimitRange(Box<LimitRange>),
    /// A priority.
    PriorityClass(Box<PriorityClass>),
    /// What a container runtime brings with it.
    RuntimeClass(Box<RuntimeClass>),
    /// How many pods of a group may be away at once.
    DisruptionBudget(Box<DisruptionBudget>),
}

impl Object {
    /// Puts what is in a namespace into another one.
    pub(crate) fn put_into(&mut self, namespace: &str) {
        let metadata = match self {
            Self::Pod(o) => &mut o.metadata,
            Self::PersistentVolumeClaim(o) => &mut o.metadata,
            Self::ResourceQuota(o) => &mut o.metadata,
            Self::LimitRange(o) => &mut o.metadata,
            _ => return,
        };
        namespace.clone_into(&mut metadata.namespace);
    }
}
