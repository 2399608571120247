//! What must stay free over all nodes together, watched while pods are placed and displaced.

use crate::cluster::resources::{ResourceIndex, amount};
use crate::cluster::{Cluster, PodInfo};
use crate::object::ResourceList;
use crate::state::ClusterState;

/// What must stay free, and what is.
#[derive(Debug, Clone, Default)]
pub(crate) struct Reserve {
    /// Resource, free over all nodes now, least that must stay.
    watched: Vec<(ResourceIndex, i64, i64)>,
    text: String,
}

impl Reserve {
    /// These amounts over the nodes that are not left out.
    pub(crate) fn new(cluster: &Cluster, state: &ClusterState, reserve: &ResourceList) -> Self {
        let watched = reserve.iter().filter_map(|(name, quantity)| {
            let resource = cluster.resources.find(name, &cluster.symbols)?;
            let nodes = (0..cluster.nodes.len()).filter(|node| !state.excluded[*node]);
            Some((resource, free(state, resource, nodes), amount(name, *quantity)))
        });
        let parts: Vec<String> =
            reserve.iter().map(|(name, amount)| format!("{name}={}", amount.canonical())).collect();
        Self { watched: watched.collect(), text: parts.join(", ") }
    }

    /// Takes a pod's requests off when that leaves enough.
    pub(crate) fn allows(&mut self, pod: &PodInfo) -> bool {
        let enough =
            self.watched.iter().all(|(resource, free, least)| *free - requested(pod, *resource) >= *least);
        if enough {
            self.watched.iter_mut().for_each(|(resource, free, _)| *free -= requested(pod, *resource));
        }
        enough
    }

    /// Adds the requests of a pod that has gone.
    pub(crate) fn give_back(&mut self, pod: &PodInfo) {
        for (resource, free, _) in &mut self.watched {
            *free = free.saturating_add(requested(pod, *resource));
        }
    }

    /// How many of a pod leave enough; nothing where it takes none of what is watched.
    pub(crate) fn room(&self, pod: &PodInfo) -> Option<u64> {
        let room = |(resource, free, least): &(ResourceIndex, i64, i64)| {
            let amount = Some(requested(pod, *resource)).filter(|amount| *amount > 0)?;
            u64::try_from((free - least).max(0) / amount).ok()
        };
        self.watched.iter().filter_map(room).min()
    }

    /// Whether enough is free.
    pub(crate) fn holds(&self) -> bool {
        self.watched.iter().all(|(_, free, least)| free >= least)
    }

    /// Why no more is placed.
    pub(crate) fn why(&self) -> String {
        format!("what must stay free ({}) would be used", self.text)
    }
}

fn requested(pod: &PodInfo, resource: ResourceIndex) -> i64 {
    pod.requests.plain.iter().find(|(known, _)| *known == resource).map_or(0, |(_, n)| *n)
}

fn free(state: &ClusterState, resource: ResourceIndex, nodes: impl Iterator<Item = usize>) -> i64 {
    nodes.fold(0_i64, |sum, node| {
        let free = state.allocatable[resource][node].saturating_sub(state.requested[resource][node]);
        sum.saturating_add(free.max(0))
    })
}
