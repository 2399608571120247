//! Backtests: a request is set at every step from what lies before it, and judged by what comes after.
//!
//! `trace` reads CSV, `past` shows rules the part before now, `replay` walks through a series, `score` judges,
//! `calibration` holds what was expected against what came, `paired` one rule against another, `halves` one half of a trace
//! against the other, `by_hour` sums requests by the hour of the day, `foretold` holds forecasts against what came, `svg`
//! draws and `html` makes a report. Requests are set at each series' first sample plus warm-up, and then every step. A series
//! shorter than the warm-up and three days warms up for half of its whole days, at least one.

pub mod by_hour;
pub mod calibration;
pub mod foretold;
pub mod halves;
pub mod html;
mod number;
pub mod paired;
pub mod past;
pub mod replay;
pub mod score;
pub mod svg;
pub mod trace;

#[cfg(test)]
mod tests;

use std::ops::Range;

use trace::TraceSample;

use crate::units::DAY_MS;

/// When requests are set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// From the first sample to the first request, milliseconds.
    pub warmup_ms: u64,
    /// From one request to the next, milliseconds, at least one.
    pub every_ms: u64,
    /// From the first sample to the last request, milliseconds; `None` is to the end.
    pub until_ms: Option<u64>,
}

impl Default for Schedule {
    /// A week, then daily.
    fn default() -> Self {
        Self { warmup_ms: 7 * DAY_MS, every_ms: DAY_MS, until_ms: None }
    }
}

impl Schedule {
    /// Times at which requests are set for these samples.
    pub fn times(&self, samples: &[TraceSample]) -> impl Iterator<Item = u64> + use<> {
        let first = samples.first().map_or(0, |sample| sample.time_ms);
        let last = samples.last().map_or(0, |sample| sample.time_ms);
        let span = last - first;
        let warmup = if span < self.warmup_ms.saturating_add(3 * DAY_MS) {
            self.warmup_ms.min((span / 2 / DAY_MS).max(1) * DAY_MS)
        } else {
            self.warmup_ms
        };
        let end = self.until_ms.map_or(u64::MAX, |until| first.saturating_add(until));
        let every = self.every_ms.max(1);
        let start = first.saturating_add(warmup);
        let time = move |k: u64| start.checked_add(k.checked_mul(every)?);
        (0..).map_while(time).take_while(move |time| *time <= last && *time < end)
    }
}

/// Samples with the time that each stands for: until the next one, at most the usual distance, so that a gap is not
/// filled.
#[derive(Debug, Clone, Copy)]
pub struct Weighted<'a> {
    samples: &'a [TraceSample],
    usual_ms: u64,
}

impl<'a> Weighted<'a> {
    /// Of a series.
    pub fn new(samples: &'a [TraceSample]) -> Self {
        Self { samples, usual_ms: usual_distance(samples) }
    }

    /// Those at these places of the series.
    pub fn range(self, places: Range<usize>) -> impl ExactSizeIterator<Item = (TraceSample, u64)> {
        places.map(move |at| {
            let sample = self.samples[at];
            let next = self.samples.get(at + 1).map(|next| next.time_ms - sample.time_ms);
            (sample, next.map_or(self.usual_ms, |distance| distance.min(self.usual_ms)))
        })
    }
}

/// Samples whose distances tell the usual one.
const DISTANCES: usize = 1_000;

/// The median distance of the first samples; a minute where there is one.
fn usual_distance(samples: &[TraceSample]) -> u64 {
    let mut distances: Vec<u64> =
        samples.windows(2).take(DISTANCES).map(|pair| pair[1].time_ms - pair[0].time_ms).collect();
    let middle = distances.len() / 2;
    if distances.is_empty() { 60_000 } else { *distances.select_nth_unstable(middle).1 }
}
