//! Suite `unit`: objects of `evenkeel.dev/v1` in a Kubernetes cluster are policies, and are told in their status what is recommended.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use common::apiserver::definition::Definition;
use common::apiserver::{ApiServer, Mood};
use common::{Agent, Link, Running, http, until};
use evenkeel_recommender::config::{Config, Span};
use serde_json::{Value, json};

const OWN: &str = "/apis/evenkeel.dev/v1/verticalpodautoscalers";

/// A Deployment, its set and its pod, as the agent of the tests has them.
fn deployment(api: &ApiServer, slot: usize) {
    let name = format!("w{slot}");
    let labels = json!({ "app": name });
    let put = |kind: &str, name: &str, owner: Value, more: Value| {
        let version = if kind == "Pod" { "v1" } else { "apps/v1" };
        let mut object = json!({
            "kind": kind, "apiVersion": version,
            "metadata": { "name": name, "namespace": "shop", "labels": labels, "ownerReferences": owner },
        });
        more.as_object().unwrap().iter().for_each(|(key, value)| object[key] = value.clone());
        api.put(object);
    };
    let owner = |kind: &str, name: &str| json!([{ "apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "o", "controller": true }]);
    let selector = json!({ "spec": { "selector": { "matchLabels": labels } } });
    put("Deployment", &name, Value::Null, selector.clone());
    put("ReplicaSet", &format!("{name}-a"), owner("Deployment", &name), selector);
    let spec = json!({ "nodeName": "node-1", "containers": [{ "name": "main" }] });
    let pod = json!({ "spec": spec, "status": { "phase": "Running" } });
    put("Pod", &format!("{name}-x"), owner("ReplicaSet", &format!("{name}-a")), pod);
}

fn own(name: &str, spec: Value) -> Value {
    json!({
        "kind": "VerticalPodAutoscaler", "apiVersion": "evenkeel.dev/v1", "spec": spec,
        "metadata": { "name": name, "namespace": "shop", "generation": 1 },
    })
}

fn of_deployment(name: &str) -> Value {
    json!({ "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": name } })
}

async fn started(dir: &Path, api: &ApiServer, more: impl Fn(&mut Config)) -> Running {
    Running::start(dir, |config: &mut Config| {
        config.kubernetes.view = true;
        config.kubernetes.recommend = true;
        config.kubernetes.kubeconfig = api.kubeconfig(dir);
        config.kubernetes.cluster = "test".into();
        config.recommend.watch_interval = Span::from_millis(50);
        more(config);
    })
    .await
}

async fn measured(running: &Running, images: &[&str]) -> (Agent, Link) {
    let mut agent = Agent::new(1, images);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    (agent, link)
}

fn status(api: &ApiServer, name: &str) -> Value {
    api.object(OWN, "shop", name).unwrap()["status"].clone()
}

fn condition(status: &Value, kind: &str) -> Option<Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind).cloned()
}

/// The status once a condition has a value.
async fn told(api: &ApiServer, name: &str, kind: &str, want: &str) -> Value {
    until(|| async {
        let status = status(api, name);
        condition(&status, kind).is_some_and(|c| c["status"] == want).then_some(status)
    })
    .await
}

fn fields(of: &Value) -> BTreeSet<String> {
    of.as_object().unwrap_or_else(|| panic!("{of}")).keys().cloned().collect()
}

async fn policy(running: &Running, name: &str) -> Value {
    let (_, text) = http(running.http, "GET", &format!("/api/v1/policies/shop/{name}"), "").await;
    serde_json::from_str(&text).unwrap_or_default()
}

async fn policies(running: &Running) -> Vec<(String, String)> {
    let (_, text) = http(running.http, "GET", "/api/v1/policies", "").await;
    let all: Value = serde_json::from_str(&text).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = all["items"].as_array().unwrap_or_else(|| panic!("{all}")).clone();
    list.iter().map(|one| (text(&one["metadata"]["name"]), text(&one["status"]["source"]))).collect()
}

async fn verbose(running: &Running) -> String {
    http(running.http, "GET", "/readyz?verbose", "").await.1
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_are_policies_and_are_told_what_is_recommended() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    deployment(&api, 0);
    let running = started(dir.path(), &api, |_| {}).await;
    let _agent = measured(&running, &["web:1"]).await;
    let bounds = json!({ "containers": [{ "name": "*", "requests": { "cpu": { "min": "2" } } }] });
    let mut spec = of_deployment("w0");
    spec["resourcesPolicy"] = bounds;
    spec["updatePolicy"] = json!({ "mode": "initial" });
    api.put(own("web", spec));

    // Of a container's first sample memory is known, CPU is not.
    let status = until(|| async {
        let status = told(&api, "web", "RecommendationProvided", "True").await;
        let is_whole = status["recommendation"]["containers"][0]["confidence"]["cpu"].is_number();
        is_whole.then_some(status)
    })
    .await;
    let main = &status["recommendation"]["containers"][0];
    assert_eq!(
        (&main["name"], &main["resources"]["requests"]["cpu"]),
        (&json!("main"), &json!("2")),
        "{status}"
    );
    assert!(
        main["resources"]["requests"]["memory"].is_string() && main["confidence"]["cpu"].is_number(),
        "{status}"
    );
    assert_eq!(main["cappedBy"]["cpu"], json!(["policy min"]));
    // What is written and what the definition keeps are the same fields.
    let schema = Definition::shipped().schema()["properties"]["status"].clone();
    let of_container = &schema["properties"]["recommendation"]["properties"]["containers"]["items"];
    let mut written = fields(main);
    // Said only where a start was seen.
    written.insert("start".to_owned());
    assert_eq!(written, fields(&of_container["properties"]));
    let condition_fields = fields(&schema["properties"]["conditions"]["items"]["properties"]);
    assert_eq!(fields(&status["conditions"][0]), condition_fields);
    assert_eq!(
        (&status["observedGeneration"], condition(&status, "Selects").unwrap()["reason"].clone()),
        (&json!(1), json!("Governs"))
    );
    assert!(condition(&status, "Selects").unwrap()["lastTransitionTime"].is_string());
    // It is one policy of the list, and says where it is.
    let shown = policy(&running, "web").await;
    assert_eq!(
        (&shown["kind"], &shown["status"]["source"]),
        (&json!("VerticalPodAutoscaler"), &json!("cluster"))
    );
    assert_eq!(shown["spec"]["targetRef"]["name"], "w0");
    let (code, text) = http(running.http, "DELETE", "/api/v1/policies/shop/web", "").await;
    assert!(code == 409 && text.contains("kubectl edit evpa"), "{code} {text}");
    let mut mine = json!({ "apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": { "name": "web", "namespace": "shop" } });
    mine["spec"] = json!({ "target": {} });
    let (code, text) = http(running.http, "POST", "/api/v1/policies", &mine.to_string()).await;
    assert!(code == 409 && text.contains("object of the Kubernetes cluster"), "{code} {text}");
    // Another policy selects the same: the older one governs, and both say so.
    mine["metadata"] =
        json!({ "name": "all", "namespace": "shop", "creationTimestamp": "2020-01-01T00:00:00Z" });
    assert!(http(running.http, "POST", "/api/v1/policies", &mine.to_string()).await.0 < 300);
    let status = told(&api, "web", "Conflict", "True").await;
    assert_eq!(status["conflicts"], json!([{ "policy": "shop/all", "containers": 1, "governs": false }]));
    let whole: BTreeSet<String> = fields(&status).into_iter().chain(["recommendation".to_owned()]).collect();
    assert_eq!(whole, fields(&schema["properties"]));
    assert_eq!(
        fields(&status["conflicts"][0]),
        fields(&schema["properties"]["conflicts"]["items"]["properties"])
    );
    until(|| async { verbose(&running).await.contains("objects: ok").then_some(()) }).await;
    assert_eq!(
        (&status["recommendation"], condition(&status, "Selects").unwrap()["reason"].clone()),
        (&Value::Null, json!("Overruled"))
    );
    http(running.http, "DELETE", "/api/v1/policies/shop/all", "").await;
    until(|| async { condition(&self::status(&api, "web"), "Conflict").is_none().then_some(()) }).await;
    assert!(self::status(&api, "web")["conflicts"].is_null());

    // Its spec changes, and it goes.
    let mut changed = api.object(OWN, "shop", "web").unwrap();
    changed["metadata"]["generation"] = 2.into();
    changed["spec"]["resourcesPolicy"]["containers"][0]["requests"]["cpu"]["min"] = "3".into();
    api.put(changed);
    until(|| async {
        let status = self::status(&api, "web");
        let cpu = &status["recommendation"]["containers"][0]["resources"]["requests"]["cpu"];
        (status["observedGeneration"] == 2 && *cpu == "3").then_some(())
    })
    .await;
    api.delete(OWN, "shop", "web");
    until(|| async { policies(&running).await.is_empty().then_some(()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_cannot_be_used_say_why_and_govern_nothing() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    deployment(&api, 0);
    let file = dir.path().join("policies.yaml");
    std::fs::write(
        &file,
        "apiVersion: evenkeel.dev/v1\nkind: Policy\nmetadata: {name: filed, namespace: shop}\nspec: {target: {matchLabels: {app: w0}}}\n",
    )
    .unwrap();
    let running = started(dir.path(), &api, |config| {
        config.policies = vec![file.clone()];
        config.recommend.max_policies = 6;
    })
    .await;
    let _agent = measured(&running, &["web:1"]).await;
    let mut set = of_deployment("w0-a");
    set["targetRef"]["kind"] = "ReplicaSet".into();
    // As an older definition lets through.
    for (name, spec, why) in [
        ("a-field", json!({ "target": {}, "frob": 1 }), "spec.frob"),
        ("b-type", json!({ "target": {}, "resourcesPolicy": "none" }), "spec.resourcesPolicy"),
        (
            "c-fine",
            json!({ "target": {}, "resourcesPolicy": { "containers": [{ "name": "a", "requests": { "memory": { "min": "1m" } } }] } }),
            "finer than a byte",
        ),
        ("d-gone", of_deployment("absent"), "Deployment shop/absent does not exist"),
        ("e-set", set, "has a parent"),
    ] {
        api.put(own(name, spec));
        let status = told(&api, name, "ConfigUnsupported", "True").await;
        let told = condition(&status, "ConfigUnsupported").unwrap()["message"].as_str().unwrap().to_owned();
        assert!(told.contains(why), "{name}: {told}");
        assert_eq!(condition(&status, "RecommendationProvided").unwrap()["status"], "False");
        assert_eq!(
            (condition(&status, "InForce").unwrap()["status"].clone(), &status["observedGeneration"]),
            (json!("False"), &json!(1))
        );
    }
    // A file goes over an object of its name, and what is too much is told.
    api.put(own("filed", of_deployment("w0")));
    let status = told(&api, "filed", "InForce", "False").await;
    assert_eq!(condition(&status, "InForce").unwrap()["reason"], "InFile");
    let mut last = own("last", of_deployment("w0"));
    last["metadata"]["creationTimestamp"] = "2099-01-01T00:00:00Z".into();
    api.put(last);
    let status = told(&api, "last", "ConfigUnsupported", "True").await;
    assert!(
        condition(&status, "ConfigUnsupported").unwrap()["message"].to_string().contains("max_policies"),
        "{status}"
    );
    let all = policies(&running).await;
    assert!(all.len() == 1 && all[0].1.starts_with("file "), "{all:?}");
    // A controller that is away for a moment takes no policy with it.
    api.delete(OWN, "shop", "last");
    api.delete(OWN, "shop", "a-field");
    api.put(own("web", of_deployment("w0")));
    until(|| async { policies(&running).await.contains(&("web".into(), "cluster".into())).then_some(()) })
        .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_hold_over_a_restart_while_the_api_server_is_away() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    deployment(&api, 0);
    api.put(own("web", of_deployment("w0")));
    let running = started(dir.path(), &api, |_| {}).await;
    until(|| async { (policies(&running).await.len() == 1).then_some(()) }).await;
    running.stop().await;
    api.is(Mood::Fails(503));
    let running = started(dir.path(), &api, |_| {}).await;
    assert_eq!(policies(&running).await, [("web".to_owned(), "cluster".to_owned())]);
    until(|| async {
        verbose(&running).await.contains("VerticalPodAutoscaler.evenkeel.dev: failing").then_some(())
    })
    .await;
    assert_eq!(policies(&running).await.len(), 1);
    api.is(Mood::Well);
    api.delete(OWN, "shop", "web");
    until(|| async { policies(&running).await.is_empty().then_some(()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_that_are_missing_are_told_and_refusals_pass() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    deployment(&api, 0);
    api.lacks("evenkeel.dev", true);
    api.watches_last(Some(Duration::from_millis(200)));
    let running = started(dir.path(), &api, |_| {}).await;
    let _agent = measured(&running, &["web:1"]).await;
    until(|| async {
        verbose(&running)
            .await
            .contains("objects: the cluster has no evenkeel.dev/v1 VerticalPodAutoscaler")
            .then_some(())
    })
    .await;
    assert_eq!((http(running.http, "GET", "/readyz", "").await.0, api.asked_for(OWN).len()), (200, 1));
    api.lacks("evenkeel.dev", false);
    // It is asked for again within half a minute.
    api.put(own("web", of_deployment("w0")));
    let status = told(&api, "web", "RecommendationProvided", "True").await;
    assert!(status["recommendation"]["containers"].is_array());
    until(|| async { verbose(&running).await.contains("objects: ok").then_some(()) }).await;

    // A storm of refusals, and the watch's version gone.
    api.write_storm(1, 409, None);
    api.write_storm(3, 429, Some(1));
    api.storm(2, 410, None);
    api.compact();
    let mut spec = of_deployment("w0");
    spec["resourcesPolicy"] =
        json!({ "containers": [{ "name": "*", "requests": { "cpu": { "min": "2" } } }] });
    let mut changed = own("web", spec);
    changed["metadata"]["generation"] = 2.into();
    api.put(changed);
    until(|| async { (status_of(&api)["observedGeneration"] == 2).then_some(()) }).await;
    assert_eq!((api.write_storm_left(), api.storm_left()), (0, 0));

    // The namespace is being deleted: what is gone is no trouble for long, and others go on.
    api.refuses("/going/status", 404);
    api.put(own("going", of_deployment("w0")));
    until(|| async { verbose(&running).await.contains("shop/going: status 404").then_some(()) }).await;
    api.delete(OWN, "shop", "going");
    until(|| async { verbose(&running).await.contains("objects: ok").then_some(()) }).await;
    api.put(own("next", of_deployment("w0")));
    told(&api, "next", "Selects", "True").await;
    running.stop().await;
}

fn status_of(api: &ApiServer) -> Value {
    status(api, "web")
}
