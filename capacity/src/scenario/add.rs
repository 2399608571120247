//! Nodes to add: how many of which type hold what does not fit yet.

use serde::{Deserialize, Serialize};

use crate::answer::{Ask, Shape, ask};
use crate::cluster::{Builder, Cluster};
use crate::engine::step::Placer;
use crate::object::{Node, Object, Pod};
use crate::profile::Profiles;
use crate::state::ClusterState;

/// Most nodes of one type that are tried.
const MOST_NODES: u64 = 4096;
/// Sets on one node are counted no further.
const MOST_SETS: u64 = 1 << 16;

/// A type of node.
#[derive(Debug, Clone)]
pub struct NodeType {
    /// Name.
    pub name: String,
    /// An empty node of it.
    pub node: Node,
    /// Price of one, per hour; `None` where it is not known.
    pub price: Option<f64>,
}

/// How many nodes of one type are enough.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Addition {
    /// Type.
    pub r#type: String,
    /// How many more pods (or complete sets) they are for: what is needed less what the nodes hold.
    #[serde(skip)]
    pub pods: u64,
    /// How many of the pod one node holds.
    pub per_node: u64,
    /// How many nodes hold what is missing; nothing when one node holds none.
    pub nodes: Option<u64>,
    /// Price of these, per hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<f64>,
}

/// For each type, how many nodes hold `missing` more of a pod; the cheapest first, then the fewest. `going` says whether
/// the answer is still wanted: types that were not looked at are left out then.
pub fn add(
    profiles: &Profiles,
    pod: &Pod,
    missing: u64,
    types: &[NodeType],
    going: &mut dyn FnMut(u64) -> bool,
) -> Vec<Addition> {
    let mut additions = Vec::with_capacity(types.len());
    for kind in types {
        let addition = one(profiles, pod, missing, kind, going);
        if !going(additions.len() as u64) {
            break;
        }
        additions.push(addition);
    }
    sorted(additions)
}

/// The same for several shapes: how many nodes of each type hold `missing` more complete sets, found by placing them.
/// `going` says whether the answer is still wanted.
pub fn add_sets(
    profiles: &Profiles,
    shapes: &[Shape],
    missing: u64,
    types: &[NodeType],
    going: &mut dyn FnMut(u64) -> bool,
) -> Vec<Addition> {
    let mut sets = |kind: &NodeType, nodes: u64, most: Option<u64>| {
        let mut cluster = cluster_of(kind, nodes)?;
        let mut state = ClusterState::new(&cluster);
        let question = Ask { shapes: shapes.to_vec(), max: most, ..Ask::default() };
        ask(&mut cluster, profiles, &mut state, &question, going).ok().map(|answer| answer.count)
    };
    let mut one = |kind: &NodeType| {
        let per_node = sets(kind, 1, Some(MOST_SETS)).unwrap_or(0);
        let mut holds = |nodes: u64| sets(kind, nodes, Some(missing)).is_some_and(|count| count >= missing);
        let nodes = fewest(missing, &mut holds);
        let price = nodes.zip(kind.price).map(|(nodes, price)| nodes as f64 * price);
        Addition { r#type: kind.name.clone(), pods: missing, per_node, nodes, price }
    };
    sorted(types.iter().map(&mut one).collect())
}

/// The fewest nodes that hold everything: twice as many until they do, then halving; `None` beyond [`MOST_NODES`].
fn fewest(missing: u64, holds: &mut dyn FnMut(u64) -> bool) -> Option<u64> {
    if missing == 0 {
        return Some(0);
    }
    let mut enough = 1;
    while !holds(enough) {
        enough *= 2;
        if enough > MOST_NODES {
            return None;
        }
    }
    let mut too_few = enough / 2;
    while enough - too_few > 1 {
        let middle = too_few + (enough - too_few) / 2;
        if holds(middle) { enough = middle } else { too_few = middle }
    }
    Some(enough)
}

/// So many empty nodes of a type.
fn cluster_of(kind: &NodeType, nodes: u64) -> Option<Cluster> {
    let mut builder = Builder::new();
    for index in 0..nodes {
        let mut node = kind.node.clone();
        node.metadata.name = format!("{}-{index:04}", kind.name);
        node.metadata.labels.insert("kubernetes.io/hostname".to_owned(), node.metadata.name.clone());
        builder.add(&Object::Node(Box::new(node))).ok()?;
    }
    Some(builder.finish().0)
}

fn sorted(mut additions: Vec<Addition>) -> Vec<Addition> {
    let price = |addition: &Addition| addition.price.unwrap_or(f64::INFINITY);
    additions.sort_by(|a, b| {
        let priced = price(a).total_cmp(&price(b));
        priced
            .then_with(|| a.nodes.unwrap_or(u64::MAX).cmp(&b.nodes.unwrap_or(u64::MAX)))
            .then_with(|| a.r#type.cmp(&b.r#type))
    });
    additions
}

fn one(
    profiles: &Profiles,
    pod: &Pod,
    missing: u64,
    kind: &NodeType,
    going: &mut dyn FnMut(u64) -> bool,
) -> Addition {
    let per_node = per_node(profiles, pod, kind, going).unwrap_or(0);
    let nodes = (per_node > 0).then(|| missing.div_ceil(per_node));
    let price = nodes.zip(kind.price).map(|(nodes, price)| nodes as f64 * price);
    Addition { r#type: kind.name.clone(), pods: missing, per_node, nodes, price }
}

/// How many one empty node of this type takes.
fn per_node(
    profiles: &Profiles,
    pod: &Pod,
    kind: &NodeType,
    going: &mut dyn FnMut(u64) -> bool,
) -> Option<u64> {
    let mut cluster = cluster_of(kind, 1)?;
    let pod = std::sync::Arc::new(cluster.shape(pod).ok()?);
    let profile = profiles.of(cluster.word(pod.scheduler));
    let mut state = ClusterState::new(&cluster);
    let mut placer = Placer::new(&cluster, profile, &mut state, pod);
    match placer.closed(&state) {
        Some(closed) => Some(closed.count),
        // A node has at most some thousand pods.
        None => Some(placer.run_while(&mut state, Some(1 << 16), going).len() as u64),
    }
}
