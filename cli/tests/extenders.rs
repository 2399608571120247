//! Scheduler extenders over HTTP, here played by small servers that help, are slow or contradict themselves.
#![allow(missing_docs, unreachable_pub, dead_code, clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use common::{Run, run};
use serde_json::{Value, json};
use tempfile::TempDir;

/// What a server says.
enum Reply {
    Json(Value),
    Status(u16),
    Text(&'static str),
    /// Nothing, until the other side leaves.
    Silence,
}

type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A server that answers a verb and `ExtenderArgs`; its URL and what it was asked.
fn extender(answer: impl Fn(&str, &Value) -> Reply + Send + 'static) -> (String, Asked) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/scheduler", listener.local_addr().unwrap());
    let asked = Asked::default();
    let heard = Arc::clone(&asked);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            while let Some((path, body)) = request(&mut stream) {
                let verb = path.strip_prefix("/scheduler/").unwrap_or(&path).to_owned();
                heard.lock().unwrap().push((verb.clone(), body.clone()));
                let (status, text) = match answer(&verb, &body) {
                    Reply::Json(value) => (200, value.to_string()),
                    Reply::Status(status) => (status, String::new()),
                    Reply::Text(text) => (200, text.to_owned()),
                    Reply::Silence => {
                        let _left = stream.read(&mut [0]);
                        break;
                    }
                };
                let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", text.len());
                if stream.write_all((head + &text).as_bytes()).is_err() {
                    break;
                }
            }
        }
    });
    (url, asked)
}

fn request(stream: &mut TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first).ok().filter(|bytes| *bytes > 0)?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|bytes| *bytes > 0)?;
        if line.trim().is_empty() {
            break;
        }
        let line = line.to_ascii_lowercase();
        length = line.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap());
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((first.split(' ').nth(1)?.to_owned(), serde_json::from_slice(&body).ok()?))
}

fn names(body: &Value) -> Vec<String> {
    let items = body["Nodes"]["items"].as_array().unwrap();
    items.iter().map(|node| node["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// `ExtenderFilterResult` that leaves these nodes.
fn leaves(left: &[&str]) -> Value {
    let items: Vec<Value> = left.iter().map(|name| json!({"metadata": {"name": name}})).collect();
    json!({"Nodes": {"items": items}, "NodeNames": null, "FailedNodes": {}, "Error": ""})
}

/// Counts a pod of one core on three nodes of two cores each.
fn ask(extenders: Value, more: &[&str]) -> Run {
    let dir = TempDir::new().unwrap();
    let write = |name: &str, value: Value| {
        let path = dir.path().join(name);
        std::fs::write(&path, value.to_string()).unwrap();
        path.display().to_string()
    };
    let node = |name: &str| {
        json!({"kind": "Node", "metadata": {"name": name, "labels": {"disk": "ssd"}},
            "spec": {"taints": [{"key": "soft", "effect": "PreferNoSchedule"}]},
            "status": {"allocatable": {"cpu": "2", "memory": "8Gi", "pods": "110"}}})
    };
    let nodes: Vec<Value> = ["a", "b", "c"].into_iter().map(node).collect();
    let pod = json!({"kind": "Pod", "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}}, "spec": {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}});
    let pod = write("pod.json", pod);
    let cluster = write("cluster.json", json!({"kind": "List", "items": nodes}));
    let config =
        write("scheduler.json", json!({"kind": "KubeSchedulerConfiguration", "extenders": extenders}));
    let mut arguments =
        vec!["capacity", "-f", &pod, "--snapshot", &cluster, "--scheduler-config", &config, "-o", "json"];
    arguments.extend(more);
    run(&arguments)
}

#[test]
fn an_extender_filters_and_scores_after_the_plugins() {
    let (url, asked) = extender(|verb, body| match verb {
        "filter" => {
            let left: Vec<String> = names(body).into_iter().filter(|name| name != "c").collect();
            let mut answer = leaves(&left.iter().map(String::as_str).collect::<Vec<_>>());
            answer["FailedNodes"] = json!({"c": "no such disk"});
            Reply::Json(answer)
        }
        // Names of fields in small letters, as other languages write them.
        _ => Reply::Json(json!([{"host": "b", "score": 7}, {"Host": "nowhere", "Score": 1}])),
    });
    let extender =
        json!([{"urlPrefix": url, "filterVerb": "filter", "prioritizeVerb": "prioritize", "weight": 5}]);
    let found = ask(extender, &["--steps", "1"]);
    assert_eq!(found.status, 0, "{found:?}");
    let answer = found.json();
    assert_eq!(answer["perNode"], json!({"a": 2, "b": 2}), "{answer}");
    assert_eq!(answer["message"], "0/3 nodes are available: 1 no such disk, 2 Insufficient cpu.");
    assert_eq!(answer["steps"][0]["best"], json!(["b"]), "seven times five, of a hundred in place of ten");
    assert_eq!(answer["steps"][0]["feasible"]["b"]["weighted"]["Extender"], 350);
    assert_eq!(
        answer["steps"][0]["infeasible"]["c"],
        json!({"code": "Unschedulable", "reasons": ["no such disk"]})
    );
    let asked = asked.lock().unwrap();
    let (verb, first) = &asked[0];
    assert_eq!((verb.as_str(), names(first)), ("filter", vec!["a".into(), "b".into(), "c".into()]));
    assert_eq!(first["Pod"]["metadata"]["namespace"], "shop");
    assert_eq!(first["Pod"]["metadata"]["labels"], json!({"app": "web"}));
    assert_eq!(first["Pod"]["spec"]["containers"][0]["resources"]["requests"], json!({"cpu": "1"}));
    let node = &first["Nodes"]["items"][0];
    assert_eq!(node["status"]["allocatable"]["cpu"], "2");
    assert_eq!(
        (&node["metadata"]["labels"]["disk"], &node["spec"]["taints"][0]["key"]),
        (&json!("ssd"), &json!("soft"))
    );
    assert_eq!(first["NodeNames"], json!(null));
    // The same question is asked once, however many pods are placed.
    let filters = asked.iter().filter(|(verb, _)| verb == "filter").count();
    assert!(filters <= 5, "{filters} questions");
}

#[test]
fn an_extender_may_be_sent_names_and_asked_about_its_own_resources_only() {
    let (url, asked) = extender(|_, body| {
        assert_eq!(body["Nodes"], json!(null));
        let left: Vec<&Value> =
            body["NodeNames"].as_array().unwrap().iter().filter(|name| *name == "b").collect();
        Reply::Json(json!({"NodeNames": left, "FailedAndUnresolvableNodes": {"a": "never"}}))
    });
    let one = json!({"urlPrefix": url, "filterVerb": "filter", "nodeCacheCapable": true});
    let answer = ask(json!([one]), &["--steps", "1"]).json();
    assert_eq!(answer["perNode"], json!({"b": 2}));
    assert_eq!(
        answer["steps"][0]["infeasible"]["a"],
        json!({"code": "UnschedulableAndUnresolvable", "reasons": ["never"]})
    );
    let before = asked.lock().unwrap().len();
    let managed =
        json!({"urlPrefix": url, "filterVerb": "filter", "managedResources": [{"name": "example.com/fpga"}]});
    assert_eq!(ask(json!([managed]), &[]).json()["count"], 6, "the pod requests none of its resources");
    assert_eq!(asked.lock().unwrap().len(), before);
}

#[test]
fn an_extender_that_fails_ends_the_count_in_words() {
    type Answer = fn(&str, &Value) -> Reply;
    let table: Vec<(Answer, &str)> = vec![
        (|_, _| Reply::Status(500), "it answered 500"),
        (|_, _| Reply::Text("<html>"), "its answer is no JSON"),
        (|_, _| Reply::Json(json!({"NodeNames": 3})), "its answer is no ExtenderFilterResult"),
        (|_, _| Reply::Json(json!({"Error": "out of order"})), "out of order"),
        (
            |_, _| Reply::Json(leaves(&["a", "z"])),
            "it claims a filtered node \"z\" which is not found in the input node list",
        ),
        (|_, _| Reply::Silence, "it took longer than its httpTimeout, 200 ms"),
    ];
    for (answer, why) in table {
        let (url, asked) = extender(answer);
        let mut one = json!({"urlPrefix": url, "filterVerb": "filter", "httpTimeout": "200ms"});
        let began = Instant::now();
        let failed = ask(json!([one]), &[]);
        assert_eq!(failed.status, 1, "{failed:?}");
        let error: Value = serde_json::from_str(&failed.err).unwrap();
        let told = error["error"]["why"].as_str().unwrap();
        assert!(told.contains(why) && told.contains(&url), "{why}: {told}");
        assert_eq!(asked.lock().unwrap().len(), 1, "it is not asked again: {why}");
        one["ignorable"] = json!(true);
        let passed = ask(json!([one]), &["--trials", "2"]);
        assert_eq!(passed.json()["count"], 6, "{passed:?}");
        assert!(passed.out.contains("it is passed over (ignorable)"), "{}", passed.out);
        assert!(began.elapsed().as_secs() < 20, "a slow one costs its time once");
    }
}

#[test]
fn an_extender_that_contradicts_itself_is_read_as_the_scheduler_reads_it_and_told() {
    let both = |_: &str, body: &Value| {
        let there = names(body);
        let left = ["a", "a", "b"].into_iter().filter(|name| there.iter().any(|known| known == name));
        let mut answer = leaves(&left.collect::<Vec<_>>());
        answer["FailedNodes"] = json!({"a": "not so", "c": "no"});
        Reply::Json(answer)
    };
    let (url, _) = extender(both);
    let answer = ask(json!([{"urlPrefix": url, "filterVerb": "filter"}]), &[]).json();
    assert_eq!(answer["perNode"], json!({"a": 2, "b": 2}));
    assert!(
        answer["notes"].to_string().contains("says of a both that it fits and that it does not"),
        "{answer}"
    );

    let (url, _) = extender(|_, _| Reply::Json(json!({})));
    let answer = ask(json!([{"urlPrefix": url, "filterVerb": "filter"}]), &[]).json();
    assert_eq!(answer["count"], 0);
    assert!(answer["notes"].to_string().contains("names no list of nodes that fit"), "{answer}");

    let (url, _) = extender(|_, _| Reply::Json(json!([{"Host": "b", "Score": 1000}])));
    let answer =
        ask(json!([{"urlPrefix": url, "prioritizeVerb": "rate", "weight": 1}]), &["--steps", "1"]).json();
    assert_eq!(answer["steps"][0]["feasible"]["b"]["weighted"]["Extender"], 10_000);
    assert!(answer["notes"].to_string().contains("its score of b is 1000, not 0 to 10"), "{answer}");

    // No score is no reason to count nothing.
    let (url, _) = extender(|_, _| Reply::Text("no"));
    let answer = ask(json!([{"urlPrefix": url, "prioritizeVerb": "rate", "weight": 1}]), &[]).json();
    assert_eq!(answer["count"], 6);
    assert!(answer["notes"].to_string().contains("it gives no score: its answer is no JSON"), "{answer}");
}

#[test]
fn what_cannot_be_asked_is_refused_with_its_field() {
    for (extender, why) in [
        (json!({"filterVerb": "f"}), "extenders[0].urlPrefix"),
        (json!({"urlPrefix": "file:///etc/passwd"}), "extenders[0].urlPrefix"),
        (json!({"urlPrefix": "http://127.0.0.1:1", "prioritizeVerb": "p"}), "extenders[0].weight"),
        (json!({"urlPrefix": "http://127.0.0.1:1", "httpTimeout": "1h"}), "extenders[0].httpTimeout"),
        (json!({"urlPrefix": "http://127.0.0.1:1", "httpTimeout": 5}), "extenders[0].httpTimeout"),
        (json!({"urlPrefix": "http://127.0.0.1:1", "tlsConfig": {}}), "extenders[0].tlsConfig"),
    ] {
        let refused = ask(json!([extender]), &[]);
        assert!(refused.status == 1 && refused.err.contains(why), "{why}: {refused:?}");
    }
}
