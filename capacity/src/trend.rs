//! How a count goes over time, and when it is used up.
//!
//! The slope is the median of the slopes between all pairs of answers (Theil 1950, Sen 1968): a short outage or a burst
//! of jobs does not turn it. Not owned: where answers are kept, and who is told.

use serde::Serialize;

/// Most answers that are compared pair by pair; of more, so many evenly spaced ones and always the last.
const COMPARED: usize = 512;
/// Seconds of a day.
const DAY_SECONDS: f64 = 86_400.0;

/// How a count goes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trend {
    /// The last answer.
    pub latest: u64,
    /// How many more (or, below 0, fewer) fit with each day.
    pub per_day: f64,
    /// Days until none fits, counted from the last answer; nothing when the count does not fall.
    pub days_to_zero: Option<f64>,
    /// Time between the first and the last answer, seconds.
    pub span_seconds: f64,
}

/// The trend of answers, each a time in seconds and a count; `None` with fewer than two different times.
pub fn trend(answers: &[(f64, u64)]) -> Option<Trend> {
    let mut answers: Vec<(f64, u64)> = answers.iter().copied().filter(|(time, _)| time.is_finite()).collect();
    answers.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ((first, _), (last, latest)) = (*answers.first()?, *answers.last()?);
    let compared = thinned(&answers);
    let mut slopes: Vec<f64> = Vec::with_capacity(compared.len() * compared.len().saturating_sub(1) / 2);
    for (at, (from, before)) in compared.iter().enumerate() {
        for (to, after) in &compared[at + 1..] {
            if to > from {
                slopes.push((*after as f64 - *before as f64) / (to - from));
            }
        }
    }
    let per_day = median(&mut slopes)? * DAY_SECONDS;
    let days_to_zero = (latest == 0).then_some(0.0).or((per_day < 0.0).then(|| latest as f64 / -per_day));
    Some(Trend { latest, per_day, days_to_zero, span_seconds: last - first })
}

fn thinned(answers: &[(f64, u64)]) -> Vec<(f64, u64)> {
    if answers.len() <= COMPARED {
        return answers.to_vec();
    }
    (0..COMPARED).map(|at| answers[at * (answers.len() - 1) / (COMPARED - 1)]).collect()
}

fn median(all: &mut [f64]) -> Option<f64> {
    all.sort_by(f64::total_cmp);
    let upper = *all.get(all.len() / 2)?;
    let lower = all[(all.len() - 1) / 2];
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answers: &[(f64, u64)], per_day: f64, days: Option<f64>) {
        let got = trend(answers).unwrap();
        assert!((got.per_day - per_day).abs() < 1e-9, "{got:?}");
        assert_eq!(got.days_to_zero, days);
    }

    #[test]
    fn a_count_that_falls_is_used_up_one_day() {
        let day = |n: u64| n as f64 * DAY_SECONDS;
        check(&[(day(0), 20), (day(1), 16), (day(2), 12)], -4.0, Some(3.0));
        // In any order, and one day of an outage does not turn it.
        check(&[(day(2), 12), (day(0), 20), (day(1), 16), (day(4), 4), (day(3), 90)], -4.0, Some(1.0));
        check(&[(day(0), 3), (day(1), 5)], 2.0, None);
        check(&[(day(0), 3), (day(1), 0)], -3.0, Some(0.0));
        check(&[(day(0), 7), (day(9), 7)], 0.0, None);
    }

    #[test]
    fn no_trend_without_two_times() {
        assert_eq!(trend(&[]), None);
        assert_eq!(trend(&[(5.0, 1)]), None);
        assert_eq!(trend(&[(5.0, 1), (5.0, 3), (f64::NAN, 2)]), None);
    }

    #[test]
    fn of_very_many_answers_evenly_spaced_ones_are_compared() {
        let answers: Vec<(f64, u64)> = (0..20_000).map(|n| (n as f64 * 60.0, 20_000 - n)).collect();
        let got = trend(&answers).unwrap();
        assert!((got.per_day + 1440.0).abs() < 1e-6 && got.latest == 1, "{got:?}");
    }
}
