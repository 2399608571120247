//! The plain step loop: every node is asked anew for every pod. Exact for every rule; its cost grows with the nodes.
//!
//! Other engines must agree with this one.

use std::sync::Arc;

use crate::cluster::{Cluster, NodeIndex, Pod};
use crate::plugin::{Cycle, Rejection, Scores};
use crate::profile::Profile;
use crate::state::{PodId, State};

/// Why no further pod was placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// No node takes it; why, node by node.
    Unschedulable(Vec<Rejection>),
    /// As many as were asked for.
    Limit,
}

/// What one placing looked like.
#[derive(Debug, Clone)]
pub struct Step {
    /// Nodes that would take the pod.
    pub feasible: Vec<NodeIndex>,
    /// Their scores.
    pub scores: Scores,
    /// Nodes with the highest total.
    pub best: Vec<NodeIndex>,
}

/// Places pods of one shape.
#[derive(Debug)]
pub struct Scan<'a> {
    cluster: &'a Cluster,
    profile: &'a Profile,
    cycle: Cycle,
    id: PodId,
}

impl<'a> Scan<'a> {
    /// Prepares a shape.
    pub fn new(cluster: &'a Cluster, profile: &'a Profile, state: &mut State, pod: Arc<Pod>) -> Self {
        let id = state.learn(pod);
        Self { cluster, profile, cycle: Cycle::new(cluster, profile, state, id), id }
    }

    /// Looks at every node.
    pub fn look(&self, state: &State) -> Step {
        let feasible = self.cycle.feasible(self.cluster, self.profile, state);
        let scores = self.cycle.scores(self.cluster, self.profile, state, &feasible);
        let most = scores.totals.iter().max();
        let best = feasible.iter().zip(&scores.totals).filter(|(_, total)| Some(*total) == most);
        let best = best.map(|(node, _)| *node).collect();
        Step { feasible, scores, best }
    }

    /// Puts one on a node.
    pub fn place(&mut self, state: &mut State, node: NodeIndex) {
        state.place(self.id, node);
        self.cycle.note(self.cluster, state, self.id, node);
    }

    /// Why each node refuses it now.
    pub fn rejections(&self, state: &State) -> Vec<Rejection> {
        let why = |node| self.cycle.refuses(self.cluster, self.profile, state, node);
        (0..self.cluster.nodes.len()).filter_map(why).collect()
    }

    /// Places up to `limit`; the smallest name wins a tie. Tells each step to `seen`.
    pub fn run(
        &mut self,
        state: &mut State,
        limit: Option<u64>,
        mut seen: impl FnMut(&Step),
    ) -> (Vec<NodeIndex>, End) {
        let mut sequence = Vec::new();
        loop {
            if limit.is_some_and(|limit| sequence.len() as u64 >= limit) {
                return (sequence, End::Limit);
            }
            let step = self.look(state);
            seen(&step);
            let Some(best) = step.best.first().copied() else {
                return (sequence, End::Unschedulable(self.rejections(state)));
            };
            self.place(state, best);
            sequence.push(best);
        }
    }
}
