//! Decimal numbers as whole multiples of a power of ten, without a detour through floating point where they have no
//! exponent.

use evenkeel_model::narrow::f64_to_u64;

/// Why text is no measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    NotANumber,
    Negative,
    TooLarge,
}

impl Why {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::NotANumber => "is no number",
            Self::Negative => "is negative",
            Self::TooLarge => "is too large",
        }
    }

    pub(super) const fn remedy(self) -> &'static str {
        match self {
            Self::NotANumber => "leave the row out where nothing was measured",
            Self::Negative => "usage and times are never negative: correct the trace",
            Self::TooLarge => "give t in seconds, and usage in cores or bytes",
        }
    }
}

/// `text` times 10^`decimals`, to the nearest whole number.
pub(super) fn fixed(text: &[u8], decimals: u32) -> Result<u64, Why> {
    plain(text, decimals).map_or_else(|| general(text, decimals), Ok)
}

/// Digits with at most one point; nothing for every other form.
fn plain(text: &[u8], decimals: u32) -> Option<u64> {
    let mut value: u64 = 0;
    let mut left = decimals;
    let mut has_digit = false;
    let mut bytes = text.iter();
    for byte in bytes.by_ref() {
        match byte {
            b'0'..=b'9' => value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?,
            b'.' => break,
            _ => return None,
        }
        has_digit = true;
    }
    let mut half = None;
    for byte in bytes {
        let digit = byte.is_ascii_digit().then(|| byte - b'0')?;
        has_digit = true;
        if left > 0 {
            left -= 1;
            value = value.checked_mul(10)?.checked_add(u64::from(digit))?;
        } else {
            half = half.or(Some(digit >= 5));
        }
    }
    let value = value.checked_mul(10u64.pow(left))?;
    has_digit.then(|| value + u64::from(half.unwrap_or(false)))
}

fn general(text: &[u8], decimals: u32) -> Result<u64, Why> {
    let text = std::str::from_utf8(text).map_err(|_| Why::NotANumber)?;
    let value: f64 = text.parse().map_err(|_| Why::NotANumber)?;
    let value = (value * 10f64.powi(i32::try_from(decimals).unwrap_or(i32::MAX))).round();
    if value.is_nan() {
        Err(Why::NotANumber)
    } else if value < 0.0 {
        Err(Why::Negative)
    } else if value >= u64::MAX as f64 {
        Err(Why::TooLarge)
    } else {
        Ok(f64_to_u64(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms() {
        for (text, decimals, want) in [
            ("0", 3, Ok(0)),
            ("1372629804", 3, Ok(1_372_629_804_000)),
            ("1.5", 6, Ok(1_500_000)),
            (".25", 6, Ok(250_000)),
            ("2.", 0, Ok(2)),
            ("0.0000005", 6, Ok(1)),
            ("0.00000049", 6, Ok(0)),
            ("1.5e-05", 6, Ok(15)),
            ("1E3", 0, Ok(1_000)),
            ("-0.0", 6, Ok(0)),
            ("-1", 6, Err(Why::Negative)),
            ("-inf", 6, Err(Why::Negative)),
            ("inf", 6, Err(Why::TooLarge)),
            ("99999999999999999999", 0, Err(Why::TooLarge)),
            ("nan", 6, Err(Why::NotANumber)),
            ("", 6, Err(Why::NotANumber)),
            (".", 6, Err(Why::NotANumber)),
            ("1.2.3", 6, Err(Why::NotANumber)),
            ("0x10", 6, Err(Why::NotANumber)),
        ] {
            assert_eq!(fixed(text.as_bytes(), decimals), want, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn both_ways_agree(value in 0.0f64..1e9) {
            let text = format!("{value:.9}");
            let (plain, general) = (fixed(text.as_bytes(), 6), general(text.as_bytes(), 6));
            prop_assert!(plain.unwrap().abs_diff(general.unwrap()) <= 1);
        }
    }
}
