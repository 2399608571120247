//! What is allocated, over the interfaces: by node, namespace and cluster, against what nodes may give and quotas allow.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use common::{Agent, Running, http};
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_proto::v1::{self, ListNamespacesRequest, ListNodesRequest, ResourceValues};
use serde_json::{Value, json};

fn agent(node: &str, images: &[&str]) -> Agent {
    let mut agent = Agent::on(node, 1, images);
    agent.requested = Some(ResourceValues {
        cpu_request_milli: Some(500),
        memory_request_bytes: Some(1 << 30),
        memory_limit_bytes: Some(2 << 30),
        ..ResourceValues::default()
    });
    agent
}

async fn json_of(running: &Running, path: &str) -> Value {
    let (status, text) = http(running.http, "GET", path, "").await;
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_allocated_is_told_by_node_namespace_and_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let quota = dir.path().join("quota.yaml");
    std::fs::write(
        &quota,
        "kind: ResourceQuota\nmetadata: {name: few, namespace: shop}\nspec: {hard: {requests.cpu: 2, limits.memory: 9Gi}}\n",
    )
    .unwrap();
    let other = dir.path().join("other.yaml");
    std::fs::write(
        &other,
        "kind: ResourceQuota\nmetadata: {name: o, namespace: shop}\nspec: {hard: {limits.cpu: 8}}\n",
    )
    .unwrap();
    let running = Running::start(&dir.path().join("state"), |config| {
        config.objects = vec![quota.clone(), other.clone()];
        config.capacity.reserve_cpu_milli = 500;
        // Sums on /metrics are as new as the last pass.
        config.recommend.watch_interval = evenkeel_recommender::config::Span::from_millis(1);
    })
    .await;
    let mut links = Vec::new();
    for mut agent in [agent("node-1", &["web:1", "web:1"]), agent("node-2", &["web:1"])] {
        let mut link = agent.connect(running.grpc).await;
        link.send(agent.measure(5)).await;
        link.acknowledged(5).await;
        links.push(link);
    }
    let nodes = json_of(&running, "/api/v1/nodes").await;
    let cpu = &nodes[0]["allocated"]["cpuMilli"];
    let of = |sums: &Value, keys: &[&str]| keys.iter().map(|key| sums[*key].clone()).collect::<Vec<_>>();
    let told =
        ["allocatable", "requested", "limited", "unlimited", "used", "recommended", "recommendedContainers"];
    // No recommendation rests on two days: the present requests stand in.
    assert_eq!(
        of(cpu, &told),
        [json!(3500), json!(1000), json!(0), json!(2), json!(500), json!(1000), json!(0)]
    );
    let memory = &nodes[1]["allocated"]["memoryBytes"];
    let gib = |n: u64| json!(n << 30);
    assert_eq!(of(memory, &["requested", "limited", "used"]), [gib(1), gib(2), json!(64 << 20)]);
    assert_eq!(nodes[1]["allocated"]["pods"], 1);

    let all = json_of(&running, "/api/v1/namespaces").await;
    let (shop, cluster) = (&all["namespaces"][0], &all["clusters"][0]);
    assert_eq!((&shop["namespace"], &cluster["namespace"]), (&json!("shop"), &Value::Null));
    let told = ["allocatable", "requested", "quotaRequests", "quotaLimits"];
    // Quotas for recommendations bound their namespaces, too.
    assert_eq!(
        of(&shop["allocated"]["cpuMilli"], &told),
        [Value::Null, json!(1500), json!(2000), json!(8000)]
    );
    assert_eq!(of(&shop["allocated"]["memoryBytes"], &told), [Value::Null, gib(3), Value::Null, gib(9)]);
    assert_eq!(
        of(&cluster["allocated"]["cpuMilli"], &told),
        [json!(7000), json!(1500), Value::Null, Value::Null]
    );

    let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let found = client.list_namespaces(ListNamespacesRequest {}).await.unwrap().into_inner();
    let requested = |of: &v1::Namespace| of.allocated.as_ref().unwrap().cpu.unwrap().requested;
    assert_eq!((requested(&found.namespaces[0]), requested(&found.clusters[0])), (1500, 1500));
    assert_eq!(found.quota_trouble, "");
    let nodes = client.list_nodes(ListNodesRequest {}).await.unwrap().into_inner().nodes;
    assert_eq!(nodes[0].allocated.as_ref().unwrap().cpu.unwrap().used, 500);

    let metrics = common::until(|| async {
        let text = http(running.http, "GET", "/metrics", "").await.1;
        text.contains("evenkeel_recommender_workload_request{").then_some(text)
    })
    .await;
    for line in [
        "node_requested{cluster=\"test\",node=\"node-1\",resource=\"cpu\"} 1.0",
        "namespace_quota_requests{cluster=\"test\",namespace=\"shop\",resource=\"cpu\"} 2.0",
        "cluster_allocatable{cluster=\"test\",resource=\"cpu\"} 7.0",
        "workload_limit{cluster=\"test\",namespace=\"shop\",workload=\"deployment/w0\",container=\"main\",resource=\"memory\"} \
         2147483648",
        "rows_left_out{of=\"nodes\"} 0",
    ] {
        assert!(metrics.contains(&format!("evenkeel_recommender_{line}\n")), "{line} not in {metrics}");
    }

    // Labels select workloads; what cannot be read is refused.
    let selected = json_of(&running, "/api/v1/recommendations?selector=app%3Dw1").await;
    assert_eq!((selected.as_array().unwrap().len(), &selected[0]["workload"]), (2, &json!("deployment/w1")));
    assert_eq!(json_of(&running, "/api/v1/recommendations?selector=!app").await, json!([]));
    let (status, text) = http(running.http, "GET", "/api/v1/recommendations?selector=a%20in%20b", "").await;
    assert!(status == 400 && text.contains("selects no label"), "{status} {text}");

    // A quota nobody can read is no reason to tell nothing.
    std::fs::write(&quota, "kind: ResourceQuota\nspec: 3\n").unwrap();
    let trouble = common::until(|| async {
        let told = json_of(&running, "/api/v1/namespaces").await["quotaTrouble"].as_str().unwrap().to_owned();
        (!told.is_empty()).then_some(told)
    })
    .await;
    assert!(trouble.starts_with("objects: ") && trouble.contains("quota.yaml"), "{trouble}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn quotas_of_files_bound_questions_about_what_agents_report() {
    let dir = tempfile::tempdir().unwrap();
    let quota = dir.path().join("quota.json");
    let object = json!({"kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "shop"}, "spec": {"hard": {"pods": "3"}}});
    std::fs::write(&quota, object.to_string()).unwrap();
    let running = Running::start(&dir.path().join("state"), |config| config.objects = vec![quota]).await;
    let mut agent = agent("node-1", &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(5)).await;
    link.acknowledged(5).await;
    let pod = r#"{"pods": [{"metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": [{"name": "c"}]}}]}"#;
    let (status, text) = http(running.http, "POST", "/api/v1/capacity", pod).await;
    let answer: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (status, &answer["count"], &answer["binding"]),
        (200, &json!(2), &json!("quota/few")),
        "{text}"
    );
    running.stop().await;
}
