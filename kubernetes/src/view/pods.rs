//! Pods, of which there are many: what those of one template have in common is kept once.

mod record;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use evenkeel_capacity::object::{Pod, PodSpec, PodStatus};
use sha2::{Digest as _, Sha256};

use super::Names;
use super::failures::PodFailure;
use super::nodes::Nodes;
use super::required::{memory, requirements};
pub(super) use record::{Gone, NodePodDetails, PodRecord};

/// Tables of what pods share are gone through for what nobody has any more when so many entries were added, at least.
const LEAST_SWEEP: usize = 1024;

/// Pods that are gone and remembered: a node that was cut off tells of them when it comes back. The oldest is forgotten when there are more.
const MOST_GONE: usize = 20_000;
/// For how long they are.
const GONE_FOR: Duration = Duration::from_secs(3600);

/// Changed pods that are noted; when there are more, the simulator's cluster is made anew, which costs about as much then.
const MOST_CHANGED: usize = 1 << 14;

/// Namespaces and names of pods that changed since they were asked for; nothing where it is not known which did.
pub(super) type Changed = Option<Vec<(Box<str>, Box<str>)>>;

/// A pod without what tells it from others of its template.
pub(super) type Common = Pod;

/// All pods.
#[derive(Debug, Default)]
pub(super) struct Pods {
    by_name: Names<PodRecord>,
    count: usize,
    commons: HashMap<[u8; 32], Weak<Common>>,
    nodes: HashMap<Box<str>, Weak<str>>,
    /// Entries of these two added since they were gone through.
    added: usize,
    /// Which are on which node.
    pub(super) on_nodes: Nodes,
    gone: Names<Gone>,
    /// Namespaces and names of these, in the order in which they went.
    went: VecDeque<(Box<str>, Box<str>)>,
    /// Those that the simulator's cluster has not taken in yet.
    changed: Mutex<Changed>,
    /// Namespaces and names of those with which something went wrong.
    failed: BTreeSet<(Box<str>, Box<str>)>,
}

impl Pods {
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes in a pod that is new or changed.
    pub(super) fn put(
        &mut self,
        mut pod: Pod,
        told: NodePodDetails,
        mut failures: Box<[PodFailure]>,
        mark: u32,
    ) {
        failures.iter_mut().for_each(|failure| failure.memory = memory(&pod, &failure.container));
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
        self.note(&namespace, &name);
        let place = (namespace.as_str().into(), name.clone());
        if failures.is_empty() {
            self.failed.remove(&place);
        } else {
            self.failed.insert(place);
        }
        let common = self.common(pod);
        let mut one = PodRecord { common, uid, node, started, has_ended, told, failures, changed: 0, mark };
        one.changed = self.place(&namespace, &name, &one);
        let before = self.by_name.entry(namespace.into()).or_default().insert(name, one);
        self.count += usize::from(before.is_none());
        drop(before);
        self.tidy();
    }

    fn note(&mut self, namespace: &str, name: &str) {
        let changed = self.changed.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(all) = changed {
            if all.len() < MOST_CHANGED {
                all.push((namespace.into(), name.into()));
            } else {
                *changed = None;
            }
        }
    }

    /// Those that changed since this was asked before, each once, in order.
    pub(super) fn changed(&self) -> Changed {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = changed.replace(Vec::new())?;
        drop(changed);
        all.sort_unstable();
        all.dedup();
        Some(all)
    }

    /// Puts a pod where it is now; the generation in which what it requires changed last.
    fn place(&mut self, namespace: &str, name: &str, one: &PodRecord) -> u64 {
        let known = self.by_name.get(namespace).and_then(|names| names.get(name));
        let known = known.filter(|before| before.is_on_node());
        let same =
            known.filter(|before| one.is_on_node() && (&before.uid, &before.node) == (&one.uid, &one.node));
        if let Some(before) = same {
            let is_same = Arc::ptr_eq(&before.common, &one.common) && before.told == one.told;
            if is_same || requirements(namespace, name, before) == requirements(namespace, name, one) {
                return before.changed;
            }
            return self.on_nodes.changed(&one.node);
        }
        if let Some(before) = known {
            self.on_nodes.went(&before.node, namespace, name, &before.uid);
        }
        if one.is_on_node() { self.on_nodes.came(&one.node, namespace, name, &one.uid) } else { 0 }
    }

    /// It was listed and could not be understood: what is known of it stays.
    pub(super) fn touch(&mut self, namespace: &str, name: &str, mark: u32) {
        if let Some(one) = self.by_name.get_mut(namespace).and_then(|names| names.get_mut(name)) {
            one.mark = mark;
        }
    }

    pub(super) fn remove(&mut self, namespace: &str, name: &str) {
        self.note(namespace, name);
        self.failed.remove(&(namespace.into(), name.into()));
        let Some(names) = self.by_name.get_mut(namespace) else { return };
        let before = names.remove(name);
        if names.is_empty() {
            self.by_name.remove(namespace);
        }
        self.count -= usize::from(before.is_some());
        if let Some(before) = before.filter(PodRecord::is_on_node) {
            self.on_nodes.went(&before.node, namespace, name, &before.uid);
        }
    }

    /// Namespaces and names of what does not have this mark.
    pub(super) fn unmarked(&self, mark: u32) -> Vec<(Box<str>, Box<str>)> {
        let all = self.by_name.iter().flat_map(|(space, names)| names.iter().map(move |of| (space, of)));
        let old = all.filter(|(_, (_, one))| one.mark != mark);
        old.map(|(space, (name, _))| (space.clone(), name.clone())).collect()
    }

    /// One by name.
    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&PodRecord> {
        self.by_name.get(namespace)?.get(name)
    }

    /// Whether there is any of a namespace.
    pub(super) fn is_in(&self, namespace: &str) -> bool {
        self.by_name.contains_key(namespace)
    }

    /// One that is gone, and is remembered.
    pub(super) fn gone(&self, namespace: &str, name: &str) -> Option<&Gone> {
        self.gone.get(namespace)?.get(name).filter(|gone| gone.since.elapsed() < GONE_FOR)
    }

    /// Remembers where one was that is gone.
    pub(super) fn remember(&mut self, namespace: &str, name: &str, gone: Gone) {
        let before = self.gone.entry(namespace.into()).or_default().insert(name.into(), gone);
        if before.is_none() {
            self.went.push_back((namespace.into(), name.into()));
        }
        if self.went.len() > MOST_GONE
            && let Some((namespace, name)) = self.went.pop_front()
            && let Some(names) = self.gone.get_mut(&namespace)
        {
            names.remove(&name);
            if names.is_empty() {
                self.gone.remove(&namespace);
            }
        }
    }

    /// All, by namespace and name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str, &PodRecord)> {
        let all = self.by_name.iter().flat_map(|(space, names)| names.iter().map(move |of| (space, of)));
        all.map(|(space, (name, one))| (&**space, &**name, one))
    }

    /// Those with which something went wrong, likewise.
    pub(super) fn failed(&self) -> impl Iterator<Item = (&str, &str, &PodRecord)> {
        self.failed.iter().filter_map(|(space, name)| Some((&**space, &**name, self.get(space, name)?)))
    }

    /// Those of a namespace, by name.
    pub(super) fn of(&self, namespace: &str) -> impl Iterator<Item = (&str, &PodRecord)> {
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
