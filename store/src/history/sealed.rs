//! Owns hours, days and events as values: what is open of them, what sealing makes of it, and the bytes it becomes.

use std::sync::Arc;

use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::histogram::Histogram;
use evenkeel_rightsizing::history::{Cause, Day, Event, Hour};

use super::codec::{decode_parts, decode_parts_into, encode_parts};
use super::past::SubjectId;
use super::replica::{ReplicaPart, Replicas, mean, worst};
use super::starts::DayStart;

/// Place of a resource in every pair here.
pub(crate) const fn at(resource: Resource) -> usize {
    match resource {
        Resource::Cpu => 0,
        Resource::Memory => 1,
    }
}

/// An hour that is still added to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OpenHour {
    pub(crate) hour: u32,
    /// Minute (of the log's clock) it was last added to.
    pub(crate) touched: u32,
    pub(crate) all: [Histogram; 2],
    pub(crate) peaks: [u64; 2],
    /// Containers whose part of it has ended.
    pub(crate) replicas: Replicas,
    /// What is of starts among CPU.
    pub(crate) start: Option<Box<Histogram>>,
}

/// A day that is still added to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct OpenDay {
    pub(crate) day: u32,
    pub(crate) touched: u32,
    pub(crate) all: [Histogram; 2],
    pub(crate) minutes: [Histogram; 2],
    pub(crate) peaks: [u64; 2],
    /// What is of starts among CPU.
    pub(crate) start: Option<Box<DayStart>>,
}

/// A value to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub(crate) subject: SubjectId,
    pub(crate) kind: SealedKind,
    /// Hour or day since 1970; of an event, its day.
    pub(crate) time: u32,
    pub(crate) bytes: Arc<[u8]>,
}

/// What a sealed value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SealedKind {
    Hour(Resource),
    Day(Resource),
    Event,
}

/// One resource of an hour that is open.
pub(crate) fn hour_of(open: &OpenHour, parts: &[ReplicaPart<'_>], resource: Resource) -> Hour {
    let i = at(resource);
    let (worst, starved_ms) = worst(parts, resource);
    Hour { hour: u64::from(open.hour), all: open.all[i].clone(), worst, peak: open.peaks[i], starved_ms }
}

/// A sealed hour.
pub(crate) fn decode_hour(hour: u32, bytes: &[u8]) -> Option<Hour> {
    let mut into = Hour::default();
    decode_hour_into(hour, bytes, &mut into)?;
    Some(into)
}

/// The same in the place of another, whose memory is used again. On failure it holds anything.
#[inline]
pub(crate) fn decode_hour_into(hour: u32, bytes: &[u8], into: &mut Hour) -> Option<()> {
    let mut worst = into.worst.take().unwrap_or_default();
    let ([peak, starved_ms], there) = decode_parts_into(bytes, [&mut into.all, &mut worst])?;
    (into.hour, into.peak, into.starved_ms) = (u64::from(hour), peak, starved_ms);
    into.worst = there[1].then_some(worst);
    there[0].then_some(())
}

/// A sealed day.
pub(crate) fn decode_day(day: u32, bytes: &[u8]) -> Option<Day> {
    let mut into = Day::default();
    decode_day_into(day, bytes, &mut into)?;
    Some(into)
}

/// The same in the place of another, likewise.
#[inline]
pub(crate) fn decode_day_into(day: u32, bytes: &[u8], into: &mut Day) -> Option<()> {
    let ([peak], there) = decode_parts_into(bytes, [&mut into.all, &mut into.minutes])?;
    (into.day, into.peak) = (u64::from(day), peak);
    (there == [true; 2]).then_some(())
}

/// Takes a further part of the same hour in. Of two bad replicas the one that used more stays: which ranks where among
/// all cannot be told any more.
pub(crate) fn merge_hour(into: &mut Hour, other: &Hour) {
    into.all.merge(&other.all);
    into.peak = into.peak.max(other.peak);
    into.starved_ms = into.starved_ms.max(other.starved_ms);
    into.worst = match (into.worst.take(), &other.worst) {
        (Some(a), Some(b)) => Some(if mean(&a) >= mean(b) { a } else { b.clone() }),
        (a, b) => a.or_else(|| b.clone()),
    };
}

/// Takes a further part of the same day in.
pub(crate) fn merge_day(into: &mut Day, other: &Day) {
    into.all.merge(&other.all);
    into.minutes.merge(&other.minutes);
    into.peak = into.peak.max(other.peak);
}

pub(crate) fn encode_hour(hour: &Hour) -> Vec<u8> {
    encode_parts(&[hour.peak, hour.starved_ms], &[Some(&hour.all), hour.worst.as_ref()])
}

pub(crate) fn encode_day(day: &Day) -> Vec<u8> {
    encode_parts(&[day.peak], &[Some(&day.all), Some(&day.minutes)])
}

pub(crate) fn encode_event(event: &Event) -> Vec<u8> {
    let some = |value: Option<u64>| value.map_or(0, |v| v.saturating_add(1));
    let cause = match event.cause {
        Cause::OomKill => 1,
        Cause::Eviction => 2,
    };
    let numbers =
        [event.time_ms, cause, some(event.usage), some(event.request), some(event.limit), some(event.age_ms)];
    encode_parts(&numbers, &[])
}

pub(crate) fn decode_event(bytes: &[u8]) -> Option<Event> {
    let ([time_ms, cause, usage, request, limit, age_ms], []) = decode_parts::<6, 0>(bytes)?;
    let cause = match cause {
        1 => Cause::OomKill,
        2 => Cause::Eviction,
        _ => return None,
    };
    let some = |value: u64| value.checked_sub(1);
    Some(Event {
        time_ms,
        cause,
        usage: some(usage),
        request: some(request),
        limit: some(limit),
        age_ms: some(age_ms),
    })
}
