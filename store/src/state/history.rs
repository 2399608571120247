//! Owns which workloads' containers are known, and their minutes: those of the present hour in memory, the rest in files.
//!
//! Series are kept once per (cluster, namespace, workload, container, image) and read through indexes, so that an
//! image's minutes are the union of its workloads' minutes. A container's hour of minutes is encoded once it has ended,
//! waits in memory for the next checkpoint, and is read from its file from then on.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

use evenkeel_model::rollup::Rollup;
use evenkeel_rightsizing::Resource;
use tracing::warn;

use super::bounds::{NAME_BYTES_EACH, series_bytes};
use super::buffer::{Block, Buffer};
use super::minute::MinuteEntry;
use crate::history::codec::{decode_minutes, encode_minutes};
use crate::history::minute::StoredMinute;
use crate::history::minute_files::{Extent, MinuteFiles};
use crate::key::{ReplicaKey, SeriesId, SeriesKey};

/// What was asked for by the containers of a series, as last announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Requested {
    /// CPU request, thousandths.
    pub cpu_milli: Option<u64>,
    /// Memory request, bytes.
    pub memory_bytes: Option<u64>,
}

impl Requested {
    /// The request of one resource.
    pub fn of(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Cpu => self.cpu_milli,
            Resource::Memory => self.memory_bytes,
        }
    }
}

/// Minutes of one container that ended: its series, its pod, and they.
pub(crate) type Fresh = (SeriesKey, Arc<str>, Vec<StoredMinute>);

/// Which series are meant.
#[derive(Debug, Clone, Copy)]
pub enum Select<'a> {
    /// Those of an image, with this tag or (`None`) with any.
    Image {
        /// Name without tag.
        name: &'a str,
        /// The tag.
        tag: Option<&'a str>,
    },
    /// One series.
    One(SeriesId),
}

/// Bounds of the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HistoryBounds {
    /// Series of which nothing was heard for this long are dropped, minutes.
    pub retention_minutes: u32,
    /// Series in all.
    pub series: usize,
    /// Of them those one node may have brought before it only takes the places of its own.
    pub of_node: usize,
}

impl HistoryBounds {
    /// Bytes of the names of all series, and as many again of all subjects.
    pub(crate) const fn name_bytes(&self) -> usize {
        self.series.saturating_mul(NAME_BYTES_EACH)
    }

    /// Of them those of what one node may have brought before it only takes the places of its own.
    pub(crate) const fn name_bytes_of_node(&self) -> usize {
        self.of_node.saturating_mul(NAME_BYTES_EACH)
    }
}

/// The past, as rules and questions see it.
pub trait History {
    /// The series of a key, made if need be.
    fn series(&mut self, key: &SeriesKey) -> SeriesId;
    /// Takes a minute of one container in; `replica` tells containers of a series apart, `pod` names it to others.
    fn record(&mut self, series: SeriesId, replica: ReplicaKey, pod: &str, minute: u32, rollup: &Rollup);
    /// One resource's entries of the selected series from a minute on, oldest series first.
    fn entries(&self, select: Select<'_>, resource: Resource, from: u32) -> Vec<MinuteEntry>;
}

/// One series.
#[derive(Debug, Clone)]
pub struct HistorySeries {
    /// Whose it is.
    pub key: SeriesKey,
    /// What was last asked for.
    pub requested: Requested,
    /// Newest minute recorded or announced.
    pub newest: u32,
    /// Containers that are followed now: stream and slot of each.
    pub(crate) live: Vec<ReplicaKey>,
    /// Number of the node that brought it; nothing where an earlier release or a file did.
    pub(crate) origin: Option<u32>,
    /// The present hour of each container.
    pub(crate) buffers: BTreeMap<ReplicaKey, Buffer>,
    /// Hours that ended and are not in a file yet, oldest first.
    pub(crate) pending: Vec<Block>,
    /// What is in files.
    pub(crate) extents: Vec<Extent>,
}

/// Series a node brought, the bytes of their names, and how many of them nobody follows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Brought {
    series: usize,
    bytes: usize,
    idle: usize,
}

/// The series and their minutes.
#[derive(Debug)]
pub struct Minutes {
    bounds: HistoryBounds,
    by_id: BTreeMap<SeriesId, HistorySeries>,
    by_key: HashMap<SeriesKey, SeriesId>,
    /// By name of the image; the lists are in order, as ids are given in order.
    by_image: HashMap<String, Vec<SeriesId>>,
    /// By namespace and workload.
    by_workload: HashMap<(String, String), Vec<SeriesId>>,
    /// What each node brought.
    origins: HashMap<Option<u32>, Brought>,
    /// Bytes of the names of all series.
    name_bytes: usize,
    /// The log has been told that they are too many.
    is_told: bool,
    next: u64,
    /// Newest minute recorded.
    newest: u32,
    /// Series dropped because there were too many.
    dropped_series: u64,
    /// Series with pending blocks.
    dirty: Vec<SeriesId>,
    /// Containers with minutes that no engine outside was offered; nothing where there is no engine.
    fresh: Option<Vec<(SeriesId, ReplicaKey)>>,
    /// Where extents are read from.
    files: MinuteFiles,
}

impl Minutes {
    /// An empty history.
    pub fn new(bounds: HistoryBounds) -> Self {
        Self {
            bounds,
            by_id: BTreeMap::new(),
            by_key: HashMap::new(),
            by_image: HashMap::new(),
            by_workload: HashMap::new(),
            origins: HashMap::new(),
            name_bytes: 0,
            is_told: false,
            next: 0,
            newest: 0,
            dropped_series: 0,
            dirty: Vec::new(),
            fresh: None,
            files: MinuteFiles::default(),
        }
    }

    /// Reads extents from these files from now on.
    pub(crate) fn set_files(&mut self, files: MinuteFiles) {
        self.files = files;
    }

    /// All series, in the order they appeared.
    pub fn all(&self) -> impl Iterator<Item = (SeriesId, &HistorySeries)> {
        self.by_id.iter().map(|(id, series)| (*id, series))
    }

    /// One series.
    pub fn get(&self, id: SeriesId) -> Option<&HistorySeries> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: SeriesId) -> Option<&mut HistorySeries> {
        self.by_id.get_mut(&id)
    }

    /// Series of a workload that are wanted.
    pub fn of_workload(
        &self,
        namespace: &str,
        workload: &str,
        wanted: impl Fn(&SeriesKey) -> bool,
    ) -> Vec<SeriesId> {
        let place = (namespace.to_owned(), workload.to_owned());
        let ids = self.by_workload.get(&place).map(Vec::as_slice).unwrap_or_default();
        ids.iter().copied().filter(|id| self.get(*id).is_some_and(|s| wanted(&s.key))).collect()
    }

    /// Series of an image, of one tag or of all.
    pub fn of_image<'a>(&'a self, name: &str, tag: Option<&'a str>) -> impl Iterator<Item = SeriesId> + 'a {
        let ids = self.by_image.get(name).map(Vec::as_slice).unwrap_or_default();
        ids.iter().copied().filter(move |id| {
            tag.is_none_or(|tag| {
                self.get(*id).and_then(|s| s.key.image.as_ref()).is_some_and(|i| i.tag == tag)
            })
        })
    }

    /// How many series an image has, of all tags.
    pub(crate) fn image_series(&self, name: &str) -> usize {
        self.by_image.get(name).map_or(0, Vec::len)
    }

    /// Containers' hours in files and waiting for one, and series dropped for lack of room since the start of the state.
    pub fn counts(&self) -> (usize, usize, u64) {
        let extents = self.by_id.values().map(|s| s.extents.len()).sum();
        let pending = self.by_id.values().map(|s| s.pending.len()).sum();
        (extents, pending, self.dropped_series)
    }

    /// Bytes of the names of all series.
    #[cfg(test)]
    pub(crate) const fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    /// Series dropped for lack of room since the start of the state.
    pub(crate) const fn dropped(&self) -> u64 {
        self.dropped_series
    }

    pub(crate) fn set_dropped(&mut self, series: u64) {
        self.dropped_series = series;
    }

    /// From now on minutes are offered as they end.
    pub fn offer_fresh(&mut self) {
        self.fresh.get_or_insert_default();
    }

    /// Minutes that ended and were not taken yet, of no more than so many containers: series, pod and minutes of each.
    pub fn take_fresh(&mut self, most: usize) -> Vec<Fresh> {
        let Some(listed) = &mut self.fresh else { return Vec::new() };
        let listed: Vec<_> = listed.drain(listed.len().saturating_sub(most)..).collect();
        let mut taken = Vec::with_capacity(listed.len());
        for (id, replica) in listed {
            let Some(series) = self.by_id.get_mut(&id) else { continue };
            // What was sealed meanwhile is offered as a block.
            let Some(buffer) = series.buffers.get_mut(&replica) else { continue };
            let minutes = buffer.take_fresh();
            if !minutes.is_empty() {
                taken.push((series.key.clone(), Arc::clone(&buffer.pod), minutes));
            }
        }
        taken
    }

    /// Puts a container's present hour back as a checkpoint has it.
    pub(crate) fn restore_buffer(&mut self, id: SeriesId, replica: ReplicaKey, mut buffer: Buffer) {
        // Whether they were offered is not known; a value that is written again replaces itself.
        buffer.fresh = buffer.minutes().len();
        if let Some(series) = self.by_id.get_mut(&id) {
            series.buffers.insert(replica, buffer);
        }
    }

    /// What a file has of a series.
    pub(crate) fn restore_extent(&mut self, id: SeriesId, extent: Extent) {
        if let Some(series) = self.by_id.get_mut(&id) {
            series.newest = series.newest.max(extent.hour.saturating_mul(60));
            self.newest = self.newest.max(series.newest);
            series.extents.push(extent);
        }
    }

    /// Whether there is any minute of an hour in files.
    pub(crate) fn has_hour(&self, id: SeriesId, hour: u32) -> bool {
        self.by_id.get(&id).is_some_and(|series| series.extents.iter().any(|e| e.hour == hour))
    }

    /// Hours of series of which there are minutes that are in no file yet.
    pub(crate) fn unwritten(&self) -> HashSet<(SeriesId, u32)> {
        let hours = |(id, series): (&SeriesId, &HistorySeries)| -> Vec<_> {
            let pending = series.pending.iter().map(|b| b.hour);
            pending.chain(series.buffers.values().map(|b| b.hour)).map(|hour| (*id, hour)).collect()
        };
        self.by_id.iter().flat_map(hours).collect()
    }

    /// Takes an hour of minutes in that another engine had.
    pub(crate) fn fill(&mut self, id: SeriesId, pod: &str, hour: u32, minutes: &[StoredMinute]) {
        let Some(series) = self.by_id.get_mut(&id) else { return };
        let plain = minutes.to_vec();
        let fresh = plain.len();
        seal(&mut self.dirty, id, series, &Buffer { plain, fresh, ..Buffer::new(hour, pod) });
        let newest = minutes.iter().map(|kept| kept.minute).max().unwrap_or(0);
        series.newest = series.newest.max(newest);
        self.newest = self.newest.max(newest);
    }

    /// Ends the present hour of a container that is gone.
    pub(crate) fn close(&mut self, id: SeriesId, replica: ReplicaKey) {
        let Some(series) = self.by_id.get_mut(&id) else { return };
        if let Some(buffer) = series.buffers.remove(&replica) {
            seal(&mut self.dirty, id, series, &buffer);
        }
    }

    /// Hours that ended and are in no file yet.
    pub fn pending(&self) -> Vec<(SeriesId, Vec<Block>)> {
        let mut ids = self.dirty.clone();
        ids.sort_unstable();
        ids.dedup();
        let pending = ids.into_iter().filter_map(|id| Some((id, self.by_id.get(&id)?.pending.clone())));
        pending.filter(|(_, blocks)| !blocks.is_empty()).collect()
    }

    /// What [`pending`](Self::pending) gave is in files now: the number of blocks of each series, and where they are.
    pub fn written(&mut self, written: Vec<(SeriesId, usize, Vec<Extent>)>) {
        for (id, blocks, extents) in written {
            let Some(series) = self.by_id.get_mut(&id) else { continue };
            series.pending.drain(..blocks.min(series.pending.len()));
            series.extents.extend(extents);
        }
        let by_id = &self.by_id;
        self.dirty.retain(|id| by_id.get(id).is_some_and(|series| !series.pending.is_empty()));
    }

    /// Drops series of which nothing was heard for long before `now` and that nobody follows.
    pub(crate) fn prune(&mut self, now: u32) {
        let cutoff = now.saturating_sub(self.bounds.retention_minutes);
        let old = |s: &HistorySeries| s.live.is_empty() && s.newest < cutoff && s.pending.is_empty();
        let gone: Vec<SeriesId> = self.by_id.iter().filter(|(_, s)| old(s)).map(|(id, _)| *id).collect();
        for id in gone {
            self.remove(id);
        }
    }

    /// Forgets what is in files of days before this one.
    pub(crate) fn expire(&mut self, first_day: u32, now: u32) {
        for series in self.by_id.values_mut() {
            series.extents.retain(|extent| extent.day >= first_day);
        }
        self.prune(now);
    }

    /// First and last minute kept, of all series.
    pub fn span(&self) -> Option<(u32, u32)> {
        let first = self.by_id.values().flat_map(|s| {
            let blocks = s.pending.iter().map(|b| b.hour).chain(s.buffers.values().map(|b| b.hour));
            s.extents.iter().map(|e| e.hour).chain(blocks)
        });
        first.min().map(|hour| (hour.saturating_mul(60), self.newest))
    }

    /// Minutes of a series from a minute on, in the order of time.
    pub fn kept(&self, id: SeriesId, from: u32) -> Vec<StoredMinute> {
        self.kept_within(id, from, u32::MAX)
    }

    /// The first hour since 1970 of which there is any minute of a series.
    pub fn first_hour(&self, id: SeriesId) -> Option<u32> {
        let series = self.by_id.get(&id)?;
        let in_memory = series.pending.iter().map(|b| b.hour).chain(series.buffers.values().map(|b| b.hour));
        series.extents.iter().map(|e| e.hour).chain(in_memory).min()
    }

    /// Minutes of a series from a minute on and before another, in the order of time.
    pub fn kept_within(&self, id: SeriesId, from: u32, to: u32) -> Vec<StoredMinute> {
        let Some(series) = self.by_id.get(&id) else { return Vec::new() };
        let wanted = |hour: u32| hour >= from / 60 && hour <= to / 60;
        let mut all = Vec::new();
        for extent in series.extents.iter().filter(|e| wanted(e.hour)) {
            self.files.read(extent, |block| all.extend(decode_minutes(block).unwrap_or_default()));
        }
        let pending = series.pending.iter().filter(|b| wanted(b.hour));
        all.extend(pending.filter_map(|b| decode_minutes(&b.bytes)).flatten());
        all.extend(series.buffers.values().filter(|b| wanted(b.hour)).flat_map(Buffer::minutes));
        all.retain(|kept| kept.minute >= from && kept.minute < to);
        all.sort_by_key(|kept| kept.minute);
        all
    }

    /// Minutes of one pod's containers of a series in the order of time: of the present hour, and of those before that are in no file yet, where
    /// replicas are not told apart any more.
    pub fn of_pod(&self, id: SeriesId, pod: &str) -> Vec<StoredMinute> {
        let Some(series) = self.by_id.get(&id) else { return Vec::new() };
        let pending = series.pending.iter().filter(|block| *block.pod == *pod);
        let mut all: Vec<StoredMinute> =
            pending.filter_map(|block| decode_minutes(&block.bytes)).flatten().collect();
        all.extend(series.buffers.values().filter(|buffer| *buffer.pod == *pod).flat_map(Buffer::minutes));
        all.sort_by_key(|kept| kept.minute);
        all
    }

    /// What would be read for the minutes of a series from a minute on: bytes of hours that ended, and present hours.
    pub fn size(&self, id: SeriesId, from: u32) -> (u64, usize) {
        let Some(series) = self.by_id.get(&id) else { return (0, 0) };
        let in_files = series.extents.iter().filter(|e| e.hour >= from / 60).map(|e| u64::from(e.length));
        let pending = series.pending.iter().filter(|b| b.hour >= from / 60).map(|b| b.bytes.len() as u64);
        (in_files.chain(pending).sum(), series.buffers.len())
    }

    fn remove(&mut self, id: SeriesId) {
        let Some(series) = self.by_id.remove(&id) else { return };
        let bytes = series_bytes(&series.key);
        self.name_bytes = self.name_bytes.saturating_sub(bytes);
        if let Some(brought) = self.origins.get_mut(&series.origin) {
            brought.series = brought.series.saturating_sub(1);
            brought.bytes = brought.bytes.saturating_sub(bytes);
            brought.idle = brought.idle.saturating_sub(usize::from(series.live.is_empty()));
            if brought.series == 0 {
                self.origins.remove(&series.origin);
            }
        }
        if let Some(image) = &series.key.image {
            take_out(&mut self.by_image, &image.name, id);
        }
        let place = (series.key.of.namespace.clone(), series.key.of.workload.clone());
        take_out(&mut self.by_workload, &place, id);
        self.by_key.remove(&series.key);
    }

    /// The series of a key that is known.
    pub(crate) fn find(&self, key: &SeriesKey) -> Option<SeriesId> {
        self.by_key.get(key).copied()
    }

    /// A new series that a node brings; nothing where there is no room that is the node's.
    ///
    /// When all places are taken, or all bytes there are for names, a node that brought many takes the places of its own idle series only. One that brought
    /// few takes the places of the idle series of nodes that brought many, then of those silent longest.
    pub(crate) fn admit(&mut self, key: &SeriesKey, origin: u32) -> Option<SeriesId> {
        let origin = Some(origin);
        let bytes = series_bytes(key);
        while self.is_full(bytes) {
            let own = self.origins.get(&origin).copied().unwrap_or_default();
            let brought_many =
                own.series >= self.bounds.of_node || own.bytes + bytes > self.bounds.name_bytes_of_node();
            if brought_many && own.idle == 0 {
                return None;
            }
            if !self.make_room(brought_many.then_some(origin)) {
                // All are followed. How many these are is bounded elsewhere.
                if self.is_full_of_names(bytes) {
                    return None;
                }
                break;
            }
        }
        Some(self.add(key, origin))
    }

    fn is_full(&mut self, bytes: usize) -> bool {
        self.by_id.len() >= self.bounds.series || self.is_full_of_names(bytes)
    }

    /// Whether so many bytes more are too many; says so once.
    fn is_full_of_names(&mut self, bytes: usize) -> bool {
        let is_full = self.name_bytes + bytes > self.bounds.name_bytes();
        if is_full && !std::mem::replace(&mut self.is_told, true) {
            warn!(
                series = self.by_id.len(),
                bytes = self.name_bytes,
                limit = self.bounds.name_bytes(),
                "the names of workloads' containers reach {NAME_BYTES_EACH} bytes for each of history.max_series: those \
                 idle longest are dropped, first those of nodes that brought many; raise history.max_series to keep more"
            );
        }
        is_full
    }

    /// A container of a series is followed from now on.
    pub(crate) fn follow(&mut self, id: SeriesId, replica: ReplicaKey) {
        let Some(series) = self.by_id.get_mut(&id) else { return };
        if series.live.is_empty()
            && let Some(brought) = self.origins.get_mut(&series.origin)
        {
            brought.idle = brought.idle.saturating_sub(1);
        }
        series.live.push(replica);
    }

    /// A container of a series is gone.
    pub(crate) fn leave(&mut self, id: SeriesId, replica: ReplicaKey) {
        let Some(series) = self.by_id.get_mut(&id) else { return };
        let before = series.live.len();
        series.live.retain(|live| *live != replica);
        if before > 0
            && series.live.is_empty()
            && let Some(brought) = self.origins.get_mut(&series.origin)
        {
            brought.idle += 1;
        }
    }

    /// Puts back who brought a series.
    pub(crate) fn restore_origin(&mut self, id: SeriesId, origin: Option<u32>) {
        let Some(series) = self.by_id.get_mut(&id) else { return };
        let (idle, bytes) = (usize::from(series.live.is_empty()), series_bytes(&series.key));
        let before = std::mem::replace(&mut series.origin, origin);
        if let Some(brought) = self.origins.get_mut(&before) {
            brought.series = brought.series.saturating_sub(1);
            brought.bytes = brought.bytes.saturating_sub(bytes);
            brought.idle = brought.idle.saturating_sub(idle);
        }
        let brought = self.origins.entry(origin).or_default();
        brought.series += 1;
        brought.bytes += bytes;
        brought.idle += idle;
    }

    /// Drops some of the idle series, never one that is followed: of one node, or of all. Whether there were any.
    fn make_room(&mut self, of: Option<Option<u32>>) -> bool {
        if self.origins.iter().all(|(origin, b)| b.idle == 0 || of.is_some_and(|of| of != *origin)) {
            return false;
        }
        let HistoryBounds { of_node, .. } = self.bounds;
        let most = self.bounds.name_bytes_of_node();
        let many = |origin: &Option<u32>| {
            let brought = self.origins.get(origin).filter(|_| origin.is_some());
            brought.is_some_and(|b| b.series > of_node || b.bytes > most)
        };
        let idle = self.by_id.iter().filter(|(_, s)| s.live.is_empty() && of.is_none_or(|of| of == s.origin));
        let mut idle: Vec<(bool, u32, SeriesId)> =
            idle.map(|(id, s)| (!many(&s.origin), s.newest, *id)).collect();
        idle.sort_unstable();
        // Some at once, so that a walk is rare.
        let count = (self.bounds.series / 200).max(1).min(idle.len());
        for (_, _, id) in &idle[..count] {
            self.dropped_series += 1;
            self.remove(*id);
        }
        count > 0
    }

    fn add(&mut self, key: &SeriesKey, origin: Option<u32>) -> SeriesId {
        let id = SeriesId(self.next);
        self.next += 1;
        self.by_key.insert(key.clone(), id);
        let place = (key.of.namespace.clone(), key.of.workload.clone());
        self.by_workload.entry(place).or_default().push(id);
        if let Some(image) = &key.image {
            self.by_image.entry(image.name.clone()).or_default().push(id);
        }
        let bytes = series_bytes(key);
        self.name_bytes += bytes;
        let brought = self.origins.entry(origin).or_default();
        brought.series += 1;
        brought.bytes += bytes;
        brought.idle += 1;
        let series = HistorySeries {
            key: key.clone(),
            requested: Requested::default(),
            newest: 0,
            live: Vec::new(),
            origin,
            buffers: BTreeMap::new(),
            pending: Vec::new(),
            extents: Vec::new(),
        };
        self.by_id.insert(id, series);
        id
    }
}

impl History for Minutes {
    fn series(&mut self, key: &SeriesKey) -> SeriesId {
        if let Some(id) = self.by_key.get(key) {
            return *id;
        }
        let bytes = series_bytes(key);
        while self.is_full(bytes) && self.make_room(None) {}
        self.add(key, None)
    }

    fn record(&mut self, id: SeriesId, replica: ReplicaKey, pod: &str, minute: u32, rollup: &Rollup) {
        let Some(series) = self.by_id.get_mut(&id) else { return };
        let hour = minute / 60;
        let buffer = series.buffers.entry(replica).or_insert_with(|| Buffer::new(hour, pod));
        if buffer.hour != hour {
            let ended = std::mem::replace(buffer, Buffer::new(hour, pod));
            seal(&mut self.dirty, id, series, &ended);
        }
        if let Some(buffer) = series.buffers.get_mut(&replica) {
            buffer.push(StoredMinute::of(minute, rollup));
            if let Some(fresh) = self.fresh.as_mut().filter(|_| !buffer.is_listed) {
                buffer.is_listed = true;
                fresh.push((id, replica));
            }
        }
        series.newest = series.newest.max(minute);
        self.newest = self.newest.max(minute);
    }

    fn entries(&self, select: Select<'_>, resource: Resource, from: u32) -> Vec<MinuteEntry> {
        let ids: Vec<SeriesId> = match select {
            Select::One(id) => vec![id],
            Select::Image { name, tag } => self.of_image(name, tag).collect(),
        };
        let kept = ids.into_iter().flat_map(|id| self.kept(id, from));
        kept.filter_map(|kept| MinuteEntry::of_kept(&kept, resource)).collect()
    }
}

/// Encodes a container's hour; it waits for a file.
fn seal(dirty: &mut Vec<SeriesId>, id: SeriesId, series: &mut HistorySeries, buffer: &Buffer) {
    let minutes = buffer.minutes();
    if minutes.is_empty() {
        return;
    }
    if series.pending.is_empty() {
        dirty.push(id);
    }
    let (hour, pod) = (buffer.hour, Arc::clone(&buffer.pod));
    let offered = minutes.len().saturating_sub(buffer.fresh);
    series.pending.push(Block { hour, pod, bytes: encode_minutes(&minutes).into(), offered });
}

/// Takes a series out of a list in order; a list of none goes.
fn take_out<K, Q>(lists: &mut HashMap<K, Vec<SeriesId>>, key: &Q, id: SeriesId)
where
    K: Borrow<Q> + Eq + Hash,
    Q: Eq + Hash + ?Sized,
{
    let Some(ids) = lists.get_mut(key) else { return };
    if let Ok(at) = ids.binary_search(&id) {
        ids.remove(at);
    }
    if ids.is_empty() {
        lists.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Image;
    use evenkeel_model::key::ContainerKey;

    fn key(workload: &str, image: &str) -> SeriesKey {
        SeriesKey { of: ContainerKey::new("c", "n", workload, "main"), image: Image::parse(image) }
    }

    fn rollup(value: u64) -> Rollup {
        let mut r = Rollup { samples: 1, ..Rollup::default() };
        r.cpu_micro.add(value * 1000);
        r.memory_bytes.add(value * 10);
        r
    }

    fn bounds() -> HistoryBounds {
        HistoryBounds { retention_minutes: 100, series: 10, of_node: 4 }
    }

    #[test]
    fn an_image_is_the_union_of_its_workloads() {
        let mut history = Minutes::new(bounds());
        for (i, (workload, image)) in [("a", "web:1"), ("b", "web:1"), ("b", "web:2")].into_iter().enumerate()
        {
            let id = history.series(&key(workload, image));
            history.record(id, (0, i as u32), "p", 5, &rollup(i as u64 + 1));
        }
        let name = "docker.io/library/web";
        let seen = |tag| {
            let all = history.entries(Select::Image { name, tag }, Resource::Memory, 0);
            all.iter().map(|e| (e.minute, e.sample(Resource::Memory))).collect::<Vec<_>>()
        };
        assert_eq!(seen(Some("1")), [(5, 10), (5, 20)]);
        assert_eq!(seen(None), [(5, 10), (5, 20), (5, 30)]);
        assert_eq!(seen(Some("3")), []);
    }

    #[test]
    fn minutes_stay_whole_while_they_are_encoded_sealed_and_closed() {
        let mut history = Minutes::new(bounds());
        let id = history.series(&key("a", "x"));
        let all = |history: &Minutes, from| {
            history.kept(id, from).iter().map(|k| (k.minute, k.memory.sum)).collect::<Vec<_>>()
        };
        let want: Vec<(u32, u64)> = (0..150).map(|m| (m, u64::from(m) * 10)).collect();
        for minute in 0..150 {
            history.record(id, (1, 1), "p", minute, &rollup(u64::from(minute)));
            assert_eq!(all(&history, 0), want[..=minute as usize]);
        }
        assert_eq!(history.pending().iter().map(|(_, b)| b.len()).sum::<usize>(), 2);
        history.close(id, (1, 1));
        assert_eq!(history.pending().iter().map(|(_, b)| b.len()).sum::<usize>(), 3);
        assert_eq!((all(&history, 0), all(&history, 60)), (want.clone(), want[60..].to_vec()));
        assert_eq!(history.span(), Some((0, 149)));
    }

    #[test]
    fn series_are_bounded_and_old_ones_go() {
        let mut history = Minutes::new(bounds());
        for i in 0..30 {
            let id = history.series(&key(&format!("w{i}"), "x"));
            history.record(id, (0, 0), "p", 200, &rollup(1));
            history.close(id, (0, 0));
        }
        assert!(history.all().count() <= 10);
        assert!(history.counts().2 >= 20);
        let id = history.series(&key("new", "x"));
        history.record(id, (0, 0), "p", 400, &rollup(1));
        let pending = history.pending();
        history.written(pending.into_iter().map(|(id, blocks)| (id, blocks.len(), Vec::new())).collect());
        history.prune(400);
        assert_eq!(history.all().map(|(_, s)| s.key.of.workload.as_str()).collect::<Vec<_>>(), ["new"]);
    }
}
