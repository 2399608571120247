//! What an extender is sent: v1 objects as far as they are known here.
//!
//! A pod that is asked about is its manifest with what the API server fills in. Of pods of a snapshot only what decides
//! where they go is known, and what they request as a whole stands with one container.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::cluster::{Cluster, Effect, Labels, NodeIndex, PodInfo};
use crate::object;

/// A pod that is asked about.
pub(crate) fn pod(pod: &object::Pod) -> Value {
    let nothing = Value::Object(Map::new());
    let written = pod.written.as_deref().unwrap_or(&nothing);
    // What is read of the manifest, to be compared with what was made of it.
    let read = object::Pod::deserialize(written).unwrap_or_default();
    let mut metadata = written["metadata"].clone();
    change(&mut metadata, &value(&read.metadata), &value(&pod.metadata));
    metadata["namespace"] = pod.metadata.namespace_or_default().into();
    let mut spec = written["spec"].clone();
    change(&mut spec, &value(&read.spec), &value(&pod.spec));
    if pod.spec.scheduler_name.is_empty() {
        spec["schedulerName"] = crate::profile::DEFAULT_SCHEDULER.into();
    }
    let status = json!({ "phase": "Pending" });
    json!({ "kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status })
}

fn value(part: &impl Serialize) -> Value {
    // Structs of text, numbers and maps by text do not fail.
    serde_json::to_value(part).unwrap_or_default()
}

/// Brings a text that was read as `was` to `is`, and leaves what is not read as it is.
fn change(written: &mut Value, was: &Value, is: &Value) {
    if was == is {
        return;
    }
    match (was, is) {
        (Value::Object(was), Value::Object(is)) => {
            if !written.is_object() {
                *written = Value::Object(Map::new());
            }
            let Some(map) = written.as_object_mut() else { return };
            map.retain(|key, _| is.contains_key(key) || !was.contains_key(key));
            for (key, is) in is {
                let was = was.get(key).unwrap_or(&Value::Null);
                if was != is {
                    change(map.entry(key.as_str()).or_insert(Value::Null), was, is);
                }
            }
        }
        (Value::Array(was), Value::Array(is)) => match written.as_array_mut() {
            Some(list) if was.len() == is.len() && list.len() == is.len() => {
                list.iter_mut().zip(was.iter().zip(is)).for_each(|(one, (was, is))| change(one, was, is));
            }
            Some(list) if is.starts_with(was) => list.extend(is[was.len()..].iter().map(filled)),
            _ => *written = filled(&Value::Array(is.clone())),
        },
        _ => *written = filled(is),
    }
}

/// Without the fields that say nothing.
fn filled(value: &Value) -> Value {
    let says = |value: &Value| match value {
        Value::Null => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(all) => !all.is_empty(),
        Value::Object(map) => !map.is_empty(),
        _ => true,
    };
    match value {
        Value::Object(map) => {
            let fields = map.iter().map(|(key, value)| (key.clone(), filled(value)));
            fields.filter(|(_, value)| says(value)).collect()
        }
        Value::Array(all) => all.iter().map(filled).collect(),
        other => other.clone(),
    }
}

/// The object of a pod that was made ready: the text kept with it, else what is known of it.
pub(super) fn known(cluster: &Cluster, pod: &PodInfo) -> Value {
    let sent = pod.sent.as_deref().and_then(|text| serde_json::from_str(text).ok());
    sent.unwrap_or_else(|| summary(cluster, pod))
}

fn summary(cluster: &Cluster, pod: &PodInfo) -> Value {
    let requests = amounts(cluster, &pod.requests.plain);
    // What cannot be shared, whose limit is the request.
    let whole = |name: &&String| name.contains('/') || name.starts_with("hugepages-");
    let limits: BTreeMap<_, _> = requests.iter().filter(|(name, _)| whole(name)).collect();
    json!({
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": { "namespace": cluster.word(pod.namespace), "labels": labels(cluster, &pod.labels) },
        "spec": {
            "schedulerName": cluster.word(pod.scheduler),
            "priority": pod.priority,
            "containers": [{ "name": "all", "resources": { "requests": requests, "limits": limits } }],
        },
    })
}

/// A node as far as it is known here.
pub(super) fn node(cluster: &Cluster, node: NodeIndex) -> Value {
    let node = &cluster.nodes[node];
    let taints = node.taints.iter().map(|taint| {
        let effect = match taint.effect {
            Effect::NoSchedule => "NoSchedule",
            Effect::PreferNoSchedule => "PreferNoSchedule",
            Effect::NoExecute | Effect::Other => "NoExecute",
        };
        json!({ "key": cluster.word(taint.key), "value": cluster.word(taint.value), "effect": effect })
    });
    let mut allocatable = amounts(cluster, &node.allocatable);
    allocatable.insert("pods".to_owned(), node.max_pods.to_string());
    let image = |(name, bytes): &(_, i64)| json!({ "names": [cluster.word(*name)], "sizeBytes": bytes });
    json!({
        "metadata": { "name": cluster.word(node.name), "labels": labels(cluster, &node.labels) },
        "spec": { "unschedulable": node.unschedulable, "taints": taints.collect::<Vec<_>>() },
        "status": {
            "allocatable": allocatable,
            "images": node.images.iter().map(image).collect::<Vec<_>>(),
        },
    })
}

fn labels(cluster: &Cluster, labels: &Labels) -> BTreeMap<String, String> {
    let word = |symbol| cluster.word(symbol).to_owned();
    labels.iter().map(|(key, value)| (word(key), word(value))).collect()
}

fn amounts(cluster: &Cluster, amounts: &[(usize, i64)]) -> BTreeMap<String, String> {
    let text = |(resource, amount): &(usize, i64)| {
        let name = cluster.resources.name(*resource, &cluster.symbols).to_owned();
        let text = crate::answer::amount_text(&name, *amount);
        (name, text)
    };
    amounts.iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::shapes;

    /// What is sent of a manifest, once it was changed.
    fn sent(manifest: &Value, change: impl FnOnce(&mut object::Pod)) -> Value {
        let mut asked = shapes(manifest).unwrap().remove(0).pod;
        change(&mut asked);
        pod(&asked)
    }

    #[test]
    fn a_manifest_is_sent_as_it_is_with_what_was_made_of_it() {
        let manifest = json!({"kind": "Pod", "metadata": {"name": "p", "annotations": {"shop/zone": "x"}}, "spec": {
            "dnsPolicy": "None", "nodeSelector": {"disk": "ssd"}, "volumes": [{"name": "v", "configMap": {"name": "c"}}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "containers": [{"name": "c", "env": [{"name": "E", "value": "1"}], "resources": {"requests": {"cpu": "1"}}}]}});
        let plain = sent(&manifest, |_| {});
        assert_eq!(plain["spec"]["containers"], manifest["spec"]["containers"]);
        assert_eq!(
            plain["metadata"],
            json!({"name": "p", "namespace": "default", "annotations": {"shop/zone": "x"}})
        );
        assert_eq!(
            (&plain["spec"]["volumes"], &plain["spec"]["dnsPolicy"]),
            (&manifest["spec"]["volumes"], &json!("None"))
        );
        assert_eq!(
            (&plain["spec"]["schedulerName"], &plain["status"]["phase"]),
            (&json!("default-scheduler"), &json!("Pending"))
        );

        let changed = sent(&manifest, |pod| {
            pod.spec.node_selector.clear();
            pod.spec.priority = Some(7);
            pod.spec.tolerations.push(object::Toleration { key: "more".into(), ..Default::default() });
            let requests = &mut pod.spec.containers[0].resources.requests;
            requests.insert("memory".into(), "1Gi".parse().unwrap());
        });
        let spec = &changed["spec"];
        assert_eq!(spec["containers"][0]["env"], manifest["spec"]["containers"][0]["env"]);
        assert_eq!(spec["containers"][0]["resources"]["requests"], json!({"cpu": "1", "memory": "1Gi"}));
        assert_eq!(spec["tolerations"], json!([{"key": "k", "operator": "Exists"}, {"key": "more"}]));
        assert_eq!((&spec["priority"], &spec["nodeSelector"]), (&json!(7), &json!({})));
        assert_eq!(spec["volumes"], manifest["spec"]["volumes"]);
    }

    #[test]
    fn templates_get_the_name_of_what_makes_pods_and_pods_without_a_manifest_are_whole() {
        let set = json!({"kind": "StatefulSet", "metadata": {"name": "db", "namespace": "shop"}, "spec": {
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}],
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
                "containers": [{"name": "c"}], "volumes": [{"name": "v", "emptyDir": {}}]}}}});
        let whole = sent(&set, |_| {});
        assert_eq!(
            (&whole["metadata"]["name"], &whole["metadata"]["labels"]),
            (&json!("db"), &json!({"a": "b"}))
        );
        assert_eq!(whole["metadata"]["namespace"], "shop");
        assert_eq!(whole["spec"]["volumes"][0], json!({"name": "v", "emptyDir": {}}));
        assert_eq!(whole["spec"]["volumes"][1]["name"], "data");

        let mut own = object::Pod::default();
        own.metadata.name = "own".into();
        own.spec.containers.push(object::Container { name: "c".into(), ..Default::default() });
        assert_eq!(pod(&own)["spec"]["containers"], json!([{"name": "c"}]));
    }
}
