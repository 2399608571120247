//! Suite `unit`: objects that ask for recommendations, followed, resolved and written to over TLS. With `APISERVER=URL` and `KUBECONFIG`, the same
//! against that server, in a namespace of its own, where it has the definitions of the Vertical Pod Autoscaler.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

mod apiserver;

use std::future::Future;
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use evenkeel_kubernetes::objects::{
    AUTOSCALERS, Asking, Autoscaler, Found, NAME, Refused, Resolved, TargetRef, Targets, is_same, patch,
    status,
};
use evenkeel_kubernetes::{Pace, Source, State};
use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// A cluster, and what is followed of it.
struct Cluster {
    /// The fixture; without, a real one.
    fixture: Option<ApiServer>,
    client: Client,
    asking: Asking,
    namespace: String,
    _dir: tempfile::TempDir,
}

impl Cluster {
    /// Nothing where a real one has no such kind.
    async fn start(test: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let url = std::env::var_os("APISERVER");
        let fixture = if url.is_some() { None } else { Some(ApiServer::start().await) };
        fixture.iter().for_each(|api| api.watches_last(Some(Duration::from_millis(200))));
        let kubeconfig = fixture.as_ref().map(|api| api.kubeconfig(dir.path()));
        let file = match &kubeconfig {
            Some(path) => Kubeconfig::read_from(path).unwrap(),
            None => Kubeconfig::read().unwrap(),
        };
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        if let Some(url) = url {
            config.cluster_url = url.to_str().unwrap().parse().unwrap();
        }
        let source = Source { kubeconfig, context: None, patience: Duration::from_secs(5) };
        let pace = Pace {
            page: 2,
            least: Duration::from_millis(20),
            most: Duration::from_millis(100),
            ..Pace::default()
        };
        let asking = Asking::start(&source, pace).await.unwrap();
        let namespace = format!("evenkeel-test-{test}-{}", std::process::id());
        let cluster =
            Self { fixture, client: Client::try_from(config).unwrap(), asking, namespace, _dir: dir };
        until("listed", || async { cluster.state() != State::Listing }).await;
        if cluster.fixture.is_none() {
            if cluster.state() == State::Absent {
                assert!(std::env::var_os("CI").is_none(), "this cluster has no VerticalPodAutoscaler");
                eprintln!("not run: this cluster has no VerticalPodAutoscaler");
                return None;
            }
            let namespace =
                json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": cluster.namespace } });
            cluster.ask("POST", "/api/v1/namespaces", &namespace).await;
        }
        Some(cluster)
    }

    fn state(&self) -> State {
        self.asking.status()[0].state
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let text = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request =
            Request::builder().method(method).uri(path).header("Content-Type", kind).body(text).unwrap();
        self.client.request::<Value>(request).await.unwrap()
    }

    fn place(&self, name: &str) -> String {
        format!("/apis/autoscaling.k8s.io/v1/namespaces/{}/verticalpodautoscalers/{name}", self.namespace)
    }

    async fn make(&self, name: &str, recommender: &str) {
        let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
        let object = json!({
            "kind": "VerticalPodAutoscaler", "apiVersion": "autoscaling.k8s.io/v1",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": { "targetRef": target, "recommenders": [{ "name": recommender }], "updatePolicy": { "updateMode": "Off" } },
        });
        self.ask("POST", self.place("").trim_end_matches('/'), &object).await;
    }

    /// Those of this test that ask for this recommender.
    fn of(&self) -> Vec<std::sync::Arc<Autoscaler>> {
        let all = self.asking.kept().of(AUTOSCALERS, NAME);
        all.into_iter().filter(|object| object.metadata.namespace == self.namespace).collect()
    }

    async fn one(&self) -> std::sync::Arc<Autoscaler> {
        until("the object", || async { self.of().len() == 1 }).await;
        self.of().remove(0)
    }

    async fn write(&self, of: &Autoscaler, status: &Value) -> Result<Value, Refused> {
        let api = self.asking.api();
        api.patch_status(AUTOSCALERS, &of.metadata.namespace, &of.metadata.name, &patch(of, status)).await
    }

    async fn end(self) {
        if self.fixture.is_none() {
            self.ask("DELETE", &format!("/api/v1/namespaces/{}", self.namespace), &Value::Null).await;
        }
    }
}

async fn until<F: Future<Output = bool>>(what: &str, mut is: impl FnMut() -> F) {
    let began = Instant::now();
    while !is().await {
        assert!(began.elapsed() < Duration::from_secs(60), "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_is_written_into_one_version_of_an_object_alone() {
    let Some(cluster) = Cluster::start("status").await else { return };
    cluster.make("web", "evenkeel").await;
    cluster.make("of-others", "default").await;
    let first = cluster.one().await;
    assert_eq!(
        (first.metadata.name.as_str(), first.metadata.generation, &first.status),
        ("web", 1, &Value::Null)
    );
    let found = Found { trouble: Some("no".into()), ..Found::default() };
    let said = status(&first, &found, "2026-11-21T01:42:24Z");
    let made = cluster.write(&first, &said).await.unwrap();
    assert!(is_same(&made["status"], &said), "{made}");
    assert_eq!(made["metadata"]["generation"], 1, "a status is no change of the spec");
    // The version before is gone, and the watch brings the one that is there.
    assert!(matches!(cluster.write(&first, &said).await, Err(Refused::Conflict(_))));
    until("the watch", || async { cluster.one().await.status != Value::Null }).await;
    let second = cluster.one().await;
    assert!(is_same(&second.status, &said));
    // Who changes the spec changes its generation, and leaves the status.
    let changed =
        json!({ "spec": { "updatePolicy": { "updateMode": "Initial" } }, "status": { "conditions": [] } });
    cluster.ask("PATCH", &cluster.place("web"), &changed).await;
    until("the change", || async { cluster.one().await.metadata.generation == 2 }).await;
    let third = cluster.one().await;
    assert!(is_same(&third.status, &said) && !third.not_honoured().is_empty());
    cluster.ask("DELETE", &cluster.place("web"), &Value::Null).await;
    until("the end", || async { cluster.of().is_empty() }).await;
    assert!(matches!(cluster.write(&third, &said).await, Err(Refused::Absent(_))));
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_says_which_pods_are_its_own() {
    let Some(cluster) = Cluster::start("target").await else { return };
    let labels = json!({ "app": "web", "tier": "front" });
    let template = json!({ "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "main", "image": "x" }] } });
    let selector = json!({ "matchLabels": labels });
    let spec = json!({ "replicas": 0, "selector": selector, "template": template });
    let again = json!({ "metadata": { "labels": labels }, "spec": { "restartPolicy": "Never", "containers": [{ "name": "main", "image": "x" }] } });
    let job =
        json!({ "schedule": "0 0 1 1 *", "suspend": true, "jobTemplate": { "spec": { "template": again } } });
    let daemon = json!({ "selector": selector, "template": template });
    let namespace = &cluster.namespace;
    for (group, plural, kind, spec) in [
        ("apps/v1", "deployments", "Deployment", spec),
        ("apps/v1", "daemonsets", "DaemonSet", daemon),
        ("batch/v1", "cronjobs", "CronJob", job),
    ] {
        let object = json!({ "kind": kind, "apiVersion": group, "metadata": { "name": "web", "namespace": namespace }, "spec": spec });
        cluster.ask("POST", &format!("/apis/{group}/namespaces/{namespace}/{plural}"), &object).await;
    }
    let targets = Targets::default();
    let target = |version: &str, kind: &str, name: &str| TargetRef {
        api_version: version.into(),
        kind: kind.into(),
        name: name.into(),
    };
    for (version, kind) in [("apps/v1", "Deployment"), ("apps/v1", "DaemonSet"), ("batch/v1", "CronJob")] {
        let target = target(version, kind, "web");
        assert!(targets.known(namespace, &target).is_none());
        let Resolved::Selects { selector, .. } =
            targets.ask(cluster.asking.api(), namespace, &target).await.unwrap()
        else {
            panic!("{kind}");
        };
        let of = |app: &'static str| move |key: &str| if key == "app" { Some(app) } else { Some("front") };
        assert!(selector.matches(of("web")) && !selector.matches(of("db")), "{kind}");
        assert!(matches!(targets.known(namespace, &target), Some(Resolved::Selects { .. })));
    }
    for (target, why) in [
        (target("apps/v1", "Deployment", "absent"), format!("Deployment {namespace}/absent does not exist")),
        (target("apps/v1", "StatefulSet", "../x"), "does not exist".to_owned()),
        (
            target("example.io/v1", "Frobnicator", "web"),
            "no matches for kind \"Frobnicator\" in group \"example.io\"".to_owned(),
        ),
        (target("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", "web"), "not found".to_owned()),
        (target("", "Deployment", "web"), "apiVersion, kind and name".to_owned()),
    ] {
        match targets.ask(cluster.asking.api(), namespace, &target).await.unwrap() {
            Resolved::Unusable(told) => {
                assert!(told.starts_with("Cannot read targetRef. Reason: ") && told.contains(&why), "{told}");
            }
            Resolved::Selects { .. } => panic!("{target:?}"),
        }
    }
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_that_come_and_go_are_seen_and_an_answer_is_not_made_up() {
    let Some(cluster) = Cluster::start("absent").await else { return };
    let Some(api) = &cluster.fixture else { return cluster.end().await };
    cluster.make("web", "evenkeel").await;
    cluster.one().await;
    api.lacks("autoscaling.k8s.io", true);
    until("absent", || async { cluster.state() == State::Absent }).await;
    assert_eq!(cluster.of().len(), 1, "what is known stays");
    api.lacks("autoscaling.k8s.io", false);
    until("back", || async { cluster.state() == State::Watching }).await;
    // What cannot be told now is asked about again.
    let (targets, target) = (
        Targets::default(),
        TargetRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "web".into() },
    );
    api.is(apiserver::Mood::Fails(503));
    let asked = targets.ask(cluster.asking.api(), &cluster.namespace, &target).await;
    assert!(matches!(asked, Err(Refused::Later(..))), "{asked:?}");
    assert!(targets.known(&cluster.namespace, &target).is_none());
    cluster.end().await;
}
