//! Owns what becomes of Evenkeel's own objects (`evenkeel.dev/v1`): each is a policy, in one list and one order with those of files and
//! interfaces, and its status is what is told of that policy.

use std::sync::Arc;

use evenkeel_kubernetes::objects::{
    Autoscaler, FROZEN, FROZEN_NAMESPACE, OWN_CONDITIONS, Resolved, TargetRef, Targets, stamped,
};
use evenkeel_kubernetes::{ApiServer, ClusterView, PANIC};
use evenkeel_model::selector::LabelSelector;
use evenkeel_rightsizing::policy::{API_VERSION, MAX_POLICY_BYTES, Policy, PolicyError, read_resolved};
use serde::Deserialize;
use serde_json::{Value, json};

use super::find::{Asks, HAS_PARENT};
use crate::api::Context;
use crate::policy::PolicySource;

/// An object, and the policy that it is, or why it is none.
#[derive(Debug)]
pub(super) struct PolicyObject {
    pub(super) object: Arc<Autoscaler>,
    pub(super) policy: Result<Policy, String>,
    /// Why what its controller selects is not known now: then it is what it was.
    trouble: Option<String>,
}

/// The policies that objects are, oldest first. What a controller selects may not be known now: then the policy is what it was, and an object
/// of which nothing was known is left for another time.
pub(super) async fn read(
    mut all: Vec<Arc<Autoscaler>>,
    view: &ClusterView,
    targets: &Targets,
    api: &ApiServer,
    context: &Context,
) -> Vec<PolicyObject> {
    all.sort_by(|a, b| a.metadata.creation_timestamp.cmp(&b.metadata.creation_timestamp));
    let most = context.config.now().recommend.max_policies;
    let (mut asks, mut found) = (Asks::default(), Vec::with_capacity(all.len()));
    for (number, object) in all.into_iter().enumerate() {
        let metadata = &object.metadata;
        let target = target(&object);
        let (policy, trouble) = match target {
            _ if number >= most => (Some(Err(too_many(most))), None),
            None => (Some(valid(&object, None, context)), None),
            Some(target) if view.has_parent(&metadata.namespace, &target.kind, &target.name) => {
                (Some(Err(HAS_PARENT.to_owned())), None)
            }
            Some(target) => {
                let known = || known(&object, context).map(|labels| valid(&object, Some(&labels), context));
                match asks.resolve(targets, api, &metadata.namespace, &target).await {
                    Some(Resolved::Selects { labels, .. }) => {
                        (Some(valid(&object, Some(&labels), context)), None)
                    }
                    // A controller that is away for a moment takes no policy with it.
                    Some(Resolved::Unusable(why)) => (known().or_else(|| Some(Err(why.clone()))), Some(why)),
                    None => (known(), None),
                }
            }
        };
        found.extend(policy.map(|policy| PolicyObject { object: Arc::clone(&object), policy, trouble }));
    }
    found
}

fn too_many(most: usize) -> String {
    format!(
        "the cluster has more than {most} of these objects, and this is not among the oldest; delete some, or raise recommend.max_policies"
    )
}

/// What the controller that an object names selected when that was known last.
fn known(object: &Autoscaler, context: &Context) -> Option<LabelSelector> {
    let policy = context.policies.of_cluster(&object.metadata.namespace, &object.metadata.name)?;
    let is_same = policy.object(None, Value::Null)["spec"]["targetRef"] == object.as_written()["targetRef"];
    policy.labels.clone().filter(|_| is_same)
}

/// The controller that an object names; what is no such thing is told when it is read.
fn target(object: &Autoscaler) -> Option<TargetRef> {
    let spec = object.as_written();
    let is_both = spec.get("target").is_some_and(|target| !target.is_null());
    let target = spec.get("targetRef").filter(|target| !target.is_null() && !is_both)?;
    TargetRef::deserialize(target)
        .ok()
        .filter(|t| ![&t.api_version, &t.kind, &t.name].iter().any(|x| x.is_empty()))
}

/// The policy that an object is, its rule included.
fn valid(object: &Autoscaler, labels: Option<&LabelSelector>, context: &Context) -> Result<Policy, String> {
    let policy = policy(object, labels).map_err(|error| error.to_string())?;
    context.policies.rule(&policy).map_err(|error| error.to_string())?;
    Ok(policy)
}

pub(crate) fn policy(object: &Autoscaler, labels: Option<&LabelSelector>) -> Result<Policy, PolicyError> {
    let (spec, metadata) = (object.as_written(), &object.metadata);
    let bytes = spec.to_string().len();
    if bytes > MAX_POLICY_BYTES {
        return Err(PolicyError {
            place: "spec".to_owned(),
            why: format!("it has {bytes} bytes, over {MAX_POLICY_BYTES}"),
            remedy: "shorten it".to_owned(),
        });
    }
    let named = json!({
        "name": metadata.name, "namespace": metadata.namespace, "creationTimestamp": metadata.creation_timestamp,
    });
    let object = json!({
        "apiVersion": API_VERSION, "kind": "VerticalPodAutoscaler", "metadata": named, "spec": spec,
    });
    read_resolved(&object, labels)
}

fn condition(kind: &str, holds: bool, reason: &str, message: &str) -> Value {
    let status = if holds { "True" } else { "False" };
    json!({ "type": kind, "status": status, "reason": reason, "message": message })
}

/// What an object's status should be; nothing before a pass has looked at it, or it is known whether its namespace is frozen.
pub(super) fn status(
    read: &PolicyObject,
    object: &Autoscaler,
    context: &Context,
    now: &str,
) -> Option<Value> {
    context.readiness.followed().filter(|followed| followed.knows_namespaces())?;
    let told = match &read.policy {
        Ok(policy) => {
            let set = context.policies.set();
            match set.find(&policy.namespace, &policy.name).and_then(|at| set.source(at)) {
                Some(PolicySource::Cluster(_)) => context.policies.statuses.seen(policy)?,
                Some(PolicySource::File(_)) => {
                    let why = "a policy of this name is kept in a file of the recommender, and goes over it";
                    not_in_force(&[condition("InForce", false, "InFile", why)])
                }
                Some(PolicySource::Applied) | None => return None,
            }
        }
        Err(why) => not_in_force(&[
            condition("ConfigUnsupported", true, "Invalid", why),
            condition("InForce", false, "Invalid", "the object cannot be used, and governs nothing"),
        ]),
    };
    let mut conditions = told["conditions"].as_array().cloned().unwrap_or_default();
    if let (Ok(policy), Some(updater)) = (&read.policy, context.readiness.updater()) {
        conditions.extend(updater.told.condition(&policy.key()));
    }
    if let (Ok(_), Some(why)) = (&read.policy, &read.trouble) {
        conditions.push(condition("ConfigUnsupported", true, "TargetUnusable", why));
    }
    let namespace = &object.metadata.namespace;
    let why = match (context.engine.state().is_panic(), context.freezes(namespace)) {
        (true, _) => Some(("Panic", "the panic switch is on: nothing is set or changed".to_owned())),
        (_, true) => {
            let why =
                format!("namespace {namespace} has the annotation {PANIC}: nothing of it is set or changed");
            Some((FROZEN_NAMESPACE, why))
        }
        _ => None,
    };
    if let (Ok(_), Some((reason, why))) = (&read.policy, why) {
        conditions.push(condition(FROZEN, true, reason, &why));
    }
    let before = object.status["conditions"].as_array().map_or(&[][..], |all| all);
    Some(json!({
        "conditions": stamped(conditions, before, &OWN_CONDITIONS, now),
        "observedGeneration": object.metadata.generation,
        "recommendation": told["recommendation"],
        "conflicts": told["conflicts"],
        "selector": read.policy.as_ref().map_or(Value::Null, selector),
    }))
}

/// The labels that a policy selects by, which of one that names a controller the object itself does not tell.
fn selector(policy: &Policy) -> Value {
    let spec = &policy.object(None, Value::Null)["spec"];
    match &policy.labels {
        Some(labels) => plain(labels),
        None => Option::<LabelSelector>::deserialize(&spec["target"])
            .ok()
            .flatten()
            .map_or(Value::Null, |l| plain(&l)),
    }
}

/// As the API server keeps it: without what is empty.
fn plain(labels: &LabelSelector) -> Value {
    let mut value = json!({});
    if !labels.match_labels.is_empty() {
        value["matchLabels"] = json!(labels.match_labels);
    }
    if !labels.match_expressions.is_empty() {
        value["matchExpressions"] = json!(labels.match_expressions);
    }
    value
}

fn not_in_force(why: &[Value]) -> Value {
    let mut conditions = why.to_vec();
    conditions.push(condition("RecommendationProvided", false, "NotInForce", "see the other conditions"));
    json!({ "conditions": conditions })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(spec: Value) -> Autoscaler {
        let metadata = json!({
            "name": "web", "namespace": "shop", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 2,
            "resourceVersion": "7", "ownerReferences": [{ "kind": "X" }], "finalizers": ["x"],
        });
        Autoscaler::own(json!({ "metadata": metadata, "spec": spec }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn an_object_is_a_policy_of_its_labels_or_of_those_its_target_has() {
        let labels = LabelSelector::parse("app=web,tier in (a,b),!old").unwrap();
        let of = json!({ "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } });
        let of_target = policy(&object(of.clone()), Some(&labels)).unwrap();
        let pod = |app: &'static str| {
            move |key: &str| {
                [("app", app), ("tier", "a")].into_iter().find(|(k, _)| *k == key).map(|(_, v)| v)
            }
        };
        assert!(of_target.selects("shop", pod("web")) && !of_target.selects("shop", pod("db")));
        assert_eq!(
            (of_target.key().as_str(), of_target.created.as_deref()),
            ("shop/web", Some("2026-01-01T00:00:00Z"))
        );
        assert_eq!(target(&object(of.clone())).unwrap().workload(), "deployment/web");
        let spec =
            json!({ "target": { "matchLabels": { "app": "web" } }, "updatePolicy": { "mode": "off" } });
        assert!(policy(&object(spec), None).unwrap().selects("shop", pod("web")));
        let long = json!({ "target": {}, "parameters": { "x": "y".repeat(MAX_POLICY_BYTES) } });
        for (spec, why) in [
            (json!({}), "spec.target"),
            (Value::Null, "spec"),
            (json!({ "target": {}, "frob": 1 }), "spec.frob"),
            (json!({ "targetRef": "web" }), "spec.targetRef"),
            (json!({ "target": {}, "targetRef": of["targetRef"] }), "spec.targetRef"),
            (of, "spec.targetRef"),
            (long, "over 65536"),
        ] {
            let object = object(spec);
            let told = policy(&object, None).unwrap_err().to_string();
            assert!(told.contains(why), "{told}");
        }
    }
}
