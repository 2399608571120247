//! What the rule keeps of a history: time at each height of use, the recent weighing more, and the peak of each day
//! counted back from now.

use super::curve::Curve;
use super::params::ChangeFrequency;
use super::{GoalParams, first_hour};
use crate::Resource;
use crate::evidence::Evidence;
use crate::histogram::{BucketTally, Histogram, Scheme};
use crate::history::{Day, History, Hour, Scope};
use crate::rule::Question;
use crate::units::{DAY_MS, HOUR_MS};
use evenkeel_model::narrow::{f64_to_u64, u64_to_usize};

/// Days back from now of which hours are asked; older days are asked as days, which every store keeps longer.
const HOURLY_DAYS: u64 = 8;
/// Hours of the 24 that must be known for a day's peak to stand for a day.
const WHOLE_DAY_HOURS: u32 = 12;
/// Weights are kept in parts of this, so that sums are whole numbers and do not depend on the order.
const WHOLE: f64 = 1_024.0;

/// How the hours are weighed for a request that changes by the hour: this part by the last hours, halved with each one,
/// this part by the same hour of the last seven days with half of its neighbours, the rest as for a day. The rest must be
/// small: half of it is busy time of a container that sleeps at night.
const HOURLY_LAST: f64 = 0.5;
const HOURLY_LAST_HALF_HOURS: f64 = 1.0;
const HOURLY_LAST_HOURS: f64 = 24.0;
const HOURLY_SAME: f64 = 0.48;
const HOURLY_SAME_DAYS: u64 = 7;

/// Clock hours that a raise comes from: the one that goes on and the one before.
const RAISED_HOURS: u64 = 2;

/// Time at each height of use by how it is weighed, milliseconds in 1,024ths.
#[derive(Debug, Clone, Default)]
struct Heights {
    /// Halved with every half-life.
    long: BucketTally,
    /// Only where requests change by the hour: each tally is 15 KiB to be cleared for every answer.
    by_hour: Option<ByHour>,
}

/// What a request that changes by the hour looks at beside.
#[derive(Debug, Clone, Default)]
struct ByHour {
    /// Of the last hours.
    last: BucketTally,
    /// Of the same hour of other days.
    same: BucketTally,
}

/// A folded history.
#[derive(Debug, Clone, Default)]
pub(super) struct Profile {
    heights: Heights,
    /// Milliseconds measured.
    measured: u64,
    /// Days ago and their weight, as asked last: hours of one day share it.
    decayed: Option<(u64, u64)>,
    curve: Curve,
    /// The last hours, oldest first; only where requests are raised within the day.
    pub(super) recent: Vec<Histogram>,
    /// Greatest use of each day, newest first, and of how many hours it is made.
    days: Vec<(u64, u32)>,
    /// Greatest use while starved, and for how long it was starved.
    pub(super) starved_peak: u64,
    pub(super) starved_ms: u64,
    /// From the beginning of the first to now.
    pub(super) span_ms: u64,
}

impl Profile {
    /// Of the container's own hours, and its own days before them.
    pub(super) fn of_hours(params: &GoalParams, question: &Question, history: &dyn History) -> Self {
        let days = window_days(params, question.resource);
        let mut profile = Self::default();
        let now = question.now_ms;
        let mut oldest = None;
        history.visit_hours(Scope::Own, first_hour(now, days.min(HOURLY_DAYS)), &mut |hour| {
            if hour.hour * HOUR_MS < now {
                oldest.get_or_insert(hour.hour);
                profile.hour(params, question, hour);
            }
        });
        // Whole days that end before the hours begin.
        let until = oldest.unwrap_or(now / HOUR_MS) / 24;
        let from = now.saturating_sub(days * DAY_MS).div_ceil(DAY_MS);
        history.visit_days(Scope::Own, from, &mut |day| {
            if day.day < until {
                profile.day(params, day, now);
            }
        });
        profile.finish(question.resource);
        profile
    }

    /// Of the days of a wider scope.
    pub(super) fn of_days(
        params: &GoalParams,
        question: &Question,
        scope: Scope,
        history: &dyn History,
    ) -> Self {
        let days = window_days(params, question.resource);
        let mut profile = Self::default();
        let now = question.now_ms;
        history.visit_days(scope, now.saturating_sub(days * DAY_MS) / DAY_MS, &mut |day| {
            if day.day * DAY_MS < now {
                profile.day(params, day, now);
            }
        });
        // The first day may have begun before its containers did.
        if let Some(since) = history.since_ms(scope) {
            profile.span_ms = profile.span_ms.min(now.saturating_sub(since));
        }
        profile.finish(question.resource);
        profile
    }

    fn hour(&mut self, params: &GoalParams, question: &Question, hour: &Hour) {
        let (now, start) = (question.now_ms, hour.hour * HOUR_MS);
        let histogram = hour.worst.as_ref().unwrap_or(&hour.all);
        let times = self.weight(params, (now - start) / DAY_MS);
        let weight = self.heights.long.merge_times(histogram, times);
        self.measured = self.measured.saturating_add(weight);
        if question.resource == Resource::Cpu {
            match params.change {
                ChangeFrequency::Day => {}
                ChangeFrequency::Raise if now - start <= RAISED_HOURS * HOUR_MS => {
                    self.recent.push(histogram.clone());
                }
                ChangeFrequency::Raise => {}
                ChangeFrequency::Hourly => self.heights.by_hour(params, histogram, hour.hour, now),
            }
        }
        if hour.starved_ms as f64 > params.cpu_over * weight as f64 {
            self.starved_peak = self.starved_peak.max(hour.peak);
        }
        self.starved_ms += hour.starved_ms.min(weight);
        self.peak_of(now - start, hour.peak, 1);
        // Of an hour that began before there was anything only the time that was measured counts.
        let measured = weight.min((now - start).min(HOUR_MS));
        self.span_ms = self.span_ms.max(now.saturating_sub(start + HOUR_MS) + measured);
    }

    fn day(&mut self, params: &GoalParams, day: &Day, now: u64) {
        let start = day.day * DAY_MS;
        let age_ms = now.saturating_sub(start + DAY_MS / 2);
        let weight = self.heights.long.merge_times(&day.all, params.decayed(age_ms / DAY_MS));
        self.measured = self.measured.saturating_add(weight);
        self.peak_of(age_ms, day.peak, 24);
        let measured = weight.min((now - start).min(DAY_MS));
        self.span_ms = self.span_ms.max(now.saturating_sub(start + DAY_MS) + measured);
    }

    fn weight(&mut self, params: &GoalParams, days: u64) -> u64 {
        match self.decayed {
            Some((same, weight)) if same == days => weight,
            _ => self.decayed.insert((days, params.decayed(days))).1,
        }
    }

    /// All was counted.
    fn finish(&mut self, resource: Resource) {
        if resource == Resource::Cpu {
            self.curve = self.heights.curve();
        }
    }

    /// Counts the peak of hours that began so long ago.
    fn peak_of(&mut self, age_ms: u64, peak: u64, hours: u32) {
        let back = u64_to_usize(age_ms.saturating_sub(1) / DAY_MS);
        if self.days.len() <= back {
            self.days.resize(back + 1, (0, 0));
        }
        self.days[back].0 = self.days[back].0.max(peak);
        self.days[back].1 += hours;
    }

    /// Nothing was measured.
    pub(super) const fn is_empty(&self) -> bool {
        self.measured == 0
    }

    /// Milliseconds measured.
    pub(super) const fn measured_ms(&self) -> u64 {
        self.measured
    }

    /// Minutes measured.
    pub(super) const fn minutes(&self) -> u64 {
        self.measured.div_ceil(60_000)
    }

    /// What an answer from it rests on.
    pub(super) const fn evidence(&self) -> Evidence {
        Evidence { span_seconds: self.span_ms / 1_000, minutes: self.minutes() }
    }

    /// Days from the beginning of what is known to now.
    pub(super) fn age_days(&self) -> f64 {
        self.span_ms as f64 / DAY_MS as f64
    }

    /// The time expected above each height of CPU use.
    pub(super) const fn curve(&self) -> &Curve {
        &self.curve
    }

    /// The height that use did not exceed in this part of the time, the recent weighing more; `None` while empty.
    pub(super) fn quantile(&self, part: f64) -> Option<f64> {
        let (_, weights) = self.heights.long.weights();
        let total = weights.iter().fold(0u64, |sum, weight| sum.saturating_add(*weight));
        let mut beyond = f64_to_u64(total as f64 * (1.0 - part));
        for (bucket, weight) in self.heights.long.downward() {
            match beyond.checked_sub(weight) {
                Some(left) => beyond = left,
                None => return Some(Scheme::Octaves32.end(bucket) as f64),
            }
        }
        None
    }

    /// Greatest use of each day of which enough is known, newest first; of what there is where that is less than a day.
    pub(super) fn day_peaks(&self) -> impl Iterator<Item = u64> + Clone {
        let has_whole = self.days.iter().any(|day| day.1 >= WHOLE_DAY_HOURS);
        let least = if has_whole { WHOLE_DAY_HOURS } else { 1 };
        self.days.iter().filter(move |day| day.1 >= least).map(|day| day.0)
    }

    /// Greatest use of all.
    pub(super) fn peak(&self) -> Option<u64> {
        self.days.iter().filter(|day| day.1 > 0).map(|day| day.0).max()
    }

    /// Days with a peak above a value, and all days.
    pub(super) fn days_above(&self, value: u64) -> (f64, f64) {
        let (mut above, mut all) = (0.0, 0.0);
        for peak in self.day_peaks() {
            all += 1.0;
            above += f64::from(u8::from(peak > value));
        }
        (above, all)
    }
}

impl Heights {
    /// Counts an hour by its distance from now, and by its distance from the same hour of the day.
    fn by_hour(&mut self, params: &GoalParams, histogram: &Histogram, hour: u64, now: u64) {
        let ByHour { last, same } = self.by_hour.get_or_insert_default();
        let middle = hour * HOUR_MS + HOUR_MS / 2;
        let age_hours = now.saturating_sub(middle) as f64 / HOUR_MS as f64;
        if age_hours <= HOURLY_LAST_HOURS {
            let times = WHOLE * (-age_hours / HOURLY_LAST_HALF_HOURS).exp2();
            last.merge_times(histogram, f64_to_u64(times));
        }
        // The hour that most of the next sixty minutes lie in.
        let wanted = (now + HOUR_MS / 2) / HOUR_MS;
        let apart = (wanted % 24).abs_diff(hour % 24);
        let near = apart.min(24 - apart);
        let back = wanted.saturating_sub(hour);
        if near <= 1 && (23..=HOURLY_SAME_DAYS * 24 + 1).contains(&back) {
            let whole = params.decayed(back.saturating_sub(1) / 24);
            same.merge_times(histogram, if near == 0 { whole } else { whole / 2 });
        }
    }

    fn curve(&self) -> Curve {
        let by_hour = self.by_hour.iter();
        let parts = by_hour.flat_map(|hours| [(&hours.last, HOURLY_LAST), (&hours.same, HOURLY_SAME)]);
        let parts = parts.chain([(&self.long, 1.0 - HOURLY_LAST - HOURLY_SAME)]);
        let (low, long) = self.long.weights();
        let mut time = vec![0.0; long.len()];
        for (tally, part) in parts {
            let (first, weights) = tally.weights();
            let total: f64 = weights.iter().map(|w| *w as f64).sum();
            if total <= 0.0 {
                continue;
            }
            // What lies in the short ones lies in the long one as well.
            let places = time.iter_mut().skip(first.saturating_sub(low));
            places.zip(weights).for_each(|(place, weight)| *place += *weight as f64 * part / total);
        }
        Curve::new(low, &time)
    }
}

fn window_days(params: &GoalParams, resource: Resource) -> u64 {
    match resource {
        Resource::Cpu => params.cpu_days,
        Resource::Memory => params.memory_days,
    }
}

impl GoalParams {
    /// The weight of time so many days ago, in 1,024ths: halved with every half-life, and never nothing.
    fn decayed(&self, days: u64) -> u64 {
        f64_to_u64((WHOLE * (-(days as f64) / self.cpu_half_life_days).exp2()).ceil())
    }
}
