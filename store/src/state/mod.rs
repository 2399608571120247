//! Owns everything the recommender knows: a value that only changes by applying a record of the ingest log.
//!
//! Applying is deterministic: the same records in the same order give the same state, so that replay after a restart ends
//! where the process was. The clock is in the records: `clock.rs` says how far it is believed, `live.rs` which containers run. Not owned: files, the network, threads, the rules.
//!
//! # Input that is not as it should be
//!
//! Numbers on the wire are whole and not negative, so that there is no NaN and nothing below zero; the rest has a rule and
//! a counter:
//!
//! | what | rule | counter |
//! | --- | --- | --- |
//! | a frame again | acknowledged, not counted | `duplicate_frames` |
//! | a second after a later one (the clock was set back, a spool caught up) | counted at its own time, beside what is sealed of it | `late_samples` |
//! | a second older than anything kept (by the time in `clock.rs`) | not counted | `ancient_samples` |
//! | a second more than a day ahead of its reception | not counted | `misdated_samples` |
//! | a CPU counter that went back | that interval has no CPU use; memory counts | `counter_resets` |
//! | a gap of more than a minute | its sample stands for a minute, the rest is a gap | |
//! | a minute of more samples than a minute has | its frame is refused | `unreadable_frames` |
//! | labels of a container above 256 or 16 KiB | it is followed without labels | `dropped_labels` |
//! | requests of other resources above 64, or that are none | it is followed without them | `dropped_requests` |
//! | names of series or of subjects above 512 bytes for each of `history.max_series` together | those idle longest go, first of nodes that brought many | `history_dropped_series`, `history_refused_subjects` |
//! | a container of a pod that the API of its cluster places elsewhere (`placed.rs`) | set aside | `misplaced_samples` |
//! | a decision above 4 KiB | kept without its inputs, its texts cut | `cut_decisions` |

pub mod belief;
#[cfg(test)]
mod belief_tests;
pub(crate) mod bounds;
pub(crate) mod buffer;
pub mod clock;
pub(crate) mod follow;
pub mod history;
pub mod kills;
pub(crate) mod live;
pub mod minute;
pub mod placed;
#[cfg(test)]
mod quota_tests;
pub(crate) mod repeats;
mod samples;
pub(crate) mod seconds;
pub mod slots;
pub(crate) mod start;
#[cfg(test)]
mod start_tests;
pub mod stream;
#[cfg(test)]
pub(crate) mod tests;
pub mod traffic;

use std::collections::{BTreeMap, HashMap, VecDeque};

use evenkeel_model::panic;
use evenkeel_proto::frame::FrameKind;
use evenkeel_proto::v1;

use crate::history::fill::Filling;
use crate::history::past::{Past, PastBounds, Subjects};
use crate::history::replica::{Fold, Replica};
use crate::ingest::record::{IngestEntry as LogEntry, Judged, LostFrames, Owned, Panic, Taken};
use crate::ingest::stream_state::Range;
use crate::key::{NodeKey, StreamKey};
use belief::{Dropped, Reason};
use clock::Clock;
use history::{HistoryBounds, Minutes};
use kills::Kills;
use minute::MINUTE_USEC;
use placed::Aside;
use repeats::Repeats;
use slots::StreamContainer;
use stream::{NodeState, Staging, StreamState};

/// Streams of one node that are many: agents begin one at each start.
const EPOCHS_OF_NODE: usize = 8;

/// Hours and days looked at for sealing after each record: an hour of 10,000 workloads is sealed within a few seconds of
/// a busy cluster's records, none of which waits long.
const SEAL_AT_ONCE: usize = 64;

/// Bounds of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Of the history.
    pub history: HistoryBounds,
    /// Streams whose position is kept.
    pub epochs: usize,
    /// Containers that run at once.
    pub containers: usize,
    /// Containers of one node at once.
    pub per_node: usize,
    /// Names of containers a node may bring in a minute, beyond as many as it may have at once.
    pub names_per_minute: u32,
    /// Kills of a node counted in an hour of their reception.
    pub kills_per_hour: u32,
    /// Minutes of silence, while others are heard, after which a node is gone.
    pub gone_minutes: u32,
    /// Decisions kept.
    pub events: usize,
    /// Subjects of hours and days.
    pub subjects: usize,
    /// How long a container starts, microseconds; 0: starts are not told apart.
    pub start_usec: u64,
}

/// A decision and the node it was made on.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeDecision {
    /// The node.
    pub node: NodeKey,
    /// The decision, its `node` filled.
    pub decision: v1::Decision,
}

/// What has been counted since the state began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StateCounters {
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
    /// Seconds that came after later ones of the same container.
    pub late: u64,
    /// Seconds older than anything that is kept.
    pub ancient: u64,
    /// Times a CPU counter went back.
    pub resets: u64,
    /// Kills and evictions that are no history: of containers that do not run, or too many.
    pub refused_kills: u64,
    /// Times most nodes began to contradict the own clock.
    pub clock_doubts: u64,
    /// Containers followed without their labels, which were too many or too long.
    pub dropped_labels: u64,
    /// Containers followed without their pod's requests of other resources, which were too many or could not be read.
    pub dropped_requests: u64,
    /// Decisions cut because they were too long.
    pub cut_decisions: u64,
    /// Container seconds of pods that the API of their cluster does not place on the node that told them.
    pub misplaced: u64,
}

impl StateCounters {
    /// Counts samples of a slot that is not followed: nobody announced it, or it is set aside.
    fn left_out(&mut self, aside: Option<&Aside>, samples: u64, dropped: &mut Dropped) {
        let Some(aside) = aside else {
            self.unannounced += samples;
            return dropped.add(Reason::Unannounced, samples);
        };
        self.misplaced += samples;
        if aside.is_elsewhere {
            dropped.add(Reason::Placement, samples);
        }
    }
}

/// What became of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordOutcome {
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
    /// While it is on: running containers get back what was asked for.
    pub revert: bool,
    /// Why.
    pub reason: String,
    /// When it was set, microseconds since 1970.
    pub since_usec: u64,
}

impl PanicSwitch {
    /// As it is set at `since_usec`.
    pub(crate) fn set(switch: panic::Panic, reason: String, since_usec: u64) -> Self {
        let (on, revert) = (switch.is_on(), switch == panic::Panic::Revert);
        Self { on, revert, reason: panic::reason(reason), since_usec }
    }
}

/// Everything known.
#[derive(Debug)]
pub struct StoreState {
    limits: Limits,
    /// Last record of the log in this state; 0 = none.
    pub(crate) applied: u64,
    pub(crate) streams: BTreeMap<u64, StreamState>,
    by_key: HashMap<StreamKey, u64>,
    next_stream: u64,
    /// Nodes by name.
    pub(crate) nodes: BTreeMap<NodeKey, NodeState>,
    /// The most of each resource that one of them has.
    pub largest: v1::NodeFacts,
    /// Workloads' containers and their minutes.
    pub history: Minutes,
    /// Hours, days and events.
    pub past: Past,
    /// What is being read back from other engines.
    pub(crate) filling: Filling,
    /// What time it is.
    pub(crate) clock: Clock,
    pub(crate) events: VecDeque<NodeDecision>,
    /// How many were kept since the process began, those that are gone included.
    events_kept: u64,
    /// Decisions that may be sent again.
    pub(crate) repeats: Repeats,
    /// OOM kills that were counted.
    pub(crate) kills: Kills,
    /// The panic switch.
    pub panic: PanicSwitch,
    /// What has been counted.
    pub counters: StateCounters,
    /// Containers that run.
    containers: usize,
    /// Slots in all.
    followed: usize,
    /// Minute at which gone nodes were last looked for.
    looked: u32,
    /// Bytes of the identities of those that are followed.
    identity_bytes: usize,
    staging: Staging,
}

impl StoreState {
    /// Knows nothing.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            applied: 0,
            streams: BTreeMap::new(),
            by_key: HashMap::new(),
            next_stream: 0,
            nodes: BTreeMap::new(),
            largest: v1::NodeFacts::default(),
            history: Minutes::new(limits.history),
            past: Past::new(PastBounds {
                subjects: limits.subjects,
                name_bytes: limits.history.name_bytes(),
                name_bytes_of_node: limits.history.name_bytes_of_node(),
            }),
            filling: Filling::default(),
            clock: Clock::default(),
            events: VecDeque::new(),
            events_kept: 0,
            repeats: Repeats::default(),
            kills: Kills::default(),
            panic: PanicSwitch::default(),
            counters: StateCounters::default(),
            containers: 0,
            followed: 0,
            looked: 0,
            identity_bytes: 0,
            staging: Staging::default(),
        }
    }

    /// One stream.
    pub fn stream(&self, key: &StreamKey) -> Option<&StreamState> {
        self.by_key.get(key).and_then(|id| self.streams.get(id))
    }

    /// All streams.
    pub fn streams(&self) -> impl Iterator<Item = &StreamState> {
        self.streams.values()
    }

    /// One node.
    pub fn node(&self, key: &NodeKey) -> Option<&NodeState> {
        self.nodes.get(key)
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = (&NodeKey, &NodeState)> {
        self.nodes.iter()
    }

    /// Names of the clusters nodes are known of.
    pub fn clusters(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        let mut next = self.nodes.keys().next();
        while let Some(key) = next {
            names.push(&key.cluster);
            // No name lies between a cluster's and this one, so the next cluster's nodes begin there.
            let behind = NodeKey { cluster: format!("{}\0", key.cluster), node: String::new() };
            next = self.nodes.range(behind..).next().map(|(key, _)| key);
        }
        names
    }

    /// What time it is.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Decisions, oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = &NodeDecision> {
        self.events.iter()
    }

    /// How many decisions were kept since the process began, those that are gone included.
    pub fn events_kept(&self) -> u64 {
        self.events_kept
    }

    /// The stream of a node's newest epoch.
    pub fn current(&self, key: &NodeKey, node: &NodeState) -> Option<&StreamState> {
        let key = StreamKey { cluster: key.cluster.clone(), node: key.node.clone(), epoch: node.epoch };
        self.stream(&key)
    }

    /// The container at a place of a series' list.
    pub(crate) fn slot(&self, (stream, slot): &(u64, u32)) -> Option<&StreamContainer> {
        self.streams.get(stream)?.slots.get(*slot)
    }

    /// Applies one record; `received_usec` is the time in it.
    pub fn apply(&mut self, received_usec: u64, entry: LogEntry) -> RecordOutcome {
        self.tell_time(received_usec, &entry);
        let applied = self.apply_entry(received_usec, entry);
        self.look_for_gone();
        let streams = &self.streams;
        self.past.seal_due(self.clock.now(), SEAL_AT_ONCE, |live, hour| {
            let slots = live.iter().filter_map(|(stream, slot)| streams.get(stream)?.slots.get(*slot));
            slots.filter_map(|slot| slot.part(hour)).collect()
        });
        applied
    }

    /// What time it is by a record, and by the newest sample in it.
    fn tell_time(&mut self, received_usec: u64, entry: &LogEntry) {
        if let LogEntry::Taken(Taken { key, frame, .. }) = entry
            && let Ok(header) = evenkeel_proto::frame::peek(&frame.samples)
            && header.kind != FrameKind::State
        {
            self.clock.hear(key.node_number(), received_usec, header.time_usec);
            if let Some(node) = self.nodes.get_mut(&NodeKey::of(key)) {
                let signed = |usec: u64| i64::try_from(usec).unwrap_or(i64::MAX);
                node.behind_usec = signed(received_usec).saturating_sub(signed(header.time_usec));
            }
        }
        let doubted = self.clock.doubt().is_some();
        if self.clock.advance(received_usec) {
            self.time_went_back();
        }
        self.counters.clock_doubts += u64::from(!doubted && self.clock.doubt().is_some());
    }

    fn apply_entry(&mut self, received_usec: u64, entry: LogEntry) -> RecordOutcome {
        match entry {
            LogEntry::Opened(hello) => self.open(received_usec, hello),
            LogEntry::Taken(taken) => return self.take(received_usec, taken),
            LogEntry::Lost(LostFrames { key, first, last }) => self.lose(received_usec, &key, first, last),
            LogEntry::Panic(Panic { on, reason, revert }) => {
                self.panic = PanicSwitch::set(panic::Panic::of(on, revert), reason, received_usec);
            }
            LogEntry::Retired(key) => self.retire(&key),
            LogEntry::Owned(Owned { key, owner }) => {
                let id = self.stream_id(&key);
                self.seen(id, received_usec);
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.owner = owner;
                }
            }
            LogEntry::Announced(Taken { key, frame, words, is_judged }) => {
                let id = self.stream_id(&key);
                self.seen(id, received_usec);
                self.announced(id, &key, received_usec, frame.announced, is_judged.then_some(&words));
            }
            LogEntry::Judged(Judged { key, words }) => self.judged(received_usec, &key, &words),
            LogEntry::Killed(killed) => self.killed(killed),
        }
        RecordOutcome::Done
    }

    fn open(&mut self, received_usec: u64, hello: v1::Hello) {
        let key = StreamKey::of(&hello);
        let id = self.stream_id(&key);
        self.seen(id, received_usec);
        let node = self.nodes.entry(NodeKey::of(&key)).or_default();
        node.version = hello.version;
        if hello.facts.is_some() && hello.facts != node.facts {
            node.facts = hello.facts;
            self.measure_nodes();
        }
    }

    /// Looks for the largest node, resource by resource, after nodes came, changed or went.
    pub(crate) fn measure_nodes(&mut self) {
        let mut largest = v1::NodeFacts::default();
        for facts in self.nodes.values().filter_map(|node| node.facts.as_ref()) {
            largest.cpu_milli = largest.cpu_milli.max(facts.cpu_milli);
            largest.memory_bytes = largest.memory_bytes.max(facts.memory_bytes);
        }
        self.largest = largest;
    }

    /// The stream of a key, made if need be.
    pub(crate) fn stream_id(&mut self, key: &StreamKey) -> u64 {
        if let Some(id) = self.by_key.get(key) {
            return *id;
        }
        if self.streams.len() >= self.limits.epochs {
            self.forget_idlest(key);
        }
        let id = self.next_stream;
        self.next_stream += 1;
        self.streams.insert(id, StreamState::new(key.clone()));
        self.by_key.insert(key.clone(), id);
        id
    }

    /// Forgets a stream for a new one: of a node with many its own, so that it costs nobody else's.
    fn forget_idlest(&mut self, new: &StreamKey) {
        let is_own = |key: &StreamKey| key.cluster == new.cluster && key.node == new.node;
        let own = self.streams.values().filter(|stream| is_own(&stream.key)).count();
        let may_go = self.streams.values().filter(|stream| own < EPOCHS_OF_NODE || is_own(&stream.key));
        let Some(key) = may_go.min_by_key(|stream| stream.last_seen_usec).map(|s| s.key.clone()) else {
            return;
        };
        self.retire(&key);
        if let Some(id) = self.by_key.remove(&key) {
            self.streams.remove(&id);
        }
        self.counters.forgotten += 1;
        let same = |k: &StreamKey| k.cluster == key.cluster && k.node == key.node;
        if !self.by_key.keys().any(same) {
            self.nodes.remove(&NodeKey::of(&key));
            self.measure_nodes();
            self.repeats.forget(&NodeKey::of(&key));
        }
    }

    fn seen(&mut self, id: u64, received_usec: u64) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.last_seen_usec = received_usec;
        stream.heard = self.clock.listened;
        let node = self.nodes.entry(NodeKey::of(&stream.key)).or_default();
        node.last_seen_usec = received_usec;
    }

    fn lose(&mut self, received_usec: u64, key: &StreamKey, first: u64, last: u64) {
        let id = self.stream_id(key);
        self.seen(id, received_usec);
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let lost = last.saturating_sub(stream.position.last.max(first.saturating_sub(1)));
        stream.position.advance(Range { first, sequence: last });
        self.missing(key, lost);
    }

    fn missing(&mut self, key: &StreamKey, lost: u64) {
        self.counters.lost = self.counters.lost.saturating_add(lost);
        let node = self.nodes.entry(NodeKey::of(key)).or_default();
        node.gaps = node.gaps.saturating_add(lost);
    }

    fn take(&mut self, received_usec: u64, taken: Taken) -> RecordOutcome {
        let Taken { ref key, frame, words, is_judged } = taken;
        let Some(range) = Range::new(frame.sequence, frame.replaces_first) else {
            return RecordOutcome::Unreadable("its sequence numbers contradict each other".to_owned());
        };
        let id = self.stream_id(key);
        self.seen(id, received_usec);
        let Some(stream) = self.streams.get_mut(&id) else { return RecordOutcome::Done };
        let lost = range.first.saturating_sub(stream.position.last.saturating_add(1));
        stream.position.advance(range);
        self.counters.frames += 1;
        self.missing(key, lost);
        if let (Some(stream), Ok(header)) =
            (self.streams.get_mut(&id), evenkeel_proto::frame::peek(&frame.samples))
        {
            stream.told_usec = header.time_usec;
        }
        self.announced(id, key, received_usec, frame.announced, is_judged.then_some(&words));
        let outcome = self.samples(id, key, received_usec, &frame.samples);
        let unreadable = matches!(outcome, RecordOutcome::Unreadable(_));
        self.counters.unreadable += u64::from(unreadable);
        // A fold without samples stands for a range the agent has lost.
        if unreadable || (frame.replaces_first > 0 && frame.samples.is_empty()) {
            self.missing(key, range.sequence - range.first + 1);
        }
        // Before containers go: a kill is told with the end of what it ended.
        let told_usec =
            evenkeel_proto::frame::peek(&frame.samples).map_or(received_usec, |header| header.time_usec);
        self.traffic(id, told_usec, &frame.traffic);
        self.decided(id, key, told_usec, frame.decisions);
        for slot in &frame.gone {
            self.take_back(id, *slot);
        }
        let gone = self.streams.get_mut(&id).map(|s| s.slots.remove(&frame.gone)).unwrap_or_default();
        self.slots_changed(id, 0, gone.len());
        for slot in gone {
            self.finish(id, slot);
        }
        outcome
    }

    /// Takes in what containers did on block devices and the network; of slots that nobody announced it is left out.
    fn traffic(&mut self, id: u64, told_usec: u64, looks: &[v1::Traffic]) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.slots.rewind();
        for look in looks {
            if let Some(slot) = stream.slots.get_mut(look.slot) {
                slot.traffic.get_or_insert_default().take(told_usec, look.into());
            }
        }
    }

    fn decided(&mut self, id: u64, key: &StreamKey, told_usec: u64, decisions: Vec<v1::Decision>) {
        let mut floods = false;
        for mut decision in decisions {
            let node = NodeKey::of(key);
            // An agent sends what must arrive until it knows that it has.
            if decision.epoch != 0 && !self.repeats.is_first(&node, decision.epoch, decision.seq) {
                continue;
            }
            decision.node.clone_from(&key.node);
            self.remember(id, &node, told_usec, &decision);
            let part = u32::try_from(self.limits.events / 10).unwrap_or(u32::MAX);
            let hour = self.clock.now() / 60;
            floods |= !self.nodes.entry(node.clone()).or_default().told.take(hour, part);
            self.keep_event(NodeDecision { node, decision });
        }
        let excess = self.events.len().saturating_sub(self.limits.events);
        let of_node = if floods { self.forget_events_of(&NodeKey::of(key), excess) } else { 0 };
        self.events.drain(..excess - of_node);
    }

    /// Drops the oldest decisions of a node that tells many, down to a tenth of all places; how many.
    fn forget_events_of(&mut self, node: &NodeKey, most: usize) -> usize {
        let own = self.events.iter().filter(|event| event.node == *node).count();
        let wanted = most.min(own.saturating_sub(self.limits.events / 10));
        let mut left = wanted;
        self.events.retain(|event| {
            let goes = left > 0 && event.node == *node;
            left -= usize::from(goes);
            !goes
        });
        wanted
    }

    /// Keeps a decision to be listed, cut to its bound.
    pub(crate) fn keep_event(&mut self, mut event: NodeDecision) {
        self.counters.cut_decisions += u64::from(bounds::cut_decision(&mut event.decision));
        self.events.push_back(event);
        self.events_kept += 1;
    }

    fn retire(&mut self, key: &StreamKey) {
        let Some(id) = self.by_key.get(key).copied() else { return };
        self.drop_slots(id);
        self.history.prune(self.clock.horizon());
        self.past.forget_empty();
    }
}

/// What a container did in an hour that has ended goes to its subjects.
fn absorb_hour(past: &mut Past, clock: u32, subjects: &Subjects, ended: Option<(Fold, Replica)>) {
    let Some((fold, replica)) = ended else { return };
    past.absorb(clock, subjects, &fold);
    if let Some(own) = subjects[0] {
        past.replica(own, replica);
    }
}

fn minute_of(time_usec: u64) -> u32 {
    u32::try_from(time_usec / MINUTE_USEC).unwrap_or(u32::MAX)
}
