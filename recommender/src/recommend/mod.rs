//! Owns the answers made of the state: which containers are meant, which rule is asked under which policy, and what caps
//! what it says.
//!
//! One value is made in `advice.rs`, with the rules by name in `rules.rs` and the values of last resort in `predefined.rs`;
//! a pod's answer in `pod.rs`, or in `kept.rs` where there is no time for it, and in `stated.rs` where there is no history, within what the namespace allows it as a whole (`whole.rs`), with more CPU while it starts (`startup.rs`), as much as starts were seen to use (`learned.rs`); that of every workload in `list.rs`, the
//! answers kept of the latter in `stored.rs`; usage records in `usage.rs`, with how much of a window was seen in `coverage.rs`. The rules themselves are
//! `evenkeel_rightsizing`. Nothing here changes the state.

pub mod advice;
pub(crate) mod caps;
mod coverage;
pub mod kept;
pub mod learned;
pub mod limits;
pub mod list;
pub mod pod;
pub mod predefined;
pub mod rules;
pub mod series;
mod startup;
pub(crate) mod stated;
pub mod stored;
pub mod usage;
mod whole;

use std::sync::Arc;

use evenkeel_model::qos_class::QosClass;
use evenkeel_proto::v1;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::policy::{ContainerPolicy, LimitsMode, RequestBounds};
use evenkeel_rightsizing::rule::Question;
use evenkeel_rightsizing::vpa::{self, Estimator, Saved};
use evenkeel_store::history::HistoryView;
use evenkeel_store::state::StoreState;

use crate::policy::{Governing, Set};
pub use crate::turns::StillWanted;
use advice::{Advice, AdviceSubject, Advisor, Amounts, Around, Raw, index};
use rules::Chosen;
use stored::StoredRecommendations;

/// Everything an answer is made of.
#[derive(Debug, Clone, Copy)]
pub struct Desk<'a> {
    /// What makes it.
    pub advisor: &'a Advisor,
    /// The policies in force.
    pub policies: &'a Set,
    /// What is known.
    pub state: &'a StoreState,
    /// The present, microseconds since 1970.
    pub now_usec: u64,
    /// Largest node seen.
    pub largest: Amounts,
    /// Nothing of the pod that is asked about is to be changed: the panic switch is on, or its namespace says so.
    pub frozen: bool,
    /// What the last pass over all workloads recommended, which rules may keep to.
    pub before: &'a StoredRecommendations,
    /// Whether whoever asked still waits: a long answer ends early when not, and nobody sees it.
    pub wanted: &'a StillWanted,
}

/// What one container has now.
#[derive(Debug, Clone, Copy, Default)]
pub struct Now {
    /// Requests.
    pub requests: Amounts,
    /// Limits.
    pub limits: Amounts,
    /// Containers running now.
    pub replicas: u32,
}

impl Desk<'_> {
    /// What a rule says of a container that requests this.
    pub(crate) fn raw(&self, asked: &AdviceSubject, rule: &Chosen, requests: Amounts) -> Arc<Raw> {
        self.advisor.raw(self.state, self.before, self.now_usec, asked, rule, requests)
    }

    /// What the Vertical Pod Autoscaler would keep of a container's own past, after what a checkpoint knows of it.
    pub(crate) fn estimator(
        &self,
        asked: &AdviceSubject,
        resource: Resource,
        params: &vpa::VpaParams,
        saved: Option<&Saved>,
    ) -> Estimator {
        let view =
            HistoryView::new(self.state, asked.of(), resource).sharing(&self.advisor.shared, self.now_usec);
        let question = Question { resource, now_ms: self.now_usec / 1_000, current: None, previous: None };
        params.estimator(&question, &view, saved)
    }

    /// The recommendations of one container, CPU first, under a rule or the one in force for it.
    pub fn recommend(
        &self,
        asked: &AdviceSubject,
        now: &Now,
        governing: Option<Governing<'_>>,
        rule: Option<&Chosen>,
    ) -> [v1::Recommendation; 2] {
        let rule = rule.or(governing.map(|g| g.rule)).unwrap_or(&self.advisor.default);
        let raw = self.raw(asked, rule, now.requests);
        let bounds =
            Bounding { largest: self.largest, ..Bounding::new(self.advisor, governing, self.now_usec) };
        bounds.recommend(asked, now, &raw)
    }
}

/// Everything that makes recommendations of what a rule said.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounding<'a> {
    advisor: &'a Advisor,
    governing: Option<Governing<'a>>,
    largest: Amounts,
    now_usec: u64,
    /// What the rule said is within the policy's bounds and the nodes already.
    is_bounded: bool,
}

impl<'a> Bounding<'a> {
    fn new(advisor: &'a Advisor, governing: Option<Governing<'a>>, now_usec: u64) -> Self {
        Self { advisor, governing, largest: [None; 2], now_usec, is_bounded: false }
    }

    /// Both recommendations of a container, CPU first.
    fn recommend(&self, asked: &AdviceSubject, now: &Now, raw: &Raw) -> [v1::Recommendation; 2] {
        let policy = self.governing.map(|g| g.policy);
        let of_container = policy.and_then(|p| p.container(&asked.container));
        let unbounded = of_container.filter(|_| self.is_bounded).map(|of| ContainerPolicy {
            cpu: RequestBounds::default(),
            memory: RequestBounds::default(),
            ..of.clone()
        });
        let around = Around {
            cluster: asked.cluster.as_deref(),
            namespace: &asked.namespace,
            policy: unbounded.as_ref().or(of_container),
            limits: policy.map_or(LimitsMode::default(), |p| p.limits),
            largest: self.largest,
        };
        let advice = Resource::ALL.map(|resource| {
            let at = index(resource);
            let (request, limit, replicas) = (now.requests[at], now.limits[at], now.replicas);
            let present = caps::Present { request, limit, replicas };
            self.advisor.within(&around, resource, raw, self.now_usec, present)
        });
        let after = |of: fn(&Advice) -> Option<u64>| [of(&advice[0]), of(&advice[1])];
        let requests = [0, 1].map(|at| after(|a| a.answer.request)[at].or(now.requests[at]));
        let before = list::class(now.requests, now.limits);
        let then = list::class(requests, after(|a| a.limit));
        let mut both = advice.into_iter().zip(Resource::ALL).map(|(advice, resource)| {
            let mut r = message(asked, resource, now, advice);
            if let Some(learned) = raw.start.filter(|_| resource == Resource::Cpu) {
                (r.start, r.start_seconds) = (Some(learned.cpu_milli), learned.seconds);
            }
            (r.rule, r.rule_crc32c) = (raw.rule.to_owned(), raw.rule_crc32c);
            r.changes_class = before != then;
            r.qos_class_before = class_on_the_wire(before).into();
            r.qos_class_after = class_on_the_wire(then).into();
            if let Some(policy) = policy {
                r.policy = policy.key();
                r.mode = mode(policy.mode).to_owned();
            }
            r
        });
        let mut next = || both.next().unwrap_or_default();
        [next(), next()]
    }
}

/// A class as messages name it.
pub(crate) const fn class_on_the_wire(class: QosClass) -> v1::QosClass {
    match class {
        QosClass::BestEffort => v1::QosClass::BestEffort,
        QosClass::Burstable => v1::QosClass::Burstable,
        QosClass::Guaranteed => v1::QosClass::Guaranteed,
    }
}

/// The word of an update mode.
pub const fn mode(mode: evenkeel_rightsizing::policy::UpdateMode) -> &'static str {
    use evenkeel_rightsizing::policy::UpdateMode::{Auto, Initial, Off};
    match mode {
        Off => "off",
        Initial => "initial",
        Auto => "auto",
    }
}

fn message(asked: &AdviceSubject, resource: Resource, now: &Now, advice: Advice) -> v1::Recommendation {
    let Advice { answer, raw, capped_by, limit, age_seconds } = advice;
    let (known, young) = (answer.request.is_some(), !answer.evidence().is_enough());
    v1::Recommendation {
        cluster: asked.cluster.clone().unwrap_or_default(),
        namespace: asked.namespace.clone(),
        workload: asked.workload.clone(),
        container: asked.container.clone(),
        resource: resource.as_str().to_owned(),
        current: now.requests[index(resource)],
        current_limit: now.limits[index(resource)],
        request: answer.request,
        lower: answer.lower,
        upper: answer.upper,
        raw,
        capped_by,
        tier: answer.tier,
        samples: answer.samples,
        span_seconds: answer.span_seconds,
        confidence: known.then_some(answer.confidence),
        risk_now: answer.risk_now,
        risk_then: answer.risk_then,
        age_seconds,
        image: asked.image.as_ref().map(ToString::to_string).unwrap_or_default(),
        limit,
        replicas: now.replicas,
        notes: answer.notes,
        young: known && young,
        ..v1::Recommendation::default()
    }
}

#[cfg(test)]
mod rebuilt_tests;
#[cfg(test)]
mod series_tests;
#[cfg(test)]
mod tests;
