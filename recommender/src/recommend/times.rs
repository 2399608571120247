//! Owns how long answers about pods took inside the process, from the question read to the answer made: the wait for the
//! state is in it, the network is not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, microseconds. A thousand is what is promised of 99 %.
pub const BOUNDS_USEC: [u64; 9] = [50, 100, 250, 500, 1000, 2500, 5000, 10_000, 100_000];

/// Times by bucket; the last bucket has no bound.
#[derive(Debug, Default)]
pub struct Times {
    counts: [AtomicU64; BOUNDS_USEC.len() + 1],
    sum_usec: AtomicU64,
}

impl Times {
    /// Takes one in.
    pub fn add(&self, took: Duration) {
        let usec = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_USEC.partition_point(|bound| *bound < usec);
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_usec.fetch_add(usec, Ordering::Relaxed);
    }

    /// How many took at most each bound, then how many there were, and their sum in microseconds.
    pub fn cumulative(&self) -> ([u64; BOUNDS_USEC.len() + 1], u64) {
        let mut seen = 0;
        let counts = std::array::from_fn(|at| {
            seen += self.counts[at].load(Ordering::Relaxed);
            seen
        });
        (counts, self.sum_usec.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_counts_for_every_bound_it_keeps() {
        let times = Times::default();
        for usec in [50, 51, 1000, 1001, 200_000] {
            times.add(Duration::from_micros(usec));
        }
        let (counts, sum) = times.cumulative();
        assert_eq!(counts, [1, 2, 2, 2, 3, 4, 4, 4, 4, 5]);
        assert_eq!(sum, 202_102);
    }
}
