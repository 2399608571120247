//! The memory request.
//!
//! `sqrt(M x exp(mean + z x deviation)) x (1 + margin)`: M is the greatest use of the newest two weeks; mean and deviation
//! are those of the logarithms of daily peaks, and z says how far from the mean the part of days lies that the objective
//! allows (`distance`). The maximum alone asks as much for a calm series as for one that doubles now and then; the
//! distribution alone does not know a heavy tail.

use super::profile::Profile;
use super::{Estimate, Params};

/// Days of which the maximum is taken.
const MAX_DAYS: usize = 14;

/// Deviation of a day's peak before anything is known, weighing as much as one day: peaks of public traces differ by half
/// from one day to the next.
const PRIOR_DEVIATION: f64 = 0.5;

/// 1 % of the days are above the mean by so many deviations, as of the normal distribution; other parts by a power of the
/// part. Daily peaks have a heavier tail than the normal distribution: with its points an objective of 0.1 % is missed
/// eightfold on the public traces, and one of 5 % met two and a half times too well.
const AT_ONE_PERCENT: f64 = 2.326;
const TAIL: f64 = 0.6;
/// Nearer to the mean than where half of the days lie above there is no tail.
const MOST: f64 = 0.5;

/// How daily peaks lie.
struct Spread {
    most: f64,
    mean: f64,
    deviation: f64,
}

impl Spread {
    fn of(profile: &Profile) -> Option<Self> {
        let most = profile.day_peaks().take(MAX_DAYS).max()?.max(1) as f64;
        let logs = profile.day_peaks().map(|peak| (peak.max(1) as f64).ln());
        let count = logs.clone().count() as f64;
        let mean = logs.clone().sum::<f64>() / count;
        let square = logs.map(|log| (log - mean).powi(2)).sum::<f64>();
        Some(Self { most, mean, deviation: ((square + PRIOR_DEVIATION.powi(2)) / (count + 1.0)).sqrt() })
    }
}

pub(super) fn estimate(params: &Params, profile: &Profile) -> Option<Estimate> {
    let Spread { most, mean, deviation } = Spread::of(profile)?;
    let likely = (mean + distance(params.memory_over) * deviation).exp();
    let request = (most * likely).sqrt() * (1.0 + params.memory_margin);
    let request = request.max(most);
    Some(Estimate {
        request,
        lower: most,
        upper: request * (1.0 + params.memory_margin + 1.0 / profile.age_days().max(0.25)),
    })
}

/// Part of the days expected above a request: by the distribution that the request is made of, and for a request below the
/// middle of it, where it knows no part, what was seen.
pub(super) fn risk(params: &Params, profile: &Profile, request: u64) -> Option<f64> {
    let Spread { most, mean, deviation } = Spread::of(profile)?;
    let likely = 2.0 * (request.max(1) as f64 / (1.0 + params.memory_margin)).ln() - most.ln();
    if likely > mean {
        return Some(part((likely - mean) / deviation));
    }
    let (over, of) = profile.days_above(request);
    Some((over / of.max(1.0)).max(MOST))
}

/// Deviations from the mean beyond which this part of the days lies.
fn distance(part: f64) -> f64 {
    AT_ONE_PERCENT * (0.01 / part.clamp(1e-9, MOST)).powf(TAIL)
}

/// The part of the days that lies beyond so many deviations.
fn part(distance: f64) -> f64 {
    (0.01 * (AT_ONE_PERCENT / distance).powf(1.0 / TAIL)).min(MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_distances_are_each_others_inverse() {
        for over in [0.5, 0.1, 0.05, 0.01, 0.001, 1e-6] {
            assert!((part(distance(over)) / over - 1.0).abs() < 1e-9, "{over}");
        }
        assert!((distance(0.001) / distance(0.01) - 3.98).abs() < 0.01);
        assert_eq!((part(0.0), part(0.01)), (MOST, MOST));
    }
}
