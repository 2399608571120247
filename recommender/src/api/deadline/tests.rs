//! The state is held back for as long as a test wants, as a writer that takes long would.

use std::sync::{Arc, mpsc};
use std::thread;

use axum::body::{Body, to_bytes};
use evenkeel_net::Peer;
use evenkeel_proto::v1;
use evenkeel_proto::v1::recommender_service_server::RecommenderService;
use evenkeel_store::clock::WallClock;
use evenkeel_store::ingest::engine::{Engine, Threads};
use evenkeel_store::ingest::store::Store;
use serde_json::Value;
use tokio::sync::watch;
use tower::ServiceExt as _;

use super::*;
use crate::api::grpc::Api;
use crate::api::http::Site;
use crate::api::ready::Readiness;
use crate::audit::{Audit, Ticket};
use crate::config::Config;
use crate::identity::Access;
use crate::recommend::stored::Stored;

/// Far above what the way through the program takes, far below what a test waits.
const DEADLINE: &str = "2S";

/// How often who needs an answer asks.
const ATTEMPTS: usize = 5;

/// Who asks.
const ROOT: Peer = Peer::Local { uid: 0, gid: 0, pid: None };

struct Rig {
    context: Context,
    api: Api,
    access: Arc<Access>,
    site: Site,
    threads: Threads,
    _dir: tempfile::TempDir,
}

impl Rig {
    /// A service that kept a recommendation of a quarter of a core for `deployment/web` a minute ago.
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            state_dir: dir.path().to_owned(),
            policies: Vec::new(),
            panic_file: std::path::PathBuf::new(),
            ..Config::default()
        };
        let file = dir.path().join("recommendations");
        let kept = v1::Recommendation {
            cluster: "c".into(),
            namespace: "shop".into(),
            workload: "deployment/web".into(),
            container: "main".into(),
            resource: "cpu".into(),
            request: Some(250),
            raw: Some(260),
            capped_by: vec!["largest node".into()],
            tier: "own".into(),
            rule: "goal".into(),
            image: "docker.io/library/web:1".into(),
            ..v1::Recommendation::default()
        };
        Stored::write_for_tests(&file, vec![kept], WallClock::system().now_usec() - 60_000_000);
        let (store, _) = Store::open(&config.store()).unwrap();
        let (engine, threads) = Engine::start(store, &config.store(), WallClock::system()).unwrap();
        let stored = Arc::new(Stored::open(file));
        let live = crate::config::LiveConfig::new(&config);
        let access = Arc::new(Access::new(&config, WallClock::system(), None));
        let gates = Default::default();
        let audit = Audit::open(&config.audit_dir(), config.audit.max_bytes.get(), WallClock::system());
        let readiness = Arc::new(Readiness::new(&config, Arc::clone(access.tokens()), audit, None, None));
        let (asking, ready) = (Arc::clone(&access), Arc::clone(&readiness));
        let context = Context::new(engine, &live, Arc::clone(&stored), gates, asking, ready).unwrap();
        let site = Site::new(readiness, stored, WallClock::system());
        site.open(context.clone());
        let api = Api { late: site.late(), stopping: watch::channel(false).1 };
        Self { context, api, access, site, threads, _dir: dir }
    }

    /// Holds the state until what is returned is dropped.
    fn hold(&self) -> mpsc::Sender<()> {
        let (release, released) = mpsc::channel::<()>();
        let (held, is_held) = mpsc::channel();
        let state = self.context.engine.state().clone();
        thread::spawn(move || {
            let _state = state.write();
            held.send(()).unwrap();
            // It ends when the sender is gone.
            let _gone = released.recv();
        });
        is_held.recv().unwrap();
        release
    }

    /// The answer to one who asks again, since on a busy machine the part of the deadline that is left for what was kept may
    /// be too short.
    async fn answer(&self, pod: &str) -> v1::RecommendPodResponse {
        for _ in 1..ATTEMPTS {
            if let Ok(answer) = self.call(pod, &[]).await {
                return answer;
            }
        }
        self.call(pod, &[]).await.unwrap()
    }

    async fn call(&self, pod: &str, rules: &[&str]) -> Result<v1::RecommendPodResponse, tonic::Status> {
        let rules = rules.iter().map(|rule| (*rule).to_owned()).collect();
        let mut request = tonic::Request::new(v1::RecommendPodRequest { pod: pod.to_owned(), rules });
        request.metadata_mut().insert("grpc-timeout", DEADLINE.parse().unwrap());
        request.extensions_mut().insert(self.access.identify(Some(&ROOT), None).await.unwrap());
        self.api.recommend_pod(request).await.map(tonic::Response::into_inner)
    }

    async fn post(&self, path: &str, pod: &str) -> (u16, Value) {
        let router = self.site.router(&self.context.config.now(), &self.access);
        let request =
            axum::http::Request::post(path).extension(ROOT).body(Body::from(pod.to_owned())).unwrap();
        let response = router.oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    fn policy(&self, more: &str) {
        let text = format!(
            r#"{{"apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": {{"name": "p", "namespace": "shop"}},
                "spec": {{"target": {{}}{more}}}}}"#
        );
        let ticket = Ticket::own(self.context.readiness.audit(), "a test", "test");
        self.context.policies.apply(&text, 1, &ticket).unwrap();
    }
}

fn pod(workload: &str, image: &str) -> String {
    format!(
        r#"{{"metadata": {{"name": "p", "namespace": "shop",
                "ownerReferences": [{{"kind": "Deployment", "name": "{workload}", "controller": true}}]}},
            "spec": {{"containers": [{{"name": "main", "image": "{image}"}}]}}}}"#
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_cannot_wait_is_given_what_was_kept_and_told_its_age() {
    let rig = Rig::new();
    let held = rig.hold();
    let answer = rig.answer(&pod("web", "web:2")).await;
    let cpu = &answer.recommendations[0];
    assert!(answer.cached && !answer.loading);
    assert_eq!((cpu.request, cpu.raw, cpu.rule.as_str()), (Some(250), Some(260), "goal"));
    assert_eq!(
        (cpu.tier.as_str(), cpu.capped_by.as_slice()),
        ("own", ["largest node".to_owned()].as_slice())
    );
    assert!(cpu.age_seconds >= 60, "{cpu:?}");
    assert_eq!(answer.containers[0].resources.unwrap().cpu_request_milli, Some(250));
    assert_eq!((answer.recommendations[1].request, answer.recommendations[1].tier.as_str()), (None, "none"));
    // Another workload of the same image is not "own".
    let answer = rig.answer(&pod("new", "web:1")).await;
    assert_eq!(
        (answer.recommendations[0].request, answer.recommendations[0].tier.as_str()),
        (Some(250), "image:tag")
    );
    // Nothing is kept of it, or the rule that is wanted may be another.
    for (image, rules) in [("other:1", [].as_slice()), ("web:1", ["vpa"].as_slice())] {
        let late = rig.call(&pod("new", image), rules).await.unwrap_err();
        assert_eq!(late.code(), tonic::Code::DeadlineExceeded, "{late:?}");
    }
    let mut tries = 1..ATTEMPTS;
    let (status, body) = loop {
        let answer = rig.post("/recommendedPodResources?timeout=500ms", &pod("web", "web:1")).await;
        if answer.0 != 504 || tries.next().is_none() {
            break answer;
        }
    };
    assert_eq!((status, &body["evenkeel"]["cached"]), (200, &Value::Bool(true)), "{body}");
    assert_eq!(body["containers"][0]["resources"]["requests"]["cpu"], "250m");
    assert!(body["containers"][0]["evenkeel"]["cpu"]["ageSeconds"].as_u64() >= Some(60), "{body}");
    let (status, body) = rig.post("/recommendedPodResources?timeout=500ms", &pod("new", "other:1")).await;
    assert_eq!(status, 504, "{body}");
    assert_eq!(rig.post("/recommendedPodResources?timeout=soon", &pod("web", "web:1")).await.0, 400);
    assert_eq!(rig.context.advisor.late.load(Ordering::Relaxed), 3);
    // With time again, the answer is fresh: nothing is known.
    drop(held);
    let answer = rig.answer(&pod("web", "web:2")).await;
    assert!(!answer.cached && answer.recommendations[0].request.is_none());
    rig.threads.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_and_the_switch_hold_for_what_was_kept() {
    let rig = Rig::new();
    rig.policy(
        r#", "resourcesPolicy": {"containers": [{"name": "*", "requests": {"cpu": {"max": "100m"}}}]}"#,
    );
    let held = rig.hold();
    let answer = rig.answer(&pod("web", "web:1")).await;
    assert_eq!((answer.policy.as_str(), answer.recommendations[0].request), ("shop/p", Some(100)));
    assert_eq!(answer.recommendations[0].capped_by, ["policy max", "largest node"]);
    assert_eq!(answer.containers[0].resources.unwrap().cpu_request_milli, Some(100));
    rig.policy(r#", "updatePolicy": {"mode": "off"}"#);
    let answer = rig.answer(&pod("web", "web:1")).await;
    assert_eq!(answer.containers[0].resources.unwrap().cpu_request_milli, None);
    rig.policy("");
    drop(held);
    rig.context.engine.set_panic(evenkeel_model::panic::Panic::Freeze, "drill".into()).await.unwrap();
    let held = rig.hold();
    let answer = rig.answer(&pod("web", "web:1")).await;
    assert!(answer.cached && answer.panic && !answer.in_place);
    assert_eq!(answer.recommendations[0].request, Some(250));
    assert_eq!(answer.containers[0].resources.unwrap().cpu_request_milli, None);
    drop(held);
    rig.threads.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_needs_no_waiting_is_answered_at_once() {
    let rig = Rig::new();
    let at_once = |pod: &str| rig.context.pod_at_once(&pod::read(pod).unwrap()).is_some();
    let web = pod("web", "web:1");
    assert!(!at_once(&web), "the policies were not put together yet");
    rig.answer(&web).await;
    assert!(at_once(&web));
    let many: Vec<String> = (0..=AT_ONCE).map(|i| format!(r#"{{"name": "c{i}"}}"#)).collect();
    assert!(!at_once(&format!(r#"{{"spec": {{"containers": [{}]}}}}"#, many.join(","))));
    // Rules that ask for minutes may read files.
    rig.policy(r#", "rule": "vpa""#);
    rig.answer(&web).await;
    assert!(!at_once(&web));
    rig.policy("");
    rig.answer(&web).await;
    let held = rig.hold();
    assert!(!at_once(&web));
    drop(held);
    rig.threads.stop();
}

#[test]
fn deadlines_of_calls_are_read_as_grpc_writes_them() {
    let table = [
        ("1H", Some(3_600_000_000)),
        ("2M", Some(120_000_000)),
        ("3S", Some(3_000_000)),
        ("250m", Some(250_000)),
        ("99999999u", Some(99_999_999)),
        ("5000n", Some(5)),
        ("100000000u", None),
        ("S", None),
        ("", None),
        ("1.5S", None),
        ("-1S", None),
        ("1s", None),
        ("1é", None),
    ];
    for (text, micros) in table {
        let mut metadata = MetadataMap::new();
        let Ok(value) = text.parse() else { continue };
        metadata.insert("grpc-timeout", value);
        assert_eq!(of_call(&metadata), micros.map(Duration::from_micros), "{text}");
    }
    assert_eq!(of_call(&MetadataMap::new()), None);
}
