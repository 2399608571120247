//! What the webhook did, as metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use evenkeel_metrics::{FamilyKind, Histogram, Page};

/// Upper bounds of the times of answers, microseconds.
const BOUNDS_USEC: [u64; 9] = [1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000];

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
#[derive(Debug)]
pub struct WebhookCounts {
    outcomes: [AtomicU64; OUTCOMES.len()],
    by_object: AtomicU64,
    kept: AtomicU64,
    took: Histogram<{ BOUNDS_USEC.len() }>,
    certificate: Mutex<Certificate>,
    /// Objects known, and whether following them or keeping the registration fails.
    objects: AtomicU64,
    objects_failing: AtomicBool,
    registration_failing: AtomicBool,
}

impl Default for WebhookCounts {
    fn default() -> Self {
        Self {
            outcomes: Default::default(),
            by_object: AtomicU64::default(),
            kept: AtomicU64::default(),
            took: Histogram::new(BOUNDS_USEC),
            certificate: Mutex::default(),
            objects: AtomicU64::default(),
            objects_failing: AtomicBool::default(),
            registration_failing: AtomicBool::default(),
        }
    }
}

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

    /// One review was answered.
    pub fn answered(&self, outcome: ReviewOutcome, took: Duration) {
        if let Some(at) = OUTCOMES.iter().position(|(of, _)| *of == outcome) {
            self.outcomes[at].fetch_add(1, Ordering::Relaxed);
        }
        self.took.observe(took);
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
        let is = |flag: &AtomicBool| u64::from(flag.load(Ordering::Relaxed));
        let mut page = Page::new("evenkeel_webhook");
        let outcomes = OUTCOMES.iter().zip(&self.outcomes).map(|((_, word), count)| (*word, read(count)));
        let help = "Admission reviews answered, by what became of the pod.";
        page.by(FamilyKind::Counter, "reviews", help, "outcome", outcomes);
        let help = "Reviews answered by the status of an object of the cluster.";
        page.counter("by_object", help, read(&self.by_object));
        let help = "Reviews answered by what was kept, the recommender giving no answer.";
        page.counter("kept", help, read(&self.kept));
        page.gauge("objects", "Objects of evenkeel.dev that are followed.", read(&self.objects));
        let help = "1 while objects, limit ranges or quotas are not followed.";
        page.gauge("objects_failing", help, is(&self.objects_failing));
        let certificate = self.certificate_now();
        let help = "End of the served certificate, seconds since 1970; 0 without TLS.";
        page.gauge("certificate_expiry_seconds", help, certificate.ends);
        let help = "1 while the served certificate has ended, will soon, or a new one cannot be served.";
        page.gauge("certificate_failing", help, u64::from(certificate.trouble.is_some()));
        let help = "1 while the authority in the registration, or the own certificate, cannot be kept right.";
        page.gauge("registration_failing", help, is(&self.registration_failing));
        page.counter("events", "Events and series written.", told.0);
        page.counter("events_dropped", "Events not written: too many, or refused.", told.1);
        page.histogram("review_seconds", "Time from a review to its answer.", self.took.buckets());
        page.finish()
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
