//! Pods with a label of this project: found by it, freed of a scheduling gate or of the label, or deleted.

use http::Method;
use serde_json::{Value, json};

use crate::connect::ApiServer;
use crate::kinds::ApiKind;
use crate::objects::{ApiError, place};
use crate::watch::escaped;

static PODS: &ApiKind = &ApiKind { name: "Pod", path: "/api/v1/pods", metadata_only: false };
/// Pods that are asked for at once.
const PAGE: usize = 500;

/// A gate, and the label and annotation beside it.
#[derive(Debug, Clone, Copy)]
pub struct SchedulingGate<'a> {
    /// Name of the gate.
    pub name: &'a str,
    /// Label of pods that have it, with the value `true`.
    pub label: &'a str,
    /// Annotation that goes with it.
    pub annotation: &'a str,
}

impl SchedulingGate<'_> {
    /// Whether a pod has it.
    #[must_use]
    pub fn is_on(&self, pod: &Value) -> bool {
        let gates = pod["spec"]["schedulingGates"].as_array();
        gates.into_iter().flatten().any(|gate| gate["name"] == self.name)
    }

    /// What frees a pod of it: other gates stay.
    fn lifted(&self, pod: &Value) -> Value {
        let gates = pod["spec"]["schedulingGates"].as_array();
        let others: Vec<&Value> =
            gates.into_iter().flatten().filter(|gate| gate["name"] != self.name).collect();
        json!({
            "metadata": {
                "uid": pod["metadata"]["uid"],
                "labels": { self.label: null }, "annotations": { self.annotation: null },
            },
            "spec": { "schedulingGates": others },
        })
    }
}

fn name(pod: &Value) -> (&str, &str) {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

impl ApiServer {
    /// The first pods with this label and the value `true`, 500 at most: when these are freed of it, the others come.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn labelled(&self, label: &str) -> Result<Vec<Value>, ApiError> {
        let path = format!("{}?limit={PAGE}&labelSelector={}%3Dtrue", PODS.path, escaped(label));
        let mut list = self.read(&path).await?;
        Ok(match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        })
    }

    /// Frees a pod of a gate.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn lift(&self, gate: SchedulingGate<'_>, pod: &Value) -> Result<(), ApiError> {
        let (namespace, name) = name(pod);
        self.merge(&place(PODS, namespace, name), &gate.lifted(pod)).await
    }

    /// Takes a label and the annotation of its name off a pod.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn unmark(&self, key: &str, pod: &Value) -> Result<(), ApiError> {
        let (namespace, name) = name(pod);
        let metadata =
            json!({ "uid": pod["metadata"]["uid"], "labels": { key: null }, "annotations": { key: null } });
        self.merge(&place(PODS, namespace, name), &json!({ "metadata": metadata })).await
    }

    /// Deletes a pod, this one and no later one of its name.
    ///
    /// # Errors
    /// [`ApiError`].
    pub async fn delete_pod(&self, pod: &Value) -> Result<(), ApiError> {
        let (namespace, name) = name(pod);
        let body = json!({ "preconditions": { "uid": pod["metadata"]["uid"] } });
        let path = place(PODS, namespace, name);
        self.send(Method::DELETE, &path, "application/json", Some(&body)).await.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_gates_and_labels_stay() {
        let gate = SchedulingGate { name: "a/b", label: "a/l", annotation: "a/n" };
        let pod = json!({
            "metadata": { "uid": "u", "labels": { "a/l": "true", "x": "y" } },
            "spec": { "schedulingGates": [{ "name": "a/b" }, { "name": "other" }] },
        });
        assert!(gate.is_on(&pod) && !gate.is_on(&json!({})));
        let patch = gate.lifted(&pod);
        assert_eq!(patch["spec"]["schedulingGates"], json!([{ "name": "other" }]));
        assert_eq!(
            patch["metadata"],
            json!({ "uid": "u", "labels": { "a/l": null }, "annotations": { "a/n": null } })
        );
    }
}
