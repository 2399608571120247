//! Owns reading a quantity from text, exactly, in time linear in its length.
//!
//! Grammar (Kubernetes `resource.Quantity`): an optional sign, digits with an optional decimal point (`1`, `1.5`,
//! `1.`, `.5`), then a decimal suffix, a binary suffix or a decimal exponent. `K` is read as `k`, which the first
//! resource model wrote so. At least one digit is required: `.`, `-`, `m` and `Ki` are errors.

use crate::narrow::usize_to_i64;
use std::str::FromStr;

use super::{Format, MAX_NANO, NANO, Quantity, QuantityError, QuantityErrorKind as Kind};

/// The longest text that is read, in bytes.
pub const MAX_INPUT_BYTES: usize = 4096;

/// Magnitude cap of a number with a binary suffix, in units: 2^63-1, as in Kubernetes.
const BINARY_MAX_UNITS: u128 = i64::MAX as u128;
/// Digits in 2^63-1: an integer part with more of them is above the cap.
const BINARY_MAX_DIGITS: usize = 19;
/// Decimal digits from which on a number of nano-units is at or above 10^38.
const MAX_NANO_DIGITS: i64 = 39;
/// An exponent beyond this has the same effect as this one on any text of at most `MAX_INPUT_BYTES` bytes.
const EXPONENT_BOUND: i64 = 1_000_000;
/// Characters of an unknown suffix that an error repeats.
const SHOWN_SUFFIX_CHARS: usize = 16;

/// What follows the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suffix {
    /// Times ten to this power.
    Decimal(i64, Format),
    /// Times two to this power.
    Binary(u32),
}

impl Quantity {
    /// Reads a quantity.
    ///
    /// # Errors
    /// [`QuantityError`] names the text, the place and the remedy.
    pub fn parse(text: &str) -> Result<Self, QuantityError> {
        let fail = |position, kind| QuantityError::new(text, position, kind);
        let bytes = text.as_bytes();
        if bytes.is_empty() {
            return Err(fail(0, Kind::Empty));
        }
        if bytes.len() > MAX_INPUT_BYTES {
            return Err(fail(0, Kind::TooLong { bytes: bytes.len() }));
        }
        let negative = bytes[0] == b'-';
        let start = usize::from(matches!(bytes[0], b'-' | b'+'));
        let (whole, mut at) = digits(bytes, start);
        let mut fraction: &[u8] = &[];
        if bytes.get(at) == Some(&b'.') {
            (fraction, at) = digits(bytes, at + 1);
        }
        if whole.is_empty() && fraction.is_empty() {
            return Err(fail(start, no_digits(&text[start..])));
        }
        let suffix = suffix(&text[at..]).map_err(|kind| fail(at, kind))?;
        let (magnitude, mut format) = match suffix {
            Suffix::Decimal(exponent, format) => (decimal_nano(whole, fraction, exponent), format),
            Suffix::Binary(power) => (binary_nano(whole, fraction, power), Format::BinarySI),
        };
        if format == Format::BinarySI && magnitude > 0 && magnitude < NANO {
            // As in Kubernetes: a fraction of a unit has no binary form.
            format = Format::DecimalSI;
        }
        Ok(Self { nano: if negative { -magnitude } else { magnitude }, format })
    }
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        Self::parse(text)
    }
}

/// The run of digits from `start` on, and the place after it.
fn digits(bytes: &[u8], start: usize) -> (&[u8], usize) {
    let length = bytes[start..].iter().take_while(|b| b.is_ascii_digit()).count();
    (&bytes[start..start + length], start + length)
}

/// Why there is no digit where a number should begin.
fn no_digits(rest: &str) -> Kind {
    if rest.starts_with(char::is_whitespace) { Kind::WhiteSpace } else { Kind::NoDigits }
}

/// Reads all that follows the number.
fn suffix(rest: &str) -> Result<Suffix, Kind> {
    let si = |power| Ok(Suffix::Decimal(power, Format::DecimalSI));
    match rest {
        "" => si(0),
        "n" => si(-9),
        "u" => si(-6),
        "m" => si(-3),
        "k" | "K" => si(3),
        "M" => si(6),
        "G" => si(9),
        "T" => si(12),
        "P" => si(15),
        "E" => si(18),
        "Ki" => Ok(Suffix::Binary(10)),
        "Mi" => Ok(Suffix::Binary(20)),
        "Gi" => Ok(Suffix::Binary(30)),
        "Ti" => Ok(Suffix::Binary(40)),
        "Pi" => Ok(Suffix::Binary(50)),
        "Ei" => Ok(Suffix::Binary(60)),
        _ => exponent(rest),
    }
}

/// Reads `e3`, `E+3`, `e-3`, or says what else the text is.
fn exponent(rest: &str) -> Result<Suffix, Kind> {
    if rest.starts_with('.') {
        return Err(Kind::SecondPoint);
    }
    if rest.contains(char::is_whitespace) {
        return Err(Kind::WhiteSpace);
    }
    let unknown = || Kind::UnknownSuffix { suffix: rest.chars().take(SHOWN_SUFFIX_CHARS).collect() };
    let number = rest.strip_prefix(['e', 'E']).ok_or_else(unknown)?;
    let (negative, figures) = match number.strip_prefix('-') {
        Some(figures) => (true, figures),
        None => (false, number.strip_prefix('+').unwrap_or(number)),
    };
    if figures.is_empty() {
        return Err(Kind::NoExponent);
    }
    let mut power: i64 = 0;
    for figure in figures.bytes() {
        if !figure.is_ascii_digit() {
            return Err(unknown());
        }
        power = (power * 10 + i64::from(figure - b'0')).min(EXPONENT_BOUND);
    }
    Ok(Suffix::Decimal(if negative { -power } else { power }, Format::DecimalExponent))
}

/// `whole.fraction` times ten to the `exponent`, in nano-units, rounded up and capped at `MAX_NANO`.
fn decimal_nano(whole: &[u8], fraction: &[u8], exponent: i64) -> i128 {
    let significant = || whole.iter().chain(fraction).map(|b| b - b'0').skip_while(|d| *d == 0);
    let count = usize_to_i64(significant().count());
    if count == 0 {
        return 0;
    }
    // Of the significant digits, so many stand before the nano-unit's point (more than `count`: zeros follow).
    let kept = count + exponent + 9 - usize_to_i64(fraction.len());
    if kept >= MAX_NANO_DIGITS {
        return MAX_NANO;
    }
    let mut nano: i128 = 0;
    let mut rest = false;
    for (place, digit) in (0_i64..).zip(significant()) {
        if place < kept {
            nano = nano * 10 + i128::from(digit);
        } else {
            rest |= digit != 0;
        }
    }
    for _ in count..kept {
        nano *= 10;
    }
    nano + i128::from(rest)
}

/// `whole.fraction` times two to the `power`, in nano-units, rounded up and capped at 2^63-1 units.
fn binary_nano(whole: &[u8], fraction: &[u8], power: u32) -> i128 {
    let cap = BINARY_MAX_UNITS.cast_signed() * NANO;
    let whole: Vec<u8> = whole.iter().map(|b| b - b'0').skip_while(|d| *d == 0).collect();
    if whole.len() > BINARY_MAX_DIGITS {
        return cap;
    }
    let units = whole.iter().fold(0_u128, |sum, digit| sum * 10 + u128::from(*digit)) << power;
    if units > BINARY_MAX_UNITS {
        return cap;
    }
    // The fraction from its last digit to its first: floor((d*scale + rest) / 10) at each step is exact, because
    // d*scale is an integer; `sticky` remembers whether any step left a remainder.
    let scale = (NANO as u128) << power;
    let mut part: u128 = 0;
    let mut sticky = false;
    for digit in fraction.iter().rev() {
        let sum = u128::from(digit - b'0') * scale + part;
        sticky |= !sum.is_multiple_of(10);
        part = sum / 10;
    }
    let nano = units * (NANO as u128) + part + u128::from(sticky);
    cap.min(i128::try_from(nano).unwrap_or(cap))
}
