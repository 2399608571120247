//! What if: nodes go, daemons grow, nodes are added, others are displaced, ties fall otherwise.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use evenkeel_capacity::answer::{Ask, Shape};
use evenkeel_capacity::cluster::{Cluster, PodInfo};
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::object::ResourceList;
use evenkeel_capacity::profile::Profiles;
use evenkeel_capacity::question::{CapacityQuestion, Snapshot};
use evenkeel_capacity::scenario;
use evenkeel_capacity::state::ClusterState;
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

fn load(snapshot: &Value) -> (Cluster, ClusterState) {
    let mut loader = Loader::new();
    loader.document(snapshot).unwrap();
    let cluster = loader.finish().0;
    let state = ClusterState::new(&cluster);
    (cluster, state)
}

fn shape(cluster: &mut Cluster, written: Value) -> Arc<PodInfo> {
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
    let got =
        scenario::displace(&cluster, &Profiles::default(), &state, &[n1], &ResourceList::new(), &mut |_| {
            true
        });
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
    let reserve = ResourceList::new();
    let free = || scenario::DaemonBounds { let_in: None, reserve: &reserve };
    let bigger = json!({"metadata": {"name": "logs"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let pod = shape(&mut cluster, bigger);
    let got = scenario::daemon(&cluster, &Profiles::default(), &state, pod, "logs", free());
    assert_eq!((got.nodes, got.fits), (3, 3));
    let huge = json!({"metadata": {"name": "logs"}, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1100m"}}}]}});
    let pod = shape(&mut cluster, huge);
    let got = scenario::daemon(&cluster, &Profiles::default(), &state, pod, "logs", free());
    assert_eq!((got.fits, got.refused[0].reasons.clone()), (0, vec!["Insufficient cpu".to_owned()]));
}

#[test]
fn higher_priority_displaces_the_fewest_and_least_important() {
    let (mut cluster, state) = load(&snapshot());
    let important = json!({"metadata": {"name": "sim"}, "spec": {"priority": 100, "containers": [{"name": "c", "resources": {"requests": {"cpu": "3500m"}}}]}});
    let pod = shape(&mut cluster, important);
    let got = scenario::preempt(
        &cluster,
        &Profiles::default(),
        &state,
        &pod,
        scenario::Room::default(),
        &mut |_| true,
    );
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
    let mut run = || scenario::trials(&mut cluster, &profiles, &state, &ask, 7, 9, &mut |_| true).unwrap();
    let first = run();
    assert_eq!((&first, first.median), (&run(), 10));
}

/// Asks with every option of a question.
fn whole(snapshot: &Value, pod: &Value, options: Value) -> Value {
    let mut loader = Loader::new();
    loader.document(snapshot).unwrap();
    let (cluster, report) = loader.finish();
    let shapes = evenkeel_capacity::load::shapes(pod).unwrap();
    let question = CapacityQuestion {
        options: serde_json::from_value(options).unwrap(),
        shapes,
        ..CapacityQuestion::default()
    };
    match question.answer(Snapshot { cluster, report }, None, &mut |_| true) {
        Ok((whole, _)) => serde_json::to_value(whole).unwrap(),
        Err(error) => json!(error.to_string()),
    }
}

fn asking(cpu: &str) -> Value {
    json!({"metadata": {"name": "sim"}, "spec": {"priority": 100, "containers": [
        {"name": "c", "resources": {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}},
    ]}})
}

#[test]
fn displaced_pods_give_their_quota_back() {
    let mut all = snapshot();
    let quota = |hard: Value, more: Value| {
        let mut quota = json!({"metadata": {"name": "few"}, "spec": {"hard": hard}});
        quota["spec"].as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        quota
    };
    let count = |all: &Value| {
        let preempt = &whole(all, &asking("3500m"), json!({"preempt": true}))["preempt"];
        (preempt["count"].clone(), preempt["without"].clone())
    };
    // Nine and a half cores are in use: there is room for one, which gives back three, and so for the next.
    all["resourceQuotas"] = json!([quota(json!({"requests.cpu": "14"}), json!({}))]);
    assert_eq!(count(&all), (json!(3), json!(0)));
    // None is made, so that none displaces anybody.
    all["resourceQuotas"] = json!([quota(json!({"requests.cpu": "12"}), json!({}))]);
    assert_eq!(count(&all), (json!(0), json!(0)));
    // Five pods without a deadline are there.
    let terminating = json!({"scopes": ["NotTerminating"]});
    all["resourceQuotas"] = json!([quota(json!({"pods": "6"}), terminating)]);
    assert_eq!(count(&all), (json!(3), json!(0)));
    // With one they never took of it, and give nothing back.
    for pod in all["pods"].as_array_mut().unwrap() {
        pod["spec"]["activeDeadlineSeconds"] = json!(60);
    }
    all["resourceQuotas"] = json!([quota(json!({"pods": "2"}), json!({"scopes": ["NotTerminating"]}))]);
    assert_eq!(count(&all), (json!(2), json!(0)));
    // Of another namespace's quota nothing is given back, and nothing is asked.
    all["resourceQuotas"][0]["metadata"]["namespace"] = json!("other");
    assert_eq!(count(&all), (json!(3), json!(0)));
}

#[test]
fn every_scenario_keeps_free_what_must_stay_free() {
    let all = snapshot();
    let (small, large) = (asking("500m"), asking("3500m"));
    // Two and a half cores are free.
    let ask = |pod: &Value, reserve: &str, more: Value| {
        let mut options = json!({"reserve": {"cpu": reserve}});
        options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        whole(&all, pod, options)
    };
    let plain = ask(&small, "1", json!({"trials": 3, "seed": 7}));
    assert_eq!((&plain["count"], &plain["binding"]), (&json!(3), &json!("reserve")));
    // Told with the other bounds where it does not bind.
    let limited = ask(&small, "1", json!({"max": 1}));
    assert_eq!(limited["bounds"], json!({"aggregate": 5, "limit": 1, "nodes": 5, "reserve": 3}));
    assert_eq!(plain["trials"], json!({"trials": 3, "min": 3, "median": 3, "max": 3}));
    // The first takes half a core more than goes, the second too; the third takes as much as goes and a half.
    let preempted = |reserve| ask(&large, reserve, json!({"preempt": true}))["preempt"]["count"].clone();
    assert_eq!((preempted("2500m"), preempted("2"), preempted("1500m")), (json!(0), json!(1), json!(2)));
    let daemon = |reserve| ask(&small, reserve, json!({"daemonset": true}))["daemonset"].clone();
    assert_eq!((&daemon("1")["fits"], &daemon("1500m")["fits"]), (&json!(3), &json!(2)));
    assert_eq!(
        daemon("1500m")["refused"][0]["reasons"],
        json!(["what must stay free (cpu=1500m) would be used"])
    );
    let drained = |reserve| ask(&small, reserve, json!({"drain": ["n1"]}))["drain"][0].clone();
    assert_eq!((&drained("1")["placed"], &drained("1500m")["placed"]), (&json!(1), &json!(0)));
    let why = drained("1500m")["failed"][1]["message"].as_str().unwrap().to_owned();
    assert_eq!(why, "what must stay free (cpu=1500m) would be used");
    for (reserve, why) in
        [("-1", "cpu=-1 is less than nothing"), ("1", "no node that is asked about has gpu")]
    {
        let name = if reserve == "1" { "gpu" } else { "cpu" };
        let refused = whole(&all, &small, json!({"reserve": {name: reserve}}));
        assert!(refused.as_str().is_some_and(|text| text.contains(why)), "{refused}");
    }
}

#[test]
fn nodes_are_emptied_and_moves_made_only_while_enough_stays_free() {
    let all = json!({
        "nodes": [node("n1", "4", "a"), node("n2", "4", "a")],
        "pods": [pod("a1", "n1", "1", 0), pod("a2", "n2", "1", 0)],
    });
    let compacted = |reserve: &str| {
        whole(&all, &asking("500m"), json!({"compact": true, "reserve": {"cpu": reserve}}))["compact"]["found"].clone()
    };
    assert_eq!((compacted("2"), compacted("3")), (json!(1), json!(2)));
    let defrag = |reserve: &str| {
        whole(&all, &asking("4"), json!({"defrag": 2, "reserve": {"cpu": reserve}}))["defrag"].clone()
    };
    assert_eq!((&defrag("2")["after"], &defrag("3")["after"]), (&json!(1), &json!(0)));
    assert_eq!(defrag("3")["moves"], json!([]));
}

#[test]
fn a_bound_of_sets_is_a_bound_of_their_pods() {
    let deployment = json!({"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2, "template": asking("3500m")}});
    let mut deployment = deployment;
    deployment["spec"]["template"]["metadata"] = json!({});
    let answer = whole(&snapshot(), &deployment, json!({"preempt": true, "max": 1}));
    assert_eq!(answer["preempt"]["count"], json!(2), "one set has two pods");
    assert!(answer["preempt"]["victims"][0]["breaksBudget"].is_boolean(), "{answer}");
}
