//! The simulator's cluster that is kept equals one that is made whole.

use evenkeel_capacity::cluster::Cluster;
use evenkeel_capacity::question::Snapshot;
use evenkeel_capacity::state::ClusterState;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::{answer, kind, node, pod, put, quota};
use super::{ClusterView, Live};

/// Something that happens in a cluster.
#[derive(Debug, Clone)]
enum Change {
    /// Name, node (4 is one that is not there, 5 none), CPU, phase.
    Pod(usize, usize, u32, usize),
    Gone(usize),
    /// Name and CPU.
    Node(usize, usize),
    NodeGone(usize),
    Quota(usize),
    /// Pods are listed anew, every other one of them.
    List,
    Ask,
}

const NODES: [&str; 6] = ["n0", "n1", "n2", "n3", "absent", ""];
const PHASES: [&str; 4] = ["Running", "Running", "Pending", "Succeeded"];

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => (0..9_usize, 0..NODES.len(), 1..4_u32, 0..PHASES.len())
            .prop_map(|(name, node, cpu, phase)| Change::Pod(name, node, cpu * 100, phase)),
        4 => (0..9_usize).prop_map(Change::Gone),
        3 => (0..4_usize, 1..4_usize).prop_map(|(name, cpu)| Change::Node(name, cpu)),
        1 => (0..4_usize).prop_map(Change::NodeGone),
        1 => (2..5_usize).prop_map(Change::Quota),
        1 => Just(Change::List),
        6 => Just(Change::Ask),
    ]
}

fn one(name: usize, node: &str, cpu: u32, phase: &str) -> Value {
    let mut pod = pod(&format!("web-{name}"), node, cpu);
    pod["metadata"]["namespace"] = ["shop", "bank", "zoo"][name % 3].into();
    pod["metadata"]["uid"] = format!("00000000-0000-4000-8000-{name:012x}").into();
    pod["status"]["phase"] = phase.into();
    // One that nobody understands.
    if name == 8 {
        let term = json!({ "topologyKey": "z", "labelSelector": { "matchExpressions": [{ "key": "k", "operator": "Odd" }] } });
        let terms = json!({ "requiredDuringSchedulingIgnoredDuringExecution": [term] });
        pod["spec"]["affinity"] = json!({ "podAntiAffinity": terms });
    }
    pod
}

fn do_it(view: &ClusterView, change: &Change) {
    match change {
        Change::Pod(name, node, cpu, phase) => put(view, &one(*name, NODES[*node], *cpu, PHASES[*phase])),
        Change::Gone(name) => {
            view.remove(kind("Pod"), one(*name, "", 100, "Running").to_string().as_bytes()).unwrap();
        }
        Change::Node(name, cpu) => put(view, &node(NODES[*name], &cpu.to_string())),
        Change::NodeGone(name) => {
            view.remove(kind("Node"), node(NODES[*name], "1").to_string().as_bytes()).unwrap();
        }
        Change::Quota(cpu) => put(view, &quota(&cpu.to_string())),
        Change::List => {
            let mark = view.begin(kind("Pod"));
            for name in [0, 2, 4, 6] {
                let pod = one(name, "n1", 200, "Running").to_string();
                view.put(kind("Pod"), pod.as_bytes(), mark).unwrap();
            }
            view.end(kind("Pod"), mark);
        }
        Change::Ask => {}
    }
}

/// All that a cluster says of what runs, in words.
fn words(cluster: &Cluster) -> Vec<String> {
    let word = |symbol| cluster.word(symbol);
    let pods = cluster.placed.iter().map(|placed| {
        let (node, pod) = (&cluster.nodes[placed.node], &placed.pod);
        let [space, name, owner, since] =
            [pod.namespace, placed.name, placed.owner, placed.started].map(word);
        format!("{space}/{name} of {owner} on {} since {since}: {:?}", word(node.name), pod.requests)
    });
    let nodes = cluster.nodes.iter().map(|node| format!("{}: {:?}", word(node.name), node.allocatable));
    // What is kept of sums, and what would be counted.
    let state = ClusterState::new(cluster);
    let sums = (0..cluster.nodes.len()).map(|at| {
        let of = |all: &[Vec<i64>]| {
            all.iter().map(|amounts| amounts[at]).filter(|amount| *amount != 0).sum::<i64>()
        };
        let (requested, scored, offered) = (of(&state.requested), of(&state.scored), of(&state.allocatable));
        format!("{requested} and {scored} of {offered}, {} of {} pods", state.pods[at], state.max_pods[at])
    });
    let placements =
        state.placements.iter().map(|(id, node)| format!("{:?} on {node}", state.pod(*id).requests));
    pods.chain(nodes).chain(sums).chain(placements).collect()
}

fn assert_same(kept: Live, whole: Live) {
    assert_eq!(words(&kept.cluster), words(&whole.cluster));
    assert_eq!((&kept.report, &kept.left_out), (&whole.report, &whole.left_out));
    let told = |live: Live| answer(Snapshot { cluster: live.cluster, report: live.report });
    assert_eq!(told(kept), told(whole));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_kept_is_what_would_be_made_whole(changes in prop::collection::vec(change(), 1..60)) {
        let view = ClusterView::default();
        for name in &NODES[..3] {
            put(&view, &node(name, "2"));
        }
        put(&view, &quota("3"));
        for change in &changes {
            do_it(&view, change);
            if matches!(change, Change::Ask) {
                assert_same(view.live(), view.read().whole());
            }
        }
        assert_same(view.live(), view.read().whole());
    }
}

#[test]
fn what_the_simulator_does_not_read_makes_nothing_anew() {
    let view = ClusterView::default();
    put(&view, &node("n1", "2"));
    put(&view, &pod("web-1", "n1", 100));
    let words_before = view.live().cluster.symbols.len();
    let others = view.read().others;
    for at in 0..3 {
        let mut beat = node("n1", "2");
        beat["status"]["conditions"] =
            json!([{ "type": "Ready", "status": "True", "lastHeartbeatTime": at }]);
        beat["metadata"]["resourceVersion"] = at.to_string().into();
        put(&view, &beat);
        put(&view, &node("n1", &at.to_string()));
    }
    assert_eq!(view.read().others, others, "a node of the same name is taken in by itself");
    let live = view.live();
    assert_eq!(words(&live.cluster)[1], words(&view.read().whole().cluster)[1]);
    assert!(live.cluster.symbols.len() >= words_before);
}

#[test]
fn who_holds_a_cluster_keeps_it_as_it_was() {
    let view = ClusterView::default();
    put(&view, &node("n1", "2"));
    put(&view, &pod("web-1", "n1", 100));
    let held = view.live().cluster;
    put(&view, &pod("web-2", "n1", 100));
    put(&view, &pod("web-1", "n1", 300));
    assert_eq!((view.live().cluster.placed.len(), held.placed.len()), (2, 1));
    assert_ne!(words(&view.live().cluster)[0], words(&held)[0]);
}

#[test]
fn more_changes_than_are_noted_make_it_anew() {
    let view = ClusterView::default();
    put(&view, &node("n1", "2"));
    assert_eq!(view.live().report.counts.placed, 0);
    for at in 0..=(1 << 14) {
        put(&view, &pod(&format!("web-{}", at % 7), "n1", 100));
    }
    assert_eq!(view.live().report.counts.placed, 7);
}
