//! Who a container is, as announced once per slot.

use std::collections::BTreeMap;

use evenkeel_model::name::ResourceName;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::requirements::ResourceList;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::{ContainerKind, ContainerResources, PodRef, Requested, Workload};

use super::{
    ConvertError, MAX_AMOUNTS, amounts_from_wire, amounts_to_wire, qos_class_from_wire, qos_class_to_wire,
};
use crate::v1;

/// What the wire tells of a container: the part of a [`Workload`] that leaves the node, and its classes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Runtime's id, or `<namespace>/<pod>/<container>`.
    pub id: String,
    /// Its pod.
    pub pod: PodRef,
    /// Container name within the pod.
    pub container: String,
    /// Part of the pod.
    pub kind: ContainerKind,
    /// Name of the controller, or the pod's own.
    pub workload: String,
    /// Image reference, where known.
    pub image: Option<String>,
    /// First 8 bytes of the SHA-256 of command and arguments.
    pub command_hash: Option<u64>,
    /// Inode of its cgroup.
    pub cgroup_inode: u64,
    /// What it asked for; nothing where nothing is known.
    pub requested: ContainerResources,
    /// The requests were inverted from the runtime's record.
    pub estimated: bool,
    /// Class by memory; `None` = unclassified.
    pub memory_class: Option<QosClass>,
    /// Class by CPU; `None` = unclassified.
    pub cpu_class: Option<QosClass>,
    /// Labels of its pod, as far as they are told.
    pub labels: BTreeMap<String, String>,
    /// What its pod requests beside CPU and memory, as far as it is told.
    pub pod_requests: ResourceList,
}

impl Identity {
    /// What is told of a workload.
    pub fn of(
        workload: &Workload,
        memory_class: Option<QosClass>,
        cpu_class: Option<QosClass>,
        cgroup_inode: u64,
    ) -> Self {
        let (requested, estimated) = match workload.requested {
            Requested::Stated(resources) => (resources, false),
            Requested::Estimated(estimate) => (estimate.resources, true),
            Requested::Unknown => (ContainerResources::default(), false),
        };
        Self {
            id: workload.id.clone(),
            pod: workload.pod.clone(),
            container: workload.container.clone(),
            kind: workload.kind,
            workload: workload.workload.clone(),
            image: workload.image.clone(),
            command_hash: workload.command_hash,
            cgroup_inode,
            requested,
            estimated,
            memory_class,
            cpu_class,
            labels: told(&workload.pod_facts.labels),
            pod_requests: workload.pod_facts.requests.as_ref().map_or_else(ResourceList::new, others),
        }
    }
}

/// What is told of a pod beside CPU and memory; of one with too much of it nothing, rather than a part.
fn others(requests: &ResourceList) -> ResourceList {
    let own = [ResourceName::CPU, ResourceName::MEMORY, ResourceName::PODS];
    let others = requests.iter().filter(|(name, amount)| !own.contains(name) && !amount.is_zero());
    let others: ResourceList = others.map(|(name, amount)| (name.clone(), amount)).collect();
    if others.len() > MAX_AMOUNTS { ResourceList::new() } else { others }
}

/// Labels told of one pod, bytes of keys and values together: four times what pods commonly have. Of one with more none
/// are told, so that a selector never sees a part and takes the rest for absent.
const MAX_LABEL_BYTES: usize = 4096;

fn told(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let bytes: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    if bytes > MAX_LABEL_BYTES { BTreeMap::new() } else { labels.clone() }
}

impl From<Identity> for v1::ContainerIdentity {
    fn from(identity: Identity) -> Self {
        Self {
            id: identity.id,
            namespace: identity.pod.namespace,
            pod: identity.pod.name,
            pod_uid: identity.pod.uid.unwrap_or_default(),
            container: identity.container,
            kind: kind_to_wire(identity.kind).into(),
            workload: identity.workload,
            image: identity.image.unwrap_or_default(),
            command_hash: identity.command_hash,
            cgroup_inode: identity.cgroup_inode,
            requested: Some((&identity.requested).into()),
            estimated: identity.estimated,
            memory_class: qos_class_to_wire(identity.memory_class).into(),
            cpu_class: qos_class_to_wire(identity.cpu_class).into(),
            labels: identity.labels,
            pod_requests: amounts_to_wire(&identity.pod_requests),
        }
    }
}

impl TryFrom<v1::ContainerIdentity> for Identity {
    type Error = ConvertError;

    fn try_from(wire: v1::ContainerIdentity) -> Result<Self, ConvertError> {
        let filled = |field: &'static str, text: String| {
            if text.is_empty() {
                Err(ConvertError::Missing { message: "ContainerIdentity", field })
            } else {
                Ok(text)
            }
        };
        let optional = |text: String| (!text.is_empty()).then_some(text);
        Ok(Self {
            pod: PodRef {
                namespace: filled("namespace", wire.namespace)?,
                name: filled("pod", wire.pod)?,
                uid: optional(wire.pod_uid),
            },
            id: filled("id", wire.id)?,
            container: filled("container", wire.container)?,
            kind: kind_from_wire(wire.kind)?,
            workload: filled("workload", wire.workload)?,
            image: optional(wire.image),
            command_hash: wire.command_hash,
            cgroup_inode: wire.cgroup_inode,
            requested: wire.requested.as_ref().map(Into::into).unwrap_or_default(),
            estimated: wire.estimated,
            memory_class: qos_class_from_wire("memory_class", wire.memory_class)?,
            cpu_class: qos_class_from_wire("cpu_class", wire.cpu_class)?,
            labels: wire.labels,
            pod_requests: amounts_from_wire("pod_requests", &wire.pod_requests)?,
        })
    }
}

pub(super) const fn kind_to_wire(kind: ContainerKind) -> v1::ContainerKind {
    match kind {
        ContainerKind::Regular => v1::ContainerKind::Regular,
        ContainerKind::Init => v1::ContainerKind::Init,
        ContainerKind::Sidecar => v1::ContainerKind::Sidecar,
        ContainerKind::Infrastructure => v1::ContainerKind::Infrastructure,
    }
}

pub(super) fn kind_from_wire(number: i32) -> Result<ContainerKind, ConvertError> {
    match v1::ContainerKind::try_from(number) {
        Ok(v1::ContainerKind::Regular) => Ok(ContainerKind::Regular),
        Ok(v1::ContainerKind::Init) => Ok(ContainerKind::Init),
        Ok(v1::ContainerKind::Sidecar) => Ok(ContainerKind::Sidecar),
        Ok(v1::ContainerKind::Infrastructure) => Ok(ContainerKind::Infrastructure),
        Ok(v1::ContainerKind::Unspecified) => {
            Err(ConvertError::Missing { message: "ContainerIdentity", field: "kind" })
        }
        Err(_) => Err(ConvertError::unknown("kind", number)),
    }
}

impl From<&ContainerResources> for v1::ResourceValues {
    fn from(resources: &ContainerResources) -> Self {
        Self {
            cpu_request_milli: resources.cpu_request.map(MilliCpu::get),
            cpu_limit_milli: resources.cpu_limit.map(MilliCpu::get),
            memory_request_bytes: resources.memory_request.map(Bytes::get),
            memory_limit_bytes: resources.memory_limit.map(Bytes::get),
        }
    }
}

impl From<&v1::ResourceValues> for ContainerResources {
    fn from(values: &v1::ResourceValues) -> Self {
        Self {
            cpu_request: values.cpu_request_milli.map(MilliCpu::new),
            cpu_limit: values.cpu_limit_milli.map(MilliCpu::new),
            memory_request: values.memory_request_bytes.map(Bytes::new),
            memory_limit: values.memory_limit_bytes.map(Bytes::new),
        }
    }
}
