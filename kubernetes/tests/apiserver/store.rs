//! Objects and their versions: one counter for all, a log of changes that can be compacted, and lists that stay as they were while they are
//! paged through.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::watch;

/// Namespace and name.
pub(crate) type Key = (String, String);
/// A list while it is paged through.
pub(crate) type Frozen = Arc<Vec<(Key, Arc<str>)>>;

/// Something that happened to an object.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) collection: Arc<str>,
    pub(crate) kind: &'static str,
    pub(crate) key: Key,
    /// The object after it, or as it was deleted.
    pub(crate) text: Arc<str>,
    /// The object before it.
    pub(crate) before: Option<Arc<str>>,
}

/// Everything.
#[derive(Debug)]
pub(crate) struct Store {
    pub(crate) version: u64,
    /// Versions up to this one are gone.
    pub(crate) compacted: u64,
    pub(crate) objects: BTreeMap<Arc<str>, BTreeMap<Key, Arc<str>>>,
    pub(crate) log: VecDeque<Change>,
    pub(crate) frozen: HashMap<(String, u64), Frozen>,
    pub(crate) moved: watch::Sender<u64>,
    /// What watches and lists do out of order.
    next_uid: u64,
}

impl Store {
    pub(crate) fn new() -> Self {
        Self {
            version: 1,
            compacted: 0,
            objects: BTreeMap::new(),
            log: VecDeque::new(),
            frozen: HashMap::new(),
            moved: watch::Sender::new(1),
            next_uid: 0,
        }
    }

    pub(crate) fn get(&self, collection: &str, key: &Key) -> Option<&Arc<str>> {
        self.objects.get(collection)?.get(key)
    }

    /// Puts an object in its place with the next version; what it has of an identity stays.
    pub(crate) fn put(&mut self, collection: &str, mut object: Value) -> Value {
        as_written(&mut object);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = (text(&object["metadata"]["namespace"]), text(&object["metadata"]["name"]));
        let before = self.get(collection, &key).cloned();
        self.version += 1;
        let metadata = object["metadata"].as_object_mut().unwrap();
        if !metadata.contains_key("uid") {
            self.next_uid += 1;
            metadata.insert("uid".into(), format!("00000000-0000-4000-8000-{:012x}", self.next_uid).into());
        }
        metadata.entry("creationTimestamp").or_insert_with(|| json!("2026-11-21T01:42:14Z"));
        metadata.insert("resourceVersion".into(), self.version.to_string().into());
        let kind = if before.is_some() { "MODIFIED" } else { "ADDED" };
        let stored: Arc<str> = object.to_string().into();
        let collection: Arc<str> = collection.into();
        self.objects.entry(Arc::clone(&collection)).or_default().insert(key.clone(), Arc::clone(&stored));
        self.tell(Change { version: self.version, collection, kind, key, text: stored, before });
        object
    }

    /// Puts many objects in their places at once, without a word to who watches.
    pub(crate) fn fill(&mut self, collection: &str, objects: impl Iterator<Item = (Key, String)>) {
        self.version += 1;
        let objects = objects.map(|(key, text)| (key, text.into()));
        self.objects.entry(collection.into()).or_default().extend(objects);
    }

    /// Takes an object out; how it was last.
    pub(crate) fn delete(&mut self, collection: &str, key: &Key) -> Option<Value> {
        let before = self.objects.get_mut(collection)?.remove(key)?;
        self.version += 1;
        let mut object: Value = serde_json::from_str(&before).unwrap();
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let text: Arc<str> = object.to_string().into();
        let change = Change {
            version: self.version,
            collection: collection.into(),
            kind: "DELETED",
            key: key.clone(),
            text,
            before: Some(before),
        };
        self.tell(change);
        Some(object)
    }

    fn tell(&mut self, change: Change) {
        self.log.push_back(change);
        self.moved.send_replace(self.version);
    }

    /// Forgets all versions before the present one.
    pub(crate) fn compact(&mut self) {
        self.compacted = self.version;
        self.log.clear();
        self.frozen.clear();
        self.version += 1;
        self.moved.send_replace(self.version);
    }
}

/// Numbers as Go writes them: a whole one has no point.
fn as_written(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|of| number.is_f64() && of.fract() == 0.0 && of.abs() < 1e15);
            if let Some(whole) = whole {
                *value = json!(whole as i64);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(as_written),
        Value::Object(all) => all.values_mut().for_each(as_written),
        _ => {}
    }
}
