//! Pods as people write them: what the API server makes of them, and its words where it takes none. Words that are marked
//! as recorded are those of kube-apiserver v1.36.2.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, dead_code, reason = "helpers of tests")]

use crate::common::{load, node};
use evenkeel_capacity::admission::admit;
use evenkeel_capacity::answer::{Ask, CapacityAnswer, Shape, StopReason, ask};
use evenkeel_capacity::object::Pod;
use evenkeel_capacity::profile::{Profile, Profiles};
use evenkeel_capacity::question::{CapacityQuestion, QuestionOptions, Snapshot, Whole};
use evenkeel_capacity::{config, load as reading};
use serde_json::{Value, json};

fn pod(spec: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": spec})
}

fn read(pod: &Value) -> Pod {
    serde_json::from_value(pod.clone()).unwrap()
}

fn answer(snapshot: &Value, pod: &Value) -> CapacityAnswer {
    answer_by(snapshot, pod, |_| Profiles::default())
}

fn answer_by(
    snapshot: &Value,
    pod: &Value,
    profiles: impl Fn(&mut evenkeel_capacity::cluster::Cluster) -> Profiles,
) -> CapacityAnswer {
    let (mut cluster, mut state) = load(snapshot);
    let profiles = profiles(&mut cluster);
    let shapes = vec![Shape { pod: read(pod), wanted: 1 }];
    let question = Ask { shapes, max: Some(500), help: true, ..Ask::default() };
    ask(&mut cluster, &profiles, &mut state, &question, &mut |_| true).unwrap()
}

fn whole(snapshot: &Value, pod: &Value, options: QuestionOptions) -> Whole {
    let mut loader = reading::Loader::new();
    loader.document(snapshot).unwrap();
    let (cluster, report) = loader.finish();
    let question = CapacityQuestion {
        options,
        shapes: vec![Shape { pod: read(pod), wanted: 1 }],
        ..CapacityQuestion::default()
    };
    question.answer(Snapshot { cluster, report }, None, &mut |_| true).unwrap().0
}

/// Two nodes of 8 cores and 16 GiB, and everything else of a cluster that has nothing else.
fn cluster(more: Value) -> Value {
    let mut all = json!({
        "nodes": [node("a", json!({})), node("b", json!({"sandbox": "yes"}))],
        "namespaces": [{"metadata": {"name": "default"}}],
        "priorityClasses": [],
        "runtimeClasses": [],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        all[key] = value.clone();
    }
    all
}

fn container(resources: Value) -> Value {
    json!({"name": "main", "image": "i", "resources": resources})
}

#[test]
fn an_invalid_pod_is_refused_in_the_api_servers_words() {
    let main = |resources: Value| json!({"containers": [container(resources)]});
    let with = |more: Value| {
        let mut spec = main(json!({"requests": {"cpu": "1"}}));
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        spec
    };
    let table = [
        // Recorded.
        (
            json!({"containers": [
                container(json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})), container(json!({})),
            ]}),
            "[spec.containers[0].resources.requests: Invalid value: \"2\": must be less than or equal to cpu limit of 1, \
             spec.containers[1].name: Duplicate value: \"main\"]",
        ),
        // Recorded.
        (
            json!({"containers": [container(json!({"requests": {"cpu": "2"}}))],
                "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}),
            "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container \
             requests of 2",
        ),
        (
            json!({"containers": [container(json!({"requests": {"cpu": "1"}}))],
                "initContainers": [{"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}}],
                "resources": {"requests": {"cpu": "1"}}}),
            "spec.resources.requests[cpu]: Invalid value: \"1\": must be greater than or equal to aggregate container \
             requests of 1500m",
        ),
        (
            json!({"containers": [container(json!({"limits": {"memory": "2Gi"}}))],
                "resources": {"requests": {"memory": "2Gi"}, "limits": {"memory": "1Gi"}}}),
            "[spec.resources.requests: Invalid value: \"2Gi\": must be less than or equal to memory limit of 1Gi, \
             spec.resources.containers[0][memory].limits: Invalid value: \"2Gi\": must be less than or equal to pod limits \
             of 1Gi]",
        ),
        (
            with(
                json!({"resources": {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}}),
            ),
            "[spec.resources.limits[nvidia.com/gpu]: Unsupported value: \"nvidia.com/gpu\": supported values: \"cpu\", \
             \"hugepages-\", \"memory\", spec.resources.requests[nvidia.com/gpu]: Unsupported value: \"nvidia.com/gpu\": \
             supported values: \"cpu\", \"hugepages-\", \"memory\"]",
        ),
        (
            main(json!({"requests": {"nvidia.com/gpu": "1"}})),
            "spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        (
            main(json!({"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "2"}})),
            "spec.containers[0].resources.requests: Invalid value: \"1\": must be equal to nvidia.com/gpu limit of 2",
        ),
        (
            main(json!({"limits": {"nvidia.com/gpu": "1500m"}})),
            "[spec.containers[0].resources.limits[nvidia.com/gpu]: Invalid value: \"1500m\": must be an integer, \
             spec.containers[0].resources.requests[nvidia.com/gpu]: Invalid value: \"1500m\": must be an integer]",
        ),
        (
            main(json!({"limits": {"hugepages-2Mi": "3Mi", "cpu": "1"}})),
            "[spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is not positive integer \
             multiple of hugepages-2Mi, spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: \"3Mi\": 3Mi is \
             not positive integer multiple of hugepages-2Mi]",
        ),
        (
            main(json!({"limits": {"hugepages-2Mi": "4Mi"}})),
            "spec.containers[0].resources: Forbidden: HugePages require cpu or memory",
        ),
        (
            main(json!({"requests": {"foo": "1"}})),
            "[spec.containers[0].resources.requests[foo]: Invalid value: \"foo\": must be a standard resource type or fully \
             qualified, spec.containers[0].resources.requests[foo]: Invalid value: \"foo\": must be a standard resource for \
             containers]",
        ),
        (
            main(json!({"requests": {"cpu": "-1"}})),
            "spec.containers[0].resources.requests[cpu]: Invalid value: \"-1\": must be greater than or equal to 0",
        ),
        (json!({"containers": []}), "spec.containers: Required value"),
        (
            with(json!({"tolerations": [{"operator": "Equal"}]})),
            "spec.tolerations[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \
             \"match all values and all keys\"",
        ),
        (
            with(
                json!({"topologySpreadConstraints": [{"maxSkew": 0, "whenUnsatisfiable": "DoNotSchedule"}]}),
            ),
            "[spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero, \
             spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty]",
        ),
        (
            with(
                json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}),
            ),
            "spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can \
             not be empty",
        ),
        (
            with(json!({"topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"},
                {"maxSkew": 2, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}},
            ]})),
            "[spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{z, DoNotSchedule}\", \
             spec.topologySpreadConstraints[1].labelSelector.matchExpressions[0].operator: Invalid value: \"Is\": not a \
             valid selector operator]",
        ),
        (
            with(json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [
                    {"key": "pool", "operator": "In"},
                    {"key": "pool", "operator": "Exists", "values": ["a"]},
                    {"key": "cores", "operator": "Gt"},
                ]}],
            }}}})),
            "[spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]\
             .matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn', \
             spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]\
             .matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist', \
             spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]\
             .matchExpressions[2].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt']",
        ),
        (
            with(json!({"schedulingGates": [{"name": "a"}, {"name": "a"}]})),
            "spec.schedulingGates[1]: Duplicate value: \"a\"",
        ),
    ];
    for (spec, why) in table {
        let got = answer(&cluster(json!({})), &pod(spec.clone()));
        assert_eq!(got.message, format!("Pod \"p\" is invalid: {why}"), "{spec}");
        assert_eq!(
            (got.count, got.stop, got.binding.as_str()),
            (0, StopReason::Refused, "admission"),
            "{spec}"
        );
        assert_eq!(got.bounds["admission"], 0);
    }
    // Recorded.
    let named = json!({"metadata": {"name": "Bad_Name"}, "spec": main(json!({}))});
    assert_eq!(
        answer(&cluster(json!({})), &named).message,
        "Pod \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain must consist \
         of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. \
         'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
    );
}

#[test]
fn what_is_not_there_is_refused_and_what_is_not_listed_is_told() {
    let all = cluster(json!({}));
    let spec = |more: Value| {
        let mut spec = json!({"containers": [container(json!({"requests": {"cpu": "1"}}))]});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        pod(spec)
    };
    let mut elsewhere = spec(json!({}));
    elsewhere["metadata"]["namespace"] = "no-such".into();
    let class = json!({"priorityClassName": "absent"});
    let runtime = json!({"runtimeClassName": "absent"});
    let table = [
        // Recorded.
        (elsewhere, "namespaces \"no-such\" not found"),
        // Recorded.
        (spec(class.clone()), "pods \"p\" is forbidden: no PriorityClass with name absent was found"),
        (spec(runtime.clone()), "pods \"p\" is forbidden: pod rejected: RuntimeClass \"absent\" not found"),
        (
            spec(json!({"overhead": {"cpu": "1"}})),
            "pods \"p\" is forbidden: pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        (
            spec(json!({"priority": 7})),
            "pods \"p\" is forbidden: the integer value of priority (7) must not be provided in pod spec; priority admission \
             controller computed 0 from the given PriorityClass name",
        ),
    ];
    for (pod, why) in table {
        let got = answer(&all, &pod);
        assert_eq!((got.message.as_str(), got.count, got.stop), (why, 0, StopReason::Refused));
    }
    assert_eq!(answer(&all, &spec(json!({"priorityClassName": "system-node-critical"}))).count, 16);
    // A snapshot that lists neither says what it does not know.
    let bare = json!({"nodes": [node("a", json!({}))]});
    for (more, note) in [
        (class, "priority class absent is not known: the snapshot lists no priority classes"),
        (runtime, "runtime class absent is not known: the snapshot lists no runtime classes"),
    ] {
        let got = answer(&bare, &spec(more));
        assert_eq!(got.count, 8);
        assert!(got.notes[0].starts_with(note), "{:?}", got.notes);
    }
    let ending = cluster(json!({"namespaces": [
        {"metadata": {"name": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"}},
    ]}));
    // Recorded.
    assert_eq!(
        answer(&ending, &spec(json!({}))).message,
        "pods \"p\" is forbidden: unable to create new content in namespace default because it is being terminated"
    );
}

#[test]
fn a_snapshot_says_which_kinds_it_lists() {
    let list = |listed: Value| {
        json!({"apiVersion": "v1", "kind": "List", "items": [
        {"kind": "Node", "metadata": {"name": "a"}, "status": {"allocatable": {"cpu": "8", "pods": "110"}}},
    ], "listed": listed})
    };
    let asked = pod(
        json!({"runtimeClassName": "absent", "containers": [container(json!({"requests": {"cpu": "1"}}))]}),
    );
    assert_eq!(answer(&list(json!(["Node", "RuntimeClass"])), &asked).stop, StopReason::Refused);
    let got = answer(&list(json!(["Node", "Namespace", "LimitRange"])), &asked);
    assert_eq!(got.count, 8);
    assert!(
        got.notes
            .iter()
            .any(|n| n == "the snapshot says that it lists no ResourceQuota (quotas do not bind)"),
        "{:?}",
        got.notes
    );
    let unsaid = answer(&list(json!([])), &asked).notes;
    assert!(
        !unsaid.iter().any(|note| note.contains("quotas")),
        "nothing is said of what is not said: {unsaid:?}"
    );
    let kind = json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClassList", "items": []});
    let mut loader = reading::Loader::new();
    loader.document(&kind).unwrap();
    loader.document(&list(json!([]))).unwrap();
    let refused = admit(&loader.finish().0, read(&asked)).refused.unwrap();
    assert!(refused.why.ends_with("RuntimeClass \"absent\" not found"), "{refused:?}");
}

#[test]
fn a_runtime_class_brings_overhead_selector_and_tolerations() {
    let class = |scheduling: Value| {
        json!({
            "metadata": {"name": "sandboxed"}, "handler": "s",
            "overhead": {"podFixed": {"cpu": "250m", "memory": "128Mi"}}, "scheduling": scheduling,
        })
    };
    let tainted = |name: &str, labels: Value| {
        let mut node = node(name, labels);
        node["spec"]["taints"] = json!([{"key": "sandbox", "effect": "NoSchedule"}]);
        node
    };
    let scheduling = json!({"nodeSelector": {"sandbox": "yes"}, "tolerations": [{"key": "sandbox", "operator": "Exists"}]});
    let nodes = json!([node("a", json!({})), tainted("b", json!({"sandbox": "yes"}))]);
    let all = cluster(json!({"nodes": nodes, "runtimeClasses": [class(scheduling)]}));
    let asked = |more: Value| {
        let mut spec = json!({"containers": [container(json!({"requests": {"cpu": "750m"}}))], "runtimeClassName": "sandboxed"});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        pod(spec)
    };
    let got = answer(&all, &asked(json!({})));
    assert_eq!((got.count, got.per_node["b"]), (8, 8), "one core each, on the nodes of the class alone");
    assert_eq!(
        got.changes,
        [
            "overhead cpu=250m,memory=128Mi of runtime class sandboxed",
            "node selector sandbox=yes of runtime class sandboxed",
            "toleration of sandbox of runtime class sandboxed",
        ]
    );
    // As the API server stores it the pod is the same.
    assert_eq!(answer(&all, &asked(json!({"overhead": {"cpu": "0.25", "memory": "128Mi"}}))).count, 8);
    let refused = answer(&all, &asked(json!({"overhead": {"cpu": "1"}}))).message;
    assert!(
        refused.ends_with("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"),
        "{refused}"
    );
    let refused = answer(&all, &asked(json!({"nodeSelector": {"sandbox": "no"}}))).message;
    assert!(
        refused.ends_with("conflict: runtimeClass.scheduling.nodeSelector[sandbox] = yes; pod.spec.nodeSelector[sandbox] = no"),
        "{refused}"
    );
    let pinned = cluster(json!({"runtimeClasses": [class(Value::Null)]}));
    assert_eq!(answer(&pinned, &asked(json!({}))).count, 16, "a class without scheduling runs anywhere");
}

#[test]
fn every_pod_bears_nodes_that_are_gone_for_a_while() {
    let mut away = node("b", json!({}));
    away["spec"]["taints"] = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}]);
    let all = cluster(json!({"nodes": [node("a", json!({})), away]}));
    let asked = |tolerations: Value| {
        pod(json!({"containers": [container(json!({"requests": {"cpu": "1"}}))], "tolerations": tolerations}))
    };
    assert_eq!(answer(&all, &asked(json!([]))).count, 16);
    let (cluster, _) = load(&all);
    let borne = |tolerations: Value| admit(&cluster, read(&asked(tolerations))).pod.spec.tolerations.len();
    assert_eq!(borne(json!([])), 2);
    assert_eq!(borne(json!([{"operator": "Exists"}])), 1, "every taint is borne already");
    assert_eq!(
        borne(json!([{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}])),
        2
    );
}

#[test]
fn priorities_are_those_of_classes() {
    let classes = json!([
        {"metadata": {"name": "batch"}, "value": -100, "preemptionPolicy": "Never"},
        {"metadata": {"name": "usual"}, "value": 50, "globalDefault": true},
        {"metadata": {"name": "usual-too"}, "value": 40, "globalDefault": true},
    ]);
    let (cluster, _) = load(&cluster(json!({"priorityClasses": classes})));
    let of = |more: Value| {
        let mut spec = json!({"containers": [container(json!({}))]});
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let spec = admit(&cluster, read(&pod(spec))).pod.spec;
        (spec.priority.unwrap(), spec.preemption_policy)
    };
    // Recorded.
    assert_eq!(of(json!({"priorityClassName": "batch"})), (-100, "Never".to_owned()));
    assert_eq!(of(json!({})), (40, "PreemptLowerPriority".to_owned()), "of two defaults the lower one");
}

#[test]
fn limit_ranges_refuse_in_the_recorded_words() {
    let range = json!({"metadata": {"name": "lr"}, "spec": {"limits": [
        {"type": "Container", "default": {"cpu": "300m", "memory": "128Mi"}, "defaultRequest": {"cpu": "20m"},
         "min": {"cpu": "10m"}, "max": {"cpu": "1", "memory": "512Mi"}, "maxLimitRequestRatio": {"cpu": "20"}},
        {"type": "Pod", "max": {"cpu": "1500m"}},
    ]}});
    let all = cluster(json!({"limitRanges": [range]}));
    let equal = json!({"cpu": "2", "memory": "1Gi"});
    let table = [
        (
            json!({"requests": equal, "limits": equal}),
            "[maximum cpu usage per Container is 1, but limit is 2, maximum memory usage per Container is 512Mi, but limit is \
             1Gi, maximum cpu usage per Pod is 1500m, but limit is 2]",
        ),
        (
            json!({"requests": {"cpu": "10m"}, "limits": {"cpu": "900m"}}),
            "cpu max limit to request ratio per Container is 20, but provided ratio is 90.000000",
        ),
    ];
    for (resources, why) in table {
        let got = answer(&all, &pod(json!({"containers": [container(resources)]})));
        assert_eq!(got.message, format!("pods \"p\" is forbidden: {why}"));
        assert_eq!((got.count, got.binding.as_str()), (0, "namespace/default"));
    }
    let defaults = answer(&all, &pod(json!({"containers": [container(json!({}))]})));
    assert_eq!(defaults.count, 220, "20m and 128Mi each: nodes take 110 pods");
    // A sidecar runs beside the others: the pod's sum counts it.
    let sidecars = json!({"containers": [container(json!({"limits": {"cpu": "800m"}}))], "initContainers": [
        {"name": "s", "restartPolicy": "Always", "resources": {"limits": {"cpu": "800m"}}},
    ]});
    let refused = answer(&all, &pod(sidecars)).message;
    assert!(refused.ends_with("maximum cpu usage per Pod is 1500m, but limit is 1600m"), "{refused}");
}

#[test]
fn another_schedulers_pod_is_not_counted() {
    let asked = pod(
        json!({"containers": [container(json!({"requests": {"cpu": "1"}}))], "schedulerName": "volcano"}),
    );
    let got = answer(&cluster(json!({})), &asked);
    assert_eq!((got.count, got.stop, got.bounds["scheduler"]), (0, StopReason::Unschedulable, 0));
    assert_eq!(
        got.message,
        "no scheduler looks at the pod: its schedulerName is volcano, the profiles are default-scheduler"
    );
    let named = |_: &mut evenkeel_capacity::cluster::Cluster| {
        Profiles::new(vec![Profile { name: "volcano".to_owned(), ..Profile::default() }])
    };
    assert_eq!(answer_by(&cluster(json!({})), &asked, named).count, 16);
}

#[test]
fn what_is_not_simulated_is_said() {
    let claiming = json!({"containers": [container(json!({"requests": {"cpu": "1"}}))],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]});
    let got = answer(&cluster(json!({})), &pod(claiming));
    assert_eq!(got.count, 16);
    assert!(got.notes[0].starts_with("pod p claims devices (gpu)"), "{:?}", got.notes);
    assert!(got.notes[0].ends_with("the count is an upper bound"), "{:?}", got.notes);

    let asked = pod(json!({"containers": [container(json!({"requests": {"cpu": "1"}}))]}));
    let of = |nodes: usize, percentage: Value| {
        let all: Vec<Value> = (0..nodes).map(|at| node(&format!("n{at:03}"), json!({}))).collect();
        let config = json!({"kind": "KubeSchedulerConfiguration", "percentageOfNodesToScore": percentage});
        let profiles = |cluster: &mut evenkeel_capacity::cluster::Cluster| {
            config::profiles(&config, Default::default(), cluster).unwrap()
        };
        answer_by(&cluster(json!({"nodes": all})), &asked, profiles).notes
    };
    assert_eq!((of(100, Value::Null), of(300, json!(100))), (Vec::new(), Vec::new()));
    let default = of(300, Value::Null);
    assert!(
        default[0].contains("once 144 of 300 nodes fit") && default[0].contains("its default"),
        "{default:?}"
    );
    let small = of(300, json!(10));
    assert!(small[0].contains("once 100 of 300 nodes fit (percentageOfNodesToScore: 10)"), "{small:?}");
    let (mut cluster, _) = load(&json!({}));
    let wrong =
        json!({"kind": "KubeSchedulerConfiguration", "profiles": [{"percentageOfNodesToScore": 101}]});
    let error = config::profiles(&wrong, Default::default(), &mut cluster).unwrap_err();
    assert_eq!(error.field, "profiles[0].percentageOfNodesToScore");
}

#[test]
fn added_affinity_refuses_in_words_of_its_own() {
    let config = json!({"kind": "KubeSchedulerConfiguration", "profiles": [{"pluginConfig": [
        {"name": "NodeAffinity", "args": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "sandbox", "operator": "Exists"}]}]}}}},
    ]}]});
    let asked = pod(
        json!({"containers": [container(json!({"requests": {"cpu": "8"}}))], "nodeSelector": {"sandbox": "no"}}),
    );
    let profiles = |cluster: &mut evenkeel_capacity::cluster::Cluster| {
        config::profiles(&config, Default::default(), cluster).unwrap()
    };
    assert_eq!(
        answer_by(&cluster(json!({})), &asked, profiles).message,
        "0/2 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) didn't match \
         scheduler-enforced node affinity."
    );
}

fn quota(hard: Value) -> Value {
    json!([{"metadata": {"name": "q"}, "spec": {"hard": hard}}])
}

#[test]
fn every_scenario_keeps_to_the_namespaces_bounds() {
    let asked =
        pod(json!({"containers": [container(json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}))]}));
    let options = || QuestionOptions {
        trials: Some(5),
        seed: Some(3),
        preempt: true,
        defrag: Some(3),
        daemonset: true,
        ..QuestionOptions::default()
    };
    let told = |all: &Value| {
        let whole = whole(all, &asked, options());
        let what_if = whole.what_if;
        let trials = what_if.trials.unwrap();
        let (preempt, defrag) = (what_if.preempt.unwrap(), what_if.defrag.unwrap());
        let counts = [trials.min, trials.max, preempt.count, defrag.before, defrag.after];
        (whole.answer.count, counts, what_if.daemonset.unwrap().fits)
    };
    assert_eq!(told(&cluster(json!({}))), (16, [16; 5], 2));
    let bound = cluster(json!({"resourceQuotas": quota(json!({"limits.cpu": "3"}))}));
    assert_eq!(told(&bound), (3, [3; 5], 2));
    let none = cluster(json!({"resourceQuotas": quota(json!({"pods": "0"}))}));
    assert_eq!(told(&none), (0, [0; 5], 0));
    let range = json!([{"metadata": {"name": "r"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "500m"}}]}}]);
    assert_eq!(told(&cluster(json!({"limitRanges": range}))), (0, [0; 5], 0));
    let reserved = QuestionOptions {
        reserve: [("cpu".to_owned(), "10".parse().unwrap())].into(),
        trials: Some(2),
        ..QuestionOptions::default()
    };
    let whole = whole(&cluster(json!({})), &asked, reserved);
    assert_eq!(
        (whole.answer.count, whole.what_if.trials.unwrap().max),
        (6, 6),
        "what must stay free stays free"
    );
}

#[test]
fn advice_is_tried_under_all_bounds() {
    // Six pods of 4 GiB fit on the selected node's 24 GiB and ten into the quota of 40.
    let mut large = node("a", json!({"region": "1"}));
    large["status"]["allocatable"]["memory"] = "24Gi".into();
    let mut other = node("b", json!({"region": "2"}));
    other["status"]["allocatable"]["memory"] = "64Gi".into();
    let asked = json!({"containers": [container(json!({"limits": {"memory": "4Gi"}}))], "nodeSelector": {"region": "1"}});
    let all =
        cluster(json!({"nodes": [large, other], "resourceQuotas": quota(json!({"limits.memory": "40Gi"}))}));
    let got = answer(&all, &pod(asked.clone()));
    assert_eq!((got.count, got.binding.as_str()), (6, "nodes"));
    let help: Vec<_> = got.help.iter().map(|help| (help.change.as_str(), help.admits)).collect();
    assert_eq!(help, [("drop the node selector region=1", 4)], "ten are let in, whatever the nodes hold");
    // And that is what comes of it.
    let mut without = asked;
    without["nodeSelector"] = json!({});
    let got = answer(&all, &pod(without.clone()));
    assert_eq!((got.count, got.binding.as_str()), (10, "quota/q"));
    let help: Vec<_> = got.help.iter().map(|help| (help.change.as_str(), help.admits)).collect();
    assert_eq!(
        help,
        [("lower the memory limit to 3723Mi", 1), ("raise limits.memory to 44Gi in quota q", 1)],
        "{got:?}"
    );
    without["containers"][0]["resources"]["limits"]["memory"] = "3723Mi".into();
    assert_eq!(answer(&all, &pod(without)).count, 11);
}

#[test]
fn advice_for_a_count_of_pods_is_to_raise_it() {
    let asked = pod(json!({"containers": [container(json!({"requests": {"cpu": "1"}}))]}));
    let all = cluster(json!({"resourceQuotas": quota(json!({"pods": "3", "requests.cpu": "3500m"}))}));
    let got = answer(&all, &asked);
    assert_eq!(got.count, 3);
    let help: Vec<_> = got.help.iter().map(|help| (help.change.as_str(), help.admits)).collect();
    assert_eq!(help, [("raise pods to 4 and requests.cpu to 4 in quota q", 1)]);
}
