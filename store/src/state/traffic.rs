//! Owns block I/O and network of one container as far as it is told: the last look, and what this hour and the one before came to.
//!
//! It is in memory alone: after a restart it begins with what the log still holds.

use evenkeel_model::traffic::Traffic;
use evenkeel_model::usage::Stats;

/// Microseconds of an hour.
const HOUR_USEC: u64 = 3_600_000_000;

/// What is known of one container.
#[derive(Debug, Clone, Default)]
pub struct Looks {
    last: Traffic,
    /// Hour since 1970 of `now`; `before` is of the one before it.
    hour: u64,
    now: [RateSum; 4],
    before: [RateSum; 4],
}

/// Rates of one resource type over some looks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RateSum {
    count: u64,
    min: u64,
    max: u64,
    /// Rates times their spans, and the spans: microseconds.
    weighted: u128,
    span_usec: u128,
}

impl Looks {
    /// Takes in a look told at a time, microseconds since 1970. One of an hour before the last is late, and counts as of now.
    pub(crate) fn take(&mut self, time_usec: u64, look: Traffic) {
        let hour = time_usec / HOUR_USEC;
        if hour > self.hour {
            self.before = if hour == self.hour + 1 { self.now } else { Default::default() };
            self.now = Default::default();
            self.hour = hour;
        }
        for (sum, rate) in self.now.iter_mut().zip(look.rates()) {
            if let Some(rate) = rate {
                let span_usec = u128::from(look.span_usec);
                let weighted = u128::from(rate).saturating_mul(span_usec);
                *sum = sum.and(&RateSum { count: 1, min: rate, max: rate, weighted, span_usec });
            }
        }
        self.last = look;
    }

    /// The last look.
    pub(crate) const fn last(&self) -> &Traffic {
        &self.last
    }

    /// What this hour and the one before came to, in the order of [`Traffic::TYPES`].
    pub fn sums(&self) -> [RateSum; 4] {
        std::array::from_fn(|column| self.before[column].and(&self.now[column]))
    }
}

impl RateSum {
    /// Both together.
    pub fn and(&self, other: &Self) -> Self {
        match (self.count, other.count) {
            (_, 0) => *self,
            (0, _) => *other,
            _ => Self {
                count: self.count.saturating_add(other.count),
                min: self.min.min(other.min),
                max: self.max.max(other.max),
                weighted: self.weighted.saturating_add(other.weighted),
                span_usec: self.span_usec.saturating_add(other.span_usec),
            },
        }
    }

    /// As statistics; `None` where nothing was told.
    pub fn stats(&self) -> Option<Stats> {
        let mean = self.weighted.checked_div(self.span_usec)?;
        Some(Stats {
            mean: u64::try_from(mean).ok(),
            max: Some(self.max),
            min: Some(self.min),
            count: Some(self.count),
            ..Stats::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_model::traffic::BlockIo;

    use super::*;

    #[test]
    fn two_hours_are_told_each_look_by_its_own_time() {
        let look = |seconds: u64, bytes: u64| {
            let block = Some(BlockIo { read_bytes: bytes, ..BlockIo::default() });
            Traffic { span_usec: seconds * 1_000_000, block, ..Traffic::default() }
        };
        let mut looks = Looks::default();
        looks.take(5 * HOUR_USEC, look(10, 10_000));
        looks.take(5 * HOUR_USEC + 1, look(30, 0));
        let told = |looks: &Looks| looks.sums()[0].stats().map(|s| (s.count, s.min, s.mean, s.max));
        assert_eq!(told(&looks), Some((Some(2), Some(0), Some(250), Some(1000))));
        assert_eq!((looks.sums()[2].stats(), looks.last().span_usec), (None, 30_000_000));
        looks.take(6 * HOUR_USEC, look(10, 40_000));
        assert_eq!(told(&looks), Some((Some(3), Some(0), Some(1000), Some(4000))));
        looks.take(7 * HOUR_USEC, look(0, 1));
        assert_eq!(told(&looks), Some((Some(1), Some(4000), Some(4000), Some(4000))));
        looks.take(9 * HOUR_USEC, look(0, 1));
        assert_eq!(told(&looks), None);
    }
}
