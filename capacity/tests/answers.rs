//! Whole answers: the design document's use cases, quotas, limit ranges, fragmentation, help.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use evenkeel_capacity::answer::{Ask, CapacityAnswer, Shape, Steps, StopReason, ask};
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::profile::Profiles;
use evenkeel_capacity::state::ClusterState;
use serde_json::{Value, json};

fn node(name: &str, cpu: &str, memory: &str, labels: Value) -> Value {
    json!({
        "metadata": {"name": name, "labels": labels},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}},
    })
}

fn pod(namespace: &str, resources: Value) -> Value {
    json!({
        "metadata": {"name": "sim", "namespace": namespace},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    })
}

fn answer(snapshot: &Value, pods: &[Value], max: Option<u64>) -> CapacityAnswer {
    answer_with(snapshot, pods, Ask { max, ..Ask::default() })
}

fn answer_with(snapshot: &Value, pods: &[Value], question: Ask) -> CapacityAnswer {
    let mut loader = Loader::new();
    loader.document(snapshot).unwrap();
    let mut cluster = loader.finish().0;
    let mut state = ClusterState::new(&cluster);
    let shape = |pod: &Value| Shape { pod: serde_json::from_value(pod.clone()).unwrap(), wanted: 1 };
    let question = Ask { shapes: pods.iter().map(shape).collect(), help: true, ..question };
    ask(&mut cluster, &Profiles::default(), &mut state, &question, &mut |_| true).unwrap()
}

/// Nodes of two regions, three of them for computing in region1, two in region2 and one that is for something else. The
/// namespace selects the nodes for computing of one region.
fn regions(region: &str, quota: Value) -> Value {
    let selector = format!("region={region},type=compute");
    let compute = |region: &str| json!({"region": region, "type": "compute"});
    json!({
        "namespaces": [{"metadata": {"name": "team", "annotations": {"openshift.io/node-selector": selector}}}],
        "resourceQuotas": [{"metadata": {"name": "team", "namespace": "team"}, "spec": {"hard": quota}}],
        "nodes": [
            node("n1", "8", "16Gi", compute("region1")),
            node("n2", "8", "16Gi", compute("region1")),
            node("n3", "8", "16Gi", compute("region1")),
            node("n4", "8", "64Gi", compute("region2")),
            node("n5", "6", "64Gi", compute("region2")),
            node("n6", "64", "64Gi", json!({"region": "region2", "type": "storage"})),
        ],
    })
}

#[test]
fn placings_that_are_told_keep_to_all_bounds_and_to_what_memory_there_is() {
    let all = |quota: Value| {
        json!({
            "nodes": [node("a", "8", "16Gi", json!({})), node("b", "8", "16Gi", json!({}))],
            "resourceQuotas": [{"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": quota}}],
        })
    };
    let asked = pod("team", json!({"requests": {"cpu": "1"}}));
    let told = |quota: Value, more: Ask| {
        let got =
            answer_with(&all(quota), std::slice::from_ref(&asked), Ask { steps: Steps::First(50), ..more });
        (got.count, got.steps.unwrap().len(), got.notes.len())
    };
    let none = || json!({"pods": "100"});
    let reserve = [("cpu".to_owned(), "10".parse().unwrap())].into();
    assert_eq!(told(none(), Ask::default()), (16, 17, 0), "and the look that finds no node");
    assert_eq!(told(json!({"pods": "3"}), Ask::default()), (3, 3, 0));
    assert_eq!(told(none(), Ask { max: Some(2), ..Ask::default() }), (2, 2, 0));
    assert_eq!(told(none(), Ask { reserve, ..Ask::default() }), (6, 6, 0));
    let broken = pod("team", json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}));
    let got = answer_with(&all(none()), &[broken], Ask { steps: Steps::First(5), ..Ask::default() });
    assert_eq!((got.stop, got.steps.unwrap().len()), (StopReason::Refused, 0));

    // Nobody's answer takes the memory of all.
    let mut vast = node("vast", "8", "16Gi", json!({}));
    vast["status"]["allocatable"]["pods"] = "1000001".into();
    let idle = pod("default", json!({}));
    let got = answer_with(&json!({"nodes": [vast]}), &[idle], Ask { steps: Steps::All, ..Ask::default() });
    assert_eq!((got.count, got.sequence.unwrap().len()), (1_000_001, 1_000_000));
    assert_eq!(got.notes, ["the nodes of the first 1000000 of 1000001 placings are told"]);
    let nodes: Vec<Value> = (0..5000).map(|at| node(&format!("n{at}"), "8", "16Gi", json!({}))).collect();
    let steps = Ask { steps: Steps::First(110), max: Some(200), ..Ask::default() };
    let got = answer_with(&json!({ "nodes": nodes }), &[pod("default", json!({}))], steps);
    assert_eq!(got.steps.unwrap().len(), 100);
    assert!(
        got.notes.iter().any(|note| note.starts_with("the first 100 placings are told")),
        "{:?}",
        got.notes
    );
}

#[test]
fn use_case_1_a_namespace_of_40_gb_and_pods_of_4() {
    let four = json!({"limits": {"memory": "4Gi"}});
    let got = answer(&regions("region1", json!({"limits.memory": "40Gi"})), &[pod("team", four)], None);
    assert_eq!((got.count, got.stop, got.binding.as_str()), (10, StopReason::QuotaExceeded, "quota/team"));
    assert_eq!((got.bounds["quota/team"], got.bounds["nodes"]), (10, 12));
    assert_eq!(
        got.message,
        "pods \"sim-10\" is forbidden: exceeded quota: team, requested: limits.memory=4Gi, used: limits.memory=40Gi, \
         limited: limits.memory=40Gi"
    );
    assert!(!got.per_node.contains_key("n4"), "not on nodes the namespace does not select");
}

#[test]
fn use_case_2_a_namespace_of_4_cpus_and_pods_of_half() {
    let half = json!({"requests": {"cpu": "500m"}});
    let got = answer(&regions("region2", json!({"requests.cpu": "4"})), &[pod("team", half)], None);
    assert_eq!((got.count, got.bounds["nodes"], got.binding.as_str()), (8, 28, "quota/team"));
    assert!(got.per_node.keys().all(|node| ["n4", "n5"].contains(&node.as_str())), "{:?}", got.per_node);
}

#[test]
fn use_case_3_a_pod_with_a_claim_and_nodes_with_attachments() {
    let mut snapshot = regions("region1", json!({}));
    let limit = |node: &str, count: u32| json!({"metadata": {"name": node}, "spec": {"drivers": [{"name": "d", "allocatable": {"count": count}}]}});
    snapshot["csiNodes"] = json!([limit("n1", 0), limit("n2", 1), limit("n3", 2), limit("n4", 5)]);
    snapshot["pvs"] =
        json!([{"metadata": {"name": "pv"}, "spec": {"csi": {"driver": "d", "volumeHandle": "h"}}}]);
    snapshot["pvcs"] = json!([{
        "metadata": {"name": "data", "namespace": "team", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "pv"},
    }]);
    let mut pod = pod("team", json!({"requests": {"cpu": "4"}}));
    pod["spec"]["volumes"] = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]);
    let got = answer(&snapshot, &[pod], None);
    assert_eq!(got.bounds["attachments"], 2, "n2 and n3 have one free and are selected by the namespace");
    assert_eq!(got.count, 4);
}

/// 32 GiB and 16 cores, of which team A uses 20 GiB and 10 cores, team B 10 GiB and 4 cores; 2 and 2 are held back.
#[test]
fn the_documents_example_of_two_teams_and_a_reserve() {
    let used = |name: &str, memory: &str, cpu: &str| {
        json!({
            "metadata": {"name": name, "namespace": name},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]},
        })
    };
    let snapshot = json!({
        "nodes": [node("n", "16", "32Gi", json!({}))],
        "pods": [used("a", "20Gi", "10"), used("b", "10Gi", "4")],
    });
    let shape = pod("a", json!({"requests": {"cpu": "1", "memory": "1Gi"}}));
    assert_eq!(answer(&snapshot, std::slice::from_ref(&shape), None).count, 2);
    let reserve =
        [("cpu", "2"), ("memory", "2Gi")].map(|(name, amount)| (name.to_owned(), amount.parse().unwrap()));
    let got = answer_with(&snapshot, &[shape], Ask { reserve: reserve.into(), ..Ask::default() });
    assert_eq!((got.count, got.binding.as_str(), got.bounds["nodes"]), (0, "reserve", 2));
    assert_eq!(got.message, "what must stay free (cpu=2, memory=2Gi) would be used");
}

/// The same as quotas: each team may use its share, and nobody what is held back.
#[test]
fn the_documents_example_as_quotas() {
    let quota = |team: &str, memory: &str, cpu: &str| json!({"metadata": {"name": team, "namespace": team}, "spec": {"hard": {"requests.cpu": cpu, "requests.memory": memory}}});
    let snapshot = json!({
        "nodes": [node("n", "16", "32Gi", json!({}))],
        "resourceQuotas": [quota("a", "20Gi", "10"), quota("b", "10Gi", "4")],
    });
    let of = |team: &str, memory: &str| pod(team, json!({"requests": {"cpu": "1", "memory": memory}}));
    let read = |pod: &Value| serde_json::from_value::<evenkeel_capacity::object::Pod>(pod.clone()).unwrap();
    let reserve =
        [("cpu", "2"), ("memory", "2Gi")].map(|(name, amount)| (name.to_owned(), amount.parse().unwrap()));
    let asked = |pod: Value, first: Vec<evenkeel_capacity::object::Pod>| {
        let question = Ask { reserve: reserve.clone().into(), first, ..Ask::default() };
        let got = answer_with(&snapshot, &[pod], question);
        (got.count, got.binding)
    };
    assert_eq!(asked(of("a", "2Gi"), Vec::new()), (10, "quota/a".into()));
    assert_eq!(asked(of("b", "2560Mi"), Vec::new()), (4, "quota/b".into()));
    // With what both may use in use, nothing is left but the reserve.
    let (a, b) = (of("a", "2Gi"), of("b", "2560Mi"));
    let both: Vec<_> = std::iter::repeat_n(read(&a), 10).chain(std::iter::repeat_n(read(&b), 4)).collect();
    assert_eq!(asked(of("c", "1Gi"), both.clone()), (0, "reserve".into()));
    let question = Ask { first: both, ..Ask::default() };
    assert_eq!(answer_with(&snapshot, &[of("c", "1Gi")], question).count, 2);
}

#[test]
fn pods_placed_first_are_admitted_and_charged() {
    let quota = |status: Value| {
        json!({
            "nodes": [node("n", "16", "32Gi", json!({}))],
            "resourceQuotas": [{"metadata": {"name": "a", "namespace": "a"}, "spec": {"hard": {"requests.cpu": "4"}},
                "status": status}],
            "limitRanges": [{"metadata": {"name": "d", "namespace": "a"},
                "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "1"}}]}}],
        })
    };
    let unsaid: evenkeel_capacity::object::Pod = serde_json::from_value(pod("a", json!({}))).unwrap();
    let asked = |status: Value, first: usize| {
        let question = Ask { first: vec![unsaid.clone(); first], ..Ask::default() };
        let got = answer_with(&quota(status), &[pod("a", json!({"requests": {"cpu": "1"}}))], question);
        (got.count, got.binding, got.message, got.placed.unwrap_or_default())
    };
    let used = json!({"used": {"requests.cpu": "1"}});
    for (status, before) in [(json!({}), 0), (used, 1)] {
        let full = "pods \"sim-0\" is forbidden: exceeded quota: a, requested: requests.cpu=1, used: requests.cpu=4, \
                    limited: requests.cpu=4";
        for first in 0..=5 {
            let (count, binding, message, placed) = asked(status.clone(), first);
            let made = first.min(4 - before);
            assert_eq!(
                (count as usize, binding.as_str()),
                (4 - before - made, "quota/a"),
                "{first}: {message}"
            );
            let on_nodes = placed.iter().filter(|placed| placed.node.is_some()).count();
            assert_eq!((placed.len(), on_nodes), (first, made));
            for refused in placed.iter().filter(|placed| placed.node.is_none()) {
                assert_eq!(refused.message, full.replace("sim-0", "sim"));
            }
            assert!(count > 0 || message == full, "{message}");
        }
    }
}

#[test]
fn a_pod_behind_gates_is_not_counted_and_told() {
    let snapshot = json!({"nodes": [node("n", "4", "8Gi", json!({}))]});
    let mut gated = pod("default", json!({"requests": {"cpu": "1"}}));
    gated["spec"]["schedulingGates"] = json!([{"name": "example.com/queue"}, {"name": "b"}]);
    let got = answer(&snapshot, &[gated], None);
    assert_eq!((got.count, got.stop, got.binding.as_str()), (0, StopReason::Unschedulable, "scheduler"));
    assert_eq!(got.message, "Scheduling is blocked due to non-empty scheduling gates");
    assert!(
        got.notes[0].starts_with("pod sim has scheduling gates (example.com/queue, b)"),
        "{:?}",
        got.notes
    );
    assert!(answer(&snapshot, &[pod("default", json!({}))], Some(1)).notes.is_empty());
}

#[test]
fn the_largest_pod_of_a_namespace_is_what_its_limit_range_allows() {
    let snapshot = json!({
        "nodes": [node("n", "16", "32Gi", json!({}))],
        "limitRanges": [{"metadata": {"name": "r", "namespace": "team"}, "spec": {"limits": [
            {"type": "Pod", "max": {"cpu": "4", "memory": "6Gi"}},
            {"type": "Pod", "max": {"memory": "8Gi"}},
        ]}}],
    });
    let mut loader = Loader::new();
    loader.document(&snapshot).unwrap();
    let cluster = loader.finish().0;
    let pod = evenkeel_capacity::admission::largest(&cluster, "team").unwrap();
    let requests = &pod.spec.containers[0].resources.requests;
    assert_eq!((requests["cpu"].canonical(), requests["memory"].canonical()), ("4".into(), "6Gi".into()));
    assert!(evenkeel_capacity::admission::largest(&cluster, "other").unwrap_err().contains("no limit range"));
}

#[test]
fn a_limit_range_fills_in_and_refuses() {
    let snapshot = |most: &str| {
        json!({
            "nodes": [node("n", "4", "8Gi", json!({}))],
            "limitRanges": [{"metadata": {"name": "r"}, "spec": {"limits": [
                {"type": "Container", "defaultRequest": {"cpu": "500m"}, "default": {"cpu": "1"}, "max": {"cpu": most}},
            ]}}],
        })
    };
    let got = answer(&snapshot("2"), &[pod("default", json!({}))], None);
    assert_eq!((got.count, got.changes.len()), (8, 2));
    let got = answer(&snapshot("2"), &[pod("default", json!({"limits": {"cpu": "3"}}))], None);
    assert_eq!((got.count, got.stop, got.bounds["namespace/default"]), (0, StopReason::QuotaExceeded, 0));
    assert_eq!(
        got.message,
        "pods \"sim\" is forbidden: maximum cpu usage per Container is 2, but limit is 3"
    );
}

#[test]
fn borders_between_nodes_cost_and_help_is_offered() {
    let nodes: Vec<Value> =
        (0..3).map(|i| node(&format!("n{i}"), "5", "64Gi", json!({"pool": "a"}))).collect();
    let mut snapshot = json!({"nodes": nodes});
    snapshot["nodes"][2]["spec"] =
        json!({"taints": [{"key": "gpu", "value": "only", "effect": "NoSchedule"}]});
    let got = answer(&snapshot, &[pod("default", json!({"requests": {"cpu": "3"}}))], None);
    let fragmentation = got.fragmentation.unwrap();
    assert_eq!((got.count, fragmentation.aggregate, fragmentation.lost), (2, 3, 1));
    assert_eq!(got.bounds["aggregate"], 3);
    let help: Vec<(String, u64)> = got.help.into_iter().map(|help| (help.change, help.admits)).collect();
    assert_eq!(help, [("lower the cpu request to 2".into(), 2), ("tolerate the taint gpu=only".into(), 1)]);
    assert_eq!(got.nodes[0].short["cpu"], "1");
}

#[test]
fn several_shapes_are_counted_in_complete_sets() {
    let snapshot = json!({"nodes": [node("n", "10", "64Gi", json!({}))]});
    let (big, mut small) = (
        pod("default", json!({"requests": {"cpu": "3"}})),
        pod("default", json!({"requests": {"cpu": "1"}})),
    );
    small["metadata"]["name"] = "small".into();
    let got = answer(&snapshot, &[big, small], None);
    let shapes = got.shapes.unwrap();
    assert_eq!((got.count, shapes[0].placed, shapes[1].placed), (2, 2, 2));
    assert_eq!(shapes[0].message, "0/1 nodes are available: 1 Insufficient cpu.");
}

#[test]
fn a_quota_refuses_a_pod_in_the_form_of_its_own_quantities() {
    let snapshot = json!({
        "nodes": [node("n", "64", "64Gi", json!({}))],
        "resourceQuotas": [{"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": {"requests.memory": "10Gi"}}}],
    });
    for (asked, said) in [
        ("4G", "requested: requests.memory=4G, used: requests.memory=8G, limited: requests.memory=10Gi"),
        ("4Gi", "requested: requests.memory=4Gi, used: requests.memory=8Gi, limited: requests.memory=10Gi"),
    ] {
        let got = answer(&snapshot, &[pod("team", json!({"requests": {"memory": asked}}))], None);
        assert!(got.message.ends_with(said), "{}", got.message);
    }
}

#[test]
fn shapes_of_one_set_use_a_quota_up_together() {
    let snapshot = json!({
        "nodes": [node("n", "64", "64Gi", json!({}))],
        "resourceQuotas": [{"metadata": {"name": "q", "namespace": "team"}, "spec": {"hard": {"cpu": "10", "requests.cpu": "10", "pods": 20}}}],
    });
    let named = |name: &str, cpu: &str| {
        let mut pod = pod("team", json!({"requests": {"cpu": cpu}}));
        pod["metadata"]["name"] = name.into();
        pod
    };
    let words = |name: &str, asked: &str, used: &str| {
        format!(
            "pods \"{name}\" is forbidden: exceeded quota: q, requested: cpu={asked},requests.cpu={asked}, \
             used: cpu={used},requests.cpu={used}, limited: cpu=10,requests.cpu=10"
        )
    };
    // Three sets of 3 cores; the tenth core is web's, and then nothing is left for db.
    let got = answer(&snapshot, &[named("web", "1"), named("db", "2")], None);
    assert_eq!((got.count, got.bounds["quota/q"]), (3, 3));
    assert_eq!(got.message, words("db-3", "2", "10"));
    // Sets of four from one shape: two of them, and two pods more.
    let mut loader = Loader::new();
    loader.document(&snapshot).unwrap();
    let mut cluster = loader.finish().0;
    let mut state = ClusterState::new(&cluster);
    let shapes = vec![Shape { pod: serde_json::from_value(named("web", "1")).unwrap(), wanted: 4 }];
    let question = Ask { shapes, ..Ask::default() };
    let got = ask(&mut cluster, &Profiles::default(), &mut state, &question, &mut |_| true).unwrap();
    assert_eq!((got.count, got.bounds["quota/q"], got.bounds["nodes"], got.per_node["n"]), (2, 2, 16, 8));
    assert_eq!(got.message, words("web-10", "1", "10"));
}

#[test]
fn a_quota_demands_what_it_bounds() {
    let got = answer(
        &regions("region1", json!({"limits.cpu": "4"})),
        &[pod("team", json!({"requests": {"cpu": "1"}}))],
        None,
    );
    assert_eq!(got.message, "pods \"sim\" is forbidden: failed quota: team: must specify limits.cpu for: c");
}

#[test]
fn huge_numbers_overflow_nothing() {
    let most = i64::MAX;
    let mut snapshot = json!({"nodes": [node("a", "9e18", "7Ei", json!({"z": "1"})), node("b", "-5", "7Ei", json!({"z": "2"}))]});
    for at in 0..2 {
        snapshot["nodes"][at]["status"]["images"] = json!([{"names": ["i:latest"], "sizeBytes": most}]);
        snapshot["nodes"][at]["status"]["allocatable"]["pods"] = json!("7E");
    }
    let mut pod = pod("default", json!({"requests": {"cpu": "1e15"}}));
    pod["metadata"]["labels"] = json!({"a": "b"});
    pod["spec"]["containers"][0]["image"] = json!("i");
    let prefer = |weight: i64| json!({"weight": weight, "preference": {"matchExpressions": [{"key": "z", "operator": "Exists"}]}});
    let preferred = "preferredDuringSchedulingIgnoredDuringExecution";
    let spread = |skew: i64| json!({"maxSkew": skew, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"a": "b"}}});
    // On a node is whatever the snapshot says; what is asked for has what the API server admits at most.
    let mut placed = pod.clone();
    placed["spec"]["affinity"]["nodeAffinity"][preferred] = json!([prefer(most), prefer(most)]);
    placed["spec"]["topologySpreadConstraints"] = json!([spread(most), spread(i64::MIN)]);
    placed["spec"]["nodeName"] = "b".into();
    snapshot["pods"] = json!([placed]);
    pod["spec"]["affinity"]["nodeAffinity"][preferred] = json!([prefer(100), prefer(100)]);
    pod["spec"]["topologySpreadConstraints"] = json!([spread(i32::MAX.into())]);
    let got = answer(&snapshot, &[pod], Some(3));
    assert_eq!((got.count, got.per_node["a"]), (3, 3));
}
