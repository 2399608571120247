//! Reading only what matters of lists and maps that are mostly about something else: a large snapshot has very many.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::StringMap;

/// Something that may not matter to any rule here.
pub(super) trait Matters {
    /// Whether it does.
    fn matters(&self) -> bool;
}

/// Reads those of a list that matter.
pub(super) fn only<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Matters,
{
    deserializer.deserialize_option(ListVisitor(PhantomData))
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Matters> Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_none<E>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_unit<E>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<T>, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(one) = list.next_element::<T>()? {
            if one.matters() {
                all.push(one);
            }
        }
        Ok(all)
    }
}

/// Reads the entries of a map that have one of these keys.
pub(super) struct Annotations(pub &'static [&'static str]);

impl<'de> Visitor<'de> for Annotations {
    type Value = StringMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_none<E>(self) -> Result<StringMap, E> {
        Ok(StringMap::new())
    }

    fn visit_unit<E>(self) -> Result<StringMap, E> {
        Ok(StringMap::new())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<StringMap, D::Error> {
        deserializer.deserialize_map(self)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<StringMap, A::Error> {
        let mut known = StringMap::new();
        while let Some(key) = map.next_key_seed(KnownKey(self.0))? {
            match key {
                Some(key) => drop(known.insert(key.to_owned(), map.next_value()?)),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(known)
    }
}

/// Reads a key that is one of these, without keeping any other.
struct KnownKey(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for KnownKey {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KnownKey {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().find(|known| **known == key).copied())
    }
}
