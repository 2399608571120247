//! The gate of a pod without requests of which nothing is known: a scheduling gate, and the least requests beside it.
//!
//! Resources of a pod that exists change by a resize alone, which never changes its class. So what is to be resized later asks for a little from
//! the beginning, and is Burstable. Who resizes the pod and lifts its gate is the leader of the recommenders.

use serde_json::json;

use crate::advice::{Advice, ContainerAdvice};
use crate::change::{changes, patch};
use crate::object::Pod;
use crate::patch::{Operation, annotate, label, room, without_labels};
use crate::pod::PodQuestion;
use crate::{Amounts, RESOURCES};

/// Name of the gate.
pub const GATE: &str = "evenkeel.dev/policy";
/// Label of pods with it, by which they are found; its value is `true`.
pub const LABEL: &str = "evenkeel.dev/gated";
/// Annotation that names the requests that stand for others: by container, resources.
pub const PLACEHOLDERS: &str = "evenkeel.dev/placeholders";
/// The least that is asked for where a LimitRange asks for no more: ten thousandths of a core, 16 MiB.
const LEAST: Amounts = [Some(10), Some(16 << 20)];

/// The operations that gate a pod; nothing where it is not to be: it asks for something everywhere, is bound to a node, asks as a whole, or has
/// no room for the annotation.
/// `least` is the least request that its namespace allows, `known` what is known of it already.
#[must_use]
pub fn gated(
    question: &PodQuestion<'_>,
    pod: &Pod<'_>,
    known: &Advice,
    least: Amounts,
) -> Option<Vec<Operation>> {
    let spec = pod.spec.as_ref()?;
    let is_bound = spec.node_name.as_deref().is_some_and(|node| !node.is_empty());
    let gates = spec.scheduling_gates.as_ref();
    let is_gated = gates.into_iter().flatten().any(|gate| gate.name.as_deref() == Some(GATE));
    let will_be_set = changes(question, known);
    let lacks = |name: &str, at: usize, is_set: bool| {
        !is_set && !will_be_set.iter().any(|change| change.container == name && change.resource == at)
    };
    let mut placeholders = json!({});
    let mut said = Vec::new();
    for container in &question.containers {
        let is_open = |at: usize| lacks(container.name, at, container.is_set(at));
        let open: Vec<usize> = (0..RESOURCES.len()).filter(|at| is_open(*at)).collect();
        if open.is_empty() {
            continue;
        }
        placeholders[container.name] = open.iter().map(|at| RESOURCES[*at]).collect();
        // What a LimitRange filled in is enough.
        let is_asked = |at: usize| open.contains(&at) && container.requests[at].is_none();
        let request = |at: usize| least[at].max(LEAST[at]).filter(|_| is_asked(at));
        let requests = [request(0), request(1)];
        said.push(ContainerAdvice {
            name: container.name.to_owned(),
            requests,
            known: requests.map(|request| request.is_some()),
            ..ContainerAdvice::default()
        });
    }
    if is_bound || is_gated || question.has_pod_resources || said.is_empty() || known.panic {
        return None;
    }
    // Cut, it would name nothing, and the gate would be lifted as if nothing stood for another.
    let placeholders = placeholders.to_string();
    if placeholders.len() + PLACEHOLDERS.len() > room(pod) {
        return None;
    }
    let advice = Advice { containers: said, ..Advice::default() };
    let mut operations = patch(question, changes(question, &advice));
    if gates.is_none() {
        operations.push(Operation::add("/spec/schedulingGates".to_owned(), json!([])));
    }
    operations.push(Operation::add("/spec/schedulingGates/-".to_owned(), json!({ "name": GATE })));
    operations.extend(without_labels(pod));
    operations.push(label(LABEL));
    operations.extend(annotate(pod, PLACEHOLDERS, &placeholders));
    Some(operations)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::Value;

    use super::*;

    fn told(spec: Value, known: &Advice, least: Amounts) -> Option<Vec<String>> {
        let pod = json!({ "metadata": {}, "spec": spec });
        let pod = Pod::deserialize(&pod).unwrap();
        let question = PodQuestion::of("shop", &pod).unwrap();
        let operations = gated(&question, &pod, known, least)?;
        let of = |one: &Operation| format!("{} {}", one.path, one.value.as_ref().unwrap());
        Some(operations.iter().map(of).collect())
    }

    #[test]
    fn a_pod_of_which_nothing_is_known_waits_with_the_least() {
        let nothing = Advice::default();
        let bare = json!({ "containers": [{ "name": "main" }] });
        let operations = told(bare.clone(), &nothing, [None; 2]).unwrap();
        assert_eq!(
            operations,
            [
                "/spec/containers/0/resources {}",
                "/spec/containers/0/resources/requests {}",
                r#"/spec/containers/0/resources/requests/cpu "10m""#,
                r#"/spec/containers/0/resources/requests/memory "16Mi""#,
                "/spec/schedulingGates []",
                r#"/spec/schedulingGates/- {"name":"evenkeel.dev/policy"}"#,
                "/metadata/labels {}",
                r#"/metadata/labels/evenkeel.dev~1gated "true""#,
                "/metadata/annotations {}",
                r#"/metadata/annotations/evenkeel.dev~1placeholders "{\"main\":[\"cpu\",\"memory\"]}""#,
            ]
        );
        let ranged = told(bare, &nothing, [Some(100), None]).unwrap();
        assert!(ranged.contains(&r#"/spec/containers/0/resources/requests/cpu "100m""#.to_owned()));
        // One that asks for CPU waits for memory alone.
        let half = json!({ "containers": [{ "name": "main", "resources": { "requests": { "cpu": "1" } } }] });
        let half = told(half, &nothing, [None; 2]).unwrap();
        assert!(half.last().unwrap().contains(r#"[\"memory\"]"#) && !half.concat().contains("requests/cpu"));
    }

    #[test]
    fn what_is_known_or_set_is_not_gated() {
        let nothing = Advice::default();
        let whole = json!({ "requests": { "cpu": "1", "memory": "1Gi" } });
        let bare = |more: Value| {
            let mut spec = json!({ "containers": [{ "name": "main" }] });
            more.as_object().unwrap().iter().for_each(|(key, value)| spec[key] = value.clone());
            spec
        };
        let known = Advice {
            containers: vec![ContainerAdvice {
                name: "main".into(),
                requests: [Some(5), Some(1 << 20)],
                known: [true; 2],
                ..ContainerAdvice::default()
            }],
            ..Advice::default()
        };
        let frozen = Advice { panic: true, ..Advice::default() };
        for (spec, known) in [
            (json!({ "containers": [{ "name": "main", "resources": whole }] }), &nothing),
            (
                json!({ "containers": [{ "name": "main", "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } }] }),
                &nothing,
            ),
            (bare(json!({ "nodeName": "node-1" })), &nothing),
            (bare(json!({ "resources": whole })), &nothing),
            (bare(json!({ "schedulingGates": [{ "name": GATE }] })), &nothing),
            (bare(json!({})), &known),
            (bare(json!({})), &frozen),
        ] {
            assert_eq!(told(spec.clone(), known, [None; 2]), None, "{spec}");
        }
        let other =
            told(bare(json!({ "schedulingGates": [{ "name": "other" }] })), &nothing, [None; 2]).unwrap();
        assert!(!other.contains(&"/spec/schedulingGates []".to_owned()), "{other:?}");
    }
}
