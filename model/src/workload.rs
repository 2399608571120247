//! A container as a source found it on this node: who it is, what it asked for, where its cgroup is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::requirements::ResourceList;
use crate::units::{Bytes, MilliCpu};

/// The pod (or service) a container belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodRef {
    /// Namespace; `default` where the source has none.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// Pod uid where the source knows it.
    pub uid: Option<String>,
}

/// What part of its pod a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContainerKind {
    /// An ordinary container.
    Regular,
    /// An init container that ends before the ordinary ones start.
    Init,
    /// An init container that keeps running (`restartPolicy: Always`).
    Sidecar,
    /// The pod's own process (pause), or another daemon the node cannot live without.
    Infrastructure,
}

/// Which source found a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// A directory of Pod manifests.
    Manifests,
    /// A container runtime's CRI socket.
    Cri,
    /// Names of cgroups (Docker, Podman).
    Names,
    /// systemd units.
    Systemd,
    /// The Kubernetes API or kubelet.
    Kubernetes,
}

/// How a container's cgroup is named.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupBinding {
    /// Path below the hierarchy's root, the same in every hierarchy, such as `/kubepods/burstable/pod1/c1`.
    Path(String),
    /// A systemd unit, whose cgroup is looked up in the tree.
    Unit(String),
}

/// CPU and memory a container asks for. `None` is "said nothing"; defaulting of requests to limits has
/// already been done by the source, so a zero request is a zero somebody wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResources {
    /// CPU request.
    pub cpu_request: Option<MilliCpu>,
    /// CPU limit.
    pub cpu_limit: Option<MilliCpu>,
    /// Memory request.
    pub memory_request: Option<Bytes>,
    /// Memory limit.
    pub memory_limit: Option<Bytes>,
}

/// How the requirements of a container became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Requested {
    /// Somebody wrote them: manifest, annotation, unit file.
    Stated(ContainerResources),
    /// Inverted from what the runtime was told (shares, score); may be off by rounding.
    Estimated(Estimate),
    /// Nothing is known: sampled, never written.
    Unknown,
}

/// What inverting the runtime's record yields, resource by resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// CPU and memory as inverted; a memory limit alone never becomes a request here.
    pub resources: ContainerResources,
    /// Class by memory that the requested score stands for, where a score was requested.
    pub memory_class: Option<crate::qos_class::QosClass>,
}

/// Policy for a process that raised its own `oom_score_adj` above the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScorePolicy {
    /// Leave it: the process offered itself.
    #[default]
    Respect,
    /// Put it back to the target.
    Pin,
}

/// What dies when the OOM killer picks a process of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OomKill {
    /// The whole container.
    Container,
    /// Only the process (the kernel's default).
    #[default]
    Process,
}

/// One container on this node, from one source. The arrow from the sources to `qos::plan`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Runtime's container id, or `<namespace>/<pod>/<container>` where no runtime is involved. Unique per node.
    pub id: String,
    /// Which source found it.
    pub source: SourceKind,
    /// Its pod.
    pub pod: PodRef,
    /// Container name within the pod.
    pub container: String,
    /// Part of the pod.
    pub kind: ContainerKind,
    /// Name of the controller that made the pod (`deployment/web`), or the pod's own name.
    pub workload: String,
    /// Image reference as the runtime or manifest has it.
    pub image: Option<String>,
    /// SHA-256 of command and arguments, first 8 bytes; the words themselves never leave the node.
    pub command_hash: Option<u64>,
    /// Its cgroup.
    pub cgroup: CgroupBinding,
    /// First process as the runtime tells, if it does.
    pub pid: Option<u32>,
    /// What it asked for.
    pub requested: Requested,
    /// The pod as a whole, for rules that look at the pod.
    pub pod_facts: PodFacts,
    /// False when sampled only: opted out, excluded namespace, static or mirror pod.
    pub managed: Managed,
    /// Policy for self-raised scores.
    pub score_policy: ScorePolicy,
    /// Whole-container or single-process OOM kills; `None` leaves the node's default.
    pub oom_kill: Option<OomKill>,
}

/// Whether the agent may write to a container, and if not why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Managed {
    /// Yes.
    Yes,
    /// No, for this reason (`opted out by annotation`, `namespace kube-system is excluded`, ...).
    No(String),
}

/// What the `kubelet` rule set needs to know about the whole pod of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodFacts {
    /// Pod-level class by Kubernetes' rule, where it can be computed from what is known.
    pub qos_class: Option<crate::qos_class::QosClass>,
    /// Node-critical: high priority (or static or mirror) and `system-node-critical`.
    pub node_critical: bool,
    /// The pod's priority, as its class or its spec has it.
    #[serde(default)]
    pub priority: Option<i32>,
    /// Smallest memory request of an ordinary container of the pod (the sidecar rule).
    pub min_regular_memory_request: Option<Bytes>,
    /// Each container's part of a pod-level memory request that its containers do not account for.
    pub memory_share_per_container: Option<Bytes>,
    /// Pod-level memory limit, which bounds a container that has none of its own.
    pub pod_memory_limit: Option<Bytes>,
    /// Pod-level CPU request: what a container that requests no CPU itself has shares of.
    #[serde(default)]
    pub pod_cpu_request: Option<MilliCpu>,
    /// Pod-level CPU limit, which bounds a container that has none of its own.
    pub pod_cpu_limit: Option<MilliCpu>,
    /// What the whole pod takes of a node, of every resource: its effective requests with init containers and
    /// overhead, where its manifest is known.
    pub requests: Option<ResourceList>,
    /// Pods of its group that must stay available, where its manifest says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_available: Option<u32>,
    /// Its labels, which policies select by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What the container asks for, and this, is in the API server's words.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_api: bool,
}
