//! Owns the translation of the state to the messages of the interfaces.

use evenkeel_proto::v1;
use evenkeel_store::key::NodeKey;
use evenkeel_store::state::StoreState;

use crate::allocated::Allocated;
use crate::recommend::class_on_the_wire;
use crate::recommend::pod::PodAdvice;

/// The latest seconds of the containers of all nodes (or of one) that are in their node's newest second.
pub(crate) fn live_now(state: &StoreState, node: &str) -> Vec<v1::ContainerUsage> {
    let mut out = Vec::new();
    for (key, known) in state.nodes().filter(|(key, _)| node.is_empty() || key.node == node) {
        let Some(stream) = state.current(key, known) else { continue };
        let newest = stream.slots.iter().filter_map(|slot| slot.latest.map(|(time, _)| time)).max();
        let slots = stream.slots.iter().filter(|slot| slot.latest.map(|(time, _)| time) == newest);
        out.extend(slots.filter_map(|slot| slot.usage(&stream.key)));
    }
    out
}

/// All nodes with what is allocated of them; `connected` tells whose agents are.
pub(crate) fn nodes(
    state: &StoreState,
    allocated: &Allocated,
    connected: impl Fn(&NodeKey) -> bool,
) -> Vec<v1::Node> {
    let nodes = state.nodes().map(|(key, node)| {
        let stream = state.current(key, node);
        v1::Node {
            cluster: key.cluster.clone(),
            name: key.node.clone(),
            version: node.version.clone(),
            connected: connected(key),
            last_seen_usec: node.last_seen_usec,
            containers: stream.map_or(0, |s| u32::try_from(s.slots.len()).unwrap_or(u32::MAX)),
            facts: node.facts.clone(),
            frames: node.frames,
            samples: node.samples,
            gaps: node.gaps,
            refused_containers: node.refused,
            gone: stream.is_some_and(|s| !s.counts),
            clock_behind_usec: node.behind_usec,
            allocated: allocated.nodes.get(key).cloned(),
            dropped: node.dropped.told(),
            // Epochs are told to nobody.
            ..v1::Node::default()
        }
    });
    nodes.collect()
}

/// All namespaces, and the clusters they are in.
pub(crate) fn namespaces(allocated: &Allocated) -> v1::ListNamespacesResponse {
    let of = |cluster: &str, name: &str, allocated: &v1::Allocated| v1::Namespace {
        cluster: cluster.to_owned(),
        name: name.to_owned(),
        allocated: Some(allocated.clone()),
    };
    v1::ListNamespacesResponse {
        namespaces: allocated.namespaces.iter().map(|((c, n), sums)| of(c, n, sums)).collect(),
        clusters: allocated.clusters.iter().map(|(cluster, sums)| of(cluster, "", sums)).collect(),
        quota_trouble: allocated.quota_trouble.clone(),
    }
}

/// The newest decisions, oldest first.
pub(crate) fn events(state: &StoreState, node: &str, limit: usize) -> Vec<v1::Decision> {
    let wanted = state.events().rev().filter(|event| node.is_empty() || event.node.node == node);
    let mut newest: Vec<_> = wanted.take(limit).map(|event| event.decision.clone()).collect();
    newest.reverse();
    newest
}

/// The same as a message.
pub(crate) fn pod_response(advice: PodAdvice) -> v1::RecommendPodResponse {
    let resources = |r: &evenkeel_model::requirements::Requirements| v1::ResourceValues {
        cpu_request_milli: r.requests.cpu().and_then(evenkeel_model::quantity::Quantity::milli_u64),
        cpu_limit_milli: r.limits.cpu().and_then(evenkeel_model::quantity::Quantity::milli_u64),
        memory_request_bytes: r.requests.memory().and_then(evenkeel_model::quantity::Quantity::to_u64),
        memory_limit_bytes: r.limits.memory().and_then(evenkeel_model::quantity::Quantity::to_u64),
    };
    let containers = advice.containers.iter().map(|c| v1::RecommendedContainer {
        name: c.name.clone(),
        resources: Some(resources(&c.resources)),
        startup_cpu_milli: c.startup,
    });
    v1::RecommendPodResponse {
        containers: containers.collect(),
        in_place: advice.in_place(),
        qos_before: class_on_the_wire(advice.qos_before).into(),
        qos_after: class_on_the_wire(advice.qos_after).into(),
        recommendations: advice.containers.into_iter().flat_map(|c| c.recommendations).collect(),
        policy: advice.policy.unwrap_or_default(),
        conflicts: advice.conflicts,
        loading: advice.loading,
        cached: advice.cached,
        panic: advice.panic,
        startup_seconds: advice.startup_seconds,
    }
}
