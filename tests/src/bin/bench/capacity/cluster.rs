//! A made-up cluster, as objects: the same for every run.

use anyhow::{Result, anyhow};
use evenkeel_capacity::cluster::Cluster;
use evenkeel_capacity::load::Loader;
use serde_json::{Value, json};

/// Applications whose pods are on the nodes.
const APPS: usize = 400;
/// Zones of the nodes.
const ZONES: usize = 3;

/// A node with 32 cores, 128 GiB and room for 250 pods.
pub(super) fn node(index: usize) -> Value {
    let name = format!("node-{index:05}");
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
            "topology.kubernetes.io/zone": format!("zone-{}", index % ZONES), "pool": format!("pool-{}", index % 7),
        }},
        "spec": {},
        "status": {"allocatable": {
            "cpu": "31850m", "memory": "127Gi", "pods": "250", "ephemeral-storage": "180Gi",
        }},
    })
}

/// A pod of some application on some node, as the API server prints one.
pub(super) fn pod(index: usize, nodes: usize) -> Value {
    let app = (index * 7919) % APPS;
    let name = format!("app-{app:03}-6d4cf56db6-{index:06}");
    let container = |name: &str, cpu: usize, memory: usize| {
        json!({
            "name": name, "image": format!("registry.example.com/team/{name}:1.{app}.0"), "imagePullPolicy": "IfNotPresent",
            "resources": {
                "requests": {"cpu": format!("{cpu}m"), "memory": format!("{memory}Mi")},
                "limits": {"memory": format!("{}Mi", memory * 2)},
            },
            "env": [{"name": "PORT", "value": "8080"}, {"name": "REGION", "value": "eu-central-1"}],
            "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 10},
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            "volumeMounts": [{"mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "name": "token", "readOnly": true}],
        })
    };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": format!("team-{}", app % 20), "uid": format!("{index:08x}-0000-4000-8000-000000000000"),
            "resourceVersion": index.to_string(), "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"app": format!("app-{app:03}"), "pod-template-hash": "6d4cf56db6", "tier": format!("t{}", app % 3)},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("app-{app:03}-6d4cf56db6"), "controller": true}],
        },
        "spec": {
            "nodeName": format!("node-{:05}", index % nodes), "schedulerName": "default-scheduler", "priority": 0,
            "serviceAccountName": "default", "restartPolicy": "Always", "terminationGracePeriodSeconds": 30,
            "containers": [container("main", 50 + app % 5 * 20, 128 + app % 7 * 64), container("proxy", 20, 64)],
            "tolerations": [
                {"effect": "NoExecute", "key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 300},
                {"effect": "NoExecute", "key": "node.kubernetes.io/unreachable", "operator": "Exists", "tolerationSeconds": 300},
            ],
            "volumes": [{"name": "token", "projected": {"defaultMode": 420, "sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}]}}],
        },
        "status": {
            "phase": "Running", "podIP": "10.1.2.3", "qosClass": "Burstable", "startTime": "2026-01-02T03:04:06Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:15Z"}],
            "containerStatuses": [{"name": "main", "ready": true, "restartCount": 0, "state": {"running": {"startedAt": "2026-01-02T03:04:07Z"}}}],
        },
    })
}

/// The cluster, loaded.
pub(super) fn grown(nodes: usize, pods: usize) -> Result<Cluster> {
    let mut loader = Loader::new();
    for index in 0..nodes {
        loader.document(&node(index)).map_err(|error| anyhow!("{error}"))?;
    }
    for index in 0..nodes * pods {
        loader.document(&pod(index, nodes)).map_err(|error| anyhow!("{error}"))?;
    }
    Ok(loader.finish().0)
}
