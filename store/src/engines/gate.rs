//! Owns the time for which an engine asked to be left alone (`Retry-After`).

use std::time::{Duration, Instant};

use super::failure::EngineFailure;

/// Longest such time that is heeded: an engine may say anything.
const LONGEST: Duration = Duration::from_secs(600);

/// Closed while the engine wants to be left alone.
#[derive(Debug, Default)]
pub(super) struct RetryGate {
    until: Option<Instant>,
}

impl RetryGate {
    /// Nothing while it is open.
    pub(super) fn open(&self) -> Result<(), EngineFailure> {
        let left = self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(());
        }
        Err(EngineFailure::Busy {
            what: format!("it asked to be left alone for {} s", left.as_secs() + 1),
            wait: Some(left),
        })
    }

    /// Closes where the failure says so.
    pub(super) fn heed(&mut self, failure: &EngineFailure) {
        if let EngineFailure::Busy { wait: Some(wait), .. } = failure {
            self.until = Some(Instant::now() + (*wait).min(LONGEST));
        }
    }
}
