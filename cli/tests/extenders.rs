//! Scheduler extenders over HTTP, here played by small servers that help, are slow or contradict themselves.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use crate::api_server::Trust;
use crate::common::{Run, run};
use base64::Engine as _;
use rustls::{ServerConnection, StreamOwned};
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
            serve(stream.unwrap(), &answer, &heard);
        }
    });
    (url, asked)
}

/// The same over TLS, for clients that show a certificate.
fn secure_extender(trust: &Trust, answer: impl Fn(&str, &Value) -> Reply + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/scheduler", listener.local_addr().unwrap());
    let config = Arc::clone(&trust.config);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut tls = ServerConnection::new(Arc::clone(&config)).unwrap();
            let mut stream = stream.unwrap();
            while tls.is_handshaking() && tls.complete_io(&mut stream).is_ok_and(|(read, _)| read > 0) {}
            if tls.peer_certificates().is_some() {
                serve(StreamOwned::new(tls, stream), &answer, &Asked::default());
            }
        }
    });
    url
}

fn serve(stream: impl Read + Write, answer: &impl Fn(&str, &Value) -> Reply, heard: &Asked) {
    let mut stream = BufReader::new(stream);
    while let Some((path, body)) = request(&mut stream) {
        let verb = path.strip_prefix("/scheduler/").unwrap_or(&path).to_owned();
        heard.lock().unwrap().push((verb.clone(), body.clone()));
        let (status, text) = match answer(&verb, &body) {
            Reply::Json(value) => (200, value.to_string()),
            Reply::Status(status) => (status, String::new()),
            Reply::Text(text) => (200, text.to_owned()),
            Reply::Silence => {
                let _left = stream.read(&mut [0]);
                return;
            }
        };
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n", text.len());
        let written = stream.get_mut().write_all((head + &text).as_bytes());
        if written.and_then(|()| stream.get_mut().flush()).is_err() {
            return;
        }
    }
}

fn request(reader: &mut impl BufRead) -> Option<(String, Value)> {
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
    ask_beside(&[], extenders, more)
}

/// The same beside pods that are there.
fn ask_beside(there: &[Value], extenders: Value, more: &[&str]) -> Run {
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
    let pod = json!({"kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}, "annotations": {"shop/shelf": "3"}},
        "spec": {"priority": 10, "containers": [{"name": "c", "image": "web:1", "env": [{"name": "E", "value": "1"}],
            "resources": {"requests": {"cpu": "1"}}}]}});
    let pod = write("pod.json", pod);
    let all = [&nodes, there].concat();
    let cluster = write("cluster.json", json!({"kind": "List", "items": all}));
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
    // The manifest as it is written, with what the API server makes of it.
    let (kind, name) = (&first["Pod"]["kind"], &first["Pod"]["metadata"]["name"]);
    assert_eq!((kind, name), (&json!("Pod"), &json!("web")));
    assert_eq!(first["Pod"]["metadata"]["annotations"], json!({"shop/shelf": "3"}));
    let container = &first["Pod"]["spec"]["containers"][0];
    assert_eq!(
        (&container["resources"]["requests"], &container["env"][0]["name"]),
        (&json!({"cpu": "1"}), &json!("E"))
    );
    assert_eq!(first["Pod"]["spec"]["tolerations"][0]["tolerationSeconds"], 300);
    let node = &first["Nodes"]["items"][0];
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "2", "memory": "8Gi", "pods": "110"}));
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
        (
            json!({"urlPrefix": "https://127.0.0.1:1", "tlsConfig": {"caFile": "/nonexistent/ca.crt"}}),
            "extenders[0].tlsConfig",
        ),
        (
            json!({"urlPrefix": "https://127.0.0.1:1", "tlsConfig": {"certData": "eA=="}}),
            "extenders[0].tlsConfig",
        ),
    ] {
        let refused = ask(json!([extender]), &[]);
        assert!(refused.status == 1 && refused.err.contains(why), "{why}: {refused:?}");
    }
}

/// Three nodes, each full with one pod of less priority; identifiers as the API server gives them.
fn victims() -> Vec<Value> {
    let victim = |(number, node): (usize, &str)| {
        json!({"kind": "Pod", "metadata": {"name": format!("old-{node}"), "namespace": "shop", "labels": {"app": "old"},
                "uid": format!("00000000-0000-4000-8000-00000000000{number}")},
            "spec": {"nodeName": node, "priority": number, "containers": [
                {"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
            "status": {"phase": "Running"}})
    };
    ["a", "b", "c"].into_iter().enumerate().map(victim).collect()
}

fn uid(number: usize) -> String {
    format!("00000000-0000-4000-8000-00000000000{number}")
}

#[test]
fn an_extender_judges_who_is_displaced() {
    // By itself the scheduler takes node a, whose pod is the least important one; the extender leaves node c.
    let leaves_c = |_: &str, body: &Value| {
        let given =
            if body["NodeNameToVictims"].is_null() { "NodeNameToMetaVictims" } else { "NodeNameToVictims" };
        let left =
            body[given].get("c").map(|_| json!({"c": {"Pods": [{"UID": uid(2)}], "NumPDBViolations": 0}}));
        Reply::Json(json!({"NodeNameToMetaVictims": left.unwrap_or(json!({}))}))
    };
    for names_only in [false, true] {
        let (url, asked) = extender(leaves_c);
        let one = json!({"urlPrefix": url, "preemptVerb": "preempt", "nodeCacheCapable": names_only});
        let answer = ask_beside(&victims(), json!([one]), &["--preempt"]).json();
        let preempt = &answer["preempt"];
        assert_eq!((&preempt["count"], &preempt["without"]), (&json!(2), &json!(0)), "{answer}");
        let displaced = preempt["victims"].as_array().unwrap();
        assert_eq!((displaced.len(), &displaced[0]["pod"]), (1, &json!("shop/old-c")), "{answer}");
        let asked = asked.lock().unwrap();
        let (verb, first) = &asked[0];
        assert_eq!((verb.as_str(), &first["Pod"]["metadata"]["name"]), ("preempt", &json!("web")));
        if names_only {
            assert_eq!(first["NodeNameToVictims"], json!(null));
            let of_a = json!({"Pods": [{"UID": uid(0)}], "NumPDBViolations": 0});
            assert_eq!(first["NodeNameToMetaVictims"]["a"], of_a);
        } else {
            assert_eq!(first["NodeNameToMetaVictims"], json!(null));
            let pod = &first["NodeNameToVictims"]["b"]["Pods"][0];
            assert_eq!(
                (&pod["metadata"]["name"], &pod["metadata"]["uid"]),
                (&json!("old-b"), &json!(uid(1)))
            );
            assert_eq!((&pod["spec"]["nodeName"], &pod["spec"]["priority"]), (&json!("b"), &json!(1)));
            assert_eq!(pod["metadata"]["labels"], json!({"app": "old"}));
        }
    }
}

#[test]
fn an_extender_that_misjudges_ends_the_count_or_is_passed_over() {
    let say =
        |victims: Value| move |_: &str, _: &Value| Reply::Json(json!({"NodeNameToMetaVictims": victims}));
    let table = [
        (
            json!({"z": {"Pods": [{"UID": uid(0)}]}}),
            "it names the node \"z\", which is not there",
            "shop/old-a",
        ),
        (
            json!({"a": {"Pods": [{"UID": uid(2)}]}}),
            "it claims to preempt pod (UID: 00000000-0000-4000-8000-000000000002) on node a",
            "shop/old-a",
        ),
        // An ignorable one loses the node alone.
        (
            json!({"a": null, "b": {"Pods": [{"UID": uid(1)}]}}),
            "expected at least one victim pod on node \"a\"",
            "shop/old-b",
        ),
    ];
    for (said, why, first) in table {
        let (url, _) = extender(say(said));
        let mut one = json!({"urlPrefix": url, "preemptVerb": "preempt"});
        let failed = ask_beside(&victims(), json!([one]), &["--preempt"]);
        assert_eq!(failed.status, 1, "{failed:?}");
        let error: Value = serde_json::from_str(&failed.err).unwrap();
        assert!(error["error"]["why"].as_str().unwrap().contains(why), "{why}: {error}");
        one["ignorable"] = json!(true);
        let answer = ask_beside(&victims(), json!([one]), &["--preempt"]).json();
        let displaced = &answer["preempt"]["victims"];
        assert_eq!(
            (&answer["preempt"]["count"], &displaced[0]["pod"]),
            (&json!(6), &json!(first)),
            "{answer}"
        );
        assert!(answer["notes"].to_string().contains("it is passed over (ignorable)"), "{answer}");
    }
    let (url, _) = extender(|_, _| Reply::Json(json!({})));
    let answer =
        ask_beside(&victims(), json!([{"urlPrefix": url, "preemptVerb": "p"}]), &["--preempt"]).json();
    assert_eq!(answer["preempt"]["count"], 0);
    assert!(answer["notes"].to_string().contains("names no NodeNameToMetaVictims"), "{answer}");
}

#[test]
fn an_extender_is_reached_over_tls_as_the_configuration_says() {
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    let dir = TempDir::new().unwrap();
    let trust = Trust::new("extender.shop");
    let url = secure_extender(&trust, |_, body| {
        let left: Vec<String> = names(body).into_iter().filter(|name| name == "a").collect();
        Reply::Json(leaves(&left.iter().map(String::as_str).collect::<Vec<_>>()))
    });
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (ca, cert, key) = (
        write("ca.crt", &trust.ca),
        write("client.crt", &trust.client.0),
        write("client.key", &trust.client.1),
    );
    let own = json!({"certFile": cert, "keyFile": key});
    let with = |more: Value| {
        let mut config = own.clone();
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    };
    let by_data = json!({"caData": base64(&trust.ca), "certData": base64(&trust.client.0), "keyData": base64(&trust.client.1),
        "serverName": "extender.shop"});
    for (tls, https, counted) in [
        (with(json!({"caFile": ca, "serverName": "extender.shop"})), true, true),
        (by_data, false, true),
        (with(json!({"insecure": true})), false, true),
        // As in the scheduler: without an authority nothing is checked.
        (own.clone(), true, true),
        (own.clone(), false, false),
        (with(json!({"caFile": ca})), true, false),
        (json!({"caFile": ca, "serverName": "extender.shop"}), true, false),
    ] {
        let one = json!({"urlPrefix": url, "filterVerb": "f", "enableHTTPS": https, "tlsConfig": tls});
        let answered = ask(json!([one]), &[]);
        assert_eq!(answered.status == 0, counted, "{one}: {answered:?}");
        if counted {
            let answer = answered.json();
            assert_eq!(answer["perNode"], json!({"a": 2}), "{answer}");
            let unchecked = !one.to_string().contains("ca");
            assert_eq!(
                answer["notes"].to_string().contains("certificate is not checked"),
                unchecked,
                "{answer}"
            );
        }
    }
}
