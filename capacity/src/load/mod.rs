//! Reading a snapshot, object by object: a List, several documents, or an object with one list for each kind.
//!
//! Owned here: telling kinds apart, counting what is skipped, naming what is broken. Whoever calls brings the
//! deserialiser (so this works for JSON from a stream and for YAML from a text alike). An object is turned into numbers
//! as soon as it was read: a snapshot is never in memory as a whole.

mod shapes;

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;
use serde_path_to_error::{Path, Track};

pub use shapes::{ShapeError, shapes};

use crate::cluster::{Builder, Cluster, Counts, Oddity};
use crate::object::{Object, Pod};

/// Kinds this crate understands, with the key of an object that holds one list for each.
const KINDS: [(&str, &str); 18] = [
    ("Node", "nodes"),
    ("Pod", "pods"),
    ("Namespace", "namespaces"),
    ("Service", "services"),
    ("ReplicationController", "replicationControllers"),
    ("ReplicaSet", "replicaSets"),
    ("StatefulSet", "statefulSets"),
    ("PersistentVolume", "pvs"),
    ("PersistentVolumeClaim", "pvcs"),
    ("StorageClass", "storageClasses"),
    ("CSINode", "csiNodes"),
    ("CSIDriver", "csiDrivers"),
    ("CSIStorageCapacity", "csiStorageCapacities"),
    ("VolumeAttachment", "volumeAttachments"),
    ("ResourceQuota", "resourceQuotas"),
    ("LimitRange", "limitRanges"),
    ("PriorityClass", "priorityClasses"),
    ("PodDisruptionBudget", "podDisruptionBudgets"),
];

/// Kinds of which at most so many are counted by name; the rest is one number.
const SKIPPED_KINDS: usize = 64;

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Objects that count.
    pub counts: Counts,
    /// Objects of kinds that do not matter here, by kind.
    pub skipped: BTreeMap<String, usize>,
    /// Contradictions, and what was made of them.
    pub oddities: Vec<Oddity>,
}

/// Collects documents into a cluster.
#[derive(Default)]
pub struct Loader<'a> {
    builder: Builder,
    skipped: BTreeMap<String, usize>,
    /// Where the reading is, for errors.
    place: String,
    /// Changes every pod as it is read.
    change: Option<&'a dyn Fn(&mut Pod)>,
}

impl<'a> Loader<'a> {
    /// Nothing read yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The same, every pod being changed as it is read: what if it asked for something else?
    #[must_use]
    pub fn changing(mut self, change: &'a dyn Fn(&mut Pod)) -> Self {
        self.change = Some(change);
        self
    }

    /// Reads one document.
    ///
    /// # Errors
    /// The deserialiser's, with the list and index of the object that is broken, or there twice.
    pub fn document<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        self.place.clear();
        deserializer.deserialize_map(DocumentVisitor { loader: self })
    }

    /// Takes in one object.
    ///
    /// # Errors
    /// As [`Builder::add`].
    pub fn add(&mut self, object: &Object) -> Result<(), crate::cluster::BuildError> {
        self.builder.add(object)
    }

    /// The cluster, and what was read.
    pub fn finish(self) -> (Cluster, Report) {
        let (cluster, counts, oddities) = self.builder.finish();
        (cluster, Report { counts, skipped: self.skipped, oddities })
    }

    fn skip(&mut self, kind: &str) {
        let known = self.skipped.contains_key(kind) || self.skipped.len() < SKIPPED_KINDS;
        *self.skipped.entry(if known { kind.to_owned() } else { "others".to_owned() }).or_default() += 1;
    }

    /// Reads a value as an object of this kind.
    fn typed<'de, D: Deserializer<'de>>(&mut self, kind: &str, deserializer: D) -> Result<(), D::Error> {
        let mut track = Track::new();
        macro_rules! read {
            ($variant:ident) => {{
                let tracked = serde_path_to_error::Deserializer::new(deserializer, &mut track);
                match Deserialize::deserialize(tracked) {
                    Ok(object) => Object::$variant(Box::new(object)),
                    Err(error) => return Err(self.at(kind, &track.path(), error)),
                }
            }};
        }
        let mut object = match kind {
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
            "PodDisruptionBudget" => read!(DisruptionBudget),
            other => {
                self.skip(other);
                return IgnoredAny::deserialize(deserializer).map(|_| ());
            }
        };
        if let (Object::Pod(pod), Some(change)) = (&mut object, self.change) {
            change(pod);
        }
        self.builder
            .add(&object)
            .map_err(|error| D::Error::custom(format_args!("{}{error}", self.prefix(kind))))
    }

    /// The error with the place of the object and the field.
    fn at<E: serde::de::Error>(&self, kind: &str, field: &Path, error: E) -> E {
        let prefix = self.prefix(kind);
        // The object itself is the field when its text ends too soon.
        if field.iter().next().is_none() {
            E::custom(format_args!("{prefix}{error}"))
        } else {
            E::custom(format_args!("{prefix}{field}: {error}"))
        }
    }

    /// Where the reading is.
    fn prefix(&self, kind: &str) -> String {
        if self.place.is_empty() { format!("{kind}: ") } else { format!("{} ({kind}): ", self.place) }
    }
}

/// A whole document: one object, a list, or one list for each kind.
struct DocumentVisitor<'a, 'b> {
    loader: &'a mut Loader<'b>,
}

impl<'de> Visitor<'de> for DocumentVisitor<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a Kubernetes object, a List, or an object with lists such as nodes and pods")
    }

    /// An empty document.
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let loader = self.loader;
        let mut kind: Option<String> = None;
        let mut before = serde_json::Map::new();
        let mut any = false;
        while let Some(key) = map.next_key::<String>()? {
            any = true;
            if let Some((of, _)) = KINDS.iter().find(|(_, list)| *list == key) {
                loader.place.clone_from(&key);
                map.next_value_seed(ListSeed { loader: &mut *loader, list: &key, kind: Some(of) })?;
                kind.get_or_insert_with(String::new);
                continue;
            }
            match key.as_str() {
                "kind" => {
                    let name: String = map.next_value()?;
                    if name.ends_with("List") {
                        kind = Some(name);
                        continue;
                    }
                    if before.is_empty() {
                        return loader.typed(&name, MapAccessDeserializer::new(map));
                    }
                    kind = Some(name);
                }
                "items" => {
                    let of = kind
                        .as_deref()
                        .and_then(|kind| kind.strip_suffix("List"))
                        .filter(|kind| !kind.is_empty());
                    let of = of.map(str::to_owned);
                    map.next_value_seed(ListSeed {
                        loader: &mut *loader,
                        list: "items",
                        kind: of.as_deref(),
                    })?;
                    kind.get_or_insert_with(String::new);
                }
                "apiVersion" => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ if kind.is_some() && before.is_empty() => {
                    map.next_value::<IgnoredAny>()?;
                }
                _ => {
                    before.insert(key, map.next_value::<Value>()?);
                }
            }
        }
        loader.place.clear();
        match kind {
            Some(kind) if !kind.is_empty() && !kind.ends_with("List") => {
                loader.typed(&kind, Value::Object(before)).map_err(A::Error::custom)
            }
            Some(_) => Ok(()),
            None if any && !before.contains_key("metadata") && before.is_empty() => Ok(()),
            None if !any => Ok(()),
            None => Err(A::Error::custom("neither a Kubernetes object (kind is missing) nor a List")),
        }
    }
}

/// A list of objects, of one kind or each telling its own.
struct ListSeed<'a, 'b> {
    loader: &'a mut Loader<'b>,
    list: &'a str,
    kind: Option<&'a str>,
}

impl<'de> DeserializeSeed<'de> for ListSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: a list of objects", self.list)
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        use std::fmt::Write as _;
        let mut index = 0_usize;
        loop {
            self.loader.place.clear();
            // Writing to a string cannot fail.
            let _ = write!(self.loader.place, "{}[{index}]", self.list);
            if list.next_element_seed(ElementSeed { loader: &mut *self.loader, kind: self.kind })?.is_none() {
                return Ok(());
            }
            index += 1;
        }
    }
}

/// One object of a list.
struct ElementSeed<'a, 'b> {
    loader: &'a mut Loader<'b>,
    kind: Option<&'a str>,
}

impl<'de> DeserializeSeed<'de> for ElementSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.kind {
            Some(kind) => self.loader.typed(kind, deserializer),
            None => deserializer.deserialize_map(self),
        }
    }
}

impl<'de> Visitor<'de> for ElementSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: a Kubernetes object", self.loader.place)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut before = serde_json::Map::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == "kind" {
                let kind: String = map.next_value()?;
                if before.is_empty() {
                    return self.loader.typed(&kind, MapAccessDeserializer::new(map));
                }
                // Fields came first: the rest is read as values too, which is slow but rare.
                while let Some((key, value)) = map.next_entry::<String, Value>()? {
                    before.insert(key, value);
                }
                return self.loader.typed(&kind, Value::Object(before)).map_err(A::Error::custom);
            }
            if key == "apiVersion" {
                map.next_value::<IgnoredAny>()?;
            } else {
                before.insert(key, map.next_value()?);
            }
        }
        Err(A::Error::custom(format_args!("{}: kind is missing", self.loader.place)))
    }
}
