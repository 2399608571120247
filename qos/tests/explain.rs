//! `qos explain` in its pinned JSON form, from manifests as people write them.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use evenkeel_model::node::NodeFacts;
use evenkeel_model::pod::read_pods;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_qos::config::PlanConfig;
use evenkeel_qos::explain::{PodExplanation, explain_pod};
use evenkeel_qos::pod::{facts, is_node_critical};
use evenkeel_qos::rules::RuleSet;
use serde_json::{Value, json};

fn explain(text: &str, rules: RuleSet) -> PodExplanation {
    let pod = read_pods(text, "test").unwrap().remove(0);
    let node = NodeFacts::of_size(Bytes::new(4_000_000_000), MilliCpu::new(4000));
    explain_pod(&pod, &node, &PlanConfig { rules, ..PlanConfig::default() })
}

fn json_of(text: &str, rules: RuleSet) -> Value {
    serde_json::to_value(explain(text, rules)).unwrap()
}

const WEB: &str = "
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec:
  initContainers:
  - name: migrate
    resources: {requests: {cpu: 100m, memory: 100M}, limits: {memory: 100M}}
  - name: proxy
    restartPolicy: Always
    resources: {requests: {memory: 40M}}
  containers:
  - name: app
    resources: {requests: {cpu: 1, memory: 1G}, limits: {cpu: 2, memory: 2G}}
  - name: log
";

#[test]
fn the_whole_form_under_the_proposal() {
    let found = json_of(WEB, RuleSet::Proposal);
    assert_eq!(found["pod"], "shop/web");
    assert_eq!(found["qosClass"], "Burstable");
    assert_eq!(found["rules"], "proposal");
    assert_eq!(found["node"], json!({"memoryBytes": 4_000_000_000_u64, "cpuMilli": 4000}));
    let app = json!({
        "name": "app",
        "kind": "regular",
        "qosClass": "Burstable",
        "classes": {"memory": "Burstable", "cpu": "Burstable"},
        "source": "manifests",
        "estimated": false,
        "oomScoreAdj": 750,
        "cpuShares": 1024,
        "cpuWeight": 100,
        "cpuQuotaUs": 200_000,
        "cpuPeriodUs": 100_000,
        "memoryMin": null,
        "memoryLow": 999_997_440,
        "memoryHigh": null,
        "memoryMax": 1_999_998_976,
        "reasons": [
            "qosClass: Burstable by memory: something is requested, and more may be used",
            "oomScoreAdj 750: Burstable: 1000 - trunc(1000 x 1000000000 / 4000000000)",
            "cpuShares 1024: cpu request: 1000m x 1024 / 1000, within 2..262144",
            "cpuWeight 100: cpu request: 1024 shares by the quadratic conversion",
            "cpuQuotaUs 200000: cpu limit: 2000m of each 100000 us",
            "memoryLow 999997440 bytes: Burstable: the memory request is reclaimed last, in whole pages",
            "memoryMax 1999998976 bytes: memory limit, in whole pages",
        ],
    });
    assert_eq!(found["containers"][0], app);
    assert_eq!(found["containers"].as_array().unwrap().len(), 4);
}

/// Name, kind, class, score of each container.
fn summary(found: &Value) -> Vec<(String, String, String, i64)> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let containers = found["containers"].as_array().unwrap();
    containers
        .iter()
        .map(|c| {
            (text(&c["name"]), text(&c["kind"]), text(&c["qosClass"]), c["oomScoreAdj"].as_i64().unwrap())
        })
        .collect()
}

fn rows(rows: &[(&str, &str, &str, i64)]) -> Vec<(String, String, String, i64)> {
    rows.iter().map(|(n, k, c, s)| ((*n).into(), (*k).into(), (*c).into(), *s)).collect()
}

#[test]
fn kinds_and_classes_under_both_rule_sets() {
    let proposal = rows(&[
        ("app", "regular", "Burstable", 750),
        ("log", "regular", "BestEffort", 1000),
        ("migrate", "init", "Guaranteed", -999),
        ("proxy", "sidecar", "Burstable", 990),
    ]);
    assert_eq!(summary(&json_of(WEB, RuleSet::Proposal)), proposal);
    // The smallest ordinary container (log) asks for nothing: 1000, so the sidecar keeps its own 990.
    let kubelet = rows(&[
        ("app", "regular", "Burstable", 750),
        ("log", "regular", "Burstable", 999),
        ("migrate", "init", "Burstable", 975),
        ("proxy", "sidecar", "Burstable", 990),
    ]);
    assert_eq!(summary(&json_of(WEB, RuleSet::Kubelet)), kubelet);
}

#[test]
fn a_best_effort_pod_has_nothing_protected_and_nothing_limited() {
    let found =
        json_of("{kind: Pod, metadata: {name: b}, spec: {containers: [{name: c}]}}", RuleSet::Kubelet);
    assert_eq!(found["pod"], "default/b");
    assert_eq!(found["qosClass"], "BestEffort");
    let c = &found["containers"][0];
    assert_eq!((&c["oomScoreAdj"], &c["cpuShares"], &c["cpuWeight"]), (&json!(1000), &json!(2), &json!(1)));
    assert_eq!((&c["cpuQuotaUs"], &c["memoryMax"]), (&json!("max"), &json!("max")));
    assert_eq!(
        (&c["memoryMin"], &c["memoryLow"], &c["memoryHigh"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
}

const POD_LEVEL: &str = "
kind: Pod
metadata: {name: whole}
spec:
  resources: {requests: {cpu: 1, memory: 1G}, limits: {cpu: 2, memory: 2G}}
  initContainers:
  - {name: side, restartPolicy: Always, resources: {requests: {memory: 100M}}}
  containers:
  - {name: a, resources: {requests: {memory: 200M}}}
  - {name: b}
";

#[test]
fn a_pod_level_request_is_shared_out_and_its_limit_bounds_all() {
    let pod = read_pods(POD_LEVEL, "test").unwrap().remove(0);
    let f = facts(&pod);
    assert_eq!(f.qos_class, Some(QosClass::Burstable));
    // (1000 - 200 - 100) / 3, truncated.
    assert_eq!(f.memory_share_per_container, Some(Bytes::new(233_333_333)));
    assert_eq!(f.min_regular_memory_request, Some(Bytes::ZERO));
    assert_eq!(f.pod_memory_limit, Some(Bytes::new(2_000_000_000)));
    let found = json_of(POD_LEVEL, RuleSet::Kubelet);
    let expected = rows(&[
        // 1000 - trunc(1000 x 433333333 / 4e9) = 1000 - 108
        ("a", "regular", "Burstable", 892),
        // 1000 - trunc(58.3)
        ("b", "regular", "Burstable", 942),
        // 1000 - trunc(83.3)
        ("side", "sidecar", "Burstable", 917),
    ]);
    assert_eq!(summary(&found), expected);
    for c in found["containers"].as_array().unwrap() {
        assert_eq!(c["cpuQuotaUs"], 200_000);
        assert_eq!(c["memoryMax"], 1_999_998_976);
    }
}

#[test]
fn equal_pod_level_values_are_guaranteed_whatever_the_containers_say() {
    let text = "{kind: Pod, metadata: {name: g}, spec: {resources: {limits: {cpu: 1, memory: 1G}}, \
                containers: [{name: c}]}}";
    let found = explain(text, RuleSet::Kubelet);
    assert_eq!(found.qos_class, QosClass::Guaranteed);
    assert_eq!(found.containers[0].oom_score_adj.unwrap().get(), -997);
    assert_eq!(found.containers[0].qos_class, Some(QosClass::Guaranteed));
    // The proposal knows no pod-level resources: the container itself asks for nothing.
    assert_eq!(explain(text, RuleSet::Proposal).containers[0].qos_class, Some(QosClass::BestEffort));
}

#[test]
fn node_critical_needs_the_class_and_the_priority_or_the_file() {
    let table = [
        ("priorityClassName: system-node-critical", "", true),
        ("priorityClassName: system-node-critical, priority: 2000001000", "", true),
        ("priorityClassName: system-node-critical, priority: 1000", "", false),
        (
            "priorityClassName: system-node-critical, priority: 1000",
            "kubernetes.io/config.source: file",
            true,
        ),
        ("priorityClassName: system-cluster-critical, priority: 2000000000", "", false),
        ("priority: 2000001000", "kubernetes.io/config.mirror: abc", false),
        ("priority: 0", "", false),
    ];
    for (spec, annotations, expected) in table {
        let text = format!(
            "{{kind: Pod, metadata: {{name: p, annotations: {{{annotations}}}}}, \
             spec: {{{spec}, containers: [{{name: c, resources: {{requests: {{memory: 1G}}}}}}]}}}}"
        );
        let pod = read_pods(&text, "test").unwrap().remove(0);
        assert_eq!(is_node_critical(&pod), expected, "{spec} {annotations}");
        let score = explain(&text, RuleSet::Kubelet).containers[0].oom_score_adj.unwrap().get();
        assert_eq!(score, if expected { -997 } else { 750 }, "{spec} {annotations}");
    }
}
