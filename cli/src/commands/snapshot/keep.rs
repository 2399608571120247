//! Which fields of an object a snapshot keeps: what the simulator reads, and what says whose object it is.
//!
//! A list of what may pass, not of what may not: a field that a later Kubernetes adds, or that nobody thought of, stays
//! behind. What can hold a secret is not in it: values of annotations nobody here reads, environment, commands, probes,
//! attributes and options of volumes, host aliases.

use evenkeel_capacity::object::ANNOTATIONS;
use serde_json::{Map, Value};

/// What of a value is kept. Lists are seen through: what holds for a field holds for each of its items.
#[derive(Debug)]
pub(super) enum Keep {
    /// All of it.
    All,
    /// These fields.
    Fields(&'static [(&'static str, Keep)]),
    /// Annotations that are read here.
    Annotations,
}

use Keep::{All, Annotations, Fields};

/// Annotations of ours, by their prefix.
const OURS: &str = "evenkeel.dev/";
/// Where a static pod comes from.
const MIRROR: [&str; 2] = ["kubernetes.io/config.mirror", "kubernetes.io/config.source"];

const METADATA: (&str, Keep) = (
    "metadata",
    Fields(&[
        ("name", All),
        ("generateName", All),
        ("namespace", All),
        ("uid", All),
        ("resourceVersion", All),
        ("creationTimestamp", All),
        ("deletionTimestamp", All),
        ("labels", All),
        ("annotations", Annotations),
        ("ownerReferences", All),
    ]),
);
const NAME: (&str, Keep) = ("name", All);
const READ_ONLY: (&str, Keep) = ("readOnly", All);
const CONDITIONS: (&str, Keep) =
    ("conditions", Fields(&[("type", All), ("status", All), ("reason", All), ("lastTransitionTime", All)]));
const CONTAINERS: Keep =
    Fields(&[NAME, ("image", All), ("resources", All), ("ports", All), ("restartPolicy", All)]);
const CONTAINER_STATUSES: Keep =
    Fields(&[NAME, ("allocatedResources", All), ("resources", All), ("ready", All)]);
// Disks as the simulator compares them, without who may read them.
const GCE: (&str, Keep) = ("gcePersistentDisk", Fields(&[("pdName", All), READ_ONLY]));
const AWS: (&str, Keep) = ("awsElasticBlockStore", Fields(&[("volumeID", All), READ_ONLY]));
const AZURE: (&str, Keep) = ("azureDisk", Fields(&[("diskURI", All), ("diskName", All), READ_ONLY]));
const CINDER: (&str, Keep) = ("cinder", Fields(&[("volumeID", All), READ_ONLY]));
const ISCSI: (&str, Keep) = ("iscsi", Fields(&[("iqn", All), READ_ONLY]));
const RBD: (&str, Keep) = ("rbd", Fields(&[("monitors", All), ("pool", All), ("image", All), READ_ONLY]));
const VOLUMES: Keep = Fields(&[
    NAME,
    ("persistentVolumeClaim", Fields(&[("claimName", All), READ_ONLY])),
    ("ephemeral", Fields(&[("volumeClaimTemplate", Fields(&[("spec", All)]))])),
    ("image", Fields(&[("reference", All)])),
    ("emptyDir", Fields(&[("medium", All), ("sizeLimit", All)])),
    ("csi", Fields(&[("driver", All)])),
    GCE,
    AWS,
    AZURE,
    CINDER,
    ISCSI,
    RBD,
]);
const POD: Keep = Fields(&[
    METADATA,
    (
        "spec",
        Fields(&[
            ("nodeName", All),
            ("schedulerName", All),
            ("nodeSelector", All),
            ("affinity", All),
            ("tolerations", All),
            ("topologySpreadConstraints", All),
            ("containers", CONTAINERS),
            ("initContainers", CONTAINERS),
            ("overhead", All),
            ("resources", All),
            ("resourceClaims", All),
            ("runtimeClassName", All),
            ("priority", All),
            ("priorityClassName", All),
            ("preemptionPolicy", All),
            ("volumes", VOLUMES),
            ("activeDeadlineSeconds", All),
            ("schedulingGates", All),
            ("restartPolicy", All),
            ("terminationGracePeriodSeconds", All),
            ("hostNetwork", All),
            ("os", All),
        ]),
    ),
    (
        "status",
        Fields(&[
            ("phase", All),
            ("startTime", All),
            ("qosClass", All),
            ("nominatedNodeName", All),
            ("resourceClaimStatuses", All),
            ("allocatedResources", All),
            ("resources", All),
            ("containerStatuses", CONTAINER_STATUSES),
            ("initContainerStatuses", CONTAINER_STATUSES),
            CONDITIONS,
        ]),
    ),
]);
const NODE: Keep = Fields(&[
    METADATA,
    ("spec", Fields(&[("unschedulable", All), ("taints", All)])),
    (
        "status",
        Fields(&[("capacity", All), ("allocatable", All), ("images", All), ("nodeInfo", All), CONDITIONS]),
    ),
]);
const OWNER: Keep = Fields(&[METADATA, ("spec", Fields(&[("selector", All), ("replicas", All)]))]);
const VOLUME: Keep = Fields(&[
    METADATA,
    (
        "spec",
        Fields(&[
            ("capacity", All),
            ("accessModes", All),
            ("storageClassName", All),
            ("volumeMode", All),
            ("claimRef", All),
            ("nodeAffinity", All),
            ("csi", Fields(&[("driver", All), ("volumeHandle", All), READ_ONLY])),
            GCE,
            AWS,
            AZURE,
            CINDER,
        ]),
    ),
    ("status", Fields(&[("phase", All)])),
]);
const STORAGE_CLASS: Keep = Fields(&[
    METADATA,
    ("provisioner", All),
    ("volumeBindingMode", All),
    ("allowedTopologies", All),
    ("reclaimPolicy", All),
    ("allowVolumeExpansion", All),
]);
const ATTACHMENT: Keep = Fields(&[
    METADATA,
    (
        "spec",
        Fields(&[("attacher", All), ("nodeName", All), ("source", Fields(&[("persistentVolumeName", All)]))]),
    ),
    ("status", Fields(&[("attached", All)])),
]);
const PRIORITY: Keep = Fields(&[METADATA, ("value", All), ("globalDefault", All), ("preemptionPolicy", All)]);
const RUNTIME: Keep = Fields(&[METADATA, ("handler", All), ("overhead", All), ("scheduling", All)]);
const CAPACITY: Keep = Fields(&[
    METADATA,
    ("storageClassName", All),
    ("nodeTopology", All),
    ("capacity", All),
    ("maximumVolumeSize", All),
]);
/// Objects whose fields all have a type of the API: nothing in them is free text.
const TYPED: Keep = Fields(&[METADATA, ("spec", All), ("status", All)]);

impl Keep {
    /// What is kept of the objects of a kind.
    pub(super) fn of(kind: &str) -> &'static Self {
        match kind {
            "Pod" => &POD,
            "Node" => &NODE,
            "Service" => &Fields(&[METADATA, ("spec", Fields(&[("selector", All)]))]),
            "ReplicaSet" | "StatefulSet" | "ReplicationController" => &OWNER,
            "PersistentVolume" => &VOLUME,
            "StorageClass" => &STORAGE_CLASS,
            "VolumeAttachment" => &ATTACHMENT,
            "PriorityClass" => &PRIORITY,
            "RuntimeClass" => &RUNTIME,
            "CSIStorageCapacity" => &CAPACITY,
            _ => &TYPED,
        }
    }

    /// Takes everything else out of an object.
    pub(super) fn strip(&self, object: &mut Map<String, Value>) {
        match self {
            All => {}
            Fields(fields) => {
                object.retain(|key, _| fields.iter().any(|(kept, _)| kept == key));
                for (key, keep) in *fields {
                    if let Some(value) = object.get_mut(*key) {
                        keep.strip_value(value);
                    }
                }
            }
            Annotations => object.retain(|key, _| {
                let key = key.as_str();
                ANNOTATIONS.contains(&key) || MIRROR.contains(&key) || key.starts_with(OURS)
            }),
        }
    }

    fn strip_value(&self, value: &mut Value) {
        match value {
            Value::Object(object) => self.strip(object),
            Value::Array(items) => items.iter_mut().for_each(|item| self.strip_value(item)),
            _ => {}
        }
    }
}
