//! One pod, one answer: `qos explain`, `recommend -f`, a policy's selector and the simulator are asked about the same pods
//! as people write them. What `admit` makes of them is in the agent's `serve/admit.rs`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use common::{Running, http};
use evenkeel_capacity::admission::admit;
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::object;
use evenkeel_model::node::NodeFacts;
use evenkeel_model::pod::{MAX_TEXT_BYTES, Pod, read_pod, read_pod_objects, read_pods};
use evenkeel_model::requirements::ResourceList;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::yaml::{self, YamlBounds};
use evenkeel_qos::explain::explain_pod;
use evenkeel_qos::plan::PlanConfig;
use serde_json::{Value, json};

const WRITTEN: &str = include_str!("../../model/tests/written.yaml");

/// A pod of the table, and what is expected of it.
struct Written {
    name: String,
    object: Value,
    /// Nothing where it is to be refused.
    requests: Option<ResourceList>,
    qos: String,
    selected: bool,
}

fn table() -> Vec<Written> {
    let bounds = YamlBounds { documents: 100, nodes: 10_000 };
    let objects: Vec<Value> = yaml::documents(WRITTEN, bounds).unwrap();
    let written = |object: Value| {
        let expected = |what: &str| object["metadata"]["annotations"][format!("expected/{what}")].as_str();
        Written {
            name: object["metadata"]["name"].as_str().unwrap().to_owned(),
            requests: expected("requests").map(amounts),
            qos: expected("qos").unwrap_or_default().to_owned(),
            selected: expected("selected") == Some("yes"),
            object,
        }
    };
    objects.into_iter().map(written).collect()
}

fn amounts(text: &str) -> ResourceList {
    let one = |part: &str| {
        let (name, amount) = part.split_once('=').unwrap();
        (name.parse().unwrap(), amount.parse().unwrap())
    };
    text.split(", ").map(one).collect()
}

/// Without what is zero: no node runs out of that.
fn positive(list: &ResourceList) -> ResourceList {
    list.iter().filter(|(_, amount)| !amount.is_zero()).map(|(name, amount)| (name.clone(), amount)).collect()
}

fn explained(pod: &Pod) -> String {
    let node = NodeFacts::of_size(Bytes::new(64 << 30), MilliCpu::new(16_000));
    explain_pod(pod, &node, &PlanConfig::default()).qos_class.to_string()
}

/// How many of a pod the simulator places on one node of this size, and what binds.
async fn placed(running: &Running, pod: &Value, allocatable: &ResourceList, more: &[Value]) -> (u64, String) {
    let mut size = json!({"pods": "1"});
    for (name, amount) in allocatable.iter() {
        size[name.to_string()] = amount.canonical().into();
    }
    let node = json!({"kind": "Node", "status": {"allocatable": size},
        "metadata": {"name": "n", "labels": {"kubernetes.io/hostname": "n"}}});
    let runtime = json!({"kind": "RuntimeClass", "metadata": {"name": "sandboxed"}, "handler": "h",
        "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}}});
    let items: Vec<_> = [node, runtime].into_iter().chain(more.iter().cloned()).collect();
    let question = json!({"pods": [pod], "snapshot": {"kind": "List", "items": items}}).to_string();
    let (status, text) = http(running.http, "POST", "/api/v1/capacity", &question).await;
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    (answer["count"].as_u64().unwrap(), answer["binding"].as_str().unwrap_or_default().to_owned())
}

/// What the policy and the guard of the simulator select.
fn target() -> Value {
    json!({"matchLabels": {"app": "same"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["canary"]}]})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_say_the_same_of_pods_as_people_write_them() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |config| config.policies = Vec::new()).await;
    let policy = json!({"apiVersion": "evenkeel.dev/v1", "kind": "Policy",
        "metadata": {"name": "same", "namespace": "shop"}, "spec": {"target": target()}});
    assert_eq!(http(running.http, "POST", "/api/v1/policies", &policy.to_string()).await.0, 201);
    let from_yaml = read_pod_objects(WRITTEN, "written.yaml", MAX_TEXT_BYTES).unwrap().pods;
    let table = table();
    assert_eq!(from_yaml.len(), table.len());
    for (Written { name, object, requests, qos, selected }, pod) in table.iter().zip(&from_yaml) {
        let text = object.to_string();
        let (status, advice) = http(running.http, "POST", "/recommendedPodResources", &text).await;
        let Some(requests) = requests else {
            assert!(!pod.check().is_empty(), "{name}: qos explain and check");
            assert!(read_pod(&text, "pod").is_err(), "{name}: admit");
            assert_eq!(status, 400, "{name}: recommend -f: {advice}");
            let large = amounts("cpu=64, memory=64Gi, hugepages-2Mi=1Gi");
            let placed = placed(&running, object, &large, &[]).await;
            assert_eq!(placed, (0, "admission".to_owned()), "{name}: the simulator");
            continue;
        };
        assert_eq!(pod.check(), [], "{name}: qos explain and check");
        assert_eq!(positive(&pod.effective_requests()), *requests, "{name}: from YAML");
        assert_eq!(
            positive(&read_pod(&text, "pod").unwrap().effective_requests()),
            *requests,
            "{name}: from JSON"
        );
        assert_eq!(explained(pod), *qos, "{name}: qos explain");

        let advice: Value = serde_json::from_str(&advice).unwrap();
        assert_eq!(
            (status, &advice["evenkeel"]["qosClass"]["before"]),
            (200, &json!(qos)),
            "{name}: recommend -f"
        );
        let policy = if *selected { json!("shop/same") } else { Value::Null };
        assert_eq!(advice["evenkeel"]["policy"], policy, "{name}: the policy: {advice}");

        assert_eq!(placed(&running, object, requests, &[]).await.0, 1, "{name}: a node just large enough");
        for (short, amount) in requests.iter() {
            let least = if short.to_string() == "cpu" { "1m" } else { "1" };
            let mut smaller = requests.clone();
            smaller.set(short.clone(), amount.saturating_sub(least.parse().unwrap()));
            assert_eq!(placed(&running, object, &smaller, &[]).await.0, 0, "{name}: too little {short}");
        }
        let guard = json!({"kind": "Pod", "metadata": {"name": "guard", "namespace": "shop"}, "spec": {
            "nodeName": "n", "containers": [{"name": "c"}], "affinity": {"podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname", "labelSelector": target()}]}}}});
        let mut two = requests.clone();
        two.set("pods".parse().unwrap(), "2".parse().unwrap());
        let beside = placed(&running, object, &two, &[guard]).await.0;
        assert_eq!(beside, u64::from(!selected), "{name}: the simulator's selector");
    }
    running.stop().await;
}

#[test]
fn a_pod_as_a_limit_range_leaves_it_is_one_pod_to_all() {
    let range = |name: &str, limits: Value| json!({"kind": "LimitRange", "metadata": {"name": name, "namespace": "shop"}, "spec": {"limits": [limits]}});
    let table = [
        (
            json!({"type": "Container", "default": {"cpu": "1", "memory": "1Gi"}}),
            "cpu=1, memory=1Gi",
            "Guaranteed",
        ),
        (
            json!({"type": "Container", "default": {"memory": "1Gi"}, "defaultRequest": {"cpu": "100m", "memory": "64Mi"}}),
            "cpu=100m, memory=64Mi",
            "Burstable",
        ),
        (
            json!({"type": "Container", "max": {"cpu": "2"}, "min": {"memory": "32Mi"}}),
            "cpu=2, memory=32Mi",
            "Burstable",
        ),
    ];
    for (limits, requests, qos) in table {
        let mut loader = Loader::new();
        loader.document(range("defaults", limits)).unwrap();
        let (cluster, _) = loader.finish();
        let pod: object::Pod = serde_json::from_value(json!({
            "metadata": {"name": "bare", "namespace": "shop"}, "spec": {"containers": [{"name": "main", "image": "a"}]},
        }))
        .unwrap();
        let admitted = admit(&cluster, pod);
        assert!(admitted.refused.is_none(), "{:?}", admitted.refused);
        let mut stored = serde_json::to_value(&admitted.pod).unwrap();
        stored["kind"] = "Pod".into();
        let pod = read_pods(&stored.to_string(), "stored").unwrap().remove(0);
        assert_eq!(pod.check(), []);
        assert_eq!(pod.effective_requests(), amounts(requests));
        assert_eq!(explained(&pod), qos, "{requests}");
    }
}
