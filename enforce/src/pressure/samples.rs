//! What the samples say of every container without a file being read: who stirred, who waited for memory.

use std::collections::{HashMap, HashSet};

use evenkeel_model::sample::Field;

use crate::shared::lock;
use crate::usage::Usage;

/// The sampler's numbers, and what they were when last looked at.
pub(super) struct Samples {
    usage: Usage,
    /// Of the latest tick, microseconds since 1970.
    time_usec: u64,
    /// CPU time and CPU pressure by slot, microseconds.
    cpu: HashMap<u32, [u64; 2]>,
    /// Memory pressure by slot, microseconds, and the time of that tick.
    memory: (u64, HashMap<u32, u64>),
}

impl Samples {
    pub(super) fn new(usage: Usage) -> Self {
        Self { usage, time_usec: 0, cpu: HashMap::new(), memory: (0, HashMap::new()) }
    }

    /// Slots whose numbers grew, or are seen for the first time; `None` when no tick came since, and at first.
    pub(super) fn stirred(&mut self) -> Option<HashSet<u32>> {
        let latest = lock(&self.usage);
        let before = std::mem::replace(&mut self.time_usec, latest.time_usec());
        let mut stirred = HashSet::new();
        let mut now = HashMap::with_capacity(self.cpu.len());
        latest.each(&mut |slot, sample| {
            let number = |field| sample.get(field).unwrap_or(0);
            let cpu = [number(Field::CpuUsageUsec), number(Field::CpuPressureUsec)];
            if self.cpu.get(&slot) != Some(&cpu) {
                stirred.insert(slot);
            }
            now.insert(slot, cpu);
        });
        self.cpu = now;
        (before != 0 && self.time_usec > before).then_some(stirred)
    }

    /// Slots that waited for memory at least this part of the time since the last question; `None` where no container
    /// has such a number.
    pub(super) fn memory_waiters(&mut self, least: u32) -> Option<HashSet<u32>> {
        let latest = lock(&self.usage);
        let (then, before) = &self.memory;
        let span = latest.time_usec().saturating_sub(*then);
        let mut now = HashMap::new();
        let mut waiters = HashSet::new();
        latest.each(&mut |slot, sample| {
            let Some(waited) = sample.get(Field::MemoryPressureUsec) else { return };
            let since = before.get(&slot).map_or(0, |before| waited.saturating_sub(*before));
            if u128::from(since) * 10_000 >= u128::from(span) * u128::from(least) && since > 0 {
                waiters.insert(slot);
            }
            now.insert(slot, waited);
        });
        if now.is_empty() {
            return None;
        }
        // Between two ticks nothing is new.
        if span > 0 {
            self.memory = (latest.time_usec(), now);
        }
        Some(waiters)
    }
}
