//! Suite `unit`: recommendations in the status of objects of a Kubernetes cluster that ask for them.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use std::path::Path;
use std::time::Duration;

use common::apiserver::{ApiServer, Mood};
use common::{Agent, Link, Running, http, until};
use evenkeel_recommender::config::{Config, Span};
use serde_json::{Value, json};

const AUTOSCALERS: &str = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers";

fn owned(kind: &str, name: &str, owner: (&str, &str), more: Value) -> Value {
    let owner = json!([{ "apiVersion": "apps/v1", "kind": owner.0, "name": owner.1, "uid": "o", "controller": true }]);
    let version = if kind == "Pod" { "v1" } else { "apps/v1" };
    let mut object = json!({
        "kind": kind, "apiVersion": version,
        "metadata": { "name": name, "namespace": "shop", "labels": { "app": owner[0]["name"] }, "ownerReferences": owner },
    });
    for (key, value) in more.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

/// A Deployment's set and pod, as the agent of the tests has them.
fn deployment(api: &ApiServer, slot: usize) {
    let (set, pod) = (format!("w{slot}-a"), format!("w{slot}-x"));
    let selector = json!({ "selector": { "matchLabels": { "app": format!("w{slot}") } } });
    api.put(owned("ReplicaSet", &set, ("Deployment", &format!("w{slot}")), json!({ "spec": selector })));
    let spec = json!({ "nodeName": "node-1", "containers": [{ "name": "main" }] });
    api.put(owned(
        "Pod",
        &pod,
        ("ReplicaSet", &set),
        json!({ "spec": spec, "status": { "phase": "Running" } }),
    ));
}

fn autoscaler(name: &str, target: (&str, &str, &str), spec: Value) -> Value {
    let (version, kind, of) = target;
    let mut object = json!({
        "kind": "VerticalPodAutoscaler", "apiVersion": "autoscaling.k8s.io/v1",
        "metadata": { "name": name, "namespace": "shop", "generation": 1 },
        "spec": {
            "targetRef": { "apiVersion": version, "kind": kind, "name": of }, "recommenders": [{ "name": "evenkeel" }],
            "updatePolicy": { "updateMode": "Off" },
        },
    });
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

fn web(name: &str, spec: Value) -> Value {
    autoscaler(name, ("apps/v1", "Deployment", "w0"), spec)
}

async fn started(dir: &Path, api: &ApiServer) -> Running {
    Running::start(dir, |config: &mut Config| {
        config.kubernetes.view = true;
        config.kubernetes.recommend = true;
        config.kubernetes.kubeconfig = api.kubeconfig(dir);
        config.kubernetes.cluster = "test".into();
        config.recommend.watch_interval = Span::from_millis(50);
    })
    .await
}

/// Seventy seconds of a quarter of a core and 64 MiB.
async fn measured(running: &Running, images: &[&str]) -> (Agent, Link) {
    let mut agent = Agent::new(1, images);
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    (agent, link)
}

fn status(api: &ApiServer, name: &str) -> Value {
    api.object(AUTOSCALERS, "shop", name).unwrap()["status"].clone()
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

fn containers(status: &Value) -> &Value {
    &status["recommendation"]["containerRecommendations"]
}

async fn metric(running: &Running, name: &str) -> u64 {
    let (_, metrics) = http(running.http, "GET", "/metrics", "").await;
    let start = format!("evenkeel_recommender_kubernetes_{name} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&start).map(str::to_owned));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// Objects in, statuses out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_ask_are_told_in_the_words_of_the_vertical_pod_autoscaler() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    deployment(&api, 0);
    // A kind of its own with the scale subresource, whose pods are made without anything between.
    let labels = json!({ "matchLabels": { "app": "w1" } });
    api.put(json!({
        "kind": "Rollout", "apiVersion": "argoproj.io/v1alpha1", "metadata": { "name": "w1-roll", "namespace": "shop" },
        "spec": { "selector": labels },
    }));
    let spec = json!({ "nodeName": "node-1", "containers": [{ "name": "main" }] });
    api.put(owned(
        "Pod",
        "w1-x",
        ("Deployment", "w1"),
        json!({ "spec": spec, "status": { "phase": "Running" } }),
    ));
    let running = started(dir.path(), &api).await;
    let (mut agent, mut link) = measured(&running, &["web:1", "db:1"]).await;
    let policy = |policy: Value| json!({ "resourcePolicy": { "containerPolicies": [policy] } });
    for object in [
        web("plain", json!({})),
        web("of-others", json!({ "recommenders": [{ "name": "other" }] })),
        web("of-nobody", json!({ "recommenders": null })),
        web(
            "bounded",
            policy(
                json!({ "containerName": "*", "minAllowed": { "cpu": "0.5" }, "maxAllowed": { "memory": "32Mi" } }),
            ),
        ),
        web("memory", policy(json!({ "containerName": "main", "controlledResources": ["memory"] }))),
        web("off", policy(json!({ "containerName": "main", "mode": "Off" }))),
        web(
            "acting",
            json!({ "updatePolicy": { "updateMode": "InPlaceOrRecreate" }, "startupBoost": { "cpu": {} } }),
        ),
        autoscaler("rollout", ("argoproj.io/v1alpha1", "Rollout", "w1-roll"), json!({})),
        autoscaler("set", ("apps/v1", "ReplicaSet", "w0-a"), json!({})),
        autoscaler("no-target", ("apps/v1", "Deployment", "absent"), json!({})),
        autoscaler("bad-kind", ("example.io/v1", "Frobnicator", "w0"), json!({})),
    ] {
        api.put(object);
    }

    // Use of memory is known at once, that of CPU with the first whole minute.
    let both = |status: &Value| containers(status)[0]["target"]["cpu"].is_string();
    let plain = until(|| async {
        let status = told(&api, "plain", "RecommendationProvided", "True").await;
        both(&status).then_some(status)
    })
    .await;
    let main = containers(&plain)[0].clone();
    let (cpu, memory) = (main["target"]["cpu"].clone(), main["target"]["memory"].clone());
    assert_eq!(
        (&main["containerName"], &main["uncappedTarget"]),
        (&json!("main"), &json!({ "cpu": cpu, "memory": memory }))
    );
    assert!(cpu.as_str().unwrap().ends_with('m') && memory.is_string(), "{plain}");
    assert_eq!((&plain["observedGeneration"], condition(&plain, "NoPodsMatched")), (&json!(1), None));
    assert!(
        condition(&plain, "LowConfidence").unwrap()["message"].as_str().unwrap().ends_with("main"),
        "{plain}"
    );
    assert_eq!(
        condition(&plain, "RecommendationProvided").unwrap().as_object().unwrap().len(),
        3,
        "no reason, no message"
    );

    let bounded = told(&api, "bounded", "RecommendationProvided", "True").await;
    let main = &containers(&bounded)[0];
    assert_eq!(main["target"], json!({ "cpu": "500m", "memory": "32Mi" }));
    assert_eq!(main["uncappedTarget"], json!({ "cpu": cpu, "memory": memory }));
    let only = told(&api, "memory", "RecommendationProvided", "True").await;
    assert_eq!(containers(&only)[0]["target"], json!({ "memory": memory }));
    let off = told(&api, "off", "RecommendationProvided", "False").await;
    assert_eq!(off["recommendation"], json!({}));
    let acting = told(&api, "acting", "evenkeel.dev/NotHonoured", "True").await;
    let message = condition(&acting, "evenkeel.dev/NotHonoured").unwrap()["message"].to_string();
    assert!(
        message.contains("spec.startupBoost, spec.updatePolicy.updateMode (InPlaceOrRecreate)"),
        "{message}"
    );
    assert_eq!(
        containers(&told(&api, "rollout", "RecommendationProvided", "True").await)[0]["containerName"],
        "main"
    );

    for (name, why) in [
        (
            "set",
            "The targetRef controller has a parent but it should point to a topmost well-known or scalable controller",
        ),
        ("no-target", "Cannot read targetRef. Reason: Deployment shop/absent does not exist"),
        (
            "bad-kind",
            "Cannot read targetRef. Reason: unhandled targetRef example.io/v1 / Frobnicator / w0, last error no matches for kind \
             \"Frobnicator\" in group \"example.io\"",
        ),
    ] {
        let status = told(&api, name, "ConfigUnsupported", "True").await;
        assert_eq!(condition(&status, "ConfigUnsupported").unwrap()["message"], why);
        let provided = condition(&status, "RecommendationProvided").unwrap();
        assert_eq!(
            (&provided["status"], &provided["reason"]),
            (&json!("False"), &json!("NoPodsMatched")),
            "{name}"
        );
        assert_eq!(status["recommendation"], json!({}));
    }
    for name in ["of-others", "of-nobody"] {
        assert_eq!(status(&api, name), Value::Null, "{name}");
    }
    // Each was written once: what moves a little waits, what does not is not written.
    until(|| async { (metric(&running, "status_waiting").await == 0).then_some(()) }).await;
    assert_eq!(
        (metric(&running, "autoscalers").await, metric(&running, "status_writes_total").await),
        (9, 9)
    );
    assert_eq!(api.asked_for("PATCH").len(), 9);

    // A kill for want of memory, or more use, raises what is written at once.
    agent.use_at = Some(|_, _| (250, 512 << 20));
    link.send(agent.measure(400)).await;
    link.acknowledged(470).await;
    until(|| async { (containers(&status(&api, "plain"))[0]["target"]["memory"] != memory).then_some(()) })
        .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_object_is_told_anew_and_one_without_pods_keeps_what_is_known() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    deployment(&api, 0);
    api.put(web("web", json!({})));
    let running = started(dir.path(), &api).await;
    let _agent = measured(&running, &["web:1"]).await;
    told(&api, "web", "RecommendationProvided", "True").await;

    let mut changed = api.object(AUTOSCALERS, "shop", "web").unwrap();
    changed["metadata"]["generation"] = 2.into();
    changed["spec"]["resourcePolicy"] =
        json!({ "containerPolicies": [{ "containerName": "*", "maxAllowed": { "cpu": "10m" } }] });
    api.put(changed);
    until(|| async {
        let status = status(&api, "web");
        (status["observedGeneration"] == 2 && containers(&status)[0]["target"]["cpu"] == "10m").then_some(())
    })
    .await;
    // A Deployment of no replicas: it is there, and selects nothing.
    let selector = json!({ "selector": { "matchLabels": { "app": "w0" } } });
    api.put(json!({
        "kind": "Deployment", "apiVersion": "apps/v1", "metadata": { "name": "w0", "namespace": "shop" }, "spec": selector,
    }));
    api.delete("/api/v1/pods", "shop", "w0-x");
    let none = told(&api, "web", "NoPodsMatched", "True").await;
    assert_eq!(containers(&none)[0]["target"]["cpu"], "10m", "history outlives pods");
    assert_eq!(
        (
            condition(&none, "ConfigUnsupported"),
            condition(&none, "RecommendationProvided").unwrap()["status"].clone()
        ),
        (None, json!("True"))
    );
    deployment(&api, 0);
    until(|| async { condition(&status(&api, "web"), "NoPodsMatched").is_none().then_some(()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_pass_and_each_is_told() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    deployment(&api, 0);
    api.watches_last(Some(Duration::from_millis(200)));
    let running = started(dir.path(), &api).await;
    let _agent = measured(&running, &["web:1"]).await;
    api.write_storm(1, 409, None);
    api.write_storm(1, 429, Some(1));
    api.write_storm(1, 500, None);
    api.put(web("web", json!({})));
    let verbose = || async { http(running.http, "GET", "/readyz?verbose", "").await.1 };
    until(|| async {
        verbose().await.contains("objects: VerticalPodAutoscaler shop/web: status 500").then_some(())
    })
    .await;
    told(&api, "web", "RecommendationProvided", "True").await;
    assert_eq!(api.write_storm_left(), 0);
    until(|| async { (metric(&running, "status_writes_total").await == 1).then_some(()) }).await;
    assert_eq!(
        (metric(&running, "status_conflicts_total").await, metric(&running, "status_failures_total").await),
        (1, 2)
    );
    let text = verbose().await;
    assert!(text.contains("objects: ok"), "what is over is not told: {text}");

    // One that may not be written costs the others nothing, and is not asked for again at once.
    api.write_storm(1, 403, None);
    api.put(web("second", json!({})));
    until(|| async { verbose().await.contains("status 403").then_some(()) }).await;
    api.put(web("third", json!({})));
    told(&api, "third", "RecommendationProvided", "True").await;
    assert_eq!(api.asked_for("verticalpodautoscalers/second/status").len(), 1);

    // An API server that is away: what was known stays, and nothing runs hot.
    api.is(Mood::Fails(503));
    until(|| async { verbose().await.contains("objects: VerticalPodAutoscaler: failing").then_some(()) })
        .await;
    api.is(Mood::Well);
    api.put(web("fourth", json!({})));
    told(&api, "fourth", "RecommendationProvided", "True").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_the_kind_is_left_alone() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    api.lacks("autoscaling.k8s.io", true);
    let running = started(dir.path(), &api).await;
    // That the Vertical Pod Autoscaler is not installed is told by a metric, and is no trouble.
    until(|| async {
        let (_, metrics) = http(running.http, "GET", "/metrics", "").await;
        let known = |kind: &str, is: u8| {
            metrics.contains(&format!("evenkeel_recommender_kubernetes_known{{kind=\"{kind}\"}} {is}\n"))
        };
        (known("VerticalPodAutoscaler", 0) && known("VerticalPodAutoscaler.evenkeel.dev", 1)).then_some(())
    })
    .await;
    // It is not known before the first answer, either.
    until(|| async {
        let text = http(running.http, "GET", "/readyz?verbose", "").await.1;
        text.contains("objects: ok").then_some(())
    })
    .await;
    assert_eq!(http(running.http, "GET", "/readyz", "").await.0, 200);
    assert_eq!(api.asked_for(AUTOSCALERS).len(), 1);
    running.stop().await;
}

const CHECKPOINTS: &str = "/apis/autoscaling.k8s.io/v1/verticalpodautoscalercheckpoints";

/// Seconds since 1970 as an API server writes them.
fn rfc3339(seconds: u64) -> String {
    let at = jiff::Timestamp::from_second(i64::try_from(seconds).unwrap()).unwrap();
    at.to_string()
}

/// What the Vertical Pod Autoscaler's recommender knew of days of two cores and about a gibibyte.
fn saved(object: &str, container: &str) -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let reference = rfc3339(now / 86_400 * 86_400);
    // Buckets 48 and 37: about 1.9 cores and 1.1 GB.
    let histogram = |bucket: &str, total: f64| json!({ "bucketWeights": { bucket: 10000 }, "referenceTimestamp": reference, "totalWeight": total });
    json!({
        "kind": "VerticalPodAutoscalerCheckpoint", "apiVersion": "autoscaling.k8s.io/v1",
        "metadata": { "name": format!("{object}-{container}"), "namespace": "shop" },
        "spec": { "vpaObjectName": object, "containerName": container },
        "status": {
            "version": "v3", "cpuHistogram": histogram("48", 400.0), "memoryHistogram": histogram("37", 5.0),
            "firstSampleStart": rfc3339(now - 5 * 86_400), "lastSampleStart": rfc3339(now - 600),
            "lastUpdateTime": rfc3339(now - 600), "totalSamplesCount": 7_000,
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_changes_from_the_vertical_pod_autoscaler_and_back_loses_no_history() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    deployment(&api, 0);
    deployment(&api, 1);
    let running = started(dir.path(), &api).await;
    let _agent = measured(&running, &["web:1", "web:1"]).await;
    let mut object = saved("web", "main");
    let first = object["status"]["firstSampleStart"].clone();
    object["metadata"]["labels"] = json!({ "kept": "yes" });
    api.put(object);
    api.put(saved("web", "gone"));
    let mut wrong = saved("plain", "main");
    wrong["status"]["version"] = "v2".into();
    api.put(wrong);
    api.put(web("web", json!({})));
    api.put(autoscaler("plain", ("apps/v1", "Deployment", "w1"), json!({})));

    // A minute of a quarter of a core is less than what was known.
    let cpu =
        |status: &Value| status["recommendation"]["containerRecommendations"][0]["target"]["cpu"].clone();
    let known = told(&api, "web", "RecommendationProvided", "True").await;
    assert!(
        containers(&known).as_array().unwrap().len() == 1,
        "a container that does not run is told nothing: {known}"
    );
    let millis: u64 = cpu(&known).as_str().unwrap().trim_end_matches('m').parse().unwrap();
    assert!((2_000..3_000).contains(&millis), "{known}");
    assert!(condition(&known, "LowConfidence").is_none(), "{known}");
    let plain = told(&api, "plain", "RecommendationProvided", "True").await;
    assert!(condition(&plain, "LowConfidence").is_some() && cpu(&plain) != cpu(&known), "{plain}");

    // And back: what is known now, with what was known before.
    let written = |name: &str| api.object(CHECKPOINTS, "shop", name);
    let again = until(|| async {
        written("web-main").filter(|one| one["status"]["totalSamplesCount"].as_u64() > Some(7_000))
    })
    .await;
    let status = &again["status"];
    let bucket = |bucket: &str| status["cpuHistogram"]["bucketWeights"][bucket].as_u64().unwrap_or_default();
    assert_eq!((&status["version"], &again["metadata"]["labels"]), (&json!("v3"), &json!({ "kept": "yes" })));
    assert_eq!((bucket("48"), &status["firstSampleStart"]), (10_000, &first));
    assert!(status["memoryHistogram"]["bucketWeights"]["37"].is_u64(), "{status}");
    let new = until(|| async { written("plain-main").filter(|one| one["status"]["version"] == "v3") }).await;
    assert!(new["status"]["totalSamplesCount"].as_u64() >= Some(1), "{new}");
    running.stop().await;

    // Where they may not be read, that is told, and costs the objects nothing.
    api.forbid("verticalpodautoscalercheckpoints", true);
    let dir = tempfile::tempdir().unwrap();
    let running = started(dir.path(), &api).await;
    let _agent = measured(&running, &["web:1", "web:1"]).await;
    api.put(web("other", json!({})));
    told(&api, "other", "RecommendationProvided", "True").await;
    // Also one that is made after they were asked for.
    api.put(web("later", json!({})));
    told(&api, "later", "RecommendationProvided", "True").await;
    let text = http(running.http, "GET", "/readyz?verbose", "").await.1;
    assert!(text.contains("checkpoints of shop are not read: status 403"), "{text}");
    running.stop().await;
}
