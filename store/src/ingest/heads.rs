//! Owns the head of each stream: where it stands in the log. The state may be behind by what is logged and not counted
//! yet, and frames are judged by what was logged.

use std::collections::HashMap;

use super::record::IngestEntry;
use super::stream_state::{Position, Range};
use crate::key::StreamKey;
use crate::state::stream::StreamState;

/// The head of one stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamHead {
    /// How far it has been taken.
    pub(crate) position: Position,
    /// When a record of it was received last, microseconds since 1970.
    pub(crate) seen_usec: u64,
    /// The identity that opened it; empty = nobody's yet.
    pub(crate) owner: String,
}

/// The heads of streams, those that spoke lately at least.
#[derive(Debug, Default)]
pub(crate) struct Heads(HashMap<StreamKey, StreamHead>);

impl StreamHead {
    /// As the state has it.
    pub(crate) fn of(stream: &StreamState) -> Self {
        Self { position: stream.position, seen_usec: stream.last_seen_usec, owner: stream.owner.clone() }
    }
}

impl Heads {
    /// One stream's, where it is known here.
    pub(crate) fn get(&self, key: &StreamKey) -> Option<&StreamHead> {
        self.0.get(key)
    }

    /// How many are known here.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// A stream is known from now on.
    pub(crate) fn know(&mut self, key: &StreamKey, head: StreamHead) {
        self.0.insert(key.clone(), head);
    }

    /// A stream is not known any more.
    pub(crate) fn forget(&mut self, key: &StreamKey) {
        self.0.remove(key);
    }

    /// Forgets all of which the question says no.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&StreamKey) -> bool) {
        self.0.retain(|key, _| is_kept(key));
    }

    /// Goes along with a record that was logged, as the state does when it is counted.
    pub(crate) fn note(&mut self, received_usec: u64, entry: &IngestEntry) {
        let (key, range) = match entry {
            IngestEntry::Taken(taken) => {
                (&taken.key, Range::new(taken.frame.sequence, taken.frame.replaces_first))
            }
            IngestEntry::Lost(lost) => (&lost.key, Some(Range { first: lost.first, sequence: lost.last })),
            IngestEntry::Announced(announced) => (&announced.key, None),
            IngestEntry::Owned(owned) => (&owned.key, None),
            // The node said nothing.
            IngestEntry::Judged(_) | IngestEntry::Killed(_) => return,
            IngestEntry::Opened(hello) => return self.seen(&StreamKey::of(hello), received_usec),
            IngestEntry::Panic(_) | IngestEntry::Retired(_) => return,
        };
        self.seen(key, received_usec);
        let Some(head) = self.0.get_mut(key) else { return };
        if let Some(range) = range {
            head.position.advance(range);
        }
        if let IngestEntry::Owned(owned) = entry {
            head.owner.clone_from(&owned.owner);
        }
    }

    fn seen(&mut self, key: &StreamKey, received_usec: u64) {
        if let Some(head) = self.0.get_mut(key) {
            head.seen_usec = received_usec;
        }
    }
}
