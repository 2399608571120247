//! What the rule keeps of a history: time at each height of use over the window, and the peak of each day counted back
//! from now.

use super::{Params, first_hour};
use crate::Resource;
use crate::evidence::Evidence;
use crate::histogram::{Histogram, Scheme, Tally};
use crate::history::{Day, History, Hour, Scope};
use crate::rule::Question;
use crate::units::{DAY_MS, HOUR_MS};

/// Days back from now of which hours are asked; older days are asked as days, which every store keeps longer.
const HOURLY_DAYS: u64 = 8;
/// Hours of the 24 that must be known for a day's peak to stand for a day.
const WHOLE_DAY_HOURS: u32 = 12;

/// A folded history.
#[derive(Debug, Clone, Default)]
pub(super) struct Profile {
    /// Time at each height of use, milliseconds.
    time: Tally,
    total: u64,
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
    pub(super) fn of_hours(params: &Params, question: &Question, history: &dyn History) -> Self {
        let days = window_days(params, question.resource);
        let mut profile = Self::default();
        let now = question.now_ms;
        let mut oldest = None;
        history.visit_hours(Scope::Own, first_hour(now, days.min(HOURLY_DAYS)), &mut |hour| {
            if hour.hour * HOUR_MS < now {
                oldest.get_or_insert(hour.hour);
                profile.hour(params, hour, now);
            }
        });
        if days > HOURLY_DAYS {
            // Whole days that end before the hours begin.
            let until = oldest.unwrap_or(now / HOUR_MS) / 24;
            let from = now.saturating_sub(days * DAY_MS).div_ceil(DAY_MS);
            history.visit_days(Scope::Own, from, &mut |day| {
                if day.day < until {
                    profile.day(day, now);
                }
            });
        }
        profile
    }

    /// Of the days of a wider scope.
    pub(super) fn of_days(params: &Params, question: &Question, scope: Scope, history: &dyn History) -> Self {
        let days = window_days(params, question.resource);
        let mut profile = Self::default();
        let now = question.now_ms;
        history.visit_days(scope, now.saturating_sub(days * DAY_MS) / DAY_MS, &mut |day| {
            if day.day * DAY_MS < now {
                profile.day(day, now);
            }
        });
        // The first day may have begun before its containers did.
        if let Some(since) = history.since_ms(scope) {
            profile.span_ms = profile.span_ms.min(now.saturating_sub(since));
        }
        profile
    }

    fn hour(&mut self, params: &Params, hour: &Hour, now: u64) {
        let start = hour.hour * HOUR_MS;
        let histogram = hour.worst.as_ref().unwrap_or(&hour.all);
        let weight = self.merge(histogram);
        if hour.starved_ms as f64 > params.cpu_over * weight as f64 {
            self.starved_peak = self.starved_peak.max(hour.peak);
        }
        self.starved_ms += hour.starved_ms.min(weight);
        self.peak_of(now - start, hour.peak, 1);
        // Of an hour that began before there was anything only the time that was measured counts.
        let measured = weight.min((now - start).min(HOUR_MS));
        self.span_ms = self.span_ms.max(now.saturating_sub(start + HOUR_MS) + measured);
    }

    fn day(&mut self, day: &Day, now: u64) {
        let weight = self.merge(&day.all);
        let start = day.day * DAY_MS;
        self.peak_of(now.saturating_sub(start + DAY_MS / 2), day.peak, 24);
        let measured = weight.min((now - start).min(DAY_MS));
        self.span_ms = self.span_ms.max(now.saturating_sub(start + DAY_MS) + measured);
    }

    /// Counts the peak of hours that began so long ago.
    fn peak_of(&mut self, age_ms: u64, peak: u64, hours: u32) {
        let back = (age_ms.saturating_sub(1) / DAY_MS) as usize;
        if self.days.len() <= back {
            self.days.resize(back + 1, (0, 0));
        }
        self.days[back].0 = self.days[back].0.max(peak);
        self.days[back].1 += hours;
    }

    /// Counts the time of a histogram and returns it.
    fn merge(&mut self, histogram: &Histogram) -> u64 {
        let sum = self.time.merge(histogram);
        self.total = self.total.saturating_add(sum);
        sum
    }

    /// Nothing was measured.
    pub(super) const fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Minutes measured.
    pub(super) const fn minutes(&self) -> u64 {
        self.total.div_ceil(60_000)
    }

    /// What an answer from it rests on.
    pub(super) const fn evidence(&self) -> Evidence {
        Evidence { span_seconds: self.span_ms / 1_000, minutes: self.minutes() }
    }

    /// Days from the beginning of what is known to now.
    pub(super) fn age_days(&self) -> f64 {
        self.span_ms as f64 / DAY_MS as f64
    }

    /// The height that use did not exceed in this part of the time; `None` while empty.
    pub(super) fn quantile(&self, part: f64) -> Option<f64> {
        self.at_or_below(((self.total as f64 * part).ceil() as u64).max(1))
    }

    /// The greatest height that use reached for this long in all.
    pub(super) fn reached_for(&self, time_ms: u64) -> Option<f64> {
        self.at_or_below(self.total.saturating_sub(time_ms.saturating_sub(1)).max(1))
    }

    fn at_or_below(&self, wanted: u64) -> Option<f64> {
        // From above, because what is asked for lies there.
        let mut above = 0;
        for (bucket, weight) in self.time.downward() {
            above += weight;
            if self.total - above < wanted {
                return Some(Scheme::Octaves32.end(bucket) as f64);
            }
        }
        None
    }

    /// Time in buckets wholly above a value, and all time.
    pub(super) fn time_above(&self, value: u64) -> (u64, u64) {
        let bucket = Scheme::Octaves32.bucket(value);
        let above = self.time.downward().take_while(|(at, _)| *at > bucket).map(|(_, weight)| weight);
        (above.sum(), self.total)
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

fn window_days(params: &Params, resource: Resource) -> u64 {
    match resource {
        Resource::Cpu => params.cpu_days,
        Resource::Memory => params.memory_days,
    }
}
