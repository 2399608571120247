//! A rule's numbers as flat text by name, which is what the decision log and the wire hold, to and from its type.
//!
//! Owned here: the one place where numbers of a decision become text and are read again. A rule's names are the names of
//! the fields of its type, as serde knows them; a number that is not known is left out.

use std::collections::{BTreeMap, btree_map};
use std::fmt::{self, Display};
use std::str::FromStr;

use serde::de::value::{BorrowedStrDeserializer, EnumAccessDeserializer, MapAccessDeserializer};
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, VariantAccess, Visitor,
};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// Numbers by name, as text.
pub type Inputs = BTreeMap<String, String>;

/// Why recorded inputs are not those of a rule, as the end of a sentence about a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable(String);

impl Unreadable {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unreadable {}

impl Error for Unreadable {
    fn custom<T: Display>(why: T) -> Self {
        Self(format!("its inputs are not those of its rule: {why}"))
    }

    fn missing_field(name: &'static str) -> Self {
        Self(format!("its inputs lack {name}"))
    }
}

/// Name and numbers of a rule; nothing for what is no rule.
pub(super) fn write(rule: &impl Serialize) -> Option<(String, Inputs)> {
    let Ok(Value::Object(rule)) = serde_json::to_value(rule) else { return None };
    let (name, numbers) = rule.into_iter().next()?;
    let Value::Object(numbers) = numbers else { return None };
    let text = |(name, value)| match value {
        Value::Null => None,
        Value::String(text) => Some((name, text)),
        number => Some((name, number.to_string())),
    };
    Some((name, numbers.into_iter().filter_map(text).collect()))
}

/// The rule of this name with these numbers; other inputs are of no concern to it.
pub(super) fn read<'de, T: Deserialize<'de>>(name: &'de str, inputs: &'de Inputs) -> Result<T, Unreadable> {
    T::deserialize(EnumAccessDeserializer::new(Rule { name, inputs }))
}

struct Rule<'de> {
    name: &'de str,
    inputs: &'de Inputs,
}

impl<'de> EnumAccess<'de> for Rule<'de> {
    type Error = Unreadable;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Unreadable> {
        let known = seed.deserialize(BorrowedStrDeserializer::<Unreadable>::new(self.name));
        let known = known.map_err(|_| Unreadable(format!("its rule {} is not known here", self.name)))?;
        Ok((known, self))
    }
}

impl<'de> VariantAccess<'de> for Rule<'de> {
    type Error = Unreadable;

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Unreadable> {
        let numbers = Numbers { all: self.inputs.iter(), next: None };
        seed.deserialize(MapAccessDeserializer::new(numbers))
    }

    fn unit_variant(self) -> Result<(), Unreadable> {
        Err(Error::custom("a rule has inputs"))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, _: V) -> Result<V::Value, Unreadable> {
        Err(Error::custom("inputs have names"))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        visitor.visit_map(Numbers { all: self.inputs.iter(), next: None })
    }
}

struct Numbers<'de> {
    all: btree_map::Iter<'de, String, String>,
    next: Option<(&'de str, &'de str)>,
}

impl<'de> MapAccess<'de> for Numbers<'de> {
    type Error = Unreadable;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Unreadable> {
        self.next = self.all.next().map(|(name, text)| (name.as_str(), text.as_str()));
        self.next.map(|(name, _)| seed.deserialize(BorrowedStrDeserializer::new(name))).transpose()
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Unreadable> {
        let (name, text) = self.next.take().ok_or_else(|| Unreadable::custom("a name has no value"))?;
        seed.deserialize(FlatText(text))
            .map_err(|_| Unreadable(format!("its input {name} cannot be read: {text}")))
    }
}

/// One input as text.
struct FlatText<'de>(&'de str);

impl<'de> Deserializer<'de> for FlatText<'de> {
    type Error = Unreadable;

    /// What asks for nothing in particular keeps the value for later (serde does so for flattened fields).
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        if let Ok(number) = self.0.parse() {
            visitor.visit_u64(number)
        } else if let Ok(number) = self.0.parse() {
            visitor.visit_i64(number)
        } else if let Ok(switch) = self.0.parse() {
            visitor.visit_bool(switch)
        } else {
            visitor.visit_borrowed_str(self.0)
        }
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Unreadable> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Unreadable> {
        visitor.visit_enum(IntoDeserializer::<Unreadable>::into_deserializer(self.0))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// For `serde(with)`: a value as its own text.
pub(crate) mod text {
    use super::{Deserialize, Deserializer, Display, Error, FromStr, Serializer};

    pub(crate) fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(crate) fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(|_| D::Error::custom(format!("cannot be read: {text}")))
    }
}
