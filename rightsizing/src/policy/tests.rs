//! Tables and properties of policies.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::bounds::{NamedBound, capped, limit, limit_cap};
use super::rank::{Dated, Ranked};
use super::*;

fn with_spec(spec: &str) -> Result<Policy, PolicyError> {
    read(&format!(
        "apiVersion: evenkeel.dev/v1\nkind: Policy\nmetadata: {{name: web, namespace: shop}}\nspec: {spec}\n"
    ))
}

#[test]
fn a_mode_is_kept_as_its_word() {
    let text = "apiVersion: evenkeel.dev/v1\nkind: Policy\nmetadata: {name: p}\nspec:\n  target: {matchLabels: {a: b}}\n  \
                updatePolicy: {mode: off}\n  resourcesPolicy: {containers: [{name: c, mode: off}, {name: d, mode: auto}]}\n";
    let quoted = text.replace("mode: off", "mode: \"off\"");
    for text in [text, &quoted] {
        let policy = read(text).unwrap();
        assert_eq!(policy.spec["updatePolicy"]["mode"], "off", "{text}");
        let containers = &policy.spec["resourcesPolicy"]["containers"];
        assert_eq!(
            (&containers[0]["mode"], &containers[1]["mode"]),
            (&"off".into(), &"auto".into()),
            "{text}"
        );
    }
}

#[test]
fn the_documents_example_is_read() {
    let policy = read(
        r#"{"apiVersion": "evenkeel.dev/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "vpa"}, "spec": {
            "target": {"matchLabels": [{"key": "app", "value": "my-nginx-1"}]},
            "updatePolicy": {"mode": "auto"},
            "resourcesPolicy": {"containers": [{"name": "my-nginx",
                "requests": {"cpu": {"min": "500m"}, "memory": {"min": "200Mi"}}}]}}}"#,
    )
    .unwrap();
    assert_eq!((policy.key().as_str(), policy.mode), ("default/vpa", UpdateMode::Auto));
    assert!(policy.selects("default", |key| (key == "app").then_some("my-nginx-1")));
    assert!(!policy.selects("other", |key| (key == "app").then_some("my-nginx-1")));
    let container = policy.container("my-nginx").unwrap();
    assert_eq!((container.cpu.min, container.memory.min), (Some(500), Some(200 << 20)));
    assert_eq!(policy.container("other"), None);
}

#[test]
fn a_controller_is_named_where_it_is_known_what_it_selects() {
    let labels = LabelSelector::parse("app=web,tier in (a,b)").unwrap();
    let object = |spec: Value| {
        json!({ "apiVersion": API_VERSION, "kind": "VerticalPodAutoscaler", "metadata": { "name": "web", "namespace": "shop" },
            "spec": spec })
    };
    let target = json!({ "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" } });
    let policy = read_resolved(&object(target.clone()), Some(&labels)).unwrap();
    let pod = |app: &'static str| move |key: &str| Some(if key == "app" { app } else { "a" });
    assert!(policy.selects("shop", pod("web")) && !policy.selects("shop", pod("db")));
    assert_eq!((policy.labels.as_ref(), &policy.object(None, Value::Null)["spec"]), (Some(&labels), &target));
    let other =
        read_resolved(&object(target.clone()), Some(&LabelSelector::parse("app=web").unwrap())).unwrap();
    assert!(policy.is_same(&policy.clone()) && !policy.is_same(&other));
    let both = json!({ "target": {}, "targetRef": target["targetRef"] });
    let short = json!({ "targetRef": { "kind": "Deployment", "name": "web" } });
    for (spec, labels, place) in [
        (target, None, "spec.targetRef"),
        (both, Some(&labels), "spec.targetRef"),
        (short, Some(&labels), "spec.targetRef.apiVersion"),
        (json!({}), Some(&labels), "spec.target"),
    ] {
        assert_eq!(read_resolved(&object(spec), labels).unwrap_err().place, place);
    }
}

#[test]
fn a_file_holds_as_many_policies_as_a_large_cluster_has() {
    let one = |n: usize| {
        format!(
            "---\napiVersion: evenkeel.dev/v1\nkind: Policy\nmetadata: {{name: p-{n}}}\nspec: {{target: {{}}}}\n"
        )
    };
    let text: String = (0..2000).map(one).collect();
    let all = read_all(&text).unwrap();
    assert_eq!((all.len(), all[1999].name.as_str()), (2000, "p-1999"));
}

#[test]
fn everything_that_can_be_written_is_read_and_written_again() {
    let spec = "{target: {matchLabels: {app: web}, matchExpressions: [{key: tier, operator: NotIn, values: [db]}]}, \
                updatePolicy: {mode: initial}, initialResourcesPolicy: if-not-set, rule: initial, \
                parameters: {percentilePerMille: 950}, goals: {cpu: {threshold: 0.9, over: 0.02}, memory: {over: 0.05}}, \
                resourcesPolicy: {limits: ratio, containers: [{name: '*', requests: {cpu: {min: 0.1, max: 2}}}, \
                {name: log, mode: off}]}}";
    let policy = with_spec(spec).unwrap();
    assert_eq!((policy.mode, policy.limits), (UpdateMode::Initial, LimitsMode::Ratio));
    assert_eq!(policy.initial, InitialResources::IfNotSet);
    assert_eq!(
        policy.goals,
        Goals { cpu_threshold: Some(0.9), cpu_over: Some(0.02), memory_over: Some(0.05) }
    );
    assert!(policy.container("log").unwrap().off);
    assert_eq!(policy.container("web").unwrap().cpu, RequestBounds { min: Some(100), max: Some(2000) });
    let object = policy.object(Some("2026-01-01T00:00:00Z"), json!({"conditions": []}));
    assert_eq!(object["metadata"]["creationTimestamp"], "2026-01-01T00:00:00Z");
    let again = read(&object.to_string()).unwrap();
    assert_eq!(again.object(None, Value::Null)["spec"], object["spec"]);
    assert_eq!((again.mode, again.containers), (policy.mode, policy.containers));
}

#[test]
fn what_is_wrong_is_told_by_field() {
    let all = "target: {}";
    let container = |text: &str| format!("{{{all}, resourcesPolicy: {{containers: [{text}]}}}}");
    let table = [
        ("{}".to_owned(), "spec.target", "selects nothing"),
        (format!("{{{all}, update: 1}}"), "spec.update", "no such field"),
        (format!("{{{all}, updatePolicy: {{mode: on}}}}"), "spec.updatePolicy.mode", "on (or true) is none"),
        (
            format!("{{{all}, updatePolicy: {{mode: always}}}}"),
            "spec.updatePolicy.mode",
            "off, initial or auto",
        ),
        (format!("{{{all}, resourcesPolicy: {{limits: double}}}}"), "spec.resourcesPolicy.limits", "ratio"),
        (
            container("{name: a, requests: {cpu: {min: 2, max: 1}}}"),
            "spec.resourcesPolicy.containers[0].requests.cpu.min",
            "above max",
        ),
        (
            container("{name: a, requests: {cpu: {min: 0.0001}}}"),
            "spec.resourcesPolicy.containers[0].requests.cpu.min",
            "thousandth",
        ),
        (
            container("{name: a, requests: {memory: {max: -1}}}"),
            "spec.resourcesPolicy.containers[0].requests.memory.max",
            "negative",
        ),
        (
            container("{name: a, requests: {memory: {max: 64MB}}}"),
            "spec.resourcesPolicy.containers[0].requests.memory.max",
            "64MB",
        ),
        (container("{name: a}, {name: a}"), "spec.resourcesPolicy.containers[1]", "twice"),
        (container("{requests: {}}"), "spec.resourcesPolicy.containers[0].name", "missing"),
        (
            container("{name: a, mode: off, requests: {cpu: {min: 1}}}"),
            "spec.resourcesPolicy.containers[0].requests",
            "off",
        ),
        (
            "{target: {matchLabels: {a: x}, matchExpressions: [{key: a, operator: DoesNotExist}]}}".into(),
            "spec.target",
            "selects nothing",
        ),
        (
            "{target: {matchExpressions: [{key: a, operator: In, values: []}]}}".into(),
            "spec.target.matchExpressions[0].values",
            "selects nothing",
        ),
        (
            "{target: {matchExpressions: [{key: a, operator: Exists, values: [x]}]}}".into(),
            "spec.target.matchExpressions[0].values",
            "takes no values",
        ),
        (
            "{target: {matchExpressions: [{key: a, operator: Near}]}}".into(),
            "spec.target.matchExpressions[0].operator",
            "DoesNotExist",
        ),
        (format!("{{{all}, goals: {{cpu: {{over: 1.5}}}}}}"), "spec.goals.cpu.over", "part"),
        (
            format!("{{{all}, updatePolicy: {{mode: 'off'}}, initialResourcesPolicy: always}}"),
            "spec.initialResourcesPolicy",
            "nothing is ever set",
        ),
    ];
    for (spec, place, why) in table {
        let error = with_spec(&spec).unwrap_err();
        assert_eq!(error.place, place, "{spec}: {error}");
        assert!(error.to_string().contains(why), "{spec}: {error}");
        assert!(!error.remedy.is_empty(), "{spec}");
    }
    for (text, place) in [
        ("kind: Policy", "apiVersion"),
        ("apiVersion: v1\nkind: Policy", "apiVersion"),
        ("apiVersion: evenkeel.dev/v1\nkind: Pod", "kind"),
        ("apiVersion: evenkeel.dev/v1\nkind: Policy\nmetadata: {name: A_b}", "metadata.name"),
        ("apiVersion: evenkeel.dev/v1\nkind: Policy\nmetadata: {nam: a}", "metadata.nam"),
        ("{", "policy"),
        ("", "policy"),
    ] {
        assert_eq!(read(text).unwrap_err().place, place, "{text:?}");
    }
}

#[test]
fn several_objects_are_told_apart() {
    let one = "apiVersion: evenkeel.dev/v1\nkind: Policy\nmetadata: {name: a}\nspec: {target: {}}\n";
    assert_eq!(read_all(&format!("{one}---\n{one}")).unwrap().len(), 2);
    assert!(read(&format!("{one}---\n{one}")).unwrap_err().why.contains("2 policies"));
    let bad = one.replace("target", "targets");
    let error = read_all(&format!("{one}---\n{bad}")).unwrap_err();
    assert_eq!(error.place, "object 2: spec.targets");
}

#[test]
fn caps_are_applied_in_order_and_named() {
    let table: [(u64, &[NamedBound<'_>], u64, &[&str]); 5] = [
        (5, &[], 5, &[]),
        (5, &[NamedBound::AtLeast(7, "min")], 7, &["min"]),
        (5, &[NamedBound::AtMost(3, "max")], 3, &["max"]),
        (5, &[NamedBound::AtLeast(7, "min"), NamedBound::AtMost(6, "limit")], 6, &["min", "limit"]),
        (5, &[NamedBound::AtLeast(1, "min"), NamedBound::AtMost(9, "max")], 5, &[]),
    ];
    for (value, caps, want, by) in table {
        assert_eq!(capped(value, caps.iter().copied()), (want, by.to_vec()));
    }
}

#[test]
fn limits_follow_their_mode() {
    use LimitsMode::{Keep, None as Removed, Ratio};
    let table = [
        (Removed, Some(200), Some(100), 50, None),
        (Keep, Some(200), Some(100), 50, Some(200)),
        (Keep, None, Some(100), 50, None),
        (Ratio, Some(200), Some(100), 50, Some(100)),
        (Ratio, Some(100), Some(3), 1, Some(34)),
        (Ratio, Some(200), None, 50, Some(50)),
        (Ratio, Some(200), Some(0), 300, Some(300)),
        (Ratio, Some(u64::MAX), Some(1), u64::MAX, Some(u64::MAX)),
        (Ratio, None, Some(1), 5, None),
    ];
    for (mode, given, before, request, want) in table {
        assert_eq!(limit(mode, given, before, request), want, "{mode:?} {given:?} {before:?} {request}");
    }
    assert_eq!((limit_cap(Keep, Some(3)), limit_cap(Ratio, Some(3))), (Some(3), None));
}

fn any_selector() -> impl Strategy<Value = String> {
    let key = prop::sample::select(vec!["a", "b"]);
    let values = prop::collection::vec(prop::sample::select(vec!["x", "y", "z"]), 1..3);
    let one = (key, 0..4usize, values).prop_map(|(key, operator, values)| match operator {
        0 => json!({"key": key, "operator": "In", "values": values}),
        1 => json!({"key": key, "operator": "NotIn", "values": values}),
        2 => json!({"key": key, "operator": "Exists"}),
        _ => json!({"key": key, "operator": "DoesNotExist"}),
    });
    prop::collection::vec(one, 0..5).prop_map(|all| json!({ "matchExpressions": all }).to_string())
}

fn every_label_set() -> Vec<BTreeMap<&'static str, &'static str>> {
    // `other` stands for every value that no selector of these tests names.
    let values = [None, Some("x"), Some("y"), Some("z"), Some("other")];
    let pair = |a: Option<&'static str>, b: Option<&'static str>| {
        [("a", a), ("b", b)].into_iter().filter_map(|(k, v)| Some((k, v?))).collect()
    };
    values.iter().flat_map(|a| values.iter().map(move |b| pair(*a, *b))).collect()
}

proptest! {
    #[test]
    fn a_selector_is_refused_exactly_when_no_pod_can_fulfil_it(selector in any_selector()) {
        let read = with_spec(&format!("{{target: {selector}}}"));
        match read {
            Ok(policy) => prop_assert!(
                every_label_set().iter().any(|l| policy.selector.matches(|k| l.get(k).copied())), "{selector}"
            ),
            Err(error) => prop_assert!(error.why.contains("selects nothing"), "{error}"),
        }
    }

    #[test]
    fn the_index_finds_what_trying_each_finds_and_the_oldest_first(
        selectors in prop::collection::vec((any_selector(), 0u64..3), 1..12),
    ) {
        let policies: Vec<Dated> = selectors.iter().enumerate().filter_map(|(at, (selector, created_ms))| {
            let mut policy = with_spec(&format!("{{target: {selector}}}")).ok()?;
            policy.name = format!("p{at}");
            Some(Dated { policy: std::sync::Arc::new(policy), created_ms: *created_ms })
        }).collect();
        let ranked = Ranked::new(policies.clone());
        for labels in every_label_set() {
            let pairs: Vec<_> = labels.iter().map(|(k, v)| (*k, *v)).collect();
            let found: Vec<_> = ranked.selecting("shop", pairs.iter().copied())
                .into_iter().map(|at| ranked.all()[at].clone()).collect();
            let mut want: Vec<_> = policies.iter()
                .filter(|d| d.policy.selects("shop", |k| labels.get(k).copied())).cloned().collect();
            want.sort_by(|a, b| a.rank().cmp(&b.rank()));
            prop_assert_eq!(found, want);
        }
        prop_assert!(ranked.selecting("elsewhere", [("a", "x")]).is_empty());
    }

    #[test]
    fn a_capped_value_keeps_the_last_of_contradicting_bounds(
        value in any::<u64>(), min in any::<u64>(), max in any::<u64>(),
    ) {
        let (got, by) = capped(value, [NamedBound::AtLeast(min, "min"), NamedBound::AtMost(max, "max")]);
        prop_assert!(got <= max);
        prop_assert!(got >= min || min > max);
        prop_assert_eq!(by.is_empty(), got == value && (min <= value || min > max && max >= min));
    }

    #[test]
    fn a_ratio_is_kept_and_a_limit_never_falls_below_its_request(
        given in 1u64..1 << 40, before in 1u64..1 << 40, request in 0u64..1 << 40,
    ) {
        let after = limit(LimitsMode::Ratio, Some(given), Some(before), request).unwrap();
        prop_assert!(after >= request);
        let exact = u128::from(given) * u128::from(request);
        prop_assert!(u128::from(after) * u128::from(before) >= exact);
        if after > request {
            prop_assert!(u128::from(after - 1) * u128::from(before) < exact);
        }
    }
}
