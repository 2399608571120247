//! How fast "how many more fit" is answered: closed forms, the step loop, loading a large snapshot.

mod cluster;
mod load;
mod openb;

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use evenkeel_capacity::cluster::{Cluster, PodInfo};
use evenkeel_capacity::engine::step::Placer;
use evenkeel_capacity::profile::Profile;
use evenkeel_capacity::state::ClusterState;
use serde_json::{Value, json};

use crate::figure::{Figure, Target};
use crate::run::Run;
use crate::usage::percentile;

pub(crate) use load::run as load;
pub(crate) use openb::run as openb;

/// Nodes of the made-up cluster, and pods on each.
const NODES: usize = 5_000;
const PODS: usize = 100;
/// Nodes of the clusters between which the cost of a placing is compared, and pods placed on each.
const FEW_AND_MANY: [usize; 3] = [500, 5_000, 50_000];
const EACH: u64 = 20;
/// Runs, and those of the long form.
const RUNS: (usize, usize) = (5, 15);

/// The closed form and the step loop, on 5,000 nodes with 100 pods each.
pub(crate) fn step(run: &Run) -> Result<Vec<Figure>> {
    run.say(&format!("{NODES} nodes with {PODS} pods each are made up"));
    let mut cluster = cluster::grown(NODES, PODS)?;
    let start = ClusterState::new(&cluster);
    let plain = shape(&mut cluster, &json!({}))?;
    let spread = shape(
        &mut cluster,
        &json!({"topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "sim"}},
        }]}),
    )?;
    let away = shape(
        &mut cluster,
        &json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{
            "topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "sim"}},
        }]}}}),
    )?;
    let runs = if run.full { RUNS.1 } else { RUNS.0 };
    let closed = repeat(run, runs, || closed_ms(&cluster, &start, &plain))?;
    let mut figures = vec![
        Figure::new("capacity/closed-form", median(&closed)?, "ms", Target::AtMost(1.0))
            .what("one shape prepared and counted in closed form, after loading, 5,000 nodes with 100 pods each")
            .spread(&closed),
    ];
    let loops = [
        ("capacity/step-local", &plain, 400_000.0, "a shape whose rules are local to a node"),
        ("capacity/step-spread", &spread, 50_000.0, "one spread constraint over zones"),
        ("capacity/step-anti-affinity", &away, 50_000.0, "one of a kind on each node"),
    ];
    for (name, pod, least, what) in loops {
        let rates = repeat(run, runs, || rate(&cluster, &start, pod))?;
        figures.push(
            Figure::new(name, median(&rates)?, "placements/s", Target::AtLeast(least))
                .what(format!("{what}, placed until none fits; 5,000 nodes with 100 pods each"))
                .spread(&rates),
        );
    }
    Ok(figures)
}

/// How the cost of a placing grows from 500 nodes to 50,000, against the logarithm of the nodes.
pub(crate) fn growth(run: &Run) -> Result<Vec<Figure>> {
    let runs = if run.full { RUNS.1 } else { RUNS.0 };
    let mut costs = Vec::new();
    for nodes in FEW_AND_MANY {
        run.say(&format!("{nodes} empty nodes are made up"));
        let mut cluster = cluster::grown(nodes, 0)?;
        let start = ClusterState::new(&cluster);
        let pod = shape(&mut cluster, &json!({}))?;
        let all = repeat(run, runs, || cost_ns(&cluster, &start, &pod))?;
        costs.push(median(&all)?);
    }
    let logarithms = (FEW_AND_MANY[2] as f64).ln() / (FEW_AND_MANY[0] as f64).ln();
    let told: Vec<String> = costs.iter().map(|cost| format!("{cost:.0}")).collect();
    let what = format!(
        "cost of a placing at 50,000 nodes over that at 500, divided by the same of the logarithms; {} ns at 500, 5,000 \
         and 50,000",
        told.join(", ")
    );
    let growth = costs[2] / costs[0] / logarithms;
    Ok(vec![Figure::new("capacity/growth", growth, "x", Target::AtMost(1.0)).what(what)])
}

/// Of each placing once the nodes are ordered, so many to a node.
fn cost_ns(cluster: &Cluster, start: &ClusterState, pod: &Arc<PodInfo>) -> Result<f64> {
    let mut state = start.clone();
    let profile = Profile::default();
    let mut placer = Placer::new(cluster, &profile, &mut state, Arc::clone(pod));
    anyhow::ensure!(placer.next(&state).is_some(), "nothing fits the made-up cluster");
    let begun = Instant::now();
    let placed = placer.run(&mut state, Some(cluster.nodes.len() as u64 * EACH)).len();
    Ok(begun.elapsed().as_secs_f64() * 1e9 / placed as f64)
}

fn repeat(run: &Run, times: usize, one: impl Fn() -> Result<f64>) -> Result<Vec<f64>> {
    (0..times)
        .map(|_| {
            run.check()?;
            one()
        })
        .collect()
}

fn median(all: &[f64]) -> Result<f64> {
    percentile(all, 500).context("no run")
}

fn shape(cluster: &mut Cluster, more: &Value) -> Result<Arc<PodInfo>> {
    let mut spec =
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}}}]});
    for (key, value) in more.as_object().into_iter().flatten() {
        spec[key] = value.clone();
    }
    let pod = json!({"metadata": {"name": "sim", "labels": {"app": "sim"}}, "spec": spec});
    let pod = cluster.shape(&serde_json::from_value(pod)?).map_err(|error| anyhow!("{error}"))?;
    Ok(Arc::new(pod))
}

fn closed_ms(cluster: &Cluster, start: &ClusterState, pod: &Arc<PodInfo>) -> Result<f64> {
    let mut state = start.clone();
    let profile = Profile::default();
    let begun = Instant::now();
    let mut placer = Placer::new(cluster, &profile, &mut state, Arc::clone(pod));
    let closed = placer.closed(&state).context("no closed form applies")?;
    let took = begun.elapsed();
    anyhow::ensure!(closed.count > 0, "nothing fits the made-up cluster");
    Ok(took.as_secs_f64() * 1e3)
}

fn rate(cluster: &Cluster, start: &ClusterState, pod: &Arc<PodInfo>) -> Result<f64> {
    let mut state = start.clone();
    let profile = Profile::default();
    let begun = Instant::now();
    let placed = Placer::new(cluster, &profile, &mut state, Arc::clone(pod)).run(&mut state, None).len();
    let took = begun.elapsed();
    anyhow::ensure!(placed > 0, "nothing fits the made-up cluster");
    Ok(placed as f64 / took.as_secs_f64())
}
