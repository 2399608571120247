//! One object, alone or of a list: told by its kind and read as that.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor,
};
use serde_json::Value;
use serde_path_to_error::{Path, Track};

use super::stream::{TextPosition, why};
use crate::object::Object;

/// Largest text whose broken field is looked for, bytes. Objects of an API server have at most 1.5 MiB, nearly all a hundredth.
const MOST_FOLLOWED: usize = 1 << 20;

/// What was read.
#[derive(Debug)]
pub(super) enum Element {
    /// An object that counts.
    Known(Object),
    /// One of a kind that does not matter here.
    Skipped(String),
}

/// Whether an error names the field. To follow every field costs a third of the reading, so that large texts are read
/// without, and what turns out to be broken a second time.
pub(super) trait Fields: Copy {
    /// Reads what is an object of this kind.
    fn read<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        self,
        spot: Spot<'_>,
        kind: &str,
        deserializer: D,
    ) -> Result<T, D::Error>;
}

/// It does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named;

/// It does not.
#[derive(Debug, Clone, Copy)]
pub(super) struct Unnamed;

impl Fields for Named {
    fn read<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        self,
        spot: Spot<'_>,
        kind: &str,
        deserializer: D,
    ) -> Result<T, D::Error> {
        let value = Value::deserialize(deserializer).map_err(|error| spot.at(kind, None, error))?;
        tracked(&value).map_err(|(field, error)| spot.at(kind, Some(&field), D::Error::custom(error)))
    }
}

impl Fields for Unnamed {
    fn read<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        self,
        _: Spot<'_>,
        _: &str,
        deserializer: D,
    ) -> Result<T, D::Error> {
        T::deserialize(deserializer)
    }
}

/// Reads a value, or tells the field that is broken. From values alone: each kind of source that is followed doubles the
/// program.
pub(super) fn tracked<T: DeserializeOwned>(value: &Value) -> Result<T, (Path, serde_json::Error)> {
    let mut track = Track::new();
    T::deserialize(serde_path_to_error::Deserializer::new(value, &mut track))
        .map_err(|error| (track.path(), error))
}

/// Reads what is broken a second time: the error names the field, with the place of the first, which knows it. Of a large
/// text it is the first: as a value it may take thirty times its room.
pub(super) fn again<T>(
    spot: Spot<'_>,
    text: &[u8],
    first: &serde_json::Error,
    read: impl FnOnce() -> Result<T, serde_json::Error>,
) -> Result<T, serde_json::Error> {
    if text.len() > MOST_FOLLOWED {
        return Err(serde_json::Error::custom(format_args!("{spot}: {first}")));
    }
    let (line, column) = (first.line(), first.column());
    read().map_err(|second| {
        serde_json::Error::custom(format_args!("{} at line {line} column {column}", why(&second)))
    })
}

/// The bytes of an object, or of what is beside the lists, as text: of what it skips the deserialiser does not look whether it
/// is any.
pub(super) fn as_text<'a>(spot: Spot<'_>, bytes: &'a [u8]) -> Result<&'a str, serde_json::Error> {
    std::str::from_utf8(bytes).map_err(|error| {
        let place = TextPosition { line: 1, column: 0 }.after(&bytes[..error.valid_up_to()]);
        let (line, column) = (place.line, place.column + 1);
        serde_json::Error::custom(format_args!(
            "{spot}: a byte that is not UTF-8 at line {line} column {column}"
        ))
    })
}

/// Where an object stands, for errors.
#[derive(Debug, Clone, Copy)]
pub(super) enum Spot<'a> {
    /// A document of its own.
    Alone,
    /// In this list, at this index.
    In(&'a str, usize),
}

impl Spot<'_> {
    /// What errors of an object here begin with.
    pub(super) fn prefix(self, kind: &str) -> String {
        match self {
            Self::Alone => format!("{kind}: "),
            Self::In(list, index) => format!("{list}[{index}] ({kind}): "),
        }
    }

    /// The error with the field.
    fn at<E: serde::de::Error>(self, kind: &str, field: Option<&Path>, error: E) -> E {
        let prefix = self.prefix(kind);
        match field.filter(|field| field.iter().next().is_some()) {
            Some(field) => E::custom(format_args!("{prefix}{field}: {error}")),
            None => E::custom(format_args!("{prefix}{error}")),
        }
    }
}

impl fmt::Display for Spot<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => f.write_str("the document"),
            Self::In(list, index) => write!(f, "{list}[{index}]"),
        }
    }
}

/// Reads a value as an object of this kind.
pub(super) fn typed<'de, D: Deserializer<'de>>(
    spot: Spot<'_>,
    kind: &str,
    fields: impl Fields,
    deserializer: D,
) -> Result<Element, D::Error> {
    macro_rules! read {
        ($variant:ident) => {
            fields
                .read(spot, kind, deserializer)
                .map(|object| Element::Known(Object::$variant(Box::new(object))))
        };
    }
    match kind {
        "Node" => read!(Node),
        "Pod" => read!(Pod),
        "Namespace" => read!(Namespace),
        "Service" => read!(Service),
        "ReplicationController" => read!(ReplicationController),
        "ReplicaSet" => read!(ReplicaSet),
        "StatefulSet" => read!(StatefulSet),
        "PersistentVolume" => read!(PersistentVolume),
        "PersistentVolumeClaim" => read!(PersistentVolumeClaim),
        "StorageClass" => read!(StorageClass),
        "CSINode" => read!(CsiNode),
        "CSIDriver" => read!(CsiDriver),
        "CSIStorageCapacity" => read!(StorageCapacity),
        "VolumeAttachment" => read!(VolumeAttachment),
        "ResourceQuota" => read!(ResourceQuota),
        "LimitRange" => read!(LimitRange),
        "PriorityClass" => read!(PriorityClass),
        "RuntimeClass" => read!(RuntimeClass),
        "PodDisruptionBudget" => read!(DisruptionBudget),
        other => IgnoredAny::deserialize(deserializer).map(|_| Element::Skipped(other.to_owned())),
    }
}

/// One object of a list.
#[derive(Debug, Clone, Copy)]
pub(super) struct ElementSeed<'a, F> {
    pub spot: Spot<'a>,
    /// Kind of everything in the list; `None` = each tells its own.
    pub kind: Option<&'a str>,
    pub fields: F,
}

impl<'de, F: Fields> DeserializeSeed<'de> for ElementSeed<'_, F> {
    type Value = Element;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Element, D::Error> {
        match self.kind {
            Some(kind) => typed(self.spot, kind, self.fields, deserializer),
            None => deserializer.deserialize_map(self),
        }
    }
}

impl<'de, F: Fields> Visitor<'de> for ElementSeed<'_, F> {
    type Value = Element;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: a Kubernetes object", self.spot)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Element, A::Error> {
        let Self { spot, fields, .. } = self;
        let mut before = serde_json::Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == "kind" {
                let kind: String = map.next_value()?;
                if before.is_empty() {
                    return typed(spot, &kind, fields, MapAccessDeserializer::new(map));
                }
                // Fields came first: the rest is read as values too, which is slow but rare.
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    before.insert(key, value);
                }
                return typed(spot, &kind, Named, Value::Object(before)).map_err(A::Error::custom);
            }
            if key == "apiVersion" {
                map.next_value::<IgnoredAny>()?;
            } else {
                before.insert(key, map.next_value()?);
            }
        }
        Err(A::Error::custom(format_args!("{spot}: kind is missing")))
    }
}
