//! Defragmentation: a few moves that make room for more of a shape.
//!
//! A move is worth its while when the node it leaves gains room for one more and the node it goes to loses less. The
//! plan is made greedily, the cheapest gain first, and then counted by placing the shape: a plan that brings nothing is
//! not told.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::board::{Board, Move, PodMove};
use crate::cluster::{Cluster, NodeIndex, PodInfo};
use crate::engine::closed::room;
use crate::engine::step::Placer;
use crate::plugin::Cycle;
use crate::profile::{Profile, Profiles};
use crate::state::{ClusterState, PodId};

/// Most pods that leave one node for one more of the shape.
const TOGETHER: usize = 4;
/// Counts are followed no further than this.
const COUNTED: u64 = 1 << 20;

/// A plan of moves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Defragmentation {
    /// How many fit now.
    pub before: u64,
    /// How many fit after the moves.
    pub after: u64,
    /// The moves, each allowed when it is its turn; at most as many as asked for.
    pub moves: Vec<Move>,
}

/// Looks for at most `budget` moves after which more of a shape fit.
pub fn defrag(
    cluster: &Cluster,
    profiles: &Profiles,
    state: &ClusterState,
    pod: &Arc<PodInfo>,
    budget: usize,
    going: &mut dyn FnMut(u64) -> bool,
) -> Defragmentation {
    let profile = profiles.of(cluster.word(pod.scheduler));
    let mut board = Board::new(cluster, profiles, state);
    let shape = Shape { profile, id: board.state.learn(Arc::clone(pod)) };
    let before = count(cluster, profile, state, pod);
    let mut steps: Vec<PodMove> = Vec::new();
    while steps.len() < budget && going(steps.len() as u64) {
        let Some(more) = next(&mut board, &shape, budget - steps.len()) else { break };
        steps.extend(more);
    }
    let after = if steps.is_empty() { before } else { count(cluster, profile, &board.state, pod) };
    if after <= before {
        return Defragmentation { before, after: before, moves: Vec::new() };
    }
    Defragmentation { before, after, moves: board.tell(&steps) }
}

/// What room is made for.
struct Shape<'a> {
    profile: &'a Profile,
    id: PodId,
}

impl Shape<'_> {
    fn cycle(&self, board: &Board<'_>) -> Cycle {
        Cycle::new(board.cluster, self.profile, &board.state, self.id)
    }

    fn room(&self, cluster: &Cluster, state: &ClusterState, cycle: &Cycle, node: NodeIndex) -> i64 {
        let room = room(cluster, self.profile, state, cycle, node, false);
        i64::try_from(room).unwrap_or(i64::MAX)
    }
}

fn count(cluster: &Cluster, profile: &Profile, state: &ClusterState, pod: &Arc<PodInfo>) -> u64 {
    let mut state = state.clone();
    let mut placer = Placer::new(cluster, profile, &mut state, Arc::clone(pod));
    match placer.closed(&state) {
        Some(closed) => closed.count,
        None => placer.run(&mut state, Some(COUNTED)).len() as u64,
    }
}

/// The next moves that bring a gain: those of the node where the fewest and smallest pods stand in the way.
fn next(board: &mut Board<'_>, shape: &Shape<'_>, budget: usize) -> Option<Vec<PodMove>> {
    let cycle = shape.cycle(board);
    let possible = |node: &NodeIndex| !board.state.excluded[*node] && cycle.fixed.out[*node].is_none();
    let mut sources: Vec<(usize, i64, NodeIndex, Vec<usize>)> = (0..board.cluster.nodes.len())
        .filter(possible)
        .filter_map(|node| {
            let (leaving, size) = in_the_way(board, shape, &cycle, node, budget.min(TOGETHER))?;
            Some((leaving.len(), size, node, leaving))
        })
        .collect();
    sources.sort();
    sources.into_iter().find_map(|(_, _, node, leaving)| make_room(board, shape, &cycle, node, &leaving))
}

/// The fewest pods of a node, of these the smallest, without which one more of the shape fits there; with their size in
/// thousandths of the node.
fn in_the_way(
    board: &Board<'_>,
    shape: &Shape<'_>,
    cycle: &Cycle,
    node: NodeIndex,
    most: usize,
) -> Option<(Vec<usize>, i64)> {
    let state = &board.state;
    let wanted = shape.room(board.cluster, state, cycle, node).saturating_add(1);
    let short: Vec<(usize, i64)> = cycle
        .pod
        .requests
        .plain
        .iter()
        .map(|(resource, amount)| {
            let free = state.allocatable[*resource][node].saturating_sub(state.requested[*resource][node]);
            (*resource, amount.saturating_mul(wanted).saturating_sub(free))
        })
        .filter(|(_, short)| *short > 0)
        .collect();
    // Where nothing is short it is another rule that keeps the shape away.
    if short.is_empty() {
        return None;
    }
    let gives = |who: usize, resource: usize| {
        let plain = &board.pod(who).requests.plain;
        plain.iter().find(|(known, _)| *known == resource).map_or(0, |(_, amount)| *amount)
    };
    let size = |who: usize| {
        let share = |(resource, amount): &(usize, i64)| {
            let all = i128::from(state.allocatable[*resource][node]).max(1);
            i64::try_from(i128::from(*amount) * 1000 / all).unwrap_or(i64::MAX)
        };
        board.pod(who).requests.plain.iter().map(share).max().unwrap_or(0)
    };
    let mut pods: Vec<(i64, usize)> = board.on_node[node]
        .iter()
        .copied()
        .filter(|who| board.is_movable(*who) && short.iter().any(|(resource, _)| gives(*who, *resource) > 0))
        .map(|who| (size(who), who))
        .collect();
    pods.sort_unstable();
    let alone = |who: usize| short.iter().all(|(resource, by)| gives(who, *resource) >= *by);
    if let Some((size, who)) = pods.iter().find(|(_, who)| alone(*who)) {
        return Some((vec![*who], *size));
    }
    // The largest together, until it is enough.
    let (mut left, mut leaving, mut sum) = (short.clone(), Vec::new(), 0_i64);
    for (size, who) in pods.into_iter().rev().take(most) {
        leaving.push(who);
        sum = sum.saturating_add(size);
        left.iter_mut().for_each(|(resource, by)| *by = by.saturating_sub(gives(who, *resource)));
        if left.iter().all(|(_, by)| *by <= 0) {
            return Some((leaving, sum));
        }
    }
    None
}

/// Moves the pods to where they cost the least room; `None`, and nothing moved, when more is lost than gained.
fn make_room(
    board: &mut Board<'_>,
    shape: &Shape<'_>,
    cycle: &Cycle,
    node: NodeIndex,
    leaving: &[usize],
) -> Option<Vec<PodMove>> {
    let cluster = board.cluster;
    let before = shape.room(cluster, &board.state, cycle, node);
    let (mut steps, mut lost): (Vec<PodMove>, i64) = (Vec::new(), 0);
    for who in leaving {
        let cost = |state: &ClusterState, pod: &PodInfo, to: NodeIndex| {
            let mut scratch = Loaded { state, pod, to };
            shape.room(cluster, state, cycle, to) - scratch.room(shape, cluster, cycle)
        };
        let costs = std::cell::Cell::new(0);
        let step = board.relocate(*who, |state, pod, offered| {
            let (to, least) =
                offered.iter().map(|to| (*to, cost(state, pod, *to))).min_by_key(|(_, cost)| *cost)?;
            costs.set(least);
            Some(to)
        });
        match step {
            Some(step) => steps.push(step),
            None => {
                board.undo(&steps);
                return None;
            }
        }
        lost += costs.get();
    }
    let gained = shape.room(cluster, &board.state, cycle, node) - before;
    if gained > lost {
        return Some(steps);
    }
    board.undo(&steps);
    None
}

/// A node as it would be with one pod more.
struct Loaded<'a> {
    state: &'a ClusterState,
    pod: &'a PodInfo,
    to: NodeIndex,
}

impl Loaded<'_> {
    /// Room for the shape then: by amounts alone, which is all a pod of another kind changes.
    fn room(&mut self, shape: &Shape<'_>, cluster: &Cluster, cycle: &Cycle) -> i64 {
        let now = shape.room(cluster, self.state, cycle, self.to);
        let pods = self.state.max_pods[self.to] - self.state.pods[self.to] - 1;
        let own = |resource: usize| {
            let plain = &self.pod.requests.plain;
            plain.iter().find(|(known, _)| *known == resource).map_or(0, |(_, amount)| *amount)
        };
        let by_amounts = cycle.pod.requests.plain.iter().map(|(resource, amount)| {
            let free = self.state.allocatable[*resource][self.to]
                .saturating_sub(self.state.requested[*resource][self.to])
                .saturating_sub(own(*resource));
            free / amount
        });
        by_amounts.chain([pods, now]).min().unwrap_or(0).max(0)
    }
}
