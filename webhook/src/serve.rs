//! What answers reviews: what is left alone, whose advice is taken, what is counted and told of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use crate::advice::{Advice, Advisor, ClusterObjects, Come, Stated};
use crate::change::{changes, patch, starting, told};
use crate::counts::{ReviewOutcome, WebhookCounts};
use crate::gate::gated;
use crate::patch::{Operation, annotate, mark};
use crate::pod::{self, Controller, PodQuestion};
use crate::review::AdmissionRequest;

/// What was set and why.
pub const SET: &str = "evenkeel.dev/initial-resources";
/// What would have been set.
pub const ESTIMATE: &str = "evenkeel.dev/estimate";
/// What CPU goes back to when the containers of a pod have started.
pub const STARTING: &str = "evenkeel.dev/startup-boost";

/// What is done.
#[derive(Debug, Clone)]
pub struct Options {
    /// Requests are set; otherwise they are told in an annotation alone.
    pub applies: bool,
    /// For how long the recommender is waited for.
    pub within: Duration,
    /// Pods are gated where that is asked.
    pub gates: bool,
    /// Containers of policies that wish it request more CPU while they start.
    pub boosts: bool,
    /// Namespaces whose pods are left alone.
    pub exclude: Vec<String>,
    /// Who asks for metrics shows this token; nobody is told them without.
    pub metrics_token: Option<String>,
}

/// What was set of a pod, or would have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Done {
    /// What made the pod.
    pub controller: Controller,
    /// What and why, as in the annotation.
    pub text: String,
    /// It was set.
    pub is_applied: bool,
}

/// Tells people what was done; nothing waits for it.
pub trait Tells: std::fmt::Debug + Send + Sync {
    /// Something was done.
    fn tell(&self, done: Done);
    /// How much was told, and how much was not because it was too much or refused.
    fn counted(&self) -> (u64, u64);
}

/// The webhook.
#[derive(Debug)]
pub struct Webhook {
    options: Options,
    objects: Option<Arc<dyn ClusterObjects>>,
    tells: Option<Arc<dyn Tells>>,
    advisor: Advisor,
    counts: WebhookCounts,
}

impl Webhook {
    /// Of these options, by this advisor.
    #[must_use]
    pub fn new(options: Options, advisor: Advisor) -> Self {
        Self { options, objects: None, tells: None, advisor, counts: WebhookCounts::default() }
    }

    /// The same, where objects of the cluster are asked first, and the recommender only about pods of which they do not say all.
    #[must_use]
    pub fn with_objects(self, objects: Arc<dyn ClusterObjects>) -> Self {
        Self { objects: Some(objects), ..self }
    }

    /// The same, which tells what it did.
    #[must_use]
    pub fn telling(self, tells: Arc<dyn Tells>) -> Self {
        Self { tells: Some(tells), ..self }
    }

    /// Who asks the recommender.
    #[must_use]
    pub fn advisor(&self) -> &Advisor {
        &self.advisor
    }

    /// Counters.
    #[must_use]
    pub fn counts(&self) -> &WebhookCounts {
        &self.counts
    }

    /// Who asks for metrics shows this token.
    pub(crate) fn metrics_token(&self) -> Option<&str> {
        self.options.metrics_token.as_deref()
    }

    /// All that is counted, as metrics.
    pub(crate) fn metrics(&self) -> String {
        self.counts.text(self.tells.as_ref().map(|tells| tells.counted()).unwrap_or_default())
    }

    /// Answers a review, in JSON; what cannot be read is no review, and told in words.
    ///
    /// # Errors
    /// The words.
    pub async fn review(&self, body: &[u8]) -> Result<String, String> {
        let (request, began) = self.read(body)?;
        let (answer, outcome) = self.answer(&request).await;
        self.counts.answered(outcome, began.elapsed());
        Ok(answer)
    }

    /// Answers a review of a pod that is gated where nothing is known of what it needs.
    ///
    /// # Errors
    /// As [`Webhook::review`].
    pub async fn review_gates(&self, body: &[u8]) -> Result<String, String> {
        let (request, began) = self.read(body)?;
        let gated = self.gated(&request).await;
        let outcome = if gated.is_some() { ReviewOutcome::Gated } else { ReviewOutcome::NotGated };
        self.counts.answered(outcome, began.elapsed());
        Ok(request.allowed(&gated.unwrap_or_default()))
    }

    async fn gated(&self, request: &AdmissionRequest<'_>) -> Option<Vec<Operation>> {
        if !self.options.applies || !self.options.gates || self.is_left_alone(request) {
            return None;
        }
        let pod = request.object.as_ref().ok()?;
        let question = PodQuestion::of(&request.namespace, pod).ok()?;
        // With nobody to answer there is nobody to lift a gate, either.
        let advice = self.advice(request, &question).await?;
        let least = self.objects.as_ref().map_or([None; 2], |objects| objects.least(&request.namespace));
        gated(&question, pod, &advice, least)
    }

    fn is_left_alone(&self, request: &AdmissionRequest<'_>) -> bool {
        !request.makes_pod()
            || self.options.exclude.iter().any(|namespace| **namespace == *request.namespace)
            || request.object.as_ref().is_ok_and(pod::opts_out)
    }

    fn read<'b>(&self, body: &'b [u8]) -> Result<(AdmissionRequest<'b>, Instant), String> {
        let began = Instant::now();
        let request = AdmissionRequest::read(body).map_err(|error| {
            self.counts.answered(ReviewOutcome::Rubbish, began.elapsed());
            error.to_string()
        })?;
        Ok((request, began))
    }

    async fn answer(&self, request: &AdmissionRequest<'_>) -> (String, ReviewOutcome) {
        let through = |outcome| (request.allowed(&[]), outcome);
        if self.is_left_alone(request) {
            return through(ReviewOutcome::LeftAlone);
        }
        let namespace: &str = &request.namespace;
        let asked = request.object.as_ref().map_err(Clone::clone);
        let asked = asked.and_then(|pod| PodQuestion::of(namespace, pod).map(|question| (pod, question)));
        let (pod, question) = match asked {
            Ok(asked) => asked,
            // The API server refuses it itself.
            Err(why) => {
                debug!(namespace, why, "a pod that is none");
                return through(ReviewOutcome::Nothing);
            }
        };
        let Some(advice) = self.advice(request, &question).await else {
            return through(ReviewOutcome::NoAnswer);
        };
        let advice = match self.options.boosts || advice.startup_seconds == 0 {
            true => advice,
            false => Arc::new(Advice { startup_seconds: 0, ..Advice::clone(&advice) }),
        };
        let changes = changes(&question, &advice);
        if changes.is_empty() {
            return through(ReviewOutcome::Nothing);
        }
        let (text, back) = (told(&changes), starting(&changes, advice.startup_seconds));
        let (mut operations, key, outcome) = match self.options.applies {
            true => (patch(&question, changes), SET, ReviewOutcome::Set),
            false => (Vec::new(), ESTIMATE, ReviewOutcome::Told),
        };
        operations.extend(annotate(pod, key, &text));
        if let (true, Some(back)) = (self.options.applies, back) {
            operations.extend(mark(pod, STARTING, &back, &operations));
        }
        if let (Some(tells), false) = (&self.tells, request.dry_run)
            && let Some(controller) = Controller::of(namespace, pod)
        {
            tells.tell(Done { controller, text, is_applied: self.options.applies });
        }
        (request.allowed(&operations), outcome)
    }

    /// What objects say, else the recommender; nothing where nobody does.
    async fn advice(
        &self,
        request: &AdmissionRequest<'_>,
        question: &PodQuestion<'_>,
    ) -> Option<Arc<Advice>> {
        let namespace: &str = &request.namespace;
        let part = match self.objects.as_ref().map_or(Stated::Nothing, |objects| objects.say(question)) {
            Stated::Whole(advice) => {
                self.counts.by_object();
                return Some(advice);
            }
            Stated::Part(advice) => Some(advice),
            Stated::Nothing => None,
        };
        match self.advisor.advice(question, self.options.within).await {
            Come::Fresh(advice) => Some(advice),
            Come::Kept(advice, why) => {
                debug!(namespace, why, "a kept answer is given");
                self.counts.kept();
                Some(advice)
            }
            Come::None(why) if part.is_some() => {
                debug!(namespace, why, "the part that an object says is given");
                self.counts.by_object();
                part
            }
            Come::None(why) => {
                warn!(namespace, why, "the recommender gives no answer: the pod is let through as it is");
                None
            }
        }
    }
}
