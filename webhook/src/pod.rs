//! The pod as it would be made: which containers it has, what whoever made it asked for, and the question about it.
//!
//! The API server's LimitRanger fills in defaults before webhooks are called, and says so in an annotation. What it filled in is not set by
//! anybody, and is left out of the question; it is there all the same, and a request has to fit beside it.

use std::collections::HashSet;
use std::fmt::{self, Write as _};

use evenkeel_model::quantity::Quantity;
use serde::{Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::object::{self, Amount, JsonText, Labels, Owner, Pod, Resources, Spec};
use crate::{Amounts, RESOURCES};

/// Opts a pod out; agents know it, too.
pub const MANAGE: &str = "evenkeel.dev/manage";
/// Labels that every pod, or every rollout, has another value of: a policy selects by none of them, and answers are kept without.
pub const OWN_LABELS: [&str; 6] = [
    "pod-template-hash",
    "controller-revision-hash",
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
];
/// Room for the pointer to a request, and for a question about a pod of a few containers; more is made where it does not suffice.
const PATH_BYTES: usize = 64;
const TEXT_BYTES: usize = 1 << 10;
/// Name of a pod whose name is still to be made, and of nothing else.
const UNNAMED: &str = "unnamed";

/// A container that counts for the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodContainer<'q> {
    /// Its name.
    pub name: &'q str,
    /// Where it is in the pod: its list, and its place there.
    pub place: (&'static str, usize),
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
pub struct PodQuestion<'q> {
    /// The pod with what an answer depends on, and nothing else of it, in JSON. Pods of one workload have the same.
    pub text: String,
    /// By which answers to this text are kept: its SHA-256.
    pub key: [u8; 32],
    /// Its namespace.
    pub namespace: &'q str,
    /// All of its labels.
    pub labels: Vec<(&'q str, &'q str)>,
    /// Its containers.
    pub containers: Vec<PodContainer<'q>>,
    /// What the pod as a whole asks for: then its containers are left alone.
    pub has_pod_resources: bool,
    /// What made it: of a ReplicaSet that a Deployment made, and a Job that a CronJob made, these.
    pub controller: Option<Top<'q>>,
    /// The admission controller of the Vertical Pod Autoscaler was asked before.
    pub is_seen_by_vpa: bool,
}

/// The controller at the top of a pod, as far as the pod tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Top<'q> {
    /// Group and version.
    pub api_version: &'q str,
    /// Kind, such as `Deployment`.
    pub kind: &'q str,
    /// Name.
    pub name: &'q str,
}

impl<'q> PodQuestion<'q> {
    /// About a pod that would be made in a namespace.
    ///
    /// # Errors
    /// When it is no pod, in words.
    pub fn of(namespace: &'q str, pod: &'q Pod<'_>) -> Result<Self, String> {
        let metadata = pod.metadata.as_ref().ok_or("the pod has no metadata")?;
        let spec = pod.spec.as_ref().ok_or("the pod has no spec")?;
        let told = metadata.annotations.as_ref().and_then(|all| all.limit_ranger.as_deref());
        let defaults = Defaults::told(told.unwrap_or_default());
        let (mut containers, mut inits, mut mains) = (Vec::new(), Vec::new(), Vec::new());
        for (list, slims) in [("initContainers", &mut inits), ("containers", &mut mains)] {
            for (at, object) in containers_of(spec, list).iter().enumerate() {
                let is_init = list == "initContainers";
                let (container, slim) = read(object, (list, at), &defaults, is_init)?;
                if !is_init || object.restart_policy.as_deref() == Some("Always") {
                    containers.push(container);
                }
                slims.push(slim);
            }
        }
        let labels: Vec<(&str, &str)> = metadata.labels.iter().flatten().map(|(k, v)| (&**k, &**v)).collect();
        let owner = pod.controller().and_then(|owner| AskedOwner::of(owner, metadata.labels.as_ref()));
        let name = match &owner {
            Some(_) => UNNAMED,
            None => metadata.name.as_deref().or(metadata.generate_name.as_deref()).unwrap_or(UNNAMED),
        };
        let controller = owner.as_ref().map(|owner| Top {
            api_version: owner.api_version,
            kind: owner.kind,
            name: owner.name,
        });
        let is_of_all = |(key, _): &(&str, &str)| !OWN_LABELS.contains(key);
        let asked = AskedPod {
            api_version: "v1",
            kind: "Pod",
            metadata: AskedMetadata {
                namespace,
                name: name.trim_end_matches(['-', '.']),
                labels: Sorted(labels.iter().copied().filter(is_of_all).collect()),
                owner_references: owner.into_iter().collect(),
            },
            spec: AskedSpec { containers: mains, init_containers: inits },
        };
        let has_pod_resources = spec.resources.as_ref().is_some_and(|all| !all.is_empty());
        let mut text = Vec::with_capacity(TEXT_BYTES);
        serde_json::to_writer(&mut text, &asked).map_err(|error| error.to_string())?;
        let text = String::from_utf8(text).map_err(|error| error.to_string())?;
        let key = Sha256::digest(&text).into();
        let is_seen_by_vpa = metadata.annotations.as_ref().is_some_and(|all| all.is_seen_by_vpa);
        Ok(Self { text, key, namespace, labels, containers, has_pod_resources, controller, is_seen_by_vpa })
    }

    /// Whether anything could be set where nothing is.
    #[must_use]
    pub fn lacks_requests(&self) -> bool {
        let lacks = |container: &PodContainer<'_>| (0..RESOURCES.len()).any(|at| !container.is_set(at));
        self.containers.iter().any(lacks)
    }
}

fn containers_of<'q, 'a>(spec: &'q Spec<'a>, list: &str) -> &'q [object::Container<'a>] {
    let all = if list == "containers" { &spec.containers } else { &spec.init_containers };
    all.as_deref().unwrap_or_default()
}

/// A pod as it is asked about.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AskedPod<'q> {
    api_version: &'static str,
    kind: &'static str,
    metadata: AskedMetadata<'q>,
    spec: AskedSpec<'q>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AskedMetadata<'q> {
    namespace: &'q str,
    name: &'q str,
    labels: Sorted<'q>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    owner_references: Vec<AskedOwner<'q>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AskedSpec<'q> {
    containers: Vec<Slim<'q>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    init_containers: Vec<Slim<'q>>,
}

/// A container as it is asked about.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Slim<'q> {
    name: &'q str,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<&'q JsonText<'q>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'q [JsonText<'q>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<&'q [JsonText<'q>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    restart_policy: Option<&'q JsonText<'q>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resources: Option<SlimResources<'q>>,
}

/// What of its resources somebody set.
#[derive(Default, Serialize)]
struct SlimResources<'q> {
    #[serde(skip_serializing_if = "Sorted::is_empty")]
    requests: Sorted<'q>,
    #[serde(skip_serializing_if = "Sorted::is_empty")]
    limits: Sorted<'q>,
}

/// Values by key, in the order of the keys, as the maps that they come from have them.
#[derive(Default)]
struct Sorted<'q>(Vec<(&'q str, &'q str)>);

impl Sorted<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

impl PodContainer<'_> {
    /// Whether somebody set a request or limit of a resource: a limit alone is the request, too.
    #[must_use]
    pub fn is_set(&self, resource: usize) -> bool {
        self.own_requests[resource].or(self.own_limits[resource]).is_some()
    }

    /// The place below it, as a JSON pointer.
    #[must_use]
    pub fn path(&self, below: impl fmt::Display) -> String {
        let mut path = String::with_capacity(PATH_BYTES);
        // Writing to text does not fail.
        let _written = write!(path, "/spec/{}/{}{below}", self.place.0, self.place.1);
        path
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
    pub fn of(namespace: &str, pod: &Pod<'_>) -> Option<Self> {
        let owner = pod.controller()?;
        let text = |field: &Option<JsonText<'_>>| {
            field.as_deref().filter(|text| !text.is_empty()).map(str::to_owned)
        };
        Some(Self {
            api_version: text(&owner.api_version)?,
            kind: text(&owner.kind)?,
            namespace: namespace.to_owned(),
            name: text(&owner.name)?,
            uid: text(&owner.uid)?,
        })
    }
}

/// Whether a pod says that it is to be left alone.
#[must_use]
pub fn opts_out(pod: &Pod<'_>) -> bool {
    let annotations = pod.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    let annotation = annotations.and_then(|all| all.manage.as_deref());
    let label = pod.labels().and_then(|labels| labels.get(MANAGE)).map(|value| &**value);
    annotation.into_iter().chain(label).any(|value| value.eq_ignore_ascii_case("false"))
}

/// What made the pod, as it is asked about.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AskedOwner<'q> {
    api_version: &'q str,
    kind: &'q str,
    name: &'q str,
    uid: &'static str,
    controller: bool,
}

impl<'q> AskedOwner<'q> {
    /// Of a ReplicaSet that a Deployment made, and a Job that a CronJob made, these.
    fn of(owner: &'q Owner<'_>, labels: Option<&Labels<'_>>) -> Option<Self> {
        let (kind, name) = (owner.kind.as_deref()?, owner.name.as_deref()?);
        let hash = labels.and_then(|labels| labels.get("pod-template-hash")).map_or("", |hash| &**hash);
        let above = match kind {
            "ReplicaSet" if !hash.is_empty() => name
                .strip_suffix(hash)
                .and_then(|name| name.strip_suffix('-'))
                .map(|name| ("Deployment", name)),
            // The controller names a job by the minute at which it is due, counted from 1970.
            "Job" => name
                .rsplit_once('-')
                .filter(|(_, minute)| minute.len() == 8 && minute.bytes().all(|byte| byte.is_ascii_digit()))
                .map(|(name, _)| ("CronJob", name)),
            _ => None,
        };
        let (kind, name) = above.unwrap_or((kind, name));
        let api_version = match kind {
            "Deployment" => "apps/v1",
            "CronJob" => "batch/v1",
            _ => owner.api_version.as_deref().unwrap_or_default(),
        };
        Some(Self { api_version, kind, name, uid: "", controller: true })
    }
}

/// A container, and what of it is asked about.
fn read<'q>(
    object: &'q object::Container<'_>,
    place: (&'static str, usize),
    defaults: &Defaults<'_>,
    is_init: bool,
) -> Result<(PodContainer<'q>, Slim<'q>), String> {
    let path = || format!("/spec/{}/{}", place.0, place.1);
    let name = object.name.as_deref().ok_or_else(|| format!("{} has no name", path()))?;
    let amounts = |list: &'static str, given: Option<&'q object::Amounts<'_>>| {
        let (mut all, mut set, mut own) = ([None; 2], [None; 2], Sorted::default());
        for (resource, value) in given.into_iter().flatten() {
            let is_default = defaults.0.contains(&(is_init, name, &**resource, list));
            if let Some(at) = RESOURCES.iter().position(|known| *known == &**resource) {
                let read = amount(value, at);
                all[at] =
                    Some(read.ok_or_else(|| format!("{}: {resource} {} is no amount", path(), &**value))?);
                set[at] = all[at].filter(|_| !is_default);
            }
            if !is_default {
                own.0.push((&**resource, &**value));
            }
        }
        Ok::<_, String>((all, set, own))
    };
    let given = object.resources.as_ref();
    let (requests, limits) = (given.and_then(Resources::requests), given.and_then(Resources::limits));
    let (requests, own_requests, slim_requests) = amounts("requests", requests)?;
    let (limits, own_limits, slim_limits) = amounts("limits", limits)?;
    let is_asked = !slim_requests.is_empty() || !slim_limits.is_empty();
    let resources = SlimResources { requests: slim_requests, limits: slim_limits };
    let slim = Slim {
        name,
        image: object.image.as_ref(),
        command: object.command.as_deref(),
        args: object.args.as_deref(),
        restart_policy: object.restart_policy.as_ref(),
        resources: is_asked.then_some(resources),
    };
    let has = [given.is_some(), given.is_some_and(|all| all.requests.is_some())];
    Ok((PodContainer { name, place, has, requests, limits, own_requests, own_limits }, slim))
}

/// Thousandths of a core, or bytes, rounded up.
fn amount(value: &Amount<'_>, resource: usize) -> Option<u64> {
    let quantity = Quantity::parse(value).ok()?;
    if resource == 0 { quantity.milli_u64() } else { quantity.to_u64() }
}

/// What LimitRanger filled in: whether it is an init container's, container, resource, list.
#[derive(Debug, Default)]
struct Defaults<'a>(HashSet<(bool, &'a str, &'a str, &'static str)>);

impl<'a> Defaults<'a> {
    /// Out of `LimitRanger plugin set: cpu, memory request for container main; cpu limit for init container first`.
    fn told(annotation: &'a str) -> Self {
        let mut found = HashSet::new();
        let Some(told) = annotation.strip_prefix("LimitRanger plugin set: ") else { return Self(found) };
        for part in told.split("; ") {
            let whose = [("container ", false), ("init container ", true)];
            for (list, word) in [("requests", " request for "), ("limits", " limit for ")] {
                let Some((resources, of)) = part.split_once(word) else { continue };
                for (prefix, is_init) in whose {
                    let Some(name) = of.strip_prefix(prefix) else { continue };
                    found.extend(resources.split(", ").map(|resource| (is_init, name, resource, list)));
                }
            }
        }
        Self(found)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::{Value, json};

    use super::*;

    const LIMIT_RANGER: &str = "kubernetes.io/limit-ranger";

    fn read(pod: &Value) -> Pod<'_> {
        Pod::deserialize(pod).unwrap()
    }

    /// What is asked about a pod.
    fn asked(pod: &Value) -> Value {
        serde_json::from_str(&PodQuestion::of("shop", &read(pod)).unwrap().text).unwrap()
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
        let read = read(&pod);
        let question = PodQuestion::of("shop", &read).unwrap();
        let [side, main] = question.containers.as_slice() else { panic!("{:?}", question.containers) };
        assert_eq!((side.path("/x").as_str(), side.is_set(0)), ("/spec/initContainers/0/x", false));
        assert_eq!((main.requests, main.own_requests), ([Some(100), Some(64 << 20)], [None; 2]));
        assert_eq!((main.limits, main.own_limits), ([Some(1000), Some(128 << 20)], [Some(1000), None]));
        assert!(main.is_set(0) && !main.is_set(1));
        assert!(!question.text.contains("secret") && !question.text.contains("64Mi"), "{}", question.text);
        assert_eq!(
            asked(&pod)["spec"]["containers"][0]["resources"],
            json!({"requests": {"x.y/z": "1"}, "limits": {"cpu": "1"}})
        );
    }

    #[test]
    fn pods_of_one_workload_ask_the_same() {
        let of = |kind: &str, name: &str, hash: &str, pod: &str| {
            asked(&json!({
                "metadata": {"name": pod, "labels": {"app": "web", "pod-template-hash": hash},
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true}]},
                "spec": {"containers": [{"name": "main"}]},
            }))
        };
        assert_eq!(
            of("ReplicaSet", "web-5d9c", "5d9c", "web-5d9c-a"),
            of("ReplicaSet", "web-77aa", "77aa", "web-77aa-b")
        );
        let owner = |asked: Value| asked["metadata"]["ownerReferences"][0].clone();
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
            let pod = json!({"metadata": metadata});
            assert_eq!(opts_out(&read(&pod)), want, "{pod}");
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
            let told = PodQuestion::of("a", &read(&pod)).unwrap_err();
            assert!(told.contains(want), "{told}");
        }
    }
}
