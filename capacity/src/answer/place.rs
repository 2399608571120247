//! Pods placed one by one, each as the scheduler would, in the order given.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Serialize;

use super::message::fit_error;
use crate::cluster::selector::SelectorError;
use crate::cluster::{Cluster, Pod};
use crate::engine::step::Placer;
use crate::object;
use crate::profile::Profiles;
use crate::state::State;

/// Where one pod went.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PlacedPod {
    /// Name.
    pub pod: String,
    /// Node; nothing when it did not fit.
    pub node: Option<String>,
    /// Why it did not fit; else empty.
    pub message: String,
}

/// Places pods in order. Pods that ask for the same share their preparation.
///
/// # Errors
/// When a selector cannot be used; nothing was placed then.
pub fn place(
    cluster: &mut Cluster,
    profiles: &Profiles,
    state: &mut State,
    pods: &[object::Pod],
) -> Result<Vec<PlacedPod>, SelectorError> {
    let compiled: Vec<Arc<Pod>> =
        pods.iter().map(|pod| cluster.shape(pod).map(Arc::new)).collect::<Result<_, _>>()?;
    let cluster = &*cluster;
    let mut placers: HashMap<Arc<Pod>, Placer<'_>> = HashMap::new();
    let mut placed = Vec::with_capacity(pods.len());
    for (written, pod) in pods.iter().zip(compiled) {
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
        placed.push(PlacedPod { pod: written.metadata.name.clone(), node, message });
    }
    Ok(placed)
}
