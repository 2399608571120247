//! Pods.

use std::sync::Arc;

use evenkeel_model::workload::ContainerKind;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::relevant::{Matters, only};
use super::{LabelSelector, NodeSelector, ObjectMeta, PreferredTerm, ResourceList, StringMap};

/// A pod.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// Name, namespace, labels.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub metadata: ObjectMeta,
    /// What it asks for.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub spec: PodSpec,
    /// Where it stands.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub status: PodStatus,
    /// Selector of what would manage it, where it comes from a template; no part of the object.
    #[serde(skip)]
    pub own_group: Option<LabelSelector>,
    /// The manifest it was read from, where somebody asks about it: extenders are sent all of it.
    #[serde(skip)]
    pub written: Option<Arc<Value>>,
}

/// What a pod asks for.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Node it is bound to, or asks for by name.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub node_name: String,
    /// Which scheduler, and so which profile.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub scheduler_name: String,
    /// Node labels that must be equal.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub node_selector: StringMap,
    /// Affinity.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub affinity: Affinity,
    /// Taints it bears.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub tolerations: Vec<Toleration>,
    /// How its like are to be spread.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub topology_spread_constraints: Vec<SpreadConstraint>,
    /// Containers.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub containers: Vec<Container>,
    /// Containers that run before, and sidecars.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub init_containers: Vec<Container>,
    /// What the runtime class costs on top.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub overhead: ResourceList,
    /// Requests of the pod as a whole; they replace the containers' sums.
    pub resources: Option<Requirements>,
    /// Priority.
    pub priority: Option<i32>,
    /// Name of the priority's class.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub priority_class_name: String,
    /// `Never` or `PreemptLowerPriority`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub preemption_policy: String,
    /// Volumes.
    #[serde(deserialize_with = "only")]
    pub volumes: Vec<Volume>,
    /// Set on pods that end by themselves; matters for quota scopes.
    pub active_deadline_seconds: Option<i64>,
    /// The scheduler does not look at the pod before these are gone.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub scheduling_gates: Vec<SchedulingGate>,
    /// Runs in the node's network: container ports are host ports then.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub host_network: bool,
    /// Runtime class, which may bring overhead, a node selector and tolerations.
    pub runtime_class_name: Option<String>,
    /// Claims on devices.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub resource_claims: Vec<DeviceClaim>,
}

impl PodSpec {
    /// Init containers and sidecars in their order, then the ordinary containers, each with what part of the pod it is.
    pub fn by_kind(&self) -> impl Iterator<Item = (ContainerKind, &Container)> {
        let init = |container: &Container| {
            if container.is_sidecar() { ContainerKind::Sidecar } else { ContainerKind::Init }
        };
        let before = self.init_containers.iter().map(move |container| (init(container), container));
        before.chain(self.containers.iter().map(|container| (ContainerKind::Regular, container)))
    }
}

objects! {
    /// A claim on devices (dynamic resource allocation).
    #[derive(Serialize)]
    pub struct DeviceClaim {
        /// Name in the pod.
        pub name: String,
    }

    /// Something a pod waits for before it is scheduled.
    #[derive(Serialize)]
    pub struct SchedulingGate {
        /// Name.
        pub name: String,
    }
}

/// Where a pod stands.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    /// `Pending`, `Running`, `Succeeded`, `Failed`, `Unknown`.
    #[serde(deserialize_with = "crate::object::null_is_default")]
    pub phase: String,
    /// When the kubelet took it, RFC 3339.
    pub start_time: Option<String>,
    /// What the kubelet granted, of containers for which it says so.
    #[serde(deserialize_with = "only")]
    pub container_statuses: Vec<ContainerStatus>,
    /// The same of init containers and sidecars.
    #[serde(deserialize_with = "only")]
    pub init_container_statuses: Vec<ContainerStatus>,
    /// Conditions.
    #[serde(deserialize_with = "only")]
    pub conditions: Vec<PodCondition>,
}

impl PodStatus {
    /// Whether the node said that it can never grant the resize that was asked for.
    pub fn is_resize_infeasible(&self) -> bool {
        let infeasible = |c: &PodCondition| c.kind == "PodResizePending" && c.reason == "Infeasible";
        self.conditions.iter().any(infeasible)
    }
}

objects! {
    /// A condition of a pod.
    #[derive(Serialize)]
    pub struct PodCondition {
        /// Which.
        #[serde(rename = "type")]
        pub kind: String,
        /// Why, in one word.
        pub reason: String,
    }
}

impl Matters for PodCondition {
    fn matters(&self) -> bool {
        self.kind == "PodResizePending"
    }
}

objects! {
    /// What a running container has.
    #[derive(Serialize)]
    pub struct ContainerStatus {
        /// Container.
        pub name: String,
        /// Requests the node admitted.
        pub allocated_resources: ResourceList,
        /// Requests in force.
        pub resources: Option<Requirements>,
    }
}

impl Matters for ContainerStatus {
    fn matters(&self) -> bool {
        self.resources.is_some()
    }
}

objects! {
    /// A container.
    #[derive(Serialize)]
    pub struct Container {
        /// Name.
        pub name: String,
        /// Image reference.
        pub image: String,
        /// Requests and limits.
        pub resources: Requirements,
        /// Ports.
        pub ports: Vec<ContainerPort>,
        /// `Always` makes an init container a sidecar.
        pub restart_policy: String,
    }
}

impl Container {
    /// Whether it, being an init container, goes on running beside the others.
    pub fn is_sidecar(&self) -> bool {
        self.restart_policy == "Always"
    }
}

objects! {
    /// Requests and limits.
    #[derive(Serialize, Eq)]
    pub struct Requirements {
        /// Requests.
        pub requests: ResourceList,
        /// Limits.
        pub limits: ResourceList,
    }

    /// A port of a container.
    #[derive(Serialize)]
    pub struct ContainerPort {
        /// Port on the node; 0 = none.
        pub host_port: i32,
        /// Port in the container.
        pub container_port: i32,
        /// `TCP` (default), `UDP`, `SCTP`.
        pub protocol: String,
        /// Address on the node; empty = all.
        #[serde(rename = "hostIP")]
        pub host_ip: String,
    }

    /// A taint that is borne.
    #[derive(Serialize, Eq, Hash)]
    pub struct Toleration {
        /// Key; empty with `Exists` = every taint.
        pub key: String,
        /// `Equal` (default) or `Exists`.
        pub operator: String,
        /// Value.
        pub value: String,
        /// Effect; empty = every.
        pub effect: String,
        /// How long a taint with effect `NoExecute` is borne, seconds; none = for ever.
        pub toleration_seconds: Option<i64>,
    }

    /// How pods of one kind are spread over a topology.
    #[derive(Serialize, Eq, Hash)]
    pub struct SpreadConstraint {
        /// Most by which one domain may exceed the fullest minimum.
        pub max_skew: i64,
        /// Node label that names the domain.
        pub topology_key: String,
        /// `DoNotSchedule` or `ScheduleAnyway`.
        pub when_unsatisfiable: String,
        /// Which pods count.
        pub label_selector: Option<LabelSelector>,
        /// Fewer domains count as an empty one more.
        pub min_domains: Option<i64>,
        /// `Honor` (default): only nodes the pod's affinity admits count; or `Ignore`.
        pub node_affinity_policy: Option<String>,
        /// `Ignore` (default): tainted nodes count; or `Honor`.
        pub node_taints_policy: Option<String>,
        /// Labels whose value must be the pod's own.
        pub match_label_keys: Vec<String>,
    }

    /// Affinity of a pod.
    #[derive(Serialize)]
    pub struct Affinity {
        /// To nodes.
        pub node_affinity: NodeAffinity,
        /// To pods.
        pub pod_affinity: PodAffinity,
        /// Away from pods.
        pub pod_anti_affinity: PodAffinity,
    }

    /// Affinity to nodes.
    #[derive(Serialize)]
    pub struct NodeAffinity {
        /// Must hold.
        #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
        pub required: Option<NodeSelector>,
        /// Should hold.
        #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
        pub preferred: Vec<PreferredTerm>,
    }

    /// Affinity to (or away from) pods.
    #[derive(Serialize)]
    pub struct PodAffinity {
        /// Must hold.
        #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
        pub required: Vec<PodAffinityTerm>,
        /// Should hold.
        #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution")]
        pub preferred: Vec<WeightedPodAffinityTerm>,
    }

    /// Which pods, in which topology.
    #[derive(Serialize)]
    pub struct PodAffinityTerm {
        /// Pods; none selects nothing.
        pub label_selector: Option<LabelSelector>,
        /// Node label that names the domain.
        pub topology_key: String,
        /// Namespaces by name.
        pub namespaces: Vec<String>,
        /// Namespaces by label; an empty selector selects all.
        pub namespace_selector: Option<LabelSelector>,
        /// Labels whose value must be the pod's own.
        pub match_label_keys: Vec<String>,
        /// Labels whose value must not be the pod's own.
        pub mismatch_label_keys: Vec<String>,
    }

    /// A preference for (or against) pods.
    #[derive(Serialize)]
    pub struct WeightedPodAffinityTerm {
        /// 1 to 100.
        pub weight: i64,
        /// Which.
        pub pod_affinity_term: PodAffinityTerm,
    }

    /// A volume of a pod; kinds that do not matter for scheduling have no field here.
    #[derive(Serialize)]
    pub struct Volume {
        /// Name in the pod.
        pub name: String,
        /// A claim.
        pub persistent_volume_claim: Option<ClaimVolume>,
        /// A claim made for the pod.
        pub ephemeral: Option<Box<EphemeralVolume>>,
        /// A disk of Google's.
        pub gce_persistent_disk: Option<Box<HostDisk>>,
        /// A disk of Amazon's.
        pub aws_elastic_block_store: Option<Box<HostDisk>>,
        /// A disk of Microsoft's.
        pub azure_disk: Option<Box<HostDisk>>,
        /// A disk of OpenStack's.
        pub cinder: Option<Box<HostDisk>>,
        /// A block device over iSCSI.
        pub iscsi: Option<Box<HostDisk>>,
        /// A Ceph block device.
        pub rbd: Option<Box<HostDisk>>,
        /// An image as a volume.
        pub image: Option<ImageVolume>,
    }
}

impl Matters for Volume {
    /// Most volumes are projected tokens and configuration, which no rule looks at.
    fn matters(&self) -> bool {
        let disks = [
            &self.gce_persistent_disk,
            &self.aws_elastic_block_store,
            &self.azure_disk,
            &self.cinder,
            &self.iscsi,
            &self.rbd,
        ];
        self.persistent_volume_claim.is_some()
            || self.ephemeral.is_some()
            || self.image.is_some()
            || disks.into_iter().any(Option::is_some)
    }
}

objects! {
    /// A claim by name.
    #[derive(Serialize)]
    pub struct ClaimVolume {
        /// Name of the claim.
        pub claim_name: String,
    }

    /// A claim made for one pod.
    #[derive(Serialize)]
    pub struct EphemeralVolume {
        /// The claim's template.
        pub volume_claim_template: ClaimTemplate,
    }

    /// Template of a claim.
    #[derive(Serialize)]
    pub struct ClaimTemplate {
        /// What it asks for.
        pub spec: super::storage::ClaimSpec,
    }

    /// An image as a volume.
    #[derive(Serialize)]
    pub struct ImageVolume {
        /// Image reference.
        pub reference: String,
    }

    /// A disk named in the pod itself; each kind uses some of the fields.
    #[derive(Serialize, Eq, Hash)]
    pub struct HostDisk {
        /// Name of the disk (GCE).
        pub pd_name: String,
        /// Address of the disk (Azure).
        #[serde(rename = "diskURI")]
        pub disk_uri: String,
        /// Id of the volume (EBS, Cinder).
        #[serde(rename = "volumeID")]
        pub volume_id: String,
        /// Qualified name (iSCSI).
        pub iqn: String,
        /// Monitors (RBD).
        #[serde(rename = "monitors")]
        pub monitors: Vec<String>,
        /// Pool (RBD).
        pub pool: String,
        /// Image (RBD).
        pub image: String,
        /// Not written through this mount.
        pub read_only: bool,
    }
}
