//! Pods that wait with a gate until their requests are known, and pods that have more CPU while they start: by the webhook, resized by the
//! recommender that leads.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::apiserver::ApiServer;
use common::{Agent, Running, until};
use evenkeel_proto::line::Trust;
use evenkeel_recommender::config::{Config, Span};
use evenkeel_webhook::advice::Advisor;
use evenkeel_webhook::gate::{GATE, LABEL, PLACEHOLDERS};
use evenkeel_webhook::serve::{Options, Webhook};
use serde_json::{Value, json};

const PODS: &str = "/api/v1/pods";
const EVENTS: &str = "/apis/events.k8s.io/v1/events";

async fn started(dir: &std::path::Path, api: &ApiServer, adjust: impl FnOnce(&mut Config)) -> Running {
    Running::start(&dir.join("state"), |config| {
        config.kubernetes.gates = true;
        config.kubernetes.kubeconfig = api.kubeconfig(dir);
        config.kubernetes.cluster = "test".into();
        config.recommend.watch_interval = Span::from_millis(50);
        config.policies = Vec::new();
        config.panic_file = std::path::PathBuf::new();
        adjust(config);
    })
    .await
}

/// Puts a patch onto an object (RFC 6902, `add` alone).
fn patched(mut object: Value, patch: &[Value]) -> Value {
    for operation in patch {
        let path = operation["path"].as_str().unwrap();
        let (parent, key) = path.rsplit_once('/').unwrap();
        match object.pointer_mut(parent).unwrap() {
            Value::Array(list) => list.push(operation["value"].clone()),
            parent => parent[key.replace("~1", "/")] = operation["value"].clone(),
        }
    }
    object
}

/// A pod as the webhook makes it.
async fn made(webhook: &Webhook, name: &str, image: &str, owner: bool) -> Value {
    let mut pod = json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": { "name": name, "namespace": "shop", "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": image }] },
    });
    if owner {
        pod["metadata"]["ownerReferences"] = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d9c", "uid": name, "controller": true }]);
    }
    let request = json!({
        "uid": "u", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "namespace": "shop", "operation": "CREATE", "object": pod,
    });
    let review =
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request });
    let answer = webhook.review_gates(review.to_string().as_bytes()).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["response"]["allowed"], true);
    let patch = answer["response"]["patch"].as_str().map(|patch| STANDARD.decode(patch).unwrap());
    let patch: Vec<Value> = patch.map(|patch| serde_json::from_slice(&patch).unwrap()).unwrap_or_default();
    let mut pod = patched(pod, &patch);
    pod["metadata"]["uid"] = name.into();
    pod["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z".into();
    pod
}

fn webhook(running: &Running) -> Webhook {
    let options = Options {
        applies: true,
        within: std::time::Duration::from_secs(60),
        gates: true,
        boosts: true,
        exclude: vec!["kube-system".to_owned()],
        metrics_token: None,
    };
    Webhook::new(options, Advisor::new(&running.grpc.to_string(), Trust::default()))
}

fn events(api: &ApiServer, pod: &str) -> Vec<String> {
    let all = api.everything().into_iter().filter(|((collection, ..), _)| collection == EVENTS);
    let of = all.map(|(_, event)| event).filter(|event| event["regarding"]["name"] == pod);
    of.map(|event| format!("{}: {}", event["reason"].as_str().unwrap(), event["note"].as_str().unwrap()))
        .collect()
}

fn now() -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    jiff::Timestamp::from_second(now.as_secs() as i64).unwrap().to_string().into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gated_pod_is_resized_and_freed_when_its_image_is_known() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    let running = started(dir.path(), &api, |_| {}).await;
    let webhook = webhook(&running);
    let mut pod = made(&webhook, "web-1", "web:1", false).await;
    assert_eq!(pod["spec"]["schedulingGates"], json!([{ "name": GATE }]));
    assert_eq!(
        pod["spec"]["containers"][0]["resources"]["requests"],
        json!({ "cpu": "10m", "memory": "16Mi" })
    );
    pod["metadata"]["creationTimestamp"] = now();
    api.put(pod);
    // What it is told is tried again.
    api.refuses("/events", 500);
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    let pod = until(|| async {
        let pod = api.object(PODS, "shop", "web-1").unwrap();
        (pod["spec"]["schedulingGates"] == json!([])).then_some(pod)
    })
    .await;
    let requests = &pod["spec"]["containers"][0]["resources"]["requests"];
    assert!(
        requests["cpu"].as_str().unwrap().starts_with("25") && requests["memory"] != "16Mi",
        "{requests}"
    );
    assert!(
        pod["metadata"]["labels"].get(LABEL).is_none()
            && pod["metadata"]["annotations"].get(PLACEHOLDERS).is_none()
    );
    let told = until(|| async { events(&api, "web-1").pop() }).await;
    assert!(told.starts_with("RequestsSet: requests are set by its image's history"), "{told}");
    // It is known now: nothing waits.
    assert!(made(&webhook, "web-2", "web:1", false).await["spec"].get("schedulingGates").is_none());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_pod_waits_for_ever() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    let running = started(dir.path(), &api, |_| {}).await;
    let webhook = webhook(&running);
    // Made long ago, and nothing is known of it.
    api.put(made(&webhook, "old-1", "new:1", false).await);
    let pod = until(|| async {
        let pod = api.object(PODS, "shop", "old-1").unwrap();
        (pod["spec"]["schedulingGates"] == json!([])).then_some(pod)
    })
    .await;
    assert_eq!(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"], "10m");
    let told = until(|| async { events(&api, "old-1").pop() }).await;
    assert!(told.starts_with("GateDeadline: nothing is known of what it needs after 600 s"), "{told}");
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    // One whose resize is refused is deleted where its controller makes it anew, and else waits for the deadline.
    for (name, owner) in [("owned-1", true), ("alone-1", false)] {
        let mut pod = made(&webhook, name, "web:1", owner).await;
        assert!(pod["spec"]["schedulingGates"].is_array(), "{pod}");
        // A resize would give it another class.
        pod["spec"]["containers"][0]["resources"] = json!({});
        pod["metadata"]["creationTimestamp"] =
            if owner { now() } else { pod["metadata"]["creationTimestamp"].clone() };
        api.put(pod);
    }
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    until(|| async { api.object(PODS, "shop", "owned-1").is_none().then_some(()) }).await;
    let told = until(|| async { events(&api, "owned-1").pop() }).await;
    assert!(
        told.starts_with("GatedPodDeleted: its resize was refused")
            && told.ends_with("ReplicaSet makes it anew"),
        "{told}"
    );
    until(|| async {
        (api.object(PODS, "shop", "alone-1").unwrap()["spec"]["schedulingGates"] == json!([])).then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_has_more_cpu_and_gives_it_back() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    let running = started(dir.path(), &api, |config| config.kubernetes.startup_boost = true).await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    let policy = json!({
        "apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "target": { "matchLabels": { "app": "web" } }, "startupBoost": { "factor": 2, "seconds": 60 } },
    });
    let (status, text) = common::http(running.http, "POST", "/api/v1/policies", &policy.to_string()).await;
    assert!(status < 300, "{status} {text}");
    let mut pod = json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "web-1", "namespace": "shop", "labels": { "app": "web" } },
        "spec": { "containers": [{ "name": "main", "image": "web:1" }] },
    });
    let review = |pod: &Value| {
        let request = json!({
            "uid": "u", "kind": { "group": "", "version": "v1", "kind": "Pod" }, "namespace": "shop", "operation": "CREATE",
            "object": pod,
        });
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request })
            .to_string()
    };
    let answer = webhook(&running).review(review(&pod).as_bytes()).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let patch = STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
    pod = patched(pod, &serde_json::from_slice::<Vec<Value>>(&patch).unwrap());
    let milli = |pod: &Value| -> u64 {
        let text = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"].as_str().unwrap().to_owned();
        evenkeel_model::quantity::Quantity::parse(&text).unwrap().milli_u64().unwrap()
    };
    let boosted = milli(&pod);
    assert!((500..=520).contains(&boosted), "{pod}");
    let annotations = pod["metadata"]["annotations"].clone();
    assert!(
        annotations["evenkeel.dev/initial-resources"].as_str().unwrap().contains("while it starts, then 25"),
        "{annotations}"
    );
    // Nobody measures it: it goes back when its time is over.
    (pod["metadata"]["uid"], pod["status"]["startTime"]) = ("u".into(), "2020-01-01T00:00:00Z".into());
    api.put(pod);
    let pod = until(|| async {
        let pod = api.object(PODS, "shop", "web-1").unwrap();
        pod["metadata"]["labels"].get("evenkeel.dev/startup-boost").is_none().then_some(pod)
    })
    .await;
    assert_eq!(milli(&pod), boosted / 2);
    assert!(pod["metadata"]["annotations"].get("evenkeel.dev/startup-boost").is_none());
    let told = until(|| async { events(&api, "web-1").pop() }).await;
    assert!(told.starts_with("StartupBoostEnded: its 60 s are over"), "{told}");
    running.stop().await;
}
