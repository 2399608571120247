//! Owns what is counted about an engine, for logs and metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use super::failure::EngineFailure;

/// Counts of one engine since the start. Values are those of the history: a minute, an hour, a day, an event.
#[derive(Debug, Default)]
pub struct EngineCounters {
    /// Values the engine has acknowledged.
    pub written: AtomicU64,
    /// Values it refused for good: too old, out of order, larger than it can keep.
    pub refused: AtomicU64,
    /// Values dropped because the queue was full.
    pub dropped: AtomicU64,
    /// Values waiting.
    pub waiting: AtomicU64,
    /// Values read back.
    pub read: AtomicU64,
    /// Points read back that were not understood.
    pub misread: AtomicU64,
    /// Requests that failed in a way that may pass: no answer, too slow, overloaded.
    pub unavailable: AtomicU64,
    /// Answers that made no sense.
    pub malformed: AtomicU64,
    /// Requests that were refused or went to the wrong place.
    pub refusals: AtomicU64,
}

impl EngineCounters {
    /// Counts a failed request.
    pub(crate) fn failed(&self, failure: &EngineFailure) {
        add(
            match failure {
                EngineFailure::Down { .. } | EngineFailure::Slow { .. } | EngineFailure::Busy { .. } => {
                    &self.unavailable
                }
                EngineFailure::Malformed { .. } | EngineFailure::TooLong => &self.malformed,
                EngineFailure::TooLarge { .. }
                | EngineFailure::Refused { .. }
                | EngineFailure::Misdirected { .. } => &self.refusals,
            },
            1,
        );
    }
}

/// Adds to a count.
pub(crate) fn add(count: &AtomicU64, by: u64) {
    count.fetch_add(by, Ordering::Relaxed);
}
