//! The admission webhook of a cluster: it answers from the status of objects, without a recommender and without a store, tells controllers what it
//! set, and keeps a certificate of its own.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::apiserver::ApiServer;
use common::{Agent, Running, until};
use evenkeel_recommender::config::{Config, Span, WebhookMode};
use evenkeel_recommender::webhook::BoundWebhook;
use evenkeel_webhook::serve::Webhook;
use serde_json::{Value, json};

const OWN: &str = "/apis/evenkeel.dev/v1/verticalpodautoscalers";
const EVENTS: &str = "/apis/events.k8s.io/v1/events";
const REGISTRATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// A webhook beside this API server, whose recommender is nowhere unless it is set.
fn config(dir: &Path, api: &ApiServer) -> Config {
    let mut config = Config { panic_file: dir.join("panic"), ..Config::default() };
    config.kubernetes.kubeconfig = api.kubeconfig(dir);
    config.webhook.address = "127.0.0.1:0".parse().unwrap();
    config.webhook.mode = WebhookMode::Apply;
    config.webhook.recommender = format!("unix://{}/nobody.sock", dir.display());
    config.webhook.timeout = Span::from_millis(20);
    (config.webhook.objects, config.webhook.events) = (true, true);
    assert_eq!(config.problems(), []);
    config
}

fn own(name: &str, spec: Value, status: Value) -> Value {
    json!({
        "kind": "VerticalPodAutoscaler", "apiVersion": "evenkeel.dev/v1", "spec": spec, "status": status,
        "metadata": {
            "name": name, "namespace": "shop", "generation": 1, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z",
        },
    })
}

fn status(cpu: &str, memory: &str) -> Value {
    json!({
        "observedGeneration": 1, "selector": { "matchLabels": { "app": "web" } },
        "recommendation": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": cpu, "memory": memory } } }] },
    })
}

fn review(app: &str, resources: &Value, is_dry: bool) -> Vec<u8> {
    let owner = json!({ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9c", "uid": "set", "controller": true });
    let pod = json!({
        "metadata": { "generateName": "web-5d9c-", "labels": { "app": app, "pod-template-hash": "5d9c" }, "ownerReferences": [owner] },
        "spec": { "containers": [{ "name": "main", "image": "web:1", "resources": resources }] },
    });
    let request = json!({
        "uid": "u", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "namespace": "shop", "operation": "CREATE",
        "object": pod, "dryRun": is_dry,
    });
    let review =
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
    review.to_string().into_bytes()
}

/// What is set, `requests/cpu 250m`.
async fn set(webhook: &Webhook, app: &str, resources: &Value, is_dry: bool) -> Vec<String> {
    let answer = webhook.review(&review(app, resources, is_dry)).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["response"]["allowed"], true);
    let patch = answer["response"]["patch"].as_str().map(|patch| STANDARD.decode(patch).unwrap());
    let patch: Vec<Value> = patch.map(|patch| serde_json::from_slice(&patch).unwrap()).unwrap_or_default();
    let told = patch.iter().filter(|operation| operation["value"].is_string()).filter_map(|operation| {
        let path = operation["path"].as_str().unwrap().strip_prefix("/spec/containers/0/resources/")?;
        Some(format!("{path} {}", operation["value"].as_str().unwrap()))
    });
    told.collect()
}

fn events(api: &ApiServer) -> Vec<Value> {
    api.everything()
        .into_iter()
        .filter(|((collection, ..), _)| collection == EVENTS)
        .map(|(_, event)| event)
        .collect()
}

async fn until_set(webhook: &Webhook, want: &[&str]) {
    until(|| async { (set(webhook, "web", &json!({}), true).await == want).then_some(()) }).await;
}

fn limit_range(max: &str) -> Value {
    json!({
        "kind": "LimitRange", "apiVersion": "v1", "metadata": { "name": "r", "namespace": "shop" },
        "spec": { "limits": [{ "type": "Container", "max": { "cpu": max } }] },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_set_before_it_is_known_what_a_namespace_allows() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    let of_labels = json!({ "target": { "matchLabels": { "app": "web" } } });
    api.put(own("web", of_labels, status("250m", "64Mi")));
    api.put(limit_range("200m"));
    api.refuses("/limitranges", 500);
    let bound = BoundWebhook::start(&config(dir.path(), &api)).await.unwrap();
    let webhook = bound.webhook();
    let first =
        until(|| async { Some(set(webhook, "web", &json!({}), true).await).filter(|set| !set.is_empty()) });
    assert_eq!(first.await, ["requests/cpu 200m", "requests/memory 64Mi"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_answer_without_a_recommender() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    let bound = BoundWebhook::start(&config(dir.path(), &api)).await.unwrap();
    let webhook = bound.webhook();
    assert_eq!(set(webhook, "web", &json!({}), true).await, [""; 0], "nothing is known, nothing is held up");
    let of_labels = json!({ "target": { "matchLabels": { "app": "web" } } });
    api.put(own("web", of_labels.clone(), status("250m", "64Mi")));
    let whole = ["requests/cpu 250m", "requests/memory 64Mi"];
    until_set(webhook, &whole).await;
    assert_eq!(set(webhook, "other", &json!({}), true).await, [""; 0]);
    // The pod's own limit bounds it, and what the namespace allows now.
    let limited = set(webhook, "web", &json!({ "limits": { "cpu": "100m" } }), true).await;
    assert_eq!(limited, ["requests/cpu 100m", "requests/memory 64Mi"]);
    api.put(limit_range("200m"));
    until_set(webhook, &["requests/cpu 200m", "requests/memory 64Mi"]).await;
    api.delete("/api/v1/limitranges", "shop", "r");
    until_set(webhook, &whole).await;
    // A dry run is told to nobody, and a rollout once.
    assert!(events(&api).is_empty());
    for _ in 0..20 {
        assert_eq!(set(webhook, "web", &json!({}), false).await, whole);
    }
    let event = until(|| async { events(&api).pop() }).await;
    assert_eq!(
        (&event["regarding"]["kind"], &event["regarding"]["uid"]),
        (&json!("ReplicaSet"), &json!("set"))
    );
    assert_eq!((&event["reason"], &event["type"]), (&json!("RequestsSet"), &json!("Normal")));
    let note = event["note"].as_str().unwrap();
    assert!(
        note.contains("cpu request 250m for container main") && note.contains("policy shop/web"),
        "{note}"
    );
    // The switch, as the leader's word and as a file; then the word is old, and nothing is held up.
    let mut frozen = status("250m", "64Mi");
    frozen["conditions"] =
        json!([{ "type": "Frozen", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" }]);
    api.put(own("web", of_labels.clone(), frozen));
    until_set(webhook, &[]).await;
    api.put(own("web", of_labels.clone(), status("300m", "64Mi")));
    until_set(webhook, &["requests/cpu 300m", "requests/memory 64Mi"]).await;
    std::fs::write(dir.path().join("panic"), "").unwrap();
    until_set(webhook, &[]).await;
    std::fs::remove_file(dir.path().join("panic")).unwrap();
    until_set(webhook, &["requests/cpu 300m", "requests/memory 64Mi"]).await;
    // A status of an object as it was before says nothing.
    let mut changed = own("web", of_labels, status("300m", "64Mi"));
    changed["metadata"]["generation"] = 2.into();
    api.put(changed);
    until_set(webhook, &[]).await;
    // What its controller selects is not known yet.
    let of_controller =
        json!({ "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } });
    api.put(own("web", of_controller.clone(), json!({ "observedGeneration": 1 })));
    until_set(webhook, &[]).await;
    api.put(own("web", of_controller, status("400m", "64Mi")));
    until_set(webhook, &["requests/cpu 400m", "requests/memory 64Mi"]).await;
    api.delete(OWN, "shop", "web");
    until_set(webhook, &[]).await;
    assert_eq!(events(&api).len(), 1, "{:?}", events(&api));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_recommender_wrote_is_answered_when_it_is_gone_and_its_switch_holds() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    let labels = json!({ "app": "web" });
    api.put(json!({
        "kind": "Deployment", "apiVersion": "apps/v1", "metadata": { "name": "w0", "namespace": "shop", "labels": labels },
        "spec": { "selector": { "matchLabels": labels } },
    }));
    let state = dir.path().join("state");
    let running = Running::start(&state, |config| {
        (config.kubernetes.view, config.kubernetes.recommend) = (true, true);
        config.kubernetes.kubeconfig = api.kubeconfig(dir.path());
        config.kubernetes.cluster = "test".into();
        config.recommend.watch_interval = Span::from_millis(50);
    })
    .await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    api.put(own("web", json!({ "target": {} }), Value::Null));
    let mut config = config(dir.path(), &api);
    config.webhook.recommender = running.grpc.to_string();
    let bound = BoundWebhook::start(&config).await.unwrap();
    let is_asked = |bound: &BoundWebhook| bound.webhook().counts().text((0, 0)).contains("by_object_total 0");
    let found = until(|| async {
        let found = set(bound.webhook(), "web", &json!({}), true).await;
        (!is_asked(&bound)).then_some(found)
    })
    .await;
    assert_eq!(found.len(), 2, "{found:?}");
    // A replica that is new, of a recommender that is gone.
    running.stop().await;
    let fresh = BoundWebhook::start(&config).await.unwrap();
    until(|| async { (set(fresh.webhook(), "web", &json!({}), true).await == found).then_some(()) }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_keep_a_certificate_of_their_own() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    let registration = json!({
        "kind": "MutatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1",
        "metadata": { "name": "evenkeel" }, "webhooks": [{ "name": "pods.evenkeel.dev", "clientConfig": {} }],
    });
    api.put(registration);
    let with = |name: &str, names: &[&str]| {
        let files = dir.path().join(name);
        std::fs::create_dir(&files).unwrap();
        let mut config = config(dir.path(), &api);
        let section = &mut config.webhook;
        (section.objects, section.events) = (false, false);
        section.secret = "evenkeel/evenkeel-webhook".into();
        section.names = names.iter().map(|name| (*name).to_owned()).collect();
        (section.cert, section.key) = (files.join("tls.crt"), files.join("tls.key"));
        (section.authority, section.registration) = (files.join("ca.crt"), "evenkeel".into());
        assert_eq!(config.problems(), []);
        config
    };
    let secret = |key: &str| {
        let secret = api.object("/api/v1/secrets", "evenkeel", "evenkeel-webhook").unwrap();
        String::from_utf8(STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap()
    };
    let bundle = || {
        let object = api.object(REGISTRATIONS, "", "evenkeel").unwrap();
        let bundle =
            object["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap_or_default().to_owned();
        String::from_utf8(STANDARD.decode(bundle).unwrap()).unwrap()
    };
    // Two that begin at once have one certificate.
    let (one, two) = (with("one", &["a.svc"]), with("two", &["a.svc"]));
    let (first, second) = tokio::join!(BoundWebhook::start(&one), BoundWebhook::start(&two));
    let (_first, _second) = (first.unwrap(), second.unwrap());
    let served = std::fs::read_to_string(&one.webhook.cert).unwrap();
    assert_eq!(
        (&served, &std::fs::read_to_string(&two.webhook.cert).unwrap()),
        (&secret("tls.crt"), &served)
    );
    let authority = secret("ca.crt");
    until(|| async { (bundle() == authority).then_some(()) }).await;
    // One that needs another name makes it anew; the authority before is trusted on, and the others follow.
    let _third = BoundWebhook::start(&with("three", &["a.svc", "b.svc"])).await.unwrap();
    assert!(secret("ca.crt").ends_with(&authority) && secret("ca.crt").len() > authority.len());
    until(|| async { (bundle() == secret("ca.crt")).then_some(()) }).await;
    until(|| async {
        (std::fs::read_to_string(&one.webhook.cert).unwrap() == secret("tls.crt")).then_some(())
    })
    .await;
    assert_ne!(secret("tls.crt"), served);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_the_vertical_pod_autoscaler_answer_where_it_is_not_at_work_itself() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    let mut config = config(dir.path(), &api);
    config.webhook.autoscalers = true;
    let bound = BoundWebhook::start(&config).await.unwrap();
    let webhook = bound.webhook();
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let autoscaler = |recommender: &str| {
        let recommended = json!({ "containerName": "main", "target": { "cpu": "250m", "memory": "64Mi" } });
        json!({
            "kind": "VerticalPodAutoscaler", "apiVersion": "autoscaling.k8s.io/v1",
            "metadata": { "name": "web", "namespace": "shop", "generation": 1, "uid": "vpa", "creationTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "targetRef": target, "recommenders": [{ "name": recommender }] },
            "status": { "recommendation": { "containerRecommendations": [recommended] } },
        })
    };
    let whole = ["requests/cpu 250m", "requests/memory 64Mi"];
    api.put(autoscaler("evenkeel"));
    until_set(webhook, &whole).await;
    // An object of Evenkeel's own goes over it.
    api.put(own("web", json!({ "target": { "matchLabels": { "app": "web" } } }), status("300m", "64Mi")));
    until_set(webhook, &["requests/cpu 300m", "requests/memory 64Mi"]).await;
    api.delete(OWN, "shop", "web");
    until_set(webhook, &whole).await;
    // One that asks for another recommender is none of ours.
    api.put(autoscaler("default"));
    until_set(webhook, &[]).await;
    api.put(autoscaler("evenkeel"));
    until_set(webhook, &whole).await;
    // That project's own admission controller is at work, and then it is not any more.
    let lease = |renewed: jiff::Timestamp| {
        json!({
            "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
            "metadata": { "name": "vpa-admission-controller", "namespace": "kube-system" },
            "spec": { "holderIdentity": "vpa", "renewTime": format!("{renewed:.6}") },
        })
    };
    api.put(lease(jiff::Timestamp::now()));
    until_set(webhook, &[]).await;
    api.put(lease(jiff::Timestamp::now() - jiff::Span::new().hours(1)));
    until_set(webhook, &whole).await;
    // A pod that it has seen is left to it.
    let mut seen: Value = serde_json::from_slice(&review("web", &json!({}), true)).unwrap();
    seen["request"]["object"]["metadata"]["annotations"] = json!({ "vpaObservedContainers": "main" });
    let answer = webhook.review(seen.to_string().as_bytes()).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["response"], json!({ "uid": "u", "allowed": true }));
}
