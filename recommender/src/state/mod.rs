//! Owns everything the recommender knows: a value that only changes by applying a record of the ingest log.
//!
//! Applying is deterministic: the same records in the same order give the same state, so that replay after a restart ends
//! where the process was. The clock is in the records. Not owned: files, the network, threads, the rules.

pub mod history;
pub mod image;
pub mod minute;
pub(crate) mod repeats;
pub mod slots;
pub mod stream;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use evenkeel_model::rollup::Rollup;
use evenkeel_proto::v1;

use crate::ingest::record::{Entry as LogEntry, Key, Lost, Panic, Taken};
use crate::ingest::stream_state::Range;
use history::{Bounds, History, Minutes, Requested, SeriesId, SeriesKey};
use image::Image;
use minute::MINUTE_USEC;
use repeats::Repeats;
use slots::Slot;
use stream::{Node, NodeKey, Staging, Stream};

/// Most bytes of names in one container's identity; a longer one is not followed.
const MAX_IDENTITY: usize = 4096;

/// Samples dated further ahead of their reception are not counted: they would push the whole history out.
const MAX_AHEAD_MINUTES: u64 = 24 * 60;

/// Bounds of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of the history.
    pub history: Bounds,
    /// Streams whose position is kept.
    pub epochs: usize,
    /// Containers followed at once.
    pub containers: usize,
    /// Decisions kept.
    pub events: usize,
}

/// A decision and the node it was made on.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The node.
    pub node: NodeKey,
    /// The decision, its `node` filled.
    pub decision: v1::Decision,
}

/// What has been counted since the state began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Frames taken.
    pub frames: u64,
    /// Container seconds counted.
    pub samples: u64,
    /// Frames whose samples could not be read.
    pub unreadable: u64,
    /// Seconds of slots nobody announced.
    pub unannounced: u64,
    /// Seconds dated too far ahead.
    pub misdated: u64,
    /// Sequence numbers known to be missing.
    pub lost: u64,
    /// Announcements not followed for lack of room.
    pub refused_containers: u64,
    /// Streams forgotten for lack of room.
    pub forgotten: u64,
}

/// What became of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// It was taken in.
    Done,
    /// It is a frame whose samples cannot be read; nothing of them was counted.
    Unreadable(String),
}

/// The panic switch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PanicSwitch {
    /// Every change is stopped.
    pub on: bool,
    /// Why.
    pub reason: String,
    /// When it was set, microseconds since 1970.
    pub since_usec: u64,
}

/// Everything known.
#[derive(Debug)]
pub struct State {
    limits: Limits,
    /// Last record of the log in this state; 0 = none.
    pub(crate) applied: u64,
    pub(crate) streams: BTreeMap<u64, Stream>,
    by_key: HashMap<Key, u64>,
    next_stream: u64,
    /// Nodes by name.
    pub(crate) nodes: BTreeMap<NodeKey, Node>,
    /// The past.
    pub history: Minutes,
    pub(crate) events: VecDeque<Event>,
    /// Decisions that may be sent again.
    pub(crate) repeats: Repeats,
    /// The panic switch.
    pub panic: PanicSwitch,
    /// What has been counted.
    pub counters: Counters,
    containers: usize,
    staging: Staging,
}

impl State {
    /// Knows nothing.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            applied: 0,
            streams: BTreeMap::new(),
            by_key: HashMap::new(),
            next_stream: 0,
            nodes: BTreeMap::new(),
            history: Minutes::new(limits.history),
            events: VecDeque::new(),
            repeats: Repeats::default(),
            panic: PanicSwitch::default(),
            counters: Counters::default(),
            containers: 0,
            staging: Staging::default(),
        }
    }

    /// One stream.
    pub fn stream(&self, key: &Key) -> Option<&Stream> {
        self.by_key.get(key).and_then(|id| self.streams.get(id))
    }

    /// All streams.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.streams.values()
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeKey, &Node)> {
        self.nodes.iter()
    }

    /// Containers followed.
    pub fn containers(&self) -> usize {
        self.containers
    }

    /// Decisions, oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &Event> {
        self.events.iter()
    }

    /// The stream a node's newest samples come from.
    pub fn current(&self, key: &NodeKey, node: &Node) -> Option<&Stream> {
        let key = Key { cluster: key.cluster.clone(), node: key.node.clone(), epoch: node.epoch };
        self.stream(&key)
    }

    /// The followed containers of a series.
    pub fn live_of(&self, id: SeriesId) -> impl Iterator<Item = (&Stream, &Slot)> {
        let live = self.history.get(id).map(|s| s.live.as_slice()).unwrap_or_default();
        live.iter().filter_map(|(stream, slot)| {
            let stream = self.streams.get(stream)?;
            Some((stream, stream.slots.get(*slot)?))
        })
    }

    /// Applies one record; `received_usec` is the time in it.
    pub(crate) fn apply(&mut self, received_usec: u64, entry: LogEntry) -> Applied {
        match entry {
            LogEntry::Opened(hello) => self.open(received_usec, hello),
            LogEntry::Taken(Taken { key, frame }) => return self.take(received_usec, &key, frame),
            LogEntry::Lost(Lost { key, first, last }) => self.lose(received_usec, &key, first, last),
            LogEntry::Panic(Panic { on, reason }) => {
                self.panic = PanicSwitch { on, reason, since_usec: received_usec };
            }
            LogEntry::Retired(key) => self.retire(&key),
            LogEntry::Announced(Taken { key, frame }) => {
                let id = self.stream_id(&key);
                self.seen(id, received_usec);
                for announcement in frame.announced {
                    self.announce(id, &key, received_usec, announcement);
                }
            }
        }
        Applied::Done
    }

    fn open(&mut self, received_usec: u64, hello: v1::Hello) {
        let key = Key::of(&hello);
        let id = self.stream_id(&key);
        self.seen(id, received_usec);
        let node = self.nodes.entry(NodeKey::of(&key)).or_default();
        node.version = hello.version;
        if hello.facts.is_some() {
            node.facts = hello.facts;
        }
    }

    /// The stream of a key, made if need be.
    pub(crate) fn stream_id(&mut self, key: &Key) -> u64 {
        if let Some(id) = self.by_key.get(key) {
            return *id;
        }
        if self.streams.len() >= self.limits.epochs {
            self.forget_idlest();
        }
        let id = self.next_stream;
        self.next_stream += 1;
        self.streams.insert(id, Stream::new(key.clone()));
        self.by_key.insert(key.clone(), id);
        id
    }

    fn forget_idlest(&mut self) {
        let idlest = self.streams.iter().min_by_key(|(_, s)| s.last_seen_usec).map(|(_, s)| s.key.clone());
        let Some(key) = idlest else { return };
        self.retire(&key);
        if let Some(id) = self.by_key.remove(&key) {
            self.streams.remove(&id);
        }
        self.counters.forgotten += 1;
        let same = |k: &Key| k.cluster == key.cluster && k.node == key.node;
        if !self.by_key.keys().any(same) {
            self.nodes.remove(&NodeKey::of(&key));
            self.repeats.forget(&NodeKey::of(&key));
        }
    }

    fn seen(&mut self, id: u64, received_usec: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.last_seen_usec = stream.last_seen_usec.max(received_usec);
        let node = self.nodes.entry(NodeKey::of(&stream.key)).or_default();
        node.last_seen_usec = node.last_seen_usec.max(received_usec);
    }

    fn lose(&mut self, received_usec: u64, key: &Key, first: u64, last: u64) {
        let id = self.stream_id(key);
        self.seen(id, received_usec);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let lost = last.saturating_sub(stream.position.last.max(first.saturating_sub(1)));
        stream.position.advance(Range { first, sequence: last });
        self.missing(key, lost);
    }

    fn missing(&mut self, key: &Key, lost: u64) {
        self.counters.lost = self.counters.lost.saturating_add(lost);
        let node = self.nodes.entry(NodeKey::of(key)).or_default();
        node.gaps = node.gaps.saturating_add(lost);
    }

    fn take(&mut self, received_usec: u64, key: &Key, frame: v1::Frame) -> Applied {
        let Some(range) = Range::new(frame.sequence, frame.replaces_first) else {
            return Applied::Unreadable("its sequence numbers contradict each other".to_owned());
        };
        let id = self.stream_id(key);
        self.seen(id, received_usec);
        let Some(stream) = self.streams.get_mut(&id) else { return Applied::Done };
        let lost = range.first.saturating_sub(stream.position.last + 1);
        stream.position.advance(range);
        self.counters.frames += 1;
        self.missing(key, lost);
        for announcement in frame.announced {
            self.announce(id, key, received_usec, announcement);
        }
        let outcome = self.samples(id, key, received_usec, &frame.samples);
        let unreadable = matches!(outcome, Applied::Unreadable(_));
        self.counters.unreadable += u64::from(unreadable);
        // A fold without samples stands for a range the agent has lost.
        if unreadable || (frame.replaces_first > 0 && frame.samples.is_empty()) {
            self.missing(key, range.sequence - range.first + 1);
        }
        let gone = self.streams.get_mut(&id).map(|s| s.slots.remove(&frame.gone)).unwrap_or_default();
        for slot in gone {
            self.finish(id, slot);
        }
        self.decided(key, frame.decisions);
        outcome
    }

    fn announce(&mut self, id: u64, key: &Key, received_usec: u64, announcement: v1::Announcement) {
        let Some(identity) = announcement.identity else { return };
        let known = self.streams.get(&id).is_some_and(|s| s.slots.get(announcement.slot).is_some());
        let names =
            [&identity.id, &identity.namespace, &identity.pod, &identity.pod_uid, &identity.container];
        let names = names.into_iter().chain([&identity.workload, &identity.image]);
        let too_long = names.map(String::len).sum::<usize>() > MAX_IDENTITY;
        if too_long || (!known && self.containers >= self.limits.containers) {
            self.counters.refused_containers += 1;
            return;
        }
        let series = self.history.series(&series_key(key, &identity));
        if let Some(entry) = self.history.get_mut(series) {
            entry.newest = entry.newest.max(minute_of(received_usec));
            entry.requested = identity.requested.as_ref().map_or(Requested::default(), |r| Requested {
                cpu_milli: r.cpu_request_milli,
                memory_bytes: r.memory_request_bytes,
            });
        }
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if let Some(slot) = stream.slots.get_mut(announcement.slot)
            && slot.series == series
        {
            // The same container announced again, perhaps with other requests: its minute goes on.
            slot.identity = Arc::new(identity);
            return;
        }
        let before = stream.slots.insert(Slot::new(announcement.slot, Arc::new(identity), series));
        self.containers += 1;
        if let Some(before) = before {
            self.finish(id, before);
        }
        if let Some(entry) = self.history.get_mut(series) {
            entry.live.push((id, announcement.slot));
        }
    }

    fn samples(&mut self, id: u64, key: &Key, received_usec: u64, bytes: &[u8]) -> Applied {
        if bytes.is_empty() {
            return Applied::Done;
        }
        let Some(stream) = self.streams.get_mut(&id) else { return Applied::Done };
        self.staging.clear();
        if let Err(error) = stream.decoder.decode(bytes, &mut self.staging) {
            return Applied::Unreadable(error.to_string());
        }
        if self.staging.minutes.iter().any(|(_, _, rollup)| implausible(rollup)) {
            return Applied::Unreadable("a minute has more samples than a minute can have".to_owned());
        }
        let latest = received_usec / MINUTE_USEC + MAX_AHEAD_MINUTES;
        let mut newest = 0;
        let mut counted = 0;
        stream.slots.rewind();
        for (number, time_usec, sample, previous) in &self.staging.seconds {
            let Some(slot) = stream.slots.get_mut(*number) else {
                self.counters.unannounced += 1;
                continue;
            };
            let minute = match u32::try_from(time_usec / MINUTE_USEC) {
                Ok(minute) if u64::from(minute) <= latest => minute,
                _ => {
                    self.counters.misdated += 1;
                    continue;
                }
            };
            newest = newest.max(*time_usec);
            counted += 1;
            if let Some((minute, rollup)) = slot.take(minute, *time_usec, sample, previous.as_ref()) {
                self.history.record(slot.series, minute, &rollup);
            }
        }
        stream.slots.rewind();
        for (number, minute, rollup) in &self.staging.minutes {
            let Some(slot) = stream.slots.get_mut(*number) else {
                self.counters.unannounced += rollup.samples;
                continue;
            };
            let minute = match u32::try_from(*minute) {
                Ok(minute) if u64::from(minute) <= latest => minute,
                _ => {
                    self.counters.misdated += rollup.samples;
                    continue;
                }
            };
            newest = newest.max(u64::from(minute) * MINUTE_USEC);
            counted += rollup.samples;
            if let Some((minute, rollup)) = slot.take_rollup(minute, rollup) {
                self.history.record(slot.series, minute, &rollup);
            }
        }
        self.count(key, newest, counted);
        Applied::Done
    }

    fn count(&mut self, key: &Key, newest_usec: u64, samples: u64) {
        self.counters.samples += samples;
        let node = self.nodes.entry(NodeKey::of(key)).or_default();
        node.frames += 1;
        node.samples += samples;
        if newest_usec >= node.newest_usec {
            (node.newest_usec, node.epoch) = (newest_usec, key.epoch);
        }
    }

    fn decided(&mut self, key: &Key, decisions: Vec<v1::Decision>) {
        for mut decision in decisions {
            let node = NodeKey::of(key);
            // An agent sends what must arrive until it knows that it has.
            if decision.epoch != 0 && !self.repeats.is_first(&node, decision.epoch, decision.seq) {
                continue;
            }
            decision.node.clone_from(&key.node);
            self.events.push_back(Event { node, decision });
        }
        let excess = self.events.len().saturating_sub(self.limits.events);
        self.events.drain(..excess);
    }

    /// Ends a container: its unfinished minute becomes history.
    fn finish(&mut self, id: u64, slot: Slot) {
        self.containers = self.containers.saturating_sub(1);
        if let Some((minute, rollup)) = slot.open {
            self.history.record(slot.series, minute, &rollup);
        }
        if let Some(series) = self.history.get_mut(slot.series) {
            series.live.retain(|live| *live != (id, slot.number));
        }
    }

    fn retire(&mut self, key: &Key) {
        let Some(id) = self.by_key.get(key).copied() else { return };
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.decoder.reset();
        for slot in stream.slots.take_all() {
            self.finish(id, slot);
        }
        self.history.prune();
    }

    /// Puts a followed container back as it was written to a checkpoint.
    pub(crate) fn restore_slot(&mut self, id: u64, key: &Key, restored: RestoredSlot) {
        let RestoredSlot { number, identity, open, samples } = restored;
        let series = self.history.series(&series_key(key, &identity));
        if let Some(entry) = self.history.get_mut(series) {
            entry.live.push((id, number));
        }
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let mut slot = Slot::new(number, Arc::new(identity), series);
        (slot.open, slot.samples) = (open, samples);
        if stream.slots.insert(slot).is_none() {
            self.containers += 1;
        }
    }
}

/// A followed container as a checkpoint has it.
pub(crate) struct RestoredSlot {
    pub(crate) number: u32,
    pub(crate) identity: v1::ContainerIdentity,
    pub(crate) open: Option<(u32, Rollup)>,
    pub(crate) samples: u64,
}

/// Whether a rollup has more samples than a hundred a second.
fn implausible(rollup: &Rollup) -> bool {
    const MOST: u64 = 6000;
    let counts = [rollup.samples, rollup.cpu_micro.count, rollup.memory_bytes.count];
    counts.into_iter().any(|count| count > MOST)
}

fn minute_of(time_usec: u64) -> u32 {
    u32::try_from(time_usec / MINUTE_USEC).unwrap_or(u32::MAX)
}

fn series_key(key: &Key, identity: &v1::ContainerIdentity) -> SeriesKey {
    let or = |name: &str, other: &str| if name.is_empty() { other.to_owned() } else { name.to_owned() };
    SeriesKey {
        cluster: key.cluster.clone(),
        namespace: or(&identity.namespace, "default"),
        workload: or(&identity.workload, &identity.pod),
        container: identity.container.clone(),
        image: Image::parse(&identity.image),
    }
}
