//! Plugins of whoever uses the simulator: registered, enabled by a scheduler's configuration, asked no more than needed.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{load, node, pod};
use evenkeel_capacity::answer::{Ask, CapacityAnswer, Shape, ask};
use evenkeel_capacity::cluster::NodeIndex;
use evenkeel_capacity::config;
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::plugin::{
    FilterPlugin, PluginView, PostFilterPlugin, Registry, Rejection, ScorePlugin, Sees,
};
use evenkeel_capacity::profile::Version;
use evenkeel_capacity::question::{CapacityQuestion, Snapshot, Whole};
use evenkeel_capacity::scenario::{Nomination, Stuck};
use serde_json::{Value, json};

/// The example of docs/capacity.md, word for word.
mod documented {
    use evenkeel_capacity::cluster::NodeIndex;
    use evenkeel_capacity::plugin::{FilterPlugin, PluginView, Registry, Rejection, Sees};

    // docs: begin
    /// Keeps pods without the label `gpu` off nodes that have it.
    #[derive(Debug)]
    struct GpuNodesForGpuPods;

    impl FilterPlugin for GpuNodesForGpuPods {
        fn name(&self) -> &'static str {
            "GpuNodesForGpuPods"
        }
        fn sees(&self) -> Sees {
            Sees::Node // its answer hangs on the node alone: it is asked once a node
        }
        fn refuses(&self, view: &PluginView<'_>, node: NodeIndex) -> Option<Rejection> {
            let kept = view.node_label(node, "gpu").is_some() && view.pod_label("gpu").is_none();
            kept.then(|| Rejection::Own { reason: "node(s) are for GPUs".into(), resolvable: false })
        }
    }

    pub fn plugins() -> Registry {
        let mut plugins = Registry::default(); // the built-in ones
        plugins.filter(GpuNodesForGpuPods).expect("no other filter has this name");
        plugins // CapacityQuestion { plugins, .. }, and in its configuration: plugins.filter.enabled: [{name: GpuNodesForGpuPods}]
    }
    // docs: end
}

#[test]
fn the_example_of_the_documents_is_this_one_and_works() {
    let source = include_str!("own_plugins.rs");
    let example = source.split("// docs: begin\n").nth(1).unwrap().split("    // docs: end").next().unwrap();
    let example: String =
        example.lines().map(|line| line.strip_prefix("    ").unwrap_or(line).to_owned() + "\n").collect();
    let documents = include_str!("../../docs/capacity.md");
    assert!(
        documents.contains(&format!("```rust\n{example}```")),
        "docs/capacity.md has another example than\n{example}"
    );

    let config = enabling("filter", json!([{"name": "GpuNodesForGpuPods"}]));
    let nodes = json!({"nodes": [node("a", json!({"gpu": "1"})), node("b", json!({}))]});
    let got = answer(&nodes, &pod(json!({})), &documented::plugins(), &config);
    assert_eq!(got.per_node, [("b".to_owned(), 8)].into());
    assert_eq!(got.message, "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) are for GPUs.");
    // Without being enabled it says nothing.
    assert_eq!(answer(&nodes, &pod(json!({})), &documented::plugins(), &json!({})).count, 16);
    // The closed form counts with it.
    assert_eq!(got.bounds["nodes"], 8);
}

/// A configuration that enables plugins at one point.
fn enabling(point: &str, plugins: Value) -> Value {
    json!({"plugins": {point: {"enabled": plugins}}})
}

fn profiles_config(profile: &Value) -> Value {
    json!({"kind": "KubeSchedulerConfiguration", "profiles": [profile]})
}

fn answer(snapshot: &Value, pod: &Value, plugins: &Registry, profile: &Value) -> CapacityAnswer {
    let (mut cluster, mut state) = load(snapshot);
    let profiles =
        config::profiles_of(plugins, &profiles_config(profile), Version::V1_36, &mut cluster).unwrap();
    let shapes = vec![Shape { pod: serde_json::from_value(pod.clone()).unwrap(), wanted: 1 }];
    let question = Ask { shapes, max: Some(50), help: true, ..Ask::default() };
    ask(&mut cluster, &profiles, &mut state, &question, &mut |_| true).unwrap()
}

fn whole(snapshot: &Value, pod: &Value, plugins: Registry, options: Value) -> Whole {
    let mut loader = Loader::new();
    loader.document(snapshot).unwrap();
    let (cluster, report) = loader.finish();
    let shapes = vec![Shape { pod: serde_json::from_value(pod.clone()).unwrap(), wanted: 1 }];
    let options = serde_json::from_value(options).unwrap();
    let question = CapacityQuestion { options, shapes, plugins, ..CapacityQuestion::default() };
    question.answer(Snapshot { cluster, report }, None, &mut |_| true).unwrap().0
}

/// At most so many pods on a node, in all three ways of seeing; counts how often it is asked.
#[derive(Debug)]
struct AtMost {
    most: i64,
    sees: Sees,
    asked: Arc<AtomicUsize>,
}

impl FilterPlugin for AtMost {
    fn name(&self) -> &'static str {
        "AtMost"
    }

    fn sees(&self) -> Sees {
        self.sees
    }

    fn refuses(&self, view: &PluginView<'_>, node: NodeIndex) -> Option<Rejection> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        (view.state.pods[node] >= self.most)
            .then(|| Rejection::Own { reason: "node(s) are full".into(), resolvable: true })
    }
}

#[test]
fn a_filter_is_asked_as_often_as_it_sees() {
    let nodes: Vec<Value> = (0..20).map(|at| node(&format!("n{at:02}"), json!({}))).collect();
    let snapshot = json!({"nodes": nodes});
    let config = enabling("filter", json!([{"name": "AtMost"}]));
    let count = |sees, most| {
        let asked = Arc::new(AtomicUsize::new(0));
        let mut plugins = Registry::default();
        plugins.filter(AtMost { most, sees, asked: Arc::clone(&asked) }).unwrap();
        assert!(plugins.filter(AtMost { most, sees, asked: Arc::clone(&asked) }).is_err(), "one of a name");
        let got = answer(&snapshot, &pod(json!({})), &plugins, &config);
        (got.count, got.message, asked.load(Ordering::Relaxed))
    };
    let full = "0/20 nodes are available: 20 node(s) are full.";
    let (on_node, message, asked_of_nodes) = count(Sees::OnNode, 2);
    assert_eq!((on_node, message.as_str()), (40, full));
    let (anything, message, asked_of_all) = count(Sees::Cluster, 2);
    assert_eq!((anything, message.as_str()), (40, full));
    assert!(asked_of_nodes * 5 < asked_of_all, "{asked_of_nodes} and {asked_of_all} questions");
    // What is asked once a node cannot see how nodes fill.
    assert_eq!(count(Sees::Node, 2).0, 50);
    assert_eq!(count(Sees::Node, 0).0, 0);
}

/// Nodes in the reverse order of their names, beyond all bounds.
#[derive(Debug)]
struct LastFirst;

impl ScorePlugin for LastFirst {
    fn name(&self) -> &'static str {
        "LastFirst"
    }

    fn scores(&self, _: &PluginView<'_>, nodes: &[NodeIndex]) -> Option<Vec<i64>> {
        Some(nodes.iter().map(|node| *node as i64 * 1000 - 5).collect())
    }
}

#[test]
fn a_score_is_weighted_and_kept_within_its_bounds() {
    let snapshot = json!({"nodes": [node("a", json!({})), node("b", json!({}))]});
    let mut plugins = Registry::default();
    plugins.score(LastFirst).unwrap();
    let config = json!({"kind": "KubeSchedulerConfiguration", "profiles": [{"plugins": {"score": {
        "disabled": [{"name": "*"}], "enabled": [{"name": "LastFirst", "weight": 3}],
    }}}]});
    let options = json!({"schedulerConfig": config, "steps": 1, "max": 1});
    let got = whole(&snapshot, &pod(json!({})), plugins, options);
    let step = &got.answer.steps.unwrap()[0];
    assert_eq!(step.best, ["b"]);
    assert_eq!((step.feasible["a"].weighted["LastFirst"], step.feasible["b"].total), (0, 300));
}

/// Displaces the first pod of the last node, whoever it is.
#[derive(Debug)]
struct Blunt;

impl PostFilterPlugin for Blunt {
    fn name(&self) -> &'static str {
        "Blunt"
    }

    fn nominate(&self, stuck: &Stuck<'_>) -> Option<Nomination> {
        let node = *stuck.nodes.last()?;
        let mut there = stuck.state.placements.iter().enumerate().filter(|(_, (_, on))| *on as usize == node);
        let victims = vec![there.next()?.0];
        stuck.fits_without(node, &victims).then_some(Nomination { node, victims })
    }
}

#[test]
fn a_post_filter_takes_the_place_of_preemption_or_nothing_does() {
    let there = |name: &str, node: &str, cpu: &str| {
        json!({"metadata": {"name": name}, "spec": {"nodeName": node, "priority": 0,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}})
    };
    let snapshot = json!({
        "nodes": [node("a", json!({})), node("b", json!({}))],
        "pods": [there("on-a", "a", "8"), there("first-on-b", "b", "4"), there("second-on-b", "b", "4")],
    });
    let asked =
        pod(json!({"priority": 9, "containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}));
    let victims = |point: Value| {
        let mut plugins = Registry::default();
        plugins.post_filter(Blunt).unwrap();
        let config =
            json!({"kind": "KubeSchedulerConfiguration", "profiles": [{"plugins": {"postFilter": point}}]});
        let options = json!({"schedulerConfig": config, "preempt": true, "max": 1});
        let preempt = whole(&snapshot, &asked, plugins, options).what_if.preempt.unwrap();
        preempt.victims.into_iter().map(|victim| victim.pod).collect::<Vec<_>>()
    };
    assert_eq!(victims(json!({"enabled": [{"name": "Blunt"}]})), ["default/first-on-b"]);
    assert_eq!(victims(json!({})), ["default/on-a"], "one of equal weight on either node: the smaller name");
    assert_eq!(victims(json!({"disabled": [{"name": "DefaultPreemption"}]})), Vec::<String>::new());
}
