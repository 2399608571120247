//! What is written into objects: as the recorded recommender wrote it, and beyond.

use serde_json::{Value, json};

use super::*;

/// What a recorded recommender wrote.
fn recorded() -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("../../../tests/recordings/vpa.json")).unwrap();
    let exchanges = file["exchanges"].as_array().unwrap();
    let listed = exchanges[0]["response"]["body"]["items"].as_array().unwrap().iter();
    let stream = exchanges.last().unwrap()["response"]["stream"].as_array().unwrap();
    let watched = stream.iter().map(|part| &part["event"]["object"]);
    listed.chain(watched).filter(|object| object["status"]["conditions"].is_array()).cloned().collect()
}

fn read(object: &Value) -> Autoscaler {
    Autoscaler::read(object.to_string().as_bytes()).unwrap()
}

fn amount(resource: &str, text: &Value) -> Option<u64> {
    let quantity = Quantity::parse(text.as_str()?).unwrap();
    let amount = if resource == "cpu" { quantity.milli_u64() } else { quantity.to_u64() };
    // So the recommender writes that nothing is known of a bound.
    amount.filter(|amount| *amount < MOST)
}

/// What must have been found where this was written.
fn found(object: &Value) -> ObjectPods {
    let status = &object["status"];
    let condition =
        |kind: &str| status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == kind).cloned();
    let amounts = |container: &Value, resource: &str| {
        Some(Amounts {
            target: amount(resource, &container["uncappedTarget"][resource])?,
            lower: amount(resource, &container["lowerBound"][resource]),
            upper: amount(resource, &container["upperBound"][resource]),
        })
    };
    let containers = status["recommendation"]["containerRecommendations"].as_array().into_iter().flatten();
    let containers = containers.map(|container| Recommended {
        container: container["containerName"].as_str().unwrap().to_owned(),
        cpu: amounts(container, "cpu"),
        memory: amounts(container, "memory"),
        is_young: false,
    });
    ObjectPods {
        has_pods: condition("NoPodsMatched").is_none(),
        trouble: condition("ConfigUnsupported").map(|c| c["message"].as_str().unwrap().to_owned()),
        containers: containers.collect(),
    }
}

/// Without the condition that is Evenkeel's own.
fn plain(mut status: Value) -> Value {
    status["conditions"].as_array_mut().unwrap().retain(|condition| condition["type"] != NOT_HONOURED);
    status
}

#[test]
fn a_status_is_the_recorded_one_field_by_field() {
    let all = recorded();
    assert!(all.len() > 25, "{}", all.len());
    for object in &all {
        let since = object["status"]["conditions"][0]["lastTransitionTime"].as_str().unwrap();
        let mut before = object.clone();
        before["status"] = Value::Null;
        let mut found = found(object);
        // One that is switched off is recommended nothing.
        found.containers.push(Recommended { container: "side".into(), ..young(false) });
        found.containers.retain(|r| r.container != "side" || object["metadata"]["name"] == "web");
        let status = status(&read(&before), &found, since);
        assert_eq!(plain(status), object["status"], "{}", object["metadata"]["name"]);
    }
}

#[test]
fn nothing_is_written_where_nothing_changed() {
    for object in recorded() {
        let autoscaler = read(&object);
        let again = status(&autoscaler, &found(&object), "2027-01-01T00:00:00Z");
        // What holds, holds since it did.
        assert!(is_same(&plain(again.clone()), &object["status"]), "{again}");
    }
}

fn young(is_young: bool) -> Recommended {
    let amounts = Amounts { target: 100, lower: Some(50), upper: None };
    Recommended { container: "main".into(), cpu: Some(amounts), memory: Some(amounts), is_young }
}

fn object(spec: Value, status: Value) -> Autoscaler {
    read(
        &json!({ "metadata": { "name": "a", "generation": 2, "resourceVersion": "7" }, "spec": spec, "status": status }),
    )
}

fn conditions_of(status: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    status["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (text(&c["type"]), text(&c["lastTransitionTime"])))
        .collect()
}

#[test]
fn a_policy_bounds_what_is_recommended_and_the_value_before_is_kept() {
    let recommended = |target, lower, upper| Recommended {
        container: "main".into(),
        cpu: Some(Amounts { target, lower, upper }),
        memory: Some(Amounts { target: 64 << 20, lower: None, upper: None }),
        is_young: false,
    };
    let of = |policy: Value, recommended: Recommended| {
        let mut policy = policy;
        policy["containerName"] = "main".into();
        let object = object(json!({ "resourcePolicy": { "containerPolicies": [policy] } }), Value::Null);
        let found = ObjectPods { has_pods: true, containers: vec![recommended], ..ObjectPods::default() };
        status(&object, &found, "t")["recommendation"].clone()
    };
    let cpu = |value: &Value| {
        ["lowerBound", "target", "upperBound", "uncappedTarget"].map(|field| {
            value["containerRecommendations"][0][field]["cpu"].as_str().unwrap_or("-").to_owned()
        })
    };
    for (policy, given, want) in [
        (json!({}), (1500, Some(1000), Some(2000)), ["1", "1500m", "2", "1500m"]),
        // A bound is written as the policy has it, in its canonical form.
        (
            json!({ "minAllowed": { "cpu": "0.5" } }),
            (100, Some(50), Some(200)),
            ["500m", "500m", "500m", "100m"],
        ),
        (json!({ "maxAllowed": { "cpu": "1000m" } }), (1500, Some(900), None), ["900m", "1", "1", "1500m"]),
        (
            json!({ "minAllowed": { "cpu": 2 }, "maxAllowed": { "cpu": 1 } }),
            (7, Some(7), Some(7)),
            ["1", "1", "1", "7m"],
        ),
        (json!({}), (100, Some(50), None), ["50m", "100m", "100G", "100m"]),
        // A rule without bounds.
        (json!({}), (100, None, None), ["-", "100m", "-", "100m"]),
        (json!({ "controlledResources": ["memory"] }), (100, Some(1), Some(1)), ["-"; 4]),
    ] {
        let got = of(policy.clone(), recommended(given.0, given.1, given.2));
        assert_eq!(cpu(&got), want.map(str::to_owned), "{policy}");
        assert_eq!(got["containerRecommendations"][0]["target"]["memory"], "64Mi");
    }
    assert_eq!(of(json!({ "mode": "Off" }), recommended(1, None, None)), json!({}));
    assert_eq!(of(json!({ "controlledResources": [] }), recommended(1, None, None)), json!({}));
}

#[test]
fn a_condition_says_since_when_it_holds_and_what_others_wrote_stays() {
    let old =
        |kind: &str, status: &str| json!({ "type": kind, "status": status, "lastTransitionTime": "old" });
    let before = json!({ "conditions": [
        old("RecommendationProvided", "False"), old("NoPodsMatched", "True"), old("FetchingHistory", "True"), old("x.io/Mine", "True"),
    ]});
    let empty = ObjectPods { has_pods: false, ..ObjectPods::default() };
    let text = |all: &[(&str, &str)]| {
        all.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect::<Vec<_>>()
    };
    let of = |found: &ObjectPods| conditions_of(&status(&object(json!({}), before.clone()), found, "new"));
    let want = text(&[("NoPodsMatched", "old"), ("RecommendationProvided", "old"), ("x.io/Mine", "old")]);
    assert_eq!(of(&empty), want);
    let provided = ObjectPods { has_pods: true, containers: vec![young(true)], ..ObjectPods::default() };
    let want = text(&[("LowConfidence", "new"), ("RecommendationProvided", "new"), ("x.io/Mine", "old")]);
    assert_eq!(of(&provided), want);
    // Pods of which nothing is known yet.
    let unknown = ObjectPods { has_pods: true, ..ObjectPods::default() };
    let told = status(&object(json!({}), Value::Null), &unknown, "new");
    assert_eq!(
        (&told["conditions"][0]["reason"], &told["recommendation"]),
        (&json!("NoHistory"), &json!({}))
    );
}

#[test]
fn fields_that_change_nothing_are_named_in_a_condition() {
    let spec = json!({ "updatePolicy": { "updateMode": "InPlaceOrRecreate" }, "startupBoost": {} });
    let found = ObjectPods { has_pods: true, containers: vec![young(false)], ..ObjectPods::default() };
    let told = status(&object(spec, Value::Null), &found, "t");
    let message = told["conditions"][1]["message"].as_str().unwrap();
    assert_eq!(told["conditions"][1]["type"], NOT_HONOURED);
    assert!(
        message.ends_with("spec.startupBoost, spec.updatePolicy.updateMode (InPlaceOrRecreate)"),
        "{message}"
    );
}

#[test]
fn a_patch_is_of_one_version_and_takes_out_what_is_no_longer_recommended() {
    let object = object(json!({}), Value::Null);
    let nothing = patch(&object, &status(&object, &ObjectPods::default(), "t"));
    assert_eq!(nothing["metadata"], json!({ "resourceVersion": "7" }));
    assert_eq!(nothing["status"]["recommendation"], json!({ "containerRecommendations": null }));
    assert_eq!(nothing["status"]["observedGeneration"], 2);
    let found = ObjectPods { has_pods: true, containers: vec![young(false)], ..ObjectPods::default() };
    let some = patch(&object, &status(&object, &found, "t"));
    assert_eq!(some["status"]["recommendation"]["containerRecommendations"][0]["containerName"], "main");
}
