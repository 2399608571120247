//! Reading a snapshot, object by object: a List, several documents, or an object with one list for each kind.
//!
//! Owned here: telling kinds apart, counting what is skipped, naming what is broken. JSON is cut into [`Pieces`] as it
//! arrives; for anything else whoever calls brings the deserialiser. An object is turned into numbers as soon as it was
//! read: a snapshot is never in memory as a whole.

mod document;
mod element;
mod members;
mod pieces;
mod shapes;
mod stream;

use std::collections::BTreeMap;
use std::io::Read;

use serde::de::Deserializer;

use document::DocumentVisitor;
use element::{Element, Named, Spot, Unnamed, again, as_text, typed};
pub use members::{Members, Rest};
use pieces::Readings;
pub use pieces::{Parsed, Piece, Pieces};
pub use shapes::{Manifest, ShapeError, shapes};
pub use stream::{JsonStream, StreamError};

use crate::cluster::{BuildError, Builder, Cluster, ClusterCache, ObjectCounts, Oddity};
use crate::object::{Object, Pod};

/// Kinds this crate understands, with the key of an object that holds one list for each.
const KINDS: [(&str, &str); 19] = [
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
    ("RuntimeClass", "runtimeClasses"),
    ("PodDisruptionBudget", "podDisruptionBudgets"),
];

/// Kind of the objects in a list that has this key.
fn list_of_kind(key: &str) -> Option<&'static str> {
    KINDS.iter().find(|(_, list)| *list == key).map(|(kind, _)| *kind)
}

/// Kinds of which at most so many are counted by name; the rest is one number.
const SKIPPED_KINDS: usize = 64;

/// Reads one object of a kind, from JSON; nothing where the kind does not matter here. It may be told without its kind, as items of a
/// list are.
///
/// # Errors
/// With the field that is broken.
pub fn object(kind: &str, json: &[u8]) -> Result<Option<Object>, String> {
    let checked = as_text(Spot::Alone, json).map_err(|error| error.to_string())?;
    let text = || serde_json::Deserializer::from_str(checked);
    let read = typed(Spot::Alone, kind, Unnamed, &mut text());
    let named = || typed(Spot::Alone, kind, Named, &mut text());
    match read.or_else(|first| again(Spot::Alone, json, &first, named)) {
        Ok(Element::Known(object)) => Ok(Some(object)),
        Ok(Element::Skipped(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Objects that count.
    pub counts: ObjectCounts,
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
    /// Changes every pod as it is read.
    change: Option<&'a dyn Fn(&mut Pod)>,
    /// Nodes and pods are skipped.
    without_nodes_and_pods: bool,
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

    /// Skips nodes and pods of what is read from here on, or no longer: they are known from elsewhere.
    pub fn leaves_out_nodes_and_pods(&mut self, yes: bool) {
        self.without_nodes_and_pods = yes;
    }

    /// Reads one document.
    ///
    /// # Errors
    /// The deserialiser's, with the list and index of the object that is broken, or there twice.
    pub fn document<'de, D: Deserializer<'de>>(&mut self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(DocumentVisitor { loader: self, fields: Named })
    }

    /// Reads every document of a JSON text.
    ///
    /// # Errors
    /// [`StreamError`], with the list, index and field of the object that is broken, or there twice.
    pub fn text<R: Read>(&mut self, stream: &mut JsonStream<R>) -> Result<(), StreamError> {
        Pieces::new(stream).try_for_each(|piece| self.add_parsed(&mut piece?.parse()))
    }

    /// Reads the JSON document that is next in a text, which may be a part of something larger.
    ///
    /// # Errors
    /// As [`Loader::text`].
    pub fn text_of_one<R: Read>(&mut self, stream: &mut JsonStream<R>) -> Result<(), StreamError> {
        Pieces::of_one_document(stream).try_for_each(|piece| self.add_parsed(&mut piece?.parse()))
    }

    /// Takes in a piece; those of one text are taken in in its order. What was parsed is left to the caller, who may
    /// drop it where it was made.
    ///
    /// # Errors
    /// As [`Loader::text`].
    pub fn add_parsed(&mut self, parsed: &mut Parsed) -> Result<(), StreamError> {
        match &mut parsed.0 {
            Readings::Rest(rest) => self.rest(rest),
            Readings::Objects { list, first, all, failed } => {
                for (index, (place, element)) in all.iter_mut().enumerate() {
                    let taken = self.take(Spot::In(list, *first + index), element);
                    taken.map_err(|error| place.broken(error.to_string()))?;
                }
                failed.take().map_or(Ok(()), Err)
            }
        }
    }

    fn rest(&mut self, rest: &Rest) -> Result<(), StreamError> {
        let checked = as_text(Spot::Alone, rest.text()).map_err(|error| rest.error(&error))?;
        let text = || serde_json::Deserializer::from_str(checked);
        text()
            .deserialize_map(DocumentVisitor { loader: self, fields: Unnamed })
            .or_else(|first| {
                let named = || text().deserialize_map(DocumentVisitor { loader: self, fields: Named });
                again(Spot::Alone, rest.text(), &first, named)
            })
            .map_err(|error| rest.error(&error))
    }

    /// Takes in one object.
    ///
    /// # Errors
    /// As [`Builder::add`].
    pub fn add(&mut self, object: &Object) -> Result<(), BuildError> {
        self.builder.add(object)
    }

    /// Counts pods that ended.
    pub fn add_ended(&mut self, pods: usize) {
        self.builder.add_ended(pods);
    }

    /// All objects of a kind are added, even where there are none: what is missing is missing in the cluster.
    pub fn lists(&mut self, kind: &str) {
        self.listed(kind);
    }

    /// The cluster so far, to which pods are added one by one, and taken out.
    pub fn keep(self) -> ClusterCache {
        self.builder.keep()
    }

    /// The cluster, and what was read.
    pub fn finish(self) -> (Cluster, LoadReport) {
        let (cluster, counts, oddities) = self.builder.finish();
        (cluster, LoadReport { counts, skipped: self.skipped, oddities })
    }

    /// All objects of a kind are here, even where there are none: what is missing is missing in the cluster.
    fn listed(&mut self, kind: &str) {
        if KINDS.iter().any(|(known, _)| *known == kind) {
            self.builder.listed(kind);
        }
    }

    /// The snapshot says which kinds it lists.
    fn says_listed(&mut self, kinds: &[String]) {
        if !kinds.is_empty() {
            self.builder.says_listed();
        }
        kinds.iter().for_each(|kind| self.listed(kind));
    }

    fn skip(&mut self, kind: &str) {
        let known = self.skipped.contains_key(kind) || self.skipped.len() < SKIPPED_KINDS;
        *self.skipped.entry(if known { kind.to_owned() } else { "others".to_owned() }).or_default() += 1;
    }

    /// Takes in what was read here.
    fn take(&mut self, spot: Spot<'_>, element: &mut Element) -> Result<(), Misplaced> {
        let object = match element {
            Element::Known(object) => object,
            Element::Skipped(kind) => {
                self.skip(kind);
                return Ok(());
            }
        };
        if self.without_nodes_and_pods && matches!(object, Object::Node(_) | Object::Pod(_)) {
            return Ok(());
        }
        if let (Object::Pod(pod), Some(change)) = (&mut *object, self.change) {
            change(pod);
        }
        self.builder
            .add(object)
            .map_err(|error| Misplaced { prefix: spot.prefix(error.kind()), error: Box::new(error) })
    }
}

/// An object that cannot be taken in, with where it is.
#[derive(Debug, thiserror::Error)]
#[error("{prefix}{error}")]
struct Misplaced {
    prefix: String,
    error: Box<BuildError>,
}
