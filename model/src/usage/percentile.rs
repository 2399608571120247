//! A percentile, in tenths of a percent.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};

use super::UsageError;

/// A share of the population in tenths of a percent, above 0 and up to 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Percentile(u16);

impl Percentile {
    /// Those the resource model asks for: 50, 90, 95, 99, 99.5 and 99.9.
    pub const STANDARD: [Self; 6] = [Self(500), Self(900), Self(950), Self(990), Self(995), Self(999)];

    /// A percentile from tenths of a percent (995 is 99.5 %); `None` for 0 and above 1000.
    #[must_use]
    pub fn from_tenths(tenths: u16) -> Option<Self> {
        (1..=1000).contains(&tenths).then_some(Self(tenths))
    }

    /// Tenths of a percent.
    #[must_use]
    pub fn tenths(self) -> u16 {
        self.0
    }

    /// The value of nearest rank in an ascending list: the smallest value that at least this share of the values does
    /// not exceed. `None` when the list is empty.
    #[must_use]
    pub fn of_sorted(self, ascending: &[u64]) -> Option<u64> {
        let rank = (ascending.len() as u128 * u128::from(self.0)).div_ceil(1000);
        let index = usize::try_from(rank).ok()?.checked_sub(1)?;
        ascending.get(index).copied()
    }
}

/// `50`, `99.5`.
impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 % 10 {
            0 => write!(f, "{}", self.0 / 10),
            tenths => write!(f, "{}.{tenths}", self.0 / 10),
        }
    }
}

impl FromStr for Percentile {
    type Err = UsageError;

    fn from_str(text: &str) -> Result<Self, UsageError> {
        let fail = || UsageError::Percentile { text: text.chars().take(16).collect() };
        let (whole, tenths) = text.split_once('.').unwrap_or((text, "0"));
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(tenths) || tenths.len() != 1 {
            return Err(fail());
        }
        let whole: u16 = whole.parse().map_err(|_| fail())?;
        let tenths: u16 = tenths.parse().map_err(|_| fail())?;
        whole.checked_mul(10).and_then(|t| t.checked_add(tenths)).and_then(Self::from_tenths).ok_or_else(fail)
    }
}

impl Serialize for Percentile {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Percentile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
