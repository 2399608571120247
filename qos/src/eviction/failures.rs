//! How often each container was started again lately.
//!
//! Counts belong to the container of a pod, not to a cgroup: a restarted container has another id and another cgroup
//! and goes on counting. The pod's uid is part of the key, so that a new pod of the same name begins anew.

use std::collections::{BTreeMap, VecDeque};

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::workload::Workload;

use super::{EvictionPolicy, MOST_RESTARTS, Remedy, Ruling, rule};

/// Containers counted at most; when there are more, the one whose last failure is longest ago is forgotten.
const MOST_CONTAINERS: usize = 4096;

/// Failures of one cgroup that are not further apart than this are one: a container dies process by process, and is
/// seen dying more than once. Longer than two ticks of the sampler, which may be the only witness.
const ONE_FAILURE_USEC: u64 = 3_000_000;

/// Which pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodKey {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Uid, where the source knows it.
    pub uid: Option<String>,
}

/// Which container of which pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerKey {
    /// Its pod.
    pub pod: PodKey,
    /// Its name.
    pub container: String,
}

impl ContainerKey {
    /// The key of a container as a source found it.
    pub fn of(workload: &Workload) -> Self {
        let pod = &workload.pod;
        let pod = PodKey { namespace: pod.namespace.clone(), name: pod.name.clone(), uid: pod.uid.clone() };
        Self { pod, container: workload.container.clone() }
    }
}

/// A container failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerFailure {
    /// When, microseconds since 1970. A clock set back counts as standing still.
    pub time_usec: u64,
    /// Inode of its cgroup: the life of the container that failed.
    pub inode: u64,
}

/// One container's past.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FailureHistory {
    /// When restarts were granted, oldest first.
    restarts: VecDeque<u64>,
    last: ContainerFailure,
}

/// The past of all containers, bounded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Failures {
    containers: BTreeMap<ContainerKey, FailureHistory>,
}

impl Failures {
    /// Takes in a failure and rules on it; `None` where it belongs to the failure before, which has been ruled on.
    pub fn judge(
        &mut self,
        policy: &EvictionPolicy,
        key: &ContainerKey,
        class: QosClass,
        failure: ContainerFailure,
    ) -> Option<Ruling> {
        let mut failure = failure;
        if let Some(past) = self.containers.get_mut(key) {
            failure.time_usec = failure.time_usec.max(past.last.time_usec);
            let apart = failure.time_usec - past.last.time_usec;
            let same = past.last.inode == failure.inode && apart < ONE_FAILURE_USEC;
            past.last = failure;
            if same {
                return None;
            }
        } else {
            self.make_room();
        }
        let past = self
            .containers
            .entry(key.clone())
            .or_insert_with(|| FailureHistory { restarts: VecDeque::new(), last: failure });
        let from = failure.time_usec.saturating_sub(policy.burstable_window_usec);
        // A restart exactly one window ago is no longer within it.
        past.restarts.retain(|granted| *granted > from || policy.burstable_window_usec > failure.time_usec);
        let restarts = u32::try_from(past.restarts.len()).unwrap_or(u32::MAX);
        let ruling = rule(policy, class, restarts);
        if ruling.remedy() == Remedy::Restart {
            past.grant(failure.time_usec);
        }
        Some(ruling)
    }

    /// Takes in a restart granted by an earlier run, oldest first.
    pub fn restore(&mut self, key: &ContainerKey, failure: ContainerFailure) {
        if !self.containers.contains_key(key) {
            self.make_room();
        }
        let past = self
            .containers
            .entry(key.clone())
            .or_insert_with(|| FailureHistory { restarts: VecDeque::new(), last: failure });
        past.last = failure;
        past.grant(failure.time_usec);
    }

    /// Forgets what can no longer count.
    pub fn prune(&mut self, policy: &EvictionPolicy, now_usec: u64) {
        let from = now_usec.saturating_sub(policy.burstable_window_usec.max(ONE_FAILURE_USEC));
        self.containers.retain(|_, past| past.last.time_usec >= from);
    }

    /// Containers counted.
    pub fn len(&self) -> usize {
        self.containers.len()
    }

    /// Nothing is counted.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }

    fn make_room(&mut self) {
        while self.containers.len() >= MOST_CONTAINERS {
            let oldest = self.containers.iter().min_by_key(|(_, past)| past.last.time_usec);
            let Some(key) = oldest.map(|(key, _)| key.clone()) else { return };
            self.containers.remove(&key);
        }
    }
}

impl FailureHistory {
    fn grant(&mut self, time_usec: u64) {
        self.restarts.push_back(time_usec);
        while self.restarts.len() > MOST_RESTARTS as usize {
            self.restarts.pop_front();
        }
    }
}
