//! Reviews as a real API server sends them (1.36; `recorded.json`, without managed fields): each is read, and changed so that the API server
//! can take the patch.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use evenkeel_webhook::advice::{Advice, ContainerAdvice};
use evenkeel_webhook::change::{changes, patch};
use evenkeel_webhook::object::Pod;
use evenkeel_webhook::patch::{Operation, annotate};
use evenkeel_webhook::pod::PodQuestion;
use evenkeel_webhook::review::AdmissionRequest;
use serde::Deserialize as _;
use serde_json::{Value, json};

/// Puts a patch onto an object, as RFC 6902 has it for objects (`add`, `remove`); what is not there is an error.
fn patched(mut object: Value, patch: &[Operation]) -> Value {
    for operation in patch {
        let path = operation.path.as_str();
        let (parent, key) = path.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap_or_else(|| panic!("{path}: nothing to put it into"));
        let parent = parent.as_object_mut().unwrap_or_else(|| panic!("{path}: no object"));
        let key = key.replace("~1", "/").replace("~0", "~");
        match operation.op {
            "add" => drop(parent.insert(key, operation.value.clone().unwrap())),
            "remove" => assert!(parent.remove(&key).is_some(), "{path} is not there"),
            other => panic!("{other}"),
        }
    }
    object
}

/// The same for all containers.
fn advice(question: &PodQuestion<'_>) -> Advice {
    let said = |name: &str| ContainerAdvice {
        name: name.to_owned(),
        requests: [Some(250), Some(64 << 20)],
        known: [true; 2],
        ..ContainerAdvice::default()
    };
    let containers = question.containers.iter().map(|container| said(container.name)).collect();
    Advice { containers, ..Advice::default() }
}

#[test]
fn recorded_reviews_are_answered() {
    let all: Vec<Value> = serde_json::from_str(include_str!("recorded.json")).unwrap();
    assert!(all.len() > 10);
    let mut set = 0;
    for one in &all {
        let (note, review) = (&one["note"], &one["review"]);
        let text = review.to_string();
        let request = AdmissionRequest::read(text.as_bytes()).unwrap_or_else(|why| panic!("{note}: {why}"));
        assert!(request.makes_pod(), "{note}");
        let read = request.object.as_ref().unwrap_or_else(|why| panic!("{note}: {why}"));
        let question = PodQuestion::of(&request.namespace, read).unwrap();
        let pod = review["request"]["object"].clone();
        let known = advice(&question);
        let found = changes(&question, &known);
        set += usize::from(!found.is_empty());
        let after = patched(pod.clone(), &patch(&question, found));
        for (at, container) in pod["spec"]["containers"].as_array().unwrap().iter().enumerate() {
            let (before, after) = (&container["resources"], &after["spec"]["containers"][at]["resources"]);
            let is_left = question.has_pod_resources;
            for (resource, value) in [("cpu", "250m"), ("memory", "64Mi")] {
                let given = before["requests"].get(resource).or(before["limits"].get(resource));
                let want = if is_left || given.is_some() {
                    before["requests"][resource].clone()
                } else {
                    json!(value)
                };
                assert_eq!(after["requests"][resource], want, "{note}: {resource}");
            }
            assert_eq!(after["limits"], before["limits"], "{note}");
        }
        let annotated = patched(pod, &annotate(read, "evenkeel.dev/estimate", "x"));
        assert_eq!(annotated["metadata"]["annotations"]["evenkeel.dev/estimate"], "x");
        // Once it is set, it is nobody's to set again.
        let again = Pod::deserialize(&after).unwrap();
        let question = PodQuestion::of(&request.namespace, &again).unwrap();
        assert_eq!(changes(&question, &advice(&question)), [], "{note}");
    }
    assert!(set > 3, "{set} of {}", all.len());
}
