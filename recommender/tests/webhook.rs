//! The admission webhook beside a running recommender: what pods get when they are made, and that none is held up.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use common::{Agent, Running, http, http_on};
use evenkeel_model::quantity::Quantity;
use evenkeel_proto::line::Trust;
use evenkeel_recommender::config::{Config, LimitRangeSection, Span};
use evenkeel_webhook::advice::Advisor;
use evenkeel_webhook::counts::{Certificate, ReviewOutcome};
use evenkeel_webhook::http::serve;
use evenkeel_webhook::serve::{ESTIMATE, Options, SET, Webhook};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};

fn quick(config: &mut Config) {
    config.recommend.watch_interval = Span::from_millis(50);
    config.policies = Vec::new();
    config.panic_file = std::path::PathBuf::new();
}

/// A recommender that has seen a container of `web:1` for 70 seconds: a quarter of a core and 64 MiB.
async fn started(dir: &std::path::Path, adjust: impl FnOnce(&mut Config)) -> Running {
    let running = Running::start(dir, |config| {
        quick(config);
        adjust(config);
    })
    .await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    running
}

fn webhook(running: &Running, applies: bool) -> Arc<Webhook> {
    let options = Options {
        applies,
        within: Duration::from_secs(60),
        gates: false,
        boosts: true,
        exclude: vec!["kube-system".to_owned()],
        metrics_token: None,
    };
    Arc::new(Webhook::new(options, Advisor::new(&running.grpc.to_string(), Trust::default())))
}

fn review(pod: &Value, namespace: &str) -> Vec<u8> {
    let request = json!({
        "uid": "u", "kind": {"group": "", "version": "v1", "kind": "Pod"}, "namespace": namespace, "operation": "CREATE",
        "object": pod,
    });
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})
        .to_string()
        .into_bytes()
}

fn pod(image: &str, resources: &Value, metadata: &Value) -> Value {
    let mut pod = json!({"metadata": {}, "spec": {"containers": [{"name": "main", "image": image, "resources": resources}]}});
    pod["metadata"] = metadata.clone();
    pod
}

/// What is set: requests and limits by path, and the annotation.
async fn set(webhook: &Webhook, pod: &Value, namespace: &str) -> (Vec<String>, String) {
    let answer = webhook.review(&review(pod, namespace)).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let response = &answer["response"];
    assert_eq!((&response["uid"], &response["allowed"]), (&json!("u"), &json!(true)));
    let patch = response["patch"].as_str().map(|patch| STANDARD.decode(patch).unwrap());
    let patch: Vec<Value> = patch.map(|patch| serde_json::from_slice(&patch).unwrap()).unwrap_or_default();
    let (mut told, mut annotation) = (Vec::new(), String::new());
    for operation in &patch {
        let path = operation["path"].as_str().unwrap();
        match path.strip_prefix("/metadata/annotations/") {
            Some(key) => {
                annotation = format!("{} {}", key.replace("~1", "/"), operation["value"].as_str().unwrap());
            }
            None if operation["value"].is_string() => {
                let path = path.strip_prefix("/spec/containers/0/resources/").unwrap();
                told.push(format!("{path} {}", operation["value"].as_str().unwrap()));
            }
            None => {}
        }
    }
    (told, annotation)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_without_requests_get_them_when_they_are_made() {
    let dir = tempfile::tempdir().unwrap();
    let running = started(dir.path(), |_| {}).await;
    let webhook = webhook(&running, true);
    let (none, empty) = (json!({}), json!({}));
    let (all, annotation) = set(&webhook, &pod("web:1", &none, &empty), "shop").await;
    let [cpu, memory] = all.as_slice() else { panic!("{all:?}") };
    assert!(cpu.starts_with("requests/cpu 25") && memory.starts_with("requests/memory "), "{all:?}");
    assert!(annotation.starts_with(&format!("{SET} cpu request 25")), "{annotation}");
    assert!(annotation.contains("rule initial, tier image"), "{annotation}");
    // Each resource apart; nothing of an image nobody knows; left alone where it is to be.
    for (image, resources, metadata, namespace, want) in [
        ("web:1", json!({"requests": {"cpu": "1"}}), empty.clone(), "shop", vec![memory.clone()]),
        ("web:1", json!({"limits": {"cpu": "1", "memory": "1Gi"}}), empty.clone(), "shop", vec![]),
        ("new:1", none.clone(), empty.clone(), "shop", vec![]),
        ("web:1", none.clone(), empty.clone(), "kube-system", vec![]),
        ("web:1", none.clone(), json!({"annotations": {"evenkeel.dev/manage": "false"}}), "shop", vec![]),
    ] {
        let found = set(&webhook, &pod(image, &resources, &metadata), namespace).await.0;
        assert_eq!(found, want, "{image} {resources} {metadata} {namespace}");
    }
    assert_eq!(webhook.counts().of(ReviewOutcome::LeftAlone), 2);
    // The estimate alone.
    let dry = self::webhook(&running, false);
    let (found, annotation) = set(&dry, &pod("web:1", &none, &empty), "shop").await;
    assert!(found.is_empty() && annotation.starts_with(ESTIMATE), "{found:?} {annotation}");
    running.stop().await;
    // Pods are made all the same, by what was said before, or as they are.
    let (found, _) = set(&webhook, &pod("web:1", &none, &empty), "shop").await;
    assert_eq!(found, all);
    assert_eq!(set(&webhook, &pod("other:1", &none, &empty), "shop").await.0, [""; 0]);
    assert_eq!(webhook.counts().of(ReviewOutcome::NoAnswer), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_fits_what_the_namespace_allows() {
    let dir = tempfile::tempdir().unwrap();
    let ranged = |config: &mut Config| {
        let amount = |text: &str| Some(Quantity::parse(text).unwrap());
        config.recommend.limit_ranges = vec![LimitRangeSection {
            namespace: "shop".into(),
            cpu_min: None,
            cpu_max: amount("100m"),
            memory_min: amount("200Mi"),
            memory_max: None,
        }];
    };
    let running = started(dir.path(), ranged).await;
    let webhook = webhook(&running, true);
    // As LimitRanger makes it of a bare pod: a limit that is the greatest, requests as the limit.
    let resources = json!({"requests": {"cpu": "100m", "memory": "200Mi"}, "limits": {"cpu": "100m"}});
    let told = "LimitRanger plugin set: cpu, memory request for container main; cpu limit for container main";
    let metadata = json!({"annotations": {"kubernetes.io/limit-ranger": told}});
    let (found, _) = set(&webhook, &pod("web:1", &resources, &metadata), "shop").await;
    assert_eq!(found, [""; 0], "the request would be as it is");
    let (found, annotation) = set(&webhook, &pod("web:1", &json!({}), &json!({})), "shop").await;
    assert_eq!(found, ["requests/cpu 100m", "requests/memory 200Mi"]);
    assert!(
        annotation.contains("capped by LimitRange max") && annotation.contains("capped by LimitRange min")
    );
    running.stop().await;
    // Two containers share what a quota leaves.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("quota.yaml");
    let hard = "{hard: {requests.cpu: 300m}";
    let quota = format!(
        "apiVersion: v1\nkind: ResourceQuota\nmetadata: {{name: q, namespace: shop}}\nspec: {hard}}}\nstatus: {hard}, used: {{requests.cpu: '0'}}}}\n"
    );
    std::fs::write(&file, quota).unwrap();
    let running = started(&dir.path().join("state"), |config| config.objects = vec![file.clone()]).await;
    let webhook = self::webhook(&running, true);
    let mut two = pod("web:1", &json!({}), &json!({}));
    let mut other = two["spec"]["containers"][0].clone();
    other["name"] = "other".into();
    two["spec"]["containers"].as_array_mut().unwrap().push(other);
    let answer = webhook.review(&review(&two, "shop")).await.unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let patch = STANDARD.decode(answer["response"]["patch"].as_str().unwrap()).unwrap();
    let patch: Vec<Value> = serde_json::from_slice(&patch).unwrap();
    let cpu = patch.iter().filter(|op| op["path"].as_str().unwrap().ends_with("/requests/cpu"));
    assert_eq!(cpu.map(|op| op["value"].clone()).collect::<Vec<_>>(), ["150m", "150m"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_and_the_panic_switch_decide() {
    let dir = tempfile::tempdir().unwrap();
    let running = started(dir.path(), |_| {}).await;
    let policy = |mode: &str, initial: &str| {
        json!({
            "apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"target": {"matchLabels": {"app": "web"}}, "updatePolicy": {"mode": mode}, "initialResourcesPolicy": initial},
        })
    };
    let metadata = json!({"labels": {"app": "web"}});
    for (mode, initial, resources, want) in [
        ("off", "never", json!({}), 0),
        ("initial", "always", json!({"requests": {"cpu": "2", "memory": "2Gi"}}), 2),
        ("initial", "if-not-set", json!({"requests": {"cpu": "2"}}), 1),
        ("auto", "if-not-set", json!({}), 2),
        ("auto", "never", json!({}), 0),
    ] {
        let (status, text) =
            http(running.http, "POST", "/api/v1/policies", &policy(mode, initial).to_string()).await;
        assert!(status < 300, "{status} {text}");
        // Of its own: nothing is kept of the policy before.
        let webhook = webhook(&running, true);
        let found = set(&webhook, &pod("web:1", &resources, &metadata), "shop").await.0;
        assert_eq!(found.len(), want, "{mode} {initial} {resources}: {found:?}");
    }
    running.stop().await;
    let dir = tempfile::tempdir().unwrap();
    let running = started(dir.path(), |config| config.panic = true).await;
    let bare = pod("web:1", &json!({}), &json!({}));
    assert_eq!(set(&webhook(&running, true), &bare, "shop").await.0, [""; 0]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn strangers_and_rubbish_get_a_refusal_and_nothing_else() {
    let options = Options {
        applies: true,
        within: Duration::from_millis(50),
        gates: true,
        boosts: true,
        exclude: Vec::new(),
        metrics_token: Some("the-token".to_owned()),
    };
    let webhook = Arc::new(Webhook::new(options, Advisor::new("unix:///nowhere/r.sock", Trust::default())));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let stopping = async move {
        let _dropped = stopped.await;
    };
    let serving = tokio::spawn(serve(Arc::clone(&webhook), listener, None, 2, stopping));
    let ask = async |method: &str, path: &str, lines: &str, body: &str| {
        http_on(TcpStream::connect(address).await.unwrap(), method, path, lines, body).await
    };
    let bare = String::from_utf8(review(&pod("web:1", &json!({}), &json!({})), "shop")).unwrap();
    let (status, text) = ask("POST", "/admit/pods", "", &bare).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    // Nobody answers: it is made as it is.
    assert_eq!((status, &answer["response"]), (200, &json!({"uid": "u", "allowed": true})));
    let large = "x".repeat(5 << 20);
    for (method, path, lines, body, want) in [
        ("POST", "/admit/pods", "", "{", 400),
        (
            "POST",
            "/admit/pods",
            "",
            r#"{"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview"}"#,
            400,
        ),
        ("POST", "/admit/pods", "", large.as_str(), 413),
        ("GET", "/admit/pods", "", "", 405),
        ("POST", "/admit/nodes", "", &bare, 404),
        ("GET", "/healthz", "", "", 200),
        ("GET", "/readyz", "", "", 200),
        ("GET", "/metrics", "", "", 401),
        ("GET", "/metrics", "Authorization: Bearer another\r\n", "", 401),
        ("GET", "/metrics", "Authorization: Bearer the-token\r\n", "", 200),
    ] {
        let (status, text) = ask(method, path, lines, body).await;
        assert_eq!(status, want, "{method} {path} {lines}: {text}");
        assert_eq!(
            text.contains("evenkeel_webhook_reviews_total{outcome=\"rubbish\"} 2"),
            text.len() > 500,
            "{text}"
        );
    }
    // A certificate that will end soon is told; with one that has ended no API server takes an answer.
    for (has_ended, status, words) in [(false, 200, "ends in 5 min"), (true, 503, "has ended")] {
        let trouble = Some(format!("the certificate {words}"));
        webhook.counts().certificate(Certificate { ends: 7, has_ended, trouble });
        let (found, text) = ask("GET", "/readyz", "", "").await;
        assert!(found == status && text.contains(words), "{found} {text}");
        let (_, text) = ask("GET", "/metrics", "Authorization: Bearer the-token\r\n", "").await;
        assert!(text.contains("evenkeel_webhook_certificate_failing 1"), "{text}");
    }
    stop.send(()).unwrap();
    serving.await.unwrap().unwrap();
}
