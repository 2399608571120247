//! Owns which pods' condition `evenkeel.dev/QoS` is to be written (`kubernetes.conditions`): those whose containers' classes changed since it
//! was written, each once.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use evenkeel_kubernetes::objects::PodCondition;
use evenkeel_proto::v1;

use crate::api::Context;
use crate::followed::Followed;

/// How often all pods are looked at.
const LOOK: Duration = Duration::from_secs(10);
/// Longest message, bytes.
const MOST: usize = 1024;

/// What was written, and what is to be.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// By uid: what was written last, as a hash.
    told: HashMap<String, u64>,
    waiting: VecDeque<PodCondition>,
    looked: Option<Instant>,
}

fn hash(condition: &PodCondition) -> u64 {
    let mut hasher = DefaultHasher::new();
    (condition.reason, &condition.message).hash(&mut hasher);
    hasher.finish()
}

fn name(class: v1::QosClass) -> Option<&'static str> {
    match class {
        v1::QosClass::Guaranteed => Some("Guaranteed"),
        v1::QosClass::Burstable => Some("Burstable"),
        v1::QosClass::BestEffort => Some("BestEffort"),
        v1::QosClass::Unspecified => None,
    }
}

/// Classes of a container: of memory and of CPU.
type Classes = (&'static str, &'static str);

/// Those of a container that has some; a sandbox is no container of its pod.
fn classes(identity: &v1::ContainerIdentity) -> Option<Classes> {
    let both = name(identity.memory_class()).zip(name(identity.cpu_class()));
    both.filter(|_| identity.kind() != v1::ContainerKind::Infrastructure)
}

/// What is said of a pod: the class of all containers where it is one, and each by itself.
fn said(containers: &BTreeMap<String, Classes>) -> (&'static str, String) {
    let all: HashSet<&'static str> = containers.values().flat_map(|(memory, cpu)| [*memory, *cpu]).collect();
    let one = all.iter().next().filter(|_| all.len() == 1);
    let of = |(name, (memory, cpu)): (&String, &Classes)| format!("{name}: memory {memory}, cpu {cpu}");
    let mut message = containers.iter().map(of).collect::<Vec<_>>().join("; ");
    while message.len() > MOST {
        message.pop();
    }
    (one.copied().unwrap_or("Mixed"), message)
}

impl Conditions {
    /// Looks at all pods that run, where the last look is long ago.
    pub(super) fn look(&mut self, context: &Context, followed: &Followed, now: Instant) {
        if !self.waiting.is_empty() || self.looked.is_some_and(|at| now.saturating_duration_since(at) < LOOK)
        {
            return;
        }
        self.looked = Some(now);
        let mut pods: BTreeMap<(String, String, String), BTreeMap<String, Classes>> = BTreeMap::new();
        let state = context.engine.state().study();
        for stream in state.streams().filter(|one| one.counts && followed.is_meant(&one.key.cluster)) {
            for identity in stream.slots.iter().map(|slot| &slot.identity) {
                if let Some(classes) = classes(identity) {
                    let pod = (stream.key.node.clone(), identity.namespace.clone(), identity.pod.clone());
                    pods.entry(pod).or_default().insert(identity.container.clone(), classes);
                }
            }
        }
        drop(state);
        let mut there = HashSet::new();
        for ((node, namespace, pod), containers) in pods {
            let Some(uid) = followed.uid_on(&node, &namespace, &pod) else { continue };
            let (reason, message) = said(&containers);
            let condition = PodCondition { namespace, pod, uid, reason, message };
            there.insert(condition.uid.clone());
            if self.told.get(&condition.uid) != Some(&hash(&condition)) {
                self.waiting.push_back(condition);
            }
        }
        self.told.retain(|uid, _| there.contains(uid));
    }

    /// The next one to be written.
    pub(super) fn due(&self) -> Option<&PodCondition> {
        self.waiting.front()
    }

    /// The next one has no such pod: it is tried again where a later look finds one.
    pub(super) fn pass(&mut self) {
        self.waiting.pop_front();
    }

    /// The next one was written, or never will be: it is not tried again before it changes.
    pub(super) fn done(&mut self) {
        if let Some(condition) = self.waiting.pop_front() {
            self.told.insert(condition.uid.clone(), hash(&condition));
        }
    }

    /// How many are to be written.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_and_what_nobody_classified_have_no_class() {
        let of = |kind: v1::ContainerKind, cpu: v1::QosClass| {
            classes(&v1::ContainerIdentity {
                kind: kind.into(),
                memory_class: v1::QosClass::Burstable.into(),
                cpu_class: cpu.into(),
                ..v1::ContainerIdentity::default()
            })
        };
        let (regular, sandbox) = (v1::ContainerKind::Regular, v1::ContainerKind::Infrastructure);
        assert_eq!(of(regular, v1::QosClass::Guaranteed), Some(("Burstable", "Guaranteed")));
        assert_eq!(of(regular, v1::QosClass::Unspecified), None);
        assert_eq!(of(sandbox, v1::QosClass::Guaranteed), None);
    }

    #[test]
    fn a_pod_of_one_class_is_of_it_and_any_other_mixed() {
        let of = |all: &[(&str, &'static str, &'static str)]| {
            said(&all.iter().map(|(name, memory, cpu)| ((*name).to_owned(), (*memory, *cpu))).collect())
        };
        let (reason, message) = of(&[("a", "Burstable", "Burstable"), ("b", "Burstable", "Burstable")]);
        assert_eq!(reason, "Burstable");
        assert_eq!(message, "a: memory Burstable, cpu Burstable; b: memory Burstable, cpu Burstable");
        assert_eq!(of(&[("a", "Guaranteed", "Burstable")]).0, "Mixed");
        let long = "é".repeat(2 * MOST);
        assert!(of(&[(&long, "Guaranteed", "Guaranteed")]).1.len() <= MOST);
    }
}
