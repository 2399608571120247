//! The memory request.
//!
//! `sqrt(M x exp(mean + z x deviation)) x (1 + margin)`: M is the greatest use of the newest two weeks; mean and deviation
//! are those of the logarithms of daily peaks, and z the point of the normal distribution above which the part of the
//! goal lies. The maximum alone asks as much for a calm series as for one that doubles now and then; the distribution
//! alone does not know a heavy tail.

use super::profile::Profile;
use super::{Estimate, Params};

/// Days of which the maximum is taken.
const MAX_DAYS: usize = 14;

/// Deviation of a day's peak before anything is known, weighing as much as one day: peaks of public traces differ by half
/// from one day to the next.
const PRIOR_DEVIATION: f64 = 0.5;

pub(super) fn estimate(params: &Params, profile: &Profile) -> Option<Estimate> {
    let most = profile.day_peaks().take(MAX_DAYS).max()?.max(1) as f64;
    let logs = profile.day_peaks().map(|peak| (peak.max(1) as f64).ln());
    let count = logs.clone().count() as f64;
    let mean = logs.clone().sum::<f64>() / count;
    let square = logs.map(|log| (log - mean).powi(2)).sum::<f64>();
    let deviation = ((square + PRIOR_DEVIATION.powi(2)) / (count + 1.0)).sqrt();
    let likely = (mean + normal_point(params.memory_over) * deviation).exp();
    let request = (most * likely).sqrt() * (1.0 + params.memory_margin);
    let request = request.max(most);
    Some(Estimate {
        request,
        lower: most,
        upper: request * (1.0 + params.memory_margin + 1.0 / profile.age_days().max(0.25)),
    })
}

/// The point of the normal distribution above which this part lies, for parts up to a half (Abramowitz and Stegun,
/// Handbook of Mathematical Functions, 26.2.23; error below 4.5e-4).
fn normal_point(part: f64) -> f64 {
    let t = (-2.0 * part.clamp(1e-9, 0.5).ln()).sqrt();
    let over = 2.515_517 + t * (0.802_853 + t * 0.010_328);
    let under = 1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308));
    t - over / under
}

#[cfg(test)]
mod tests {
    use super::normal_point;

    #[test]
    fn points_of_the_normal_distribution() {
        for (part, point) in
            [(0.5, 0.0), (0.158_655, 1.0), (0.05, 1.644_854), (0.01, 2.326_348), (0.001, 3.090_232)]
        {
            assert!((normal_point(part) - point).abs() < 5e-4, "{part}");
        }
    }
}
