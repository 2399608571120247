//! Clusters and questions of tests, as people write them.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use evenkeel_capacity::answer::{Ask, CapacityAnswer, Shape, ask};
use evenkeel_capacity::cluster::Cluster;
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::profile::Profiles;
use evenkeel_capacity::state::ClusterState;
use serde_json::{Value, json};

/// Loads a snapshot.
pub(crate) fn load(snapshot: &Value) -> (Cluster, ClusterState) {
    let mut loader = Loader::new();
    loader.document(snapshot).unwrap();
    let cluster = loader.finish().0;
    let state = ClusterState::new(&cluster);
    (cluster, state)
}

/// Asks for one shape, at most 50.
pub(crate) fn answer(snapshot: &Value, pod: &Value) -> CapacityAnswer {
    let (mut cluster, mut state) = load(snapshot);
    let shape = Shape { pod: serde_json::from_value(pod.clone()).unwrap(), wanted: 1 };
    let question = Ask { shapes: vec![shape], max: Some(50), ..Ask::default() };
    ask(&mut cluster, &Profiles::default(), &mut state, &question, &mut |_| true).unwrap()
}

/// A node with 8 cores, 16 GiB and these labels beside its hostname.
pub(crate) fn node(name: &str, labels: Value) -> Value {
    let mut all = json!({"kubernetes.io/hostname": name});
    for (key, value) in labels.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    json!({
        "metadata": {"name": name, "labels": all},
        "status": {"allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}},
    })
}

/// A pod asking for 1 core, with more fields of its specification.
pub(crate) fn pod(more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": "sim", "labels": {"app": "sim"}}, "spec": spec})
}
