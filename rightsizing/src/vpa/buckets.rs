//! Bucket bounds that grow by 5 % a bucket, as the Vertical Pod Autoscaler's recommender has them
//! (kubernetes/autoscaler, `pkg/recommender/util/histogram_options.go` and `model/aggregations_config.go`).

use crate::Resource;
use evenkeel_model::narrow::f64_to_usize;

/// Growth of the width from one bucket to the next: a percentile is at most this far from the true value.
const RATIO: f64 = 1.05;

/// Bucket n is `first x 1.05^n` wide and starts at `first x (1.05^n - 1) / 0.05`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Buckets {
    first: f64,
    count: usize,
}

impl Buckets {
    /// Bounds with a width of the first bucket, so many that the last one starts at or above `top`.
    fn new(first: f64, top: f64) -> Self {
        let count = f64_to_usize(((top * (RATIO - 1.0) / first + 1.0).ln() / RATIO.ln()).ceil()) + 1;
        Self { first, count }
    }

    /// Of CPU in cores from 0.01 to 1,000, of memory in bytes from 10^7 to 10^12: 176 buckets each.
    pub fn of(resource: Resource) -> Self {
        match resource {
            Resource::Cpu => Self::new(0.01, 1_000.0),
            Resource::Memory => Self::new(1e7, 1e12),
        }
    }

    /// How many there are.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Bucket of a value; what is over the top goes into the last.
    pub fn index(&self, value: f64) -> usize {
        if value < self.first {
            return 0;
        }
        let index = f64_to_usize(((value * (RATIO - 1.0) / self.first + 1.0).ln() / RATIO.ln()).floor());
        index.min(self.count - 1)
    }

    /// Where a bucket starts.
    pub fn start(&self, bucket: usize) -> f64 {
        self.first * (RATIO.powi(i32::try_from(bucket).unwrap_or(i32::MAX)) - 1.0) / (RATIO - 1.0)
    }

    /// What a percentile in this bucket answers: its end, or the start of the last one, which has no end.
    pub fn answer(&self, bucket: usize) -> f64 {
        self.start(if bucket + 1 < self.count { bucket + 1 } else { bucket })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_resources_have_176_buckets_and_known_bounds() {
        let (cpu, memory) = (Buckets::of(Resource::Cpu), Buckets::of(Resource::Memory));
        assert_eq!((cpu.count(), memory.count()), (176, 176));
        // 0.01 x (1.05^2 - 1) / 0.05 and 10^7 x (1.05^2 - 1) / 0.05.
        assert!((cpu.start(2) - 0.020_5).abs() < 1e-12);
        assert!((memory.start(2) - 20_500_000.0).abs() < 1e-3);
        for (value, bucket) in [(0.0, 0), (0.009_99, 0), (0.010_1, 1), (0.020_4, 1), (0.020_6, 2), (1e9, 175)]
        {
            assert_eq!(cpu.index(value), bucket, "{value}");
        }
    }

    #[test]
    fn every_value_lies_in_its_bucket() {
        let cpu = Buckets::of(Resource::Cpu);
        for step in 0..10_000 {
            let value = f64::from(step) * 0.037;
            let bucket = cpu.index(value);
            assert!(cpu.start(bucket) <= value * (1.0 + 1e-12), "{value}");
            assert!(value < cpu.start(bucket + 1) * (1.0 + 1e-12), "{value}");
        }
    }
}
