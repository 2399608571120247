//! A trace's past as rules see it: hours, days and minutes of the samples before now.

use std::collections::VecDeque;

use super::trace::TraceSample;
use crate::Resource;
use crate::histogram::{BucketTally, Histogram};
use crate::history::{Day, Event, History, Hour, Minute, Scope};
use crate::units::{DAY_MS, HOUR_MS};

/// Hours and days that are kept, as the recommender's store keeps at least.
const KEEP_HOURS: u64 = 9 * 24;
const KEEP_DAYS: u64 = 31;
const MINUTE_MS: u64 = 60_000;

/// The past of one series; every scope is answered from it, because a trace knows one container.
#[derive(Debug, Clone)]
pub struct TracePast {
    resource: Resource,
    /// Keep minutes too, which only some rules ask for.
    has_minutes: bool,
    minutes: VecDeque<Minute>,
    /// Finished ones.
    hours: VecDeque<Hour>,
    days: VecDeque<Day>,
    /// What goes on: the last hour, and the finished hours of the last day.
    hour: OpenPeriod,
    day: OpenPeriod,
    /// 0 before the first sample.
    hour_ends_ms: u64,
}

/// An hour or a day that goes on; counted in a row of all buckets, which is where most of a backtest's time goes.
#[derive(Debug, Clone, Default)]
struct OpenPeriod {
    /// Hour or day since 1970; `None` before the first sample.
    number: Option<u64>,
    time: BucketTally,
    peak: u64,
}

impl OpenPeriod {
    /// Counts a finished part.
    fn merge(&mut self, part: &Self) {
        self.time.merge_tally(&part.time);
        self.peak = self.peak.max(part.peak);
    }

    /// Begins the next one.
    fn begin(&mut self, number: u64) {
        self.number = Some(number);
        self.time.clear();
        self.peak = 0;
    }
}

impl TracePast {
    /// Nothing happened yet. Minutes cost most and are kept only where asked for.
    pub fn new(resource: Resource, has_minutes: bool) -> Self {
        Self {
            resource,
            has_minutes,
            minutes: VecDeque::new(),
            hours: VecDeque::new(),
            days: VecDeque::new(),
            hour: OpenPeriod::default(),
            day: OpenPeriod::default(),
            hour_ends_ms: 0,
        }
    }

    /// Counts a sample, later than all before, that stands for so much time; until the next one, for example, so that all
    /// together are a time.
    #[inline]
    pub fn add(&mut self, sample: TraceSample, weight_ms: u64) {
        if sample.time_ms >= self.hour_ends_ms {
            self.next_hour(sample.time_ms / HOUR_MS);
        }
        self.hour.time.add(sample.value, weight_ms);
        self.hour.peak = self.hour.peak.max(sample.value);
        if self.has_minutes {
            self.add_minute(sample, weight_ms);
        }
    }

    /// Not part of what is done for every sample.
    #[inline(never)]
    fn next_hour(&mut self, hour: u64) {
        let mut spare = Histogram::new();
        let from = hour.saturating_sub(KEEP_HOURS);
        while let Some(gone) = self.hours.pop_front_if(|oldest| oldest.hour < from) {
            spare = gone.all;
        }
        if self.hour.number.is_some() {
            self.day.merge(&self.hour);
        }
        if let Some(ended) = self.hour.number.filter(|ended| *ended >= from) {
            let (all, peak) = (self.hour.time.histogram(spare), self.hour.peak);
            self.hours.push_back(Hour { hour: ended, all, peak, ..Hour::default() });
        }
        self.hour.begin(hour);
        self.hour_ends_ms = (hour + 1).saturating_mul(HOUR_MS);
        if self.day.number != Some(hour / 24) {
            self.next_day(hour / 24);
        }
    }

    fn next_day(&mut self, day: u64) {
        let from = day.saturating_sub(KEEP_DAYS);
        while self.days.pop_front_if(|oldest| oldest.day < from).is_some() {}
        if let Some(ended) = self.day.number.filter(|ended| *ended >= from) {
            let (all, peak) = (self.day.time.histogram(Histogram::new()), self.day.peak);
            self.days.push_back(Day { day: ended, all, peak, ..Day::default() });
        }
        self.day.begin(day);
    }

    fn add_minute(&mut self, sample: TraceSample, weight_ms: u64) {
        let minute = sample.time_ms / MINUTE_MS;
        if let Some(last) = self.minutes.back_mut().filter(|last| last.minute == minute) {
            let weight = last.weight_ms + weight_ms;
            let sum = u128::from(last.mean) * u128::from(last.weight_ms)
                + u128::from(sample.value) * u128::from(weight_ms);
            last.mean = u64::try_from(sum / u128::from(weight.max(1))).unwrap_or(u64::MAX);
            last.peak = last.peak.max(sample.value);
            last.weight_ms = weight;
            return;
        }
        let (mean, peak) = (sample.value, sample.value);
        self.minutes.push_back(Minute { minute, mean, peak, weight_ms });
        let from = minute.saturating_sub(KEEP_DAYS * DAY_MS / MINUTE_MS);
        while self.minutes.pop_front_if(|oldest| oldest.minute < from).is_some() {}
    }
}

impl History for TracePast {
    fn minutes(&self, _: Scope, from: u64) -> Vec<Minute> {
        let first = self.minutes.partition_point(|minute| minute.minute < from);
        self.minutes.range(first..).copied().collect()
    }

    fn hours(&self, scope: Scope, from: u64) -> Vec<Hour> {
        let mut hours = Vec::new();
        self.visit_hours(scope, from, &mut |hour| hours.push(hour.clone()));
        hours
    }

    fn days(&self, scope: Scope, from: u64) -> Vec<Day> {
        let mut days = Vec::new();
        self.visit_days(scope, from, &mut |day| days.push(day.clone()));
        for minute in self.minutes.iter().filter(|_| self.has_minutes) {
            let value = match self.resource {
                Resource::Cpu => minute.mean,
                Resource::Memory => minute.peak,
            };
            if let Ok(at) = days.binary_search_by_key(&(minute.minute * MINUTE_MS / DAY_MS), |day| day.day) {
                days[at].minutes.add(value, 1);
            }
        }
        days
    }

    fn events(&self, _: u64) -> Vec<Event> {
        Vec::new()
    }

    fn visit_hours(&self, _: Scope, from: u64, visit: &mut dyn FnMut(&Hour)) {
        let first = self.hours.partition_point(|hour| hour.hour < from);
        self.hours.range(first..).for_each(&mut *visit);
        if let Some(hour) = self.hour.number.filter(|hour| *hour >= from) {
            let all = self.hour.time.histogram(Histogram::new());
            visit(&Hour { hour, all, peak: self.hour.peak, ..Hour::default() });
        }
    }

    fn visit_days(&self, _: Scope, from: u64, visit: &mut dyn FnMut(&Day)) {
        self.days.iter().filter(|day| day.day >= from).for_each(&mut *visit);
        // The day that goes on, with the hour that goes on.
        if let Some(day) = self.day.number.filter(|day| *day >= from) {
            let mut all = self.day.time.histogram(Histogram::new());
            all.merge(&self.hour.time.histogram(Histogram::new()));
            visit(&Day { day, all, peak: self.day.peak.max(self.hour.peak), ..Day::default() });
        }
    }
}
