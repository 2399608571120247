//! `NodeResourcesFit`: a pod fits while its requests are at most what the node has left, resource by resource
//! (kube-scheduler, `noderesources/fit.go`). For identical pods the count per node is a division.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Amounts per resource name in internal units: milli for `cpu`, plain units (bytes, pieces) for the others.
pub type Amounts = BTreeMap<String, u64>;

/// Most pods the kubelet takes on one node unless configured (`KubeletConfiguration.maxPods`).
pub const DEFAULT_MAX_PODS: u64 = 110;

/// One node of a snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Node name.
    pub name: String,
    /// What pods may request in all.
    pub allocatable: Amounts,
    /// What the pods on it request already.
    pub requested: Amounts,
    /// Pods on it already.
    pub pods: u64,
    /// Most pods it takes.
    pub max_pods: u64,
}

/// Why no more pods fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// No node has room for one more.
    Unschedulable,
    /// As many as were asked for fit.
    LimitReached,
}

/// Why one node takes no further pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReason {
    /// Node name.
    pub node: String,
    /// The scheduler's words, one per resource that is short (`Insufficient cpu`, `Too many pods`).
    pub reasons: Vec<String>,
    /// How much of each short resource is missing for one more.
    pub short: Amounts,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// How many fit in all.
    pub count: u64,
    /// How many on each node; nodes that take none are left out.
    pub per_node: BTreeMap<String, u64>,
    /// Why it ends there.
    pub stop: Stop,
    /// The scheduler's message for the pod that does not fit any more; empty when the limit was reached.
    pub message: String,
    /// Each bound by name.
    pub bounds: BTreeMap<String, u64>,
    /// Name of the bound that holds.
    pub binding: String,
    /// Per node, why not one more.
    pub nodes: Vec<NodeReason>,
    /// Filters that were applied.
    pub filters: Vec<String>,
}

/// Counts how many pods with these requests fit, at most `max` (`None` = as many as fit).
pub fn fit(request: &Amounts, nodes: &[Node], max: Option<u64>) -> Answer {
    let mut per_node = BTreeMap::new();
    let mut left = max.unwrap_or(u64::MAX);
    let mut reasons = Vec::new();
    let mut bound: u64 = 0;
    for node in nodes {
        let room = room_on(request, node);
        bound = bound.saturating_add(room);
        let placed = room.min(left);
        left -= placed;
        if placed > 0 {
            per_node.insert(node.name.clone(), placed);
        }
        if placed == room {
            reasons.push(why_not_one_more(request, node, placed));
        }
    }
    let count = per_node.values().fold(0u64, |sum, n| sum.saturating_add(*n));
    let limited = max.is_some_and(|m| count >= m);
    let mut bounds = BTreeMap::from([("nodes".to_owned(), bound)]);
    bounds.extend(max.map(|m| ("limit".to_owned(), m)));
    Answer {
        count,
        per_node,
        stop: if limited { Stop::LimitReached } else { Stop::Unschedulable },
        message: if limited { String::new() } else { message(&reasons, nodes.len()) },
        bounds,
        binding: if limited { "limit" } else { "nodes" }.to_owned(),
        nodes: reasons,
        filters: vec!["NodeResourcesFit".to_owned()],
    }
}

fn amount(amounts: &Amounts, name: &str) -> u64 {
    amounts.get(name).copied().unwrap_or(0)
}

fn room_on(request: &Amounts, node: &Node) -> u64 {
    let by_pods = node.max_pods.saturating_sub(node.pods);
    request.iter().filter(|(_, wanted)| **wanted > 0).fold(by_pods, |room, (name, wanted)| {
        let free = amount(&node.allocatable, name).saturating_sub(amount(&node.requested, name));
        room.min(free / wanted)
    })
}

fn why_not_one_more(request: &Amounts, node: &Node, placed: u64) -> NodeReason {
    let mut reasons = Vec::new();
    let mut short = Amounts::new();
    if node.pods.saturating_add(placed) >= node.max_pods {
        reasons.push("Too many pods".to_owned());
        short.insert("pods".to_owned(), 1);
    }
    for (name, wanted) in request.iter().filter(|(_, wanted)| **wanted > 0) {
        let used = u128::from(amount(&node.requested, name)) + u128::from(*wanted) * (u128::from(placed) + 1);
        let over = used.saturating_sub(u128::from(amount(&node.allocatable, name)));
        if over > 0 {
            reasons.push(format!("Insufficient {name}"));
            short.insert(name.clone(), u64::try_from(over).unwrap_or(u64::MAX));
        }
    }
    NodeReason { node: node.name.clone(), reasons, short }
}

/// `0/3 nodes are available: 1 Insufficient memory, 3 Insufficient cpu.` with the reasons sorted as text, as
/// the scheduler's `FitError` sorts them.
fn message(reasons: &[NodeReason], nodes: usize) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for reason in reasons.iter().flat_map(|r| &r.reasons) {
        *counts.entry(reason).or_default() += 1;
    }
    let mut parts: Vec<String> = counts.into_iter().map(|(reason, n)| format!("{n} {reason}")).collect();
    parts.sort();
    if parts.is_empty() {
        return "no nodes available to schedule pods".to_owned();
    }
    format!("0/{nodes} nodes are available: {}.", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, cpu: u64, memory: u64) -> Node {
        Node {
            name: name.into(),
            allocatable: amounts(cpu, memory),
            requested: amounts(500, 10),
            pods: 2,
            max_pods: DEFAULT_MAX_PODS,
        }
    }

    fn amounts(cpu: u64, memory: u64) -> Amounts {
        Amounts::from([("cpu".into(), cpu), ("memory".into(), memory)])
    }

    #[test]
    fn counts_per_node_and_names_what_is_short() {
        let nodes = [node("a", 2000, 100), node("b", 4000, 40)];
        let got = fit(&amounts(300, 10), &nodes, None);
        assert_eq!(got.count, 8);
        assert_eq!(got.per_node, BTreeMap::from([("a".into(), 5), ("b".into(), 3)]));
        assert_eq!(got.message, "0/2 nodes are available: 1 Insufficient cpu, 1 Insufficient memory.");
        assert_eq!(got.nodes[0].short, Amounts::from([("cpu".into(), 300)]));
        assert_eq!((got.stop, got.binding.as_str()), (Stop::Unschedulable, "nodes"));
    }

    #[test]
    fn edges() {
        let nodes = [node("a", 2000, 100)];
        let zero = fit(&Amounts::new(), &nodes, None);
        assert_eq!((zero.count, zero.message.as_str()), (108, "0/1 nodes are available: 1 Too many pods."));
        let limited = fit(&amounts(300, 10), &nodes, Some(2));
        assert_eq!((limited.count, limited.stop), (2, Stop::LimitReached));
        let unknown = fit(&Amounts::from([("nvidia.com/gpu".into(), 1)]), &nodes, None);
        assert_eq!(unknown.message, "0/1 nodes are available: 1 Insufficient nvidia.com/gpu.");
        assert_eq!(fit(&amounts(u64::MAX, u64::MAX), &nodes, None).count, 0);
        assert_eq!(fit(&amounts(1, 1), &[], None).message, "no nodes available to schedule pods");
    }
}
