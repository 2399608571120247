//! What the webhook did, as metrics in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the times of answers, thousandths of a second.
const BOUNDS_MS: [u64; 9] = [1, 2, 5, 10, 20, 50, 100, 500, 1000];

/// What became of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Requests were set.
    Set,
    /// They were told in an annotation, and not set.
    Told,
    /// Nothing was to be set, or nothing is known.
    Nothing,
    /// It is not for us: its namespace is left out, it opted out, or it is no new pod.
    LeftAlone,
    /// The recommender gave no answer, and none was kept.
    NoAnswer,
    /// What was sent is no review.
    Rubbish,
}

const OUTCOMES: [(Outcome, &str); 6] = [
    (Outcome::Set, "set"),
    (Outcome::Told, "told"),
    (Outcome::Nothing, "nothing"),
    (Outcome::LeftAlone, "left-alone"),
    (Outcome::NoAnswer, "no-answer"),
    (Outcome::Rubbish, "rubbish"),
];

/// Counters since the start.
#[derive(Debug, Default)]
pub struct Counts {
    outcomes: [AtomicU64; OUTCOMES.len()],
    kept: AtomicU64,
    within: [AtomicU64; BOUNDS_MS.len() + 1],
    usec: AtomicU64,
}

impl Counts {
    /// One review was answered.
    pub fn answered(&self, outcome: Outcome, took: Duration) {
        if let Some(at) = OUTCOMES.iter().position(|(of, _)| *of == outcome) {
            self.outcomes[at].fetch_add(1, Ordering::Relaxed);
        }
        let usec = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_MS.iter().position(|bound| usec <= bound * 1000).unwrap_or(BOUNDS_MS.len());
        self.within[at].fetch_add(1, Ordering::Relaxed);
        self.usec.fetch_add(usec, Ordering::Relaxed);
    }

    /// An answer that was kept was given, because the recommender gave none.
    pub fn kept(&self) {
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something came out.
    #[must_use]
    pub fn of(&self, outcome: Outcome) -> u64 {
        let at = OUTCOMES.iter().position(|(of, _)| *of == outcome);
        at.map_or(0, |at| self.outcomes[at].load(Ordering::Relaxed))
    }

    /// All of them.
    #[must_use]
    pub fn text(&self) -> String {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut out = String::new();
        let mut line = |text: String| {
            // Writing to text does not fail.
            let _written = writeln!(out, "{text}");
        };
        line(
            "# HELP evenkeel_webhook_reviews_total Admission reviews answered, by what became of the pod."
                .into(),
        );
        line("# TYPE evenkeel_webhook_reviews_total counter".into());
        for ((_, word), count) in OUTCOMES.iter().zip(&self.outcomes) {
            line(format!("evenkeel_webhook_reviews_total{{outcome=\"{word}\"}} {}", read(count)));
        }
        line("# HELP evenkeel_webhook_kept_total Reviews answered by what was kept, the recommender giving no answer.".into());
        line("# TYPE evenkeel_webhook_kept_total counter".into());
        line(format!("evenkeel_webhook_kept_total {}", read(&self.kept)));
        line("# HELP evenkeel_webhook_review_seconds Time from a review to its answer.".into());
        line("# TYPE evenkeel_webhook_review_seconds histogram".into());
        let mut sum = 0;
        let bounds = BOUNDS_MS.iter().map(|bound| (*bound as f64 / 1000.0).to_string());
        for (bound, count) in bounds.chain(["+Inf".to_owned()]).zip(&self.within) {
            sum += read(count);
            line(format!("evenkeel_webhook_review_seconds_bucket{{le=\"{bound}\"}} {sum}"));
        }
        line(format!("evenkeel_webhook_review_seconds_sum {}", read(&self.usec) as f64 / 1e6));
        line(format!("evenkeel_webhook_review_seconds_count {sum}"));
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_told() {
        let counts = Counts::default();
        counts.answered(Outcome::Set, Duration::from_micros(1500));
        counts.answered(Outcome::Rubbish, Duration::from_secs(7));
        counts.kept();
        let text = counts.text();
        for line in [
            "evenkeel_webhook_reviews_total{outcome=\"set\"} 1",
            "evenkeel_webhook_kept_total 1",
            "evenkeel_webhook_review_seconds_bucket{le=\"0.001\"} 0",
            "evenkeel_webhook_review_seconds_bucket{le=\"0.002\"} 1",
            "evenkeel_webhook_review_seconds_bucket{le=\"+Inf\"} 2",
            "evenkeel_webhook_review_seconds_sum 7.0015",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
