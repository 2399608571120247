//! Owns both ways of the exchange with engines outside: what is sealed as plain values, and plain values taken in where
//! there is nothing of their time.

use super::codec::decode_minutes;
use super::exchange::{Batch, DayOf, EventOf, HourOf, MinuteOf, PartOf};
use super::files::Outgoing;
use super::minute::StoredMinute;
use super::past::{Past, SubjectId, TURNS, add_seconds};
use super::replica::{Replica, pod_id};
use super::sealed::{
    SealedKind, at, decode_day, decode_event, decode_hour, encode_day, encode_event, encode_hour,
};
use crate::key::{Image, SeriesId, SeriesKey, Subject};
use crate::state::StoreState;
use crate::state::history::{Fresh, History};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// Plain values of what goes to files.
pub fn batch_of(outgoing: &Outgoing) -> Batch {
    let mut batch = Batch::default();
    for (_, key, blocks) in &outgoing.minutes {
        for block in blocks {
            let minutes = decode_minutes(&block.bytes).unwrap_or_default();
            let rest = minutes.iter().skip(block.offered);
            batch.minutes.extend(rest.map(|kept| minute_of(key, &block.pod, kept)));
        }
    }
    for (sealed, key) in &outgoing.sealed {
        let subject = Subject::clone(key);
        match sealed.kind {
            SealedKind::Hour(resource) => {
                let hour = decode_hour(sealed.time, &sealed.bytes);
                batch.hours.extend(hour.map(|hour| HourOf { subject, resource, hour }));
            }
            SealedKind::Day(resource) => {
                let day = decode_day(sealed.time, &sealed.bytes);
                batch.days.extend(day.map(|day| DayOf { subject, resource, day }));
            }
            SealedKind::Event => {
                let event = decode_event(&sealed.bytes);
                batch.events.extend(event.map(|event| EventOf { subject, event }));
            }
        }
    }
    batch
}

/// Plain values of minutes that ended.
pub fn batch_of_minutes(fresh: &[Fresh]) -> Batch {
    let minutes = fresh.iter().flat_map(|(key, pod, kept)| kept.iter().map(|kept| minute_of(key, pod, kept)));
    Batch { minutes: minutes.collect(), ..Batch::default() }
}

/// Of days that go on those whose turn came after a minute and up to the present one. While engines are being read nothing is
/// whole, and no part is told.
pub fn parts(state: &StoreState, turned: u32, now: u32) -> Batch {
    let turns = if state.filling.readers == 0 { now.saturating_sub(turned).min(TURNS) } else { 0 };
    let parts = (0..turns).flat_map(|back| state.past.open_parts(now - back));
    let part = |(key, resource, day): (Arc<Subject>, _, _)| PartOf {
        of: DayOf { subject: Subject::clone(&key), resource, day },
        until: now,
    };
    Batch { parts: parts.map(part).collect(), ..Batch::default() }
}

fn minute_of(key: &SeriesKey, pod: &str, kept: &StoredMinute) -> MinuteOf {
    let SeriesKey { of, image } = key.clone();
    let (image, tag) = image.map(|i| (i.name, i.tag)).unzip();
    MinuteOf {
        subject: Subject::Own(of),
        replica: pod.to_owned(),
        image,
        tag,
        minute: kept.minute,
        weight_ms: kept.weight_ms,
        cpu_micro: kept.cpu,
        memory_bytes: kept.memory,
        starved_ms: kept.starved_ms,
        oom_kills: u64::from(kept.oom_kills),
    }
}

/// What is being read back, and what was here when that began: engines fill only what was not.
#[derive(Debug, Default)]
pub(crate) struct Filling {
    /// Engines that are being read.
    pub(crate) readers: usize,
    /// The minute in which that began.
    began: u32,
    /// Hours of minutes that were here and in no file.
    minutes: HashSet<(SeriesId, u32)>,
    /// Hours (true) and days that were open.
    open: HashSet<(SubjectId, bool, u32)>,
    /// Hours of minutes that were filled in, and by which engine: more of them may come from it.
    filled: HashMap<(SeriesId, u32), usize>,
    /// The fullest part of each day that was not sealed.
    parts: BTreeMap<(SubjectId, u32), [Option<PartOf>; 2]>,
    /// Minute before which a day was filled in from its part.
    until: HashMap<(SubjectId, u32), u32>,
}

/// Minutes after its end within which an hour or a day may not have been sealed before what kept it was lost: a day, because
/// what arrives late is sealed late.
const UNSEALED: u32 = 24 * 60;

impl Filling {
    /// Whether an hour (true) or a day of a subject that goes on, or ended just now, is neither sealed nor was it open here
    /// when reading began.
    fn lacks(&self, past: &Past, id: SubjectId, is_hour: bool, number: u32) -> bool {
        let end = (number + 1).saturating_mul(if is_hour { 60 } else { 24 * 60 });
        end.saturating_add(UNSEALED) >= self.began
            && !past.is_sealed(id, is_hour, number)
            && !self.open.contains(&(id, is_hour, number))
    }
}

/// An engine is going to be read, in this minute since 1970.
pub fn begin(state: &mut StoreState, began: u32) {
    if state.filling.readers == 0 {
        let (minutes, open) = (state.history.unwritten(), state.past.open_now());
        state.filling = Filling { began, minutes, open, ..Filling::default() };
    }
    state.filling.readers += 1;
}

/// An engine was read.
pub fn end(state: &mut StoreState) {
    settle(state);
    state.filling.readers = state.filling.readers.saturating_sub(1);
    if state.filling.readers == 0 {
        state.filling = Filling::default();
    }
}

/// Takes values in where there is nothing of their time; how many.
///
/// They are in no log: until the next checkpoint a crash forgets them, and the engine that gave them still has them.
pub fn fill(state: &mut StoreState, engine: usize, batch: &Batch) -> u64 {
    let mut taken = 0;
    let minute = state.clock.now();
    for HourOf { subject, resource, hour } in &batch.hours {
        let Ok(time) = u32::try_from(hour.hour) else { continue };
        let id = state.past.subject(subject.clone(), None, minute);
        let kind = SealedKind::Hour(*resource);
        taken += u64::from(id.is_some_and(|id| state.past.fill(id, kind, time, encode_hour(hour))));
    }
    for DayOf { subject, resource, day } in &batch.days {
        let Ok(time) = u32::try_from(day.day) else { continue };
        let id = state.past.subject(subject.clone(), None, minute);
        let kind = SealedKind::Day(*resource);
        taken += u64::from(id.is_some_and(|id| state.past.fill(id, kind, time, encode_day(day))));
    }
    for part in &batch.parts {
        let Ok(day) = u32::try_from(part.of.day.day) else { continue };
        let Some(id) = state.past.subject(part.of.subject.clone(), None, minute) else { continue };
        let is_known = state.filling.until.contains_key(&(id, day));
        if is_known || !state.filling.lacks(&state.past, id, false, day) {
            continue;
        }
        let known = &mut state.filling.parts.entry((id, day)).or_default()[at(part.of.resource)];
        if known.as_ref().is_none_or(|known| known.until < part.until) {
            taken += u64::from(known.replace(part.clone()).is_none());
        }
    }
    if batch.parts.is_empty() {
        settle(state);
    }
    for EventOf { subject, event } in &batch.events {
        let Ok(day) = u32::try_from(event.time_ms / 86_400_000) else { continue };
        let id = state.past.subject(subject.clone(), None, minute);
        taken +=
            u64::from(id.is_some_and(|id| state.past.fill(id, SealedKind::Event, day, encode_event(event))));
    }
    taken + fill_minutes(state, engine, &batch.minutes)
}

/// All parts were read: the fullest of each day is what there is of it, as far as it goes.
fn settle(state: &mut StoreState) {
    let clock = state.clock.now();
    for ((id, day), parts) in std::mem::take(&mut state.filling.parts) {
        let until = parts.iter().flatten().map(|part| part.until).max().unwrap_or(0);
        state.filling.until.insert((id, day), until);
        for part in parts.into_iter().flatten() {
            state.past.fill_part(clock, id, part.of.resource, &part.of.day);
        }
    }
}

fn fill_minutes(state: &mut StoreState, engine: usize, minutes: &[MinuteOf]) -> u64 {
    let mut hours: BTreeMap<(SeriesKey, &str, u32), Vec<StoredMinute>> = BTreeMap::new();
    for minute in minutes {
        let Subject::Own(of) = minute.subject.clone() else { continue };
        let image = minute.image.clone().zip(minute.tag.clone()).map(|(name, tag)| Image { name, tag });
        let key = SeriesKey { of, image };
        let samples = minute.cpu_micro.count.max(minute.memory_bytes.count);
        let kept = StoredMinute {
            minute: minute.minute,
            samples: u32::try_from(samples).unwrap_or(u32::MAX),
            weight_ms: minute.weight_ms,
            cpu: minute.cpu_micro,
            memory: minute.memory_bytes,
            throttled_ms: 0,
            starved_ms: minute.starved_ms,
            oom_kills: u32::try_from(minute.oom_kills).unwrap_or(u32::MAX),
        };
        hours.entry((key, &minute.replica, minute.minute / 60)).or_default().push(kept);
    }
    let mut taken = 0;
    for ((key, pod, hour), mut kept) in hours {
        let id = state.history.series(&key);
        let was_here = state.history.has_hour(id, hour) || state.filling.minutes.contains(&(id, hour));
        let by = state.filling.filled.get(&(id, hour)).copied();
        if by.map_or(was_here, |by| by != engine) {
            continue;
        }
        state.filling.filled.insert((id, hour), engine);
        kept.sort_by_key(|kept| kept.minute);
        taken += kept.len() as u64;
        state.history.fill(id, pod, hour, &kept);
        fill_open(state, &key, pod, hour, &kept);
    }
    taken
}

/// Minutes of a time that no hour or day tells of yet stand in for them: one seconds' height for the greatest, the mean for
/// the rest. Which command ran is not known of them.
fn fill_open(state: &mut StoreState, key: &SeriesKey, pod: &str, hour: u32, minutes: &[StoredMinute]) {
    let (clock, day) = (state.clock.now(), hour / 24);
    let subjects =
        Subject::all(key, None).map(|key| key.and_then(|key| state.past.subject(key, None, clock)));
    if let Some(own) = subjects[0].filter(|own| state.filling.lacks(&state.past, *own, true, hour)) {
        let mut replica = Replica { hour, pod: pod_id(pod), ..Replica::default() };
        for kept in minutes {
            state.past.fill_minute(clock, own, true, kept);
            replica.starved_ms += kept.starved_ms;
            for (heights, aggregate) in replica.heights.iter_mut().zip([&kept.cpu, &kept.memory]) {
                add_seconds(heights, aggregate, kept.weight_ms);
            }
        }
        state.past.replica(own, replica);
    }
    for id in subjects.into_iter().flatten() {
        minutes.iter().for_each(|kept| state.past.heard(id, kept.minute));
        if !state.filling.lacks(&state.past, id, false, day) {
            continue;
        }
        let until = state.filling.until.get(&(id, day)).copied().unwrap_or(0);
        for kept in minutes.iter().filter(|kept| kept.minute >= until) {
            state.past.fill_minute(clock, id, false, kept);
        }
    }
}
