//! Nodes to add: how many of which type hold what does not fit yet.

use serde::Serialize;

use crate::cluster::Builder;
use crate::engine::step::Placer;
use crate::object::{Node, Object, Pod};
use crate::profile::Profiles;
use crate::state::State;

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
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Addition {
    /// Type.
    pub r#type: String,
    /// How many of the pod one node holds.
    pub per_node: u64,
    /// How many nodes hold what is missing; nothing when one node holds none.
    pub nodes: Option<u64>,
    /// Price of these, per hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub price: Option<f64>,
}

/// For each type, how many nodes hold `missing` more of a pod; the cheapest first, then the fewest.
pub fn add(profiles: &Profiles, pod: &Pod, missing: u64, types: &[NodeType]) -> Vec<Addition> {
    let mut additions: Vec<Addition> = types.iter().map(|kind| one(profiles, pod, missing, kind)).collect();
    let price = |addition: &Addition| addition.price.unwrap_or(f64::INFINITY);
    additions.sort_by(|a, b| {
        let priced = price(a).total_cmp(&price(b));
        priced
            .then_with(|| a.nodes.unwrap_or(u64::MAX).cmp(&b.nodes.unwrap_or(u64::MAX)))
            .then_with(|| a.r#type.cmp(&b.r#type))
    });
    additions
}

fn one(profiles: &Profiles, pod: &Pod, missing: u64, kind: &NodeType) -> Addition {
    let per_node = per_node(profiles, pod, kind).unwrap_or(0);
    let nodes = (per_node > 0).then(|| missing.div_ceil(per_node));
    let price = nodes.zip(kind.price).map(|(nodes, price)| nodes as f64 * price);
    Addition { r#type: kind.name.clone(), per_node, nodes, price }
}

/// How many one empty node of this type takes.
fn per_node(profiles: &Profiles, pod: &Pod, kind: &NodeType) -> Option<u64> {
    let mut builder = Builder::new();
    builder.add(&Object::Node(Box::new(kind.node.clone()))).ok()?;
    let mut cluster = builder.finish().0;
    let pod = std::sync::Arc::new(cluster.shape(pod).ok()?);
    let profile = profiles.of(cluster.word(pod.scheduler));
    let mut state = State::new(&cluster);
    let mut placer = Placer::new(&cluster, profile, &mut state, pod);
    match placer.closed(&state) {
        Some(closed) => Some(closed.count),
        // A node has at most some thousand pods.
        None => Some(placer.run(&mut state, Some(1 << 16)).len() as u64),
    }
}
