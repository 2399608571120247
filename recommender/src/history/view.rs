//! Owns what rules may ask of the past of one container's resource.

use std::collections::BTreeMap;

use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::history::{Day, Event, History, Hour, Minute, Scope};

use crate::recommend::unfinished;
use crate::state::State;
use crate::state::history::{History as _, Select, SeriesId};
use crate::state::image::Image;
use crate::state::minute::Entry;

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

    fn series(&self, scope: Scope) -> Vec<SeriesId> {
        let of = &self.of;
        let wanted = |key: &crate::state::history::SeriesKey| match (scope, of.image) {
            (Scope::Own, _) => {
                of.cluster.is_none_or(|cluster| cluster == key.cluster)
                    && (of.namespace, of.workload, of.container)
                        == (key.namespace.as_str(), key.workload.as_str(), key.container.as_str())
            }
            (Scope::Command, _) | (_, None) => false,
            (Scope::NamespaceImageTag, Some(image)) => {
                of.namespace == key.namespace && key.image.as_ref() == Some(image)
            }
            (Scope::ImageTag, Some(image)) => key.image.as_ref() == Some(image),
            (Scope::Image, Some(image)) => key.image.as_ref().is_some_and(|i| i.name == image.name),
        };
        let all = self.state.history.all();
        all.filter(|(_, series)| wanted(&series.key)).map(|(id, _)| id).collect()
    }

    fn entries(&self, scope: Scope, from: u64) -> Vec<Entry> {
        let from = u32::try_from(from).unwrap_or(u32::MAX);
        let mut entries = Vec::new();
        for id in self.series(scope) {
            entries.extend(self.state.history.entries(Select::One(id), self.resource, from));
            entries.extend(unfinished(self.state, id, self.resource, from));
        }
        entries.sort_by_key(|e| e.minute);
        entries
    }

    fn scale(&self) -> u64 {
        match self.resource {
            Resource::Cpu => 1000,
            Resource::Memory => 1,
        }
    }
}

impl History for View<'_> {
    fn minutes(&self, scope: Scope, from: u64) -> Vec<Minute> {
        let scale = self.scale();
        let minute = |e: Entry| Minute {
            minute: u64::from(e.minute),
            mean: e.mean * scale,
            peak: e.max * scale,
            weight_ms: u64::from(e.count) * 1000,
        };
        self.entries(scope, from).into_iter().map(minute).collect()
    }

    fn hours(&self, scope: Scope, from: u64) -> Vec<Hour> {
        if scope != Scope::Own {
            return Vec::new();
        }
        let mut hours: BTreeMap<u64, Hour> = BTreeMap::new();
        for minute in self.minutes(scope, from * 60) {
            let number = minute.minute / 60;
            let hour = hours.entry(number).or_insert_with(|| Hour { hour: number, ..Hour::default() });
            hour.all.add(minute.mean, minute.weight_ms);
            hour.peak = hour.peak.max(minute.peak);
        }
        hours.into_values().collect()
    }

    fn days(&self, scope: Scope, from: u64) -> Vec<Day> {
        let mut days: BTreeMap<u64, Day> = BTreeMap::new();
        for minute in self.minutes(scope, from * 24 * 60) {
            let number = minute.minute / (24 * 60);
            let day = days.entry(number).or_insert_with(|| Day { day: number, ..Day::default() });
            day.all.add(minute.mean, minute.weight_ms);
            let height = if self.resource == Resource::Cpu { minute.mean } else { minute.peak };
            day.minutes.add(height, 1);
            day.peak = day.peak.max(minute.peak);
        }
        days.into_values().collect()
    }

    fn events(&self, _from_ms: u64) -> Vec<Event> {
        Vec::new()
    }
}
