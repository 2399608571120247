//! Compaction: how few nodes hold what is there. A bound nobody can beat, and a plan that was found.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::board::{Board, Move, PodMove};
use crate::answer::Reserve;
use crate::cluster::{Cluster, NodeIndex};
use crate::object::ResourceList;
use crate::profile::Profiles;
use crate::state::ClusterState;

/// Looks over all nodes that can still be emptied; later ones rarely find anything.
const PASSES: usize = 3;

/// How few nodes hold what is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Compaction {
    /// Nodes that hold pods which could be elsewhere.
    pub nodes: usize,
    /// How many are left with the plan.
    pub found: usize,
    /// No plan needs fewer: so many of the largest nodes are needed for the sum of all requests.
    pub bound: usize,
    /// Nodes the plan empties; only daemons and static pods are left there.
    pub emptied: Vec<String>,
    /// The moves, each allowed when it is its turn.
    pub moves: Vec<Move>,
}

/// Empties nodes one after the other, the least used first, as long as their pods find a place on nodes in use and
/// `reserve` stays free on those.
pub fn compact(
    cluster: &Cluster,
    profiles: &Profiles,
    state: &ClusterState,
    reserve: &ResourceList,
    going: &mut dyn FnMut(u64) -> bool,
) -> Compaction {
    let mut board = Board::new(cluster, profiles, state);
    let mut used: Vec<NodeIndex> = (0..cluster.nodes.len()).filter(|node| is_used(&board, *node)).collect();
    let nodes = used.len();
    let bound = bound(&board, &used);
    for node in (0..cluster.nodes.len()).filter(|node| !used.contains(node)) {
        board.state.excluded[node] = true;
    }
    let (mut emptied, mut steps) = (Vec::new(), Vec::new());
    for _ in 0..PASSES {
        used.sort_by_cached_key(|node| (load(&board, *node), *node));
        let before = used.len();
        for node in used.clone() {
            if used.len() <= bound || !going(steps.len() as u64) {
                break;
            }
            if let Some(moved) = empty(&mut board, node) {
                board.state.excluded[node] = true;
                if !reserve.is_empty() && !Reserve::new(cluster, &board.state, reserve).holds() {
                    board.state.excluded[node] = false;
                    board.undo(&moved);
                    continue;
                }
                used.retain(|other| *other != node);
                emptied.push(cluster.word(cluster.nodes[node].name).to_owned());
                steps.extend(moved);
            }
        }
        if used.len() == before {
            break;
        }
    }
    let steps = direct(&mut board, &steps, going).unwrap_or(steps);
    Compaction { nodes, found: used.len(), bound, emptied, moves: board.tell(&steps) }
}

/// The same end with one move for each pod, where each of these is allowed too when it is its turn.
fn direct(
    board: &mut Board<'_>,
    steps: &[PodMove],
    going: &mut dyn FnMut(u64) -> bool,
) -> Option<Vec<PodMove>> {
    let mut whole: Vec<PodMove> = Vec::new();
    let mut first: HashMap<usize, usize> = HashMap::new();
    for step in steps {
        match first.get(&step.who) {
            Some(at) => whole[*at].to = step.to,
            None => {
                first.insert(step.who, whole.len());
                whole.push(*step);
            }
        }
    }
    if whole.len() == steps.len() {
        return None;
    }
    board.undo(steps);
    let allowed = |(done, step): (usize, &PodMove)| {
        let only = |offered: &[NodeIndex]| offered.contains(&step.to).then_some(step.to);
        going(done as u64) && board.relocate(step.who, |_, _, offered| only(offered)).is_some()
    };
    whole.iter().enumerate().all(allowed).then_some(whole)
}

fn is_used(board: &Board<'_>, node: NodeIndex) -> bool {
    !board.state.excluded[node] && board.on_node[node].iter().any(|who| !board.pod(*who).daemon)
}

/// What of a node's CPU or memory its pods that could be elsewhere take, in thousandths: the larger share.
fn load(board: &Board<'_>, node: NodeIndex) -> i64 {
    let share = |resource: usize| {
        let taken = board.on_node[node].iter().map(|who| board.pod(*who)).filter(|pod| !pod.daemon);
        let taken = taken.flat_map(|pod| &pod.requests.plain).filter(|(known, _)| *known == resource);
        let taken: i128 = taken.map(|(_, amount)| i128::from(*amount)).sum();
        let all = i128::from(board.state.allocatable[resource][node]).max(1);
        i64::try_from(taken * 1000 / all).unwrap_or(i64::MAX)
    };
    share(crate::cluster::resources::CPU).max(share(crate::cluster::resources::MEMORY))
}

/// Moves every pod off a node that can be elsewhere; nothing is moved when one cannot.
fn empty(board: &mut Board<'_>, node: NodeIndex) -> Option<Vec<PodMove>> {
    let mut leaving: Vec<usize> =
        board.on_node[node].iter().copied().filter(|who| !board.pod(*who).daemon).collect();
    if !leaving.iter().all(|who| board.is_movable(*who)) {
        return None;
    }
    // The largest first: where they find no place the rest need not be tried.
    leaving.sort_by_cached_key(|who| {
        let requests = &board.pod(*who).requests;
        (std::cmp::Reverse(requests.scored[0]), std::cmp::Reverse(requests.scored[1]), *who)
    });
    let mut steps = Vec::with_capacity(leaving.len());
    for who in leaving {
        match board.relocate(who, |_, _, offered| offered.first().copied()) {
            Some(step) => steps.push(step),
            None => {
                board.undo(&steps);
                return None;
            }
        }
    }
    Some(steps)
}

/// For each resource, how many of the largest nodes it takes to hold what all pods that can be elsewhere ask for.
fn bound(board: &Board<'_>, used: &[NodeIndex]) -> usize {
    let state = &board.state;
    let movable = |node: NodeIndex, resource: usize| -> i128 {
        let pods = board.on_node[node].iter().map(|who| board.pod(*who)).filter(|pod| !pod.daemon);
        let requests = pods.flat_map(|pod| &pod.requests.plain).filter(|(known, _)| *known == resource);
        requests.map(|(_, amount)| i128::from(*amount)).sum()
    };
    let most = |room: &mut Vec<i128>, mut wanted: i128| {
        room.sort_unstable_by_key(|room| std::cmp::Reverse(*room));
        let enough = room.iter().take_while(|room| {
            let open = wanted > 0;
            wanted -= **room;
            open
        });
        enough.count()
    };
    let everywhere = || (0..state.pods.len()).filter(|node| !state.excluded[*node]);
    let by_resource = (0..state.requested.len()).map(|resource| {
        let wanted: i128 = used.iter().map(|node| movable(*node, resource)).sum();
        // What daemons take is taken on whichever node is kept; a node that holds more than it has counts as it is.
        let room = |node: NodeIndex| {
            let movable = movable(node, resource);
            let fixed = i128::from(state.requested[resource][node]) - movable;
            (i128::from(state.allocatable[resource][node]) - fixed).max(movable)
        };
        most(&mut everywhere().map(room).collect(), wanted)
    });
    let pods =
        |node: NodeIndex| board.on_node[node].iter().filter(|who| !board.pod(**who).daemon).count() as i128;
    let room = |node: NodeIndex| {
        (i128::from(state.max_pods[node]) - i128::from(state.pods[node]) + pods(node)).max(pods(node))
    };
    let by_pods = most(&mut everywhere().map(room).collect(), used.iter().map(|node| pods(*node)).sum());
    by_resource.max().unwrap_or(0).max(by_pods)
}
