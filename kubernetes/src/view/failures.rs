//! What kubelets say went wrong with pods: containers that were OOM-killed, and pods that they evicted. Agents say the same, and more, of what
//! they see; this is there without them, too.

use serde::Deserialize;

use super::{ClusterView, NamedStatus};

/// Failures that are told of a pod.
const MOST: usize = 16;
/// Longest message that is kept, bytes.
const MOST_MESSAGE: usize = 512;

/// What went wrong with a pod, by its kubelet.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PodFailure {
    /// `OOMKilled`, of a container, or `Evicted`, of the pod.
    pub reason: &'static str,
    /// The container; empty where it is about the pod.
    pub container: Box<str>,
    /// When, RFC 3339; empty where it is not said.
    pub at: Box<str>,
    /// In the kubelet's words.
    pub message: Box<str>,
    /// What its runtime calls the run of the container that ended; empty where it is about the pod, or not said.
    pub id: Box<str>,
    /// Memory that the container requests and may use at most, bytes: what was in force when it was told first.
    pub memory: [Option<u64>; 2],
}

/// A pod, with what went wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub pod: String,
    /// Its node.
    pub node: String,
    /// The controller at its top.
    pub workload: Option<String>,
    /// What.
    pub failure: PodFailure,
}

/// What is read of a container's status.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct FailedContainer {
    name: Option<String>,
    state: Option<ContainerState>,
    last_state: Option<ContainerState>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    terminated: Option<Terminated>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Terminated {
    reason: Option<String>,
    finished_at: Option<String>,
    #[serde(rename = "containerID")]
    container_id: Option<String>,
}

/// What is read of a condition.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodCondition {
    #[serde(rename = "type")]
    kind: Option<String>,
    last_transition_time: Option<String>,
}

fn boxed(text: Option<&str>) -> Box<str> {
    let text = text.unwrap_or_default();
    text[..text.floor_char_boundary(MOST_MESSAGE.min(text.len()))].into()
}

impl NamedStatus {
    /// What went wrong.
    pub(super) fn failures(&self) -> Box<[PodFailure]> {
        let mut found = Vec::new();
        if self.reason.as_deref() == Some("Evicted") {
            let conditions = self.conditions.iter().flatten();
            let target = conditions.into_iter().find(|one| one.kind.as_deref() == Some("DisruptionTarget"));
            found.push(PodFailure {
                reason: "Evicted",
                container: Box::default(),
                at: boxed(target.and_then(|one| one.last_transition_time.as_deref())),
                message: boxed(self.message.as_deref()),
                ..PodFailure::default()
            });
        }
        let containers = self.container_statuses.iter().chain(&self.init_container_statuses).flatten();
        for container in containers {
            let ended = [&container.state, &container.last_state];
            let ended = ended.into_iter().flatten().filter_map(|state| state.terminated.as_ref());
            for one in ended.filter(|one| one.reason.as_deref() == Some("OOMKilled")) {
                let (container, at) = (boxed(container.name.as_deref()), boxed(one.finished_at.as_deref()));
                // With the runtime's name in front.
                let id = one.container_id.as_deref().and_then(|id| id.split_once("://")).map(|(_, id)| id);
                found.push(PodFailure {
                    reason: "OOMKilled",
                    container,
                    at,
                    id: boxed(id),
                    ..PodFailure::default()
                });
            }
        }
        found.truncate(MOST);
        found.into()
    }
}

impl ClusterView {
    /// What kubelets say went wrong with the pods that there are, of one namespace or, where it is empty, of all; `most` at most.
    #[must_use]
    pub fn failures(&self, namespace: &str, most: usize) -> Vec<Failed> {
        let inner = self.read();
        let all = inner.pods.failed().filter(|(of, ..)| namespace.is_empty() || namespace == *of);
        let each = all.flat_map(|(namespace, name, one)| {
            let workload = inner.top(namespace, one).found();
            one.failures.iter().map(move |failure| Failed {
                namespace: namespace.to_owned(),
                pod: name.to_owned(),
                node: one.node.to_string(),
                workload: workload.clone(),
                failure: failure.clone(),
            })
        });
        each.take(most).collect()
    }
}
