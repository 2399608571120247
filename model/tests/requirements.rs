//! The rules of requirements: defaulting, request and limit, pod and containers, node and pods.
#![allow(clippy::unwrap_used, clippy::panic)] // a failing helper fails its test

use evenkeel_model::name::ResourceName;
use evenkeel_model::pod::read_pods;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::{Requirements, ResourceList, check_total};
use evenkeel_model::resource_type::{ResourceType, ResourceTypes};

fn list(json: &str) -> ResourceList {
    serde_json::from_str(json).unwrap()
}

fn requirements(json: &str) -> Requirements {
    serde_json::from_str(json).unwrap()
}

fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap()
}

fn texts(errors: &[impl ToString]) -> Vec<String> {
    errors.iter().map(ToString::to_string).collect()
}

#[test]
fn a_type_named_twice_is_an_error() {
    for json in [r#"{"cpu": 1, "cpu": 1}"#, r#"{"cpu": 1, "kubernetes.io/cpu": "2"}"#] {
        let error = serde_json::from_str::<ResourceList>(json).expect_err(json).to_string();
        assert!(error.contains("resource cpu is named more than once"), "{error}");
    }
    let mut list = list(r#"{"cpu": 1}"#);
    assert!(list.insert(ResourceName::CPU, Quantity::from_units(2)).is_err());
    assert_eq!(list.cpu(), Some(Quantity::from_units(1)), "unchanged");
}

#[test]
fn a_list_is_written_short_and_canonical() {
    let list = list(r#"{"kubernetes.io/memory": "1024Mi", "cpu": 0.5, "nvidia.com/gpu": 1}"#);
    assert_eq!(json(&list), r#"{"cpu":"500m","memory":"1Gi","nvidia.com/gpu":"1"}"#);
}

#[test]
fn a_request_defaults_to_the_limit() {
    let written = requirements(r#"{"requests": {"cpu": "1"}, "limits": {"cpu": "2", "memory": "1Gi"}}"#);
    assert_eq!(json(&written.defaulted().requests), r#"{"cpu":"1","memory":"1Gi"}"#);
    let zero = requirements(r#"{"requests": {"cpu": 0}, "limits": {"cpu": 2}}"#);
    assert_eq!(json(&zero.defaulted().requests), r#"{"cpu":"0"}"#, "a written zero stays");
}

#[test]
fn a_request_defaults_to_that_of_its_type_and_is_rounded_up() {
    let q = |text: &str| Quantity::parse(text).unwrap();
    let mut types = ResourceTypes::predefined();
    let seat = ResourceType::unknown(ResourceName::parse("example.com/seat").unwrap())
        .with_default_request(q("1"))
        .and_then(|seat| seat.with_quantization(q("2")))
        .unwrap();
    types.define(seat).unwrap();
    let effective = |json: &str| self::json(&requirements(json).effective_requests(&types));
    assert_eq!(effective("{}"), r#"{"example.com/seat":"2"}"#);
    assert_eq!(effective(r#"{"limits": {"example.com/seat": 3}}"#), r#"{"example.com/seat":"4"}"#);
    assert_eq!(
        effective(r#"{"requests": {"example.com/seat": 0, "hugepages-2Mi": "3Mi"}}"#),
        r#"{"example.com/seat":"0","hugepages-2Mi":"4Mi"}"#
    );
}

#[test]
fn broken_rules_name_field_value_reason_and_remedy() {
    let wrong = requirements(r#"{"requests": {"cpu": 3, "memory": "-1Gi"}, "limits": {"cpu": "2500m"}}"#);
    assert_eq!(
        texts(&wrong.check("spec.containers[web].resources")),
        [
            "spec.containers[web].resources.requests.memory = -1Gi: the amount is negative; write an amount of zero or more",
            "spec.containers[web].resources.requests.cpu = 3: the request is above the limit 2500m; \
             lower the request or raise the limit",
        ]
    );
    let names = r#"{"requests": {"foo": 1, "example.com/a": 1}, "limits": {"kubernetes.io/hadoop": 1, "hugepages-2Mi": "2Mi", "cpu": 1}}"#;
    assert_eq!(
        texts(&requirements(names).check("x")),
        [
            "x.requests.foo = 1: Kubernetes defines no such type, and its namespace is reserved; put a type of your own under \
             a domain of your own, such as example.com/",
            "x.limits.hadoop = 1: Kubernetes defines no such type, and its namespace is reserved; put a type of your own under \
             a domain of your own, such as example.com/",
        ]
    );
    let equal = requirements(r#"{"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}}"#);
    assert_eq!(equal.check("x"), []);
}

#[test]
fn a_pod_bounds_its_containers() {
    let check = |resources: &str| {
        let text = format!(
            "kind: Pod\nmetadata: {{name: p}}\nspec:\n  resources: {resources}\n  containers:\n  \
             - {{name: a, resources: {{requests: {{cpu: 1}}, limits: {{cpu: 2, memory: 1Gi}}}}}}\n  \
             - {{name: b, resources: {{requests: {{cpu: 1}}, limits: {{cpu: 2}}}}}}\n"
        );
        texts(&read_pods(&text, "t").unwrap()[0].check())
    };
    let none: [&str; 0] = [];
    assert_eq!(check("{requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 4}}"), none);
    assert_eq!(check("{}"), none);
    assert_eq!(
        check("{requests: {cpu: 1500m}}"),
        [
            "spec.resources.requests.cpu = 1500m: the pod's request is below the 2 its containers request together; \
             raise the pod's request or lower those of its containers"
        ]
    );
    assert_eq!(
        check("{limits: {memory: 512Mi, cpu: 4}}"),
        [
            "spec.resources.limits.memory = 512Mi: the pod's limit is below the 1Gi its containers request together; \
             raise the pod's limit or lower the requests of its containers"
        ]
    );
    assert_eq!(check("{limits: {cpu: 3}}"), none, "together they may be allowed more");
    assert_eq!(
        check("{requests: {cpu: 2}, limits: {cpu: 2, memory: 512Mi}}"),
        check("{limits: {memory: 512Mi}}"),
    );
    assert_eq!(
        check("{requests: {memory: 1Gi}, limits: {cpu: 1500m, memory: 1Gi}}").len(),
        1,
        "a limit below what the containers request by default"
    );
    assert_eq!(
        check("{requests: {example.com/seat: 1}}"),
        [
            "spec.resources.requests.example.com/seat = 1: this resource cannot be set for the pod as a whole; \
             set it on the containers: a pod takes cpu, memory and hugepages-* only"
        ]
    );
    assert_eq!(check("{requests: {cpu: 5}, limits: {cpu: 4}}").len(), 1);
}

#[test]
fn huge_pages_are_whole_limited_and_beside_cpu_or_memory() {
    for (resources, want) in [
        (r#"{"limits": {"hugepages-2Mi": "4Mi", "memory": "1Gi"}}"#, None),
        (r#"{"requests": {"hugepages-2Mi": "4Mi", "cpu": 1}, "limits": {"hugepages-2Mi": "4Mi"}}"#, None),
        (r#"{"requests": {"hugepages-2Mi": "4Mi", "cpu": 1}}"#, Some("not overcommitted")),
        (
            r#"{"requests": {"hugepages-2Mi": "2Mi", "cpu": 1}, "limits": {"hugepages-2Mi": "4Mi"}}"#,
            Some("not overcommitted"),
        ),
        (r#"{"limits": {"hugepages-2Mi": "3Mi", "memory": "1Gi"}}"#, Some("no whole number of pages")),
        (r#"{"limits": {"hugepages-2Mi": "4Mi"}}"#, Some("without CPU and memory")),
    ] {
        let told = texts(&requirements(resources).check("r"));
        assert_eq!(told.len(), usize::from(want.is_some()), "{resources}: {told:?}");
        assert!(want.is_none_or(|want| told[0].contains(want)), "{resources}: {told:?}");
    }
}

#[test]
fn the_overhead_is_not_negative() {
    let text = "kind: Pod\nmetadata: {name: p}\nspec: {overhead: {cpu: -1}, containers: [{name: a}]}";
    let errors = texts(&read_pods(text, "t").unwrap()[0].check());
    assert_eq!(errors, ["spec.overhead.cpu = -1: the amount is negative; write an amount of zero or more"]);
}

#[test]
fn a_nodes_total_bounds_its_pods() {
    let total = list(r#"{"cpu": 4, "memory": "1Gi"}"#);
    let pods =
        [list(r#"{"cpu": "2500m", "memory": "512Mi"}"#), list(r#"{"cpu": "1500m", "memory": "512Mi"}"#)];
    assert_eq!(check_total("nodes[n].total", &total, &pods), []);
    let more = [pods[0].clone(), pods[0].clone(), list(r#"{"nvidia.com/gpu": 1, "example.com/zero": 0}"#)];
    assert_eq!(
        texts(&check_total("nodes[n].total", &total, &more)),
        [
            "nodes[n].total.cpu = 5: the pods together request more than the node's total 4; \
             place fewer pods on the node or lower their requests",
            "nodes[n].total.nvidia.com/gpu = 1: the pods together request more than the node's total 0; \
             place fewer pods on the node or lower their requests",
        ]
    );
    let huge = [list(r#"{"cpu": "1e40"}"#), list(r#"{"cpu": "1e40"}"#)];
    assert!(check_total("n", &total, &huge)[0].to_string().contains("beyond what a quantity can hold"));
}
