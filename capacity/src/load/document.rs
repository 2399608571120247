//! A whole document: one object, a list, or one list for each kind.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

use super::element::{ElementSeed, Fields, Named, Spot, typed};
use super::{Loader, list_of_kind};

/// Key of a List under which a snapshot says which kinds it lists.
const LISTED: &str = "listed";

/// Kind of what is in a list, by the kind of the list.
pub(super) fn items_kind(list: Option<&str>) -> Option<&str> {
    list.and_then(|kind| kind.strip_suffix("List")).filter(|kind| !kind.is_empty())
}

pub(super) struct DocumentVisitor<'a, 'b, F> {
    pub loader: &'a mut Loader<'b>,
    pub fields: F,
}

impl<'de, F: Fields> Visitor<'de> for DocumentVisitor<'_, '_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object, a List, or an object with lists such as nodes and pods")
    }

    /// An empty document.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { loader, fields } = self;
        let mut kind: Option<String> = None;
        let mut before = serde_json::Map::new();
        let mut any = false;
        while let Some(key) = map.next_key::<String>()? {
            any = true;
            if let Some(of) = list_of_kind(&key) {
                loader.listed(of);
                map.next_value_seed(ListSeed { loader: &mut *loader, list: &key, kind: Some(of), fields })?;
                kind.get_or_insert_with(String::new);
                continue;
            }
            match key.as_str() {
                "kind" => {
                    let name: String = map.next_value()?;
                    if name.ends_with("List") {
                        loader.listed(items_kind(Some(&name)).unwrap_or_default());
                        kind = Some(name);
                        continue;
                    }
                    if before.is_empty() {
                        let mut element = typed(Spot::Alone, &name, fields, MapAccessDeserializer::new(map))?;
                        return loader.take(Spot::Alone, &mut element).map_err(A::Error::custom);
                    }
                    kind = Some(name);
                }
                "items" => {
                    let of = items_kind(kind.as_deref()).map(str::to_owned);
                    let kind_of = of.as_deref();
                    map.next_value_seed(ListSeed {
                        loader: &mut *loader,
                        list: "items",
                        kind: kind_of,
                        fields,
                    })?;
                    kind.get_or_insert_with(String::new);
                }
                "apiVersion" => {
                    map.next_value::<IgnoredAny>()?;
                }
                // What `evenkeel snapshot` was allowed to list, none of which may be there.
                LISTED if kind.is_some() && before.is_empty() => {
                    let kinds: Vec<String> = map.next_value()?;
                    loader.says_listed(&kinds);
                }
                _ if kind.is_some() && before.is_empty() => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => {
                    before.insert(key, map.next_value::<Value>()?);
                }
            }
        }
        match kind {
            Some(kind) if !kind.is_empty() && !kind.ends_with("List") => {
                let element = typed(Spot::Alone, &kind, Named, Value::Object(before));
                loader.take(Spot::Alone, &mut element.map_err(A::Error::custom)?).map_err(A::Error::custom)
            }
            Some(_) => Ok(()),
            None if !any || before.is_empty() => Ok(()),
            None => Err(A::Error::custom("neither a Kubernetes object (kind is missing) nor a List")),
        }
    }
}

/// A list of objects, of one kind or each telling its own.
struct ListSeed<'a, 'b, F> {
    loader: &'a mut Loader<'b>,
    list: &'a str,
    kind: Option<&'a str>,
    fields: F,
}

impl<'de, F: Fields> DeserializeSeed<'de> for ListSeed<'_, '_, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, F: Fields> Visitor<'de> for ListSeed<'_, '_, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: a list of objects", self.list)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let mut index = 0_usize;
        loop {
            let spot = Spot::In(self.list, index);
            let seed = ElementSeed { spot, kind: self.kind, fields: self.fields };
            let Some(mut element) = list.next_element_seed(seed)? else { return Ok(()) };
            self.loader.take(spot, &mut element).map_err(A::Error::custom)?;
            index += 1;
        }
    }
}
