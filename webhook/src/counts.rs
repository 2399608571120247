//! What the webhook did, as metrics in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the times of answers, thousandths of a second.
const BOUNDS_MS: [u64; 9] = [1, 2, 5, 10, 20, 50, 100, 500, 1000];

/// What became of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewOutcome {
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
    /// It was gated.
    Gated,
    /// It was looked at whether it is to be gated, and is not.
    NotGated,
    /// What was sent is no review.
    Rubbish,
}

const OUTCOMES: [(ReviewOutcome, &str); 8] = [
    (ReviewOutcome::Gated, "gated"),
    (ReviewOutcome::NotGated, "not-gated"),
    (ReviewOutcome::Set, "set"),
    (ReviewOutcome::Told, "told"),
    (ReviewOutcome::Nothing, "nothing"),
    (ReviewOutcome::LeftAlone, "left-alone"),
    (ReviewOutcome::NoAnswer, "no-answer"),
    (ReviewOutcome::Rubbish, "rubbish"),
];

/// How it stands with the certificate that is served.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificate {
    /// When it ends, seconds since 1970.
    pub ends: u64,
    /// It has ended: no API server takes an answer.
    pub has_ended: bool,
    /// What is wrong with it, or will be soon.
    pub trouble: Option<String>,
}

/// Counters since the start, and how it stands.
#[derive(Debug, Default)]
pub struct WebhookCounts {
    outcomes: [AtomicU64; OUTCOMES.len()],
    by_object: AtomicU64,
    kept: AtomicU64,
    within: [AtomicU64; BOUNDS_MS.len() + 1],
    usec: AtomicU64,
    certificate: Mutex<Certificate>,
    /// Objects known, and whether following them or keeping the registration fails.
    objects: AtomicU64,
    objects_failing: AtomicBool,
    registration_failing: AtomicBool,
}

/// A number and what it is: name, kind, meaning, value.
type Metric = (&'static str, &'static str, &'static str, f64);

impl WebhookCounts {
    /// How it stands with the certificate.
    pub fn certificate(&self, now: Certificate) {
        *self.certificate.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// The same, as it was told last.
    #[must_use]
    pub fn certificate_now(&self) -> Certificate {
        self.certificate.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many objects of the cluster are known, and whether following them fails.
    pub fn objects(&self, count: u64, is_failing: bool) {
        self.objects.store(count, Ordering::Relaxed);
        self.objects_failing.store(is_failing, Ordering::Relaxed);
    }

    /// Whether the registration cannot be kept right.
    pub fn registration(&self, is_failing: bool) {
        self.registration_failing.store(is_failing, Ordering::Relaxed);
    }

    /// What stands alone, with how much was told in Events, and how much was not.
    fn metrics(&self, told: u64, untold: u64) -> [Metric; 9] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let is = |flag: &AtomicBool| f64::from(u8::from(flag.load(Ordering::Relaxed)));
        let certificate = self.certificate_now();
        let is_failing = f64::from(u8::from(certificate.trouble.is_some()));
        [
            (
                "by_object_total",
                "counter",
                "Reviews answered by the status of an object of the cluster.",
                read(&self.by_object),
            ),
            (
                "kept_total",
                "counter",
                "Reviews answered by what was kept, the recommender giving no answer.",
                read(&self.kept),
            ),
            ("objects", "gauge", "Objects of evenkeel.dev that are followed.", read(&self.objects)),
            (
                "objects_failing",
                "gauge",
                "1 while objects, limit ranges or quotas are not followed.",
                is(&self.objects_failing),
            ),
            (
                "certificate_expiry_seconds",
                "gauge",
                "End of the served certificate, seconds since 1970; 0 without TLS.",
                certificate.ends as f64,
            ),
            (
                "certificate_failing",
                "gauge",
                "1 while the served certificate has ended, will soon, or a new one cannot be served.",
                is_failing,
            ),
            (
                "registration_failing",
                "gauge",
                "1 while the authority in the registration, or the own certificate, cannot be kept right.",
                is(&self.registration_failing),
            ),
            ("events_total", "counter", "Events and series written.", told as f64),
            ("events_dropped_total", "counter", "Events not written: too many, or refused.", untold as f64),
        ]
    }

    /// One review was answered.
    pub fn answered(&self, outcome: ReviewOutcome, took: Duration) {
        if let Some(at) = OUTCOMES.iter().position(|(of, _)| *of == outcome) {
            self.outcomes[at].fetch_add(1, Ordering::Relaxed);
        }
        let usec = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let at = BOUNDS_MS.iter().position(|bound| usec <= bound * 1000).unwrap_or(BOUNDS_MS.len());
        self.within[at].fetch_add(1, Ordering::Relaxed);
        self.usec.fetch_add(usec, Ordering::Relaxed);
    }

    /// A review was answered by what an object of the cluster says.
    pub fn by_object(&self) {
        self.by_object.fetch_add(1, Ordering::Relaxed);
    }

    /// An answer that was kept was given, because the recommender gave none.
    pub fn kept(&self) {
        self.kept.fetch_add(1, Ordering::Relaxed);
    }

    /// How often something came out.
    #[must_use]
    pub fn of(&self, outcome: ReviewOutcome) -> u64 {
        let at = OUTCOMES.iter().position(|(of, _)| *of == outcome);
        at.map_or(0, |at| self.outcomes[at].load(Ordering::Relaxed))
    }

    /// All of them, with how much was told in Events, and how much was not.
    #[must_use]
    pub fn text(&self, told: (u64, u64)) -> String {
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
        for (name, kind, help, value) in self.metrics(told.0, told.1) {
            line(format!("# HELP evenkeel_webhook_{name} {help}"));
            line(format!("# TYPE evenkeel_webhook_{name} {kind}"));
            line(format!("evenkeel_webhook_{name} {value}"));
        }
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
        let counts = WebhookCounts::default();
        counts.answered(ReviewOutcome::Set, Duration::from_micros(1500));
        counts.answered(ReviewOutcome::Rubbish, Duration::from_secs(7));
        counts.kept();
        counts.objects(3, true);
        counts.certificate(Certificate { ends: 1_800_000_000, ..Certificate::default() });
        let text = counts.text((5, 2));
        for line in [
            "evenkeel_webhook_objects 3",
            "evenkeel_webhook_objects_failing 1",
            "evenkeel_webhook_certificate_expiry_seconds 1800000000",
            "evenkeel_webhook_certificate_failing 0",
            "evenkeel_webhook_events_dropped_total 2",
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
