//! SIGKILL at any moment, under load: the program as it is shipped loses nothing that it acknowledged, counts nothing twice,
//! and has every policy whose application it confirmed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Agent, At, http, until};
use evenkeel_proto::v1;
use evenkeel_proto::v1::policy_service_client::PolicyServiceClient;
use serde_json::Value;
use tonic::transport::Endpoint;

const IMAGES: usize = 5;
/// Frames that are under way at once.
const WINDOW: usize = 20;

/// Kills that have to be survived: fifty, or a thousand with `EVENKEEL_FULL=1`.
fn wanted_kills() -> u64 {
    if std::env::var("EVENKEEL_FULL").is_ok_and(|value| value == "1") { 1000 } else { 50 }
}

/// Numbers that look like chance and differ from run to run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// The program, killed when it goes out of sight.
struct Program {
    child: Child,
    grpc: At,
    http: At,
}

impl Program {
    async fn start(dir: &Path) -> Self {
        let at = At::in_directory(dir);
        let child = Command::new(env!("CARGO_BIN_EXE_evenkeel-recommender"))
            .arg("--state-dir")
            .arg(dir)
            .args(["--config", "/dev/null", "--log-level", "error"])
            .arg("--socket")
            .arg(at.path())
            // Checkpoints and segments as often as it can be, so that kills strike them, too.
            .args(["--set", "log.checkpoint_interval=1s", "--set", "log.checkpoint_bytes=64KiB"])
            .args(["--set", "log.segment_bytes=64KiB", "--set", "log.sync_interval=5ms"])
            .args(["--set", "ingest.max_message=64KiB", "--set", "policies=[]"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let mut program = Self { child, grpc: at, http: at };
        until(|| async {
            let is_up = at.connect().await.is_ok();
            (is_up && http(at, "GET", "/readyz", "").await.0 == 200).then_some(())
        })
        .await;
        assert!(program.child.try_wait().unwrap().is_none(), "it ended by itself");
        program
    }

    fn kill(mut self) {
        // SIGKILL.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ended = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// What was confirmed, and what was asked for and may or may not have come to be.
#[derive(Default)]
struct Policies {
    confirmed: BTreeMap<String, u64>,
    /// Name, and its value, or nothing where it was to be deleted.
    open: Option<(String, Option<u64>)>,
    next: u64,
}

impl Policies {
    /// Applies and deletes until the program is gone.
    async fn change(&mut self, at: At, chance: &mut Chance) {
        let Ok(channel) = Endpoint::from_shared(at.to_string()).unwrap().connect().await else {
            return;
        };
        let mut client = PolicyServiceClient::new(channel);
        loop {
            self.next += 1;
            let (name, value) = (format!("p{}", chance.below(20)), self.next);
            let delete = chance.below(4) == 0 && self.confirmed.contains_key(&name);
            self.open = Some((name.clone(), (!delete).then_some(value)));
            let done = if delete {
                let request =
                    v1::DeleteRequest { namespace: "shop".into(), name: name.clone(), ..Default::default() };
                client.delete(request).await.map(|_| ())
            } else {
                let policy = format!(
                    r#"{{"apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": {{"name": "{name}", "namespace": "shop"}},
                        "spec": {{"target": {{"matchLabels": {{"value": "{value}"}}}}}}}}"#
                );
                client.apply(v1::ApplyRequest { policy, dry_run: false }).await.map(|_| ())
            };
            match done {
                Ok(()) if delete => drop(self.confirmed.remove(&name)),
                Ok(()) => drop(self.confirmed.insert(name, value)),
                Err(_) => return,
            }
            self.open = None;
        }
    }

    /// What is there now is what was confirmed, with or without what was open.
    async fn check(&mut self, at: At) {
        let (status, text) = http(at, "GET", "/api/v1/policies", "").await;
        assert_eq!(status, 200, "{text}");
        let list: Value = serde_json::from_str(&text).unwrap();
        let found: BTreeMap<String, u64> = list["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|policy| {
                let value = policy["spec"]["target"]["matchLabels"]["value"].as_str().unwrap();
                (policy["metadata"]["name"].as_str().unwrap().to_owned(), value.parse().unwrap())
            })
            .collect();
        let mut with_open = self.confirmed.clone();
        match self.open.take() {
            Some((name, Some(value))) => drop(with_open.insert(name, value)),
            Some((name, None)) => drop(with_open.remove(&name)),
            None => {}
        }
        assert!(found == self.confirmed || found == with_open, "{found:?} of {:?}", self.confirmed);
        self.confirmed = found;
    }
}

/// An agent that keeps its frames until they are acknowledged.
struct Keeper {
    agent: Agent,
    kept: BTreeMap<u64, v1::Frame>,
    /// Shared, so that what was acknowledged is known although the connection is cut in the middle.
    acknowledged: Arc<AtomicU64>,
    measured: u64,
}

impl Keeper {
    /// Measures and sends until the program is gone.
    async fn stream(&mut self, at: At) {
        let Some(mut link) = self.agent.try_connect(at).await else { return };
        let last = link.resume.last_seq;
        assert!(last >= self.acknowledged.load(Ordering::SeqCst), "{last} of what was acknowledged");
        self.kept.retain(|sequence, _| *sequence > last);
        let mut sent = last;
        loop {
            while self.kept.len() < WINDOW {
                for frame in self.agent.measure(1) {
                    self.measured = frame.sequence;
                    self.kept.insert(frame.sequence, frame);
                }
            }
            let frames: Vec<_> = self.kept.range(sent + 1..).map(|(_, frame)| frame.clone()).collect();
            sent = self.kept.last_key_value().map_or(sent, |(sequence, _)| *sequence);
            if !frames.is_empty() && !link.try_send(frames).await {
                return;
            }
            let Some(upto) = link.next_ack().await else { return };
            self.acknowledged.fetch_max(upto, Ordering::SeqCst);
            self.kept.retain(|sequence, _| *sequence > upto);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_and_nothing_counts_twice() {
    let dir = tempfile::tempdir().unwrap();
    let seed = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let mut chance = Chance(seed.as_nanos() as u64);
    let mut agent = Agent::new(1, &["web:1"; IMAGES]);
    // Seconds pass faster than on a clock: from some days ago towards now.
    agent.time_usec -= 5 * 86_400_000_000;
    let mut keeper = Keeper { agent, kept: BTreeMap::new(), acknowledged: Arc::default(), measured: 0 };
    let mut policies = Policies::default();
    let (mut checkpoints, mut under_load) = (BTreeSet::new(), 0);
    for round in 0..wanted_kills() {
        let program = Program::start(dir.path()).await;
        policies.check(program.http).await;
        let before = keeper.acknowledged.load(Ordering::SeqCst);
        let acknowledged = Arc::clone(&keeper.acknowledged);
        let grpc = program.grpc;
        // The moment is measured in what was acknowledged, not in time, and a little after it.
        let wanted = before + 1 + chance.below(400);
        let extra = Duration::from_micros(chance.below(20_000));
        let killed = AtomicBool::new(false);
        let killing = async {
            until(|| async { (acknowledged.load(Ordering::SeqCst) >= wanted).then_some(()) }).await;
            tokio::time::sleep(extra).await;
            program.kill();
            killed.store(true, Ordering::SeqCst);
        };
        tokio::join!(keeper.stream(grpc), policies.change(grpc, &mut chance), killing);
        assert!(killed.load(Ordering::SeqCst), "round {round}: a stream ended before the program did");
        under_load += u64::from(keeper.acknowledged.load(Ordering::SeqCst) > before);
        let written = std::fs::metadata(dir.path().join("checkpoint")).and_then(|m| m.modified());
        checkpoints.extend(written.ok());
    }
    let program = Program::start(dir.path()).await;
    policies.check(program.http).await;
    let mut link = keeper.agent.try_connect(program.grpc).await.unwrap();
    let last = link.resume.last_seq;
    let rest: Vec<_> =
        keeper.kept.into_iter().filter(|(sequence, _)| *sequence > last).map(|(_, f)| f).collect();
    if !rest.is_empty() {
        assert!(link.try_send(rest).await);
        link.acknowledged(keeper.measured).await;
    }
    let nodes: Value = serde_json::from_str(&http(program.http, "GET", "/api/v1/nodes", "").await.1).unwrap();
    let node = &nodes[0];
    assert_eq!((&node["frames"], &node["gaps"]), (&keeper.measured.into(), &0.into()), "{node}");
    assert_eq!(node["samples"], keeper.measured * IMAGES as u64, "{node}");
    let usage: Value = serde_json::from_str(&http(program.http, "GET", "/api/v1/usage", "").await.1).unwrap();
    for record in usage.as_array().unwrap() {
        assert_eq!(record["usage"]["memory"]["count"], keeper.measured, "{record}");
    }
    assert_eq!(usage.as_array().unwrap().len(), IMAGES);
    assert!(checkpoints.len() > 5, "kills came between checkpoints: {}", checkpoints.len());
    println!(
        "{under_load} kills under load, {} frames, {} changes of policies, {} checkpoints",
        keeper.measured,
        policies.next,
        checkpoints.len()
    );
}
