//! The `vpa` rule: the mathematics of the Vertical Pod Autoscaler's recommender (kubernetes/autoscaler,
//! `vertical-pod-autoscaler/pkg/recommender`, as of release 1.7).
//!
//! CPU samples, and one memory peak per 24 h counted from the first sample, go into a histogram whose buckets grow by
//! 5 % and whose weights halve every 24 h. Target, lower and upper bound are its 90th, 50th and 95th percentile, each
//! 15 % larger; the bounds are widened while there is little history. Each step's result is cut to whole millicores or bytes
//! before the next. An OOM kill counts as a peak 20 %, at least
//! 100 MiB, above what was requested or used.
//!
//! Owned here: the estimate for one container. Not owned: caps by policy and LimitRange, which the caller applies.
//! The recommender keeps minutes for a bounded time, so that the first sample of a day's window is the first one kept; and
//! it does not tell replicas apart, so that of several in a window the greatest peak counts. Of a workload with so many
//! replicas that their minutes cannot be read in time, days and hours tell instead (`wide`).

mod buckets;
mod decaying;
mod estimator;
mod saved;
mod wide;

use evenkeel_model::narrow::f64_to_u64;
use serde::{Deserialize, Serialize};

use crate::Resource;
use crate::history::{Cause, History, Scope};
use crate::rule::{Answer, Question, Rule};
use crate::units::DAY_MS;

pub use buckets::Buckets;
pub use decaying::Decaying;
use estimator::AggregateSample;
pub use estimator::Estimator;
pub use saved::{Saved, SavedHistogram};
use wide::Wide;

/// Parameters of the rule, by default those of the recommender's flags.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VpaParams {
    /// Percentile of the target, 0 to 1 (`--target-cpu-percentile`, `--target-memory-percentile`).
    pub target: f64,
    /// Percentile of the lower bound, 0 to 1.
    pub lower: f64,
    /// Percentile of the upper bound, 0 to 1.
    pub upper: f64,
    /// Part added to all three (`--recommendation-margin-fraction`).
    pub margin: f64,
    /// Time in which the weight of a CPU sample halves, milliseconds (`--cpu-histogram-decay-half-life`).
    pub cpu_half_life_ms: u64,
    /// Time in which the weight of a memory peak halves, milliseconds (`--memory-histogram-decay-half-life`).
    pub memory_half_life_ms: u64,
    /// Length of the window of which the greatest memory use counts, milliseconds (`--memory-aggregation-interval`).
    pub memory_interval_ms: u64,
    /// How far back, milliseconds (`--memory-aggregation-interval-count` of 8 windows).
    pub window_ms: u64,
    /// Factor of an OOM kill (`--oom-bump-up-ratio`).
    pub oom_bump_ratio: f64,
    /// Least addition of an OOM kill, bytes (`--oom-min-bump-up-bytes`).
    pub oom_min_bump_bytes: u64,
    /// Least CPU request, millionths of a core (`--pod-recommendation-min-cpu-millicores`, split over a pod's containers by
    /// the caller).
    pub min_cpu_micro: u64,
    /// Least memory request, bytes (`--pod-recommendation-min-memory-mb`, likewise).
    pub min_memory_bytes: u64,
}

impl Default for VpaParams {
    fn default() -> Self {
        Self {
            target: 0.9,
            lower: 0.5,
            upper: 0.95,
            margin: 0.15,
            cpu_half_life_ms: DAY_MS,
            memory_half_life_ms: DAY_MS,
            memory_interval_ms: DAY_MS,
            window_ms: 8 * DAY_MS,
            oom_bump_ratio: 1.2,
            oom_min_bump_bytes: 100 << 20,
            min_cpu_micro: 25_000,
            min_memory_bytes: 250 << 20,
        }
    }
}

impl VpaParams {
    /// The same for one of so many containers of a pod: the least requests are a pod's, split evenly and cut to whole millicores and bytes
    /// (`GetRecommendedPodResources`, `pkg/recommender/logic/recommender.go`).
    #[must_use]
    pub fn of_pod(self, containers: usize) -> Self {
        let part = 1.0 / containers.max(1) as f64;
        let split = |least: u64| f64_to_u64(least as f64 * part);
        let min_cpu_micro = split(self.min_cpu_micro / 1_000) * 1_000;
        Self { min_cpu_micro, min_memory_bytes: split(self.min_memory_bytes), ..self }
    }

    /// What a container's past comes to, after what a checkpoint knows of it, where there is one.
    pub fn estimator(&self, question: &Question, history: &dyn History, saved: Option<&Saved>) -> Estimator {
        let new = || Estimator::new(*self, question.resource);
        let mut estimator =
            saved.map_or_else(new, |saved| Estimator::of_saved(*self, question.resource, saved));
        self.replay(&mut estimator, question, history);
        estimator
    }
}

impl Rule for VpaParams {
    fn name(&self) -> &'static str {
        "vpa"
    }

    fn recommend(&self, question: &Question, history: &dyn History) -> Answer {
        self.estimator(question, history, None).answer(question.current)
    }
}

impl VpaParams {
    fn replay(&self, estimator: &mut Estimator, question: &Question, history: &dyn History) {
        let from_ms = question.now_ms.saturating_sub(self.window_ms);
        let minutes = history.minutes(Scope::Own, from_ms / 60_000);
        let wide = match minutes.is_empty() {
            true => Wide::of(question, from_ms, history),
            false => Wide::default(),
        };
        let minutes = minutes.into_iter().map(|minute| {
            let value = match question.resource {
                Resource::Cpu => minute.mean,
                Resource::Memory => minute.peak,
            };
            AggregateSample { time_ms: minute.minute * 60_000, value, count: 1 }
        });
        let mut samples = minutes.chain(wide.samples).peekable();
        let mut take = |estimator: &mut Estimator, until_ms: u64| {
            while let Some(sample) = samples.next_if(|sample| sample.time_ms < until_ms) {
                estimator.alike(sample);
            }
        };
        if question.resource == Resource::Memory {
            for event in history.events(from_ms).into_iter().filter(|e| e.time_ms < question.now_ms) {
                // An eviction tells only that the node was short, unless the use is known; both sources do.
                let request = match event.cause {
                    Cause::OomKill => event.request,
                    Cause::Eviction => event.usage.max(event.request),
                };
                take(estimator, event.time_ms);
                estimator.oom(event.time_ms, request);
            }
        }
        take(estimator, question.now_ms);
        wide.span_ms.into_iter().for_each(|(first, last)| estimator.cover(first, last));
    }
}

#[cfg(test)]
mod tests;
