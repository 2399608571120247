//! Owns how many bytes of one node are read in a minute: what is sent beyond waits at the node, in its own connection
//! and then in its spool, and nothing is lost. A new connection of the node goes on where the one before was. And how many
//! streams one node may have open: those of others have a place whatever it does.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use evenkeel_store::key::NodeKey;
use tokio::time::Instant;

use crate::authority::Name;

const MINUTE: Duration = Duration::from_secs(60);
/// Streams that one node may have open: the one that counts, a rival that waits, and some whose end is not noticed yet
/// where a network breaks again and again.
const STREAMS_OF_NODE: usize = 8;

/// What each node may send yet. Nodes that were silent for a minute have all of it again, and are forgotten.
#[derive(Debug)]
pub(super) struct Quotas {
    per_minute: u64,
    known: Mutex<NodeQuotas>,
}

#[derive(Debug)]
struct NodeQuotas {
    nodes: HashMap<NodeKey, Arc<Mutex<Quota>>>,
    looked: Instant,
}

impl Quotas {
    /// So many bytes a minute for each node.
    pub(super) fn new(per_minute: u64) -> Self {
        let known = NodeQuotas { nodes: HashMap::new(), looked: Instant::now() };
        Self { per_minute, known: Mutex::new(known) }
    }

    /// That of a node.
    pub(super) fn of(&self, node: &NodeKey, now: Instant) -> Arc<Mutex<Quota>> {
        let mut known = lock(&self.known);
        if now.saturating_duration_since(known.looked) >= MINUTE {
            known.looked = now;
            known.nodes.retain(|_, quota| Arc::strong_count(quota) > 1 || !lock(quota).is_whole(now));
        }
        let fresh = || Arc::new(Mutex::new(Quota::new(self.per_minute)));
        Arc::clone(known.nodes.entry(node.clone()).or_insert_with(fresh))
    }
}

/// How many streams each node has open.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<HashMap<Name, usize>>);

impl Streams {
    /// A place for one more stream of a node; `None` where it has as many as it may. Callers that are not one node are not
    /// counted: root and the recommender's user, and whoever holds a token that all nodes of a cluster share.
    pub(super) fn one_more(self: &Arc<Self>, name: Option<Name>) -> Option<StreamSlot> {
        if let Some(name) = &name {
            let mut open = lock(&self.0);
            let count = open.entry(name.clone()).or_default();
            if *count >= STREAMS_OF_NODE {
                return None;
            }
            *count += 1;
        }
        Some(StreamSlot { streams: Arc::clone(self), name })
    }
}

/// The place of one stream, until it ends.
#[derive(Debug)]
pub(super) struct StreamSlot {
    streams: Arc<Streams>,
    name: Option<Name>,
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        let Some(name) = self.name.take() else { return };
        if let Entry::Occupied(mut open) = lock(&self.streams.0).entry(name) {
            *open.get_mut() = open.get().saturating_sub(1);
            if *open.get() == 0 {
                open.remove();
            }
        }
    }
}

/// A thread that panicked while it held the lock left it was.
pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What may be read yet of a minute.
#[derive(Debug)]
pub(super) struct Quota {
    per_minute: u64,
    left: u64,
    since: Instant,
}

impl Quota {
    /// So many bytes a minute.
    pub(super) fn new(per_minute: u64) -> Self {
        Self { per_minute, left: per_minute, since: Instant::now() }
    }

    /// Whether more may be read.
    pub(super) fn is_open(&mut self, now: Instant) -> bool {
        if now.saturating_duration_since(self.since) >= MINUTE {
            (self.left, self.since) = (self.per_minute, now);
        }
        self.left > 0
    }

    /// Whether nothing was taken in the last minute.
    fn is_whole(&self, now: Instant) -> bool {
        self.left == self.per_minute || now.saturating_duration_since(self.since) >= MINUTE
    }

    /// So many bytes were read; whether they used it up.
    pub(super) fn take(&mut self, bytes: u64, now: Instant) -> bool {
        let was_open = self.is_open(now);
        self.left = self.left.saturating_sub(bytes);
        was_open && self.left == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_up_comes_back_with_the_next_minute() {
        let mut quota = Quota::new(100);
        let start = quota.since;
        assert!(!quota.take(60, start) && quota.is_open(start));
        assert!(quota.take(60, start), "the message that exceeds it is taken whole");
        assert!(!quota.is_open(start + MINUTE - Duration::from_secs(1)));
        assert!(!quota.take(5, start), "told once");
        assert!(quota.is_open(start + MINUTE));
    }

    #[test]
    fn a_node_that_comes_back_goes_on_where_it_was() {
        let (quotas, start) = (Quotas::new(100), Instant::now());
        let node = |name: &str| NodeKey { cluster: "c".into(), node: name.into() };
        assert!(lock(&quotas.of(&node("a"), start)).take(100, start));
        assert!(!lock(&quotas.of(&node("a"), start)).is_open(start), "a new connection of it");
        assert!(lock(&quotas.of(&node("b"), start)).is_open(start), "another has its own");
        let held = quotas.of(&node("c"), start);
        // A minute later those who left have all of it again, and take no room.
        let later = start + 2 * MINUTE;
        assert!(lock(&quotas.of(&node("a"), later)).is_open(later));
        let known: Vec<_> = lock(&quotas.known).nodes.keys().cloned().collect();
        assert!(known.contains(&node("c")) && !known.contains(&node("b")), "{known:?}");
        drop(held);
    }

    #[test]
    fn one_node_takes_no_place_of_the_others() {
        let streams = Arc::new(Streams::default());
        let name = |node: &str| Some(Name { cluster: "c".into(), node: node.into() });
        let mut open: Vec<_> =
            (0..STREAMS_OF_NODE).map(|_| streams.one_more(name("a")).expect("there is room")).collect();
        assert!(streams.one_more(name("a")).is_none());
        assert!(streams.one_more(name("b")).is_some() && streams.one_more(None).is_some());
        open.pop();
        assert!(streams.one_more(name("a")).is_some());
        open.clear();
        assert!(lock(&streams.0).is_empty(), "who has none takes no room");
    }
}
