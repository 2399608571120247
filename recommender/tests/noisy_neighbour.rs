//! A node that announces far more containers than it may have does not hold up the others: what it may not bring is
//! refused by name and number, at a cost in proportion to what it sends.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::{Agent, Link, Running, http};
use evenkeel_proto::v1;

/// What the node announces, and how many in a frame.
const ANNOUNCED: u32 = 100_000;
const FRAME: u32 = 2_000;

fn announced(from: u32) -> v1::Frame {
    let one = |slot: u32| v1::Announcement {
        slot,
        identity: Some(v1::ContainerIdentity {
            namespace: "evil".into(),
            pod: format!("p{slot}"),
            container: "main".into(),
            workload: format!("job/p{slot}"),
            image: "web:1".into(),
            ..v1::ContainerIdentity::default()
        }),
    };
    v1::Frame {
        sequence: u64::from(from / FRAME) + 1,
        announced: (from..from + FRAME).map(one).collect(),
        ..v1::Frame::default()
    }
}

/// Time until a frame is acknowledged, of some frames, in order of length.
async fn latencies(agent: &mut Agent, link: &mut Link, enough: impl Fn(usize) -> bool) -> Vec<Duration> {
    let mut all = Vec::new();
    while !enough(all.len()) {
        let frames = agent.measure(1);
        let last = frames[0].sequence;
        let began = Instant::now();
        link.send(frames).await;
        link.acknowledged(last).await;
        all.push(began.elapsed());
    }
    all.sort_unstable();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_node_that_announces_a_hundred_thousand_containers_delays_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut good = Agent::new(1, &["web:1", "db:1"]);
    let mut link = good.connect(running.grpc).await;
    let quiet = latencies(&mut good, &mut link, |count| count >= 50).await;

    let done = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&done);
    let frames: Vec<v1::Frame> = (0..ANNOUNCED).step_by(FRAME as usize).map(announced).collect();
    let at = running.grpc;
    // Another machine, as far as it goes: what it costs to send so much is not the recommender's.
    let flooding = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let took = runtime.block_on(async {
            let mut flood = Agent::on("evil", 2, &[]).connect(at).await;
            let began = Instant::now();
            for frame in frames {
                flood.send(vec![frame]).await;
            }
            flood.acknowledged(u64::from(ANNOUNCED / FRAME)).await;
            began.elapsed()
        });
        over.store(true, Ordering::SeqCst);
        took
    });
    let during = latencies(&mut good, &mut link, |_| done.load(Ordering::SeqCst)).await;
    let took = flooding.join().unwrap();
    let of = |all: &[Duration]| (all[all.len() / 2], all[all.len() - 1]);
    println!(
        "acknowledged after (median, longest): {:?} alone, {:?} beside {ANNOUNCED} announcements in {took:?}",
        of(&quiet),
        of(&during)
    );
    // It waits for two messages of 2,000 announcements at most, whatever is sent. When each announcement walked over all, the
    // last ones took seconds each; far above what a machine that is busy with other tests makes of it.
    assert!(of(&during).0 < of(&quiet).0 * 20 + Duration::from_millis(100), "{during:?} beside {quiet:?}");
    assert!(of(&during).1 < Duration::from_secs(5), "{during:?} beside {quiet:?}");

    let (_, text) = http(running.http, "GET", "/metrics", "").await;
    let metric = |name: &str| {
        let line = text.lines().find_map(|l| l.strip_prefix(&format!("evenkeel_recommender_{name} ")));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse::<u64>().unwrap()
    };
    assert_eq!(metric("refused_containers_total"), u64::from(ANNOUNCED) - 4_000);
    // Its containers do not run before it has measured any.
    assert_eq!((metric("containers"), metric("containers_kept")), (2, 4_002));
    let (_, nodes) = http(running.http, "GET", "/api/v1/nodes", "").await;
    let nodes: serde_json::Value = serde_json::from_str(&nodes).unwrap();
    let refused = |name: &str| {
        let all = nodes.as_array().unwrap();
        all.iter().find(|node| node["name"] == name).map(|node| node["refusedContainers"].clone())
    };
    assert_eq!(refused("evil"), Some(96_000.into()));
    assert_eq!(refused("node-1"), Some(0.into()));
    running.stop().await;
}
