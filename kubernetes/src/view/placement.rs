//! Where the API server places a pod, and the controller at its top: what is believed of a node that says it runs the pod.

use std::sync::Arc;
use std::time::Instant;

use evenkeel_capacity::object::{Object, OwnerReference};

use super::pods::{Gone, PodRecord};
use super::{ClusterObjects, ClusterView, ObjectContent};
use crate::kinds::{JOB, POD};

/// Label that tells replica sets of a Deployment apart; their names end with its value.
const TEMPLATE: &str = "pod-template-hash";
/// Kind of the owner of mirror pods, which stand for what a node runs by itself.
const NODE: &str = "Node";
/// Longest name of a workload that is told: a kind (63) and a name (253), with the slash.
const MAX_NAME: usize = 317;

/// What is known of a pod that a node says it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Placement {
    /// Pods were not listed yet.
    NotListed,
    /// There is no pod of this name.
    Unknown,
    /// It is on another node, or on none.
    Elsewhere,
    /// It is on this node, or was until lately. The controller at its top, such as `deployment/web`; nothing where none made it, or that is not known.
    Here(Option<String>),
}

impl ClusterView {
    /// Where the pod of a name is, seen from a node.
    ///
    /// Names are compared, not uids: the kubelet gives a static pod another uid than the API server gives its mirror, and a pod that took
    /// the name of another on the same node is of the same workload.
    #[must_use]
    pub fn placement(&self, node: &str, namespace: &str, pod: &str) -> Placement {
        let inner = self.read();
        if !inner.kinds.get(POD).is_some_and(|kept| kept.is_known) {
            return Placement::NotListed;
        }
        match (inner.pods.get(namespace, pod), inner.pods.gone(namespace, pod)) {
            (Some(one), _) if *one.node == *node => Placement::Here(inner.top(namespace, one).found()),
            (_, Some(gone)) if *gone.node == *node => {
                Placement::Here(gone.workload.as_deref().map(str::to_owned))
            }
            (Some(_), _) => Placement::Elsewhere,
            (None, _) => Placement::Unknown,
        }
    }

    /// The uid of a pod that is on a node.
    #[must_use]
    pub fn uid_on(&self, node: &str, namespace: &str, pod: &str) -> Option<String> {
        let inner = self.read();
        let one = inner.pods.get(namespace, pod).filter(|one| *one.node == *node)?;
        Some(one.uid.to_string())
    }

    /// Whether there is a namespace of this name, as far as is known.
    #[must_use]
    pub fn has_namespace(&self, name: &str) -> bool {
        let inner = self.read();
        let named = inner.kinds.get("Namespace").and_then(|kept| kept.objects.get(""));
        named.is_some_and(|names| names.contains_key(name)) || inner.pods.is_in(name)
    }
}

/// The controller at the top of a pod.
pub(super) enum Top {
    /// It has none.
    None,
    /// That cannot be told before a kind is listed.
    NotListed,
    /// As `kind/name`.
    Found(String),
}

impl Top {
    pub(super) fn found(self) -> Option<String> {
        match self {
            Self::Found(name) => Some(name).filter(|name| name.len() <= MAX_NAME),
            Self::None | Self::NotListed => None,
        }
    }
}

impl ClusterObjects {
    /// The controller at the top of a pod: what a ReplicaSet or Job was made by, else what made the pod. Controllers above these are not looked
    /// for: what an operator's object makes is a workload of its own.
    pub(super) fn top(&self, namespace: &str, one: &PodRecord) -> Top {
        let Some(owner) = one.common.metadata.controller().filter(|owner| owner.kind != NODE) else {
            return Top::None;
        };
        if let Some(above) = self.owner_of(namespace, &owner.kind, &owner.name) {
            return Top::Found(named(above.unwrap_or(owner)));
        }
        let hash = one.common.metadata.labels.get(TEMPLATE).filter(|_| owner.kind == "ReplicaSet");
        let deployment = hash.and_then(|hash| owner.name.strip_suffix(hash)?.strip_suffix('-'));
        match deployment {
            Some(name) => Top::Found(format!("deployment/{name}")),
            None if self.is_missing(&owner.kind) => Top::NotListed,
            None => Top::Found(named(owner)),
        }
    }

    /// Whether controllers of a kind may have one above them, and are not listed yet.
    fn is_missing(&self, kind: &str) -> bool {
        matches!(kind, "ReplicaSet" | JOB) && !self.kinds.get(kind).is_some_and(|kept| kept.is_known)
    }

    /// What made a controller, where that is known.
    pub(super) fn parent(&self, namespace: &str, kind: &str, name: &str) -> Option<&OwnerReference> {
        self.owner_of(namespace, kind, name).flatten()
    }

    /// Who controls a controller, where that is known: nobody, or another.
    fn owner_of(&self, namespace: &str, kind: &str, name: &str) -> Option<Option<&OwnerReference>> {
        if !matches!(kind, "ReplicaSet" | JOB) {
            return None;
        }
        match &self.kinds.get(kind)?.objects.get(namespace)?.get(name)?.of {
            ObjectContent::Object(Object::ReplicaSet(set)) => Some(set.metadata.controller()),
            ObjectContent::Owner(owner) => Some(owner.as_ref()),
            ObjectContent::Object(_) => None,
        }
    }

    /// Takes a pod out, and remembers for a while where it was.
    pub(super) fn remove_pod(&mut self, namespace: &str, name: &str) {
        let Some(one) = self.pods.get(namespace, name) else { return };
        let workload = self.top(namespace, one).found().map(Into::into);
        let gone = Gone { node: Arc::clone(&one.node), workload, since: Instant::now() };
        self.pods.remove(namespace, name);
        self.pods.remember(namespace, name, gone);
    }
}

fn named(owner: &OwnerReference) -> String {
    format!("{}/{}", owner.kind.to_ascii_lowercase(), owner.name)
}
