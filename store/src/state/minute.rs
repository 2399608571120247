//! Owns the entry of the history: one resource of one container within one minute.

use evenkeel_model::rollup::Aggregate;
use evenkeel_rightsizing::Resource;

use crate::history::minute::StoredMinute;

/// Microseconds in a minute.
pub const MINUTE_USEC: u64 = 60_000_000;

/// One resource of one container within one minute, or the part of it that has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MinuteEntry {
    /// Minute since 1970.
    pub minute: u32,
    /// Samples it was made of.
    pub count: u32,
    /// Their mean, rounded down. CPU in thousandths of a core, memory in bytes.
    pub mean: u64,
    /// The least of them.
    pub min: u64,
    /// The greatest of them.
    pub max: u64,
}

impl MinuteEntry {
    /// The entry of one resource of a minute; nothing when the minute has no number of it.
    pub fn of_kept(kept: &StoredMinute, resource: Resource) -> Option<Self> {
        let aggregate = of_resource(kept, resource);
        let mean = aggregate.mean()?;
        let scale = if resource == Resource::Cpu { 1000 } else { 1 };
        let count = u32::try_from(aggregate.count).unwrap_or(u32::MAX);
        let (min, max) = (aggregate.min / scale, aggregate.max / scale);
        Some(Self { minute: kept.minute, count, mean: mean / scale, min, max })
    }

    /// The value the rules take as the minute's sample: the mean of CPU, the peak of memory, since memory that was
    /// needed for a second was needed.
    pub fn sample(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Cpu => self.mean,
            Resource::Memory => self.max,
        }
    }
}

/// The numbers of one resource.
pub const fn of_resource(kept: &StoredMinute, resource: Resource) -> &Aggregate {
    match resource {
        Resource::Cpu => &kept.cpu,
        Resource::Memory => &kept.memory,
    }
}
