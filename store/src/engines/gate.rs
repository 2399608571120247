//! Owns the time for which an engine asked to be left alone (`Retry-After`).

use std::time::{Duration, Instant};

use super::failure::Failure;

/// Longest such time that is heeded: an engine may say anything.
const LONGEST: Duration = Duration::from_secs(600);

/// Closed while the engine wants to be left alone.
#[derive(Debug, Default)]
pub(super) struct Gate {
    until: Option<Instant>,
}

impl Gate {
    /// Nothing while it is open.
    pub(super) fn open(&self) -> Result<(), Failure> {
        let left = self.until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(());
        }
        Err(Failure::Busy {
            what: format!("it asked to be left alone for {} s", left.as_secs() + 1),
            wait: Some(left),
        })
    }

    /// Closes where the failure says so.
    pub(super) fn heed(&mut self, failure: &Failure) {
        if let Failure::Busy { wait: Some(wait), .. } = failure {
            self.until = Some(Instant::now() + (*wait).min(LONGEST));
        }
    }
}
