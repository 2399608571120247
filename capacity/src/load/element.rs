//! One object, alone or of a list: told by its kind and read as that.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::Value;
use serde_path_to_error::{Path, Track};

use crate::object::Object;

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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fields {
    Named,
    Unnamed,
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
    fn at<E: serde::de::Error>(self, kind: &str, field: &Path, error: E) -> E {
        let prefix = self.prefix(kind);
        // The object itself is the field when its text ends too soon.
        if field.iter().next().is_none() {
            E::custom(format_args!("{prefix}{error}"))
        } else {
            E::custom(format_args!("{prefix}{field}: {error}"))
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
    fields: Fields,
    deserializer: D,
) -> Result<Element, D::Error> {
    macro_rules! read {
        ($variant:ident) => {{
            if fields == Fields::Unnamed {
                return Deserialize::deserialize(deserializer)
                    .map(|object| Element::Known(Object::$variant(Box::new(object))));
            }
            let mut track = Track::new();
            let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
            match Deserialize::deserialize(tracked) {
                Ok(object) => Ok(Element::Known(Object::$variant(Box::new(object)))),
                Err(error) => Err(spot.at(kind, &track.path(), error)),
            }
        }};
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
pub(super) struct ElementSeed<'a> {
    pub spot: Spot<'a>,
    /// Kind of everything in the list; `None` = each tells its own.
    pub kind: Option<&'a str>,
    pub fields: Fields,
}

impl<'de> DeserializeSeed<'de> for ElementSeed<'_> {
    type Value = Element;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Element, D::Error> {
        match self.kind {
            Some(kind) => typed(self.spot, kind, self.fields, deserializer),
            None => deserializer.deserialize_map(self),
        }
    }
}

impl<'de> Visitor<'de> for ElementSeed<'_> {
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
                return typed(spot, &kind, fields, Value::Object(before)).map_err(A::Error::custom);
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
