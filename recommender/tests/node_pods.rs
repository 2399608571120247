//! Suite `unit`: a node hears what the API server says of its own pods, whole and then what changes; nobody else hears it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use common::apiserver::{ApiServer, Mood};
use common::{Running, http, until};
use evenkeel_proto::bearer::Bearer;
use evenkeel_proto::pods::NodePods;
use evenkeel_proto::v1;
use evenkeel_proto::v1::ingest_service_client::IngestServiceClient;
use evenkeel_proto::v1::stream_request::Message as Asked;
use evenkeel_proto::v1::stream_response::Message as Said;
use evenkeel_recommender::config::Config;
use evenkeel_recommender::identity::tokens::{TokenEntry, TokenFile};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

const PATIENCE: Duration = Duration::from_secs(60);

fn pod(name: &str, node: &str, cpu: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1",
        "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-{name}") },
        "spec": { "nodeName": node, "containers": [{ "name": "main", "resources": { "requests": { "cpu": cpu } } }] },
        "status": { "phase": "Running", "qosClass": "Burstable" },
    })
}

async fn begun(dir: &Path, api: &ApiServer, adjust: impl FnOnce(&mut Config)) -> Running {
    Running::start(dir, |config: &mut Config| {
        config.kubernetes.view = true;
        config.kubernetes.kubeconfig = api.kubeconfig(dir);
        config.kubernetes.cluster = "test".into();
        config.policies = Vec::new();
        adjust(config);
    })
    .await
}

async fn metric(running: &Running, name: &str) -> Option<u64> {
    let (_, text) = http(running.http, "GET", "/metrics", "").await;
    let name = format!("evenkeel_recommender_{name} ");
    text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
}

/// Pods are listed, and so many are known.
async fn knows(running: &Running, pods: u64) {
    for (name, wanted) in [("kubernetes_known{kind=\"Pod\"}", 1), ("kubernetes_objects{kind=\"Pod\"}", pods)]
    {
        until(|| async { metric(running, name).await.filter(|is| *is == wanted) }).await;
    }
}

/// An agent, as far as it hears of its pods.
struct Node {
    answers: tonic::Streaming<v1::StreamResponse>,
    requests: mpsc::Sender<v1::StreamRequest>,
    known: NodePods,
    /// Cluster and node.
    of: (&'static str, &'static str),
    /// An epoch is its identity's, so that each connection has one of its own, and some to follow.
    epoch: u64,
}

/// Epochs that are in use.
static EPOCHS: AtomicU64 = AtomicU64::new(100);

fn hello(cluster: &str, node: &str, epoch: u64, pods: Option<v1::PodsKnown>) -> v1::StreamRequest {
    let hello = v1::Hello {
        cluster: cluster.into(),
        node: node.into(),
        epoch,
        version: "0".into(),
        pods,
        ..v1::Hello::default()
    };
    v1::StreamRequest { message: Some(Asked::Hello(hello)) }
}

impl Node {
    /// Connects and shakes hands.
    async fn connect(
        address: String,
        bearer: Bearer,
        cluster: &'static str,
        node: &'static str,
        known: NodePods,
        asks: bool,
    ) -> Self {
        let channel = Endpoint::from_shared(address).unwrap().connect().await.unwrap();
        let mut client = IngestServiceClient::with_interceptor(channel, bearer);
        let (requests, outgoing) = mpsc::channel(8);
        let epoch = EPOCHS.fetch_add(100, Ordering::Relaxed);
        requests.send(hello(cluster, node, epoch, asks.then(|| known.known()))).await.unwrap();
        let answers = client.stream(ReceiverStream::new(outgoing)).await.unwrap().into_inner();
        Self { answers, requests, known, of: (cluster, node), epoch }
    }

    async fn at(running: &Running, node: &'static str, known: NodePods) -> Self {
        Self::connect(running.grpc.to_string(), Bearer::default(), "test", node, known, true).await
    }

    async fn said(&mut self) -> Said {
        let answer = tokio::time::timeout(PATIENCE, self.answers.message()).await.expect("an answer");
        answer.unwrap().expect("an open stream").message.unwrap()
    }

    /// The next message about pods, which is taken in.
    async fn told(&mut self) -> v1::NodePods {
        loop {
            if let Said::Pods(pods) = self.said().await {
                self.known.take(pods.clone()).unwrap();
                return pods;
            }
        }
    }

    /// Names and CPU requests that it knows.
    fn pods(&self) -> Vec<(String, String)> {
        let cpu = |pod: &evenkeel_model::pod::PodRequirements| {
            pod.containers[0].resources.requests.cpu().map(|cpu| cpu.to_string()).unwrap_or_default()
        };
        self.known.pods().values().map(|pod| (pod.name.clone(), cpu(pod))).collect()
    }

    /// Waits until it knows this.
    async fn knows(&mut self, wanted: &[(&str, &str)]) {
        let wanted: Vec<_> =
            wanted.iter().map(|(name, cpu)| ((*name).to_owned(), (*cpu).to_owned())).collect();
        while self.pods() != wanted {
            self.told().await;
        }
    }

    /// Waits for the answer to a greeting, before which nothing may be told of pods.
    async fn resumed(&mut self, epoch: u64) {
        loop {
            match self.said().await {
                Said::Resume(resume) if resume.epoch == epoch => return,
                Said::Pods(pods) => panic!("told {pods:?}"),
                _ => {}
            }
        }
    }

    /// Pods change again and again, of which another node hears, and this one does not.
    async fn hears_nothing(&mut self, api: &ApiServer, witness: &mut Node) {
        self.resumed(self.epoch).await;
        for epoch in self.epoch + 1..self.epoch + 4 {
            // An odd number, which is written as it is.
            let cpu = format!("{}m", 2 * (epoch + witness.known.known().generation) + 1);
            api.put(pod("web", "node-1", &cpu));
            api.put(pod("other", "node-2", &cpu));
            witness.knows(&[("other", &cpu)]).await;
            let (cluster, node) = self.of;
            self.requests.send(hello(cluster, node, epoch, None)).await.unwrap();
            self.resumed(epoch).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_hears_of_its_own_pods_and_of_what_changed_since_it_heard_last() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    for object in [pod("web", "node-1", "100m"), pod("db", "node-1", "1"), pod("other", "node-2", "100m")] {
        api.put(object);
    }
    api.put(pod("waits", "", "100m"));
    let running = begun(dir.path(), &api, |_| ()).await;
    let mut node = Node::at(&running, "node-1", NodePods::default()).await;
    assert!(node.told().await.whole);
    assert_eq!(node.pods(), [("db".into(), "1".into()), ("web".into(), "100m".into())]);
    let mut other = Node::at(&running, "node-2", NodePods::default()).await;
    other.knows(&[("other", "100m")]).await;

    // A resize, a pod that is placed, and one that goes.
    api.put(pod("web", "node-1", "200m"));
    node.knows(&[("db", "1"), ("web", "200m")]).await;
    api.put(pod("waits", "node-1", "100m"));
    api.delete("/api/v1/pods", "shop", "db");
    node.knows(&[("waits", "100m"), ("web", "200m")]).await;
    assert_eq!(other.pods().len(), 1);

    // It comes back and is told what it missed.
    let known = node.known.clone();
    drop(node);
    api.put(pod("web", "node-1", "300m"));
    knows(&running, 3).await;
    let mut node = Node::at(&running, "node-1", known.clone()).await;
    let told = node.told().await;
    assert_eq!((told.whole, told.changed.len(), told.from), (false, 1, known.known().generation));
    node.knows(&[("waits", "100m"), ("web", "300m")]).await;
    // Of another run it knows nothing: everything.
    running.stop().await;
    let running = begun(dir.path(), &api, |_| ()).await;
    let mut node = Node::at(&running, "node-1", node.known).await;
    let told = node.told().await;
    assert!(told.whole && told.run != known.known().run);
    node.knows(&[("waits", "100m"), ("web", "300m")]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_told_to_who_does_not_ask_is_elsewhere_or_speaks_for_many() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    api.put(pod("web", "node-1", "100m"));
    api.put(pod("other", "node-2", "100m"));
    let tokens = dir.path().join("tokens.toml");
    let mut file = TokenFile::default();
    let mut bearer = |name: &str, node: &str| {
        let entry = TokenEntry {
            name: name.to_owned(),
            sha256: String::new(),
            roles: Vec::new(),
            namespaces: None,
            node: Some(node.to_owned()),
            expires: None,
        };
        let (token, at) = (file.add(entry).unwrap(), dir.path().join(name));
        fs::write(&at, token).unwrap();
        file.write(&tokens).unwrap();
        Bearer::from_file(&at).unwrap()
    };
    let (own, fleet) = (bearer("own", "test/node-1"), bearer("fleet", "test/*"));
    let (stranger, second) = (bearer("stranger", "test/node-9"), bearer("second", "test/node-2"));
    let running = begun(dir.path(), &api, |config| {
        config.serve.grpc = Some(([127, 0, 0, 1], 0).into());
        config.access.tokens = tokens.clone();
    })
    .await;
    knows(&running, 2).await;
    let address = format!("http://{}", running.tcp.0.unwrap());
    let connect = |bearer: &Bearer, cluster: &'static str, node: &'static str, asks: bool| {
        Node::connect(address.clone(), bearer.clone(), cluster, node, NodePods::default(), asks)
    };
    connect(&own, "test", "node-1", true).await.knows(&[("web", "100m")]).await;
    let mut witness = connect(&second, "test", "node-2", true).await;
    // An agent that does not ask, and a credential for many.
    for (bearer, asks) in [(&own, false), (&fleet, true)] {
        connect(bearer, "test", "node-1", asks).await.hears_nothing(&api, &mut witness).await;
    }
    // Another node hears that it has none, and cannot say that it is this one.
    let mut node = connect(&stranger, "test", "node-9", true).await;
    assert!(node.told().await.changed.is_empty());
    let mut liar = connect(&stranger, "test", "node-1", true).await;
    let refused = tokio::time::timeout(PATIENCE, liar.answers.message()).await.unwrap().unwrap_err();
    assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{refused}");
    // Another cluster's node of the name.
    let socket = running.grpc.to_string();
    let known = NodePods::default();
    let mut node = Node::connect(socket, Bearer::default(), "elsewhere", "node-1", known, true).await;
    node.hears_nothing(&api, &mut witness).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_pods_are_listed_nothing_is_told_and_then_all_of_it() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    api.put(pod("web", "node-1", "100m"));
    api.is(Mood::Fails(503));
    let running = begun(dir.path(), &api, |_| ()).await;
    let mut node = Node::at(&running, "node-1", NodePods::default()).await;
    assert!(matches!(node.said().await, Said::Resume(_)));
    assert_eq!(metric(&running, "kubernetes_known{kind=\"Pod\"}").await, Some(0));
    api.is(Mood::Well);
    assert!(node.told().await.whole);
    node.knows(&[("web", "100m")]).await;
    // While the API server is away, what is known stays.
    api.is(Mood::Silent);
    let mut again = Node::at(&running, "node-1", NodePods::default()).await;
    again.knows(&[("web", "100m")]).await;
    api.is(Mood::Well);
    running.stop().await;
}

/// A number that looks like chance, from the one before.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *seed >> 33
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_between_a_set_in_pieces_equals_the_whole() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    api.put(pod("stays", "node-1", "1"));
    let running = begun(dir.path(), &api, |_| ()).await;
    let mut seed = 42;
    let mut known = NodePods::default();
    for round in 0..12_u64 {
        let mut node = Node::at(&running, "node-1", known).await;
        for _ in 0..5 {
            let (name, on) = (format!("p-{}", next(&mut seed) % 6), next(&mut seed) % 2 + 1);
            match next(&mut seed) % 4 {
                0 if api.object("/api/v1/pods", "shop", &name).is_some() => {
                    api.delete("/api/v1/pods", "shop", &name);
                }
                kind => {
                    let cpu = format!("{}m", next(&mut seed) % 5 + 1);
                    let mut pod = pod(&name, &format!("node-{on}"), &cpu);
                    if kind == 1 {
                        pod["metadata"]["uid"] = format!("{name}-{round}").into();
                    }
                    drop(api.put(pod));
                }
            }
        }
        // The last word of the round, after which nothing else comes.
        let mark = format!("{}m", 2001 + 2 * round);
        api.put(pod("stays", "node-1", &mark));
        while !node.pods().contains(&("stays".into(), mark.clone())) {
            node.told().await;
        }
        let mut fresh = Node::at(&running, "node-1", NodePods::default()).await;
        while !fresh.told().await.whole {}
        assert_eq!(node.known.pods(), fresh.known.pods(), "round {round}");
        known = node.known;
    }
    running.stop().await;
}
