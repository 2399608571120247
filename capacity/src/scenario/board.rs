//! Pods of the snapshot moved from node to node, one at a time, so that each move is allowed when it is made.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::cluster::{Cluster, NodeIndex, PodInfo};
use crate::engine::step::Placer;
use crate::profile::{FitStrategy, Profiles, Score};
use crate::state::ClusterState;

/// A pod that goes to another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Move {
    /// Namespace and name.
    pub pod: String,
    /// Node it leaves.
    pub from: String,
    /// Node it goes to.
    pub to: String,
    /// Nobody makes it anew when it is evicted: whoever moves it must.
    pub bare: bool,
}

/// One move as numbers.
#[derive(Debug, Clone, Copy)]
pub(super) struct PodMove {
    /// The pod, by its place in the snapshot.
    pub who: usize,
    pub from: NodeIndex,
    pub to: NodeIndex,
}

/// The snapshot's pods and where they are now.
pub(super) struct Board<'a> {
    pub cluster: &'a Cluster,
    /// Profiles that fill nodes up instead of sparing them; the filters are the same.
    packing: Profiles,
    pub state: ClusterState,
    /// The pod of each placement; pods that are not the snapshot's come last and stay.
    who: Vec<usize>,
    /// The placement of each pod.
    place_of: Vec<usize>,
    pub on_node: Vec<Vec<usize>>,
}

impl<'a> Board<'a> {
    pub(super) fn new(cluster: &'a Cluster, profiles: &Profiles, state: &ClusterState) -> Self {
        let mut on_node = vec![Vec::new(); cluster.nodes.len()];
        let known = cluster.placed.len().min(state.placements.len());
        for (who, (_, node)) in state.placements[..known].iter().enumerate() {
            on_node[*node as usize].push(who);
        }
        let packing = profiles.map(|profile| {
            profile.fit = FitStrategy::MostAllocated;
            profile.scores = vec![(Score::NodeResourcesFit, 1)];
        });
        Self {
            cluster,
            packing,
            state: state.clone(),
            who: (0..state.placements.len()).collect(),
            place_of: (0..known).collect(),
            on_node,
        }
    }

    pub(super) fn pod(&self, who: usize) -> &Arc<PodInfo> {
        self.state.pod(self.state.placements[self.place_of[who]].0)
    }

    /// Whether a pod may be moved at all: it is no daemon's, and no disruption budget forbids it.
    pub(super) fn is_movable(&self, who: usize) -> bool {
        let pod = self.pod(who);
        let mut budgets = self.cluster.budgets_of(pod);
        !pod.daemon && !budgets.any(|(_, budget)| budget.status.disruptions_allowed <= 0)
    }

    /// Moves a pod to the best node that `choose` leaves, else leaves it where it is. Nodes that are excluded, and its
    /// own, are not offered.
    pub(super) fn relocate(
        &mut self,
        who: usize,
        choose: impl Fn(&ClusterState, &PodInfo, &[NodeIndex]) -> Option<NodeIndex>,
    ) -> Option<PodMove> {
        let (id, from) = self.lift(who);
        let pod = Arc::clone(self.state.pod(id));
        let profile = self.packing.of(self.cluster.word(pod.scheduler));
        let was = std::mem::replace(&mut self.state.excluded[from], true);
        let look = Placer::numbered(self.cluster, profile, &self.state, id).look(&self.state);
        self.state.excluded[from] = was;
        let mut offered: Vec<(i64, NodeIndex)> = look.scores.totals.into_iter().zip(look.feasible).collect();
        // The fullest first, then by name.
        offered.sort_by_key(|(score, node)| (std::cmp::Reverse(*score), *node));
        let offered: Vec<NodeIndex> = offered.into_iter().map(|(_, node)| node).collect();
        let to = choose(&self.state, &pod, &offered);
        self.put(who, id, to.unwrap_or(from));
        to.map(|to| PodMove { who, from, to })
    }

    /// Takes moves back, the last one first.
    pub(super) fn undo(&mut self, steps: &[PodMove]) {
        for step in steps.iter().rev() {
            let (id, _) = self.lift(step.who);
            self.put(step.who, id, step.from);
        }
    }

    fn lift(&mut self, who: usize) -> (u32, NodeIndex) {
        let place = self.place_of[who];
        let (id, node) = self.state.remove(place);
        self.who.swap_remove(place);
        // The last placement took the place of this one.
        if let Some(moved) = self.who.get(place).and_then(|moved| self.place_of.get_mut(*moved)) {
            *moved = place;
        }
        self.on_node[node].retain(|other| *other != who);
        (id, node)
    }

    fn put(&mut self, who: usize, id: u32, node: NodeIndex) {
        self.state.place(id, node);
        self.who.push(who);
        self.place_of[who] = self.who.len() - 1;
        self.on_node[node].push(who);
    }

    /// Moves as people read them.
    pub(super) fn tell(&self, steps: &[PodMove]) -> Vec<Move> {
        let node = |node: NodeIndex| self.cluster.word(self.cluster.nodes[node].name).to_owned();
        let one = |step: &PodMove| {
            let placed = &self.cluster.placed[step.who];
            let namespace = self.cluster.word(placed.pod.namespace);
            Move {
                pod: format!("{namespace}/{}", self.cluster.word(placed.name)),
                from: node(step.from),
                to: node(step.to),
                bare: placed.owner == self.cluster.known.empty,
            }
        };
        steps.iter().map(one).collect()
    }
}
