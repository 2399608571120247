//! What is kept of objects, and what comes of them.

use evenkeel_capacity::load::Loader;
use evenkeel_capacity::load::Manifest;
use evenkeel_capacity::question::{Question, Snapshot};
use serde_json::{Value, json};

use super::View;
use crate::kinds::{KINDS, Kind};

fn kind(name: &str) -> &'static Kind {
    KINDS.iter().find(|kind| kind.name == name).unwrap()
}

fn put(view: &View, object: &Value) {
    view.put_now(kind(object["kind"].as_str().unwrap()), object.to_string().as_bytes()).unwrap();
}

fn node(name: &str, cpu: &str) -> Value {
    let size = json!({ "cpu": cpu, "memory": "8Gi", "pods": "20" });
    json!({ "kind": "Node", "metadata": { "name": name }, "status": { "allocatable": size } })
}

fn pod(name: &str, node: &str, milli: u32) -> Value {
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

fn quota(cpu: &str) -> Value {
    let hard = json!({ "requests.cpu": cpu });
    json!({ "kind": "ResourceQuota", "metadata": { "name": "q", "namespace": "shop" }, "spec": { "hard": hard } })
}

/// How many more of a pod fit, and where.
fn answer(snapshot: Snapshot) -> Value {
    let mut manifest = Manifest::default();
    let asked = json!({
        "kind": "Pod", "metadata": { "name": "x", "namespace": "shop" },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "300m", "memory": "64Mi" } } }] },
    });
    manifest.take(&asked).unwrap();
    let mut question = Question::default();
    question.asks(manifest);
    let (whole, _) = question.answer(snapshot, None, &mut |_| true).unwrap();
    serde_json::to_value(&whole).unwrap()
}

#[test]
fn the_view_answers_as_a_snapshot_of_the_same_objects() {
    let view = View::default();
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
    let view = View::default();
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
    let view = View::default();
    for round in 0..5000 {
        put(&view, &pod("web-a-1", &format!("n{round}"), round + 1));
    }
    let inner = view.read();
    assert_eq!((inner.pods.shared(), inner.pods.count()), (1, 1));
    assert!(inner.pods.tables() < 4096, "{}", inner.pods.tables());
}

#[test]
fn a_list_takes_out_what_it_has_not() {
    let view = View::default();
    let (pods, quotas) = (kind("Pod"), kind("ResourceQuota"));
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
    let view = View::default();
    put(&view, &node("n1", "2"));
    assert_eq!(view.live().report.counts.nodes, 1);
    put(&view, &node("n2", "2"));
    assert_eq!(view.live().report.counts.nodes, 2);
    view.remove(kind("Node"), node("n1", "2").to_string().as_bytes()).unwrap();
    assert_eq!(view.live().report.counts.nodes, 1);
}
