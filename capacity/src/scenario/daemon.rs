//! A daemon that changes: does it still fit on every node it belongs to?

use std::sync::Arc;

use serde::Serialize;

use crate::cluster::{Cluster, Pod};
use crate::engine::step::Placer;
use crate::profile::Profiles;
use crate::state::State;

/// Taints the daemon set controller lets its pods bear.
const BORNE: [&str; 6] = [
    "node.kubernetes.io/not-ready",
    "node.kubernetes.io/unreachable",
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
];

/// Where a daemon fits.
#[derive(Debug, Clone, Serialize)]
pub struct DaemonAnswer {
    /// Nodes it belongs to.
    pub nodes: usize,
    /// Nodes it fits on, its present pod there being replaced.
    pub fits: usize,
    /// The others.
    pub refused: Vec<DaemonRefusal>,
}

/// A node the daemon does not fit on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DaemonRefusal {
    /// Node.
    pub node: String,
    /// The scheduler's words.
    pub reasons: Vec<String>,
}

/// Adds what the daemon set controller adds.
pub fn tolerations(pod: &mut crate::object::Pod) {
    for key in BORNE {
        let toleration = crate::object::Toleration {
            key: key.to_owned(),
            operator: "Exists".to_owned(),
            ..crate::object::Toleration::default()
        };
        pod.spec.tolerations.push(toleration);
    }
}

/// Asks every node, with the pods of the daemon set of this name taken off.
pub fn daemon(
    cluster: &Cluster,
    profiles: &Profiles,
    state: &State,
    pod: Arc<Pod>,
    name: &str,
) -> DaemonAnswer {
    let mut state = state.clone();
    let owner = cluster.symbols.find(&format!("DaemonSet/{name}"));
    let present = |at: &usize| {
        Some(cluster.placed[*at].owner) == owner && cluster.placed[*at].pod.namespace == pod.namespace
    };
    let present: Vec<usize> = (0..cluster.placed.len()).filter(present).collect();
    for at in present.into_iter().rev() {
        state.remove(at);
    }
    let profile = profiles.of(cluster.word(pod.scheduler));
    let mut placer = Placer::new(cluster, profile, &mut state, pod);
    let belongs = placer.never_out(&state);
    let rejections = placer.rejections(&state);
    let refused: Vec<DaemonRefusal> = belongs
        .iter()
        .filter_map(|node| {
            let rejection = rejections[*node].as_ref()?;
            let node = cluster.word(cluster.nodes[*node].name).to_owned();
            Some(DaemonRefusal { node, reasons: rejection.reasons(cluster) })
        })
        .collect();
    DaemonAnswer { nodes: belongs.len(), fits: belongs.len() - refused.len(), refused }
}
