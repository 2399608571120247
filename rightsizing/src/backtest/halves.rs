//! Whether a choice between rules, or of a margin, holds on what it was not made from: halves of the series, and halves of
//! the time of each.
//!
//! On one half the factor is found that brings a rule's requests to the goal; the other half is judged under it.

use super::replay::SeriesResult;
use super::score::{Judge, Score, mean_slack_times};
use super::trace::TraceSeries;
use super::{Schedule, Weighted};
use crate::Resource;

/// Names of the halves; each stands beside the one it is held against.
pub const NAMES: [&str; 4] = ["odd series", "even series", "first half of time", "second half of time"];

/// How a rule did on one half.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Half {
    /// Part of the time over (CPU), or of the 24 h windows (memory), as requested.
    pub over: f64,
    /// The same with every request multiplied by the factor that meets the goal of 1 % on the other half.
    pub unseen_over: f64,
    /// Mean slack of the series with that factor.
    pub unseen_slack: f64,
}

/// A rule on every half, in the order of [`NAMES`]; `None` where a half has nothing to judge.
pub fn of(
    trace: &[TraceSeries],
    outcomes: &[SeriesResult],
    resource: Resource,
    schedule: &Schedule,
    fill: f64,
) -> Option<[Half; 4]> {
    let [mut odd, mut even, mut first, mut second]: [Vec<Score>; 4] = Default::default();
    for (at, (series, outcome)) in trace.iter().zip(outcomes).enumerate() {
        let of_series = if at % 2 == 0 { &mut odd } else { &mut even };
        of_series.push(outcome.score.clone());
        let [early, late] = in_time(series, outcome, resource, schedule, fill);
        first.push(early);
        second.push(late);
    }
    let [odd, even] = against([&odd, &even], resource)?;
    let [first, second] = against([&first, &second], resource)?;
    Some([odd, even, first, second])
}

/// Each of two halves under the factor of the other.
fn against(halves: [&[Score]; 2], resource: Resource) -> Option<[Half; 2]> {
    let sums = halves.map(|scores| {
        let mut sum = Score::default();
        scores.iter().for_each(|score| sum.merge(score));
        sum
    });
    let half = |at: usize| {
        let factor = sums[1 - at].factor(resource)?;
        Some(Half {
            over: sums[at].over_times(1.0, resource)?,
            unseen_over: sums[at].over_times(factor, resource)?,
            unseen_slack: mean_slack_times(halves[at], factor),
        })
    };
    Some([half(0)?, half(1)?])
}

/// Judges the requests of the first half of a series' days, and those of the second, as if there were no others.
fn in_time(
    series: &TraceSeries,
    outcome: &SeriesResult,
    resource: Resource,
    schedule: &Schedule,
    fill: f64,
) -> [Score; 2] {
    let (samples, requests) = (&series.samples, &outcome.requests);
    let middle = requests.len() / 2;
    let weighted = Weighted::new(samples);
    let place = |time_ms: u64| samples.partition_point(|sample| sample.time_ms < time_ms);
    [0..middle, middle..requests.len()].map(|range| {
        let mut judge = Judge::new(resource, schedule, samples, fill);
        let start = requests.get(range.start).map_or(0, |request| place(request.time_ms));
        judge.samples(weighted.range(0..start));
        for at in range {
            let request = &requests[at];
            let end = requests.get(at + 1).map_or(samples.len(), |next| place(next.time_ms));
            judge.set(request.time_ms, request.request.max(1), request.risk);
            judge.samples(weighted.range(place(request.time_ms)..end));
        }
        judge.end()
    })
}
