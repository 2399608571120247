//! A cluster with one Deployment, and a recommender whose updater changes its pods.

use std::path::Path;

use evenkeel_proto::v1;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_recommender::config::{Config, Span, UpdaterMode};
use serde_json::{Value, json};

use super::apiserver::ApiServer;
use super::{Agent, Link, Running, http, until};

pub(crate) const PODS: &str = "/api/v1/pods";

/// What a pod asks for at first: below what is recommended.
pub(crate) fn resources() -> Value {
    json!({ "requests": { "cpu": "100m", "memory": "100Mi" }, "limits": { "memory": "200Mi" } })
}

pub(crate) fn pod(name: &str) -> Value {
    let resources = resources();
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": {
            "name": name, "namespace": "shop", "labels": { "app": "w0" }, "generation": 1,
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w0-a", "uid": "o", "controller": true }],
        },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "main", "resources": resources }] },
        "status": {
            "phase": "Running", "qosClass": "Burstable", "conditions": [{ "type": "Ready", "status": "True" }],
            "containerStatuses": [{ "name": "main", "allocatedResources": resources["requests"], "resources": resources }],
        },
    })
}

/// A node, and a Deployment of these pods.
pub(crate) fn cluster(api: &ApiServer, pods: &[&str]) {
    let allocatable = json!({ "cpu": "4", "memory": "8Gi", "pods": "110" });
    api.put(json!({
        "kind": "Node", "apiVersion": "v1", "metadata": { "name": "node-1" },
        "status": { "allocatable": allocatable, "capacity": allocatable },
    }));
    api.put(json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "shop" } }));
    let selector = json!({ "matchLabels": { "app": "w0" } });
    let template = json!({ "metadata": { "labels": { "app": "w0" } }, "spec": { "containers": [{ "name": "main", "resources": resources() }] } });
    let spec = json!({ "replicas": pods.len(), "selector": selector, "template": template });
    api.put(json!({ "kind": "Deployment", "apiVersion": "apps/v1", "metadata": { "name": "w0", "namespace": "shop" }, "spec": spec }));
    let owner = json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "w0", "uid": "d", "controller": true }]);
    api.put(json!({
        "kind": "ReplicaSet", "apiVersion": "apps/v1",
        "metadata": { "name": "w0-a", "namespace": "shop", "ownerReferences": owner }, "spec": spec,
    }));
    for name in pods {
        api.put(pod(name));
    }
}

/// The webhook is registered, and serves.
pub(crate) fn webhook(api: &ApiServer) {
    let service = json!({ "namespace": "evenkeel", "name": "evenkeel-webhook" });
    api.put(json!({
        "kind": "MutatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1", "metadata": { "name": "evenkeel" },
        "webhooks": [{ "name": "pods.evenkeel.dev", "clientConfig": { "service": service } }],
    }));
    api.put(json!({
        "kind": "EndpointSlice", "apiVersion": "discovery.k8s.io/v1",
        "metadata": { "name": "evenkeel-webhook-x", "namespace": "evenkeel", "labels": { "kubernetes.io/service-name": "evenkeel-webhook" } },
        "endpoints": [{ "conditions": { "ready": true } }],
    }));
}

pub(crate) fn adjusted(dir: &Path, api: &ApiServer, config: &mut Config) {
    config.kubernetes.view = true;
    config.kubernetes.kubeconfig = api.kubeconfig(dir);
    config.kubernetes.cluster = "test".into();
    config.recommend.watch_interval = Span::from_millis(50);
    config.acting.min_span = Span::from_secs(60);
    let updater = &mut config.kubernetes.updater;
    updater.mode = UpdaterMode::On;
    updater.interval = Span::from_millis(50);
    updater.webhook = "evenkeel".into();
    updater.evict_age = Span::from_secs(0);
    updater.per_minute = 600;
}

/// A recommender that knows what is recommended to `deployment/w0`: 300m.
pub(crate) async fn started(
    dir: &Path,
    api: &ApiServer,
    more: impl Fn(&mut Config),
) -> (Running, Agent, Link) {
    let running = Running::start(dir, |config: &mut Config| {
        adjusted(dir, api, config);
        more(config);
    })
    .await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    (running, agent, link)
}

pub(crate) async fn policy(running: &Running, updates: Value) {
    let bounds =
        json!({ "cpu": { "min": "300m", "max": "300m" }, "memory": { "min": "100Mi", "max": "100Mi" } });
    policy_of(running, updates, bounds).await;
}

pub(crate) async fn policy_of(running: &Running, updates: Value, bounds: Value) {
    let mut update = json!({ "mode": "auto", "minAgeSeconds": 0, "canarySeconds": 0, "minReplicas": 1, "maxUnavailable": 1 });
    update.as_object_mut().unwrap().extend(updates.as_object().unwrap().clone());
    let policy = json!({
        "apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": { "name": "web", "namespace": "shop" },
        "spec": {
            "target": { "matchLabels": { "app": "w0" } }, "updatePolicy": update,
            "resourcesPolicy": { "containers": [{ "name": "*", "requests": bounds }] },
        },
    });
    let (status, text) = http(running.http, "POST", "/api/v1/policies", &policy.to_string()).await;
    assert!(status < 300, "{status} {text}");
}

pub(crate) fn cpu(api: &ApiServer, name: &str) -> Value {
    api.object(PODS, "shop", name).unwrap()["spec"]["containers"][0]["resources"]["requests"]["cpu"].clone()
}

pub(crate) fn stage(api: &ApiServer, name: &str) -> Option<String> {
    let pod = api.object(PODS, "shop", name)?;
    let conditions = pod["status"]["conditions"].as_array()?.clone();
    let found = conditions.iter().find(|condition| condition["type"] == "evenkeel.dev/Resize")?;
    Some(found["reason"].as_str()?.to_owned())
}

pub(crate) async fn at_stage(api: &ApiServer, name: &str, wanted: &str) {
    until(|| async { (stage(api, name).as_deref() == Some(wanted)).then_some(()) }).await;
}

pub(crate) async fn updates(running: &Running) -> Value {
    let (status, text) = http(running.http, "GET", "/api/v1/updates", "").await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// Waits until something is left alone for a reason.
pub(crate) async fn refused(running: &Running, reason: &str) -> Value {
    until(|| async {
        let all = updates(running).await;
        all["leftAlone"].as_array().unwrap().iter().find(|refusal| refusal["reason"] == reason).cloned()
    })
    .await
}

/// Waits for passes that begin after this.
pub(crate) async fn passes(running: &Running, more: u64) {
    let before = updates(running).await["passes"].as_u64().unwrap();
    until(|| async { (updates(running).await["passes"].as_u64().unwrap() >= before + more).then_some(()) })
        .await;
}

pub(crate) fn resizes(api: &ApiServer) -> usize {
    api.asked_for("/resize").len()
}

pub(crate) async fn panic(running: &Running, on: bool, revert: bool) {
    let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
    client.set_panic(v1::SetPanicRequest { on, revert, reason: "drill".into() }).await.unwrap();
}
