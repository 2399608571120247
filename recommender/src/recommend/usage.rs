//! Owns the usage records: what a workload's container used over a window.
//!
//! A record is made of container-minutes. Mean, least, greatest and count are those of the seconds, exactly; percentiles
//! of `usage` are over the minutes' means, of `maxusage` over the minutes' greatest values. `predicted` is the most
//! the rule in force expects: its request, and the samples behind it.

use std::collections::BTreeMap;

use evenkeel_model::name::ResourceName;
use evenkeel_model::usage::{Confidence, Stats, UsageRecord, UsageWindow};
use evenkeel_rightsizing::Resource;

use super::advice::{Asked, index};
use super::{Desk, unfinished};
use crate::state::State;
use crate::state::history::{History, Select, Series, SeriesId, SeriesKey};
use crate::state::minute::{Entry, MINUTE_USEC};
use crate::state::slots::Moment;

/// Which containers are asked about; an empty name stands for any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// Namespace.
    pub namespace: String,
    /// Controller, or pod where there is none.
    pub workload: String,
    /// Container.
    pub container: String,
    /// Length of the window in seconds; 0 = all that is kept.
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

impl Question {
    fn wants(&self, key: &SeriesKey) -> bool {
        let same = |asked: &str, is: &str| asked.is_empty() || asked == is;
        same(&self.namespace, &key.namespace)
            && same(&self.workload, &key.workload)
            && same(&self.container, &key.container)
    }
}

/// Answers a question, in the order of names.
pub fn query(desk: &Desk<'_>, question: &Question) -> Vec<Usage> {
    let (state, now_usec) = (desk.state, desk.now_usec);
    type Place<'a> = (&'a str, &'a str, &'a str);
    let mut found: BTreeMap<Place<'_>, Vec<(SeriesId, &Series)>> = BTreeMap::new();
    for (id, series) in state.history.all().filter(|(_, s)| question.wants(&s.key)) {
        let key = &series.key;
        found.entry((&key.namespace, &key.workload, &key.container)).or_default().push((id, series));
    }
    let now_minute = now_usec / MINUTE_USEC;
    let from = match question.window_seconds {
        0 => 0,
        seconds => u32::try_from(now_minute.saturating_sub(seconds.div_ceil(60))).unwrap_or(u32::MAX),
    };
    let usages = found.into_iter().map(|((namespace, workload, container), all)| Usage {
        namespace: namespace.to_owned(),
        workload: workload.to_owned(),
        container: container.to_owned(),
        record: record(desk, from, &all),
        live: live(state, &all),
    });
    usages.collect()
}

fn live(state: &State, all: &[(SeriesId, &Series)]) -> Vec<(String, String, Vec<Moment>)> {
    let slots = all.iter().flat_map(|(id, _)| state.live_of(*id));
    slots
        .map(|(stream, slot)| (stream.key.node.clone(), slot.identity.pod.clone(), slot.recent().collect()))
        .collect()
}

fn record(desk: &Desk<'_>, from: u32, all: &[(SeriesId, &Series)]) -> UsageRecord {
    let state = desk.state;
    let mut record = UsageRecord::default();
    let newest = all.iter().map(|(_, s)| s).max_by_key(|s| (!s.live.is_empty(), s.newest));
    let mut span: Option<(u32, u32)> = None;
    for resource in Resource::ALL {
        let name = match resource {
            Resource::Cpu => ResourceName::CPU,
            Resource::Memory => ResourceName::MEMORY,
        };
        let mut entries = Vec::new();
        for (id, _) in all {
            entries.extend(state.history.entries(Select::One(*id), resource, from));
            entries.extend(unfinished(state, *id, resource, from));
        }
        for entry in &entries {
            let (first, last) = span.unwrap_or((entry.minute, entry.minute));
            span = Some((first.min(entry.minute), last.max(entry.minute)));
        }
        record.usage.insert(name.clone(), seconds(&entries));
        record.max_usage.insert(name.clone(), Stats::of(entries.iter().map(|e| e.max)));
        if let Some(series) = newest {
            let asked = Asked {
                cluster: Some(series.key.cluster.clone()),
                namespace: series.key.namespace.clone(),
                workload: series.key.workload.clone(),
                container: series.key.container.clone(),
                image: series.key.image.clone(),
                command: None,
            };
            let rule = &desk.advisor.default;
            let raw = desk.raw(&asked, rule, [None; 2]);
            let answer = &raw.answers[index(resource)];
            if let Some(request) = answer.request {
                let most = Stats { max: Some(request), count: Some(answer.samples), ..Stats::default() };
                record.predicted.insert(name, most);
            }
        }
        if resource == Resource::Memory {
            record.dropped = dropped(&entries, span);
        }
    }
    if let Some((first, last)) = span {
        let (start, end) = (i64::from(first) * 60, (i64::from(last) + 1) * 60);
        record.window = UsageWindow::new(start, end).ok();
        let expected = u64::from(last - first) + 1;
        let minutes: std::collections::BTreeSet<u32> = all
            .iter()
            .flat_map(|(id, _)| {
                let recorded = state.history.entries(Select::One(*id), Resource::Memory, from);
                recorded.into_iter().chain(unfinished(state, *id, Resource::Memory, from))
            })
            .map(|e| e.minute)
            .collect();
        record.confidence = Some(Confidence::of_coverage(minutes.len() as u64, expected));
    }
    record
}

/// The distribution of the seconds, as far as minutes tell.
fn seconds(entries: &[Entry]) -> Stats {
    let count: u64 = entries.iter().map(|e| u64::from(e.count)).sum();
    let sum: u128 = entries.iter().map(|e| u128::from(e.mean) * u128::from(e.count)).sum();
    let of_means = Stats::of(entries.iter().map(|e| e.mean));
    Stats {
        mean: sum.checked_div(u128::from(count)).and_then(|mean| u64::try_from(mean).ok()),
        max: entries.iter().map(|e| e.max).max(),
        min: entries.iter().map(|e| e.min).min(),
        count: Some(count),
        percentiles: of_means.percentiles,
    }
}

/// Seconds that are missing from minutes that had begun before and gone on after: those at the ends of the window are
/// incomplete by nature.
fn dropped(entries: &[Entry], span: Option<(u32, u32)>) -> u64 {
    let Some((first, last)) = span else { return 0 };
    let inner = entries.iter().filter(|e| e.minute > first && e.minute < last);
    inner.map(|e| u64::from(60_u32.saturating_sub(e.count))).sum()
}
