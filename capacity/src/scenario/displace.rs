//! Nodes that go: which of their pods find another place, by priority, and which do not.

use evenkeel_model::narrow::usize_to_i64;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::answer::{Reserve, fit_error};
use crate::cluster::{Cluster, NodeIndex, PodInfo, Symbol};
use crate::engine::step::Placer;
use crate::object::ResourceList;
use crate::profile::Profiles;
use crate::state::ClusterState;

/// What became of the pods of nodes that go.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Displaced {
    /// The nodes.
    pub nodes: Vec<String>,
    /// Pods that had to move.
    pub pods: usize,
    /// How many of them found a place.
    pub placed: usize,
    /// Pods that go with their node: daemons and static pods.
    pub daemons: usize,
    /// Those that found none.
    pub failed: Vec<FailedPod>,
    /// Disruption budgets that would not allow it at once.
    pub budgets: Vec<String>,
}

/// A pod that found no place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedPod {
    /// Namespace and name.
    pub pod: String,
    /// Why.
    pub message: String,
}

/// Pods between two looks at whether whoever asked is still there.
const BETWEEN_LOOKS: usize = 64;

/// Takes nodes away and places their pods elsewhere, the highest priority first, as long as `reserve` stays free over the
/// nodes that are left. `going` says whether the answer is
/// still wanted, with how many are placed: the pods that are left are neither placed nor failed then.
pub fn displace(
    cluster: &Cluster,
    profiles: &Profiles,
    state: &ClusterState,
    nodes: &[NodeIndex],
    reserve: &ResourceList,
    going: &mut dyn FnMut(u64) -> bool,
) -> Displaced {
    let mut state = state.clone();
    let known = cluster.placed.len();
    let leaving: Vec<usize> = (0..known.min(state.placements.len()))
        .filter(|at| nodes.contains(&(state.placements[*at].1 as usize)))
        .collect();
    let mut moving: Vec<(Arc<PodInfo>, Symbol)> = Vec::new();
    let mut daemons = 0;
    for at in leaving.into_iter().rev() {
        let name = cluster.placed[at].name;
        let (id, _) = state.remove(at);
        let pod = Arc::clone(state.pod(id));
        if pod.daemon { daemons += 1 } else { moving.push((pod, name)) }
    }
    nodes.iter().for_each(|node| state.excluded[*node] = true);
    let mut reserve = Reserve::new(cluster, &state, reserve);
    moving
        .sort_by_key(|(pod, name)| (Reverse(pod.priority), cluster.word(pod.namespace), cluster.word(*name)));
    let budgets = broken_budgets(cluster, moving.iter().map(|(pod, _)| &**pod));
    let mut placers: HashMap<*const PodInfo, Placer<'_>> = HashMap::new();
    let (mut placed, mut failed) = (0, Vec::new());
    for (at, (pod, name)) in moving.iter().enumerate() {
        if at % BETWEEN_LOOKS == BETWEEN_LOOKS - 1 && !going(placed as u64) {
            break;
        }
        let profile = profiles.of(cluster.word(pod.scheduler));
        let placer = placers
            .entry(Arc::as_ptr(pod))
            .or_insert_with(|| Placer::new(cluster, profile, &mut state, Arc::clone(pod)));
        let why = match placer.next(&state) {
            Some(node) if reserve.allows(pod) => {
                placer.place(&mut state, node);
                placed += 1;
                continue;
            }
            Some(_) => reserve.why(),
            None => fit_error(cluster, &placer.rejections(&state)),
        };
        let pod = format!("{}/{}", cluster.word(pod.namespace), cluster.word(*name));
        failed.push(FailedPod { pod, message: why });
    }
    Displaced {
        nodes: nodes.iter().map(|node| cluster.word(cluster.nodes[*node].name).to_owned()).collect(),
        pods: moving.len(),
        placed,
        daemons,
        failed,
        budgets,
    }
}

/// Budgets that allow fewer disruptions than these pods would be.
fn broken_budgets<'a>(cluster: &Cluster, pods: impl Iterator<Item = &'a PodInfo> + Clone) -> Vec<String> {
    let broken = cluster.budgets.iter().filter_map(|(budget, selector)| {
        let meta = &budget.metadata;
        let counts = |pod: &&PodInfo| {
            cluster.word(pod.namespace) == meta.namespace_or_default()
                && selector.matches(&pod.labels, &cluster.symbols)
        };
        let disrupted = usize_to_i64(pods.clone().filter(counts).count());
        let allowed = budget.status.disruptions_allowed;
        (disrupted > allowed).then(|| {
            format!(
                "{}/{} allows {allowed} at once, {disrupted} would go",
                meta.namespace_or_default(),
                meta.name
            )
        })
    });
    broken.collect()
}

/// Nodes by the value of a label; nodes without it are in none.
pub fn groups(cluster: &Cluster, key: &str) -> BTreeMap<String, Vec<NodeIndex>> {
    let mut groups: BTreeMap<String, Vec<NodeIndex>> = BTreeMap::new();
    let Some(key) = cluster.symbols.find(key) else { return groups };
    for (at, node) in cluster.nodes.iter().enumerate() {
        if let Some(value) = node.labels.get(key) {
            groups.entry(cluster.word(value).to_owned()).or_default().push(at);
        }
    }
    groups
}
