//! Reviews of pods that are made.

use evenkeel_webhook::advice::{Advice, ContainerAdvice};
use evenkeel_webhook::change::{changes, patch};
use evenkeel_webhook::gate::gated;
use evenkeel_webhook::object::Pod;
use evenkeel_webhook::patch::Operation;
use evenkeel_webhook::pod::PodQuestion;
use evenkeel_webhook::review::AdmissionRequest;
use serde::Deserialize as _;
use serde_json::Value;

/// A review that is read gets an answer whose patch the API server can apply, and nothing is changed twice.
pub(crate) fn review(bytes: &[u8]) {
    let Ok(request) = AdmissionRequest::read(bytes) else { return };
    assert!(serde_json::from_str::<Value>(&request.allowed(&[])).is_ok());
    let Ok(pod) = &request.object else { return };
    let Ok(question) = PodQuestion::of(&request.namespace, pod) else { return };
    assert!(serde_json::from_str::<Value>(&question.text).is_ok());
    // A number that no value can hold may be in what is passed over.
    let Ok(review) = serde_json::from_slice::<Value>(bytes) else { return };
    let object = &review["request"]["object"];
    for is_by_policy in [false, true] {
        let advice = advice(&question, is_by_policy);
        let after = patched(object, &patch(&question, changes(&question, &advice)));
        about(&after, |question| assert_eq!(changes(question, &advice), [], "{after}"));
    }
    let nothing = Advice::default();
    let Some(gate) = gated(&question, pod, &nothing, [Some(20), None]) else { return };
    let after = patched(object, &gate);
    let read = Pod::deserialize(&after).unwrap_or_default();
    about(&after, |question| assert_eq!(gated(question, &read, &nothing, [None; 2]), None, "{after}"));
}

/// The same for each container, by its place.
fn advice(question: &PodQuestion<'_>, is_by_policy: bool) -> Advice {
    let said = |name: &str| ContainerAdvice {
        name: name.to_owned(),
        requests: [Some(250), Some(64 << 20)],
        limits: [Some(500), None],
        startup: Some(750),
        known: [true; 2],
        ..ContainerAdvice::default()
    };
    let containers = question.containers.iter().map(|container| said(container.name)).collect();
    Advice { is_by_policy, containers, ..Advice::default() }
}

fn about(pod: &Value, ask: impl Fn(&PodQuestion<'_>)) {
    let read = Pod::deserialize(pod);
    assert!(read.is_ok(), "{pod}");
    let read = read.unwrap_or_default();
    let question = PodQuestion::of("shop", &read);
    assert!(question.is_ok(), "{pod}");
    question.iter().for_each(ask);
}

/// The object with a patch on it (RFC 6902: `add`, `remove`), which has to find its places.
fn patched(object: &Value, patch: &[Operation]) -> Value {
    let mut object = object.clone();
    for operation in patch {
        let (parent, key) = operation.path.rsplit_once('/').unwrap_or_default();
        let key = key.replace("~1", "/").replace("~0", "~");
        let is_found = match (object.pointer_mut(parent), &operation.value) {
            (Some(Value::Object(parent)), Some(value)) => {
                parent.insert(key, value.clone());
                true
            }
            (Some(Value::Object(parent)), None) => parent.remove(&key).is_some(),
            (Some(Value::Array(parent)), Some(value)) if key == "-" => {
                parent.push(value.clone());
                true
            }
            _ => false,
        };
        assert!(is_found, "{}: {object}", operation.path);
    }
    object
}

pub(crate) fn reviews() -> Vec<Vec<u8>> {
    let all: Vec<Value> =
        serde_json::from_str(include_str!("../../webhook/tests/recorded.json")).unwrap_or_default();
    all.iter().map(|one| one["review"].to_string().into_bytes()).collect()
}
