//! Whoever asks may leave while one thing is worked out: the work ends soon, and what is told was really found.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use evenkeel_capacity::answer::{Ask, Shape, StopReason, ask};
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::object::{Pod, ResourceList};
use evenkeel_capacity::profile::Profiles;
use evenkeel_capacity::scenario::{NodeType, add, displace, trials};
use evenkeel_capacity::state::ClusterState;
use serde_json::{Value, json};

/// A node that holds very many.
fn node(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "rack": name}},
        "status": {"allocatable": {"cpu": "2k", "memory": "9Ti", "pods": "9000000"}},
    })
}

fn pod(name: &str, more: Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "1m"}}}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    json!({"metadata": {"name": name, "labels": {"app": "a"}}, "spec": spec})
}

/// Two rules of which each alone would have a closed form, so that pods are placed one by one; neither ever refuses.
fn slow() -> Value {
    let spread = |key: &str| {
        json!({
            "maxSkew": 1_000_000, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "a"}},
        })
    };
    json!({"topologySpreadConstraints": [spread("kubernetes.io/hostname"), spread("rack")]})
}

fn written(value: Value) -> Pod {
    serde_json::from_value(value).unwrap()
}

/// Says yes so many times, and counts how often it was asked.
fn leaving_after(times: usize) -> (impl FnMut(u64) -> bool, std::rc::Rc<std::cell::Cell<usize>>) {
    let asked = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = std::rc::Rc::clone(&asked);
    let going = move |_| {
        counted.set(counted.get() + 1);
        counted.get() <= times
    };
    (going, asked)
}

#[test]
fn a_count_ends_within_its_run() {
    let mut loader = Loader::new();
    loader.document(&json!({"nodes": [node("a"), node("b")]})).unwrap();
    let mut cluster = loader.finish().0;
    let mut state = ClusterState::new(&cluster);
    let question =
        Ask { shapes: vec![Shape { pod: written(pod("p", slow())), wanted: 1 }], ..Ask::default() };
    let (mut going, asked) = leaving_after(2);
    let got = ask(&mut cluster, &Profiles::default(), &mut state, &question, &mut going).unwrap();
    assert_eq!((got.stop, got.count, asked.get()), (StopReason::Cancelled, 767, 3), "256 between two looks");
}

#[test]
fn help_ends_within_its_run() {
    let mut nodes = json!({"nodes": [node("a"), node("b")]});
    nodes["nodes"][1]["spec"]["taints"] = json!([{"key": "gpu", "effect": "NoSchedule"}]);
    let mut loader = Loader::new();
    loader.document(&nodes).unwrap();
    let mut cluster = loader.finish().0;
    // Only the tainted node has the label that is asked for.
    let mut asked_for = slow();
    asked_for["nodeSelector"] = json!({"kubernetes.io/hostname": "b"});
    let question = |help| Ask {
        shapes: vec![Shape { pod: written(pod("p", asked_for.clone())), wanted: 1 }],
        help,
        ..Ask::default()
    };
    let mut helped = |times| {
        let (mut going, asked) = leaving_after(times);
        let mut state = ClusterState::new(&cluster);
        let got = ask(&mut cluster, &Profiles::default(), &mut state, &question(true), &mut going).unwrap();
        (got.count, got.help.iter().map(|help| help.admits).collect::<Vec<_>>(), asked.get())
    };
    assert_eq!(helped(usize::MAX).1, [1000, 1000], "tolerate the taint, drop the selector");
    // Two looks into the first change: it is told as far as it was counted, and the two others are not tried.
    let (count, told, asked) = helped(2);
    assert_eq!((count, told, asked), (0, vec![511], 4));
}

#[test]
fn pods_of_lost_nodes_types_of_nodes_and_ties_end_within_their_run() {
    let mut pods: Vec<Value> = (0..1000).map(|at| pod(&format!("p{at}"), json!({"nodeName": "a"}))).collect();
    pods.push(pod("elsewhere", json!({"nodeName": "b"})));
    let mut loader = Loader::new();
    loader.document(&json!({"nodes": [node("a"), node("b")], "pods": pods})).unwrap();
    let mut cluster = loader.finish().0;
    let (state, profiles) = (ClusterState::new(&cluster), Profiles::default());
    let (mut going, _) = leaving_after(1);
    let got = displace(&cluster, &profiles, &state, &[0], &ResourceList::new(), &mut going);
    assert_eq!((got.pods, got.placed, got.failed.len()), (1000, 127, 0), "64 between two looks");

    let kind = |name: &str| NodeType {
        name: name.to_owned(),
        node: serde_json::from_value(node(name)).unwrap(),
        price: None,
    };
    let (mut going, asked) = leaving_after(1);
    let got = add(&profiles, &written(pod("p", slow())), 5, &[kind("x"), kind("y")], &mut going);
    assert!(got.is_empty() && asked.get() == 3, "the first type was given up half way: {got:?}");

    let shapes = vec![Shape { pod: written(pod("p", slow())), wanted: 1 }];
    let question = Ask { shapes, max: Some(300), ..Ask::default() };
    let (mut going, _) = leaving_after(3);
    let got = trials(&mut cluster, &profiles, &state, &question, 1, 50, &mut going).unwrap();
    assert_eq!((got.trials, got.min, got.max), (1, 300, 300), "one look within, and one after each");
}
