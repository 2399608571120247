//! The memory request.
//!
//! `sqrt(M x exp(mean + z x deviation)) x (1 + margin)`: M is the greatest use of the newest two weeks; mean and deviation
//! are those of the logarithms of daily peaks, and z says how far from the mean the part of days lies that the objective
//! allows (`distance`). The maximum alone asks as much for a calm series as for one that doubles now and then; the
//! distribution alone does not know a heavy tail.

use super::profile::Profile;
use super::{Estimate, GoalParams};

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

/// Days after which more of them make the next one no less likely to be the greatest. On the public traces the day after the
/// greatest of two weeks is above it one time in eight, and the chance falls with the root of the days since.
const FRESH_DAYS: f64 = 7.0;
/// How far above the greatest use the next one lies, as a logarithm. With the third power of the distance half as much above it
/// leaves a sixth of the chance, and the double a fourteenth, as they do there.
const REACH: f64 = 0.5;

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

pub(super) fn estimate(params: &GoalParams, profile: &Profile) -> Option<Estimate> {
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

/// Part of the days expected above a request.
///
/// Above all that was used: of so many equal days the next one is the greatest of all with a chance of one more than their
/// number, which grows no smaller after a week (`FRESH_DAYS`), because levels move; the longer ago it was first
/// so great, the surer is its height; and what is above it is seldom far above (`REACH`). Below it: what was seen, and at least that.
pub(super) fn risk(profile: &Profile, request: u64) -> Option<f64> {
    let peaks = profile.day_peaks().take(MAX_DAYS);
    let (ago, most) = peaks.clone().enumerate().max_by_key(|(ago, peak)| (*peak, *ago))?;
    let beyond = (request.max(1) as f64 / most.max(1) as f64).ln().max(0.0);
    let fresh = 1.0 / (1.0 + (peaks.count() as f64).min(FRESH_DAYS));
    let chance = fresh / (1.0 + ago as f64).sqrt() / (1.0 + beyond / REACH).powi(3);
    let (over, of) = profile.days_above(request);
    Some(if request < most { chance.max(over / of.max(1.0)) } else { chance })
}

/// Deviations from the mean beyond which this part of the days lies.
fn distance(part: f64) -> f64 {
    AT_ONE_PERCENT * (0.01 / part.clamp(1e-9, MOST)).powf(TAIL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Resource;
    use crate::goal::tests::{DAY, MIB, T0, made, past};
    use crate::rule::{Question, Rule};
    use crate::units::DAY_MS;

    #[test]
    fn rarer_days_lie_farther_from_the_mean() {
        for (over, want) in [(0.5, 0.222), (0.05, 0.886), (0.01, 2.326), (0.001, 9.26)] {
            assert!((distance(over) - want).abs() < 0.01, "{over}: {}", distance(over));
        }
        assert_eq!(distance(0.9), distance(MOST));
    }

    /// A request above all that was used is seldom exceeded, the less so the higher it is and the longer ago the greatest use is;
    /// one that days were above is exceeded on as many.
    #[test]
    fn the_risk_of_memory_falls_with_height_and_with_the_age_of_the_peak() {
        let risk = |peak_day: u64, days: u64, mib: u64| {
            let value = move |at: u64| if at / DAY == peak_day { 1_600 } else { 400 + 200 * (at / DAY % 3) };
            let history = made(past(Resource::Memory, days * DAY, |at| value(at) * MIB));
            let (resource, now_ms, current) = (Resource::Memory, T0 + days * DAY_MS, Some(mib * MIB));
            let question = Question { resource, now_ms, current, previous: None };
            GoalParams::default().recommend(&question, &history).risk_now.unwrap()
        };
        // Days of the greatest use and known, MiB, and the part of the days.
        for (peak, days, mib, want) in [
            (27, 28, 1_600, 1.0 / 8.0),
            (27, 28, 2_400, 1.0 / 8.0 / 5.94),
            (27, 28, 3_200, 1.0 / 8.0 / 13.6),
            (19, 28, 1_600, 1.0 / 8.0 / 3.0),
            (0, 1, 1_600, 1.0 / 2.0),
            (2, 3, 1_600, 1.0 / 4.0),
            (27, 28, 399, 1.0),
        ] {
            let got = risk(peak, days, mib);
            assert!((got / want - 1.0).abs() < 0.02, "{peak} {days} {mib}: {got}, not {want}");
        }
        let risks = [399, 500, 700, 1_600, 2_500, 9_000].map(|mib| risk(27, 28, mib));
        assert!(risks.windows(2).all(|pair| pair[0] > pair[1]), "{risks:?}");
    }

    /// Stricter objectives of memory request more.
    #[test]
    fn a_stricter_objective_of_memory_requests_more() {
        let restless = |at: u64| (400 + 300 * (at / DAY * 7 % 5)) * MIB;
        let history = made(past(Resource::Memory, 28 * DAY, restless));
        let requests = [0.001, 0.01, 0.05].map(|memory_over| {
            let params = GoalParams { memory_over, ..GoalParams::default() };
            let (resource, now_ms) = (Resource::Memory, T0 + 28 * DAY_MS);
            let question = Question { resource, now_ms, current: None, previous: None };
            params.recommend(&question, &history).request.unwrap()
        });
        assert!(requests.windows(2).all(|pair| pair[0] > pair[1]), "{requests:?}");
    }
}
