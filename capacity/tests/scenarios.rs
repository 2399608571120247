//! What if: nodes go, daemons grow, nodes are added, others are displaced, ties fall otherwise.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use evenkeel_capacity::answer::{Ask, Shape};
use evenkeel_capacity::cluster::{Cluster, Pod};
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::profile::Profiles;
use evenkeel_capacity::scenario;
use evenkeel_capacity::state::State;
use serde_json::{Value, json};

fn node(name: &str, cpu: &str, zone: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": zone}},
        "status": {"allocatable": {"cpu": cpu, "memory": "64Gi", "pods": "20"}},
    })
}

fn pod(name: &str, node: &str, cpu: &str, priority: i32) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": name.trim_end_matches(char::is_numeric)}},
        "spec": {
            "nodeName": node, "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {"startTime": format!("2026-01-0{}T00:00:00Z", 1 + name.len() % 9)},
    })
}

fn load(snapshot: &Value) -> (Cluster, State) {
    let mut loader = Loader::new();
    loader.document(snapshot).unwrap();
    let cluster = loader.finish().0;
    let state = State::new(&cluster);
    (cluster, state)
}

fn shape(cluster: &mut Cluster, written: Value) -> Arc<Pod> {
    Arc::new(cluster.shape(&serde_json::from_value(written).unwrap()).unwrap())
}

fn snapshot() -> Value {
    let mut daemon = pod("logs", "n1", "500m", 0);
    daemon["metadata"]["ownerReferences"] =
        json!([{"kind": "DaemonSet", "name": "logs", "controller": true}]);
    json!({
        "nodes": [node("n1", "4", "a"), node("n2", "4", "a"), node("n3", "4", "b")],
        "pods": [daemon, pod("web1", "n1", "2", 10), pod("web2", "n1", "1", 5), pod("db", "n2", "3", 0), pod("job", "n3", "3", 0)],
        "podDisruptionBudgets": [{
            "metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": 1},
        }],
    })
}

#[test]
fn a_drained_nodes_pods_move_by_priority_and_daemons_stay() {
    let (cluster, state) = load(&snapshot());
    let n1 = cluster.node("n1").unwrap();
    let got = scenario::displace(&cluster, &Profiles::default(), &state, &[n1], &mut |_| true);
    assert_eq!((got.pods, got.placed, got.daemons), (2, 1, 1));
    assert_eq!(got.failed[0].pod, "default/web1", "2 cores fit nowhere; the smaller one does");
    assert_eq!(
        got.failed[0].message,
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."
    );
    assert_eq!(got.budgets, ["default/web allows 1 at once, 2 would go"]);
    let zones = scenario::groups(&cluster, "topology.kubernetes.io/zone");
    assert_eq!((zones["a"].len(), zones["b"].len()), (2, 1));
    assert_eq!(state.placements.len(), 5, "analysis changes nothing");
}

#[test]
fn a_bigger_daemon_fits_where_its_old_pod_makes_room() {
    let (mut cluster, state) = load(&snapshot());
    let bigger = json!({"metadata": {"name": "logs"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let pod = shape(&mut cluster, bigger);
    let got = scenario::daemon(&cluster, &Profiles::default(), &state, (pod, "logs"), None);
    assert_eq!((got.nodes, got.fits), (3, 3));
    let huge = json!({"metadata": {"name": "logs"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1100m"}}}]}});
    let pod = shape(&mut cluster, huge);
    let got = scenario::daemon(&cluster, &Profiles::default(), &state, (pod, "logs"), None);
    assert_eq!((got.fits, got.refused[0].reasons.clone()), (0, vec!["Insufficient cpu".to_owned()]));
}

#[test]
fn higher_priority_displaces_the_fewest_and_least_important() {
    let (mut cluster, state) = load(&snapshot());
    let important = json!({"metadata": {"name": "sim"}, "spec": {"priority": 100, "containers": [{"name": "c", "resources": {"requests": {"cpu": "3500m"}}}]}});
    let pod = shape(&mut cluster, important);
    let got = scenario::preempt(&cluster, &Profiles::default(), &state, &pod, None, &mut |_| true);
    let victims: Vec<&str> = got.victims.iter().map(|victim| victim.pod.as_str()).collect();
    assert_eq!((got.count, got.without), (3, 0));
    // The two single pods of priority 0, the one that started later first, before the two of the first node, whose budget allows one.
    assert_eq!(&victims[..2], ["default/job", "default/db"]);
    assert_eq!(
        victims[2..].iter().copied().collect::<std::collections::BTreeSet<_>>(),
        ["default/web1", "default/web2"].into()
    );
}

#[test]
fn nodes_to_add_are_counted_by_type_and_the_cheapest_comes_first() {
    let kind = |name: &str, cpu: &str, price: f64| scenario::NodeType {
        name: name.to_owned(),
        node: serde_json::from_value(node(name, cpu, "a")).unwrap(),
        price: Some(price),
    };
    let pod = serde_json::from_value(
        json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]}}),
    )
    .unwrap();
    let got = scenario::add(
        &Profiles::default(),
        &pod,
        7,
        &[kind("big", "8", 0.9), kind("small", "2", 0.1), kind("tiny", "1", 0.01)],
        &mut |_| true,
    );
    let got: Vec<_> = got.iter().map(|a| (a.r#type.as_str(), a.per_node, a.nodes)).collect();
    assert_eq!(got, [("small", 1, Some(7)), ("big", 5, Some(2)), ("tiny", 0, None)]);
}

#[test]
fn ties_fall_by_seed_and_the_same_seed_gives_the_same() {
    let (mut cluster, state) = load(&snapshot());
    let pod = json!({"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "250m"}}}]}});
    let shapes = vec![Shape { pod: serde_json::from_value(pod).unwrap(), wanted: 1 }];
    let (profiles, ask) = (Profiles::default(), Ask { shapes, ..Ask::default() });
    let mut run = || scenario::trials(&mut cluster, &profiles, &state, &ask, (7, 9), &mut |_| true).unwrap();
    let first = run();
    assert_eq!((&first, first.median), (&run(), 10));
}
