//! Owns the answer for one pod from recommendations that were kept: while history is being read back, and when a fresh
//! answer would come after the caller's deadline. It says which, and how old it is.

use evenkeel_model::pod::{Container, Pod};
use evenkeel_proto::v1;
use evenkeel_qos::pod::qos_class;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::rule::Answer;

use super::advice::{AdviceSubject, Advisor, Raw, index};
use super::learned::Learned;
use super::pod::{ContainerAdvice, PodAdvice, asked, resources};
use super::stored::Stored;
use super::{Bounding, Now};
use crate::policy::Set;

/// The answer of the run before. Nothing is known of policies and the switch yet, so nothing is to be changed.
pub fn while_loading(kept: &Stored, pod: &Pod, now_usec: u64) -> PodAdvice {
    let advise = |container: &Container| {
        let (asked, now) = asked(pod, container);
        let recommendations = Resource::ALL.map(|resource| {
            let mut r = kept.like(&asked, resource, now_usec).unwrap_or_else(nothing);
            (r.namespace, r.workload) = (asked.namespace.clone(), asked.workload.clone());
            (r.container, r.resource) = (asked.container.clone(), resource.as_str().to_owned());
            (r.current, r.current_limit) = (now.requests[index(resource)], now.limits[index(resource)]);
            (r.risk_now, r.replicas) = (None, 0);
            r
        });
        let resources = container.resources.clone();
        ContainerAdvice {
            name: container.name.clone(),
            resources,
            recommendations: recommendations.into(),
            startup: None,
        }
    };
    let class = qos_class(pod);
    PodAdvice {
        containers: pod.counted_containers().map(advise).collect(),
        policy: None,
        mode: None,
        conflicts: Vec::new(),
        qos_before: class,
        qos_after: class,
        startup_seconds: 0,
        panic: false,
        loading: true,
        cached: false,
    }
}

fn nothing() -> v1::Recommendation {
    v1::Recommendation { tier: "none".to_owned(), ..v1::Recommendation::default() }
}

/// What is known without waiting for the state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtHand<'a> {
    pub(crate) kept: &'a Stored,
    pub(crate) policies: &'a Set,
    pub(crate) advisor: &'a Advisor,
    pub(crate) panic: bool,
    pub(crate) now_usec: u64,
}

impl AtHand<'_> {
    /// The answer under the policies in force, from the last pass over all workloads; nothing where it knows none of the
    /// pod's containers, since "nothing is known" would not be true.
    pub(crate) fn pod(&self, pod: &Pod) -> Option<PodAdvice> {
        let labels = pod.metadata.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
        let (governing, selecting) = self.policies.governing(None, &pod.metadata.namespace, labels);
        let bounds = Bounding::new(self.advisor, governing, self.now_usec);
        let mut any = false;
        let mut advise = |container: &Container| {
            let (asked, now) = asked(pod, container);
            let kept = Resource::ALL.map(|resource| self.kept.like(&asked, resource, self.now_usec));
            any |= kept.iter().any(Option::is_some);
            let recommendations = self.bounded(&bounds, &asked, &now, kept.map(Option::unwrap_or_default));
            let resources = match self.panic {
                true => container.resources.clone(),
                false => resources(pod, container, governing, &recommendations),
            };
            ContainerAdvice {
                name: container.name.clone(),
                resources,
                recommendations: recommendations.into(),
                startup: None,
            }
        };
        let containers: Vec<ContainerAdvice> = pod.counted_containers().map(&mut advise).collect();
        any.then(|| PodAdvice {
            panic: self.panic,
            cached: true,
            ..PodAdvice::under(self.policies, governing, &selecting, pod, containers)
        })
    }

    /// What was kept, within what bounds this container: the kept one may have been another's.
    fn bounded(
        &self,
        bounds: &Bounding<'_>,
        asked: &AdviceSubject,
        now: &Now,
        kept: [v1::Recommendation; 2],
    ) -> [v1::Recommendation; 2] {
        let age = kept.iter().map(|r| r.age_seconds).max().unwrap_or(0);
        let raw = Raw {
            // Each says its own below.
            rule: "",
            rule_crc32c: 0,
            answers: kept.each_ref().map(answer),
            killed_at: None,
            made_usec: self.now_usec.saturating_sub(age.saturating_mul(1_000_000)),
            looks_at_seconds: false,
            start: kept[0].start.map(|cpu_milli| Learned { cpu_milli, seconds: kept[0].start_seconds }),
        };
        let mut both = bounds.recommend(asked, now, &raw);
        for (r, kept) in both.iter_mut().zip(kept) {
            (r.rule, r.rule_crc32c) = (kept.rule, kept.rule_crc32c);
            r.raw = kept.raw;
            let known = kept.capped_by.into_iter().filter(|by| !r.capped_by.contains(by)).collect::<Vec<_>>();
            r.capped_by.extend(known);
        }
        both
    }
}

fn answer(kept: &v1::Recommendation) -> Answer {
    if kept.request.is_none() {
        return Answer::none();
    }
    Answer {
        request: kept.request,
        lower: kept.lower,
        upper: kept.upper,
        tier: kept.tier.clone(),
        samples: kept.samples,
        span_seconds: kept.span_seconds,
        confidence: kept.confidence.unwrap_or(0.0),
        // Of what another container requested.
        risk_now: None,
        risk_then: kept.risk_then,
        notes: kept.notes.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recommend::pod::read;

    #[test]
    fn what_was_kept_answers_while_history_is_read_back_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("recommendations");
        let kept = v1::Recommendation {
            namespace: "shop".into(),
            workload: "deployment/web".into(),
            container: "main".into(),
            resource: "cpu".into(),
            request: Some(250),
            tier: "own".into(),
            image: "docker.io/library/web:1".into(),
            ..v1::Recommendation::default()
        };
        Stored::write_for_tests(&file, vec![kept], 1_000_000);
        let stored = Stored::open(file);
        let pod = |name: &str, owner: &str, image: &str| {
            let owners = format!("[{{kind: Deployment, name: {owner}, controller: true}}]");
            let text = format!(
                "kind: Pod\nmetadata: {{name: {name}, namespace: shop, ownerReferences: {owners}}}\n\
                 spec: {{containers: [{{name: main, image: '{image}'}}]}}\n"
            );
            while_loading(&stored, &read(&text).unwrap(), 31_000_000)
        };
        let known = pod("web-1", "web", "web:2");
        let cpu = &known.containers[0].recommendations[0];
        assert_eq!((cpu.request, cpu.age_seconds, cpu.tier.as_str()), (Some(250), 30, "own"));
        assert!(known.loading && known.containers[0].resources.is_empty());
        assert_eq!(known.containers[0].recommendations[1].tier, "none");
        let by_image = pod("new-1", "new", "web:1");
        assert_eq!(by_image.containers[0].recommendations[0].request, Some(250));
        assert_eq!(by_image.containers[0].recommendations[0].workload, "deployment/new");
        assert_eq!(pod("new-1", "new", "db:1").containers[0].recommendations[0].request, None);
    }
}
