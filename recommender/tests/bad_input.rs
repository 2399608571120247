//! Samples that are not as they should be: each kind has its rule and its counter, and what is good beside them counts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::time::{Duration, SystemTime};

use common::{Agent, Running, http};
use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::frame::{Encoder, encode_folded};
use evenkeel_proto::v1;
use evenkeel_proto::v1::stream_response::Message as Said;
use serde_json::Value;

const SECOND: u64 = 1_000_000;
const DAY: u64 = 86_400 * SECOND;
const MEMORY: u64 = 64 << 20;

/// A client that measures what it is told to.
struct Client {
    encoder: Encoder,
    sequence: u64,
}

impl Client {
    /// A frame of one container's second.
    fn second(&mut self, slot: u32, time_usec: u64, cpu_usec: u64) -> v1::Frame {
        let mut sample = Sample::new(Duration::from_secs(1));
        sample.set(Field::CpuUsageUsec, cpu_usec);
        sample.set(Field::MemoryWorkingSetBytes, MEMORY);
        let mut bytes = Vec::new();
        let key = self.sequence == 0;
        self.encoder.encode_seconds(key, time_usec, SECOND as u32, &[(slot, sample)], &mut bytes).unwrap();
        self.frame(bytes)
    }

    fn frame(&mut self, bytes: Vec<u8>) -> v1::Frame {
        self.sequence += 1;
        v1::Frame {
            sequence: self.sequence,
            samples_crc32c: crc32c::crc32c(&bytes),
            samples: bytes.into(),
            ..v1::Frame::default()
        }
    }
}

/// Counters that have grown, and by how much.
type Grown = [(&'static str, u64)];

/// The counters that tell of bad samples.
async fn counters(running: &Running) -> Vec<(&'static str, u64)> {
    const NAMES: [&str; 11] = [
        "samples",
        "duplicate_frames",
        "late_samples",
        "misdated_samples",
        "ancient_samples",
        "counter_resets",
        "unannounced_samples",
        "unreadable_frames",
        "refused_frames",
        "lost_frames",
        "protocol_violations",
    ];
    let text = http(running.http, "GET", "/metrics", "").await.1;
    let value = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(&format!("evenkeel_recommender_{name}_total ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    };
    NAMES.into_iter().map(|name| (name, value(name))).collect()
}

/// What grew since `before`.
async fn grown(running: &Running, before: &mut Vec<(&'static str, u64)>) -> Vec<(&'static str, u64)> {
    let now = counters(running).await;
    let pairs = now.iter().zip(before.iter());
    let grown = pairs.filter(|(a, b)| a.1 != b.1).map(|(a, b)| (a.0, a.1 - b.1)).collect();
    *before = now;
    grown
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_of_bad_sample_follows_its_rule_and_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    let mut client = Client { encoder: Encoder::new(), sequence: 0 };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_micros() as u64;
    let start = now - 600 * SECOND;
    let mut before = counters(&running).await;
    let mut first = client.second(0, start, 0);
    first.announced = agent.announcements();
    link.send(vec![first, client.second(0, start + SECOND, 250_000)]).await;
    link.acknowledged(2).await;
    assert_eq!(grown(&running, &mut before).await, [("samples", 2)]);

    // Whatever was acknowledged is acknowledged again and not counted.
    let again = client.second(0, start + 2 * SECOND, 500_000);
    link.send(vec![again.clone(), again]).await;
    link.acknowledged(3).await;
    let good = client.second(0, start + 3 * SECOND, 750_000);
    link.send(vec![good]).await;
    link.acknowledged(4).await;
    assert_eq!(grown(&running, &mut before).await, [("samples", 2), ("duplicate_frames", 1)]);

    let table: [(&str, u32, u64, u64, &Grown); 6] = [
        (
            "the clock was set back",
            0,
            start - 300 * SECOND,
            1_000_000,
            &[("samples", 1), ("late_samples", 1)],
        ),
        ("two days ahead", 0, now + 2 * DAY, 1_250_000, &[("misdated_samples", 1)]),
        ("forty days ago", 0, now - 40 * DAY, 1_500_000, &[("ancient_samples", 1)]),
        ("before 1970 and a bit", 0, 5, 1_750_000, &[("ancient_samples", 1)]),
        ("the counter went back", 0, start + 4 * SECOND, 10, &[("samples", 1), ("counter_resets", 1)]),
        ("nobody announced it", 9, start + 5 * SECOND, 10, &[("unannounced_samples", 1)]),
    ];
    for (what, slot, time, cpu, want) in table {
        let frame = client.second(slot, time, cpu);
        link.send(vec![frame]).await;
        link.acknowledged(client.sequence).await;
        assert_eq!(grown(&running, &mut before).await, want, "{what}");
    }

    // A minute that claims more samples than a minute has: nothing of its frame counts, and the client is told.
    let mut minute = Rollup { samples: 1_000_000_000, time_usec: 60 * SECOND, ..Rollup::default() };
    minute.memory_bytes.add(MEMORY);
    minute.memory_bytes.count = 1_000_000_000;
    let mut bytes = Vec::new();
    encode_folded(&[(start / (60 * SECOND), 0, minute)], &mut bytes).unwrap();
    let frame = client.frame(bytes);
    link.send(vec![frame]).await;
    let refused = loop {
        if let Said::Refused(refused) = link.said().await {
            break refused;
        }
    };
    assert!(refused.sequence == client.sequence && refused.why.contains("more samples"), "{refused:?}");
    assert_eq!(
        grown(&running, &mut before).await,
        [("unreadable_frames", 1), ("refused_frames", 1), ("lost_frames", 1)]
    );

    // Out of order: the connection ends, and the next one says where to go on.
    client.sequence += 5;
    client.encoder = Encoder::new();
    let mut bytes = Vec::new();
    client.encoder.encode_seconds(true, start + 6 * SECOND, SECOND as u32, &[], &mut bytes).unwrap();
    let ahead = client.frame(bytes);
    link.send(vec![ahead]).await;
    assert!(link.ended().await.message().contains("missing"));
    assert_eq!(grown(&running, &mut before).await, [("protocol_violations", 1)]);
    let link = agent.connect(running.grpc).await;
    assert_eq!(link.resume.last_seq, client.sequence - 6);

    // What was good is all there is.
    let usage: Value = serde_json::from_str(&http(running.http, "GET", "/api/v1/usage", "").await.1).unwrap();
    let stats = |resource: &str| {
        let usage = &usage[0]["usage"][resource];
        (usage["count"].as_u64(), usage["min"].as_u64(), usage["max"].as_u64())
    };
    assert_eq!(stats("memory"), (Some(6), Some(MEMORY), Some(MEMORY)));
    // Neither the first second, nor the one in which the counter went back, has a use of CPU.
    assert_eq!(stats("cpu"), (Some(4), Some(250), Some(250)), "{usage}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_large_ends_the_stream_with_the_reason_and_the_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut link = Agent::new(1, &["web:1"]).connect(running.grpc).await;
    link.send(vec![v1::Frame { sequence: 1, samples: vec![0; 5 << 20].into(), ..v1::Frame::default() }])
        .await;
    let status = link.ended().await;
    assert!(status.code() == tonic::Code::OutOfRange, "{status:?}");
    assert!(
        status.message().contains("ingest.max_message") && status.message().contains("limit"),
        "{status:?}"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_unfolds_to_too_much_is_refused_before_it_is_decoded() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut link = Agent::new(1, &["web:1"]).connect(running.grpc).await;
    // Two bytes each on the wire.
    let announced = vec![v1::Announcement::default(); 200_000];
    link.send(vec![v1::Frame { sequence: 1, announced, ..v1::Frame::default() }]).await;
    let status = link.ended().await;
    assert!(status.code() == tonic::Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("1048576 parts"), "{status:?}");
    running.stop().await;
}
