//! The CPU request.
//!
//! `Q x (1 + min(reach x (P / Q - 1), limit)) x (1 + margin) / fill`, where Q is a percentile of the time and P the height
//! that use reached for a minute in all.

use super::profile::Profile;
use super::{Estimate, Params};
use crate::units::MICROS_A_CORE;

/// The percentile leaves this many times the goal above it: what is added on top covers the rest. A lower percentile
/// knows less of bursts, a higher one follows single bursts of a restless past.
const BASE: f64 = 5.0;

/// A peak counts when use reached it for so long in all, so that samples of a second and of minutes give the same.
const PEAK_MS: u64 = 60_000;

/// While a week was not seen in whole. A few days tell the usual better than the extremes: the percentile is closer to
/// the goal, the distance to the peak counts in full and more, but less of it is believed.
const YOUNG_BASE: f64 = 3.0;
const YOUNG_REACH: f64 = 1.3;
const YOUNG_REACH_LIMIT: f64 = 1.0;
const YOUNG_MARGIN: f64 = 0.03;
/// Added to the margin of the young, divided by the days.
const YOUNG_MARGIN_DAYS: f64 = 0.05;
/// Use that differs by less than this from nothing is no base for a ratio: a thousandth of a core.
const LEAST: f64 = MICROS_A_CORE / 1_000.0;

pub(super) fn estimate(params: &Params, profile: &Profile) -> Option<Estimate> {
    let days = profile.age_days();
    let mature = params.mature(days);
    let mix = |young: f64, old: f64| young + (old - young) * mature;
    let base = profile.quantile(1.0 - mix(YOUNG_BASE, BASE) * params.cpu_over)?.max(LEAST);
    let peak = profile.reached_for(PEAK_MS)?.max(base);
    let reach = mix(YOUNG_REACH, params.cpu_reach) * (peak / base - 1.0);
    let raised = base * (1.0 + reach.min(mix(YOUNG_REACH_LIMIT, params.cpu_reach_limit)));
    let margin = mix(YOUNG_MARGIN + YOUNG_MARGIN_DAYS / days.max(0.25), params.cpu_margin);
    let request = raised * (1.0 + margin) / params.cpu_fill;
    let starved = profile.starved_peak as f64 * params.starved_factor / params.cpu_fill;
    let needed = profile.quantile(1.0 - params.cpu_over)? / params.cpu_fill;
    let request = request.max(starved);
    Some(Estimate {
        request,
        needed: needed.max(starved),
        // Or a good part of what was added for the future is gone.
        lower: needed.min(request / (1.0 + params.cpu_margin)),
        upper: request.max(peak) * (1.0 + params.cpu_margin + 1.0 / days.max(0.25)),
    })
}
