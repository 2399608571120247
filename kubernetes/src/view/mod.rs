//! The cluster as its API server tells it: what the simulator reads, and who made which pod.
//!
//! Owned here: what is kept of each object, and joining pods to the controllers at the top. Not owned: how objects arrive
//! (`crate::watch`), what they mean for scheduling (`evenkeel_capacity`).
//!
//! While a kind is listed anew, what was known of it stays, object by object, until the list is whole; then what was not in it goes.

mod bounds;
mod cluster;
#[cfg(test)]
mod cluster_tests;
mod entry;
mod failures;
mod frozen;
mod groups;
mod nodes;
mod placement;
mod pods;
mod required;
#[cfg(test)]
mod required_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use evenkeel_capacity::load;
use evenkeel_capacity::object::Object;

use crate::kinds::{ApiKind, JOB, POD};
pub use bounds::NamespaceBounds;
use cluster::Built;
pub use cluster::Live;
use entry::{NamedMetadata, NamedStatus, ObjectContent, ObjectEntry, ObjectHead};
pub use failures::{Failed, PodFailure};
pub use frozen::PANIC;
pub use groups::WorkloadGroup;
pub use placement::Placement;
use pods::Pods;
pub use required::NodePods;

/// By namespace (empty where there is none) and name.
type Names<T> = BTreeMap<Box<str>, BTreeMap<Box<str>, T>>;

/// A cluster's objects.
#[derive(Debug, Default)]
pub struct ClusterView {
    inner: RwLock<ClusterObjects>,
    /// Counts every change, so that what was made of the view can be used again while it stands.
    changes: AtomicU64,
    built: Mutex<Option<Built>>,
}

#[derive(Debug, Default)]
struct ClusterObjects {
    kinds: BTreeMap<&'static str, KindObjects>,
    pods: Pods,
    /// Counts changes of what the simulator reads beside pods, but those that name a node that was there before.
    others: u64,
    /// Names of nodes that changed since the simulator's cluster was made or took them in.
    changed_nodes: Mutex<BTreeSet<Box<str>>>,
    /// Namespaces that say that nothing of them is to be changed, and how often that changed.
    frozen: BTreeSet<Box<str>>,
    frozen_changes: u64,
}

/// Objects of a kind.
#[derive(Debug, Default)]
struct KindObjects {
    /// A list of it came whole.
    is_known: bool,
    /// Of the list that is being read, or was read last.
    mark: u32,
    count: usize,
    /// Counts changes, lists and deletions.
    changes: u64,
    objects: Names<ObjectEntry>,
}

impl ClusterView {
    fn read(&self) -> RwLockReadGuard<'_, ClusterObjects> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, ClusterObjects> {
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.write_quietly()
    }

    /// For what changes no object.
    fn write_quietly(&self) -> RwLockWriteGuard<'_, ClusterObjects> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// A list begins; its mark.
    pub(crate) fn begin(&self, kind: &'static ApiKind) -> u32 {
        let mut inner = self.write();
        let kept = inner.kinds.entry(kind.name).or_default();
        kept.mark = kept.mark.wrapping_add(1);
        kept.mark
    }

    /// A list is whole: what was not in it is gone. How many objects there are.
    pub(crate) fn end(&self, kind: &'static ApiKind, mark: u32) -> usize {
        let mut inner = self.write();
        let ClusterObjects { kinds, pods, others, .. } = &mut *inner;
        let kept = kinds.entry(kind.name).or_default();
        *others += u64::from(!kept.is_known);
        kept.is_known = true;
        if kind.name == POD {
            for (namespace, name) in pods.unmarked(mark) {
                inner.remove_pod(&namespace, &name);
            }
            return inner.pods.count();
        }
        kept.changes += 1;
        kept.objects.retain(|_, names| {
            names.retain(|_, entry| entry.mark == mark);
            !names.is_empty()
        });
        let before = kept.count;
        kept.count = kept.objects.values().map(BTreeMap::len).sum();
        *others += u64::from(kept.count != before);
        let count = kept.count;
        inner.frozen_listed(kind.name);
        count
    }

    /// Takes in an object of a list.
    ///
    /// # Errors
    /// When it cannot be understood; what was known of it stays.
    pub(crate) fn put(&self, kind: &'static ApiKind, json: &[u8], mark: u32) -> Result<(), String> {
        self.take(kind, json, Some(mark))
    }

    /// Takes in an object that is new or changed.
    ///
    /// # Errors
    /// As [`ClusterView::put`].
    pub(crate) fn put_now(&self, kind: &'static ApiKind, json: &[u8]) -> Result<(), String> {
        self.take(kind, json, None)
    }

    fn take(&self, kind: &'static ApiKind, json: &[u8], mark: Option<u32>) -> Result<(), String> {
        let unreadable = |why: &dyn std::fmt::Display| format!("{} that makes no sense: {why}", kind.name);
        let named: ObjectHead = serde_json::from_slice(json).map_err(|error| unreadable(&error))?;
        if named.metadata.name.is_empty() {
            return Err(unreadable(&"it has no name"));
        }
        // Read before anything is locked.
        let read = match kind.name {
            JOB => Ok(Some(ObjectContent::Owner(named.controller()))),
            name => load::object(name, json).map(|object| object.map(ObjectContent::Object)),
        };
        let mut inner = self.write();
        let told = named.told();
        inner.freeze(kind.name, &named.metadata.name, named.freezes());
        let ClusterObjects { kinds, pods, others, changed_nodes, .. } = &mut *inner;
        let kept = kinds.entry(kind.name).or_default();
        let mark = mark.unwrap_or(kept.mark);
        let failures = named.status.as_ref().map(NamedStatus::failures).unwrap_or_default();
        let NamedMetadata { namespace, name, .. } = named.metadata;
        let namespace = namespace.unwrap_or_default();
        match read {
            Ok(Some(ObjectContent::Object(Object::Pod(pod)))) => pods.put(*pod, told, failures, mark),
            Ok(Some(of)) => {
                let names = kept.objects.entry(namespace.into()).or_default();
                let before = names.get(&*name).map(|entry| &entry.of);
                let (is_new, is_same) = (before.is_none(), before.is_some_and(|before| before.is_like(&of)));
                if matches!(of, ObjectContent::Object(Object::Node(_))) && !is_new && !is_same {
                    let changed = changed_nodes.get_mut().unwrap_or_else(PoisonError::into_inner);
                    changed.insert(name.as_str().into());
                } else {
                    *others += u64::from(!is_same);
                }
                names.insert(name.into(), ObjectEntry { mark, of });
                kept.count += usize::from(is_new);
                kept.changes += 1;
            }
            Ok(None) => {}
            // It is still there, as it was.
            Err(why) if kind.name == POD => {
                pods.touch(&namespace, &name, mark);
                return Err(unreadable(&why));
            }
            Err(why) => {
                if let Some(entry) = kept.objects.get_mut(&*namespace).and_then(|names| names.get_mut(&*name))
                {
                    entry.mark = mark;
                }
                return Err(unreadable(&why));
            }
        }
        Ok(())
    }

    /// Takes out an object that is gone.
    ///
    /// # Errors
    /// When it cannot be understood.
    pub(crate) fn remove(&self, kind: &'static ApiKind, json: &[u8]) -> Result<(), String> {
        let named: ObjectHead = serde_json::from_slice(json)
            .map_err(|error| format!("a deleted {} that makes no sense: {error}", kind.name))?;
        let NamedMetadata { namespace, name, .. } = named.metadata;
        let namespace = namespace.unwrap_or_default();
        let mut inner = self.write();
        if kind.name == POD {
            inner.remove_pod(&namespace, &name);
            return Ok(());
        }
        inner.others += 1;
        inner.freeze(kind.name, &name, false);
        let Some(kept) = inner.kinds.get_mut(kind.name) else { return Ok(()) };
        let Some(names) = kept.objects.get_mut(&*namespace) else { return Ok(()) };
        kept.changes += 1;
        kept.count -= usize::from(names.remove(&*name).is_some());
        if names.is_empty() {
            kept.objects.remove(&*namespace);
        }
        Ok(())
    }

    /// How many objects of a kind there are.
    pub(crate) fn count(&self, kind: &'static ApiKind) -> usize {
        let inner = self.read();
        if kind.name == POD {
            return inner.pods.count();
        }
        inner.kinds.get(kind.name).map_or(0, |kept| kept.count)
    }

    /// The controller at the top of a pod, such as `deployment/web`: what a ReplicaSet or Job was made by, else what made the pod. `None`
    /// where nothing did, where the pod is not known, or is a later one of the name.
    #[must_use]
    pub fn workload(&self, namespace: &str, pod: &str, uid: &str) -> Option<String> {
        let inner = self.read();
        let one = inner.pods.get(namespace, pod).filter(|one| *one.uid == *uid)?;
        inner.top(namespace, one).found()
    }
}
