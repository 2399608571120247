//! Dynamic scores: within the Burstable band they follow use and priority.
//!
//! Owned here: feeding the rule with fresh samples, at a pace that bounds what is written, and giving its scores as
//! inputs to the desired state of containers. Not owned: the rule ([`evenkeel_qos::dynamic`]), bringing processes to a score ([`super::score`]).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::sample::Field;
use evenkeel_model::units::Bytes;
use evenkeel_model::workload::{ContainerKind, Requested, Workload};
use evenkeel_qos::dynamic::{Dynamic, DynamicRule, ScoreCandidate};
use evenkeel_qos::rules::{RuleSet, defaulted};

use super::container::TrackedContainer;
use super::table::{Input, Rules, Table};
use super::wake::Key;
use crate::shared::lock;
use crate::usage::Usage;

/// Time between two rounds, each of which writes a bounded number of containers: slower than a container grows in an
/// ordinary way, faster than a node runs out of memory.
const ROUND: Duration = Duration::from_secs(5);
/// Samples older than this rank nobody.
const FRESH_USEC: u64 = 3_000_000;

/// The option in force.
pub(super) struct DynamicScores {
    rule: Dynamic,
    usage: Usage,
    next: Instant,
}

impl DynamicScores {
    /// Everybody has the formula's score.
    pub(super) fn new(rules: RuleSet, usage: Usage, now: Instant) -> Self {
        Self { rule: Dynamic::new(DynamicRule::new(rules)), usage, next: now + ROUND }
    }

    /// When the next round is due.
    pub(super) const fn due(&self) -> Instant {
        self.next
    }

    /// Ranks Burstable containers by fresh samples; gives keys of those with another score.
    pub(super) fn turn(
        &mut self,
        table: &mut Table,
        rules: &Rules,
        capacity: Bytes,
        now_usec: u64,
        now: Instant,
    ) -> Vec<Key> {
        if now < self.next {
            return Vec::new();
        }
        self.next = now + ROUND;
        let Some(used) = self.used(now_usec) else { return Vec::new() };
        let mut keys = HashMap::new();
        let mut candidates = Vec::new();
        for (key, container) in table.entries() {
            if let Some(candidate) = candidate(container, &used) {
                keys.insert(candidate.id.clone(), key);
                candidates.push(candidate);
            }
        }
        let changed = self.rule.observe(capacity, &candidates);
        let give = |id: String| {
            let key = *keys.get(&id)?;
            let wish = self.rule.wish(&id)?.clone();
            table.give(rules, key, Input::Score(wish)).then_some(key)
        };
        changed.into_iter().filter_map(give).collect()
    }

    /// Working sets by slot; `None` without a fresh tick.
    fn used(&self, now_usec: u64) -> Option<HashMap<u32, Bytes>> {
        let latest = lock(&self.usage);
        if latest.time_usec() == 0 || now_usec.saturating_sub(latest.time_usec()) > FRESH_USEC {
            return None;
        }
        let mut used = HashMap::new();
        latest.each(&mut |slot, sample| {
            let memory = sample.get(Field::MemoryWorkingSetBytes).or(sample.get(Field::MemoryCurrentBytes));
            used.extend(memory.map(|bytes| (slot, Bytes::new(bytes))));
        });
        Some(used)
    }
}

/// A Burstable container whose score is ours and whose use is known.
fn candidate(container: &TrackedContainer, used: &HashMap<u32, Bytes>) -> Option<ScoreCandidate> {
    let workload = &container.tracked.workload;
    let is_burstable = container.tracked.classes.memory == Some(QosClass::Burstable);
    let is_fixed = workload.pod_facts.node_critical || workload.kind == ContainerKind::Infrastructure;
    if !is_burstable || is_fixed || container.scores.is_none() {
        return None;
    }
    Some(ScoreCandidate {
        id: workload.id.clone(),
        request: request_of(workload)?,
        usage: *used.get(&container.tracked.slot)?,
        largest: None,
        priority: workload.pod_facts.priority.unwrap_or(0),
    })
}

fn request_of(workload: &Workload) -> Option<Bytes> {
    match workload.requested {
        Requested::Stated(resources) => defaulted(resources).memory_request,
        Requested::Estimated(estimate) => estimate.resources.memory_request,
        Requested::Unknown => None,
    }
}
