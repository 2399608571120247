//! What stands for the minutes of a workload that has too many of them to be read for one answer: minutes of whole days by
//! their height for CPU, and hours for memory, whose peaks are exact. A day's minutes are counted in the middle of the time
//! that was seen of it, and at the middle of their bucket, which is at most 3.1 % wide.

use std::collections::BTreeMap;

use super::estimator::AggregateSample;
use crate::Resource;
use crate::history::{History, Scope};
use crate::rule::Question;
use crate::units::{DAY_MS, HOUR_MS};

/// Samples in the order of time, and the time from the first to the last minute that they stand for.
#[derive(Debug, Default)]
pub(super) struct Wide {
    pub(super) samples: Vec<AggregateSample>,
    pub(super) span_ms: Option<(u64, u64)>,
}

impl Wide {
    pub(super) fn of(question: &Question, from_ms: u64, history: &dyn History) -> Self {
        let mut wide = Self::default();
        // Of each day the time that was seen.
        let mut seen: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        history.visit_hours(Scope::Own, from_ms / HOUR_MS, &mut |hour| {
            let start = hour.hour * HOUR_MS;
            if start >= question.now_ms {
                return;
            }
            let end = (start + HOUR_MS).min(question.now_ms);
            seen.entry(start / DAY_MS).or_insert((start, end)).1 = end;
            wide.span_ms = Some((wide.span_ms.map_or(start, |span| span.0), end.saturating_sub(60_000)));
            if question.resource == Resource::Memory {
                let count = hour.all.total().div_ceil(60_000);
                wide.samples.push(AggregateSample { time_ms: start, value: hour.peak, count });
            }
        });
        if question.resource == Resource::Cpu {
            history.visit_days(Scope::Own, from_ms / DAY_MS, &mut |day| {
                let start = day.day * DAY_MS;
                if start >= question.now_ms {
                    return;
                }
                let whole = (start, (start + DAY_MS).min(question.now_ms));
                let (first, end) = seen.get(&day.day).copied().unwrap_or(whole);
                let (time_ms, scheme) = (first.midpoint(end), day.minutes.scheme());
                wide.samples.extend(day.minutes.buckets().iter().map(|(bucket, count)| {
                    let value = scheme.start(*bucket).midpoint(scheme.end(*bucket));
                    AggregateSample { time_ms, value, count: *count }
                }));
            });
        }
        wide
    }
}
