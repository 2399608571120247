//! How far a container's CPU limit held it back in the last minute.

use evenkeel_model::sample::{Field, Sample};

/// Marks kept, and seconds between two of them: a minute together.
const MARKS: usize = 5;
const SPACING: u64 = 15;
/// What is told reaches back so far at most, seconds.
const WINDOW: u64 = 60;

/// What enforcing a CPU limit cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Throttling {
    /// Length of the window, seconds.
    pub seconds: u64,
    /// Periods in which it ran.
    pub periods: u64,
    /// Of these, those in which it was held back.
    pub throttled_periods: u64,
    /// Time for which it was held back, microseconds, all processors together.
    pub throttled_usec: u64,
}

/// The kernel's counters at one moment.
#[derive(Debug, Clone, Copy)]
struct Mark {
    /// Seconds since 1970.
    time: u64,
    periods: u64,
    throttled_periods: u64,
    throttled_usec: u64,
}

/// Counters of the last minute; of fixed size.
#[derive(Debug, Default)]
pub(super) struct Throttled {
    /// Oldest first.
    marks: [Option<Mark>; MARKS],
    last: Option<Mark>,
}

impl Throttled {
    /// Takes in a sample; one without these counters has no limit to tell of.
    pub(super) fn take(&mut self, time_usec: u64, sample: &Sample) {
        let Some(mark) = mark(time_usec / 1_000_000, sample) else {
            *self = Self::default();
            return;
        };
        let newest = self.marks.iter().flatten().last();
        if newest.is_none_or(|newest| mark.time.saturating_sub(newest.time) >= SPACING) {
            match self.marks.iter_mut().find(|place| place.is_none()) {
                Some(free) => *free = Some(mark),
                None => {
                    self.marks.rotate_left(1);
                    self.marks[MARKS - 1] = Some(mark);
                }
            }
        }
        self.last = Some(mark);
    }

    /// What the last minute came to; `None` before two samples.
    pub(super) fn told(&self) -> Option<Throttling> {
        let last = self.last?;
        let recent = |mark: &&Mark| mark.time < last.time && last.time - mark.time <= WINDOW;
        let first = self.marks.iter().flatten().find(recent)?;
        Some(Throttling {
            seconds: last.time - first.time,
            periods: last.periods.checked_sub(first.periods)?,
            throttled_periods: last.throttled_periods.checked_sub(first.throttled_periods)?,
            throttled_usec: last.throttled_usec.checked_sub(first.throttled_usec)?,
        })
    }
}

fn mark(time: u64, sample: &Sample) -> Option<Mark> {
    Some(Mark {
        time,
        periods: sample.get(Field::CpuPeriods)?,
        throttled_periods: sample.get(Field::CpuThrottledPeriods)?,
        throttled_usec: sample.get(Field::CpuThrottledUsec)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: u64) -> Sample {
        let mut sample = Sample::with_interval_usec(1_000_000);
        sample.set(Field::CpuPeriods, seconds * 10);
        sample.set(Field::CpuThrottledPeriods, seconds * 4);
        sample.set(Field::CpuThrottledUsec, seconds * 50_000);
        sample
    }

    #[test]
    fn a_minute_at_most_is_told() {
        let mut throttled = Throttled::default();
        let mut told = Vec::new();
        for second in 0..200 {
            throttled.take((1000 + second) * 1_000_000, &sample(second));
            told.push(throttled.told());
        }
        assert_eq!(told[0], None);
        let first = Throttling { seconds: 1, periods: 10, throttled_periods: 4, throttled_usec: 50_000 };
        assert_eq!(told[1], Some(first));
        for told in told[60..].iter().flatten() {
            assert!((46..=60).contains(&told.seconds), "{told:?}");
            assert_eq!((told.periods, told.throttled_periods), (told.seconds * 10, told.seconds * 4));
        }
    }

    #[test]
    fn a_gap_and_counters_that_begin_again_tell_nothing() {
        let mut throttled = Throttled::default();
        throttled.take(1_000_000, &sample(100));
        throttled.take(2_000_000, &sample(0));
        assert_eq!(throttled.told(), None);
        throttled.take(100_000_000, &sample(0));
        assert_eq!(throttled.told(), None);
        throttled.take(101_000_000, &sample(1));
        assert_eq!(throttled.told().map(|told| told.periods), Some(10));
        throttled.take(102_000_000, &Sample::with_interval_usec(1_000_000));
        assert_eq!(throttled.told(), None);
    }
}
