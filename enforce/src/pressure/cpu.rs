//! Looking for containers that starve of CPU.

use std::collections::{BTreeSet, HashMap};

use evenkeel_host::node::CpuTimes;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::MilliCpu;
use evenkeel_qos::starvation::{ContainerCpu, Machine, StarvationAction, StarvationConfig, StarvationResult};

use super::domain::{asked, may_be_touched};
use super::sight::{CpuNow, Sight};
use crate::converge::roster::RosterEntry;

/// Time between two looks, microseconds: several within the shortest time that counts as starving.
const BETWEEN_LOOKS_USEC: u64 = 2_000_000;

/// Containers whose threads are asked how long they waited, at one look (v1): more wait for a later one.
const SUSPECTS: usize = 64;

/// The look and its memory.
#[derive(Default)]
pub(super) struct CpuLook {
    machine: Machine,
    node: Option<CpuTimes>,
    before: HashMap<u32, CpuNow>,
    /// Who used less than it asked for at the last look: only of these the waiting is asked where that is dear.
    suspects: BTreeSet<u32>,
    next_usec: u64,
}

impl CpuLook {
    pub(super) fn starving(&self) -> usize {
        self.machine.starving()
    }

    pub(super) fn done(&mut self, action: &StarvationAction, verdict: StarvationResult) {
        self.machine.done(action, verdict);
    }

    /// Looks when it is time. While the node is not busy and nobody is squeezed, containers are not read.
    pub(super) fn look(
        &mut self,
        sight: &mut dyn Sight,
        roster: &[RosterEntry],
        rules: &StarvationConfig,
    ) -> Vec<(StarvationAction, RosterEntry)> {
        let now = sight.now_usec();
        if now < self.next_usec {
            return Vec::new();
        }
        self.next_usec = now.saturating_add(BETWEEN_LOOKS_USEC.min(rules.after_usec / 2));
        let Some(times) = sight.cpu_times() else { return Vec::new() };
        let Some(busy) = self.node.replace(times).and_then(|then| busy(then, times)) else {
            return Vec::new();
        };
        if busy < rules.busy && !self.machine.holds() && self.machine.starving() == 0 {
            self.before.clear();
            self.suspects.clear();
            // Whoever was on the way to starving begins anew.
            self.machine = Machine::default();
            return Vec::new();
        }
        let mut before = std::mem::take(&mut self.before);
        let mut seen = Vec::new();
        let stirred = sight.stirred();
        // Whoever neither ran nor waited wants nothing and takes nothing: its files need not be read.
        let rests = |slot| stirred.as_ref().is_some_and(|some| !some.contains(&slot));
        for entry in roster {
            let slot = entry.tracked.slot;
            if rests(slot) && !self.machine.holds_key(slot) {
                continue;
            }
            let Ok(read) = sight.cpu(entry, self.suspects.contains(&slot)) else { continue };
            seen.extend(before.remove(&slot).and_then(|then| facts(entry, then, read)));
            self.before.insert(slot, read);
        }
        let short = |facts: &&ContainerCpu| {
            facts.usage_milli < facts.request_milli.saturating_mul(u64::from(rules.below)) / 10_000
        };
        self.suspects = seen.iter().filter(short).map(|facts| facts.key).take(SUSPECTS).collect();
        let actions = self.machine.step(now, busy, &seen, rules);
        let entry_of = |action: StarvationAction| {
            let entry = roster.iter().find(|entry| entry.tracked.slot == action.key)?;
            Some((action, entry.clone()))
        };
        actions.into_iter().filter_map(entry_of).collect()
    }
}

/// Part of the processors' time that was busy, hundredths of a percent. Time the hypervisor took was not to be had.
fn busy(then: CpuTimes, now: CpuTimes) -> Option<u32> {
    let busy = now.busy_usec.saturating_sub(then.busy_usec);
    let all = busy.saturating_add(now.idle_usec.saturating_sub(then.idle_usec));
    let part = u128::from(busy) * 10_000 / u128::from(all.max(1));
    (all > 0).then(|| u32::try_from(part).unwrap_or(10_000))
}

fn facts(entry: &RosterEntry, then: CpuNow, now: CpuNow) -> Option<ContainerCpu> {
    let span = now.read_usec.checked_sub(then.read_usec).filter(|span| *span > 0)?;
    let of_span = |part: u64, whole: u64| {
        u64::try_from(u128::from(part) * u128::from(whole) / u128::from(span)).unwrap_or(u64::MAX)
    };
    let asked = asked(entry)?;
    let waited = now.waited_usec.zip(then.waited_usec);
    let waited = waited.map(|(now, then)| of_span(now.saturating_sub(then), 10_000).min(10_000));
    Some(ContainerCpu {
        key: entry.tracked.slot,
        managed: may_be_touched(entry),
        class: entry.tracked.classes.cpu.unwrap_or(QosClass::Guaranteed),
        request_milli: asked.cpu_request.unwrap_or(MilliCpu::ZERO).get(),
        usage_milli: of_span(now.usage_usec.saturating_sub(then.usage_usec), 1000),
        waited: waited.and_then(|part| u32::try_from(part).ok()),
        throttled: now.throttled > then.throttled,
        least_weight: now.least_weight,
        can_idle: now.can_idle,
    })
}
