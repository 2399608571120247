//! Volumes, claims, classes, attachment limits.

use serde::Serialize;

use super::{HostDisk, LabelSelector, NodeSelector, ObjectMeta, ResourceList, StringMap};

objects! {
    /// A persistent volume.
    pub struct PersistentVolume {
        /// Name and labels.
        pub metadata: ObjectMeta,
        /// What it is.
        pub spec: VolumeSpec,
        /// Whether it is taken.
        pub status: Phase,
    }

    /// The phase of a volume or claim.
    pub struct Phase {
        /// `Available`, `Bound`, `Released`, `Failed`; a claim also `Pending`, `Lost`.
        pub phase: String,
    }

    /// What a volume is.
    pub struct VolumeSpec {
        /// Size under `storage`.
        pub capacity: ResourceList,
        /// `ReadWriteOnce` and so on.
        pub access_modes: Vec<String>,
        /// Class.
        pub storage_class_name: String,
        /// `Filesystem` (default) or `Block`.
        pub volume_mode: String,
        /// Claim it is bound to.
        pub claim_ref: Option<ClaimReference>,
        /// Nodes that can reach it.
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
    pub struct ClaimReference {
        /// Name.
        pub name: String,
        /// Namespace.
        pub namespace: String,
        /// Uid.
        pub uid: String,
    }

    /// Nodes that can reach a volume.
    pub struct VolumeAffinity {
        /// None = every node.
        pub required: Option<NodeSelector>,
    }

    /// Driver and handle of a volume.
    pub struct CsiSource {
        /// Driver.
        pub driver: String,
        /// Handle.
        pub volume_handle: String,
    }

    /// A claim.
    pub struct PersistentVolumeClaim {
        /// Name, namespace, annotations.
        pub metadata: ObjectMeta,
        /// What it asks for.
        pub spec: ClaimSpec,
        /// Whether it is bound.
        pub status: Phase,
    }

    /// What a claim asks for.
    #[derive(Serialize)]
    pub struct ClaimSpec {
        /// `ReadWriteOnce` and so on.
        pub access_modes: Vec<String>,
        /// Class; `None` = the default one.
        pub storage_class_name: Option<String>,
        /// Volume it is bound to.
        pub volume_name: String,
        /// `Filesystem` (default) or `Block`.
        pub volume_mode: Option<String>,
        /// Size under `requests.storage`.
        pub resources: super::pod::Requirements,
        /// Volumes that may serve it.
        pub selector: Option<LabelSelector>,
    }

    /// A storage class.
    pub struct StorageClass {
        /// Name and annotations.
        pub metadata: ObjectMeta,
        /// Driver.
        pub provisioner: String,
        /// `Immediate` (default) or `WaitForFirstConsumer`.
        pub volume_binding_mode: String,
        /// Where volumes can be made; none = everywhere.
        pub allowed_topologies: Vec<TopologyTerm>,
    }

    /// One place where volumes can be made.
    pub struct TopologyTerm {
        /// All must hold.
        pub match_label_expressions: Vec<TopologyRequirement>,
    }

    /// A label with its allowed values.
    pub struct TopologyRequirement {
        /// Label.
        pub key: String,
        /// Values.
        pub values: Vec<String>,
    }

    /// Drivers of a node and how many volumes each can attach.
    pub struct CsiNode {
        /// Name of the node.
        pub metadata: ObjectMeta,
        /// Drivers.
        pub spec: CsiNodeSpec,
    }

    /// Drivers of a node.
    pub struct CsiNodeSpec {
        /// Drivers.
        pub drivers: Vec<CsiNodeDriver>,
    }

    /// One driver of a node.
    pub struct CsiNodeDriver {
        /// Name.
        pub name: String,
        /// Limit; none = no limit.
        pub allocatable: Option<AttachLimit>,
    }

    /// How many volumes.
    pub struct AttachLimit {
        /// Most volumes; none = no limit.
        pub count: Option<i64>,
    }

    /// What a driver asks of the scheduler.
    pub struct CsiDriver {
        /// Name.
        pub metadata: ObjectMeta,
        /// What it asks.
        pub spec: CsiDriverSpec,
    }

    /// What a driver asks of the scheduler.
    pub struct CsiDriverSpec {
        /// Space left must be looked at.
        pub storage_capacity: bool,
    }

    /// Space left in one place.
    pub struct StorageCapacity {
        /// Name and namespace.
        pub metadata: ObjectMeta,
        /// Class.
        pub storage_class_name: String,
        /// Which nodes.
        pub node_topology: Option<LabelSelector>,
        /// Space left in all.
        pub capacity: Option<evenkeel_model::quantity::Quantity>,
        /// Largest volume that can be made.
        pub maximum_volume_size: Option<evenkeel_model::quantity::Quantity>,
    }

    /// A volume attached (or about to be) to a node.
    pub struct VolumeAttachment {
        /// Name.
        pub metadata: ObjectMeta,
        /// Which volume to which node.
        pub spec: AttachmentSpec,
    }

    /// Which volume to which node.
    pub struct AttachmentSpec {
        /// Driver.
        pub attacher: String,
        /// Node.
        pub node_name: String,
        /// Volume.
        pub source: AttachmentSource,
    }

    /// Which volume.
    pub struct AttachmentSource {
        /// Its name.
        pub persistent_volume_name: Option<String>,
    }
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
