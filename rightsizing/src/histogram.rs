//! Histograms that merge exactly: whole-number weights in buckets whose bounds are fixed by a scheme.
//!
//! A weight is time in milliseconds, so that a percentile is "percent of the time" and the order of merging never
//! matters.

mod tally;

use evenkeel_model::narrow::f64_to_u64;

use serde::{Deserialize, Serialize};
pub use tally::BucketTally;

/// Which bounds the buckets have. The number is stored with every histogram and never given another meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[repr(u8)]
pub enum Scheme {
    /// Values below 64 have a bucket each; above, every power of two is cut into 32 equal parts, so that a bucket is at
    /// most 3.1 % wide.
    #[default]
    Octaves32 = 1,
}

/// Bits of a value kept below its highest one.
const SUB_BITS: u32 = 5;
/// Buckets of the scheme: 64 values by themselves, and 32 for each of the 58 powers of two above.
const BUCKETS: usize = 1_920;

impl Scheme {
    /// The scheme of a stored number.
    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            1 => Some(Self::Octaves32),
            _ => None,
        }
    }

    /// Stored number.
    pub const fn id(self) -> u8 {
        self as u8
    }

    /// Bucket of a value.
    #[expect(clippy::cast_possible_truncation, reason = "there are 1,920 buckets")]
    pub const fn bucket(self, value: u64) -> u16 {
        let octave = 63 - (value | 1).leading_zeros();
        if octave <= SUB_BITS {
            return value as u16;
        }
        let shift = octave - SUB_BITS;
        ((shift << SUB_BITS) as u64 + (value >> shift)) as u16
    }

    /// Least value of a bucket.
    pub const fn start(self, bucket: u16) -> u64 {
        let shift = (bucket as u32 >> SUB_BITS).saturating_sub(1);
        ((bucket as u64) - ((shift << SUB_BITS) as u64)) << shift
    }

    /// Greatest value of a bucket.
    pub const fn end(self, bucket: u16) -> u64 {
        let shift = (bucket as u32 >> SUB_BITS).saturating_sub(1);
        self.start(bucket) + ((1 << shift) - 1)
    }
}

/// The number of a bucket by its place.
#[expect(clippy::cast_possible_truncation, reason = "there are 1,920 buckets")]
const fn number(at: usize) -> u16 {
    at as u16
}

/// Number of buckets in order that are below this one: few as a rule, since what is looked for is in order, too.
fn up_to(buckets: &[(u16, u64)], bucket: u16) -> usize {
    const NEAR: usize = 8;
    let near = buckets.iter().take(NEAR).position(|had| had.0 >= bucket);
    near.unwrap_or_else(|| buckets.partition_point(|had| had.0 < bucket))
}

/// Time spent at each height of use, in milliseconds per bucket.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Histogram {
    scheme: Scheme,
    /// Bucket and weight, by bucket, no weight zero.
    buckets: Vec<(u16, u64)>,
}

impl Histogram {
    /// An empty one.
    pub const fn new() -> Self {
        Self { scheme: Scheme::Octaves32, buckets: Vec::new() }
    }

    /// One of stored buckets; nothing unless they are in order, without repetition and without zero weights.
    pub fn from_buckets(scheme: Scheme, buckets: Vec<(u16, u64)>) -> Option<Self> {
        let ordered = buckets.windows(2).all(|w| w[0].0 < w[1].0);
        (ordered && buckets.iter().all(|b| b.1 > 0)).then_some(Self { scheme, buckets })
    }

    /// Its scheme.
    pub const fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Bucket and weight, by bucket.
    pub fn buckets(&self) -> &[(u16, u64)] {
        &self.buckets
    }

    /// Its buckets and their memory.
    pub fn into_buckets(self) -> Vec<(u16, u64)> {
        self.buckets
    }

    /// Nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Forgets everything counted.
    pub fn clear(&mut self) {
        self.buckets.clear();
    }

    /// Sum of all weights, saturating.
    pub fn total(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, b| sum.saturating_add(b.1))
    }

    /// One of these values and their weights, milliseconds: faster than adding one after the other.
    pub fn of(values: impl Iterator<Item = (u64, u64)>) -> Self {
        let scheme = Scheme::default();
        let counted = values.filter(|(_, weight)| *weight > 0);
        let mut buckets: Vec<(u16, u64)> =
            counted.map(|(value, weight)| (scheme.bucket(value), weight)).collect();
        buckets.sort_unstable_by_key(|b| b.0);
        buckets.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                kept.1 = kept.1.saturating_add(later.1);
            }
            same
        });
        Self { scheme, buckets }
    }

    /// Counts `weight_ms` at a value.
    pub fn add(&mut self, value: u64, weight_ms: u64) {
        self.add_bucket(self.scheme.bucket(value), weight_ms);
    }

    fn add_bucket(&mut self, bucket: u16, weight: u64) {
        if weight == 0 {
            return;
        }
        match self.buckets.binary_search_by_key(&bucket, |b| b.0) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(weight),
            Err(at) => self.buckets.insert(at, (bucket, weight)),
        }
    }

    /// Counts all that another one counted.
    pub fn merge(&mut self, other: &Self) {
        if self.buckets.is_empty() {
            self.buckets.extend_from_slice(&other.buckets);
            return;
        }
        // Both are in order: what was passed over once is not searched again.
        let mut at = 0;
        for (bucket, weight) in &other.buckets {
            at += up_to(&self.buckets[at..], *bucket);
            match self.buckets.get_mut(at) {
                Some(had) if had.0 == *bucket => had.1 = had.1.saturating_add(*weight),
                _ => self.buckets.insert(at, (*bucket, *weight)),
            }
        }
    }

    /// Takes out what another one counted; a weight never falls below zero.
    pub fn unmerge(&mut self, other: &Self) {
        for (bucket, weight) in &other.buckets {
            if let Ok(at) = self.buckets.binary_search_by_key(bucket, |b| b.0) {
                self.buckets[at].1 = self.buckets[at].1.saturating_sub(*weight);
            }
        }
        self.buckets.retain(|b| b.1 > 0);
    }

    /// Greatest value of the first bucket up to which at least this part of the weight lies; `None` while empty.
    ///
    /// `part` is from 0 to 1.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let wanted = f64_to_u64((self.total() as f64 * part).ceil().max(1.0));
        let mut seen = 0u64;
        for (bucket, weight) in &self.buckets {
            seen = seen.saturating_add(*weight);
            if seen >= wanted {
                return Some(self.scheme.end(*bucket));
            }
        }
        self.buckets.last().map(|b| self.scheme.end(b.0))
    }

    /// Part of the weight in buckets that lie wholly above a value, 0 to 1; `None` while empty.
    pub fn part_above(&self, value: u64) -> Option<f64> {
        let total = self.total();
        let bucket = self.scheme.bucket(value);
        let above: u64 = self.buckets.iter().filter(|b| b.0 > bucket).map(|b| b.1).sum();
        (total > 0).then(|| above as f64 / total as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_tile_all_numbers() {
        let scheme = Scheme::Octaves32;
        let last = scheme.bucket(u64::MAX);
        assert_eq!(usize::from(last) + 1, BUCKETS);
        assert_eq!(scheme.end(last), u64::MAX);
        for bucket in 0..last {
            assert_eq!(scheme.end(bucket) + 1, scheme.start(bucket + 1), "bucket {bucket}");
        }
    }

    proptest! {
        #[test]
        fn a_value_lies_in_its_bucket_and_the_bucket_is_narrow(value in any::<u64>()) {
            let scheme = Scheme::Octaves32;
            let (start, end) = (scheme.start(scheme.bucket(value)), scheme.end(scheme.bucket(value)));
            prop_assert!(start <= value && value <= end);
            prop_assert!((end - start) as f64 <= value as f64 / 32.0);
        }

        #[test]
        fn merging_and_taking_out_again_changes_nothing(
            a in prop::collection::vec((0u64..1 << 40, 1u64..1 << 20), 0..50),
            b in prop::collection::vec((0u64..1 << 40, 1u64..1 << 20), 0..50),
        ) {
            let fold = |list: &[(u64, u64)]| {
                list.iter().fold(Histogram::new(), |mut h, (v, w)| { h.add(*v, *w); h })
            };
            let (a, b) = (fold(&a), fold(&b));
            let mut both = a.clone();
            both.merge(&b);
            let mut other = b.clone();
            other.merge(&a);
            prop_assert_eq!(&both, &other);
            both.unmerge(&b);
            prop_assert_eq!(both, a);
        }

        #[test]
        fn values_counted_at_once_are_those_counted_one_by_one(
            values in prop::collection::vec((any::<u64>(), 0u64..1 << 20), 0..200),
        ) {
            let mut one_by_one = Histogram::new();
            values.iter().for_each(|(value, weight)| one_by_one.add(*value, *weight));
            prop_assert_eq!(Histogram::of(values.into_iter()), one_by_one);
        }

        #[test]
        fn a_tally_counts_what_a_histogram_counts(
            a in prop::collection::vec((any::<u64>(), 0u64..1 << 20), 0..50),
            b in prop::collection::vec((0u64..1 << 40, 0u64..1 << 20), 0..50),
        ) {
            let fold = |list: &[(u64, u64)]| {
                let (mut tally, mut histogram) = (BucketTally::default(), Histogram::new());
                for (value, weight) in list {
                    tally.add(*value, *weight);
                    histogram.add(*value, *weight);
                }
                (tally, histogram)
            };
            let ((mut tally, mut histogram), (more, others)) = (fold(&a), fold(&b));
            prop_assert_eq!(&tally.histogram(others.clone()), &histogram);
            let mut both = tally.clone();
            both.merge_tally(&more);
            prop_assert_eq!(tally.merge(&others), others.total());
            histogram.merge(&others);
            prop_assert_eq!(&tally.histogram(Histogram::new()), &histogram);
            prop_assert_eq!(&both.histogram(Histogram::new()), &histogram);
            both.clear();
            prop_assert!(both.histogram(others).is_empty());
            both.merge_tally(&more);
            prop_assert_eq!(both.histogram(Histogram::new()), more.histogram(Histogram::new()));
        }
    }
}
