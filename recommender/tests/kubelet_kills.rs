//! Suite `unit`: an OOM kill of which the kubelet alone tells raises what is recommended, once, also for the next run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::path::Path;

use common::apiserver::ApiServer;
use common::{Agent, Running, http, until};
use evenkeel_proto::v1;
use evenkeel_recommender::config::{Config, Span};
use jiff::Timestamp;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

/// A pod whose container may use 256 MiB; with the time at which its last run was OOM-killed.
fn pod(killed: Option<Timestamp>) -> Value {
    let resources = json!({ "requests": { "memory": "128Mi" }, "limits": { "memory": "256Mi" } });
    let last = killed.map_or(Value::Null, |at| {
        let ended = json!({ "reason": "OOMKilled", "exitCode": 137, "finishedAt": at.to_string(), "containerID": "containerd://before" });
        json!({ "terminated": ended })
    });
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": "web-0", "namespace": "shop",
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "o", "controller": true }],
        },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "main", "resources": resources }] },
        "status": { "phase": "Running", "containerStatuses": [{ "name": "main", "state": { "running": {} }, "lastState": last }] },
    })
}

async fn started(dir: &Path, api: &ApiServer) -> Running {
    let running = Running::start(dir, |config: &mut Config| {
        config.kubernetes.view = true;
        config.kubernetes.kubeconfig = api.kubeconfig(dir);
        config.kubernetes.cluster = "test".into();
        config.recommend.watch_interval = Span::from_millis(50);
        config.recommend.rule = "goal".into();
        config.policies = Vec::new();
    })
    .await;
    let is_seen = "evenkeel_recommender_kubernetes_watching{kind=\"Pod\"} 1";
    until(|| async { http(running.http, "GET", "/metrics", "").await.1.contains(is_seen).then_some(()) })
        .await;
    running
}

/// Bytes that are recommended for the memory of the set's container.
async fn memory(running: &Running) -> Option<u64> {
    let (_, text) = http(running.http, "GET", "/api/v1/recommendations?namespace=shop", "").await;
    let all: Value = serde_json::from_str(&text).unwrap();
    let row = all.as_array()?.iter().find(|row| row["resource"] == "memory")?;
    (row["workload"] == "statefulset/web").then(|| row["request"].as_u64())?
}

async fn counted(running: &Running) -> u64 {
    let (_, text) = http(running.http, "GET", "/metrics", "").await;
    let name = "evenkeel_recommender_history_kubelet_events_total ";
    text.lines().find_map(|line| line.strip_prefix(name)?.parse().ok()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_oom_kill_of_which_a_kubelet_alone_tells_raises_what_is_recommended() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    api.put(pod(None));
    let running = started(dir.path(), &api).await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    let mut frames = agent.measure(240);
    let identity = v1::ContainerIdentity {
        id: "now".into(),
        namespace: "shop".into(),
        pod: "web-0".into(),
        pod_uid: "uid-web-0".into(),
        container: "main".into(),
        workload: "web-0".into(),
        image: "web:1".into(),
        ..v1::ContainerIdentity::default()
    };
    frames[0].announced = vec![v1::Announcement { slot: 0, identity: Some(identity) }];
    link.send(frames).await;
    link.acknowledged(240).await;
    // It uses 64 MiB.
    let before = until(|| memory(&running)).await;
    assert!(before < 200 * MIB, "{before}");
    let at: Timestamp = Timestamp::now() - std::time::Duration::from_secs(30);
    api.put(pod(Some(at)));
    // What it ran into was too little.
    let raised = || async { memory(&running).await.filter(|now| *now > 256 * MIB) };
    let raised = until(raised).await;
    assert_eq!(counted(&running).await, 1);
    running.stop().await;
    // The kubelet goes on telling of it.
    let running = started(dir.path(), &api).await;
    let again = until(|| async { memory(&running).await.filter(|now| *now > 256 * MIB) }).await;
    // A second look at the pods, after which it would have counted again.
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(5)).await;
    link.acknowledged(245).await;
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    assert_eq!((counted(&running).await, again), (0, raised));
    running.stop().await;
}
