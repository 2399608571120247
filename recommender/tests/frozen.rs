//! Suite `unit`: a namespace that says so (`evenkeel.dev/panic`) keeps what it has: the webhook sets nothing, gated pods are not resized (and are freed
//! at the deadline), starts keep their CPU, and nodes are told; other namespaces go on.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::apiserver::ApiServer;
use common::{Agent, Link, Running, http, until};
use evenkeel_proto::line::Trust;
use evenkeel_proto::v1;
use evenkeel_proto::v1::stream_response::Message as Said;
use evenkeel_recommender::config::{Config, Span};
use evenkeel_webhook::advice::Advisor;
use evenkeel_webhook::gate::{GATE, LABEL, PLACEHOLDERS};
use evenkeel_webhook::serve::{Options, STARTING, Webhook};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/pods";
const OWN: &str = "/apis/evenkeel.dev/v1/verticalpodautoscalers";

fn namespace(api: &ApiServer, name: &str, annotations: &Value) {
    let metadata = json!({ "name": name, "annotations": annotations });
    api.put(json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": metadata }));
}

fn pod(namespace: &str, name: &str) -> Value {
    let metadata = json!({
        "name": name, "namespace": namespace, "uid": format!("{namespace}-{name}"), "labels": {}, "annotations": {},
        "creationTimestamp": jiff::Timestamp::now().to_string(),
    });
    let resources = json!({ "requests": { "cpu": "500m", "memory": "64Mi" } });
    json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": metadata,
        "spec": { "containers": [{ "name": "main", "image": "web:1", "resources": resources }] },
    })
}

/// One that starts, for longer than it may.
fn starting(namespace: &str) -> Value {
    let mut pod = pod(namespace, "starts");
    pod["metadata"]["labels"][STARTING] = "true".into();
    pod["metadata"]["annotations"][STARTING] =
        json!({ "seconds": 60, "containers": { "main": { "request": "250m" } } }).to_string().into();
    pod["status"]["startTime"] = "2020-01-01T00:00:00Z".into();
    pod
}

/// One that waits for its gate, and of which something is known.
fn gated(namespace: &str, name: &str) -> Value {
    let mut pod = pod(namespace, name);
    pod["metadata"]["labels"][LABEL] = "true".into();
    pod["metadata"]["annotations"][PLACEHOLDERS] = json!({ "main": ["cpu", "memory"] }).to_string().into();
    pod["spec"]["schedulingGates"] = json!([{ "name": GATE }]);
    pod["spec"]["containers"][0]["resources"] = json!({ "requests": { "cpu": "10m", "memory": "16Mi" } });
    pod
}

/// What the webhook changes of a pod without requests; a new one each time, which has kept no answer.
async fn patch(running: &Running, namespace: &str) -> Value {
    let options = Options {
        applies: true,
        within: Duration::from_secs(60),
        gates: true,
        boosts: true,
        exclude: Vec::new(),
        metrics_token: None,
    };
    let webhook = Webhook::new(options, Advisor::new(&running.grpc.to_string(), Trust::default()));
    let mut pod = pod(namespace, "new");
    pod["spec"]["containers"][0]["resources"] = json!({});
    let request = json!({
        "uid": "u", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "namespace": namespace, "operation": "CREATE",
        "object": pod,
    });
    let review =
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
    // The switch itself is off, whatever namespaces say.
    // Before it knows the cluster's namespaces, a recommender takes all of them for frozen.
    until(|| async {
        (webhook.advisor().is_panic(Duration::from_secs(60)).await == Some(false)).then_some(())
    })
    .await;
    let answer = webhook.review(review.to_string().as_bytes()).await.unwrap();
    let mut answer: Value = serde_json::from_str(&answer).unwrap();
    answer["response"]["patch"].take()
}

/// Which namespaces a node is told to be frozen, next.
async fn told(link: &mut Link) -> Vec<String> {
    loop {
        if let Said::Overlay(v1::Overlay { frozen_namespaces, .. }) = link.said().await {
            return frozen_namespaces;
        }
    }
}

/// The next word about the requests of a node's one container, and which namespaces are frozen.
async fn first_entry(link: &mut Link) -> (v1::OverlayEntry, Vec<String>) {
    loop {
        if let Said::Overlay(v1::Overlay { entries, frozen_namespaces, .. }) = link.said().await
            && let [entry] = entries.as_slice()
        {
            return (entry.clone(), frozen_namespaces);
        }
    }
}

fn is_marked(api: &ApiServer, namespace: &str) -> bool {
    let pod = api.object(PODS, namespace, "starts").unwrap();
    pod["metadata"]["labels"].get(STARTING).is_some()
}

fn cpu(api: &ApiServer, namespace: &str, name: &str) -> Value {
    api.object(PODS, namespace, name).unwrap()["spec"]["containers"][0]["resources"]["requests"]["cpu"]
        .clone()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_namespace_that_says_so_keeps_what_it_has() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    namespace(&api, "shop", &json!({ "evenkeel.dev/panic": "true" }));
    // What is asked without a namespace is not about this one.
    namespace(&api, "default", &json!({ "evenkeel.dev/panic": "true" }));
    namespace(&api, "other", &Value::Null);
    let mut runs = pod("shop", "w0-x");
    runs["spec"]["nodeName"] = "node-1".into();
    api.put(runs);
    api.put(json!({
        "kind": "VerticalPodAutoscaler", "apiVersion": "evenkeel.dev/v1",
        "metadata": { "name": "web", "namespace": "shop", "generation": 1 },
        "spec": { "target": { "matchLabels": { "app": "w0" } } },
    }));
    let running = Running::start(&dir.path().join("state"), |config: &mut Config| {
        let kubernetes = &mut config.kubernetes;
        (kubernetes.view, kubernetes.gates, kubernetes.startup_boost, kubernetes.recommend) =
            (true, true, true, true);
        kubernetes.kubeconfig = api.kubeconfig(dir.path());
        kubernetes.cluster = "test".into();
        config.recommend.watch_interval = Span::from_millis(50);
        config.acting.interval = Span::from_millis(100);
    })
    .await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    until(|| async { patch(&running, "other").await.is_string().then_some(()) }).await;
    assert_eq!(patch(&running, "shop").await, Value::Null);
    while told(&mut link).await != ["shop"] {}
    for namespace in ["shop", "other"] {
        api.put(starting(namespace));
        api.put(gated(namespace, "waits"));
    }
    let mut old = gated("shop", "old");
    old["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
    api.put(old);
    let is_free = |namespace: &str, name: &str| {
        api.object(PODS, namespace, name).unwrap()["spec"]["schedulingGates"] == json!([])
    };
    until(|| async {
        (is_free("other", "waits") && !is_marked(&api, "other") && is_free("shop", "old")).then_some(())
    })
    .await;
    assert!(cpu(&api, "other", "waits") != "10m" && cpu(&api, "other", "starts") == "250m");
    assert_eq!((cpu(&api, "shop", "old"), is_free("shop", "waits")), (json!("10m"), false));
    assert_eq!((cpu(&api, "shop", "starts"), is_marked(&api, "shop")), (json!("500m"), true));
    let told_why = |event: &Value| event["note"].as_str().is_some_and(|note| note.contains("is frozen"));
    until(|| async { api.everything().values().any(told_why).then_some(()) }).await;
    let frozen = || {
        let object = api.object(OWN, "shop", "web")?;
        let all = object["status"]["conditions"].as_array()?.clone();
        Some(all.into_iter().find(|one| one["type"] == "Frozen"))
    };
    until(|| async { (frozen()??["reason"] == "FrozenNamespace").then_some(()) }).await;
    // It lets go.
    namespace(&api, "shop", &json!({ "evenkeel.dev/panic": "false" }));
    until(|| async {
        (is_free("shop", "waits") && !is_marked(&api, "shop") && frozen()?.is_none()).then_some(())
    })
    .await;
    while !told(&mut link).await.is_empty() {}
    assert!(patch(&running, "shop").await.is_string());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_changed_before_it_is_known_what_namespaces_allow() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    namespace(&api, "shop", &Value::Null);
    let mut runs = pod("shop", "w0-x");
    runs["spec"]["nodeName"] = "node-1".into();
    api.put(runs);
    api.put(json!({
        "kind": "LimitRange", "apiVersion": "v1", "metadata": { "name": "r", "namespace": "shop" },
        "spec": { "limits": [{ "type": "Container", "max": { "cpu": "7m" } }] },
    }));
    let fails = tokio::spawn({
        let api = api.clone();
        async move {
            loop {
                api.refuses("/limitranges", 500);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
    let running = Running::start(&dir.path().join("state"), |config: &mut Config| {
        let kubernetes = &mut config.kubernetes;
        (kubernetes.view, kubernetes.recommend) = (true, true);
        kubernetes.kubeconfig = api.kubeconfig(dir.path());
        kubernetes.cluster = "test".into();
        config.recommend.watch_interval = Span::from_secs(3);
        config.acting.interval = Span::from_millis(100);
        config.acting.min_span = Span::from_secs(60);
    })
    .await;
    let policy = r#"{"apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"target": {"matchLabels": {"app": "w0"}}, "updatePolicy": {"mode": "auto"}}}"#;
    let (status, text) = http(running.http, "POST", "/api/v1/policies", policy).await;
    assert!(status < 300, "{status}: {text}");
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(300)).await;
    let is_known = || async {
        (http(running.http, "GET", "/api/v1/recommendations?namespace=shop", "").await.1 != "[]")
            .then_some(())
    };
    until(is_known).await;
    assert_eq!(patch(&running, "shop").await, Value::Null);
    while told(&mut link).await != ["shop"] {}
    // Of a cluster that is not followed nothing more will be known.
    let mut elsewhere = Agent::new(2, &["web:1"]);
    elsewhere.cluster = "elsewhere".into();
    let mut other = elsewhere.connect(running.grpc).await;
    other.send(elsewhere.measure(300)).await;
    let (entry, _) = first_entry(&mut other).await;
    assert!(entry.cpu_request_milli > Some(7), "{entry:?}");
    fails.abort();
    let set = until(|| async { patch(&running, "shop").await.as_str().map(str::to_owned) }).await;
    let set = String::from_utf8(STANDARD.decode(set).unwrap()).unwrap();
    assert!(set.contains("\"7m\""), "{set}");
    // The first word about its requests keeps within it, too.
    let (entry, frozen) = first_entry(&mut link).await;
    assert_eq!((entry.cpu_request_milli, frozen.len()), (Some(7), 0));
    running.stop().await;
}
