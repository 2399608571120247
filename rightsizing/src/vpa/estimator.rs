//! One container's samples, folded as they arrive into what the Vertical Pod Autoscaler would keep of them
//! (`pkg/recommender/model/container.go`), and the target and bounds it would make of that (`logic/estimator.go`).

use super::VpaParams;
use super::buckets::Buckets;
use super::decaying::Decaying;
use super::saved::Saved;
use crate::Resource;
use crate::rule::Answer;
use crate::units::{MICROS_A_CORE, MICROS_A_MILLICORE};
use evenkeel_model::narrow::f64_to_u64;

/// Weight of every sample (`minSampleWeight`); memory peaks weigh 1.
const CPU_WEIGHT: f64 = 0.1;
const PEAK_WEIGHT: f64 = 1.0;

/// (Multiplier, exponent) of the confidence in the bounds: `(1 + multiplier / confidence) ^ exponent`.
const LOWER_CONFIDENCE: (f64, f64) = (0.001, -2.0);
const UPPER_CONFIDENCE: (f64, f64) = (1.0, 1.0);

/// Histograms count CPU in cores, amounts in thousandths of one.
const MILLICORES_A_CORE: f64 = 1_000.0;

/// The greatest amount there is, in thousandths of a core or bytes (`MaxResourceAmount`, `pkg/recommender/model/types.go`).
const MOST: f64 = 1e14;

/// Confidence 1 is one interval of one sample a minute.
const CONFIDENCE_INTERVAL_MS: f64 = 86_400_000.0;
const CONFIDENCE_SAMPLES: f64 = 1_440.0;

/// Samples of one resource of one container, folded.
#[derive(Debug, Clone)]
pub struct Estimator {
    params: VpaParams,
    resource: Resource,
    histogram: Decaying,
    samples: u64,
    span_ms: Option<(u64, u64)>,
    window: PeakWindow,
}

/// Samples of the same use and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AggregateSample {
    pub(super) time_ms: u64,
    /// In the unit of the resource.
    pub(super) value: u64,
    pub(super) count: u64,
}

/// The day of memory whose peak is being looked for.
#[derive(Debug, Clone, Copy, Default)]
struct PeakWindow {
    end_ms: Option<u64>,
    usage_peak: f64,
    oom_peak: f64,
}

impl Estimator {
    /// One that has seen nothing.
    pub fn new(params: VpaParams, resource: Resource) -> Self {
        let histogram = Decaying::new(Buckets::of(resource), half_life(&params, resource));
        Self { params, resource, histogram, samples: 0, span_ms: None, window: PeakWindow::default() }
    }

    /// One that goes on from a checkpoint.
    pub fn of_saved(params: VpaParams, resource: Resource, saved: &Saved) -> Self {
        let histogram =
            Decaying::of_saved(Buckets::of(resource), half_life(&params, resource), &saved.histogram);
        let (samples, span_ms) = (saved.samples, saved.span_ms);
        Self { params, resource, histogram, samples, span_ms, window: PeakWindow::default() }
    }

    /// What a checkpoint of this time keeps of it: the peak of a window that is not over is left out, as it may be taken out again.
    pub fn saved(&self, now_ms: u64) -> Saved {
        let mut histogram = self.histogram.clone();
        if let Some(end) = self.window.end_ms.filter(|end| now_ms < *end) {
            histogram.subtract(self.window.usage_peak.max(self.window.oom_peak), PEAK_WEIGHT, end);
        }
        Saved { histogram: histogram.saved(), span_ms: self.span_ms, samples: self.samples }
    }

    /// Takes in what another container of the same name has seen, both finished.
    pub fn merge(&mut self, other: &Self) {
        self.histogram.merge(&other.histogram);
        self.samples += other.samples;
        other.span_ms.into_iter().for_each(|(first, last)| self.cover(first, last));
    }

    /// Counts a sample: its start and the use in the unit of the resource. What is older than the newest is dropped.
    pub fn sample(&mut self, time_ms: u64, value: u64) {
        self.alike(AggregateSample { time_ms, value, count: 1 });
    }

    /// Counts samples of the same use and time.
    pub(super) fn alike(&mut self, AggregateSample { time_ms, value, count }: AggregateSample) {
        let newest = self.span_ms.map(|span| span.1);
        if newest.is_some_and(|newest| time_ms < newest) {
            return;
        }
        match self.resource {
            Resource::Cpu => {
                self.histogram.add(value as f64 / MICROS_A_CORE, CPU_WEIGHT * count as f64, time_ms);
            }
            Resource::Memory => self.peak(time_ms, value as f64, false),
        }
        self.samples += count;
        self.cover(time_ms, time_ms);
    }

    /// Counts a time as one from which there are samples.
    pub(super) fn cover(&mut self, first: u64, last: u64) {
        let seen = self.span_ms.unwrap_or((first, last));
        self.span_ms = Some((seen.0.min(first), seen.1.max(last)));
    }

    /// Counts an OOM kill with the request at that time: as a sample a fifth or 100 MiB above the greater of the request
    /// and the window's greatest use. An event from before the last window is dropped.
    pub fn oom(&mut self, time_ms: u64, request: Option<u64>) {
        let newest = self.span_ms.map_or(0, |span| span.1);
        if time_ms.saturating_add(self.params.memory_interval_ms) < newest {
            return;
        }
        let used = (request.unwrap_or(0) as f64).max(self.window.usage_peak);
        let bumped = (used + self.params.oom_min_bump_bytes as f64).max(used * self.params.oom_bump_ratio);
        self.peak(time_ms, bumped, true);
    }

    fn peak(&mut self, time_ms: u64, value: f64, is_oom: bool) {
        let end = self.window.end_ms.unwrap_or(time_ms);
        if time_ms < end {
            let old = self.window.usage_peak.max(self.window.oom_peak);
            if old == 0.0 || value <= old {
                return;
            }
            self.histogram.subtract(old, PEAK_WEIGHT, end);
            self.window.end_ms = Some(end);
        } else {
            let interval = self.params.memory_interval_ms.max(1);
            let end = end + ((time_ms - end) / interval + 1) * interval;
            self.window = PeakWindow { end_ms: Some(end), ..PeakWindow::default() };
        }
        self.histogram.add(value, PEAK_WEIGHT, self.window.end_ms.unwrap_or(time_ms));
        if is_oom {
            self.window.oom_peak = value;
        } else {
            self.window.usage_peak = value;
        }
    }

    /// The lesser of the days between first and last sample and the samples in days of one a minute.
    pub fn confidence(&self) -> f64 {
        let span = self.span_ms.map_or(0, |(first, last)| last - first);
        (span as f64 / CONFIDENCE_INTERVAL_MS).min(self.samples as f64 / CONFIDENCE_SAMPLES)
    }

    /// Target and bounds now.
    pub fn answer(&self, current: Option<u64>) -> Answer {
        if self.histogram.is_empty() {
            return Answer::none();
        }
        let confidence = self.confidence();
        let widened = |(multiplier, exponent): (f64, f64)| (1.0 + multiplier / confidence).powf(exponent);
        // Without any confidence the bounds are the least there is and infinite.
        let is_sure = confidence > 0.0;
        let request = self.at(self.params.target, 1.0);
        let lower = self.at(self.params.lower, if is_sure { widened(LOWER_CONFIDENCE) } else { 0.0 });
        let risk = |request: u64| self.histogram.part_above(self.in_buckets(request));
        Answer {
            request: Some(request),
            lower: Some(lower),
            upper: is_sure.then(|| self.at(self.params.upper, widened(UPPER_CONFIDENCE))),
            tier: "own".into(),
            samples: self.samples,
            span_seconds: self.span_ms.map_or(0, |(first, last)| (last - first) / 1_000 + 60),
            confidence: confidence.min(1.0),
            risk_now: current.and_then(risk),
            risk_then: risk(request),
            notes: Vec::new(),
        }
    }

    /// A percentile, with the margin, widened, within the least. Each step ends in whole millicores or bytes, as each of
    /// upstream's estimators returns a `ResourceAmount`.
    fn at(&self, percentile: f64, factor: f64) -> u64 {
        let (units, size, least) = match self.resource {
            Resource::Cpu => (MILLICORES_A_CORE, MICROS_A_MILLICORE, self.params.min_cpu_micro),
            Resource::Memory => (1.0, 1, self.params.min_memory_bytes),
        };
        let base = cut(self.histogram.percentile(percentile) * units);
        let with_margin = base + cut(base * self.params.margin);
        f64_to_u64(cut(with_margin * factor)).saturating_mul(size).max(least)
    }

    fn in_buckets(&self, value: u64) -> f64 {
        match self.resource {
            Resource::Cpu => value as f64 / MICROS_A_CORE,
            Resource::Memory => value as f64,
        }
    }
}

fn half_life(params: &VpaParams, resource: Resource) -> u64 {
    match resource {
        Resource::Cpu => params.cpu_half_life_ms,
        Resource::Memory => params.memory_half_life_ms,
    }
}

/// What is left in whole units (`resourceAmountFromFloat`).
fn cut(amount: f64) -> f64 {
    amount.clamp(0.0, MOST).trunc()
}
