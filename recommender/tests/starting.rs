//! What is answered while history is still being read back: the last answers of the run before, which say so.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::fs;
use std::process::Command;

use common::{Agent, Running, http, pod, until};
use evenkeel_proto::v1;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_recommender::config::Span;
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_history_is_read_back_the_answers_of_the_run_before_are_given_and_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let quick = |config: &mut evenkeel_recommender::config::Config| {
        config.recommend.watch_interval = Span::from_millis(50);
    };
    let running = Running::start(dir.path(), quick).await;
    let agent = &mut Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    // What is kept is written at the end; the samples have to be in it.
    let passes = || async {
        let text = http(running.http, "GET", "/metrics", "").await.1;
        let line = text.lines().find_map(|l| l.strip_prefix("evenkeel_recommender_passes_total "));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap()
    };
    let before = passes().await;
    until(|| async { (passes().await >= before + 2).then_some(()) }).await;
    let fresh = json(&http(running.http, "GET", "/api/v1/recommendations", "").await.1);
    running.stop().await;

    // Reading the checkpoint takes until somebody writes it.
    let checkpoint = dir.path().join("checkpoint");
    let content = fs::read(&checkpoint).unwrap();
    fs::remove_file(&checkpoint).unwrap();
    assert!(Command::new("mkfifo").arg(&checkpoint).status().unwrap().success());
    let running = Running::begin(dir.path(), quick).await;
    assert_eq!(http(running.http, "GET", "/readyz", "").await.0, 503);
    let (status, text) = http(running.http, "GET", "/api/v1/recommendations", "").await;
    let kept = json(&text);
    assert_eq!(status, 200, "{text}");
    let values = |all: &Value| -> Vec<(Value, Value)> {
        let all = all.as_array().unwrap().iter();
        all.map(|r| (r["resource"].clone(), r["request"].clone())).collect()
    };
    assert_eq!(values(&kept), values(&fresh));
    assert!(kept[0]["ageSeconds"].is_u64() && kept[0]["request"].is_u64(), "{kept}");
    let (status, text) = http(running.http, "POST", "/recommendedPodResources", &pod("web:1", "")).await;
    let got = json(&text);
    assert_eq!((status, &got["evenkeel"]["loading"]), (200, &Value::Bool(true)), "{got}");
    assert_eq!(got["containers"][0]["evenkeel"]["cpu"]["request"], kept[0]["request"], "{got}");
    assert_eq!(
        got["containers"][0]["resources"]["requests"],
        serde_json::json!({}),
        "nothing is changed yet"
    );
    let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let request = v1::RecommendPodRequest { pod: pod("web:1", ""), rules: Vec::new() };
    let answer = client.recommend_pod(request.clone()).await.unwrap().into_inner();
    assert!(answer.loading && answer.recommendations[0].request.is_some(), "{answer:?}");
    let list =
        client.list_recommendations(v1::ListRecommendationsRequest::default()).await.unwrap().into_inner();
    assert!(list.loading && list.recommendations.len() == 2, "{list:?}");
    // What cannot be answered from it says when to ask again.
    let (status, text) = http(running.http, "GET", "/api/v1/policies", "").await;
    assert!(status == 503 && text.contains("/readyz"), "{status} {text}");
    let nodes = client.list_nodes(v1::ListNodesRequest {}).await.unwrap_err();
    assert_eq!(nodes.code(), tonic::Code::Unavailable);

    let writing = tokio::task::spawn_blocking(move || fs::write(checkpoint, content));
    writing.await.unwrap().unwrap();
    running.ready().await;
    let answer = client.recommend_pod(request).await.unwrap().into_inner();
    assert!(!answer.loading && answer.recommendations[0].request.is_some(), "{answer:?}");
    let list =
        client.list_recommendations(v1::ListRecommendationsRequest::default()).await.unwrap().into_inner();
    assert!(!list.loading);
    running.stop().await;
}
