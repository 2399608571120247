//! Objects over HTTP: get, list in pages, create, replace, patch, delete.

#![allow(clippy::result_large_err, reason = "a refusal is sent at once")]

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex};

use axum::Json;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::{Value, json};

use super::definition::Definition;
use super::refusal::{self, after, bad, conflict, exists, list_gone, not_found, page_gone};
use super::select::Select;
use super::store::{Frozen, Key, Store};
use super::watches;
use super::{Known, pods};

/// Group, plural and kind of what is served.
const KINDS: [(&str, &str, &str); 40] = [
    ("", "nodes", "Node"),
    ("", "pods", "Pod"),
    ("", "namespaces", "Namespace"),
    ("", "services", "Service"),
    ("", "configmaps", "ConfigMap"),
    ("", "secrets", "Secret"),
    ("", "serviceaccounts", "ServiceAccount"),
    ("", "replicationcontrollers", "ReplicationController"),
    ("", "persistentvolumes", "PersistentVolume"),
    ("", "persistentvolumeclaims", "PersistentVolumeClaim"),
    ("", "resourcequotas", "ResourceQuota"),
    ("", "limitranges", "LimitRange"),
    ("apps", "replicasets", "ReplicaSet"),
    ("apps", "statefulsets", "StatefulSet"),
    ("apps", "deployments", "Deployment"),
    ("apps", "daemonsets", "DaemonSet"),
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration"),
    ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"),
    ("batch", "jobs", "Job"),
    ("batch", "cronjobs", "CronJob"),
    ("coordination.k8s.io", "leases", "Lease"),
    ("events.k8s.io", "events", "Event"),
    ("networking.k8s.io", "networkpolicies", "NetworkPolicy"),
    ("rbac.authorization.k8s.io", "clusterrolebindings", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io", "clusterroles", "ClusterRole"),
    ("rbac.authorization.k8s.io", "rolebindings", "RoleBinding"),
    ("rbac.authorization.k8s.io", "roles", "Role"),
    ("storage.k8s.io", "storageclasses", "StorageClass"),
    ("storage.k8s.io", "csinodes", "CSINode"),
    ("storage.k8s.io", "csidrivers", "CSIDriver"),
    ("storage.k8s.io", "csistoragecapacities", "CSIStorageCapacity"),
    ("storage.k8s.io", "volumeattachments", "VolumeAttachment"),
    ("scheduling.k8s.io", "priorityclasses", "PriorityClass"),
    ("node.k8s.io", "runtimeclasses", "RuntimeClass"),
    ("autoscaling.k8s.io", "verticalpodautoscalers", "VerticalPodAutoscaler"),
    ("autoscaling.k8s.io", "verticalpodautoscalercheckpoints", "VerticalPodAutoscalerCheckpoint"),
    ("evenkeel.dev", "verticalpodautoscalers", "VerticalPodAutoscaler"),
    ("argoproj.io", "rollouts", "Rollout"),
    ("autoscaling", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
    ("discovery.k8s.io", "endpointslices", "EndpointSlice"),
];
/// One more, in a group of its own.
const BUDGET: (&str, &str, &str) = ("policy", "poddisruptionbudgets", "PodDisruptionBudget");

/// Those in no namespace.
const CLUSTER: [&str; 13] = [
    "nodes",
    "namespaces",
    "persistentvolumes",
    "mutatingwebhookconfigurations",
    "customresourcedefinitions",
    "clusterrolebindings",
    "clusterroles",
    "storageclasses",
    "csinodes",
    "csidrivers",
    "volumeattachments",
    "priorityclasses",
    "runtimeclasses",
];

/// Groups of kinds that are defined by objects, and their versions.
const CUSTOM: [(&str, &str); 3] =
    [("autoscaling.k8s.io", "v1"), ("evenkeel.dev", "v1"), ("argoproj.io", "v1alpha1")];
/// Kinds with the scale subresource.
const SCALED: [&str; 5] =
    ["deployments", "replicasets", "statefulsets", "replicationcontrollers", "rollouts"];

/// What a path names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Named {
    pub(crate) group: String,
    version: String,
    pub(crate) plural: String,
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    sub: String,
}

impl Named {
    /// Of `/api/v1/...` or `/apis/GROUP/VERSION/...`.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let mut parts = path.trim_matches('/').split('/');
        let group = match parts.next()? {
            "api" => String::new(),
            "apis" => parts.next()?.to_owned(),
            _ => return None,
        };
        let version = parts.next()?.to_owned();
        let rest: Vec<&str> = parts.collect();
        let (namespace, rest) = match rest.as_slice() {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() && rest != ["status"] => {
                (*namespace, rest)
            }
            rest => ("", rest),
        };
        let [plural, rest @ ..] = rest else { return None };
        let text = |at: usize| rest.get(at).map_or(String::new(), |part| (*part).to_owned());
        let all = KINDS.iter().chain([&BUDGET]);
        let kind =
            all.clone().find(|(of, name, _)| *of == group && name == plural).map_or("", |(_, _, kind)| kind);
        let (name, sub) = (text(0), text(1));
        Some(Self {
            group,
            version,
            plural: (*plural).to_owned(),
            kind,
            namespace: namespace.to_owned(),
            name,
            sub,
        })
    }

    /// Where all objects of the kind are listed.
    pub(crate) fn collection(&self) -> String {
        let Self { group, version, plural, .. } = self;
        if group.is_empty() {
            format!("/api/{version}/{plural}")
        } else {
            format!("/apis/{group}/{version}/{plural}")
        }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Its kind is defined by an object, and of another version it is not there at all.
    fn is_custom(&self) -> bool {
        CUSTOM.iter().any(|(group, _)| self.group == *group)
    }

    /// Its status is written apart.
    fn has_status(&self) -> bool {
        !self.is_custom() || self.plural == "verticalpodautoscalers"
    }

    fn has_scale(&self) -> bool {
        SCALED.contains(&&*self.plural)
    }

    pub(crate) fn key(&self) -> Key {
        (self.namespace.clone(), self.name.clone())
    }
}

/// A question about objects.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) parameters: HashMap<String, String>,
    pub(crate) accept: String,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
}

impl Asked {
    pub(crate) fn parameter(&self, name: &str) -> &str {
        self.parameters.get(name).map_or("", String::as_str)
    }

    pub(crate) fn is_partial(&self) -> bool {
        self.accept.contains("as=PartialObjectMetadata")
    }
}

fn no_page() -> Response {
    (StatusCode::NOT_FOUND, "404 page not found\n").into_response()
}

/// What is served, for clients that ask first: the versions of the core, all groups, the kinds of a group and version.
fn discovery(path: &str, absent: &BTreeSet<String>) -> Response {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match parts.as_slice() {
        ["api"] => Json(json!({ "kind": "APIVersions", "versions": ["v1"] })).into_response(),
        ["api", "v1"] => kinds("", "v1"),
        ["apis"] => groups(absent),
        ["apis", group, version] if *version == version_of(group) && !absent.contains(*group) => {
            kinds(group, version)
        }
        _ => no_page(),
    }
}

/// The version a group is served in.
fn version_of(group: &str) -> &'static str {
    if group == "autoscaling" {
        return "v2";
    }
    CUSTOM.iter().find(|(known, _)| *known == group).map_or("v1", |(_, version)| version)
}

fn groups(absent: &BTreeSet<String>) -> Response {
    let all: BTreeSet<&str> = KINDS.iter().chain([&BUDGET]).map(|(group, ..)| *group).collect();
    let served = all.into_iter().filter(|group| !group.is_empty() && !absent.contains(*group));
    let groups: Vec<Value> = served
        .map(|group| {
            let version = version_of(group);
            let version = json!({ "groupVersion": format!("{group}/{version}"), "version": version });
            json!({ "name": group, "versions": [version], "preferredVersion": version })
        })
        .collect();
    Json(json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })).into_response()
}

fn kinds(group: &str, version: &str) -> Response {
    let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
    let mut resources = Vec::new();
    for (_, plural, kind) in KINDS.iter().chain([&BUDGET]).filter(|(known, ..)| *known == group) {
        let namespaced = !CLUSTER.contains(plural);
        resources.push(json!({
            "name": plural, "singularName": kind.to_lowercase(), "kind": kind, "namespaced": namespaced, "verbs": verbs,
        }));
        if SCALED.contains(plural) {
            resources.push(json!({ "name": format!("{plural}/scale"), "kind": "Scale", "namespaced": true, "verbs": ["get"] }));
        }
    }
    if resources.is_empty() {
        return no_page();
    }
    let of = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Json(json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": of, "resources": resources }))
        .into_response()
}

/// Answers it.
pub(crate) fn answer(known: &Arc<Mutex<Known>>, asked: &Asked) -> Response {
    let mut locked = known.lock().unwrap();
    let Some(named) = Named::parse(&asked.path) else {
        return discovery(&asked.path, &locked.absent);
    };
    let is_other = CUSTOM.iter().any(|(known, served)| *known == named.group && *served != named.version);
    if is_other || locked.absent.contains(&named.group) {
        return no_page();
    }
    if named.kind.is_empty() {
        return refusal::unknown();
    }
    if locked.forbidden.contains(&named.plural) {
        let verb = match asked.method.as_str() {
            "PATCH" => "patch",
            "POST" => "create",
            _ if asked.parameter("watch") == "true" => "watch",
            _ => "list",
        };
        return refusal::forbidden("recommender", verb, &named.group, &named.plural);
    }
    if !named.sub.is_empty() && asked.method == "GET" {
        return match locked.store.get(&named.collection(), &named.key()) {
            Some(text) if named.sub == "scale" && named.has_scale() => scale(text),
            Some(text) if named.sub == "status" && named.has_status() => ok(StatusCode::OK, text.to_string()),
            _ => not_found(&named.group, &named.plural, &named.name),
        };
    }
    if named.plural == "pods" && !named.name.is_empty() {
        match (asked.method.as_str(), named.sub.as_str()) {
            ("POST", "eviction") => return pods::evict(&mut locked, &named, asked),
            ("PATCH", "resize") => return pods::resize(&mut locked, &named, asked),
            _ => {}
        }
    }
    let store = &mut locked.store;
    match (asked.method.as_str(), named.name.is_empty()) {
        ("GET", true) if asked.parameter("watch") == "true" => {
            let lasts = locked.watch_lasts;
            drop(locked);
            watches::watch(known, &named, asked, lasts)
        }
        ("GET", true) => list(store, &named, asked),
        ("GET", false) => match store.get(&named.collection(), &named.key()) {
            Some(text) => ok(StatusCode::OK, text.to_string()),
            None => not_found(&named.group, &named.plural, &named.name),
        },
        ("POST", true) => create(store, &named, asked),
        ("PUT", false) => replace(store, &named, asked),
        ("PATCH", false) => patch(store, &named, asked),
        ("DELETE", false) => delete(store, &named, asked),
        _ => refusal::status(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
            json!({}),
        ),
    }
}

/// How many there are to be of a controller, and which pods are its own.
fn scale(text: &str) -> Response {
    let object: Value = serde_json::from_str(text).unwrap();
    let labels = object["spec"]["selector"]["matchLabels"].as_object().cloned().unwrap_or_default();
    let labels: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let replicas = object["spec"]["replicas"].as_u64().unwrap_or(1);
    Json(json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": object["metadata"],
        "spec": { "replicas": replicas }, "status": { "replicas": replicas, "selector": labels.join(",") },
    }))
    .into_response()
}

pub(crate) fn ok(status: StatusCode, text: String) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], text).into_response()
}

/// An object as it is asked for: whole, or its metadata alone.
pub(crate) fn shown(text: &str, is_partial: bool) -> String {
    if !is_partial {
        return text.to_owned();
    }
    let object: Value = serde_json::from_str(text).unwrap();
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
        .to_string()
}

/// A token that goes on after a key.
fn token(version: i64, key: &Key) -> String {
    let start = format!("{}/{}\u{0}", key.0, key.1);
    STANDARD_NO_PAD.encode(json!({ "v": "meta.k8s.io/v1", "rv": version, "start": start }).to_string())
}

fn token_of(text: &str) -> Option<(i64, Key)> {
    let token: Value = serde_json::from_slice(&STANDARD_NO_PAD.decode(text).ok()?).ok()?;
    // Those of the API server's cache begin with a slash, those of etcd do not.
    let start = token["start"].as_str()?.trim_end_matches('\u{0}').trim_start_matches('/');
    let (namespace, name) = start.split_once('/').unwrap_or(("", start));
    Some((token["rv"].as_i64()?, (namespace.to_owned(), name.to_owned())))
}

fn list(store: &mut Store, named: &Named, asked: &Asked) -> Response {
    let select = match Select::parse(asked.parameter("fieldSelector"), asked.parameter("labelSelector")) {
        Ok(select) => select,
        Err(why) => return bad(&why),
    };
    let limit = match asked.parameter("limit") {
        "" => usize::MAX,
        text => match text.parse() {
            Ok(0) => usize::MAX,
            Ok(limit) => limit,
            Err(_) => return bad(&format!("strconv.ParseInt: parsing {text:?}: invalid syntax")),
        },
    };
    let mut version = store.version;
    if let text @ [_, ..] = asked.parameter("resourceVersion").as_bytes() {
        let text = String::from_utf8_lossy(text);
        let Ok(asked_for) = text.parse::<u64>() else {
            let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
            return bad(&format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: {why}"
            ));
        };
        if asked_for > store.version {
            return refusal::too_new(asked_for, store.version);
        }
        if asked.parameter("resourceVersionMatch") == "Exact" && asked_for <= store.compacted {
            return list_gone();
        }
    }
    let mut start = None;
    if !asked.parameter("continue").is_empty() {
        let Some((of, key)) = token_of(asked.parameter("continue")) else {
            let why = "continue key is not valid: invalid character '\\u0081' looking for beginning of value";
            return bad(&format!("invalid continue token: {why}"));
        };
        match u64::try_from(of) {
            Ok(of) if of <= store.compacted => return page_gone(&token(-1, &key)),
            Ok(of) => version = of,
            Err(_) => {}
        }
        start = Some(key);
    }
    let objects = frozen(store, named, asked, &select, version);
    page(named, asked, &objects, (version, start, limit))
}

/// The objects of a list, as they were when it began.
fn frozen(store: &mut Store, named: &Named, asked: &Asked, select: &Select, version: u64) -> Frozen {
    let of = |name| asked.parameter(name);
    let what =
        format!("{} {} {} {}", named.collection(), named.namespace, of("fieldSelector"), of("labelSelector"));
    if let Some(known) = store.frozen.get(&(what.clone(), version)) {
        return Arc::clone(known);
    }
    let objects = store.objects.get(named.collection().as_str()).into_iter().flatten();
    let objects = objects
        .filter(|(key, text)| (named.namespace.is_empty() || key.0 == named.namespace) && select.takes(text))
        .map(|(key, text)| (key.clone(), Arc::clone(text)));
    let frozen: Frozen = Arc::new(objects.collect());
    if !of("limit").is_empty() {
        store.frozen.retain(|(kept, _), _| *kept != what);
        store.frozen.insert((what, version), Arc::clone(&frozen));
    }
    frozen
}

fn page(
    named: &Named,
    asked: &Asked,
    objects: &[(Key, Arc<str>)],
    (version, start, limit): (u64, Option<Key>, usize),
) -> Response {
    let from = start.map_or(0, |start| objects.partition_point(|(key, _)| *key < start));
    let until = from.saturating_add(limit).min(objects.len());
    let partial = asked.is_partial();
    let (kind, api) = if partial {
        ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned())
    } else {
        (format!("{}List", named.kind), named.api_version())
    };
    let mut metadata = json!({ "resourceVersion": version.to_string() });
    if let Some((next, _)) = objects.get(until) {
        metadata["continue"] = token(version as i64, next).into();
    }
    let mut text = format!("{{\"kind\":{kind:?},\"apiVersion\":{api:?},\"metadata\":{metadata},\"items\":[");
    for (at, (_, object)) in objects[from..until].iter().enumerate() {
        text.push_str(if at == 0 { "" } else { "," });
        text.push_str(&shown(object, partial));
    }
    text.push_str("]}");
    ok(StatusCode::OK, text)
}

fn parsed(asked: &Asked) -> Result<Value, Response> {
    serde_json::from_slice(&asked.body).map_err(|error| bad(&format!("the body is no JSON: {error}")))
}

fn create(store: &mut Store, named: &Named, asked: &Asked) -> Response {
    let mut object = match parsed(asked) {
        Ok(object) => object,
        Err(refused) => return refused,
    };
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if !named.namespace.is_empty() {
        let known = store.objects.get("/api/v1/namespaces").map_or(0, |all| all.len());
        if known > 0 && store.get("/api/v1/namespaces", &(String::new(), named.namespace.clone())).is_none() {
            return not_found("", "namespaces", &named.namespace);
        }
        object["metadata"]["namespace"] = named.namespace.clone().into();
    }
    if store.get(&named.collection(), &(named.namespace.clone(), name.clone())).is_some() {
        return exists(&named.group, &named.plural, &name);
    }
    if named.is_custom() {
        object["metadata"]["generation"] = 1.into();
        if named.has_status() {
            object.as_object_mut().unwrap().remove("status");
        }
    }
    if let Err(refused) = admitted(named, &mut object) {
        return refused;
    }
    if named.kind == "Event" {
        let needed = ["eventTime", "action", "reason", "reportingController", "reportingInstance", "type"];
        let lacks = needed.iter().filter(|field| object[**field].as_str().is_none_or(str::is_empty));
        let wrong: Vec<_> = lacks.map(|field| ((*field).to_owned(), "Required value".to_owned())).collect();
        if !wrong.is_empty() {
            return refusal::invalid(&named.group, named.kind, &name, &wrong);
        }
    }
    let made = store.put(&named.collection(), object);
    ok(StatusCode::CREATED, made.to_string())
}

/// What the definition makes of one of Evenkeel's own objects.
fn admitted(named: &Named, object: &mut Value) -> Result<(), Response> {
    static OWN: LazyLock<Definition> = LazyLock::new(Definition::shipped);
    if named.group != "evenkeel.dev" {
        return Ok(());
    }
    // Of an update of the status alone, the spec is the old one, and what was wrong with it before is let be (ratcheting, since 1.30).
    let admitted = if named.sub == "status" { OWN.admit_status(object) } else { OWN.admit(object) };
    admitted.map_err(|wrong| refusal::invalid(&named.group, named.kind, &named.name, &wrong))
}

/// The present object, if an update that names this version may be made.
fn present(store: &Store, named: &Named, version: Option<&str>) -> Result<Value, Response> {
    let Some(text) = store.get(&named.collection(), &named.key()) else {
        return Err(not_found(&named.group, &named.plural, &named.name));
    };
    let object: Value = serde_json::from_str(text).unwrap();
    if version.is_some_and(|version| object["metadata"]["resourceVersion"] != version) {
        return Err(conflict(&named.group, &named.plural, &named.name));
    }
    Ok(object)
}

fn replace(store: &mut Store, named: &Named, asked: &Asked) -> Response {
    let new = match parsed(asked) {
        Ok(object) => object,
        Err(refused) => return refused,
    };
    let version = new["metadata"]["resourceVersion"].as_str();
    if version.is_none() && (named.plural == "leases" || named.is_custom()) {
        return refusal::without_version(&named.group, &named.plural, &named.name);
    }
    match present(store, named, version) {
        Ok(old) => changed(store, named, old, new),
        Err(refused) => refused,
    }
}

/// What is the same as before is no change.
fn changed(store: &mut Store, named: &Named, old: Value, new: Value) -> Response {
    let mut new = over(named, old.clone(), new);
    if let Err(refused) = admitted(named, &mut new) {
        return refused;
    }
    if named.is_custom() && new["spec"] != old["spec"] {
        new["metadata"]["generation"] = (old["metadata"]["generation"].as_i64().unwrap_or(1) + 1).into();
    }
    let object = if new == old { old } else { store.put(&named.collection(), new) };
    ok(StatusCode::OK, object.to_string())
}

fn patch(store: &mut Store, named: &Named, asked: &Asked) -> Response {
    // Kubernetes' own kinds take it; of what it does here is what conditions need.
    let is_strategic = asked.content_type == "application/strategic-merge-patch+json" && !named.is_custom();
    if !is_strategic && asked.content_type != "application/merge-patch+json" {
        let types = match named.is_custom() {
            true => "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            false => "application/merge-patch+json",
        };
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {types}"
        );
        let details = if named.is_custom() { Value::Null } else { json!({}) };
        return refusal::status(415, "UnsupportedMediaType", &message, details);
    }
    let patch = match parsed(asked) {
        Ok(patch) => patch,
        Err(refused) => return refused,
    };
    let version = patch["metadata"]["resourceVersion"].as_str().map(str::to_owned);
    match present(store, named, version.as_deref()) {
        Ok(old) => {
            let mut new = old.clone();
            let uid = patch["metadata"]["uid"].as_str();
            if uid.is_some_and(|uid| old["metadata"]["uid"] != uid) {
                return refusal::status(
                    409,
                    "Conflict",
                    "Precondition failed: UID in precondition",
                    json!({}),
                );
            }
            let conditions = old["status"]["conditions"].as_array().cloned().unwrap_or_default();
            merge(&mut new, &patch);
            if let Some(given) = new["status"]["conditions"].as_array_mut().filter(|_| is_strategic) {
                let is_kept = |one: &&Value| given.iter().all(|given| given["type"] != one["type"]);
                let kept: Vec<Value> = conditions.iter().filter(is_kept).cloned().collect();
                given.retain(|one| one["$patch"] != "delete");
                given.splice(0..0, kept);
            }
            changed(store, named, old, new)
        }
        Err(refused) => refused,
    }
}

/// What an update of the object, or of its status alone, makes of it.
fn over(named: &Named, old: Value, new: Value) -> Value {
    if !named.has_status() {
        return new;
    }
    let (mut object, status) = if named.sub == "status" { (old, new) } else { (new, old) };
    if !status["status"].is_null() || !object["status"].is_null() {
        object["status"] = status["status"].clone();
    }
    object
}

/// RFC 7386.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(object) = target.as_object_mut() else { return };
    for (key, value) in patch {
        if value.is_null() {
            object.remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn delete(store: &mut Store, named: &Named, asked: &Asked) -> Response {
    let wanted: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let old = match present(store, named, None) {
        Ok(old) => old,
        Err(refused) => return refused,
    };
    let uid = old["metadata"]["uid"].clone();
    if let Some(asked) = wanted["preconditions"]["uid"].as_str().filter(|asked| uid != **asked) {
        let uid = uid.as_str().unwrap_or_default();
        let why = format!(
            "the UID in the precondition ({asked}) does not match the UID in record ({uid}). The object might have been deleted and \
             then recreated"
        );
        return refusal::precondition(&named.group, named.kind, &named.name, &why);
    }
    let version = old["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if let Some(asked) = wanted["preconditions"]["resourceVersion"].as_str().filter(|asked| version != *asked)
    {
        let why = format!(
            "the ResourceVersion in the precondition ({asked}) does not match the ResourceVersion in record ({version}). The object \
             might have been modified"
        );
        return refusal::precondition(&named.group, named.kind, &named.name, &why);
    }
    let gone = store.delete(&named.collection(), &named.key());
    if named.plural == "pods" {
        return ok(StatusCode::OK, gone.unwrap_or_default().to_string());
    }
    let mut details = json!({ "name": named.name, "kind": named.plural, "uid": uid });
    if !named.group.is_empty() {
        details["group"] = named.group.clone().into();
    }
    let body = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details });
    Json(body).into_response()
}

/// What was set to go wrong with the next questions.
pub(crate) fn storm(status: u16, seconds: Option<u64>) -> Response {
    let (reason, message) = match status {
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
        ),
        410 => ("Expired", "The resourceVersion for the provided list is too old."),
        403 => (
            "Forbidden",
            "objects is forbidden: User \"anna\" cannot write resource \"objects\" in API group \"\" at the cluster scope",
        ),
        _ => ("InternalError", "an error on the server"),
    };
    let answer = refusal::status(status, reason, message, Value::Null);
    seconds.map_or_else(
        || refusal::status(status, reason, message, Value::Null),
        |seconds| after(answer, seconds),
    )
}
