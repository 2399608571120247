//! Owns what objects of the Vertical Pod Autoscaler say of pods that are made, where they name Evenkeel as their recommender: their status, by
//! the rules of that project's admission controller (1.7, `pkg/admission-controller`). Pure: objects and a question in, advice out.
//!
//! A pod is an object's where the controller that the object names is the pod's, or the Deployment or CronJob above it: nothing is asked of the
//! API server. Not owned: whether that project's own admission controller is there, and then sets the same.

use std::collections::HashMap;
use std::sync::Arc;

use evenkeel_kubernetes::objects::{Autoscaler, ContainerPolicy};
use evenkeel_model::quantity::Quantity;
use evenkeel_rightsizing::Resource;
use evenkeel_webhook::advice::{Advice, ContainerAdvice};
use evenkeel_webhook::pod::{PodContainer, PodQuestion};
use serde_json::Value;

use crate::recommend::caps::scaled;
use crate::recommend::limits::{Allowed, Limits};

/// Namespace, kind and name of a controller.
type Target = (String, String, String);

/// Objects by the controller that they name; of several the oldest counts, then the first by name.
#[derive(Debug, Default)]
pub(super) struct Autoscalers(HashMap<Target, Arc<Autoscaler>>);

impl Autoscalers {
    /// Of these objects, in any order.
    pub(super) fn of(all: Vec<Arc<Autoscaler>>) -> Self {
        let mut by_target: HashMap<Target, Arc<Autoscaler>> = HashMap::new();
        for object in all {
            let Some(target) = object.spec.target_ref.as_ref() else { continue };
            if object.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let key = (object.metadata.namespace.clone(), target.kind.clone(), target.name.clone());
            let rank = |object: &Autoscaler| {
                let metadata = &object.metadata;
                (metadata.creation_timestamp.clone(), metadata.name.clone())
            };
            let is_first = by_target.get(&key).is_none_or(|other| rank(&object) < rank(other));
            if is_first {
                by_target.insert(key, object);
            }
        }
        Self(by_target)
    }

    /// What the object of a pod says; nothing where there is none, or it sets nothing.
    pub(super) fn say(&self, question: &PodQuestion<'_>, limits: &Limits) -> Option<Advice> {
        let controller = question.controller.as_ref()?;
        let key = (question.namespace.to_owned(), controller.kind.to_owned(), controller.name.to_owned());
        let object = self.0.get(&key)?;
        let target = object.spec.target_ref.as_ref()?;
        if group(&target.api_version) != group(controller.api_version) || object.update_mode() == "Off" {
            return None;
        }
        let allowed = Resource::ALL.map(|resource| limits.of(None, question.namespace, resource));
        let of = |container: &PodContainer<'_>| said(object, container, &allowed);
        // Init containers are left alone, sidecars among them.
        let containers = question.containers.iter().filter(|container| container.place.0 == "containers");
        let containers: Vec<ContainerAdvice> = containers.filter_map(of).collect();
        (!containers.is_empty()).then(|| Advice { is_by_policy: true, containers, ..Advice::default() })
    }
}

/// The group of `apps/v1`; none of `v1`.
fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

/// What an object says of a container.
fn said(
    object: &Autoscaler,
    container: &PodContainer<'_>,
    allowed: &[Allowed; 2],
) -> Option<ContainerAdvice> {
    let policy = object.container(container.name);
    if policy.is_some_and(ContainerPolicy::is_off) {
        return None;
    }
    let recommended = object.status["recommendation"]["containerRecommendations"].as_array()?;
    let target = &recommended.iter().find(|one| one["containerName"] == container.name)?["target"];
    let metadata = &object.metadata;
    let why = format!("VerticalPodAutoscaler {}/{}", metadata.namespace, metadata.name);
    let mut said = ContainerAdvice { name: container.name.to_owned(), ..ContainerAdvice::default() };
    for (at, resource) in Resource::ALL.into_iter().enumerate() {
        let name = resource.as_str();
        said.limits[at] = container.own_limits[at];
        if policy.is_some_and(|policy| !policy.controls(name)) {
            continue;
        }
        let Some(request) = amount(&target[name], resource) else { continue };
        let own = (container.own_requests[at].or(container.own_limits[at]), container.own_limits[at]);
        let (request, limit) = within(request, own.0, own.1, policy, resource, &allowed[at]);
        (said.requests[at], said.limits[at], said.known[at]) = (Some(request), limit, true);
        said.why[at].clone_from(&why);
    }
    said.known.contains(&true).then_some(said)
}

/// Request and limit of a container that has these: within the object's bounds, then within what the namespace allows. A limit keeps its ratio to
/// the request, or stays, and then bounds it.
fn within(
    target: u64,
    request: Option<u64>,
    limit: Option<u64>,
    policy: Option<&ContainerPolicy>,
    resource: Resource,
    allowed: &Allowed,
) -> (u64, Option<u64>) {
    let bound =
        |of: fn(&ContainerPolicy) -> Option<&Quantity>| policy.and_then(of).and_then(|q| whole(*q, resource));
    let (least, most) = match resource {
        Resource::Cpu => (bound(|p| p.min_allowed.get("cpu")), bound(|p| p.max_allowed.get("cpu"))),
        Resource::Memory => (bound(|p| p.min_allowed.get("memory")), bound(|p| p.max_allowed.get("memory"))),
    };
    let target = target.max(least.unwrap_or(0)).min(most.unwrap_or(u64::MAX));
    let target = target.max(allowed.min.unwrap_or(0)).min(allowed.max.unwrap_or(u64::MAX));
    match limit {
        Some(limit) if policy.is_some_and(ContainerPolicy::keeps_limits) => (target.min(limit), Some(limit)),
        Some(limit) => {
            let before = request.filter(|request| *request > 0).unwrap_or(limit);
            let followed = scaled(target, limit, before.max(1), true);
            (target, Some(followed.min(allowed.max.unwrap_or(u64::MAX)).max(target)))
        }
        None => (target, None),
    }
}

fn amount(value: &Value, resource: Resource) -> Option<u64> {
    match value {
        Value::String(text) => whole(Quantity::parse(text).ok()?, resource),
        Value::Number(number) => whole(Quantity::parse(&number.to_string()).ok()?, resource),
        _ => None,
    }
}

/// Thousandths of a core, or bytes.
fn whole(quantity: Quantity, resource: Resource) -> Option<u64> {
    match resource {
        Resource::Cpu => quantity.milli_u64(),
        Resource::Memory => quantity.to_u64(),
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_webhook::change::changes;
    use evenkeel_webhook::object::Pod;
    use serde::Deserialize as _;
    use serde_json::json;

    use super::*;
    use crate::config::LimitRangeSection;

    fn object(name: &str, created: &str, spec: &Value) -> Arc<Autoscaler> {
        let mut whole = json!({
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "recommenders": [{ "name": "evenkeel" }],
        });
        spec.as_object().unwrap().iter().for_each(|(key, value)| whole[key] = value.clone());
        let target = json!({ "cpu": "250m", "memory": "128Mi" });
        let object = json!({
            "metadata": { "name": name, "namespace": "shop", "creationTimestamp": created },
            "spec": whole,
            "status": { "recommendation": { "containerRecommendations": [
                { "containerName": "main", "target": target }, { "containerName": "side", "target": target },
            ]}},
        });
        Arc::new(Autoscaler::read(object.to_string().as_bytes()).unwrap())
    }

    fn pod(resources: &Value) -> Value {
        json!({
            "metadata": {
                "labels": { "pod-template-hash": "5d9c" },
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9c", "controller": true }],
            },
            "spec": { "containers": [{ "name": "main", "resources": resources }, { "name": "bare" }], "initContainers": [
                { "name": "side", "restartPolicy": "Always" },
            ]},
        })
    }

    /// What is set of a pod, with the words of a change.
    fn set(objects: Vec<Arc<Autoscaler>>, pod: &Value, limits: &[LimitRangeSection]) -> Vec<String> {
        let read = Pod::deserialize(pod).unwrap();
        let question = PodQuestion::of("shop", &read).unwrap();
        let advice = Autoscalers::of(objects).say(&question, &Limits::new(limits)).unwrap_or_default();
        let patch = evenkeel_webhook::change::patch(&question, changes(&question, &advice));
        let values = patch.iter().filter_map(|one| {
            let value = one.value.as_ref().map_or(Some("-"), Value::as_str)?;
            Some(format!("{} {value}", one.path.strip_prefix("/spec/containers/0/resources/")?))
        });
        values.collect()
    }

    #[test]
    fn a_status_is_set_as_that_project_does() {
        let of = |spec: Value| vec![object("web", "2026-01-01T00:00:00Z", &spec)];
        let mode = |mode: &str| of(json!({ "updatePolicy": { "updateMode": mode } }));
        let containers = |policy: Value| of(json!({ "resourcePolicy": { "containerPolicies": [policy] } }));
        let both = vec!["requests/cpu 250m", "requests/memory 128Mi"];
        let none: Vec<&str> = Vec::new();
        let bare = json!({});
        let limited = json!({ "requests": { "cpu": "100m" }, "limits": { "cpu": "200m", "memory": "1Gi" } });
        for (objects, resources, want) in [
            (of(json!({})), &bare, both.clone()),
            (mode("Initial"), &bare, both.clone()),
            (mode("Auto"), &bare, both.clone()),
            (mode("Recreate"), &bare, both.clone()),
            (mode("InPlaceOrRecreate"), &bare, both.clone()),
            (mode("Off"), &bare, none.clone()),
            // What somebody set gives way.
            (of(json!({})), &json!({ "requests": { "cpu": "4", "memory": "4Gi" } }), both.clone()),
            (containers(json!({ "containerName": "main", "mode": "Off" })), &bare, none.clone()),
            (containers(json!({ "containerName": "*", "mode": "Off" })), &bare, none.clone()),
            (
                containers(json!({ "containerName": "*", "controlledResources": ["memory"] })),
                &bare,
                vec!["requests/memory 128Mi"],
            ),
            (
                containers(
                    json!({ "containerName": "main", "minAllowed": { "cpu": "1" }, "maxAllowed": { "memory": "64Mi" } }),
                ),
                &bare,
                vec!["requests/cpu 1", "requests/memory 64Mi"],
            ),
            // A limit keeps its ratio; without a request it is the request.
            (
                of(json!({})),
                &limited,
                vec!["requests/cpu 250m", "limits/cpu 500m", "requests/memory 128Mi", "limits/memory 128Mi"],
            ),
            (
                containers(json!({ "containerName": "main", "controlledValues": "RequestsOnly" })),
                &limited,
                vec!["requests/cpu 200m", "requests/memory 128Mi"],
            ),
            (
                of(json!({ "targetRef": { "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web" } })),
                &bare,
                none.clone(),
            ),
            (
                of(json!({ "targetRef": { "apiVersion": "x.y/v1", "kind": "Deployment", "name": "web" } })),
                &bare,
                none,
            ),
        ] {
            assert_eq!(
                set(objects.clone(), &pod(resources), &[]),
                want,
                "{:?} {resources}",
                objects[0].as_written()
            );
        }
    }

    #[test]
    fn of_two_the_oldest_counts_within_what_the_namespace_allows() {
        let off = json!({ "updatePolicy": { "updateMode": "Off" } });
        let old = object("old", "2026-01-01T00:00:00Z", &json!({}));
        let new = object("new", "2026-01-02T00:00:00Z", &off);
        let both = ["requests/cpu 250m", "requests/memory 128Mi"];
        assert_eq!(set(vec![old.clone(), new.clone()], &pod(&json!({})), &[]), both);
        assert_eq!(set(vec![new, old.clone()], &pod(&json!({})), &[]), both);
        let amount = |text: &str| Some(Quantity::parse(text).unwrap());
        let range = LimitRangeSection {
            namespace: "shop".into(),
            cpu_min: None,
            cpu_max: amount("200m"),
            memory_min: amount("256Mi"),
            memory_max: None,
        };
        let want = ["requests/cpu 200m", "requests/memory 256Mi"];
        assert_eq!(set(vec![old], &pod(&json!({})), &[range]), want);
    }
}
