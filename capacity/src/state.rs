//! What is on each node while pods are placed: amounts by resource and node, and who was placed where.

use evenkeel_model::narrow::usize_to_u32;
use std::collections::HashMap;
use std::sync::Arc;

use crate::cluster::resources::{CPU, MEMORY};
use crate::cluster::{Cluster, HostPort, NodeIndex, NodeInfo, Placed, PodInfo};

/// Number of a pod (or of all clones of one shape) in a [`ClusterState`].
pub type PodId = u32;

/// Numbers of pods in one [`ClusterState`], which keeps each of them.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// By address, which stays theirs as long as the state keeps them.
    all: HashMap<usize, PodId>,
    last: Option<(usize, PodId)>,
}

impl Numbers {
    fn of(&mut self, pod: &Arc<PodInfo>, state: &mut ClusterState) -> PodId {
        // Pods of one template follow each other.
        let of = Arc::as_ptr(pod).addr();
        let id = match self.last {
            Some((before, id)) if before == of => id,
            _ => *self.all.entry(of).or_insert_with(|| state.learn(Arc::clone(pod))),
        };
        self.last = Some((of, id));
        id
    }
}

/// Nodes and what is on them. Cloned to try something.
#[derive(Debug, Clone)]
pub struct ClusterState {
    /// What pods may request, by resource, then node.
    pub allocatable: Vec<Vec<i64>>,
    /// What they request.
    pub requested: Vec<Vec<i64>>,
    /// CPU and memory they request as the scores count it.
    pub scored: [Vec<i64>; 2],
    /// Pods.
    pub pods: Vec<i64>,
    /// Most pods.
    pub max_pods: Vec<i64>,
    /// Host ports in use; empty where nobody uses any.
    pub ports: Vec<Vec<HostPort>>,
    /// Pods by number; those that ask for the same share one.
    pub known: Vec<Arc<PodInfo>>,
    /// Whether any of them is near or away from others.
    pub affine: bool,
    /// Who is where, in the order of placing.
    pub placements: Vec<(PodId, u32)>,
    /// Nodes that are left out of everything.
    pub excluded: Vec<bool>,
}

impl ClusterState {
    /// What a snapshot says.
    pub fn new(cluster: &Cluster) -> Self {
        match cluster.counted() {
            Some(counted) => {
                let mut state = counted.clone();
                state.make_room_for(cluster.resources.len());
                state
            }
            None => Self::count_all(cluster, &mut Numbers::default()),
        }
    }

    /// Counts every pod.
    pub(crate) fn count_all(cluster: &Cluster, numbers: &mut Numbers) -> Self {
        let nodes = cluster.nodes.len();
        let resources = cluster.resources.len();
        let mut state = Self {
            allocatable: vec![vec![0; nodes]; resources],
            requested: vec![vec![0; nodes]; resources],
            scored: [vec![0; nodes], vec![0; nodes]],
            pods: vec![0; nodes],
            max_pods: vec![0; nodes],
            ports: vec![Vec::new(); nodes],
            known: Vec::new(),
            affine: false,
            placements: Vec::with_capacity(cluster.placed.len()),
            excluded: vec![false; nodes],
        };
        for (at, node) in cluster.nodes.iter().enumerate() {
            state.offers(at, node);
        }
        for placed in cluster.placed.iter() {
            let placement = state.enter(numbers, placed);
            state.placements.push(placement);
        }
        state
    }

    /// Counts a pod, which is not among the placements yet.
    pub(crate) fn enter(&mut self, numbers: &mut Numbers, placed: &Placed) -> (PodId, u32) {
        let id = numbers.of(&placed.pod, self);
        self.count(&placed.pod, placed.node, 1);
        self.ports[placed.node].extend(&placed.pod.ports);
        (id, usize_to_u32(placed.node))
    }

    /// Counts the pod of a placement no more; the placement stays.
    pub(crate) fn leave(&mut self, index: usize) {
        let (id, node) = self.placements[index];
        self.lift(id, node as usize, false);
    }

    /// What a node offers.
    pub(crate) fn offers(&mut self, at: NodeIndex, node: &NodeInfo) {
        self.allocatable.iter_mut().for_each(|of| of[at] = 0);
        self.max_pods[at] = node.max_pods;
        for (resource, amount) in &node.allocatable {
            self.make_room_for(resource + 1);
            self.allocatable[*resource][at] = *amount;
        }
    }

    /// Room for so many resources at least.
    fn make_room_for(&mut self, resources: usize) {
        let nodes = self.pods.len();
        while self.requested.len() < resources {
            self.requested.push(vec![0; nodes]);
            self.allocatable.push(vec![0; nodes]);
        }
    }

    /// Numbers a pod.
    pub fn learn(&mut self, pod: Arc<PodInfo>) -> PodId {
        let most = pod.requests.plain.iter().map(|(resource, _)| resource + 1).max().unwrap_or(0);
        self.make_room_for(most);
        self.affine |= pod.is_affine();
        self.known.push(pod);
        // As many pods as 32 bits count do not fit into memory.
        u32::try_from(self.known.len() - 1).unwrap_or(u32::MAX)
    }

    /// The pod of a number.
    pub fn pod(&self, id: PodId) -> &Arc<PodInfo> {
        &self.known[id as usize]
    }

    /// Puts a pod on a node.
    pub fn place(&mut self, id: PodId, node: NodeIndex) {
        self.place_many(id, node, 1);
    }

    /// Puts so many of a pod on a node.
    pub fn place_many(&mut self, id: PodId, node: NodeIndex, count: u64) {
        let on = usize_to_u32(node);
        self.placements.extend((0..count).map(|_| (id, on)));
        let pod = Arc::clone(&self.known[id as usize]);
        self.count(&pod, node, i64::try_from(count).unwrap_or(i64::MAX));
        if !pod.ports.is_empty() {
            (0..count).for_each(|_| self.ports[node].extend(&pod.ports));
        }
    }

    /// Takes a pod's amounts and ports off a node (or puts them back) without touching the list of placements: to try
    /// something that is undone at once.
    pub(crate) fn lift(&mut self, id: PodId, node: NodeIndex, back: bool) {
        let pod = Arc::clone(&self.known[id as usize]);
        self.count(&pod, node, if back { 1 } else { -1 });
        if back {
            self.ports[node].extend(&pod.ports);
        } else {
            self.release_ports(&pod, node);
        }
    }

    fn release_ports(&mut self, pod: &PodInfo, node: NodeIndex) {
        for port in &pod.ports {
            if let Some(at) = self.ports[node].iter().position(|used| used == port) {
                self.ports[node].swap_remove(at);
            }
        }
    }

    /// Takes the placement at this index off its node; the order of the others may change.
    pub fn remove(&mut self, index: usize) -> (PodId, NodeIndex) {
        let (id, node) = self.placements.swap_remove(index);
        let node = node as usize;
        let pod = Arc::clone(&self.known[id as usize]);
        self.count(&pod, node, -1);
        self.release_ports(&pod, node);
        (id, node)
    }

    #[inline]
    fn count(&mut self, pod: &PodInfo, node: NodeIndex, times: i64) {
        let add = |slot: &mut i64, amount: i64| *slot = slot.saturating_add(times.saturating_mul(amount));
        for (resource, amount) in &pod.requests.plain {
            add(&mut self.requested[*resource][node], *amount);
        }
        add(&mut self.scored[CPU][node], pod.requests.scored[CPU]);
        add(&mut self.scored[MEMORY][node], pod.requests.scored[MEMORY]);
        add(&mut self.pods[node], 1);
    }
}
