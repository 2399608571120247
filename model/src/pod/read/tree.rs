//! Owns the tree that YAML and JSON are read into: values with the line they stand on, keys in their order.
//!
//! The tree keeps the place of each YAML scalar in the text, so that a number can be read as it was written
//! rather than through a floating point number.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;

use serde::de::{Deserialize, DeserializeOwned, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// A value and where it stands.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) value: TreeValue,
    /// Line, from 1, where known.
    pub(super) line: Option<NonZeroU32>,
    /// First byte in the text and the one after the last, where known.
    pub(super) range: Option<(u32, u32)>,
}

/// A value of YAML or JSON.
#[derive(Debug)]
pub(super) enum TreeValue {
    Null,
    Bool(bool),
    /// An integer of 64 bits; a larger one is kept as its text.
    Integer(i64),
    Float(f64),
    Text(String),
    List(Vec<Placed>),
    Map(Vec<(String, Placed)>),
}

impl TreeValue {
    /// The type's name for an error.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Integer(_) | Self::Float(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
        }
    }
}

/// A document of YAML.
#[derive(Debug)]
pub(super) struct Yaml(TreeValue);

/// A document of JSON.
#[derive(Debug)]
pub(super) struct Json(TreeValue);

/// What an element of a list or map is read as.
trait Element: DeserializeOwned {
    fn placed(self) -> Placed;
}

impl Element for Spanned<Yaml> {
    fn placed(self) -> Placed {
        place(self)
    }
}

impl Element for Json {
    fn placed(self) -> Placed {
        self.into()
    }
}

impl From<Json> for Placed {
    fn from(json: Json) -> Self {
        Self { value: json.0, line: None, range: None }
    }
}

/// Takes the location of a YAML value over. An alias stands where it is used, its text where it is defined.
pub(super) fn place(spanned: Spanned<Yaml>) -> Placed {
    let line = u32::try_from(spanned.referenced.line()).ok().and_then(NonZeroU32::new);
    let span = spanned.defined.span();
    let range = span.byte_offset().zip(span.byte_len()).and_then(|(start, length)| {
        Some((u32::try_from(start).ok()?, u32::try_from(start.checked_add(length)?).ok()?))
    });
    Placed { value: spanned.value.0, line, range }
}

impl<'de> Deserialize<'de> for Yaml {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor::<Spanned<Self>>(PhantomData)).map(Self)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor::<Self>(PhantomData)).map(Self)
    }
}

struct ValueVisitor<E>(PhantomData<E>);

impl<'de, E: Element> Visitor<'de> for ValueVisitor<E> {
    type Value = TreeValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<X: Error>(self) -> Result<TreeValue, X> {
        Ok(TreeValue::Null)
    }

    fn visit_none<X: Error>(self) -> Result<TreeValue, X> {
        Ok(TreeValue::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<TreeValue, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<X: Error>(self, value: bool) -> Result<TreeValue, X> {
        Ok(TreeValue::Bool(value))
    }

    fn visit_i64<X: Error>(self, value: i64) -> Result<TreeValue, X> {
        Ok(TreeValue::Integer(value))
    }

    fn visit_u64<X: Error>(self, value: u64) -> Result<TreeValue, X> {
        Ok(i64::try_from(value).map_or_else(|_| TreeValue::Text(value.to_string()), TreeValue::Integer))
    }

    fn visit_i128<X: Error>(self, value: i128) -> Result<TreeValue, X> {
        Ok(i64::try_from(value).map_or_else(|_| TreeValue::Text(value.to_string()), TreeValue::Integer))
    }

    fn visit_u128<X: Error>(self, value: u128) -> Result<TreeValue, X> {
        Ok(i64::try_from(value).map_or_else(|_| TreeValue::Text(value.to_string()), TreeValue::Integer))
    }

    fn visit_f64<X: Error>(self, value: f64) -> Result<TreeValue, X> {
        Ok(TreeValue::Float(value))
    }

    fn visit_str<X: Error>(self, value: &str) -> Result<TreeValue, X> {
        Ok(TreeValue::Text(value.to_owned()))
    }

    fn visit_string<X: Error>(self, value: String) -> Result<TreeValue, X> {
        Ok(TreeValue::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<TreeValue, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = seq.next_element::<E>()? {
            list.push(element.placed());
        }
        Ok(TreeValue::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TreeValue, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, element)) = map.next_entry::<String, E>()? {
            entries.push((key, element.placed()));
        }
        Ok(TreeValue::Map(entries))
    }
}
