//! Pods to ask about: a pod, or the template of whatever makes pods.

use std::sync::Arc;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::element::{Element, Named, Spot, tracked, typed};
use crate::answer::Shape;
use crate::cluster::Builder;
use crate::object::{
    ClaimSpec, ClaimTemplate, EphemeralVolume, LabelSelector, Object, ObjectMeta, OwnerReference, Pod, Volume,
};

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

/// What people apply together: what makes pods, and what it comes with.
#[derive(Debug, Default)]
pub struct Manifest {
    /// Pods, or what makes pods.
    pub shapes: Vec<Shape>,
    /// Objects that are made with them, where the cluster has none of the name.
    pub objects: Vec<Object>,
    /// Kind and name of what takes no part.
    pub left_out: Vec<String>,
}

impl Manifest {
    /// Reads a document, which may be a List.
    ///
    /// # Errors
    /// [`ShapeError`] of the first object that cannot be used.
    pub fn take(&mut self, document: &Value) -> Result<(), ShapeError> {
        let kind = document["kind"].as_str().unwrap_or("Pod");
        if let Some(items) = document["items"].as_array().filter(|_| kind.ends_with("List")) {
            return items.iter().try_for_each(|item| self.take(item));
        }
        match shapes(document) {
            Ok(shapes) => self.shapes.extend(shapes),
            Err(ShapeError::Kind(kind)) => self.take_other(&kind, document)?,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn take_other(&mut self, kind: &str, document: &Value) -> Result<(), ShapeError> {
        let read = typed(Spot::Alone, kind, Named, document);
        match read.map_err(|error| ShapeError::Field(error.to_string()))? {
            Element::Known(object) if Builder::applies(&object) => self.objects.push(object),
            _ => {
                let name = document["metadata"]["name"].as_str().unwrap_or("");
                self.left_out.push(format!("{kind} {name}").trim_end().to_owned());
            }
        }
        Ok(())
    }
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
    let (place, wanted): (&[&str], u64) = match kind {
        "Pod" => (&[], 1),
        "PodTemplate" => (&["template"], 1),
        "Deployment" | "StatefulSet" | "ReplicaSet" | "ReplicationController" => {
            (&["spec", "template"], number(&spec["replicas"]))
        }
        "DaemonSet" => (&["spec", "template"], 1),
        "Job" => (&["spec", "template"], at_once(spec)),
        "CronJob" => (&["spec", "jobTemplate", "spec", "template"], at_once(&spec["jobTemplate"]["spec"])),
        other => return Err(ShapeError::Kind(other.to_owned())),
    };
    let mut pod: Pod = field(document, place)?;
    pod.written = Some(Arc::new(place.iter().fold(document, |value, key| &value[*key]).clone()));
    if kind == "StatefulSet" {
        claim_templates(document, &mut pod)?;
    }
    own_group(kind, document, &mut pod)?;
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

/// Reads a part of the document; an error names the field from the document's own beginning.
fn field<T: DeserializeOwned>(document: &Value, place: &[&str]) -> Result<T, ShapeError> {
    let value = place.iter().fold(document, |value, key| &value[*key]);
    tracked(value).map_err(|(path, error)| {
        let path = path.to_string();
        let inner = (path != ".").then_some(path.as_str());
        let path: Vec<&str> = place.iter().copied().chain(inner).collect();
        let separator = if path.is_empty() { "" } else { ": " };
        ShapeError::Field(format!("{}{separator}{error}", path.join(".")))
    })
}

/// Claims of a stateful set are made anew for each of its pods, in place of a volume of the same name.
fn claim_templates(document: &Value, pod: &mut Pod) -> Result<(), ShapeError> {
    #[derive(Deserialize)]
    struct Template {
        #[serde(default)]
        metadata: ObjectMeta,
        #[serde(default)]
        spec: ClaimSpec,
    }
    if document["spec"]["volumeClaimTemplates"].is_null() {
        return Ok(());
    }
    let templates: Vec<Template> = field(document, &["spec", "volumeClaimTemplates"])?;
    for template in templates {
        let name = template.metadata.name;
        pod.spec.volumes.retain(|volume| volume.name != name);
        let volume_claim_template = ClaimTemplate { spec: template.spec };
        let ephemeral = Some(Box::new(EphemeralVolume { volume_claim_template }));
        pod.spec.volumes.push(Volume { name, ephemeral, ..Volume::default() });
    }
    Ok(())
}

/// Pods of a replica set and the like are managed by it: its selector takes part in default spread constraints. (A
/// deployment's are told apart by a label that is not known yet.)
fn own_group(kind: &str, document: &Value, pod: &mut Pod) -> Result<(), ShapeError> {
    let selector = &document["spec"]["selector"];
    if selector.is_null() || !pod.metadata.owner_references.is_empty() {
        return Ok(());
    }
    pod.own_group = match kind {
        // Its pods go with their node, and take part in no default spread.
        "DaemonSet" => None,
        "ReplicaSet" | "StatefulSet" => Some(field(document, &["spec", "selector"])?),
        "ReplicationController" => {
            let match_labels = field(document, &["spec", "selector"])?;
            Some(LabelSelector { match_labels, ..LabelSelector::default() })
        }
        _ => return Ok(()),
    };
    let name = document["metadata"]["name"].as_str().unwrap_or("").to_owned();
    pod.metadata.owner_references.push(OwnerReference { kind: kind.to_owned(), name, controller: true });
    Ok(())
}

/// Replicas; 1 where none are given, and at least 1, since nobody asks about nothing.
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(1).max(1)
}

/// Pods that a job has at once.
fn at_once(spec: &Value) -> u64 {
    let parallel = number(&spec["parallelism"]);
    spec["completions"].as_u64().map_or(parallel, |completions| parallel.min(completions.max(1)))
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
        let job = |spec: Value| shapes(&json!({"kind": "Job", "spec": spec})).unwrap()[0].wanted;
        assert_eq!(job(json!({"parallelism": 5, "completions": 3, "template": template})), 3);
        assert_eq!(job(json!({"completions": 3, "template": template})), 1);
        assert!(
            matches!(shapes(&json!({"kind": "Service"})), Err(ShapeError::Kind(kind)) if kind == "Service")
        );
        let list = json!({"kind": "List", "items": [{"kind": "Pod"}, {"kind": "Pod"}]});
        assert_eq!(shapes(&list).unwrap().len(), 2);
    }
}
