//! Suite `unit`: objects that ask for recommendations, followed, resolved and written to over TLS. With `APISERVER=URL` and `KUBECONFIG`, the same
//! against that server, in a namespace of its own, where it has the definitions of the Vertical Pod Autoscaler.

use std::future::Future;
use std::time::{Duration, Instant};

use crate::apiserver::ApiServer;
use crate::apiserver::definition::Definition;
use evenkeel_kubernetes::objects::{
    AUTOSCALERS, ApiError, Asking, Autoscaler, Checkpoint, CheckpointHistogram, CheckpointStatus, KINDS,
    NAME, OWN, ObjectEvent, ObjectPods, Resolved, TargetRef, Targets, is_same, patch, status,
};
use evenkeel_kubernetes::{ApiSource, Pace, WatchState};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
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
        let cluster = Self::connect(test).await;
        until("listed", || async { cluster.state() != WatchState::Listing }).await;
        if cluster.fixture.is_none() && cluster.state() == WatchState::Absent {
            assert!(std::env::var_os("CI").is_none(), "this cluster has no VerticalPodAutoscaler");
            eprintln!("not run: this cluster has no VerticalPodAutoscaler");
            return None;
        }
        cluster.open().await;
        Some(cluster)
    }

    /// One that has the shipped definition of Evenkeel's own objects.
    async fn with_own(test: &str) -> Self {
        let cluster = Self::connect(test).await;
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let definition = Definition::shipped().object;
        let made = cluster.answer("POST", definitions, &definition).await;
        // It may be there from before.
        assert!(matches!(made.0, 201 | 409), "{made:?}");
        let own = || cluster.asking.status().into_iter().find(|status| *status.kind == *OWN).unwrap().state;
        until("the definition is served", || async { own() == WatchState::Watching }).await;
        cluster.open().await;
        cluster
    }

    async fn connect(test: &str) -> Self {
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
        let source = ApiSource { kubeconfig, context: None, patience: Duration::from_secs(5) };
        let pace = Pace {
            page: 2,
            least: Duration::from_millis(20),
            most: Duration::from_millis(100),
            ..Pace::default()
        };
        let asking = Asking::start(&source, pace, &KINDS).await.unwrap();
        let namespace = format!("evenkeel-test-{test}-{}", std::process::id());
        Self { fixture, client: Client::try_from(config).unwrap(), asking, namespace, _dir: dir }
    }

    /// Makes the namespace, which the fixture does not ask for.
    async fn open(&self) {
        if self.fixture.is_none() {
            let namespace =
                json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": self.namespace } });
            self.ask("POST", "/api/v1/namespaces", &namespace).await;
        }
    }

    /// Status and body, whatever they are.
    async fn answer(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
        let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
        let answer = self.client.send(request).await.unwrap();
        let status = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    fn state(&self) -> WatchState {
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

    async fn write(&self, of: &Autoscaler, status: &Value) -> Result<Value, ApiError> {
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
    let found = ObjectPods { trouble: Some("no".into()), ..ObjectPods::default() };
    let said = status(&first, &found, "2026-11-21T01:42:24Z");
    let made = cluster.write(&first, &said).await.unwrap();
    assert!(is_same(&made["status"], &said), "{made}");
    assert_eq!(made["metadata"]["generation"], 1, "a status is no change of the spec");
    // The version before is gone, and the watch brings the one that is there.
    assert!(matches!(cluster.write(&first, &said).await, Err(ApiError::Conflict(_))));
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
    assert!(matches!(cluster.write(&third, &said).await, Err(ApiError::Absent(_))));
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
    until("absent", || async { cluster.state() == WatchState::Absent }).await;
    assert_eq!(cluster.of().len(), 1, "what is known stays");
    api.lacks("autoscaling.k8s.io", false);
    until("back", || async { cluster.state() == WatchState::Watching }).await;
    // What cannot be told now is asked about again.
    let (targets, target) = (
        Targets::default(),
        TargetRef { api_version: "apps/v1".into(), kind: "Deployment".into(), name: "web".into() },
    );
    api.is(crate::apiserver::Mood::Fails(503));
    let asked = targets.ask(cluster.asking.api(), &cluster.namespace, &target).await;
    assert!(matches!(asked, Err(ApiError::Later(..))), "{asked:?}");
    assert!(targets.known(&cluster.namespace, &target).is_none());
    cluster.end().await;
}

/// The shipped definition, on a server that takes it or does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn own_objects_are_checked_followed_and_written_to() {
    let cluster = Cluster::with_own("own").await;
    let namespace = cluster.namespace.clone();
    let at = format!("/apis/evenkeel.dev/v1/namespaces/{namespace}/verticalpodautoscalers");
    let object = |name: &str, spec: Value| json!({ "kind": "VerticalPodAutoscaler", "apiVersion": "evenkeel.dev/v1", "metadata": { "name": name }, "spec": spec });
    let bounds = |cpu: Value| json!({ "containers": [{ "name": "*", "requests": { "cpu": cpu } }] });
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    for (spec, field) in [
        (json!({}), "spec"),
        (json!({ "target": {}, "targetRef": target }), "spec"),
        (json!({ "target": {}, "updatePolicy": { "mode": "on" } }), "spec.updatePolicy.mode"),
        (
            json!({ "target": {}, "updatePolicy": { "mode": "off" }, "initialResourcesPolicy": "always" }),
            "spec",
        ),
        (
            json!({ "target": {}, "resourcesPolicy": bounds(json!({ "min": "2", "max": "1500m" })) }),
            "requests.cpu",
        ),
        (json!({ "target": {}, "resourcesPolicy": bounds(json!({ "min": "-1" })) }), "requests.cpu.min"),
        (json!({ "target": {}, "goals": { "memory": { "over": 0 } } }), "spec.goals.memory.over"),
    ] {
        let (code, told) = cluster.answer("POST", &at, &object("wrong", spec)).await;
        let told = told["message"].as_str().unwrap_or_default().to_owned();
        assert!(code == 422 && told.contains(field), "{code} {told}");
    }
    let spec = json!({ "targetRef": target, "updatePolicy": {}, "resourcesPolicy": bounds(json!({ "min": "50m", "max": 2 })), "frob": 1 });
    assert_eq!(cluster.answer("POST", &at, &object("web", spec)).await.0, 201);
    let own = || {
        let all = cluster.asking.kept().all(OWN);
        all.into_iter().find(|object| object.metadata.namespace == namespace)
    };
    until("the object", || async { own().is_some() }).await;
    let first = own().unwrap();
    let written = first.as_written();
    assert_eq!(
        (&written["frob"], &written["updatePolicy"]["mode"], first.metadata.generation),
        (&Value::Null, &json!("auto"), 1)
    );
    let condition = json!({ "type": "Selects", "status": "True", "lastTransitionTime": "2026-11-21T01:42:24Z", "reason": "Governs" });
    let requests = json!({ "cpu": "250m", "memory": "64Mi" });
    let said = json!({
        "conditions": [condition], "observedGeneration": 1, "conflicts": [{ "policy": "a/b", "containers": 1, "governs": true }],
        "recommendation": { "containers": [{
            "name": "main", "resources": { "requests": requests }, "confidence": { "cpu": 0.5, "memory": 0.0 }, "cappedBy": { "cpu": ["policy min"] },
        }]},
    });
    let api = cluster.asking.api();
    let made = api.patch_status(OWN, &namespace, "web", &patch(&first, &said)).await.unwrap();
    assert!(is_same(&made["status"], &said) && made["metadata"]["generation"] == 1, "{made}");
    let again = api.patch_status(OWN, &namespace, "web", &patch(&first, &said)).await;
    assert!(matches!(again, Err(ApiError::Conflict(_))), "{again:?}");
    // What is gone is taken out.
    until("the watch", || async { own().is_some_and(|object| object.status != Value::Null) }).await;
    let second = own().unwrap();
    let less = json!({ "conditions": said["conditions"], "observedGeneration": 1, "recommendation": null, "conflicts": null });
    let made = api.patch_status(OWN, &namespace, "web", &patch(&second, &less)).await.unwrap();
    assert!(is_same(&made["status"], &less), "{made}");
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checkpoints_and_events_are_written_and_written_again() {
    let Some(cluster) = Cluster::start("written").await else { return };
    cluster.make("web", "evenkeel").await;
    let (of, api, namespace) = (cluster.one().await, cluster.asking.api(), &cluster.namespace);
    let checkpoint = |bucket: usize, samples: u64| Checkpoint {
        autoscaler: "web".into(),
        container: "main".into(),
        status: CheckpointStatus {
            cpu_histogram: CheckpointHistogram {
                bucket_weights: [(bucket, 10_000)].into(),
                reference_timestamp: Some("2026-11-21T00:00:00Z".into()),
                total_weight: 0.3,
            },
            last_update_time: Some("2026-11-21T00:02:00Z".into()),
            total_samples_count: samples,
            ..CheckpointStatus::default()
        },
    };
    assert_eq!(api.checkpoints(namespace).await.unwrap(), []);
    for (bucket, samples) in [(3, 10), (4, 20)] {
        let checkpoint = checkpoint(bucket, samples);
        api.write_checkpoint(&of, &checkpoint).await.unwrap();
        assert_eq!(
            api.checkpoints(namespace).await.unwrap(),
            [checkpoint],
            "weights that are gone are taken out"
        );
    }
    let event = ObjectEvent {
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: namespace.clone(),
        name: "web-1".into(),
        uid: "00000000-0000-4000-8000-000000000001".into(),
        container: Some("main".into()),
        reason: "OOMKill",
        action: "Kill",
        is_warning: true,
        controller: "evenkeel.dev/agent",
        instance: "node-1".into(),
        note: "killed".into(),
        at: "2026-11-21T01:43:47.216099Z".into(),
        number: 1,
    };
    api.tell(&event).await.unwrap();
    assert!(matches!(api.tell(&event).await, Err(ApiError::Conflict(_))));
    api.tell_again(&event, 2, "2026-11-21T01:44:47.000000Z").await.unwrap();
    let place = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events/{}", event.event_name());
    let made = cluster.ask("GET", &place, &Value::Null).await;
    assert_eq!((&made["series"]["count"], &made["reason"]), (&json!(2), &json!("OOMKill")));
    let other = ObjectEvent { number: 2, ..event };
    assert!(matches!(api.tell_again(&other, 2, &other.at).await, Err(ApiError::Absent(_))));
    cluster.end().await;
}
