//! The policy object: which pods it governs, within which bounds, by which rule, and what may be done with the answer.
//!
//! Owned here: the object as people write it ([`read`]), its selector, who governs a pod when several policies select it
//! ([`rank`]), and what bounds and limits make of a value ([`bounds`]). Not owned: where policies are kept, who acts on
//! them, the rules.
//!
//! The object is that of the design document "Vertical Pod Autoscaler": `target`, `updatePolicy`, `resourcesPolicy`; goals,
//! rule, `limits` and `initialResourcesPolicy` are ours. An object of a Kubernetes cluster may name a controller (`targetRef`) in place of
//! labels; its definition there is `packaging/kubernetes/crd.yaml`, which has the same fields.

pub mod bounds;
mod error;
mod fields;
pub mod rank;
mod read;
mod selector;
#[cfg(test)]
mod tests;
pub mod update;

use evenkeel_model::narrow::f64_to_u64;
use evenkeel_model::selector::{LabelSelector, Selector};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use error::PolicyError;
pub use read::{
    API_VERSION, KINDS, MAX_POLICY_BYTES, find, is_policy, merged, objects, read, read_all, read_object,
    read_resolved,
};

use crate::Resource;

/// What is done with recommendations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateMode {
    /// They are shown and never applied.
    Off,
    /// They are applied when a pod is made, and never afterwards.
    Initial,
    /// They are applied when a pod is made and while it runs (the document's default).
    #[default]
    Auto,
}

/// What becomes of limits when a request is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LimitsMode {
    /// They are removed (the document's rule).
    None,
    /// They stay, and a request is capped at its limit.
    #[default]
    Keep,
    /// They keep their ratio to the request.
    Ratio,
}

/// For which containers a request is set when a pod is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitialResources {
    /// For all.
    #[default]
    Always,
    /// For a resource with neither request nor limit.
    IfNotSet,
    /// For none.
    Never,
}

/// Least and greatest request. Thousandths of a core, or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestBounds {
    /// Least.
    pub min: Option<u64>,
    /// Greatest.
    pub max: Option<u64>,
}

/// What holds for one container, or for all that are not named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPolicy {
    /// Its name; `*` stands for all that are not named.
    pub name: String,
    /// Whether it gets recommendations at all.
    pub off: bool,
    /// Bounds of its CPU request.
    pub cpu: RequestBounds,
    /// Bounds of its memory request.
    pub memory: RequestBounds,
}

impl ContainerPolicy {
    /// The bounds of one resource.
    pub const fn bounds(&self, resource: Resource) -> RequestBounds {
        match resource {
            Resource::Cpu => self.cpu,
            Resource::Memory => self.memory,
        }
    }
}

/// By how much more CPU a container requests while it starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum More {
    /// So many times its request, 1 or more.
    Factor(f64),
    /// So much beside its request, thousandths of a core.
    Amount(u64),
}

/// More CPU while a container starts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StartupBoost {
    /// By how much.
    pub more: More,
    /// For how long at most, seconds since the pod was made.
    pub seconds: u64,
    /// No more than starts were seen to use, where any were.
    pub learned: bool,
}

impl StartupBoost {
    /// The CPU request while it starts, never below the request; thousandths of a core, as are that and what starts were seen to use.
    #[must_use]
    pub fn of(self, request: u64, used: Option<u64>) -> u64 {
        let most = match self.more {
            More::Factor(factor) => f64_to_u64((request as f64 * factor).ceil()),
            More::Amount(amount) => request.saturating_add(amount),
        };
        used.filter(|_| self.learned).map_or(most, |used| used.min(most)).max(request)
    }
}

/// What the `goal` rule is to reach. Absent = the rule's own.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Goals {
    /// Part of the request above which CPU use counts as over, 0 to 1.
    pub cpu_threshold: Option<f64>,
    /// Part of the time in which that may be, 0 to 1.
    pub cpu_over: Option<f64>,
    /// Part of the 24-hour windows in which memory may exceed the request, 0 to 1.
    pub memory_over: Option<f64>,
}

/// A policy that is whole and free of contradictions.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Namespace, whose pods it may select.
    pub namespace: String,
    /// Name within the namespace.
    pub name: String,
    /// When it was made, as written (RFC 3339).
    pub created: Option<String>,
    /// Which pods.
    pub selector: Selector,
    /// What the controller that it names instead selects in its cluster.
    pub labels: Option<LabelSelector>,
    /// What is done with recommendations.
    pub mode: UpdateMode,
    /// How pods that run are changed.
    pub updates: update::Updates,
    /// Its containers.
    pub containers: Vec<ContainerPolicy>,
    /// What becomes of limits.
    pub limits: LimitsMode,
    /// For which containers requests are set when a pod is made.
    pub initial: InitialResources,
    /// More CPU while its containers start; none without.
    pub startup: Option<StartupBoost>,
    /// What the `goal` rule is to reach.
    pub goals: Goals,
    /// Name of the rule; the service's own where absent.
    pub rule: Option<String>,
    /// Parameters that differ from the rule's defaults.
    pub parameters: Map<String, Value>,
    kind: String,
    metadata: Map<String, Value>,
    spec: Value,
}

impl Policy {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// What holds for a container: its own entry, else that of `*`.
    pub fn container(&self, name: &str) -> Option<&ContainerPolicy> {
        let named = |wanted: &str| self.containers.iter().find(|c| c.name == wanted);
        named(name).or_else(|| named("*"))
    }

    /// Whether it selects a pod.
    pub fn selects<'a>(&self, namespace: &str, labels: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.namespace == namespace && self.selector.matches(labels)
    }

    /// Whether another object was written with the same content, and selects the same.
    pub fn is_same(&self, other: &Self) -> bool {
        let given = |p: &Self| (p.key(), p.kind.clone(), p.spec.clone(), p.metadata.get("labels").cloned());
        given(self) == given(other) && self.labels == other.labels
    }

    /// The object as it was written, in JSON, with this status.
    pub fn object(&self, created: Option<&str>, status: Value) -> Value {
        let mut metadata = self.metadata.clone();
        metadata.insert("namespace".into(), self.namespace.clone().into());
        if let Some(created) = created {
            metadata.insert("creationTimestamp".into(), created.into());
        }
        let mut object = json!({
            "apiVersion": API_VERSION, "kind": self.kind, "metadata": metadata, "spec": self.spec,
        });
        if !status.is_null() {
            object["status"] = status;
        }
        object
    }
}
