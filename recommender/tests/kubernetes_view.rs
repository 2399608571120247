//! Suite `unit`: questions about capacity answered from a live Kubernetes cluster, as its objects change and while its API server is away.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::path::Path;

use common::apiserver::{ApiServer, Mood};
use common::{Running, http, until};
use evenkeel_recommender::config::Config;
use serde_json::{Value, json};

const ASKED: &str = r#"{"pods": [{"kind": "Pod", "metadata": {"name": "x", "namespace": "shop"},
    "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}]}}]}"#;

fn node(name: &str) -> Value {
    let size = json!({ "cpu": "4", "memory": "16Gi", "pods": "110" });
    json!({ "kind": "Node", "apiVersion": "v1", "metadata": { "name": name }, "status": { "allocatable": size } })
}

fn namespace() -> Value {
    json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "shop" } })
}

fn pod(name: &str, node: &str) -> Value {
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-a", "uid": "o", "controller": true }]);
    let requests = json!({ "cpu": "1", "memory": "1Gi" });
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": { "name": name, "namespace": "shop", "ownerReferences": owner },
        "spec": { "nodeName": node, "containers": [{ "name": "c", "resources": { "requests": requests } }] },
        "status": { "phase": "Running" },
    })
}

async fn started(dir: &Path, api: &ApiServer) -> Running {
    Running::start(dir, |config: &mut Config| {
        config.kubernetes.view = true;
        config.kubernetes.kubeconfig = api.kubeconfig(dir);
        config.kubernetes.cluster = "test".into();
    })
    .await
}

/// The answer, once the cluster is known.
async fn answer(running: &Running, asked: &str) -> Value {
    let answered = || async {
        let (status, text) = http(running.http, "POST", "/api/v1/capacity", asked).await;
        assert!(status == 200 || text.contains("is not known yet"), "{status}: {text}");
        (status == 200).then(|| serde_json::from_str(&text).unwrap())
    };
    until(answered).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_cluster_is_answered_about_without_a_snapshot() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    for object in [namespace(), node("n1"), node("n2"), pod("web-a-1", "n1")] {
        api.put(object);
    }
    let running = started(dir.path(), &api).await;
    let first = answer(&running, ASKED).await;
    assert_eq!(
        (&first["count"], &first["snapshot"]["nodes"], &first["snapshot"]["pods"]),
        (&json!(7), &json!(2), &json!(1))
    );
    // Named by its cluster it is the same, and no other cluster is it.
    let named = ASKED.replacen('{', r#"{"cluster": "test", "#, 1);
    assert_eq!(answer(&running, &named).await["count"], 7);
    let (status, text) =
        http(running.http, "POST", "/api/v1/capacity", &named.replace("test", "other")).await;
    assert_eq!(status, 400, "{text}");

    // What changes counts: a pod, a node, a quota.
    api.put(pod("web-a-2", "n2"));
    until(|| async { (answer(&running, ASKED).await["count"] == 6).then_some(()) }).await;
    api.put(node("n3"));
    until(|| async { (answer(&running, ASKED).await["count"] == 10).then_some(()) }).await;
    let quota = json!({ "requests.cpu": "5" });
    api.put(json!({
        "kind": "ResourceQuota", "apiVersion": "v1", "metadata": { "name": "q", "namespace": "shop" },
        "spec": { "hard": quota }, "status": { "hard": quota, "used": { "requests.cpu": "2" } },
    }));
    until(|| async { (answer(&running, ASKED).await["count"] == 3).then_some(()) }).await;
    api.delete("/api/v1/resourcequotas", "shop", "q");
    api.delete("/api/v1/nodes", "", "n3");
    until(|| async { (answer(&running, ASKED).await["count"] == 6).then_some(()) }).await;

    let (_, metrics) = http(running.http, "GET", "/metrics", "").await;
    for line in [
        "evenkeel_recommender_kubernetes_objects{kind=\"Pod\"} 2",
        "evenkeel_recommender_kubernetes_objects{kind=\"Node\"} 2",
        "evenkeel_recommender_kubernetes_lists_total{kind=\"Pod\"} 1",
        "evenkeel_recommender_kubernetes_watching{kind=\"Pod\"} 1",
        "evenkeel_recommender_kubernetes_unreadable_total{kind=\"Pod\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_api_server_is_away_what_is_known_is_answered_and_said_to_be_old() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    api.put(namespace());
    api.put(node("n1"));
    // Each kind that is not known is told, with what the API server says.
    api.forbid("limitranges", true);
    api.watches_last(Some(std::time::Duration::from_millis(100)));
    let running = started(dir.path(), &api).await;
    let first = answer(&running, ASKED).await;
    assert_eq!(first["count"], 4);
    until(|| async {
        let notes = answer(&running, ASKED).await["notes"].to_string();
        (notes.contains("LimitRange: forbidden: status 403") && !notes.contains("Quota")).then_some(())
    })
    .await;
    let told = || async { http(running.http, "GET", "/readyz?verbose", "").await.1 };
    until(|| async { told().await.contains("view: LimitRange: forbidden").then_some(()) }).await;
    api.is(Mood::Fails(500));
    until(|| async { told().await.contains("view: Node: failing").then_some(()) }).await;
    let old = answer(&running, ASKED).await;
    assert_eq!(old["count"], 4);
    assert!(old["notes"].to_string().contains("the answer is of then"), "{old}");
    assert!(http(running.http, "GET", "/readyz", "").await.0 == 200, "it answers all the same");
    running.stop().await;
}
