//! Use over time by REST and gRPC, and what is wrong with questions for it.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use common::{Agent, Running, http};
use evenkeel_proto::v1;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use serde_json::Value;
use tokio_stream::StreamExt as _;

const PLACE: &str = "/api/v1/usage/series";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn series_are_streamed_with_their_gaps_in_both_forms() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut agent = Agent::new(1, &["web:1", "db:7"]);
    // From the beginning of a minute on: three of them, two that are lost, two more.
    agent.time_usec = agent.time_usec / 60_000_000 * 60_000_000;
    let begin = agent.time_usec / 1_000_000;
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(179)).await;
    agent.time_usec += 121_000_000;
    link.send(agent.measure(130)).await;
    link.acknowledged(309).await;

    let (status, text) = http(running.http, "GET", &format!("{PLACE}?resource=memory"), "").await;
    assert_eq!(status, 200, "{text}");
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let of = |series: &str| -> Vec<&Value> {
        lines.iter().filter(|line| line["series"] == format!("shop/deployment/{series}/main")).collect()
    };
    for series in ["w0", "w1"] {
        let values: Vec<&Value> = of(series).into_iter().filter(|line| line["value"].is_u64()).collect();
        let times: Vec<u64> = values.iter().map(|line| line["t"].as_u64().unwrap() - begin).collect();
        assert_eq!(times[..3], [0, 60, 120], "{text}");
        assert!(times[3..].iter().all(|time| *time >= 300) && times.len() >= 5, "{times:?}");
        assert!(values.iter().all(|line| line["value"] == 64 << 20), "{values:?}");
        let gap = of(series).into_iter().find_map(|line| line["gap"]["fromSeconds"].as_u64());
        assert_eq!(gap, Some(begin + 180), "{text}");
    }

    let from = begin + 60;
    let path = format!(
        "{PLACE}?resource=cpu&workload=deployment/w1&fromSeconds={from}&toSeconds={}&format=csv",
        begin + 180
    );
    let (status, text) = http(running.http, "GET", &path, "").await;
    let rows: Vec<&str> = text.lines().filter(|line| line.contains(',')).collect();
    assert_eq!(status, 200);
    let row = |time: u64| format!("shop/deployment/w1/main,{time},0.25");
    assert_eq!(rows, ["series,t,value".to_owned(), row(from), row(from + 60)]);

    let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let ask = |step_seconds| v1::QuerySeriesRequest {
        resource: "memory".into(),
        namespace: "shop".into(),
        step_seconds,
        ..v1::QuerySeriesRequest::default()
    };
    let mut pieces = client.query_series(ask(1)).await.unwrap().into_inner();
    let mut seconds = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.unwrap();
        assert!(piece.times.len() >= 60 && piece.times.windows(2).all(|pair| pair[0] < pair[1]), "{piece:?}");
        seconds.push(piece.series);
    }
    seconds.sort();
    assert_eq!(seconds, ["shop/w0-x/main", "shop/w1-x/main"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_questions_are_told_what_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
    for (query, part) in [
        ("", "write cpu or memory"),
        ("?resource=disk", "write cpu or memory"),
        ("?resource=cpu&stepSeconds=7", "write 1, 60, 3600 or 86400"),
        ("?resource=cpu&fromSeconds=20&toSeconds=20", "does not come after"),
        ("?resource=cpu&fromSeconds=1700000000000", "after the year 9999"),
        ("?resource=cpu&format=xml", "format"),
        ("?resource=cpu&from=5", "unknown field"),
    ] {
        let (status, text) = http(running.http, "GET", &format!("{PLACE}{query}"), "").await;
        assert!(status == 400 && text.contains(part), "{query}: {status} {text}");
    }
    let wrong = v1::QuerySeriesRequest { resource: "cpu".into(), step_seconds: 7, ..Default::default() };
    assert_eq!(client.query_series(wrong).await.unwrap_err().code(), tonic::Code::InvalidArgument);
    // Nothing is known of anybody: no series, and no error.
    let (status, text) = http(running.http, "GET", &format!("{PLACE}?resource=cpu&format=csv"), "").await;
    assert!(status == 200 && text.contains("series,t,value"), "{status} {text}");

    let long = v1::SetPanicRequest { on: true, reason: "x".repeat(1025), revert: false };
    let refused = client.set_panic(long).await.unwrap_err();
    assert!(refused.message().contains("over 1024 bytes"), "{refused:?}");
    running.stop().await;
}
