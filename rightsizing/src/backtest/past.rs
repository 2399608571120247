//! A trace's past as rules see it: hours, days and minutes of the samples before now.

use std::collections::VecDeque;

use super::trace::Sample;
use crate::Resource;
use crate::histogram::Histogram;
use crate::history::{Day, Event, History, Hour, Minute, Scope};
use crate::units::{DAY_MS, HOUR_MS};

/// Hours and days that are kept, as the recommender's store keeps at least.
const KEEP_HOURS: u64 = 9 * 24;
const KEEP_DAYS: u64 = 31;
const MINUTE_MS: u64 = 60_000;

/// The past of one series; every scope is answered from it, because a trace knows one container.
#[derive(Debug, Clone)]
pub struct Past {
    resource: Resource,
    /// Keep minutes too, which only some rules ask for.
    has_minutes: bool,
    minutes: VecDeque<Minute>,
    hours: VecDeque<Hour>,
    /// Of finished hours.
    days: VecDeque<Day>,
}

impl Past {
    /// Nothing happened yet. Minutes cost most and are kept only where asked for.
    pub const fn new(resource: Resource, has_minutes: bool) -> Self {
        Self {
            resource,
            has_minutes,
            minutes: VecDeque::new(),
            hours: VecDeque::new(),
            days: VecDeque::new(),
        }
    }

    /// Counts a sample, later than all before, that stands for so much time.
    pub fn add(&mut self, sample: Sample, weight_ms: u64) {
        let hour = sample.time_ms / HOUR_MS;
        if self.hours.back().is_none_or(|last| last.hour != hour) {
            self.next_hour(hour);
        }
        if let Some(last) = self.hours.back_mut() {
            last.all.add(sample.value, weight_ms);
            last.peak = last.peak.max(sample.value);
        }
        if self.has_minutes {
            self.add_minute(sample, weight_ms);
        }
    }

    fn next_hour(&mut self, hour: u64) {
        if let Some(ended) = self.hours.back() {
            let day = ended.hour / 24;
            if self.days.back().is_none_or(|last| last.day != day) {
                self.days.push_back(Day { day, ..Day::default() });
                let from = day.saturating_sub(KEEP_DAYS);
                while self.days.pop_front_if(|oldest| oldest.day < from).is_some() {}
            }
            if let Some(last) = self.days.back_mut() {
                merge(last, ended);
            }
        }
        let from = hour.saturating_sub(KEEP_HOURS);
        let mut spare = Histogram::new();
        while let Some(gone) = self.hours.pop_front_if(|oldest| oldest.hour < from) {
            spare = gone.all;
        }
        spare.clear();
        self.hours.push_back(Hour { hour, all: spare, ..Hour::default() });
    }

    fn add_minute(&mut self, sample: Sample, weight_ms: u64) {
        let minute = sample.time_ms / MINUTE_MS;
        if let Some(last) = self.minutes.back_mut().filter(|last| last.minute == minute) {
            let weight = last.weight_ms + weight_ms;
            let sum = u128::from(last.mean) * u128::from(last.weight_ms)
                + u128::from(sample.value) * u128::from(weight_ms);
            last.mean = (sum / u128::from(weight.max(1))) as u64;
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

fn merge(day: &mut Day, hour: &Hour) {
    day.all.merge(&hour.all);
    day.peak = day.peak.max(hour.peak);
}

impl History for Past {
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
        self.hours.range(first..).for_each(visit);
    }

    fn visit_days(&self, _: Scope, from: u64, visit: &mut dyn FnMut(&Day)) {
        let open = self.hours.back().map(|hour| hour.hour / 24);
        let ended = self.days.iter().filter(|day| day.day >= from);
        ended.clone().filter(|day| Some(day.day) != open).for_each(&mut *visit);
        // The day that goes on, with the hour that goes on.
        if let Some(hour) = self.hours.back().filter(|hour| hour.hour / 24 >= from) {
            let day = hour.hour / 24;
            let begun = self.days.back().filter(|last| last.day == day);
            let mut all = begun.cloned().unwrap_or(Day { day, ..Day::default() });
            merge(&mut all, hour);
            visit(&all);
        }
    }
}
