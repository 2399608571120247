//! Suite `hostile`: callers who are not who they should be. Strangers learn whether the program runs and nothing else, at
//! the socket and at addresses; a token does what it was given for; a web page changes nothing.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Agent, Running, http_on, until};
use evenkeel_proto::bearer::Bearer;
use evenkeel_proto::v1;
use evenkeel_proto::v1::ingest_service_client::IngestServiceClient;
use evenkeel_proto::v1::policy_service_client::PolicyServiceClient;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_recommender::config::{Config, Size};
use evenkeel_recommender::identity::Role;
use evenkeel_recommender::identity::tokens::{TokenEntry, TokenFile};
use prost::Message as _;
use prost_types::FileDescriptorSet;
use tokio::net::{TcpStream, UnixStream};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

/// The user that nobody is.
const NOBODY: u32 = 65_534;
/// Tells a copy of this test where to knock as somebody else.
const SOCKET_VARIABLE: &str = "EVENKEEL_TEST_SOCKET";
const POLICIES: &str = "/api/v1/policies";

/// Every method of every service this program serves but health, reflection, and what asks for a join token.
fn methods() -> Vec<String> {
    let set = FileDescriptorSet::decode(evenkeel_proto::DESCRIPTORS).unwrap();
    let services = set.file.iter().flat_map(|f| f.service.iter().map(move |s| (f.package(), s)));
    let ours = services.filter(|(_, service)| service.name() != "AgentService");
    let of = |(package, service): (&str, &prost_types::ServiceDescriptorProto)| {
        let path = format!("/{package}.{}", service.name());
        service.method.iter().map(move |m| format!("{path}/{}", m.name())).collect::<Vec<_>>()
    };
    ours.flat_map(of).filter(|path| !path.ends_with("EnrollService/Sign")).collect()
}

/// Every method and path of HTTP.
fn routes() -> Vec<(String, String)> {
    let document: serde_json::Value =
        serde_json::from_str(evenkeel_recommender::api::http::openapi()).unwrap();
    let mut found = Vec::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{namespace}", "shop").replace("{name}", "web");
        for method in methods.as_object().unwrap().keys().filter(|key| *key != "parameters") {
            found.push((method.to_uppercase(), path.clone()));
        }
    }
    found
}

/// What a method answers to an empty question.
async fn call(channel: &InterceptedService<Channel, Bearer>, path: &str) -> Result<(), Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await.map_err(|e| Status::unknown(e.to_string()))?;
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let request = Request::new(tokio_stream::iter([()]));
    grpc.streaming(request, PathAndQuery::try_from(path).unwrap(), codec).await.map(drop)
}

async fn channel(address: String, bearer: Bearer) -> InterceptedService<Channel, Bearer> {
    let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
    InterceptedService::new(channel, bearer)
}

/// Tokens in a file of their own, and the files with each.
struct Tokens {
    directory: PathBuf,
    file: TokenFile,
}

impl Tokens {
    fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), file: TokenFile::default() }
    }

    fn path(&self) -> PathBuf {
        self.directory.join("tokens.toml")
    }

    fn add(&mut self, name: &str, change: impl FnOnce(&mut TokenEntry)) -> String {
        let mut entry = TokenEntry {
            name: name.to_owned(),
            sha256: String::new(),
            roles: Vec::new(),
            namespaces: None,
            node: None,
            expires: None,
        };
        change(&mut entry);
        let token = self.file.add(entry).unwrap();
        fs::write(self.directory.join(name), &token).unwrap();
        self.file.write(&self.path()).unwrap();
        token
    }

    fn bearer(&self, name: &str) -> Bearer {
        Bearer::from_file(&self.directory.join(name)).unwrap()
    }
}

/// Listens at addresses, too, and knows these tokens.
async fn at_addresses(dir: &Path, tokens: &Tokens) -> (Running, SocketAddr, SocketAddr) {
    let running = Running::start(dir, |config: &mut Config| {
        config.serve.grpc = Some(([127, 0, 0, 1], 0).into());
        config.serve.http = config.serve.grpc;
        config.access.tokens = tokens.path();
    })
    .await;
    let (Some(grpc), Some(web)) = running.tcp else { panic!("it has addresses") };
    (running, grpc, web)
}

fn policy(namespace: &str) -> String {
    format!(
        r#"{{"apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": {{"name": "p", "namespace": "{namespace}"}},
            "spec": {{"target": {{}}}}}}"#
    )
}

async fn web(at: SocketAddr, method: &str, path: &str, lines: &str, body: &str) -> (u16, String) {
    http_on(TcpStream::connect(at).await.unwrap(), method, path, lines, body).await
}

/// Run by the next test as another user: knocks at everything.
#[tokio::test]
async fn knock() {
    let Some(socket) = std::env::var_os(SOCKET_VARIABLE) else { return };
    let at = format!("unix://{}", socket.to_str().unwrap());
    let channel = channel(at, Bearer::default()).await;
    for path in methods() {
        let refused = call(&channel, &path).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{path}: {refused}");
        assert!(refused.message().contains("user 65534"), "{path}: {refused}");
    }
    call(&channel, "/grpc.health.v1.Health/Check").await.unwrap();
    for (method, path) in routes() {
        let stream = UnixStream::connect(&socket).await.unwrap();
        let (status, text) = http_on(stream, &method, &path, "", "").await;
        let open = matches!(path.as_str(), "/healthz" | "/readyz");
        assert_eq!(status, if open { 200 } else { 403 }, "{method} {path}: {text}");
        assert!(!text.contains("node-1"), "{method} {path}: {text}");
    }
    let stream = UnixStream::connect(&socket).await.unwrap();
    assert_eq!(http_on(stream, "GET", "/readyz?verbose", "", "").await.1, "ready\n", "no reasons");
    let stream = UnixStream::connect(&socket).await.unwrap();
    assert_eq!(http_on(stream, "GET", "/no/such/path", "", "").await.0, 403);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_of_this_machine_is_answered_health_alone() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: being another user needs root");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
    let socket = dir.path().join("open.sock");
    let at = socket.clone();
    let running = Running::start(&state, |_| {}).await;
    // The state directory is the recommender's alone: another way to its socket.
    fs::hard_link(running.grpc.path(), &socket).unwrap();
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(2)).await;
    link.acknowledged(2).await;
    // Where this test was built, others may not look.
    let program = dir.path().join("knock");
    evenkeel_tests::stage::copied(&std::env::current_exe().unwrap(), &program).unwrap();
    for (path, mode) in [(dir.path(), 0o755), (&program, 0o755)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let knocked = tokio::task::spawn_blocking(move || {
        let mut command = Command::new(program);
        command
            .args(["--exact", "hostile_identity::knock", "--nocapture"])
            .env(SOCKET_VARIABLE, at)
            .current_dir("/");
        command.uid(NOBODY).gid(NOBODY).output().unwrap()
    });
    let knocked = knocked.await.unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&knocked.stdout), String::from_utf8_lossy(&knocked.stderr));
    assert!(knocked.status.success() && said.contains("1 passed"), "{said}");
    link.send(agent.measure(1)).await;
    link.acknowledged(3).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_answers_nobody_without_a_token_that_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let mut tokens = Tokens::new(dir.path());
    tokens.add("over", |entry| (entry.roles, entry.expires) = (Role::ALL.to_vec(), Some(1)));
    fs::write(dir.path().join("guess"), format!("evk_{}", "0".repeat(64))).unwrap();
    let (running, grpc, http) = at_addresses(dir.path(), &tokens).await;
    for bearer in [Bearer::default(), tokens.bearer("over"), tokens.bearer("guess")] {
        let channel = channel(format!("http://{grpc}"), bearer).await;
        for path in methods() {
            let refused = call(&channel, &path).await.unwrap_err();
            assert_eq!(refused.code(), Code::Unauthenticated, "{path}: {refused}");
            assert!(refused.message().contains("token"), "{path}: {refused}");
        }
    }
    for (method, path) in routes() {
        for lines in ["", "Authorization: Bearer evk_0\r\n", "Authorization: Basic cm9vdDo=\r\n"] {
            let (status, text) = web(http, &method, &path, lines, "").await;
            let open = matches!(path.as_str(), "/healthz" | "/readyz") && lines.is_empty();
            assert_eq!(status, if open { 200 } else { 401 }, "{method} {path} {lines}: {text}");
        }
    }
    assert_eq!(web(http, "GET", "/readyz?verbose", "", "").await.1, "ready\n", "no reasons");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_taken_back_ends_what_was_let_in_by_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut tokens = Tokens::new(dir.path());
    for (name, node) in [("a", "test/node-a"), ("b", "test/node-b")] {
        tokens.add(name, |entry| entry.node = Some(node.to_owned()));
    }
    tokens.add("viewer", |entry| entry.roles = vec![Role::View]);
    let (running, grpc, _) = at_addresses(dir.path(), &tokens).await;
    let line = |name: &str| channel(format!("http://{grpc}"), tokens.bearer(name));
    let watched = RecommenderServiceClient::new(line("viewer").await)
        .watch_recommendations(v1::WatchRecommendationsRequest::default())
        .await
        .unwrap();
    let stream = async |name: &str| {
        let (sender, requests) = tokio::sync::mpsc::channel(1);
        let node = format!("node-{name}");
        let hello = v1::Hello { cluster: "test".into(), node, epoch: 7, ..v1::Hello::default() };
        let message = Some(v1::stream_request::Message::Hello(hello));
        sender.send(v1::StreamRequest { message }).await.unwrap();
        let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
        let mut answers =
            IngestServiceClient::new(line(name).await).stream(requests).await.unwrap().into_inner();
        answers.message().await.unwrap().unwrap();
        (sender, answers)
    };
    let ((_open, mut taken), (kept, mut others)) = (stream("a").await, stream("b").await);
    let mut without = TokenFile::read(&tokens.path()).unwrap();
    without.token.retain(|entry| entry.name == "b");
    without.write(&tokens.path()).unwrap();
    let why = |status: Status| {
        assert_eq!(status.code(), Code::Unauthenticated, "{status}");
        assert!(status.message().contains("the token was taken back"), "{status}");
    };
    why(taken.message().await.unwrap_err());
    let mut watched = watched.into_inner();
    loop {
        match watched.message().await {
            Ok(message) => assert!(message.is_some(), "it ends with a reason"),
            Err(status) => break why(status),
        }
    }
    // The other node streams on.
    kept.send(v1::StreamRequest { message: None }).await.unwrap();
    assert_eq!(others.message().await.unwrap_err().code(), Code::InvalidArgument);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_does_what_it_was_given_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut tokens = Tokens::new(dir.path());
    let view = tokens.add("viewer", |entry| entry.roles = vec![Role::View]);
    tokens.add("shopkeeper", |entry| {
        entry.roles = vec![Role::View, Role::Apply];
        entry.namespaces = Some(["shop".to_owned()].into());
    });
    let (running, grpc, http) = at_addresses(dir.path(), &tokens).await;
    let line = |name: &str| channel(format!("http://{grpc}"), tokens.bearer(name));

    let mut viewer = RecommenderServiceClient::new(line("viewer").await);
    viewer.list_nodes(v1::ListNodesRequest {}).await.unwrap();
    let panic = v1::SetPanicRequest { on: true, reason: String::new(), revert: false };
    let refused = viewer.set_panic(panic).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("token viewer has the role view"), "{refused}");

    let mut shop = RecommenderServiceClient::new(line("shopkeeper").await);
    let list = |namespace: &str| v1::ListRecommendationsRequest {
        namespace: namespace.to_owned(),
        ..v1::ListRecommendationsRequest::default()
    };
    shop.list_recommendations(list("shop")).await.unwrap();
    for namespace in ["bank", ""] {
        let refused = shop.list_recommendations(list(namespace)).await.unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied, "{namespace}");
    }
    assert!(shop.list_nodes(v1::ListNodesRequest {}).await.is_err(), "nodes are of all namespaces");
    let usage = |namespace: &str| v1::QueryUsageRequest {
        namespace: namespace.to_owned(),
        ..v1::QueryUsageRequest::default()
    };
    shop.query_usage(usage("shop")).await.unwrap();
    assert!(shop.query_usage(usage("bank")).await.is_err());
    let series = v1::QuerySeriesRequest { namespace: "bank".into(), ..v1::QuerySeriesRequest::default() };
    assert_eq!(shop.query_series(series).await.unwrap_err().code(), Code::PermissionDenied);
    let pod = common::pod("web:1", "").replace("shop", "bank");
    let asked = v1::RecommendPodRequest { pod, rules: Vec::new() };
    assert_eq!(shop.recommend_pod(asked).await.unwrap_err().code(), Code::PermissionDenied);

    let mut policies = PolicyServiceClient::new(line("shopkeeper").await);
    for (namespace, code) in [("shop", None), ("bank", Some(Code::PermissionDenied))] {
        let applied = v1::ApplyRequest { policy: policy(namespace), dry_run: false };
        assert_eq!(policies.apply(applied).await.err().map(|e| e.code()), code, "{namespace}");
        let got = v1::GetRequest { namespace: namespace.into(), name: "p".into(), ..Default::default() };
        assert_eq!(policies.get(got).await.err().map(|e| e.code()), code, "{namespace}");
        let listed = v1::ListRequest { namespace: namespace.into() };
        assert_eq!(policies.list(listed).await.err().map(|e| e.code()), code, "{namespace}");
        let deleted =
            v1::DeleteRequest { namespace: namespace.into(), name: "p".into(), ..Default::default() };
        assert_eq!(policies.delete(deleted).await.err().map(|e| e.code()), code, "{namespace}");
    }

    let shopkeeper = fs::read_to_string(dir.path().join("shopkeeper")).unwrap();
    let json = format!("Authorization: Bearer {shopkeeper}\r\nContent-Type: application/json\r\n");
    for (method, path, body, want) in [
        ("POST", POLICIES, policy("shop"), 201),
        ("POST", POLICIES, policy("bank"), 403),
        ("PUT", "/api/v1/policies/bank/p", policy("bank"), 403),
        ("GET", "/api/v1/policies/bank/p", String::new(), 403),
        ("GET", "/api/v1/policies?namespace=bank", String::new(), 403),
        ("GET", "/api/v1/recommendations", String::new(), 403),
        ("GET", "/api/v1/recommendations?namespace=shop", String::new(), 200),
        ("GET", "/api/v1/usage?namespace=bank", String::new(), 403),
        ("GET", "/api/v1/usage/series?namespace=bank&resource=cpu", String::new(), 403),
        ("POST", "/recommendedPodResources", common::pod("web:1", "").replace("shop", "bank"), 403),
        ("GET", "/metrics", String::new(), 403),
        ("DELETE", "/api/v1/policies/bank/p", String::new(), 403),
        ("DELETE", "/api/v1/policies/shop/p", String::new(), 204),
    ] {
        let (status, text) = web(http, method, path, &json, &body).await;
        assert_eq!(status, want, "{method} {path}: {text}");
    }
    // Taken back while it is used.
    tokens.file.token.retain(|entry| entry.name != "viewer");
    tokens.file.write(&tokens.path()).unwrap();
    let lines = format!("Authorization: Bearer {view}\r\n");
    until(|| async { (web(http, "GET", "/api/v1/nodes", &lines, "").await.0 == 401).then_some(()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_speaks_for_itself_whatever_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let mut tokens = Tokens::new(dir.path());
    tokens.add("node", |entry| entry.node = Some("test/node-1".into()));
    tokens.add("fleet", |entry| entry.node = Some("test/*".into()));
    tokens.add("operator", |entry| entry.roles = Role::ALL.to_vec());
    let (running, grpc, _) = at_addresses(dir.path(), &tokens).await;
    // A node whose name nobody else is told.
    let mut secret = Agent::on("node-secret", 7, &["web:1"]).connect(running.grpc).await;
    secret.send(Vec::new()).await;
    let hello = |cluster: &str, node: &str| v1::StreamRequest {
        message: Some(v1::stream_request::Message::Hello(v1::Hello {
            cluster: cluster.into(),
            node: node.into(),
            epoch: 7,
            ..v1::Hello::default()
        })),
    };
    for (token, cluster, node, welcome) in [
        ("node", "test", "node-1", true),
        ("node", "test", "node-secret", false),
        ("node", "test", "node-unknown", false),
        ("node", "other", "node-1", false),
        ("fleet", "test", "node-9", true),
        ("fleet", "other", "node-9", false),
        ("operator", "test", "node-1", false),
    ] {
        let line = channel(format!("http://{grpc}"), tokens.bearer(token)).await;
        let mut client = IngestServiceClient::new(line);
        let (sender, requests) = tokio::sync::mpsc::channel(1);
        sender.send(hello(cluster, node)).await.unwrap();
        let answered = client.stream(tokio_stream::wrappers::ReceiverStream::new(requests)).await;
        let said = match answered {
            Ok(stream) => stream.into_inner().message().await,
            Err(status) => Err(status),
        };
        match said {
            Ok(message) => assert!(welcome && message.is_some(), "{token} as {cluster}/{node}"),
            Err(status) => {
                assert!(!welcome, "{token} as {cluster}/{node}: {status}");
                assert_eq!(status.code(), Code::PermissionDenied, "{status}");
                // The same whether there is such a node.
                assert_eq!(status.message().contains("secret"), node.contains("secret"), "{status}");
            }
        }
    }
    // Nor does it see what others use.
    let line = channel(format!("http://{grpc}"), tokens.bearer("node")).await;
    for path in methods().into_iter().filter(|path| !path.contains("IngestService")) {
        assert_eq!(call(&line, &path).await.unwrap_err().code(), Code::PermissionDenied, "{path}");
    }
    drop(secret);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_web_page_changes_nothing_and_no_name_is_rebound() {
    let dir = tempfile::tempdir().unwrap();
    let mut tokens = Tokens::new(dir.path());
    let token = tokens.add("browser", |entry| entry.roles = Role::ALL.to_vec());
    let (running, _, http) = at_addresses(dir.path(), &tokens).await;
    let body = policy("shop");
    let json = "Content-Type: application/json\r\n";
    let own = format!("http://{http}");
    // As if a browser sent the credential by itself.
    let table = [
        (json.to_owned(), 201),
        ("Content-Type: application/yaml; charset=utf-8\r\n".to_owned(), 200),
        (String::new(), 415),
        ("Content-Type: text/plain\r\n".to_owned(), 415),
        ("Content-Type: application/x-www-form-urlencoded\r\n".to_owned(), 415),
        ("Content-Type: multipart/form-data; boundary=x\r\n".to_owned(), 415),
        ("Content-Type: text/plain; application/json\r\n".to_owned(), 415),
        (format!("{json}Origin: http://evil.example\r\n"), 403),
        (format!("{json}Origin: null\r\n"), 403),
        (format!("{json}Origin: {own}.evil.example\r\n"), 403),
        (format!("{json}Sec-Fetch-Site: cross-site\r\n"), 403),
        (format!("{json}Sec-Fetch-Site: same-site\r\n"), 403),
        (format!("{json}Host: evil.example\r\n"), 421),
        (format!("{json}Host: evil.example\r\nOrigin: http://evil.example\r\n"), 421),
        (format!("{json}Host: {http}\r\nOrigin: {own}\r\nSec-Fetch-Site: same-origin\r\n"), 200),
    ];
    for (lines, want) in table {
        let lines = format!("Authorization: Bearer {token}\r\n{lines}");
        let (status, text) = web(http, "POST", POLICIES, &lines, &body).await;
        assert_eq!(status, want, "{lines}: {text}");
    }
    // A name of somebody else's that points here reads nothing, either.
    for path in ["/metrics", "/healthz", "/api/v1/nodes", "/openapi.json"] {
        let lines = format!("Authorization: Bearer {token}\r\nHost: rebound.example:9521\r\n");
        let (status, text) = web(http, "GET", path, &lines, "").await;
        assert!(status == 421 && text.contains("serve.hosts"), "{path}: {status} {text}");
    }
    // Nor by a proxy to the socket.
    let stream = running.http.connect().await.unwrap();
    let lines = "Content-Type: text/plain\r\nOrigin: http://evil.example\r\n";
    assert_eq!(http_on(stream, "POST", POLICIES, lines, &body).await.0, 403);
    running.stop().await;
}

/// Says Hello with a credential: the open stream's first answer, or why there is none.
async fn greet(
    at: SocketAddr,
    bearer: Bearer,
    node: &str,
    epoch: u64,
) -> Result<
    (v1::Resume, tokio::sync::mpsc::Sender<v1::StreamRequest>, tonic::Streaming<v1::StreamResponse>),
    Status,
> {
    let mut client = IngestServiceClient::new(channel(format!("http://{at}"), bearer).await);
    let (sender, requests) = tokio::sync::mpsc::channel(8);
    let hello = v1::Hello { cluster: "test".into(), node: node.into(), epoch, ..v1::Hello::default() };
    let message = Some(v1::stream_request::Message::Hello(hello));
    sender.send(v1::StreamRequest { message }).await.unwrap();
    let mut answers =
        client.stream(tokio_stream::wrappers::ReceiverStream::new(requests)).await?.into_inner();
    loop {
        let answer = answers.message().await?.ok_or_else(|| Status::unknown("no answer"))?;
        if let Some(v1::stream_response::Message::Resume(resume)) = answer.message {
            return Ok((resume, sender, answers));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_epoch_is_of_the_identity_that_opened_it_and_told_to_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut tokens = Tokens::new(dir.path());
    tokens.add("node", |entry| entry.node = Some("test/node-1".into()));
    tokens.add("renewed", |entry| entry.node = Some("test/node-1".into()));
    tokens.add("fleet", |entry| entry.node = Some("test/*".into()));
    tokens.add("other-fleet", |entry| entry.node = Some("test/*".into()));
    tokens.add("viewer", |entry| entry.roles = vec![Role::View]);
    let state = dir.path().join("state");
    fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
    let (running, grpc, http) = at_addresses(&state, &tokens).await;

    let (_, sender, mut answers) = greet(grpc, tokens.bearer("fleet"), "node-1", 7).await.unwrap();
    let frames = Agent::new(7, &["web:1"]).measure(5);
    let message = Some(v1::stream_request::Message::Frames(v1::Frames { frames: frames.clone() }));
    sender.send(v1::StreamRequest { message }).await.unwrap();
    while !matches!(
        answers.message().await.unwrap().unwrap().message,
        Some(v1::stream_response::Message::Ack(ack)) if ack.last_seq == 5
    ) {}
    drop((sender, answers));

    // The same epoch under another identity, as somebody would who has recorded it: nothing is counted, nothing told.
    let refused = greet(grpc, tokens.bearer("other-fleet"), "node-1", 7).await.unwrap_err();
    assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
    assert!(!refused.message().contains('5') && !refused.message().contains("fleet"), "{refused}");
    assert_eq!(greet(grpc, tokens.bearer("fleet"), "node-1", 7).await.unwrap().0.last_seq, 5);
    // The node's own credential is above those of all nodes, and may be replaced.
    assert_eq!(greet(grpc, tokens.bearer("node"), "node-1", 7).await.unwrap().0.last_seq, 5);
    assert_eq!(greet(grpc, tokens.bearer("renewed"), "node-1", 7).await.unwrap().0.last_seq, 5);
    assert_eq!(
        greet(grpc, tokens.bearer("fleet"), "node-1", 7).await.unwrap_err().code(),
        Code::AlreadyExists
    );

    let mut viewer =
        RecommenderServiceClient::new(channel(format!("http://{grpc}"), tokens.bearer("viewer")).await);
    let nodes = viewer.list_nodes(v1::ListNodesRequest {}).await.unwrap().into_inner().nodes;
    assert_eq!((nodes.len(), nodes[0].epoch, nodes[0].last_seq, nodes[0].frames), (1, 0, 0, 5));
    let lines =
        format!("Authorization: Bearer {}\r\n", fs::read_to_string(dir.path().join("viewer")).unwrap());
    let (_, text) = web(http, "GET", "/api/v1/nodes", &lines, "").await;
    assert!(text.contains("node-1") && !text.contains("epoch") && !text.contains("lastSeq"), "{text}");
    running.stop().await;

    // Whose it is outlives a restart.
    let (running, grpc, _) = at_addresses(&state, &tokens).await;
    assert_eq!(
        greet(grpc, tokens.bearer("fleet"), "node-1", 7).await.unwrap_err().code(),
        Code::AlreadyExists
    );
    assert_eq!(greet(grpc, tokens.bearer("node"), "node-1", 7).await.unwrap().0.last_seq, 5);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_agents_of_one_name_the_older_stays_while_it_lives_and_turns_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let mut tokens = Tokens::new(dir.path());
    tokens.add("node", |entry| entry.node = Some("test/node-1".into()));
    let state = dir.path().join("state");
    fs::DirBuilder::new().mode(0o700).create(&state).unwrap();
    let (running, grpc, _) = at_addresses(&state, &tokens).await;
    let newer = |epoch| greet(grpc, tokens.bearer("node"), "node-1", epoch);
    let (_, sender, mut answers) = newer(1).await.unwrap();
    let pongs = sender.clone();
    let answering = tokio::spawn(async move {
        for _ in 0..3 {
            loop {
                let answer = answers.message().await.unwrap().unwrap();
                if matches!(answer.message, Some(v1::stream_response::Message::Ping(_))) {
                    break;
                }
            }
            let message = Some(v1::stream_request::Message::Pong(v1::Pong {}));
            pongs.send(v1::StreamRequest { message }).await.unwrap();
        }
        answers
    });
    for epoch in 2..5 {
        let refused = newer(epoch).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains("node.name"), "{refused}");
    }
    let mut answers = answering.await.unwrap();
    let metrics = common::http(running.http, "GET", "/metrics", "").await.1;
    for line in ["refused_rivals_total 3", "contested_nodes 1"] {
        assert!(metrics.contains(&format!("evenkeel_recommender_{line}\n")), "{metrics}");
    }
    let (status, ready) = common::http(running.http, "GET", "/readyz?verbose", "").await;
    assert!(status == 200 && ready.contains("test/node-1") && ready.contains("node.name"), "{ready}");

    // One that says nothing any more makes way.
    let taken = newer(9).await.unwrap();
    assert_eq!(taken.0.last_seq, 0);
    let ended = loop {
        match answers.message().await {
            Ok(Some(_)) => {}
            other => break other.unwrap_err(),
        }
    };
    assert_eq!(ended.code(), Code::Aborted, "{ended}");
    drop(sender);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_asks_too_much_waits_and_the_others_do_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut tokens = Tokens::new(dir.path());
    tokens.add("greedy", |entry| entry.roles = vec![Role::View]);
    tokens.add("modest", |entry| entry.roles = vec![Role::View]);
    tokens.add("large", |entry| entry.roles = vec![Role::View]);
    let path = tokens.path();
    let running = Running::start(dir.path(), |config: &mut Config| {
        config.serve.grpc = Some(([127, 0, 0, 1], 0).into());
        config.serve.http = config.serve.grpc;
        config.access.tokens = path;
        config.access.requests_per_second = 1;
    })
    .await;
    let (Some(grpc), Some(http)) = running.tcp else { panic!("it has addresses") };
    let lines = |name: &str| {
        format!("Authorization: Bearer {}\r\n", fs::read_to_string(dir.path().join(name)).unwrap())
    };
    let ask = |name: &'static str| {
        let lines = lines(name);
        async move { web(http, "GET", "/api/v1/nodes", &lines, "").await }
    };
    let mut answers = Vec::new();
    for _ in 0..40 {
        answers.push(ask("greedy").await.0);
    }
    // Ten at once, and one for each second that this took.
    let served = answers.iter().filter(|status| **status == 200).count();
    assert!((10..40).contains(&served) && answers.contains(&429), "{answers:?}");
    let (status, text) = ask("greedy").await;
    if status == 429 {
        assert!(text.contains("access.requests_per_second"), "{text}");
    }
    assert_eq!(ask("modest").await.0, 200, "others do not wait");
    let mut greedy =
        RecommenderServiceClient::new(channel(format!("http://{grpc}"), tokens.bearer("greedy")).await);
    let mut refused = None;
    for _ in 0..40 {
        refused = greedy.list_nodes(v1::ListNodesRequest {}).await.err().or(refused);
    }
    let refused = refused.unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.metadata().get("retry-after").is_some(), "{refused:?}");
    // Large requests are many, though gRPC does not tell their length before.
    let mut large =
        RecommenderServiceClient::new(channel(format!("http://{grpc}"), tokens.bearer("large")).await);
    let mut said = Vec::new();
    for _ in 0..6 {
        let asked = v1::RecommendPodRequest { pod: "x".repeat(1 << 20), rules: Vec::new() };
        said.push(large.recommend_pod(asked).await.unwrap_err());
    }
    let limited = |status: &Status| status.message().contains("access.requests_per_second");
    assert!(!limited(&said[0]) && said.iter().any(limited), "{said:?}");
    // Whoever is nobody has a bound, too, and health none.
    let mut strangers = Vec::new();
    for _ in 0..40 {
        strangers.push(web(http, "GET", "/api/v1/nodes", "", "").await.0);
        assert_eq!(web(http, "GET", "/healthz", "", "").await.0, 200);
    }
    assert!(strangers.contains(&401) && strangers.contains(&429), "{strangers:?}");
    let metrics = common::http(running.http, "GET", "/metrics", "").await.1;
    let limited =
        metrics.lines().find(|line| line.starts_with("evenkeel_recommender_limited_requests_total "));
    assert!(limited.is_some_and(|line| !line.ends_with(" 0")), "{limited:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_takes_no_place_of_the_others_and_its_bytes_count_over_connections() {
    let dir = tempfile::tempdir().unwrap();
    let mut tokens = Tokens::new(dir.path());
    tokens.add("greedy", |entry| entry.node = Some("test/node-1".into()));
    tokens.add("modest", |entry| entry.node = Some("test/node-2".into()));
    let path = tokens.path();
    let running = Running::start(dir.path(), |config: &mut Config| {
        config.serve.grpc = Some(([127, 0, 0, 1], 0).into());
        config.access.tokens = path;
        config.ingest.max_streams = 10;
        config.ingest.max_message = Size::from_mib(1);
        config.ingest.max_bytes_per_minute = Size::from_mib(1);
    })
    .await;
    let grpc = running.tcp.0.unwrap();
    // Streams that say nothing.
    let mut client =
        IngestServiceClient::new(channel(format!("http://{grpc}"), tokens.bearer("greedy")).await);
    let (mut open, mut refused) = (Vec::new(), None);
    for _ in 0..12 {
        let (sender, requests) = tokio::sync::mpsc::channel(1);
        match client.stream(tokio_stream::wrappers::ReceiverStream::new(requests)).await {
            Ok(answers) => open.push((sender, answers.into_inner())),
            Err(status) => refused = Some(status),
        }
    }
    let refused = refused.unwrap();
    assert_eq!((open.len(), refused.code()), (8, Code::ResourceExhausted), "{refused}");
    assert!(refused.message().contains("as many streams open as one node may"), "{refused}");
    let (_, sender, mut answers) = greet(grpc, tokens.bearer("modest"), "node-2", 2).await.unwrap();
    drop((open, client));

    let message = |frames: Vec<v1::Frame>| v1::StreamRequest {
        message: Some(v1::stream_request::Message::Frames(v1::Frames { frames })),
    };
    let acknowledged = async |answers: &mut tonic::Streaming<v1::StreamResponse>, last: u64| {
        while !matches!(
            answers.message().await.unwrap().unwrap().message,
            Some(v1::stream_response::Message::Ack(ack)) if ack.last_seq == last
        ) {}
    };
    let mut greedy = Agent::new(7, &["web:1"]);
    let mut large = greedy.measure(2);
    for frame in &mut large {
        let mut identity = large_identity();
        identity.labels.insert("a".into(), "x".repeat(600 << 10));
        frame.announced = vec![v1::Announcement { slot: 900, identity: Some(identity) }];
    }
    let again = || until(|| async { greet(grpc, tokens.bearer("greedy"), "node-1", 7).await.ok() });
    let (_, mine, mut told) = again().await;
    for (at, frame) in (1..).zip(large) {
        mine.send(message(vec![frame])).await.unwrap();
        acknowledged(&mut told, at).await;
    }
    drop((mine, told));
    // A new connection has no minute of its own.
    let (resume, mine, mut told) = again().await;
    assert_eq!(resume.last_seq, 2);
    mine.send(message(greedy.measure(1))).await.unwrap();
    sender.send(message(Agent::new(2, &["web:1"]).measure(1))).await.unwrap();
    acknowledged(&mut answers, 1).await;
    let read = tokio::time::timeout(std::time::Duration::from_secs(1), acknowledged(&mut told, 3)).await;
    assert!(read.is_err(), "it is read in the next minute");
    let metrics = common::http(running.http, "GET", "/metrics", "").await.1;
    assert!(metrics.contains("evenkeel_recommender_held_streams_total 1\n"), "{metrics}");
    running.stop().await;
}

fn large_identity() -> v1::ContainerIdentity {
    v1::ContainerIdentity {
        id: "large".into(),
        namespace: "shop".into(),
        pod: "large".into(),
        container: "main".into(),
        workload: "deployment/large".into(),
        ..v1::ContainerIdentity::default()
    }
}
