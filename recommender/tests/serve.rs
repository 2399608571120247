//! The whole service over its interfaces: frames in by gRPC, answers out by gRPC and HTTP, across restarts.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::time::Duration;

use common::{Agent, Running, http, pod};
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_proto::v1::stream_response::Message as Said;
use evenkeel_proto::v1::{self, capacity_service_client::CapacityServiceClient};
use evenkeel_recommender::config::Size;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_answers_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut agent = Agent::new(1, &["web:1", "web:1", "db:7"]);
    let mut link = agent.connect(running.grpc).await;
    assert_eq!((link.resume.last_seq, link.resume.knows_slots), (0, false));
    link.send(agent.measure(90)).await;
    link.acknowledged(90).await;
    let before = http(running.http, "GET", "/api/v1/recommendations", "").await;
    assert_eq!(before.0, 200);
    running.stop().await;

    let running = Running::start(dir.path(), |_| {}).await;
    let after = http(running.http, "GET", "/api/v1/recommendations", "").await;
    let value_of = |text: &str| {
        let all = json(text);
        let all = all.as_array().unwrap().clone();
        let mut values: Vec<_> = all.iter().map(|r| (r["container"].clone(), r["request"].clone())).collect();
        values.sort_by_key(|v| format!("{v:?}"));
        values
    };
    assert_eq!(value_of(&before.1), value_of(&after.1));
    assert!(value_of(&after.1).iter().all(|(_, request)| request.is_u64()), "{}", after.1);

    let mut link = agent.connect(running.grpc).await;
    assert_eq!((link.resume.last_seq, link.resume.knows_slots), (90, true));
    link.send(agent.measure(5)).await;
    link.acknowledged(95).await;
    let nodes = json(&http(running.http, "GET", "/api/v1/nodes", "").await.1);
    assert_eq!(nodes[0]["samples"], 3 * 95);
    assert_eq!(nodes[0]["gaps"], 0);
    assert_eq!(nodes[0]["connected"], true);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newer_of_two_connections_wins() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut older = agent.connect(running.grpc).await;
    older.send(agent.measure(2)).await;
    older.acknowledged(2).await;
    let mut newer = agent.connect(running.grpc).await;
    assert_eq!(newer.resume.last_seq, 2);
    assert_eq!(older.ended().await.code(), tonic::Code::Aborted);
    newer.send(agent.measure(2)).await;
    newer.acknowledged(4).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_protocol_ends_the_connection_and_a_damaged_frame_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut frames = agent.measure(4);
    let mut link = agent.connect(running.grpc).await;
    frames[1].samples_crc32c ^= 1;
    let last = frames.split_off(3);
    link.send(frames).await;
    let refused = loop {
        if let Said::Refused(refused) = link.said().await {
            break refused;
        }
    };
    assert_eq!(refused.sequence, 2);
    assert!(refused.why.contains("checksum"), "{}", refused.why);

    let mut gap = last;
    gap[0].sequence = 9;
    link.send(gap).await;
    let status = link.ended().await;
    assert_eq!(status.code(), tonic::Code::OutOfRange);
    assert!(status.message().contains("missing"), "{}", status.message());
    let metrics = http(running.http, "GET", "/metrics", "").await.1;
    assert!(metrics.contains("evenkeel_recommender_protocol_violations_total 1\n"), "{metrics}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_log_stops_acknowledging_and_nothing_else_until_there_is_room() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |config| {
        config.ingest.max_message = Size::from_bytes(1 << 16);
        config.log.segment_bytes = Size::from_bytes(1 << 16);
        config.log.max_bytes = Size::from_bytes(1 << 20);
        config.log.checkpoint_bytes = Size::from_bytes(1 << 18);
    })
    .await;
    // A directory where the checkpoint is written first: no checkpoint, no trim.
    let obstacle = dir.path().join("checkpoint.new");
    std::fs::create_dir(&obstacle).unwrap();
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    let filler = |frame: &mut v1::Frame| {
        frame.decisions = vec![v1::Decision { reason: "x".repeat(50_000), ..v1::Decision::default() }];
    };
    let mut frames = agent.measure(40);
    frames.iter_mut().for_each(filler);
    for frame in frames {
        link.send(vec![frame]).await;
    }
    let unready = common::until(|| async {
        let (status, text) = http(running.http, "GET", "/readyz?verbose", "").await;
        (status == 503).then_some(text)
    })
    .await;
    assert!(unready.contains("[-]log: log") && unready.contains("is full"), "{unready}");
    assert_eq!(http(running.http, "GET", "/api/v1/nodes", "").await.0, 200, "questions are answered");
    std::fs::remove_dir(&obstacle).unwrap();
    link.acknowledged(40).await;
    common::until(|| async { (http(running.http, "GET", "/readyz", "").await.0 == 200).then_some(()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rest_answers_and_refuses_by_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |config| config.serve.max_body = Size::from_bytes(4096)).await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    let known = pod("docker.io/library/web:1", "");
    let unknown =
        pod("other:1", r#", "resources": {"requests": {"cpu": "1500m"}, "limits": {"memory": "1Gi"}}"#);
    let capped = pod("web:2", r#", "resources": {"limits": {"cpu": "10m"}}"#);
    let large = pod(&"w".repeat(5000), "");
    let table: &[(&str, &str, &str, u16, &[&str])] = &[
        ("POST", "/recommendedPodResources", &known, 200, &[r#""cpu":"25"#, r#""memory":"6"#, "image 30d"]),
        ("GET", "/recommendedPodResources", &known, 200, &[r#""cpu":"25"#]),
        (
            "POST",
            "/recommendedPodResources",
            &unknown,
            200,
            &[r#""requests":{"cpu":"1500m"}"#, r#""tier":"none""#],
        ),
        ("POST", "/recommendedPodResources", &unknown, 200, &[r#""limits":{"memory":"1Gi"}"#]),
        ("POST", "/recommendedPodResources", &capped, 200, &[r#""cpu":"10m""#, r#""cappedBy":["limit"]"#]),
        ("POST", "/recommendedPodResources", "", 400, &["no body", "remedy"]),
        ("POST", "/recommendedPodResources", "{", 400, &[r#""what""#, r#""where""#]),
        ("POST", "/recommendedPodResources", r#"{"spec": {"containers": 3}}"#, 400, &["spec.containers"]),
        ("POST", "/recommendedPodResources", &large, 413, &["error"]),
        ("DELETE", "/recommendedPodResources", "", 405, &["DELETE"]),
        (
            "GET",
            "/api/v1/recommendations",
            "",
            200,
            &[r#""rule":"initial""#, r#""spanSeconds""#, r#""now":"#],
        ),
        ("GET", "/api/v1/recommendations?namespace=none", "", 200, &["[]"]),
        ("GET", "/api/v1/recommendations?nonsense=1", "", 400, &["nonsense"]),
        (
            "GET",
            "/api/v1/usage?workload=deployment/w0",
            "",
            200,
            &[r#""maxusage""#, r#""predicted""#, r#""99.9""#],
        ),
        ("GET", "/api/v1/usage?windowSeconds=x", "", 400, &["windowSeconds"]),
        ("GET", "/api/v1/nodes", "", 200, &[r#""name":"node-1""#, r#""samples":70"#]),
        ("GET", "/api/v1/events?limit=1", "", 200, &["["]),
        ("GET", "/metrics", "", 200, &["evenkeel_recommender_samples_total 70\n", "# EOF"]),
        ("GET", "/healthz", "", 200, &["ok"]),
        ("GET", "/readyz?verbose", "", 200, &["[+]log: ok", "ready"]),
        ("GET", "/openapi.json", "", 200, &["3.1.0"]),
        ("GET", "/nowhere", "", 404, &["/openapi.json"]),
    ];
    for (method, path, body, status, wants) in table {
        let (got, text) = http(running.http, method, path, body).await;
        assert_eq!(got, *status, "{method} {path} {body}: {text}");
        for want in *wants {
            assert!(text.contains(want), "{method} {path}: {want} not in {text}");
        }
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grpc_answers_what_rest_does_and_keeps_the_panic_switch() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let watch = v1::RecommenderServiceWatchUsageRequest { node: "node-1".into() };
    let mut watched = client.watch_usage(watch).await.unwrap().into_inner();
    use v1::recommender_service_watch_usage_response::Event;
    let first = watched.message().await.unwrap().unwrap().event.unwrap();
    assert!(matches!(first, Event::Bookmark(_)), "nothing yet: {first:?}");
    link.send(agent.measure(3)).await;
    link.acknowledged(3).await;
    let seen = watched.message().await.unwrap().unwrap().event.unwrap();
    let Event::Usage(usage) = seen else { panic!("{seen:?}") };
    assert_eq!(usage.identity.unwrap().container, "main");

    let recommendations = client
        .recommend_pod(v1::RecommendPodRequest { pod: pod("web:1", ""), rules: Vec::new() })
        .await
        .unwrap()
        .into_inner();
    let values: Vec<_> =
        recommendations.recommendations.iter().map(|r| (r.resource.as_str(), r.request)).collect();
    // Exact by minutes, and up to the end of a bucket, at most 1/32 wider, by days.
    let [("cpu", Some(cpu)), ("memory", Some(memory))] = values[..] else { panic!("{values:?}") };
    assert!((250..=258).contains(&cpu) && (64 << 20..=66 << 20).contains(&memory), "{values:?}");
    let list =
        client.list_recommendations(v1::ListRecommendationsRequest::default()).await.unwrap().into_inner();
    assert_eq!(list.recommendations.len(), 2);
    let records = client.query_usage(v1::QueryUsageRequest::default()).await.unwrap().into_inner().records;
    assert_eq!(records[0].usage["memory"].count, 3);
    let wrong = client
        .recommend_pod(v1::RecommendPodRequest { pod: "]".into(), rules: Vec::new() })
        .await
        .unwrap_err();
    assert_eq!(wrong.code(), tonic::Code::InvalidArgument);

    let mut capacity = CapacityServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let asked = pod("web:1", r#", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}"#);
    let estimate = v1::EstimateRequest { pods: vec![asked], ..v1::EstimateRequest::default() };
    let answer = capacity.estimate(estimate).await.unwrap().into_inner();
    assert_eq!((answer.count, answer.stop.as_str()), (4, "Unschedulable"), "{answer:?}");

    let on = v1::SetPanicRequest { on: true, reason: "drill".into(), revert: false };
    assert!(client.set_panic(on).await.unwrap().into_inner().on);
    let alone = v1::SetPanicRequest { on: false, reason: String::new(), revert: true };
    assert_eq!(client.set_panic(alone).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    let back = v1::SetPanicRequest { on: true, reason: "drill".into(), revert: true };
    assert!(client.set_panic(back).await.unwrap().into_inner().revert);
    let listed = client.list_recommendations(v1::ListRecommendationsRequest::default()).await.unwrap();
    assert!(listed.into_inner().panic_revert, "the list says that requests go back");
    running.stop().await;
    let running = Running::start(dir.path(), |_| {}).await;
    let metrics = http(running.http, "GET", "/metrics", "").await.1;
    assert!(metrics.contains("evenkeel_recommender_panic 1\n"), "{metrics}");
    assert!(metrics.contains("evenkeel_recommender_panic_revert 1\n"), "it outlives the process: {metrics}");
    tokio::time::timeout(Duration::from_secs(30), running.stop()).await.unwrap();
}
