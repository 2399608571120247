//! A production cluster: 1,523 nodes, 8,152 tasks (see `data/README.md`). The answers were recorded with
//! kube-scheduler v1.36.2.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::HashMap;
use std::sync::Arc;

use evenkeel_capacity::cluster::Cluster;
use evenkeel_capacity::engine::step::Placer;
use evenkeel_capacity::load::Loader;
use evenkeel_capacity::object::{Node, Object, Pod};
use evenkeel_capacity::profile::Profile;
use evenkeel_capacity::state::ClusterState;
use serde_json::{Value, json};

fn rows(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().skip(1).map(|line| line.split(',').collect())
}

fn cluster() -> Cluster {
    let mut loader = Loader::new();
    for (index, row) in rows(include_str!("data/openb_nodes.csv")).enumerate() {
        let name = format!("openb-node-{index:04}");
        let node: Node = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"openb/gpu-model": row[3], "kubernetes.io/hostname": name}},
            "status": {"allocatable": {
                "cpu": format!("{}m", row[0]), "memory": format!("{}Mi", row[1]), "pods": "110",
                "nvidia.com/gpu": row[2],
            }},
        }))
        .unwrap();
        loader.add(&Object::Node(Box::new(node))).unwrap();
    }
    loader.finish().0
}

fn pod(cpu: &str, memory: &str, gpus: &str, models: &str) -> Pod {
    let affinity = match models {
        "" => Value::Null,
        _ => {
            json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{
                    "key": "openb/gpu-model", "operator": "In", "values": models.split('|').collect::<Vec<_>>(),
                }]},
            ]}}})
        }
    };
    let mut requests = json!({"cpu": cpu, "memory": memory});
    if gpus != "0" {
        requests["nvidia.com/gpu"] = gpus.into();
    }
    serde_json::from_value(json!({
        "metadata": {"name": "task"},
        "spec": {"affinity": affinity, "containers": [{"name": "c", "resources": {"requests": requests}}]},
    }))
    .unwrap()
}

#[test]
fn the_empty_cluster_holds_as_many_as_the_scheduler_places() {
    for (cpu, memory, gpus, wanted) in [("64", "256Gi", "8", 617), ("8", "32Gi", "1", 6210)] {
        let mut cluster = cluster();
        let shape = Arc::new(cluster.shape(&pod(cpu, memory, gpus, "")).unwrap());
        let profile = Profile::default();
        let mut state = ClusterState::new(&cluster);
        let placed = Placer::new(&cluster, &profile, &mut state, shape).run(&mut state, None);
        assert_eq!(placed.len(), wanted, "{cpu} {memory} {gpus}");
    }
}

#[test]
fn the_tasks_in_file_order_go_where_the_scheduler_puts_them() {
    let mut cluster = cluster();
    let tasks: Vec<Vec<&str>> = rows(include_str!("data/openb_tasks.csv")).collect();
    let mut shapes: HashMap<Vec<&str>, Arc<evenkeel_capacity::cluster::PodInfo>> = HashMap::new();
    for task in &tasks {
        if !shapes.contains_key(task) {
            let pod = pod(&format!("{}m", task[0]), &format!("{}Mi", task[1]), task[2], task[3]);
            let shape = Arc::new(cluster.shape(&pod).unwrap());
            shapes.insert(task.clone(), shape);
        }
    }
    let profile = Profile::default();
    let mut state = ClusterState::new(&cluster);
    let mut placers: HashMap<&Vec<&str>, Placer<'_>> = HashMap::new();
    let (mut placed, mut gpus) = (0, 0);
    for task in &tasks {
        let placer = placers
            .entry(task)
            .or_insert_with(|| Placer::new(&cluster, &profile, &mut state, Arc::clone(&shapes[task])));
        if let Some(node) = placer.next(&state) {
            placer.place(&mut state, node);
            placed += 1;
            gpus += task[2].parse::<u32>().unwrap();
        }
    }
    assert_eq!((placed, gpus), (7188, 6166));
}
