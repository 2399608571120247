//! Counters of enforcement, and the kinds of counters there are.
//!
//! Owned here: shapes. Not owned: how they are shown.

use std::sync::atomic::{AtomicU64, Ordering};

use evenkeel_host::error::Category;
use evenkeel_host::knob::Knob;
use evenkeel_host::write::Outcome;
use evenkeel_model::qos_class::QosClass;

/// A counter that only grows, or a gauge that is set.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Grows by `n`.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The present value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of [`Histogram`]'s buckets, microseconds: a tick's lateness and a score's delay both lie between a
/// tenth of a millisecond and tens of seconds. The last bucket takes the rest.
pub const HISTOGRAM_BOUNDS_USEC: [u64; 14] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// Durations in fixed buckets.
#[derive(Debug, Default)]
pub struct Histogram {
    /// Observations at or below each bound and above the one before; one more for the rest.
    pub buckets: [Count; HISTOGRAM_BOUNDS_USEC.len() + 1],
    /// Sum of all observations, microseconds.
    pub sum_usec: Count,
}

impl Histogram {
    /// Takes in one duration, microseconds.
    pub fn observe(&self, usec: u64) {
        let bucket = HISTOGRAM_BOUNDS_USEC.partition_point(|&bound| bound < usec);
        self.buckets[bucket].add(1);
        self.sum_usec.add(usec);
    }
}

/// A counter for each class by memory, and one for containers of none.
#[derive(Debug, Default)]
pub struct ByClass {
    /// BestEffort.
    pub best_effort: Count,
    /// Burstable.
    pub burstable: Count,
    /// Guaranteed.
    pub guaranteed: Count,
    /// Containers about whose requests nothing is known.
    pub unclassified: Count,
}

impl ByClass {
    /// The counter of a class.
    pub const fn of(&self, class: Option<QosClass>) -> &Count {
        match class {
            Some(QosClass::BestEffort) => &self.best_effort,
            Some(QosClass::Burstable) => &self.burstable,
            Some(QosClass::Guaranteed) => &self.guaranteed,
            None => &self.unclassified,
        }
    }
}

/// What came of writes, for one knob.
#[derive(Debug, Default)]
pub struct WriteStats {
    /// Written and read back.
    pub done: Count,
    /// Dry run: would have been written.
    pub would: Count,
    /// Refused for lack of permission.
    pub denied: Count,
    /// The kernel has no such knob or refused the value.
    pub rejected: Count,
    /// The process or cgroup was gone.
    pub gone: Count,
    /// Failed otherwise.
    pub failed: Count,
}

impl WriteStats {
    /// Counts what came of one write.
    pub(crate) fn count(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Written { .. } => self.done.add(1),
            Outcome::Unchanged { .. } => {}
            Outcome::WouldWrite { .. } => self.would.add(1),
            Outcome::Refused(_) => self.rejected.add(1),
            Outcome::Failed { error, .. } => match error.category() {
                Category::Gone => self.gone.add(1),
                Category::Denied => self.denied.add(1),
                Category::Unsupported | Category::Rejected => self.rejected.add(1),
                Category::Malformed | Category::Partial | Category::Io => self.failed.add(1),
            },
        }
    }
}

/// What came of writes, by knob.
#[derive(Debug, Default)]
pub struct Writes([WriteStats; Knob::ALL.len()], WriteStats);

impl Writes {
    /// The counters of one knob.
    pub fn of(&self, knob: Knob) -> &WriteStats {
        let place = Knob::ALL.iter().position(|known| *known == knob);
        // Knobs that are no knob of ours share the last one.
        place.and_then(|place| self.0.get(place)).unwrap_or(&self.1)
    }

    /// Every knob with its counters.
    pub fn iter(&self) -> impl Iterator<Item = (Knob, &WriteStats)> {
        Knob::ALL.into_iter().zip(&self.0)
    }
}

/// Counters of enforcement, shown at `/metrics` under `evenkeel_agent_*`. Each is written by one part only.
#[derive(Default)]
pub struct Stats {
    /// State files that could not be read back whole.
    pub damages: crate::damage::Damages,

    /// Pressure loop.
    pub pressure: crate::pressure::view::PressureStats,

    // Converger.
    /// Writes by knob.
    pub writes: Writes,
    /// Passes over a container's processes.
    pub converge_passes: Count,
    /// Containers frozen because forks outran the passes.
    pub freezes: Count,
    /// Processes found right by a verifying pass.
    pub processes_verified: Count,
    /// Time from the start of a container's first process to all of its processes verified at their score, of
    /// containers that began while the agent ran.
    pub first_pid_to_right: Histogram,
    /// Time from noticing that a container may be wrong to having verified it.
    pub time_to_right: Histogram,
    /// Process events received from the kernel.
    pub process_events: Count,
    /// Times the kernel dropped process events and every container was looked at instead.
    pub process_events_overrun: Count,
    /// Execs of unknown processes that were not looked up, because there were too many at once.
    pub process_events_shed: Count,
    /// Times process events were not read for some seconds, because there were too many.
    pub process_events_paused: Count,
    /// Changes of the cgroup tree received from the kernel.
    pub cgroup_events: Count,
    /// Containers known.
    pub containers: Count,
    /// Containers converged.
    pub containers_converged: Count,
    /// Containers of which some knob is without its effect.
    pub containers_ineffective: Count,
    /// Containers whose requests follow a recommendation instead of what was asked for.
    pub resized: Count,
    /// Containers of which some knob is contended.
    pub containers_contended: Count,
    /// Pods of manifests whose requests do not fit beside the others'.
    pub pods_not_admitted: Count,
    /// Track changes that had to wait because the sampler was behind.
    pub track_changes_deferred: Count,
    /// Sources known and, of these, healthy.
    pub sources: Count,
    /// Healthy sources.
    pub sources_healthy: Count,

    // Node.
    /// Daemons found.
    pub daemons: Count,
    /// Of these, those that hold the score of infrastructure.
    pub daemons_protected: Count,
    /// `vm.overcommit_memory` as last read.
    pub overcommit: Count,
    /// Swap that is on, bytes.
    pub swap_bytes: Count,
    /// The cap of all workloads, bytes; 0 = off.
    pub workloads_cap_bytes: Count,
    /// What everything outside the workloads' cgroup uses and cannot give back, bytes.
    pub outside_workloads_bytes: Count,

    // Decisions.
    /// Decisions recorded.
    pub decisions: Count,
    /// Decisions that could not be written to disk.
    pub decisions_not_stored: Count,
    /// Decisions dropped from the queue for the stream.
    pub decisions_not_streamed: Count,

    // OOM kills.
    /// Processes of containers taken by the OOM killer.
    pub oom_kills: ByClass,
    /// Containers of which the agent ended the rest.
    pub rests_ended: Count,
    /// Rulings that a pod should go.
    pub evictions: ByClass,
    /// Rulings that a container should be started again.
    pub restarts: ByClass,
    /// Rulings that were carried out.
    pub rulings_carried_out: Count,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let h = Histogram::default();
        for usec in [0, 100, 101, 30_000_000, 30_000_001] {
            h.observe(usec);
        }
        let counts: Vec<u64> = h.buckets.iter().map(Count::get).collect();
        assert_eq!((counts[0], counts[1], counts[13], counts[14]), (2, 1, 1, 1));
    }
}
