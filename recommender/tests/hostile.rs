//! Suite `hostile`: what one client may do to the recommender and to everybody else. Each attack is refused or bounded, a
//! counter says so, and a well-behaved agent is acknowledged meanwhile.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::fs;
use std::net::SocketAddr;

use common::{Agent, At, Link, Running, http, http_on, until};
use evenkeel_proto::v1;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_recommender::config::Config;
use evenkeel_tests::disk::SmallDisk;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tonic::Code;

/// A well-behaved agent beside an attack.
struct Neighbour {
    agent: Agent,
    link: Link,
    sent: u64,
}

impl Neighbour {
    async fn begin(running: &Running) -> Self {
        let agent = Agent::new(1, &["web:1"]);
        let link = agent.connect(running.grpc).await;
        let mut neighbour = Self { agent, link, sent: 0 };
        neighbour.is_served().await;
        neighbour
    }

    /// Sends some seconds and waits until they are acknowledged.
    async fn is_served(&mut self) {
        self.link.send(self.agent.measure(5)).await;
        self.sent += 5;
        self.link.acknowledged(self.sent).await;
    }
}

/// Sum of a metric over its labels.
async fn metric(running: &Running, name: &str) -> f64 {
    let (status, text) = http(running.http, "GET", "/metrics", "").await;
    assert_eq!(status, 200, "{text}");
    let name = format!("evenkeel_recommender_{name}");
    let of = |line: &str| {
        let (series, value) = line.rsplit_once(' ')?;
        (series.split('{').next() == Some(&name)).then(|| value.parse::<f64>().ok())?
    };
    text.lines().filter_map(of).sum()
}

/// A frame that carries something besides samples.
fn carrying(agent: &mut Agent, change: impl FnOnce(&mut v1::Frame)) -> v1::Frame {
    let mut frame = agent.measure(1).remove(0);
    change(&mut frame);
    frame
}

fn labels(count: usize, bytes: usize) -> std::collections::BTreeMap<String, String> {
    (0..count).map(|i| (format!("label-{i}"), "x".repeat(bytes))).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn labels_and_decisions_of_megabytes_take_kilobytes_and_nothing_after_a_restart() {
    const MEGABYTE: usize = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut neighbour = Neighbour::begin(&running).await;
    let mut hostile = Agent::on("evil", 7, &["evil:1"]);
    let mut link = hostile.connect(running.grpc).await;
    for round in 0..20 {
        let frame = carrying(&mut hostile, |frame| {
            frame.announced.iter_mut().filter_map(|a| a.identity.as_mut()).for_each(|i| i.labels.clear());
            let identity = v1::ContainerIdentity {
                id: format!("e{round}"),
                pod: format!("p{round}"),
                container: "c".into(),
                labels: labels(1, MEGABYTE),
                ..v1::ContainerIdentity::default()
            };
            frame.announced.push(v1::Announcement { slot: 100 + round, identity: Some(identity) });
            frame.decisions.push(v1::Decision {
                kind: "set".into(),
                reason: "r".repeat(MEGABYTE),
                inputs: labels(1, MEGABYTE),
                ..v1::Decision::default()
            });
        });
        link.send(vec![frame]).await;
        link.acknowledged(u64::from(round) + 1).await;
        neighbour.is_served().await;
    }
    assert_eq!(metric(&running, "dropped_labels_total").await, 20.0);
    assert_eq!(metric(&running, "cut_decisions_total").await, 20.0);
    let events = http(running.http, "GET", "/api/v1/events?node=evil", "").await.1;
    assert!(events.len() < 20 * 4096, "{} bytes of decisions", events.len());
    running.stop().await;
    let kept = fs::metadata(dir.path().join("checkpoint")).unwrap().len();
    assert!(kept < 1 << 20, "a checkpoint of {kept} bytes");
    let running = Running::start(dir.path(), |_| {}).await;
    assert_eq!(metric(&running, "containers").await, 22.0, "all are followed, without their labels");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sequence_far_ahead_does_not_silence_the_true_agent() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut neighbour = Neighbour::begin(&running).await;
    // Epoch and sequence as somebody may have recorded them.
    let mut forged = Agent::new(1, &["web:1"]);
    let mut link = forged.connect(running.grpc).await;
    assert_eq!(link.resume.last_seq, 5);
    let ahead = carrying(&mut forged, |frame| frame.sequence = 30_000_000);
    link.send(vec![ahead]).await;
    let status = link.ended().await;
    assert_eq!(status.code(), Code::DataLoss, "{status}");
    assert!(status.message().contains("30000000"), "{status}");
    assert_eq!(metric(&running, "protocol_violations_total").await, 1.0);
    assert_eq!(metric(&running, "lost_frames_total").await, 0.0);
    // The true agent lost its connection to the other, comes back, and nothing is missing.
    neighbour.link = neighbour.agent.connect(running.grpc).await;
    assert_eq!(neighbour.link.resume.last_seq, 5);
    neighbour.is_served().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn yaml_bombs_are_refused_and_few_are_read_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut neighbour = Neighbour::begin(&running).await;
    let mut bomb = "kind: Policy\na0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..11 {
        let inner = vec![format!("*a{}", level - 1); 9].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{inner}]\n"));
    }
    let nested = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let many = format!(
        "kind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{}]}}\n",
        (0..5000).map(|i| format!("{{name: c{i}}}")).collect::<Vec<_>>().join(", ")
    );
    let (mut busy, mut refused) = (0.0, 0.0);
    for (path, body) in [
        ("/api/v1/policies", &bomb),
        ("/api/v1/policies?dryRun=true", &bomb),
        ("/recommendedPodResources", &bomb),
        ("/api/v1/policies", &nested),
        ("/recommendedPodResources", &nested),
        ("/recommendedPodResources", &many),
    ] {
        let asked = (0..24).map(|_| http(running.http, "POST", path, body));
        let answers = futures::future::join_all(asked);
        let (answers, ()) = tokio::join!(answers, neighbour.is_served());
        for (status, text) in answers {
            assert!(matches!(status, 400 | 413 | 429), "{path}: {status} {text}");
            assert!(text.contains("remedy"), "{text}");
            *(if status == 429 { &mut busy } else { &mut refused }) += 1.0;
        }
    }
    let huge = format!("{{\"pods\": [], \"x\": \"{}\"}}", "x".repeat(3 << 20));
    let (status, text) = http(running.http, "POST", "/recommendedPodResources", &huge).await;
    assert!(matches!(status, 400 | 413), "{status} {text}");
    neighbour.is_served().await;
    let counted =
        (metric(&running, "refused_texts_total").await, metric(&running, "refused_questions_total").await);
    assert_eq!(counted, (refused + 1.0, busy));
    running.stop().await;
}

/// Opens connections and says this on each.
async fn holding(at: SocketAddr, count: usize, words: &str) -> Vec<TcpStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(at).await.unwrap();
        // One that was closed to make room may not take it.
        let _closed = stream.write_all(words.as_bytes()).await;
        held.push(stream);
    }
    held
}

/// The same at the socket.
async fn holding_socket(at: At, count: usize, words: &str) -> Vec<UnixStream> {
    let mut held = Vec::new();
    for _ in 0..count {
        let mut stream = at.connect().await.unwrap();
        let _closed = stream.write_all(words.as_bytes()).await;
        held.push(stream);
    }
    held
}

/// Listens at addresses, too.
fn at_addresses(config: &mut Config) {
    config.serve.grpc = Some(([127, 0, 0, 1], 0).into());
    config.serve.http = config.serve.grpc;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_make_room_and_slow_ones_are_closed() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |config| {
        at_addresses(config);
        config.serve.max_connections = 32;
        config.ingest.max_streams = 16;
    })
    .await;
    let mut neighbour = Neighbour::begin(&running).await;
    let (mut all, mut local) = (Vec::new(), Vec::new());
    for words in ["", "GET /hea", "GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: "] {
        let (Some(grpc), Some(web)) = running.tcp else { panic!("it has addresses") };
        all.extend(holding(grpc, 60, words).await);
        all.extend(holding(web, 60, words).await);
        let answer = http_on(TcpStream::connect(web).await.unwrap(), "GET", "/healthz", "", "").await;
        assert_eq!(answer.0, 200, "{words:?}");
        local.extend(holding_socket(running.grpc, 60, words).await);
        assert_eq!(http(running.http, "GET", "/healthz", "").await.0, 200, "{words:?}");
        neighbour.is_served().await;
        // One more agent finds a place, too.
        let other = Agent::on("other", 9, &["db:1"]).try_connect(running.grpc).await;
        assert!(other.is_some(), "{words:?}");
    }
    assert!(metric(&running, "displaced_connections_total").await >= 200.0);
    assert!(metric(&running, "open_connections").await <= 48.0);
    // Those that are left are closed once they took too long.
    let last = all.last_mut().unwrap();
    let mut rest = Vec::new();
    let _reset = last.read_to_end(&mut rest).await;
    until(|| async { (metric(&running, "slow_connections_total").await > 0.0).then_some(()) }).await;
    neighbour.is_served().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_that_do_not_read_are_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut neighbour = Neighbour::begin(&running).await;
    let (mut open, mut refused) = (Vec::new(), 0);
    // As many as there are places, and ten.
    for _ in 0..2 {
        let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
        for _ in 0..55 {
            match client.watch_recommendations(v1::WatchRecommendationsRequest {}).await {
                Ok(stream) => open.push(stream),
                Err(status) => {
                    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                    refused += 1;
                }
            }
        }
        neighbour.is_served().await;
    }
    assert_eq!((open.len(), refused), (100, 10));
    assert_eq!(metric(&running, "refused_questions_total").await, 10.0);
    drop(open);
    // Their places are free again.
    until(|| async {
        let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
        client.watch_recommendations(v1::WatchRecommendationsRequest {}).await.ok()
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rubbish_ends_its_own_connection() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), at_addresses).await;
    let (Some(grpc), Some(web)) = running.tcp else { panic!("it has addresses") };
    let mut neighbour = Neighbour::begin(&running).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".as_slice();
    let mut seed = 7_u64;
    let mut random = |bytes: usize| -> Vec<u8> {
        let next = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        };
        std::iter::repeat_with(next).take(bytes).collect()
    };
    for round in 0..30 {
        let junk = random(64 << (round % 6));
        let framed = [preface, &junk].concat();
        for (at, words) in [(grpc, &junk), (web, &junk), (grpc, &framed)] {
            let mut stream = TcpStream::connect(at).await.unwrap();
            let _closed = stream.write_all(words).await;
        }
        for words in [&junk, &framed] {
            let mut stream = running.grpc.connect().await.unwrap();
            let _closed = stream.write_all(words).await;
        }
    }
    let pipelined = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".repeat(500);
    drop(holding(web, 4, &pipelined).await);
    drop(holding_socket(running.http, 4, &pipelined).await);
    // A message above the bound ends the stream with a reason.
    let mut hostile = Agent::on("evil", 7, &["evil:1"]);
    let mut link = hostile.connect(running.grpc).await;
    let large = carrying(&mut hostile, |frame| {
        frame.decisions.push(v1::Decision { reason: "r".repeat(5 << 20), ..v1::Decision::default() });
    });
    link.send(vec![large]).await;
    assert_eq!(link.ended().await.code(), Code::OutOfRange);
    neighbour.is_served().await;
    assert_eq!(http(running.http, "GET", "/readyz", "").await.0, 200);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_names_do_nothing_in_json_or_metrics() {
    const NAMES: [&str; 6] = [
        "\u{1b}[2J\u{1b}]0;title\u{7}",
        "\u{9b}31m",
        "cod\u{202e}gpj.exe",
        "=HYPERLINK(\"http://evil.example\",\"click\")",
        "<script>alert(1)</script>",
        "a\nb\0",
    ];
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut neighbour = Neighbour::begin(&running).await;
    for (number, name) in (0_u64..).zip(NAMES) {
        let mut hostile = Agent::on(name, 100 + number, &["evil:1"]);
        let mut link = hostile.connect(running.grpc).await;
        let frame = carrying(&mut hostile, |frame| {
            for identity in frame.announced.iter_mut().filter_map(|a| a.identity.as_mut()) {
                for field in [
                    &mut identity.id,
                    &mut identity.namespace,
                    &mut identity.pod,
                    &mut identity.container,
                    &mut identity.workload,
                    &mut identity.image,
                ] {
                    *field = (*name).to_owned();
                }
                identity.labels = [(name.to_owned(), name.to_owned())].into();
            }
            let name = Some(name.to_owned());
            let reason = name.clone().unwrap();
            frame.decisions.push(v1::Decision {
                pod: name,
                kind: "set".into(),
                reason,
                ..v1::Decision::default()
            });
        });
        link.send(vec![frame]).await;
        link.acknowledged(1).await;
    }
    for path in [
        "/api/v1/recommendations",
        "/api/v1/usage",
        "/api/v1/nodes",
        "/api/v1/namespaces",
        "/api/v1/events",
        "/api/v1/policies",
        "/api/v1/audit",
        "/readyz?verbose",
        "/metrics",
        "/nosuch",
    ] {
        let (_, text) = http(running.http, "GET", path, "").await;
        let steering = text.chars().find(|c| *c != '\n' && evenkeel_model::shown::is_hostile(*c));
        assert_eq!(steering, None, "{path}: {text:?}");
    }
    let nodes = http(running.http, "GET", "/api/v1/nodes", "").await.1;
    let nodes: serde_json::Value = serde_json::from_str(&nodes).unwrap();
    let known: Vec<&str> = nodes.as_array().unwrap().iter().filter_map(|n| n["name"].as_str()).collect();
    assert!(NAMES.iter().all(|name| known.contains(name)), "escaped, and the same: {known:?}");
    neighbour.is_served().await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_was_deleted_is_noticed_and_nothing_more_is_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    let running = Running::start(&state, |_| {}).await;
    let mut neighbour = Neighbour::begin(&running).await;
    fs::remove_dir_all(&state).unwrap();
    neighbour.link.send(neighbour.agent.measure(5)).await;
    let text = until(|| async {
        let (status, text) = http(running.http, "GET", "/readyz", "").await;
        (status == 503).then_some(text)
    })
    .await;
    assert!(text.contains("was deleted while it was in use"), "{text}");
    assert_eq!(metric(&running, "log_failing").await, 1.0);
    // What is known is still answered.
    assert_eq!(http(running.http, "GET", "/api/v1/nodes", "").await.0, 200);
    // Nothing was said of the five seconds: the end of the process ends the connection without an acknowledgement.
    let stopping = running.stop();
    let (_, said) = tokio::join!(stopping, async {
        while let Ok(Some(answer)) = neighbour.link.message().await {
            if let Some(v1::stream_response::Message::Ack(ack)) = answer.message {
                return Some(ack.last_seq);
            }
        }
        None
    });
    assert_eq!(said, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_fills_the_disk_is_trimmed_without_a_person() {
    // What is left when a frame finds no room matters: whether a checkpoint still finds some.
    for pages in [0, 6, 11] {
        a_full_disk_is_survived((8 << 20) + pages * (4 << 10)).await;
    }
}

async fn a_full_disk_is_survived(disk: usize) {
    const FRAME: usize = 100 << 10;
    let dir = tempfile::tempdir().unwrap();
    let Some(_small) = SmallDisk::mount(dir.path(), disk) else { return };
    let running = Running::start(dir.path(), |config| {
        // Nothing but the disk asks for a checkpoint.
        config.log.checkpoint_interval = evenkeel_recommender::config::Span::from_secs(3600);
        config.history.max_events = 10;
    })
    .await;
    let mut hostile = Agent::on("evil", 7, &["evil:1"]);
    let mut link = hostile.connect(running.grpc).await;
    for sequence in 1..=(3 * disk / FRAME) as u64 {
        let frame = carrying(&mut hostile, |frame| {
            frame.decisions.push(v1::Decision { reason: "r".repeat(FRAME), ..v1::Decision::default() });
        });
        link.send(vec![frame]).await;
        link.acknowledged(sequence).await;
    }
    assert!(metric(&running, "checkpoints_total").await >= 2.0);
    assert_eq!(metric(&running, "log_failing").await, 0.0);
    until(|| async {
        let (status, text) = http(running.http, "GET", "/readyz?verbose", "").await;
        (status == 200 && text.contains("[+]room")).then_some(())
    })
    .await;
    assert!(dir.path().join("reserve").exists(), "room is kept for the next one");
    running.stop().await;
    let running = Running::start(dir.path(), |_| {}).await;
    let again = hostile.connect(running.grpc).await;
    assert_eq!(again.resume.last_seq, (3 * disk / FRAME) as u64);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_on_a_full_disk_is_told_and_the_room_is_kept_once_there_is_some() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_small) = SmallDisk::mount(dir.path(), 8 << 20) else { return };
    let state = dir.path().join("state");
    Running::start(&state, |_| {}).await.stop().await;
    fs::remove_file(state.join("reserve")).unwrap();
    let rest = dir.path().join("rest");
    let filled = std::io::copy(&mut std::io::repeat(0), &mut fs::File::create(&rest).unwrap()).unwrap_err();
    assert_eq!(filled.kind(), std::io::ErrorKind::StorageFull);
    let running = Running::start(&state, |_| {}).await;
    let told = async |want: &str| {
        until(|| async {
            http(running.http, "GET", "/readyz?verbose", "").await.1.contains(want).then_some(())
        })
        .await;
    };
    told("[-]room: no room can be kept on the disk for a checkpoint").await;
    fs::remove_file(&rest).unwrap();
    told("[+]room: ok").await;
    assert!(state.join("reserve").exists());
    running.stop().await;
}

/// Short form of the bench `ingest/storm-5000`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_nodes_that_come_back_at_once_starves_none() {
    const NODES: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut agents: Vec<Agent> =
        (0..NODES).map(|i| Agent::on(&format!("storm-{i}"), 1 + i as u64, &["web:1"])).collect();
    let mut links = Vec::new();
    for agent in &mut agents {
        let mut link = agent.connect(running.grpc).await;
        link.send(agent.measure(2)).await;
        link.acknowledged(2).await;
        links.push(link);
    }
    running.stop().await;
    drop(links);
    let running = Running::start(dir.path(), |_| {}).await;
    let grpc = running.grpc;
    let returning = agents.into_iter().map(|mut agent| async move {
        let mut link = agent.connect(grpc).await;
        assert_eq!(link.resume.last_seq, 2);
        link.send(agent.measure(3)).await;
        link.acknowledged(5).await;
        link
    });
    let links = futures::future::join_all(returning).await;
    assert_eq!(links.len(), NODES);
    assert_eq!(metric(&running, "lost_frames_total").await, 0.0);
    drop(links);
    running.stop().await;
}
