//! The program as it is shipped on a machine whose clock is sixty days ahead for a while: nothing is lost, it says so, and
//! everything is as before once the clock is right.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use common::{Agent, At, http, until};
use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::Encoder;
use evenkeel_proto::v1;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_store::config::Settings;
use evenkeel_store::ingest::store::{FrameOutcome, Store};
use evenkeel_store::key::StreamKey;

const SECOND: u64 = 1_000_000;
const MINUTE: u64 = 60 * SECOND;
const AHEAD: i64 = 60 * 86_400;

/// The program, ended when it goes out of sight.
struct Program {
    child: Child,
    grpc: At,
    http: At,
}

impl Program {
    async fn start(dir: &Path, shim: &Path, ahead: i64) -> Self {
        let at = At::in_directory(dir.parent().unwrap());
        let child = Command::new(env!("CARGO_BIN_EXE_evenkeel-recommender"))
            .arg("--state-dir")
            .arg(dir)
            .args(["--config", "/dev/null", "--log-level", "error"])
            .arg("--socket")
            .arg(at.path())
            .args(["--set", "log.checkpoint_interval=1s", "--set", "log.sync_interval=5ms"])
            .args(["--set", "policies=[]"])
            .env("LD_PRELOAD", shim)
            .env("TEST_CLOCK_AHEAD", ahead.to_string())
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let program = Self { child, grpc: at, http: at };
        until(|| async {
            let is_up = at.connect().await.is_ok();
            (is_up && http(at, "GET", "/readyz", "").await.0 == 200).then_some(())
        })
        .await;
        program
    }

    async fn metric(&self, name: &str) -> f64 {
        let text = http(self.http, "GET", "/metrics", "").await.1;
        let line = text.lines().find_map(|l| l.strip_prefix(&format!("evenkeel_recommender_{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Waits for a checkpoint that is begun from now on.
    async fn checkpoint(&self) {
        let before = self.metric("checkpoints_total").await;
        until(|| async { (self.metric("checkpoints_total").await >= before + 1.0).then_some(()) }).await;
    }

    async fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let ended = tokio::task::spawn_blocking(move || self.child.wait().unwrap()).await.unwrap();
        assert!(ended.success(), "{ended}");
    }
}

/// A library that sets the wall clock of a program ahead.
fn shim(dir: &Path) -> PathBuf {
    let out = dir.join("clock_shim.so");
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let made = Command::new(compiler)
        .args(["--edition", "2024", "--crate-type", "cdylib", "-o"])
        .args([&out, &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/clock_shim.rs")])
        .status()
        .unwrap();
    assert!(made.success());
    out
}

/// Thirty hours of a node until now, a frame a minute, in files.
fn history(dir: &Path, until: u64) {
    let config = Settings::at(dir);
    let (mut store, _) = Store::open(&config).unwrap();
    let key = StreamKey { cluster: "test".into(), node: "node-1".into(), epoch: 7 };
    let (cluster, node, epoch) = (key.cluster.clone(), key.node.clone(), key.epoch);
    let begin = until - 30 * 60 * MINUTE;
    store.hello(begin, &v1::Hello { cluster, node, epoch, ..v1::Hello::default() }).unwrap();
    let mut encoder = Encoder::new();
    for sequence in 1..=30 * 60 {
        let time = begin + sequence * MINUTE;
        let mut sample = Sample::new(Duration::from_secs(60));
        sample.set(Field::CpuUsageUsec, sequence * SECOND);
        sample.set(Field::MemoryWorkingSetBytes, 64 << 20);
        let mut samples = Vec::new();
        encoder.encode_seconds(sequence == 1, time, MINUTE as u32, &[(1, sample)], &mut samples).unwrap();
        let identity = v1::ContainerIdentity {
            namespace: "shop".into(),
            pod: "w0-x".into(),
            container: "main".into(),
            workload: "deployment/w0".into(),
            image: "web:1".into(),
            ..v1::ContainerIdentity::default()
        };
        let announced = vec![v1::Announcement { slot: 1, identity: Some(identity) }];
        let frame = v1::Frame {
            sequence,
            samples_crc32c: crc32c::crc32c(&samples),
            samples: samples.into(),
            announced: if sequence == 1 { announced } else { Vec::new() },
            ..v1::Frame::default()
        };
        let taken = store.take(time, &key, &frame, sequence == 1).unwrap();
        assert!(matches!(taken, FrameOutcome::Acknowledge { .. }), "{taken:?}");
    }
    store.checkpoint().unwrap();
}

/// Names and sizes of the history's files.
fn files(dir: &Path) -> BTreeMap<String, u64> {
    let entries = std::fs::read_dir(dir.join("history")).unwrap().map(|entry| entry.unwrap());
    entries.map(|e| (e.file_name().into_string().unwrap(), e.metadata().unwrap().len())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_was_ahead_loses_nothing_and_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let shim = shim(dir.path());
    let state = dir.path().join("state");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64;
    history(&state, now - 10 * MINUTE);
    let before = files(&state);
    assert!(before.len() >= 4, "{before:?}");

    let program = Program::start(&state, &shim, AHEAD).await;
    let samples = program.metric("samples_total").await;
    let mut agent = Agent::new(8, &["web:1"]);
    let mut link = agent.connect(program.grpc).await;
    link.send(agent.measure(3)).await;
    link.acknowledged(3).await;
    program.checkpoint().await;
    let kept =
        |after: &BTreeMap<String, u64>| before.iter().all(|(name, size)| after.get(name) >= Some(size));
    assert!(kept(&files(&state)), "{before:?} {:?}", files(&state));
    assert_eq!(program.metric("samples_total").await, samples + 3.0);
    assert_eq!(program.metric("history_expired_files_total").await, 0.0);
    // It is told where people and probes look, and is no reason to send agents away.
    let (status, text) = http(program.http, "GET", "/readyz", "").await;
    assert!(status == 200 && text.contains("clock: the clock of this machine is 60d 0h"), "{status} {text}");
    assert_eq!(program.metric("clock_doubted").await, 1.0);
    assert!((program.metric("clock_ahead_seconds").await - AHEAD as f64).abs() < 3600.0);
    let mut client = RecommenderServiceClient::connect(program.grpc.to_string()).await.unwrap();
    let told = client.list_nodes(v1::ListNodesRequest {}).await.unwrap().into_inner();
    assert!(told.clock_trouble.contains("timedatectl"), "{told:?}");
    assert!(told.nodes[0].clock_behind_usec > (AHEAD - 3600) * 1_000_000, "{told:?}");
    drop(link);
    program.stop().await;

    let program = Program::start(&state, &shim, 0).await;
    let mut link = agent.connect(program.grpc).await;
    assert_eq!(link.resume.last_seq, 3);
    link.send(agent.measure(4)).await;
    link.acknowledged(7).await;
    assert_eq!(program.metric("samples_total").await, samples + 7.0);
    for nothing in
        ["ancient_samples_total", "misdated_samples_total", "clock_doubted", "history_expired_files_total"]
    {
        assert_eq!(program.metric(nothing).await, 0.0, "{nothing}");
    }
    assert_eq!(http(program.http, "GET", "/readyz", "").await, (200, "ready\n".to_owned()));
    program.checkpoint().await;
    assert!(kept(&files(&state)), "{before:?} {:?}", files(&state));
    let (_, usage) = http(program.http, "GET", "/api/v1/usage", "").await;
    let usage: serde_json::Value = serde_json::from_str(&usage).unwrap();
    let count = usage[0]["usage"]["memory"]["count"].as_u64();
    assert_eq!(count, Some(30 * 60 + 7), "everything measured is told: {usage}");
    program.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_nodes_of_one_mind_correct_the_time_of_answers() {
    let dir = tempfile::tempdir().unwrap();
    let shim = shim(dir.path());
    let program = Program::start(&dir.path().join("state"), &shim, AHEAD).await;
    let mut links = Vec::new();
    for node in ["a", "b", "c"] {
        let mut agent = Agent::on(node, 1, &["web:1"]);
        let mut link = agent.connect(program.grpc).await;
        link.send(agent.measure(3)).await;
        link.acknowledged(3).await;
        links.push(link);
    }
    // The last hour is that of the nodes, not that of sixty days later.
    let (_, usage) = http(program.http, "GET", "/api/v1/usage?windowSeconds=3600", "").await;
    let usage: serde_json::Value = serde_json::from_str(&usage).unwrap();
    assert_eq!(usage[0]["usage"]["memory"]["count"].as_u64(), Some(9), "{usage}");
    assert_eq!(program.metric("containers").await, 3.0);
    program.stop().await;
}
