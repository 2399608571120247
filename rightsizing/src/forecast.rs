//! What a container is expected to use in the next hour or day, with a confidence that is kept.
//!
//! Of each past window its mean, maximum, minimum and percentiles are known. Each of them is foretold from the window before
//! and the one a season before (a day for hours, a week for days); how far past windows were off from what they would have
//! been foretold is known as well. The value told is the one that as many of them kept to as the confidence says (split
//! conformal prediction: Lei et al., "Distribution-Free Predictive Inference for Regression", 2018), so that of n windows
//! at most n / (n + 1) can be expected to keep to it. That is so where windows are alike; use drifts, so that two points less
//! are stated than were aimed at. It holds for each value by itself: the next window's maximum is at most that told,
//! likewise mean and percentiles, and its minimum at least that.
//!
//! On public traces as many windows keep to each value as is stated, or more (`evenkeel backtest --predicted`,
//! docs/backtest.md).

use evenkeel_model::narrow::{f64_to_u64, f64_to_usize};
use std::collections::BTreeMap;

use evenkeel_model::usage::{Percentile, Stats};

use crate::Resource;
use crate::histogram::{Histogram, Scheme};
use crate::history::{History, Scope};
use crate::units::{DAY_MS, HOUR_MS};
use crate::usage::unit;

/// What is stated where enough windows are known.
pub const CONFIDENCE: f64 = 0.9;
/// By how much less is stated than is aimed at, because use drifts: on public traces up to 1.7 points fewer windows keep to a
/// value than past ones did.
const DRIFT: f64 = 0.02;
/// Past windows that are looked at: those a store keeps at least.
const HOURS: u64 = 9 * 24;
const DAYS: u64 = 31;
/// Values of a window: mean, maximum, minimum, and the standard percentiles.
pub const VALUES: usize = 3 + Percentile::STANDARD.len();
/// Place of the minimum, the one value that is a lower bound.
const MINIMUM: usize = 2;

/// Length of what is foretold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForecastWindow {
    /// The next hour.
    Hour,
    /// The next day.
    Day,
}

impl ForecastWindow {
    /// Milliseconds.
    pub const fn ms(self) -> u64 {
        match self {
            Self::Hour => HOUR_MS,
            Self::Day => DAY_MS,
        }
    }

    /// Windows of a season.
    const fn season(self) -> u64 {
        match self {
            Self::Hour => 24,
            Self::Day => 7,
        }
    }
}

/// Values of one window: mean, maximum, minimum, and the standard percentiles, in the unit of the resource.
pub type Values = [f64; VALUES];

/// What is foretold.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    /// Length of the window.
    pub window: ForecastWindow,
    /// Upper bounds, and a lower one of the minimum.
    pub values: Values,
    /// Seconds that will be counted, all replicas together.
    pub count: u64,
    /// Part of windows that keep to each value; 0 where nothing can be promised yet.
    pub confidence: f64,
}

impl Forecast {
    /// In the units of records.
    pub fn stats(&self, resource: Resource) -> Stats {
        let told = |value: f64| Some(f64_to_u64((value / unit(resource) as f64).round()));
        let [mean, max, min, percentiles @ ..] = self.values;
        let percentiles = Percentile::STANDARD.into_iter().zip(percentiles);
        Stats {
            mean: told(mean),
            max: told(max),
            min: told(min),
            count: Some(self.count),
            percentiles: percentiles
                .filter_map(|(p, value)| Some((p, told(value)?)))
                .collect::<BTreeMap<_, _>>(),
        }
    }
}

/// Values of the time at each height of use.
pub fn values(heights: &Histogram, peak: u64) -> Option<Values> {
    let total = heights.total();
    let first = heights.buckets().first().filter(|_| total > 0)?;
    let middle = |bucket: u16| {
        f64::midpoint(Scheme::Octaves32.start(bucket) as f64, Scheme::Octaves32.end(bucket) as f64)
    };
    let sum: f64 = heights.buckets().iter().map(|(bucket, weight)| middle(*bucket) * *weight as f64).sum();
    let mut values = [0.0; VALUES];
    (values[0], values[1]) = ((sum / total as f64).min(peak as f64), peak as f64);
    values[MINIMUM] = Scheme::Octaves32.start(first.0) as f64;
    for (value, p) in values[MINIMUM + 1..].iter_mut().zip(Percentile::STANDARD) {
        *value = heights.quantile(f64::from(p.tenths()) / 1_000.0)?.min(peak) as f64;
    }
    Some(values)
}

/// Windows that were seen, by their number since 1970, and milliseconds measured in each.
type Seen = BTreeMap<u64, (Values, u64)>;

/// What the container's next window is expected to be like; nothing where nothing was measured.
pub fn forecast(
    resource: Resource,
    window: ForecastWindow,
    now_ms: u64,
    history: &dyn History,
) -> Option<Forecast> {
    let now = now_ms / window.ms();
    let mut seen = Seen::new();
    let mut take = |number: u64, heights: &Histogram, peak: u64| {
        if let Some(values) = values(heights, peak).filter(|_| number <= now) {
            seen.insert(number, (values, heights.total()));
        }
    };
    match window {
        ForecastWindow::Hour => history.visit_hours(Scope::Own, now.saturating_sub(HOURS), &mut |hour| {
            take(hour.hour, &hour.all, hour.peak);
        }),
        ForecastWindow::Day => history.visit_days(Scope::Own, now.saturating_sub(DAYS), &mut |day| {
            take(day.day, &day.all, day.peak);
        }),
    }
    let newest = seen.last_key_value().map(|(_, newest)| *newest)?;
    // What was hardly measured is no window.
    seen.retain(|_, (_, weight_ms)| *weight_ms * 2 >= window.ms());
    Some(of_windows(resource, window, now, &seen).unwrap_or(Forecast {
        window,
        values: newest.0,
        count: newest.1 / 1_000,
        // One window is as likely to be exceeded as not; a part of one says nothing.
        confidence: if seen.is_empty() { 0.0 } else { 0.5 },
    }))
}

/// From pairs of windows; nothing where there is none.
fn of_windows(resource: Resource, window: ForecastWindow, now: u64, seen: &Seen) -> Option<Forecast> {
    let (last, (_, weight_ms)) = seen.last_key_value()?;
    // Of the window that goes on too little may be known: then it is the one foretold.
    let next = now.max(last + 1);
    let base = |number: u64| {
        let before = |by: u64| number.checked_sub(by).and_then(|at| seen.get(&at)).map(|(values, _)| values);
        match (before(1), before(window.season())) {
            (Some(a), Some(b)) => Some(std::array::from_fn(|at| f64::midpoint(a[at], b[at]))),
            (one, other) => one.or(other).copied(),
        }
    };
    let from: Values = base(next)?;
    let pairs: Vec<(Values, &Values)> =
        seen.iter().filter_map(|(number, (came, _))| Some((base(*number)?, came))).collect();
    let count = pairs.len() as f64;
    let aim = (CONFIDENCE + DRIFT).min(count / (count + 1.0));
    let confidence = aim - DRIFT;
    let rank = f64_to_usize(((count + 1.0) * aim - 1e-9).ceil());
    // Below it use is as good as none, and a multiple of it says nothing.
    let floor = least(resource);
    let mut off: Vec<f64> = Vec::with_capacity(pairs.len());
    let mut told: Values = std::array::from_fn(|at| {
        off.clear();
        off.extend(pairs.iter().map(|(base, came)| (came[at] + floor) / (base[at] + floor)));
        off.sort_by(f64::total_cmp);
        if at == MINIMUM {
            off.reverse();
        }
        let by = rank.checked_sub(1).and_then(|at| off.get(at)).copied().unwrap_or(1.0);
        ((from[at] + floor) * by - floor).max(0.0)
    });
    in_order(&mut told);
    (count > 0.0).then_some(Forecast { window, values: told, count: weight_ms / 1_000, confidence })
}

/// A percentile is at least the one below it, and the maximum at least all; no promise is broken by raising a bound, or by
/// lowering the minimum.
fn in_order(values: &mut Values) {
    let mut most = 0.0_f64;
    for value in &mut values[MINIMUM + 1..] {
        most = most.max(*value);
        *value = most;
    }
    values[1] = values[1].max(most).max(values[0]);
    values[MINIMUM] = values[MINIMUM].min(values[0]).min(values[MINIMUM + 1]);
}

const fn least(resource: Resource) -> f64 {
    match resource {
        Resource::Cpu => 1_000.0,
        Resource::Memory => 1_048_576.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::past::TracePast;
    use crate::backtest::trace::TraceSample;

    fn past(hours: u64, value: impl Fn(u64) -> u64) -> TracePast {
        let mut past = TracePast::new(Resource::Cpu, false);
        for at in 0..hours * 12 {
            past.add(TraceSample { time_ms: at * HOUR_MS / 12, value: value(at) }, HOUR_MS / 12);
        }
        past
    }

    #[test]
    fn a_confidence_is_stated_only_as_far_as_windows_are_known() {
        let steady =
            |hours| forecast(Resource::Cpu, ForecastWindow::Hour, hours * HOUR_MS, &past(hours, |_| 500_000));
        assert_eq!(steady(0), None);
        // One window, two of which one was foretold by the other, and so on.
        let less = |part: f64| part - DRIFT;
        let table = [
            (1, 0.5),
            (2, less(0.5)),
            (3, less(2.0 / 3.0)),
            (6, less(5.0 / 6.0)),
            (12, less(11.0 / 12.0)),
            (13, 0.9),
            (300, 0.9),
        ];
        for (hours, confidence) in table {
            let told = steady(hours).unwrap();
            assert!((told.confidence - confidence).abs() < 1e-9, "{hours}: {told:?}");
            let stats = told.stats(Resource::Cpu);
            assert_eq!((stats.max, stats.count), (Some(500), Some(3_600)), "{hours}");
            assert!(stats.mean.is_some_and(|mean| mean.abs_diff(500) < 10), "{hours} {stats:?}");
            assert_eq!(stats.percentiles.len(), Percentile::STANDARD.len());
        }
        // Ten minutes are no hour.
        let mut young = TracePast::new(Resource::Cpu, false);
        young.add(TraceSample { time_ms: 5 * HOUR_MS, value: 70_000 }, 600_000);
        let told = forecast(Resource::Cpu, ForecastWindow::Hour, 5 * HOUR_MS + 600_000, &young).unwrap();
        assert_eq!((told.confidence, told.stats(Resource::Cpu).max), (0.0, Some(70)));
    }

    #[test]
    fn what_repeats_every_day_is_foretold_by_the_hour() {
        // Busy from 8 to 16.
        let past = past(8 * 24, |at| if (8..16).contains(&(at / 12 % 24)) { 800_000 } else { 100_000 });
        let told =
            |hour: u64| forecast(Resource::Cpu, ForecastWindow::Hour, (7 * 24 + hour) * HOUR_MS, &past);
        let most = |hour| told(hour).and_then(|told| told.stats(Resource::Cpu).max).unwrap();
        assert!(most(12) > 700 && most(3) < 200, "{} {}", most(12), most(3));
    }

    #[test]
    fn bounds_are_in_order() {
        let mut values = [5.0, 3.0, 9.0, 4.0, 2.0, 8.0, 7.0, 7.0, 7.5];
        in_order(&mut values);
        assert_eq!(values, [5.0, 8.0, 4.0, 4.0, 4.0, 8.0, 8.0, 8.0, 8.0]);
    }
}
