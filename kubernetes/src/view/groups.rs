//! Pods by the controller at their top, and by their labels.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use evenkeel_capacity::object::{Pod, PodStatus};
use evenkeel_model::selector::Selector;

use super::ClusterView;
use super::pods::PodRecord;

/// Pods that belong together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkloadGroup {
    /// Their names.
    pub pods: BTreeSet<String>,
    /// Names of the containers that run in them, sidecars included.
    pub containers: BTreeSet<String>,
    /// The controllers at the top of them, such as `deployment/web`.
    pub workloads: BTreeSet<String>,
}

impl WorkloadGroup {
    fn add(&mut self, name: &str, one: &PodRecord, workload: Option<String>) {
        self.pods.insert(name.to_owned());
        self.workloads.extend(workload);
        let spec = &one.common.spec;
        let sidecars = spec.init_containers.iter().filter(|container| container.is_sidecar());
        for container in spec.containers.iter().chain(sidecars) {
            if !self.containers.contains(&container.name) {
                self.containers.insert(container.name.clone());
            }
        }
    }
}

impl ClusterView {
    /// Pods of a namespace that have not ended, by the controller at their top; those without one are left out.
    #[must_use]
    pub fn groups(&self, namespace: &str) -> BTreeMap<String, WorkloadGroup> {
        let inner = self.read();
        let mut groups: BTreeMap<String, WorkloadGroup> = BTreeMap::new();
        for (name, one) in inner.pods.of(namespace).filter(|(_, one)| !one.has_ended) {
            if let Some(workload) = inner.top(namespace, one).found() {
                groups.entry(workload.clone()).or_default().add(name, one, Some(workload));
            }
        }
        groups
    }

    /// Pods of a namespace that have not ended and have these labels.
    #[must_use]
    pub fn selected(&self, namespace: &str, selector: &Selector) -> WorkloadGroup {
        let inner = self.read();
        let mut group = WorkloadGroup::default();
        for (name, one) in inner.pods.of(namespace).filter(|(_, one)| !one.has_ended) {
            if selector.matches(|key| one.common.metadata.labels.get(key).map(String::as_str)) {
                group.add(name, one, inner.top(namespace, one).found());
            }
        }
        group
    }

    /// What each pod of a namespace that has not ended asks for, with the controller at its top; those without one are left out.
    #[must_use]
    pub fn asked(&self, namespace: &str) -> Vec<(String, Arc<Pod>)> {
        let inner = self.read();
        let pods = inner.pods.of(namespace).filter(|(_, one)| !one.has_ended);
        pods.filter_map(|(_, one)| Some((inner.top(namespace, one).found()?, Arc::clone(&one.common))))
            .collect()
    }

    /// A pod as it would be made anew: without node, uid and status.
    #[must_use]
    pub fn manifest(&self, namespace: &str, name: &str) -> Option<Pod> {
        let inner = self.read();
        let mut pod = (*inner.pods.get(namespace, name)?.common).clone();
        name.clone_into(&mut pod.metadata.name);
        pod.status = PodStatus::default();
        Some(pod)
    }

    /// Whether a controller is known to be made by another one, which is the one to name.
    #[must_use]
    pub fn has_parent(&self, namespace: &str, kind: &str, name: &str) -> bool {
        self.read().parent(namespace, kind, name).is_some()
    }
}
