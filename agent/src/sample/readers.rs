//! The readers of all tracked containers, ascending by slot.

use std::sync::Arc;
use std::time::Duration;

use evenkeel_host::error::Category;
use evenkeel_host::sampler::{ContainerReader, SampleContext};
use evenkeel_model::sample::Sample;

use crate::shared::{Stats, TrackChange, Tracked};

/// One container being read.
struct Entry {
    slot: u32,
    reader: ContainerReader,
}

/// All containers being read.
pub(super) struct Readers {
    kernel: SampleContext,
    entries: Vec<Entry>,
}

impl Readers {
    pub(super) fn new(kernel: SampleContext) -> Self {
        Self { kernel, entries: Vec::new() }
    }

    /// Begins or ends to read one container.
    pub(super) fn change(&mut self, change: &TrackChange, stats: &Stats) {
        let slot = match change {
            TrackChange::Added(tracked) => tracked.slot,
            TrackChange::Removed { slot } => *slot,
        };
        let place = self.entries.binary_search_by_key(&slot, |e| e.slot);
        match (change, place) {
            (TrackChange::Added(tracked), Err(at)) => {
                if let Some(reader) = self.open(tracked, stats) {
                    self.entries.insert(at, Entry { slot, reader });
                }
            }
            (TrackChange::Removed { .. }, Ok(at)) => drop(self.entries.remove(at)),
            // It asks for something else, or was removed after its cgroup had gone: nothing changes.
            _ => {}
        }
    }

    fn open(&self, tracked: &Arc<Tracked>, stats: &Stats) -> Option<ContainerReader> {
        let (container, cgroup) = (&tracked.workload.id, &*tracked.cgroup);
        let opened = match ContainerReader::open(&self.kernel, cgroup) {
            Ok(opened) => opened,
            Err(error) if error.is_gone() => {
                tracing::debug!(container, cgroup, %error, "ignoring a container that is gone before its first sample");
                return None;
            }
            Err(error) => {
                stats.sample_errors.add(1);
                tracing::warn!(container, cgroup, %error, "a container cannot be sampled");
                return None;
            }
        };
        if !opened.reader.places().iter().any(|place| place.inode == tracked.inode) {
            tracing::debug!(container, cgroup, "ignoring a cgroup that took the path of the one tracked");
            return None;
        }
        for error in &opened.errors {
            stats.sample_errors.add(1);
            let category = error.category();
            if category == Category::Denied {
                tracing::warn!(container, %error, "a part of the samples is missing");
            } else {
                tracing::debug!(container, %error, %category, "ignoring a file that cannot be sampled");
            }
        }
        Some(opened.reader)
    }

    /// Reads every container; `now` is asked once for each, so that each sample has its true interval. Those whose
    /// cgroup is gone are dropped.
    pub(super) fn read_all(
        &mut self,
        tick: u64,
        now: impl Fn() -> Duration,
        samples: &mut Vec<(u32, Sample)>,
        stats: &Stats,
    ) {
        // Grows only when the number of containers did.
        samples.reserve(self.entries.len());
        let kernel = &mut self.kernel;
        self.entries.retain_mut(|entry| match entry.reader.sample(kernel, now(), tick) {
            Ok((sample, flaws)) => {
                samples.push((entry.slot, sample));
                if !flaws.is_empty() {
                    stats.sample_errors.add(u64::from((flaws.malformed | flaws.unreadable).count_ones()));
                }
                true
            }
            Err(error) => {
                tracing::debug!(slot = entry.slot, %error, "ignoring a container whose cgroup is gone");
                !error.is_gone()
            }
        });
    }
}
