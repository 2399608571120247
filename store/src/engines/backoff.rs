//! Owns the pauses between attempts: each twice the one before, up to a bound, with a part of chance, so that many
//! recommenders do not come back to an engine at once.

use std::time::Duration;

/// First pause: an engine that is restarted is back after some seconds.
pub(crate) const FIRST: Duration = Duration::from_secs(1);
/// Longest pause: what a person mends is noticed within minutes.
pub(crate) const LONGEST: Duration = Duration::from_secs(300);

/// Pauses of one row of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    /// Before the first failure.
    pub(crate) const fn new() -> Self {
        Self { next: FIRST }
    }

    /// The next pause: from half of its length to the whole, by `chance`.
    pub(crate) fn pause(&mut self, chance: u32) -> Duration {
        let whole = self.next;
        self.next = (whole * 2).min(LONGEST);
        let part = f64::from(chance) / f64::from(u32::MAX);
        whole / 2 + (whole / 2).mul_f64(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_bound_and_vary_by_half() {
        let mut most = Backoff::new();
        let pauses: Vec<u64> = (0..11).map(|_| most.pause(u32::MAX).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        let mut least = Backoff::new();
        assert_eq!(least.pause(0), FIRST / 2);
    }
}
