//! Owns conversions to narrower numbers, each with what becomes of a value that does not fit. `as` decides that silently,
//! so production code is linted against it (`clippy::cast_possible_truncation`, `cast_possible_wrap`, `cast_sign_loss`).
//!
//! All of these saturate: a value beyond the range becomes the nearest end of it, so that a count that is too large stays
//! large and nothing wraps to a small one.

/// A double without its fraction, from 0 to the greatest `u64`; NaN is 0.
#[must_use]
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and this says so"
)]
pub const fn f64_to_u64(value: f64) -> u64 {
    value as u64
}

/// A double without its fraction, within `i64`; NaN is 0.
#[must_use]
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "`as` saturates, and this says so")]
pub const fn f64_to_i64(value: f64) -> i64 {
    value as i64
}

/// A double without its fraction, from 0 to the greatest `u32`; NaN is 0.
#[must_use]
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and this says so"
)]
pub const fn f64_to_u32(value: f64) -> u32 {
    value as u32
}

/// A double without its fraction as an index or a length; NaN is 0.
#[must_use]
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, and this says so"
)]
pub const fn f64_to_usize(value: f64) -> usize {
    value as usize
}

/// A length or an index in 32 bits; what is beyond them is the greatest.
#[must_use]
#[inline]
pub fn usize_to_u32(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// A length as a number with a sign.
#[must_use]
#[inline]
pub fn usize_to_i64(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A number as a length or an index, where addresses may have 32 bits.
#[must_use]
#[inline]
pub fn u64_to_usize(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_becomes_the_nearest_end() {
        let doubles = [(f64::NAN, 0), (-3.5, 0), (2.9, 2), (1e300, u64::MAX), (f64::INFINITY, u64::MAX)];
        for (value, expected) in doubles {
            assert_eq!(f64_to_u64(value), expected, "{value}");
        }
        assert_eq!((f64_to_i64(-1e300), f64_to_i64(-2.9), f64_to_i64(f64::NAN)), (i64::MIN, -2, 0));
        assert_eq!((f64_to_u32(1e10), f64_to_u32(-1.0)), (u32::MAX, 0));
        assert_eq!((f64_to_usize(7.99), f64_to_usize(f64::NEG_INFINITY)), (7, 0));
        assert_eq!((usize_to_u32(usize::MAX), usize_to_u32(12)), (u32::MAX, 12));
        assert_eq!((usize_to_i64(usize::MAX), usize_to_i64(12)), (i64::MAX, 12));
        assert_eq!(u64_to_usize(12), 12);
    }
}
