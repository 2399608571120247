//! What the leader remembers between passes, and may lose: how many steps it took in the last minute, evictions whose pods have not been made
//! anew, and when it carried out offers of agents. What must not be lost is on the pods ([`crate::note`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::facts::{RunningPod, Sizes, UpdateRules, Workload};
use crate::sizes;

/// A minute, seconds.
const MINUTE: u64 = 60;

/// Workloads whose offers are remembered; of more, those that were carried out first are forgotten.
const MOST_OFFERS: usize = 4096;

/// Namespace and name of a workload.
pub(crate) type Key = (String, String);

/// An eviction, or several in a row that came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Evicted {
    /// When.
    at: u64,
    /// Pods that were there then.
    were: BTreeSet<String>,
    /// What the evicted pod had.
    before: Sizes,
    /// How many in a row came to nothing.
    tries: u32,
    /// It is over; nothing more is evicted before this.
    until: Option<u64>,
}

/// Offers of agents that were carried out of one workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Offered {
    /// When: pods made since are in the place of those that were evicted.
    at: u64,
    /// How often in a row one that was made in such a place was evicted as well, and the first.
    tries: u32,
}

/// What is remembered of one workload.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remembered {
    evicted: Option<Evicted>,
    offered: Option<Offered>,
}

/// What is remembered between passes.
#[derive(Debug, Clone, Default)]
pub struct UpdaterMemory {
    steps: VecDeque<u64>,
    evicted: BTreeMap<Key, Evicted>,
    offered: BTreeMap<Key, Offered>,
}

pub(crate) fn key(workload: &Workload) -> Key {
    (workload.namespace.clone(), workload.name.clone())
}

/// How it stands with the last eviction of a workload.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum LastEviction<'a> {
    /// There was none, or what came of it is over.
    None,
    /// The pod has not been made anew, or does not serve yet.
    Awaited,
    /// This one was made in its place, and what the evicted one had.
    Made(&'a RunningPod, Sizes),
    /// It changed nothing: nothing more is evicted before this time.
    Fruitless(u64),
}

impl UpdaterMemory {
    /// What is remembered of a workload alone.
    pub(crate) fn of(&self, workload: &Workload) -> Remembered {
        let key = key(workload);
        Remembered { evicted: self.evicted.get(&key).cloned(), offered: self.offered.get(&key).copied() }
    }

    /// As if nothing else were remembered.
    pub(crate) fn only(workload: &Workload, remembered: Remembered) -> Self {
        let Remembered { evicted, offered } = remembered;
        let evicted = evicted.map(|one| (key(workload), one)).into_iter().collect();
        let offered = offered.map(|one| (key(workload), one)).into_iter().collect();
        Self { steps: VecDeque::new(), evicted, offered }
    }

    /// Forgets what is gone, or over.
    pub(crate) fn forget_others(&mut self, all: &[Workload], rules: &UpdateRules, now: u64) {
        let there: BTreeSet<Key> = all.iter().map(key).collect();
        self.evicted.retain(|key, _| there.contains(key));
        self.offered.retain(|_, one| now < one.at.saturating_add(rules.again_most_seconds));
    }

    /// An offer of an agent was carried out: a pod made at that time was evicted.
    pub fn took_offer(&mut self, namespace: &str, workload: &str, created: u64, now: u64) {
        let key = (namespace.to_owned(), workload.to_owned());
        if self.offered.len() >= MOST_OFFERS && !self.offered.contains_key(&key) {
            let oldest = self.offered.iter().min_by_key(|(_, one)| one.at).map(|(key, _)| key.clone());
            if let Some(oldest) = oldest {
                self.offered.remove(&oldest);
            }
        }
        let one = self.offered.entry(key).or_insert(Offered { at: now, tries: 0 });
        // Others that were there before the first of them went are none of its heirs.
        if one.tries == 0 || created >= one.at {
            *one = Offered { at: now, tries: one.tries.saturating_add(1) };
        }
    }

    /// How long no offer is carried out about a pod that was made in the place of one that was evicted.
    pub(crate) fn offer_pause(
        &self,
        workload: &Workload,
        pod: &RunningPod,
        rules: &UpdateRules,
        now: u64,
    ) -> Option<u64> {
        let one = self.offered.get(&key(workload)).filter(|one| pod.created >= one.at)?;
        let until = one.at.saturating_add(rules.pause(one.tries));
        (now < until).then(|| until - now)
    }

    /// Whether one more step may be taken.
    pub(crate) fn may_step(&mut self, rules: &UpdateRules, now: u64) -> bool {
        while self.steps.front().is_some_and(|at| at + MINUTE <= now || *at > now) {
            self.steps.pop_front();
        }
        self.steps.len() < usize::try_from(rules.per_minute).unwrap_or(usize::MAX)
    }

    pub(crate) fn stepped(&mut self, now: u64) {
        self.steps.push_back(now);
    }

    /// A pod is evicted.
    pub(crate) fn evicts(&mut self, workload: &Workload, pod: &RunningPod, now: u64) {
        let tries = self.evicted.get(&key(workload)).map_or(0, |before| before.tries);
        let were = workload.pods.iter().map(|pod| pod.uid.clone()).collect();
        let evicted = Evicted { at: now, were, before: pod.sizes.clone(), tries, until: None };
        self.evicted.insert(key(workload), evicted);
    }

    /// An eviction was refused: it never was.
    pub fn evicts_not(&mut self, namespace: &str, workload: &str) {
        self.evicted.remove(&(namespace.to_owned(), workload.to_owned()));
    }

    /// How it stands with the last eviction.
    pub(crate) fn last<'a>(
        &mut self,
        workload: &'a Workload,
        rules: &UpdateRules,
        now: u64,
    ) -> LastEviction<'a> {
        let key = key(workload);
        let Some(evicted) = self.evicted.get_mut(&key) else { return LastEviction::None };
        if let Some(until) = evicted.until {
            return if now < until { LastEviction::Fruitless(until) } else { LastEviction::None };
        }
        let is_new = |pod: &&RunningPod| !pod.is_ending && !evicted.were.contains(&pod.uid);
        let fruitless = |evicted: &mut Evicted| {
            evicted.tries = evicted.tries.saturating_add(1);
            let until = now.saturating_add(rules.pause(evicted.tries));
            evicted.until = Some(until);
            LastEviction::Fruitless(until)
        };
        match workload.pods.iter().find(is_new) {
            Some(pod) if sizes::wanted(workload, pod).is_change() => fruitless(evicted),
            Some(pod) if pod.is_ready => {
                let before = evicted.before.clone();
                self.evicted.remove(&key);
                LastEviction::Made(pod, before)
            }
            _ if now >= evicted.at.saturating_add(rules.in_progress_seconds) => fruitless(evicted),
            _ => LastEviction::Awaited,
        }
    }
}
