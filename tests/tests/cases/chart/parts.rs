//! What the cases of the chart share: sets of values, and the parts of objects they look at.

use evenkeel_tests::chart::{Helm, name};
use serde_json::{Value, json};

/// The namespace of releases here: not the default one, so that what is fixed to that is seen.
pub(crate) const NAMESPACE: &str = "keel";

/// Sets of values that together reach every branch of the templates.
pub(crate) fn variants() -> Vec<Value> {
    vec![
        json!({}),
        json!({ "agent": { "mode": "enforce" }, "recommender": { "view": false, "recommend": false }, "access": { "create": false } }),
        json!({
            "namespace": { "create": true }, "labels": { "team": "platform" }, "imagePullSecrets": [{ "name": "registry" }],
            "agent": {
                "mode": "dry-run", "sockets": ["/run/k3s/containerd/containerd.sock"], "excludeNamespaces": [],
                "kubelet": { "enabled": true, "ca": "/var/lib/kubelet/pki/kubelet.crt" }, "config": "[sample]\ninterval = \"2s\"\n", "nodeSelector": { "pool": "a" }, "podAnnotations": { "a": "b" },
                "image": { "repository": "registry.example/agent", "tag": "1.2.3" }, "priorityClassName": "", "maxUnavailable": 2,
            },
            "recommender": {
                "config": "[recommend]\nwatch_interval = \"2m\"\n", "storage": { "kind": "emptyDir", "size": "2Gi" },
                "priorityClass": { "create": false, "name": "" }, "podDisruptionBudget": { "enabled": false },
                "nodeSelector": { "pool": "b" }, "tolerations": [{ "key": "b", "operator": "Exists" }],
                "affinity": { "podAntiAffinity": {} }, "podAnnotations": { "c": "d" }, "clusterDomain": "cluster.example", "events": true,
            },
            "tls": { "secret": "own", "caConfigMap": "own-ca" }, "access": { "aggregate": true },
            "networkPolicy": { "nodeCIDRs": ["10.0.0.0/8", "fd00::/8"], "from": [{ "namespaceSelector": {} }] },
            "serviceMonitor": { "enabled": true, "labels": { "release": "prometheus" }, "tokenSecret": { "name": "scrape" } },
            "uninstall": { "skipUnready": true, "timeout": "30m" },
        }),
        json!({
            "recommender": { "storage": { "existingClaim": "mine", "size": "3Ti" } },
            "serviceMonitor": { "enabled": true }, "uninstall": { "restore": false },
        }),
        json!({
            "webhook": { "enabled": true, "mode": "apply", "replicas": 3, "events": true, "autoscalers": true, "gates": true, "startupBoost": true, "ownCertificate": true },
            "networkPolicy": { "nodeCIDRs": ["10.0.0.0/8"] },
        }),
        json!({ "webhook": { "policy": true } }),
        json!({ "recommender": { "storage": { "storageClass": "fast", "keep": true, "size": "2048Mi" } } }),
        json!({ "agent": { "parts": "three-processes" } }),
        json!({ "recommender": { "replicas": 2, "storage": { "storageClass": "fast" } }, "serviceMonitor": { "enabled": true } }),
        json!({
            "recommender": { "replicas": 2, "storage": { "kind": "emptyDir" }, "affinity": { "podAntiAffinity": {} }, "config": "[audit]\n" },
            "networkPolicy": { "nodeCIDRs": ["10.0.0.0/8"] },
        }),
    ]
}

/// Each set of values with the objects that come of it.
pub(crate) fn rendered(helm: &Helm) -> anyhow::Result<Vec<(Value, Vec<Value>)>> {
    let all = variants();
    let objects = helm.rendered(NAMESPACE, &all)?;
    Ok(all.into_iter().zip(objects).collect())
}

/// The pod that an object makes, with the labels it gives it.
pub(crate) fn pod(object: &Value) -> Option<&Value> {
    matches!(object["kind"].as_str(), Some("DaemonSet" | "Deployment" | "StatefulSet" | "Job"))
        .then(|| &object["spec"]["template"])
}

/// Its containers, those that run first included.
pub(crate) fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let of = |key: &str| pod["spec"][key].as_array().into_iter().flatten();
    of("initContainers").chain(of("containers"))
}

/// The only object of a kind and name.
pub(crate) fn object<'a>(all: &'a [Value], wanted: &str) -> Option<&'a Value> {
    let mut found = all.iter().filter(|object| name(object) == wanted);
    let first = found.next();
    assert!(found.next().is_none(), "{wanted} is there twice");
    first
}
