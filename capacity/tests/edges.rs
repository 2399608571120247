//! Filters and scores at the edges. The situations are those of the scheduler's own tests (`pkg/scheduler/framework/
//! plugins/*/*_test.go`, v1.36), told anew.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code, reason = "helpers of tests")]

use std::sync::Arc;

use crate::common::{answer, load, node, pod};
use evenkeel_capacity::engine::step::Placer;
use evenkeel_capacity::profile::{Profile, Score};
use serde_json::{Value, json};

fn check(what: &str, snapshot: &Value, pod: &Value, wanted: u64) {
    let got = answer(snapshot, pod);
    assert_eq!(got.count, wanted, "{what}: {}", got.message);
}

/// One node whose only peculiarity is this.
fn tainted(taint: Value) -> Value {
    let mut node = node("n", json!({}));
    node["spec"] = json!({"taints": [taint]});
    json!({"nodes": [node]})
}

#[test]
fn taints_are_borne_by_key_value_and_effect() {
    let taint = json!({"key": "dedicated", "value": "user1", "effect": "NoSchedule"});
    for (toleration, borne) in [
        (json!({"key": "dedicated", "operator": "Equal", "value": "user1", "effect": "NoSchedule"}), true),
        (json!({"key": "dedicated", "value": "user1"}), true),
        (json!({"key": "dedicated", "value": "user2"}), false),
        (json!({"key": "dedicated", "operator": "Exists", "effect": "NoExecute"}), false),
        (json!({"key": "other", "operator": "Exists"}), false),
        (json!({"operator": "Exists"}), true),
        (json!({"operator": "Exists", "effect": "PreferNoSchedule"}), false),
        // Numeric operators are behind a gate: without it they bear nothing, not even what is equal.
        (json!({"key": "dedicated", "operator": "Gt", "value": "user1"}), false),
    ] {
        let shape = pod(json!({"tolerations": [toleration]}));
        check(&toleration.to_string(), &tainted(taint.clone()), &shape, if borne { 8 } else { 0 });
    }
    check(
        "a wish, not a rule",
        &tainted(json!({"key": "k", "effect": "PreferNoSchedule"})),
        &pod(json!({})),
        8,
    );
}

#[test]
fn node_affinity_compares_numbers_and_lists_names() {
    let snapshot = json!({"nodes": [node("n1", json!({"gen": "4", "odd": "x4"})), node("n2", json!({}))]});
    let terms = |terms: Value| {
        pod(
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}),
        )
    };
    let expression = |key: &str, operator: &str, values: Value| {
        terms(json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]))
    };
    for (key, operator, values, count) in [
        ("gen", "Gt", json!(["3"]), 8),
        ("gen", "Gt", json!(["4"]), 0),
        ("gen", "Lt", json!(["5"]), 8),
        ("odd", "Gt", json!(["3"]), 0),
        ("gen", "Gt", json!(["x"]), 0),
        ("gen", "NotIn", json!(["4"]), 8),
        ("gen", "DoesNotExist", json!([]), 8),
        ("gen", "Exists", json!([]), 8),
        ("gen", "In", json!(["3", "4"]), 8),
    ] {
        check(&format!("{key} {operator} {values}"), &snapshot, &expression(key, operator, values), count);
    }
    check("no term", &snapshot, &terms(json!([])), 0);
    check("a term without requirements", &snapshot, &terms(json!([{}])), 0);
    check(
        "one of two terms",
        &snapshot,
        &terms(json!([{}, {"matchExpressions": [{"key": "gen", "operator": "Exists"}]}])),
        8,
    );
    let name = |values: Value| json!({"key": "metadata.name", "operator": "In", "values": values});
    let listed = terms(json!([{"matchFields": [name(json!(["n2", "n9"]))]}]));
    let got = answer(&snapshot, &listed);
    assert_eq!((got.count, got.per_node["n2"]), (8, 8));
    assert_eq!(
        got.message,
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity]."
    );
    let contradiction = terms(json!([{"matchFields": [name(json!(["n1"])), name(json!(["n2"]))]}]));
    assert_eq!(
        answer(&snapshot, &contradiction).message,
        "0/2 nodes are available: pod affinity terms conflict."
    );
}

#[test]
fn host_ports_clash_by_protocol_and_address() {
    let ports = |ports: Value| {
        let mut pod = pod(json!({}));
        pod["spec"]["containers"][0]["ports"] = ports;
        pod
    };
    let port = |ip: &str, protocol: &str| json!([{"hostPort": 80, "containerPort": 80, "hostIP": ip, "protocol": protocol}]);
    for ((ip, protocol), (used_ip, used_protocol), free) in [
        (("127.0.0.1", "TCP"), ("127.0.0.1", "UDP"), true),
        (("127.0.0.1", "TCP"), ("127.0.0.2", "TCP"), true),
        (("127.0.0.1", "TCP"), ("127.0.0.1", "TCP"), false),
        (("127.0.0.1", ""), ("127.0.0.1", "TCP"), false),
        (("0.0.0.0", "TCP"), ("127.0.0.1", "TCP"), false),
        (("127.0.0.1", "TCP"), ("", "TCP"), false),
        (("", "UDP"), ("0.0.0.0", "TCP"), true),
    ] {
        let mut user = ports(port(used_ip, used_protocol));
        user["metadata"]["name"] = "user".into();
        user["spec"]["nodeName"] = "n".into();
        let snapshot = json!({"nodes": [node("n", json!({}))], "pods": [user]});
        check(
            &format!("{ip}/{protocol} beside {used_ip}/{used_protocol}"),
            &snapshot,
            &ports(port(ip, protocol)),
            u64::from(free),
        );
    }
    let snapshot = json!({"nodes": [node("n1", json!({})), node("n2", json!({}))]});
    let mut sidecar = pod(
        json!({"initContainers": [{"name": "s", "restartPolicy": "Always", "ports": [{"hostPort": 9, "containerPort": 9}]}]}),
    );
    check("a sidecar's port", &snapshot, &sidecar, 2);
    sidecar["spec"]["initContainers"][0]["restartPolicy"] = Value::Null;
    check("an init container's is free again", &snapshot, &sidecar, 16);
}

#[test]
fn effective_requests_are_those_of_the_busiest_moment() {
    let snapshot = json!({"nodes": [node("n", json!({}))]});
    let container = |cpu: &str| json!({"name": cpu, "resources": {"requests": {"cpu": cpu}}});
    let sidecar = |cpu: &str| {
        let mut container = container(cpu);
        container["restartPolicy"] = "Always".into();
        container
    };
    let with = |init: Value, more: Value| {
        let mut shape = pod(json!({"initContainers": init}));
        for (key, value) in more.as_object().into_iter().flatten() {
            shape["spec"][key] = value.clone();
        }
        shape
    };
    check("an init container larger than the rest", &snapshot, &with(json!([container("4")]), json!({})), 2);
    check("a sidecar beside the rest", &snapshot, &with(json!([sidecar("1")]), json!({})), 4);
    check(
        "an init container beside an earlier sidecar",
        &snapshot,
        &with(json!([sidecar("1"), container("3")]), json!({})),
        2,
    );
    check("and before a later one", &snapshot, &with(json!([container("3"), sidecar("1")]), json!({})), 2);
    check("overhead", &snapshot, &with(json!([]), json!({"overhead": {"cpu": "1"}})), 4);
    let whole = |resources: Value| with(json!([]), json!({"resources": resources}));
    check("the pod as a whole", &snapshot, &whole(json!({"requests": {"cpu": "4"}})), 2);
    check("a limit beside containers that ask", &snapshot, &whole(json!({"limits": {"cpu": "4"}})), 8);
    let mut silent = whole(json!({"limits": {"cpu": "4"}}));
    silent["spec"]["containers"][0]["resources"] = json!({});
    check("a limit beside containers that do not", &snapshot, &silent, 2);
    let mut small = pod(json!({}));
    small["spec"]["containers"] =
        json!([container("1500u"), {"name": "b", "resources": {"requests": {"cpu": "1500u"}}}]);
    let mut tiny = snapshot;
    tiny["nodes"][0]["status"]["allocatable"]["cpu"] = "6m".into();
    check("rounded once, after the sum", &tiny, &small, 2);
}

#[test]
fn a_resize_counts_until_it_is_found_impossible() {
    let resized = |conditions: Value, sidecar: bool| {
        let own = json!([{"name": "r", "restartPolicy": "Always", "resources": {"requests": {"cpu": "6"}}}]);
        let status = json!([{"name": "r", "allocatedResources": {"cpu": "3"}, "resources": {"requests": {"cpu": "2"}}}]);
        let (containers, list) = if sidecar {
            ("initContainers", "initContainerStatuses")
        } else {
            ("containers", "containerStatuses")
        };
        let mut user = json!({"metadata": {"name": "user"}, "spec": {"nodeName": "n"}, "status": {"conditions": conditions}});
        user["spec"][containers] = own;
        user["status"][list] = status;
        json!({"nodes": [node("n", json!({}))], "pods": [user]})
    };
    let pending = |reason: &str| json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
    for sidecar in [false, true] {
        check("asked for", &resized(json!([]), sidecar), &pod(json!({})), 2);
        check("deferred", &resized(pending("Deferred"), sidecar), &pod(json!({})), 2);
        check("infeasible", &resized(pending("Infeasible"), sidecar), &pod(json!({})), 5);
    }
}

#[test]
fn spread_counts_the_domains_it_should() {
    let zone = |name: &str, zone: &str| node(name, json!({"zone": zone}));
    let mut tainted = zone("n4", "c");
    tainted["spec"] = json!({"taints": [{"key": "t", "effect": "NoSchedule"}]});
    let snapshot =
        json!({"nodes": [zone("n1", "a"), zone("n2", "a"), zone("n3", "b"), tainted, node("n5", json!({}))]});
    let constraint = |more: Value| {
        let mut constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "sim"}}});
        for (key, value) in more.as_object().into_iter().flatten() {
            constraint[key] = value.clone();
        }
        pod(json!({"topologySpreadConstraints": [constraint]}))
    };
    check("a tainted domain stays empty and freezes the rest", &snapshot, &constraint(json!({})), 2);
    check("unless taints are honoured", &snapshot, &constraint(json!({"nodeTaintsPolicy": "Honor"})), 17);
    let fewer = constraint(json!({"nodeTaintsPolicy": "Honor", "minDomains": 3}));
    check("fewer domains than asked for", &snapshot, &fewer, 2);
    check("a wider skew", &snapshot, &constraint(json!({"maxSkew": 3})), 6);
    check("an empty selector counts nobody", &snapshot, &constraint(json!({"labelSelector": {}})), 24);
    check("no selector matches nobody", &snapshot, &constraint(json!({"labelSelector": null})), 24);
    let mut by_revision = constraint(json!({"nodeTaintsPolicy": "Honor", "matchLabelKeys": ["rev"]}));
    by_revision["metadata"]["labels"]["rev"] = "2".into();
    let mut with_old = snapshot.clone();
    let old = |name: &str| json!({"metadata": {"name": name, "labels": {"app": "sim", "rev": "1"}}, "spec": {"nodeName": "n3"}});
    with_old["pods"] = json!([old("p"), old("q"), old("r")]);
    check("older revisions do not count", &with_old, &by_revision, 17);
    let all_revisions = constraint(json!({"nodeTaintsPolicy": "Honor"}));
    check("or they do", &with_old, &all_revisions, 20);
    with_old["pods"][0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    check("those that are going do not", &with_old, &all_revisions, 19);
    let message = answer(&snapshot, &constraint(json!({}))).message;
    assert_eq!(
        message,
        "0/5 nodes are available: 1 node(s) didn't match pod topology spread constraints (missing required label), \
         1 node(s) had untolerated taint(s), 3 node(s) didn't match pod topology spread constraints."
    );
    let mut picky = constraint(json!({}));
    picky["spec"]["nodeSelector"] = json!({"zone": "a"});
    check("domains out of reach do not count", &snapshot, &picky, 16);
    picky["spec"]["topologySpreadConstraints"][0]["nodeAffinityPolicy"] = "Ignore".into();
    check("unless asked for", &snapshot, &picky, 1);
}

#[test]
fn pod_affinity_looks_into_the_namespaces_it_names() {
    let mut user = json!({"metadata": {"name": "db", "namespace": "data", "labels": {"app": "db", "track": "red"}}, "spec": {"nodeName": "n2"}});
    let snapshot = |user: &Value| {
        json!({
            "nodes": [node("n1", json!({})), node("n2", json!({}))],
            "namespaces": [{"metadata": {"name": "data", "labels": {"kind": "store"}}}, {"metadata": {"name": "default"}}],
            "pods": [user],
        })
    };
    let near = |more: Value| {
        let mut term =
            json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}});
        for (key, value) in more.as_object().into_iter().flatten() {
            term[key] = value.clone();
        }
        let mut pod = pod(
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}),
        );
        pod["metadata"]["labels"]["track"] = "red".into();
        pod
    };
    for (more, count) in [
        (json!({}), 0),
        (json!({"namespaces": ["data"]}), 8),
        (json!({"namespaces": ["other"]}), 0),
        (json!({"namespaceSelector": {}}), 8),
        (json!({"namespaceSelector": {"matchLabels": {"kind": "store"}}}), 8),
        (json!({"namespaceSelector": {"matchLabels": {"kind": "web"}}}), 0),
        (json!({"namespaces": ["data"], "matchLabelKeys": ["track"]}), 8),
        (json!({"namespaces": ["data"], "mismatchLabelKeys": ["track"]}), 0),
        (json!({"namespaces": ["data"], "matchLabelKeys": ["absent"]}), 8),
        (json!({"namespaces": ["data"], "labelSelector": null}), 0),
    ] {
        check(&more.to_string(), &snapshot(&user), &near(more.clone()), count);
    }
    user["metadata"]["labels"]["track"] = "blue".into();
    check(
        "another track",
        &snapshot(&user),
        &near(json!({"namespaces": ["data"], "matchLabelKeys": ["track"]})),
        0,
    );
    check(
        "of another track",
        &snapshot(&user),
        &near(json!({"namespaces": ["data"], "mismatchLabelKeys": ["track"]})),
        8,
    );
}

#[test]
fn the_first_of_a_group_may_begin_anywhere_that_has_the_label() {
    let near = pod(json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "sim"}}},
    ]}}}));
    let rack = |name: &str, rack: &str| node(name, json!({"rack": rack}));
    check("one rack", &json!({"nodes": [rack("n1", "a"), rack("n2", "b"), node("n3", json!({}))]}), &near, 8);
    check("two nodes of one", &json!({"nodes": [rack("n1", "a"), rack("n2", "a")]}), &near, 16);
    check("no rack at all", &json!({"nodes": [node("n1", json!({}))]}), &near, 0);
}

/// Weighted scores of one plugin for the first placing, by node.
fn scores(snapshot: &Value, pod: &Value, plugin: Score) -> Vec<i64> {
    let (mut cluster, mut state) = load(snapshot);
    let pod = Arc::new(cluster.shape(&serde_json::from_value(pod.clone()).unwrap()).unwrap());
    let profile = Profile::default();
    let step = Placer::new(&cluster, &profile, &mut state, pod).look(&state);
    let found = step.scores.by_plugin.into_iter().find(|(known, _)| *known == plugin.name());
    found.map(|(_, scores)| scores).unwrap_or_default()
}

#[test]
fn default_spread_goes_by_services_and_by_what_manages_the_pod() {
    let zone = |name: &str, zone: &str| node(name, json!({"topology.kubernetes.io/zone": zone}));
    let mut snapshot = json!({
        "nodes": [zone("n1", "a"), zone("n2", "b")],
        "pods": [{"metadata": {"name": "old", "labels": {"app": "sim"}}, "spec": {"nodeName": "n1"}}],
    });
    let plain = pod(json!({}));
    let spread = |snapshot: &Value, pod: &Value| scores(snapshot, pod, Score::PodTopologySpread);
    assert_eq!(spread(&snapshot, &plain), [] as [i64; 0], "nothing groups it");
    let set = json!([{"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "sim"}}}}]);
    snapshot["replicaSets"] = set.clone();
    assert_eq!(spread(&snapshot, &plain), [] as [i64; 0], "a replica set that does not manage it");
    let mut managed = plain.clone();
    managed["metadata"]["ownerReferences"] =
        json!([{"kind": "ReplicaSet", "name": "web", "controller": true}]);
    let by_set = spread(&snapshot, &managed);
    assert!(by_set.len() == 2 && by_set[1] > by_set[0], "the empty zone is better: {by_set:?}");
    snapshot["services"] = json!([{"metadata": {"name": "web"}, "spec": {"selector": {"app": "sim"}}}]);
    assert_eq!(spread(&snapshot, &plain), by_set, "a service whose selector matches");
    snapshot["statefulSets"] = set;
    assert_eq!(spread(&snapshot, &plain), by_set, "kinds of one name are several objects");
    // A node without the zone is a domain of its own where the system's defaults hold: ln(2 + 2) for two, not ln(1 + 2).
    snapshot["nodes"] = json!([zone("n1", "a"), node("n2", json!({}))]);
    // n1: round(1 x ln 4 + 2 + 1 x ln 4 + 4) = 9; n2: 0 x ln 4 + 2 = 2; 100 x (9 + 2 - s) / 9, weight 2.
    assert_eq!(spread(&snapshot, &plain), [2 * (100 * 2 / 9), 2 * 100]);
}

#[test]
fn images_count_by_size_and_by_how_widely_they_are_spread() {
    let mib = 1024 * 1024;
    let image = |names: Value, size: i64| json!({"names": names, "sizeBytes": size});
    let with = |name: &str, images: Value| {
        let mut node = node(name, json!({}));
        node["status"]["images"] = images;
        node
    };
    let snapshot = json!({"nodes": [
        with("n1", json!([image(json!(["gcr.io/40:latest", "gcr.io/40:v1"]), 40 * mib), image(json!(["gcr.io/300:latest"]), 300 * mib)])),
        with("n2", json!([image(json!(["gcr.io/250:latest"]), 250 * mib)])),
    ]});
    let running = |images: &[&str]| {
        let containers: Vec<Value> =
            images.iter().map(|image| json!({"name": image, "image": image})).collect();
        pod(json!({"containers": containers}))
    };
    let got = |images: &[&str]| scores(&snapshot, &running(images), Score::ImageLocality);
    // n2 has 250 MiB on half of the nodes: (125 - 23) / (2 x 1000 - 23); n1 has 20, less than counts.
    assert_eq!(got(&["gcr.io/40", "gcr.io/250"]), [0, 5]);
    // n1: (20 + 150 - 23) / 1977.
    assert_eq!(got(&["gcr.io/40", "gcr.io/300"]), [7, 0]);
    assert_eq!(got(&["gcr.io/250:v2"]), [0, 0], "another tag is another image");
}

#[test]
fn preferences_for_and_against_pods_add_up_over_the_domain() {
    let zone = |name: &str, zone: &str| node(name, json!({"zone": zone}));
    let user = |name: &str, on: &str| json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": {"nodeName": on}});
    let snapshot = json!({"nodes": [zone("n1", "a"), zone("n2", "b"), zone("n3", "c")], "pods": [user("cache", "n1"), user("noise", "n2")]});
    let term = |weight: i64, app: &str| json!({"weight": weight, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": app}}}});
    let shape = pod(json!({"affinity": {
        "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term(8, "cache")]},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term(5, "noise")]},
    }}));
    // Raw 8, -5, 0: 100 x (s + 5) / 13, weight 2.
    assert_eq!(scores(&snapshot, &shape, Score::InterPodAffinity), [200, 0, 2 * 38]);
    let mut wanting = snapshot;
    wanting["pods"][0]["spec"]["affinity"] = json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "sim"}}},
    ]}});
    assert_eq!(
        scores(&wanting, &pod(json!({})), Score::InterPodAffinity),
        [200, 0, 0],
        "who is wanted goes there"
    );
}

#[test]
fn preferences_that_cancel_each_other_still_take_part() {
    let user = json!({"metadata": {"name": "cache", "labels": {"app": "cache"}}, "spec": {"nodeName": "n1"}});
    let snapshot = json!({"nodes": [node("n1", json!({})), node("n2", json!({}))], "pods": [user]});
    let term = json!([{"weight": 8, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "cache"}}}}]);
    let near = json!({"preferredDuringSchedulingIgnoredDuringExecution": term});
    let torn = pod(json!({"affinity": {"podAffinity": near, "podAntiAffinity": near}}));
    // Scored as 0 everywhere; a pod that nothing is said about has no score of this kind at all.
    assert_eq!(scores(&snapshot, &torn, Score::InterPodAffinity), [0, 0]);
    assert!(scores(&snapshot, &pod(json!({})), Score::InterPodAffinity).is_empty());
}

#[test]
fn resources_the_profile_ignores_are_not_asked_of_nodes() {
    let mut shape = pod(json!({}));
    shape["spec"]["containers"][0]["resources"]["requests"]["x.io/card"] = "1".into();
    let (mut cluster, mut state) = load(&json!({"nodes": [node("n", json!({}))]}));
    let shape = Arc::new(cluster.shape(&serde_json::from_value(shape).unwrap()).unwrap());
    for (ignored, count) in [("x.io/card", 8), ("x.io", 8), ("y.io", 0), ("cpu", 0)] {
        let profile = Profile { ignored_resources: vec![ignored.to_owned()], ..Profile::default() };
        let mut placer = Placer::new(&cluster, &profile, &mut state, Arc::clone(&shape));
        assert_eq!(placer.closed(&state).unwrap().count, count, "{ignored}");
        let mut stepped = state.clone();
        let placed =
            Placer::new(&cluster, &profile, &mut stepped, Arc::clone(&shape)).run(&mut stepped, None);
        assert_eq!(placed.len() as u64, count, "{ignored}");
    }
}
