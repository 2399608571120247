//! Owns both ways of the exchange with engines outside: what is sealed as plain values, and plain values taken in where
//! there is nothing of their time.

use std::collections::BTreeMap;

use super::Subject;
use super::codec::decode_minutes;
use super::exchange::{Batch, DayOf, EventOf, HourOf, MinuteOf};
use super::files::Outgoing;
use super::minute::Kept;
use super::sealed::{
    SealedKind, decode_day, decode_event, decode_hour, encode_day, encode_event, encode_hour,
};
use crate::state::State;
use crate::state::history::{History, SeriesKey};
use crate::state::image::Image;

/// Plain values of what goes to files.
pub(crate) fn batch_of(outgoing: &Outgoing) -> Batch {
    let mut batch = Batch::default();
    for (_, key, blocks) in &outgoing.minutes {
        for block in blocks {
            let minutes = decode_minutes(&block.bytes).unwrap_or_default();
            batch.minutes.extend(minutes.iter().map(|kept| minute_of(key, &block.pod, kept)));
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

fn minute_of(key: &SeriesKey, pod: &str, kept: &Kept) -> MinuteOf {
    let SeriesKey { cluster, namespace, workload, container, image } = key.clone();
    let (image, tag) = image.map(|i| (i.name, i.tag)).unzip();
    MinuteOf {
        subject: Subject::Own { cluster, namespace, workload, container },
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

/// Takes values in where there is nothing of their time; how many.
///
/// They are in no log: until the next checkpoint a crash forgets them, and the engine that gave them still has them.
pub(crate) fn fill(state: &mut State, batch: &Batch) -> u64 {
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
    for EventOf { subject, event } in &batch.events {
        let Ok(day) = u32::try_from(event.time_ms / 86_400_000) else { continue };
        let id = state.past.subject(subject.clone(), None, minute);
        taken +=
            u64::from(id.is_some_and(|id| state.past.fill(id, SealedKind::Event, day, encode_event(event))));
    }
    taken + fill_minutes(state, &batch.minutes)
}

fn fill_minutes(state: &mut State, minutes: &[MinuteOf]) -> u64 {
    let mut hours: BTreeMap<(SeriesKey, &str, u32), Vec<Kept>> = BTreeMap::new();
    for minute in minutes {
        let Subject::Own { cluster, namespace, workload, container } = minute.subject.clone() else {
            continue;
        };
        let image = minute.image.clone().zip(minute.tag.clone()).map(|(name, tag)| Image { name, tag });
        let key = SeriesKey { cluster, namespace, workload, container, image };
        let samples = minute.cpu_micro.count.max(minute.memory_bytes.count);
        let kept = Kept {
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
        if state.history.has_hour(id, hour) && !state.filled.contains(&(id, hour)) {
            continue;
        }
        state.filled.insert((id, hour));
        kept.sort_by_key(|kept| kept.minute);
        taken += kept.len() as u64;
        state.history.fill(id, pod, hour, &kept);
    }
    taken
}
