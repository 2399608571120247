//! Suite `unit`: pods of a Kubernetes cluster that run are brought to what is recommended: in place, by eviction where that cannot be and the policy
//! lets it, or not at all, which is said. Against an API server that answers as recorded.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

mod common;

use common::apiserver::{ApiServer, Fate};
use common::pods::{
    PODS, adjusted, at_stage, cluster, cpu, panic, passes, pod, policy, policy_of, refused, resizes, stage,
    started, updates, webhook,
};
use common::{Agent, Running, http, until};
use evenkeel_proto::v1;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_recommender::config::{Config, Span, UpdaterMode};
use serde_json::{Value, json};

const BUDGETS: &str = "/apis/policy/v1/poddisruptionbudgets";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_resized_in_place_once_and_it_is_told_everywhere() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x", "w0-y"]);
    let (running, ..) = started(dir.path(), &api, |config| config.kubernetes.events = true).await;
    policy(&running, json!({})).await;
    for name in ["w0-x", "w0-y"] {
        at_stage(&api, name, "Done").await;
        assert_eq!(cpu(&api, name), "300m");
    }
    passes(&running, 5).await;
    assert_eq!((resizes(&api), api.asked_for("/eviction").len()), (2, 0));
    let told = updates(&running).await;
    let step =
        told["steps"].as_array().unwrap().iter().find(|step| step["deed"] == "resize").cloned().unwrap();
    assert_eq!(
        (&step["reason"], &step["outcome"], &step["policy"]),
        (&json!("Raise"), &json!("done"), &json!("shop/web"))
    );
    assert!(step["why"].as_str().unwrap().contains("cpu 100m/- to 300m/-"), "{step}");
    assert_eq!(step["inputs"]["evict"], "never");
    // In the audit record, as an Event of the pod, in metrics.
    let (_, audit) = http(running.http, "GET", "/api/v1/audit", "").await;
    assert!(audit.contains("updater") && audit.contains("w0-x"), "{audit}");
    let events = api.everything();
    assert!(
        events
            .iter()
            .any(|((of, ..), object)| of.contains("/events") && object["reason"] == "ResizedByUpdater")
    );
    let (_, metrics) = http(running.http, "GET", "/metrics", "").await;
    assert!(metrics.contains("evenkeel_recommender_updater_resizes_total{outcome=\"done\"} 2"), "{metrics}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deferred_resize_is_waited_for_and_nothing_else_is_done_meanwhile() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x", "w0-y"]);
    api.fate("shop", "w0-x", Some(Fate::Deferred));
    let (running, ..) = started(dir.path(), &api, |_| {}).await;
    policy(&running, json!({})).await;
    let why = refused(&running, "UnderWay").await;
    assert!(why["why"].as_str().unwrap().contains("deferred: Node didn't have enough resource"), "{why}");
    passes(&running, 3).await;
    assert_eq!((resizes(&api), cpu(&api, "w0-y")), (1, json!("100m")));
    api.fate("shop", "w0-x", None);
    at_stage(&api, "w0-x", "Done").await;
    at_stage(&api, "w0-y", "Done").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_never_be_is_given_up_or_evicted_where_the_policy_lets_it() {
    for (evict, evicted) in [("never", false), ("oom", false), ("always", true)] {
        let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
        cluster(&api, &["w0-x"]);
        webhook(&api);
        api.fate("shop", "w0-x", Some(Fate::Infeasible));
        let (running, ..) = started(dir.path(), &api, |config| config.kubernetes.events = true).await;
        policy(&running, json!({ "evict": evict })).await;
        if evicted {
            let is_ending =
                || api.object(PODS, "shop", "w0-x").unwrap()["metadata"]["deletionTimestamp"].is_string();
            until(|| async { is_ending().then_some(()) }).await;
            passes(&running, 3).await;
            assert_eq!(api.asked_for("/eviction").len(), 1, "{evict}");
        } else {
            at_stage(&api, "w0-x", "GivenUp").await;
            until(|| async { (cpu(&api, "w0-x") == "100m").then_some(()) }).await;
            let told = refused(&running, "BackOff").await;
            assert!(told["why"].as_str().unwrap().contains("infeasible"), "{told}");
            until(|| async {
                let all = api.everything();
                let is_told =
                    |object: &Value| object["reason"] == "LeftAloneByUpdater" && object["type"] == "Warning";
                all.values().any(is_told).then_some(())
            })
            .await;
            assert_eq!((resizes(&api), api.asked_for("/eviction").len()), (2, 0), "{evict}");
        }
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_evicted_without_proof_of_the_webhook_or_against_a_budget() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x"]);
    api.fate("shop", "w0-x", Some(Fate::Infeasible));
    let budget = |allowed: u64| {
        json!({
            "kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "selector": { "matchLabels": { "app": "w0" } } }, "status": { "disruptionsAllowed": allowed },
        })
    };
    api.put(budget(0));
    let (running, ..) =
        started(dir.path(), &api, |config| config.kubernetes.updater.again_after = Span::from_secs(1)).await;
    policy(&running, json!({ "evict": "always" })).await;
    at_stage(&api, "w0-x", "GivenUp").await;
    until(|| async {
        let why = refused(&running, "BackOff").await["why"].to_string();
        why.contains("AdmissionUnproven").then_some(())
    })
    .await;
    webhook(&api);
    until(|| async {
        let why = refused(&running, "BackOff").await["why"].to_string();
        why.contains("DisruptionBudget").then_some(())
    })
    .await;
    assert_eq!(api.asked_for("/eviction").len(), 0);
    api.put(budget(1));
    until(|| async { (!api.asked_for("/eviction").is_empty()).then_some(()) }).await;
    until(|| async {
        let left = api.object(BUDGETS, "shop", "web").unwrap()["status"]["disruptionsAllowed"].clone();
        (left == 0).then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_is_tried_again_and_a_storm_waited_for() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x"]);
    api.write_storm(2, 409, None);
    api.write_storm(1, 429, Some(1));
    let (running, ..) = started(dir.path(), &api, |_| {}).await;
    policy(&running, json!({})).await;
    at_stage(&api, "w0-x", "Done").await;
    assert_eq!((resizes(&api), cpu(&api, "w0-x"), api.write_storm_left()), (1, json!("300m"), 0));
    let told = updates(&running).await;
    let conflicts =
        told["steps"].as_array().unwrap().iter().filter(|step| step["outcome"] == "conflict").count();
    assert_eq!(conflicts, 2, "{told}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leads_next_goes_on_and_does_nothing_twice() {
    let (one, other, api) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x"]);
    api.fate("shop", "w0-x", Some(Fate::Silent));
    let (running, ..) = started(one.path(), &api, |_| {}).await;
    policy(&running, json!({})).await;
    until(|| async { (resizes(&api) == 1).then_some(()) }).await;
    running.stop().await;
    let (running, ..) = started(other.path(), &api, |_| {}).await;
    policy(&running, json!({})).await;
    refused(&running, "UnderWay").await;
    passes(&running, 3).await;
    assert_eq!(resizes(&api), 1);
    api.fate("shop", "w0-x", None);
    at_stage(&api, "w0-x", "Done").await;
    assert_eq!(resizes(&api), 1);
    running.stop().await;
    // The note was written, and the resize was not asked for.
    let mut half = pod("w0-x");
    let sizes = |cpu: &str| json!({ "main": { "cpu": cpu, "memory": "100Mi/200Mi" } });
    let note = json!({
        "stage": "Asked", "at": 1, "original": sizes("100m/-"), "before": sizes("100m/-"), "target": sizes("300m/-"),
    });
    half["status"]["conditions"].as_array_mut().unwrap().push(json!({
        "type": "evenkeel.dev/Resize", "status": "True", "reason": "Asked", "message": note.to_string(),
    }));
    api.put(half);
    let again = tempfile::tempdir().unwrap();
    let (running, ..) = started(again.path(), &api, |_| {}).await;
    policy(&running, json!({})).await;
    at_stage(&api, "w0-x", "Done").await;
    assert_eq!((resizes(&api), cpu(&api, "w0-x")), (2, json!("300m")));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_canary_that_is_killed_for_want_of_memory_goes_back_and_the_rest_stays() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x", "w0-y"]);
    let running = Running::start(dir.path(), |config: &mut Config| adjusted(dir.path(), &api, config)).await;
    let mut agent = Agent::new(1, &["web:1"]);
    // It has measured up to the present, and goes on from there.
    agent.time_usec += 530_000_000;
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    let bounds =
        json!({ "cpu": { "min": "100m", "max": "100m" }, "memory": { "min": "75Mi", "max": "75Mi" } });
    policy_of(&running, json!({ "canarySeconds": 600 }), bounds).await;
    at_stage(&api, "w0-x", "Done").await;
    let memory = |name: &str| {
        api.object(PODS, "shop", name).unwrap()["spec"]["containers"][0]["resources"]["requests"]["memory"]
            .clone()
    };
    assert_eq!((memory("w0-x"), memory("w0-y")), (json!("75Mi"), json!("100Mi")));
    // Two minutes, so that a whole one came after the change.
    for kills in 1..=13 {
        agent.oom_kills = kills;
        link.send(agent.measure(10)).await;
    }
    at_stage(&api, "w0-x", "Worse").await;
    until(|| async { (memory("w0-x") == "100Mi").then_some(()) }).await;
    let told = refused(&running, "CanaryWorse").await;
    assert!(told["why"].as_str().unwrap().contains("OOM kills"), "{told}");
    passes(&running, 5).await;
    assert_eq!((resizes(&api), memory("w0-y")), (2, json!("100Mi")));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_says_what_becomes_of_its_pods_and_a_config_map_stops_it() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x"]);
    let map = |says: &str| {
        let metadata = json!({ "name": "evenkeel-panic", "namespace": "evenkeel" });
        json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": { "panic": says } })
    };
    api.put(map("drill"));
    let (running, ..) = started(dir.path(), &api, |config| {
        config.kubernetes.recommend = true;
        config.kubernetes.panic_map = "evenkeel/evenkeel-panic".into();
    })
    .await;
    let bounds =
        json!({ "cpu": { "min": "300m", "max": "300m" }, "memory": { "min": "100Mi", "max": "100Mi" } });
    api.put(json!({
        "kind": "VerticalPodAutoscaler", "apiVersion": "evenkeel.dev/v1",
        "metadata": { "name": "web", "namespace": "shop", "generation": 1 },
        "spec": {
            "targetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "w0" },
            "updatePolicy": { "mode": "auto", "minAgeSeconds": 0, "canarySeconds": 0 },
            "resourcesPolicy": { "containers": [{ "name": "*", "requests": bounds }] },
        },
    }));
    refused(&running, "Frozen").await;
    passes(&running, 3).await;
    assert_eq!(resizes(&api), 0);
    let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let off = v1::SetPanicRequest { on: false, ..v1::SetPanicRequest::default() };
    let told = client.set_panic(off).await.unwrap_err();
    assert!(
        told.message().contains("ConfigMap") && told.message().contains("evenkeel/evenkeel-panic: drill"),
        "{told}"
    );
    api.put(map("false"));
    at_stage(&api, "w0-x", "Done").await;
    let own = "/apis/evenkeel.dev/v1/verticalpodautoscalers";
    let condition = || {
        let object = api.object(own, "shop", "web")?;
        let all = object["status"]["conditions"].as_array()?.clone();
        let found = all.into_iter().find(|condition| condition["type"] == "Updated")?;
        Some((found["status"].as_str()?.to_owned(), found["reason"].as_str()?.to_owned()))
    };
    until(|| async { (condition()? == ("True".to_owned(), "UpToDate".to_owned())).then_some(()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_panic_switch_freezes_at_once_and_a_revert_gives_back() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x", "w0-y"]);
    let (running, ..) = started(dir.path(), &api, |_| {}).await;
    panic(&running, true, false).await;
    policy(&running, json!({})).await;
    refused(&running, "Frozen").await;
    passes(&running, 3).await;
    assert_eq!((resizes(&api), stage(&api, "w0-x")), (0, None));
    panic(&running, false, false).await;
    at_stage(&api, "w0-x", "Done").await;
    at_stage(&api, "w0-y", "Done").await;
    panic(&running, true, true).await;
    for name in ["w0-x", "w0-y"] {
        at_stage(&api, name, "Reverted").await;
        until(|| async { (cpu(&api, name) == "100m").then_some(()) }).await;
    }
    passes(&running, 3).await;
    assert_eq!(resizes(&api), 4);
    // A namespace has a switch of its own.
    panic(&running, true, false).await;
    let annotations = json!({ "evenkeel.dev/panic": "true" });
    api.put(json!({ "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "shop", "annotations": annotations } }));
    panic(&running, false, false).await;
    until(|| async {
        let why = refused(&running, "Frozen").await["why"].to_string();
        why.contains("namespace shop").then_some(())
    })
    .await;
    assert_eq!(resizes(&api), 4);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_tells_and_changes_nothing_and_others_are_left_their_pods() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x"]);
    let (running, ..) =
        started(dir.path(), &api, |config| config.kubernetes.updater.mode = UpdaterMode::DryRun).await;
    policy(&running, json!({})).await;
    until(|| async {
        let told = updates(&running).await;
        let steps = told["steps"].as_array().unwrap();
        steps.iter().any(|step| step["outcome"] == "dry-run" && step["deed"] == "resize").then_some(())
    })
    .await;
    assert_eq!(updates(&running).await["mode"], "dry-run");
    // An updater beside this one, and an autoscaler that rests on the requests.
    let target = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "w0" });
    api.put(json!({
        "kind": "VerticalPodAutoscaler", "apiVersion": "autoscaling.k8s.io/v1", "metadata": { "name": "w0", "namespace": "shop" },
        "spec": { "targetRef": target },
    }));
    refused(&running, "OtherUpdater").await;
    api.delete("/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", "shop", "w0");
    api.put(json!({
        "kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2", "metadata": { "name": "w0", "namespace": "shop" },
        "spec": { "scaleTargetRef": target, "metrics": [{ "type": "Resource", "resource": { "name": "cpu" } }] },
    }));
    refused(&running, "ScaledByHpa").await;
    // More than its node has.
    api.delete("/apis/autoscaling/v2/horizontalpodautoscalers", "shop", "w0");
    let allocatable = json!({ "cpu": "200m", "memory": "8Gi", "pods": "110" });
    api.put(json!({
        "kind": "Node", "apiVersion": "v1", "metadata": { "name": "node-1" },
        "status": { "allocatable": allocatable, "capacity": allocatable },
    }));
    let told = refused(&running, "NoRoom").await;
    assert!(told["why"].as_str().unwrap().contains("node-1"), "{told}");
    assert_eq!((resizes(&api), cpu(&api, "w0-x"), stage(&api, "w0-x")), (0, json!("100m"), None));
    running.stop().await;
}
