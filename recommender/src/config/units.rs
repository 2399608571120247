//! Durations and sizes as people write them in a configuration file: `200ms`, `8d`, `64MiB`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A text is not a duration or size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}; write {example}")]
pub struct UnitError {
    what: &'static str,
    text: String,
    example: &'static str,
}

/// A length of time, whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(Duration);

/// A size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

const SPANS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
const SIZES: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl Span {
    /// So many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// So many seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// So many days of 24 hours.
    pub const fn from_days(days: u64) -> Self {
        Self(Duration::from_secs(days * 86_400))
    }

    /// As the standard library's type.
    pub const fn get(self) -> Duration {
        self.0
    }

    /// Whole minutes, rounded down.
    pub const fn minutes(self) -> u64 {
        self.0.as_secs() / 60
    }

    /// Whole days.
    pub fn days(self) -> u32 {
        u32::try_from(self.0.as_secs() / 86_400).unwrap_or(u32::MAX)
    }

    /// Microseconds, at most `u64::MAX`.
    pub fn as_usec(self) -> u64 {
        u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX)
    }
}

impl Size {
    /// So many bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// So many mebibytes.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// The bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The bytes as a size in memory.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

/// Number and suffix of a text; the suffix may be separated by blanks.
fn split(text: &str) -> Option<(u64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, text[end..].trim_start()))
}

fn scaled(text: &str, table: &[(&str, u64)], bare: Option<u64>) -> Option<u64> {
    let (number, suffix) = split(text)?;
    let factor = match (suffix, bare) {
        ("", Some(factor)) => factor,
        _ => table.iter().find(|(s, _)| *s == suffix)?.1,
    };
    number.checked_mul(factor)
}

fn written(f: &mut fmt::Formatter<'_>, value: u64, table: &[(&str, u64)]) -> fmt::Result {
    let (suffix, factor) = table
        .iter()
        .find(|(_, factor)| value > 0 && value.is_multiple_of(*factor))
        .or(table.last())
        .copied()
        .unwrap_or(("", 1));
    write!(f, "{}{suffix}", value / factor)
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let bare_zero = (text.trim() == "0").then_some(1);
        scaled(text, &SPANS, bare_zero).map(Self::from_millis).ok_or_else(|| UnitError {
            what: "duration",
            text: text.to_owned(),
            example: "a whole number with ms, s, m, h or d, such as 200ms or 8d",
        })
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        scaled(text, &SIZES, Some(1)).map(Self).ok_or_else(|| UnitError {
            what: "size",
            text: text.to_owned(),
            example: "a whole number with B, KiB, MiB, GiB or TiB, such as 64MiB",
        })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        written(f, u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &SPANS)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        written(f, self.0, &SIZES)
    }
}

/// What a configuration may hold in the place of a unit: text, or a bare number.
#[derive(Deserialize)]
#[serde(untagged)]
enum Raw {
    Number(u64),
    Text(String),
}

macro_rules! serde_as_text {
    ($name:ident, $pattern:literal, $what:literal) => {
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = match Raw::deserialize(deserializer)? {
                    Raw::Number(number) => number.to_string(),
                    Raw::Text(text) => text,
                };
                text.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern, "description": $what })
            }
        }
    };
}

serde_as_text!(Span, "^[0-9]+ *(ms|s|m|h|d)$", "A duration: a whole number with ms, s, m, h or d.");
serde_as_text!(
    Size,
    "^[0-9]+ *(B|KiB|MiB|GiB|TiB)?$",
    "A size: a whole number with B, KiB, MiB, GiB or TiB."
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for text in ["0ms", "200ms", "61s", "1m", "8d", "36h"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["0B", "1B", "1025B", "64MiB", "3GiB"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("1024".parse::<Size>().unwrap().to_string(), "1KiB");
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in ["", "5", "-1s", "1.5s", "1 week", "18446744073709551615d", "ms"] {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["", "1MB", "x", "99999999999TiB"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        let error = "5".parse::<Span>().unwrap_err().to_string();
        assert!(error.contains("\"5\"") && error.contains("200ms"), "{error}");
    }
}
