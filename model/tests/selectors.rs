//! Label selectors and node selectors, as Kubernetes' own tests have them.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;

use evenkeel_model::selector::{LabelSelector, NodeSelectorTerm, Requirement, Selector, SelectorError};
use serde_json::{Value, json};

fn selector(written: Value) -> Result<Selector, SelectorError> {
    Selector::new(&serde_json::from_value::<LabelSelector>(written).unwrap())
}

fn matches(selector: &Selector, labels: &[(&str, &str)]) -> bool {
    let labels: BTreeMap<&str, &str> = labels.iter().copied().collect();
    selector.matches(|key| labels.get(key).copied())
}

#[test]
fn every_requirement_must_hold_and_absence_counts_as_kubernetes_counts_it() {
    let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "tier", "operator": operator, "values": values}]});
    let table = [
        ("an empty one selects everything", json!({}), [true, true, true]),
        (
            "nulls are absent fields",
            json!({"matchLabels": null, "matchExpressions": null}),
            [true, true, true],
        ),
        ("a label", json!({"matchLabels": {"tier": "web"}}), [false, true, false]),
        ("In", expression("In", json!(["web", "db"])), [false, true, true]),
        ("NotIn also without the label", expression("NotIn", json!(["web"])), [true, false, true]),
        ("Exists", expression("Exists", json!([])), [false, true, true]),
        ("DoesNotExist", expression("DoesNotExist", Value::Null), [true, false, false]),
        (
            "both parts",
            json!({"matchLabels": {"tier": "web"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["web"]}]}),
            [false, false, false],
        ),
    ];
    for (what, written, want) in table {
        let selector = selector(written).unwrap();
        let got = [&[][..], &[("tier", "web")], &[("tier", "db")]].map(|labels| matches(&selector, labels));
        assert_eq!(got, want, "{what}");
    }
}

#[test]
fn only_node_selectors_compare_numbers() {
    let term = |operator: &str, value: &str| {
        let written =
            json!({"matchExpressions": [{"key": "cores", "operator": operator, "values": [value]}]});
        let term: NodeSelectorTerm = serde_json::from_value(written).unwrap();
        Requirement::of_nodes(&term.match_expressions[0], str::to_owned).unwrap()
    };
    let holds = |requirement: &Requirement<String>, value: Option<&str>| {
        requirement.condition().holds(value, |value| value.parse().ok())
    };
    let (above, below, never) = (term("Gt", "8"), term("Lt", "8"), term("Gt", "many"));
    for (value, want) in [
        (Some("9"), [true, false, false]),
        (Some("8"), [false, false, false]),
        (Some("-1"), [false, true, false]),
        (Some("nine"), [false, false, false]),
        (None, [false, false, false]),
    ] {
        assert_eq!([&above, &below, &never].map(|requirement| holds(requirement, value)), want, "{value:?}");
    }
    let of_labels =
        selector(json!({"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]}));
    assert_eq!(of_labels, Err(SelectorError::Operator("Gt".to_owned())));
}

#[test]
fn operators_and_numbers_of_values_are_checked() {
    for (operator, values, want) in [
        ("In", json!([]), "takes at least one value"),
        ("NotIn", Value::Null, "takes at least one value"),
        ("Exists", json!(["x"]), "takes no value"),
        ("DoesNotExist", json!(["x"]), "takes no value"),
        ("in", json!(["x"]), "is not an operator"),
        ("", json!(["x"]), "is not an operator"),
    ] {
        let written = json!({"matchExpressions": [{"key": "a", "operator": operator, "values": values}]});
        let error = selector(written).unwrap_err().to_string();
        assert!(error.contains(want), "{operator}: {error}");
    }
    for values in [json!([]), json!(["1", "2"])] {
        let written: NodeSelectorTerm = serde_json::from_value(
            json!({"matchExpressions": [{"key": "a", "operator": "Lt", "values": values}]}),
        )
        .unwrap();
        let error = Requirement::of_nodes(&written.match_expressions[0], str::to_owned).unwrap_err();
        assert_eq!(error.to_string(), "operator Lt of a takes one value");
    }
}
