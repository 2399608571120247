//! What answers reviews: what is left alone, whose advice is taken, what is counted and told of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use crate::advice::{Advice, Advisor, ClusterObjects, Come, Stated};
use crate::change::{changes, patch, starting, told};
use crate::counts::{ReviewOutcome, WebhookCounts};
use crate::gate::gated;
use crate::patch::{Operation, mark, room, tell};
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
        let room = room(pod);
        let advice = self.boosting(&question, advice, room);
        let changes = changes(&question, &advice);
        if changes.is_empty() {
            return through(ReviewOutcome::Nothing);
        }
        let (text, back) = (told(&changes), starting(&changes, advice.startup_seconds));
        let (mut operations, key, outcome) = match self.options.applies {
            true => (patch(&question, changes), SET, ReviewOutcome::Set),
            false => (Vec::new(), ESTIMATE, ReviewOutcome::Told),
        };
        let room = room.saturating_sub(back.as_deref().map_or(0, annotated));
        operations.extend(tell(pod, key, &text, room));
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

    /// The advice, without more CPU at the start where that is switched off, or where there is no room to say what it goes back to.
    fn boosting(&self, question: &PodQuestion<'_>, advice: Arc<Advice>, room: usize) -> Arc<Advice> {
        if advice.startup_seconds == 0 {
            return advice;
        }
        let back = starting(&changes(question, &advice), advice.startup_seconds);
        if self.options.boosts && back.as_deref().map_or(0, annotated) <= room {
            return advice;
        }
        Arc::new(Advice { startup_seconds: 0, ..Advice::clone(&advice) })
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

/// Bytes that what a pod goes back to takes among its annotations.
fn annotated(back: &str) -> usize {
    STARTING.len() + back.len()
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use evenkeel_proto::line::Trust;
    use serde_json::{Value, json};

    use super::*;
    use crate::Amounts;
    use crate::advice::ContainerAdvice;

    /// Everything gets a core, and two while it starts.
    #[derive(Debug)]
    struct Objects;

    impl ClusterObjects for Objects {
        fn say(&self, question: &PodQuestion<'_>) -> Stated {
            let of = |name: &str| ContainerAdvice {
                name: name.to_owned(),
                requests: [Some(1000), None],
                startup: Some(2000),
                known: [true, false],
                ..ContainerAdvice::default()
            };
            let containers = question.containers.iter().map(|container| of(container.name)).collect();
            Stated::Whole(Arc::new(Advice { startup_seconds: 60, containers, ..Advice::default() }))
        }

        fn least(&self, _: &str) -> Amounts {
            [None; 2]
        }
    }

    fn webhook() -> Webhook {
        let options = Options {
            applies: true,
            within: Duration::from_millis(1),
            gates: true,
            boosts: true,
            exclude: Vec::new(),
            metrics_token: None,
        };
        Webhook::new(options, Advisor::new("http://127.0.0.1:1", Trust::default()))
            .with_objects(Arc::new(Objects))
    }

    fn review(containers: usize, annotations: &Value) -> Vec<u8> {
        let name = |at: usize| json!({ "name": format!("{at:063}") });
        let containers: Vec<Value> = (0..containers).map(name).collect();
        let pod = json!({ "metadata": { "annotations": annotations }, "spec": { "containers": containers } });
        let kind = json!({ "group": "", "version": "v1", "kind": "Pod" });
        let request =
            json!({ "uid": "u", "kind": kind, "namespace": "shop", "operation": "CREATE", "object": pod });
        json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request })
            .to_string()
            .into_bytes()
    }

    /// What an answer puts at a path.
    fn put(answer: &str, path: &str) -> Option<Value> {
        let answer: Value = serde_json::from_str(answer).unwrap();
        let patch = STANDARD.decode(answer["response"]["patch"].as_str().unwrap_or("W10=")).unwrap();
        let patch: Vec<Value> = serde_json::from_slice(&patch).unwrap();
        patch
            .into_iter()
            .find(|operation| operation["path"] == path)
            .map(|operation| operation["value"].clone())
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_read_of_an_annotation_later_is_whole_or_its_pod_is_left_without() {
        let webhook = webhook();
        let starting = "/metadata/annotations/evenkeel.dev~1startup-boost";
        let told = "/metadata/annotations/evenkeel.dev~1initial-resources";
        let held = "/metadata/annotations/evenkeel.dev~1placeholders";
        let request = "/spec/containers/0/resources/requests/cpu";
        // Each of 80 containers takes more than 64 bytes.
        let answer = webhook.review(&review(80, &json!({}))).await.unwrap();
        let back: Value = serde_json::from_str(put(&answer, starting).unwrap().as_str().unwrap()).unwrap();
        assert_eq!(back["containers"].as_object().unwrap().len(), 80);
        assert_eq!(put(&answer, request), Some("2".into()));
        let gated = webhook.review_gates(&review(80, &json!({}))).await.unwrap();
        let held_of: Value = serde_json::from_str(put(&gated, held).unwrap().as_str().unwrap()).unwrap();
        assert_eq!(held_of.as_object().unwrap().len(), 80);
        // The API server refuses a pod with more than 256 KiB of annotations.
        for (taken, is_told) in [((256 << 10) - 1, false), ((256 << 10) - 101, true)] {
            let full = review(80, &json!({ "a": "x".repeat(taken) }));
            let answer = webhook.review(&full).await.unwrap();
            assert_eq!((put(&answer, request), put(&answer, starting)), (Some("1".into()), None));
            let told = put(&answer, told).map_or(0, |told| told.as_str().unwrap().len());
            assert_eq!(told, if is_told { 100 - SET.len() } else { 0 });
            let gated = webhook.review_gates(&full).await.unwrap();
            assert_eq!((put(&gated, held), put(&gated, "/metadata/labels")), (None, None));
        }
    }
}
