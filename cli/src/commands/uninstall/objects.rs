//! Which objects are Evenkeel's: the kinds it has objects of, and how they are told from those of others.

use serde_json::Value;

/// The label that each of them has.
const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "evenkeel");
/// The API group whose kinds are ours.
pub(super) const GROUP: &str = "evenkeel.dev";

/// A kind.
#[derive(Debug, Clone, Copy)]
pub(super) struct OwnedKind {
    pub(super) name: &'static str,
    root: &'static str,
    plural: &'static str,
    namespaced: bool,
}

const fn kind(name: &'static str, root: &'static str, plural: &'static str, namespaced: bool) -> OwnedKind {
    OwnedKind { name, root, plural, namespaced }
}

/// DaemonSets, of which the agents are.
pub(super) const DAEMON_SET: OwnedKind = kind("DaemonSet", "/apis/apps/v1", "daemonsets", true);
/// Pods.
pub(super) const POD: OwnedKind = kind("Pod", "/api/v1", "pods", true);
/// Nodes.
pub(super) const NODE: OwnedKind = kind("Node", "/api/v1", "nodes", false);
/// Namespaces.
pub(super) const NAMESPACE: OwnedKind = kind("Namespace", "/api/v1", "namespaces", false);
/// Definitions of kinds.
pub(super) const DEFINITION: OwnedKind =
    kind("CustomResourceDefinition", "/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", false);

/// What API servers call or apply when a pod is made: it goes before all else.
pub(super) const ADMISSION: [OwnedKind; 5] = [
    kind(
        "MutatingWebhookConfiguration",
        "/apis/admissionregistration.k8s.io/v1",
        "mutatingwebhookconfigurations",
        false,
    ),
    kind(
        "MutatingAdmissionPolicyBinding",
        "/apis/admissionregistration.k8s.io/v1",
        "mutatingadmissionpolicybindings",
        false,
    ),
    kind(
        "MutatingAdmissionPolicy",
        "/apis/admissionregistration.k8s.io/v1",
        "mutatingadmissionpolicies",
        false,
    ),
    kind(
        "MutatingAdmissionPolicyBinding",
        "/apis/admissionregistration.k8s.io/v1beta1",
        "mutatingadmissionpolicybindings",
        false,
    ),
    kind(
        "MutatingAdmissionPolicy",
        "/apis/admissionregistration.k8s.io/v1beta1",
        "mutatingadmissionpolicies",
        false,
    ),
];

/// What is deleted, in this order: what runs, then what it uses, then its rights.
pub(super) const KINDS: [OwnedKind; 18] = [
    DAEMON_SET,
    kind("Deployment", "/apis/apps/v1", "deployments", true),
    kind("StatefulSet", "/apis/apps/v1", "statefulsets", true),
    kind("Job", "/apis/batch/v1", "jobs", true),
    POD,
    kind("ServiceMonitor", "/apis/monitoring.coreos.com/v1", "servicemonitors", true),
    kind("Service", "/api/v1", "services", true),
    kind("NetworkPolicy", "/apis/networking.k8s.io/v1", "networkpolicies", true),
    kind("PodDisruptionBudget", "/apis/policy/v1", "poddisruptionbudgets", true),
    kind("Lease", "/apis/coordination.k8s.io/v1", "leases", true),
    kind("ConfigMap", "/api/v1", "configmaps", true),
    kind("Secret", "/api/v1", "secrets", true),
    kind("PersistentVolumeClaim", "/api/v1", "persistentvolumeclaims", true),
    kind("RoleBinding", "/apis/rbac.authorization.k8s.io/v1", "rolebindings", true),
    kind("Role", "/apis/rbac.authorization.k8s.io/v1", "roles", true),
    kind("ServiceAccount", "/api/v1", "serviceaccounts", true),
    kind("ClusterRoleBinding", "/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", false),
    kind("ClusterRole", "/apis/rbac.authorization.k8s.io/v1", "clusterroles", false),
];
/// The last of them: running pods name it.
pub(super) const PRIORITY: OwnedKind =
    kind("PriorityClass", "/apis/scheduling.k8s.io/v1", "priorityclasses", false);

impl OwnedKind {
    /// Where its objects are listed: those of a namespace, where it has namespaces.
    pub(super) fn path(&self, namespace: &str) -> String {
        let Self { root, plural, .. } = self;
        if self.namespaced {
            format!("{root}/namespaces/{namespace}/{plural}")
        } else {
            format!("{root}/{plural}")
        }
    }

    /// Where one of them is.
    pub(super) fn one(&self, namespace: &str, name: &str) -> String {
        format!("{}/{name}", self.path(namespace))
    }

    /// Kind, namespace and name, for people.
    pub(super) fn shown(&self, namespace: &str, name: &str) -> String {
        if self.namespaced {
            format!("{} {namespace}/{name}", self.name)
        } else {
            format!("{} {name}", self.name)
        }
    }
}

/// The object's name.
pub(super) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Whether it is ours: by its label, or as the lease of the recommender, which the recommender makes itself.
pub(super) fn is_ours(kind: &OwnedKind, object: &Value) -> bool {
    let (key, value) = PART_OF;
    object["metadata"]["labels"][key] == *value
        || (kind.name == "Lease" && name(object) == "evenkeel-recommender")
}

/// Whether every namespace has it by itself.
pub(super) fn is_given(kind: &OwnedKind, object: &Value) -> bool {
    matches!((kind.name, name(object)), ("ConfigMap", "kube-root-ca.crt") | ("ServiceAccount", "default"))
}

/// The Helm release that made it.
pub(super) fn release(object: &Value) -> Option<&str> {
    object["metadata"]["annotations"]["meta.helm.sh/release-name"].as_str()
}
