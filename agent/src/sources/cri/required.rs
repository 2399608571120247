//! What the API server says that a pod requires, in the place of what would be inverted from its runtime's record.
//!
//! The word comes over the network, so it is held against what the kubelet told the runtime: it counts for the pod that the runtime has
//! under this uid and these names alone, and gives a pod no higher class and no critical score that the runtime does not bear out.

use std::sync::Arc;

use evenkeel_enforce::shared::SourceProblem;
use evenkeel_model::pod::{Container, Pod, PodRequirements};
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::workload::{ContainerKind, ContainerResources, PodFacts, PodRef, Requested};
use evenkeel_qos::estimate::RuntimeRecord;

use crate::pods::ByUid;

/// What is said of one pod, once it is borne out.
#[derive(Debug, Clone)]
pub(super) struct Required {
    pod: Pod,
    facts: PodFacts,
}

impl Required {
    /// What is said of a pod of the runtime, whose containers' records these are; nothing where nothing is, or it is not borne out.
    pub(super) fn of(
        said: &ByUid,
        pod: &PodRef,
        records: &[RuntimeRecord],
        problems: &mut Vec<SourceProblem>,
    ) -> Option<Self> {
        let word = said.get(pod.uid.as_deref()?)?;
        match Self::borne_out(word, pod, records) {
            Ok(required) => Some(required),
            Err(why) => {
                problems.push(SourceProblem {
                    what: "follow what the API server says".into(),
                    where_: format!("pod {}/{}", pod.namespace, pod.name),
                    why,
                    remedy: "the runtime's record holds; see that node.name and node.cluster are this node's, and that the recommender is \
                             yours"
                        .into(),
                });
                None
            }
        }
    }

    fn borne_out(
        word: &Arc<PodRequirements>,
        pod: &PodRef,
        records: &[RuntimeRecord],
    ) -> Result<Self, String> {
        if (&word.namespace, &word.name) != (&pod.namespace, &pod.name) {
            return Err(format!("the pod of this uid is said to be {}/{}", word.namespace, word.name));
        }
        let said = word.pod();
        let mut facts = evenkeel_qos::pod::facts(&said);
        let is_critical = records.iter().any(RuntimeRecord::has_guaranteed_score);
        facts.node_critical &= is_critical;
        let real = records.iter().find_map(|record| record.class_of_pod());
        // Without a tier the score tells the class, which is that of the priority here.
        let real =
            real.filter(|_| !facts.node_critical || records.iter().any(|record| record.tier.is_some()));
        let computed = facts.qos_class.unwrap_or(QosClass::BestEffort);
        match (real, word.qos_class) {
            (None, _) if !facts.node_critical => {
                return Err("nothing of its runtime's record says which class it has".to_owned());
            }
            (Some(real), Some(class)) if class != real => {
                return Err(format!("it is said to be {class}, and runs as {real}"));
            }
            (Some(real), _) if computed > real => {
                return Err(format!("what it is said to require makes it {computed}, and it runs as {real}"));
            }
            (real, class) => facts.qos_class = real.or(class).or(Some(computed)),
        }
        Ok(Self { pod: said, facts })
    }

    /// What a container requires and what part of the pod it is; nothing of one that the API server does not name, such as one added for
    /// debugging.
    pub(super) fn container(&self, name: &str) -> Option<(Requested, ContainerKind)> {
        let container = self.pod.container(name)?;
        Some((Requested::Stated(resources(container)), container.kind))
    }

    /// What the rules look at of the pod.
    pub(super) fn facts(&self) -> &PodFacts {
        &self.facts
    }
}

/// CPU and memory of a container; a request above its limit, which the API server takes from nobody, is that.
fn resources(container: &Container) -> ContainerResources {
    let r = container.cpu_and_memory();
    ContainerResources {
        cpu_request: r.cpu_request.map(|cpu| r.cpu_limit.map_or(cpu, |limit| cpu.min(limit))),
        memory_request: r.memory_request.map(|bytes| r.memory_limit.map_or(bytes, |limit| bytes.min(limit))),
        ..r
    }
}
