//! The webhook as an API server calls it: over TLS, by its registration; and what becomes of pods when API servers cannot trust it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::apiserver::ApiServer;
use common::until;
use evenkeel_recommender::config::{Config, WebhookMode};
use evenkeel_recommender::webhook::BoundWebhook;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/shop/pods";
const REGISTRATIONS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

/// Requests of a pod that is made, or how it was refused.
async fn made(api: &ApiServer) -> Result<Value, String> {
    let pod = json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": { "generateName": "web-", "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": "web:1" }] },
    });
    match api.make(PODS, &pod).await {
        (201, pod) => Ok(pod["spec"]["containers"][0]["resources"]["requests"].clone()),
        (status, refused) => Err(format!("{status} {}", refused["message"])),
    }
}

/// Registers the webhook, with an authority; no pod is made without an answer where `fails`.
fn register(api: &ApiServer, port: u16, authority: &str, fails: bool) {
    let client = json!({ "url": format!("https://localhost:{port}/admit/pods"), "caBundle": STANDARD.encode(authority) });
    let policy = if fails { "Fail" } else { "Ignore" };
    api.put(json!({
        "kind": "MutatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1", "metadata": { "name": "evenkeel" },
        "webhooks": [{ "name": "pods.evenkeel.dev", "clientConfig": client, "failurePolicy": policy, "timeoutSeconds": 5 }],
    }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_are_made_with_requests_and_as_they_are_where_the_webhook_is_not_trusted() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    let mut config = Config { panic_file: dir.path().join("panic"), ..Config::default() };
    config.kubernetes.kubeconfig = api.kubeconfig(dir.path());
    let section = &mut config.webhook;
    (section.address, section.mode, section.objects) =
        ("127.0.0.1:0".parse().unwrap(), WebhookMode::Apply, true);
    section.recommender = format!("unix://{}/nobody.sock", dir.path().display());
    let files = dir.path().join("tls");
    std::fs::create_dir(&files).unwrap();
    (section.cert, section.key) = (files.join("tls.crt"), files.join("tls.key"));
    (section.authority, section.registration) = (files.join("ca.crt"), "evenkeel".into());
    (section.secret, section.names) = ("evenkeel/evenkeel-webhook".into(), vec!["localhost".into()]);
    assert_eq!(config.problems(), []);
    let requests = json!({ "cpu": "250m", "memory": "64Mi" });
    api.put(json!({
        "kind": "VerticalPodAutoscaler", "apiVersion": "evenkeel.dev/v1",
        "metadata": { "name": "web", "namespace": "shop", "generation": 1, "uid": "web", "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "target": { "matchLabels": { "app": "web" } }, "updatePolicy": { "mode": "initial" } },
        "status": {
            "observedGeneration": 1, "selector": { "matchLabels": { "app": "web" } },
            "recommendation": { "containers": [{ "name": "main", "resources": { "requests": requests } }] },
        },
    }));
    // Nobody answers there yet.
    register(&api, 9, "", false);
    assert_eq!(made(&api).await, Ok(Value::Null), "it is made as it is");
    register(&api, 9, "", true);
    let refused = made(&api).await.unwrap_err();
    assert!(refused.starts_with("500") && refused.contains("failed calling webhook"), "{refused}");
    let bound = BoundWebhook::start(&config).await.unwrap();
    let port = bound.address().unwrap().port();
    let bundle = || {
        let registered = api.object(REGISTRATIONS, "", "evenkeel").unwrap();
        registered["webhooks"][0]["clientConfig"]["caBundle"].as_str().unwrap().to_owned()
    };
    until(|| async { (!bundle().is_empty()).then_some(()) }).await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(bound.serve(async move {
        let _dropped = stopped.await;
    }));
    // An authority that ended yesterday; the webhook puts its own in its place, and until then pods are made as they are.
    let mut ended = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    (ended.not_before, ended.not_after) =
        (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2020, 1, 2));
    let ended = ended.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
    register(&api, port, &ended, false);
    assert_eq!(made(&api).await, Ok(Value::Null), "nobody trusts it");
    until(|| async { (made(&api).await == Ok(requests.clone())).then_some(()) }).await;
    assert_eq!(STANDARD.decode(bundle()).unwrap(), std::fs::read(files.join("ca.crt")).unwrap());
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
    // It is gone, and its registration stands.
    assert_eq!(made(&api).await, Ok(Value::Null), "it is made as it is");
}
