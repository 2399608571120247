//! Pods read from fixtures of YAML and JSON, and the errors of those that cannot be read.
#![allow(clippy::unwrap_used, clippy::panic)] // a failing helper fails its test

use evenkeel_model::name::ResourceName;
use evenkeel_model::pod::{
    Pod, PodObjects, ReadError, ReadReason, RestartPolicy, read_pod_objects, read_pods,
    read_resources_by_container,
};
use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::ResourceList;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::ContainerKind;
use proptest::prelude::*;

const SIDECAR: &str = include_str!("fixtures/sidecar.yaml");
const MIXED: &str = include_str!("fixtures/mixed.yaml");
const PODLIST: &str = include_str!("fixtures/podlist.json");

fn read(text: &str) -> Vec<Pod> {
    read_pods(text, "test.yaml").unwrap_or_else(|error| panic!("{error}"))
}

fn one(text: &str) -> Pod {
    let mut pods = read(text);
    assert_eq!(pods.len(), 1);
    pods.remove(0)
}

fn error(text: &str) -> ReadError {
    read_pods(text, "test.yaml").expect_err(text)
}

/// `cpu=1, memory=64Mi`
fn written(list: &ResourceList) -> String {
    list.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(", ")
}

/// A pod around a container's `resources`, in flow style.
fn with_resources(resources: &str) -> String {
    format!(
        "kind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n  - name: c\n    resources:\n      {}\n",
        resources.replace('\n', "\n      ")
    )
}

#[test]
fn a_pod_keeps_what_its_author_wrote() {
    let pod = one(SIDECAR);
    assert_eq!((pod.metadata.name.as_str(), pod.metadata.namespace.as_str()), ("shop", "store"));
    assert_eq!(pod.metadata.uid.as_deref(), Some("0f8c1f6e-6c7e-4b62-9a55-0d5d4f3f8a11"));
    assert_eq!(pod.metadata.labels["tier"], "1");
    assert!(pod.is_static() && !pod.is_mirror());
    assert_eq!(pod.node_name.as_deref(), Some("n1"));
    assert_eq!((pod.priority, pod.priority_class_name.as_deref()), (Some(1000), Some("business")));
    assert_eq!(pod.restart_policy, RestartPolicy::OnFailure);
    let kinds: Vec<(&str, ContainerKind)> =
        pod.counted_containers().map(|c| (c.name.as_str(), c.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("migrate", ContainerKind::Init),
            ("proxy", ContainerKind::Sidecar),
            ("warm-up", ContainerKind::Init),
            ("web", ContainerKind::Regular),
            ("cache", ContainerKind::Regular),
        ]
    );
    let web = pod.container("web").unwrap();
    assert_eq!(web.image.as_deref(), Some("registry.example.com/web:7.1"));
    assert_eq!(web.command, ["/bin/web", "--port", "8080"]);
    assert_eq!(web.args, ["-v"]);
    assert_eq!(written(&web.resources.requests), "", "nothing is filled in");
    assert_eq!(pod.ephemeral_containers.len(), 1);
    assert!(pod.container("debug").is_none());
}

#[test]
fn the_scheduler_sets_aside_the_busiest_moment() {
    let pod = one(SIDECAR);
    // cpu: migrate 2 before any sidecar; running 1.5 + 0.25 + 0.1 is less. memory: warm-up 1Gi + proxy 32Mi.
    assert_eq!(written(&pod.container_requests()), "example.com/seat=2, cpu=2, memory=1056Mi");
    assert_eq!(written(&pod.effective_requests()), "example.com/seat=2, cpu=2250m, memory=1176Mi");
    assert_eq!(written(&pod.container_limits()), "example.com/seat=2, cpu=1500m, memory=320Mi");
    assert_eq!(written(&pod.effective_limits()), "example.com/seat=2, cpu=1750m, memory=440Mi");
    assert_eq!(pod.check(), []);
}

#[test]
fn cpu_and_memory_of_a_container_have_requests_from_limits() {
    let pod = one(SIDECAR);
    let web = pod.container("web").unwrap().cpu_and_memory();
    assert_eq!((web.cpu_request, web.cpu_limit), (Some(MilliCpu::new(1500)), Some(MilliCpu::new(1500))));
    assert_eq!(web.memory_request, Some(Bytes::new(256 << 20)));
    let cache = pod.container("cache").unwrap().cpu_and_memory();
    assert_eq!((cache.memory_request, cache.memory_limit), (Some(Bytes::new(128_000_000)), None));
    let zero = one(&with_resources("requests: {cpu: 0}")).containers[0].cpu_and_memory();
    assert_eq!((zero.cpu_request, zero.memory_request), (Some(MilliCpu::ZERO), None));
}

#[test]
fn one_object_that_cannot_be_read_hides_no_other() {
    let pod = |name: &str, cpu: &str| {
        format!(
            "kind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers:\n  - name: c\n    resources: {{requests: {{cpu: {cpu}}}}}\n"
        )
    };
    let list = "kind: List\nitems: [{kind: Pod}, {kind: Service, metadata: {name: s}}]\n";
    let text = [pod("a", "1x"), pod("b", "1"), list.to_owned(), pod("c", "few")].join("---\n");
    let PodObjects { pods, skipped, errors } = read_pod_objects(&text, "t", 1 << 20).unwrap();
    assert_eq!(pods.iter().map(|pod| pod.metadata.name.as_str()).collect::<Vec<_>>(), ["b"]);
    assert_eq!(skipped.len(), 1);
    assert_eq!(errors.iter().filter_map(|error| error.document).collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!(read_pods(&text, "t").expect_err("not all can be read"), errors[0]);
}

#[test]
fn templates_are_pods_and_the_rest_is_listed() {
    let PodObjects { pods, skipped, errors } = read_pod_objects(MIXED, "mixed.yaml", 1 << 20).unwrap();
    assert_eq!(errors, []);
    let shown: Vec<_> = pods
        .iter()
        .map(|p| {
            (
                p.origin.kind.as_str(),
                p.origin.document,
                p.metadata.namespace.as_str(),
                p.metadata.name.as_str(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("Deployment", 2, "shop", "front"),
            ("CronJob", 3, "default", "nightly"),
            ("Pod", 4, "default", "batch-")
        ]
    );
    let front = &pods[0];
    assert_eq!(front.metadata.labels["app"], "front");
    assert!(!front.metadata.labels.contains_key("team"), "labels are those of the template");
    assert_eq!(front.metadata.annotations["evenkeel.dev/manage"], "false");
    assert_eq!(front.controller().map(|owner| owner.kind.as_str()), Some("Deployment"));
    assert_eq!(written(&front.container("helper").unwrap().resources.requests), "cpu=100m, memory=64Mi");
    let skipped: Vec<_> = skipped.iter().map(|s| (s.document, s.kind.as_str(), s.name.as_str())).collect();
    assert_eq!(skipped, [(0, "Service", "front"), (4, "ConfigMap", "settings")]);
}

#[test]
fn a_typed_list_of_json_names_no_kinds() {
    let pods = read(PODLIST);
    assert_eq!(pods.len(), 2);
    assert!(pods[0].is_mirror() && pods[0].is_static());
    assert_eq!(pods[0].controller().map(|owner| owner.name.as_str()), Some("web-6d5f"));
    let main = &pods[0].containers[0];
    assert_eq!(written(&main.resources.requests), "cpu=500m, memory=134217728");
    assert_eq!(pods[1].containers[0].image, None);
    assert_eq!(pods[1].reference().namespace, "default");
}

#[test]
fn several_json_values_are_several_documents() {
    let pod = r#"{"kind": "Pod", "metadata": {"name": "NAME"}, "spec": {"containers": [{"name": "c"}]}}"#;
    let pods = read(&format!("{}\n{}", pod.replace("NAME", "a"), pod.replace("NAME", "b")));
    assert_eq!(pods.iter().map(|p| p.origin.document).collect::<Vec<_>>(), [0, 1]);
    let flow = read(&pod.replace('"', ""));
    assert_eq!(flow[0].metadata.name, "NAME", "flow style without quotes is YAML");
}

#[test]
fn pod_level_resources_replace_the_sum_of_the_containers() {
    let pod = &read(PODLIST)[0];
    assert_eq!(written(&pod.effective_requests()), "cpu=1, memory=1Gi");
    assert_eq!(written(&pod.effective_limits()), "memory=2Gi");
    let level = |resources: &str, container: &str| {
        let text = format!(
            "kind: Pod\nmetadata: {{name: p}}\nspec:\n  resources: {resources}\n  \
             containers: [{{name: c, resources: {container}}}]"
        );
        written(&one(&text).effective_requests())
    };
    assert_eq!(level("{limits: {cpu: 2}}", "{}"), "cpu=2", "the limit where the containers say nothing");
    assert_eq!(level("{limits: {cpu: 2}}", "{requests: {cpu: 1}}"), "cpu=1", "else their sum");
    assert_eq!(
        level("{limits: {hugepages-2Mi: 8Mi}}", "{limits: {memory: 1Gi, hugepages-2Mi: 2Mi}}"),
        "hugepages-2Mi=8Mi, memory=1Gi",
        "huge pages are not overcommitted: the limit, whatever the containers say"
    );
    assert_eq!(level("{requests: {example.com/a: 2}}", "{}"), "", "not for a pod as a whole");
}

#[test]
fn numbers_are_read_as_they_are_written() {
    for (text, exact) in [
        ("0.1", "0.1"),
        ("1e3", "1000"),
        (".5", "0.5"),
        ("0.12345678901234567890", "0.123456790"),
        ("12345678901234567890.5", "12345678901234567890.5"),
        ("123456789012345678901234567", "123456789012345678901234567"),
        ("'2'", "2"),
        ("\" 64Mi \"", "67108864"),
    ] {
        let pod = one(&with_resources(&format!("requests:\n  cpu: {text} # so many")));
        let cpu = pod.containers[0].resources.requests.cpu().unwrap();
        assert_eq!(cpu, Quantity::parse(exact).unwrap(), "{text}");
    }
}

#[test]
fn errors_name_document_line_field_and_remedy() {
    let table = [
        "",
        "# nothing\n---\n",
        "kind: Service\nmetadata: {name: s}\n",
        "just text",
        "- kind: Pod",
        "metadata: {name: p}",
        "kind: Pod",
        "kind: Pod\nmetadata: {namespace: n}\nspec: {containers: [{name: c}]}",
        "kind: Pod\nmetadata: {name: p}",
        "kind: Pod\nmetadata: {name: p}\nspec: {}",
        "kind: Pod\nmetadata: {name: p}\nspec: {containers: []}",
        "kind: Pod\nmetadata: {name: p}\nspec: {containers: {name: c}}",
        "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - image: i",
        "kind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: a\n  - name: a",
        "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a}], priority: 3000000000}",
        "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a}], restartPolicy: Sometimes}",
        "kind: Deployment\nmetadata: {name: d}\nspec: {}",
        "kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: a}]}\n---\nkind: Pod\nmetadata: [p]\n",
        "kind: Pod\n  metadata: {",
        "{\"kind\": \"Pod\", \"metadata\": }",
        "kind: Pod\nmetadata: *nowhere",
    ];
    let resources = [
        "requests:\n  cpu: 64MB",
        "requests:\n  cpu:\n    a: 1",
        "requests:\n  cpu: true",
        "requests:\n  cpu:",
        "requests: [cpu]",
        "limits:\n  c pu: 1",
        "requests:\n  cpu: 1\n  memory: 1\n  cpu: 2",
        "requests:\n  cpu: 1\n  kubernetes.io/cpu: 2",
    ];
    let mut shown = String::new();
    for text in table.into_iter().map(str::to_owned).chain(resources.map(with_resources)) {
        shown.push_str(&format!("{}\n", error(&text)));
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn a_resource_named_twice_in_json_is_an_error() {
    let text = r#"{"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [
        {"name": "c", "resources": {"limits": {"cpu": 1, "cpu": 2}}}]}}"#;
    let error = error(text);
    assert_eq!(error.path.as_deref(), Some("spec.containers[0].resources.limits.cpu"));
    assert_eq!(error.reason, ReadReason::DuplicateKey { key: "cpu".to_owned() });
}

#[test]
fn bounds_hold() {
    let limit = read_pod_objects(MIXED, "m", 100).expect_err("too large");
    assert!(matches!(limit.reason, ReadReason::TooLarge { limit: 100, .. }));
    let deep = format!("kind: {}{}", "[".repeat(5000), "]".repeat(5000));
    assert!(matches!(error(&deep).reason, ReadReason::Syntax(_)));
    let deep_json = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(matches!(error(&deep_json).reason, ReadReason::Syntax(_)));
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let alias = format!("*a{}, ", level - 1);
        bomb.push_str(&format!("a{level}: &a{level} [{}]\n", alias.repeat(10).trim_end_matches(", ")));
    }
    assert!(matches!(error(&bomb).reason, ReadReason::Syntax(_)));
    let lists = format!("{}{}", "{kind: List, items: [".repeat(12), "]}".repeat(12));
    assert!(error(&lists).to_string().contains("nested"));
}

#[test]
fn resources_by_container_are_read_from_an_annotation() {
    let text = r#"{"web": {"requests": {"cpu": "100m"}}, "log": {"limits": {"memory": "1Gi"}}}"#;
    let read = read_resources_by_container(text, "annotation").unwrap();
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].0, "web");
    assert_eq!(read[1].1.defaulted().requests.get(&ResourceName::MEMORY), Quantity::parse("1Gi").ok());
    let wrong =
        read_resources_by_container(r#"{"web": {"requests": {"cpu": "x"}}}"#, "annotation").expect_err("x");
    assert_eq!(wrong.path.as_deref(), Some("web.requests.cpu"));
}

proptest! {
    #[test]
    fn any_text_gets_an_answer(text in any::<String>()) {
        let _ = read_pods(&text, "t");
    }

    #[test]
    fn a_damaged_manifest_never_panics(at in 0_usize..SIDECAR.len(), byte in 0_u8..128) {
        let mut bytes = SIDECAR.as_bytes().to_vec();
        bytes[at] = byte;
        let pods = String::from_utf8(bytes).ok().and_then(|text| read_pods(&text, "t").ok());
        for pod in pods.unwrap_or_default() {
            let _ = (pod.effective_requests(), pod.effective_limits(), pod.check());
        }
    }

    #[test]
    fn a_cut_manifest_never_panics(at in 0_usize..PODLIST.len()) {
        let _ = read_pods(&PODLIST[..at], "t");
    }
}
