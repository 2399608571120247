//! Backups of a recommender that takes frames in: what is restored goes on where it was, and then answers as the one it was made of.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Agent, At, Running, http};
use evenkeel_proto::v1;
use evenkeel_recommender::config::{Config, Size, Span};
use serde_json::Value;

/// Frames of five minutes each: more than a day, so that hours and days are sealed meanwhile.
const FRAMES: u64 = 300;
const SECONDS: usize = 300;
/// Backups made while frames arrive.
const BACKUPS: u64 = 3;

/// Everything that is written is written as often as it can be.
fn busy(config: &mut Config) {
    config.log.checkpoint_interval = Span::from_secs(1);
    config.log.checkpoint_bytes = Size::from_bytes(64 << 10);
    config.log.segment_bytes = Size::from_bytes(64 << 10);
    config.ingest.max_message = Size::from_bytes(64 << 10);
    // Only who asks makes an answer.
    config.recommend.watch_interval = Span::from_secs(3600);
}

/// Runs `evenkeel-recommender store ...` in JSON: its exit status, and what it told.
fn store(state_dir: &Path, args: &[&str]) -> (Option<i32>, Value) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel-recommender"));
    command.args(["--config", "/dev/null", "--state-dir"]).arg(state_dir).arg("store").args(args);
    let done = command.args(["-o", "json"]).output().unwrap();
    let told = serde_json::from_slice(&done.stdout);
    (done.status.code(), told.unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&done.stderr))))
}

/// What it knows of use, and what it recommends.
async fn answers(at: At) -> Vec<String> {
    let mut all = Vec::new();
    for resource in ["cpu", "memory"] {
        let series = format!("/api/v1/usage/series?resource={resource}&stepSeconds=60&format=csv");
        let (status, text) = http(at, "GET", &series, "").await;
        assert_eq!(status, 200, "{text}");
        let mut rows: Vec<String> = text.lines().filter(|row| row.contains(',')).map(str::to_owned).collect();
        rows.sort();
        all.extend(rows);
    }
    let nodes: Value = serde_json::from_str(&http(at, "GET", "/api/v1/nodes", "").await.1).unwrap();
    all.push(format!("{} samples, {} gaps", nodes[0]["samples"], nodes[0]["gaps"]));
    let told: Value = serde_json::from_str(&http(at, "GET", "/api/v1/recommendations", "").await.1).unwrap();
    let value = |one: &Value| format!("{} {} {}", one["workload"], one["resource"], one["request"]);
    let mut told: Vec<String> = told.as_array().unwrap().iter().map(value).collect();
    told.sort();
    all.extend(told);
    all
}

/// Sends frames one after the other; each is durable before the next.
async fn send(at: At, agent: &Agent, frames: Vec<v1::Frame>, stop: &AtomicBool) {
    let mut link = agent.connect(at).await;
    let last = link.resume.last_seq;
    for frame in frames.into_iter().filter(|frame| frame.sequence > last) {
        let sequence = frame.sequence;
        link.send(vec![frame]).await;
        link.acknowledged(sequence).await;
        if stop.load(Ordering::SeqCst) {
            // Waits for the last backup, so that there is something left to be sent to it.
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_during_ingest_answers_as_its_store() {
    let (state, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let running = Running::start(state.path(), busy).await;
    let mut agent = Agent::new(1, &["web:1", "web:1", "db:7"]);
    agent.use_at = Some(|slot, at| (100 + slot as u64 * 50 + at / 60_000_000 % 200, (slot as u64 + 1) << 24));
    agent.time_usec -= FRAMES * SECONDS as u64 * 1_000_000;
    let frames: Vec<v1::Frame> = (0..FRAMES)
        .map(|_| {
            let first = agent.sequence() + 1;
            let mut frame = agent.measure_folded(SECONDS);
            frame.announced = if first == 1 { agent.announcements() } else { Vec::new() };
            frame
        })
        .collect();
    let agent = Arc::new(agent);
    let quick = Arc::new(AtomicBool::new(true));
    let sending = tokio::spawn({
        let (agent, frames, quick, at) =
            (Arc::clone(&agent), frames.clone(), Arc::clone(&quick), running.grpc);
        async move { send(at, &agent, frames, &quick).await }
    });
    let mut taken = Vec::new();
    for number in 0..BACKUPS {
        let to = backups.path().join(number.to_string());
        let (dir, place) = (state.path().to_owned(), to.clone());
        let made = tokio::task::spawn_blocking(move || store(&dir, &["backup", place.to_str().unwrap()]));
        let (status, told) = made.await.unwrap();
        assert_eq!(status, Some(0), "{told}");
        taken.push(to);
    }
    let checked = store(state.path(), &["check"]);
    assert_eq!(checked.0, Some(0), "{}", checked.1);
    quick.store(false, Ordering::SeqCst);
    sending.await.unwrap();
    let wanted = answers(running.http).await;
    assert!(wanted.len() as u64 > FRAMES * 5, "{}", wanted.len());
    // One of the store as it is now, still open.
    let last = backups.path().join("last");
    assert_eq!(store(state.path(), &["backup", last.to_str().unwrap()]).0, Some(0));
    taken.push(last.clone());

    for backup in taken {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("state");
        let (status, told) = store(&place, &["restore", backup.to_str().unwrap()]);
        assert_eq!(status, Some(0), "{told}");
        let restored = Running::start(&place, busy).await;
        if backup == last {
            assert_eq!(answers(restored.http).await, wanted, "the same at once");
        }
        send(restored.grpc, &agent, frames.clone(), &AtomicBool::new(false)).await;
        // An answer that was made before the rest arrived holds for a while.
        restored.stop().await;
        let restored = Running::start(&place, busy).await;
        let found = answers(restored.http).await;
        let differ = wanted.iter().zip(&found).find(|(wanted, found)| wanted != found);
        assert_eq!((found.len(), differ), (wanted.len(), None), "{}", backup.display());
        let (_, audited) = http(restored.http, "GET", "/api/v1/audit", "").await;
        assert!(audited.contains("evenkeel-recommender store restore"), "{audited}");
        restored.stop().await;
    }
    running.stop().await;
}

#[test]
fn what_is_wrong_with_directories_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let none = dir.path().join("none");
    for (args, part) in [
        (vec!["check"], "none"),
        (vec!["backup", "/proc/x"], "none"),
        (vec!["restore", dir.path().to_str().unwrap()], "is no whole backup"),
    ] {
        let (status, told) = store(&none, &args);
        assert!(status == Some(1) && told.as_str().is_some_and(|why| why.contains(part)), "{args:?}: {told}");
    }
}
