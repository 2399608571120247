//! Claims that wait for a pod: which volumes could serve them, and where one could be made (`volumebinding/binder.go`).

use std::cmp::Reverse;

use crate::cluster::storage::{Claim, Space, Volume};
use crate::cluster::{Cluster, NodeIndex, Symbol};

/// A claim that is bound when a pod is placed.
#[derive(Debug, Clone)]
pub(super) struct UnboundClaim {
    /// The claim.
    pub claim: Claim,
    /// Volumes that would serve it wherever they can be reached, in the order in which they are taken.
    pub candidates: Vec<Symbol>,
}

impl UnboundClaim {
    /// Looks for volumes; `key` is the claim's name, `None` when each clone gets one anew.
    pub(super) fn new(cluster: &Cluster, claim: &Claim, key: Option<Symbol>) -> Self {
        let serves = |volume: &&Volume| {
            let reserved = key.is_some() && volume.claim == key;
            (reserved || (volume.claim.is_none() && volume.available))
                && volume.class == claim.class
                && volume.block == claim.block
                && volume.bytes >= claim.bytes
                && (reserved || claim.modes.iter().all(|mode| volume.modes.contains(mode)))
                && (reserved
                    || claim.selector.as_ref().is_none_or(|s| s.matches(&volume.labels, &cluster.symbols)))
        };
        // One that was selected a node for is made there.
        let all = cluster.storage.volumes.values().filter(|_| claim.selected_node.is_none());
        let mut serving: Vec<&Volume> = all.filter(serves).collect();
        // One reserved for the claim goes first and alone, then the smallest, then by name so that the answer is always
        // the same.
        serving
            .sort_by_key(|volume| (Reverse(volume.claim.is_some()), volume.bytes, cluster.word(volume.name)));
        if serving.first().is_some_and(|volume| volume.claim.is_some()) {
            serving.truncate(1);
        }
        Self { claim: claim.clone(), candidates: serving.into_iter().map(|volume| volume.name).collect() }
    }
}

/// Whether a volume can be used on a node.
pub(super) fn reachable(cluster: &Cluster, volume: &Volume, node: NodeIndex) -> bool {
    let node = &cluster.nodes[node];
    volume.nodes.as_ref().is_none_or(|terms| terms.matches(node.name, &node.labels, &cluster.symbols))
}

/// Whether a volume made for one node can be used on another: both are in one zone and region, and have the same values
/// of the labels the class goes by, as far as both have any.
pub(super) fn same_place(cluster: &Cluster, class: Symbol, a: NodeIndex, b: NodeIndex) -> bool {
    let value = |node: NodeIndex, key: Symbol| cluster.nodes[node].labels.get(key);
    let zones = crate::object::ZONE_LABELS.iter().filter_map(|key| cluster.symbols.find(key));
    let class = cluster.storage.classes.get(&class);
    let topologies = class.into_iter().flat_map(|class| &class.topologies).flatten().map(|(key, _)| *key);
    zones.chain(topologies).all(|key| value(a, key).is_none() || value(a, key) == value(b, key))
}

/// Whether a volume can be made.
pub(super) enum Making {
    Yes,
    NotHere,
    NoSpace,
}

/// Whether a volume can be made for a claim on a node.
pub(super) fn can_make(cluster: &Cluster, claim: &Claim, node: NodeIndex) -> Making {
    if claim.selected_node.is_some_and(|name| name != cluster.nodes[node].name) {
        return Making::NotHere;
    }
    let Some(class) = cluster.storage.classes.get(&claim.class) else { return Making::NotHere };
    let Some(driver) = class.provisioner else { return Making::NotHere };
    let labels = &cluster.nodes[node].labels;
    let allowed = class.topologies.is_empty()
        || class.topologies.iter().any(|all| {
            let one = |(key, values): &(Symbol, Box<[Symbol]>)| {
                labels.get(*key).is_some_and(|value| values.contains(&value))
            };
            // A term without requirements allows nothing.
            !all.is_empty() && all.iter().all(one)
        });
    if !allowed {
        return Making::NotHere;
    }
    let looked_at = cluster.storage.space_drivers.contains(&driver);
    let room = |space: &Space| {
        space.class == claim.class
            && space.bytes >= claim.bytes
            && space.nodes.matches(labels, &cluster.symbols)
    };
    if looked_at && !cluster.storage.spaces.iter().any(room) { Making::NoSpace } else { Making::Yes }
}
