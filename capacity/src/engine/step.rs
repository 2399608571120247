//! The step loop: pods of one or more shapes placed one after the other, each where the scheduler would put it.

use std::sync::Arc;

use super::closed::{self, Closed};
use super::ranked::{Ranked, serves};
use crate::cluster::resources::ResourceIndex;
use crate::cluster::{Cluster, NodeIndex, PodInfo};
use crate::extender;
use crate::plugin::{Cycle, Rejection, Scores};
use crate::profile::Profile;
use crate::state::{ClusterState, PodId};

/// Placings between two looks at whether whoever asked is still there.
pub(crate) const BETWEEN_LOOKS: u64 = 256;

/// What one placing looks like.
#[derive(Debug, Clone)]
pub struct PlacementStep {
    /// Nodes that would take the pod.
    pub feasible: Vec<NodeIndex>,
    /// Their scores.
    pub scores: Scores,
    /// Nodes with the highest total; the first has the smallest name.
    pub best: Vec<NodeIndex>,
}

/// Places pods of one shape. Several may take turns on one state.
#[derive(Debug)]
pub struct Placer<'a> {
    cluster: &'a Cluster,
    profile: &'a Profile,
    cycle: Cycle,
    id: PodId,
    seen: usize,
    ranked: Option<Ranked>,
    /// Every node is asked anew for every pod: slow, and what the quick way must agree with.
    plain: bool,
    /// Ties fall by chance from here on; `None` = to the smallest name.
    chance: Option<u64>,
}

impl<'a> Placer<'a> {
    /// Prepares a shape.
    pub fn new(
        cluster: &'a Cluster,
        profile: &'a Profile,
        state: &mut ClusterState,
        pod: Arc<PodInfo>,
    ) -> Self {
        let id = state.learn(pod);
        Self::numbered(cluster, profile, state, id)
    }

    /// Prepares a shape that has its number already.
    pub(crate) fn numbered(
        cluster: &'a Cluster,
        profile: &'a Profile,
        state: &ClusterState,
        id: PodId,
    ) -> Self {
        let cycle = Cycle::new(cluster, profile, state, id);
        Self {
            cluster,
            profile,
            cycle,
            id,
            seen: state.placements.len(),
            ranked: None,
            plain: false,
            chance: None,
        }
    }

    /// The same, asking every node anew for every pod.
    #[must_use]
    pub fn plain(mut self) -> Self {
        self.plain = true;
        self
    }

    /// The same, ties falling by chance: the same seed gives the same answer.
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        self.chance = Some(seed);
        self
    }

    /// The shape.
    pub fn pod(&self) -> &Arc<PodInfo> {
        &self.cycle.pod
    }

    /// What nodes must have free for it.
    pub(crate) fn needs(&self) -> Box<[(ResourceIndex, i64)]> {
        self.cycle.needs.clone()
    }

    /// The profile it is placed by.
    pub fn profile(&self) -> &'a Profile {
        self.profile
    }

    /// Nodes that no fixed rule keeps it from: cordon, name, taints, node affinity.
    pub fn never_out(&self, state: &ClusterState) -> Vec<NodeIndex> {
        let refused = self.cycle.refused.is_some();
        let out =
            |node: &NodeIndex| refused || state.excluded[*node] || self.cycle.fixed.out[*node].is_some();
        (0..self.cluster.nodes.len()).filter(|node| !out(node)).collect()
    }

    /// Nodes that can attach its volumes (and that no fixed rule keeps it from); `None` when it has none.
    pub fn attachable(&self, state: &ClusterState) -> Option<u64> {
        let rules = self.cycle.volumes.as_ref()?;
        let nodes = self.never_out(state).into_iter().filter(|node| rules.attaches(self.cluster, *node));
        Some(nodes.count() as u64)
    }

    /// Takes in what others placed meanwhile.
    fn catch_up(&mut self, state: &ClusterState) {
        while let Some((id, node)) = state.placements.get(self.seen).copied() {
            self.seen += 1;
            if self.cycle.minds_others() {
                self.cycle.note(self.cluster, state, id, node as usize);
                self.ranked = None;
            }
        }
        if let Some(ranked) = &mut self.ranked {
            ranked.catch_up(self.cluster, self.profile, state, &self.cycle);
        }
    }

    /// How many more fit, by a closed form; `None` where none applies.
    pub fn closed(&mut self, state: &ClusterState) -> Option<Closed> {
        self.catch_up(state);
        closed::count(self.cluster, self.profile, state, &self.cycle)
    }

    /// Where the next one goes; `None` when no node takes it.
    pub fn next(&mut self, state: &ClusterState) -> Option<NodeIndex> {
        self.catch_up(state);
        if let Some(chance) = &mut self.chance {
            let draw = split_mix(chance);
            let best = self.look(state).best;
            return best.get(usize::try_from(draw % (best.len().max(1) as u64)).unwrap_or(0)).copied();
        }
        if self.plain || !self.profile.own_scores.is_empty() || !serves(&self.cycle) {
            return self.look(state).best.first().copied();
        }
        let ranked =
            self.ranked.get_or_insert_with(|| Ranked::new(self.cluster, self.profile, state, &self.cycle));
        ranked.best()
    }

    /// Looks at every node.
    pub fn look(&mut self, state: &ClusterState) -> PlacementStep {
        self.catch_up(state);
        let mut feasible = self.cycle.feasible(self.cluster, self.profile, state);
        if self.cycle.extended {
            extender::filter(self.profile, self.cluster, &self.cycle.pod, &mut feasible);
        }
        let mut scores = self.cycle.scores(self.cluster, self.profile, state, &feasible);
        if self.cycle.extended && feasible.len() > 1 {
            extender::prioritize(self.profile, self.cluster, &self.cycle.pod, &feasible, &mut scores);
        }
        let most = scores.totals.iter().max();
        let best = feasible.iter().zip(&scores.totals).filter(|(_, total)| Some(*total) == most);
        let best = best.map(|(node, _)| *node).collect();
        PlacementStep { feasible, scores, best }
    }

    /// Puts one on a node.
    pub fn place(&mut self, state: &mut ClusterState, node: NodeIndex) {
        self.catch_up(state);
        state.place(self.id, node);
        self.seen += 1;
        if self.cycle.minds_others() {
            self.cycle.note(self.cluster, state, self.id, node);
        }
        if let Some(ranked) = &mut self.ranked {
            ranked.placed(self.cluster, self.profile, state, &self.cycle, node);
            if !serves(&self.cycle) {
                self.ranked = None;
            }
        }
    }

    /// Puts as many on a node.
    pub(crate) fn place_many(&mut self, state: &mut ClusterState, node: NodeIndex, count: u64) {
        self.catch_up(state);
        self.ranked = None;
        state.place_many(self.id, node, count);
        self.seen = state.placements.len();
        if self.cycle.minds_others() {
            (0..count).for_each(|_| self.cycle.note(self.cluster, state, self.id, node));
        }
    }

    /// Why each node refuses it now, in the order of the nodes; `None` for one that does not.
    pub fn rejections(&mut self, state: &ClusterState) -> Vec<Option<Rejection>> {
        let mut rejections = self.rejections_of_plugins(state);
        if self.cycle.extended {
            let fits = |node: &NodeIndex| rejections[*node].is_none();
            let mut feasible: Vec<NodeIndex> = (0..self.cluster.nodes.len()).filter(fits).collect();
            for (node, why) in extender::filter(self.profile, self.cluster, &self.cycle.pod, &mut feasible) {
                rejections[node] = Some(why);
            }
        }
        rejections
    }

    /// The same without extenders.
    pub(crate) fn rejections_of_plugins(&mut self, state: &ClusterState) -> Vec<Option<Rejection>> {
        self.catch_up(state);
        self.cycle.refusals(self.cluster, self.profile, state)
    }

    /// Whether a node takes it, for a state whose amounts alone differ from what was seen so far; `None` when more than
    /// amounts matter to this shape.
    pub(crate) fn fits_by_amounts(&self, state: &ClusterState, node: NodeIndex) -> Option<bool> {
        let local = !self.cycle.minds_others();
        local.then(|| self.cycle.fits_but_spread(self.cluster, self.profile, state, node))
    }

    /// Places one after the other until `limit` are placed or none fits; the sequence of nodes.
    pub fn run(&mut self, state: &mut ClusterState, limit: Option<u64>) -> Vec<NodeIndex> {
        self.run_while(state, limit, &mut |_| true)
    }

    /// The same, given up as soon as `going` says that nobody waits any more; it is told how many are placed.
    pub fn run_while(
        &mut self,
        state: &mut ClusterState,
        limit: Option<u64>,
        going: &mut dyn FnMut(u64) -> bool,
    ) -> Vec<NodeIndex> {
        let mut sequence = Vec::new();
        while limit.is_none_or(|limit| (sequence.len() as u64) < limit) {
            let Some(node) = self.next(state) else { break };
            self.place(state, node);
            sequence.push(node);
            let placed = sequence.len() as u64;
            if placed.is_multiple_of(BETWEEN_LOOKS) && !going(placed) {
                break;
            }
        }
        sequence
    }
}

/// The next number of a sequence that looks like chance (SplitMix64, Steele et al. 2014).
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
