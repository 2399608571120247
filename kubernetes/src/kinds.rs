//! The kinds of objects that are followed.

/// A kind of objects of the API.
#[derive(Debug, PartialEq, Eq)]
pub struct ApiKind {
    /// Name, such as `Pod`.
    pub name: &'static str,
    /// Where all of them are listed, such as `/api/v1/pods`.
    pub path: &'static str,
    /// Only names and owners are asked for.
    pub metadata_only: bool,
}

const fn kind(name: &'static str, path: &'static str) -> ApiKind {
    ApiKind { name, path, metadata_only: false }
}

/// The kind of pods.
pub(crate) const POD: &str = "Pod";
/// The kind of jobs, of which only the owners matter.
pub(crate) const JOB: &str = "Job";

/// What namespaces allow.
const QUOTA: ApiKind = kind("ResourceQuota", "/api/v1/resourcequotas");
const RANGE: ApiKind = kind("LimitRange", "/api/v1/limitranges");

/// What bounds requests.
pub static BOUNDS: [ApiKind; 2] = [QUOTA, RANGE];

/// All that the view holds: what the simulator reads, and jobs for the names of workloads. Secrets and configuration maps are never
/// asked for. Deployments, DaemonSets and CronJobs are known by name from what they own.
pub static KINDS: [ApiKind; 20] = [
    kind("Node", "/api/v1/nodes"),
    kind(POD, "/api/v1/pods"),
    kind("Namespace", "/api/v1/namespaces"),
    kind("Service", "/api/v1/services"),
    kind("ReplicationController", "/api/v1/replicationcontrollers"),
    kind("ReplicaSet", "/apis/apps/v1/replicasets"),
    kind("StatefulSet", "/apis/apps/v1/statefulsets"),
    ApiKind { name: JOB, path: "/apis/batch/v1/jobs", metadata_only: true },
    kind("PersistentVolume", "/api/v1/persistentvolumes"),
    kind("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims"),
    kind("StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
    kind("CSINode", "/apis/storage.k8s.io/v1/csinodes"),
    kind("CSIDriver", "/apis/storage.k8s.io/v1/csidrivers"),
    kind("CSIStorageCapacity", "/apis/storage.k8s.io/v1/csistoragecapacities"),
    kind("VolumeAttachment", "/apis/storage.k8s.io/v1/volumeattachments"),
    QUOTA,
    RANGE,
    kind("PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses"),
    kind("RuntimeClass", "/apis/node.k8s.io/v1/runtimeclasses"),
    kind("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets"),
];

impl ApiKind {
    /// What is accepted as an answer to a list or watch.
    pub(crate) fn accept(&self, list: bool) -> &'static str {
        match (self.metadata_only, list) {
            (false, _) => "application/json",
            (true, true) => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            (true, false) => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        }
    }
}
