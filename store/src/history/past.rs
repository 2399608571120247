//! Owns the hours, days and events of subjects: what is open, what is sealed, and what has yet to be written to files.
//!
//! Use is added to what is open as it arrives. Open hours and days are sealed once nothing more is expected: a while
//! after they ended and after they were last touched. What comes later is sealed again, beside the first, and readers
//! merge the two. Sealed values are kept encoded; the files have the same bytes.

mod fill;
mod open;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use evenkeel_model::rollup::Rollup;

use super::packed::Packed;
use super::peers::{Caps, NO_CAPS, Peers};
use super::replica::{Fold, Replica};
use super::sealed::{OpenDay, OpenHour, Sealed, SealedKind, at, decode_event, encode_event};
use super::starts::CPU;
use crate::key::Subject;
use crate::state::bounds::subject_bytes;
use evenkeel_rightsizing::history::Event;
use tracing::warn;

pub(crate) use fill::add_seconds;

/// Minutes in which each subject has its turn once.
pub(crate) const TURNS: u32 = 60;
/// Events kept of one container in memory; the oldest go first.
const EVENTS: usize = 256;
/// Kills and evictions counted of the containers of one workload in an hour. One more says nothing new: a rule asks
/// whether the request was enough. The kubelet restarts a container that fails at most thirteen times an hour once its
/// back-off has grown to five minutes.
const EVENTS_OF_HOUR: usize = 20;

/// Number of a subject while the program runs: its place, and how many had the place before it. None is given twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct SubjectId {
    place: u32,
    turn: u32,
}

/// Bounds of the subjects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PastBounds {
    /// Subjects in all.
    pub(crate) subjects: usize,
    /// Bytes of their names.
    pub(crate) name_bytes: usize,
    /// Of them those one node may have brought before its new names only take the places of its own.
    pub(crate) name_bytes_of_node: usize,
}

/// Bytes of names that a node brought, and the minute in which nothing of it was idle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Brought {
    bytes: usize,
    full: Option<u32>,
}

/// The subjects a container belongs to; the first is its own.
pub(crate) type Subjects = [Option<SubjectId>; 5];

/// What is kept of one subject.
#[derive(Debug, Clone)]
pub(crate) struct SubjectPast {
    pub(crate) key: Arc<Subject>,
    turn: u32,
    /// Number of the node that brought it; nothing where a file or an engine did.
    pub(crate) origin: Option<u32>,
    /// Minute in which it was last named.
    named: u32,
    pub(crate) hours: [Packed; 2],
    pub(crate) days: [Packed; 2],
    pub(crate) open_hours: Vec<OpenHour>,
    pub(crate) open_days: Vec<OpenDay>,
    pub(crate) events: Vec<Event>,
    /// The first minute that ended of any of its containers, since 1970. A day tells how long they ran together, and many
    /// of them fill one in minutes.
    pub(crate) since: Option<u32>,
    /// Containers that are followed now: stream and slot of each. Of subjects of the own scope only.
    pub(crate) live: Vec<(u64, u32)>,
    /// Number of containers that are followed now and belong to it.
    pub(crate) users: usize,
    /// What nodes told of it lately. Of subjects of the own scope only, from the second container on.
    pub(crate) peers: Option<Box<Peers>>,
}

impl SubjectPast {
    fn is_empty(&self) -> bool {
        self.users == 0
            && self.open_hours.is_empty()
            && self.open_days.is_empty()
            && self.events.is_empty()
            && self.hours.iter().chain(&self.days).all(Packed::is_empty)
    }

    /// The newest minute in which anything was heard of it, about.
    fn newest(&self) -> u32 {
        const DAY: u32 = 24 * 60;
        let sealed = self.days.iter().flat_map(Packed::iter).map(|(day, _)| day.saturating_mul(DAY));
        let open = self.open_days.iter().map(|open| open.touched);
        sealed.chain(open).max().unwrap_or(0).max(self.named)
    }

    /// The oldest day of which anything is known, since 1970.
    pub(crate) fn first_day(&self) -> Option<u32> {
        let sealed = self.days.iter().flat_map(Packed::iter).map(|(day, _)| day);
        sealed.chain(self.open_days.iter().map(|open| open.day)).min()
    }
}

/// What has been counted of the past since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PastCounts {
    pub sealed_hours: u64,
    pub sealed_days: u64,
    pub events: u64,
    /// Of them those of which kubelets told alone.
    pub kubelet_events: u64,
    pub unplaced_events: u64,
    pub refused_subjects: u64,
    pub undecodable: u64,
    pub file_bytes: u64,
    pub expired_files: u64,
    /// Of them those that had to go for `retention.bytes` before their time.
    pub crowded_files: u64,
}

/// How much of the past there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Subjects known.
    pub subjects: usize,
    /// First and last hour (since 1970) of workloads.
    pub hours: Option<(u32, u32)>,
    /// Hours between them of which there is nothing of any workload.
    pub missing_hours: u32,
    /// First and last day (since 1970) of subjects.
    pub days: Option<(u32, u32)>,
    /// Days between them of which there is nothing.
    pub missing_days: u32,
}

/// The past of all subjects.
#[derive(Debug, Default)]
pub struct Past {
    bounds: PastBounds,
    held: Vec<Option<SubjectPast>>,
    free: Vec<SubjectId>,
    /// Bytes of all names.
    name_bytes: usize,
    /// By the node that brought them.
    origins: HashMap<Option<u32>, Brought>,
    /// Minute in which nothing was idle of all.
    full: Option<u32>,
    /// The log has been told that names are too many.
    is_told: bool,
    by_key: HashMap<Arc<Subject>, SubjectId>,
    /// By the minute they may be sealed: open hours (true) and days.
    due: BTreeMap<u32, Vec<(SubjectId, bool, u32)>>,
    /// Sealed and not yet in a file, oldest first.
    pub(crate) pending: Vec<Sealed>,
    /// What has been counted.
    pub counts: PastCounts,
}

impl Past {
    pub(crate) fn new(bounds: PastBounds) -> Self {
        Self { bounds, ..Self::default() }
    }

    /// The subject of a key, made if need be, for a node or for a file or an engine outside; nothing when there is no room.
    ///
    /// When all places or all bytes of names are taken, a node that brought many takes the places of its own idle subjects
    /// only. Others take those of nodes that brought many, then those silent longest. What was named in this minute stays.
    pub(crate) fn subject(&mut self, key: Subject, origin: Option<u32>, minute: u32) -> Option<SubjectId> {
        if let Some(id) = self.by_key.get(&key).copied() {
            if let Some(held) = self.get_mut(id) {
                held.named = held.named.max(minute);
            }
            return Some(id);
        }
        let bytes = subject_bytes(&key);
        if self.is_full(bytes) && !self.make_room(bytes, origin, minute) {
            self.counts.refused_subjects += 1;
            return None;
        }
        Some(self.add(key, bytes, origin, minute))
    }

    fn is_full(&self, bytes: usize) -> bool {
        self.by_key.len() >= self.bounds.subjects || self.name_bytes + bytes > self.bounds.name_bytes
    }

    /// Drops subjects that nobody follows for a new one; whether there is room then.
    fn make_room(&mut self, bytes: usize, origin: Option<u32>, minute: u32) -> bool {
        self.tell_full();
        let own = self.origins.get(&origin).copied().unwrap_or_default();
        let most = self.bounds.name_bytes_of_node;
        let only = (origin.is_some() && own.bytes + bytes > most).then_some(origin);
        // A walk over all that found too little is not repeated at once.
        let full = if only.is_some() { own.full } else { self.full };
        if full == Some(minute) {
            return false;
        }
        let waiting: HashSet<SubjectId> = self.pending.iter().map(|s| s.subject).collect();
        let is_idle = |(id, held): &(SubjectId, &SubjectPast)| {
            held.users == 0
                && held.named < minute
                && only.is_none_or(|only| only == held.origin)
                && !waiting.contains(id)
        };
        let many = |of: &Option<u32>| of.is_some() && self.origins.get(of).is_some_and(|b| b.bytes > most);
        let idle = self.all().filter(is_idle);
        let mut idle: Vec<_> = idle.map(|(id, held)| (!many(&held.origin), held.newest(), id)).collect();
        idle.sort_unstable();
        // Some at once, so that a walk is rare.
        let (spare, spare_bytes) = (self.bounds.subjects / 200, self.bounds.name_bytes / 200);
        for (_, _, id) in idle {
            let has_spare = self.by_key.len() + spare < self.bounds.subjects
                && self.name_bytes + bytes + spare_bytes <= self.bounds.name_bytes;
            if has_spare {
                break;
            }
            self.counts.refused_subjects += 1;
            self.remove(id);
        }
        let is_full = self.is_full(bytes);
        if is_full && only.is_none() {
            self.full = Some(minute);
        } else if is_full && let Some(own) = self.origins.get_mut(&origin) {
            own.full = Some(minute);
        }
        !is_full
    }

    /// Says once that there is no room.
    fn tell_full(&mut self) {
        if !std::mem::replace(&mut self.is_told, true) {
            warn!(
                subjects = self.by_key.len(),
                bytes = self.name_bytes,
                limit = self.bounds.name_bytes,
                "there is no room for the names of more workloads, commands and images: those idle longest are dropped, \
                 first those of nodes that brought many; raise history.max_series to keep more"
            );
        }
    }

    fn remove(&mut self, id: SubjectId) {
        let Some(held) = self.held.get_mut(id.place as usize).and_then(Option::take) else { return };
        let bytes = subject_bytes(&held.key);
        self.name_bytes = self.name_bytes.saturating_sub(bytes);
        if let Some(brought) = self.origins.get_mut(&held.origin) {
            brought.bytes = brought.bytes.saturating_sub(bytes);
            if brought.bytes == 0 {
                self.origins.remove(&held.origin);
            }
        }
        self.by_key.remove(&held.key);
        self.free.push(SubjectId { turn: id.turn.wrapping_add(1), ..id });
    }

    fn add(&mut self, key: Subject, bytes: usize, origin: Option<u32>, minute: u32) -> SubjectId {
        let place = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        let id = self.free.pop().unwrap_or(SubjectId { place, turn: 0 });
        self.name_bytes += bytes;
        self.origins.entry(origin).or_default().bytes += bytes;
        let key = Arc::new(key);
        let held = SubjectPast {
            key: Arc::clone(&key),
            turn: id.turn,
            origin,
            named: minute,
            hours: Default::default(),
            days: Default::default(),
            open_hours: Vec::new(),
            open_days: Vec::new(),
            events: Vec::new(),
            since: None,
            live: Vec::new(),
            users: 0,
            peers: None,
        };
        match self.held.get_mut(id.place as usize) {
            Some(place) => *place = Some(held),
            None => self.held.push(Some(held)),
        }
        self.by_key.insert(key, id);
        id
    }

    /// The number of a key that is known.
    pub(crate) fn find(&self, key: &Subject) -> Option<SubjectId> {
        self.by_key.get(key).copied()
    }

    pub(crate) fn get(&self, id: SubjectId) -> Option<&SubjectPast> {
        self.held.get(id.place as usize)?.as_ref().filter(|held| held.turn == id.turn)
    }

    pub(crate) fn get_mut(&mut self, id: SubjectId) -> Option<&mut SubjectPast> {
        held_of(&mut self.held, id)
    }

    /// All subjects.
    pub(crate) fn all(&self) -> impl Iterator<Item = (SubjectId, &SubjectPast)> {
        let held = (0..).zip(&self.held).filter_map(|(place, held)| Some((place, held.as_ref()?)));
        held.map(|(place, held)| (SubjectId { place, turn: held.turn }, held))
    }

    /// Bytes of the names of all subjects.
    #[cfg(test)]
    pub(crate) const fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    /// Subjects known, and bytes of sealed values in memory.
    pub fn size(&self) -> (usize, usize) {
        let packed = self.held.iter().flatten().flat_map(|h| h.hours.iter().chain(&h.days));
        (self.by_key.len(), packed.map(Packed::bytes).sum())
    }

    /// A container is followed from now on.
    pub(crate) fn follow(&mut self, subjects: &Subjects, container: (u64, u32)) {
        for (scope, id) in subjects.iter().enumerate() {
            let Some(held) = id.and_then(|id| self.get_mut(id)) else { continue };
            held.users += 1;
            if scope == 0 {
                held.live.push(container);
            }
        }
    }

    /// A container is gone.
    pub(crate) fn leave(&mut self, subjects: &Subjects, container: (u64, u32)) {
        for id in subjects.iter().flatten() {
            let Some(held) = self.get_mut(*id) else { continue };
            held.users = held.users.saturating_sub(1);
            held.live.retain(|live| *live != container);
        }
    }

    /// What a node's container did, and what counts of it from now on.
    pub(crate) fn compare(&mut self, own: Option<SubjectId>, node: u32, fold: &Fold) -> Caps {
        let Some(held) = own.and_then(|id| self.get_mut(id)).filter(|held| held.users > 1) else {
            return NO_CAPS;
        };
        let peers = held.peers.get_or_insert_default();
        peers.take(node, fold);
        peers.caps(node)
    }

    /// What counts of a container that a node begins to tell of; nothing where the node has more replicas of it already than
    /// all others together, and many nodes have some.
    pub(crate) fn caps(&self, own: Option<SubjectId>, node: u32, stream: u64) -> Option<Caps> {
        let held = own.and_then(|id| self.get(id));
        let Some((held, peers)) = held.and_then(|held| Some((held, held.peers.as_ref()?))) else {
            return Some(NO_CAPS);
        };
        if peers.are_many(node) {
            let same = held.live.iter().filter(|(of, _)| *of == stream).count();
            // The one that begins is followed already.
            if same > 1 && same > held.live.len() - same {
                return None;
            }
        }
        Some(peers.caps(node))
    }

    /// Drops subjects of which nothing is known any more and to which no container belongs.
    pub(crate) fn forget_empty(&mut self) {
        let pending: HashSet<SubjectId> = self.pending.iter().map(|s| s.subject).collect();
        let is_over = |(id, held): &(SubjectId, &SubjectPast)| held.is_empty() && !pending.contains(id);
        let over: Vec<SubjectId> = self.all().filter(is_over).map(|(id, _)| id).collect();
        over.into_iter().for_each(|id| self.remove(id));
    }

    /// Adds what a container did to all its subjects.
    pub(crate) fn absorb(&mut self, clock: u32, subjects: &Subjects, fold: &Fold) {
        for (scope, id) in subjects.iter().enumerate() {
            let Some(id) = *id else { continue };
            if scope == 0
                && let Some(open) = self.open_hour(clock, id, fold.hour)
            {
                for resource in 0..2 {
                    open.all[resource].merge(&fold.heights[resource]);
                    open.peaks[resource] = open.peaks[resource].max(fold.peaks[resource]);
                }
                if fold.start.is_some() {
                    open.start.get_or_insert_default().merge(&fold.heights[CPU]);
                }
            }
            if let Some(open) = self.open_day(clock, id, fold.hour / 24) {
                for resource in 0..2 {
                    open.all[resource].merge(&fold.heights[resource]);
                    open.peaks[resource] = open.peaks[resource].max(fold.peaks[resource]);
                }
                if let Some(starved_ms) = fold.start {
                    let start = &mut open.start.get_or_insert_default().used;
                    start.heights.merge(&fold.heights[CPU]);
                    start.starved_ms += starved_ms;
                }
            }
        }
    }

    /// Counts a minute that ended, by its height; whether any of it is of a start.
    pub(crate) fn minute(
        &mut self,
        clock: u32,
        subjects: &Subjects,
        minute: u32,
        rollup: &Rollup,
        is_start: bool,
    ) {
        let heights =
            [rollup.cpu_micro.mean(), (rollup.memory_bytes.count > 0).then_some(rollup.memory_bytes.max)];
        for id in subjects.iter().flatten() {
            self.heard(*id, minute);
            let Some(open) = self.open_day(clock, *id, minute / (24 * 60)) else { continue };
            for (resource, height) in heights.into_iter().enumerate() {
                if let Some(height) = height {
                    open.minutes[resource].add(height, 1);
                }
            }
            if let Some(height) = heights[CPU].filter(|_| is_start) {
                open.start.get_or_insert_default().minutes.add(height, 1);
            }
        }
    }

    /// Takes the hour of a container that has ended or moved on; of an hour that is sealed already nothing is left to do.
    pub(crate) fn replica(&mut self, own: SubjectId, replica: Replica) {
        let Some(held) = self.get_mut(own) else { return };
        if let Some(open) = held.open_hours.iter_mut().find(|open| open.hour == replica.hour) {
            open.replicas.add(replica);
        }
    }

    /// An event of a container; whether it counts, as the first of an hour do.
    pub(crate) fn event(&mut self, own: SubjectId, event: Event) -> bool {
        let hour = |event: &Event| event.time_ms / 3_600_000;
        let is_of = |other: &&Event| hour(other) == hour(&event);
        let events = self.get(own).map_or(0, |held| held.events.iter().rev().filter(is_of).count());
        if events >= EVENTS_OF_HOUR {
            return false;
        }
        self.counts.events += 1;
        let day = u32::try_from(event.time_ms / 86_400_000).unwrap_or(u32::MAX);
        self.keep(own, SealedKind::Event, day, encode_event(&event).into());
        true
    }

    fn keep(&mut self, id: SubjectId, kind: SealedKind, time: u32, bytes: Arc<[u8]>) {
        self.load(id, kind, time, &bytes);
        self.pending.push(Sealed { subject: id, kind, time, bytes });
    }

    /// Something of a subject is known of a minute.
    pub(crate) fn heard(&mut self, id: SubjectId, minute: u32) {
        if let Some(held) = self.get_mut(id) {
            held.since = Some(held.since.map_or(minute, |since| since.min(minute)));
        }
    }

    /// What waits for a file, with the names it is written under.
    pub fn outgoing(&self) -> Vec<(Sealed, Arc<Subject>)> {
        let named = |sealed: &Sealed| Some((sealed.clone(), Arc::clone(&self.get(sealed.subject)?.key)));
        self.pending.iter().filter_map(named).collect()
    }

    /// The first so many of what waited are in files now.
    pub fn written(&mut self, count: usize) {
        self.pending.drain(..count.min(self.pending.len()));
    }

    /// Takes a sealed value into memory, as it was sealed or as a file has it.
    pub(crate) fn load(&mut self, id: SubjectId, kind: SealedKind, time: u32, bytes: &[u8]) {
        let event = match kind {
            SealedKind::Event => decode_event(bytes),
            _ => None,
        };
        if kind == SealedKind::Event && event.is_none() {
            self.counts.undecodable += 1;
        }
        let Some(held) = self.get_mut(id) else { return };
        match kind {
            SealedKind::Hour(resource) => held.hours[at(resource)].push(time, bytes),
            SealedKind::Day(resource) => held.days[at(resource)].push(time, bytes),
            SealedKind::Event => {
                held.events.extend(event);
                let excess = held.events.len().saturating_sub(EVENTS);
                held.events.drain(..excess);
            }
        }
    }

    /// Drops hours, days and events that are too old; events go with the days.
    pub(crate) fn expire(&mut self, first_hour: u32, first_day: u32) {
        for held in self.held.iter_mut().flatten() {
            held.hours.iter_mut().for_each(|packed| packed.drop_before(first_hour));
            held.days.iter_mut().for_each(|packed| packed.drop_before(first_day));
            held.events.retain(|event| event.time_ms / 86_400_000 >= u64::from(first_day));
        }
        self.forget_empty();
    }

    /// What there is, sealed and open. Gaps are what nobody measured; they stay gaps.
    pub fn coverage(&self) -> Coverage {
        let (mut hours, mut days) = (BTreeSet::new(), BTreeSet::new());
        for held in self.held.iter().flatten() {
            hours.extend(held.hours.iter().flat_map(Packed::iter).map(|(hour, _)| hour));
            hours.extend(held.open_hours.iter().map(|open| open.hour));
            days.extend(held.days.iter().flat_map(Packed::iter).map(|(day, _)| day));
            days.extend(held.open_days.iter().map(|open| open.day));
        }
        let span = |times: &BTreeSet<u32>| times.first().copied().zip(times.last().copied());
        let missing = |times: &BTreeSet<u32>| {
            span(times).map_or(0, |(first, last)| last - first + 1 - u32::try_from(times.len()).unwrap_or(0))
        };
        Coverage {
            subjects: self.by_key.len(),
            hours: span(&hours),
            missing_hours: missing(&hours),
            days: span(&days),
            missing_days: missing(&days),
        }
    }

    /// Gives memory back that loading took in advance.
    pub(crate) fn shrink(&mut self) {
        let packed = self.held.iter_mut().flatten().flat_map(|h| h.hours.iter_mut().chain(&mut h.days));
        packed.for_each(Packed::shrink);
    }
}

fn held_of(held: &mut [Option<SubjectPast>], id: SubjectId) -> Option<&mut SubjectPast> {
    held.get_mut(id.place as usize)?.as_mut().filter(|held| held.turn == id.turn)
}
