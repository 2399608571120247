//! Durations counted in buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Buckets;

/// Durations by the first of its bounds that each keeps, counted by any thread.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    bounds_usec: [u64; N],
    within: [AtomicU64; N],
    longer: AtomicU64,
    sum_usec: AtomicU64,
}

impl<const N: usize> Histogram<N> {
    /// An empty one; bounds are microseconds, each above the one before.
    #[must_use]
    pub const fn new(bounds_usec: [u64; N]) -> Self {
        let within = [const { AtomicU64::new(0) }; N];
        Self { bounds_usec, within, longer: AtomicU64::new(0), sum_usec: AtomicU64::new(0) }
    }

    /// Takes one in.
    pub fn observe(&self, took: Duration) {
        let usec = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = self.bounds_usec.partition_point(|bound| *bound < usec);
        self.within.get(at).unwrap_or(&self.longer).fetch_add(1, Ordering::Relaxed);
        self.sum_usec.fetch_add(usec, Ordering::Relaxed);
    }

    /// What was seen so far, in seconds.
    #[must_use]
    pub fn buckets(&self) -> Buckets {
        let bounds = self.bounds_usec.iter().map(|usec| *usec as f64 / 1e6).chain([f64::INFINITY]);
        let counts = self.within.iter().chain([&self.longer]).map(|count| count.load(Ordering::Relaxed));
        let sum = self.sum_usec.load(Ordering::Relaxed) as f64 / 1e6;
        Buckets { counts: bounds.zip(counts).collect(), sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_for_the_first_bound_it_keeps() {
        let times = Histogram::new([50, 1000]);
        for usec in [50, 51, 1000, 1001, 200_000] {
            times.observe(Duration::from_micros(usec));
        }
        let Buckets { counts, sum } = times.buckets();
        assert_eq!(counts, [(0.000_05, 1), (0.001, 2), (f64::INFINITY, 2)]);
        assert!((sum - 0.202_102).abs() < 1e-9, "{sum}");
    }
}
