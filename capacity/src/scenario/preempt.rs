//! How many fit at a priority, others being displaced (`preemption.go`).

use std::cmp::Reverse;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::admission::{Charge, QuotaBound, quota};
use crate::answer::Reserve;
use crate::cluster::{Cluster, NodeIndex, PodInfo};
use crate::engine::step::Placer;
use crate::extender::preempt::{self as extender, Identity, Proposal, Scene};
use crate::object::ResourceList;
use crate::plugin::{Code, PostFilterPlugin};
use crate::profile::Profiles;
use crate::state::{ClusterState, PodId};

/// The answer with displacing.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
struct PreemptionCandidate {
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
#[derive(Debug, Clone)]
struct NamedPlacement {
    who: Identity,
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
    state: &ClusterState,
    pod: &Arc<PodInfo>,
    mut room: Room,
    going: &mut dyn FnMut(u64) -> bool,
) -> Preemption {
    let mut reserve = Reserve::new(cluster, state, &room.reserve);
    let profile = profiles.of(cluster.word(pod.scheduler));
    let mut state = state.clone();
    let mut names: Vec<Option<NamedPlacement>> = cluster
        .placed
        .iter()
        .map(|placed| {
            let pod = format!("{}/{}", cluster.word(placed.pod.namespace), cluster.word(placed.name));
            let charge = Arc::clone(&placed.charge);
            let who = Identity { pod, uid: placed.uid };
            Some(NamedPlacement { who, started: cluster.word(placed.started).to_owned(), charge })
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
        let stuck = Stuck {
            cluster,
            state: &state,
            pod,
            nodes: &resolvable,
            profiles,
            placer: &placer,
            names: &names,
            left: &left,
        };
        let best = profile.post_filter.as_ref().filter(|_| pod.preempts).and_then(|p| p.nominate(&stuck));
        let Some(best) = best else { break };
        let mut victims = best.victims;
        victims.sort_unstable();
        victims.dedup();
        victims.retain(|at| *at < state.placements.len());
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
                pod: named.map(|named| named.who.pod).unwrap_or_default(),
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
fn disrupt(cluster: &Cluster, pod: &PodInfo, left: &mut [i64]) -> bool {
    let mut broken = false;
    for (at, _) in cluster.budgets_of(pod) {
        left[at] -= 1;
        broken |= left[at] < 0;
    }
    broken
}

/// Placements of lower priority, by node.
fn by_node(cluster: &Cluster, state: &ClusterState, priority: i32) -> Vec<Vec<(usize, PodId)>> {
    let mut nodes = vec![Vec::new(); cluster.nodes.len()];
    for (at, (id, node)) in state.placements.iter().enumerate() {
        if state.pod(*id).priority < priority {
            nodes[*node as usize].push((at, *id));
        }
    }
    nodes
}

/// A pod that no node takes, and what there is to do about it.
#[derive(Debug, Clone, Copy)]
pub struct Stuck<'a> {
    /// Nodes, and words.
    pub cluster: &'a Cluster,
    /// What is on the nodes.
    pub state: &'a ClusterState,
    /// The pod.
    pub pod: &'a Arc<PodInfo>,
    /// Nodes on which displacing pods could help.
    pub nodes: &'a [NodeIndex],
    profiles: &'a Profiles,
    placer: &'a Placer<'a>,
    names: &'a [Option<NamedPlacement>],
    /// How many more pods each disruption budget lets go.
    left: &'a [i64],
}

/// Where a pod goes once others have gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nomination {
    /// The node.
    pub node: NodeIndex,
    /// Who goes, by place among the state's placements.
    pub victims: Vec<usize>,
}

/// The scheduler's own post-filter: the fewest and least important pods make room.
#[derive(Debug, Clone, Copy)]
pub struct DefaultPreemption;

impl PostFilterPlugin for DefaultPreemption {
    fn name(&self) -> &'static str {
        "DefaultPreemption"
    }

    fn nominate(&self, stuck: &Stuck<'_>) -> Option<Nomination> {
        let mut scratch = stuck.state.clone();
        let on_node = by_node(stuck.cluster, stuck.state, stuck.pod.priority);
        let candidates =
            stuck.nodes.iter().filter_map(|node| stuck.candidate(&mut scratch, *node, &on_node[*node]));
        let best = stuck.judged(candidates.collect()).into_iter().min_by_key(|c| {
            (c.broken, c.highest, c.sum, c.victims.len(), Reverse(c.latest.clone()), c.node)
        })?;
        Some(Nomination { node: best.node, victims: best.victims })
    }
}

impl Stuck<'_> {
    /// Whether the pod fits a node once these of its placements have gone.
    pub fn fits_without(&self, node: NodeIndex, victims: &[usize]) -> bool {
        let mut scratch = self.state.clone();
        let mut victims = victims.to_vec();
        victims.sort_unstable();
        victims.dedup();
        for at in victims.into_iter().rev().filter(|at| *at < self.state.placements.len()) {
            scratch.remove(at);
        }
        fits(self.cluster, self.profiles, &mut scratch, self.pod, node)
    }

    /// The fewest and least important pods whose going lets the pod onto a node.
    fn candidate(
        &self,
        scratch: &mut ClusterState,
        node: NodeIndex,
        lower: &Lower,
    ) -> Option<PreemptionCandidate> {
        let Self { cluster, profiles, placer, state, names, pod, left, .. } = *self;
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
        let broken = victims.iter().filter(|(at, _)| breaking.contains(at)).count();
        self.weighed(Proposal { node, victims: victims.into_iter().map(|(at, _)| at).collect(), broken })
    }

    /// What the choice among nodes goes by; nothing where nobody goes.
    fn weighed(&self, proposal: Proposal) -> Option<PreemptionCandidate> {
        let Proposal { node, victims, broken } = proposal;
        let priority = |at: &usize| self.state.pod(self.state.placements[*at].0).priority;
        let highest = victims.iter().map(priority).max()?;
        let started = |at: &usize| self.names[*at].as_ref().map_or("", |named| &named.started);
        let latest = victims.iter().filter(|at| priority(at) == highest).map(started).min();
        let latest = latest.unwrap_or("").to_owned();
        let sum = victims.iter().map(|at| i64::from(priority(at)) + (1 << 31)).sum();
        Some(PreemptionCandidate { node, broken, highest, sum, latest, victims })
    }

    /// What extenders leave of the candidates.
    fn judged(&self, candidates: Vec<PreemptionCandidate>) -> Vec<PreemptionCandidate> {
        let extenders = &self.placer.profile().extenders;
        if extenders.is_empty() {
            return candidates;
        }
        let who = |at: usize| self.names.get(at)?.as_ref().map(|named| &named.who);
        let scene = Scene { cluster: self.cluster, state: self.state, pod: self.pod, who: &who };
        let proposal =
            |c: PreemptionCandidate| Proposal { node: c.node, victims: c.victims, broken: c.broken };
        let proposals = candidates.into_iter().map(proposal).collect();
        let left = extender::preempt(extenders.iter().map(Arc::as_ref), scene, proposals);
        left.into_iter().filter_map(|proposal| self.weighed(proposal)).collect()
    }
}

type Lower = [(usize, PodId)];

/// Where amounts alone matter: everybody goes, then all come back who still fit beside the pod.
fn by_amounts(
    placer: &Placer<'_>,
    scratch: &mut ClusterState,
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
    state: &ClusterState,
    pod: &Arc<PodInfo>,
    node: NodeIndex,
    lower: &Lower,
) -> Option<Vec<(usize, PodId)>> {
    let mut scratch = state.clone();
    let mut indices: Vec<usize> = lower.iter().map(|(at, _)| *at).collect();
    indices.sort_unstable();
    for at in indices.into_iter().rev() {
        scratch.remove(at);
    }
    let fits = |scratch: &mut ClusterState| fits(cluster, profiles, scratch, pod, node);
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

/// Whether a node takes the pod, every rule prepared anew.
fn fits(
    cluster: &Cluster,
    profiles: &Profiles,
    state: &mut ClusterState,
    pod: &Arc<PodInfo>,
    node: NodeIndex,
) -> bool {
    let profile = profiles.of(cluster.word(pod.scheduler));
    let mut placer = Placer::new(cluster, profile, state, Arc::clone(pod));
    placer.rejections_of_plugins(state)[node].is_none()
}
