//! Compaction, defragmentation and the cheapest mix: bounds hold, plans are allowed move by move.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::load;
use evenkeel_capacity::cluster::Cluster;
use evenkeel_capacity::engine::step::Placer;
use evenkeel_capacity::object::ResourceList;
use evenkeel_capacity::profile::{Profile, Profiles};
use evenkeel_capacity::scenario::{self, Addition, Move, NodeType};
use evenkeel_capacity::state::ClusterState;
use proptest::prelude::*;
use serde_json::{Value, json};

fn node(index: usize, cpu: u32) -> Value {
    let name = format!("n{index}");
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": format!("z{}", index % 2)}},
        "status": {"allocatable": {"cpu": cpu.to_string(), "memory": "64Gi", "pods": "20"}},
    })
}

fn pod(index: usize, node: usize, cpu: u32) -> Value {
    json!({
        "metadata": {"name": format!("p{index}"), "labels": {"app": format!("a{}", index % 3)}},
        "spec": {"nodeName": format!("n{node}"), "containers": [{"resources": {"requests": {"cpu": cpu.to_string()}}}]},
    })
}

fn away(mut pod: Value) -> Value {
    let app = pod["metadata"]["labels"]["app"].clone();
    pod["spec"]["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": app}}},
    ]}});
    pod
}

fn named(moves: &[Move]) -> Vec<(&str, &str, &str)> {
    moves.iter().map(|m| (m.pod.as_str(), m.from.as_str(), m.to.as_str())).collect()
}

/// Makes the moves one by one, each as the scheduler would have to allow it; the state afterwards.
fn replay(cluster: &Cluster, state: &ClusterState, moves: &[Move]) -> ClusterState {
    let profile = Profile::default();
    let mut state = state.clone();
    let mut names: Vec<String> =
        cluster.placed.iter().map(|p| format!("default/{}", cluster.word(p.name))).collect();
    for m in moves {
        let at = names.iter().position(|name| *name == m.pod).unwrap();
        let (id, from) = state.remove(at);
        names.swap_remove(at);
        assert_eq!(cluster.node(&m.from), Some(from));
        let to = cluster.node(&m.to).unwrap();
        let pod = Arc::clone(state.pod(id));
        let refused = Placer::new(cluster, &profile, &mut state, pod).rejections(&state)[to].clone();
        assert_eq!(refused, None, "{m:?}");
        state.place(id, to);
        names.push(m.pod.clone());
    }
    state
}

#[test]
fn the_least_used_nodes_are_emptied_and_daemons_stay() {
    let mut daemon = pod(9, 2, 1);
    daemon["metadata"]["ownerReferences"] =
        json!([{"kind": "DaemonSet", "name": "logs", "controller": true}]);
    let mut owned = pod(3, 2, 2);
    owned["metadata"]["ownerReferences"] = json!([{"kind": "ReplicaSet", "name": "web", "controller": true}]);
    let snapshot = json!({
        "nodes": [node(0, 8), node(1, 8), node(2, 8), node(3, 8)],
        "pods": [pod(0, 0, 5), pod(1, 1, 4), pod(2, 1, 1), owned, daemon],
    });
    let (cluster, state) = load(&snapshot);
    let got = scenario::compact(&cluster, &Profiles::default(), &state, &ResourceList::new(), &mut |_| true);
    assert_eq!((got.nodes, got.found, got.bound), (3, 2, 2), "12 cores need two nodes of 8");
    assert_eq!(
        (got.emptied.as_slice(), named(&got.moves).as_slice()),
        (["n2".to_owned()].as_slice(), [("default/p3", "n2", "n0")].as_slice())
    );
    assert!(!got.moves[0].bare);
    let stopped =
        scenario::compact(&cluster, &Profiles::default(), &state, &ResourceList::new(), &mut |_| false);
    assert_eq!((stopped.found, stopped.moves.len()), (3, 0));
    let mut protected = snapshot;
    protected["podDisruptionBudgets"] = json!([{"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "a0"}}}, "status": {"disruptionsAllowed": 0}}]);
    let (cluster, state) = load(&protected);
    let got = scenario::compact(&cluster, &Profiles::default(), &state, &ResourceList::new(), &mut |_| true);
    assert_eq!((got.found, got.emptied), (2, vec!["n1".to_owned()]), "p0 and p3 may not go, the others may");
}

#[test]
fn a_pod_that_goes_by_way_of_another_node_goes_there_at_once() {
    let snapshot = json!({
        "nodes": [node(0, 8), node(1, 8), node(2, 8), node(3, 16)],
        "pods": [pod(0, 0, 6), pod(1, 1, 3), pod(2, 2, 2), pod(4, 2, 2), pod(3, 3, 6)],
    });
    let (cluster, state) = load(&snapshot);
    let got = scenario::compact(&cluster, &Profiles::default(), &state, &ResourceList::new(), &mut |_| true);
    assert_eq!((got.found, got.emptied.len()), (2, 2));
    let moves = [("default/p1", "n1", "n3"), ("default/p2", "n2", "n0"), ("default/p4", "n2", "n3")];
    assert_eq!(named(&got.moves).as_slice(), moves, "p1 found room on n2 before that was emptied too");
}

#[test]
fn one_move_makes_room_for_a_large_pod() {
    let snapshot = json!({
        "nodes": [node(0, 8), node(1, 8), node(2, 8)],
        "pods": [pod(0, 0, 3), pod(1, 1, 3), pod(2, 2, 5)],
    });
    let (mut cluster, state) = load(&snapshot);
    let large = json!({"metadata": {"name": "large"}, "spec": {"containers": [{"resources": {"requests": {"cpu": "8"}}}]}});
    let large = Arc::new(cluster.shape(&serde_json::from_value(large).unwrap()).unwrap());
    let plan =
        |budget| scenario::defrag(&cluster, &Profiles::default(), &state, &large, budget, &mut |_| true);
    let got = plan(1);
    assert_eq!(
        (got.before, got.after, named(&got.moves).as_slice()),
        (0, 1, [("default/p0", "n0", "n2")].as_slice())
    );
    assert!(got.moves[0].bare, "nobody makes it anew");
    assert_eq!(plan(5).after, 1, "11 cores in use leave room for one of 8");
    assert_eq!((plan(0).after, plan(0).moves.len()), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn plans_are_allowed_and_hold_what_they_promise(
        nodes in prop::collection::vec(4..12_u32, 2..8),
        pods in prop::collection::vec((any::<prop::sample::Index>(), 1..5_u32, prop::bool::weighted(0.3)), 1..24),
        (wanted, budget) in (1..9_u32, 0..6_usize),
    ) {
        let mut left = nodes.clone();
        let mut written = Vec::new();
        for (index, (at, cpu, anti)) in pods.into_iter().enumerate() {
            let at = at.index(nodes.len());
            if left[at] >= cpu {
                left[at] -= cpu;
                let one = pod(index, at, cpu);
                written.push(if anti { away(one) } else { one });
            }
        }
        let nodes: Vec<Value> = nodes.iter().enumerate().map(|(index, cpu)| node(index, *cpu)).collect();
        let (mut cluster, state) = load(&json!({"nodes": nodes, "pods": written}));
        let profiles = Profiles::default();

        let compacted = scenario::compact(&cluster, &profiles, &state, &ResourceList::new(), &mut |_| true);
        prop_assert!(compacted.bound <= compacted.found && compacted.found <= compacted.nodes);
        prop_assert_eq!(compacted.nodes - compacted.emptied.len(), compacted.found);
        let after = replay(&cluster, &state, &compacted.moves);
        for name in &compacted.emptied {
            prop_assert_eq!(after.pods[cluster.node(name).unwrap()], 0);
        }

        let shape = json!({"metadata": {"name": "s"}, "spec": {"containers": [{"resources": {"requests": {"cpu": wanted.to_string()}}}]}});
        let shape = Arc::new(cluster.shape(&serde_json::from_value(shape).unwrap()).unwrap());
        let plan = scenario::defrag(&cluster, &profiles, &state, &shape, budget, &mut |_| true);
        prop_assert!(plan.moves.len() <= budget && plan.after >= plan.before);
        prop_assert!(plan.moves.is_empty() || plan.after > plan.before);
        let mut after = replay(&cluster, &state, &plan.moves);
        let count = Placer::new(&cluster, &Profile::default(), &mut after, shape).run(&mut after, None).len();
        prop_assert_eq!(count as u64, plan.after);
    }

    #[test]
    fn the_cheapest_mix_is_the_cheapest_and_the_bound_is_below(
        kinds in prop::collection::vec((1..9_u64, 1..40_u32), 1..4),
        missing in 1..14_u64,
    ) {
        let kind = |(index, (per_node, price)): (usize, &(u64, u32))| {
            let name = format!("t{index}");
            let addition = Addition { r#type: name.clone(), pods: 1, per_node: *per_node, nodes: None, price: None };
            (addition, NodeType { name, node: serde_json::from_value(node(0, 1)).unwrap(), price: Some(f64::from(*price)) })
        };
        let (additions, types): (Vec<Addition>, Vec<NodeType>) = kinds.iter().enumerate().map(kind).unzip();
        let got = scenario::mix(&additions, &types, missing).unwrap();
        // Every combination of up to as many nodes of each as alone would do.
        let mut cheapest = BTreeMap::from([(0_u64, 0_u32)]);
        for (per_node, price) in &kinds {
            let mut next: BTreeMap<u64, u32> = BTreeMap::new();
            for (holds, paid) in &cheapest {
                for count in 0..=missing.div_ceil(*per_node) {
                    let slot = next.entry((holds + count * per_node).min(missing)).or_insert(u32::MAX);
                    *slot = (*slot).min(paid + price * u32::try_from(count).unwrap());
                }
            }
            cheapest = next;
        }
        prop_assert!((got.price - f64::from(cheapest[&missing])).abs() < 1e-9, "{got:?} {cheapest:?}");
        prop_assert!(got.holds >= missing && got.lower_bound <= got.price + 1e-9);
    }
}

#[test]
fn a_very_large_need_is_served_in_bulk() {
    let addition = |name: &str, per_node| Addition {
        r#type: name.to_owned(),
        pods: 1,
        per_node,
        nodes: None,
        price: None,
    };
    let kind = |name: &str, price| NodeType {
        name: name.to_owned(),
        node: serde_json::from_value(node(0, 1)).unwrap(),
        price,
    };
    let additions = [addition("a", 7), addition("b", 0), addition("c", 100)];
    let types = [kind("a", Some(1.0)), kind("b", Some(0.1)), kind("c", None)];
    let got = scenario::mix(&additions, &types, 70_000_000).unwrap();
    assert_eq!((got.nodes["a"], got.holds), (10_000_000, 70_000_000));
    assert!((got.price - got.lower_bound).abs() < 1e-6);
    assert_eq!(scenario::mix(&additions[1..], &types, 5), None, "one holds none, the other has no price");
}

#[test]
fn nodes_to_add_hold_complete_sets_of_several_shapes() {
    let shape = |cpu: &str, wanted| {
        evenkeel_capacity::answer::Shape {
        pod: serde_json::from_value(json!({"metadata": {"name": cpu}, "spec": {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}})).unwrap(),
        wanted,
    }
    };
    let types = [("small", 4, 1.0), ("large", 16, 3.0)].map(|(name, cpu, price)| NodeType {
        name: name.to_owned(),
        node: serde_json::from_value(node(0, cpu)).unwrap(),
        price: Some(price),
    });
    let shapes = [shape("3", 1), shape("2", 2)];
    let got = scenario::add_sets(&Profiles::default(), &shapes, 4, &types, &mut |_| true);
    let got: Vec<_> = got.iter().map(|a| (a.r#type.as_str(), a.per_node, a.nodes, a.price)).collect();
    // A set takes 7 cores: a large node holds two. Small ones hold a 3 or two of 2 each; eight would be enough, were the
    // small pods not spread over nodes that the next large ones need.
    assert_eq!(got, [("large", 2, Some(2), Some(6.0)), ("small", 0, Some(10), Some(10.0))]);
}
