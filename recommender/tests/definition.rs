//! Suite `unit`: the definition of Evenkeel's own objects (`packaging/kubernetes/crd.yaml`) is one that an API server takes, and agrees with what
//! reads the objects: every field both ways, and which objects are right.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common::apiserver;

use std::collections::BTreeSet;

use apiserver::definition::Definition;
use evenkeel_model::selector::LabelSelector;
use evenkeel_rightsizing::policy::read_resolved;
use serde_json::{Value, json};

fn object(spec: Value) -> Value {
    json!({
        "apiVersion": "evenkeel.dev/v1", "kind": "VerticalPodAutoscaler",
        "metadata": { "name": "web", "namespace": "shop" }, "spec": spec,
    })
}

#[test]
fn the_definition_is_one_an_api_server_takes() {
    let definition = Definition::shipped();
    assert_eq!(definition.not_structural(), Vec::<String>::new());
    let spec = &definition.object["spec"];
    let name = format!("{}.{}", spec["names"]["plural"].as_str().unwrap(), spec["group"].as_str().unwrap());
    assert_eq!(
        (definition.object["metadata"]["name"].as_str().unwrap(), &*name),
        (&*name, "verticalpodautoscalers.evenkeel.dev")
    );
    assert_eq!((&spec["scope"], &spec["names"]["shortNames"]), (&json!("Namespaced"), &json!(["evpa"])));
    assert_eq!(spec["versions"].as_array().unwrap().len(), 1);
    let version = definition.version();
    assert_eq!(
        (&version["name"], &version["served"], &version["storage"], &version["subresources"]),
        (&json!("v1"), &json!(true), &json!(true), &json!({ "status": {} }))
    );
    // What kubectl shows is there.
    for column in version["additionalPrinterColumns"].as_array().unwrap() {
        let path = column["jsonPath"].as_str().unwrap();
        let plain = path.replace("[0]", "").replace("[?(@.type==\"RecommendationProvided\")]", "");
        let mut at = definition.schema();
        for part in plain.trim_start_matches('.').split('.').take_while(|_| !plain.starts_with(".metadata")) {
            let inner = if at["items"].is_object() { &at["items"] } else { at };
            let field = &inner["properties"][part];
            at = if field.is_object() { field } else { &inner["additionalProperties"] };
            assert!(at.is_object(), "{path} at {part}");
        }
    }
}

/// The smallest object that has something at each place where fields are.
fn full() -> Value {
    json!({
        "target": { "matchLabels": { "app": "web" }, "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["a"] }] },
        "updatePolicy": {
            "mode": "auto", "evict": "oom", "minReplicas": 3, "maxUnavailable": "50%", "tolerance": { "up": 0.1, "down": 0.3 },
            "minAgeSeconds": 60, "windows": [{ "days": ["Sat"], "from": "22:00", "to": "06:00" }], "canarySeconds": 300,
        },
        "resourcesPolicy": { "limits": "keep", "containers": [
            { "name": "*", "mode": "auto", "requests": { "cpu": { "min": "50m", "max": 2 }, "memory": { "min": "64Mi", "max": "1Gi" } } },
        ]},
        "initialResourcesPolicy": "always",
        "startupBoost": { "factor": 2, "seconds": 120, "learned": true },
        "goals": { "cpu": { "threshold": 0.9, "over": 0.02 }, "memory": { "over": 1 } },
        "rule": "goal",
        "parameters": { "change": "raise" },
    })
}

/// Places of a spec where fields are, each with how it is reached in the schema.
const PLACES: [(&str, &str); 14] = [
    ("/spec", "spec"),
    ("/spec/target", "spec.target"),
    ("/spec/target/matchExpressions/0", "spec.target.matchExpressions.[]"),
    ("/spec/targetRef", "spec.targetRef"),
    ("/spec/updatePolicy", "spec.updatePolicy"),
    ("/spec/updatePolicy/tolerance", "spec.updatePolicy.tolerance"),
    ("/spec/updatePolicy/windows/0", "spec.updatePolicy.windows.[]"),
    ("/spec/resourcesPolicy", "spec.resourcesPolicy"),
    ("/spec/resourcesPolicy/containers/0", "spec.resourcesPolicy.containers.[]"),
    ("/spec/resourcesPolicy/containers/0/requests", "spec.resourcesPolicy.containers.[].requests"),
    ("/spec/resourcesPolicy/containers/0/requests/cpu", "spec.resourcesPolicy.containers.[].requests.cpu"),
    ("/spec/startupBoost", "spec.startupBoost"),
    ("/spec/goals", "spec.goals"),
    ("/spec/goals/cpu", "spec.goals.cpu"),
];

fn schema_at<'a>(schema: &'a Value, place: &str) -> &'a Value {
    place
        .split('.')
        .fold(schema, |at, part| if part == "[]" { &at["items"] } else { &at["properties"][part] })
}

/// What the reader of policies says it knows at a place.
fn read_fields(pointer: &str) -> BTreeSet<String> {
    let mut spec = full();
    if pointer == "/spec/targetRef" {
        let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
        spec = json!({ "targetRef": target });
    }
    let mut object = object(spec);
    object.pointer_mut(pointer).unwrap()["frob"] = 1.into();
    let error = read_resolved(&object, Some(&LabelSelector::default())).unwrap_err();
    assert!(error.place.ends_with(".frob"), "{error}");
    let known = error.remedy.rsplit_once("write one of ").unwrap().1;
    known.split(", ").map(str::to_owned).collect()
}

#[test]
fn every_field_is_in_the_definition_and_in_what_reads_it() {
    let definition = Definition::shipped();
    for (pointer, place) in PLACES {
        let written: BTreeSet<String> = schema_at(definition.schema(), place)["properties"]
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect();
        assert_eq!(written, read_fields(pointer), "{place}");
    }
    // No place with fields was left out.
    let mut places = BTreeSet::new();
    collect(schema_at(definition.schema(), "spec"), "spec", &mut places);
    let twins = ["spec.resourcesPolicy.containers.[].requests.memory", "spec.goals.memory"];
    let known: BTreeSet<String> =
        PLACES.iter().map(|(_, place)| *place).chain(twins).map(str::to_owned).collect();
    assert_eq!(places, known);
    for twin in twins {
        let (cpu, memory) = (
            schema_at(definition.schema(), &twin.replace("memory", "cpu")),
            schema_at(definition.schema(), twin),
        );
        for (field, schema) in memory["properties"].as_object().unwrap() {
            assert_eq!(cpu["properties"][field], *schema, "{twin}.{field}");
        }
    }
    let mut whole = object(full());
    definition.admit(&mut whole).unwrap();
    assert_eq!(whole["spec"], full(), "nothing is pruned");
    read_resolved(&whole, None).unwrap();
}

fn collect(schema: &Value, place: &str, places: &mut BTreeSet<String>) {
    if let Some(fields) = schema["properties"].as_object() {
        places.insert(place.to_owned());
        fields.iter().for_each(|(name, field)| collect(field, &format!("{place}.{name}"), places));
    }
    if schema["items"].is_object() {
        collect(&schema["items"], &format!("{place}.[]"), places);
    }
}

/// Whether the API server takes a spec, and whether the recommender then understands it.
#[test]
fn objects_are_right_and_wrong_for_both() {
    let definition = Definition::shipped();
    let with = |pointer: &str, value: Value| {
        let mut spec = full();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[name] = value;
        spec
    };
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
    let container = "/resourcesPolicy/containers/0";
    let table = [
        (full(), true, true),
        (json!({ "target": {} }), true, true),
        (json!({ "targetRef": target }), true, true),
        // Neither, or both.
        (json!({}), false, false),
        (json!({ "target": {}, "targetRef": target }), false, false),
        (json!({ "targetRef": { "kind": "Deployment", "name": "web" } }), false, false),
        (with("/updatePolicy/mode", json!("Auto")), false, false),
        (json!({ "target": {}, "updatePolicy": { "mode": "off" } }), true, true),
        (with("/updatePolicy/mode", json!("off")), false, false),
        (with("/initialResourcesPolicy", json!("sometimes")), false, false),
        (with("/updatePolicy/evict", json!("now")), false, false),
        (with("/updatePolicy/minReplicas", json!(0)), false, false),
        (with("/updatePolicy/maxUnavailable", json!(2)), true, true),
        (with("/updatePolicy/maxUnavailable", json!("some")), true, false),
        (with("/updatePolicy/tolerance/up", json!(0)), false, false),
        (with("/updatePolicy/windows/0/from", json!("25:00")), true, false),
        (with("/updatePolicy/windows/0/days", json!(["Caturday"])), false, false),
        (with("/rule", json!("median")), false, true),
        (with("/goals/cpu/over", json!(0)), false, false),
        (with("/goals/cpu/over", json!(1.01)), false, false),
        (with("/resourcesPolicy/limits", json!("double")), false, false),
        (with("/startupBoost", json!({ "amount": "500m" })), true, true),
        (with("/startupBoost", json!({ "factor": 1.5 })), true, true),
        (with("/startupBoost", json!({ "seconds": 5 })), false, false),
        (with("/startupBoost/amount", json!("1")), false, false),
        (with("/startupBoost/factor", json!(0.5)), false, false),
        (with("/startupBoost/factor", json!(101)), false, false),
        (with("/startupBoost/learned", json!("yes")), false, false),
        (with("/startupBoost/seconds", json!(0)), false, false),
        (with("/startupBoost/seconds", json!(3601)), false, false),
        (with(&format!("{container}/requests/cpu"), json!({ "min": "2", "max": "1500m" })), false, false),
        (with(&format!("{container}/requests/memory"), json!({ "min": 1024, "max": "1Ki" })), true, true),
        (with(&format!("{container}/requests/cpu/min"), json!("-1")), false, false),
        (with(&format!("{container}/requests/cpu/min"), json!("much")), false, false),
        (with(&format!("{container}/mode"), json!("off")), false, false),
        (with(&format!("{container}/mode"), json!("initial")), false, false),
        (with(&format!("{container}/name"), Value::Null), false, false),
        (with("/resourcesPolicy/containers", json!([{ "name": "a" }, { "name": "a" }])), false, false),
        (with("/target/matchExpressions/0/operator", json!("Gt")), false, false),
        // What only the reader sees is told in the object's status.
        (with("/target/matchExpressions/0/values", json!([])), true, false),
        (with(&format!("{container}/requests/memory/min"), json!("1500m")), true, false),
        (
            with(
                "/target",
                json!({ "matchExpressions": [{ "key": "a", "operator": "Exists" }, { "key": "a", "operator": "DoesNotExist" }] }),
            ),
            true,
            false,
        ),
    ];
    for (spec, is_taken, is_read) in table {
        let mut object = object(spec);
        let told = definition.admit(&mut object.clone());
        assert_eq!(told.is_ok(), is_taken, "{object}: {told:?}");
        if is_taken {
            definition.admit(&mut object).unwrap();
        }
        let read = read_resolved(&object, Some(&LabelSelector::default()));
        assert_eq!(read.is_ok(), is_read, "{object}: {read:?}");
    }
    // A field that nobody knows is dropped by one, and refused by the other.
    let mut unknown = object(with("/frob", json!(1)));
    assert!(read_resolved(&unknown, None).unwrap_err().place == "spec.frob");
    definition.admit(&mut unknown).unwrap();
    assert!(unknown["spec"]["frob"].is_null());
    // Defaults are those of files.
    let mut short = object(json!({ "target": {}, "updatePolicy": {}, "resourcesPolicy": {} }));
    let before = read_resolved(&short, None).unwrap();
    definition.admit(&mut short).unwrap();
    let after = read_resolved(&short, None).unwrap();
    assert_eq!((before.mode, before.limits), (after.mode, after.limits));
    assert_eq!(
        (&short["spec"]["updatePolicy"]["mode"], &short["spec"]["resourcesPolicy"]["limits"]),
        (&json!("auto"), &json!("keep"))
    );
}
