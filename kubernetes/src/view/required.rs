//! What a node's pods require: what it is told of its own.

use std::sync::Arc;

use evenkeel_capacity::object::{
    Container, Pod, PodStatus, Requirements as Written, ResourceList as Amounts,
};
use evenkeel_model::name::ResourceName;
use evenkeel_model::pod::{ContainerRequirements, PodRequirements};
use evenkeel_model::requirements::{Requirements, ResourceList};
use tokio::sync::Notify;

use super::ClusterView;
use super::pods::PodRecord;
use crate::kinds::POD;

/// What the pods of a node require: of all of them, or what changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePods {
    /// Tells generations of this view from those of another; never zero.
    pub run: u64,
    /// The generation it builds on; zero where it is everything.
    pub from: u64,
    /// The generation it leads to.
    pub generation: u64,
    /// It is everything.
    pub whole: bool,
    /// Pods that came or changed, by namespace and name.
    pub changed: Vec<PodRequirements>,
    /// Uids of pods that are not on the node any more, or have ended.
    pub gone: Vec<String>,
}

impl ClusterView {
    /// What the pods on a node require that is not `known` yet, by run and generation. Nothing where nothing changed, or while pods were
    /// not listed.
    #[must_use]
    pub fn node_pods(&self, node: &str, known: (u64, u64)) -> Option<NodePods> {
        let inner = self.read();
        if node.is_empty() || !inner.kinds.get(POD).is_some_and(|kept| kept.is_known) {
            return None;
        }
        let nodes = &inner.pods.on_nodes;
        let (run, generation) = (nodes.run(), nodes.generation(node));
        let from = Some(known.1).filter(|from| known.0 == run && nodes.is_known_since(node, *from));
        if from.is_some_and(|from| from >= generation) {
            return None;
        }
        let mut told = NodePods {
            run,
            from: from.unwrap_or(0),
            generation,
            whole: from.is_none(),
            ..NodePods::default()
        };
        let Some(on) = nodes.get(node) else { return Some(told) };
        for (namespace, name) in on.pods() {
            let one = inner.pods.get(namespace, name);
            if let Some(one) = one.filter(|one| from.is_none_or(|from| one.changed > from)) {
                told.changed.push(requirements(namespace, name, one));
            }
        }
        if let Some(from) = from {
            told.gone = on.gone_since(from).map(str::to_owned).collect();
        }
        Some(told)
    }

    /// Rung when the pods of a node, or what they require, change; a change that nobody waited for rings for the next who waits.
    #[must_use]
    pub fn node_bell(&self, node: &str) -> Arc<Notify> {
        self.write_quietly().pods.on_nodes.bell(node)
    }
}

/// What a pod requires.
pub(super) fn requirements(namespace: &str, name: &str, one: &PodRecord) -> PodRequirements {
    let (spec, status) = (&one.common.spec, &one.common.status);
    let containers = spec.by_kind().map(|(kind, container)| ContainerRequirements {
        name: container.name.clone(),
        kind,
        resources: in_force(status, container),
    });
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    PodRequirements {
        uid: one.uid.as_ref().to_owned(),
        // As the runtime has it.
        namespace: if namespace.is_empty() { "default" } else { namespace }.to_owned(),
        name: name.to_owned(),
        config_hash: some(&one.told.config_hash),
        priority: spec.priority,
        priority_class_name: some(&spec.priority_class_name),
        qos_class: one.told.qos_class,
        resources: spec.resources.as_ref().map(read),
        overhead: list(&spec.overhead),
        containers: containers.collect(),
    }
}

/// What a container has: what its node says is in force, which is not yet what the spec asks for while a resize is deferred or on its
/// way (KEP-1287); what the spec says where the node says nothing.
fn in_force(status: &PodStatus, container: &Container) -> Requirements {
    let statuses = status.container_statuses.iter().chain(&status.init_container_statuses);
    let own = statuses.filter(|status| status.name == container.name);
    let told = own.filter_map(|status| status.resources.as_ref()).next();
    read(told.unwrap_or(&container.resources))
}

/// Memory that a container of a pod requests, and may use at most, bytes.
pub(super) fn memory(pod: &Pod, container: &str) -> [Option<u64>; 2] {
    let found = pod.spec.by_kind().find(|(_, one)| one.name == container);
    let Some((_, one)) = found else { return [None, None] };
    let Requirements { requests, limits } = in_force(&pod.status, one);
    [requests, limits].map(|amounts| amounts.memory().and_then(|amount| amount.to_u64()))
}

fn read(written: &Written) -> Requirements {
    Requirements { requests: list(&written.requests), limits: list(&written.limits) }
}

/// Amounts of resources that have a name; the API server takes no other.
fn list(amounts: &Amounts) -> ResourceList {
    amounts.iter().filter_map(|(name, amount)| Some((ResourceName::parse(name).ok()?, *amount))).collect()
}
