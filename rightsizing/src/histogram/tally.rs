//! Counts by bucket, before they are a histogram.

use std::ops::Range;

use super::{BUCKETS, Histogram, Scheme, number};

/// Time at each height of use in a row of all buckets: counts much faster than a [`Histogram`], which takes a hundredth
/// of its 15 KiB to keep.
#[derive(Debug, Clone)]
pub struct BucketTally {
    weights: Box<[u64; BUCKETS]>,
    /// The lowest bucket with a weight, and the one behind the highest.
    low: usize,
    high: usize,
}

impl Default for BucketTally {
    fn default() -> Self {
        Self { weights: Box::new([0; BUCKETS]), low: BUCKETS, high: 0 }
    }
}

impl BucketTally {
    /// Counts `weight_ms` at a value.
    pub fn add(&mut self, value: u64, weight_ms: u64) {
        let bucket = usize::from(Scheme::Octaves32.bucket(value));
        self.weights[bucket] = self.weights[bucket].saturating_add(weight_ms);
        self.reach(bucket, bucket);
    }

    /// Counts all that a histogram counted, and returns how much that is.
    pub fn merge(&mut self, histogram: &Histogram) -> u64 {
        self.merge_times(histogram, 1)
    }

    /// Counts all that a histogram counted so many times, and returns how much that is, counted once.
    pub fn merge_times(&mut self, histogram: &Histogram, times: u64) -> u64 {
        let buckets = histogram.buckets();
        let (Some(low), Some(high)) = (buckets.first(), buckets.last()) else { return 0 };
        self.reach(usize::from(low.0), usize::from(high.0).min(BUCKETS - 1));
        let mut sum = 0u64;
        for (bucket, weight) in buckets {
            // The scheme has no bucket above the last, and no value that would count there.
            let Some(slot) = self.weights.get_mut(usize::from(*bucket)) else { break };
            *slot = slot.saturating_add(weight.saturating_mul(times));
            sum = sum.saturating_add(*weight);
        }
        sum
    }

    /// Counts all that another one counted. Both together stand for less time than a number holds.
    pub fn merge_tally(&mut self, other: &Self) {
        let (mine, theirs) = (&mut self.weights[other.range()], other.used());
        mine.iter_mut().zip(theirs).for_each(|(mine, more)| *mine += more);
        (self.low, self.high) = (self.low.min(other.low), self.high.max(other.high));
    }

    /// Forgets everything counted.
    pub fn clear(&mut self) {
        let range = self.range();
        self.weights[range].fill(0);
        (self.low, self.high) = (BUCKETS, 0);
    }

    /// The same as a histogram, in the memory of `spare`.
    pub fn histogram(&self, spare: Histogram) -> Histogram {
        let mut buckets = spare.buckets;
        buckets.clear();
        // Few buckets have a weight, and which ones is chance: written without a branch, in parts that need no heap.
        let mut part = [(0, 0); 64];
        for (at, weights) in self.used().chunks(part.len()).enumerate() {
            let first = self.low + at * part.len();
            let mut count = 0;
            for (offset, weight) in weights.iter().enumerate() {
                part[count] = (number(first + offset), *weight);
                count += usize::from(*weight > 0);
            }
            buckets.extend_from_slice(&part[..count]);
        }
        Histogram { scheme: Scheme::Octaves32, buckets }
    }

    /// Bucket and weight from the highest down, no weight zero.
    pub fn downward(&self) -> impl Iterator<Item = (u16, u64)> {
        let numbered = self.range().zip(self.used()).rev();
        numbered.filter(|(_, weight)| **weight > 0).map(|(bucket, weight)| (number(bucket), *weight))
    }

    /// The lowest bucket with a weight, and the weights from it to the highest one with a weight.
    pub fn weights(&self) -> (usize, &[u64]) {
        (self.range().start, self.used())
    }

    fn reach(&mut self, low: usize, high: usize) {
        (self.low, self.high) = (self.low.min(low), self.high.max(high + 1));
    }

    fn range(&self) -> Range<usize> {
        self.low.min(self.high)..self.high
    }

    fn used(&self) -> &[u64] {
        &self.weights[self.range()]
    }
}
