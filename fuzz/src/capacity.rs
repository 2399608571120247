//! Snapshots, pods and options of questions about capacity.

use evenkeel_capacity::answer::{Ask, Shape, ask};
use evenkeel_capacity::cluster::{Builder, Cluster};
use evenkeel_capacity::load::{JsonStream, LoadReport, Loader};
use evenkeel_capacity::object::{Container, Object, Pod};
use evenkeel_capacity::profile::Profiles;
use evenkeel_capacity::question::{CapacityQuestion, QuestionOptions, Snapshot};
use evenkeel_capacity::state::ClusterState;
use serde_json::{Value, json};

/// Recorded clusters, each with a pod.
const RECORDED: &str = include_str!("../../capacity/tests/data/scheduler_samples.json");
/// A cluster larger than this takes too long to be asked often.
const SMALL_BYTES: usize = 6_000;

/// Bytes get a cluster or an error, the same by each of the two roads, and a cluster can be asked.
pub(crate) fn snapshot(bytes: &[u8]) {
    let (cut, whole) = (by_pieces(bytes), at_once(bytes));
    let told = |loaded: &Result<(Cluster, LoadReport), String>| {
        loaded.as_ref().ok().map(|(_, report)| report.clone())
    };
    let is_of_values = |error: &String| {
        ["number out of range", "recursion limit exceeded"].iter().any(|why| error.contains(why))
    };
    // No value can be made of it, which the first road passes over where it skips it.
    if !whole.as_ref().is_err_and(is_of_values) {
        assert_eq!(told(&cut), told(&whole), "a snapshot is read alike however it is read");
    }
    let Ok((mut cluster, _)) = cut else { return };
    let mut pod = Pod::default();
    pod.spec.containers.push(Container::default());
    question(&mut cluster, vec![Shape { pod, wanted: 1 }]);
}

fn by_pieces(bytes: &[u8]) -> Result<(Cluster, LoadReport), String> {
    let mut loader = Loader::new();
    let read = JsonStream::new(bytes).and_then(|mut stream| loader.text(&mut stream));
    read.map(|()| loader.finish()).map_err(|error| error.to_string())
}

fn at_once(bytes: &[u8]) -> Result<(Cluster, LoadReport), String> {
    let mut loader = Loader::new();
    let text = std::str::from_utf8(bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes));
    let mut json = serde_json::Deserializer::from_str(text.map_err(|error| error.to_string())?);
    while json.end().is_err() {
        loader.document(&mut json).map_err(|error| error.to_string())?;
    }
    Ok(loader.finish())
}

fn question(cluster: &mut Cluster, shapes: Vec<Shape>) {
    let question = Ask { shapes, max: Some(3), help: true, ..Ask::default() };
    let mut state = ClusterState::new(cluster);
    // A pod that cannot be used is refused, which is an answer, too.
    if let Ok(answer) = ask(cluster, &Profiles::default(), &mut state, &question, &mut |_| true) {
        assert!(answer.count <= 3);
    }
}

fn recorded() -> impl Iterator<Item = Value> {
    let all: Value = serde_json::from_str(RECORDED).unwrap_or_default();
    let rows = all["rows"].as_array().cloned().unwrap_or_default();
    rows.into_iter().map(|mut row| row["input"].take())
}

pub(crate) fn clusters() -> Vec<Vec<u8>> {
    let small = recorded().map(|input| input.to_string()).filter(|text| text.len() < SMALL_BYTES);
    let mut all: Vec<Vec<u8>> = small.map(String::into_bytes).collect();
    // Everything about volumes, with less of everything else.
    let volumes = recorded().find(|input| !input["pvs"].is_null());
    all.extend(volumes.map(|mut input| {
        for list in input.as_object_mut().into_iter().flat_map(|lists| lists.values_mut()) {
            list.as_array_mut().into_iter().for_each(|list| list.truncate(3));
        }
        input.to_string().into_bytes()
    }));
    let items = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "pods": "9"}}},
        {"kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"cpu": "5"}, "scopes": ["NotBestEffort"]}},
        {"kind": "LimitRange", "metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}},
        {"kind": "PriorityClass", "metadata": {"name": "p"}, "value": 7, "globalDefault": true},
        {"kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"a": "b"}}}},
    ]});
    all.push(items.to_string().into_bytes());
    all
}

/// JSON gets shapes or an error, and shapes can be asked about.
pub(crate) fn shapes(bytes: &[u8]) {
    let Ok(document) = serde_json::from_slice(bytes) else { return };
    let Ok(mut shapes) = evenkeel_capacity::load::shapes(&document) else { return };
    // A set of very many pods is no fault, but takes its time.
    shapes.retain(|shape| shape.wanted <= 8);
    let mut builder = Builder::new();
    // The builder is empty: nothing is there twice.
    let _ = builder.add(&Object::Node(Box::default()));
    question(&mut builder.finish().0, shapes);
}

pub(crate) fn workloads() -> Vec<Vec<u8>> {
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "c", "image": "i", "ports": [{"hostPort": 80}]}]}});
    let set = json!({"kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "a"}}, "template": template,
        "volumeClaimTemplates": [{"metadata": {"name": "v"}, "spec": {"resources": {"requests": {"storage": "1Gi"}}}}],
    }});
    let cron = json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": template}}}});
    let pods = recorded().map(|mut input| input["pod"].take());
    pods.chain([set, cron]).map(|value| value.to_string().into_bytes()).collect()
}

/// JSON gets options or an error, and options are answered or refused by name.
pub(crate) fn options(bytes: &[u8]) {
    let Ok(mut options) = serde_json::from_slice::<QuestionOptions>(bytes) else { return };
    // Questions that take long are no fault.
    options.max = Some(options.max.unwrap_or(3).min(3));
    options.need = options.need.map(|need| need.min(16));
    options.trials = options.trials.map(|trials| trials.min(4));
    let mut loader = Loader::new();
    let text = clusters().swap_remove(0);
    let loaded = JsonStream::new(text.as_slice()).and_then(|mut stream| loader.text(&mut stream));
    assert!(loaded.is_ok(), "a recorded cluster is read");
    let (cluster, report) = loader.finish();
    let mut pod = Pod::default();
    pod.spec.containers.push(Container::default());
    let question =
        CapacityQuestion { options, shapes: vec![Shape { pod, wanted: 1 }], ..CapacityQuestion::default() };
    if let Err(error) = question.answer(Snapshot { cluster, report }, None, &mut |_| true) {
        assert!(!error.option.is_empty() && !error.why.is_empty());
    }
}

pub(crate) fn some_options() -> Vec<Vec<u8>> {
    let node =
        recorded().next().map(|input| input["nodes"][0]["metadata"]["name"].clone()).unwrap_or_default();
    let config = json!({"kind": "KubeSchedulerConfiguration", "profiles": [{
        "schedulerName": "packing",
        "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 5}]}},
        "pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "RequestedToCapacityRatio",
                "resources": [{"name": "cpu", "weight": 3}],
                "requestedToCapacityRatio": {"shape": [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]}}}},
            {"name": "PodTopologySpread", "args": {"defaultingType": "List", "defaultConstraints": [
                {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}]}},
            {"name": "NodeAffinity", "args": {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]}}}},
        ],
    }]});
    let all = [
        json!({"schedulerConfig": config, "schedulerVersion": "1.34", "steps": 1}),
        json!({"nodes": "a=b,!c,d!=e", "reserve": {"cpu": "1", "memory": "1Gi"}, "max": 2, "steps": "all"}),
        json!({"lose": ["any", "zone=a"], "drain": [node], "preempt": true, "daemonset": true}),
        json!({"need": 9, "add": "name,cpu,memory,price\nbig,8,32Gi,0.5\nsmall,2,4Gi,0.1\n", "trials": 2, "seed": 7}),
        json!({"compact": true, "defrag": 2, "namespace": "default", "largest": true, "excludeNodes": [node]}),
    ];
    all.iter().map(|value| value.to_string().into_bytes()).collect()
}
