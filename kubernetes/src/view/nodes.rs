//! Which pods are on which node, and in which generation that or what they require changed: what a node is told of its own, whole or
//! as what changed since it heard last.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use tokio::sync::Notify;

/// Uids of pods that went from a node and are remembered, so that it may be told what changed. Who knows less is told everything.
const MOST_GONE: usize = 64;
/// Nodes are gone through for those that are of no use when there are so many, at least.
const LEAST_SWEEP: usize = 1024;

/// All nodes that have pods, had some lately, or are listened to.
#[derive(Debug)]
pub(super) struct Nodes {
    /// Tells the generations of this view from those of another.
    run: u64,
    /// Counts changes.
    generation: u64,
    /// Nodes that are not here have had no pod since.
    empty_since: u64,
    /// How many nodes the last sweep left.
    swept: usize,
    by_name: HashMap<Arc<str>, OnNode>,
}

/// One node.
#[derive(Debug)]
pub(super) struct OnNode {
    /// Namespaces and names.
    pods: BTreeSet<(Box<str>, Box<str>)>,
    /// Generations and uids, the oldest first.
    gone: VecDeque<(u64, Box<str>)>,
    /// Of pods that went in this generation or before nothing is known.
    forgotten: u64,
    /// The generation of the last change.
    generation: u64,
    bell: Arc<Notify>,
}

impl Default for Nodes {
    fn default() -> Self {
        // Zero stands for none.
        let run = RandomState::new().hash_one(0_u8).max(1);
        Self { run, generation: 0, empty_since: 0, swept: 0, by_name: HashMap::new() }
    }
}

impl Nodes {
    pub(super) fn run(&self) -> u64 {
        self.run
    }

    pub(super) fn get(&self, node: &str) -> Option<&OnNode> {
        self.by_name.get(node)
    }

    /// The generation of the last change of a node's pods.
    pub(super) fn generation(&self, node: &str) -> u64 {
        self.get(node).map_or(self.empty_since, |on| on.generation)
    }

    /// Whether all that went from a node since a generation is known.
    pub(super) fn is_known_since(&self, node: &str, generation: u64) -> bool {
        generation <= self.generation
            && generation >= self.get(node).map_or(self.empty_since, |on| on.forgotten)
    }

    /// Rung at each change of a node's pods.
    pub(super) fn bell(&mut self, node: &str) -> Arc<Notify> {
        Arc::clone(&self.entry(node).bell)
    }

    /// A pod is on a node now; the generation of that.
    pub(super) fn came(&mut self, node: &str, namespace: &str, name: &str, uid: &str) -> u64 {
        let on = self.entry(node);
        on.pods.insert((namespace.into(), name.into()));
        // One that is back has not gone.
        on.gone.retain(|(_, gone)| **gone != *uid);
        self.changed(node)
    }

    /// What a pod on a node requires changed; the generation of that.
    pub(super) fn changed(&mut self, node: &str) -> u64 {
        self.generation += 1;
        let generation = self.generation;
        let on = self.entry(node);
        on.generation = generation;
        on.bell.notify_one();
        generation
    }

    /// A pod is not on a node any more.
    pub(super) fn went(&mut self, node: &str, namespace: &str, name: &str, uid: &str) {
        let generation = self.changed(node);
        let on = self.entry(node);
        on.pods.remove(&(Box::from(namespace), Box::from(name)));
        on.gone.push_back((generation, uid.into()));
        if on.gone.len() > MOST_GONE
            && let Some((forgotten, _)) = on.gone.pop_front()
        {
            on.forgotten = forgotten;
        }
    }

    /// How many nodes there are.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.by_name.len()
    }

    /// Forgets nodes that have no pods and that nobody listens to.
    fn sweep(&mut self) {
        let before = self.by_name.len();
        self.by_name.retain(|_, on| !on.pods.is_empty() || Arc::strong_count(&on.bell) > 1);
        if self.by_name.len() < before {
            self.empty_since = self.generation;
        }
        self.swept = self.by_name.len();
    }

    fn entry(&mut self, node: &str) -> &mut OnNode {
        if self.by_name.len() >= LEAST_SWEEP.max(2 * self.swept) && !self.by_name.contains_key(node) {
            self.sweep();
        }
        let (empty_since, name) = (self.empty_since, Arc::from(node));
        self.by_name.entry(name).or_insert_with(|| OnNode {
            pods: BTreeSet::new(),
            gone: VecDeque::new(),
            forgotten: empty_since,
            generation: empty_since,
            bell: Arc::default(),
        })
    }
}

impl OnNode {
    /// Namespaces and names of its pods.
    pub(super) fn pods(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pods.iter().map(|(namespace, name)| (&**namespace, &**name))
    }

    /// Uids of what went since a generation.
    pub(super) fn gone_since(&self, generation: u64) -> impl Iterator<Item = &str> {
        self.gone.iter().filter(move |(at, _)| *at > generation).map(|(_, uid)| &**uid)
    }
}
