//! Numbers with their unit in the type: bytes, milli-CPU, shares, weight, OOM score adjustment, limits.
//!
//! Absence is `Option`, "no limit" is [`Limit::Max`]; there are no sentinel numbers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A value lies outside what the kernel or the resource model allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {value} is outside {min}..={max}")]
pub struct OutOfRange {
    /// Name of the unit, such as `cpu.shares`.
    pub what: &'static str,
    /// The value offered.
    pub value: i64,
    /// Smallest allowed value.
    pub min: i64,
    /// Largest allowed value.
    pub max: i64,
}

macro_rules! amount {
    ($(#[$doc:meta])* $name:ident, $suffix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0);

            /// Wraps a plain number of this unit.
            pub const fn new(value: u64) -> Self {
                Self(value)
            }

            /// The plain number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// True for zero.
            pub const fn is_zero(self) -> bool {
                self.0 == 0
            }

            /// Sum, stopping at the largest representable value.
            pub const fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }

            /// Difference, stopping at zero.
            pub const fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{}", $suffix), self.0)
            }
        }
    };
}

amount!(
    /// An amount of memory or storage in bytes.
    Bytes,
    " bytes"
);
amount!(
    /// CPU in thousandths of a core (of a Kubernetes compute unit, where a node has a conversion factor).
    MilliCpu,
    "m"
);

macro_rules! ranged {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $min:literal, $max:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name($inner);

        impl $name {
            /// Smallest value the kernel takes.
            pub const MIN: Self = Self($min);
            /// Largest value the kernel takes.
            pub const MAX: Self = Self($max);

            /// Checks the range.
            ///
            /// # Errors
            /// [`OutOfRange`] when the kernel would refuse the value.
            pub const fn new(value: $inner) -> Result<Self, OutOfRange> {
                if value < $min || value > $max {
                    // Widening: none of these types has more than 32 bits.
                    return Err(OutOfRange { what: $what, value: value as i64, min: $min, max: $max });
                }
                Ok(Self(value))
            }

            /// Takes the nearest allowed value.
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a value within the bounds, which are of the type, fits it; some of the types have a sign"
            )]
            pub const fn clamped(value: i64) -> Self {
                if value < $min {
                    Self($min)
                } else if value > $max {
                    Self($max)
                } else {
                    Self(value as $inner)
                }
            }

            /// The plain number.
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

ranged!(
    /// `oom_score_adj` of a process (proc(5)): -1000 never killed .. 1000 killed first.
    OomScoreAdj,
    i16,
    -1000,
    1000,
    "oom_score_adj"
);
ranged!(
    /// `cpu.shares` of cgroup v1 (sched-design-CFS): 2..262144, 1024 for one core by convention.
    CpuShares,
    u32,
    2,
    262_144,
    "cpu.shares"
);
ranged!(
    /// `cpu.weight` of cgroup v2 (cgroup-v2.rst, "CPU Interface Files"): 1..10000, 100 by default.
    CpuWeight,
    u32,
    1,
    10_000,
    "cpu.weight"
);

/// A limit: a value, or none at all (the kernel's `max` on v2, -1 on v1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Limit<T> {
    /// At most this much.
    Value(T),
    /// Unlimited.
    Max,
}

impl<T> Limit<T> {
    /// The value, unless unlimited.
    pub fn value(self) -> Option<T> {
        match self {
            Self::Value(v) => Some(v),
            Self::Max => None,
        }
    }
}

impl<T: fmt::Display> fmt::Display for Limit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(v) => v.fmt(f),
            Self::Max => f.write_str("max"),
        }
    }
}

/// Written as the value itself or the text `max`, as `interfaces` pins it.
impl<T: Serialize> Serialize for Limit<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Value(v) => v.serialize(serializer),
            Self::Max => serializer.serialize_str("max"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_and_clamped() {
        assert_eq!(OomScoreAdj::new(-999).unwrap().get(), -999);
        assert_eq!(
            OomScoreAdj::new(1001).unwrap_err().to_string(),
            "oom_score_adj 1001 is outside -1000..=1000"
        );
        assert_eq!(CpuShares::clamped(0).get(), 2);
        assert_eq!(CpuShares::clamped(i64::MAX).get(), 262_144);
        assert_eq!(CpuWeight::clamped(-5).get(), 1);
    }

    #[test]
    fn a_limit_prints_and_serialises_as_value_or_max() {
        assert_eq!(Limit::Value(Bytes::new(7)).to_string(), "7 bytes");
        assert_eq!(serde_json::to_string(&Limit::Value(Bytes::new(7))).unwrap(), "7");
        assert_eq!(serde_json::to_string(&Limit::<Bytes>::Max).unwrap(), "\"max\"");
    }
}
