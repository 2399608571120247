//! What a kubelet lists of its node's pods (`GET /pods`, a `PodList`), as what they require.
//!
//! The list comes over a network: a pod of it that makes no sense is left out, and told.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::{CONFIG_HASH, CONFIG_MIRROR, ContainerRequirements, MAX_CONTAINERS, PodRequirements};
use crate::name::ResourceName;
use crate::null::null_is_default;
use crate::qos_class::QosClass;
use crate::quantity::Quantity;
use crate::requirements::{Requirements, ResourceList};
use crate::workload::ContainerKind;

/// Reasons that are told.
const MOST_REFUSED: usize = 8;
/// Characters of a pod's name that are told.
const TOLD: usize = 128;

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodListing {
    /// Pods that have not ended.
    pub pods: Vec<PodRequirements>,
    /// Pods that cannot be meant, and why; the first few.
    pub refused: Vec<String>,
}

macro_rules! written {
    ($($(#[$about:meta])* struct $name:ident { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$about])*
        #[derive(Debug, Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct $name { $(#[serde(deserialize_with = "null_is_default")] $field: $type,)* }
    )*};
}

written! {
    struct PodList { kind: String, items: Vec<Value>, }
    struct ListedPod { metadata: ListedMetadata, spec: Spec, status: ListedStatus, }
    struct ListedMetadata { name: String, namespace: String, uid: String, annotations: Annotations, }
    struct Spec {
        priority: Option<i32>,
        priority_class_name: Option<String>,
        resources: Option<Resources>,
        overhead: Amounts,
        init_containers: Vec<ListedContainer>,
        containers: Vec<ListedContainer>,
    }
    struct ListedContainer { name: String, restart_policy: String, resources: Resources, }
    struct Resources { requests: Amounts, limits: Amounts, }
    struct ListedStatus {
        phase: String,
        qos_class: String,
        container_statuses: Vec<ContainerStatus>,
        init_container_statuses: Vec<ContainerStatus>,
    }
    struct ContainerStatus { name: String, resources: Option<Resources>, }
}

type Amounts = BTreeMap<String, Quantity>;
type Annotations = BTreeMap<String, String>;

/// Reads a list.
///
/// # Errors
/// In words, when it is none.
pub fn read_pod_list(json: &[u8]) -> Result<PodListing, String> {
    let list: PodList = serde_json::from_slice(json).map_err(|error| format!("it is no PodList: {error}"))?;
    if list.kind != "PodList" {
        let kind: String = list.kind.chars().take(TOLD).collect();
        return Err(format!("it is no PodList, but {kind:?}"));
    }
    let mut listed = PodListing::default();
    for item in list.items {
        let place =
            |part: &str| item["metadata"][part].as_str().unwrap_or_default().chars().take(TOLD).collect();
        let (namespace, name): (String, String) = (place("namespace"), place("name"));
        let read = ListedPod::deserialize(&item).map_err(|error| error.to_string()).and_then(required);
        match read {
            Ok(pod) => listed.pods.extend(pod),
            Err(why) if listed.refused.len() < MOST_REFUSED => {
                listed.refused.push(format!("{namespace}/{name}: {why}"));
            }
            Err(_) => {}
        }
    }
    Ok(listed)
}

/// What a pod requires; nothing of one that has ended.
fn required(pod: ListedPod) -> Result<Option<PodRequirements>, String> {
    let ListedPod { metadata, spec, status } = pod;
    if matches!(status.phase.as_str(), "Succeeded" | "Failed") {
        return Ok(None);
    }
    let all = spec.init_containers.len() + spec.containers.len();
    if all > MAX_CONTAINERS {
        return Err(format!("it has {all} containers; {MAX_CONTAINERS} are the most"));
    }
    let some = |text: String| (!text.is_empty()).then_some(text);
    let is_mirror = metadata.annotations.contains_key(CONFIG_MIRROR);
    let classes = [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed];
    let before = spec.init_containers.iter().map(|container| {
        let stays = container.restart_policy == "Always";
        (if stays { ContainerKind::Sidecar } else { ContainerKind::Init }, container)
    });
    let regular = spec.containers.iter().map(|container| (ContainerKind::Regular, container));
    let containers = before.chain(regular).map(|(kind, container)| ContainerRequirements {
        name: container.name.clone(),
        kind,
        resources: in_force(&status, container),
    });
    Ok(Some(PodRequirements {
        uid: metadata.uid,
        namespace: some(metadata.namespace).unwrap_or_else(|| "default".to_owned()),
        name: metadata.name,
        config_hash: metadata.annotations.get(CONFIG_HASH).filter(|_| is_mirror).cloned().and_then(some),
        priority: spec.priority,
        priority_class_name: spec.priority_class_name.and_then(some),
        qos_class: classes.into_iter().find(|class| class.as_str() == status.qos_class),
        resources: spec.resources.as_ref().map(read),
        overhead: list(&spec.overhead),
        containers: containers.collect(),
    }))
}

/// What the node says is in force, which is not yet what the spec asks for while a resize is deferred or on its way (KEP-1287); what the
/// spec says where the node says nothing.
fn in_force(status: &ListedStatus, container: &ListedContainer) -> Requirements {
    let all = status.container_statuses.iter().chain(&status.init_container_statuses);
    let told = all.filter(|of| of.name == container.name).find_map(|of| of.resources.as_ref());
    read(told.unwrap_or(&container.resources))
}

fn read(written: &Resources) -> Requirements {
    Requirements { requests: list(&written.requests), limits: list(&written.limits) }
}

/// Amounts of resources that have a name; the API server takes no other.
fn list(amounts: &Amounts) -> ResourceList {
    amounts.iter().filter_map(|(name, amount)| Some((ResourceName::parse(name).ok()?, *amount))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_all(items: Value) -> PodListing {
        read_pod_list(json!({ "kind": "PodList", "apiVersion": "v1", "items": items }).to_string().as_bytes())
            .unwrap()
    }

    #[test]
    fn what_is_in_force_is_read_and_static_pods_have_the_nodes_uid() {
        let resources = |cpu: &str| json!({ "requests": { "cpu": cpu } });
        let listed = read_all(json!([
            {
                "metadata": { "name": "web-1", "namespace": "shop", "uid": "u1", "annotations": null },
                "spec": {
                    "priority": 7, "priorityClassName": "", "overhead": { "memory": "16Mi" },
                    "initContainers": [{ "name": "mesh", "restartPolicy": "Always" }, { "name": "init" }],
                    "containers": [{ "name": "main", "resources": resources("2") }],
                },
                "status": { "phase": "Running", "qosClass": "Burstable",
                    "containerStatuses": [{ "name": "main", "resources": resources("1") }] },
            },
            { "metadata": { "name": "etcd", "namespace": "kube-system", "uid": "mirror",
                "annotations": { "kubernetes.io/config.mirror": "h", "kubernetes.io/config.hash": "h" } } },
            { "metadata": { "name": "job", "namespace": "shop", "uid": "u3" }, "status": { "phase": "Succeeded" } },
        ]));
        assert_eq!(listed.refused, Vec::<String>::new());
        let [web, etcd] = &listed.pods[..] else { panic!("{listed:?}") };
        assert_eq!(
            (web.priority, web.qos_class, etcd.uid_on_node()),
            (Some(7), Some(QosClass::Burstable), "h")
        );
        let kinds: Vec<_> = web.containers.iter().map(|container| container.kind).collect();
        assert_eq!(kinds, [ContainerKind::Sidecar, ContainerKind::Init, ContainerKind::Regular]);
        let cpu = web.containers[2].resources.requests.cpu();
        assert_eq!(cpu, Quantity::parse("1").ok(), "in force, not asked for");
    }

    #[test]
    fn what_makes_no_sense_is_left_out_and_told() {
        let broken = json!({ "metadata": { "name": "bad", "namespace": "shop" }, "spec": { "overhead": { "cpu": "much" } } });
        let listed = read_all(json!([broken, { "metadata": { "name": "good", "uid": "u" } }, 7]));
        assert_eq!((listed.pods.len(), listed.refused.len()), (1, 2), "{listed:?}");
        assert!(listed.refused[0].starts_with("shop/bad: "), "{listed:?}");
        let many = read_all(Value::Array(vec![broken; 20]));
        assert_eq!((many.pods.len(), many.refused.len()), (0, MOST_REFUSED));
        for text in ["", "[]", "{}", r#"{"kind":"Status","items":[]}"#, "<html>"] {
            assert!(read_pod_list(text.as_bytes()).unwrap_err().contains("no PodList"), "{text}");
        }
    }
}
