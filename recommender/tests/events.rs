//! Suite `unit`: what agents do and see as Events of a Kubernetes cluster's pods.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::path::Path;
use std::time::Duration;

use common::apiserver::{ApiServer, Mood};
use common::{Agent, Link, Running, http, until};
use evenkeel_proto::v1;
use evenkeel_recommender::config::{Config, Span};
use serde_json::{Value, json};

const EVENTS: &str = "/apis/events.k8s.io/v1/events";

fn pod(api: &ApiServer, name: &str, node: &str) {
    api.put(json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-{name}") },
        "spec": { "nodeName": node, "containers": [{ "name": "main" }] }, "status": { "phase": "Running" },
    }));
}

async fn started(dir: &Path, api: &ApiServer) -> Running {
    Running::start(dir, |config: &mut Config| {
        config.kubernetes.view = true;
        config.kubernetes.events = true;
        config.kubernetes.kubeconfig = api.kubeconfig(dir);
        config.kubernetes.cluster = "test".into();
        config.recommend.watch_interval = Span::from_millis(50);
    })
    .await
}

fn decision(seq: u64, pod: &str, kind: &str) -> v1::Decision {
    v1::Decision {
        time_usec: 1_795_225_427_216_099,
        seq,
        pod: Some(format!("shop/{pod}")),
        container: Some("main".into()),
        kind: kind.into(),
        reason: "killed at 64 MiB".into(),
        result: "done".into(),
        epoch: 7,
        ..v1::Decision::default()
    }
}

/// The agent's next second, with decisions.
async fn decided(agent: &mut Agent, link: &mut Link, decisions: Vec<v1::Decision>) {
    let mut frames = agent.measure(1);
    frames[0].decisions = decisions;
    link.send(frames).await;
}

fn events(api: &ApiServer) -> Vec<Value> {
    let all = api.everything().into_iter();
    all.filter(|((collection, ..), _)| collection == EVENTS).map(|(_, event)| event).collect()
}

async fn verbose(running: &Running) -> String {
    http(running.http, "GET", "/readyz?verbose", "").await.1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_to_pods_is_told_where_people_look() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    pod(&api, "w0-x", "node-1");
    pod(&api, "elsewhere", "node-2");
    let running = started(dir.path(), &api).await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    // What was decided before is not told: the first look is past once its second is over.
    link.send(agent.measure(3)).await;
    until(|| async { verbose(&running).await.contains("events: ok").then_some(()) }).await;
    // Sent again and again until the first one is told. The answer to its first try is lost, and it is there once.
    api.loses("/events");
    let mut first = None;
    for sequence in 1.. {
        decided(&mut agent, &mut link, vec![decision(sequence, "w0-x", "oom-kill")]).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        first = events(&api).pop();
        if first.is_some() || sequence > 300 {
            break;
        }
    }
    let first = first.unwrap();
    assert_eq!(
        (&first["reason"], &first["type"], &first["note"]),
        (&json!("OOMKill"), &json!("Warning"), &json!("killed at 64 MiB"))
    );
    assert_eq!(
        first["regarding"],
        json!({ "apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "w0-x", "uid": "uid-w0-x", "fieldPath": "spec.containers{main}" })
    );
    assert_eq!(
        (&first["eventTime"], &first["reportingInstance"]),
        (&json!("2026-11-21T01:43:47.216099Z"), &json!("node-1"))
    );

    // A pod that is not on this node, and what nobody looks for, are not told; what is equal is counted and not made anew.
    let all = vec![
        decision(901, "elsewhere", "oom-kill"),
        decision(902, "w0-x", "set"),
        decision(903, "w0-x", "oom-kill"),
        decision(904, "w0-x", "evict"),
    ];
    decided(&mut agent, &mut link, all).await;
    let two = until(|| async { Some(events(&api)).filter(|all| all.len() > 1) }).await;
    let reasons: Vec<&Value> = two.iter().map(|event| &event["reason"]).collect();
    assert_eq!(reasons, [&json!("OOMKill"), &json!("Eviction")]);

    // Refusals pass, and what waits is not lost.
    api.write_storm(2, 429, Some(1));
    decided(&mut agent, &mut link, vec![decision(905, "w0-x", "restart")]).await;
    until(|| async {
        verbose(&running).await.contains("events: Kubernetes Events: status 429").then_some(())
    })
    .await;
    until(|| async { (events(&api).len() == 3).then_some(()) }).await;
    until(|| async { verbose(&running).await.contains("events: ok").then_some(()) }).await;
    api.write_storm(1, 422, None);
    decided(&mut agent, &mut link, vec![decision(906, "w0-x", "thrash"), decision(907, "w0-x", "starved")])
        .await;
    until(|| async { events(&api).iter().any(|event| event["reason"] == "CPUStarved").then_some(()) }).await;
    assert_eq!(events(&api).len(), 4, "one that is refused is dropped");
    // An API server that is away, and rights that are not there.
    api.is(Mood::Fails(503));
    decided(&mut agent, &mut link, vec![decision(908, "w0-x", "kill")]).await;
    until(|| async { verbose(&running).await.contains("Kubernetes Events: status 503").then_some(()) }).await;
    api.is(Mood::Well);
    until(|| async { events(&api).iter().any(|event| event["reason"] == "Killed").then_some(()) }).await;
    api.forbid("events", true);
    decided(&mut agent, &mut link, vec![decision(909, "w0-x", "contended")]).await;
    until(|| async { verbose(&running).await.contains("cannot create resource \"events\"").then_some(()) })
        .await;
    assert_eq!(http(running.http, "GET", "/readyz", "").await.0, 200);
    let (_, metrics) = http(running.http, "GET", "/metrics", "").await;
    assert!(metrics.contains("evenkeel_recommender_kubernetes_events_dropped_total 1\n"), "{metrics}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn classes_of_pods_are_their_condition() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    let mut known = json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": { "name": "w0-x", "namespace": "shop", "uid": "uid-w0-x" },
        "spec": { "nodeName": "node-1", "containers": [{ "name": "main" }] },
        "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
    });
    api.put(known.clone());
    pod(&api, "elsewhere", "node-2");
    let running = Running::start(dir.path(), |config: &mut Config| {
        config.kubernetes.view = true;
        config.kubernetes.conditions = true;
        config.kubernetes.kubeconfig = api.kubeconfig(dir.path());
        config.kubernetes.cluster = "test".into();
    })
    .await;
    let mut agent = Agent::new(1, &["web:1"]);
    agent.classes = (v1::QosClass::Burstable, v1::QosClass::Guaranteed);
    let mut link = agent.connect(running.grpc).await;
    // Refused as if another pod had the name, it is told with the next look.
    api.refuses("pods/w0-x/status", 409);
    link.send(agent.measure(3)).await;
    // Beside what the kubelet says.
    let conditions =
        |name: &str| api.object("/api/v1/pods", "shop", name).unwrap()["status"]["conditions"].clone();
    let told =
        until(|| async { Some(conditions("w0-x")).filter(|all| all.as_array().unwrap().len() == 2) }).await;
    assert_eq!(told[0], json!({ "type": "Ready", "status": "True" }));
    assert_eq!(
        told[1],
        json!({ "type": "evenkeel.dev/QoS", "status": "True", "reason": "Mixed", "message": "main: memory Burstable, cpu Guaranteed" })
    );
    assert_eq!(conditions("elsewhere"), Value::Null, "it is not known what runs there");
    assert!(events(&api).is_empty(), "Events were not asked for");
    // Another pod of the name is told by itself, and rights that are not there are said.
    api.forbid("pods", true);
    known["metadata"]["uid"] = "uid-again".into();
    api.delete("/api/v1/pods", "shop", "w0-x");
    api.put(known);
    until(|| async {
        verbose(&running).await.contains("events: conditions of pods: status 403").then_some(())
    })
    .await;
    let (_, metrics) = http(running.http, "GET", "/metrics", "").await;
    assert!(metrics.contains("evenkeel_recommender_kubernetes_conditions_written_total 1\n"), "{metrics}");
    running.stop().await;
}
