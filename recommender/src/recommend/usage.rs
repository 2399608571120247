//! Owns the usage records: what a workload's container used over a window.
//!
//! Mean, least, greatest and count are those of the seconds, from container-minutes; percentiles of `usage` are of the time,
//! from the hourly histograms of seconds; those of `maxusage` are over the minutes' greatest values. A window of at most a
//! minute is answered from the seconds themselves, a longer one from the beginning of its first hour on, because seconds are
//! kept by the hour. `predicted` is what the next window is expected to be like (`rightsizing::forecast`).

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_model::name::ResourceName;
use evenkeel_model::traffic::Traffic;
use evenkeel_model::usage::{Confidence, Stats, UsageRecord, UsageWindow};
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::forecast::{Forecast, ForecastWindow, forecast};
use evenkeel_rightsizing::histogram::{BucketTally, Histogram};
use evenkeel_rightsizing::history::{History as _, Scope};
use evenkeel_rightsizing::usage::{UsageSecond, of_seconds, percentiles};
use evenkeel_store::history::minute::StoredMinute;
use evenkeel_store::history::{HistoryView, ViewTarget};
use evenkeel_store::key::{SeriesId, SeriesKey};
use evenkeel_store::state::StoreState;
use evenkeel_store::state::history::HistorySeries;
use evenkeel_store::state::minute::{MINUTE_USEC, MinuteEntry};
use evenkeel_store::state::slots::{Moment, StreamContainer};
use evenkeel_store::state::traffic::RateSum;

use super::Desk;
use super::coverage::{self, Coverage};

/// Seconds that are kept one by one: a longer window is answered from minutes and hours.
const KEPT_SECONDS: u64 = 60;

/// Which containers are asked about; an empty name stands for any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageScope {
    /// Namespace.
    pub namespace: String,
    /// Controller, or pod where there is none.
    pub workload: String,
    /// Container.
    pub container: String,
    /// Length of the window in seconds; 0 = all that is kept. One of more than a minute begins with a whole hour.
    pub window_seconds: u64,
}

/// The record of one workload's container.
#[derive(Debug, Clone, PartialEq)]
pub struct Usage {
    /// Namespace.
    pub namespace: String,
    /// Controller, or pod where there is none.
    pub workload: String,
    /// Container.
    pub container: String,
    /// What it used.
    pub record: UsageRecord,
    /// The last seconds of its containers that run now: node and pod of each, oldest second first.
    pub live: Vec<(String, String, Vec<Moment>)>,
}

impl UsageScope {
    pub(super) fn wants(&self, key: &SeriesKey) -> bool {
        let same = |asked: &str, is: &str| asked.is_empty() || asked == is;
        same(&self.namespace, &key.of.namespace)
            && same(&self.workload, &key.of.workload)
            && same(&self.container, &key.of.container)
    }
}

/// Answers a question, in the order of names.
pub fn query(desk: &Desk<'_>, question: &UsageScope) -> Vec<Usage> {
    let state = desk.state;
    type Place<'a> = (&'a str, &'a str, &'a str);
    let mut found: BTreeMap<Place<'_>, Vec<(SeriesId, &HistorySeries)>> = BTreeMap::new();
    for (id, series) in state.history.all().filter(|(_, s)| question.wants(&s.key)) {
        let key = &series.key.of;
        found.entry((&key.namespace, &key.workload, &key.container)).or_default().push((id, series));
    }
    let wanted = found.into_iter().take_while(|_| desk.wanted.is_wanted());
    let usages = wanted.map(|((namespace, workload, container), all)| Usage {
        namespace: namespace.to_owned(),
        workload: workload.to_owned(),
        container: container.to_owned(),
        record: record(desk, question.window_seconds, &all),
        live: live(state, &all),
    });
    usages.collect()
}

fn live(state: &StoreState, all: &[(SeriesId, &HistorySeries)]) -> Vec<(String, String, Vec<Moment>)> {
    let slots = all.iter().flat_map(|(id, _)| state.live_of(*id));
    slots
        .map(|(stream, slot)| (stream.key.node.clone(), slot.identity.pod.clone(), slot.recent().collect()))
        .collect()
}

fn record(desk: &Desk<'_>, window_seconds: u64, all: &[(SeriesId, &HistorySeries)]) -> UsageRecord {
    let seconds =
        (1..=KEPT_SECONDS).contains(&window_seconds).then(|| last(desk, window_seconds, all)).flatten();
    let mut record = seconds.unwrap_or_else(|| kept(desk, window_seconds, all));
    foretell(desk, window_seconds, all, &mut record);
    record.usage.extend(traffic(desk.state, all));
    record
}

/// What the containers that run now did on block devices and the network in this hour and the one before, whatever the window.
fn traffic(
    state: &StoreState,
    all: &[(SeriesId, &HistorySeries)],
) -> impl Iterator<Item = (ResourceName, Stats)> {
    let mut sums = [RateSum::default(); 4];
    for (_, slot) in all.iter().flat_map(|(id, _)| state.live_of(*id)) {
        let own = slot.traffic.as_ref().map(|looks| looks.sums()).unwrap_or_default();
        sums = std::array::from_fn(|column| sums[column].and(&own[column]));
    }
    Traffic::TYPES.into_iter().zip(sums).filter_map(|(name, sum)| Some((name, sum.stats()?)))
}

const fn name(resource: Resource) -> ResourceName {
    match resource {
        Resource::Cpu => ResourceName::CPU,
        Resource::Memory => ResourceName::MEMORY,
    }
}

fn covered(record: &mut UsageRecord, coverage: Option<Coverage>) {
    let Some(coverage) = coverage else { return };
    let [start, end] = [coverage.start, coverage.end].map(|at| i64::try_from(at).unwrap_or(i64::MAX));
    record.window = UsageWindow::new(start, end).ok();
    record.dropped = coverage.dropped;
    record.confidence =
        Some(Confidence::of_coverage(coverage.seen, coverage.seen.saturating_add(coverage.dropped)));
}

/// The last seconds of containers that run now; nothing where none was heard of in that time.
fn last(desk: &Desk<'_>, window_seconds: u64, all: &[(SeriesId, &HistorySeries)]) -> Option<UsageRecord> {
    let slots = || all.iter().flat_map(|(id, _)| desk.state.live_of(*id)).map(|(_, slot)| slot);
    let newest_ms = slots().filter_map(newest_ms).max()?;
    if newest_ms + 2 * KEPT_SECONDS * 1000 < desk.now_usec / 1000 {
        return None;
    }
    let after = newest_ms.saturating_sub(window_seconds * 1000);
    let of = |slot: &StreamContainer, resource| -> Vec<UsageSecond> {
        slot.seconds.kept(resource).filter(|second| second.time_ms > after).collect()
    };
    let mut record = UsageRecord::default();
    for resource in Resource::ALL {
        let seconds: Vec<UsageSecond> = slots().flat_map(|slot| of(slot, resource)).collect();
        let (usage, greatest) = of_seconds(&seconds, resource);
        record.usage.insert(name(resource), usage);
        record.max_usage.insert(name(resource), greatest);
    }
    covered(&mut record, coverage::of_seconds(slots().map(|slot| of(slot, Resource::Memory))));
    Some(record)
}

fn newest_ms(slot: &StreamContainer) -> Option<u64> {
    slot.latest.as_ref().map(|(time_usec, _)| time_usec / 1000)
}

/// What is kept in minutes and hours.
fn kept(desk: &Desk<'_>, window_seconds: u64, all: &[(SeriesId, &HistorySeries)]) -> UsageRecord {
    let now_minute = desk.now_usec / MINUTE_USEC;
    let from = match window_seconds {
        0 => 0,
        seconds => {
            u32::try_from(now_minute.saturating_sub(seconds.div_ceil(60)) / 60 * 60).unwrap_or(u32::MAX)
        }
    };
    let minutes: Vec<StoredMinute> = all.iter().flat_map(|(id, _)| minutes(desk.state, *id, from)).collect();
    let mut record = UsageRecord::default();
    for resource in Resource::ALL {
        let entries: Vec<MinuteEntry> =
            minutes.iter().filter_map(|kept| MinuteEntry::of_kept(kept, resource)).collect();
        let first = entries.iter().map(|entry| entry.minute).min();
        let (heights, peak) =
            first.map(|first| heights(desk.state, all, resource, first / 60)).unwrap_or_default();
        let usage = Stats { percentiles: percentiles(&heights, peak, resource), ..of_minutes(&entries) };
        record.usage.insert(name(resource), usage);
        record.max_usage.insert(name(resource), Stats::of(entries.iter().map(|e| e.max)));
    }
    covered(&mut record, coverage::of_minutes(&minutes));
    record
}

/// A series' minutes from a minute on, with those that have not ended.
fn minutes(state: &StoreState, id: SeriesId, from: u32) -> Vec<StoredMinute> {
    let open = state.followed_of(id).filter_map(|(_, slot)| slot.open);
    let open =
        open.map(|(minute, rollup)| StoredMinute::of(minute, &rollup)).filter(|kept| kept.minute >= from);
    let mut minutes = state.history.kept(id, from);
    minutes.extend(open);
    minutes
}

/// Time at each height of use from an hour on, and the peak.
fn heights(
    state: &StoreState,
    all: &[(SeriesId, &HistorySeries)],
    resource: Resource,
    from_hour: u32,
) -> (Histogram, u64) {
    let clusters: BTreeSet<&str> = all.iter().map(|(_, series)| series.key.of.cluster.as_str()).collect();
    let (mut heights, mut peak) = (BucketTally::default(), 0);
    let Some((_, HistorySeries { key, .. })) = all.first() else { return Default::default() };
    for cluster in clusters {
        HistoryView::new(state, of_all(key, Some(cluster)), resource).visit_hours(
            Scope::Own,
            u64::from(from_hour),
            &mut |hour| {
                heights.merge(&hour.all);
                peak = hour.peak.max(peak);
            },
        );
    }
    (heights.histogram(Histogram::new()), peak)
}

/// What minutes tell of their seconds exactly.
fn of_minutes(entries: &[MinuteEntry]) -> Stats {
    let count: u64 = entries.iter().map(|e| u64::from(e.count)).sum();
    let sum: u128 = entries.iter().map(|e| u128::from(e.mean) * u128::from(e.count)).sum();
    Stats {
        mean: sum.checked_div(u128::from(count)).and_then(|mean| u64::try_from(mean).ok()),
        max: entries.iter().map(|e| e.max).max(),
        min: entries.iter().map(|e| e.min).min(),
        count: Some(count),
        percentiles: BTreeMap::new(),
    }
}

/// What the next hour is expected to be like, or after a longer window the next day, as soon as days are known.
fn foretell(
    desk: &Desk<'_>,
    window_seconds: u64,
    all: &[(SeriesId, &HistorySeries)],
    record: &mut UsageRecord,
) {
    let Some((_, HistorySeries { key, .. })) = all.first() else { return };
    let of = of_all(key, None);
    let told = |window| -> Vec<(Resource, Forecast)> {
        let of = |resource| {
            let view = HistoryView::new(desk.state, of, resource);
            Some((resource, forecast(resource, window, desk.now_usec / 1000, &view)?))
        };
        Resource::ALL.into_iter().filter_map(of).collect()
    };
    let is_promised = |told: &[(Resource, Forecast)]| told.iter().all(|(_, told)| told.confidence > 0.5);
    let days = (!(1..=3_600).contains(&window_seconds)).then(|| told(ForecastWindow::Day));
    let told = days.filter(|days| is_promised(days)).unwrap_or_else(|| told(ForecastWindow::Hour));
    let least = told.iter().map(|(_, told)| told.confidence).min_by(f64::total_cmp);
    record.predicted_confidence = least.and_then(|least| Confidence::new(least).ok());
    record.predicted_seconds = told.first().map(|(_, told)| told.window.ms() / 1_000);
    record.predicted = told.iter().map(|(resource, told)| (name(*resource), told.stats(*resource))).collect();
}

/// A workload's container, in one cluster or in all.
pub(super) const fn of_all<'a>(key: &'a SeriesKey, cluster: Option<&'a str>) -> ViewTarget<'a> {
    ViewTarget {
        cluster,
        namespace: key.of.namespace.as_str(),
        workload: key.of.workload.as_str(),
        container: key.of.container.as_str(),
        image: None,
        command: None,
    }
}
