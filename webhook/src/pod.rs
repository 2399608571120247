//! The pod as it would be made: which containers it has, what whoever made it asked for, and the question about it.
//!
//! The API server's LimitRanger fills in defaults before webhooks are called, and says so in an annotation. What it filled in is not set by
//! anybody, and is left out of the question; it is there all the same, and a request has to fit beside it.

use std::collections::{BTreeMap, HashSet};

use evenkeel_model::quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::{Amounts, RESOURCES};

/// Where LimitRanger says what it filled in.
const LIMIT_RANGER: &str = "kubernetes.io/limit-ranger";
/// Opts a pod out; agents know it, too.
pub const MANAGE: &str = "evenkeel.dev/manage";
/// Labels that every pod, or every rollout, has another value of: a policy selects by none of them, and answers are kept without.
const OWN_LABELS: [&str; 6] = [
    "pod-template-hash",
    "controller-revision-hash",
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
];
/// Name of a pod whose name is still to be made, and of nothing else.
const UNNAMED: &str = "unnamed";

/// A container that counts for the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Where it is in the pod, as a JSON pointer.
    pub path: String,
    /// Whether it has resources, and requests among them.
    pub has: [bool; 2],
    /// Requests as they are, defaults included.
    pub requests: Amounts,
    /// Limits as they are, defaults included.
    pub limits: Amounts,
    /// Requests that somebody set.
    pub own_requests: Amounts,
    /// Limits that somebody set.
    pub own_limits: Amounts,
}

/// What is asked about a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The pod with what an answer depends on, and nothing else of it.
    pub pod: Value,
    /// All of its labels.
    pub labels: BTreeMap<String, String>,
    /// Its containers.
    pub containers: Vec<Container>,
    /// What the pod as a whole asks for: then its containers are left alone.
    pub has_pod_resources: bool,
}

impl Question {
    /// About a pod that would be made in a namespace.
    ///
    /// # Errors
    /// When it is no pod, in words.
    pub fn of(namespace: &str, pod: &Map<String, Value>) -> Result<Self, String> {
        let metadata = pod.get("metadata").and_then(Value::as_object).ok_or("the pod has no metadata")?;
        let spec = pod.get("spec").and_then(Value::as_object).ok_or("the pod has no spec")?;
        let defaults = Defaults::told(annotation(metadata, LIMIT_RANGER).unwrap_or_default());
        let mut containers = Vec::new();
        let mut slim = |list: &str| -> Result<Vec<Value>, String> {
            let all = spec.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let mut slims = Vec::new();
            for (at, object) in all.iter().enumerate() {
                let is_init = list == "initContainers";
                let (container, slim) = read(object, format!("/spec/{list}/{at}"), &defaults, is_init)?;
                if !is_init || object["restartPolicy"] == "Always" {
                    containers.push(container);
                }
                slims.push(slim);
            }
            Ok(slims)
        };
        let (inits, mains) = (slim("initContainers")?, slim("containers")?);
        let mut labels = metadata.get("labels").and_then(Value::as_object).cloned().unwrap_or_default();
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        let all_labels = labels.iter().filter_map(text).collect();
        let owner = owner(metadata, &labels);
        labels.retain(|key, _| !OWN_LABELS.contains(&key.as_str()));
        let name = match &owner {
            Some(_) => UNNAMED,
            None => metadata
                .get("name")
                .or(metadata.get("generateName"))
                .and_then(Value::as_str)
                .unwrap_or(UNNAMED),
        };
        let name = name.trim_end_matches(['-', '.']);
        let mut question = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "namespace": namespace, "name": name, "labels": labels },
            "spec": { "containers": mains },
        });
        if !inits.is_empty() {
            question["spec"]["initContainers"] = inits.into();
        }
        if let Some(owner) = owner {
            question["metadata"]["ownerReferences"] = json!([owner]);
        }
        let has_pod_resources =
            spec.get("resources").and_then(Value::as_object).is_some_and(|all| !all.is_empty());
        Ok(Self { pod: question, labels: all_labels, containers, has_pod_resources })
    }

    /// Whether anything could be set where nothing is.
    #[must_use]
    pub fn lacks_requests(&self) -> bool {
        let lacks = |container: &Container| (0..RESOURCES.len()).any(|at| !container.is_set(at));
        self.containers.iter().any(lacks)
    }
}

impl Container {
    /// Whether somebody set a request or limit of a resource: a limit alone is the request, too.
    #[must_use]
    pub fn is_set(&self, resource: usize) -> bool {
        self.own_requests[resource].or(self.own_limits[resource]).is_some()
    }
}

/// What made a pod, as the pod names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Controller {
    /// Group and version.
    pub api_version: String,
    /// Kind, such as `ReplicaSet`.
    pub kind: String,
    /// Namespace, which is the pod's.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Tells it from a later one of its name.
    pub uid: String,
}

impl Controller {
    /// Of a pod of a namespace; nothing where nothing made it.
    #[must_use]
    pub fn of(namespace: &str, pod: &Map<String, Value>) -> Option<Self> {
        let all = pod.get("metadata")?.get("ownerReferences")?.as_array()?;
        let owner = all.iter().find(|owner| owner["controller"] == true)?;
        let text = |field: &str| owner[field].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        Some(Self {
            api_version: text("apiVersion")?,
            kind: text("kind")?,
            namespace: namespace.to_owned(),
            name: text("name")?,
            uid: text("uid")?,
        })
    }
}

/// Whether a pod says that it is to be left alone.
#[must_use]
pub fn opts_out(pod: &Map<String, Value>) -> bool {
    let metadata = pod.get("metadata").and_then(Value::as_object);
    let label = metadata.and_then(|metadata| metadata.get("labels")?.get(MANAGE)?.as_str());
    let is_off = |value: &str| value.eq_ignore_ascii_case("false");
    metadata.and_then(|metadata| annotation(metadata, MANAGE)).is_some_and(is_off)
        || label.is_some_and(is_off)
}

fn annotation<'a>(metadata: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    metadata.get("annotations")?.get(key)?.as_str()
}

/// What made the pod: of a ReplicaSet that a Deployment made, and a Job that a CronJob made, these.
fn owner(metadata: &Map<String, Value>, labels: &Map<String, Value>) -> Option<Value> {
    let all = metadata.get("ownerReferences")?.as_array()?;
    let owner = all.iter().find(|owner| owner["controller"] == true)?;
    let (kind, name) = (owner["kind"].as_str()?, owner["name"].as_str()?);
    let hash = labels.get("pod-template-hash").and_then(Value::as_str).unwrap_or_default();
    let above = match kind {
        "ReplicaSet" if !hash.is_empty() => {
            name.strip_suffix(hash).and_then(|name| name.strip_suffix('-')).map(|name| ("Deployment", name))
        }
        // The controller names a job by the minute at which it is due, counted from 1970.
        "Job" => name
            .rsplit_once('-')
            .filter(|(_, minute)| minute.len() == 8 && minute.bytes().all(|byte| byte.is_ascii_digit()))
            .map(|(name, _)| ("CronJob", name)),
        _ => None,
    };
    let (kind, name) = above.unwrap_or((kind, name));
    let group = match kind {
        "Deployment" => "apps/v1",
        "CronJob" => "batch/v1",
        _ => owner["apiVersion"].as_str().unwrap_or_default(),
    };
    Some(json!({ "apiVersion": group, "kind": kind, "name": name, "uid": "", "controller": true }))
}

/// A container, and what of it is asked about.
fn read(
    object: &Value,
    path: String,
    defaults: &Defaults,
    is_init: bool,
) -> Result<(Container, Value), String> {
    let name = object["name"].as_str().ok_or_else(|| format!("{path} has no name"))?.to_owned();
    let resources = &object["resources"];
    let mut slim = Map::new();
    for key in ["name", "image", "command", "args", "restartPolicy"] {
        if let Some(value) = object.get(key).filter(|value| !value.is_null()) {
            slim.insert(key.to_owned(), value.clone());
        }
    }
    let mut own = Map::new();
    let mut amounts = |list: &'static str| -> Result<[Amounts; 2], String> {
        let (mut all, mut set) = ([None; 2], [None; 2]);
        for (name_of, value) in resources[list].as_object().into_iter().flatten() {
            let resource = RESOURCES.iter().position(|resource| resource == name_of);
            let is_default = defaults.0.contains(&(is_init, name.clone(), name_of.clone(), list));
            if let Some(at) = resource {
                all[at] =
                    Some(amount(value, at).ok_or_else(|| format!("{path}: {name_of} {value} is no amount"))?);
                set[at] = all[at].filter(|_| !is_default);
            }
            if !is_default {
                let given = own.entry(list).or_insert_with(|| json!({}));
                given[name_of] = value.clone();
            }
        }
        Ok([all, set])
    };
    let ([requests, own_requests], [limits, own_limits]) = (amounts("requests")?, amounts("limits")?);
    if !own.is_empty() {
        slim.insert("resources".to_owned(), own.into());
    }
    let has = [resources.is_object(), resources["requests"].is_object()];
    Ok((Container { name, path, has, requests, limits, own_requests, own_limits }, slim.into()))
}

/// Thousandths of a core, or bytes, rounded up.
fn amount(value: &Value, resource: usize) -> Option<u64> {
    let quantity = match value {
        Value::String(text) => Quantity::parse(text).ok()?,
        Value::Number(number) => Quantity::parse(&number.to_string()).ok()?,
        _ => return None,
    };
    if resource == 0 { quantity.milli_u64() } else { quantity.to_u64() }
}

/// What LimitRanger filled in: whether it is an init container's, container, resource, list.
#[derive(Debug, Default)]
struct Defaults(HashSet<(bool, String, String, &'static str)>);

impl Defaults {
    /// Out of `LimitRanger plugin set: cpu, memory request for container main; cpu limit for init container first`.
    fn told(annotation: &str) -> Self {
        let mut found = HashSet::new();
        let Some(told) = annotation.strip_prefix("LimitRanger plugin set: ") else { return Self(found) };
        for part in told.split("; ") {
            let whose = [("container ", false), ("init container ", true)];
            for (list, word) in [("requests", " request for "), ("limits", " limit for ")] {
                let Some((resources, of)) = part.split_once(word) else { continue };
                for (prefix, is_init) in whose {
                    let Some(name) = of.strip_prefix(prefix) else { continue };
                    let all = resources.split(", ").map(|r| (is_init, name.to_owned(), r.to_owned(), list));
                    found.extend(all);
                }
            }
        }
        Self(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(pod: Value) -> Question {
        Question::of("shop", pod.as_object().unwrap()).unwrap()
    }

    #[test]
    fn defaults_of_limit_ranges_count_as_not_set() {
        let pod = json!({
            "metadata": {"annotations": {LIMIT_RANGER:
                "LimitRanger plugin set: cpu, memory request for container main; memory limit for container main; cpu request for init container main"}},
            "spec": {
                "containers": [{"name": "main", "image": "i", "env": [{"name": "A", "value": "secret"}], "resources": {
                    "requests": {"cpu": "100m", "memory": "64Mi", "x.y/z": "1"}, "limits": {"cpu": "1", "memory": "128Mi"}}}],
                "initContainers": [{"name": "main", "resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always"},
                    {"name": "once"}],
            },
        });
        let question = question(pod);
        let [side, main] = question.containers.as_slice() else { panic!("{:?}", question.containers) };
        assert_eq!((side.path.as_str(), side.is_set(0)), ("/spec/initContainers/0", false));
        assert_eq!((main.requests, main.own_requests), ([Some(100), Some(64 << 20)], [None; 2]));
        assert_eq!((main.limits, main.own_limits), ([Some(1000), Some(128 << 20)], [Some(1000), None]));
        assert!(main.is_set(0) && !main.is_set(1));
        let asked = question.pod.to_string();
        assert!(!asked.contains("secret") && !asked.contains("64Mi"), "{asked}");
        assert_eq!(
            question.pod["spec"]["containers"][0]["resources"],
            json!({"requests": {"x.y/z": "1"}, "limits": {"cpu": "1"}})
        );
    }

    #[test]
    fn pods_of_one_workload_ask_the_same() {
        let of = |kind: &str, name: &str, hash: &str, pod: &str| {
            question(json!({
                "metadata": {"name": pod, "labels": {"app": "web", "pod-template-hash": hash},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true}]},
                "spec": {"containers": [{"name": "main"}]},
            }))
        };
        assert_eq!(
            of("ReplicaSet", "web-5d9c", "5d9c", "web-5d9c-a").pod,
            of("ReplicaSet", "web-77aa", "77aa", "web-77aa-b").pod
        );
        let owner = |question: Question| question.pod["metadata"]["ownerReferences"][0].clone();
        for (kind, name, hash, want) in [
            ("ReplicaSet", "web-5d9c", "5d9c", ("Deployment", "web")),
            ("ReplicaSet", "web-5d9c", "", ("ReplicaSet", "web-5d9c")),
            ("Job", "night-29393820", "", ("CronJob", "night")),
            ("Job", "night-1", "", ("Job", "night-1")),
            ("StatefulSet", "db", "", ("StatefulSet", "db")),
        ] {
            let owner = owner(of(kind, name, hash, "x"));
            assert_eq!((owner["kind"].as_str(), owner["name"].as_str()), (Some(want.0), Some(want.1)));
        }
    }

    #[test]
    fn a_pod_may_opt_out_and_rubbish_is_told() {
        for (metadata, want) in [
            (json!({"annotations": {MANAGE: "false"}}), true),
            (json!({"labels": {MANAGE: "False"}}), true),
            (json!({"labels": {MANAGE: "true"}}), false),
            (json!({}), false),
        ] {
            assert_eq!(opts_out(json!({"metadata": metadata}).as_object().unwrap()), want);
        }
        for (pod, want) in [
            (json!({}), "no metadata"),
            (json!({"metadata": {}}), "no spec"),
            (json!({"metadata": {}, "spec": {"containers": [{}]}}), "/spec/containers/0 has no name"),
            (
                json!({"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {"requests": {"cpu": "-"}}}]}}),
                "no amount",
            ),
        ] {
            let told = Question::of("a", pod.as_object().unwrap()).unwrap_err();
            assert!(told.contains(want), "{told}");
        }
    }
}
