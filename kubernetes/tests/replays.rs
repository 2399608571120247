//! Suite `unit`: recorded questions are put to the fixture, which must answer as the real API server did. With `APISERVER=URL` and
//! `KUBECONFIG`, those that need no state of before are put to that server instead.

use crate::apiserver::ApiServer;
use crate::apiserver::recorded::{body, exchanges};
use http::Request;
use http_body_util::BodyExt as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};

/// An API server, and how it is asked.
struct Asking {
    api: Option<ApiServer>,
    client: Client,
    anonymous: Client,
    stranger: Client,
    _dir: tempfile::TempDir,
}

impl Asking {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let real = std::env::var_os("APISERVER");
        let api = if real.is_some() { None } else { Some(ApiServer::start().await) };
        let file = match &api {
            Some(api) => Kubeconfig::read_from(api.kubeconfig(dir.path())).unwrap(),
            None => Kubeconfig::read().unwrap(),
        };
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        if let Some(url) = real {
            config.cluster_url = url.to_str().unwrap().parse().unwrap();
        }
        config.default_retry = false;
        let (mut anonymous, mut stranger) = (config.clone(), config.clone());
        (anonymous.auth_info, stranger.auth_info) = Default::default();
        stranger.auth_info.token = Some("nobody".to_owned().into());
        let client = |config| Client::try_from(config).unwrap();
        let (client, anonymous, stranger) = (client(config), client(anonymous), client(stranger));
        Self { api, client, anonymous, stranger, _dir: dir }
    }

    /// Puts a question as it was put: status and body, or the events of a watch.
    async fn ask(&self, exchange: &Value) -> (u16, Value, Option<String>) {
        let request = &exchange["request"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut asked =
            Request::builder().method(text(&request["method"]).as_str()).uri(text(&request["path"]));
        for name in ["Accept", "Content-Type"] {
            if let Some(value) = request["headers"][name].as_str() {
                asked = asked.header(name, value);
            }
        }
        let body =
            if request["body"].is_null() { Vec::new() } else { request["body"].to_string().into_bytes() };
        let client = match request["headers"]["Authorization"].as_str() {
            Some("Bearer <TOKEN>") => &self.client,
            Some(_) => &self.stranger,
            None => &self.anonymous,
        };
        let answer = client.send(asked.body(body.into()).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        let after = answer.headers().get("Retry-After").map(|value| value.to_str().unwrap().to_owned());
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        if exchange["response"]["stream"].is_array() {
            let events = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            return (
                status,
                events.map(|line| serde_json::from_slice::<Value>(line).unwrap()).collect(),
                after,
            );
        }
        let body = serde_json::from_slice(&bytes)
            .unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into_owned().into());
        (status, body, after)
    }

    /// Puts it, and compares all of a refusal with what was recorded.
    async fn same(&self, exchange: &Value) {
        let (status, body, after) = self.ask(exchange).await;
        let (note, response) = (&exchange["note"], &exchange["response"]);
        assert_eq!(status, response["status"], "{note}: {body}");
        assert_eq!(worded(&body), worded(&response["body"]), "{note}");
        assert_eq!(after.as_deref(), response["headers"]["Retry-After"].as_str(), "{note}");
    }
}

/// A refusal, without the words of Go's JSON reader, which differ from one release of Go to the next.
fn worded(refusal: &Value) -> Value {
    let mut refusal = refusal.clone();
    if let Some((ours, _)) = refusal["message"].as_str().and_then(|text| text.split_once("invalid character"))
    {
        refusal["message"] = ours.into();
    }
    refusal
}

fn of(file: &str, note: &str) -> Value {
    let found =
        exchanges(file).into_iter().find(|exchange| exchange["note"].as_str().unwrap().starts_with(note));
    found.unwrap_or_else(|| panic!("no exchange {note}"))
}

/// Kind, name and metadata that identify objects of a list or events.
fn names(items: &Value, of: &str) -> Vec<String> {
    let name = |item: &Value| {
        let object = if of.is_empty() { item } else { &item[of] };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        format!("{} {}", text(&item["type"]), text(&object["metadata"]["name"]))
    };
    items.as_array().unwrap().iter().map(name).collect()
}

#[tokio::test]
async fn refusals_that_need_no_state_are_those_of_the_recording() {
    let asking = Asking::new().await;
    for (file, note) in [
        ("pods", "field selector the server does not support"),
        ("pods", "sendInitialEvents without resourceVersionMatch"),
        ("errors", "401: wrong token"),
        ("errors", "403: no token at all"),
        ("errors", "404: no such pod"),
        ("errors", "400: resourceVersion not a number"),
        ("errors", "400: limit not a number"),
        ("errors", "continue token that is not one"),
        ("leases", "get before it exists"),
        ("discovery", "unknown path"),
        ("discovery", "unknown resource"),
    ] {
        asking.same(&of(file, note)).await;
    }
    for (file, note) in [("pods", "list of an unknown node"), ("errors", "200 empty list: no such namespace")]
    {
        let exchange = of(file, note);
        let (status, body, _) = asking.ask(&exchange).await;
        let want = &exchange["response"]["body"];
        assert_eq!((status, &body["kind"], &body["items"]), (200, &want["kind"], &want["items"]), "{note}");
    }
}

#[tokio::test]
async fn versions_that_are_gone_or_to_come_are_refused_as_recorded() {
    let asking = Asking::new().await;
    let Some(api) = &asking.api else { return };
    api.set_version(3209);
    asking.same(&of("errors", "list at a resourceVersion in the future")).await;
    api.compact();
    // The recorded server had moved on by then.
    api.set_version(3254);
    asking.same(&of("errors", "410 Expired as HTTP status: continue token")).await;
    asking.same(&of("errors", "410 Expired as HTTP status: list with resourceVersion Exact")).await;
}

#[tokio::test]
async fn a_watch_from_a_version_that_is_gone_gets_one_error() {
    let asking = Asking::new().await;
    let Some(api) = &asking.api else { return };
    api.set_version(3253);
    api.compact();
    let exchange = of("errors", "410: watch from a resourceVersion older");
    let (status, events, _) = asking.ask(&exchange).await;
    assert_eq!((status, &events[0]), (200, &exchange["response"]["stream"][0]["event"]));
    assert_eq!(events.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_list_is_the_recorded_one_whole_and_in_pages() {
    let asking = Asking::new().await;
    let Some(api) = &asking.api else { return };
    let whole = of("pods", "list of a node's pods");
    let items = whole["response"]["body"]["items"].as_array().unwrap();
    for item in items {
        api.put_at("/api/v1/pods", item.clone());
    }
    // One of another node, which is not asked for.
    api.put_at(
        "/api/v1/pods",
        json!({ "metadata": { "name": "a", "namespace": "a" }, "spec": { "nodeName": "other" } }),
    );
    let (_, body, _) = asking.ask(&whole).await;
    assert_eq!(names(&body["items"], ""), names(&whole["response"]["body"]["items"], ""));
    let (mut first, mut second) =
        (of("pods", "list in chunks, first page"), of("pods", "list in chunks, second page"));
    let (_, page, _) = asking.ask(&first).await;
    assert_eq!(names(&page["items"], ""), names(&first["response"]["body"]["items"], ""));
    let version = page["metadata"]["resourceVersion"].clone();
    let token = page["metadata"]["continue"].as_str().unwrap();
    // What comes meanwhile is not in the rest of the list.
    api.put_at(
        "/api/v1/pods",
        json!({ "metadata": { "name": "z", "namespace": "z" }, "spec": { "nodeName": "labnode" } }),
    );
    let path = format!("{}&continue={token}", first["request"]["path"].as_str().unwrap());
    second["request"]["path"] = path.into();
    let (_, page, _) = asking.ask(&second).await;
    assert_eq!(names(&page["items"], ""), names(&second["response"]["body"]["items"], ""));
    assert_eq!(page["metadata"]["resourceVersion"], version);
    let token = page["metadata"]["continue"].as_str().unwrap();
    first["request"]["path"] =
        format!("{}&continue={token}", first["request"]["path"].as_str().unwrap()).into();
    let (_, page, _) = asking.ask(&first).await;
    assert_eq!(page["items"].as_array().unwrap().len(), items.len() - 4);
    assert!(page["metadata"]["continue"].is_null());
}

#[tokio::test]
async fn objects_are_made_and_changed_as_recorded() {
    let asking = Asking::new().await;
    let Some(api) = &asking.api else { return };
    let patch = of("pods", "patch a label (merge patch)");
    let mut object = patch["response"]["body"].clone();
    object["metadata"]["labels"].as_object_mut().unwrap().remove("tier");
    object["metadata"]["annotations"] = json!({ "example.io/note": "x" });
    api.set_version(665);
    api.put_at("/api/v1/pods", object);
    let (status, mut body, _) = asking.ask(&patch).await;
    let left = body["metadata"].as_object_mut().unwrap().remove("annotations");
    assert_eq!((status, left), (200, Some(json!({}))), "the one annotation is gone");
    assert_eq!(body, patch["response"]["body"]);
    let mut other = body;
    (other["metadata"]["name"], other["metadata"]["uid"]) =
        ("besteffort".into(), "27859600-72c9-4e95-af69-0fbd2bdab3ee".into());
    api.put_at("/api/v1/pods", other);
    for (file, note) in [
        ("errors", "409 AlreadyExists"),
        ("errors", "409 Conflict: PUT"),
        ("errors", "409 Conflict: merge patch"),
        ("pods", "delete again: 404"),
        ("pods", "delete with wrong uid precondition"),
    ] {
        asking.same(&of(file, note)).await;
    }
}

#[tokio::test]
async fn a_lease_changes_hands_as_recorded() {
    let asking = Asking::new().await;
    let Some(api) = &asking.api else { return };
    let all = exchanges("leases");
    let (watch, steps) = all.split_last().unwrap();
    let mut changes = 0;
    for step in steps {
        // The next version is the one that was recorded.
        let recorded = step["response"]["body"]["metadata"]["resourceVersion"].as_str();
        if let Some(version) = recorded.and_then(|version| version.parse::<u64>().ok()) {
            api.set_version(version - 1);
            changes += 1;
        }
        let (status, mut body, _) = asking.ask(step).await;
        let (note, response) = (step["note"].as_str().unwrap(), &step["response"]);
        assert_eq!(status, response["status"], "{note}: {body}");
        let mut want = response["body"].clone();
        for told in [&mut body, &mut want] {
            // The fixture gives identities of its own.
            for (place, field) in [("metadata", "uid"), ("metadata", "creationTimestamp"), ("details", "uid")]
            {
                told[place].as_object_mut().map(|object| object.remove(field));
            }
            // Which version it has by then depends on steps that are not replayed.
            if note.starts_with("delete with stale") {
                told.as_object_mut().unwrap().remove("message");
            }
        }
        assert_eq!(body, want, "{note}");
    }
    assert!(changes >= 3);
    // Who watched from the beginning saw each of these, and the end.
    let mut watch = watch.clone();
    let path = watch["request"]["path"].as_str().unwrap().replace("timeoutSeconds=30", "timeoutSeconds=1");
    watch["request"]["path"] = format!("{path}&resourceVersion=1").into();
    let (_, events, _) = asking.ask(&watch).await;
    let kinds = names(&events, "object");
    assert_eq!(kinds.first().map(String::as_str), Some("ADDED qos-leader"));
    assert_eq!(kinds.last().map(String::as_str), Some("DELETED qos-leader"));
    assert_eq!(kinds.len(), changes + 1, "{kinds:?}");
}

#[tokio::test]
async fn initial_events_end_with_the_recorded_bookmark() {
    let asking = Asking::new().await;
    let Some(api) = &asking.api else { return };
    api.set_version(726);
    api.put_at("/api/v1/pods", body("pods", "patch a label (merge patch)"));
    for note in ["sendInitialEvents on an empty set", "sendInitialEvents=true: synthetic ADDED"] {
        let exchange = of("pods", note);
        let mut asked = exchange.clone();
        let path = exchange["request"]["path"].as_str().unwrap();
        let path: Vec<&str> = path.split('&').filter(|part| !part.starts_with("timeoutSeconds")).collect();
        asked["request"]["path"] = format!("{}&timeoutSeconds=1", path.join("&")).into();
        let (_, events, _) = asking.ask(&asked).await;
        let mark = |events: Vec<&Value>| {
            let bookmark = events.into_iter().find(|event| event["type"] == "BOOKMARK").unwrap().clone();
            (bookmark["object"]["kind"].clone(), bookmark["object"]["metadata"]["annotations"].clone())
        };
        let recorded =
            exchange["response"]["stream"].as_array().unwrap().iter().map(|part| &part["event"]).collect();
        assert_eq!(mark(events.as_array().unwrap().iter().collect()), mark(recorded), "{note}");
    }
}

/// A custom resource is made, given a status, changed and deleted as recorded.
#[tokio::test]
async fn an_autoscaler_is_made_and_written_to_as_recorded() {
    let asking = Asking::new().await;
    let Some(api) = &asking.api else { return };
    for note in [
        "get through v1beta2",
        "status is a subresource: status in a create is dropped",
        "status written by merge patch through /status",
        "status through the main resource: 200, but status is dropped",
        "strategic merge patch on a custom resource: 415",
        "PUT with a stale resourceVersion: 409",
        "PUT without resourceVersion on a custom resource: 422",
        "subresource the CRD does not have: 404",
        "a checkpoint object of our own",
        "delete",
    ] {
        let mut exchange = of("vpa", note);
        if note.starts_with("PUT with a stale") {
            // The recorder took it out of what it kept of the question, for the next one.
            exchange["request"]["body"]["metadata"]["resourceVersion"] = "1".into();
        }
        // The next version is the one that was recorded, where the step makes one.
        let recorded = exchange["response"]["body"]["metadata"]["resourceVersion"].as_str();
        let next =
            recorded.and_then(|version| version.parse::<u64>().ok()).filter(|next| *next > api.version());
        if let Some(version) = next {
            api.set_version(version - 1);
        }
        let (status, mut body, _) = asking.ask(&exchange).await;
        let mut want = exchange["response"]["body"].clone();
        for told in [&mut body, &mut want] {
            for (place, field) in [("metadata", "uid"), ("metadata", "creationTimestamp"), ("details", "uid")]
            {
                told.get_mut(place).and_then(Value::as_object_mut).map(|object| object.remove(field));
            }
        }
        assert_eq!(
            (status, &body),
            (exchange["response"]["status"].as_u64().unwrap() as u16, &want),
            "{note}"
        );
    }
}
