//! Replaying a production cluster's tasks: 1,523 nodes, 8,152 tasks in file order (`capacity/tests/data/README.md`).

use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use evenkeel_capacity::answer::place;
use evenkeel_capacity::cluster::Cluster;
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::object::Pod;
use evenkeel_capacity::profile::Profiles;
use evenkeel_capacity::state::ClusterState;
use serde_json::{Value, json};

use crate::figure::{Figure, Target};
use crate::run::Run;

const NODES: &str = include_str!("../../../../../capacity/tests/data/openb_nodes.csv");
const TASKS: &str = include_str!("../../../../../capacity/tests/data/openb_tasks.csv");
/// How many of the tasks kube-scheduler places.
const PLACED: usize = 7_188;

/// Seconds for all tasks, each with its node or the reason why there is none.
pub(crate) fn run(run: &Run) -> Result<Vec<Figure>> {
    let mut cluster = cluster()?;
    let tasks: Vec<Pod> = rows(TASKS).map(|row| task(&row)).collect::<Result<_>>()?;
    let profiles = Profiles::default();
    let mut seconds = Vec::new();
    for _ in 0..if run.full { 15 } else { 5 } {
        run.check()?;
        let mut state = ClusterState::new(&cluster);
        let begun = Instant::now();
        let placed =
            place(&mut cluster, &profiles, &mut state, &tasks).map_err(|error| anyhow!("{error}"))?;
        seconds.push(begun.elapsed().as_secs_f64());
        let placed = placed.iter().filter(|pod| pod.node.is_some()).count();
        ensure!(placed == PLACED, "{placed} tasks were placed, not {PLACED}");
    }
    seconds.sort_by(f64::total_cmp);
    Ok(vec![
        Figure::new("capacity/openb", seconds[seconds.len() / 2], "s", Target::AtMost(0.5))
            .what("8,152 tasks replayed on 1,523 nodes, with the reason for each that does not fit")
            .spread(&seconds),
    ])
}

fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().skip(1).map(|line| line.split(',').collect())
}

fn cluster() -> Result<Cluster> {
    let mut loader = Loader::new();
    for (index, row) in rows(NODES).enumerate() {
        let name = format!("openb-node-{index:04}");
        let node = json!({
            "kind": "Node",
            "metadata": {"name": name, "labels": {"openb/gpu-model": row[3], "kubernetes.io/hostname": name}},
            "status": {"allocatable": {
                "cpu": format!("{}m", row[0]), "memory": format!("{}Mi", row[1]), "pods": "110", "nvidia.com/gpu": row[2],
            }},
        });
        loader.document(&node).map_err(|error| anyhow!("{error}"))?;
    }
    Ok(loader.finish().0)
}

fn task(row: &[&str]) -> Result<Pod> {
    let mut requests = json!({"cpu": format!("{}m", row[0]), "memory": format!("{}Mi", row[1])});
    // Of an extended resource the limit is the request; the API server admits nothing else.
    let mut limits = json!({});
    if row[2] != "0" {
        requests["nvidia.com/gpu"] = row[2].into();
        limits["nvidia.com/gpu"] = row[2].into();
    }
    let models: Vec<&str> = row[3].split('|').collect();
    let affinity = if row[3].is_empty() {
        Value::Null
    } else {
        json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "openb/gpu-model", "operator": "In", "values": models}]},
        ]}}})
    };
    Ok(serde_json::from_value(json!({
        "metadata": {"name": "task"},
        "spec": {"affinity": affinity, "containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}]},
    }))?)
}
