//! A histogram whose samples lose half of their weight in a half-life, as the Vertical Pod Autoscaler's
//! (`pkg/recommender/util/decaying_histogram.go` and `histogram.go`).
//!
//! Instead of making old weights smaller with each sample, new ones are made greater; when that would leave the range in
//! which doubles are exact enough, all are divided at once.

use super::buckets::Buckets;
use super::saved::SavedHistogram;
use evenkeel_model::narrow::{f64_to_u32, f64_to_u64};

/// A bucket of less weight counts as empty: 0.001 of the least weight of a sample.
const EPSILON: f64 = 0.001 * 0.1;

/// The greatest weight of a bucket in a checkpoint (`MaxCheckpointWeight`).
const MOST_SAVED: f64 = 10_000.0;

/// Half-lives after the reference at which the reference moves, so that weights stay far below a double's range.
const MAX_EXPONENT: f64 = 100.0;

/// Decaying weights by bucket.
#[derive(Debug, Clone, PartialEq)]
pub struct Decaying {
    buckets: Buckets,
    half_life_ms: f64,
    reference_ms: f64,
    weights: Vec<f64>,
    total: f64,
    /// First and last bucket that ever held weight.
    bounds: Option<(usize, usize)>,
}

impl Decaying {
    /// An empty one; `half_life_ms` above zero.
    pub fn new(buckets: Buckets, half_life_ms: u64) -> Self {
        Self {
            buckets,
            half_life_ms: (half_life_ms as f64).max(1.0),
            reference_ms: 0.0,
            weights: vec![0.0; buckets.count()],
            total: 0.0,
            bounds: None,
        }
    }

    /// Factor of a weight at a time; moves the reference where that would grow out of bounds.
    fn factor(&mut self, time_ms: u64) -> f64 {
        let time = time_ms as f64;
        if self.bounds.is_none() {
            self.reference_ms = (time / self.half_life_ms).round() * self.half_life_ms;
        }
        let exponent = (time - self.reference_ms) / self.half_life_ms;
        if exponent > MAX_EXPONENT {
            let moved = exponent.round();
            let scale = (-moved).exp2();
            self.weights.iter_mut().for_each(|w| *w *= scale);
            self.total *= scale;
            self.reference_ms += moved * self.half_life_ms;
        }
        ((time - self.reference_ms) / self.half_life_ms).exp2()
    }

    /// Counts a value.
    pub fn add(&mut self, value: f64, weight: f64, time_ms: u64) {
        let weight = weight * self.factor(time_ms);
        let bucket = self.buckets.index(value);
        self.weights[bucket] += weight;
        self.total += weight;
        let (low, high) = self.bounds.unwrap_or((bucket, bucket));
        self.bounds = Some((low.min(bucket), high.max(bucket)));
    }

    /// Takes out what was counted with the same value, weight and time.
    pub fn subtract(&mut self, value: f64, weight: f64, time_ms: u64) {
        let weight = weight * self.factor(time_ms);
        let bucket = self.buckets.index(value);
        let rest = |held: f64| if held - weight < EPSILON { 0.0 } else { held - weight };
        self.weights[bucket] = rest(self.weights[bucket]);
        self.total = rest(self.total);
    }

    /// The bucket's answer (`Buckets::answer`) at which the running weight reaches a part of all; 0 while empty.
    pub fn percentile(&self, part: f64) -> f64 {
        let filled = |bucket: &usize| self.weights[*bucket] >= EPSILON;
        let Some((low, high)) = self.bounds else { return 0.0 };
        let first = (low..=high).find(filled);
        let (Some(first), Some(last)) = (first, (low..=high).rev().find(filled)) else { return 0.0 };
        let threshold = part * self.total;
        let mut running = 0.0;
        let mut bucket = first;
        while bucket < last {
            running += self.weights[bucket];
            if running >= threshold {
                break;
            }
            bucket += 1;
        }
        self.buckets.answer(bucket)
    }

    /// As a checkpoint keeps it (`SaveToChekpoint`): weights that come to nothing are dropped.
    pub fn saved(&self) -> SavedHistogram {
        let greatest = self.weights.iter().copied().fold(0.0, f64::max);
        let reference_ms = f64_to_u64(self.reference_ms);
        if greatest < EPSILON {
            return SavedHistogram { reference_ms, ..SavedHistogram::default() };
        }
        let cut =
            |(bucket, weight): (usize, &f64)| (bucket, f64_to_u32((weight / greatest * MOST_SAVED).round()));
        let weights = self.weights.iter().enumerate().map(cut).filter(|(_, weight)| *weight > 0).collect();
        SavedHistogram { reference_ms, weights, total: self.total }
    }

    /// What a checkpoint kept (`LoadFromCheckpoint`); a bucket that there is not, and a sum below zero, tell nothing.
    pub fn of_saved(buckets: Buckets, half_life_ms: u64, saved: &SavedHistogram) -> Self {
        let mut made = Self::new(buckets, half_life_ms);
        let sum: f64 = saved.weights.values().map(|weight| f64::from(*weight)).sum();
        if sum <= 0.0 || !saved.total.is_finite() || saved.total <= 0.0 {
            return made;
        }
        made.reference_ms = saved.reference_ms as f64;
        for (bucket, weight) in saved.weights.iter().filter(|(bucket, _)| **bucket < buckets.count()) {
            made.weights[*bucket] = f64::from(*weight) * saved.total / sum;
            let (low, high) = made.bounds.unwrap_or((*bucket, *bucket));
            made.bounds = Some((low.min(*bucket), high.max(*bucket)));
        }
        made.total = made.weights.iter().sum();
        made
    }

    /// Counts all that another one of the same buckets and half-life counted.
    pub fn merge(&mut self, other: &Self) {
        let Some((low, high)) = other.bounds else { return };
        if self.bounds.is_none() {
            self.reference_ms = other.reference_ms;
        }
        let scale = |from: f64, to: f64| ((from - to) / self.half_life_ms).exp2();
        let reference_ms = self.reference_ms.max(other.reference_ms);
        let (own, its) = (scale(self.reference_ms, reference_ms), scale(other.reference_ms, reference_ms));
        for (weight, more) in self.weights.iter_mut().zip(&other.weights) {
            *weight = *weight * own + more * its;
        }
        self.total = self.total * own + other.total * its;
        self.reference_ms = reference_ms;
        let (least, most) = self.bounds.unwrap_or((low, high));
        self.bounds = Some((least.min(low), most.max(high)));
    }

    /// Nothing of weight is in it.
    pub fn is_empty(&self) -> bool {
        self.bounds.is_none_or(|(low, high)| self.weights[low..=high].iter().all(|w| *w < EPSILON))
    }

    /// Part of the weight in buckets that lie above the one of a value; `None` while empty.
    pub fn part_above(&self, value: f64) -> Option<f64> {
        let above: f64 = self.weights[self.buckets.index(value) + 1..].iter().sum();
        (!self.is_empty()).then(|| (above / self.total).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resource;

    const DAY: u64 = 86_400_000;

    fn cpu() -> Decaying {
        Decaying::new(Buckets::of(Resource::Cpu), DAY)
    }

    #[test]
    fn a_percentile_is_the_end_of_its_bucket() {
        let mut h = cpu();
        assert_eq!((h.percentile(0.9), h.is_empty()), (0.0, true));
        for (value, weight) in [(0.015, 5.0), (1.0, 4.0), (2.0, 1.0)] {
            h.add(value, weight, 10 * DAY);
        }
        let buckets = Buckets::of(Resource::Cpu);
        let end = |value: f64| buckets.start(buckets.index(value) + 1);
        for (part, value) in [(0.0, 0.015), (0.4, 0.015), (0.6, 1.0), (0.89, 1.0), (0.95, 2.0), (1.0, 2.0)] {
            assert_eq!(h.percentile(part), end(value), "p{part}");
        }
        assert!((h.part_above(1.0).unwrap() - 0.1).abs() < 1e-9);
    }

    #[test]
    fn weight_halves_in_a_half_life_also_across_the_move_of_the_reference() {
        for later in [1, 10, 250] {
            let mut h = cpu();
            // So heavy that it weighs twice as much as the second when that arrives.
            h.add(1.0, 2.0 * 2f64.powi(later), 0);
            h.add(4.0, 1.0, later as u64 * DAY);
            assert!((h.part_above(2.0).unwrap() - 1.0 / 3.0).abs() < 1e-9, "{later}");
            h.add(8.0, 1.0, 350 * DAY);
            assert!(h.part_above(5.0).unwrap() > 0.999_999, "{later}");
        }
    }

    #[test]
    fn what_was_added_can_be_taken_out() {
        let mut h = cpu();
        h.add(1.0, 1.0, DAY);
        let before = h.percentile(1.0);
        h.add(5.0, 1.0, 2 * DAY);
        h.subtract(5.0, 1.0, 2 * DAY);
        assert_eq!(h.percentile(1.0), before);
    }
}
