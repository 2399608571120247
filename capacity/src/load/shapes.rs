//! Pods to ask about: a pod, or the template of whatever makes pods.

use serde::Deserialize;
use serde_json::Value;

use crate::answer::Shape;
use crate::object::Pod;

/// Says how many of a pod belong to a set.
const COUNT: &str = "evenkeel.dev/count";

/// Why a document is no shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// Of a kind that makes no pods.
    #[error(
        "kind {0:?} makes no pods; give a Pod, or a Deployment, StatefulSet, ReplicaSet, DaemonSet, Job or CronJob"
    )]
    Kind(String),
    /// A field is broken.
    #[error("{0}")]
    Field(String),
}

/// Reads a document as shapes; a List may hold several.
///
/// # Errors
/// [`ShapeError`] of the first one that cannot be used.
pub fn shapes(document: &Value) -> Result<Vec<Shape>, ShapeError> {
    let kind = document["kind"].as_str().unwrap_or("Pod");
    if let Some(items) = document["items"].as_array().filter(|_| kind.ends_with("List")) {
        return items.iter().map(shapes).collect::<Result<Vec<_>, _>>().map(|all| all.concat());
    }
    let spec = &document["spec"];
    let (template, wanted) = match kind {
        "Pod" => (document.clone(), 1),
        "PodTemplate" => (document["template"].clone(), 1),
        "Deployment" | "StatefulSet" | "ReplicaSet" | "ReplicationController" => {
            (spec["template"].clone(), number(&spec["replicas"]))
        }
        "DaemonSet" => (spec["template"].clone(), 1),
        "Job" => (spec["template"].clone(), number(&spec["parallelism"])),
        "CronJob" => (spec["jobTemplate"]["spec"]["template"].clone(), 1),
        other => return Err(ShapeError::Kind(other.to_owned())),
    };
    let mut pod = Pod::deserialize(&template).map_err(|error| ShapeError::Field(error.to_string()))?;
    if pod.metadata.name.is_empty() {
        document["metadata"]["name"].as_str().unwrap_or("pod").clone_into(&mut pod.metadata.name);
    }
    if pod.metadata.namespace.is_empty() {
        document["metadata"]["namespace"].as_str().unwrap_or("").clone_into(&mut pod.metadata.namespace);
    }
    let wanted = match pod.metadata.annotations.get(COUNT) {
        None => wanted,
        Some(text) => text.parse().ok().filter(|count| *count > 0).ok_or_else(|| {
            ShapeError::Field(format!("annotation {COUNT}: {text:?} is not a number above 0"))
        })?,
    };
    Ok(vec![Shape { pod, wanted }])
}

/// Replicas; 1 where none are given, and at least 1, since nobody asks about nothing.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn whatever_makes_pods_is_a_shape() {
        let spec = json!({"containers": [{"name": "c"}]});
        let template = json!({"spec": spec});
        let table = [
            (json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": spec}), "p", 1),
            (
                json!({"kind": "Deployment", "metadata": {"name": "d"}, "spec": {"replicas": 3, "template": template}}),
                "d",
                3,
            ),
            (
                json!({"kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 2, "template": template}}),
                "j",
                2,
            ),
            (
                json!({"kind": "CronJob", "metadata": {"name": "c"}, "spec": {"jobTemplate": {"spec": {"template": template}}}}),
                "c",
                1,
            ),
            (
                json!({"kind": "Pod", "metadata": {"name": "n", "annotations": {COUNT: "7"}}, "spec": spec}),
                "n",
                7,
            ),
        ];
        for (document, name, wanted) in table {
            let all = shapes(&document).unwrap();
            assert_eq!(
                (all[0].pod.metadata.name.as_str(), all[0].wanted, all[0].pod.spec.containers.len()),
                (name, wanted, 1)
            );
        }
        assert!(
            matches!(shapes(&json!({"kind": "Service"})), Err(ShapeError::Kind(kind)) if kind == "Service")
        );
        let list = json!({"kind": "List", "items": [{"kind": "Pod"}, {"kind": "Pod"}]});
        assert_eq!(shapes(&list).unwrap().len(), 2);
    }
}
