//! Owns use over time, as a backtest replays it: one value a second, minute, hour or day of each workload's container, with
//! what was not measured told as gaps.
//!
//! A value is what the rules take: the mean of CPU, the peak of memory. Of several replicas it is that of the one at rank
//! 95 % (of a day, of all together). Seconds are those that are kept of containers that run, each by itself.

use evenkeel_model::narrow::f64_to_u64;
use std::collections::BTreeMap;

use evenkeel_model::key::ContainerKey;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::forecast;
use evenkeel_rightsizing::histogram::Histogram;
use evenkeel_rightsizing::history::{History as _, Scope};
use evenkeel_store::history::HistoryView;
use evenkeel_store::key::{SeriesId, SeriesKey};
use evenkeel_store::state::StoreState;
use evenkeel_store::state::minute::of_resource;

use super::usage::{UsageScope, of_all};

/// Values of one piece.
const PIECE: usize = 4_096;
/// Seconds further apart than this have a gap between them: a sample may come a little late.
const APART_SECONDS: u64 = 2;
const DAY: u64 = 86_400;

/// From one value to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesStep {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
    /// A day.
    Day,
}

impl SeriesStep {
    /// By its length in seconds; a minute for 0.
    pub const fn of_seconds(seconds: u64) -> Option<Self> {
        match seconds {
            1 => Some(Self::Second),
            0 | 60 => Some(Self::Minute),
            3_600 => Some(Self::Hour),
            DAY => Some(Self::Day),
            _ => None,
        }
    }

    const fn seconds(self) -> u64 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => DAY,
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesRequest {
    /// Whose; its window is not looked at.
    pub whose: UsageScope,
    /// Of what.
    pub resource: Resource,
    /// From one value to the next.
    pub step: SeriesStep,
    /// From this time on, seconds since 1970; 0 = all that is kept.
    pub from: u64,
    /// Before this time; 0 = to the present.
    pub to: u64,
}

/// A part of a series.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Piece {
    /// `namespace/workload/container`, with the cluster in front where there are several; of seconds `namespace/pod/container`.
    pub series: String,
    /// Seconds since 1970, and millionths of a core or bytes.
    pub values: Vec<(u64, u64)>,
    /// From a time to before another of which nothing is known.
    pub gaps: Vec<(u64, u64)>,
}

/// A workload's container, and how far it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesCursor {
    key: SeriesKey,
    name: String,
    /// Where the next slice begins; nothing when all was read.
    next: Option<u64>,
    /// End of the last value of the series.
    end: Option<u64>,
}

/// The containers asked about, in the order of names.
pub fn places(state: &StoreState, asked: &SeriesRequest) -> Vec<SeriesCursor> {
    let is_one = state.clusters().len() <= 1;
    let mut places: BTreeMap<String, SeriesCursor> = BTreeMap::new();
    for (_, series) in state.history.all().filter(|(_, series)| asked.whose.wants(&series.key)) {
        let ContainerKey { cluster, namespace, workload, container } = &series.key.of;
        let name = match is_one {
            true => format!("{namespace}/{workload}/{container}"),
            false => format!("{cluster}/{namespace}/{workload}/{container}"),
        };
        let key = SeriesKey { image: None, ..series.key.clone() };
        let place = SeriesCursor { key, name: name.clone(), next: Some(asked.from), end: None };
        places.entry(name).or_insert(place);
    }
    places.into_values().collect()
}

/// Series of the containers asked about.
fn ids_of(state: &StoreState, asked: &SeriesRequest) -> Vec<SeriesId> {
    let all = state.history.all().filter(|(_, series)| asked.whose.wants(&series.key));
    all.map(|(id, _)| id).collect()
}

/// What minutes would be read: bytes of hours that ended, and containers with a present hour.
pub fn size(state: &StoreState, asked: &SeriesRequest) -> (u64, usize) {
    let from = u32::try_from(asked.from / 60).unwrap_or(u32::MAX);
    let sizes = ids_of(state, asked).into_iter().map(|id| state.history.size(id, from));
    sizes.fold((0, 0), |all, one| (all.0.saturating_add(one.0), all.1.saturating_add(one.1)))
}

/// Minutes in which a CPU limit held a container back for at least a tenth of the time, seconds since 1970, each once and in order.
pub fn throttled(state: &StoreState, asked: &SeriesRequest) -> Vec<u64> {
    let from = u32::try_from(asked.from.div_ceil(60)).unwrap_or(u32::MAX);
    let ids = ids_of(state, asked);
    let kept = ids.into_iter().flat_map(|id| state.history.kept_within(id, from, u32::MAX));
    let held = kept.filter(|kept| kept.throttled_ms.saturating_mul(10) >= kept.weight_ms.max(1));
    let mut minutes: Vec<u64> = held.map(|kept| u64::from(kept.minute) * 60).collect();
    minutes.sort_unstable();
    minutes.dedup();
    minutes
}

impl SeriesCursor {
    /// Whether there is more to read.
    pub const fn has_more(&self) -> bool {
        self.next.is_some()
    }

    /// Reads on, no more of minutes than a day: whoever asks holds the state for that long.
    pub fn read(&mut self, state: &StoreState, asked: &SeriesRequest, now_usec: u64) -> Vec<Piece> {
        let now = now_usec / 1_000_000;
        let to = if asked.to == 0 { now } else { asked.to.min(now) };
        let Some(from) = self.next.take() else { return Vec::new() };
        let ids = || {
            let whose = &self.key.of;
            let of = |key: &SeriesKey| key.of.cluster == whose.cluster && key.of.container == whose.container;
            state.history.of_workload(&whose.namespace, &whose.workload, of)
        };
        let values = match asked.step {
            SeriesStep::Second => return seconds(state, &ids(), asked, to),
            SeriesStep::Minute => {
                let first = ids().into_iter().filter_map(|id| state.history.first_hour(id)).min();
                let Some(first) = first.map(|hour| u64::from(hour) * 3_600) else {
                    return self.pieces(asked, Vec::new(), to);
                };
                let from = from.max(first);
                // To the end of a day, so that few files are looked into at once.
                let until = to.min((from / DAY + 1) * DAY);
                self.next = (until < to).then_some(until);
                minutes(state, &ids(), asked.resource, from, until)
            }
            SeriesStep::Hour | SeriesStep::Day => self.rollups(state, asked, from, to),
        };
        self.pieces(asked, values, to)
    }

    /// Hours and days.
    fn rollups(&self, state: &StoreState, asked: &SeriesRequest, from: u64, to: u64) -> Vec<(u64, u64)> {
        let view = HistoryView::new(state, of_all(&self.key, Some(&self.key.of.cluster)), asked.resource);
        let step = asked.step.seconds();
        let (first, mut values) = (from.div_ceil(step), Vec::new());
        let mut take = |number: u64, heights: &Histogram, peak: u64| {
            let value = match asked.resource {
                Resource::Cpu => forecast::values(heights, peak).map(|values| f64_to_u64(values[0].round())),
                Resource::Memory => Some(peak),
            };
            // What goes on is told once it has ended.
            let is_wanted = (number + 1) * step <= to;
            values.extend(value.filter(|_| is_wanted).map(|value| (number * step, value)));
        };
        if asked.step == SeriesStep::Day {
            view.visit_days(Scope::Own, first, &mut |day| take(day.day, &day.all, day.peak));
        } else {
            view.visit_hours(Scope::Own, first, &mut |hour| {
                take(hour.hour, hour.worst.as_ref().unwrap_or(&hour.all), hour.peak);
            });
        }
        values
    }

    /// Values in pieces, with the gaps before and between them, and at the end of all.
    fn pieces(&mut self, asked: &SeriesRequest, values: Vec<(u64, u64)>, to: u64) -> Vec<Piece> {
        let step = asked.step.seconds();
        let mut expected = self.end.or((asked.from > 0).then(|| asked.from.next_multiple_of(step)));
        let mut pieces = Vec::new();
        for chunk in values.chunks(PIECE) {
            let mut piece = Piece { series: self.name.clone(), values: chunk.to_vec(), gaps: Vec::new() };
            for (time, _) in chunk {
                piece
                    .gaps
                    .extend(expected.filter(|expected| expected < time).map(|expected| (expected, *time)));
                expected = Some(time + step);
            }
            pieces.push(piece);
        }
        self.end = expected;
        if let (None, Some(expected)) = (self.next, expected)
            && to / step * step > expected
        {
            let gap = (expected, to / step * step);
            match pieces.last_mut() {
                Some(last) => last.gaps.push(gap),
                None => pieces.push(Piece { series: self.name.clone(), gaps: vec![gap], ..Piece::default() }),
            }
        }
        pieces
    }
}

/// A value for each minute that ended, of the replica at rank 95 %.
fn minutes(state: &StoreState, ids: &[SeriesId], resource: Resource, from: u64, to: u64) -> Vec<(u64, u64)> {
    let minute = |seconds: u64| u32::try_from(seconds.div_ceil(60)).unwrap_or(u32::MAX);
    let mut found: Vec<(u32, u64)> = Vec::new();
    for id in ids {
        for kept in state.history.kept_within(*id, minute(from), minute(to)) {
            let aggregate = of_resource(&kept, resource);
            let value = match resource {
                Resource::Cpu => aggregate.mean(),
                Resource::Memory => (aggregate.count > 0).then_some(aggregate.max),
            };
            found.extend(value.map(|value| (kept.minute, value)));
        }
    }
    found.sort_unstable();
    let of_minute = |same: &[(u32, u64)]| {
        let rank = (same.len() * 95).div_ceil(100);
        let (minute, value) = *same.get(rank.checked_sub(1)?)?;
        Some((u64::from(minute) * 60, value))
    };
    found.chunk_by(|a, b| a.0 == b.0).filter_map(of_minute).collect()
}

/// The last seconds of each container that runs.
fn seconds(state: &StoreState, ids: &[SeriesId], asked: &SeriesRequest, to: u64) -> Vec<Piece> {
    let slots = ids.iter().flat_map(|id| state.live_of(*id)).map(|(_, slot)| slot);
    let of = |slot: &evenkeel_store::state::slots::StreamContainer| {
        let i = &slot.identity;
        let mut piece =
            Piece { series: format!("{}/{}/{}", i.namespace, i.pod, i.container), ..Piece::default() };
        for second in slot.seconds.kept(asked.resource) {
            let time = second.time_ms / 1_000;
            let last = piece.values.last().map(|(last, _)| *last);
            if time < asked.from || time > to || last.is_some_and(|last| last >= time) {
                continue;
            }
            piece.gaps.extend(last.filter(|last| time - last > APART_SECONDS).map(|last| (last + 1, time)));
            piece.values.push((time, second.value));
        }
        piece
    };
    slots.map(of).filter(|piece| !piece.values.is_empty()).collect()
}
