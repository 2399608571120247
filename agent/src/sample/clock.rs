//! Absolute deadlines: a tick that is late does not move the ones after it, and ticks that were missed are counted
//! and left out, never made up for in a bunch.

use std::time::{Duration, Instant};

use evenkeel_enforce::decisions::now_usec;
use evenkeel_enforce::shared::Waker;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;

use super::usec;

/// The sampler's clock. Monotonic (`CLOCK_MONOTONIC`) but for the wall-clock time given to each tick.
#[derive(Debug)]
pub(super) struct Clock {
    origin: Instant,
    interval: Duration,
    /// Next deadline, from the origin.
    next: Duration,
}

/// A tick that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Due {
    /// Wall-clock time, microseconds since 1970.
    pub time_usec: u64,
    /// Time since the deadline.
    pub lateness_usec: u64,
    /// Deadlines before this one that passed without a tick.
    pub missed: u64,
}

impl Clock {
    /// A clock whose first tick is due one interval from now.
    pub(super) fn start(interval: Duration) -> Self {
        let interval = interval.max(Duration::from_millis(1));
        Self { origin: Instant::now(), interval, next: interval }
    }

    /// Makes the next tick due after `left`, if that is sooner; those after it follow from there.
    pub(super) fn hasten(&mut self, left: Duration) {
        self.next = self.next.min(self.now() + left);
    }

    /// Time until the next tick is due.
    pub(super) fn left(&self) -> Duration {
        self.next.saturating_sub(self.now())
    }

    /// Time since the start.
    pub(super) fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Sleeps until the next deadline, or until the bell rings: then nothing is due yet.
    pub(super) fn wait(&mut self, bell: &Waker) -> Option<Due> {
        let left = self.left();
        if !left.is_zero() {
            let mut fds = [PollFd::new(bell.fd(), PollFlags::POLLIN)];
            // A signal or the bell ends the sleep early; the caller looks at its flag and sleeps again.
            let woken = ppoll(&mut fds, Some(TimeSpec::from_duration(left)), None);
            if woken.is_ok_and(|n| n > 0) {
                bell.drain();
            }
        }
        let now = self.now();
        (now >= self.next).then(|| self.take(now))
    }

    /// Takes the deadline that is due and sets the next one.
    fn take(&mut self, now: Duration) -> Due {
        let late = now.saturating_sub(self.next);
        let missed = u64::try_from(late.as_nanos() / self.interval.as_nanos()).unwrap_or(u64::MAX);
        let steps = u32::try_from(missed).unwrap_or(u32::MAX - 1);
        let due = self.next + self.interval * steps;
        self.next = due + self.interval;
        Due { time_usec: now_usec(), lateness_usec: usec(now.saturating_sub(due)), missed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_ticks_do_not_move_and_missed_ones_are_left_out() {
        let ms = Duration::from_millis;
        let mut clock = Clock::start(ms(1000));
        for (now, late, missed, next) in [
            (1000, 0, 0, 2000),
            (2300, 300, 0, 3000),
            (3999, 999, 0, 4000),
            (5000, 0, 1, 6000),
            (9500, 500, 3, 10_000),
        ] {
            let due = clock.take(ms(now));
            assert_eq!((due.lateness_usec, due.missed), (late * 1000, missed), "at {now}");
            assert_eq!(clock.next, ms(next));
        }
    }
}
