//! What is kept of objects, and what comes of them.

use evenkeel_capacity::load::Loader;
use evenkeel_capacity::load::Manifest;
use evenkeel_capacity::question::{CapacityQuestion, Snapshot};
use serde_json::{Value, json};

use super::{ClusterView, Failed, Placement};
use crate::kinds::{ApiKind, KINDS};

pub(super) fn kind(name: &str) -> &'static ApiKind {
    KINDS.iter().find(|kind| kind.name == name).unwrap()
}

pub(super) fn put(view: &ClusterView, object: &Value) {
    view.put_now(kind(object["kind"].as_str().unwrap()), object.to_string().as_bytes()).unwrap();
}

pub(super) fn node(name: &str, cpu: &str) -> Value {
    let size = json!({ "cpu": cpu, "memory": "8Gi", "pods": "20" });
    json!({ "kind": "Node", "metadata": { "name": name }, "status": { "allocatable": size } })
}

pub(super) fn pod(name: &str, node: &str, milli: u32) -> Value {
    let owner = json!([{ "kind": "ReplicaSet", "name": "web-a", "controller": true }]);
    let requests = json!({ "cpu": format!("{milli}m"), "memory": "64Mi" });
    json!({
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("0000-{name}"), "resourceVersion": "1",
            "labels": { "app": "web" }, "ownerReferences": owner,
        },
        "spec": {
            "nodeName": node, "containers": [{ "name": "c", "resources": { "requests": requests } }],
            "volumes": [{ "name": format!("kube-api-access-{name}"), "projected": {} }],
        },
        "status": { "phase": "Running", "startTime": "2026-11-21T01:42:14Z", "podIP": "10.0.0.1" },
    })
}

pub(super) fn quota(cpu: &str) -> Value {
    let hard = json!({ "requests.cpu": cpu });
    json!({ "kind": "ResourceQuota", "metadata": { "name": "q", "namespace": "shop" }, "spec": { "hard": hard } })
}

/// How many more of a pod fit, and where.
pub(super) fn answer(snapshot: Snapshot) -> Value {
    let mut manifest = Manifest::default();
    let asked = json!({
        "kind": "Pod", "metadata": { "name": "x", "namespace": "shop" },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "300m", "memory": "64Mi" } } }] },
    });
    manifest.take(&asked).unwrap();
    let mut question = CapacityQuestion::default();
    question.asks(manifest);
    let (whole, _) = question.answer(snapshot, None, &mut |_| true).unwrap();
    serde_json::to_value(&whole).unwrap()
}

#[test]
fn the_view_answers_as_a_snapshot_of_the_same_objects() {
    let view = ClusterView::default();
    let mut objects = vec![node("n2", "4"), node("n1", "2"), quota("3")];
    objects.extend((0..6).map(|at| pod(&format!("web-a-{at}"), if at % 2 == 0 { "n1" } else { "n2" }, 250)));
    let mut ended = pod("web-a-9", "n1", 250);
    ended["status"]["phase"] = "Succeeded".into();
    let mut waits = pod("web-a-8", "", 250);
    waits["status"]["phase"] = "Pending".into();
    objects.extend([ended, waits]);
    let mut loader = Loader::new();
    for object in &objects {
        loader.document(object).unwrap();
    }
    let (cluster, report) = loader.finish();
    let of_file = answer(Snapshot { cluster, report });
    for name in ["Node", "Pod", "ResourceQuota"] {
        let mark = view.begin(kind(name));
        for object in objects.iter().filter(|object| object["kind"] == name) {
            view.put(kind(name), object.to_string().as_bytes(), mark).unwrap();
        }
        view.end(kind(name), mark);
    }
    let live = view.live();
    assert_eq!(live.left_out, Vec::<String>::new());
    let of_view = answer(Snapshot { cluster: live.cluster, report: live.report });
    assert_eq!(of_view, of_file);
    assert_eq!(of_view["snapshot"]["ended"], 1);
    // The same once each pod is looked at by itself.
    let live = view.changed(&|_| {});
    assert_eq!(answer(Snapshot { cluster: live.cluster, report: live.report }), of_file);
    // Half of each pod: more fit.
    let live = view.changed(&|pod| pod.spec.containers.iter_mut().for_each(|c| c.resources.requests.clear()));
    assert!(
        answer(Snapshot { cluster: live.cluster, report: live.report })["count"].as_u64()
            > of_file["count"].as_u64()
    );
}

#[test]
fn pods_of_a_template_share_what_they_have_in_common() {
    let view = ClusterView::default();
    for at in 0..100 {
        put(&view, &pod(&format!("web-a-{at}"), "n1", 250));
    }
    assert_eq!(view.read().pods.shared(), 1);
    put(&view, &pod("web-a-7", "n1", 300));
    assert_eq!((view.read().pods.shared(), view.read().pods.count()), (2, 100));
    // One whose claim bears its name has nothing in common.
    let mut own = pod("web-a-8", "n1", 250);
    own["spec"]["volumes"] =
        json!([{ "name": "scratch", "ephemeral": { "volumeClaimTemplate": { "spec": {} } } }]);
    put(&view, &own);
    assert_eq!(view.read().pods.shared(), 3);
    for at in 0..100 {
        let gone = pod(&format!("web-a-{at}"), "n1", 250);
        view.remove(kind("Pod"), gone.to_string().as_bytes()).unwrap();
    }
    assert_eq!((view.read().pods.shared(), view.read().pods.count()), (0, 0));
}

#[test]
fn churn_of_templates_leaves_nothing_behind() {
    let view = ClusterView::default();
    for round in 0..5000 {
        put(&view, &pod("web-a-1", &format!("n{round}"), round + 1));
    }
    let inner = view.read();
    assert_eq!((inner.pods.shared(), inner.pods.count()), (1, 1));
    assert!(inner.pods.tables() < 4096, "{}", inner.pods.tables());
}

#[test]
fn a_list_takes_out_what_it_has_not() {
    let view = ClusterView::default();
    let (pods, quotas) = (kind("Pod"), kind("ResourceQuota"));
    // Before they are listed, nobody knows whether something made the replica set.
    put(&view, &pod("web-a-1", "n1", 250));
    assert_eq!(view.workload("shop", "web-a-1", "0000-web-a-1"), None);
    let mark = view.begin(kind("ReplicaSet"));
    view.end(kind("ReplicaSet"), mark);
    put(&view, &quota("3"));
    put(&view, &pod("web-a-1", "n1", 250));
    put(&view, &pod("web-a-2", "n1", 250));
    let mark = view.begin(pods);
    // One that makes no sense is still there, as it was.
    assert!(
        view.put(
            pods,
            br#"{"metadata":{"name":"web-a-2","namespace":"shop"},"spec":{"containers":7}}"#,
            mark
        )
        .is_err()
    );
    // A list that did not come to its end takes nothing out.
    let mark = view.begin(pods);
    assert_eq!(view.count(pods), 2);
    assert!(
        view.put(
            pods,
            br#"{"metadata":{"name":"web-a-2","namespace":"shop"},"spec":{"containers":7}}"#,
            mark
        )
        .is_err()
    );
    assert_eq!(view.end(pods, mark), 1);
    assert!(view.workload("shop", "web-a-2", "0000-web-a-2").is_some());
    assert!(view.workload("shop", "web-a-1", "0000-web-a-1").is_none());
    let mark = view.begin(quotas);
    assert_eq!((view.end(quotas, mark), view.count(pods)), (0, 1));
    for wrong in ["", "[]", "{}", r#"{"metadata":{"name":""}}"#, r#"{"metadata":7}"#] {
        assert!(view.put_now(pods, wrong.as_bytes()).is_err(), "{wrong}");
    }
}

#[test]
fn the_cluster_is_made_again_when_something_changed() {
    let view = ClusterView::default();
    put(&view, &node("n1", "2"));
    assert_eq!(view.live().report.counts.nodes, 1);
    put(&view, &node("n2", "2"));
    assert_eq!(view.live().report.counts.nodes, 2);
    view.remove(kind("Node"), node("n1", "2").to_string().as_bytes()).unwrap();
    assert_eq!(view.live().report.counts.nodes, 1);
}

fn owned(kind: &str, name: &str, by: Option<(&str, &str)>) -> Value {
    let owners = by.map(|(kind, name)| json!([{ "kind": kind, "name": name, "controller": true }]));
    json!({ "kind": kind, "metadata": { "name": name, "namespace": "shop", "ownerReferences": owners.unwrap_or(json!([])) } })
}

/// A pod on `n1`, made by something.
fn made_by(name: &str, by: Option<(&str, &str)>) -> Value {
    let mut pod = pod(name, "n1", 100);
    pod["metadata"]["ownerReferences"] = owned("Pod", name, by)["metadata"]["ownerReferences"].clone();
    pod
}

fn here(view: &ClusterView, pod: &str) -> Placement {
    view.placement("n1", "shop", pod)
}

#[test]
fn a_pod_is_where_the_api_server_says_and_its_top_controller_names_it() {
    let view = ClusterView::default();
    let all = [
        made_by("web-a-1", Some(("ReplicaSet", "web-a"))),
        made_by("alone-a-1", Some(("ReplicaSet", "alone"))),
        made_by("night-1-x", Some(("Job", "night-1"))),
        made_by("once-x", Some(("Job", "once"))),
        made_by("db-0", Some(("StatefulSet", "db"))),
        made_by("api-n1", Some(("Node", "n1"))),
        made_by("bare", None),
    ];
    put(&view, &all[0]);
    assert_eq!(here(&view, "web-a-1"), Placement::NotListed);
    let list = |of: &str, objects: &[Value]| {
        let mark = view.begin(kind(of));
        objects.iter().for_each(|object| view.put(kind(of), object.to_string().as_bytes(), mark).unwrap());
        view.end(kind(of), mark);
    };
    list("Pod", &all);
    assert_eq!(here(&view, "web-a-1"), Placement::Here(None), "what made the replica set is not known yet");
    let sets =
        [owned("ReplicaSet", "web-a", Some(("Deployment", "web"))), owned("ReplicaSet", "alone", None)];
    list("ReplicaSet", &sets);
    list("Job", &[owned("Job", "night-1", Some(("CronJob", "night"))), owned("Job", "once", None)]);
    for (pod, want) in [
        ("web-a-1", Some("deployment/web")),
        ("alone-a-1", Some("replicaset/alone")),
        ("night-1-x", Some("cronjob/night")),
        ("once-x", Some("job/once")),
        ("db-0", Some("statefulset/db")),
        // A mirror pod stands for what the node runs by itself.
        ("api-n1", None),
        ("bare", None),
    ] {
        assert_eq!(here(&view, pod), Placement::Here(want.map(str::to_owned)), "{pod}");
        assert_eq!(view.placement("n2", "shop", pod), Placement::Elsewhere, "{pod}");
        assert_eq!(view.placement("n1", "other", pod), Placement::Unknown, "{pod}");
    }
    put(&view, &pod("waits", "", 100));
    assert_eq!(here(&view, "waits"), Placement::Elsewhere, "it has no node");
    assert!(view.has_namespace("shop") && !view.has_namespace("other"));
    put(&view, &json!({ "kind": "Namespace", "metadata": { "name": "other" } }));
    assert!(view.has_namespace("other"));
}

#[test]
fn a_namespace_freezes_by_its_annotation_until_it_is_gone() {
    let view = ClusterView::default();
    let namespace = |name: &str, says: Value| json!({ "kind": "Namespace", "metadata": { "name": name, "annotations": { "evenkeel.dev/panic": says } } });
    for (says, want) in
        [(json!("true"), true), (json!(""), true), (json!("false"), false), (Value::Null, false)]
    {
        put(&view, &namespace("shop", says.clone()));
        assert_eq!(view.is_frozen("shop"), want, "{says}");
    }
    // What does not change is not counted.
    put(&view, &namespace("shop", json!("true")));
    let changes = view.frozen_changes();
    put(&view, &namespace("shop", json!("drill")));
    put(&view, &namespace("other", Value::Null));
    assert_eq!(view.frozen_changes(), changes);
    view.remove(kind("Namespace"), namespace("shop", json!("true")).to_string().as_bytes()).unwrap();
    assert!(!view.is_frozen("shop") && view.frozen_changes() > changes);
    // A list without it.
    put(&view, &namespace("shop", json!("true")));
    let mark = view.begin(kind("Namespace"));
    assert!(view.is_frozen("shop"), "what was known stays until the list is whole");
    view.end(kind("Namespace"), mark);
    assert!(!view.is_frozen("shop"));
}

#[test]
fn what_kubelets_say_went_wrong_is_known() {
    let view = ClusterView::default();
    let mut killed = made_by("web-a-1", None);
    let ended = json!({
        "terminated": { "reason": "OOMKilled", "finishedAt": "2026-11-21T00:30:00Z", "containerID": "containerd://0a1b" },
    });
    killed["spec"]["containers"][0] = json!({ "name": "main", "resources": { "requests": { "memory": "1Ki" }, "limits": { "memory": "4Ki" } } });
    killed["status"]["containerStatuses"] = json!([
        { "name": "main", "lastState": ended, "state": { "running": {} } },
        { "name": "other", "lastState": { "terminated": { "reason": "Error" } } },
    ]);
    put(&view, &killed);
    let mut evicted = made_by("db-0", None);
    let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. ";
    evicted["status"] = json!({
        "phase": "Failed", "reason": "Evicted", "message": message,
        "conditions": [{ "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "lastTransitionTime": "2026-11-21T00:40:00Z" }],
    });
    put(&view, &evicted);
    let told = |most: usize| {
        let one = |of: Failed| {
            (of.pod, of.failure.reason, of.failure.container.to_string(), of.failure.at.to_string())
        };
        view.failures("shop", most).into_iter().map(one).collect::<Vec<_>>()
    };
    let (db, web) = ("db-0".to_owned(), "web-a-1".to_owned());
    let want = [
        (db, "Evicted", String::new(), "2026-11-21T00:40:00Z".to_owned()),
        (web, "OOMKilled", "main".to_owned(), "2026-11-21T00:30:00Z".to_owned()),
    ];
    assert_eq!(told(9), want);
    assert_eq!(*view.failures("shop", 1)[0].failure.message, *message);
    // What the container might use: of the status, where the kubelet says what is in force.
    let memory = || view.failures("shop", 9).remove(1).failure.memory;
    assert_eq!(memory(), [Some(1 << 10), Some(4 << 10)]);
    assert_eq!(*view.failures("shop", 9)[1].failure.id, *"0a1b");
    killed["status"]["containerStatuses"][0]["resources"] = json!({ "limits": { "memory": "2Ki" } });
    put(&view, &killed);
    assert_eq!(memory(), [None, Some(2 << 10)]);
    assert!(view.failures("elsewhere", 9).is_empty());
    // They go with their pod, and with what it says.
    killed["status"]["containerStatuses"] = Value::Null;
    put(&view, &killed);
    assert_eq!(told(9).len(), 1);
    view.remove(kind("Pod"), evicted.to_string().as_bytes()).unwrap();
    assert!(told(9).is_empty());
}

#[test]
fn a_replica_set_that_is_not_known_is_named_by_its_template() {
    let view = ClusterView::default();
    let mark = view.begin(kind("Pod"));
    let mut one = made_by("web-5d9c-1", Some(("ReplicaSet", "web-5d9c")));
    one["metadata"]["labels"]["pod-template-hash"] = "5d9c".into();
    view.put(kind("Pod"), one.to_string().as_bytes(), mark).unwrap();
    view.end(kind("Pod"), mark);
    assert_eq!(here(&view, "web-5d9c-1"), Placement::Here(Some("deployment/web".into())));
}

#[test]
fn where_a_pod_was_is_known_for_a_while_after_it_is_gone() {
    let view = ClusterView::default();
    let mark = view.begin(kind("ReplicaSet"));
    let set = owned("ReplicaSet", "web-a", Some(("Deployment", "web")));
    view.put(kind("ReplicaSet"), set.to_string().as_bytes(), mark).unwrap();
    view.end(kind("ReplicaSet"), mark);
    let list = |pods: &[&Value]| {
        let mark = view.begin(kind("Pod"));
        pods.iter().for_each(|pod| view.put(kind("Pod"), pod.to_string().as_bytes(), mark).unwrap());
        view.end(kind("Pod"), mark);
    };
    let [first, second] = ["web-a-1", "web-a-2"].map(|name| pod(name, "n1", 100));
    list(&[&first, &second]);
    // One is deleted, one is not in the next list.
    view.remove(kind("Pod"), first.to_string().as_bytes()).unwrap();
    list(&[]);
    let web = Placement::Here(Some("deployment/web".into()));
    assert_eq!([here(&view, "web-a-1"), here(&view, "web-a-2")], [web.clone(), web.clone()]);
    assert_eq!(view.placement("n2", "shop", "web-a-1"), Placement::Unknown);
    assert_eq!(view.count(kind("Pod")), 0);
    // One of its name elsewhere counts there; what is told late of the one before counts here.
    put(&view, &pod("web-a-1", "n2", 100));
    assert_eq!(
        [here(&view, "web-a-1"), view.placement("n2", "shop", "web-a-1")],
        [web, Placement::Here(Some("deployment/web".into()))]
    );
    // It is bounded: the oldest is forgotten.
    for at in 0..20_000 {
        let gone = pod(&format!("job-{at}"), "n1", 100);
        put(&view, &gone);
        view.remove(kind("Pod"), gone.to_string().as_bytes()).unwrap();
    }
    assert_eq!(here(&view, "web-a-2"), Placement::Unknown);
    assert!(matches!(here(&view, "job-0"), Placement::Here(_)));
}

#[test]
fn limit_ranges_and_quotas_are_told_when_they_change() {
    let view = ClusterView::default();
    assert!(view.bounds(0).is_none(), "none seen yet");
    put(&view, &quota("3"));
    let first = view.bounds(0).unwrap();
    assert_eq!((first.quotas.len(), first.ranges.len()), (1, 0));
    assert!(view.bounds(first.changes).is_none());
    put(&view, &pod("web-a-1", "n1", 100));
    assert!(view.bounds(first.changes).is_none(), "a pod is none");
    let range = json!({ "kind": "LimitRange", "metadata": { "name": "r", "namespace": "shop" }, "spec": { "limits": [] } });
    put(&view, &range);
    view.remove(kind("ResourceQuota"), quota("3").to_string().as_bytes()).unwrap();
    let second = view.bounds(first.changes).unwrap();
    assert_eq!((second.quotas.len(), second.ranges.len()), (0, 1));
}
