//! Owns the answer for one pod from what objects of the cluster say in their status: for replicas of the admission webhook, which have no
//! history.
//!
//! What a status says is within the policy's bounds, the largest node, and what was allowed to the containers that ran. A pod that is made is
//! bounded once more: by what its namespace allows now, and by the limits that it has itself.

use std::collections::HashMap;

use evenkeel_model::pod::{Container as Asking, Pod};
use evenkeel_model::quantity::Quantity;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::policy::{InitialResources, Policy, UpdateMode};
use evenkeel_rightsizing::rule::Answer;
use serde_json::Value;

use super::Bounding;
use super::advice::{Advisor, Raw};
use super::learned::Learned;
use super::pod::{ContainerAdvice, PodAdvice, asked, resources};
use super::{startup, whole};
use crate::policy::{Governing, Set};

/// Tier of an answer that is an object's.
const TIER: &str = "status of the policy";

/// What an object's status says of its containers.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Stated(HashMap<String, StatedContainer>);

/// What it says of one: both answers, and what its start could use.
#[derive(Debug, Clone, PartialEq)]
struct StatedContainer {
    answers: [Answer; 2],
    start: Option<Learned>,
}

impl Stated {
    /// Reads a status; what makes no sense in it is not said.
    pub(crate) fn read(status: &Value) -> Self {
        let containers = status["recommendation"]["containers"].as_array();
        let of = |container: &Value| {
            let name = container["name"].as_str()?.to_owned();
            let start = amount(&container["start"][Resource::Cpu.as_str()], Resource::Cpu);
            let start = start.map(|cpu_milli| Learned { cpu_milli, seconds: 0 });
            Some((
                name,
                StatedContainer { answers: Resource::ALL.map(|resource| answer(container, resource)), start },
            ))
        };
        Self(containers.into_iter().flatten().filter_map(of).collect())
    }

    fn raw(&self, rule: &'static str, container: &str) -> Raw {
        let known = self.0.get(container);
        Raw {
            rule,
            rule_crc32c: 0,
            answers: known.map_or_else(|| [Answer::none(), Answer::none()], |known| known.answers.clone()),
            start: known.and_then(|known| known.start),
            killed_at: None,
            made_usec: 0,
            looks_at_seconds: false,
        }
    }

    /// Whether it says all that would be set of a pod under its policy.
    fn is_whole(&self, policy: &Policy, pod: &Pod) -> bool {
        let is_off = |name: &str| policy.container(name).is_some_and(|container| container.off);
        let is_said = |name: &str| {
            self.0.get(name).is_some_and(|known| known.answers.iter().all(|answer| answer.request.is_some()))
        };
        policy.mode == UpdateMode::Off
            || policy.initial == InitialResources::Never
            || pod.counted_containers().all(|container| is_off(&container.name) || is_said(&container.name))
    }
}

fn amount(value: &Value, resource: Resource) -> Option<u64> {
    let quantity = match value {
        Value::String(text) => Quantity::parse(text).ok()?,
        Value::Number(number) => Quantity::parse(&number.to_string()).ok()?,
        _ => return None,
    };
    match resource {
        Resource::Cpu => quantity.milli_u64(),
        Resource::Memory => quantity.to_u64(),
    }
}

fn answer(container: &Value, resource: Resource) -> Answer {
    let amount = |value: &Value| amount(value, resource);
    let name = resource.as_str();
    match amount(&container["resources"]["requests"][name]) {
        Some(request) => Answer {
            request: Some(request),
            lower: amount(&container["lowerBound"][name]),
            upper: amount(&container["upperBound"][name]),
            confidence: container["confidence"][name].as_f64().unwrap_or_default(),
            tier: TIER.to_owned(),
            ..Answer::none()
        },
        None => Answer::none(),
    }
}

/// What answers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ByStatus<'a> {
    pub(crate) advisor: &'a Advisor,
    pub(crate) policies: &'a Set,
    /// By policy, `namespace/name`; one of which nothing is said now is not in it.
    pub(crate) stated: &'a HashMap<String, Stated>,
    pub(crate) panic: bool,
}

impl ByStatus<'_> {
    /// Whether some object governs a pod with these labels, whatever it says.
    pub(crate) fn governs<'l>(
        &self,
        pod: &Pod,
        labels: impl IntoIterator<Item = (&'l str, &'l str)> + Clone,
    ) -> bool {
        !self.policies.governing(None, &pod.metadata.namespace, labels).1.is_empty()
    }

    /// The answer for a pod with these labels, and whether all of it is known; nothing where no object governs the pod, or nothing is known
    /// of what the one says that does.
    pub(crate) fn pod<'l>(
        &self,
        pod: &Pod,
        labels: impl IntoIterator<Item = (&'l str, &'l str)> + Clone,
    ) -> Option<(PodAdvice, bool)> {
        let (governing, selecting) = self.policies.governing(None, &pod.metadata.namespace, labels);
        let governing = governing?;
        let stated = self.stated.get(&governing.policy.key())?;
        let mut containers: Vec<ContainerAdvice> = pod
            .counted_containers()
            .map(|container| self.container(pod, container, governing, stated))
            .collect();
        if !self.panic {
            whole::fit(&self.advisor.limits, pod, &mut containers);
            startup::boost(&self.advisor.limits, pod, Some(governing), None, &mut containers);
        }
        let advice = PodAdvice {
            panic: self.panic,
            ..PodAdvice::under(self.policies, Some(governing), &selecting, pod, containers)
        };
        Some((advice, self.panic || stated.is_whole(governing.policy, pod)))
    }

    fn container(
        &self,
        pod: &Pod,
        container: &Asking,
        governing: Governing<'_>,
        stated: &Stated,
    ) -> ContainerAdvice {
        let (asked, now) = asked(pod, container);
        let bounding = Bounding { is_bounded: true, ..Bounding::new(self.advisor, Some(governing), 0) };
        let raw = stated.raw(governing.rule.name(), &container.name);
        let recommendations = bounding.recommend(&asked, &now, &raw);
        let resources = match self.panic {
            true => container.resources.clone(),
            false => resources(pod, container, Some(governing), &recommendations),
        };
        ContainerAdvice {
            name: container.name.clone(),
            resources,
            recommendations: recommendations.into(),
            startup: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use evenkeel_rightsizing::policy::rank::Dated;
    use serde_json::json;

    use super::*;
    use crate::config::{LimitRangeSection, Recommend};
    use crate::policy::PolicySource;
    use crate::recommend::{pod, rules};

    const MIB: u64 = 1 << 20;

    fn advisor() -> Advisor {
        let amount = |text: &str| Some(Quantity::parse(text).unwrap());
        let range = LimitRangeSection {
            namespace: "shop".into(),
            cpu_min: None,
            cpu_max: amount("2"),
            memory_min: None,
            memory_max: amount("1Gi"),
        };
        Advisor::new(&Recommend { limit_ranges: vec![range], ..Recommend::default() }).unwrap()
    }

    fn set(specs: &[Value]) -> Set {
        let dated = |(number, spec): (usize, &Value)| {
            let metadata = json!({ "name": format!("p{number}"), "namespace": "shop" });
            let object = json!({
                "apiVersion": "evenkeel.dev/v1", "kind": "VerticalPodAutoscaler", "metadata": metadata, "spec": spec,
            });
            let policy = evenkeel_rightsizing::policy::read_object(&object).unwrap();
            (Dated { policy: Arc::new(policy), created_ms: number as u64 }, PolicySource::Cluster("".into()))
        };
        let rule = |policy: &Policy| Ok(rules::of_policy(policy, &Recommend::default()).unwrap());
        Set::new(specs.iter().enumerate().map(dated), rule)
    }

    fn status(cpu: &str, memory: &str) -> Value {
        let requests = json!({ "cpu": cpu, "memory": memory });
        json!({ "recommendation": { "containers": [{ "name": "main", "resources": { "requests": requests } }] } })
    }

    fn asked_with(resources: &Value) -> Pod {
        let pod = json!({
            "metadata": { "namespace": "shop", "name": "x", "labels": { "app": "web" } },
            "spec": { "containers": [{ "name": "main", "resources": resources }] },
        });
        pod::read(&pod.to_string()).unwrap()
    }

    #[test]
    fn a_status_answers_for_pods_within_what_is_allowed_now() {
        let target = json!({ "matchLabels": { "app": "web" } });
        let with = |more: Value| {
            let mut spec = json!({ "target": target });
            more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
            spec
        };
        let (advisor, none) = (advisor(), json!({}));
        let known = [Some(250), Some(64 * MIB)];
        let least = json!({ "containers": [{ "name": "*", "requests": { "cpu": { "min": "64" } } }] });
        let off = json!({ "containers": [{ "name": "main", "mode": "off" }] });
        for (spec, said, resources, want, is_whole) in [
            (with(json!({})), status("250m", "64Mi"), none.clone(), known, true),
            // What the status says is below the policy's least where no node has as much: that stays.
            (with(json!({ "resourcesPolicy": least })), status("250m", "64Mi"), none.clone(), known, true),
            (with(json!({})), status("8", "4Gi"), none.clone(), [Some(2000), Some(1024 * MIB)], true),
            (
                with(json!({})),
                status("8", "64Mi"),
                json!({ "limits": { "cpu": "1" } }),
                [Some(1000), known[1]],
                true,
            ),
            (
                with(json!({ "initialResourcesPolicy": "if-not-set" })),
                status("250m", "64Mi"),
                json!({ "requests": { "cpu": "1" } }),
                [Some(1000), known[1]],
                true,
            ),
            (with(json!({ "initialResourcesPolicy": "never" })), json!({}), none.clone(), [None; 2], true),
            (with(json!({ "resourcesPolicy": off })), json!({}), none.clone(), [None; 2], true),
            // Nothing is known of memory, or of anything.
            (with(json!({})), status("250m", "much"), none.clone(), [Some(250), None], false),
            (with(json!({})), json!({ "recommendation": 7 }), none, [None; 2], false),
        ] {
            let (set, pod) = (set(std::slice::from_ref(&spec)), asked_with(&resources));
            let stated = HashMap::from([("shop/p0".to_owned(), Stated::read(&said))]);
            let by = ByStatus { advisor: &advisor, policies: &set, stated: &stated, panic: false };
            let (advice, found_whole) = by.pod(&pod, [("app", "web")]).unwrap();
            let requests = &advice.containers[0].resources.requests;
            let found =
                [requests.cpu().and_then(Quantity::milli_u64), requests.memory().and_then(Quantity::to_u64)];
            assert_eq!((found, found_whole), (want, is_whole), "{spec} {said} {resources}");
            let frozen = ByStatus { panic: true, ..by }.pod(&pod, [("app", "web")]).unwrap().0;
            assert!(frozen.panic && frozen.containers[0].resources == pod.containers[0].resources);
        }
    }

    #[test]
    fn a_start_has_more_cpu_within_what_is_allowed_and_in_the_same_class() {
        let advisor = advisor();
        let (both, bare) = (json!({ "limits": { "cpu": "300m", "memory": "64Mi" } }), json!({}));
        let half = json!({ "requests": { "cpu": "250m" }, "limits": { "cpu": "500m" } });
        for (boost, limits, resources, cpu, want) in [
            (json!({ "factor": 2 }), "keep", &bare, "250m", Some(500)),
            (json!({ "amount": "100m" }), "keep", &bare, "250m", Some(350)),
            (json!({ "factor": 1 }), "keep", &bare, "250m", None),
            (json!({ "factor": 100 }), "keep", &bare, "250m", Some(2000)),
            (json!({ "factor": 2 }), "keep", &json!({ "limits": { "cpu": "300m" } }), "250m", Some(300)),
            // It would be Guaranteed while it starts.
            (json!({ "factor": 2 }), "keep", &both, "250m", None),
            // Its limit of twice the request goes up with it, to the greatest one.
            (json!({ "factor": 4 }), "ratio", &half, "500m", Some(1000)),
            (Value::Null, "keep", &bare, "250m", None),
        ] {
            let spec =
                json!({ "target": {}, "startupBoost": boost, "resourcesPolicy": { "limits": limits } });
            let (set, pod) = (set(std::slice::from_ref(&spec)), asked_with(resources));
            let stated = HashMap::from([("shop/p0".to_owned(), Stated::read(&status(cpu, "64Mi")))]);
            let by = ByStatus { advisor: &advisor, policies: &set, stated: &stated, panic: false };
            let (advice, _) = by.pod(&pod, [("app", "web")]).unwrap();
            assert_eq!(advice.containers[0].startup, want, "{spec} {resources}");
            assert_eq!(advice.startup_seconds, if boost.is_null() { 0 } else { 300 });
            let frozen = ByStatus { panic: true, ..by }.pod(&pod, [("app", "web")]).unwrap().0;
            assert_eq!(frozen.containers[0].startup, None);
        }
    }

    #[test]
    fn a_start_has_as_much_as_was_learned_within_what_the_policy_gives() {
        let advisor = advisor();
        for (boost, start, want) in [
            (json!({ "factor": 4, "learned": true }), "600m", Some(600)),
            (json!({ "factor": 2, "learned": true }), "600m", Some(500)),
            (json!({ "amount": "100m", "learned": true }), "300m", Some(300)),
            // It needs no more than the running state.
            (json!({ "factor": 4, "learned": true }), "200m", None),
            // Nothing was learned yet, or nothing that can be read.
            (json!({ "factor": 4, "learned": true }), "", Some(1000)),
            (json!({ "factor": 4, "learned": false }), "600m", Some(1000)),
            (json!({ "factor": 4 }), "600m", Some(1000)),
        ] {
            let mut said = status("250m", "64Mi");
            said["recommendation"]["containers"][0]["start"] = json!({ "cpu": start });
            let spec = json!({ "target": {}, "startupBoost": boost });
            let (set, pod) = (set(std::slice::from_ref(&spec)), asked_with(&json!({})));
            let stated = HashMap::from([("shop/p0".to_owned(), Stated::read(&said))]);
            let by = ByStatus { advisor: &advisor, policies: &set, stated: &stated, panic: false };
            let (advice, _) = by.pod(&pod, [("app", "web")]).unwrap();
            assert_eq!(advice.containers[0].startup, want, "{spec} {start}");
        }
    }

    #[test]
    fn only_the_one_that_governs_answers() {
        let target = |app: &str| json!({ "target": { "matchLabels": { "app": app } } });
        let (set, pod) = (set(&[target("web"), target("web"), target("db")]), asked_with(&json!({})));
        let advisor = advisor();
        let all = [("shop/p1", "1"), ("shop/p2", "2")];
        let mut stated: HashMap<String, Stated> =
            all.into_iter().map(|(key, cpu)| (key.to_owned(), Stated::read(&status(cpu, "1Mi")))).collect();
        let cpu = |stated: &HashMap<String, Stated>, app: &str| {
            let by = ByStatus { advisor: &advisor, policies: &set, stated, panic: false };
            let (advice, _) = by.pod(&pod, [("app", app)])?;
            Some((advice.policy.unwrap(), advice.containers[0].recommendations[0].request))
        };
        // The oldest governs, and nothing is known of what it says.
        assert_eq!(cpu(&stated, "web"), None);
        assert_eq!(cpu(&stated, "db"), Some(("shop/p2".to_owned(), Some(2000))));
        assert_eq!(cpu(&stated, "other"), None);
        stated.insert("shop/p0".to_owned(), Stated::read(&status("500m", "1Mi")));
        assert_eq!(cpu(&stated, "web"), Some(("shop/p0".to_owned(), Some(500))));
    }
}
