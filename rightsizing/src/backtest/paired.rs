//! One rule against another on the same series: differences per series, with intervals from drawing the series anew.
//!
//! Differences are paired because series differ far more from each other than rules do on one of them. The draws are
//! seeded: the same trace gives the same intervals.

use super::score::Score;
use crate::Resource;
use evenkeel_model::narrow::{f64_to_usize, u64_to_usize};

/// Times the series are drawn anew.
const DRAWS: usize = 1_000;
/// Nine of ten draws lie within an interval.
const LOW: f64 = 0.05;
const HIGH: f64 = 0.95;

/// A mean difference (the second less the first), and where nine of ten draws of as many series lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Over the series.
    pub mean: f64,
    /// From here on.
    pub low: f64,
    /// Up to here.
    pub high: f64,
}

/// How a rule differs from another one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Paired {
    /// Series that both judge.
    pub series: usize,
    /// Slack as requested.
    pub slack: Difference,
    /// Slack when each rule's requests are all multiplied by the factor that meets the goal of 1 %.
    pub slack_at_equal_risk: Difference,
    /// Part of the time over.
    pub over: Difference,
    /// Part of the 24 h windows with a moment above the request.
    pub oom24: Difference,
    /// Changes a day.
    pub changes_a_day: Difference,
}

impl Paired {
    /// Of the scores of the same series in the same order; `None` where no series was judged under both.
    pub fn of<'a>(
        resource: Resource,
        rule: impl IntoIterator<Item = &'a Score>,
        against: impl IntoIterator<Item = &'a Score>,
    ) -> Option<Self> {
        let pairs: Vec<(&Score, &Score)> =
            rule.into_iter().zip(against).filter(|(a, b)| a.steps > 0 && b.steps > 0).collect();
        let mut sums = (Score::default(), Score::default());
        for (a, b) in &pairs {
            sums.0.merge(a);
            sums.1.merge(b);
        }
        let factors = (sums.0.factor(resource)?, sums.1.factor(resource)?);
        let difference = |of: &dyn Fn(&Score) -> f64| {
            bootstrap(&pairs.iter().map(|(a, b)| of(a) - of(b)).collect::<Vec<_>>())
        };
        let equal: Vec<f64> =
            pairs.iter().map(|(a, b)| a.slack_times(factors.0) - b.slack_times(factors.1)).collect();
        Some(Self {
            series: pairs.len(),
            slack: difference(&Score::slack),
            slack_at_equal_risk: bootstrap(&equal),
            over: difference(&Score::over),
            oom24: difference(&Score::oom24),
            changes_a_day: difference(&Score::changes_a_day),
        })
    }
}

/// The mean of values and the interval of the means of draws with replacement.
fn bootstrap(values: &[f64]) -> Difference {
    let count = values.len().max(1);
    let mean = |sum: f64| sum / count as f64;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut draw = || {
        // xorshift64: Marsaglia, "Xorshift RNGs", 2003.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        values.get(u64_to_usize(state >> 11) % count).copied().unwrap_or(0.0)
    };
    let mut means: Vec<f64> = (0..DRAWS).map(|_| mean((0..count).map(|_| draw()).sum())).collect();
    means.sort_by(f64::total_cmp);
    let at = |part: f64| means[f64_to_usize(part * (DRAWS - 1) as f64)];
    Difference { mean: mean(values.iter().sum()), low: at(LOW), high: at(HIGH) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_hold_the_mean_and_shrink_with_the_number_of_series() {
        let values = |count: usize| (0..count).map(|at| (at * 7 % 10) as f64).collect::<Vec<_>>();
        let (few, many) = (bootstrap(&values(10)), bootstrap(&values(1_000)));
        for one in [few, many] {
            assert!((one.mean - 4.5).abs() < 1e-9 && one.low < 4.5 && one.high > 4.5, "{one:?}");
        }
        // The deviation of a value is 2.87: nine of ten means of ten lie within 1.5.
        assert!((2.4..3.6).contains(&(few.high - few.low)), "{few:?}");
        assert!(many.high - many.low < 0.4, "{many:?}");
        assert_eq!(bootstrap(&[2.0; 5]), Difference { mean: 2.0, low: 2.0, high: 2.0 });
        assert_eq!(few, bootstrap(&values(10)), "the same series give the same intervals");
    }
}
