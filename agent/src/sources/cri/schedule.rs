//! When a runtime is listed again: at once after a change of the cgroup tree or an event of the runtime, a few times
//! more while a container may be starting, and on a slow period otherwise.
//!
//! A runtime makes a container's cgroup before it reports the container as running, by 25 to 115 ms on an idle
//! machine and by more on a loaded one, and many tell nothing then. Bursts of changes are gathered, and listing never
//! takes more than a twentieth of the runtime's time.

use std::time::{Duration, Instant};

/// Listing without being woken; one listing costs the runtime under a millisecond (containerd 1.6).
const PERIOD: Duration = Duration::from_secs(5);
/// From a change to the listing, so that a burst of changes costs one.
const SETTLE: Duration = Duration::from_millis(10);
/// Waits between the listings that follow one after a change. Together longer than a container takes to start on a
/// loaded machine (5 s with an image that is there), and none longer than half of the second in which a new container
/// is to be known.
const FOLLOW_UP: [Duration; 14] = {
    const fn millis(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }
    [
        millis(50),
        millis(100),
        millis(200),
        millis(300),
        millis(500),
        millis(500),
        millis(500),
        millis(500),
        millis(500),
        millis(500),
        millis(500),
        millis(500),
        millis(500),
        millis(500),
    ]
};
/// Shortest and longest time between two listings while changes go on.
const GAP: (Duration, Duration) = (Duration::from_millis(100), Duration::from_millis(500));
/// The gap is so many times what a listing took.
const GAP_TIMES: u32 = 20;

/// Says when to list.
#[derive(Debug)]
pub(super) struct Schedule {
    next: Instant,
    last: Option<Instant>,
    gap: Duration,
    step: usize,
}

impl Schedule {
    /// The first listing is due now.
    pub(super) const fn new(now: Instant) -> Self {
        Self { next: now, last: None, gap: GAP.0, step: FOLLOW_UP.len() }
    }

    /// When the next listing is due.
    pub(super) const fn next(&self) -> Instant {
        self.next
    }

    /// Something changed.
    pub(super) fn changed(&mut self, now: Instant) {
        self.step = 0;
        self.next = self.next.min(self.not_before(now + SETTLE));
    }

    /// A listing that took so long has ended.
    pub(super) fn listed(&mut self, now: Instant, took: Duration) {
        self.gap = (took * GAP_TIMES).clamp(GAP.0, GAP.1);
        self.last = Some(now);
        let wait = FOLLOW_UP.get(self.step).copied().unwrap_or(PERIOD);
        self.step = (self.step + 1).min(FOLLOW_UP.len());
        self.next = self.not_before(now + wait);
    }

    fn not_before(&self, at: Instant) -> Instant {
        self.last.map_or(at, |last| at.max(last + self.gap))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_container_that_starts_slowly_is_seen_within_a_second_of_running() {
        let start = Instant::now();
        let mut schedule = Schedule::new(start);
        schedule.listed(start, MS);
        assert_eq!(schedule.next(), start + PERIOD);
        let changed = start + 1000 * MS;
        schedule.changed(changed);
        assert_eq!(schedule.next(), changed + SETTLE);
        let (mut before, end) = (changed, changed + 5000 * MS);
        while before < end {
            let at = schedule.next();
            assert!(at - before <= 500 * MS, "{:?}", at - before);
            schedule.listed(at, MS);
            before = at;
        }
        schedule.listed(schedule.next(), MS);
        assert_eq!(schedule.next() - schedule.last.unwrap(), PERIOD, "then it rests");
    }

    #[test]
    fn changes_without_end_cost_a_twentieth() {
        let mut now = Instant::now();
        let mut schedule = Schedule::new(now);
        let (mut listings, took, end) = (0, 20 * MS, now + 10_000 * MS);
        while now < end {
            schedule.changed(now);
            if schedule.next() <= now {
                schedule.listed(now, took);
                listings += 1;
            }
            now += MS;
        }
        assert!((20..=26).contains(&listings), "{listings} listings of 20 ms in 10 s");
    }
}
