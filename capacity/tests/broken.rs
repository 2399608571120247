//! Broken input: named by list, index and field; whatever the bytes, nothing panics and what is accepted can be asked.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use evenkeel_capacity::answer::{Ask, Shape, ask};
use evenkeel_capacity::load::{JsonStream, Loader, shapes};
use evenkeel_capacity::profile::Profiles;
use evenkeel_capacity::state::ClusterState;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Reads JSON as the command does: cut into pieces as it arrives.
fn read(text: &str) -> Result<Loader<'static>, String> {
    read_by(text, text.len().max(1))
}

/// The same, so many bytes arriving at once.
fn read_by(text: &str, bytes: usize) -> Result<Loader<'static>, String> {
    let mut loader = Loader::new();
    let mut stream = JsonStream::new(Slow { text: text.as_bytes(), bytes }).unwrap();
    loader.text(&mut stream).map_err(|error| error.to_string())?;
    Ok(loader)
}

struct Slow<'a> {
    text: &'a [u8],
    bytes: usize,
}

impl std::io::Read for Slow<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        let bytes = self.bytes.min(self.text.len()).min(to.len());
        let (now, later) = self.text.split_at(bytes);
        to[..bytes].copy_from_slice(now);
        self.text = later;
        Ok(bytes)
    }
}

/// Reads JSON as serde does, the whole text being there.
fn read_whole(text: &str) -> Result<Loader<'static>, String> {
    let mut loader = Loader::new();
    let mut json = serde_json::Deserializer::from_str(text);
    while json.end().is_err() {
        loader.document(&mut json).map_err(|error| error.to_string())?;
    }
    Ok(loader)
}

/// What no [`Value`] can hold. The second road makes values of all there is, and the first passes over it where it is skipped.
const OF_VALUES: [&str; 2] = ["number out of range", "recursion limit exceeded"];

/// Both roads read the same, or say the same. Where in the text it is broken is told by one of them alone.
fn same(text: &str, bytes: usize) {
    let told = |error: String| {
        let place = error.rfind(" at line ");
        place.map_or(error.clone(), |place| error[..place].to_owned())
    };
    let answer = |read: Result<Loader<'static>, String>| match read {
        Ok(loader) => {
            let (cluster, report) = loader.finish();
            format!("{report:?} {:?} {:?} {:?}", cluster.nodes, cluster.placed, cluster.symbols.find("a"))
        }
        Err(error) => told(error),
    };
    let (cut, whole) = (read_by(text, bytes), read_whole(text).map_err(told));
    let is_of_values = |error: &String| OF_VALUES.iter().any(|end| error.ends_with(end));
    if whole.as_ref().is_err_and(is_of_values) {
        return;
    }
    assert_eq!(answer(cut), answer(whole), "{text}");
}

fn check(document: &Value, wanted: &str) {
    let error = read(&document.to_string()).err().unwrap_or_default();
    assert!(error.starts_with(wanted), "{document}\n  got    {error}\n  wanted {wanted}");
}

#[test]
fn the_list_the_index_and_the_field_are_named() {
    let node = json!({"metadata": {"name": "n"}});
    let pod = |spec: Value| json!({"metadata": {"name": "p"}, "spec": spec});
    check(
        &json!({"nodes": [node, {"metadata": {"name": "m"}, "status": {"allocatable": {"cpu": "lots"}}}]}),
        "nodes[1] (Node): status.allocatable.cpu: ",
    );
    check(
        &json!({"pods": [pod(json!({"containers": [{}, {"resources": {"requests": {"memory": []}}}]}))]}),
        "pods[0] (Pod): spec.containers[1].resources.requests.memory: ",
    );
    check(&json!({"pods": [pod(json!({"tolerations": {}}))]}), "pods[0] (Pod): spec.tolerations: ");
    check(&json!({"pods": [pod(json!({"priority": 1_u64 << 40}))]}), "pods[0] (Pod): spec.priority: ");
    check(
        &json!({"kind": "List", "items": [{"kind": "Node", "metadata": {"name": 7}}]}),
        "items[0] (Node): metadata.name: ",
    );
    // The place is that of the field, also where each object tells its kind.
    let rest = "\"metadata\": {\"name\": \"p\"},\n \"spec\": {\"priority\": \"high\"}, \"status\": {}}]}";
    let why = "(Pod): spec.priority: invalid type: string \"high\", expected i32 at line 3 column 28";
    for (list, begin) in
        [("pods", "{\"pods\": [\n{"), ("items", "{\"kind\": \"List\", \"items\": [\n{\"kind\": \"Pod\", ")]
    {
        let error = read(&format!("{begin}{rest}")).err();
        assert_eq!(error.as_deref(), Some(&*format!("{list}[0] {why}")));
    }
    // Of an object that would take much room as a value the place is told alone.
    let lists = "[],".repeat(1 << 19);
    let large = format!("{{\"pods\": [{{\"spec\": {{\"priority\": \"high\"}}, \"x\": [{lists}[]]}}]}}");
    assert_eq!(
        read(&large).err().as_deref(),
        Some("pods[0]: invalid type: string \"high\", expected i32 at line 1 column 38")
    );
    // What is skipped need not be a number that can be held.
    assert!(read("{\"nodes\": [{\"status\": {\"capacity\": {\"pods\": 1e400}}}]}").is_ok());
    // The kind may come last.
    check(
        &json!({"items": [{"metadata": {"labels": {"a": 1}}, "kind": "Pod"}]}),
        "items[0] (Pod): metadata.labels.a: ",
    );
    check(&json!({"kind": "Pod", "spec": {"nodeName": 1}}), "Pod: spec.nodeName: ");
    check(
        &json!({"kind": "PodList", "items": [{"spec": {"nodeName": 1}}]}),
        "items[0] (Pod): spec.nodeName: ",
    );
    let selector = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "k", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}},
    ]}});
    check(
        &json!({"pods": [pod(json!({"nodeName": "n", "affinity": selector}))]}),
        "pods[0] (Pod): Pod default/p: \"Like\" is not an operator",
    );
    check(&json!({"items": [{"metadata": {}}]}), "items[0]: kind is missing");
    check(&json!({"nodes": {}}), "invalid type: map, expected nodes: a list of objects");
    check(&json!({"metadata": {"name": "x"}}), "neither a Kubernetes object");
    check(&json!([]), "invalid type: sequence, expected a Kubernetes object");
    let shape = shapes(
        &json!({"kind": "Deployment", "spec": {"template": {"spec": {"containers": [{"image": 1}]}}}}),
    );
    assert!(shape.unwrap_err().to_string().starts_with("spec.template.spec.containers[0].image: "));
}

#[test]
fn bytes_that_are_no_text_are_refused_where_they_are_skipped_too() {
    let kind = "{\"kind\": \"List\", \"items\": [\n {\"kind\": \"Event\", \"note\": \"\u{e9}\"}]}";
    let cases = [
        (
            "{\"nodes\": [{\"status\": {\n\"capacity\": {\"\u{e9}\": 1}}}]}",
            "nodes[0]: a byte that is not UTF-8 at line 2 column 15",
        ),
        (kind, "items[0]: a byte that is not UTF-8 at line 2 column 29"),
        (
            "{\"nodes\": [],\n\"note\": \"\u{e9}\"}",
            "the document: a byte that is not UTF-8 at line 2 column 10",
        ),
    ];
    for (text, wanted) in cases {
        assert!(read(text).is_ok(), "{text}");
        let latin: Vec<u8> = text.chars().map(|letter| u8::try_from(u32::from(letter)).unwrap()).collect();
        let mut stream = JsonStream::new(latin.as_slice()).unwrap();
        let error = Loader::new().text(&mut stream).map_err(|error| error.to_string());
        assert_eq!(error.err().as_deref(), Some(wanted));
    }
}

#[test]
fn the_same_object_twice_is_an_error_and_the_same_name_of_another_kind_is_not() {
    let named = |kind: &str, namespace: &str| json!({"kind": kind, "metadata": {"name": "web", "namespace": namespace}});
    let list = |items: &[Value]| json!({"kind": "List", "items": items});
    check(&list(&[named("Pod", "a"), named("Pod", "a")]), "items[1] (Pod): Pod a/web is there twice");
    check(
        &list(&[named("Pod", ""), named("Pod", "default")]),
        "items[1] (Pod): Pod default/web is there twice",
    );
    let kinds = [
        "Pod",
        "Service",
        "ReplicationController",
        "ReplicaSet",
        "StatefulSet",
        "Node",
        "PersistentVolumeClaim",
    ];
    let mut all: Vec<Value> = kinds.iter().map(|kind| named(kind, "a")).collect();
    all.push(named("Pod", "b"));
    assert!(read(&list(&all).to_string()).is_ok());
}

#[test]
fn contradictions_are_told_and_survived() {
    let document = json!({
        "nodes": [{"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "-5", "memory": "1Gi", "pods": "9"}}}],
        "pods": [{"metadata": {"name": "lost"}, "spec": {"nodeName": "gone"}}],
        "items": [{"kind": "Secret", "metadata": {"name": "s"}}, {"kind": "Secret"}, {"kind": "ConfigMap"}],
    });
    let (cluster, report) = read(&document.to_string()).ok().unwrap().finish();
    assert_eq!((cluster.nodes.len(), cluster.placed.len()), (1, 0));
    assert_eq!((report.skipped["Secret"], report.skipped["ConfigMap"]), (2, 1));
    let told: Vec<String> =
        report.oddities.iter().map(|odd| format!("{}: {}", odd.object, odd.what)).collect();
    assert_eq!(
        told,
        [
            "Node n: a negative allocatable amount counts as nothing",
            "Pod default/lost: its node gone is not in the snapshot; it takes nothing",
        ]
    );
}

#[test]
fn deep_nesting_ends_with_an_error() {
    for opening in ["[", "{\"a\":"] {
        let text = format!("{{\"nodes\": [{{\"spec\": {}", opening.repeat(200_000));
        assert!(read(&text).is_err());
    }
}

#[test]
fn texts_of_every_form_are_read_alike_however_they_arrive() {
    let node = |name: &str| json!({"kind": "Node", "metadata": {"name": name}}).to_string();
    let (a, b) = (node("a"), node("b"));
    let wide = "x".repeat(400_000);
    let texts = [
        // A list whose kind comes last, or not at all; lists in lists; several documents, one of them no list.
        format!(r#"{{"apiVersion": "v1", "items": [{a}, {b}], "kind": "List"}}"#),
        format!(r#"{{"items": [{a}, {b}], "metadata": {{}}}}"#),
        format!(r#"{{"kind": "NodeList", "items": [{{"metadata": {{"name": "a"}}}}]}}{a}"#),
        format!(r#"{{"kind": "List", "items": [{a}, {{"kind": "List", "items": [{b}]}}]}}"#),
        format!("{a}\n{b}\n\n{{\"nodes\": [{{\"metadata\": {{\"name\": \"c\"}}}}]}} {{}}"),
        format!(r#"{{"metadata": {{}}, "kind": "Node", "nodes": [{a}]}}"#),
        r#"{"metadata": {}, "kind": "Node", "items": null}"#.to_owned(),
        format!(r#"{{"kind": "ConfigMap", "items": [1, 2], "nodes": 3}}{a}"#),
        format!(r#"{{"metadata": {{"name": "a"}}, "status": {{}}, "kind": "Node"}} {b}"#),
        format!(r#"{{"pods": null, "nodes": [  ], "items": [ {a} ]  }}   "#),
        format!(r#"{{"kind": "List", "items": [{{"kind": "Secret", "data": "{wide}\\\""}}, {a}, {b}]}}"#),
        r#"{"items": [{"kind": "Node", "metadata": {"name": "}]\"\\"}}]}"#.to_owned(),
        // Broken ones: where the text ends, what stands between objects, what is no object.
        format!(r#"{{"kind": "List", "items": [{a}, {b}"#),
        format!(r#"{{"kind": "List", "items": [{a},"#),
        format!(r#"{{"kind": "List", "items": [{a},]}}"#),
        format!("{{\"kind\": \"List\",\n \"items\": [{a}\n  {b}]}}"),
        format!("{{\"kind\": \"List\",\n \"items\": [{a},\n  {b}}}"),
        format!(r#"{{"kind": "List", "items": [{a}, 7, {b}]}}"#),
        format!(r#"{{"kind": "List", "items": [{a}, , {b}]}}"#),
        format!(r#"{{"kind": "List", "items": [{a}], "nodes": [{a}, 3]}}"#),
        format!("{{\"items\": [{a},\n{b}],\n\"more\": nope}}"),
        format!(r#"{{"items": [{a}, {a}]}}"#),
        format!(r#"{{"kind": 3, "items": [{a}]}}"#),
        format!(r#"{{"nodes": {{}}, "items": [{a}]}}"#),
        r#"{"items": [{"kind": "Node", "metadata": {"name": [}}]}"#.to_owned(),
        r#"{"items" [1]}"#.to_owned(),
        r#"{"items": [}"#.to_owned(),
        r#"{"items": ["#.to_owned(),
        r#"{"items": [{"kind"#.to_owned(),
        r#"{"kind": "List", "items": [1], }"#.to_owned(),
        "{".to_owned(),
        "[]".to_owned(),
        "{} nonsense".to_owned(),
        String::new(),
    ];
    for text in &texts {
        for bytes in [1, 7, 1 << 20] {
            same(text, bytes);
        }
    }
    assert!(read(&format!("\u{feff}  {a}")).is_ok(), "a byte order mark");
}

#[test]
fn an_object_that_never_ends_is_refused_by_its_size() {
    let text = format!(r#"{{"items": [{{"kind": "Secret", "data": "{}"#, "x".repeat(17 << 20));
    assert!(read(&text).err().unwrap().contains("the object at line 1 column 11 has more than"));
}

/// One of every kind, with most fields.
fn seed() -> String {
    let samples: Value = serde_json::from_str(include_str!("data/scheduler_samples.json")).unwrap();
    let rows = samples["rows"].as_array().unwrap();
    let find = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap()["input"].clone();
    let mut document = find("dev-volumes-03");
    document["namespaces"] = find("dev-podaffinity-01")["namespaces"].clone();
    document["services"] = find("dev-spread-00")["services"].clone();
    document["resourceQuotas"] =
        json!([{"metadata": {"name": "q"}, "spec": {"hard": {"cpu": "5"}, "scopes": ["NotBestEffort"]}}]);
    document["limitRanges"] = json!([{"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}}]);
    document["podDisruptionBudgets"] = json!([{"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "a"}}}, "status": {"disruptionsAllowed": 1}}]);
    document.to_string()
}

/// What takes the place of a piece of the text.
const PIECES: [&str; 16] = [
    "",
    "null",
    "0",
    "-1",
    "9223372036854775807",
    "1e400",
    "\"\"",
    "[]",
    "{}",
    "\"9e18\"",
    "\"1n\"",
    "true",
    "\"In\"",
    "\"NotIn\"",
    "\"ReadWriteOncePod\"",
    "\u{0}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn mutated_snapshots_are_refused_or_can_be_asked(
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0..24_usize, 0..PIECES.len()), 1..6),
    ) {
        let mut text = seed().into_bytes();
        for (at, length, piece) in cuts {
            let at = at.index(text.len());
            let end = (at + length).min(text.len());
            text.splice(at..end, PIECES[piece].bytes());
        }
        let text = String::from_utf8_lossy(&text);
        same(&text, 4_093);
        ask_anything(&text);
    }

    /// Values instead of bytes: the text stays JSON, so that more of it is taken in.
    #[test]
    fn odd_values_are_refused_or_can_be_asked(
        places in prop::collection::vec((any::<prop::sample::Index>(), 0..PIECES.len()), 1..6),
    ) {
        let mut document: Value = serde_json::from_str(&seed()).unwrap();
        for (place, piece) in places {
            let mut leaves = Vec::new();
            pointers(&document, &mut String::new(), &mut leaves);
            let pointer = place.get(&leaves);
            let value = serde_json::from_str(PIECES[piece]).unwrap_or(Value::Null);
            *document.pointer_mut(pointer).unwrap() = value;
        }
        same(&document.to_string(), 4_093);
        same(&serde_json::to_string_pretty(&document).unwrap(), 4_093);
        ask_anything(&document.to_string());
    }
}

fn pointers(value: &Value, at: &mut String, all: &mut Vec<String>) {
    all.push(at.clone());
    let mut down = |key: String, value: &Value| {
        let length = at.len();
        at.push('/');
        at.push_str(&key.replace('~', "~0").replace('/', "~1"));
        pointers(value, at, all);
        at.truncate(length);
    };
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| down(key.clone(), value)),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(index, value)| down(index.to_string(), value));
        }
        _ => {}
    }
}

/// Loads, and asks for the document's own pod and for a plain one.
fn ask_anything(text: &str) {
    let Ok(loader) = read(text) else { return };
    let (mut cluster, _) = loader.finish();
    let own = serde_json::from_str::<Value>(text).ok().and_then(|document| shapes(&document["pod"]).ok());
    let plain =
        Shape { pod: serde_json::from_value(json!({"spec": {"containers": [{}]}})).unwrap(), wanted: 1 };
    for shape in own.into_iter().flatten().chain([plain]) {
        let question = Ask { shapes: vec![shape], max: Some(3), help: true, ..Ask::default() };
        let mut state = ClusterState::new(&cluster);
        // A selector of the pod may be one that cannot be used: that is an answer, too.
        if let Ok(answer) = ask(&mut cluster, &Profiles::default(), &mut state, &question, &mut |_| true) {
            assert!(answer.count <= 3);
        }
    }
}
