//! What pods require in the API server's words.

use std::collections::BTreeSet;

use evenkeel_model::pod::{ContainerRequirements, MAX_CONTAINERS, PodRequirements};
use evenkeel_model::requirements::Requirements;

use super::identity::{kind_from_wire, kind_to_wire};
use super::{ConvertError, amounts_from_wire, amounts_to_wire, qos_class_from_wire, qos_class_to_wire};
use crate::v1;

/// Longest name of a pod, namespace, container or priority class, and longest uid: Kubernetes has 253 bytes.
const MAX_NAME: usize = 253;

impl From<&PodRequirements> for v1::PodRequirements {
    fn from(pod: &PodRequirements) -> Self {
        Self {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            config_hash: pod.config_hash.clone().unwrap_or_default(),
            priority: pod.priority,
            priority_class_name: pod.priority_class_name.clone().unwrap_or_default(),
            qos_class: qos_class_to_wire(pod.qos_class).into(),
            resources: pod.resources.as_ref().map(Into::into),
            overhead: amounts_to_wire(&pod.overhead),
            containers: pod.containers.iter().map(Into::into).collect(),
        }
    }
}

impl From<&ContainerRequirements> for v1::ContainerRequirements {
    fn from(container: &ContainerRequirements) -> Self {
        let ContainerRequirements { name, kind, resources } = container;
        let resources = (!resources.is_empty()).then(|| resources.into());
        Self { name: name.clone(), kind: kind_to_wire(*kind).into(), resources }
    }
}

impl From<&Requirements> for v1::Requirements {
    fn from(resources: &Requirements) -> Self {
        Self { requests: amounts_to_wire(&resources.requests), limits: amounts_to_wire(&resources.limits) }
    }
}

impl TryFrom<&v1::Requirements> for Requirements {
    type Error = ConvertError;

    fn try_from(wire: &v1::Requirements) -> Result<Self, ConvertError> {
        Ok(Self {
            requests: amounts_from_wire("requests", &wire.requests)?,
            limits: amounts_from_wire("limits", &wire.limits)?,
        })
    }
}

impl TryFrom<v1::PodRequirements> for PodRequirements {
    type Error = ConvertError;

    fn try_from(wire: v1::PodRequirements) -> Result<Self, ConvertError> {
        let optional = |text: String| (!text.is_empty()).then_some(text);
        if wire.containers.len() > MAX_CONTAINERS {
            let why = format!("it has {}; {MAX_CONTAINERS} are the most", wire.containers.len());
            return Err(ConvertError::Invalid { field: "containers", why });
        }
        let mut names = BTreeSet::new();
        let mut containers = Vec::with_capacity(wire.containers.len());
        for container in wire.containers {
            let container = ContainerRequirements::try_from(container)?;
            if !names.insert(container.name.clone()) {
                let why = format!("{} is given twice", container.name);
                return Err(ConvertError::Invalid { field: "containers", why });
            }
            containers.push(container);
        }
        Ok(Self {
            uid: name("uid", wire.uid)?,
            namespace: name("namespace", wire.namespace)?,
            name: name("name", wire.name)?,
            config_hash: optional(wire.config_hash).map(|hash| name("config_hash", hash)).transpose()?,
            priority: wire.priority,
            priority_class_name: optional(wire.priority_class_name)
                .map(|class| name("priority_class_name", class))
                .transpose()?,
            qos_class: qos_class_from_wire("qos_class", wire.qos_class)?,
            resources: wire.resources.as_ref().map(Requirements::try_from).transpose()?,
            overhead: amounts_from_wire("overhead", &wire.overhead)?,
            containers,
        })
    }
}

impl TryFrom<v1::ContainerRequirements> for ContainerRequirements {
    type Error = ConvertError;

    fn try_from(wire: v1::ContainerRequirements) -> Result<Self, ConvertError> {
        Ok(Self {
            name: name("container", wire.name)?,
            kind: kind_from_wire(wire.kind)?,
            resources: wire.resources.as_ref().map(Requirements::try_from).transpose()?.unwrap_or_default(),
        })
    }
}

fn name(field: &'static str, text: String) -> Result<String, ConvertError> {
    match text.len() {
        0 => Err(ConvertError::Missing { message: "PodRequirements", field }),
        length if length > MAX_NAME => {
            let why = format!("it has {length} bytes; {MAX_NAME} are the most");
            Err(ConvertError::Invalid { field, why })
        }
        _ => Ok(text),
    }
}
