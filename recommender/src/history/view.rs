//! Owns what rules may ask of the past of one container's resource.

use std::collections::BTreeMap;

use evenkeel_model::rollup::Rollup;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::history::{Day, Event, History, Hour, Minute, Scope};

use super::Subject;
use super::minute::Kept;
use super::past::{Held, SubjectId};
use super::replica::Replica;
use super::sealed::{at, decode_day, decode_hour, hour_of, merge_day, merge_hour};
use crate::state::State;
use crate::state::history::{SeriesId, SeriesKey};
use crate::state::image::Image;
use crate::state::minute::of_resource;
use crate::state::slots::Slot;

/// Containers whose unfinished minutes are looked at for a scope wider than one workload: where there are more, a minute
/// of theirs changes nothing.
const UNFINISHED: usize = 64;

/// Which container is meant; it need not exist or have run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Of<'a> {
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
pub struct View<'a> {
    state: &'a State,
    of: Of<'a>,
    resource: Resource,
}

impl<'a> View<'a> {
    /// The view of a container's resource.
    pub const fn new(state: &'a State, of: Of<'a>, resource: Resource) -> Self {
        Self { state, of, resource }
    }

    /// The subjects of a scope, one per cluster where no cluster is named.
    fn subjects(&self, scope: Scope) -> Vec<SubjectId> {
        let clusters = match self.of.cluster {
            Some(cluster) => vec![cluster],
            None => self.state.clusters(),
        };
        let mut found: Vec<SubjectId> = clusters
            .into_iter()
            .filter_map(|cluster| {
                let names = SeriesKey {
                    cluster: cluster.to_owned(),
                    namespace: self.of.namespace.to_owned(),
                    workload: self.of.workload.to_owned(),
                    container: self.of.container.to_owned(),
                    image: self.of.image.cloned(),
                };
                let all = Subject::all(&names, self.of.command);
                let wanted = all.into_iter().flatten().find(|subject| subject.scope() == scope)?;
                self.state.past.find(&wanted)
            })
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    fn held(&self, scope: Scope) -> impl Iterator<Item = &'a Held> + use<'a> {
        let state = self.state;
        self.subjects(scope).into_iter().filter_map(move |id| state.past.get(id))
    }

    /// The series of a scope, whose minutes are its own.
    fn series(&self, scope: Scope) -> Vec<SeriesId> {
        let of = &self.of;
        let own = |key: &SeriesKey| {
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
                    let key = history.get(*id).map(|s| &s.key);
                    key.is_some_and(|key| {
                        key.namespace == of.namespace
                            && of.cluster.is_none_or(|cluster| cluster == key.cluster)
                    })
                })
                .collect(),
            // A series does not know its command: containers of other commands are taken out where they are followed.
            Scope::Command => of_image(true)
                .filter(|id| {
                    let same = history.get(*id).is_some_and(|s| s.key.container == of.container);
                    same && self.state.live_of(*id).any(|(_, slot)| slot.identity.command_hash == of.command)
                })
                .collect(),
        }
    }

    /// Containers of a scope that are followed now.
    fn live(&self, scope: Scope) -> Vec<&'a Slot> {
        let state = self.state;
        let most = if scope == Scope::Own { usize::MAX } else { UNFINISHED };
        let series = self.series(scope).into_iter();
        series.flat_map(|id| state.live_of(id).map(|(_, slot)| slot)).take(most).collect()
    }

    fn height(&self, rollup: &Rollup) -> Option<u64> {
        match self.resource {
            Resource::Cpu => rollup.cpu_micro.mean(),
            Resource::Memory => (rollup.memory_bytes.count > 0).then_some(rollup.memory_bytes.max),
        }
    }

    fn minute(&self, kept: &Kept) -> Option<Minute> {
        let aggregate = of_resource(kept, self.resource);
        Some(Minute {
            minute: u64::from(kept.minute),
            mean: aggregate.mean()?,
            peak: aggregate.max,
            weight_ms: kept.weight_ms,
        })
    }
}

impl History for View<'_> {
    fn minutes(&self, scope: Scope, from: u64) -> Vec<Minute> {
        let from = u32::try_from(from).unwrap_or(u32::MAX);
        let recorded = self.series(scope).into_iter().flat_map(|id| self.state.history.kept(id, from));
        let mut minutes: Vec<Minute> = recorded.filter_map(|kept| self.minute(&kept)).collect();
        let open = self.live(scope).into_iter().filter_map(|slot| slot.open);
        let open = open.filter(|(minute, _)| *minute >= from);
        minutes.extend(open.filter_map(|(minute, rollup)| self.minute(&Kept::of(minute, &rollup))));
        minutes.sort_by_key(|minute| minute.minute);
        minutes
    }

    fn hours(&self, scope: Scope, from: u64) -> Vec<Hour> {
        if scope != Scope::Own {
            return Vec::new();
        }
        let i = at(self.resource);
        let mut hours: BTreeMap<u64, Hour> = BTreeMap::new();
        let mut add = |hour: Hour| match hours.entry(hour.hour) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(hour);
            }
            std::collections::btree_map::Entry::Occupied(mut place) => merge_hour(place.get_mut(), hour),
        };
        let live = self.live(scope);
        let mut open_now = Vec::new();
        for held in self.held(scope) {
            open_now.extend(held.open_hours.iter().map(|open| open.hour));
            let sealed = held.hours[i].iter().filter(|(hour, _)| u64::from(*hour) >= from);
            sealed.filter_map(|(hour, bytes)| decode_hour(hour, bytes)).for_each(&mut add);
            for open in held.open_hours.iter().filter(|open| u64::from(open.hour) >= from) {
                let running: Vec<Replica> = live.iter().filter_map(|slot| slot.replica(open.hour)).collect();
                let replicas: Vec<&Replica> = open.replicas.iter().chain(&running).collect();
                add(hour_of(open, &replicas, self.resource));
            }
        }
        for slot in live {
            let Some(hour) = slot.hour.as_deref().filter(|hour| u64::from(hour.hour) >= from) else {
                continue;
            };
            let fold = slot.seconds.unfolded(hour.hour);
            add(Hour {
                hour: u64::from(hour.hour),
                all: fold.heights[i].clone(),
                peak: fold.peaks[i],
                // That of the worst replica is in the open hour already.
                starved_ms: if open_now.contains(&hour.hour) { 0 } else { hour.starved_ms },
                worst: None,
            });
        }
        hours.into_values().filter(|hour| !hour.all.is_empty()).collect()
    }

    fn days(&self, scope: Scope, from: u64) -> Vec<Day> {
        let i = at(self.resource);
        let mut days: BTreeMap<u64, Day> = BTreeMap::new();
        let mut add = |day: Day| match days.entry(day.day) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert(day);
            }
            std::collections::btree_map::Entry::Occupied(mut place) => merge_day(place.get_mut(), &day),
        };
        for held in self.held(scope) {
            let sealed = held.days[i].iter().filter(|(day, _)| u64::from(*day) >= from);
            sealed.filter_map(|(day, bytes)| decode_day(day, bytes)).for_each(&mut add);
            let open = held.open_days.iter().filter(|open| u64::from(open.day) >= from);
            open.map(|open| Day {
                day: u64::from(open.day),
                all: open.all[i].clone(),
                minutes: open.minutes[i].clone(),
                peak: open.peaks[i],
            })
            .for_each(&mut add);
        }
        for slot in self.live(scope) {
            let Some((minute, rollup)) = slot.open else { continue };
            let day = u64::from(minute / (24 * 60));
            let fold = slot.seconds.unfolded(minute / 60);
            let mut part = Day { day, all: fold.heights[i].clone(), peak: fold.peaks[i], ..Day::default() };
            if let Some(height) = self.height(&rollup) {
                part.minutes.add(height, 1);
            }
            if day >= from {
                add(part);
            }
        }
        days.into_values().filter(|day| !(day.all.is_empty() && day.minutes.is_empty())).collect()
    }

    fn events(&self, from_ms: u64) -> Vec<Event> {
        let all = self.held(Scope::Own).flat_map(|held| held.events.iter().copied());
        let mut events: Vec<Event> = all.filter(|event| event.time_ms >= from_ms).collect();
        events.sort_by_key(|event| event.time_ms);
        events
    }
}
