//! A cluster that is kept while pods come, change and go: a question waits for what changed since the last one, and not for all of it.
//!
//! What is kept is what would be built of the same objects: pods are in the order of namespace and name, nodes in that of their names. Only
//! words that nobody uses any more stay, until whoever keeps it [builds it anew](ClusterCache::is_worn).

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::build::{Alike, BuildError, Builder, ObjectCounts, Oddity, PodIdentity};
use super::{Cluster, Counted, Placed, Symbol, Uid};
use crate::admission::Charge;
use crate::object;
use crate::state::{ClusterState, Numbers, PodId};

/// Words and shapes beyond twice those that were there at first, after which it is built anew.
const WORN: usize = 1 << 16;

/// What became of a pod.
#[derive(Debug, Clone)]
pub enum Now<'a> {
    /// It is there no more.
    Gone,
    /// It ended: it takes nothing.
    Ended,
    /// It cannot be used, and why.
    Unusable(String),
    /// It is like this.
    Runs(Alike, PodIdentity<'a>),
}

/// Namespace and name of a pod, and what became of it.
pub type Change<'a> = (&'a str, &'a str, Now<'a>);

/// A pod that takes nothing of a node.
#[derive(Debug)]
enum Aside {
    Ended,
    Unusable(String),
    /// It has no node yet, or one that is not there.
    Without(Arc<Charge>, Option<Symbol>),
}

/// A cluster that is kept.
#[derive(Debug)]
pub struct ClusterCache {
    builder: Builder,
    /// By namespace and name.
    aside: BTreeMap<Box<str>, BTreeMap<Box<str>, Aside>>,
    /// Words and shapes that were there at first.
    first: Option<usize>,
    /// What pods take of nodes, from the first question on.
    counted: Option<(Arc<ClusterState>, Numbers)>,
}

/// How the pods on nodes change.
#[derive(Default)]
struct Changes {
    /// Places of those that go.
    gone: Vec<usize>,
    /// Those that come, each with the place of the one it stands before.
    come: Vec<(usize, Placed)>,
    /// The same of their placements.
    placements: Vec<(usize, (PodId, u32))>,
}

impl ClusterCache {
    /// Pods are yet to come.
    pub(super) fn over(builder: Builder) -> Self {
        Self { builder, aside: BTreeMap::new(), first: None, counted: None }
    }

    /// Makes ready what many pods have in common.
    ///
    /// # Errors
    /// [`BuildError`] when one of its selectors cannot be used.
    pub fn alike(&mut self, common: &object::Pod) -> Result<Alike, BuildError> {
        self.builder.listed("Pod");
        let name = || common.metadata.controller().map_or(&common.metadata.name, |owner| &owner.name);
        self.builder.alike(common).map_err(|error| BuildError::Selector {
            kind: "Pod",
            name: format!("{}/{}", common.metadata.namespace_or_default(), name()),
            error,
        })
    }

    /// Takes in what became of pods: namespace, name and state, each pod once, in the order of namespace and name. The next one is given by
    /// `next`, which may [make ready](Self::alike) what pods have in common.
    pub fn set_with<'a>(&mut self, next: &mut dyn FnMut(&mut Self) -> Option<Change<'a>>) {
        let mut changes = Changes::default();
        while let Some((namespace, name, now)) = next(self) {
            self.one(namespace, name, now, &mut changes);
        }
        if changes.gone.is_empty() && changes.come.is_empty() {
            return;
        }
        let Changes { gone, come, placements } = changes;
        let placed = std::mem::take(&mut self.builder.cluster.placed);
        let old = Arc::try_unwrap(placed).unwrap_or_else(|shared| (*shared).clone());
        self.builder.cluster.placed = Arc::new(merged(old, &gone, come));
        if let Some((state, _)) = &mut self.counted {
            let state = Arc::make_mut(state);
            state.placements = merged(std::mem::take(&mut state.placements), &gone, placements);
        }
    }

    fn one(&mut self, namespace: &str, name: &str, now: Now<'_>, changes: &mut Changes) {
        let place = self.find(namespace, name);
        let Cluster { symbols, placed, charges, .. } = &mut self.builder.cluster;
        let mut uncharge = |charge: &Arc<Charge>| {
            if let Some(count) = charges.get_mut(charge) {
                *count -= 1;
                if *count == 0 {
                    charges.remove(charge);
                }
            }
        };
        match place {
            Ok(at) => uncharge(&placed[at].charge),
            Err(_) => {
                let before = self.aside.get_mut(namespace).and_then(|names| names.remove(name));
                if let Some(Aside::Without(charge, _)) = before {
                    uncharge(&charge);
                }
            }
        }
        let aside = match now {
            Now::Gone => None,
            Now::Ended => Some(Aside::Ended),
            Now::Unusable(why) => Some(Aside::Unusable(why)),
            Now::Runs(Alike { pod, charge, owner }, one) => {
                *charges.entry(Arc::clone(&charge)).or_default() += 1;
                let node = (!one.node.is_empty()).then(|| symbols.intern(one.node));
                let at = self.builder.cluster.node(one.node);
                let symbols = &mut self.builder.cluster.symbols;
                if let Some(node) = at {
                    let (name, started) = (symbols.intern(one.name), symbols.intern(one.started));
                    let new = Placed { pod, name, uid: Uid::parse(one.uid), started, owner, node, charge };
                    let counted =
                        self.counted.as_mut().map(|(state, numbers)| (Arc::make_mut(state), numbers));
                    match place {
                        Ok(at) => {
                            if let Some((state, numbers)) = counted {
                                state.leave(at);
                                state.placements[at] = state.enter(numbers, &new);
                            }
                            Arc::make_mut(&mut self.builder.cluster.placed)[at] = new;
                        }
                        Err(at) => {
                            let placement = counted.map(|(state, numbers)| (at, state.enter(numbers, &new)));
                            changes.placements.extend(placement);
                            changes.come.push((at, new));
                        }
                    }
                    return;
                }
                Some(Aside::Without(charge, node))
            }
        };
        if let Ok(at) = place {
            if let Some((state, _)) = &mut self.counted {
                Arc::make_mut(state).leave(at);
            }
            changes.gone.push(at);
        }
        if let Some(aside) = aside {
            self.aside.entry(namespace.into()).or_default().insert(name.into(), aside);
        }
    }

    /// Where a pod is, or would be.
    fn find(&self, namespace: &str, name: &str) -> Result<usize, usize> {
        let Cluster { placed, symbols, .. } = &self.builder.cluster;
        placed.binary_search_by(|placed| {
            let by_namespace = symbols.word(placed.pod.namespace).cmp(namespace);
            if by_namespace == Ordering::Equal { symbols.word(placed.name).cmp(name) } else { by_namespace }
        })
    }

    /// Takes in a node that changed. False where it is another one, or odd: then the whole has to be built anew.
    pub fn set_node(&mut self, written: &object::Node) -> bool {
        let name = &written.metadata.name;
        let is_odd =
            written.status.conditions.iter().any(|condition| condition.reason == object::NOT_REPORTED)
                || !self.builder.untold.is_empty()
                || self.builder.oddities.is_any();
        let Some(at) = self.builder.cluster.node(name).filter(|_| !is_odd) else { return false };
        let node = Arc::new(self.builder.ready(written));
        if let Some((state, _)) = &mut self.counted {
            Arc::make_mut(state).offers(at, &node);
        }
        self.builder.cluster.nodes[at] = node;
        !self.builder.oddities.is_any()
    }

    /// Whether so much came and went that it should be built anew.
    pub fn is_worn(&self) -> bool {
        let now = self.builder.cluster.symbols.len() + self.builder.shapes.len();
        self.first.is_some_and(|first| now > 2 * first + WORN)
    }

    /// Makes ready what a question needs beside what changed.
    pub fn prepare(&mut self) {
        self.first.get_or_insert(self.builder.cluster.symbols.len() + self.builder.shapes.len());
        self.builder.cluster.symbols.share();
        self.counted();
    }

    /// What pods take of nodes; kept from the first time on.
    fn counted(&mut self) -> &Arc<ClusterState> {
        let cluster = &self.builder.cluster;
        let (state, _) = self.counted.get_or_insert_with(|| {
            let mut numbers = Numbers::default();
            (Arc::new(ClusterState::count_all(cluster, &mut numbers)), numbers)
        });
        state
    }

    /// The cluster as it is now.
    pub fn cluster(&mut self) -> Cluster {
        self.prepare();
        let mut cluster = self.builder.cluster.clone();
        cluster.counted = Some(Counted {
            state: Arc::clone(self.counted()),
            placed: Arc::clone(&cluster.placed),
            nodes: cluster.nodes.clone(),
        });
        cluster
    }

    /// What it has, and what is odd about it.
    pub fn report(&self) -> (ObjectCounts, Vec<Oddity>) {
        let Cluster { nodes, placed, symbols, .. } = &self.builder.cluster;
        let mut counts = ObjectCounts {
            nodes: nodes.len(),
            placed: placed.len(),
            untold: self.builder.untold.clone(),
            ..ObjectCounts::default()
        };
        let mut oddities = self.builder.oddities.clone();
        let aside = self.aside.iter().flat_map(|(space, names)| names.iter().map(move |of| (space, of)));
        for (namespace, (name, aside)) in aside {
            match aside {
                Aside::Ended => counts.ended += 1,
                Aside::Unusable(_) => {}
                Aside::Without(_, None) => counts.pending += 1,
                Aside::Without(_, Some(node)) => oddities.lost(namespace, name, symbols.word(*node)),
            }
        }
        (counts, oddities.told())
    }

    /// Why pods cannot be used, each reason once.
    pub fn unusable(&self) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for aside in self.aside.values().flat_map(BTreeMap::values) {
            if let Aside::Unusable(why) = aside
                && found.last() != Some(why)
            {
                found.push(why.clone());
            }
        }
        found
    }
}

/// What is left of `old` without those at the places `gone`, with each of `come` before the one at its place; both in order.
fn merged<T>(old: Vec<T>, gone: &[usize], come: Vec<(usize, T)>) -> Vec<T> {
    let mut new = Vec::with_capacity((old.len() + come.len()).saturating_sub(gone.len()));
    let (mut gone, mut come) = (gone.iter().peekable(), come.into_iter().peekable());
    for (at, one) in old.into_iter().enumerate() {
        new.extend(std::iter::from_fn(|| come.next_if(|(before, _)| *before <= at)).map(|(_, one)| one));
        if gone.next_if_eq(&&at).is_none() {
            new.push(one);
        }
    }
    new.extend(come.map(|(_, one)| one));
    new
}
