//! Owns what rules may ask of the past of one container's resource.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use evenkeel_model::key::ContainerKey;
use evenkeel_model::rollup::Rollup;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::histogram::{BucketTally, Histogram};
use evenkeel_rightsizing::history::{Day, Event, History, Hour, Minute, Running, Scope};
use evenkeel_rightsizing::usage::UsageSecond;

use super::SharedScopes;
use super::minute::StoredMinute;
use super::packed::Packed;
use super::past::{SubjectId, SubjectPast};
use super::sealed::{at, decode_day_into, decode_hour_into, hour_of, merge_day, merge_hour};
use super::shared::{CROWD, Key, ScopeHistory};
use super::starts::{
    CPU, DayStart, InStart, decode_running_day_into, decode_running_hour_into, running_hour_of,
};
use crate::key::{Image, SeriesId, SeriesKey, Subject};
use crate::state::StoreState;
use crate::state::minute::of_resource;
use crate::state::slots::StreamContainer;

/// Containers whose unfinished minutes and hours are looked at: where a scope has more, they are taken from it at equal
/// distances. Each is somewhere else in memory, so that looking at thousands would take longer than an answer may; what they
/// did is known exactly as soon as it is sealed.
const UNFINISHED: usize = 32;

/// Minutes that are read for one answer; where there are more, none are given, and days and hours tell of them.
#[derive(Debug, Clone, Copy)]
struct Most {
    /// Bytes of hours that ended; 1 KiB is about one hour of a container.
    bytes: u64,
    /// Containers whose present hour is looked at.
    containers: usize,
}

impl Most {
    /// Of a workload: eight days of ten busy containers, in some tens of milliseconds.
    const OWN: Self = Self { bytes: 2 << 20, containers: 64 };
    /// Of what is wider than a workload: as many as take well below a millisecond.
    const WIDER: Self = Self { bytes: 64 << 10, containers: 64 };
}

/// Which container is meant; it need not exist or have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewTarget<'a> {
    /// Cluster; all of them together without.
    pub cluster: Option<&'a str>,
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Controller as agents report it (`deployment/web`), or pod where there is none.
    pub workload: &'a str,
    /// Container name.
    pub container: &'a str,
    /// Image, where known.
    pub image: Option<&'a Image>,
    /// Hash of command and arguments, where known.
    pub command: Option<u64>,
}

/// The past of one resource of one container.
#[derive(Debug, Clone, Copy)]
pub struct HistoryView<'a> {
    state: &'a StoreState,
    of: ViewTarget<'a>,
    resource: Resource,
    /// Where scopes of many containers are read from, and the present, microseconds since 1970.
    shared: Option<(&'a SharedScopes, u64)>,
    /// Starts are left out, and are none of memory.
    is_running: bool,
}

/// What the starts of a container, or of those of its image, used of the CPU.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Starts {
    /// Time at each height of use, millionths of a core.
    pub heights: Histogram,
    /// For how long the use was held down, milliseconds.
    pub starved_ms: u64,
}

impl<'a> HistoryView<'a> {
    /// The view of a container's resource.
    pub const fn new(state: &'a StoreState, of: ViewTarget<'a>, resource: Resource) -> Self {
        Self { state, of, resource, shared: None, is_running: false }
    }

    /// The same of the running state alone: seconds of starts are left out of the CPU.
    pub fn without_starts(self) -> Self {
        Self { is_running: self.resource == Resource::Cpu, ..self }
    }

    /// What was used in the starts of a scope from a day (since 1970) on, those that go on included.
    pub fn starts(&self, scope: Scope, from: u32) -> Starts {
        let mut all = InStart::default();
        for held in self.held(scope) {
            let sealed = held.days[CPU].iter().filter(|(day, _)| *day >= from);
            sealed.filter_map(|(_, bytes)| DayStart::of_day(bytes)).for_each(|day| all.merge(&day.used));
            let open = held.open_days.iter().filter(|open| open.day >= from);
            open.filter_map(|open| open.start.as_deref()).for_each(|start| all.merge(&start.used));
        }
        for slot in self.live(scope).into_iter().filter(|slot| slot.start.goes_on()) {
            slot.seconds.unfolded_of(Resource::Cpu).for_each(|(value, ms)| all.heights.add(value, ms));
            all.starved_ms += slot.start_starved_ms;
        }
        Starts { heights: all.heights, starved_ms: all.starved_ms }
    }

    /// Seconds of a container that are in no hour and no day yet, as far as they count.
    fn counts_unfolded(&self, slot: &StreamContainer) -> bool {
        !(self.is_running && slot.start.goes_on())
    }

    /// The same, with scopes of many containers read once for all that ask within a while.
    pub const fn sharing(self, shared: &'a SharedScopes, now_usec: u64) -> Self {
        Self { shared: Some((shared, now_usec)), ..self }
    }

    /// The subjects of a scope, one per cluster where no cluster is named.
    fn subjects(&self, scope: Scope) -> Vec<SubjectId> {
        let clusters = match self.of.cluster {
            Some(cluster) => vec![cluster],
            None => match self.state.clusters() {
                // No node was heard of yet: what is known of images belongs to no cluster.
                known if known.is_empty() => vec![""],
                known => known,
            },
        };
        let mut found: Vec<SubjectId> = clusters
            .into_iter()
            .filter_map(|cluster| {
                let ViewTarget { namespace, workload, container, image, .. } = self.of;
                let of = ContainerKey::new(cluster, namespace, workload, container);
                let names = SeriesKey { of, image: image.cloned() };
                let all = Subject::all(&names, self.of.command);
                let wanted = all.into_iter().flatten().find(|subject| subject.scope() == scope)?;
                self.state.past.find(&wanted)
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn held(&self, scope: Scope) -> impl Iterator<Item = &'a SubjectPast> + use<'a> {
        let state = self.state;
        self.subjects(scope).into_iter().filter_map(move |id| state.past.get(id))
    }

    /// The series of a scope, whose minutes are its own.
    fn series(&self, scope: Scope) -> Vec<SeriesId> {
        let of = &self.of;
        let own = |SeriesKey { of: key, .. }: &SeriesKey| {
            of.cluster.is_none_or(|cluster| cluster == key.cluster)
                && (of.namespace, of.workload, of.container)
                    == (key.namespace.as_str(), key.workload.as_str(), key.container.as_str())
        };
        let history = &self.state.history;
        let of_image = |tag: bool| {
            let image = of.image.map(|i| history.of_image(&i.name, tag.then_some(i.tag.as_str())));
            image.into_iter().flatten()
        };
        match scope {
            Scope::Own => history.of_workload(of.namespace, of.workload, own),
            Scope::Image => of_image(false).collect(),
            Scope::ImageTag => of_image(true).collect(),
            Scope::NamespaceImageTag => of_image(true)
                .filter(|id| {
                    let key = history.get(*id).map(|s| &s.key.of);
                    key.is_some_and(|key| {
                        key.namespace == of.namespace
                            && of.cluster.is_none_or(|cluster| cluster == key.cluster)
                    })
                })
                .collect(),
            // Nothing is known of containers of no command in common.
            Scope::Command if of.command.is_none() => Vec::new(),
            // A series does not know its command: it counts where one of its containers that are followed has it.
            Scope::Command => of_image(true)
                .filter(|id| {
                    let same = history.get(*id).is_some_and(|s| s.key.of.container == of.container);
                    same && self
                        .state
                        .followed_of(*id)
                        .any(|(_, slot)| slot.identity.command_hash == of.command)
                })
                .collect(),
        }
    }

    /// Containers of a scope that are followed now, or a part of them.
    fn live(&self, scope: Scope) -> Vec<&'a StreamContainer> {
        let (state, series) = (self.state, self.series(scope));
        let all: usize = series.iter().filter_map(|id| state.history.get(*id)).map(|s| s.live.len()).sum();
        let step = all.div_ceil(UNFINISHED).max(1);
        let places = series.into_iter().filter_map(|id| state.history.get(id)).flat_map(|s| &s.live);
        let slots = places.step_by(step).filter_map(|place| state.slot(place));
        // Containers of a series may have different commands.
        slots
            .filter(|slot| scope != Scope::Command || slot.identity.command_hash == self.of.command)
            .collect()
    }

    /// What many containers share is read once for all of them.
    fn known(&self, scope: Scope, minutes_from: Option<u64>) -> Option<Arc<ScopeHistory>> {
        let ((shared, now_usec), image) = (self.shared?, self.of.image?);
        if scope == Scope::Own || self.state.history.image_series(&image.name) < CROWD {
            return None;
        }
        let of = &self.of;
        let only = |name: &str, scopes: &[Scope]| match scopes.contains(&scope) {
            true => name.to_owned(),
            false => String::new(),
        };
        let key = Key {
            scope,
            resource: self.resource,
            is_running: self.is_running,
            minutes_from,
            cluster: of.cluster.filter(|_| scope == Scope::NamespaceImageTag).map(str::to_owned),
            namespace: only(of.namespace, &[Scope::NamespaceImageTag]),
            container: only(of.container, &[Scope::Command]),
            image: image.name.clone(),
            tag: only(&image.tag, &[Scope::NamespaceImageTag, Scope::ImageTag, Scope::Command]),
            command: of.command.filter(|_| scope == Scope::Command),
        };
        Some(shared.known(key, now_usec, || match minutes_from {
            Some(from) => ScopeHistory { minutes: self.read_minutes(scope, from), ..ScopeHistory::default() },
            None => {
                let mut days = Vec::new();
                self.read_days(scope, 0, &mut |day| days.push(day.clone()));
                ScopeHistory { days, since_ms: self.read_since(scope), ..ScopeHistory::default() }
            }
        }))
    }

    fn height(&self, rollup: &Rollup) -> Option<u64> {
        match self.resource {
            Resource::Cpu => rollup.cpu_micro.mean(),
            Resource::Memory => (rollup.memory_bytes.count > 0).then_some(rollup.memory_bytes.max),
        }
    }

    fn minute(&self, kept: &StoredMinute) -> Option<Minute> {
        let aggregate = of_resource(kept, self.resource);
        Some(Minute {
            minute: u64::from(kept.minute),
            mean: aggregate.mean()?,
            peak: aggregate.max,
            weight_ms: kept.weight_ms,
        })
    }
}

/// Seconds of running containers that are in no hour and no day yet: up to a minute of each that is looked at, counted in a
/// row because a histogram takes several times as long.
#[derive(Default)]
struct Unfolded {
    tally: BucketTally,
    peak: u64,
}

impl Unfolded {
    fn add(&mut self, slot: &StreamContainer, resource: Resource) {
        for (value, weight) in slot.seconds.unfolded_of(resource) {
            self.tally.add(value, weight);
            self.peak = self.peak.max(value);
        }
    }

    fn heights(&self) -> Histogram {
        self.tally.histogram(Histogram::new())
    }
}

/// How sealed values of one kind are read and put together.
struct SealedForm<T> {
    decode: fn(u32, &[u8], &mut T) -> Option<()>,
    merge: fn(&mut T, &T),
}

impl<T: Default> SealedForm<T> {
    /// Shows everything from a time on in its order, each time once; sealed values pass through one piece of memory.
    fn visit<'b>(
        &self,
        sealed: impl Iterator<Item = (u32, &'b [u8])>,
        open: BTreeMap<u64, T>,
        from: u64,
        mut visit: impl FnMut(&T),
    ) {
        let mut sealed: Vec<(u32, &[u8])> = sealed.filter(|(time, _)| u64::from(*time) >= from).collect();
        // In order but for what came late.
        sealed.sort_by_key(|(time, _)| *time);
        let mut open = open.into_iter().peekable();
        let (mut one, mut part) = (T::default(), T::default());
        for same in sealed.chunk_by(|a, b| a.0 == b.0) {
            let time = u64::from(same[0].0);
            while let Some((_, before)) = open.next_if(|(at, _)| *at < time) {
                visit(&before);
            }
            let mut parts = same.iter();
            // What cannot be read is a gap.
            if !parts.any(|(time, bytes)| (self.decode)(*time, bytes, &mut one).is_some()) {
                continue;
            }
            for (time, bytes) in parts {
                if (self.decode)(*time, bytes, &mut part).is_some() {
                    (self.merge)(&mut one, &part);
                }
            }
            if let Some((_, now)) = open.next_if(|(at, _)| *at == time) {
                (self.merge)(&mut one, &now);
            }
            visit(&one);
        }
        open.for_each(|(_, rest)| visit(&rest));
    }
}

impl HistoryView<'_> {
    /// The container's hours that are not sealed.
    fn open_hours(&self, from: u64) -> BTreeMap<u64, Hour> {
        let live = self.live(Scope::Own);
        let mut hours: BTreeMap<u64, Hour> = BTreeMap::new();
        for open in self.held(Scope::Own).flat_map(|held| &held.open_hours) {
            if u64::from(open.hour) < from {
                continue;
            }
            let parts = open.replicas.with(live.iter().filter_map(|slot| slot.part(open.hour)));
            let hour = match self.is_running {
                true => running_hour_of(open, &parts),
                false => hour_of(open, &parts, self.resource),
            };
            match hours.entry(hour.hour) {
                Entry::Vacant(place) => {
                    place.insert(hour);
                }
                Entry::Occupied(mut place) => merge_hour(place.get_mut(), &hour),
            }
        }
        let known: Vec<u64> = hours.keys().copied().collect();
        let mut unfolded: BTreeMap<u64, Unfolded> = BTreeMap::new();
        for slot in live {
            let Some(open) = slot.hour.as_deref().filter(|hour| u64::from(hour.hour) >= from) else {
                continue;
            };
            let number = u64::from(open.hour);
            if self.counts_unfolded(slot) {
                unfolded.entry(number).or_default().add(slot, self.resource);
            }
            let hour = hours.entry(number).or_insert_with(|| Hour { hour: number, ..Hour::default() });
            // Where the hour was open, that of the worst replica is in it already.
            if !known.contains(&number) {
                let start = open.start.as_ref().filter(|_| self.is_running);
                let in_start = start.map_or(0, |start| start.starved_ms);
                hour.starved_ms = hour.starved_ms.max(open.starved_ms.saturating_sub(in_start));
            }
        }
        for (number, seconds) in unfolded {
            let Some(hour) = hours.get_mut(&number) else { continue };
            hour.all.merge(&seconds.heights());
            hour.peak = hour.peak.max(seconds.peak);
        }
        hours
    }

    /// Days of a scope that are not sealed.
    fn open_days(&self, scope: Scope, from: u64) -> BTreeMap<u64, Day> {
        let i = at(self.resource);
        let mut days: BTreeMap<u64, Day> = BTreeMap::new();
        for open in self.held(scope).flat_map(|held| &held.open_days) {
            let number = u64::from(open.day);
            if number < from {
                continue;
            }
            let day = days.entry(number).or_insert_with(|| Day { day: number, ..Day::default() });
            day.all.merge(&open.all[i]);
            day.minutes.merge(&open.minutes[i]);
            day.peak = day.peak.max(open.peaks[i]);
            if let Some(start) = open.start.as_deref().filter(|_| self.is_running) {
                start.leave(day);
            }
        }
        let mut unfolded: BTreeMap<u64, Unfolded> = BTreeMap::new();
        for slot in self.live(scope) {
            let Some((minute, rollup)) = slot.open else { continue };
            let number = u64::from(minute / (24 * 60));
            if number < from {
                continue;
            }
            if !self.counts_unfolded(slot) {
                continue;
            }
            unfolded.entry(number).or_default().add(slot, self.resource);
            let day = days.entry(number).or_insert_with(|| Day { day: number, ..Day::default() });
            if let Some(height) = self.height(&rollup) {
                day.minutes.add(height, 1);
            }
        }
        for (number, seconds) in unfolded {
            let Some(day) = days.get_mut(&number) else { continue };
            day.all.merge(&seconds.heights());
            day.peak = day.peak.max(seconds.peak);
        }
        days
    }
}

/// What is read of the state each time.
impl HistoryView<'_> {
    fn read_minutes(&self, scope: Scope, from: u64) -> Vec<Minute> {
        let from = u32::try_from(from).unwrap_or(u32::MAX);
        let (series, history) = (self.series(scope), &self.state.history);
        let most = if scope == Scope::Own { Most::OWN } else { Most::WIDER };
        let sizes = series.iter().map(|id| history.size(*id, from));
        let (bytes, containers) = sizes.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        if bytes > most.bytes || containers > most.containers {
            return Vec::new();
        }
        let recorded = series.into_iter().flat_map(|id| history.kept(id, from));
        let mut minutes: Vec<Minute> = recorded.filter_map(|kept| self.minute(&kept)).collect();
        let open = self.live(scope).into_iter().filter_map(|slot| slot.open);
        let open = open.filter(|(minute, _)| *minute >= from);
        minutes.extend(open.filter_map(|(minute, rollup)| self.minute(&StoredMinute::of(minute, &rollup))));
        minutes.sort_by_key(|minute| minute.minute);
        minutes
    }

    fn read_days(&self, scope: Scope, from: u64, visit: &mut dyn FnMut(&Day)) {
        let i = at(self.resource);
        let sealed = self.held(scope).flat_map(|held| held.days[i].iter());
        let decode = if self.is_running { decode_running_day_into } else { decode_day_into };
        let form = SealedForm { decode, merge: merge_day };
        form.visit(sealed, self.open_days(scope, from), from, |day| {
            if !(day.all.is_empty() && day.minutes.is_empty()) {
                visit(day);
            }
        });
    }

    /// When containers of a scope were first heard of, milliseconds; nothing where days that are known are older than that.
    fn read_since(&self, scope: Scope) -> Option<u64> {
        let mut first: Option<u32> = None;
        for held in self.held(scope) {
            let since = match (held.since, held.first_day()) {
                (Some(since), Some(day)) if since / (24 * 60) > day => return None,
                (Some(since), _) => since,
                // No minute of any of them has ended.
                (None, day) if held.days.iter().all(Packed::is_empty) && day.is_some() => {
                    self.live(scope).iter().filter_map(|slot| slot.open.map(|(minute, _)| minute)).min()?
                }
                (None, _) => return None,
            };
            first = Some(first.map_or(since, |first| first.min(since)));
        }
        first.map(|minute| u64::from(minute) * 60_000)
    }
}

impl History for HistoryView<'_> {
    fn minutes(&self, scope: Scope, from: u64) -> Vec<Minute> {
        if self.is_running {
            // A minute does not tell of whose start it is; days do.
            return Vec::new();
        }
        match self.known(scope, Some(from)) {
            Some(known) => known.minutes.clone(),
            None => self.read_minutes(scope, from),
        }
    }

    fn hours(&self, scope: Scope, from: u64) -> Vec<Hour> {
        let mut hours = Vec::new();
        self.visit_hours(scope, from, &mut |hour| hours.push(hour.clone()));
        hours
    }

    fn days(&self, scope: Scope, from: u64) -> Vec<Day> {
        let mut days = Vec::new();
        self.visit_days(scope, from, &mut |day| days.push(day.clone()));
        days
    }

    fn visit_running(&self, visit: &mut dyn FnMut(&Running<'_>)) {
        for id in self.series(Scope::Own) {
            for (_, slot) in self.state.live_of(id).filter(|(_, slot)| self.counts_unfolded(slot)) {
                let seconds: Vec<UsageSecond> = slot.seconds.kept(self.resource).collect();
                let asked = slot.identity.requested.as_ref();
                let limit = match self.resource {
                    Resource::Cpu => asked.and_then(|r| r.cpu_limit_milli).map(|m| m.saturating_mul(1_000)),
                    Resource::Memory => asked.and_then(|r| r.memory_limit_bytes),
                };
                visit(&Running { seconds: &seconds, limit });
            }
        }
    }

    fn visit_hours(&self, scope: Scope, from: u64, visit: &mut dyn FnMut(&Hour)) {
        if scope != Scope::Own {
            return;
        }
        let i = at(self.resource);
        let sealed = self.held(scope).flat_map(|held| held.hours[i].iter());
        let decode = if self.is_running { decode_running_hour_into } else { decode_hour_into };
        let form = SealedForm { decode, merge: merge_hour };
        form.visit(sealed, self.open_hours(from), from, |hour| {
            if !hour.all.is_empty() {
                visit(hour);
            }
        });
    }

    fn visit_days(&self, scope: Scope, from: u64, visit: &mut dyn FnMut(&Day)) {
        match self.known(scope, None) {
            Some(known) => known.days.iter().filter(|day| day.day >= from).for_each(visit),
            None => self.read_days(scope, from, visit),
        }
    }

    fn events(&self, from_ms: u64) -> Vec<Event> {
        let all = self.held(Scope::Own).flat_map(|held| held.events.iter().copied());
        let mut events: Vec<Event> = all.filter(|event| event.time_ms >= from_ms).collect();
        events.sort_by_key(|event| event.time_ms);
        events
    }

    fn since_ms(&self, scope: Scope) -> Option<u64> {
        match self.known(scope, None) {
            Some(known) => known.since_ms,
            None => self.read_since(scope),
        }
    }
}
