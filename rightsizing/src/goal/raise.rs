//! Raises within the day.
//!
//! A level that the past does not know is met within the hour it comes: where use was above 95 % of the request for more
//! than half an hour of two clock hours, the request is above what was used then for the six hours that follow. On the public
//! traces it helps where levels change for good (AWS: 1.00 to 0.44 % over against the same rule asked every hour without
//! raises) and changes little on the large sets.

use super::Params;
use super::profile::Profile;
use crate::histogram::{Histogram, Scheme};
use crate::units::{HOUR_MS, MICROS_A_CORE, rounded};

/// Time above the request within two clock hours that raises it: half of an hour, wherever the hour begins.
const LEAST_MS: u64 = HOUR_MS / 2;
/// Part above the median of the time that was above the request.
const ABOVE: f64 = 0.15;

/// The request with the raises that are in force.
pub(super) fn raised(params: &Params, profile: &Profile, request: u64, notes: &mut Vec<String>) -> u64 {
    let filled = request as f64 * params.cpu_fill;
    let hours = &profile.recent;
    let pairs = hours.iter().enumerate().map(|(at, (hour, heights))| {
        let before = at.checked_sub(1).and_then(|at| hours.get(at)).filter(|before| before.0 + 1 == *hour);
        [Some(heights), before.map(|before| &before.1)]
    });
    let Some(level) = pairs.filter_map(|pair| level(pair, filled as u64)).max() else { return request };
    notes.push(format!("raised for six hours: use was above {:.3} cores", filled / MICROS_A_CORE));
    rounded(level as f64 * (1.0 + ABOVE) / params.cpu_fill).max(request)
}

/// The median of the time in buckets wholly above a height, where there is enough of it.
fn level(hours: [Option<&Histogram>; 2], height: u64) -> Option<u64> {
    let bucket = Scheme::Octaves32.bucket(height);
    let mut above = Histogram::new();
    for (at, weight) in hours.into_iter().flatten().flat_map(Histogram::buckets).filter(|b| b.0 > bucket) {
        above.add(Scheme::Octaves32.end(*at), *weight);
    }
    (above.total() > LEAST_MS).then(|| above.quantile(0.5)).flatten()
}
