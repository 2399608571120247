//! Judges requests by what was used while they were in force.

use super::Schedule;
use super::trace::Sample;
use crate::Resource;

/// CPU use above this part of the request counts as over (design document "Vertical Pod Autoscaler").
pub const CPU_FILL: f64 = 0.95;
/// The goals at whose risk rules are compared: time over for CPU, windows over for memory.
const GOAL: f64 = 0.01;
/// A step counts when it ends at most this long after the last sample.
const SLACK_MS: u64 = 1_000;
/// A step needs so many samples to be judged.
const LEAST_SAMPLES: u32 = 2;

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
    /// Steps in which use was above the request at any time.
    peaks_over: u64,
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

    fn slack_times(&self, factor: f64) -> f64 {
        1.0 - self.used / (self.requested * factor).max(f64::MIN_POSITIVE)
    }

    /// Part of the time above 95 % of the request.
    pub fn over(&self) -> f64 {
        self.over_ms as f64 / self.judged_ms.max(1) as f64
    }

    /// Part of the steps (24 h windows, by default) in which use was above the request at any time.
    pub fn oom24(&self) -> f64 {
        self.peaks_over as f64 / self.steps.max(1) as f64
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
    /// Part of all steps in which use was above the request at any time.
    pub oom24: f64,
    /// Mean change from one request to the next.
    pub churn: f64,
    /// Factor on all requests that would meet the goal of 1 % exactly, and the slack then: compares rules at equal risk.
    pub factor: f64,
    /// Median slack at that factor.
    pub iso: f64,
}

impl Summary {
    /// Of these series; `None` when nothing could be judged.
    pub fn of<'a>(resource: Resource, scores: impl IntoIterator<Item = &'a Score>) -> Option<Self> {
        let judged: Vec<&Score> = scores.into_iter().filter(|score| score.steps > 0).collect();
        let mut ratios = Ratios::default();
        let mut all = Score::default();
        for score in &judged {
            all.steps += score.steps;
            all.used += score.used;
            all.requested += score.requested;
            all.over_ms += score.over_ms;
            all.judged_ms += score.judged_ms;
            all.peaks_over += score.peaks_over;
            all.changed += score.changed;
            all.changes += score.changes;
            ratios.merge(&score.ratios);
        }
        let fill = match resource {
            Resource::Cpu => CPU_FILL,
            Resource::Memory => 1.0,
        };
        let factor = ratios.quantile(1.0 - GOAL)? / fill;
        Some(Self {
            series: judged.len(),
            steps: all.steps,
            slack: median(judged.iter().map(|score| score.slack())),
            pooled_slack: all.slack(),
            over: all.over(),
            bad: judged.iter().filter(|score| score.over() > GOAL).count() as f64 / judged.len() as f64,
            oom24: all.oom24(),
            churn: all.churn(),
            factor,
            iso: median(judged.iter().map(|score| score.slack_times(factor))),
        })
    }
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
        let bucket = ((ratio * PER_ONE) as usize).min(MOST);
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
    every_ms: u64,
    last_ms: u64,
    seen: u32,
    previous: Option<u64>,
    step: Option<Step>,
    score: Score,
}

/// A request in force.
struct Step {
    end_ms: u64,
    request: u64,
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
    pub(super) fn new(resource: Resource, schedule: &Schedule, samples: &[Sample]) -> Self {
        Self {
            resource,
            every_ms: schedule.every_ms.max(1),
            last_ms: samples.last().map_or(0, |sample| sample.time_ms),
            seen: 0,
            previous: None,
            step: None,
            score: Score::default(),
        }
    }

    /// A request comes into force.
    pub(super) fn set(&mut self, time_ms: u64, request: u64) {
        self.finish();
        let end_ms = time_ms.saturating_add(self.every_ms);
        self.step = (end_ms <= self.last_ms + SLACK_MS && self.seen >= LEAST_SAMPLES).then(|| Step {
            end_ms,
            request,
            // A hair above, so that a request made of the use itself is not over by rounding.
            most: CPU_FILL * request as f64 * (1.0 + 1e-9),
            per_request: 1.0 / request as f64,
            samples: 0,
            over_ms: 0,
            judged_ms: 0,
            used: 0.0,
            peak: 0,
        });
    }

    /// Samples under the request in force, each with the time that it stands for.
    pub(super) fn samples(&mut self, samples: impl ExactSizeIterator<Item = (Sample, u64)>) {
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
        score.peaks_over += u64::from(step.peak > step.request);
        if self.resource == Resource::Memory {
            score.ratios.add(step.peak as f64 * step.per_request, 1);
        }
        if let Some(previous) = self.previous.replace(step.request) {
            score.changed += previous.abs_diff(step.request) as f64 / previous.max(step.request) as f64;
            score.changes += 1;
        }
    }

    pub(super) fn end(mut self) -> Score {
        self.finish();
        self.score
    }
}
