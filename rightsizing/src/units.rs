//! Numbers that leave floating point again.

use evenkeel_model::narrow::f64_to_u64;

/// Plain CPU numbers of histories and answers are millionths of a core.
pub(crate) const MICROS_A_CORE: f64 = 1e6;
/// And requests are in thousandths of one.
pub(crate) const MICROS_A_MILLICORE: u64 = 1_000;

/// Milliseconds of an hour and of a day.
pub(crate) const HOUR_MS: u64 = 3_600_000;
pub(crate) const DAY_MS: u64 = 24 * HOUR_MS;

/// The nearest whole number above; what is no number becomes 0, what is too large the greatest.
pub(crate) fn rounded(value: f64) -> u64 {
    // A product of exact decimals may lie a hair above the whole number it stands for.
    f64_to_u64((value - 1e-6).ceil())
}
