//! What the API server says beside what a runtime says: exact where the runtime bears it out, and no right in itself.

use std::collections::HashMap;
use std::sync::Arc;

use evenkeel_enforce::shared::SourceProblem;
use evenkeel_model::node::NodeFacts;
use evenkeel_model::pod::{ContainerRequirements, PodRequirements};
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::{ContainerKind, Managed, Requested, Workload};
use evenkeel_qos::config::PlanConfig;
use evenkeel_qos::plan::plan;
use evenkeel_qos::rules::RuleSet;
use serde::Deserialize;
use serde_json::json;

use super::super::Terms;
use super::convert;
use super::info::Details;
use super::v1;
use crate::pods::ByUid;

/// What a real API server and kubelet said of the same pods at the same moments (1.36.2; kube_recordings, `node_facts`).
const RECORDED: &str = include_str!("fixtures/node_facts.json");

#[derive(Deserialize)]
struct Recorded {
    memory: String,
    pods: Vec<RecordedPod>,
}

#[derive(Deserialize)]
struct RecordedPod {
    note: String,
    pod: PodRequirements,
    containers: Vec<RecordedContainer>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordedContainer {
    name: String,
    cgroup: String,
    cpu_shares: Option<i64>,
    cpu_quota_usec: Option<i64>,
    cpu_period_usec: Option<i64>,
    memory_limit_bytes: Option<i64>,
    /// What the kubelet asked the runtime for when it made the container.
    oom_score_adj: Option<i64>,
}

fn sandbox(uid: &str, namespace: &str, name: &str) -> v1::PodSandbox {
    v1::PodSandbox {
        id: format!("sandbox-{name}"),
        metadata: Some(v1::PodSandboxMetadata {
            name: name.into(),
            uid: uid.into(),
            namespace: namespace.into(),
            attempt: 0,
        }),
        ..v1::PodSandbox::default()
    }
}

fn container(name: &str) -> v1::Container {
    v1::Container {
        id: format!("c-{name}"),
        labels: HashMap::from([("io.kubernetes.container.name".to_owned(), name.to_owned())]),
        ..v1::Container::default()
    }
}

fn said(pods: impl IntoIterator<Item = PodRequirements>) -> ByUid {
    Arc::new(pods.into_iter().map(|pod| (pod.uid_on_node().to_owned(), Arc::new(pod))).collect())
}

fn score(node: &NodeFacts, rules: RuleSet, workload: &Workload) -> i16 {
    let config = PlanConfig { rules, ..PlanConfig::default() };
    let plan = plan(node, &config, std::slice::from_ref(workload));
    plan.containers[0].wishes.oom_score_adj.as_ref().unwrap().value.get()
}

fn shares(node: &NodeFacts, workload: &Workload) -> i64 {
    let config = PlanConfig { rules: RuleSet::Kubelet, ..PlanConfig::default() };
    let plan = plan(node, &config, std::slice::from_ref(workload));
    plan.containers[0].wishes.cpu_shares.as_ref().unwrap().value.get().into()
}

#[test]
fn a_real_kubelet_gave_what_follows_from_the_api_servers_words() {
    let recorded: Recorded = serde_json::from_str(RECORDED).unwrap();
    let memory = Bytes::new(Quantity::parse(&recorded.memory).unwrap().to_u64().unwrap());
    let node = NodeFacts::of_size(memory, MilliCpu::new(2000));
    let terms = Terms { capacity: memory, trusted: Vec::new() };
    let mut compared = 0;
    for RecordedPod { note, pod, containers } in recorded.pods {
        let sandbox = sandbox(&pod.uid, &pod.namespace, &pod.name);
        let run: Vec<(v1::Container, Details)> = containers
            .iter()
            .map(|c| {
                let details = Details {
                    cgroup: c.cgroup.clone(),
                    cpu_shares: c.cpu_shares,
                    cpu_quota_usec: c.cpu_quota_usec,
                    cpu_period_usec: c.cpu_period_usec,
                    memory_limit_bytes: c.memory_limit_bytes,
                    oom_score_adj: c.oom_score_adj,
                    ..Details::default()
                };
                (container(&c.name), details)
            })
            .collect();
        let run: Vec<(&v1::Container, &Details)> = run.iter().map(|(of, details)| (of, details)).collect();
        let mut problems = Vec::new();
        let got = convert::pod(&sandbox, &run, &said([pod.clone()]), &terms, &mut problems);
        assert_eq!(problems, [], "{note}: {}", pod.name);
        for (workload, kubelet) in got.iter().zip(&containers) {
            let place = format!("{note}: {}/{}", pod.name, kubelet.name);
            assert!(workload.pod_facts.from_api, "{place}");
            assert_eq!(workload.pod_facts.qos_class, pod.qos_class, "{place}");
            let score = score(&node, RuleSet::Kubelet, workload);
            // The kubelet leaves the score of a container that it resizes; what it requests now is 4Gi.
            let wanted = if score != -997 && pod.name == "rz-fork" && !note.starts_with("before") {
                831
            } else {
                kubelet.oom_score_adj.unwrap()
            };
            assert_eq!(i64::from(score), wanted, "{place}");
            // A resize of a pod as a whole leaves a container that requests nothing itself the least.
            if pod.resources.is_none() {
                assert_eq!(Some(shares(&node, workload)), kubelet.cpu_shares, "{place}");
                let Requested::Stated(resources) = workload.requested else { panic!("{place}: not stated") };
                let limit = resources.memory_limit.and_then(|limit| i64::try_from(limit.get()).ok());
                assert_eq!(limit, kubelet.memory_limit_bytes, "{place}");
                let quota =
                    resources.cpu_limit.and_then(|cpu| i64::try_from(cpu.get()).ok()).map(|cpu| cpu * 100);
                // A container with processors of its own has no quota; the least is a millisecond.
                let whole = kubelet.cpu_quota_usec == Some(-1);
                assert!(
                    whole || quota.map(|quota| quota.max(1000)) == kubelet.cpu_quota_usec,
                    "{place}: {quota:?}"
                );
            }
            compared += 1;
        }
    }
    assert!(compared > 40, "{compared}");
}

/// A pod of one container, `main`.
fn pod(resources: serde_json::Value) -> PodRequirements {
    PodRequirements {
        uid: "u".into(),
        namespace: "ns".into(),
        name: "p".into(),
        containers: vec![ContainerRequirements {
            name: "main".into(),
            kind: ContainerKind::Regular,
            resources: serde_json::from_value(resources).unwrap(),
        }],
        ..PodRequirements::default()
    }
}

fn run_as(cgroup: &str, score: Option<i64>) -> Details {
    Details { cgroup: cgroup.into(), cpu_shares: Some(102), oom_score_adj: score, ..Details::default() }
}

const BURSTABLE: &str = "/kubepods/burstable/podu/c1";
const GUARANTEED: &str = "/kubepods/podu/c1";
const BEST_EFFORT: &str = "/kubepods/besteffort/podu/c1";

fn converted(
    word: PodRequirements,
    details: &Details,
    pod: &v1::PodSandbox,
    trusted: &[&str],
) -> (Workload, Vec<SourceProblem>) {
    let terms =
        Terms { capacity: Bytes::new(1 << 30), trusted: trusted.iter().map(|n| (*n).to_owned()).collect() };
    let mut problems = Vec::new();
    let main = container("main");
    let mut got = convert::pod(pod, &[(&main, details)], &said([word]), &terms, &mut problems);
    (got.remove(0), problems)
}

fn of(word: PodRequirements, details: &Details) -> (Workload, Vec<SourceProblem>) {
    converted(word, details, &sandbox("u", "ns", "p"), &[])
}

fn node() -> NodeFacts {
    NodeFacts::of_size(Bytes::new(1 << 30), MilliCpu::new(2000))
}

#[test]
fn exact_words_take_the_place_of_the_estimate() {
    let word =
        pod(json!({ "requests": { "cpu": "123m", "memory": "257Mi" }, "limits": { "memory": "300Mi" } }));
    let (got, problems) = of(word, &run_as(BURSTABLE, Some(750)));
    assert_eq!(problems, []);
    let Requested::Stated(resources) = got.requested else { panic!("not stated") };
    assert_eq!(
        (resources.cpu_request, resources.memory_request, resources.memory_limit),
        (Some(MilliCpu::new(123)), Some(Bytes::new(257 << 20)), Some(Bytes::new(300 << 20)))
    );
    assert_eq!(got.pod_facts.qos_class, Some(QosClass::Burstable));
    assert_eq!(score(&node(), RuleSet::Kubelet, &got), 750);
    // A container that the API server does not name, such as one for debugging, is what its record says, in the same pod.
    let word = PodRequirements { containers: Vec::new(), ..pod(json!({})) };
    let (got, problems) = of(word, &run_as(BURSTABLE, Some(999)));
    assert_eq!((got.pod_facts.from_api, problems), (false, vec![]));
    assert!(matches!(got.requested, Requested::Estimated(_)));
    // A request above its limit is the limit.
    let word = pod(json!({ "requests": { "memory": "1Gi" }, "limits": { "memory": "64Mi", "cpu": "1" } }));
    let (got, _) = of(word, &run_as(GUARANTEED, Some(-997)));
    let Requested::Stated(resources) = got.requested else { panic!("not stated") };
    assert_eq!(resources.memory_request, Some(Bytes::new(64 << 20)));
}

#[test]
fn a_word_gives_no_class_and_no_critical_score_that_the_runtime_does_not_bear_out() {
    let all = json!({ "limits": { "cpu": "2", "memory": "1Gi" } });
    let some = json!({ "requests": { "memory": "1Gi" } });
    let none = json!({});
    let critical = |word: PodRequirements| PodRequirements {
        priority: Some(2_000_001_000),
        priority_class_name: Some("system-node-critical".into()),
        ..word
    };
    let class = |word: PodRequirements, class| PodRequirements { qos_class: Some(class), ..word };
    for (what, word, details) in [
        ("guaranteed by its limits", pod(all.clone()), run_as(BURSTABLE, Some(999))),
        ("burstable by its request", pod(some.clone()), run_as(BEST_EFFORT, Some(1000))),
        (
            "guaranteed by name",
            class(pod(none.clone()), QosClass::Guaranteed),
            run_as(BEST_EFFORT, Some(1000)),
        ),
        (
            "burstable by its request, whatever it is called",
            class(pod(some.clone()), QosClass::BestEffort),
            run_as(BEST_EFFORT, Some(1000)),
        ),
        ("best effort by name", class(pod(some.clone()), QosClass::BestEffort), run_as(BURSTABLE, Some(999))),
        ("guaranteed, without a tier", pod(all), run_as("/x", Some(950))),
        ("burstable, and nothing is known", pod(some.clone()), run_as("/x", None)),
        (
            "another name",
            PodRequirements { name: "q".into(), ..pod(some.clone()) },
            run_as(BURSTABLE, Some(999)),
        ),
        (
            "another namespace",
            PodRequirements { namespace: "kube-system".into(), ..pod(some.clone()) },
            run_as(BURSTABLE, Some(999)),
        ),
    ] {
        let (got, problems) = of(word, &details);
        let (without, _) = of(PodRequirements { uid: "other".into(), ..pod(none.clone()) }, &details);
        assert_eq!(got, without, "{what}");
        assert_eq!(problems.len(), 1, "{what}: {problems:?}");
        assert!(problems[0].where_ == "pod ns/p" && problems[0].remedy.contains("node.name"), "{problems:?}");
    }
    // Critical by its word alone is not critical; by its record, too, it is.
    let (got, problems) = of(critical(pod(some.clone())), &run_as(BURSTABLE, Some(500)));
    assert_eq!((got.pod_facts.node_critical, problems), (false, vec![]));
    let (got, _) = of(critical(pod(some.clone())), &run_as(BURSTABLE, Some(-997)));
    assert!(got.pod_facts.node_critical);
    assert_eq!(score(&node(), RuleSet::Kubelet, &got), -997);
    let (got, problems) = of(critical(pod(some)), &run_as("/x", Some(-997)));
    assert_eq!((got.pod_facts.node_critical, got.pod_facts.from_api, problems), (true, true, vec![]));
    // Without a tier the score bears the class out.
    let (got, problems) = of(pod(none), &run_as("/x", Some(1000)));
    assert_eq!(
        (got.pod_facts.qos_class, got.pod_facts.from_api, problems),
        (Some(QosClass::BestEffort), true, vec![])
    );
}

#[test]
fn annotations_lower_what_is_said_and_go_above_it_where_they_are_trusted() {
    let word = || pod(json!({ "requests": { "cpu": "200m", "memory": "256Mi" } }));
    let annotated = |text: &str| v1::PodSandbox {
        annotations: HashMap::from([("evenkeel.dev/resources".to_owned(), text.to_owned())]),
        ..sandbox("u", "ns", "p")
    };
    let memory = |got: &Workload| match got.requested {
        Requested::Stated(resources) => resources.memory_request.unwrap().get() >> 20,
        _ => panic!("not stated"),
    };
    let (less, more) =
        (r#"{"main": {"requests": {"memory": "64Mi"}}}"#, r#"{"main": {"requests": {"memory": "512Mi"}}}"#);
    for (text, trusted, want, from_api, told) in [
        (less, &[][..], 64, true, 0),
        (more, &[][..], 256, true, 1),
        (less, &["ns"][..], 64, false, 0),
        (more, &["ns"][..], 512, false, 0),
    ] {
        let (got, problems) = converted(word(), &run_as(BURSTABLE, Some(750)), &annotated(text), trusted);
        assert_eq!(
            (memory(&got), got.pod_facts.from_api, problems.len()),
            (want, from_api, told),
            "{text} {trusted:?}"
        );
    }
}

#[test]
fn a_static_pod_is_known_by_its_hash_and_left_alone() {
    let word = PodRequirements {
        uid: "uid-of-the-mirror".into(),
        config_hash: Some("hash".into()),
        priority: Some(2_000_001_000),
        priority_class_name: Some("system-node-critical".into()),
        ..pod(json!({ "requests": { "cpu": "100m" } }))
    };
    let mut sandbox = sandbox("hash", "ns", "p");
    sandbox.annotations.insert("kubernetes.io/config.source".into(), "file".into());
    let (got, problems) = converted(word.clone(), &run_as(BURSTABLE, Some(-997)), &sandbox, &[]);
    assert_eq!(problems, []);
    assert!(got.pod_facts.from_api && got.pod_facts.node_critical);
    assert_eq!(got.managed, Managed::No("static pod".into()));
    // The uid of the mirror is nobody's here.
    let (got, _) = of(PodRequirements { uid: "u".into(), ..word }, &run_as(BURSTABLE, Some(-997)));
    assert!(!got.pod_facts.from_api);
}
