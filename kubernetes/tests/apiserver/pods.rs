//! What changes pods that run: `pods/resize` and `pods/eviction`, as recorded of 1.36; and the kubelet, as far as it answers a resize.

use axum::http::StatusCode;
use axum::response::Response;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::selector::{LabelSelector, Selector};
use serde::Deserialize;
use serde_json::{Value, json};

use super::refusal;
use super::rest::{Asked, Named, merge, ok};
use super::store::Key;
use super::{Fate, Known};

const PODS: &str = "/api/v1/pods";
const RANGES: &str = "/api/v1/limitranges";
const BUDGETS: &str = "/apis/policy/v1/poddisruptionbudgets";

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn read(known: &Known, collection: &str, key: &Key) -> Option<Value> {
    known.store.get(collection, key).map(|text| serde_json::from_str(text).unwrap())
}

fn not_found(named: &Named) -> Response {
    refusal::not_found("", "pods", &named.name)
}

fn invalid(name: &str, why: &str) -> Response {
    let message = format!("Pod {name:?} is invalid: {why}");
    let details = json!({ "name": name, "kind": "Pod" });
    refusal::status(422, "Invalid", &message, details)
}

/// The class, by the rule of the API server.
pub(super) fn class(spec: &Value) -> &'static str {
    let (mut any, mut all_equal) = (false, true);
    for container in list(&spec["initContainers"]).iter().chain(list(&spec["containers"])) {
        let resources = &container["resources"];
        for resource in ["cpu", "memory"] {
            let of = |kind: &str| Quantity::deserialize(&resources[kind][resource]).ok();
            let (request, limit) = (of("requests").or_else(|| of("limits")), of("limits"));
            any |= request.is_some();
            all_equal &= limit.is_some() && request == limit;
        }
    }
    match (any, all_equal) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

/// Why a pod cannot be resized, whatever is asked for: a node's own, or one whose node says nothing of resources that are in force
/// (`isPodResizeRequestSupported`).
fn never(pod: &Value) -> Option<&'static str> {
    if pod["metadata"]["annotations"].get("kubernetes.io/config.mirror").is_some() {
        return Some("Forbidden: static pods cannot be resized");
    }
    let mut statuses = list(&pod["status"]["containerStatuses"]).iter();
    let runs = statuses.find(|status| status["state"].get("running").is_some());
    runs.filter(|status| status["resources"].is_null())
        .map(|_| "spec: Forbidden: Pod running on node without support for resize")
}

/// Why a limit range of the namespace does not let sizes be.
fn by_range(known: &Known, named: &Named, pod: &Value) -> Option<String> {
    let ranges = known.store.objects.get(RANGES).into_iter().flatten();
    let ranges: Vec<Value> = ranges.map(|(_, text)| serde_json::from_str(text).unwrap()).collect();
    let own = ranges.iter().filter(|range| range["metadata"]["namespace"] == named.namespace.as_str());
    let items: Vec<&Value> =
        own.flat_map(|range| list(&range["spec"]["limits"])).filter(|of| of["type"] == "Container").collect();
    for container in list(&pod["spec"]["containers"]) {
        for (item, name) in items.iter().flat_map(|item| ["cpu", "memory"].map(|name| (item, name))) {
            let of = |value: &Value| Quantity::deserialize(value).ok();
            let limit = &container["resources"]["limits"][name];
            if let (Some(most), Some(set)) = (of(&item["max"][name]), of(limit))
                && set > most
            {
                let (most, set) = (item["max"][name].as_str().unwrap(), limit.as_str().unwrap());
                return Some(format!("maximum {name} usage per Container is {most}, but limit is {set}"));
            }
        }
    }
    None
}

/// Takes resources of containers by their name from a strategic merge patch.
fn resized(pod: &mut Value, patch: &Value) -> Result<(), String> {
    for field in ["containers", "initContainers"] {
        for change in list(&patch["spec"][field]) {
            let containers = pod["spec"][field].as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
            let found = containers.iter_mut().find(|container| container["name"] == change["name"]);
            let Some(container) = found else {
                return Err(
                    "spec.containers: Forbidden: containers may not be added or removed on resize".into()
                );
            };
            for kind in ["requests", "limits"] {
                for (name, amount) in change["resources"][kind].as_object().into_iter().flatten() {
                    if amount.is_null() {
                        let what = format!(
                            "spec.{field}[0].resources.{kind}: Forbidden: resource {kind} cannot be removed"
                        );
                        return Err(what);
                    }
                    if !matches!(name.as_str(), "cpu" | "memory") {
                        return Err("spec: Forbidden: only cpu and memory resources are mutable".into());
                    }
                }
            }
            merge(&mut container["resources"], &change["resources"]);
        }
    }
    Ok(())
}

pub(super) fn resize(known: &mut Known, named: &Named, asked: &Asked) -> Response {
    let patch: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let key = named.key();
    let Some(old) = read(known, PODS, &key) else { return not_found(named) };
    let metadata = &patch["metadata"];
    if metadata["uid"].as_str().is_some_and(|uid| old["metadata"]["uid"] != uid) {
        let why = format!("metadata.uid: Invalid value: {}: field is immutable", metadata["uid"]);
        return invalid(&named.name, &why);
    }
    let version = metadata["resourceVersion"].as_str();
    if version.is_some_and(|version| old["metadata"]["resourceVersion"] != version) {
        return refusal::conflict("", "pods", &named.name);
    }
    if let Some(why) = never(&old) {
        return invalid(&named.name, why);
    }
    let mut new = old.clone();
    if let Err(why) = resized(&mut new, &patch) {
        return invalid(&named.name, &why);
    }
    let was = class(&old["spec"]);
    if class(&new["spec"]) != was {
        let why =
            format!("spec: Invalid value: {was:?}: Pod QOS Class may not change as a result of resizing");
        return invalid(&named.name, &why);
    }
    if let Some(why) = by_range(known, named, &new) {
        let message = format!("pods {:?} is forbidden: {why}", named.name);
        return refusal::status(403, "Forbidden", &message, json!({ "name": named.name, "kind": "pods" }));
    }
    if new["spec"] != old["spec"] {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(1) + 1;
        new["metadata"]["generation"] = generation.into();
    }
    let made = known.store.put(PODS, new);
    kubelet(known, &key);
    ok(StatusCode::OK, made.to_string())
}

/// What the node makes of what is asked for.
fn kubelet(known: &mut Known, key: &Key) {
    if known.has_kubelet {
        return;
    }
    let fate = known.fates.get(key).copied();
    let Some(mut pod) = read(known, PODS, key) else { return };
    let granted: Vec<Value> = list(&pod["status"]["containerStatuses"]).to_vec();
    let is_granted = |container: &Value| {
        let of = granted.iter().find(|status| status["name"] == container["name"]);
        of.is_none_or(|status| status["allocatedResources"] == container["resources"]["requests"])
    };
    let is_settled = list(&pod["spec"]["containers"]).iter().all(is_granted);
    let mut conditions: Vec<Value> = list(&pod["status"]["conditions"]).to_vec();
    conditions.retain(|condition| condition["type"] != "PodResizePending");
    let generation = pod["metadata"]["generation"].clone();
    let pending = |reason: &str, message: &str| {
        json!({
            "type": "PodResizePending", "observedGeneration": generation, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    match fate {
        _ if is_settled => {}
        None => return grant(known, key),
        Some(Fate::Deferred) => conditions.push(pending(
            "Deferred",
            "Node didn't have enough resource: cpu, requested: 1950, used: 1630, capacity: 2000",
        )),
        Some(Fate::Infeasible) => conditions.push(pending(
            "Infeasible",
            "Resize is infeasible for Guaranteed Pods alongside CPU Manager policy \"static\"",
        )),
        Some(Fate::Silent) => {}
    }
    pod["status"]["conditions"] = conditions.into();
    known.store.put(PODS, pod);
}

/// The node grants what is asked for.
pub(super) fn grant(known: &mut Known, key: &Key) {
    let Some(mut pod) = read(known, PODS, key) else { return };
    let mut conditions: Vec<Value> = list(&pod["status"]["conditions"]).to_vec();
    conditions.retain(|condition| condition["type"] != "PodResizePending");
    let before: Vec<Value> = list(&pod["status"]["containerStatuses"]).to_vec();
    let of = |container: &Value| {
        let known = before.iter().find(|status| status["name"] == container["name"]).cloned();
        let mut status = known.unwrap_or_else(|| json!({ "name": container["name"] }));
        status["allocatedResources"] = container["resources"]["requests"].clone();
        status["resources"] = container["resources"].clone();
        status
    };
    let statuses: Vec<Value> = list(&pod["spec"]["containers"]).iter().map(of).collect();
    pod["status"]["containerStatuses"] = statuses.into();
    pod["status"]["conditions"] = conditions.into();
    known.store.put(PODS, pod);
}

pub(super) fn evict(known: &mut Known, named: &Named, asked: &Asked) -> Response {
    let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    if body["metadata"]["name"] != named.name.as_str() {
        return refusal::bad("name in URL does not match name in Eviction object");
    }
    let Some(mut pod) = read(known, PODS, &named.key()) else { return not_found(named) };
    if let Some(refused) = by_budget(known, named, &pod) {
        return refused;
    }
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    if let Some(wanted) =
        body["deleteOptions"]["preconditions"]["uid"].as_str().filter(|wanted| *wanted != uid)
    {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and \
             then recreated"
        );
        return refusal::precondition("", "Pod", &named.name, &why);
    }
    let mut conditions: Vec<Value> = list(&pod["status"]["conditions"]).to_vec();
    conditions.retain(|condition| condition["type"] != "Ready");
    conditions.push(json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting",
    }));
    pod["status"]["conditions"] = conditions.into();
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    known.store.put(PODS, pod);
    let body =
        json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    ok(StatusCode::CREATED, body.to_string())
}

/// What a PodDisruptionBudget says against it; where it allows one, one less is left.
fn by_budget(known: &mut Known, named: &Named, pod: &Value) -> Option<Response> {
    let budgets: Vec<Value> = known
        .store
        .objects
        .get(BUDGETS)
        .into_iter()
        .flatten()
        .map(|(_, text)| serde_json::from_str(text).unwrap())
        .collect();
    let protects = |budget: &&Value| {
        let selector = LabelSelector::deserialize(&budget["spec"]["selector"]).ok();
        let selector = selector.and_then(|written| Selector::new(&written).ok());
        let label = |key: &str| pod["metadata"]["labels"][key].as_str();
        budget["metadata"]["namespace"] == named.namespace.as_str()
            && selector.is_some_and(|of| of.matches(label))
    };
    let mut found: Vec<Value> = budgets.iter().filter(protects).cloned().collect();
    if found.len() > 1 {
        let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        return Some(refusal::status(500, "", message, Value::Null));
    }
    let mut budget = found.pop()?;
    let allowed = budget["status"]["disruptionsAllowed"].as_u64().unwrap_or(0);
    if allowed == 0 {
        let (name, status) = (&budget["metadata"]["name"], &budget["status"]);
        let (desired, healthy) =
            (status["desiredHealthy"].as_u64().unwrap_or(1), status["currentHealthy"].as_u64().unwrap_or(1));
        let name = name.as_str().unwrap_or_default();
        let why =
            format!("The disruption budget {name} needs {desired} healthy pods and has {healthy} currently");
        let details = json!({ "causes": [{ "reason": "DisruptionBudget", "message": why }] });
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        return Some(refusal::status(429, "TooManyRequests", message, details));
    }
    budget["status"]["disruptionsAllowed"] = (allowed - 1).into();
    known.store.put(BUDGETS, budget);
    None
}
