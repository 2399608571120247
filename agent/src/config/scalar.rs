//! Durations and sizes as people write them: `"10s"`, `"250ms"`, `"64Mi"`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::ResourceList;
use evenkeel_model::resource_type::Definition;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A duration written as a whole number with `ms`, `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span(Duration);

/// Units from the longest name to the shortest, in milliseconds, so that `ms` is not read as `s`.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000)];

impl Span {
    /// Whole seconds.
    pub(crate) const fn seconds(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }

    /// Whole milliseconds.
    pub(crate) const fn millis(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }

    /// The duration.
    pub(crate) const fn get(self) -> Duration {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, unit) = UNITS.iter().find_map(|(suffix, ms)| Some((text.strip_suffix(suffix)?, ms)))?;
        let millis = number.trim_end().parse::<u64>().ok()?.checked_mul(*unit)?;
        Some(Self::millis(millis))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = self.0.as_millis();
        match millis {
            n if n % 1000 != 0 => write!(f, "{n}ms"),
            n => write!(f, "{}s", n / 1000),
        }
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a duration such as \"10s\" or \"250ms\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                Span::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

impl JsonSchema for Span {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Duration".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^[0-9]+ *(ms|s|m|h)$" })
    }
}

/// A number of bytes: a Kubernetes quantity (`"64Mi"`) or a plain number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size(u64);

impl Size {
    /// Mebibytes.
    pub(crate) const fn mebi(n: u64) -> Self {
        Self(n << 20)
    }

    /// Bytes.
    pub(crate) const fn get(self) -> u64 {
        self.0
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            n if n % (1 << 20) == 0 => serializer.collect_str(&format_args!("{}Mi", n >> 20)),
            n => serializer.serialize_u64(n),
        }
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64Mi\", or a number of bytes")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                let quantity = Quantity::parse(text).map_err(E::custom)?;
                let bytes =
                    quantity.to_u64().ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))?;
                Ok(Size(bytes))
            }
            fn visit_u64<E: de::Error>(self, n: u64) -> Result<Size, E> {
                Ok(Size(n))
            }
            fn visit_i64<E: de::Error>(self, n: i64) -> Result<Size, E> {
                u64::try_from(n).map(Size).map_err(|_| E::invalid_value(de::Unexpected::Signed(n), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Size {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Size".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"], "minimum": 0 })
    }
}

/// Amounts by resource name, each a quantity: `cpu = "500m"`, `"nvidia.com/gpu" = 2`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Amounts(ResourceList);

impl Amounts {
    /// The list.
    pub(crate) const fn list(&self) -> &ResourceList {
        &self.0
    }
}

impl JsonSchema for Amounts {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amounts".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": { "type": ["string", "number"] } })
    }
}

/// One amount: a quantity, such as 1.25.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Amount(pub Quantity);

impl JsonSchema for Amount {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amount".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "number"] })
    }
}

/// Resource types by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Definitions(pub BTreeMap<String, Definition>);

impl JsonSchema for Definitions {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ResourceTypes".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": { "type": "object", "properties": {
            "units": { "type": "string" },
            "internalScaleExponent": { "type": "integer", "minimum": 0, "maximum": 9 },
            "isCompressible": { "type": "boolean" },
            "defaultRequest": { "type": ["string", "number"] },
            "quantization": { "type": ["string", "number"] },
        }, "additionalProperties": false } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_whole_numbers_with_a_unit() {
        for (text, want) in [
            ("10s", Some(10_000)),
            ("250ms", Some(250)),
            ("2m", Some(120_000)),
            ("1 h", Some(3_600_000)),
            ("10", None),
            ("-1s", None),
            ("s", None),
            ("99999999999999999999s", None),
            ("18446744073709551615h", None),
        ] {
            assert_eq!(Span::parse(text), want.map(Span::millis), "{text}");
        }
        assert_eq!(
            (Span::millis(1500).to_string(), Span::seconds(60).to_string()),
            ("1500ms".into(), "60s".into())
        );
    }
}
