//! Owns what containers used of the CPU while they started: beside what they used in all, so that it can be told, and left out of what the
//! running state used. Memory is not told apart: what a start takes stays.
//!
//! It stands behind the value it belongs to, where earlier releases do not look; what they wrote has none.

use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::histogram::Histogram;
use evenkeel_rightsizing::history::{Day, Hour};

use super::codec::{decode_more, encode_more};
use super::replica::{ReplicaPart, worst_running};
use super::sealed::{OpenHour, at, decode_day_into, decode_hour_into, hour_of};

/// What was used in starts, and for how long it was held down then.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct InStart {
    /// Time at each height of CPU, millionths of a core.
    pub(crate) heights: Histogram,
    /// Milliseconds.
    pub(crate) starved_ms: u64,
}

impl InStart {
    pub(crate) fn merge(&mut self, other: &Self) {
        self.heights.merge(&other.heights);
        self.starved_ms += other.starved_ms;
    }

    /// The same behind other bytes.
    pub(crate) fn put(start: Option<&Self>, bytes: Vec<u8>) -> Vec<u8> {
        match start {
            Some(start) => encode_more(bytes, &[start.starved_ms], &[Some(&start.heights)]),
            None => bytes,
        }
    }

    /// What stands behind a value of so many numbers and histograms.
    pub(crate) fn behind<const N: usize, const H: usize>(bytes: &[u8]) -> Option<Self> {
        let ([starved_ms], [heights]) = decode_more::<N, H, 1, 1>(bytes)?;
        Some(Self { heights: heights?, starved_ms })
    }
}

/// The starts of a day.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct DayStart {
    pub(crate) used: InStart,
    /// Their minutes by height, a weight of 1 each.
    pub(crate) minutes: Histogram,
}

impl DayStart {
    /// The same behind other bytes.
    pub(crate) fn put(start: Option<&Self>, bytes: Vec<u8>) -> Vec<u8> {
        let Some(Self { used, minutes }) = start else { return bytes };
        encode_more(bytes, &[used.starved_ms], &[Some(&used.heights), Some(minutes)])
    }

    /// What stands behind a value of so many numbers and histograms.
    pub(crate) fn behind<const N: usize, const H: usize>(bytes: &[u8]) -> Option<Self> {
        let ([starved_ms], [heights, minutes]) = decode_more::<N, H, 1, 2>(bytes)?;
        Some(Self { used: InStart { heights: heights?, starved_ms }, minutes: minutes? })
    }

    /// That of a sealed day of CPU.
    pub(crate) fn of_day(bytes: &[u8]) -> Option<Self> {
        Self::behind::<1, 2>(bytes)
    }

    /// Takes it out of a day.
    pub(crate) fn leave(&self, day: &mut Day) {
        day.all.unmerge(&self.used.heights);
        day.minutes.unmerge(&self.minutes);
        day.peak = day.peak.min(greatest(&day.all));
    }
}

/// The starts of an hour, and what its bad replica did beside them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HourStart {
    all: Histogram,
    worst: Option<Histogram>,
    starved_ms: u64,
}

impl HourStart {
    /// Of an hour that is open; nothing where nobody started in it.
    pub(crate) fn of(open: &OpenHour, parts: &[ReplicaPart<'_>]) -> Option<Self> {
        let all = open.start.as_deref().cloned().unwrap_or_default();
        let is_any = !all.is_empty() || parts.iter().any(ReplicaPart::has_start);
        is_any.then(|| {
            let (worst, starved_ms) = worst_running(parts);
            Self { all, worst, starved_ms }
        })
    }

    /// The same behind the bytes of its hour.
    pub(crate) fn put(start: Option<&Self>, bytes: Vec<u8>) -> Vec<u8> {
        let Some(Self { all, worst, starved_ms }) = start else { return bytes };
        encode_more(bytes, &[*starved_ms], &[Some(all), worst.as_ref()])
    }

    fn of_hour(bytes: &[u8]) -> Option<Self> {
        let ([starved_ms], [all, worst]) = decode_more::<2, 2, 1, 2>(bytes)?;
        Some(Self { all: all?, worst, starved_ms })
    }

    /// Takes it out of an hour.
    fn leave(self, hour: &mut Hour) {
        hour.all.unmerge(&self.all);
        (hour.worst, hour.starved_ms) = (self.worst, self.starved_ms);
        let most = hour.worst.as_ref().map_or(0, greatest).max(greatest(&hour.all));
        hour.peak = hour.peak.min(most);
    }
}

fn greatest(histogram: &Histogram) -> u64 {
    histogram.quantile(1.0).unwrap_or(0)
}

/// An hour of CPU that is open, without its starts.
pub(crate) fn running_hour_of(open: &OpenHour, parts: &[ReplicaPart<'_>]) -> Hour {
    let mut hour = hour_of(open, parts, Resource::Cpu);
    if let Some(start) = HourStart::of(open, parts) {
        start.leave(&mut hour);
    }
    hour
}

/// A sealed hour of CPU without its starts.
pub(crate) fn decode_running_hour_into(number: u32, bytes: &[u8], into: &mut Hour) -> Option<()> {
    decode_hour_into(number, bytes, into)?;
    if let Some(start) = HourStart::of_hour(bytes) {
        start.leave(into);
    }
    Some(())
}

/// A sealed day of CPU without its starts.
pub(crate) fn decode_running_day_into(number: u32, bytes: &[u8], into: &mut Day) -> Option<()> {
    decode_day_into(number, bytes, into)?;
    if let Some(start) = DayStart::of_day(bytes) {
        start.leave(into);
    }
    Some(())
}

/// Place of CPU in pairs of both resources.
pub(crate) const CPU: usize = at(Resource::Cpu);
