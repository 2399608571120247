//! Owns what is kept of the past: minutes of every workload's container, by image, bounded in age and in number.
//!
//! Series are stored once per (cluster, namespace, workload, container, image) and read through indexes, so that an
//! image's minutes are the union of its workloads' minutes. [`History`] is what the rest of the program may ask;
//! another store can take the place of [`Minutes`] behind it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use evenkeel_model::rollup::Rollup;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::initial::Observations;

use super::image::Image;
use super::minute::Entry;

/// Who a series belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey {
    /// Cluster.
    pub cluster: String,
    /// Namespace of the pods.
    pub namespace: String,
    /// Controller, or pod where there is none.
    pub workload: String,
    /// Container name.
    pub container: String,
    /// Image, where known.
    pub image: Option<Image>,
}

/// Number of a series while the program runs; not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesId(u64);

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
pub struct Bounds {
    /// Minutes older than this are dropped.
    pub retention_minutes: u32,
    /// Entries per series, both resources together.
    pub per_series: usize,
    /// Entries in all.
    pub total: usize,
    /// Series in all.
    pub series: usize,
}

/// The past, as rules and questions see it.
pub trait History {
    /// The series of a key, made if need be.
    fn series(&mut self, key: &SeriesKey) -> SeriesId;
    /// Takes a minute of one container in.
    fn record(&mut self, series: SeriesId, minute: u32, rollup: &Rollup);
    /// One resource's entries of the selected series from a minute on, oldest series first.
    fn entries(&self, select: Select<'_>, resource: Resource, from: u32) -> Vec<Entry>;
}

/// Turns entries into what a rule takes.
pub fn observations(entries: &[Entry], resource: Resource) -> Observations {
    let minutes = entries.iter().map(|e| u64::from(e.minute));
    Observations {
        values: entries.iter().map(|e| e.sample(resource)).collect(),
        span: minutes.clone().min().zip(minutes.max()),
    }
}

/// One series.
#[derive(Debug, Clone)]
pub struct Series {
    /// Whose it is.
    pub key: SeriesKey,
    /// What was last asked for.
    pub requested: Requested,
    /// Newest minute recorded or announced.
    pub newest: u32,
    /// Containers that are followed now: stream and slot of each.
    pub(crate) live: Vec<(u64, u32)>,
    pub(crate) cpu: VecDeque<Entry>,
    pub(crate) memory: VecDeque<Entry>,
}

impl Series {
    fn column(&self, resource: Resource) -> &VecDeque<Entry> {
        match resource {
            Resource::Cpu => &self.cpu,
            Resource::Memory => &self.memory,
        }
    }

    fn len(&self) -> usize {
        self.cpu.len() + self.memory.len()
    }
}

/// The history in memory.
#[derive(Debug)]
pub struct Minutes {
    bounds: Bounds,
    by_id: BTreeMap<SeriesId, Series>,
    by_key: HashMap<SeriesKey, SeriesId>,
    by_image: HashMap<String, Vec<SeriesId>>,
    next: u64,
    entries: usize,
    /// Newest minute recorded.
    newest: u32,
    /// Entries dropped because a bound in number was reached.
    dropped: u64,
    /// Series dropped because there were too many.
    dropped_series: u64,
}

impl Minutes {
    /// An empty history.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            by_id: BTreeMap::new(),
            by_key: HashMap::new(),
            by_image: HashMap::new(),
            next: 0,
            entries: 0,
            newest: 0,
            dropped: 0,
            dropped_series: 0,
        }
    }

    /// All series, in the order they appeared.
    pub fn all(&self) -> impl Iterator<Item = (SeriesId, &Series)> {
        self.by_id.iter().map(|(id, series)| (*id, series))
    }

    /// One series.
    pub fn get(&self, id: SeriesId) -> Option<&Series> {
        self.by_id.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: SeriesId) -> Option<&mut Series> {
        self.by_id.get_mut(&id)
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

    /// Entries kept, and entries and series dropped for lack of room since the start of the state.
    pub fn counts(&self) -> (usize, u64, u64) {
        (self.entries, self.dropped, self.dropped_series)
    }

    pub(crate) fn set_dropped(&mut self, entries: u64, series: u64) {
        (self.dropped, self.dropped_series) = (entries, series);
    }

    /// Puts entries back as they were written to a checkpoint.
    pub(crate) fn restore(&mut self, id: SeriesId, cpu: Vec<Entry>, memory: Vec<Entry>) {
        if let Some(series) = self.by_id.get_mut(&id) {
            self.entries += cpu.len() + memory.len();
            series.cpu.extend(cpu);
            series.memory.extend(memory);
            let last = series.cpu.iter().chain(&series.memory).map(|e| e.minute).max().unwrap_or(0);
            self.newest = self.newest.max(last);
        }
    }

    /// Drops what is too old, and series without any entry that nobody follows.
    pub(crate) fn prune(&mut self) {
        let cutoff = self.newest.saturating_sub(self.bounds.retention_minutes);
        self.drop_before(cutoff);
        let empty: Vec<SeriesId> =
            self.by_id.iter().filter(|(_, s)| s.live.is_empty() && s.len() == 0).map(|(id, _)| *id).collect();
        for id in empty {
            self.remove(id);
        }
    }

    fn drop_before(&mut self, cutoff: u32) -> usize {
        let before = self.entries;
        for series in self.by_id.values_mut() {
            let had = series.len();
            series.cpu.retain(|e| e.minute >= cutoff);
            series.memory.retain(|e| e.minute >= cutoff);
            self.entries -= had - series.len();
        }
        before - self.entries
    }

    /// Makes room by dropping the oldest day everywhere, as often as needed.
    fn make_room(&mut self) {
        const DAY: u32 = 24 * 60;
        while self.entries >= self.bounds.total {
            let columns = self.by_id.values().flat_map(|s| s.cpu.iter().chain(&s.memory));
            let Some(oldest) = columns.map(|e| e.minute).min() else { return };
            // At least a tenth of what there is: a pass over everything must not happen for every entry.
            let span = self.newest.saturating_sub(oldest);
            self.dropped += self.drop_before(oldest + DAY.min(span / 10).max(1)) as u64;
        }
    }

    fn remove(&mut self, id: SeriesId) {
        let Some(series) = self.by_id.remove(&id) else { return };
        self.entries -= series.len();
        if let Some(image) = &series.key.image
            && let Some(ids) = self.by_image.get_mut(&image.name)
        {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_image.remove(&image.name);
            }
        }
        self.by_key.remove(&series.key);
    }

    /// Drops a tenth of the series, those silent longest, never one that is followed.
    fn make_room_for_series(&mut self) {
        let mut idle: Vec<(u32, SeriesId)> =
            self.by_id.iter().filter(|(_, s)| s.live.is_empty()).map(|(id, s)| (s.newest, *id)).collect();
        idle.sort_unstable();
        let count = (self.bounds.series / 10).max(1).min(idle.len());
        for (_, id) in &idle[..count] {
            self.dropped_series += 1;
            self.dropped += self.get(*id).map_or(0, Series::len) as u64;
            self.remove(*id);
        }
    }
}

impl History for Minutes {
    fn series(&mut self, key: &SeriesKey) -> SeriesId {
        if let Some(id) = self.by_key.get(key) {
            return *id;
        }
        if self.by_id.len() >= self.bounds.series {
            self.make_room_for_series();
        }
        let id = SeriesId(self.next);
        self.next += 1;
        self.by_key.insert(key.clone(), id);
        if let Some(image) = &key.image {
            self.by_image.entry(image.name.clone()).or_default().push(id);
        }
        let series = Series {
            key: key.clone(),
            requested: Requested::default(),
            newest: self.newest,
            live: Vec::new(),
            cpu: VecDeque::new(),
            memory: VecDeque::new(),
        };
        self.by_id.insert(id, series);
        id
    }

    fn record(&mut self, id: SeriesId, minute: u32, rollup: &Rollup) {
        if self.entries + 2 > self.bounds.total {
            self.make_room();
        }
        let newest = self.newest.max(minute);
        let cutoff = newest.saturating_sub(self.bounds.retention_minutes);
        let Some(series) = self.by_id.get_mut(&id) else { return };
        let had = series.len();
        series.cpu.extend(Entry::of(minute, rollup, Resource::Cpu));
        series.memory.extend(Entry::of(minute, rollup, Resource::Memory));
        series.newest = series.newest.max(minute);
        let mut gained = series.len() - had;
        for column in [&mut series.cpu, &mut series.memory] {
            while column.front().is_some_and(|e| e.minute < cutoff) {
                column.pop_front();
                self.entries -= 1;
            }
            while column.len() > (self.bounds.per_series / 2).max(1) {
                column.pop_front();
                self.dropped += 1;
                self.entries -= 1;
            }
        }
        self.entries += std::mem::take(&mut gained);
        self.newest = newest;
    }

    fn entries(&self, select: Select<'_>, resource: Resource, from: u32) -> Vec<Entry> {
        let ids: Vec<SeriesId> = match select {
            Select::One(id) => vec![id],
            Select::Image { name, tag } => self.of_image(name, tag).collect(),
        };
        let columns = ids.iter().filter_map(|id| self.get(*id)).map(|s| s.column(resource));
        columns.flatten().filter(|e| e.minute >= from).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(workload: &str, image: &str) -> SeriesKey {
        SeriesKey {
            cluster: "c".into(),
            namespace: "n".into(),
            workload: workload.into(),
            container: "main".into(),
            image: Image::parse(image),
        }
    }

    fn rollup(value: u64) -> Rollup {
        let mut r = Rollup { samples: 1, ..Rollup::default() };
        r.cpu_micro.add(value * 1000);
        r.memory_bytes.add(value * 10);
        r
    }

    fn bounds() -> Bounds {
        Bounds { retention_minutes: 100, per_series: 40, total: 1000, series: 10 }
    }

    #[test]
    fn an_image_is_the_union_of_its_workloads() {
        let mut history = Minutes::new(bounds());
        for (i, (workload, image)) in [("a", "web:1"), ("b", "web:1"), ("b", "web:2")].into_iter().enumerate()
        {
            let id = history.series(&key(workload, image));
            history.record(id, 5, &rollup(i as u64 + 1));
        }
        let name = "docker.io/library/web";
        let seen = |tag| {
            let all = history.entries(Select::Image { name, tag }, Resource::Memory, 0);
            observations(&all, Resource::Memory)
        };
        assert_eq!(seen(Some("1")).values, [10, 20]);
        assert_eq!(seen(None).values, [10, 20, 30]);
        assert_eq!(seen(None).span, Some((5, 5)));
        assert!(seen(Some("3")).values.is_empty());
    }

    #[test]
    fn every_bound_holds_and_what_is_dropped_is_counted() {
        let mut history = Minutes::new(bounds());
        let id = history.series(&key("a", "x"));
        for minute in 0..50 {
            history.record(id, minute, &rollup(1));
        }
        assert_eq!(history.counts(), (40, 60, 0));
        history.record(id, 200, &rollup(1));
        assert_eq!(history.counts().0, 2, "older than the retention");
        for i in 0..30 {
            let id = history.series(&key(&format!("w{i}"), "x"));
            history.record(id, 200, &rollup(1));
        }
        assert!(history.all().count() <= 10);
        assert!(history.counts().2 >= 20);
        let mut small = Minutes::new(Bounds { total: 20, ..bounds() });
        let id = small.series(&key("a", "x"));
        for minute in 0..100 {
            small.record(id, minute, &rollup(1));
            assert!(small.counts().0 <= 20);
        }
        assert_eq!(small.counts().0 as u64 + small.counts().1, 200);
    }
}
