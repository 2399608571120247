//! Owns what bounds make of a value, and what a new request makes of its limit.
//!
//! Amounts are thousandths of a core, or bytes.

use super::{LimitsMode, RequestBounds};

/// A bound with the name it is shown by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamedBound<'a> {
    /// Not below this.
    AtLeast(u64, &'a str),
    /// Not above this.
    AtMost(u64, &'a str),
}

impl RequestBounds {
    /// As caps named `<whose> min` and `<whose> max`.
    pub fn caps<'a>(self, min_name: &'a str, max_name: &'a str) -> impl Iterator<Item = NamedBound<'a>> {
        let min = self.min.map(|min| NamedBound::AtLeast(min, min_name));
        min.into_iter().chain(self.max.map(|max| NamedBound::AtMost(max, max_name)))
    }
}

/// The value within all caps, each applied to what those before left, and the names of those that moved it and were not
/// moved over in turn. Where two contradict each other the later one holds.
pub fn capped<'a>(value: u64, caps: impl IntoIterator<Item = NamedBound<'a>>) -> (u64, Vec<&'a str>) {
    let mut value = value;
    let mut by = Vec::new();
    for cap in caps {
        let (next, name) = match cap {
            NamedBound::AtLeast(bound, name) => (value.max(bound), name),
            NamedBound::AtMost(bound, name) => (value.min(bound), name),
        };
        if next != value {
            value = next;
            by.push(name);
        }
    }
    (value, by)
}

/// The limit beside a new request. `before` is the request as it was, or what it was defaulted to.
pub fn limit(mode: LimitsMode, limit: Option<u64>, before: Option<u64>, request: u64) -> Option<u64> {
    let limit = limit?;
    match mode {
        LimitsMode::None => None,
        LimitsMode::Keep => Some(limit),
        LimitsMode::Ratio => {
            // A container without a request requests its limit; one that requests nothing has no ratio.
            let before = before.unwrap_or(limit);
            if before == 0 {
                return Some(limit.max(request));
            }
            let scaled = (u128::from(limit) * u128::from(request)).div_ceil(u128::from(before));
            Some(u64::try_from(scaled).unwrap_or(u64::MAX).max(request))
        }
    }
}

/// The greatest request a limit allows: itself, where it stays.
pub const fn limit_cap(mode: LimitsMode, limit: Option<u64>) -> Option<u64> {
    match mode {
        LimitsMode::Keep => limit,
        LimitsMode::None | LimitsMode::Ratio => None,
    }
}
