//! Suite `unit`: beside a Kubernetes cluster, history and recommendations are a Deployment's and survive its rollouts; a node tells that of its own
//! pods alone; the cluster's limit ranges and quotas hold.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::path::Path;

use common::apiserver::{ApiServer, Mood};
use common::{Agent, Running, http, until};
use evenkeel_proto::v1;
use evenkeel_proto::v1::stream_response::Message as Said;
use evenkeel_recommender::config::{Config, Span};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

fn object(kind: &str, version: &str, name: &str, owner: Option<(&str, &str)>) -> Value {
    let by = |(kind, name): (&str, &str)| json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "o", "controller": true }]);
    let owners = owner.map_or(json!([]), by);
    json!({
        "kind": kind, "apiVersion": version,
        "metadata": { "name": name, "namespace": "shop", "ownerReferences": owners, "labels": { "app": "web" } },
    })
}

fn set(name: &str) -> Value {
    let mut set = object("ReplicaSet", "apps/v1", name, Some(("Deployment", "web")));
    set["spec"] = json!({ "selector": { "matchLabels": { "app": "web" } } });
    set
}

fn pod(name: &str, set: &str, node: &str) -> Value {
    let mut pod = object("Pod", "v1", name, Some(("ReplicaSet", set)));
    pod["spec"] = json!({ "nodeName": node, "containers": [{ "name": "main" }] });
    pod["status"] = json!({ "phase": "Running" });
    pod
}

async fn started(dir: &Path, api: &ApiServer) -> Running {
    let running = Running::start(dir, |config: &mut Config| {
        config.kubernetes.view = true;
        config.kubernetes.kubeconfig = api.kubeconfig(dir);
        config.kubernetes.cluster = "test".into();
        config.recommend.watch_interval = Span::from_millis(50);
        config.policies = Vec::new();
        config.acting.min_span = Span::from_secs(60);
        config.acting.interval = Span::from_secs(1);
    })
    .await;
    until(|| async {
        running.metric("kubernetes_known{kind=\"LimitRange\"}").await.filter(|known| *known == 1)
    })
    .await;
    until(|| async { running.metric("kubernetes_watching{kind=\"Pod\"}").await.filter(|known| *known == 1) })
        .await;
    running
}

impl Running {
    async fn metric(&self, name: &str) -> Option<u64> {
        let (_, text) = http(self.http, "GET", "/metrics", "").await;
        let name = format!("evenkeel_recommender_{name} ");
        text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok())
    }

    async fn get(&self, path: &str) -> Value {
        let (status, text) = http(self.http, "GET", path, "").await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Recommendations of memory: workload, minutes, what caps the value.
    async fn memory(&self) -> Vec<(String, u64, String)> {
        let all = self.get("/api/v1/recommendations?namespace=shop").await;
        let rows = all.as_array().unwrap().iter().filter(|row| row["resource"] == "memory");
        let row = |row: &Value| {
            let capped = row["cappedBy"].as_array().unwrap().iter().map(|by| by.as_str().unwrap());
            let capped: Vec<&str> = capped.collect();
            (row["workload"].as_str().unwrap().to_owned(), row["samples"].as_u64().unwrap(), capped.join(","))
        };
        rows.map(row).collect()
    }

    /// What was left out of a node's words because its pods are not placed there.
    async fn misplaced(&self, node: &str) -> u64 {
        let nodes = self.get("/api/v1/nodes").await;
        let node = nodes.as_array().unwrap().iter().find(|of| of["name"] == node).unwrap().clone();
        let dropped = node["dropped"].as_array().unwrap().iter().find(|of| of["reason"] == "not-placed-here");
        dropped.map_or(0, |dropped| dropped["count"].as_u64().unwrap())
    }
}

/// As an agent that sees a runtime alone announces a container of a pod.
fn announce(slot: u32, pod: &str, workload: &str) -> v1::Announcement {
    let identity = v1::ContainerIdentity {
        id: format!("c-{pod}"),
        namespace: "shop".into(),
        pod: pod.into(),
        pod_uid: format!("uid-{pod}"),
        container: "main".into(),
        workload: workload.into(),
        image: "web:1".into(),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        ..v1::ContainerIdentity::default()
    };
    v1::Announcement { slot, identity: Some(identity) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_keeps_its_history_over_a_rollout_and_no_other_node_adds_to_it() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    for object in [set("web-a"), pod("web-a-1", "web-a", "node-1")] {
        api.put(object);
    }
    let running = started(dir.path(), &api).await;
    let mut agent = Agent::new(1, &["web:1", "web:1"]);
    let mut link = agent.connect(running.grpc).await;
    let mut frames = agent.measure(240);
    frames[0].announced = vec![announce(0, "web-a-1", "web-a-1")];
    link.send(frames).await;
    link.acknowledged(240).await;
    let first = until(|| async { Some(running.memory().await).filter(|rows| !rows.is_empty()) }).await;
    assert_eq!((first.len(), &*first[0].0), (1, "deployment/web"));

    // A node that the pod is not on tells of it, under the name of the Deployment too, and of a pod that there is not.
    let mut foreign = Agent::on("node-3", 1, &["web:1", "web:1", "web:1"]);
    foreign.use_at = Some(|_, _| (2_000, 2_000 * MIB));
    let mut other = foreign.connect(running.grpc).await;
    let mut frames = foreign.measure(240);
    frames[0].announced = vec![
        announce(0, "web-a-1", "web-a-1"),
        announce(1, "web-a-1", "deployment/web"),
        announce(2, "web-a-9", "deployment/web"),
    ];
    other.send(frames).await;
    other.acknowledged(240).await;
    assert_eq!(
        running.misplaced("node-3").await,
        480,
        "the third is not known, for which there may be a reason"
    );
    assert_eq!(running.metric("misplaced_samples_total").await, Some(720));
    assert_eq!(running.misplaced("node-1").await, 0);
    let told = loop {
        if let Said::Disbelieved(told) = other.said().await {
            break told.dropped[0].clone();
        }
    };
    assert_eq!(told.reason, "not-placed-here");
    assert!(told.remedy.contains("node.name"), "{}", told.remedy);

    // The rollout: another pod, of another replica set.
    api.put(set("web-b"));
    api.put(pod("web-b-1", "web-b", "node-1"));
    until(|| async { running.metric("kubernetes_objects{kind=\"Pod\"}").await.filter(|pods| *pods == 2) })
        .await;
    api.delete("/api/v1/pods", "shop", "web-a-1");
    let mut frames = agent.measure(240);
    frames[0].announced = vec![announce(1, "web-b-1", "web-b-1")];
    frames[0].gone = vec![0];
    link.send(frames).await;
    link.acknowledged(480).await;
    let after = until(|| async {
        let rows = running.memory().await;
        // Eight minutes, of which the last may go on; an answer between two of its frames has less.
        (rows[0].1 >= 7).then_some(rows)
    })
    .await;
    assert_eq!((after.len(), &*after[0].0), (1, "deployment/web"), "one history for both: {after:?}");
    assert!(after[0].1 > first[0].1, "of both pods: {after:?}");
    let usage = running.get("/api/v1/usage?namespace=shop").await;
    let [usage] = usage.as_array().unwrap().as_slice() else { panic!("{usage}") };
    // All seconds of both pods, and none of the foreign ones, which used eight times as much.
    let cpu = &usage["usage"]["cpu"];
    assert_eq!(
        (&usage["workload"], &cpu["count"], &cpu["max"]),
        (&json!("deployment/web"), &json!(480), &json!(250))
    );
    assert_eq!(usage["live"][0]["pod"], "web-b-1");

    // So it is after a restart, while the API server is away.
    running.stop().await;
    api.is(Mood::Fails(503));
    let running = Running::start(dir.path(), |config: &mut Config| {
        config.kubernetes.view = true;
        config.kubernetes.kubeconfig = api.kubeconfig(dir.path());
        config.kubernetes.cluster = "test".into();
        config.recommend.watch_interval = Span::from_millis(50);
        config.policies = Vec::new();
    })
    .await;
    let mut link = agent.connect(running.grpc).await;
    assert!(link.resume.knows_slots);
    link.send(agent.measure(60)).await;
    link.acknowledged(540).await;
    let rows = until(|| async { Some(running.memory().await).filter(|rows| !rows.is_empty()) }).await;
    assert_eq!((rows.len(), &*rows[0].0), (1, "deployment/web"));
    assert!(rows[0].1 >= after[0].1, "{rows:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_ranges_of_the_cluster_cap_and_nodes_are_told_by_their_own_names() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    for object in [set("web-a"), pod("web-a-1", "web-a", "node-1")] {
        api.put(object);
    }
    let mut range = object("LimitRange", "v1", "bounds", None);
    range["spec"] = json!({ "limits": [{ "type": "Container", "max": { "memory": "20Mi" } }] });
    api.put(range);
    let running = started(dir.path(), &api).await;
    let policy = r#"{"apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"target": {"matchLabels": {"app": "web"}}, "updatePolicy": {"mode": "auto"}}}"#;
    let (status, text) = http(running.http, "POST", "/api/v1/policies", policy).await;
    assert!(status < 300, "{status}: {text}");
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    let mut frames = agent.measure(300);
    let mut announced = announce(0, "web-a-1", "web-a-1");
    // A quota counts what is requested now: without, it would cap nothing.
    announced.identity.as_mut().unwrap().requested =
        Some(v1::ResourceValues { memory_request_bytes: Some(10 * MIB), ..v1::ResourceValues::default() });
    frames[0].announced = vec![announced];
    link.send(frames).await;
    link.acknowledged(300).await;
    let capped = |wanted: &'static str| {
        let running = &running;
        until(move || async move {
            let rows = running.memory().await;
            rows.iter().any(|(workload, _, by)| workload == "deployment/web" && by == wanted).then_some(())
        })
    };
    capped("LimitRange max").await;
    // The agent knows its pods by what its runtime says.
    let entry = loop {
        if let Said::Overlay(v1::Overlay { entries, .. }) = link.said().await
            && let [entry] = entries.as_slice()
            && entry.memory_request_bytes.is_some()
        {
            break entry.clone();
        }
    };
    assert_eq!((&*entry.workload, entry.memory_request_bytes), ("web-a-1", Some(20 * MIB)));

    // A quota: 24 MiB are left of it.
    api.delete("/api/v1/limitranges", "shop", "bounds");
    capped("").await;
    let mut quota = object("ResourceQuota", "v1", "all", None);
    quota["spec"] = json!({ "hard": { "requests.memory": "1Gi" } });
    quota["status"] =
        json!({ "hard": { "requests.memory": "1Gi" }, "used": { "requests.memory": "1000Mi" } });
    api.put(quota);
    capped("ResourceQuota").await;
    let spaces = running.get("/api/v1/namespaces").await.to_string();
    assert!(spaces.contains("1073741824"), "{spaces}");
    running.stop().await;
}
