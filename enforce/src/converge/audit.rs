//! Audits spread evenly over their period.

use std::time::{Duration, Instant};

use super::wake::Key;

/// Audits are gathered for so long, so that a thousand containers cost ten wake-ups a second and not a hundred.
const GATHER: Duration = Duration::from_millis(100);

/// Says how many containers are due for their audit.
#[derive(Debug)]
pub(super) struct Audit {
    period: Duration,
    /// Up to when audits have been taken.
    taken: Instant,
    /// The container that was audited last.
    pub(super) cursor: Key,
}

impl Audit {
    /// Every container once in `period`.
    pub(super) fn new(period: Duration, now: Instant) -> Self {
        Self { period, taken: now, cursor: 0 }
    }

    /// How many of `count` containers are due, at most each once.
    pub(super) fn take(&mut self, count: usize, now: Instant) -> usize {
        if count == 0 {
            self.taken = now;
            return 0;
        }
        let step = self.step(count);
        let elapsed = now.saturating_duration_since(self.taken);
        let due = usize::try_from(elapsed.as_nanos() / step.as_nanos().max(1)).unwrap_or(usize::MAX);
        if due >= count {
            self.taken = now;
            return count;
        }
        self.taken += step * u32::try_from(due).unwrap_or(u32::MAX);
        due
    }

    /// When the next audits are due; `None` without containers.
    pub(super) fn due(&self, count: usize) -> Option<Instant> {
        (count > 0).then(|| self.taken + self.step(count).max(GATHER))
    }

    fn step(&self, count: usize) -> Duration {
        self.period / u32::try_from(count).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_container_comes_once_in_the_period_and_evenly() {
        let start = Instant::now();
        let mut audit = Audit::new(Duration::from_secs(10), start);
        let mut total = 0;
        for tenth in 1..=100u32 {
            let due = audit.take(1000, start + Duration::from_millis(100) * tenth);
            assert!((9..=11).contains(&due), "{due} at {tenth}");
            total += due;
        }
        assert_eq!(total, 1000);
        assert_eq!(audit.due(1000), Some(start + Duration::from_millis(10_100)));
    }

    #[test]
    fn a_long_pause_looks_at_each_container_once() {
        let start = Instant::now();
        let mut audit = Audit::new(Duration::from_secs(10), start);
        assert_eq!(audit.take(7, start + Duration::from_secs(3600)), 7);
        assert_eq!(audit.take(7, start + Duration::from_secs(3600)), 0);
        assert_eq!((audit.take(0, start), audit.due(0)), (0, None));
    }
}
