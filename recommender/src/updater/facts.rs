//! What the API server tells of pods, their owners and what bounds them, as the updater takes it.

use std::collections::BTreeMap;

use evenkeel_kubernetes::RESIZE;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::selector::{LabelSelector, Selector};
use evenkeel_updater::{Note, Resizing, RunningContainer, RunningPod, Size, Sizes, Two};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// Opts a pod out; agents and the webhook know it, too.
use evenkeel_webhook::pod::MANAGE;

/// Where the webhook says what it set.
const SET: &str = evenkeel_webhook::serve::SET;
/// Of mirrors of static pods, which only their kubelet changes.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// An OOM kill counts for so long: a day has all hours.
const OOM_SECONDS: u64 = 86_400;
/// Kinds whose controller makes a pod anew when it goes. A Job counts it as failed.
const REMAKES: [&str; 4] = ["ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController"];

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Seconds since 1970 of a time as the API writes it.
pub(super) fn seconds(value: &Value) -> Option<u64> {
    let at: Timestamp = value.as_str()?.parse().ok()?;
    u64::try_from(at.as_second()).ok()
}

fn condition<'a>(pod: &'a Value, kind: &str) -> Option<&'a Value> {
    list(&pod["status"]["conditions"]).iter().find(|condition| condition["type"] == kind)
}

/// Kind and name of what controls an object.
pub(super) fn owner(object: &Value) -> Option<(String, String)> {
    let owner =
        list(&object["metadata"]["ownerReferences"]).iter().find(|owner| owner["controller"] == true)?;
    Some((text(&owner["kind"]), text(&owner["name"])))
}

/// Whether the webhook set what a pod asks for, and when the pod was made.
pub(super) fn set_at(pod: &Value) -> Option<u64> {
    pod["metadata"]["annotations"].get(SET)?;
    seconds(&pod["metadata"]["creationTimestamp"])
}

fn amounts(list: &Value) -> Two<Option<u64>> {
    let of = |name: &str| Quantity::deserialize(list.get(name)?).ok();
    [of("cpu").and_then(Quantity::milli_u64), of("memory").and_then(Quantity::to_u64)]
}

fn sizes_of(resources: &Value) -> Two<Size> {
    let (requests, limits) = (amounts(&resources["requests"]), amounts(&resources["limits"]));
    [0, 1].map(|at| Size { request: requests[at].or(limits[at]), limit: limits[at] })
}

/// What the containers of a pod's spec ask for, init containers included.
pub(super) fn sizes(spec: &Value) -> Sizes {
    let all = list(&spec["initContainers"]).iter().chain(list(&spec["containers"]));
    all.map(|container| (text(&container["name"]), sizes_of(&container["resources"]))).collect()
}

fn containers(spec: &Value) -> BTreeMap<String, RunningContainer> {
    let sidecars =
        list(&spec["initContainers"]).iter().filter(|container| container["restartPolicy"] == "Always");
    let ordinary = list(&spec["containers"]).iter().map(|container| (false, container));
    let all = sidecars.map(|container| (true, container)).chain(ordinary);
    let restarts = |container: &Value, resource: &str| {
        let of = list(&container["resizePolicy"]).iter().find(|policy| policy["resourceName"] == resource);
        of.is_some_and(|policy| policy["restartPolicy"] == "RestartContainer")
    };
    let of = |(is_sidecar, container): (bool, &Value)| {
        let restarts = [restarts(container, "cpu"), restarts(container, "memory")];
        (text(&container["name"]), RunningContainer { is_sidecar, restarts, peak_memory: None })
    };
    all.map(of).collect()
}

/// How it stands with the last resize: what the node says, else whether it grants what is asked for.
fn resizing(pod: &Value, now: u64) -> Resizing {
    let is_true = |condition: &&Value| condition["status"] == "True";
    if let Some(pending) = condition(pod, "PodResizePending").filter(is_true) {
        let why = text(&pending["message"]);
        return match pending["reason"].as_str() {
            Some("Infeasible") => Resizing::Infeasible { why },
            _ => Resizing::Deferred { since: seconds(&pending["lastTransitionTime"]).unwrap_or(now), why },
        };
    }
    if let Some(progress) = condition(pod, "PodResizeInProgress").filter(is_true) {
        return match progress["reason"].as_str() {
            Some("Error") => Resizing::Failing { why: text(&progress["message"]) },
            _ => Resizing::InProgress,
        };
    }
    let generation = |value: &Value| value.as_u64();
    let (asked, seen) =
        (generation(&pod["metadata"]["generation"]), generation(&pod["status"]["observedGeneration"]));
    let is_unseen = seen.is_some_and(|seen| asked.is_some_and(|asked| seen < asked));
    if is_unseen || !grants(pod) { Resizing::InProgress } else { Resizing::Settled }
}

/// Whether the node grants what is asked for, as far as it says.
fn grants(pod: &Value) -> bool {
    let asked = sizes(&pod["spec"]);
    let status = &pod["status"];
    let mut statuses =
        list(&status["containerStatuses"]).iter().chain(list(&status["initContainerStatuses"]));
    statuses.all(|status| {
        let Some(asked) = status["name"].as_str().and_then(|name| asked.get(name)) else { return true };
        let granted = [&status["allocatedResources"], &status["resources"]["requests"]];
        granted.into_iter().filter(|granted| granted.is_object()).all(|granted| {
            let granted = amounts(granted);
            // Below 2m the kernel's shares say no more (`cpu.shares` 2).
            let cpu = |amount: u64| amount.max(2);
            let same_cpu = granted[0]
                .is_none_or(|amount| asked[0].request.is_none_or(|asked| cpu(asked) == cpu(amount)));
            same_cpu && granted[1].is_none_or(|amount| asked[1].request.is_none_or(|asked| asked == amount))
        })
    })
}

/// When a container was OOM-killed last.
fn oom_killed(pod: &Value) -> Option<u64> {
    let status = &pod["status"];
    let statuses = list(&status["containerStatuses"]).iter().chain(list(&status["initContainerStatuses"]));
    let ended =
        statuses.flat_map(|status| [&status["state"]["terminated"], &status["lastState"]["terminated"]]);
    ended
        .filter(|ended| ended["reason"] == "OOMKilled")
        .filter_map(|ended| seconds(&ended["finishedAt"]))
        .max()
}

/// A pod; nothing where it has ended, or only its kubelet or whoever made it may change it.
pub(super) fn pod(object: &Value, now: u64) -> Option<RunningPod> {
    let (metadata, status) = (&object["metadata"], &object["status"]);
    let annotations = &metadata["annotations"];
    let has_ended = status["phase"] == "Succeeded" || status["phase"] == "Failed";
    let is_out = annotations[MANAGE] == "false" || metadata["labels"][MANAGE] == "false";
    if has_ended || is_out || annotations.get(MIRROR).is_some() {
        return None;
    }
    let note = condition(object, RESIZE).and_then(|condition| Note::read(condition["message"].as_str()?));
    let owner = owner(object);
    let is_remade = owner.as_ref().is_some_and(|(kind, _)| REMAKES.contains(&kind.as_str()));
    let sizes = sizes(&object["spec"]);
    let classes = [QosClass::BestEffort, QosClass::Burstable, QosClass::Guaranteed];
    let told = classes.into_iter().find(|class| status["qosClass"] == class.as_str());
    let killed = oom_killed(object).filter(|at| at.saturating_add(OOM_SECONDS) > now);
    Some(RunningPod {
        name: text(&metadata["name"]),
        uid: text(&metadata["uid"]),
        version: text(&metadata["resourceVersion"]),
        node: text(&object["spec"]["nodeName"]),
        owner: owner.map(|(kind, name)| format!("{kind}/{name}")).unwrap_or_default(),
        is_remade,
        class: told.unwrap_or_else(|| evenkeel_updater::class(&sizes)),
        created: seconds(&metadata["creationTimestamp"]).unwrap_or(now),
        is_ready: condition(object, "Ready").is_some_and(|ready| ready["status"] == "True"),
        is_ending: !metadata["deletionTimestamp"].is_null(),
        // What a step came after is answered.
        was_oom_killed: killed.is_some_and(|at| note.as_ref().is_none_or(|note| at >= note.at)),
        is_sized_as_whole: object["spec"]["resources"].as_object().is_some_and(|of| !of.is_empty()),
        resizing: resizing(object, now),
        note,
        containers: containers(&object["spec"]),
        sizes,
        asked: None,
        watched: None,
        offer: None,
    })
}

/// What a controller's template asks for, and how many pods there are to be.
pub(super) fn template(owner: &Value) -> (Option<Sizes>, Option<u32>) {
    let spec = &owner["spec"]["template"]["spec"];
    let replicas =
        owner["spec"]["replicas"].as_u64().or_else(|| owner["status"]["desiredNumberScheduled"].as_u64());
    let sizes = spec.is_object().then(|| sizes(spec));
    (sizes, replicas.and_then(|count| u32::try_from(count).ok()))
}

/// Kind and name of what a `scaleTargetRef` or `targetRef` names, as workloads are called.
fn target(of: &Value) -> String {
    format!("{}/{}", text(&of["kind"]).to_lowercase(), text(&of["name"]))
}

/// What scales a workload by a resource of its pods.
pub(super) fn scalers(autoscalers: &[Value], workload: &str) -> Two<Option<String>> {
    let mut found = [None, None];
    for autoscaler in autoscalers.iter().filter(|of| target(&of["spec"]["scaleTargetRef"]) == workload) {
        let metrics = list(&autoscaler["spec"]["metrics"]);
        let of = |resource: &str| {
            metrics.iter().any(|metric| {
                metric["resource"]["name"] == resource || metric["containerResource"]["name"] == resource
            })
        };
        for (at, resource) in ["cpu", "memory"].into_iter().enumerate() {
            if of(resource) {
                found[at] =
                    Some(format!("HorizontalPodAutoscaler {}", text(&autoscaler["metadata"]["name"])));
            }
        }
    }
    found
}

/// The Vertical Pod Autoscaler's object by which its updater changes a workload.
pub(super) fn other_updater(autoscalers: &[Value], workload: &str) -> Option<String> {
    let acts =
        |of: &&Value| !matches!(of["spec"]["updatePolicy"]["updateMode"].as_str(), Some("Off" | "Initial"));
    let found = autoscalers.iter().filter(acts).find(|of| target(&of["spec"]["targetRef"]) == workload)?;
    Some(format!("VerticalPodAutoscaler {} of autoscaling.k8s.io", text(&found["metadata"]["name"])))
}

/// How many disruptions the budgets of pods with these labels allow now; none where there are several, which the Eviction API does not take.
pub(super) fn disruptions<'a>(budgets: &[Value], labels: &'a Value) -> Option<u32> {
    let label = |key: &str| -> Option<&'a str> { labels.get(key)?.as_str() };
    let protects = |budget: &&Value| {
        let written = LabelSelector::deserialize(&budget["spec"]["selector"]).ok();
        let selector = written.and_then(|written| Selector::new(&written).ok());
        selector.is_some_and(|selector| selector.matches(label))
    };
    let mut found = budgets.iter().filter(protects);
    let (first, second) = (found.next()?, found.next());
    let allowed = first["status"]["disruptionsAllowed"].as_u64().unwrap_or(0);
    Some(if second.is_some() { 0 } else { u32::try_from(allowed).unwrap_or(u32::MAX) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(conditions: Value, granted: &str) -> Value {
        let resources =
            json!({ "requests": { "cpu": "100m", "memory": "64Mi" }, "limits": { "memory": "64Mi" } });
        json!({
            "metadata": {
                "name": "web-a-x", "uid": "u", "resourceVersion": "7", "creationTimestamp": "2026-11-21T00:00:00Z", "generation": 2,
                "ownerReferences": [{ "kind": "ReplicaSet", "name": "web-a", "controller": true }],
            },
            "spec": { "nodeName": "n", "containers": [{
                "name": "main", "resources": resources,
                "resizePolicy": [{ "resourceName": "memory", "restartPolicy": "RestartContainer" }],
            }] },
            "status": {
                "phase": "Running", "qosClass": "Burstable", "conditions": conditions,
                "containerStatuses": [{ "name": "main", "allocatedResources": { "cpu": granted, "memory": "64Mi" } }],
            },
        })
    }

    #[test]
    fn a_pod_is_read_as_it_is() {
        let now = seconds(&json!("2026-11-21T01:00:00Z")).unwrap();
        let ready = json!([{ "type": "Ready", "status": "True" }]);
        let mut written = object(ready.clone(), "100m");
        let read = pod(&written, now).unwrap();
        assert_eq!((read.owner.as_str(), read.is_remade, read.is_ready), ("ReplicaSet/web-a", true, true));
        assert_eq!((now - read.created, &read.resizing), (3600, &Resizing::Settled));
        assert_eq!(read.containers["main"].restarts, [false, true]);
        let memory = Size { request: Some(64 << 20), limit: Some(64 << 20) };
        assert_eq!(read.sizes["main"], [Size { request: Some(100), limit: None }, memory]);
        // Killed for want of memory, and that is answered by what came after.
        let ended = json!({ "terminated": { "reason": "OOMKilled", "finishedAt": "2026-11-21T00:30:00Z" } });
        written["status"]["containerStatuses"][0]["lastState"] = ended;
        assert!(pod(&written, now).unwrap().was_oom_killed);
        assert!(!pod(&written, now + 86_400).unwrap().was_oom_killed);
        written["metadata"]["annotations"] = json!({ "evenkeel.dev/manage": "false" });
        assert_eq!(pod(&written, now), None);
        written["metadata"]["annotations"] = json!({ MIRROR: "x" });
        assert_eq!(pod(&written, now), None);
        for phase in ["Succeeded", "Failed"] {
            let mut ended = object(ready.clone(), "100m");
            ended["status"]["phase"] = phase.into();
            assert_eq!(pod(&ended, now), None);
        }
    }

    #[test]
    fn how_a_resize_stands_is_what_the_node_says() {
        let of = |conditions: Value, granted: &str| pod(&object(conditions, granted), 5).unwrap().resizing;
        let pending = |reason: &str| json!([{ "type": "PodResizePending", "status": "True", "reason": reason, "message": "m", "lastTransitionTime": "1970-01-01T00:00:03Z" }]);
        let progress = |reason: Value| json!([{ "type": "PodResizeInProgress", "status": "True", "reason": reason, "message": "m" }]);
        let why = || "m".to_owned();
        for (conditions, granted, want) in [
            (json!([]), "100m", Resizing::Settled),
            (json!([]), "50m", Resizing::InProgress),
            (pending("Deferred"), "50m", Resizing::Deferred { since: 3, why: why() }),
            (pending("Infeasible"), "50m", Resizing::Infeasible { why: why() }),
            (progress(Value::Null), "50m", Resizing::InProgress),
            (progress("Error".into()), "100m", Resizing::Failing { why: why() }),
        ] {
            assert_eq!(of(conditions.clone(), granted), want, "{conditions}");
        }
        let mut unseen = object(json!([]), "100m");
        unseen["status"]["observedGeneration"] = 1.into();
        assert_eq!(pod(&unseen, 5).unwrap().resizing, Resizing::InProgress);
    }

    #[test]
    fn what_else_acts_on_a_workload_is_found() {
        let hpa = json!({
            "metadata": { "name": "web" },
            "spec": {
                "scaleTargetRef": { "kind": "Deployment", "name": "web" },
                "metrics": [{ "type": "Resource", "resource": { "name": "cpu" } }],
            },
        });
        let found = scalers(&[hpa], "deployment/web");
        assert_eq!(found, [Some("HorizontalPodAutoscaler web".to_owned()), None]);
        let vpa = |mode: Value| {
            json!({ "metadata": { "name": "web" }, "spec": {
                "targetRef": { "kind": "Deployment", "name": "web" }, "updatePolicy": { "updateMode": mode },
            }})
        };
        for (mode, acts) in
            [(json!("Off"), false), (json!("Initial"), false), (json!("Recreate"), true), (Value::Null, true)]
        {
            assert_eq!(other_updater(&[vpa(mode.clone())], "deployment/web").is_some(), acts, "{mode}");
        }
        assert_eq!(other_updater(&[vpa(Value::Null)], "deployment/db"), None);
        let budget = |app: &str, allowed: u64| json!({ "spec": { "selector": { "matchLabels": { "app": app } } }, "status": { "disruptionsAllowed": allowed } });
        let labels = json!({ "app": "web" });
        for (budgets, want) in [
            (vec![budget("db", 0)], None),
            (vec![budget("web", 1)], Some(1)),
            (vec![budget("web", 1), budget("web", 3)], Some(0)),
        ] {
            assert_eq!(disruptions(&budgets, &labels), want, "{budgets:?}");
        }
        let owner = json!({ "spec": { "replicas": 3, "template": { "spec": { "containers": [{ "name": "main" }] } } } });
        assert_eq!(template(&owner).1, Some(3));
        assert_eq!(
            set_at(
                &json!({ "metadata": { "annotations": { SET: "x" }, "creationTimestamp": "1970-01-01T00:00:09Z" } })
            ),
            Some(9)
        );
    }
}
