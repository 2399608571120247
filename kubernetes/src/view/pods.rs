//! Pods, of which there are many: what those of one template have in common is kept once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use evenkeel_capacity::object::{OwnerReference, Pod, PodSpec, PodStatus};
use sha2::{Digest as _, Sha256};

use super::Names;

/// Tables of what pods share are gone through for what nobody has any more when so many entries were added, at least.
const LEAST_SWEEP: usize = 1024;

/// A pod without what tells it from others of its template.
pub(super) type Common = Pod;

/// One pod.
#[derive(Debug)]
pub(super) struct One {
    pub(super) common: Arc<Common>,
    pub(super) uid: Box<str>,
    /// Empty where it has none.
    pub(super) node: Arc<str>,
    /// Empty before a kubelet took it.
    pub(super) started: Box<str>,
    pub(super) has_ended: bool,
    mark: u32,
}

/// All pods.
#[derive(Debug, Default)]
pub(super) struct Pods {
    by_name: Names<One>,
    count: usize,
    commons: HashMap<[u8; 32], Weak<Common>>,
    nodes: HashMap<Box<str>, Weak<str>>,
    /// Entries of these two added since they were gone through.
    added: usize,
}

impl Pods {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes in a pod that is new or changed.
    pub(super) fn put(&mut self, mut pod: Pod, mark: u32) {
        let has_ended = matches!(pod.status.phase.as_str(), "Succeeded" | "Failed");
        let name = pod.metadata.name.clone().into_boxed_str();
        let namespace = pod.metadata.namespace.clone();
        let uid = std::mem::take(&mut pod.metadata.uid).into();
        let node = self.node(&std::mem::take(&mut pod.spec.node_name));
        let started = pod.status.start_time.take().unwrap_or_default().into();
        pod.status.phase = String::new();
        pod.metadata.creation_timestamp = None;
        if has_ended {
            (pod.spec, pod.status) = (PodSpec::default(), PodStatus::default());
            pod.metadata.labels.clear();
        }
        // A claim that is made for a pod bears the pod's name.
        let has_own_claim = pod.spec.volumes.iter().any(|volume| volume.ephemeral.is_some());
        if pod.metadata.controller().is_some() && !has_own_claim {
            pod.metadata.name = String::new();
        }
        let common = self.common(pod);
        let one = One { common, uid, node, started, has_ended, mark };
        let before = self.by_name.entry(namespace.into()).or_default().insert(name, one);
        self.count += usize::from(before.is_none());
        drop(before);
        self.tidy();
    }

    /// It was listed and could not be understood: what is known of it stays.
    pub(super) fn touch(&mut self, namespace: &str, name: &str, mark: u32) {
        if let Some(one) = self.by_name.get_mut(namespace).and_then(|names| names.get_mut(name)) {
            one.mark = mark;
        }
    }

    pub(super) fn remove(&mut self, namespace: &str, name: &str) {
        let Some(names) = self.by_name.get_mut(namespace) else { return };
        self.count -= usize::from(names.remove(name).is_some());
        if names.is_empty() {
            self.by_name.remove(namespace);
        }
    }

    /// Takes out what does not have this mark.
    pub(super) fn sweep(&mut self, mark: u32) {
        self.by_name.retain(|_, names| {
            names.retain(|_, one| one.mark == mark);
            !names.is_empty()
        });
        self.count = self.by_name.values().map(|names| names.len()).sum();
    }

    /// The controller of a pod.
    pub(super) fn owner(&self, namespace: &str, name: &str, uid: &str) -> Option<&OwnerReference> {
        let one = self.by_name.get(namespace)?.get(name)?;
        (*one.uid == *uid).then(|| one.common.metadata.controller())?
    }

    /// All, by namespace and name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &One)> {
        self.by_name.values().flatten().map(|(name, one)| (&**name, one))
    }

    /// Those of a namespace, by name.
    pub(super) fn of(&self, namespace: &str) -> impl Iterator<Item = (&str, &One)> {
        self.by_name.get(namespace).into_iter().flatten().map(|(name, one)| (&**name, one))
    }

    /// How many different ones there are.
    #[cfg(test)]
    pub(super) fn shared(&self) -> usize {
        self.commons.values().filter(|common| common.strong_count() > 0).count()
    }

    /// How many entries the tables of what is shared have.
    #[cfg(test)]
    pub(super) fn tables(&self) -> usize {
        self.commons.len() + self.nodes.len()
    }

    fn common(&mut self, pod: Pod) -> Arc<Common> {
        let mut hash = Sha256::new();
        // Only a map with keys that are no text cannot be written, and writing to a hash does not fail.
        let written = serde_json::to_writer(&mut hash, &pod);
        if written.is_err() {
            return Arc::new(pod);
        }
        let hash: [u8; 32] = hash.finalize().into();
        if let Some(known) = self.commons.get(&hash).and_then(Weak::upgrade) {
            return known;
        }
        let common = Arc::new(pod);
        self.commons.insert(hash, Arc::downgrade(&common));
        self.added += 1;
        common
    }

    fn node(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.nodes.get(name).and_then(Weak::upgrade) {
            return known;
        }
        let node: Arc<str> = name.into();
        self.nodes.insert(name.into(), Arc::downgrade(&node));
        self.added += 1;
        node
    }

    /// Forgets what nobody has any more, now and then.
    fn tidy(&mut self) {
        if self.added > LEAST_SWEEP.max((self.commons.len() + self.nodes.len()) / 2) {
            self.commons.retain(|_, common| common.strong_count() > 0);
            self.nodes.retain(|_, node| node.strong_count() > 0);
            self.added = 0;
        }
    }
}
