//! The objects that are followed, as they are now.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use tokio::sync::watch;

use super::{Autoscaler, Meta, OWN};
use crate::kinds::ApiKind;
use crate::watch::Takes;

/// Kind, namespace and name.
pub type Key = (&'static str, String, String);

/// Objects of several kinds.
#[derive(Debug)]
pub struct ObjectCache {
    all: RwLock<BTreeMap<Key, CachedObject>>,
    marks: RwLock<BTreeMap<&'static str, u32>>,
    changes: watch::Sender<u64>,
}

#[derive(Debug)]
struct CachedObject {
    mark: u32,
    object: Arc<Autoscaler>,
}

impl Default for ObjectCache {
    fn default() -> Self {
        Self { all: RwLock::default(), marks: RwLock::default(), changes: watch::Sender::new(0) }
    }
}

impl ObjectCache {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<Key, CachedObject>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<Key, CachedObject>> {
        self.all.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of a kind.
    #[must_use]
    pub fn all(&self, kind: &'static ApiKind) -> Vec<Arc<Autoscaler>> {
        let all = self.read();
        let of_kind = all.iter().filter(|((of, ..), _)| *of == kind.name);
        of_kind.map(|(_, entry)| Arc::clone(&entry.object)).collect()
    }

    /// Those of a kind that ask for a recommender of this name.
    #[must_use]
    pub fn of(&self, kind: &'static ApiKind, recommender: &str) -> Vec<Arc<Autoscaler>> {
        let mut all = self.all(kind);
        all.retain(|object| object.is_for(recommender));
        all
    }

    /// Told of every change.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn mark(&self, kind: &'static ApiKind) -> u32 {
        self.marks.read().unwrap_or_else(PoisonError::into_inner).get(kind.name).copied().unwrap_or_default()
    }

    fn key(kind: &'static ApiKind, metadata: &Meta) -> Key {
        (kind.name, metadata.namespace.clone(), metadata.name.clone())
    }
}

impl Takes for ObjectCache {
    fn begin(&self, kind: &'static ApiKind) -> u32 {
        let mut marks = self.marks.write().unwrap_or_else(PoisonError::into_inner);
        let mark = marks.entry(kind.name).or_default();
        *mark = mark.wrapping_add(1);
        *mark
    }

    fn end(&self, kind: &'static ApiKind, mark: u32) -> usize {
        self.write().retain(|(of, ..), entry| *of != kind.name || entry.mark == mark);
        self.changes.send_modify(|number| *number += 1);
        self.count(kind)
    }

    fn put(&self, kind: &'static ApiKind, json: &[u8], mark: u32) -> Result<(), String> {
        let unreadable = |why: String| format!("{} that makes no sense: {why}", kind.name);
        let read = if kind == OWN { Autoscaler::own(json) } else { Autoscaler::read(json) };
        let object = match read {
            Ok(object) => object,
            Err(error) => {
                self.touch(kind, json, mark);
                return Err(unreadable(error.to_string()));
            }
        };
        if object.metadata.name.is_empty() {
            return Err(unreadable("it has no name".to_owned()));
        }
        let key = Self::key(kind, &object.metadata);
        self.write().insert(key, CachedObject { mark, object: Arc::new(object) });
        self.changes.send_modify(|number| *number += 1);
        Ok(())
    }

    fn put_now(&self, kind: &'static ApiKind, json: &[u8]) -> Result<(), String> {
        self.put(kind, json, self.mark(kind))
    }

    fn remove(&self, kind: &'static ApiKind, json: &[u8]) -> Result<(), String> {
        let metadata =
            metadata(json).ok_or_else(|| format!("a deleted {} that makes no sense", kind.name))?;
        self.write().remove(&Self::key(kind, &metadata));
        self.changes.send_modify(|number| *number += 1);
        Ok(())
    }

    fn count(&self, kind: &'static ApiKind) -> usize {
        self.read().keys().filter(|(of, ..)| *of == kind.name).count()
    }
}

impl ObjectCache {
    /// It was listed and cannot be understood: what is known of it stays.
    fn touch(&self, kind: &'static ApiKind, json: &[u8], mark: u32) {
        let Some(metadata) = metadata(json) else { return };
        if let Some(entry) = self.write().get_mut(&Self::key(kind, &metadata)) {
            entry.mark = mark;
        }
    }
}

fn metadata(json: &[u8]) -> Option<Meta> {
    #[derive(serde::Deserialize)]
    struct NamedObject {
        metadata: Meta,
    }
    serde_json::from_slice::<NamedObject>(json).ok().map(|named| named.metadata)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::objects::AUTOSCALERS;

    fn object(name: &str, recommender: &str) -> Vec<u8> {
        let spec = json!({ "recommenders": [{ "name": recommender }] });
        json!({ "metadata": { "name": name, "namespace": "n" }, "spec": spec }).to_string().into_bytes()
    }

    #[test]
    fn a_list_takes_out_what_it_has_not_and_what_is_unreadable_stays() {
        let (kept, kind) = (ObjectCache::default(), AUTOSCALERS);
        let names = || kept.of(kind, "evenkeel").iter().map(|o| o.metadata.name.clone()).collect::<Vec<_>>();
        for name in ["a", "b", "c"] {
            kept.put_now(kind, &object(name, "evenkeel")).unwrap();
        }
        kept.put_now(kind, &object("d", "default")).unwrap();
        assert_eq!((names(), kept.count(kind)), (vec!["a".into(), "b".into(), "c".into()], 4));
        let mark = kept.begin(kind);
        kept.put(kind, &object("a", "evenkeel"), mark).unwrap();
        let broken = br#"{"metadata":{"name":"b","namespace":"n"},"spec":7}"#;
        assert!(kept.put(kind, broken, mark).unwrap_err().contains("makes no sense"));
        // A list that ends early takes nothing out.
        assert_eq!(kept.count(kind), 4);
        assert_eq!((kept.end(kind, mark), names()), (2, vec!["a".to_owned(), "b".into()]));
        kept.remove(kind, &object("a", "evenkeel")).unwrap();
        assert_eq!(names(), ["b"]);
        assert!(kept.remove(kind, b"[]").is_err() && kept.put_now(kind, b"{}").is_err());
    }
}
