//! A running recommender and a small agent to talk to it.

#![allow(dead_code, reason = "each test uses a part")]

#[path = "../../../kubernetes/tests/apiserver/mod.rs"]
pub(crate) mod apiserver;
pub(crate) mod pods;
pub(crate) mod tls;

use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::{Encoder, Folder};
use evenkeel_proto::v1;
use evenkeel_proto::v1::ingest_service_client::IngestServiceClient;
use evenkeel_proto::v1::stream_request::Message as Asked;
use evenkeel_proto::v1::stream_response::Message as Said;
use evenkeel_recommender::config::{Config, Span};
use evenkeel_recommender::serve::Recommender;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;

/// Longer than anything here takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A recommender on a socket of its own, and on addresses where its configuration has any.
pub(crate) struct Running {
    pub(crate) grpc: At,
    pub(crate) http: At,
    /// Its addresses of gRPC and HTTP.
    pub(crate) tcp: (Option<SocketAddr>, Option<SocketAddr>),
    stop: oneshot::Sender<()>,
    done: JoinHandle<anyhow::Result<()>>,
}

impl Running {
    /// Starts it and waits until it is ready.
    pub(crate) async fn start(dir: &Path, adjust: impl FnOnce(&mut Config)) -> Self {
        let running = Self::begin(dir, adjust).await;
        running.ready().await;
        running
    }

    /// Waits until it is ready.
    pub(crate) async fn ready(&self) {
        until(|| async { (http(self.http, "GET", "/readyz", "").await.0 == 200).then_some(()) }).await;
    }

    /// Starts it.
    pub(crate) async fn begin(dir: &Path, adjust: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config { state_dir: dir.to_owned(), ..Config::default() };
        let at = At::fresh();
        config.serve.socket = at.path().to_owned();
        config.log.sync_interval = Span::from_millis(5);
        // What is acknowledged can be asked for, however slow the machine is.
        config.ingest.count_within = Span::from_secs(60);
        // The one rule whose answers can be told by heart.
        config.recommend.rule = "initial".into();
        adjust(&mut config);
        assert_eq!(config.problems(), []);
        let bound = Recommender::bind(&config).await.unwrap();
        let tcp = bound.addresses().unwrap();
        let (stop, stopped) = oneshot::channel();
        let done = tokio::spawn(bound.serve(async move {
            let _dropped = stopped.await;
        }));
        Self { grpc: at, http: at, tcp, stop, done }
    }

    /// Stops it in order.
    pub(crate) async fn stop(self) {
        self.stop.send(()).unwrap();
        self.done.await.unwrap().unwrap();
    }
}

/// Where a recommender listens: the path of its socket, which lasts as long as the test.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At(&'static str);

impl At {
    /// The socket `r.sock` there.
    pub(crate) fn in_directory(dir: &Path) -> Self {
        Self(Box::leak(dir.join("r.sock").display().to_string().into_boxed_str()))
    }

    /// A socket of its own, outside of the state directory, which tests damage and delete.
    fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("evenkeel-{}-{next}.sock", std::process::id()));
        Self(Box::leak(path.display().to_string().into_boxed_str()))
    }

    /// The socket's path.
    pub(crate) fn path(self) -> &'static Path {
        Path::new(self.0)
    }

    /// A connection to it.
    pub(crate) async fn connect(self) -> std::io::Result<UnixStream> {
        UnixStream::connect(self.0).await
    }
}

impl std::fmt::Display for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "unix://{}", self.0)
    }
}

/// Asks again and again until there is an answer.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(mut ask: impl FnMut() -> F) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, asking).await.expect("the state waited for is reached")
}

/// One HTTP request on a connection of its own: status and body.
pub(crate) async fn http(at: At, method: &str, path: &str, body: &str) -> (u16, String) {
    // One that has just begun may have no socket yet.
    let stream = until(|| async { at.connect().await.ok() }).await;
    http_on(stream, method, path, "Content-Type: application/json\r\n", body).await
}

/// One HTTP request on a connection: status and body. The lines of the head end with CR LF each.
pub(crate) async fn http_on(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    method: &str,
    path: &str,
    lines: &str,
    body: &str,
) -> (u16, String) {
    let host = if lines.contains("Host:") { "" } else { "Host: localhost\r\n" };
    let head = format!(
        "{method} {path} HTTP/1.1\r\n{host}{lines}Connection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    // A body that is refused by its length may not be read to its end.
    let _refused = stream.write_all(body.as_bytes()).await;
    let mut answer = Vec::new();
    let _reset = stream.read_to_end(&mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    (status, body.to_owned())
}

/// A pod of one container, in JSON without a kind.
pub(crate) fn pod(image: &str, more: &str) -> String {
    format!(
        r#"{{"metadata": {{"name": "p", "namespace": "shop"}},
            "spec": {{"containers": [{{"name": "main", "image": "{image}"{more}}}]}}}}"#
    )
}

/// Use by slot and time, microseconds since 1970: thousandths of a core, and bytes.
pub(crate) type UseAt = fn(usize, u64) -> (u64, u64);

/// An agent of one epoch, a container per image; each uses a quarter of a core and 64 MiB.
pub(crate) struct Agent {
    pub(crate) cluster: String,
    node: String,
    epoch: u64,
    images: Vec<String>,
    encoder: Encoder,
    sequence: u64,
    /// When it measured last.
    pub(crate) time_usec: u64,
    /// What every container asks for.
    pub(crate) requested: Option<v1::ResourceValues>,
    /// What every pod asks for beside it.
    pub(crate) others: BTreeMap<String, String>,
    /// Classes of memory and of CPU.
    pub(crate) classes: (v1::QosClass, v1::QosClass),
    /// What the node's configuration says it has to give.
    pub(crate) allocatable: BTreeMap<String, String>,
    /// What a container uses at a moment, thousandths of a core and bytes; a quarter of a core and 64 MiB without.
    pub(crate) use_at: Option<UseAt>,
    /// OOM kills in each container so far.
    pub(crate) oom_kills: u64,
    /// CPU time of each container so far, microseconds.
    used: Vec<u64>,
}

impl Agent {
    pub(crate) fn new(epoch: u64, images: &[&str]) -> Self {
        Self::on("node-1", epoch, images)
    }

    /// The same on another node.
    pub(crate) fn on(node: &str, epoch: u64, images: &[&str]) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let images = images.iter().map(|image| (*image).to_owned()).collect();
        // So far back that everything measured lies in the past.
        let time_usec = now.as_micros() as u64 - 600_000_000;
        Self {
            cluster: "test".into(),
            node: node.to_owned(),
            epoch,
            images,
            encoder: Encoder::new(),
            sequence: 0,
            time_usec,
            requested: None,
            others: BTreeMap::new(),
            classes: (v1::QosClass::Unspecified, v1::QosClass::Unspecified),
            allocatable: BTreeMap::new(),
            use_at: None,
            oom_kills: 0,
            used: Vec::new(),
        }
    }

    /// Number of the last frame.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Frames of the next seconds.
    pub(crate) fn measure(&mut self, seconds: usize) -> Vec<v1::Frame> {
        (0..seconds).map(|_| self.second()).collect()
    }

    /// The next seconds in one frame of minutes, as an agent sends what it kept for long.
    pub(crate) fn measure_folded(&mut self, seconds: usize) -> v1::Frame {
        // What is folded begins with whole values, and so does what follows it.
        self.encoder = Encoder::new();
        let frames = self.measure(seconds);
        self.encoder = Encoder::new();
        let mut folder = Folder::new();
        for frame in &frames {
            folder.add(&frame.samples).unwrap();
        }
        let mut bytes = Vec::new();
        folder.finish(&mut bytes).unwrap();
        v1::Frame {
            sequence: self.sequence,
            replaces_first: frames[0].sequence,
            samples_crc32c: crc32c::crc32c(&bytes),
            samples: bytes.into(),
            announced: frames[0].announced.clone(),
            ..v1::Frame::default()
        }
    }

    fn second(&mut self) -> v1::Frame {
        let announced = if self.sequence == 0 { self.announcements() } else { Vec::new() };
        self.sequence += 1;
        self.time_usec += 1_000_000;
        let use_at = self.use_at.unwrap_or(|_, _| (250, 64 << 20));
        self.used.resize(self.images.len(), 0);
        let (used, time_usec, oom_kills) = (&mut self.used, self.time_usec, self.oom_kills);
        let mut sample = |slot: usize| {
            let (milli, bytes) = use_at(slot, time_usec);
            used[slot] += milli * 1000;
            let mut sample = Sample::new(Duration::from_secs(1));
            sample.set(Field::CpuUsageUsec, used[slot]);
            sample.set(Field::MemoryWorkingSetBytes, bytes);
            sample.set(Field::Pids, 9);
            if oom_kills > 0 {
                sample.set(Field::OomKills, oom_kills);
            }
            (slot as u32, sample)
        };
        let samples: Vec<_> = (0..self.images.len()).map(&mut sample).collect();
        let mut bytes = Vec::new();
        self.encoder.encode_seconds(false, self.time_usec, 1_000_000, &samples, &mut bytes).unwrap();
        let samples_crc32c = crc32c::crc32c(&bytes);
        v1::Frame {
            sequence: self.sequence,
            samples: bytes.into(),
            samples_crc32c,
            announced,
            ..v1::Frame::default()
        }
    }

    pub(crate) fn announcements(&self) -> Vec<v1::Announcement> {
        let identity = |(slot, image): (usize, &String)| v1::Announcement {
            slot: slot as u32,
            identity: Some(v1::ContainerIdentity {
                id: format!("c{slot}"),
                namespace: "shop".into(),
                pod: format!("w{slot}-x"),
                container: "main".into(),
                workload: format!("deployment/w{slot}"),
                image: image.clone(),
                requested: self.requested,
                pod_requests: self.others.clone(),
                memory_class: self.classes.0.into(),
                cpu_class: self.classes.1.into(),
                labels: [("app".to_owned(), format!("w{slot}"))].into(),
                ..v1::ContainerIdentity::default()
            }),
        };
        self.images.iter().enumerate().map(identity).collect()
    }

    /// Connects and shakes hands.
    pub(crate) async fn connect(&self, at: At) -> Link {
        self.try_connect(at).await.expect("a recommender that takes frames")
    }

    /// The same; nothing where the other side has gone.
    pub(crate) async fn try_connect(&self, at: At) -> Option<Link> {
        let mut client = IngestServiceClient::connect(at.to_string()).await.ok()?;
        let (requests, outgoing) = mpsc::channel(64);
        let hello = v1::Hello {
            cluster: self.cluster.clone(),
            node: self.node.clone(),
            epoch: self.epoch,
            version: "0".into(),
            facts: Some(v1::NodeFacts {
                memory_bytes: 8 << 30,
                cpu_milli: 4000,
                allocatable: self.allocatable.clone(),
                ..v1::NodeFacts::default()
            }),
            ..v1::Hello::default()
        };
        requests.send(v1::StreamRequest { message: Some(Asked::Hello(hello)) }).await.ok()?;
        let answers = client.stream(ReceiverStream::new(outgoing)).await.ok()?.into_inner();
        let mut link = Link { requests, answers, resume: v1::Resume::default() };
        loop {
            match link.next().await? {
                Said::Resume(resume) => link.resume = resume,
                // Told to every agent, whether it has shaken hands or not.
                Said::Overlay(_) | Said::Disbelieved(_) => continue,
                other => panic!("{other:?}"),
            }
            break;
        }
        Some(link)
    }
}

/// An open connection.
pub(crate) struct Link {
    requests: mpsc::Sender<v1::StreamRequest>,
    answers: tonic::Streaming<v1::StreamResponse>,
    pub(crate) resume: v1::Resume,
}

impl Link {
    pub(crate) async fn send(&mut self, frames: Vec<v1::Frame>) {
        let message = Some(Asked::Frames(v1::Frames { frames }));
        self.requests.send(v1::StreamRequest { message }).await.unwrap();
    }

    /// Sends frames; whether there was somebody to send them to.
    pub(crate) async fn try_send(&mut self, frames: Vec<v1::Frame>) -> bool {
        let message = Some(Asked::Frames(v1::Frames { frames }));
        self.requests.send(v1::StreamRequest { message }).await.is_ok()
    }

    /// The next thing the recommender says.
    pub(crate) async fn said(&mut self) -> Said {
        self.next().await.expect("an open connection")
    }

    /// The same; nothing where it has gone.
    async fn next(&mut self) -> Option<Said> {
        let answer = tokio::time::timeout(PATIENCE, self.answers.message()).await.expect("an answer");
        answer.ok()??.message
    }

    /// The next acknowledgement: up to which frame; nothing where the other side has gone.
    pub(crate) async fn next_ack(&mut self) -> Option<u64> {
        loop {
            match self.next().await? {
                Said::Ack(ack) => return Some(ack.last_seq),
                Said::Refused(refused) => panic!("{refused:?}"),
                _ => {}
            }
        }
    }

    /// Waits for an acknowledgement of everything up to `sequence`.
    pub(crate) async fn acknowledged(&mut self, sequence: u64) {
        loop {
            if let Said::Ack(ack) = self.said().await
                && ack.last_seq >= sequence
            {
                return;
            }
        }
    }

    /// Whatever comes next.
    pub(crate) async fn message(&mut self) -> Result<Option<v1::StreamResponse>, tonic::Status> {
        tokio::time::timeout(PATIENCE, self.answers.message()).await.expect("an answer or an end")
    }

    /// Waits for the end of the connection.
    pub(crate) async fn ended(&mut self) -> tonic::Status {
        loop {
            let answer = tokio::time::timeout(PATIENCE, self.answers.message()).await.expect("an end");
            match answer {
                Ok(Some(_)) => {}
                Ok(None) => panic!("ended without a status"),
                Err(status) => return status,
            }
        }
    }
}
