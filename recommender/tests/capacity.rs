//! Questions about capacity over the interfaces: agents' nodes, posted snapshots, limits, and watched questions.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use common::{Agent, Running, http, until};
use evenkeel_proto::v1::{self, capacity_service_client::CapacityServiceClient};
use evenkeel_recommender::config::{Size, Span, WatchSection};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const PATH: &str = "/api/v1/capacity";

fn pod() -> Value {
    json!({
        "kind": "Pod",
        "metadata": { "name": "p" },
        "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1", "memory": "1Gi" } } }] },
    })
}

async fn ask(running: &Running, question: &Value) -> (u16, Value) {
    let (status, text) = http(running.http, "POST", PATH, &question.to_string()).await;
    (status, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}")))
}

/// A connected agent of a node with four cores and 8 GiB.
async fn reporting(running: &Running) -> common::Link {
    reporting_as(running, 1).await
}

async fn reporting_as(running: &Running, epoch: u64) -> common::Link {
    let mut agent = Agent::new(epoch, &["web:1", "web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(3)).await;
    link.acknowledged(3).await;
    link
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_agents_report_is_a_cluster_and_a_snapshot_of_it_answers_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let (status, nobody) = ask(&running, &json!({ "pods": [pod()] })).await;
    assert_eq!((status, &nobody["message"]), (200, &json!("no nodes available to schedule pods")));
    let _link = reporting(&running).await;

    let question = json!({ "pods": [pod()], "lose": ["any"], "recommended": true });
    let (status, answer) = ask(&running, &question).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!((&answer["count"], &answer["binding"]), (&json!(4), &json!("nodes")), "{answer}");
    assert_eq!(answer["perNode"], json!({ "node-1": 4 }));
    assert_eq!(answer["message"], "0/1 nodes are available: 1 Insufficient cpu.");
    assert_eq!(answer["snapshot"]["pods"], 2);
    assert_eq!(answer["lose"][0]["pods"], 2);
    assert!(answer["recommended"]["requests"].as_u64().unwrap() >= 2, "{answer}");

    let (status, text) = http(running.http, "GET", "/api/v1/capacity/snapshot", "").await;
    assert_eq!(status, 200);
    // The body is chunked, which the small client does not undo.
    let begin = text.find('{').unwrap();
    let list: String = text[begin..].lines().filter(|line| line.contains('"') || *line == "]}").collect();
    let snapshot: Value = serde_json::from_str(&list).unwrap_or_else(|e| panic!("{e}: {list}"));
    let plain = json!({ "pods": [pod()] });
    let posted = json!({ "snapshot": snapshot, "pods": [pod()] });
    assert_eq!(ask(&running, &posted).await, ask(&running, &plain).await);

    let mut client = CapacityServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let request = v1::EstimateRequest {
        pods: vec![pod().to_string()],
        options_json: json!({ "lose": ["any"] }).to_string(),
        recommended: true,
        ..v1::EstimateRequest::default()
    };
    let by_grpc = client.estimate(request).await.unwrap().into_inner();
    assert_eq!(serde_json::from_str::<Value>(&by_grpc.answer_json).unwrap(), answer);
    assert_eq!((by_grpc.count, by_grpc.stop.as_str()), (4, "Unschedulable"));
    let mut objects = client.snapshot(v1::SnapshotRequest::default()).await.unwrap().into_inner();
    let objects = objects.message().await.unwrap().unwrap().objects;
    assert_eq!(objects.len(), 3, "{objects:?}");
    assert_eq!(snapshot["items"][0], serde_json::from_str::<Value>(&objects[0]).unwrap());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thresholds_of_the_kubelet_take_memory_off_and_taint() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |config| {
        config.capacity.eviction_memory = Size::from_mib(1024);
        config.capacity.reserve_memory = Size::from_mib(6 * 1024);
        config.capacity.node_pods = 3;
    })
    .await;
    let link = reporting(&running).await;
    // 8 GiB less 7.
    let (_, answer) = ask(&running, &json!({ "pods": [pod()] })).await;
    assert_eq!(answer["count"], 1, "{answer}");
    assert_eq!(answer["message"], "0/1 nodes are available: 1 Insufficient memory, 1 Too many pods.");
    drop(link);
    let tainted = until(|| async {
        let (_, answer) = ask(&running, &json!({ "pods": [pod()] })).await;
        (answer["count"] == 0).then_some(answer)
    });
    assert_eq!(tainted.await["message"], "0/1 nodes are available: 1 node(s) had untolerated taint(s).");
    running.stop().await;

    let running = Running::start(dir.path(), |c| c.capacity.eviction_memory = Size::from_mib(8192)).await;
    let _link = reporting_as(&running, 2).await;
    let (_, text) = http(running.http, "GET", "/api/v1/capacity/snapshot?cluster=test", "").await;
    assert!(text.contains("node.kubernetes.io/memory-pressure"), "{text}");
    assert!(!text.contains("node.kubernetes.io/pid-pressure"), "{text}");
    assert_eq!(http(running.http, "GET", "/api/v1/capacity/snapshot?cluster=x", "").await.0, 400);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pressure_by_processes_is_derived_and_of_disks_it_is_said_that_nobody_knows() {
    // Two containers of nine processes.
    for (most, count) in [(17, 0), (18, 4)] {
        let dir = tempfile::tempdir().unwrap();
        let running = Running::start(dir.path(), |c| c.capacity.most_processes = Some(most)).await;
        let _link = reporting(&running).await;
        let (_, answer) = ask(&running, &json!({ "pods": [pod()] })).await;
        assert_eq!(answer["count"], count, "{answer}");
        let note =
            "DiskPressure is not known of 1 node(s) that only agents report; its taint would keep pods away";
        assert_eq!(answer["notes"], json!([note]), "{answer}");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn posted_snapshots_and_options_answer_or_are_refused_by_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |c| c.capacity.max_snapshot = Size::from_bytes(1 << 16)).await;
    let node = |name: &str, pool: &str| {
        json!({
            "kind": "Node",
            "metadata": { "name": name, "labels": { "pool": pool } },
            "status": { "allocatable": { "cpu": "3", "memory": "8Gi", "pods": "10" } },
        })
    };
    let snapshot = json!({ "kind": "List", "items": [node("a", "x"), node("b", "y")] });
    let with = |more: Value| {
        let mut question = json!({ "snapshot": snapshot, "pods": [pod()] });
        question.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        question
    };
    let table: &[(Value, u16, &str)] = &[
        (with(json!({})), 200, r#""count":6"#),
        (with(json!({ "nodes": "pool=x" })), 200, r#""count":3"#),
        (with(json!({ "excludeNodes": ["b"], "max": 2 })), 200, r#""stop":"LimitReached""#),
        (with(json!({ "reserve": { "cpu": "4" } })), 200, r#""binding":"reserve""#),
        (with(json!({ "pods": [pod(), pod()] })), 200, r#""shapes":[{"name":"p""#),
        (with(json!({ "place": [pod()] })), 200, r#""placed":[{"pod""#),
        (with(json!({ "steps": 1 })), 200, r#""best":["a","b"]"#),
        (with(json!({ "steps": "all" })), 200, r#""sequence":["a""#),
        (
            with(json!({ "drain": ["a"], "preempt": true, "daemonset": true, "trials": 3 })),
            200,
            r#""drain":[{"nodes":["a"]"#,
        ),
        (
            with(json!({ "need": 20, "add": "name,cpu,memory\nbig,7,64Gi\n" })),
            200,
            r#""perNode":7,"nodes":2"#,
        ),
        (
            with(
                json!({ "schedulerVersion": "1.34", "schedulerConfig": { "kind": "KubeSchedulerConfiguration" } }),
            ),
            200,
            "count",
        ),
        (with(json!({ "drain": ["c"] })), 400, "drain: no node of the snapshot is named c"),
        (with(json!({ "excludeNodes": ["c"] })), 400, "excludeNodes"),
        (with(json!({ "recommended": true })), 400, "recommended"),
        (with(json!({ "schedulerVersion": "2" })), 400, "schedulerVersion"),
        (with(json!({ "nonsense": 1 })), 400, "nonsense"),
        (json!({ "pods": [] }), 400, "no pod is given"),
        (json!({ "pods": [pod()], "cluster": "x" }), 400, "no agent of cluster x"),
        (
            json!({ "snapshot": { "kind": "List", "items": [node("a", "x"), node("a", "x")] }, "pods": [pod()] }),
            400,
            "items[1] (Node)",
        ),
        (json!({ "pods": ["x".repeat(1 << 16)] }), 413, "capacity.max_snapshot"),
    ];
    for (question, want, part) in table {
        let (status, text) = http(running.http, "POST", PATH, &question.to_string()).await;
        assert_eq!(status, *want, "{question}: {text}");
        assert!(text.contains(part), "{question}: {part} not in {text}");
    }
    for body in ["", "[]", "{", "pods: [", "\u{0}"] {
        let (status, text) = http(running.http, "POST", PATH, body).await;
        assert!(status == 400 && text.contains("remedy"), "{body}: {status} {text}");
    }
    running.stop().await;
}

/// A question whose body does not end.
async fn unfinished(running: &Running) -> UnixStream {
    let mut stream = running.http.connect().await.unwrap();
    let head = format!("POST {PATH} HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\n{{\"pods\": [");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// A question whose answer does not come: a shape that no node runs out of is placed for ever.
fn endless() -> Value {
    json!({
        "snapshot": { "nodes": [{ "metadata": { "name": "n" }, "status": { "allocatable": { "pods": "9000000000000" } } }] },
        "pods": [{ "metadata": { "name": "p" }, "spec": { "containers": [{ "name": "c" }] } }],
        "max": 1_000_000_000_000_u64,
    })
}

async fn metric(running: &Running, line: &str) -> bool {
    http(running.http, "GET", "/metrics", "").await.1.contains(line)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_question_too_many_is_refused_and_who_leaves_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |config| config.capacity.queue = 0).await;
    let holding = until(|| async {
        // The thread may not wait for questions yet, and refuse this one.
        let mut stream = running.http.connect().await.unwrap();
        let body = endless().to_string();
        let head =
            format!("POST {PATH} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(head.as_bytes()).await.unwrap();
        let refused = tokio::time::timeout(std::time::Duration::from_millis(300), stream.read_u8()).await;
        refused.is_err().then_some(stream)
    })
    .await;
    let question = json!({ "pods": [pod()], "snapshot": { "nodes": [] } });
    let (status, answer) = ask(&running, &question).await;
    assert_eq!(status, 429, "{answer}");
    assert!(answer["error"]["why"].as_str().unwrap().contains("capacity.queue"), "{answer}");
    let mut client = CapacityServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let request = v1::EstimateRequest { pods: vec![pod().to_string()], ..v1::EstimateRequest::default() };
    assert_eq!(client.estimate(request).await.unwrap_err().code(), tonic::Code::ResourceExhausted);
    assert_eq!(http(running.http, "GET", "/api/v1/nodes", "").await.0, 200, "other questions are answered");
    drop(holding);
    until(|| async { (ask(&running, &question).await.0 == 200).then_some(()) }).await;
    assert!(metric(&running, "evenkeel_recommender_capacity_given_up_total 1\n").await);
    running.stop().await;
}

/// A question of exactly so many bytes: objects that do not matter, and one node.
fn of_bytes(bytes: usize) -> String {
    let node = json!({ "kind": "Node", "metadata": { "name": "n" }, "status": { "allocatable": { "cpu": "3", "memory": "8Gi", "pods": "9" } } });
    let secret = json!({ "kind": "Secret", "data": "x".repeat(10_000) });
    let head = format!(r#"{{"pods": [{}], "snapshot": {{"kind": "List", "items": [{node}"#, pod());
    let filled = (bytes - head.len()) / (secret.to_string().len() + 1) - 1;
    let mut body = head + &format!(",{secret}").repeat(filled) + "]}}";
    body.extend(std::iter::repeat_n(' ', bytes - body.len()));
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_as_large_as_the_limit_is_read_and_a_byte_more_is_not() {
    const LIMIT: usize = 4 << 20;
    let dir = tempfile::tempdir().unwrap();
    let running =
        Running::start(dir.path(), |c| c.capacity.max_snapshot = Size::from_bytes(LIMIT as u64)).await;
    let (status, text) = http(running.http, "POST", PATH, &of_bytes(LIMIT)).await;
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&answer["count"], &answer["snapshot"]["nodes"]), (&json!(3), &json!(1)));
    assert!(answer["snapshot"]["skipped"]["Secret"].as_u64().unwrap() > 400, "{answer}");
    let (status, text) = http(running.http, "POST", PATH, &of_bytes(LIMIT + 1)).await;
    assert!(status == 413 && text.contains("capacity.max_snapshot"), "{status} {text}");

    // One that does not say how large it is ends where the limit is.
    let body = of_bytes(LIMIT + 1);
    let chunked = format!(
        "POST {PATH} HTTP/1.1\r\nHost: test\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    let answer = until(|| async {
        let mut stream = running.http.connect().await.unwrap();
        // The server may close before it has taken all of it, and the answer may be lost with that: once more then.
        let _cut = stream.write_all(chunked.as_bytes()).await;
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer).await;
        (!answer.is_empty()).then(|| String::from_utf8_lossy(&answer).into_owned())
    })
    .await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("capacity.max_snapshot"), "{answer}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_in_the_middle_of_a_body_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |config| config.capacity.queue = 0).await;
    let small = json!({ "snapshot": { "nodes": [] }, "pods": [pod()] });
    // The thread waits for the rest of the body: nobody else is answered until its sender has gone.
    let holding = until(|| async {
        let stream = unfinished(&running).await;
        (ask(&running, &small).await.0 == 429).then_some(stream)
    })
    .await;
    drop(holding);
    until(|| async { (ask(&running, &small).await.0 == 200).then_some(()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_ends_when_its_time_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |c| c.capacity.timeout = Span::from_millis(200)).await;
    let mut stream = unfinished(&running).await;
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 504");
    let (status, text) = http(running.http, "POST", PATH, &endless().to_string()).await;
    assert_eq!(status, 504, "{text}");
    // The thread is free again.
    let small = json!({ "snapshot": { "nodes": [] }, "pods": [pod()] });
    until(|| async { (ask(&running, &small).await.0 == 200).then_some(()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watched_questions_are_answered_kept_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("web.json");
    std::fs::write(&file, pod().to_string()).unwrap();
    let watch = |name: &str, pod: &std::path::Path| WatchSection {
        name: name.to_owned(),
        pod: pod.to_owned(),
        interval: Span::from_secs(1),
    };
    let watches = vec![watch("web", &file), watch("lost", &dir.path().join("missing.yaml"))];
    let answers = |running: &Running| {
        let at = running.http;
        async move {
            let (status, text) = http(at, "GET", "/api/v1/capacity/watched", "").await;
            assert_eq!(status, 200, "{text}");
            serde_json::from_str::<Value>(&text).unwrap()
        }
    };
    let running = Running::start(dir.path(), |config| config.capacity.watch = watches.clone()).await;
    let link = reporting(&running).await;
    let seen = until(|| async {
        let seen = answers(&running).await;
        let list = seen[0]["answers"].as_array().unwrap();
        let enough = list.len() >= 3 && list.last().unwrap()["count"] == 4;
        (enough && seen[1]["trouble"].is_string()).then_some(seen)
    })
    .await;
    assert!(seen[0]["perDay"].is_number() && seen[0]["trouble"].is_null(), "{seen}");
    assert!(seen[1]["trouble"].as_str().unwrap().contains("missing.yaml"), "{seen}");
    assert!(metric(&running, "evenkeel_recommender_capacity_count{question=\"web\"} 4\n").await);
    assert!(metric(&running, "evenkeel_recommender_capacity_failing{question=\"lost\"} 1\n").await);
    let mut client = CapacityServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let told = client.list_watched(v1::ListWatchedRequest {}).await.unwrap().into_inner().questions;
    assert_eq!((told[0].question.as_str(), told[0].interval_seconds), ("web", 1));
    drop(link);
    running.stop().await;

    // Before the node known before is back, its absence is no answer; not at any start.
    for start in 0..3 {
        let running = Running::start(dir.path(), |config| config.capacity.watch = watches.clone()).await;
        let why = until(|| async {
            let why = answers(&running).await[0]["trouble"].clone();
            why.is_string().then_some(why)
        })
        .await;
        assert!(why.as_str().unwrap().contains("1 of 1 known nodes are not connected (node-1)"), "{why}");
        assert!(metric(&running, "evenkeel_recommender_capacity_failing{question=\"web\"} 0\n").await);
        let before = answers(&running).await[0]["answers"].as_array().unwrap().len();
        let link = reporting_as(&running, 2 + start).await;
        let all = until(|| async {
            let all = answers(&running).await[0]["answers"].as_array().unwrap().clone();
            (all.len() > before).then_some(all)
        })
        .await;
        assert!(all.iter().all(|answer| answer["count"] == 4), "{all:?}");
        drop(link);
        running.stop().await;
    }
    let first = seen[0]["answers"][0].clone();
    let slow = WatchSection { interval: Span::from_days(1), ..watches[0].clone() };
    let running = Running::start(dir.path(), |config| config.capacity.watch = vec![slow]).await;
    assert_eq!(answers(&running).await[0]["answers"][0], first, "kept over the restart");
    running.stop().await;
    std::fs::write(dir.path().join("capacity-watched.json"), "{").unwrap();
    let running = Running::start(dir.path(), |config| config.capacity.watch = vec![watches[1].clone()]).await;
    assert_eq!(answers(&running).await[0]["answers"], json!([]));
    assert!(dir.path().join("capacity-watched.damaged").exists());
    running.stop().await;
}

/// Resource types of users: what nodes state and what pods of manifests request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_that_agents_state_are_counted_and_shown() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |config| {
        // Sums on /metrics are as new as the last pass.
        config.recommend.watch_interval = Span::from_millis(1);
    })
    .await;
    let amounts = |of: &[(&str, &str)]| of.iter().map(|(n, a)| ((*n).to_owned(), (*a).to_owned())).collect();
    let mut agent = Agent::new(1, &["web:1", "web:1"]);
    agent.allocatable =
        amounts(&[("example.com/x", "7"), ("memory", "2Gi"), ("network-bandwidth", "100M"), ("pods", "20")]);
    agent.others = amounts(&[("example.com/x", "2")]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(3)).await;
    link.acknowledged(3).await;
    // An agent that states nothing has none of it.
    let mut other = Agent::on("node-2", 2, &["db:1"]);
    let mut second = other.connect(running.grpc).await;
    second.send(other.measure(3)).await;
    second.acknowledged(3).await;

    let of = |name: &str, amount: &str| {
        let list = json!({ name: amount });
        json!({ "kind": "Pod", "metadata": { "name": "p" }, "spec": { "containers": [
            { "name": "c", "resources": { "requests": list, "limits": list } }] } })
    };
    let (status, answer) = ask(&running, &json!({ "pods": [of("example.com/x", "1")] })).await;
    assert_eq!((status, &answer["perNode"]), (200, &json!({ "node-1": 3 })), "{answer}");
    assert_eq!(answer["message"], "0/2 nodes are available: 2 Insufficient example.com/x.");
    let (_, answer) = ask(&running, &json!({ "pods": [of("memory", "1Gi")] })).await;
    assert_eq!(answer["perNode"], json!({ "node-1": 2, "node-2": 7 }), "{answer}");
    let (_, answer) = ask(&running, &json!({ "pods": [of("cpu", "1m")] })).await;
    assert_eq!(answer["perNode"]["node-1"], 18, "{answer}");

    // Traffic of the resource model's types, which a pod of Kubernetes names in full.
    let (_, answer) = ask(&running, &json!({ "pods": [of("kubernetes.io/network-bandwidth", "30M")] })).await;
    assert_eq!(answer["perNode"], json!({ "node-1": 3 }), "{answer}");

    let allocated = |path: &'static str| async {
        let (status, text) = http(running.http, "GET", path, "").await;
        assert_eq!(status, 200, "{text}");
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let nodes = allocated("/api/v1/nodes").await;
    let x = json!({ "example.com/x": { "allocatable": "7", "requested": "4" } });
    let list = nodes.as_array().unwrap_or_else(|| panic!("{nodes}"));
    let node = list.iter().find(|node| node["name"] == "node-1").unwrap();
    assert_eq!(node["allocated"]["others"]["example.com/x"], x["example.com/x"], "{node}");
    assert_eq!(node["allocated"]["memoryBytes"]["allocatable"], 2_u64 << 30);
    let namespaces = allocated("/api/v1/namespaces").await;
    assert_eq!(
        namespaces["namespaces"][0]["allocated"]["others"],
        json!({ "example.com/x": { "allocatable": null, "requested": "4" } }),
        "{namespaces}"
    );
    let row = "evenkeel_recommender_node_allocatable{cluster=\"test\",node=\"node-1\",resource=\"example.com/x\"} 7";
    until(|| async { http(running.http, "GET", "/metrics", "").await.1.contains(row).then_some(()) }).await;

    // It is kept over a restart. With types defined, a pod that says nothing of one requests its default, in whole portions.
    drop((link, second));
    running.stop().await;
    let definition = r#"{"example.com/x": {"units": "", "defaultRequest": "1500m", "quantization": "2"}}"#;
    let resources = serde_json::from_str(definition).unwrap();
    let running = Running::start(dir.path(), |config| config.resources = resources).await;
    let posted = json!({ "nodes": [{ "metadata": { "name": "n" }, "status": { "allocatable": { "cpu": "9", "pods": "9", "example.com/x": "9" } } }],
        "pods": [{ "metadata": { "name": "there" }, "spec": { "nodeName": "n", "containers": [{ "name": "c" }] } }] });
    let (_, answer) = ask(&running, &json!({ "pods": [of("cpu", "1m")], "snapshot": posted })).await;
    assert_eq!((&answer["count"], &answer["binding"]), (&json!(3), &json!("nodes")), "{answer}");
    let (_, text) = http(running.http, "GET", "/api/v1/capacity/snapshot", "").await;
    assert!(text.contains(r#""example.com/x":"7""#) && text.contains(r#""example.com/x":"2""#), "{text}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn amounts_that_are_none_are_refused_of_a_node_and_dropped_of_a_pod() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let amounts = || [("example.com/x".to_owned(), "-1".to_owned())].into();
    let mut agent = Agent::new(1, &["web:1"]);
    agent.allocatable = amounts();
    assert!(agent.try_connect(running.grpc).await.is_none(), "the Hello is refused");
    (agent.allocatable, agent.others) = (Default::default(), amounts());
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(3)).await;
    link.acknowledged(3).await;
    let (_, metrics) = http(running.http, "GET", "/metrics", "").await;
    assert!(metrics.contains("evenkeel_recommender_dropped_requests_total 1\n"), "{metrics}");
    running.stop().await;
}

/// Limit ranges and quotas in the question itself: in a posted snapshot, or beside the pods.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_bring_limit_ranges_and_quotas_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |_| {}).await;
    let _link = reporting(&running).await;
    let quota = json!({ "kind": "ResourceQuota", "metadata": { "name": "few", "namespace": "default" },
        "spec": { "hard": { "limits.cpu": "5" } } });
    let range = json!({ "kind": "LimitRange", "metadata": { "name": "bounds", "namespace": "default" },
        "spec": { "limits": [{ "type": "Container", "default": { "cpu": "2" }, "maxLimitRequestRatio": { "cpu": "2" } }] } });
    // The default limit of two cores is charged to the quota.
    let beside = json!({ "pods": [range, quota, pod()] });
    let node = json!({ "kind": "Node", "metadata": { "name": "n" },
        "status": { "allocatable": { "cpu": "16", "memory": "64Gi", "pods": "110" } } });
    let posted = json!({ "pods": [pod()], "snapshot": { "kind": "List", "items": [node, range, quota] } });
    for question in [beside, posted] {
        let (status, answer) = ask(&running, &question).await;
        assert_eq!(
            (status, &answer["count"], &answer["binding"]),
            (200, &json!(2), &json!("quota/few")),
            "{answer}"
        );
    }
    let mut client = CapacityServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let snapshot = json!({ "kind": "List", "items": [node, range, quota] }).to_string();
    let request =
        v1::EstimateRequest { pods: vec![pod().to_string()], snapshot, ..v1::EstimateRequest::default() };
    assert_eq!(client.estimate(request).await.unwrap().into_inner().binding, "quota/few");
    // A ratio that the pod exceeds refuses it.
    let mut wide = pod();
    wide["spec"]["containers"][0]["resources"]["limits"] = json!({ "cpu": "3" });
    let (_, refused) = ask(&running, &json!({ "pods": [range, wide] })).await;
    assert_eq!(
        (&refused["count"], &refused["binding"]),
        (&json!(0), &json!("namespace/default")),
        "{refused}"
    );
    assert!(refused["message"].as_str().unwrap().contains("max limit to request ratio"), "{refused}");
    running.stop().await;
}
