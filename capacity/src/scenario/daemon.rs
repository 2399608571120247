//! A daemon that changes: does it still fit on every node it belongs to?

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::answer::Reserve;
use crate::cluster::{Cluster, PodInfo};
use crate::engine::step::Placer;
use crate::object::ResourceList;
use crate::profile::Profiles;
use crate::state::ClusterState;

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
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct DaemonAnswer {
    /// Nodes it belongs to.
    pub nodes: usize,
    /// Nodes it fits on, its present pod there being replaced.
    pub fits: usize,
    /// The others.
    pub refused: Vec<DaemonRefusal>,
}

/// A node the daemon does not fit on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// What bounds the pods of a daemon set besides its nodes.
pub struct DaemonBounds<'a> {
    /// How many more pods are let in beside those that are there, and why no more.
    pub let_in: Option<(u64, String)>,
    /// What must stay free over all nodes.
    pub reserve: &'a ResourceList,
}

/// Asks every node, with the pods of the daemon set of this name taken off.
pub fn daemon(
    cluster: &Cluster,
    profiles: &Profiles,
    state: &ClusterState,
    pod: Arc<PodInfo>,
    name: &str,
    bounds: DaemonBounds<'_>,
) -> DaemonAnswer {
    let DaemonBounds { let_in, reserve } = bounds;
    let mut state = state.clone();
    let owner = cluster.symbols.find(&format!("DaemonSet/{name}"));
    let present = |at: &usize| {
        Some(cluster.placed[*at].owner) == owner && cluster.placed[*at].pod.namespace == pod.namespace
    };
    let present: Vec<usize> = (0..cluster.placed.len()).filter(present).collect();
    let replaced = present.len() as u64;
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
    let mut refused = refused;
    let by_bound =
        let_in.map(|(pods, why)| (if replaced == 0 { pods } else { pods.saturating_add(replaced) }, why));
    let reserve = Reserve::new(cluster, &state, reserve);
    let by_reserve = reserve.room(placer.pod()).map(|pods| (pods, reserve.why()));
    if let Some((most, why)) = [by_bound, by_reserve].into_iter().flatten().min() {
        let out: Vec<usize> = belongs.iter().copied().filter(|node| rejections[*node].is_none()).collect();
        let name = |node: usize| cluster.word(cluster.nodes[node].name).to_owned();
        let beyond = out.into_iter().skip(usize::try_from(most).unwrap_or(usize::MAX));
        refused.extend(beyond.map(|node| DaemonRefusal { node: name(node), reasons: vec![why.clone()] }));
        refused.sort_by(|a, b| a.node.cmp(&b.node));
    }
    DaemonAnswer { nodes: belongs.len(), fits: belongs.len() - refused.len(), refused }
}
