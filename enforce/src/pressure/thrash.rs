//! Looking for containers that thrash at their own limits, to name them. Nothing is done about them here.

use std::collections::{BTreeMap, HashMap};

use evenkeel_host::error::HostError;
use evenkeel_qos::pressure::{LimitFacts, NodePressure, ThrashRules, ThrashWatch, Thrashing};

use super::sight::{LimitNow, Sight};
use crate::converge::roster::RosterEntry;

/// Time between two looks, microseconds.
const BETWEEN_LOOKS_USEC: u64 = 2_000_000;
/// The same where the kernel tells nobody's waiting, so that everybody has to be looked at.
const BETWEEN_BLIND_LOOKS_USEC: u64 = 10_000_000;
/// A look takes at most this part of the time, one in so many.
const PART_OF_TIME: u64 = 20;
/// How long a container thrashes before it is named, microseconds.
const AFTER_USEC: u64 = 4_000_000;
/// How long it is then not named again while its limit stays, microseconds.
const AGAIN_USEC: u64 = 600_000_000;

/// One container to be named.
pub(super) struct ThrashCase {
    pub(super) case: Thrashing,
    /// Kernel file of the limit.
    pub(super) knob: &'static str,
    pub(super) entry: RosterEntry,
}

/// The look and its memory.
#[derive(Default)]
pub(super) struct ThrashLook {
    watch: ThrashWatch,
    /// How often each ran into its limit, by the last look.
    hits: HashMap<u32, u64>,
    /// Time in which some of the node waited, and when that was read.
    node: Option<(u64, u64)>,
    next_usec: u64,
}

impl ThrashLook {
    pub(super) fn thrashing(&self) -> usize {
        self.watch.thrashing()
    }

    /// Looks when it is time. `least_waited` is the part of the time, hundredths of a percent, in which some must wait;
    /// whoever is `held` by us runs into a limit of ours.
    pub(super) fn look(
        &mut self,
        sight: &mut dyn Sight,
        roster: &[RosterEntry],
        node: &NodePressure,
        least_waited: u32,
        held: impl Fn(u32) -> bool,
    ) -> Vec<ThrashCase> {
        let now = sight.now_usec();
        if now < self.next_usec {
            return Vec::new();
        }
        let node_waited = self.node_waited(node, now);
        let waiters = sight.memory_waiters(least_waited);
        let is_calm = node_waited.is_some_and(|part| part < least_waited);
        let mut seen = Vec::new();
        let mut knobs = BTreeMap::new();
        let mut hits = HashMap::new();
        for entry in roster {
            let slot = entry.tracked.slot;
            let waits = match &waiters {
                Some(waiters) => waiters.contains(&slot),
                None => !is_calm,
            };
            if held(slot) || !(waits || self.watch.watches(slot)) {
                continue;
            }
            if let Ok(Some(limit)) = self.one(sight, entry, &mut hits) {
                knobs.insert(slot, limit.knob);
                seen.push(facts(slot, &limit));
            }
        }
        self.hits = hits;
        let rules = ThrashRules { least_waited, after_usec: AFTER_USEC, again_usec: AGAIN_USEC };
        let named = self.watch.step(now, node_waited, &seen, &rules);
        let between = if waiters.is_none() && node.some_usec.is_none() {
            BETWEEN_BLIND_LOOKS_USEC
        } else {
            BETWEEN_LOOKS_USEC
        };
        let cost = sight.now_usec().saturating_sub(now).saturating_mul(PART_OF_TIME);
        self.next_usec = now.saturating_add(cost.max(between));
        let of = |(key, case)| {
            let entry = roster.iter().find(|entry| entry.tracked.slot == key)?.clone();
            Some(ThrashCase { case, knob: knobs.get(&key)?, entry })
        };
        named.into_iter().filter_map(of).collect()
    }

    /// A container that ran into its limit since the last look, or is being watched.
    fn one(
        &self,
        sight: &mut dyn Sight,
        entry: &RosterEntry,
        hits: &mut HashMap<u32, u64>,
    ) -> Result<Option<LimitNow>, HostError> {
        let slot = entry.tracked.slot;
        let now = sight.limit_hits(entry)?;
        hits.insert(slot, now);
        if now == 0 || (self.hits.get(&slot) == Some(&now) && !self.watch.watches(slot)) {
            return Ok(None);
        }
        sight.limit(entry)
    }

    /// Part of the time since the last look in which some of the node waited; `None` where the kernel does not tell.
    fn node_waited(&mut self, node: &NodePressure, now: u64) -> Option<u32> {
        let some = node.some_usec?;
        let (before, at) = self.node.replace((some, now))?;
        let span = now.checked_sub(at).filter(|span| *span > 0)?;
        let part = u128::from(some.saturating_sub(before)) * 10_000 / u128::from(span);
        Some(u32::try_from(part.min(10_000)).unwrap_or(10_000))
    }
}

fn facts(key: u32, limit: &LimitNow) -> LimitFacts {
    LimitFacts {
        key,
        limit: limit.limit,
        current: limit.current,
        hits: limit.hits,
        refaulted: limit.refaulted,
        some_usec: limit.some_usec,
        read_usec: limit.read_usec,
    }
}
