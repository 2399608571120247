//! Owns which containers count as running now: those of the newest epoch of every node that is not gone.
//!
//! An agent that starts begins a new epoch, and announces the containers of its node again. From the first frame of samples of
//! that epoch on, the containers of the one before do not count any more: not as replicas, not in sums, not towards
//! `ingest.max_containers`. Their slots are kept, because frames that were spooled may still arrive and are history like any
//! other. How many are kept is bounded by node and in all; what is dropped for it is the oldest epoch's.
//!
//! A node that was silent for `ingest.gone_after` while others were heard is gone: its containers do not count until it
//! is heard again. Time in which the recommender did not run is no silence. When nobody is heard at all, that may be the recommender's own network, and nothing changes until
//! `ingest.forget_after` drops slots for good.

use super::StoreState;
use super::slots::StreamContainer;
use super::stream::StreamState;
use crate::key::{NodeKey, SeriesId, StreamKey};

/// Epochs of a node, besides the newest, whose slots are kept.
const EARLIER: usize = 64;

impl StoreState {
    /// The containers of a series that are followed: those that run, and those of earlier epochs and gone nodes.
    pub fn followed_of(&self, id: SeriesId) -> impl Iterator<Item = (&StreamState, &StreamContainer)> {
        let live = self.history.get(id).map(|s| s.live.as_slice()).unwrap_or_default();
        live.iter().filter_map(|(stream, slot)| {
            let stream = self.streams.get(stream)?;
            Some((stream, stream.slots.get(*slot)?))
        })
    }

    /// The containers of a series that run now, each once.
    pub fn live_of(&self, id: SeriesId) -> impl Iterator<Item = (&StreamState, &StreamContainer)> {
        self.followed_of(id).filter(|(stream, _)| stream.counts)
    }

    /// Whether a container of a series runs now.
    pub fn is_live(&self, id: SeriesId) -> bool {
        self.live_of(id).next().is_some()
    }

    /// Containers that run now.
    pub fn containers(&self) -> usize {
        self.containers
    }

    /// Containers whose slots are kept, those of earlier epochs and gone nodes included.
    pub fn followed(&self) -> usize {
        self.followed
    }

    /// A frame of samples of this stream was read; `time_usec` is the time in it.
    pub(super) fn delivered(&mut self, id: u64, key: &StreamKey, received_usec: u64, time_usec: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if stream.began_usec == 0 {
            stream.began_usec = time_usec.min(received_usec).max(1);
        }
        if stream.counts {
            return;
        }
        let (began, name) = (stream.began_usec, NodeKey::of(key));
        let epoch = self.nodes.get(&name).map_or(0, |node| node.epoch);
        if epoch != key.epoch {
            let before = self.by_key.get(&StreamKey { epoch, ..key.clone() }).copied();
            if let Some((before, newest)) = before.and_then(|id| Some((id, self.streams.get(&id)?))) {
                let silent = self.clock.listened.saturating_sub(newest.heard) > self.limits.gone_minutes;
                if !silent && (id < before || began < newest.began_usec) {
                    // Frames an earlier run of the agent left behind.
                    return;
                }
            }
            let node = self.nodes.entry(name.clone()).or_default();
            node.epoch = key.epoch;
            node.earlier.retain(|earlier| *earlier != id);
            if let Some(before) = before {
                self.stop_counting(before);
                self.keep_slots(&name, before);
            }
        }
        self.start_counting(id);
    }

    pub(super) fn start_counting(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if !std::mem::replace(&mut stream.counts, true) {
            self.containers += stream.slots.len();
        }
    }

    fn stop_counting(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if std::mem::replace(&mut stream.counts, false) {
            self.containers = self.containers.saturating_sub(stream.slots.len());
        }
    }

    /// Keeps the slots of an epoch that has ended, or has not delivered yet, within the bounds of its node.
    pub(super) fn keep_slots(&mut self, name: &NodeKey, id: u64) {
        let Some(node) = self.nodes.get_mut(name) else { return };
        node.earlier.retain(|earlier| *earlier != id);
        node.earlier.push(id);
        let mut kept = 0;
        let mut excess = Vec::new();
        for (at, earlier) in node.earlier.iter().rev().enumerate() {
            kept += self.streams.get(earlier).map_or(0, StreamState::held);
            if at >= EARLIER || kept > self.limits.per_node {
                excess.push(*earlier);
            }
        }
        for id in excess {
            self.drop_slots(id);
        }
    }

    /// Whether a stream may have one more container; makes room by dropping slots that do not count.
    pub(super) fn has_room(&mut self, id: u64, key: &StreamKey) -> bool {
        let Some(stream) = self.streams.get(&id) else { return false };
        let (own, stream_held, counts) = (stream.slots.len(), stream.held(), stream.counts);
        let replaced = if counts {
            own
        } else {
            // They take the places of the node's containers of the epoch before.
            let newest = self.nodes.get(&NodeKey::of(key)).map_or(0, |node| node.epoch);
            let newest = self.stream(&StreamKey { epoch: newest, ..key.clone() });
            newest.filter(|stream| stream.counts).map_or(0, |stream| stream.slots.len())
        };
        if stream_held >= self.limits.per_node
            || self.containers.saturating_sub(replaced).saturating_add(own) >= self.limits.containers
        {
            return false;
        }
        let most = self.limits.containers.saturating_mul(2);
        while self.followed >= most {
            let idle =
                self.streams.iter().filter(|(other, s)| **other != id && !s.counts && !s.slots.is_empty());
            let Some(longest) = idle.min_by_key(|(id, s)| (s.heard, **id)).map(|(id, _)| *id) else {
                return false;
            };
            self.drop_slots(longest);
        }
        true
    }

    /// Ends the containers of a stream and forgets what its next frames would be coded against.
    pub(super) fn drop_slots(&mut self, id: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.decoder.reset();
        let name = NodeKey::of(&stream.key);
        let slots = stream.slots.take_all();
        let count = slots.len();
        for slot in slots {
            self.finish(id, slot);
        }
        self.forget_aside(id);
        self.followed = self.followed.saturating_sub(count);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if std::mem::replace(&mut stream.counts, false) {
            self.containers = self.containers.saturating_sub(count);
        }
        if let Some(node) = self.nodes.get_mut(&name) {
            node.earlier.retain(|earlier| *earlier != id);
        }
    }

    /// Slots of a stream were added or taken out.
    pub(super) fn slots_changed(&mut self, id: u64, added: usize, taken: usize) {
        let change = |count: usize| count.saturating_add(added).saturating_sub(taken);
        self.followed = change(self.followed);
        if self.streams.get(&id).is_some_and(|stream| stream.counts) {
            self.containers = change(self.containers);
        }
    }

    /// Stops counting what runs on nodes that have been silent for long.
    pub(super) fn look_for_gone(&mut self) {
        let now = self.clock.listened;
        if now == self.looked {
            return;
        }
        self.looked = now;
        let after = self.limits.gone_minutes;
        let gone = |stream: &StreamState| stream.counts && now.saturating_sub(stream.heard) > after;
        let gone: Vec<u64> = self.streams.iter().filter(|(_, s)| gone(s)).map(|(id, _)| *id).collect();
        for id in gone {
            self.stop_counting(id);
        }
    }

    /// The clock went back: nobody was heard later than now.
    pub(super) fn time_went_back(&mut self) {
        let (now, received) = (self.clock.now(), self.clock.received_usec);
        for stream in self.streams.values_mut() {
            stream.last_seen_usec = stream.last_seen_usec.min(received);
        }
        for node in self.nodes.values_mut() {
            node.last_seen_usec = node.last_seen_usec.min(received);
            node.names.minute = node.names.minute.min(now);
        }
        self.past.touched_by(now);
    }

    /// What a checkpoint has of a stream was read; of an earlier release the epoch of the newest samples is the newest.
    pub(crate) fn restored_stream(&mut self, id: u64, silent: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.heard = self.clock.listened.saturating_sub(silent);
        let gone = silent > self.limits.gone_minutes;
        let name = NodeKey::of(&stream.key);
        let Some(node) = self.nodes.get_mut(&name) else { return };
        if node.epoch == stream.key.epoch {
            stream.counts = !gone;
        } else {
            node.earlier.push(id);
        }
    }
}
