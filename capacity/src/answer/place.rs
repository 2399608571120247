//! Pods placed one by one, each as the scheduler would, in the order given.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::message::fit_error;
use crate::admission::{Charge, admit, create};
use crate::cluster::selector::SelectorError;
use crate::cluster::{Cluster, Placed, PodInfo, Uid};
use crate::engine::step::Placer;
use crate::object;
use crate::profile::Profiles;
use crate::state::ClusterState;

/// Where one pod went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacedPod {
    /// Name.
    pub pod: String,
    /// Node; nothing when it did not fit.
    pub node: Option<String>,
    /// Why it did not fit; else empty.
    pub message: String,
}

/// Makes pods in order, as their namespaces admit them, then places them in order. Pods that ask for the same share their
/// preparation.
///
/// # Errors
/// When a selector cannot be used; nothing was placed then.
pub fn place(
    cluster: &mut Cluster,
    profiles: &Profiles,
    state: &mut ClusterState,
    pods: &[object::Pod],
) -> Result<Vec<PlacedPod>, SelectorError> {
    let mut made: Vec<Result<Arc<PodInfo>, String>> = Vec::with_capacity(pods.len());
    for pod in pods {
        made.push(match create(cluster, profiles, pod) {
            Ok(pod) => Ok(Arc::new(cluster.shape(&pod)?)),
            Err(why) => Err(why),
        });
    }
    let cluster = &*cluster;
    let mut placers: HashMap<Arc<PodInfo>, Placer<'_>> = HashMap::new();
    let mut placed = Vec::with_capacity(pods.len());
    for (written, pod) in pods.iter().zip(made) {
        let name = written.metadata.name.clone();
        let pod = match pod {
            Ok(pod) => pod,
            Err(message) => {
                placed.push(PlacedPod { pod: name, node: None, message });
                continue;
            }
        };
        let profile = profiles.of(cluster.word(pod.scheduler));
        let placer =
            placers.entry(Arc::clone(&pod)).or_insert_with(|| Placer::new(cluster, profile, state, pod));
        let node = placer.next(state);
        let message = match node {
            Some(node) => {
                placer.place(state, node);
                String::new()
            }
            None => fit_error(cluster, &placer.rejections(state)),
        };
        let node = node.map(|node| cluster.word(cluster.nodes[node].name).to_owned());
        placed.push(PlacedPod { pod: name, node, message });
    }
    Ok(placed)
}

/// Takes pods that were placed since the state was made into the cluster, as if they had been in the snapshot: they are
/// named, displaced and moved like the others then.
pub fn settle(cluster: &mut Cluster, state: &ClusterState, pods: &[object::Pod], placed: &[PlacedPod]) {
    let before = cluster.placed.len();
    let on_nodes = pods.iter().zip(placed).filter(|(_, placed)| placed.node.is_some());
    for ((written, _), (id, node)) in on_nodes.zip(&state.placements[before..]) {
        let owner = written.metadata.controller().map(|owner| format!("{}/{}", owner.kind, owner.name));
        // What is made of a workload is made again by it.
        let owner = owner.or_else(|| written.own_group.as_ref().map(|_| written.metadata.name.clone()));
        let made = admit(cluster, written.clone()).pod;
        let Cluster { symbols, resources, placed, .. } = &mut *cluster;
        let pod = Arc::clone(state.pod(*id));
        Arc::make_mut(placed).push(Placed {
            charge: Arc::new(Charge::of(&made, &pod, resources, symbols)),
            pod,
            name: symbols.intern(&written.metadata.name),
            uid: Uid::parse(&written.metadata.uid),
            started: symbols.intern(""),
            owner: symbols.intern(&owner.unwrap_or_default()),
            node: *node as usize,
        });
    }
}
