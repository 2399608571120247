//! How much of the time to come is expected above each height of CPU use.
//!
//! The past alone says too little: tomorrow every height is a few percent off, and now and then a level comes that nobody
//! has seen. So the time at each height is spread twice. Most of it (`1 - JUMPS`) by a narrow bell of about 3 %, a little of
//! it (`JUMPS`) by a wide one that falls by half with every third more. Both work on buckets, each of which is 1.6 to 3.1 %
//! high, so that a spread over buckets is a spread by factors.

use crate::histogram::Scheme;
use evenkeel_model::narrow::f64_to_u64;

/// Weights of the narrow bell: binomial of order 8, with a standard deviation of 1.41 buckets, about 3 %. With half of it
/// calm containers are over more often than the objective says; the double costs every container 3 % of its request.
const BELL: [f64; 9] = [1.0, 8.0, 28.0, 56.0, 70.0, 56.0, 28.0, 8.0, 1.0];
const BELL_SUM: f64 = 256.0;
const BELL_REACH: usize = 4;

/// Part of the time that is spread widely: without it an objective of 0.1 % is missed by a factor of 2 on the public
/// traces, one of 1 % hardly moves.
const JUMPS: f64 = 0.01;
/// What is left of a jump from one bucket to the next: exp(-1/23), so that 23 buckets, a factor of 1.65, leave 37 %.
const JUMP_DECAY: f64 = 0.957_45;
/// Buckets above the highest use that a jump may reach: a factor of 20.
const JUMP_REACH: usize = 138;
/// Levels that no past foretells: on the public traces use is above any sensible request for 0.2 % of the time.
const UNFORESEEN: f64 = 0.002;

/// Part of the time expected above each bucket.
#[derive(Debug, Clone, Default)]
pub(super) struct Curve {
    /// Bucket of the first element.
    first: usize,
    above: Vec<f64>,
    /// Mean use.
    mean: f64,
}

impl Curve {
    /// Of the time at each bucket from `low` on; nothing where there is no time.
    pub(super) fn new(low: usize, time: &[f64]) -> Self {
        let total: f64 = time.iter().sum();
        if total <= 0.0 {
            return Self::default();
        }
        let below = low.min(BELL_REACH);
        let first = low - below;
        let most = usize::from(Scheme::Octaves32.bucket(u64::MAX)) + 1;
        let count = (below + time.len() + JUMP_REACH).min(most - first);
        let mut parts = vec![0.0; count];
        let mut sum = 0.0;
        for (at, time) in time.iter().enumerate() {
            if *time > 0.0 {
                let part = time / total;
                parts[below + at] = part;
                sum += part * middle(low + at);
            }
        }
        Self { first, above: above(&spread(&parts)), mean: sum }
    }

    /// Mean use.
    pub(super) const fn mean(&self) -> f64 {
        self.mean
    }

    /// Heights from the lowest up, each with the part of the time expected above it.
    pub(super) fn heights(&self) -> impl Iterator<Item = (f64, f64)> {
        self.above.iter().enumerate().map(|(at, above)| (end(self.first + at), *above))
    }

    /// The part of the time expected above a height.
    pub(super) fn above(&self, height: f64) -> f64 {
        let bucket = usize::from(Scheme::Octaves32.bucket(f64_to_u64(height)));
        match bucket.checked_sub(self.first) {
            None => 1.0,
            Some(at) => self.above.get(at).copied().unwrap_or(0.0),
        }
    }

    /// The same with what no past foretells, for people: calibrated on the public traces.
    pub(super) fn risk(&self, height: f64) -> f64 {
        (self.above(height) + UNFORESEEN).min(1.0)
    }
}

/// The number of a bucket.
#[expect(clippy::cast_possible_truncation, reason = "there are 1,920 buckets")]
const fn number(bucket: usize) -> u16 {
    bucket as u16
}

/// Height in the middle of a bucket, and at its end.
fn middle(bucket: usize) -> f64 {
    let bucket = number(bucket);
    f64::midpoint(Scheme::Octaves32.start(bucket) as f64, Scheme::Octaves32.end(bucket) as f64)
}

fn end(bucket: usize) -> f64 {
    Scheme::Octaves32.end(number(bucket)) as f64
}

/// Parts of the time after both spreads.
fn spread(parts: &[f64]) -> Vec<f64> {
    let mut spread = vec![0.0; parts.len()];
    for (at, part) in parts.iter().enumerate().filter(|(_, part)| **part > 0.0) {
        let near = part * (1.0 - JUMPS) / BELL_SUM;
        for (offset, weight) in BELL.iter().enumerate() {
            let to = (at + offset).saturating_sub(BELL_REACH).min(parts.len() - 1);
            spread[to] += near * weight;
        }
    }
    // Two passes of a recursive filter are the bell that falls evenly to both sides.
    let scale = JUMPS * (1.0 - JUMP_DECAY) / (1.0 + JUMP_DECAY);
    let mut carried = 0.0;
    for (to, part) in spread.iter_mut().zip(parts) {
        carried = carried * JUMP_DECAY + part;
        *to += scale * carried;
    }
    carried = 0.0;
    for (to, part) in spread.iter_mut().zip(parts).rev() {
        *to += scale * carried;
        carried = (carried + part) * JUMP_DECAY;
    }
    spread
}

/// The sum of all parts behind each.
fn above(parts: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let mut above: Vec<f64> = parts
        .iter()
        .rev()
        .map(|part| {
            let behind = sum;
            sum += part;
            behind
        })
        .collect();
    above.reverse();
    above
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[(u64, f64)]) -> Curve {
        let bucket = |value: u64| usize::from(Scheme::Octaves32.bucket(value));
        let low = bucket(values[0].0);
        let mut time = vec![0.0; bucket(values[values.len() - 1].0) - low + 1];
        values.iter().for_each(|(value, weight)| time[bucket(*value) - low] += weight);
        Curve::new(low, &time)
    }

    #[test]
    fn a_constant_use_is_expected_a_few_percent_off() {
        let curve = of(&[(1_000_000, 5.0)]);
        assert!((curve.mean() / 1e6 - 1.0).abs() < 0.02, "{}", curve.mean());
        assert!(curve.above(900_000.0) > 0.98);
        let (near, far) = (curve.above(1_030_000.0), curve.above(1_100_000.0));
        assert!(near > 0.05 && (0.001..0.006).contains(&far), "{near} {far}");
        assert!(curve.above(30e6) < 1e-4 && curve.risk(30e6) >= UNFORESEEN);
        assert_eq!(curve.above(0.0), 1.0);
    }

    #[test]
    fn parts_above_fall_from_all_to_nothing() {
        for values in [vec![(0, 1.0)], vec![(10, 1.0), (5_000_000, 0.01)], vec![(u64::MAX, 1.0)]] {
            let curve = of(&values);
            let above: Vec<f64> = curve.heights().map(|(_, above)| above).collect();
            assert!(above.windows(2).all(|w| w[0] >= w[1]), "{values:?}");
            assert!(above[0] <= 1.0 + 1e-9 && *above.last().unwrap() < 1e-3, "{values:?}");
        }
        assert_eq!(Curve::new(7, &[0.0; 3]).heights().count(), 0);
    }
}
