//! Suite `hostile`: callers whom a Kubernetes API server knows. A pod's token speaks for the node that the pod runs on and no other;
//! what the API server never approved is nobody; its silence takes nothing from those it knew, and lets in nobody else.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use common::apiserver::{ApiServer, Mood, OWN, made_up};
use common::{Running, http_on, until};
use evenkeel_proto::bearer::Bearer;
use evenkeel_proto::v1;
use evenkeel_proto::v1::ingest_service_client::IngestServiceClient;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_proto::v1::stream_request::Message as Asked;
use evenkeel_proto::v1::stream_response::Message as Said;
use evenkeel_recommender::config::{Config, Span};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

const AGENT: &str = "system:serviceaccount:evenkeel:evenkeel-agent";

/// A recommender of a cluster.
struct Cluster {
    api: ApiServer,
    running: Running,
    grpc: SocketAddr,
    http: SocketAddr,
}

impl Cluster {
    async fn start(dir: &Path, adjust: impl FnOnce(&mut Config)) -> Self {
        let api = ApiServer::start().await;
        let running = Running::start(dir, |config: &mut Config| {
            config.serve.grpc = Some(([127, 0, 0, 1], 0).into());
            config.serve.http = config.serve.grpc;
            config.access.tokens = dir.join("tokens.toml");
            let kubernetes = &mut config.kubernetes;
            kubernetes.enabled = true;
            kubernetes.kubeconfig = api.kubeconfig(dir);
            kubernetes.cluster = "test".into();
            adjust(config);
        })
        .await;
        let (Some(grpc), Some(http)) = running.tcp else { panic!("it has addresses") };
        Self { api, running, grpc, http }
    }

    async fn channel(&self) -> Channel {
        Endpoint::from_shared(format!("http://{}", self.grpc)).unwrap().connect().await.unwrap()
    }

    async fn line(&self, token: &str) -> InterceptedService<Channel, Bearer> {
        InterceptedService::new(self.channel().await, Bearer::of(token).unwrap())
    }

    /// A stream on which Hello was said as a node, and answered.
    async fn stream(&self, token: &str, node: &str) -> Result<Open, Status> {
        let (requests, receiver) = mpsc::channel(4);
        let mut client = IngestServiceClient::new(self.line(token).await);
        requests.send(hello(node)).await.unwrap();
        let mut answers = client.stream(ReceiverStream::new(receiver)).await?.into_inner();
        let first = answers.message().await?.and_then(|answer| answer.message);
        let Some(Said::Resume(resume)) = first else { panic!("{first:?}") };
        Ok(Open { requests, answers, token_ends: resume.token_ends })
    }

    async fn code(&self, token: &str, node: &str) -> Option<Code> {
        self.stream(token, node).await.err().map(|status| status.code())
    }

    async fn view(&self, token: &str, namespace: &str) -> Result<(), Status> {
        let mut client = RecommenderServiceClient::new(self.line(token).await);
        let asked = v1::ListRecommendationsRequest { namespace: namespace.to_owned(), ..Default::default() };
        client.list_recommendations(asked).await.map(drop)
    }

    async fn web(&self, token: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        let lines = format!("Authorization: Bearer {token}\r\nContent-Type: application/json\r\n");
        http_on(TcpStream::connect(self.http).await.unwrap(), method, path, &lines, body).await
    }
}

/// An open stream.
struct Open {
    requests: mpsc::Sender<v1::StreamRequest>,
    answers: Streaming<v1::StreamResponse>,
    token_ends: u64,
}

impl Open {
    async fn renew(&mut self, token: &str) -> v1::Renewed {
        let message = Some(Asked::Renewal(v1::Renewal { token: token.to_owned() }));
        self.requests.send(v1::StreamRequest { message }).await.unwrap();
        loop {
            if let Some(Said::Renewed(renewed)) = self.answers.message().await.unwrap().unwrap().message {
                return renewed;
            }
        }
    }

    /// Whether it is still heard.
    async fn lives(&mut self, node: &str) -> Result<(), Status> {
        self.requests.send(hello(node)).await.map_err(|_| Status::unauthenticated("gone"))?;
        loop {
            if let Some(Said::Resume(_)) = self.answers.message().await?.and_then(|answer| answer.message) {
                return Ok(());
            }
        }
    }

    async fn end(&mut self) -> Status {
        loop {
            match self.answers.message().await {
                Ok(answer) => assert!(answer.is_some(), "it ends with a reason"),
                Err(status) => return status,
            }
        }
    }
}

fn hello(node: &str) -> v1::StreamRequest {
    let hello = v1::Hello { cluster: "test".into(), node: node.into(), epoch: 7, ..v1::Hello::default() };
    v1::StreamRequest { message: Some(Asked::Hello(hello)) }
}

fn now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs()
}

/// Answers hold for a second, and are waited for as long as a test may.
fn quick(config: &mut Config) {
    config.kubernetes.answers_hold = Span::from_secs(1);
    config.kubernetes.timeout = Span::from_millis(300);
}

/// What is said after the answers that are known now hold no more.
async fn later() {
    tokio::time::sleep(Duration::from_millis(1100)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pods_token_speaks_for_its_own_node_alone() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path(), |_| {}).await;
    let api = &cluster.api;
    let mine = api.agent("n1", 3600);
    let mut stream = cluster.stream(&mine, "n1").await.unwrap();
    assert!(stream.token_ends > now() + 3000);
    stream.lives("n1").await.unwrap();
    let other = cluster.stream(&mine, "n2").await.err().unwrap();
    assert_eq!(other.code(), Code::PermissionDenied, "{other}");
    assert!(other.message().contains("is for node test/n1"), "{other}");

    let bound = [("node-name", "n1"), ("pod-name", "x"), ("pod-uid", "u1")];
    let neighbour = api.token("system:serviceaccount:shop:web", &["evenkeel"], 3600, &bound);
    for (what, token, code) in [
        ("of another account on the node", neighbour, Code::PermissionDenied),
        ("for another audience", api.token(AGENT, &["vault"], 3600, &bound), Code::Unauthenticated),
        ("for the API server", api.token(AGENT, &[OWN], 3600, &bound), Code::Unauthenticated),
        ("bound to nothing", api.token(AGENT, &["evenkeel"], 3600, &[]), Code::Unauthenticated),
        (
            "of an account of the same name",
            api.token("evenkeel-agent", &["evenkeel"], 3600, &bound),
            Code::PermissionDenied,
        ),
        ("made up", made_up(&["evenkeel"], 3600), Code::Unauthenticated),
        ("no token", "evk_0".to_owned(), Code::Unauthenticated),
    ] {
        assert_eq!(cluster.code(&token, "n1").await, Some(code), "{what}");
    }
    // What was claimed and what is expected is told to whoever holds the token.
    let vault = cluster.stream(&api.token(AGENT, &["vault"], 3600, &bound), "n1").await.err().unwrap();
    for word in ["for \"vault\"", "for \"evenkeel\"", "kubernetes.audience"] {
        assert!(vault.message().contains(word), "{vault}");
    }
    let over = api.agent("n1", -1);
    assert_eq!(cluster.code(&over, "n1").await, Some(Code::Unauthenticated));
    assert!(!api.saw(&over) && !api.saw("evk_0"), "what cannot be is not asked about");
    stream.lives("n1").await.unwrap();
    cluster.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_kubernetes_1_30_the_pod_says_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path(), |_| {}).await;
    let api = &cluster.api;
    api.runs("agent-a", "u1", "n1");
    let bound =
        |pod: &str, uid: &str| api.token(AGENT, &["evenkeel"], 3600, &[("pod-name", pod), ("pod-uid", uid)]);
    assert_eq!(cluster.code(&bound("agent-a", "u1"), "n1").await, None);
    assert_eq!(cluster.code(&bound("agent-a", "u1"), "n2").await, Some(Code::PermissionDenied));
    // A pod of the same name that was there before, and one that is gone.
    assert_eq!(cluster.code(&bound("agent-a", "u0"), "n1").await, Some(Code::Unauthenticated));
    assert_eq!(cluster.code(&bound("agent-b", "u1"), "n1").await, Some(Code::Unauthenticated));
    cluster.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_takes_nothing_from_those_who_were_known_and_lets_in_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path(), quick).await;
    let api = &cluster.api;
    let (known, short) = (api.agent("n1", 3600), api.agent("n2", 6));
    let (unknown, forged) = (api.agent("n3", 3600), made_up(&["evenkeel"], 3600));
    assert_eq!(cluster.code(&known, "n1").await, None);
    assert_eq!(cluster.code(&short, "n2").await, None);
    for mood in [Mood::Silent, Mood::Fails(500), Mood::Fails(403), Mood::Slow(Duration::from_secs(5))] {
        api.is(mood);
        later().await;
        assert_eq!(cluster.code(&known, "n1").await, None, "{mood:?}");
        for token in [&unknown, &forged] {
            let refused = cluster.stream(token, "n3").await.err().unwrap();
            assert_eq!(refused.code(), Code::Unavailable, "{mood:?}: {refused}");
            let (status, text) = cluster.web(token, "GET", "/api/v1/nodes", "").await;
            assert_eq!(status, 503, "{mood:?}: {text}");
        }
    }
    // The end of a token is its end.
    until(|| async { (cluster.code(&short, "n2").await == Some(Code::Unauthenticated)).then_some(()) }).await;
    api.is(Mood::Well);
    assert_eq!(cluster.code(&unknown, "n3").await, None);
    assert_eq!(cluster.code(&forged, "n3").await, Some(Code::Unauthenticated));
    api.is(Mood::Silent);
    later().await;
    assert_eq!(cluster.code(&forged, "n3").await, Some(Code::Unavailable), "it was never good");
    cluster.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_api_server_takes_back_ends() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path(), quick).await;
    let token = cluster.api.agent("n1", 3600);
    let mut stream = cluster.stream(&token, "n1").await.unwrap();
    cluster.api.forget(&token);
    let ended = stream.end().await;
    assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
    assert!(ended.message().contains("does not know the token"), "{ended}");
    until(|| async { (cluster.code(&token, "n1").await == Some(Code::Unauthenticated)).then_some(()) }).await;
    cluster.api.is(Mood::Silent);
    later().await;
    assert_eq!(cluster.code(&token, "n1").await, Some(Code::Unavailable), "its last answer was no");
    cluster.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_ends_with_its_token_unless_a_newer_one_of_the_same_node_came() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path(), quick).await;
    let api = &cluster.api;
    let mut ends = cluster.stream(&api.agent("n1", 4), "n1").await.unwrap();
    let mut refused = cluster.stream(&api.agent("n2", 4), "n2").await.unwrap();
    let mut renewed = cluster.stream(&api.agent("n3", 4), "n3").await.unwrap();
    let first_end = renewed.token_ends;
    assert!((now()..=now() + 5).contains(&first_end));
    // Of another node, of nobody, and of somebody who is no node.
    for token in [api.agent("n3", 3600), made_up(&["evenkeel"], 3600), api.person("anna")] {
        let said = refused.renew(&token).await;
        assert!(!said.refused.is_empty() && said.token_ends <= now() + 4, "{said:?}");
    }
    let said = renewed.renew(&api.agent("n3", 3600)).await;
    assert!(said.refused.is_empty() && said.token_ends > now() + 3000, "{said:?}");
    for stream in [&mut ends, &mut refused] {
        let ended = stream.end().await;
        assert_eq!(ended.code(), Code::Unauthenticated, "{ended}");
        assert!(ended.message().contains("time is over"), "{ended}");
    }
    until(|| async { (now() > first_end + 2).then_some(()) }).await;
    renewed.lives("n3").await.unwrap();
    cluster.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_made_up_tokens_asks_little_and_holds_up_nobody_who_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path(), |_| {}).await;
    let api = &cluster.api;
    let known = api.agent("n1", 3600);
    assert_eq!(cluster.code(&known, "n1").await, None);
    api.is(Mood::Slow(Duration::from_millis(200)));
    let (one, before) = (api.agent("n2", 3600), api.reviews());
    let asked = futures::future::join_all((0..30).map(|_| cluster.view(&one, ""))).await;
    assert!(
        asked.iter().all(|said| said.as_ref().is_err_and(|status| status.code() == Code::PermissionDenied))
    );
    assert_eq!(api.reviews(), before + 1, "one question for one token");
    api.is(Mood::Well);
    let (began, before) = (Instant::now(), api.reviews());
    let line = cluster.channel().await;
    for _ in 0..20 {
        let flood = (0..100).map(|_| {
            let mut client = RecommenderServiceClient::with_interceptor(
                line.clone(),
                Bearer::of(&made_up(&["evenkeel"], 3600)).unwrap(),
            );
            async move { client.list_nodes(v1::ListNodesRequest {}).await.map(drop) }
        });
        let refused = futures::future::join_all(flood).await;
        assert!(refused.iter().all(Result::is_err));
        assert_eq!(cluster.code(&known, "n1").await, None);
    }
    let most = 200 + 20 * (began.elapsed().as_secs() as usize + 1);
    let asked = api.reviews() - before;
    assert!(asked <= most && asked < 2000, "{asked} of at most {most}");
    cluster.running.stop().await;
}

/// Whoever has made-up tokens asked about until no more are would have kept what was his before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_keeps_nothing_that_was_taken_back() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path(), quick).await;
    let token = cluster.api.agent("n1", 3600);
    assert_eq!(cluster.code(&token, "n1").await, None);
    cluster.api.forget(&token);
    let line = cluster.channel().await;
    let flood = async {
        loop {
            let calls = (0..100).map(|_| {
                let token = Bearer::of(&made_up(&["evenkeel"], 3600)).unwrap();
                let mut client = RecommenderServiceClient::with_interceptor(line.clone(), token);
                async move { client.list_nodes(v1::ListNodesRequest {}).await.map(drop) }
            });
            let refused = futures::future::join_all(calls).await;
            assert!(refused.iter().all(Result::is_err));
        }
    };
    let later = async {
        later().await;
        cluster.code(&token, "n1").await
    };
    tokio::select! {
        () = flood => {}
        // As one of the flood, since nobody is known by it.
        said = later => assert!(matches!(said, Some(Code::Unauthenticated | Code::ResourceExhausted)), "{said:?}"),
    }
    cluster.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_have_the_roles_that_their_cluster_gives_them_by_namespace() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path(), |_| {}).await;
    let api = &cluster.api;
    api.allow("anna", "get", "recommendations", "shop");
    api.allow("anna", "update", "policies", "shop");
    for (verb, resource) in [
        ("get", "recommendations"),
        ("create", "capacityestimates"),
        ("update", "policies"),
        ("update", "panic"),
    ] {
        api.allow("root", verb, resource, "");
    }
    let (anna, root, nobody) = (api.person("anna"), api.person("root"), api.person("nobody"));
    for (token, namespace, code) in [
        (&anna, "shop", None),
        (&anna, "bank", Some(Code::PermissionDenied)),
        (&anna, "", Some(Code::PermissionDenied)),
        (&root, "bank", None),
        (&root, "", None),
        (&nobody, "shop", Some(Code::PermissionDenied)),
    ] {
        let said = cluster.view(token, namespace).await;
        assert_eq!(said.as_ref().err().map(Status::code), code, "{namespace}: {said:?}");
    }
    let refused = cluster.view(&anna, "bank").await.unwrap_err();
    let why = "Kubernetes user anna may not get recommendations.evenkeel.dev in namespace \"bank\"";
    assert!(refused.message().contains(why), "{refused}");
    assert_eq!(cluster.code(&root, "n1").await, Some(Code::PermissionDenied), "people are no nodes");

    let policy = |namespace: &str| {
        let meta = format!(r#""metadata": {{"name": "p", "namespace": "{namespace}"}}"#);
        format!(
            r#"{{"apiVersion": "evenkeel.dev/v1", "kind": "Policy", {meta}, "spec": {{"target": {{}}}}}}"#
        )
    };
    let at = |namespace: &str| format!("/api/v1/policies/{namespace}/p");
    for (token, namespace, apply, read) in [
        (&anna, "shop", 201, 200),
        (&anna, "bank", 403, 403),
        (&root, "bank", 201, 200),
        (&nobody, "shop", 403, 403),
    ] {
        let (status, text) = cluster.web(token, "POST", "/api/v1/policies", &policy(namespace)).await;
        assert_eq!(status, apply, "{namespace}: {text}");
        let (status, text) = cluster.web(token, "GET", &at(namespace), "").await;
        assert_eq!(status, read, "{namespace}: {text}");
    }
    assert_eq!(cluster.web(&anna, "GET", "/api/v1/nodes", "").await.0, 403, "nodes are of all namespaces");
    assert_eq!(cluster.web(&root, "GET", "/api/v1/nodes", "").await.0, 200);
    assert_eq!(cluster.web(&nobody, "GET", "/readyz?verbose", "").await.1, "ready\n", "no reasons");
    assert!(cluster.web(&root, "GET", "/readyz?verbose", "").await.1.contains("kubernetes: ok"));
    // Each right once, however often it is used; no longer name than a namespace has is asked about.
    let before = api.rights_asked().len();
    cluster.view(&anna, "shop").await.unwrap();
    assert!(cluster.view(&anna, &"x".repeat(64)).await.is_err());
    assert_eq!(api.rights_asked().len(), before);
    cluster.running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_right_that_is_taken_back_ends_what_rests_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path(), quick).await;
    cluster.api.allow("anna", "get", "recommendations", "");
    let anna = cluster.api.person("anna");
    let mut client = RecommenderServiceClient::new(cluster.line(&anna).await);
    let asked = v1::WatchRecommendationsRequest::default();
    let mut watched = client.watch_recommendations(asked).await.unwrap().into_inner();
    cluster.api.deny("anna");
    let ended = loop {
        match watched.message().await {
            Ok(message) => assert!(message.is_some(), "it ends with a reason"),
            Err(status) => break status,
        }
    };
    assert_eq!(ended.code(), Code::PermissionDenied, "{ended}");
    cluster.api.allow("anna", "get", "recommendations", "");
    until(|| async { cluster.view(&anna, "").await.ok() }).await;
    // What she may is known while the API server is silent; what she never asked is not.
    cluster.api.is(Mood::Silent);
    later().await;
    cluster.view(&anna, "").await.unwrap();
    assert_eq!(cluster.view(&anna, "shop").await.unwrap_err().code(), Code::Unavailable);
    cluster.running.stop().await;
}
