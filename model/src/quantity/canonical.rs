//! Owns writing a quantity: the canonical form of Kubernetes, and the plain decimal text.
//!
//! Canonical means: no precision is lost, no fractional digits, the suffix or exponent as large as possible. A binary
//! amount below 1024 or with a fraction is written in decimal form; so is one above 2^63-1, which could not be read
//! back. A decimal amount with too many thousands for `E` is written with an exponent (`1000E` is `1e21`).

use crate::narrow::usize_to_i64;
use std::fmt;

use super::{Format, NANO, Quantity};

/// Largest binary amount that reads back as itself, in units.
const BINARY_MAX_UNITS: u128 = i64::MAX as u128;
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
/// Suffixes of 10^-9, 10^-6 and so on.
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.canonical())
    }
}

impl Quantity {
    /// The canonical form, for instance `1500m` for 1.5 and `1Gi` for 1024Mi.
    #[must_use]
    pub fn canonical(self) -> String {
        if self.is_zero() {
            return "0".to_owned();
        }
        let sign = if self.is_negative() { "-" } else { "" };
        let magnitude = self.nano.unsigned_abs();
        let (amount, suffix) = match self.format {
            Format::BinarySI => binary(magnitude).unwrap_or_else(|| decimal(magnitude, Format::DecimalSI)),
            format => decimal(magnitude, format),
        };
        format!("{sign}{amount}{suffix}")
    }

    /// The amount as plain decimal text without suffix or exponent, for instance `0.3`.
    #[must_use]
    pub fn exact(self) -> String {
        let sign = if self.is_negative() { "-" } else { "" };
        let unit = NANO.unsigned_abs();
        let (whole, part) = (self.nano.unsigned_abs() / unit, self.nano.unsigned_abs() % unit);
        if part == 0 {
            return format!("{sign}{whole}");
        }
        let fraction = format!("{part:09}");
        format!("{sign}{whole}.{}", fraction.trim_end_matches('0'))
    }
}

/// The binary form, if the amount has one.
fn binary(magnitude: u128) -> Option<(u128, String)> {
    let unit = NANO.unsigned_abs();
    let mut amount = magnitude / unit;
    if !magnitude.is_multiple_of(unit) || !(1024..=BINARY_MAX_UNITS).contains(&amount) {
        return None;
    }
    let mut power = 0;
    while amount.is_multiple_of(1024) {
        amount /= 1024;
        power += 1;
    }
    Some((amount, (*BINARY_SUFFIXES.get(power)?).to_owned()))
}

/// The decimal form: an integer and a suffix for a multiple of three as exponent.
fn decimal(magnitude: u128, format: Format) -> (u128, String) {
    let (mut amount, mut thousands) = (magnitude, 0_usize);
    while amount.is_multiple_of(1000) && amount != 0 {
        amount /= 1000;
        thousands += 1;
    }
    let exponent = usize_to_i64(thousands) * 3 - 9;
    let suffix = match (format, DECIMAL_SUFFIXES.get(thousands)) {
        (Format::DecimalExponent, _) if exponent == 0 => String::new(),
        (Format::DecimalSI | Format::BinarySI, Some(suffix)) => (*suffix).to_owned(),
        _ => format!("e{exponent}"),
    };
    (amount, suffix)
}
