//! Asking: shapes in, an [`CapacityAnswer`] out.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::help::{Misfit, Tried, help};
use super::message::fit_error;
use super::place::{PlacedPod, place};
use super::prepared::{Prepared, gated, looked_for};
use super::reserve::Reserve;
use super::{CapacityAnswer, StopReason};
use crate::admission::{Admitted, By, quota};
use crate::cluster::selector::SelectorError;
use crate::cluster::{Cluster, NodeIndex};
use crate::engine::step::{BETWEEN_LOOKS, Placer};
use crate::object::{Pod, ResourceList};
use crate::plugin::Rejection;
use crate::profile::Profiles;
use crate::state::ClusterState;

/// Placings of which the node is told at most: with the names of nodes some 50 MB.
const MOST_TOLD: usize = 1_000_000;
/// Scores that are told at most, one for each node of each placing told in detail: some 200 MB.
const MOST_SCORES: usize = 500_000;

/// Which steps are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Steps {
    /// None.
    #[default]
    None,
    /// The first ones in detail, as far as they have half a million scores of nodes.
    First(usize),
    /// The node of every placing, of a million at most.
    All,
}

/// A shape and how many of it belong to a set.
#[derive(Debug, Clone)]
pub struct Shape {
    /// The pod.
    pub pod: Pod,
    /// How many; 1 for a single shape.
    pub wanted: u64,
}

/// The question.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// Shapes, at least one.
    pub shapes: Vec<Shape>,
    /// Pods placed first, in order.
    pub first: Vec<Pod>,
    /// Amounts that must stay free over all nodes together.
    pub reserve: ResourceList,
    /// Stop after so many (sets); `None` = until none fits.
    pub max: Option<u64>,
    /// Which steps are told.
    pub steps: Steps,
    /// Whether changes that would help are looked for.
    pub help: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// A selector of a pod cannot be used.
    #[error("pod {pod}: {error}")]
    Selector {
        /// The pod.
        pod: String,
        /// Why.
        error: SelectorError,
    },
    /// There is nothing to place.
    #[error("no pod is given; give at least one")]
    NoShape,
    /// It would never end.
    #[error("pod {0} asks for nothing that any node runs out of; give a limit")]
    Endless(String),
    /// An extender's answer failed.
    #[error("{0}")]
    Extender(String),
}

/// Counts. `state` is what is placed already and has what was placed afterwards; `going` says whether the answer is
/// still wanted, with how many are placed so far.
///
/// # Errors
/// [`AskError`]; nothing was placed then.
pub fn ask(
    cluster: &mut Cluster,
    profiles: &Profiles,
    state: &mut ClusterState,
    ask: &Ask,
    going: &mut dyn FnMut(u64) -> bool,
) -> Result<CapacityAnswer, AskError> {
    if ask.shapes.is_empty() {
        return Err(AskError::NoShape);
    }
    let first = place(cluster, profiles, state, &ask.first)
        .map_err(|error| AskError::Selector { pod: "placed first".to_owned(), error })?;
    let before = ask.help.then(|| state.clone());
    let prepared = Prepared::new(cluster, profiles, ask)?;
    let counted = Counter::new(cluster, profiles, ask, &prepared, state, None, &mut *going).run()?;
    if let Some(why) = profiles.extender_failure() {
        return Err(AskError::Extender(why));
    }
    let mut answer = counted.answer;
    answer.placed = (!ask.first.is_empty()).then_some(first);
    answer.notes.extend(looked_for(cluster, profiles, &prepared));
    answer.notes.extend(cluster.unlisted());
    if let Some(before) = before {
        answer.help = match answer.stop {
            StopReason::Unschedulable | StopReason::QuotaExceeded => {
                let tried = Tried { ask, prepared: &prepared, before: &before, count: answer.count };
                let (shape, rejections) = (counted.failed, &counted.rejections);
                let misfit = Misfit { shape, rejections, binding: &answer.binding };
                help(cluster, profiles, state, &tried, &misfit, going)
            }
            _ => Vec::new(),
        };
    }
    Ok(answer)
}

/// How many sets fit under all bounds, beside what is placed; ties fall by `seed` where one is given.
///
/// # Errors
/// As [`ask`].
pub(crate) fn tally(
    cluster: &mut Cluster,
    profiles: &Profiles,
    state: &ClusterState,
    ask: &Ask,
    seed: Option<u64>,
    going: &mut dyn FnMut(u64) -> bool,
) -> Result<u64, AskError> {
    let prepared = Prepared::new(cluster, profiles, ask)?;
    let mut state = state.clone();
    let mut counter = Counter::new(cluster, profiles, ask, &prepared, &mut state, seed, going);
    if seed.is_none()
        && let [Shape { wanted, .. }] = ask.shapes[..]
        && ask.reserve.is_empty()
        && let Some(closed) = counter.placers[0].closed(counter.state)
    {
        let sets = closed.count / wanted.max(1);
        let let_in = prepared.let_in(ask).map(|(sets, _)| sets);
        return Ok([let_in, ask.max].into_iter().flatten().fold(sets, u64::min));
    }
    let mut per_shape = vec![vec![0; cluster.nodes.len()]; ask.shapes.len()];
    Ok(counter.place(&mut per_shape, &mut Vec::new()).0)
}

struct Counted {
    answer: CapacityAnswer,
    /// The shape that did not fit.
    failed: usize,
    rejections: Vec<Option<Rejection>>,
}

/// Places the shapes of a question.
pub(super) struct Counter<'a, 'b> {
    pub(super) cluster: &'a Cluster,
    pub(super) ask: &'b Ask,
    prepared: &'b Prepared,
    pub(super) placers: Vec<Placer<'a>>,
    pub(super) state: &'b mut ClusterState,
    going: &'b mut dyn FnMut(u64) -> bool,
}

/// Why nothing is let in.
fn stopped_by(by: By) -> StopReason {
    match by {
        By::Admission => StopReason::Refused,
        By::Namespace => StopReason::QuotaExceeded,
        By::Scheduler => StopReason::Unschedulable,
    }
}

/// How the placing ended.
enum End {
    Full(usize),
    Limit,
    Reserve,
    /// What is let in: a quota, or nothing at all.
    Bound(String),
    Cancelled,
}

impl<'a, 'b> Counter<'a, 'b> {
    fn new(
        cluster: &'a Cluster,
        profiles: &'a Profiles,
        ask: &'b Ask,
        prepared: &'b Prepared,
        state: &'b mut ClusterState,
        seed: Option<u64>,
        going: &'b mut dyn FnMut(u64) -> bool,
    ) -> Self {
        let placer = |pod: &Arc<crate::cluster::PodInfo>| {
            let profile = profiles.of(cluster.word(pod.scheduler));
            let placer = Placer::new(cluster, profile, state, Arc::clone(pod));
            match seed {
                Some(seed) => placer.seeded(seed),
                None => placer,
            }
        };
        let placers = prepared.compiled.iter().map(placer).collect();
        Self { cluster, ask, prepared, placers, state, going }
    }

    fn run(mut self) -> Result<Counted, AskError> {
        let nodes = self.cluster.nodes.len();
        let single = self.ask.shapes.len() == 1;
        // Bounds are in complete sets, as the count is.
        let of_set = self.ask.shapes[0].wanted.max(1);
        let nodes_bound = if single { self.nodes_bound()?.map(|nodes| nodes / of_set) } else { None };
        let fragmentation = if single { self.fragmentation() } else { None };
        let (steps, mut untold) = match self.ask.steps {
            Steps::First(most) => {
                let told = most.min((MOST_SCORES / nodes.max(1)).max(1));
                let steps = self.first_steps(told);
                let cut = (told < most && steps.len() == told).then(|| {
                    format!("the first {told} placings are told, with {MOST_SCORES} scores of nodes at most")
                });
                (Some(steps), cut)
            }
            _ => (None, None),
        };
        let reserve = Reserve::new(self.cluster, self.state, &self.ask.reserve).room(self.placers[0].pod());
        let attachable = self.placers.iter().filter_map(|placer| placer.attachable(self.state)).min();
        let mut per_shape = vec![vec![0_u64; nodes]; self.ask.shapes.len()];
        let mut sequence: Vec<NodeIndex> = Vec::new();
        let (sets, end) = self.place(&mut per_shape, &mut sequence);
        let failed = if let End::Full(shape) = end { shape } else { 0 };
        let rejections = if matches!(end, End::Full(_)) {
            self.placers[failed].rejections(self.state)
        } else {
            Vec::new()
        };
        let mut bounds = self.bounds(nodes_bound, sets, &end);
        bounds.extend(reserve.filter(|_| single).map(|pods| ("reserve".to_owned(), pods / of_set)));
        bounds.extend(attachable.map(|nodes| ("attachments".to_owned(), nodes)));
        if let Some(fragmentation) = &fragmentation {
            bounds.insert("aggregate".to_owned(), fragmentation.aggregate / of_set);
        }
        let (stop, message, binding) = match &end {
            End::Full(_) => {
                (StopReason::Unschedulable, fit_error(self.cluster, &rejections), "nodes".to_owned())
            }
            End::Reserve => {
                let why = Reserve::new(self.cluster, self.state, &self.ask.reserve).why();
                (StopReason::Unschedulable, why, "reserve".to_owned())
            }
            End::Limit => (StopReason::LimitReached, "LimitReached".to_owned(), "limit".to_owned()),
            End::Cancelled => (StopReason::Cancelled, "the caller went away".to_owned(), String::new()),
            End::Bound(name) => {
                let (stop, message) = match self.prepared.refusal() {
                    Some(refusal) => (stopped_by(refusal.by), refusal.why.clone()),
                    None => (StopReason::QuotaExceeded, self.quota_message(name, sets)),
                };
                (stop, message, name.clone())
            }
        };
        let all: Vec<u64> =
            (0..nodes).map(|node| per_shape.iter().map(|counts| counts[node]).sum()).collect();
        let per_node = self.by_name(&all);
        let shapes = (!single).then(|| self.shapes(&per_shape, failed, &message));
        let pre_filter_msg = rejections.iter().flatten().find_map(|rejection| match rejection {
            Rejection::Pod(text) => Some(text.clone()),
            _ => None,
        });
        let admitted = || self.prepared.admitted.iter();
        let placings = all.iter().sum::<u64>();
        if sequence.len() == MOST_TOLD && placings > MOST_TOLD as u64 {
            untold = Some(format!("the nodes of the first {MOST_TOLD} of {placings} placings are told"));
        }
        let answer = CapacityAnswer {
            count: sets,
            per_node,
            sequence: (self.ask.steps == Steps::All)
                .then(|| sequence.iter().map(|node| self.name(*node)).collect()),
            stop,
            message,
            pre_filter_msg: pre_filter_msg.unwrap_or_default(),
            bounds,
            binding,
            nodes: self.node_answers(&rejections),
            steps,
            placed: None::<Vec<PlacedPod>>,
            shapes,
            fragmentation,
            help: Vec::new(),
            notes: self.notes().into_iter().chain(untold).collect(),
            changes: admitted().flat_map(|admitted| admitted.changes.clone()).collect(),
        };
        Ok(Counted { answer, failed, rejections })
    }

    /// How many of the first shape are let in at most.
    pub(super) fn let_in(&self) -> usize {
        let sets = self.prepared.let_in(self.ask).map(|(sets, _)| sets).into_iter().chain(self.ask.max).min();
        let pods = sets.map(|sets| sets.saturating_mul(self.ask.shapes[0].wanted.max(1)));
        pods.and_then(|pods| usize::try_from(pods).ok()).unwrap_or(usize::MAX)
    }

    /// How many the nodes hold, where a closed form tells.
    fn nodes_bound(&mut self) -> Result<Option<u64>, AskError> {
        let closed = self.placers[0].closed(self.state);
        let endless = closed.as_ref().is_some_and(|closed| closed.count > 1 << 40);
        if endless && self.ask.max.is_none() && self.prepared.let_in(self.ask).is_none() {
            return Err(AskError::Endless(self.ask.shapes[0].pod.metadata.name.clone()));
        }
        Ok(closed.map(|closed| closed.count))
    }

    /// What the count does not show.
    fn notes(&self) -> Vec<String> {
        let of = |admitted: &Admitted| {
            admitted.notes.iter().cloned().chain(gated(&admitted.pod)).collect::<Vec<_>>()
        };
        self.prepared.admitted.iter().flat_map(of).collect()
    }

    /// Fills the nodes at once: where no bound comes before they are full and nobody asks for the order, it makes no difference.
    fn fill(&mut self, per_shape: &mut [Vec<u64>]) -> Option<(u64, End)> {
        let [Shape { wanted, .. }] = self.ask.shapes[..] else { return None };
        if wanted == 0 || self.ask.steps == Steps::All || !self.ask.reserve.is_empty() {
            return None;
        }
        let closed = self.placers[0].closed(self.state)?;
        let sets = closed.count / wanted;
        let let_in = self.prepared.let_in(self.ask).map(|(bound, _)| bound);
        if let_in.into_iter().chain(self.ask.max).any(|bound| bound <= sets) {
            return None;
        }
        for (node, count) in closed.per_node?.into_iter().enumerate() {
            self.placers[0].place_many(self.state, node, count);
            per_shape[0][node] = count;
        }
        let goes_on = (self.going)(closed.count);
        Some(if goes_on { (sets, End::Full(0)) } else { (sets, End::Cancelled) })
    }

    fn place(&mut self, per_shape: &mut [Vec<u64>], sequence: &mut Vec<NodeIndex>) -> (u64, End) {
        if let Some(filled) = self.fill(per_shape) {
            return filled;
        }
        let let_in = self.prepared.let_in(self.ask);
        let keep = self.ask.steps == Steps::All;
        let (mut sets, mut placed) = (0, 0_u64);
        let mut reserve = Reserve::new(self.cluster, self.state, &self.ask.reserve);
        loop {
            if let Some((bound, name)) = &let_in
                && sets >= *bound
            {
                return (sets, End::Bound(name.clone()));
            }
            if self.ask.max.is_some_and(|max| sets >= max) {
                return (sets, End::Limit);
            }
            for (shape, counts) in per_shape.iter_mut().enumerate() {
                for _ in 0..self.ask.shapes[shape].wanted {
                    let Some(node) = self.placers[shape].next(self.state) else {
                        return (sets, End::Full(shape));
                    };
                    if !reserve.allows(self.placers[shape].pod()) {
                        return (sets, End::Reserve);
                    }
                    self.placers[shape].place(self.state, node);
                    counts[node] += 1;
                    placed += 1;
                    if keep && sequence.len() < MOST_TOLD {
                        sequence.push(node);
                    }
                    if placed.is_multiple_of(BETWEEN_LOOKS) && !(self.going)(placed) {
                        return (sets, End::Cancelled);
                    }
                }
            }
            sets += 1;
        }
    }

    fn bounds(&self, nodes: Option<u64>, sets: u64, end: &End) -> BTreeMap<String, u64> {
        let mut bounds = BTreeMap::new();
        match (nodes, end) {
            (Some(nodes), _) => drop(bounds.insert("nodes".to_owned(), nodes)),
            (None, End::Full(_)) => drop(bounds.insert("nodes".to_owned(), sets)),
            // Only known by placing on, which nobody asked for.
            (None, _) => {}
        }
        bounds.extend(matches!(end, End::Reserve).then(|| ("reserve".to_owned(), sets)));
        bounds.extend(self.ask.max.map(|max| ("limit".to_owned(), max)));
        for admitted in &self.prepared.admitted {
            let namespace = admitted.pod.metadata.namespace_or_default();
            bounds.extend(admitted.refused.as_ref().map(|refusal| (refusal.bound(namespace), 0)));
        }
        let quotas = quota::sets(&self.prepared.counted(self.ask)).into_iter();
        bounds.extend(quotas.map(|(name, sets)| (format!("quota/{name}"), sets)));
        bounds
    }

    fn quota_message(&self, binding: &str, sets: u64) -> String {
        let name = binding.trim_start_matches("quota/");
        quota::refusal(name, &self.prepared.counted(self.ask), sets).unwrap_or_default()
    }
}
