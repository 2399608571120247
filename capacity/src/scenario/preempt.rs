//! How many fit at a priority, others being displaced (`preemption.go`).

use std::cmp::Reverse;
use std::sync::Arc;

use serde::Serialize;

use crate::admission::{Charge, QuotaBound, quota};
use crate::answer::Reserve;
use crate::cluster::{Cluster, NodeIndex, Pod};
use crate::engine::step::Placer;
use crate::object::ResourceList;
use crate::plugin::Code;
use crate::profile::Profiles;
use crate::state::{PodId, State};

/// The answer with displacing.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preemption {
    /// How many fit in all.
    pub count: u64,
    /// How many of them without displacing anybody.
    pub without: u64,
    /// Who is displaced, in order.
    pub victims: Vec<Victim>,
}

/// A displaced pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Victim {
    /// Namespace and name; a clone of the asked pod never is one.
    pub pod: String,
    /// Where it was.
    pub node: String,
    /// Its priority.
    pub priority: i32,
    /// Displacing it breaks a disruption budget.
    pub breaks_budget: bool,
}

/// Pods on one node that would go, and what the choice among nodes goes by.
struct Candidate {
    node: NodeIndex,
    /// Placements, by index.
    victims: Vec<usize>,
    broken: usize,
    highest: i32,
    sum: i64,
    /// Latest start among those of the highest priority.
    latest: String,
}

/// One placement with its name and start, kept beside the state.
#[derive(Clone)]
struct Named {
    pod: String,
    started: String,
    charge: Arc<Charge>,
}

/// What bounds the count besides nodes. Displaced pods give back what they took of it.
#[derive(Debug, Clone, Default)]
pub struct Room {
    /// As many as are asked for.
    pub max: Option<u64>,
    /// What each quota says of the pod.
    pub quotas: Vec<QuotaBound>,
    /// What must stay free over all nodes.
    pub reserve: ResourceList,
}

impl Room {
    fn has_one_more(&self, placed: u64) -> bool {
        self.max.is_none_or(|max| placed < max) && quota::admit_one_more(&self.quotas, placed)
    }
}

/// Places as many as fit, displacing pods of lower priority where that is needed.
pub fn preempt(
    cluster: &Cluster,
    profiles: &Profiles,
    state: &State,
    pod: &Arc<Pod>,
    mut room: Room,
    going: &mut dyn FnMut(u64) -> bool,
) -> Preemption {
    let mut reserve = Reserve::new(cluster, state, &room.reserve);
    let profile = profiles.of(cluster.word(pod.scheduler));
    let mut state = state.clone();
    let mut names: Vec<Option<Named>> = cluster
        .placed
        .iter()
        .map(|placed| {
            let pod = format!("{}/{}", cluster.word(placed.pod.namespace), cluster.word(placed.name));
            let charge = Arc::clone(&placed.charge);
            Some(Named { pod, started: cluster.word(placed.started).to_owned(), charge })
        })
        .collect();
    names.resize(state.placements.len(), None);
    let mut placer = Placer::new(cluster, profile, &mut state, Arc::clone(pod));
    let mut answer = Preemption { count: 0, without: 0, victims: Vec::new() };
    let mut left: Vec<i64> =
        cluster.budgets.iter().map(|(budget, _)| budget.status.disruptions_allowed).collect();
    while room.has_one_more(answer.count) && going(answer.count) {
        if let Some(node) = placer.next(&state) {
            if !reserve.allows(pod) {
                break;
            }
            placer.place(&mut state, node);
            names.push(None);
            answer.count += 1;
            if answer.victims.is_empty() {
                answer.without += 1;
            }
            continue;
        }
        let resolvable: Vec<NodeIndex> = placer
            .rejections(&state)
            .iter()
            .enumerate()
            .filter(|(_, rejection)| rejection.as_ref().is_some_and(|r| r.code() == Code::Unschedulable))
            .map(|(node, _)| node)
            .collect();
        let mut scratch = state.clone();
        let on_node = by_node(cluster, &state, pod.priority);
        let look =
            Look { cluster, profiles, placer: &placer, state: &state, names: &names, pod, left: &left };
        let candidates =
            resolvable.into_iter().filter_map(|node| look.candidate(&mut scratch, node, &on_node[node]));
        let best = candidates
            .min_by_key(|c| (c.broken, c.highest, c.sum, c.victims.len(), Reverse(c.latest.clone()), c.node));
        let Some(best) = best.filter(|_| pod.preempts) else { break };
        let mut victims = best.victims;
        victims.sort_unstable();
        victims.iter().for_each(|at| reserve.give_back(state.pod(state.placements[*at].0)));
        if !reserve.allows(pod) {
            break;
        }
        for at in victims.into_iter().rev() {
            let (id, node) = state.remove(at);
            let named = names.swap_remove(at);
            if let Some(named) = &named {
                quota::give_back(cluster, &mut room.quotas, &named.charge);
            }
            answer.victims.push(Victim {
                pod: named.map(|named| named.pod).unwrap_or_default(),
                node: cluster.word(cluster.nodes[node].name).to_owned(),
                priority: state.pod(id).priority,
                breaks_budget: disrupt(cluster, state.pod(id), &mut left),
            });
        }
        placer = Placer::new(cluster, profile, &mut state, Arc::clone(pod));
        placer.place(&mut state, best.node);
        names.push(None);
        answer.count += 1;
    }
    answer
}

/// Counts a pod's going against its disruption budgets; whether that is more than one of them allows.
fn disrupt(cluster: &Cluster, pod: &Pod, left: &mut [i64]) -> bool {
    let mut broken = false;
    for (at, _) in cluster.budgets_of(pod) {
        left[at] -= 1;
        broken |= left[at] < 0;
    }
    broken
}

/// Placements of lower priority, by node.
fn by_node(cluster: &Cluster, state: &State, priority: i32) -> Vec<Vec<(usize, PodId)>> {
    let mut nodes = vec![Vec::new(); cluster.nodes.len()];
    for (at, (id, node)) in state.placements.iter().enumerate() {
        if state.pod(*id).priority < priority {
            nodes[*node as usize].push((at, *id));
        }
    }
    nodes
}

/// What a look at one node needs.
struct Look<'a> {
    cluster: &'a Cluster,
    profiles: &'a Profiles,
    placer: &'a Placer<'a>,
    state: &'a State,
    names: &'a [Option<Named>],
    pod: &'a Arc<Pod>,
    /// How many more pods each disruption budget lets go.
    left: &'a [i64],
}

impl Look<'_> {
    /// The fewest and least important pods whose going lets the pod onto a node.
    fn candidate(&self, scratch: &mut State, node: NodeIndex, lower: &Lower) -> Option<Candidate> {
        let Self { cluster, profiles, placer, state, names, pod, left } = *self;
        if lower.is_empty() {
            return None;
        }
        let mut lower = lower.to_vec();
        let started = |at: usize| names[at].as_ref().map_or("", |named| &named.started);
        // The more important, then the longer running first; each counts against its budgets in this order.
        lower.sort_by_key(|(at, id)| (Reverse(state.pod(*id).priority), started(*at)));
        let mut left = left.to_vec();
        let breaking: Vec<usize> = lower
            .iter()
            .filter(|(_, id)| disrupt(cluster, state.pod(*id), &mut left))
            .map(|(at, _)| *at)
            .collect();
        // Given back first: those whose going breaks a budget.
        lower.sort_by_key(|(at, _)| !breaking.contains(at));
        let victims = if placer.fits_by_amounts(state, node).is_some() {
            by_amounts(placer, scratch, node, &lower)?
        } else {
            by_rules(cluster, profiles, state, pod, node, &lower)?
        };
        let priorities = || victims.iter().map(|(_, id)| state.pod(*id).priority);
        let highest = priorities().max()?;
        let latest = victims
            .iter()
            .filter(|(_, id)| state.pod(*id).priority == highest)
            .map(|(at, _)| started(*at))
            .min();
        Some(Candidate {
            node,
            broken: victims.iter().filter(|(at, _)| breaking.contains(at)).count(),
            highest,
            sum: priorities().map(|priority| i64::from(priority) + (1 << 31)).sum(),
            latest: latest.unwrap_or("").to_owned(),
            victims: victims.into_iter().map(|(at, _)| at).collect(),
        })
    }
}

type Lower = [(usize, PodId)];

/// Where amounts alone matter: everybody goes, then all come back who still fit beside the pod.
fn by_amounts(
    placer: &Placer<'_>,
    scratch: &mut State,
    node: NodeIndex,
    lower: &Lower,
) -> Option<Vec<(usize, PodId)>> {
    lower.iter().for_each(|(_, id)| scratch.lift(*id, node, false));
    let mut victims = Vec::new();
    let possible = placer.fits_by_amounts(scratch, node) == Some(true);
    for (at, id) in lower {
        scratch.lift(*id, node, true);
        if possible && placer.fits_by_amounts(scratch, node) != Some(true) {
            scratch.lift(*id, node, false);
            victims.push((*at, *id));
        }
    }
    victims.iter().for_each(|(_, id)| scratch.lift(*id, node, true));
    possible.then_some(victims)
}

/// The same where spread, affinity or volumes matter: they are prepared anew for every try.
fn by_rules(
    cluster: &Cluster,
    profiles: &Profiles,
    state: &State,
    pod: &Arc<Pod>,
    node: NodeIndex,
    lower: &Lower,
) -> Option<Vec<(usize, PodId)>> {
    let mut scratch = state.clone();
    let mut indices: Vec<usize> = lower.iter().map(|(at, _)| *at).collect();
    indices.sort_unstable();
    for at in indices.into_iter().rev() {
        scratch.remove(at);
    }
    let profile = profiles.of(cluster.word(pod.scheduler));
    let fits = |scratch: &mut State| {
        let mut placer = Placer::new(cluster, profile, scratch, Arc::clone(pod));
        placer.rejections(scratch)[node].is_none()
    };
    if !fits(&mut scratch) {
        return None;
    }
    let mut victims = Vec::new();
    for (at, id) in lower {
        scratch.place(*id, node);
        if !fits(&mut scratch) {
            scratch.remove(scratch.placements.len() - 1);
            victims.push((*at, *id));
        }
    }
    Some(victims)
}
