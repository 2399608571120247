//! Raises within the day.
//!
//! A level that the past does not know is met within the hour it comes: where use was above 95 % of the request for more
//! than half an hour of the last two clock hours, the request is above what was used then. A level that stays is in the
//! request itself before these hours are over, because four percent of the time weighed may be above it at most. Held for six
//! hours, raises buy nothing on the public traces and cost a point of slack: what they answer is a job that has ended.

use super::GoalParams;
use super::profile::Profile;
use crate::histogram::{Histogram, Scheme};
use crate::units::{HOUR_MS, MICROS_A_CORE, rounded};
use evenkeel_model::narrow::f64_to_u64;

/// Time above the request within two clock hours that raises it: half of an hour, wherever the hour begins.
const LEAST_MS: u64 = HOUR_MS / 2;
/// Part above the median of the time that was above the request.
const ABOVE: f64 = 0.15;

/// The request, raised where the last hours were above it.
pub(super) fn raised(params: &GoalParams, profile: &Profile, request: u64, notes: &mut Vec<String>) -> u64 {
    let filled = request as f64 * params.cpu_fill;
    let Some(level) = level(&profile.recent, f64_to_u64(filled)) else { return request };
    notes.push(format!("raised: use was above {:.3} cores for most of an hour", filled / MICROS_A_CORE));
    rounded(level as f64 * (1.0 + ABOVE) / params.cpu_fill).max(request)
}

/// The median of the time in buckets wholly above a height, where there is enough of it.
fn level(hours: &[Histogram], height: u64) -> Option<u64> {
    let bucket = Scheme::Octaves32.bucket(height);
    let mut above = Histogram::new();
    for (at, weight) in hours.iter().flat_map(Histogram::buckets).filter(|b| b.0 > bucket) {
        above.add(Scheme::Octaves32.end(*at), *weight);
    }
    (above.total() > LEAST_MS).then(|| above.quantile(0.5)).flatten()
}
