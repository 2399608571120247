//! The kinds a snapshot holds, and what of their objects is left out.

use serde_json::{Map, Value};

use super::keep::Keep;

/// A kind the simulator reads.
pub(super) struct SnapshotKind {
    /// Name.
    pub(super) kind: &'static str,
    /// Group and version, as objects name them.
    pub(super) api_version: &'static str,
    /// Name in paths.
    plural: &'static str,
    /// Its objects belong to namespaces.
    namespaced: bool,
    /// What a snapshot without it gets wrong.
    pub(super) cost: &'static str,
}

const fn kind(
    kind: &'static str,
    api_version: &'static str,
    plural: &'static str,
    namespaced: bool,
    cost: &'static str,
) -> SnapshotKind {
    SnapshotKind { kind, api_version, plural, namespaced, cost }
}

const CORE: &str = "v1";
const APPS: &str = "apps/v1";
const STORAGE: &str = "storage.k8s.io/v1";

/// All of them. Secrets and configuration maps are never asked for.
pub(super) const KINDS: [SnapshotKind; 19] = [
    kind("Node", CORE, "nodes", false, "there is nothing that pods could run on"),
    kind("Pod", CORE, "pods", true, "nodes look empty"),
    kind(
        "Namespace",
        CORE,
        "namespaces",
        false,
        "namespace selectors and node selectors of namespaces select nothing",
    ),
    kind("Service", CORE, "services", true, "pods of services are not spread by default"),
    kind(
        "ReplicationController",
        CORE,
        "replicationcontrollers",
        true,
        "their pods are not spread by default",
    ),
    kind("ReplicaSet", APPS, "replicasets", true, "pods of deployments are not spread by default"),
    kind("StatefulSet", APPS, "statefulsets", true, "their pods are not spread by default"),
    kind("PersistentVolume", CORE, "persistentvolumes", false, "pods with bound claims find no node"),
    kind("PersistentVolumeClaim", CORE, "persistentvolumeclaims", true, "pods with claims find no node"),
    kind("StorageClass", STORAGE, "storageclasses", false, "new claims are not provisioned"),
    kind("CSINode", STORAGE, "csinodes", false, "attachments look unlimited"),
    kind("CSIDriver", STORAGE, "csidrivers", false, "space of storage drivers is not looked at"),
    kind(
        "CSIStorageCapacity",
        STORAGE,
        "csistoragecapacities",
        true,
        "drivers that tell their space seem to have none",
    ),
    kind(
        "VolumeAttachment",
        STORAGE,
        "volumeattachments",
        false,
        "volumes that are still attached are not counted",
    ),
    kind("ResourceQuota", CORE, "resourcequotas", true, "quotas do not bind"),
    kind("LimitRange", CORE, "limitranges", true, "defaults and bounds of namespaces do not hold"),
    kind(
        "PriorityClass",
        "scheduling.k8s.io/v1",
        "priorityclasses",
        false,
        "pods have the priority 0 unless they say a number",
    ),
    kind(
        "RuntimeClass",
        "node.k8s.io/v1",
        "runtimeclasses",
        false,
        "overhead, node selectors and tolerations of runtime classes are not counted",
    ),
    kind(
        "PodDisruptionBudget",
        "policy/v1",
        "poddisruptionbudgets",
        true,
        "budgets are not told when nodes are drained",
    ),
];

impl SnapshotKind {
    /// Path of the list, of one namespace where one is given and the kind has them.
    pub(super) fn path(&self, namespace: Option<&str>) -> String {
        let group = if self.api_version == CORE {
            "/api/v1".to_owned()
        } else {
            format!("/apis/{}", self.api_version)
        };
        match namespace.filter(|_| self.namespaced) {
            Some(namespace) => format!("{group}/namespaces/{namespace}/{}", self.plural),
            None => format!("{group}/{}", self.plural),
        }
    }

    /// The object as it is saved: told its kind first, which a list leaves out, and without what the simulator does not
    /// read and others need not see.
    pub(super) fn saved(&self, mut object: Map<String, Value>, keep_all: bool) -> Map<String, Value> {
        let mut saved = Map::new();
        saved.insert("apiVersion".to_owned(), self.api_version.into());
        saved.insert("kind".to_owned(), self.kind.into());
        if !keep_all {
            Keep::of(self.kind).strip(&mut object);
        }
        saved.extend(object);
        saved
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(name: &str) -> &'static SnapshotKind {
        KINDS.iter().find(|kind| kind.kind == name).unwrap()
    }

    #[test]
    fn a_runtime_class_keeps_what_it_brings() {
        let class = json!({ "metadata": { "name": "sandboxed" }, "handler": "s",
            "overhead": { "podFixed": { "cpu": "250m" } }, "scheduling": { "nodeSelector": { "sandbox": "yes" } } });
        let saved = Value::Object(of("RuntimeClass").saved(class.as_object().unwrap().clone(), false));
        assert_eq!((&saved["overhead"], &saved["scheduling"]), (&class["overhead"], &class["scheduling"]));
        assert_eq!(of("RuntimeClass").path(None), "/apis/node.k8s.io/v1/runtimeclasses");
    }

    #[test]
    fn paths_follow_group_and_namespace() {
        assert_eq!(of("Pod").path(None), "/api/v1/pods");
        assert_eq!(of("Pod").path(Some("a")), "/api/v1/namespaces/a/pods");
        assert_eq!(of("Node").path(Some("a")), "/api/v1/nodes");
        assert_eq!(of("ReplicaSet").path(Some("a")), "/apis/apps/v1/namespaces/a/replicasets");
    }

    /// The role that is shipped lists every kind by its group, and nothing else.
    #[test]
    fn the_shipped_role_may_list_these_kinds_and_no_more() {
        let manifest = include_str!("../../../../packaging/kubernetes/snapshot.yaml");
        let objects: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
        let role = objects.iter().find(|object| object["kind"] == "ClusterRole").unwrap();
        let mut allowed: Vec<String> = Vec::new();
        for rule in role["rules"].as_array().unwrap() {
            assert_eq!(rule["verbs"], json!(["list"]));
            for resource in rule["resources"].as_array().unwrap() {
                let (group, resource) = (&rule["apiGroups"][0], resource.as_str().unwrap());
                allowed.push(format!("{}/{resource}", group.as_str().unwrap()));
            }
        }
        let group =
            |kind: &SnapshotKind| kind.api_version.rsplit_once('/').map_or("", |(group, _)| group).to_owned();
        let mut wanted: Vec<String> =
            KINDS.iter().map(|kind| format!("{}/{}", group(kind), kind.plural)).collect();
        allowed.sort();
        wanted.sort();
        assert_eq!(allowed, wanted);
    }

    #[test]
    fn secrets_stay_behind_unless_all_is_kept() {
        let pod = json!({
            "metadata": { "name": "p", "managedFields": [{}], "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "SECRET", "evenkeel.dev/manage": "false",
                "vault.example/token": "SECRET" } },
            "spec": {
                "containers": [{ "name": "c", "image": "i", "env": [{ "name": "A", "value": "SECRET" }], "args": ["SECRET"],
                    "livenessProbe": { "exec": { "command": ["SECRET"] } }, "resources": { "requests": { "cpu": "1" } } }],
                "initContainers": [{ "name": "d", "command": ["SECRET"], "restartPolicy": "Always" }],
                "volumes": [
                    { "name": "v", "csi": { "driver": "d", "volumeAttributes": { "k": "SECRET" } } },
                    { "name": "w", "flexVolume": { "driver": "d", "options": { "k": "SECRET" } } },
                    { "name": "x", "rbd": { "monitors": ["m"], "image": "i", "user": "SECRET", "keyring": "SECRET" } },
                ],
                "hostAliases": [{ "ip": "10.0.0.1", "hostnames": ["SECRET"] }],
                "someLaterField": "SECRET",
            },
            "status": { "phase": "Running", "message": "SECRET",
                "conditions": [{ "type": "Ready", "status": "True", "message": "SECRET" }] },
        });
        let node = json!({ "metadata": { "name": "n", "annotations": { "agent.example/join": "SECRET" } },
            "spec": { "unschedulable": true, "configSource": "SECRET" } });
        let namespace = json!({ "metadata": { "name": "n", "annotations": { "a": "SECRET" } } });
        let attachment =
            json!({ "spec": { "attacher": "a", "source": { "inlineVolumeSpec": { "csi": "SECRET" } } } });
        let set = json!({ "spec": { "selector": {}, "template": { "spec": "SECRET" } } });
        let volume = json!({ "spec": { "csi": { "driver": "d", "volumeAttributes": { "k": "SECRET" } } } });
        let class = json!({ "provisioner": "p", "parameters": { "key": "SECRET" } });
        for (kind, object) in [
            ("Pod", &pod),
            ("Node", &node),
            ("Namespace", &namespace),
            ("VolumeAttachment", &attachment),
            ("ReplicaSet", &set),
            ("PersistentVolume", &volume),
            ("StorageClass", &class),
        ] {
            let object = object.as_object().unwrap();
            let saved = Value::Object(of(kind).saved(object.clone(), false)).to_string();
            assert!(!saved.contains("SECRET"), "{saved}");
            assert!(Value::Object(of(kind).saved(object.clone(), true)).to_string().contains("SECRET"));
        }
        let saved = Value::Object(of("Pod").saved(pod.as_object().unwrap().clone(), false)).to_string();
        let want = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","annotations":{"evenkeel.dev/manage":"false"}},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}],"initContainers":[{"name":"d","restartPolicy":"Always"}],"volumes":[{"name":"v","csi":{"driver":"d"}},{"name":"w"},{"name":"x","rbd":{"monitors":["m"],"image":"i"}}]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}"#;
        assert_eq!(saved, want);
    }
}
