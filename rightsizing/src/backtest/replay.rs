//! Walks through one series: feeds the past, asks the rule, hands both to the judge.

use super::past::TracePast;
use super::score::{Judge, Score};
use super::trace::{TraceSample, TraceSeries};
use super::{Schedule, Weighted};
use crate::Resource;
use crate::named::NamedRule;
use crate::rule::{Answer, Question, Rule};
use crate::vpa::Estimator;

/// A request in force from a time on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TimedRequest {
    /// From when, milliseconds since 1970.
    pub time_ms: u64,
    /// How much, unit of the resource.
    pub request: u64,
    /// A request below this should have been raised, where the rule has bounds.
    pub lower: Option<u64>,
    /// A request above this should have been lowered, where the rule has bounds.
    pub upper: Option<u64>,
    /// Part of the time (CPU) or of the days (memory) expected above it, where the rule tells.
    pub risk: Option<f64>,
}

/// What became of one series under one rule.
#[derive(Debug, Clone, PartialEq)]
pub struct SeriesResult {
    /// Every request that was set.
    pub requests: Vec<TimedRequest>,
    /// How good they were.
    pub score: Score,
}

/// What a rule keeps of the past while walking.
enum RuleState<'a> {
    Vpa(Box<Estimator>),
    Past { past: Box<TracePast>, rule: &'a dyn Rule },
}

impl<'a> RuleState<'a> {
    fn new(named: &'a NamedRule, resource: Resource) -> Self {
        match named {
            NamedRule::Vpa(params) => Self::Vpa(Box::new(Estimator::new(*params, resource))),
            NamedRule::Goal(rule) => Self::Past { past: Box::new(TracePast::new(resource, false)), rule },
            NamedRule::Window(rule) => Self::Past { past: Box::new(TracePast::new(resource, false)), rule },
            NamedRule::Initial(rule) => Self::Past { past: Box::new(TracePast::new(resource, true)), rule },
        }
    }

    fn add(&mut self, samples: impl Iterator<Item = (TraceSample, u64)>) {
        match self {
            Self::Vpa(estimator) => {
                samples.for_each(|(sample, _)| estimator.sample(sample.time_ms, sample.value));
            }
            Self::Past { past, .. } => samples.for_each(|(sample, weight_ms)| past.add(sample, weight_ms)),
        }
    }

    fn answer(&self, question: &Question) -> Answer {
        match self {
            Self::Vpa(estimator) => estimator.answer(question.current),
            Self::Past { past, rule } => rule.recommend(question, past.as_ref()),
        }
    }
}

/// Replays one series under a rule.
pub fn replay(
    series: &TraceSeries,
    resource: Resource,
    rule: &NamedRule,
    schedule: &Schedule,
) -> SeriesResult {
    let samples = &series.samples;
    let mut memory = RuleState::new(rule, resource);
    let mut judge = Judge::new(resource, schedule, samples, rule.fill());
    let mut requests: Vec<TimedRequest> = Vec::new();
    let mut times = schedule.times(samples).peekable();
    let weighted = Weighted::new(samples);
    let mut at = 0;
    while let Some(sample) = samples.get(at) {
        while let Some(time_ms) = times.next_if(|time| *time <= sample.time_ms) {
            let previous = requests.last().map(|last| last.request);
            let question = Question { resource, now_ms: time_ms, current: previous, previous };
            let answer = memory.answer(&question);
            if let Some(request) = answer.request {
                let (lower, upper, risk) = (answer.lower, answer.upper, answer.risk_then);
                requests.push(TimedRequest { time_ms, request, lower, upper, risk });
                judge.set(time_ms, request.max(1), risk);
            }
        }
        // Until the next request is due.
        let end = match times.peek() {
            Some(due) => at + samples[at..].partition_point(|sample| sample.time_ms < *due),
            None => samples.len(),
        };
        judge.samples(weighted.range(at..end));
        memory.add(weighted.range(at..end));
        at = end;
    }
    SeriesResult { requests, score: judge.end() }
}

/// What the rule says at one time, from the samples before it.
pub fn answer_at(series: &TraceSeries, resource: Resource, rule: &NamedRule, now_ms: u64) -> Answer {
    let mut memory = RuleState::new(rule, resource);
    let end = series.samples.partition_point(|sample| sample.time_ms < now_ms);
    memory.add(Weighted::new(&series.samples).range(0..end));
    memory.answer(&Question { resource, now_ms, current: None, previous: None })
}
