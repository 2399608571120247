//! Durations and sizes as people write them in a configuration: `200ms`, `8d`, `64Mi`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use evenkeel_model::quantity::Quantity;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A text is not a duration or size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {what}; write {example}")]
pub struct UnitError {
    what: &'static str,
    text: String,
    example: &'static str,
}

/// A duration in whole milliseconds, written with `ms`, `s`, `m`, `h` or `d` (24 hours).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span(Duration);

/// A size in bytes, written as a Kubernetes quantity (`64Mi`) or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(u64);

/// Units of durations in milliseconds, the largest first.
const SPANS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// Units of sizes that are written, the largest first.
const SIZES: [(&str, u64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];

impl Span {
    /// A number of milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// A number of seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }

    /// A number of days of 24 hours.
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

    /// Whole days, rounded down.
    pub fn days(self) -> u32 {
        u32::try_from(self.0.as_secs() / 86_400).unwrap_or(u32::MAX)
    }

    /// Microseconds, at most `u64::MAX`.
    pub fn as_usec(self) -> u64 {
        u64::try_from(self.0.as_micros()).unwrap_or(u64::MAX)
    }
}

impl Size {
    /// A number of bytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// A number of mebibytes.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// The bytes.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The bytes as a size in memory, at most `usize::MAX`.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl FromStr for Span {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let trimmed = text.trim();
        let end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let unit = match (&trimmed[..end], trimmed[end..].trim_start()) {
            ("0", "") => Some(1),
            (_, suffix) => SPANS.iter().find(|(name, _)| *name == suffix).map(|(_, millis)| *millis),
        };
        let number = trimmed[..end].parse::<u64>().ok();
        let millis = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
        millis.map(Self::from_millis).ok_or_else(|| UnitError {
            what: "duration",
            text: text.to_owned(),
            example: "a whole number with ms, s, m, h or d, such as 200ms or 8d",
        })
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        // "64MiB" and "64B" were the recommender's form before both programs took Kubernetes' quantities.
        let trimmed = text.trim();
        let quantity = match trimmed.strip_suffix('B') {
            Some(rest) if rest.ends_with('i') || rest.ends_with(|c: char| c.is_ascii_digit()) => rest,
            _ => trimmed,
        };
        let bytes = Quantity::parse(&quantity.replace(' ', "")).ok().and_then(|quantity| quantity.to_u64());
        bytes.map(Self).ok_or_else(|| UnitError {
            what: "size",
            text: text.to_owned(),
            example: "a quantity of bytes, such as 64Mi or 2G",
        })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        let unit = SPANS.iter().find(|(_, unit)| millis > 0 && millis.is_multiple_of(*unit));
        let (suffix, unit) = unit.copied().unwrap_or(("s", 1_000));
        write!(f, "{}{suffix}", millis / unit)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = SIZES.iter().find(|(_, unit)| self.0 > 0 && self.0.is_multiple_of(*unit));
        let (suffix, unit) = unit.copied().unwrap_or(("", 1));
        write!(f, "{}{suffix}", self.0 / unit)
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads text or a whole number that is not negative, and names what is expected otherwise.
struct Unit<T>(&'static str, std::marker::PhantomData<T>);

impl<T: FromStr> de::Visitor<'_> for Unit<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(|_| E::invalid_value(de::Unexpected::Str(text), &self))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        number.to_string().parse().map_err(|_| E::invalid_value(de::Unexpected::Unsigned(number), &self))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        number.to_string().parse().map_err(|_| E::invalid_value(de::Unexpected::Signed(number), &self))
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a duration: a whole number with ms, s, m, h or d, such as \"10s\" or \"8d\"";
        deserializer.deserialize_any(Unit(expected, std::marker::PhantomData))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expected = "a size: a quantity of bytes such as \"64Mi\", or a number of bytes";
        deserializer.deserialize_any(Unit(expected, std::marker::PhantomData))
    }
}

impl JsonSchema for Span {
    fn schema_name() -> Cow<'static, str> {
        "Duration".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^([0-9]+ *(ms|s|m|h|d)|0)$" })
    }
}

impl JsonSchema for Size {
    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"], "minimum": 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back() {
        for text in ["0s", "200ms", "61s", "1m", "8d", "36h", "1500ms"] {
            assert_eq!(text.parse::<Span>().unwrap().to_string(), text);
        }
        for text in ["0", "1", "1025", "64Mi", "3Gi", "1536Ki"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn sizes_are_quantities_and_the_recommenders_former_form_is_read() {
        for (text, bytes) in [
            ("64Mi", 64 << 20),
            ("64MiB", 64 << 20),
            ("10B", 10),
            ("1024", 1024),
            ("1.5Gi", 3 << 29),
            ("2G", 2_000_000_000),
            ("1 KiB", 1024),
        ] {
            assert_eq!(text.parse::<Size>().map(Size::get), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_an_example() {
        for text in ["", "5", "-1s", "1.5s", "1 week", "18446744073709551615d", "ms", "99999999999999999999s"]
        {
            assert!(text.parse::<Span>().is_err(), "{text}");
        }
        for text in ["", "x", "1MB", "-1", "B"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
        let error = "5".parse::<Span>().unwrap_err().to_string();
        assert!(error.contains("\"5\"") && error.contains("200ms"), "{error}");
        assert_eq!(
            ("1 h".parse::<Span>(), "0".parse()),
            (Ok(Span::from_secs(3600)), Ok(Span::from_millis(0)))
        );
    }
}
