//! Classification: which of the three classes a container or pod is in, under either rule set.
//!
//! Owned here: the class rules of the resource-QoS proposal (per container and resource) and of Kubernetes 1.36
//! (per pod, `pkg/apis/core/v1/helper/qos/qos.go`). Not owned: what follows from a class.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::{ContainerResources, Requested};
use serde::{Deserialize, Serialize};

/// Which rules decide classes and scores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleSet {
    /// The resource-QoS proposal: class per container, scores from memory alone.
    #[default]
    Proposal,
    /// Kubernetes 1.36: class per pod, from CPU and memory. For nodes on which a kubelet runs.
    Kubelet,
}

impl RuleSet {
    /// The name in configuration, flags and output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proposal => "proposal",
            Self::Kubelet => "kubelet",
        }
    }
}

impl std::fmt::Display for RuleSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// Classes of one container by resource; `None` where nothing is known about that resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ResourceClasses {
    /// Class by memory: decides scores and memory protection.
    pub memory: Option<QosClass>,
    /// Class by CPU: shown; shares follow from the request itself.
    pub cpu: Option<QosClass>,
}

/// A request that is not given defaults to the limit, resource by resource, in both rule sets. A request of
/// zero is one that somebody gave and stays zero.
#[must_use]
pub fn defaulted(resources: ContainerResources) -> ContainerResources {
    ContainerResources {
        cpu_request: resources.cpu_request.or(resources.cpu_limit),
        memory_request: resources.memory_request.or(resources.memory_limit),
        ..resources
    }
}

/// The CPU request that weights follow from, zero where it has none; `None` where nothing is known of it.
#[must_use]
pub fn cpu_request_of(requested: &Requested) -> Option<MilliCpu> {
    match requested {
        Requested::Stated(resources) => Some(defaulted(*resources).cpu_request.unwrap_or(MilliCpu::ZERO)),
        Requested::Estimated(estimate) => estimate.resources.cpu_request,
        Requested::Unknown => None,
    }
}

/// The proposal's rule for one resource, after defaulting: nothing requested is best-effort, a request equal to
/// the limit is guaranteed, anything else burstable.
fn class_of(request: u64, limit: Option<u64>) -> QosClass {
    match (request, limit) {
        (0, _) => QosClass::BestEffort,
        (r, Some(l)) if r == l => QosClass::Guaranteed,
        _ => QosClass::Burstable,
    }
}

/// Class of a container by memory under the proposal.
pub fn memory_class(resources: &ContainerResources) -> QosClass {
    let r = defaulted(*resources);
    class_of(r.memory_request.map_or(0, Bytes::get), r.memory_limit.map(Bytes::get))
}

/// Class of a container by CPU: the proposal's rule applied to CPU.
pub fn cpu_class(resources: &ContainerResources) -> QosClass {
    let r = defaulted(*resources);
    class_of(r.cpu_request.map_or(0, MilliCpu::get), r.cpu_limit.map(MilliCpu::get))
}

/// What Kubernetes' pod rule reads: the containers that count (ordinary, init and sidecar, never ephemeral),
/// or the pod-level resources, which replace them.
#[derive(Debug, Clone, Copy)]
pub enum PodShape<'a> {
    /// No pod-level resources: these containers count.
    Containers(&'a [ContainerResources]),
    /// Pod-level resources: only they are read.
    PodLevel(&'a ContainerResources),
}

/// Class of a pod under Kubernetes 1.36. Only CPU and memory count and zero is unset. Guaranteed needs a CPU
/// and a memory limit on every container and summed requests equal to summed limits in both.
pub fn pod_class(shape: PodShape<'_>) -> QosClass {
    let containers = match shape {
        PodShape::Containers(c) => c,
        PodShape::PodLevel(r) => std::slice::from_ref(r),
    };
    let mut sums = PodTotals::default();
    let mut every_limit_set = true;
    for c in containers {
        let c = defaulted(*c);
        sums.add(&c);
        every_limit_set &= c.cpu_limit.is_some_and(|l| !l.is_zero());
        every_limit_set &= c.memory_limit.is_some_and(|l| !l.is_zero());
    }
    if sums == PodTotals::default() {
        QosClass::BestEffort
    } else if every_limit_set
        && sums.cpu_request == sums.cpu_limit
        && sums.memory_request == sums.memory_limit
    {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

/// Requests and limits of a pod added up, wide enough never to overflow.
#[derive(Debug, Default, PartialEq, Eq)]
struct PodTotals {
    cpu_request: u128,
    cpu_limit: u128,
    memory_request: u128,
    memory_limit: u128,
}

impl PodTotals {
    fn add(&mut self, c: &ContainerResources) {
        self.cpu_request += c.cpu_request.map_or(0, |v| u128::from(v.get()));
        self.cpu_limit += c.cpu_limit.map_or(0, |v| u128::from(v.get()));
        self.memory_request += c.memory_request.map_or(0, |v| u128::from(v.get()));
        self.memory_limit += c.memory_limit.map_or(0, |v| u128::from(v.get()));
    }
}
