//! Owns the minute as it is kept: what a container used within one minute, both resources.

use evenkeel_model::rollup::{Aggregate, Rollup};

/// A container's minute, or the part of it that arrived. Times in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoredMinute {
    /// Minute since 1970.
    pub minute: u32,
    /// Samples it was made of.
    pub samples: u32,
    /// Time they stand for.
    pub weight_ms: u64,
    /// CPU use, millionths of a core.
    pub cpu: Aggregate,
    /// Working set, bytes.
    pub memory: Aggregate,
    /// Time throttled.
    pub throttled_ms: u64,
    /// Time in which the CPU use was held down.
    pub starved_ms: u64,
    /// OOM kills.
    pub oom_kills: u32,
}

impl StoredMinute {
    /// What is kept of a rollup.
    pub fn of(minute: u32, rollup: &Rollup) -> Self {
        Self {
            minute,
            samples: u32::try_from(rollup.samples).unwrap_or(u32::MAX),
            weight_ms: rollup.time_usec.saturating_add(500) / 1000,
            cpu: rollup.cpu_micro,
            memory: rollup.memory_bytes,
            throttled_ms: rollup.throttled_usec.saturating_add(500) / 1000,
            starved_ms: rollup.starved_usec.saturating_add(500) / 1000,
            oom_kills: u32::try_from(rollup.oom_kills).unwrap_or(u32::MAX),
        }
    }
}
