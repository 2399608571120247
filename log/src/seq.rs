//! The sequence number: a record's identity and place in one log.

use std::fmt;
use std::num::NonZeroU64;

/// The number of a record in its log: 1 for the first ever appended, one more for each after it.
///
/// Absence ("no record yet") is `Option<Seq>`, and `None` orders before every number, so watermarks compare directly:
/// `Some(seq) <= log.durable()`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Seq(NonZeroU64);

impl Seq {
    /// The number of the first record of a new log.
    pub const FIRST: Self = Self(NonZeroU64::MIN);
    /// Numbers above this are not valid in a file. At a million records a second it lasts for 292,000 years, and
    /// it keeps every addition in this crate far from overflow.
    pub(crate) const MAX: u64 = u64::MAX >> 1;

    /// The sequence number with this value, or nothing for 0 and for values above 2^63 - 1.
    #[must_use]
    pub fn new(value: u64) -> Option<Self> {
        NonZeroU64::new(value).filter(|v| v.get() <= Self::MAX).map(Self)
    }

    /// The plain number, at least 1.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0.get()
    }

    /// The number after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The number before this one; nothing before the first.
    #[must_use]
    pub fn prev(self) -> Option<Self> {
        NonZeroU64::new(self.get() - 1).map(Self)
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
