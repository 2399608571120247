//! Owns OOM kills that a kubelet tells of: they are history, too, and a kill of which the node's agent tells as well is counted once.
//!
//! A kubelet says of a container how its last run ended, and says so until the next run ends: the same kill is read for weeks, and after each
//! restart. So what was counted is remembered, by whoever told it. What a kubelet says comes in a record ([`Killed`]), so that a replay gives the
//! same state. Not owned: when kubelets are asked (`ingest::store`), and which container is meant (`follow`).

use std::collections::BTreeMap;

use evenkeel_model::key::ContainerKey;
use evenkeel_rightsizing::history::{Cause, Event as PastEvent};
use prost::Message;

use super::StoreState;
use super::minute::MINUTE_USEC;
use crate::history::past::SubjectId;
use crate::key::{NodeKey, Subject};

/// What an agent and a kubelet say of the same container is the same where it is no further apart: the kubelet sees the end of the container, the
/// agent the kill.
pub const SAME_USEC: u64 = 60_000_000;
/// For how long the agent may tell of it first, microseconds: it knows what was used.
const AGENT_FIRST_USEC: u64 = 10_000_000;
/// What ended earlier before it is read counts no more: rules look at two weeks at most.
const OLDEST_USEC: u64 = 14 * 86_400_000_000;
/// Kills that are remembered; those that were counted first go first, and what ended before them counts no more.
const REMEMBERED: usize = 16_384;

/// OOM kills of which the kubelets of a cluster tell.
#[derive(Clone, PartialEq, Message)]
pub struct Killed {
    /// The cluster.
    #[prost(string, tag = "1")]
    pub cluster: String,
    /// The kills.
    #[prost(message, repeated, tag = "2")]
    pub kills: Vec<Kill>,
}

/// A container that was OOM-killed, as its kubelet says.
#[derive(Clone, PartialEq, Message)]
pub struct Kill {
    /// Its node.
    #[prost(string, tag = "1")]
    pub node: String,
    /// Namespace of its pod.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Name of its pod.
    #[prost(string, tag = "3")]
    pub pod: String,
    /// The controller at the top of its pod; empty where there is none.
    #[prost(string, tag = "4")]
    pub workload: String,
    /// Name of the container.
    #[prost(string, tag = "5")]
    pub container: String,
    /// What its runtime called the run that ended.
    #[prost(string, tag = "6")]
    pub id: String,
    /// When it ended, microseconds since 1970.
    #[prost(uint64, tag = "7")]
    pub time_usec: u64,
    /// Memory it requested, bytes.
    #[prost(uint64, optional, tag = "8")]
    pub request: Option<u64>,
    /// Memory it might use, bytes.
    #[prost(uint64, optional, tag = "9")]
    pub limit: Option<u64>,
}

impl Kill {
    fn container(&self, cluster: &str) -> KilledContainer {
        KilledContainer::of(cluster, &self.namespace, &self.pod, &self.container)
    }

    fn seen(&self, minute: u32) -> Seen {
        Seen { id: self.id.clone(), time_usec: self.time_usec, minute, by_kubelet: true }
    }
}

/// A container of a pod: cluster, and `namespace/pod/container`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct KilledContainer(pub(crate) String, pub(crate) String);

impl KilledContainer {
    pub(super) fn of(cluster: &str, namespace: &str, pod: &str, container: &str) -> Self {
        Self(cluster.to_owned(), format!("{namespace}/{pod}/{container}"))
    }
}

/// A kill that was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seen {
    /// What its runtime called the run of the container.
    pub(crate) id: String,
    /// When it was, microseconds since 1970.
    pub(crate) time_usec: u64,
    /// When it was counted, minutes since 1970.
    pub(crate) minute: u32,
    /// A kubelet told of it, and no agent yet.
    pub(crate) by_kubelet: bool,
}

impl Seen {
    fn is_same(&self, other: &Self) -> bool {
        // Where there is no runtime an agent makes a name of its own.
        let is_name = |id: &str| id.is_empty() || id.contains('/');
        let is_run = self.id == other.id || is_name(&self.id) || is_name(&other.id);
        is_run && self.time_usec.abs_diff(other.time_usec) <= SAME_USEC
    }
}

/// Kills that were counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Kills {
    of: BTreeMap<KilledContainer, Vec<Seen>>,
    count: usize,
    /// What was counted until this minute may be forgotten.
    pub(crate) forgotten: u32,
}

impl Kills {
    /// An agent told of a kill; whether a kubelet did not before.
    pub(super) fn told_by_agent(&mut self, container: KilledContainer, seen: Seen) -> bool {
        let known = self.of.get_mut(&container).into_iter().flatten();
        if let Some(same) = known.into_iter().find(|known| known.by_kubelet && known.is_same(&seen)) {
            // The next one in this run is another.
            same.by_kubelet = false;
            return false;
        }
        self.remember(container, seen);
        true
    }

    /// Whether a kubelet tells of what was counted, or may have been.
    fn is_known(&self, cluster: &str, kill: &Kill) -> bool {
        let seen = kill.seen(0);
        kill.time_usec / MINUTE_USEC <= u64::from(self.forgotten)
            || self.of.get(&kill.container(cluster)).into_iter().flatten().any(|known| known.is_same(&seen))
    }

    /// Remembers what was counted.
    pub(crate) fn remember(&mut self, container: KilledContainer, seen: Seen) {
        self.of.entry(container).or_default().push(seen);
        self.count += 1;
        if self.count > REMEMBERED {
            self.forget();
        }
    }

    /// Forgets a quarter, and all that was counted in the same minutes.
    fn forget(&mut self) {
        let mut minutes: Vec<u32> = self.all().map(|(_, seen)| seen.minute).collect();
        minutes.sort_unstable();
        self.forgotten = minutes.get(REMEMBERED / 4).copied().unwrap_or(0).max(self.forgotten);
        let forgotten = self.forgotten;
        self.of.retain(|_, all| {
            all.retain(|seen| seen.minute > forgotten);
            !all.is_empty()
        });
        self.count = self.of.values().map(Vec::len).sum();
    }

    /// Everything remembered.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&KilledContainer, &Seen)> {
        self.of.iter().flat_map(|(container, all)| all.iter().map(move |seen| (container, seen)))
    }
}

impl StoreState {
    /// Those kills that are to be counted now: of containers that are known, which no agent told of in time.
    pub(crate) fn uncounted(&self, told: Killed, now_usec: u64) -> Killed {
        let Killed { cluster, mut kills } = told;
        let may_count = AGENT_FIRST_USEC..=OLDEST_USEC;
        kills.retain(|kill| {
            let age = now_usec.checked_sub(kill.time_usec);
            age.is_some_and(|age| may_count.contains(&age))
                && !self.kills.is_known(&cluster, kill)
                && self.whose(&cluster, kill).is_some()
        });
        Killed { cluster, kills }
    }

    /// Counts kills of which kubelets told alone.
    pub(super) fn killed(&mut self, Killed { cluster, kills }: Killed) {
        for kill in kills {
            let Some(own) = self.whose(&cluster, &kill).filter(|_| !self.kills.is_known(&cluster, &kill))
            else {
                continue;
            };
            self.kills.remember(kill.container(&cluster), kill.seen(self.clock.now()));
            let Kill { time_usec, request, limit, .. } = kill;
            let time_ms = time_usec / 1000;
            let event =
                PastEvent { time_ms, cause: Cause::OomKill, usage: None, request, limit, age_ms: None };
            if self.past.event(own, event) {
                self.past.counts.kubelet_events += 1;
            } else {
                self.counters.refused_kills += 1;
            }
        }
    }

    /// Whose history a kill is: that of the container as it runs in its pod now, or of its workload's container.
    fn whose(&self, cluster: &str, kill: &Kill) -> Option<SubjectId> {
        let node = NodeKey { cluster: cluster.to_owned(), node: kill.node.clone() };
        let stream = self.node(&node).and_then(|of| self.current(&node, of));
        let mut slots = stream.into_iter().flat_map(|stream| stream.slots.iter());
        let runs = slots.find(|slot| {
            let identity = &slot.identity;
            (&identity.namespace, &identity.pod, &identity.container)
                == (&kill.namespace, &kill.pod, &kill.container)
        });
        if let Some(own) = runs.and_then(|slot| slot.subjects[0]) {
            return Some(own);
        }
        let workload = if kill.workload.is_empty() { &kill.pod } else { &kill.workload };
        let of = ContainerKey::new(cluster, &kill.namespace, workload, &kill.container);
        self.past.find(&Subject::Own(of))
    }
}
