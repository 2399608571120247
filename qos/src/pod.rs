//! A whole pod: the facts its containers' scores depend on.
//!
//! Owned here: what Kubernetes 1.36 computes of a pod before it looks at a container. Not owned: reading pods.

use evenkeel_model::pod::{Container, Pod};
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::Requirements;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::{ContainerResources, PodFacts};

use crate::rules::{PodShape, pod_class};

/// Priority from which a pod is critical (`scheduling.SystemCriticalPriority`).
pub const CRITICAL_PRIORITY: i32 = 2_000_000_000;
/// The priority class whose critical pods take a guaranteed score; the cluster-critical class gets nothing.
pub const NODE_CRITICAL_CLASS: &str = "system-node-critical";

/// Class of a pod under Kubernetes 1.36.
pub fn qos_class(pod: &Pod) -> QosClass {
    if let Some(whole) = pod.pod_level_defaulted() {
        return pod_class(PodShape::PodLevel(&cpu_and_memory(&whole)));
    }
    let containers: Vec<_> = pod.counted_containers().map(Container::cpu_and_memory).collect();
    pod_class(PodShape::Containers(&containers))
}

/// What the rule sets need to know of the pod of a container.
pub fn facts(pod: &Pod) -> PodFacts {
    let whole = pod.pod_level_defaulted().map(|r| cpu_and_memory(&r));
    PodFacts {
        priority: priority(pod),
        qos_class: Some(qos_class(pod)),
        node_critical: is_node_critical(pod),
        min_regular_memory_request: pod.containers.iter().map(memory_request).min(),
        memory_share_per_container: whole.and_then(|w| memory_share(pod, w.memory_request?)),
        pod_memory_limit: whole.and_then(|w| w.memory_limit).filter(|l| !l.is_zero()),
        pod_cpu_request: whole.and_then(|w| w.cpu_request),
        pod_cpu_limit: whole.and_then(|w| w.cpu_limit).filter(|l| !l.is_zero()),
        requests: Some(pod.effective_requests()),
        min_available: None,
        labels: pod.metadata.labels.clone(),
        from_api: false,
    }
}

/// Critical by priority, or static or mirror, and of the node-critical class. A pod that names the class but
/// whose priority nobody has resolved yet counts, for the class is built in and its priority is critical.
pub fn is_node_critical(pod: &Pod) -> bool {
    let critical = pod.is_static() || pod.is_mirror() || pod.priority.is_none_or(|p| p >= CRITICAL_PRIORITY);
    critical && pod.priority_class_name.as_deref() == Some(NODE_CRITICAL_CLASS)
}

/// Each container's part of what the pod requests and its containers do not:
/// `trunc((pod - sum) / (containers + init containers))`.
fn memory_share(pod: &Pod, pod_request: Bytes) -> Option<Bytes> {
    let requested = bytes(pod.container_requests().memory()).unwrap_or(Bytes::ZERO);
    let rest = pod_request.saturating_sub(requested).get();
    let count = u64::try_from(pod.counted_containers().count()).ok()?;
    rest.checked_div(count).map(Bytes::new)
}

fn memory_request(container: &Container) -> Bytes {
    container.cpu_and_memory().memory_request.unwrap_or(Bytes::ZERO)
}

fn cpu_and_memory(r: &Requirements) -> ContainerResources {
    ContainerResources {
        cpu_request: milli(r.requests.cpu()),
        cpu_limit: milli(r.limits.cpu()),
        memory_request: bytes(r.requests.memory()),
        memory_limit: bytes(r.limits.memory()),
    }
}

/// Capped at `u64`; a negative amount counts as absent.
fn milli(q: Option<Quantity>) -> Option<MilliCpu> {
    q.filter(|q| !q.is_negative()).map(|q| MilliCpu::new(q.milli_u64().unwrap_or(u64::MAX)))
}

/// Capped at `u64`; a negative amount counts as absent.
fn bytes(q: Option<Quantity>) -> Option<Bytes> {
    q.filter(|q| !q.is_negative()).map(|q| Bytes::new(q.to_u64().unwrap_or(u64::MAX)))
}

/// The pod's priority: stated, or that of a class every cluster has (`pkg/apis/scheduling/types.go`).
fn priority(pod: &Pod) -> Option<i32> {
    let named = || match pod.priority_class_name.as_deref()? {
        "system-node-critical" => Some(2_000_001_000),
        "system-cluster-critical" => Some(2_000_000_000),
        _ => None,
    };
    pod.priority.or_else(named)
}
