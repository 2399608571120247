//! Owns the exact resource quantity: the value, its bounds, comparison and conversion to integers.
//!
//! Reading, the canonical form, arithmetic, serde and the report for people are in the files beside this one. Nothing here knows what the quantity measures: units belong to the resource type.
//!
//! # Range and rounding
//!
//! A quantity is an integer number of nano-units in an `i128`; there is no floating point anywhere. What is finer
//! than a nano-unit is rounded away from zero when it is read, as Kubernetes does ("if you want some resources, you
//! should get some"). Two caps apply:
//!
//! - a number written with a binary suffix is capped at 2^63-1 units in magnitude when it is read, as Kubernetes'
//!   `resource.ParseQuantity` does (`9Ei` reads as 9223372036854775807);
//! - every other number is exact up to [`Quantity::MAX`], 10^29 units in magnitude, and capped there. Kubernetes
//!   does not cap decimals at all and never returns on `1e2147483647`.

mod arithmetic;
mod canonical;
mod error;
mod parse;
mod report;
mod serialize;

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

pub use error::{QuantityError, QuantityErrorKind};
pub use parse::MAX_INPUT_BYTES;
pub use report::QuantityReport;
pub(crate) use serialize::from_float;

/// Nano-units in one unit.
const NANO: i128 = 1_000_000_000;
/// Nano-units in one milli-unit.
const NANO_PER_MILLI: i128 = 1_000_000;
/// The largest magnitude held, in nano-units: 10^38, that is 10^29 units.
const MAX_NANO: i128 = 10_i128.pow(38);

/// How a quantity was written, and is written again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Format {
    /// `n u m "" k M G T P E`: powers of 1000.
    #[default]
    DecimalSI,
    /// `Ki Mi Gi Ti Pi Ei`: powers of 1024.
    BinarySI,
    /// `e3`, `E-3`: an explicit power of ten.
    DecimalExponent,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DecimalSI => "DecimalSI",
            Self::BinarySI => "BinarySI",
            Self::DecimalExponent => "DecimalExponent",
        })
    }
}

/// An exact amount of some resource, in units of that resource (cores, bytes, operations per second).
///
/// Equality, order and hash are those of the amount; the format takes no part (`1Gi` equals `1073741824`).
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self { nano: 0, format: Format::DecimalSI };
    /// The largest quantity: 10^29 units.
    pub const MAX: Self = Self { nano: MAX_NANO, format: Format::DecimalSI };
    /// The smallest quantity: -10^29 units.
    pub const MIN: Self = Self { nano: -MAX_NANO, format: Format::DecimalSI };

    /// A quantity of `units` whole units, written with decimal suffixes.
    #[must_use]
    pub fn from_units(units: i64) -> Self {
        Self { nano: i128::from(units) * NANO, format: Format::DecimalSI }
    }

    /// A quantity of `bytes` bytes, written with binary suffixes.
    #[must_use]
    pub fn from_bytes(bytes: u64) -> Self {
        Self { nano: i128::from(bytes) * NANO, format: Format::BinarySI }
    }

    /// A quantity of `milli` thousandths of a unit (milli-cores, for instance), written with decimal suffixes.
    #[must_use]
    pub fn from_milli(milli: i64) -> Self {
        Self { nano: i128::from(milli) * NANO_PER_MILLI, format: Format::DecimalSI }
    }

    /// A quantity of `nano` billionths of a unit in the given format, capped at [`Quantity::MIN`] and
    /// [`Quantity::MAX`].
    #[must_use]
    pub fn from_nano(nano: i128, format: Format) -> Self {
        Self { nano: nano.clamp(-MAX_NANO, MAX_NANO), format }
    }

    /// The amount in nano-units, exact.
    #[must_use]
    pub fn nano(self) -> i128 {
        self.nano
    }

    /// The amount in whole units, rounded away from zero.
    #[must_use]
    pub fn value(self) -> i128 {
        div_away(self.nano, NANO)
    }

    /// The amount in thousandths of a unit, rounded away from zero.
    #[must_use]
    pub fn milli(self) -> i128 {
        div_away(self.nano, NANO_PER_MILLI)
    }

    /// The amount in whole units as a `u64`, rounded up; `None` when negative or above `u64::MAX`.
    #[must_use]
    pub fn to_u64(self) -> Option<u64> {
        u64::try_from(self.value()).ok()
    }

    /// The amount in thousandths of a unit as a `u64`, rounded up; `None` when negative or above `u64::MAX`.
    #[must_use]
    pub fn milli_u64(self) -> Option<u64> {
        u64::try_from(self.milli()).ok()
    }

    /// How it was written and will be written.
    #[must_use]
    pub fn format(self) -> Format {
        self.format
    }

    /// The same amount, to be written in another format.
    #[must_use]
    pub fn with_format(self, format: Format) -> Self {
        Self { format, ..self }
    }

    /// Whether the amount is zero.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self.nano == 0
    }

    /// Whether the amount is below zero.
    #[must_use]
    pub fn is_negative(self) -> bool {
        self.nano < 0
    }
}

/// Divides rounding away from zero; `divisor` is positive.
pub(crate) fn div_away(value: i128, divisor: i128) -> i128 {
    let quotient = value / divisor;
    match value % divisor {
        0 => quotient,
        rest => quotient + rest.signum(),
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nano.hash(state);
    }
}
