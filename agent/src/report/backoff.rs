//! How long to wait before the next connection: twice as long after each failure, never all nodes at once.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Wait after the first failure.
const FIRST: Duration = Duration::from_millis(250);
/// Longest wait.
const LONGEST: Duration = Duration::from_secs(30);

/// Exponential backoff with jitter.
#[derive(Debug)]
pub(super) struct Backoff {
    failures: u32,
    random: RandomState,
}

impl Backoff {
    pub(super) fn new() -> Self {
        Self { failures: 0, random: RandomState::new() }
    }

    /// It worked: the next failure is the first again.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// How long to wait after one more failure: between half and all of 250 ms, 500 ms, ... 30 s.
    pub(super) fn next(&mut self) -> Duration {
        let full = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let part = self.random.hash_one(self.failures) % 1000;
        full / 2 + full.mul_f64(part as f64 / 2000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_start_over() {
        let mut backoff = Backoff::new();
        for full_ms in [250, 500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            let full = Duration::from_millis(full_ms);
            let wait = backoff.next();
            assert!(wait >= full / 2 && wait <= full, "{wait:?} of {full:?}");
        }
        backoff.reset();
        assert!(backoff.next() <= FIRST);
    }
}
