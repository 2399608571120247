//! Suite `unit`: the document of the interface says what is answered: every path is there, and every answer has the form that
//! the document has for it, with no field beside.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::collections::BTreeSet;

use common::{Agent, Running, http, pod};
use evenkeel_recommender::api::http::openapi;
use evenkeel_recommender::config::{Span, WatchSection};
use serde_json::{Value, json};

const POLICY: &str = r#"{"apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"target": {}, "updatePolicy": {"mode": "off"}, "resourcesPolicy": {"containers": [
        {"name": "*", "requests": {"cpu": {"min": "1", "max": 2}}}]}}}"#;

fn document() -> Value {
    serde_json::from_str(openapi()).unwrap()
}

/// What of a value is not as a schema has it: types, required fields, fields it does not name.
fn differences(document: &Value, schema: &Value, value: &Value, at: &str, found: &mut Vec<String>) {
    if let Some(name) = schema["$ref"].as_str() {
        let known = document.pointer(name.trim_start_matches('#'));
        return differences(document, known.unwrap_or_else(|| panic!("no {name}")), value, at, found);
    }
    if let Some(all) = schema["oneOf"].as_array().or(schema["anyOf"].as_array()) {
        let fits = |one: &Value| {
            let mut wrong = Vec::new();
            differences(document, one, value, at, &mut wrong);
            wrong.is_empty()
        };
        if !all.iter().any(fits) {
            found.push(format!("{at}: {value} is none of {schema}"));
        }
        return;
    }
    let kinds: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(all) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let is = match value {
        Value::Null => vec!["null"],
        Value::Bool(_) => vec!["boolean"],
        Value::Number(number) if number.is_f64() => vec!["number"],
        Value::Number(_) => vec!["integer", "number"],
        Value::String(_) => vec!["string"],
        Value::Array(_) => vec!["array"],
        Value::Object(_) => vec!["object"],
    };
    let is_nullable = value.is_null() && schema["nullable"] == true;
    if !kinds.is_empty() && !is_nullable && !is.iter().any(|kind| kinds.contains(kind)) {
        found.push(format!("{at}: {value} is not {kinds:?}"));
    }
    for part in schema["allOf"].as_array().into_iter().flatten() {
        let ours = fields(document, part);
        let own = value.as_object().unwrap().iter().filter(|(key, _)| ours.contains(key.as_str()));
        let own: serde_json::Map<String, Value> = own.map(|(k, v)| (k.clone(), v.clone())).collect();
        differences(document, part, &Value::Object(own), at, found);
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        differences(document, &schema["items"], item, &format!("{at}[{index}]"), found);
    }
    let missing = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for key in missing.filter(|key| value.get(key).is_none()) {
        found.push(format!("{at}: no {key}"));
    }
    let (named, others) = (fields(document, schema), &schema["additionalProperties"]);
    for (key, inner) in value.as_object().into_iter().flatten() {
        let of = &schema["properties"][key];
        let at = format!("{at}.{key}");
        match (of.is_null(), others.is_object()) {
            (false, _) => differences(document, of, inner, &at, found),
            (true, true) => differences(document, others, inner, &at, found),
            (true, false) if named.is_empty() || named.contains(key.as_str()) => {}
            (true, false) => found.push(format!("{at} is not in the document")),
        }
    }
}

/// Names of fields that a schema has, also by those it is made of.
fn fields<'a>(document: &'a Value, schema: &'a Value) -> BTreeSet<&'a str> {
    if let Some(name) = schema["$ref"].as_str() {
        return fields(document, document.pointer(name.trim_start_matches('#')).unwrap());
    }
    let own = schema["properties"].as_object().into_iter().flatten().map(|(key, _)| key.as_str());
    let parts = schema["allOf"].as_array().into_iter().flatten();
    own.chain(parts.flat_map(|part| fields(document, part))).collect()
}

/// A body that came in chunks, each behind its length in a line.
fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((length, rest)) = body.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        whole.push_str(&rest[..length]);
        body = rest[length..].trim_start_matches("\r\n");
    }
    whole
}

#[test]
fn what_the_document_refers_to_is_in_it() {
    fn references<'a>(of: &'a Value, found: &mut BTreeSet<&'a str>) {
        match of {
            Value::Object(fields) => {
                found.extend(fields.get("$ref").and_then(Value::as_str));
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(all) => all.iter().for_each(|value| references(value, found)),
            _ => {}
        }
    }
    let (document, mut found) = (document(), BTreeSet::new());
    references(&document, &mut found);
    let missing: Vec<_> = found
        .iter()
        .filter(|name| document.pointer(name.trim_start_matches('#')).is_none_or(Value::is_null))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
    let named: BTreeSet<String> = found.iter().map(|name| (*name).to_owned()).collect();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let unused: Vec<_> =
        schemas.keys().filter(|name| !named.contains(&format!("#/components/schemas/{name}"))).collect();
    assert!(unused.is_empty(), "{unused:?}");
    let operations =
        document["paths"].as_object().unwrap().values().flat_map(|of| of.as_object().unwrap().values());
    let ids: Vec<_> = operations.map(|one| one["operationId"].as_str().unwrap()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_has_the_form_that_the_document_has_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("web.json");
    std::fs::write(&file, pod("web:1", "")).unwrap();
    let running = Running::start(dir.path(), |config| {
        let interval = Span::from_secs(1);
        config.capacity.watch = vec![WatchSection { name: "web".to_owned(), pod: file.clone(), interval }];
    })
    .await;
    let mut agent = Agent::new(1, &["web:1"]);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    let document = document();
    let asked = pod("docker.io/library/web:1", r#", "resources": {"limits": {"cpu": "10m"}}"#);
    let capacity =
        json!({ "pods": [pod("web:1", r#", "resources": {"requests": {"cpu": "1"}}"#)] }).to_string();
    let bodies = [
        ("/recommendedPodResources", asked.as_str()),
        ("/api/v1/policies", POLICY),
        ("/api/v1/policies/{namespace}/{name}", POLICY),
        ("/api/v1/capacity", capacity.as_str()),
    ];
    // What is to be read is made first, and forgotten last.
    let order = ["post", "put", "get", "delete"];
    let mut seen = BTreeSet::new();
    for method in order {
        for (path, operations) in document["paths"].as_object().unwrap() {
            let operation = &operations[method];
            if operation.is_null() {
                continue;
            }
            let at = path.replace("{namespace}", "shop").replace("{name}", "web");
            let at = if path.ends_with("/series") { format!("{at}?resource=cpu&stepSeconds=1") } else { at };
            let is_asking = method != "get" || path == "/recommendedPodResources";
            let body = bodies.iter().find(|(of, _)| is_asking && of == path).map_or("", |(_, body)| body);
            let (status, text) = http(running.http, &method.to_uppercase(), &at, body).await;
            let is_streamed = ["/series", "/snapshot"].iter().any(|end| path.ends_with(end));
            let text = if is_streamed { unchunked(&text) } else { text };
            let name = format!("{method} {path}: {status}");
            let said = &operation["responses"][status.to_string()];
            assert!(said.is_object(), "{name} {text}");
            seen.insert(format!("{method} {path}"));
            for (kind, content) in
                said["content"].as_object().into_iter().flatten().filter(|(kind, _)| kind.contains("json"))
            {
                let lines: Vec<&str> =
                    if kind.contains("ndjson") { text.lines().collect() } else { vec![&text] };
                assert!(!lines.is_empty(), "{name}");
                for line in lines {
                    let answer: Value =
                        serde_json::from_str(line).unwrap_or_else(|e| panic!("{name}: {e}: {line}"));
                    assert!(
                        answer.as_array().is_none_or(|all| !all.is_empty() || path.ends_with("/events")),
                        "{name} is empty"
                    );
                    let mut found = Vec::new();
                    differences(&document, &content["schema"], &answer, "", &mut found);
                    assert!(found.is_empty(), "{name}: {found:#?}");
                }
            }
        }
    }
    let all: BTreeSet<String> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, of)| of.as_object().unwrap().keys().map(move |method| format!("{method} {path}")))
        .collect();
    assert_eq!(seen, all);
    let (status, text) = http(running.http, "GET", "/api/v1/nodes?nonsense=1", "").await;
    let mut found = Vec::new();
    let error = &document["components"]["schemas"]["Error"];
    differences(&document, error, &serde_json::from_str(&text).unwrap(), "", &mut found);
    assert!(status == 400 && found.is_empty(), "{status}: {found:#?}");
    running.stop().await;
}
