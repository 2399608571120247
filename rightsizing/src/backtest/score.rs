//! Judges requests by what was used while they were in force.

use super::Schedule;
use super::calibration::Calibration;
use super::trace::TraceSample;
use crate::Resource;
use crate::units::{DAY_MS, HOUR_MS};
use evenkeel_model::narrow::f64_to_usize;

/// CPU use above this part of the request counts as over (design document "Vertical Pod Autoscaler"); a rule with a threshold
/// of its own is judged by that.
pub const CPU_FILL: f64 = 0.95;
/// The goals at whose risk rules are compared: time over for CPU, windows over for memory.
const GOAL: f64 = 0.01;
/// A step counts when it ends at most this long after the last sample.
const SLACK_MS: u64 = 1_000;
/// A step needs so many samples to be judged.
const LEAST_SAMPLES: u32 = 2;
/// A day is over for so long at most where it is counted capped: one jump of one series decides a small set otherwise.
const CAPPED_MS: u64 = HOUR_MS;
/// A request changes when it moves by more than this part.
const CHANGED: f64 = 0.01;

/// How good the requests of a series were, and what is needed to sum several up.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Score {
    /// Steps judged.
    pub steps: u64,
    /// Sum over steps of mean use, and of requests.
    used: f64,
    requested: f64,
    /// Time over, and all time, milliseconds.
    over_ms: u64,
    judged_ms: u64,
    /// The same with at most an hour of each day.
    capped_ms: u64,
    /// Days (24 hours from the first request on) judged, and those in which use was above the request at any time.
    days: u64,
    peaks_over: u64,
    /// Requests that moved by more than 1 %.
    moved: u64,
    /// What rules expected, and what came.
    calibration: Calibration,
    /// Sum of relative changes from one step to the next, and how many there were.
    changed: f64,
    changes: u64,
    /// Use by its ratio to the request (CPU: time; memory: the peak of each step).
    ratios: Ratios,
}

impl Score {
    /// Part of the requests that was not used.
    pub fn slack(&self) -> f64 {
        1.0 - self.used / self.requested.max(f64::MIN_POSITIVE)
    }

    /// Sums another series up with this one.
    pub(super) fn merge(&mut self, other: &Self) {
        self.steps += other.steps;
        self.used += other.used;
        self.requested += other.requested;
        self.over_ms += other.over_ms;
        self.judged_ms += other.judged_ms;
        self.capped_ms += other.capped_ms;
        self.days += other.days;
        self.peaks_over += other.peaks_over;
        self.moved += other.moved;
        self.changed += other.changed;
        self.changes += other.changes;
        self.calibration.merge(&other.calibration);
        self.ratios.merge(&other.ratios);
    }

    /// The factor on all requests that would meet the goal of 1 % exactly; `None` when nothing was judged.
    pub(super) fn factor(&self, resource: Resource) -> Option<f64> {
        let fill = match resource {
            Resource::Cpu => CPU_FILL,
            Resource::Memory => 1.0,
        };
        Some(self.ratios.quantile(1.0 - GOAL)? / fill)
    }

    /// Part of the time (CPU, above 95 %) or of the days (memory) over with every request multiplied by a factor.
    pub(super) fn over_times(&self, factor: f64, resource: Resource) -> Option<f64> {
        let fill = match resource {
            Resource::Cpu => CPU_FILL,
            Resource::Memory => 1.0,
        };
        self.ratios.above(fill * factor)
    }

    pub(super) fn slack_times(&self, factor: f64) -> f64 {
        1.0 - self.used / (self.requested * factor).max(f64::MIN_POSITIVE)
    }

    /// Mean of what was requested and not used, unit of the resource.
    pub fn unused(&self) -> f64 {
        (self.requested - self.used) / self.steps.max(1) as f64
    }

    /// Part of the time above 95 % of the request.
    pub fn over(&self) -> f64 {
        self.over_ms as f64 / self.judged_ms.max(1) as f64
    }

    /// Part of the time over, of which a day counts as an hour at most.
    pub fn capped_over(&self) -> f64 {
        self.capped_ms as f64 / self.judged_ms.max(1) as f64
    }

    /// Part of the 24 h windows in which use was above the request at any time.
    pub fn oom24(&self) -> f64 {
        self.peaks_over as f64 / self.days.max(1) as f64
    }

    /// How often a day the request moved by more than 1 %.
    pub fn changes_a_day(&self) -> f64 {
        self.moved as f64 * DAY_MS as f64 / self.judged_ms.max(1) as f64
    }

    /// What the rule expected, and what came.
    pub const fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Mean change from one request to the next, as a part of the greater.
    pub fn churn(&self) -> f64 {
        self.changed / self.changes.max(1) as f64
    }
}

/// How good the requests of all series were.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Series judged.
    pub series: usize,
    /// Steps judged.
    pub steps: u64,
    /// Median over series of the part of the requests that was not used.
    pub slack: f64,
    /// The same of all requests together.
    pub pooled_slack: f64,
    /// Part of all time above 95 % of the request.
    pub over: f64,
    /// Part of the series that were over for more than 1 % of their time.
    pub bad: f64,
    /// The same with at most an hour of each day of each series.
    pub capped_over: f64,
    /// How often a day a request moved by more than 1 %.
    pub changes_a_day: f64,
    /// What the rule expected, and what came.
    pub calibration: Calibration,
    /// Part of all 24 h windows in which use was above the request at any time.
    pub oom24: f64,
    /// Mean change from one request to the next.
    pub churn: f64,
    /// Means of what was requested and used, summed over the series, unit of the resource.
    pub requested: f64,
    /// See `requested`.
    pub used: f64,
    /// Factor on all requests that would meet the goal of 1 % exactly, and the slack then: compares rules at equal risk.
    pub factor: f64,
    /// Median slack at that factor.
    pub iso: f64,
}

impl Summary {
    /// Of these series; `None` when nothing could be judged.
    pub fn of<'a>(resource: Resource, scores: impl IntoIterator<Item = &'a Score>) -> Option<Self> {
        let judged: Vec<&Score> = scores.into_iter().filter(|score| score.steps > 0).collect();
        let mut all = Score::default();
        judged.iter().for_each(|score| all.merge(score));
        let factor = all.factor(resource)?;
        Some(Self {
            series: judged.len(),
            steps: all.steps,
            slack: median(judged.iter().map(|score| score.slack())),
            pooled_slack: all.slack(),
            over: all.over(),
            bad: judged.iter().filter(|score| score.over() > GOAL).count() as f64 / judged.len() as f64,
            capped_over: all.capped_over(),
            changes_a_day: all.changes_a_day(),
            calibration: all.calibration,
            oom24: all.oom24(),
            churn: all.churn(),
            requested: judged.iter().map(|score| score.requested / score.steps as f64).sum(),
            used: judged.iter().map(|score| score.used / score.steps as f64).sum(),
            factor,
            iso: median(judged.iter().map(|score| score.slack_times(factor))),
        })
    }
}

/// Mean slack over the series that were judged, with every request multiplied by a factor.
pub(super) fn mean_slack_times(scores: &[Score], factor: f64) -> f64 {
    let judged = scores.iter().filter(|score| score.steps > 0);
    let (sum, count) = judged.fold((0.0, 0.0), |(sum, n), score| (sum + score.slack_times(factor), n + 1.0));
    sum / f64::max(count, 1.0)
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().saturating_sub(1) / 2, values.len() / 2);
    values.get(low).zip(values.get(high)).map_or(0.0, |(low, high)| f64::midpoint(*low, *high))
}

/// Weight by ratio of use to request, in buckets a thousandth wide up to twenty times the request.
#[derive(Debug, Clone, PartialEq, Default)]
struct Ratios {
    weights: Vec<u64>,
}

/// Buckets for one.
const PER_ONE: f64 = 1_000.0;
/// The greatest ratio told apart.
const MOST: usize = 20_000;

impl Ratios {
    fn add(&mut self, ratio: f64, weight: u64) {
        let bucket = f64_to_usize(ratio * PER_ONE).min(MOST);
        if bucket >= self.weights.len() {
            self.weights.resize(bucket + 1, 0);
        }
        self.weights[bucket] += weight;
    }

    fn merge(&mut self, other: &Self) {
        if self.weights.len() < other.weights.len() {
            self.weights.resize(other.weights.len(), 0);
        }
        self.weights.iter_mut().zip(&other.weights).for_each(|(mine, theirs)| *mine += theirs);
    }

    /// The part of the weight in buckets above a ratio; `None` while empty.
    fn above(&self, ratio: f64) -> Option<f64> {
        let total: u64 = self.weights.iter().sum();
        let above: u64 = self.weights.iter().skip(f64_to_usize(ratio * PER_ONE) + 1).sum();
        (total > 0).then(|| above as f64 / total as f64)
    }

    fn quantile(&self, part: f64) -> Option<f64> {
        let total: u64 = self.weights.iter().sum();
        let wanted = (total as f64 * part).ceil();
        let mut seen = 0;
        let at = self.weights.iter().position(|weight| {
            seen += weight;
            seen as f64 >= wanted
        })?;
        (total > 0).then(|| (at as f64 + 0.5) / PER_ONE)
    }
}

/// Judges one series while it is walked through.
pub(super) struct Judge {
    resource: Resource,
    fill: f64,
    every_ms: u64,
    last_ms: u64,
    seen: u32,
    previous: Option<u64>,
    /// When the first request came into force.
    first_ms: Option<u64>,
    day: Day,
    step: Option<RequestPeriod>,
    score: Score,
}

/// The 24 h window that goes on.
#[derive(Default)]
struct Day {
    number: u64,
    over_ms: u64,
    judged_ms: u64,
    /// Greatest use as a part of the request in force.
    ratio: f64,
    /// The part of such days that its first request was expected to be exceeded in, where the rule told.
    expected: Option<f64>,
}

/// A request in force.
struct RequestPeriod {
    end_ms: u64,
    request: u64,
    risk: Option<f64>,
    /// CPU use above this is over.
    most: f64,
    per_request: f64,
    samples: u32,
    over_ms: u64,
    judged_ms: u64,
    used: f64,
    peak: u64,
}

impl Judge {
    /// CPU use above `fill` of the request is over.
    pub(super) fn new(resource: Resource, schedule: &Schedule, samples: &[TraceSample], fill: f64) -> Self {
        Self {
            resource,
            fill,
            every_ms: schedule.every_ms.max(1),
            last_ms: samples.last().map_or(0, |sample| sample.time_ms),
            seen: 0,
            previous: None,
            first_ms: None,
            day: Day::default(),
            step: None,
            score: Score::default(),
        }
    }

    /// A request comes into force.
    pub(super) fn set(&mut self, time_ms: u64, request: u64, risk: Option<f64>) {
        self.finish();
        let number = (time_ms - *self.first_ms.get_or_insert(time_ms)) / DAY_MS;
        if number != self.day.number {
            self.finish_day();
            self.day.number = number;
        }
        let end_ms = time_ms.saturating_add(self.every_ms);
        self.step =
            (end_ms <= self.last_ms + SLACK_MS && self.seen >= LEAST_SAMPLES).then(|| RequestPeriod {
                end_ms,
                request,
                risk,
                // A hair above, so that a request made of the use itself is not over by rounding.
                most: self.fill * request as f64 * (1.0 + 1e-9),
                per_request: 1.0 / request as f64,
                samples: 0,
                over_ms: 0,
                judged_ms: 0,
                used: 0.0,
                peak: 0,
            });
    }

    /// Samples under the request in force, each with the time that it stands for.
    pub(super) fn samples(&mut self, samples: impl ExactSizeIterator<Item = (TraceSample, u64)>) {
        self.seen = self.seen.saturating_add(u32::try_from(samples.len()).unwrap_or(u32::MAX));
        let Some(step) = &mut self.step else { return };
        let mut ratios = (self.resource == Resource::Cpu).then_some(&mut self.score.ratios);
        for (sample, weight_ms) in samples.take_while(|(sample, _)| sample.time_ms < step.end_ms) {
            let value = sample.value as f64;
            step.samples += 1;
            step.judged_ms += weight_ms;
            step.used += value * weight_ms as f64;
            step.peak = step.peak.max(sample.value);
            if value > step.most {
                step.over_ms += weight_ms;
            }
            if let Some(ratios) = &mut ratios {
                ratios.add(value * step.per_request, weight_ms);
            }
        }
    }

    fn finish(&mut self) {
        let Some(step) = self.step.take().filter(|step| step.samples >= LEAST_SAMPLES) else { return };
        let score = &mut self.score;
        score.steps += 1;
        score.used += step.used / step.judged_ms.max(1) as f64;
        score.requested += step.request as f64;
        score.over_ms += step.over_ms;
        score.judged_ms += step.judged_ms;
        let ratio = step.peak as f64 * step.per_request;
        self.day.over_ms += step.over_ms;
        self.day.judged_ms += step.judged_ms;
        self.day.ratio = self.day.ratio.max(ratio);
        if let Some(risk) = step.risk {
            self.day.expected.get_or_insert(risk);
            if self.resource == Resource::Cpu {
                score.calibration.count(risk, step.over_ms, step.judged_ms);
            }
        }
        if let Some(previous) = self.previous.replace(step.request) {
            let change = previous.abs_diff(step.request) as f64 / previous.max(step.request) as f64;
            score.changed += change;
            score.changes += 1;
            score.moved += u64::from(change > CHANGED);
        }
    }

    fn finish_day(&mut self) {
        let day = std::mem::take(&mut self.day);
        if day.judged_ms == 0 {
            return;
        }
        let score = &mut self.score;
        score.days += 1;
        score.capped_ms += day.over_ms.min(CAPPED_MS);
        score.peaks_over += u64::from(day.ratio > 1.0);
        if self.resource == Resource::Memory {
            score.ratios.add(day.ratio, 1);
            // A part of the days is expected, however often in a day requests are set.
            if let Some(expected) = day.expected {
                score.calibration.count(expected, u64::from(day.ratio > 1.0), 1);
            }
        }
    }

    pub(super) fn end(mut self) -> Score {
        self.finish();
        self.finish_day();
        self.score
    }
}
