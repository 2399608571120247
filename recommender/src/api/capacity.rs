//! Owns the question "how many more of these fit" over the nodes agents reported: it gathers the nodes; the answer is
//! `evenkeel_capacity`'s.
//!
//! A node's size is what its agent told; what is requested on it is the sum over the containers followed there, since no
//! cluster is asked. What the system reserves for itself is not known and not taken off.

use std::collections::BTreeSet;

use evenkeel_capacity::fit::{Amounts, Answer, DEFAULT_MAX_PODS, Node, Stop, fit};
use evenkeel_model::pod::Pod;
use evenkeel_proto::v1;

use crate::state::State;

/// Nodes of known size whose stream is connected.
pub(crate) fn nodes(state: &State, connected: impl Fn(&crate::ingest::Key) -> bool) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (key, known) in state.nodes() {
        let (Some(facts), Some(stream)) = (known.facts, state.current(key, known)) else { continue };
        if !connected(&stream.key) {
            continue;
        }
        let mut pods = BTreeSet::new();
        let (mut cpu, mut memory) = (0_u64, 0_u64);
        for slot in stream.slots.iter() {
            let identity = &slot.identity;
            pods.insert((identity.namespace.as_str(), identity.pod.as_str()));
            let requested = identity.requested.unwrap_or_default();
            cpu = cpu.saturating_add(requested.cpu_request_milli.unwrap_or(0));
            memory = memory.saturating_add(requested.memory_request_bytes.unwrap_or(0));
        }
        let amounts = |cpu, memory| Amounts::from([("cpu".to_owned(), cpu), ("memory".to_owned(), memory)]);
        nodes.push(Node {
            name: key.node.clone(),
            allocatable: amounts(facts.cpu_milli, facts.memory_bytes),
            requested: amounts(cpu, memory),
            pods: pods.len() as u64,
            max_pods: DEFAULT_MAX_PODS,
        });
    }
    nodes
}

/// Counts how often the pod fits the nodes.
pub(crate) fn estimate(pod: &Pod, nodes: &[Node], max: Option<u64>) -> Answer {
    let requests = pod.effective_requests();
    let amounts = requests.iter().map(|(name, amount)| {
        let value = if name.short() == "cpu" { amount.milli_u64() } else { amount.to_u64() };
        (name.short().to_owned(), value.unwrap_or(u64::MAX))
    });
    fit(&amounts.collect(), nodes, max)
}

/// The answer on the wire.
pub(crate) fn response(answer: Answer) -> v1::EstimateResponse {
    v1::EstimateResponse {
        count: answer.count,
        per_node: answer.per_node,
        stop: match answer.stop {
            Stop::Unschedulable => "Unschedulable",
            Stop::LimitReached => "LimitReached",
        }
        .to_owned(),
        message: answer.message,
        bounds: answer.bounds,
        binding: answer.binding,
    }
}
