//! Volumes, claims, classes, attachment limits.

use serde::{Deserialize, Serialize};

use super::{HostDisk, LabelSelector, Metadata, NodeSelector, ResourceList, StringMap};

/// A persistent volume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolume {
    /// Name and labels.
    pub metadata: Metadata,
    /// What it is.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub spec: VolumeSpec,
    /// Whether it is taken.
    pub status: Phase,
}

/// The phase of a volume or claim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Phase {
    /// `Available`, `Bound`, `Released`, `Failed`; a claim also `Pending`, `Lost`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub phase: String,
}

/// What a volume is.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeSpec {
    /// Size under `storage`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub capacity: ResourceList,
    /// `ReadWriteOnce` and so on.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub access_modes: Vec<String>,
    /// Class.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub storage_class_name: String,
    /// `Filesystem` (default) or `Block`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub volume_mode: String,
    /// Claim it is bound to.
    pub claim_ref: Option<ClaimReference>,
    /// Nodes that can reach it.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub node_affinity: VolumeAffinity,
    /// Driver and handle.
    pub csi: Option<CsiSource>,
    /// A disk of Amazon's, as kinds were named before drivers.
    pub aws_elastic_block_store: Option<HostDisk>,
    /// The same of Google's.
    pub gce_persistent_disk: Option<HostDisk>,
    /// The same of Microsoft's.
    pub azure_disk: Option<HostDisk>,
    /// The same of OpenStack's.
    pub cinder: Option<HostDisk>,
}

/// Which claim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimReference {
    /// Name.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub name: String,
    /// Namespace.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub namespace: String,
    /// Uid.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub uid: String,
}

/// Nodes that can reach a volume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAffinity {
    /// None = every node.
    pub required: Option<NodeSelector>,
}

/// Driver and handle of a volume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiSource {
    /// Driver.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub driver: String,
    /// Handle.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub volume_handle: String,
}

/// A claim.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeClaim {
    /// Name, namespace, annotations.
    pub metadata: Metadata,
    /// What it asks for.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub spec: ClaimSpec,
    /// Whether it is bound.
    pub status: Phase,
}

/// What a claim asks for.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    /// `ReadWriteOnce` and so on.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub access_modes: Vec<String>,
    /// Class; `None` = the default one.
    pub storage_class_name: Option<String>,
    /// Volume it is bound to.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub volume_name: String,
    /// `Filesystem` (default) or `Block`.
    pub volume_mode: Option<String>,
    /// Size under `requests.storage`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub resources: super::pod::Requirements,
    /// Volumes that may serve it.
    pub selector: Option<LabelSelector>,
}

/// A storage class.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageClass {
    /// Name and annotations.
    pub metadata: Metadata,
    /// Driver.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub provisioner: String,
    /// `Immediate` (default) or `WaitForFirstConsumer`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub volume_binding_mode: String,
    /// Where volumes can be made; none = everywhere.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub allowed_topologies: Vec<TopologyTerm>,
}

/// One place where volumes can be made.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyTerm {
    /// All must hold.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub match_label_expressions: Vec<TopologyRequirement>,
}

/// A label with its allowed values.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TopologyRequirement {
    /// Label.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub key: String,
    /// Values.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub values: Vec<String>,
}

/// Drivers of a node and how many volumes each can attach.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNode {
    /// Name of the node.
    pub metadata: Metadata,
    /// Drivers.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub spec: CsiNodeSpec,
}

/// Drivers of a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeSpec {
    /// Drivers.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub drivers: Vec<CsiNodeDriver>,
}

/// One driver of a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiNodeDriver {
    /// Name.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub name: String,
    /// Limit; none = no limit.
    pub allocatable: Option<AttachLimit>,
}

/// How many volumes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachLimit {
    /// Most volumes; none = no limit.
    pub count: Option<i64>,
}

/// What a driver asks of the scheduler.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriver {
    /// Name.
    pub metadata: Metadata,
    /// What it asks.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub spec: CsiDriverSpec,
}

/// What a driver asks of the scheduler.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiDriverSpec {
    /// Space left must be looked at.
    pub storage_capacity: bool,
}

/// Space left in one place.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StorageCapacity {
    /// Name and namespace.
    pub metadata: Metadata,
    /// Class.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub storage_class_name: String,
    /// Which nodes.
    pub node_topology: Option<LabelSelector>,
    /// Space left in all.
    pub capacity: Option<evenkeel_model::quantity::Quantity>,
    /// Largest volume that can be made.
    pub maximum_volume_size: Option<evenkeel_model::quantity::Quantity>,
}

/// A volume attached (or about to be) to a node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VolumeAttachment {
    /// Name.
    pub metadata: Metadata,
    /// Which volume to which node.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub spec: AttachmentSpec,
}

/// Which volume to which node.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSpec {
    /// Driver.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub attacher: String,
    /// Node.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub node_name: String,
    /// Volume.
    pub source: AttachmentSource,
}

/// Which volume.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AttachmentSource {
    /// Its name.
    pub persistent_volume_name: Option<String>,
}

/// Labels that a volume's zone and region are told by.
pub(crate) fn zone_labels(labels: &StringMap) -> impl Iterator<Item = (&String, &String)> {
    labels.iter().filter(|(key, _)| ZONE_LABELS.contains(&key.as_str()))
}

/// Zone and region, by their old and their present names.
pub(crate) const ZONE_LABELS: [&str; 4] = [
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
];
