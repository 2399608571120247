//! Owns what is taken in from another engine, and what is told to one: open days, and what is known already.

use std::collections::HashSet;
use std::sync::Arc;

use evenkeel_model::rollup::Aggregate;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::histogram::Histogram;
use evenkeel_rightsizing::history::Day;

use super::{Past, SubjectId, SubjectPast, TURNS};
use crate::history::minute::StoredMinute;
use crate::history::sealed::{OpenDay, SealedKind, at, decode_event};
use crate::key::Subject;

impl Past {
    /// Takes a value in that another engine had, where there is none of its time.
    pub(crate) fn fill(&mut self, id: SubjectId, kind: SealedKind, time: u32, bytes: Vec<u8>) -> bool {
        let Some(held) = self.get(id) else { return false };
        let known = match kind {
            SealedKind::Hour(resource) => {
                held.open_hours.iter().any(|open| open.hour == time) || held.hours[at(resource)].has(time)
            }
            SealedKind::Day(resource) => {
                held.open_days.iter().any(|open| open.day == time) || held.days[at(resource)].has(time)
            }
            SealedKind::Event => decode_event(&bytes).is_none_or(|event| held.events.contains(&event)),
        };
        if !known {
            self.keep(id, kind, time, bytes.into());
        }
        !known
    }

    /// The open days of one in sixty of all subjects, each of which has its turn once in sixty.
    pub(crate) fn open_parts(&self, turn: u32) -> Vec<(Arc<Subject>, Resource, Day)> {
        let mine = self.all().filter(|(id, _)| id.place % TURNS == turn % TURNS);
        let days = mine.flat_map(|(_, held)| held.open_days.iter().map(|open| (&held.key, open)));
        let parts = days.flat_map(|(key, open)| {
            Resource::ALL.into_iter().map(move |resource| (Arc::clone(key), resource, day_of(open, resource)))
        });
        parts.filter(|(.., day)| !day.all.is_empty()).collect()
    }

    /// What is open of all subjects: hours (true) and days.
    pub(crate) fn open_now(&self) -> HashSet<(SubjectId, bool, u32)> {
        let of = |(id, held): (SubjectId, &SubjectPast)| -> Vec<_> {
            let hours = held.open_hours.iter().map(|open| (id, true, open.hour));
            hours.chain(held.open_days.iter().map(|open| (id, false, open.day))).collect()
        };
        self.all().flat_map(of).collect()
    }

    /// Whether an hour (true) or a day of a subject is sealed.
    pub(crate) fn is_sealed(&self, id: SubjectId, is_hour: bool, number: u32) -> bool {
        self.get(id).is_some_and(|held| {
            let sealed = if is_hour { &held.hours } else { &held.days };
            sealed.iter().any(|packed| packed.has(number))
        })
    }

    /// Takes a part of a day in that another engine had.
    pub(crate) fn fill_part(&mut self, clock: u32, id: SubjectId, resource: Resource, part: &Day) {
        let day = u32::try_from(part.day).unwrap_or(u32::MAX);
        if let Some(open) = self.open_day(clock, id, day) {
            let i = at(resource);
            open.all[i].merge(&part.all);
            open.minutes[i].merge(&part.minutes);
            open.peaks[i] = open.peaks[i].max(part.peak);
        }
    }

    /// Takes a minute of a container in, as far as it tells of its seconds: into the open hour of its own subject, or into
    /// the open day of one.
    pub(crate) fn fill_minute(&mut self, clock: u32, id: SubjectId, is_hour: bool, kept: &StoredMinute) {
        let hour = kept.minute / 60;
        let [cpu, memory] = [&kept.cpu, &kept.memory];
        if is_hour {
            if let Some(open) = self.open_hour(clock, id, hour) {
                for (i, aggregate) in [cpu, memory].into_iter().enumerate() {
                    add_seconds(&mut open.all[i], aggregate, kept.weight_ms);
                    open.peaks[i] = open.peaks[i].max(aggregate.max);
                }
            }
            return;
        }
        if let Some(open) = self.open_day(clock, id, hour / 24) {
            let heights = [cpu.mean(), (memory.count > 0).then_some(memory.max)];
            for (i, (aggregate, height)) in [cpu, memory].into_iter().zip(heights).enumerate() {
                add_seconds(&mut open.all[i], aggregate, kept.weight_ms);
                open.peaks[i] = open.peaks[i].max(aggregate.max);
                if let Some(height) = height {
                    open.minutes[i].add(height, 1);
                }
            }
        }
    }
}

/// The day of one resource.
fn day_of(open: &OpenDay, resource: Resource) -> Day {
    let i = at(resource);
    let (all, minutes) = (open.all[i].clone(), open.minutes[i].clone());
    Day { day: u64::from(open.day), all, minutes, peak: open.peaks[i] }
}

/// Seconds of which sum, count and greatest are known: the greatest, and the others at their mean.
pub(crate) fn add_seconds(heights: &mut Histogram, aggregate: &Aggregate, weight_ms: u64) {
    let Some(one_ms) = weight_ms.checked_div(aggregate.count) else { return };
    heights.add(aggregate.max, one_ms.max(1));
    if let Some(mean) = aggregate.sum.saturating_sub(aggregate.max).checked_div(aggregate.count - 1) {
        heights.add(mean, weight_ms.saturating_sub(one_ms));
    }
}
