//! Suite `unit`: pods of a Kubernetes cluster that run are brought to what is recommended: in place, by eviction where that cannot be and the policy
//! lets it, or not at all, which is said. Against an API server that answers as recorded.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use common::apiserver::{ApiServer, Fate};
use common::pods::{
    PODS, adjusted, at_stage, cluster, cpu, panic, passes, pod, policy, policy_of, refused, resizes, stage,
    started, updates, webhook,
};
use common::{Agent, Link, Running, http, until};
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
async fn a_token_that_ends_in_the_middle_of_a_step_gives_no_pod_up() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x"]);
    let (running, ..) = started(dir.path(), &api, |_| {}).await;
    // The note is taken, the resize is not.
    api.refuses("/resize", 401);
    policy(&running, json!({})).await;
    at_stage(&api, "w0-x", "Done").await;
    assert_eq!((cpu(&api, "w0-x"), resizes(&api)), (json!("300m"), 2));
    let told = updates(&running).await;
    assert!(told["steps"].as_array().unwrap().iter().any(|step| step["outcome"] == "refused"), "{told}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_lost_is_told_as_unknown_and_nothing_is_done_twice() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x"]);
    let (running, ..) = started(dir.path(), &api, |_| {}).await;
    api.loses("/resize");
    policy(&running, json!({})).await;
    at_stage(&api, "w0-x", "Done").await;
    passes(&running, 3).await;
    assert_eq!((cpu(&api, "w0-x"), resizes(&api)), (json!("300m"), 1));
    let told = updates(&running).await;
    let step = told["steps"].as_array().unwrap().iter().find(|step| step["deed"] == "resize").unwrap();
    assert_eq!(step["outcome"], "unknown");
    let (_, audit) = http(running.http, "GET", "/api/v1/audit", "").await;
    let audit: Value = serde_json::from_str(&audit).unwrap();
    let entry =
        audit["entries"].as_array().unwrap().iter().find(|entry| entry["method"] == "updater").unwrap();
    assert_eq!(entry["outcome"], "unknown", "{entry}");
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

/// A kubelet that is older than resizes, or does not do them: its pods say nothing of resources that are in force.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_a_node_cannot_resize_a_pod_is_evicted_if_the_policy_lets_it() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &[]);
    webhook(&api);
    let mut old = pod("w0-x");
    old["status"]["containerStatuses"] = json!([{ "name": "main", "state": { "running": {} } }]);
    api.put(old);
    let (running, ..) = started(dir.path(), &api, |_| {}).await;
    policy(&running, json!({ "evict": "never" })).await;
    at_stage(&api, "w0-x", "GivenUp").await;
    let told = refused(&running, "BackOff").await;
    assert!(told["why"].as_str().unwrap().contains("node without support for resize"), "{told}");
    policy(&running, json!({ "evict": "always" })).await;
    until(|| async { (!api.asked_for("/eviction").is_empty()).then_some(()) }).await;
    passes(&running, 3).await;
    assert_eq!((resizes(&api), api.asked_for("/eviction").len()), (1, 1));
    running.stop().await;
}

/// A limit range that came later, and refuses each change of what it would not let be made.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_admission_refuses_of_one_pod_is_no_want_of_rights() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x"]);
    let most = json!({ "limits": [{ "type": "Container", "max": { "memory": "150Mi" } }] });
    api.put(json!({
        "kind": "LimitRange", "apiVersion": "v1", "metadata": { "name": "later", "namespace": "shop" }, "spec": most,
    }));
    let (running, ..) = started(dir.path(), &api, |_| {}).await;
    policy(&running, json!({})).await;
    at_stage(&api, "w0-x", "GivenUp").await;
    let told = refused(&running, "BackOff").await;
    let why = "maximum memory usage per Container is 150Mi, but limit is 200Mi";
    assert!(told["why"].as_str().unwrap().contains(why), "{told}");
    passes(&running, 3).await;
    assert_eq!((resizes(&api), cpu(&api, "w0-x")), (1, json!("100m")));
    let (_, verbose) = http(running.http, "GET", "/readyz?verbose", "").await;
    assert!(!verbose.contains("is forbidden"), "{verbose}");
    running.stop().await;
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

/// A ruling of an agent that a pod should go, now.
fn ruling(api: &ApiServer, seq: u64, name: &str, cause: &str) -> v1::Decision {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let uid = api.object(PODS, "shop", name).unwrap()["metadata"]["uid"].as_str().unwrap().to_owned();
    let inputs = [("cause", cause.to_owned()), ("pod_uid", uid), ("class", "Burstable".to_owned())];
    v1::Decision {
        time_usec: now.as_micros() as u64,
        seq,
        pod: Some(format!("shop/{name}")),
        container: Some("main".into()),
        kind: "evict".into(),
        result: "done".into(),
        reason: "a Burstable container was OOM-killed after 3 of 3 restarts in 10m: its pod should go; offered to the kubelet".into(),
        inputs: inputs.map(|(name, value)| (name.to_owned(), value)).into(),
        epoch: 7,
        ..v1::Decision::default()
    }
}

/// The agent's next second, with rulings.
async fn rules(agent: &mut Agent, link: &mut Link, decisions: Vec<v1::Decision>) {
    let mut frames = agent.measure(1);
    frames[0].decisions = decisions;
    link.send(frames).await;
}

/// What pods ask for is what is recommended.
fn as_it_is() -> Value {
    json!({ "cpu": { "min": "100m", "max": "100m" }, "memory": { "min": "100Mi", "max": "100Mi" } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agents_offer_is_carried_out_once_where_the_policy_and_the_budget_let_it() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x", "w0-y", "w0-z"]);
    let mut elsewhere = pod("w0-z");
    elsewhere["spec"]["nodeName"] = "node-2".into();
    api.put(elsewhere);
    let budget = |allowed: u64| {
        json!({
            "kind": "PodDisruptionBudget", "apiVersion": "policy/v1", "metadata": { "name": "web", "namespace": "shop" },
            "spec": { "selector": { "matchLabels": { "app": "w0" } } }, "status": { "disruptionsAllowed": allowed },
        })
    };
    api.put(budget(0));
    let (running, mut agent, mut link) = started(dir.path(), &api, |config| {
        config.kubernetes.events = true;
        config.kubernetes.updater.evictions = UpdaterMode::On;
    })
    .await;
    policy_of(&running, json!({ "evictOffers": "oom" }), as_it_is()).await;
    // Another pod of the name, one on a node that this agent is not on, and one for want of CPU, which the policy does not let go.
    let mut former = ruling(&api, 1, "w0-x", "oom-kill");
    former.inputs.insert("pod_uid".into(), "former".into());
    let others = vec![former, ruling(&api, 2, "w0-z", "oom-kill"), ruling(&api, 3, "w0-y", "starvation")];
    rules(&mut agent, &mut link, others).await;
    let told = refused(&running, "EvictNever").await;
    assert!(told["pod"] == "w0-y" && told["why"].as_str().unwrap().contains("evictOffers: oom"), "{told}");
    assert_eq!(told["inputs"]["offer_cause"], "starvation");
    let ruled = ruling(&api, 4, "w0-x", "oom-kill");
    rules(&mut agent, &mut link, vec![ruled.clone()]).await;
    assert_eq!(refused(&running, "DisruptionBudget").await["pod"], "w0-x");
    assert_eq!(api.asked_for("/eviction").len(), 0);
    api.put(budget(2));
    until(|| async { (!api.asked_for("/eviction").is_empty()).then_some(()) }).await;
    // Told again, and of a pod that ends already.
    rules(&mut agent, &mut link, vec![v1::Decision { seq: 5, ..ruled }]).await;
    passes(&running, 5).await;
    let asked = api.asked_for("/eviction");
    assert_eq!((asked.len(), resizes(&api)), (1, 0));
    let told = updates(&running).await;
    let step =
        told["steps"].as_array().unwrap().iter().find(|step| step["deed"] == "evict").cloned().unwrap();
    assert_eq!(
        (&step["pod"], &step["reason"], &step["outcome"]),
        (&json!("w0-x"), &json!("Offered"), &json!("done"))
    );
    assert_eq!(step["inputs"]["offer"], "node-1/7/4");
    let evicted = |event: &&Value| event["reason"] == "Evicted" && event["regarding"]["name"] == "w0-x";
    let events = api.everything();
    let event = events.values().find(evicted).unwrap();
    assert_eq!(event["type"], "Warning");
    let note = event["note"].as_str().unwrap();
    assert!(note.starts_with("Container main: a Burstable container was OOM-killed after 3 of 3"), "{note}");
    assert!(!note.contains("offered to") && note.ends_with("(policy shop/web)"), "{note}");
    let (_, audit) = http(running.http, "GET", "/api/v1/audit", "").await;
    assert!(audit.contains("Offered") && audit.contains("evictOffers: oom"), "{audit}");
    let (_, metrics) = http(running.http, "GET", "/metrics", "").await;
    assert!(
        metrics.contains("evenkeel_recommender_updater_offer_evictions_total{outcome=\"done\"} 1"),
        "{metrics}"
    );
    // Each choice, what was left alone included, can be made again.
    let (_, text) = http(running.http, "GET", "/api/v1/updates?cases=true", "").await;
    let all: Value = serde_json::from_str(&text).unwrap();
    let cases = all["cases"].as_array().unwrap();
    let mut outcomes = String::new();
    for case in cases {
        let case = evenkeel_updater::ReplayCase::read(&case.to_string()).unwrap();
        assert_eq!(case.again(), *case.outcome());
        outcomes = format!("{outcomes}{}\n", case.outcome());
    }
    for want in ["leave w0-y (EvictNever)", "leave w0-x (DisruptionBudget)", "evict w0-x (Offered)"] {
        assert!(outcomes.contains(want), "{outcomes}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn offers_are_not_looked_at_by_default_and_only_told_in_a_dry_run() {
    for mode in [UpdaterMode::Off, UpdaterMode::DryRun] {
        let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
        cluster(&api, &["w0-x", "w0-y"]);
        let (running, mut agent, mut link) =
            started(dir.path(), &api, |config| config.kubernetes.updater.evictions = mode).await;
        policy_of(&running, json!({ "evictOffers": "always" }), as_it_is()).await;
        rules(&mut agent, &mut link, vec![ruling(&api, 1, "w0-x", "pressure")]).await;
        if mode == UpdaterMode::DryRun {
            let step =
                until(|| async { updates(&running).await["steps"].as_array().unwrap().first().cloned() })
                    .await;
            assert_eq!((&step["reason"], &step["outcome"]), (&json!("Offered"), &json!("dry-run")));
            assert!(
                step["why"].as_str().unwrap().starts_with("The node was low on resource: memory. "),
                "{step}"
            );
        }
        passes(&running, 5).await;
        let told = updates(&running).await;
        let steps = told["steps"].as_array().unwrap().len();
        assert_eq!(steps, usize::from(mode == UpdaterMode::DryRun), "{told}");
        assert_eq!((&told["leftAlone"], api.asked_for("/eviction").len()), (&json!([]), 0));
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_kubelet_says_went_wrong_completes_what_agents_saw() {
    let (dir, api) = (tempfile::tempdir().unwrap(), ApiServer::start().await);
    cluster(&api, &["w0-x", "w0-y"]);
    // Killed while no agent looked, and evicted by the kubelet.
    let mut killed = pod("w0-x");
    let ended =
        json!({ "terminated": { "reason": "OOMKilled", "finishedAt": jiff::Timestamp::now().to_string() } });
    killed["status"]["containerStatuses"][0]["lastState"] = ended;
    api.put(killed);
    let mut evicted = pod("w0-z");
    evicted["status"] =
        json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory." });
    api.put(evicted);
    let (running, mut agent, mut link) = started(dir.path(), &api, |_| {}).await;
    let failures = || async { updates(&running).await["failures"].as_array().unwrap().clone() };
    let told = until(|| async { Some(failures().await).filter(|all| all.len() == 2) }).await;
    let brief = |of: &Value| {
        (of["pod"].clone(), of["reason"].clone(), of["container"].clone(), of["toldByAgent"].clone())
    };
    assert_eq!(brief(&told[0]), (json!("w0-x"), json!("OOMKilled"), json!("main"), json!(false)));
    assert_eq!(brief(&told[1]), (json!("w0-z"), json!("Evicted"), json!(""), json!(false)));
    assert_eq!(told[1]["message"], "The node was low on resource: memory.");
    // It counts where the policy asks for an OOM kill, and once where an agent tells of it, too.
    policy(&running, json!({ "evict": "oom" })).await;
    let step = until(|| async {
        let told = updates(&running).await;
        told["steps"].as_array().unwrap().iter().find(|step| step["deed"] == "resize").cloned()
    })
    .await;
    assert_eq!((&step["pod"], &step["reason"]), (&json!("w0-x"), &json!("OomKilled")));
    let kill = v1::Decision { kind: "oom-kill".into(), ..ruling(&api, 1, "w0-x", "") };
    rules(&mut agent, &mut link, vec![kill]).await;
    until(|| async { (failures().await[0]["toldByAgent"] == true).then_some(()) }).await;
    assert_eq!(failures().await.len(), 2);
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
    // On a full machine it was not read yet, and holds the switch all the same.
    let holder = loop {
        let told = client.set_panic(off.clone()).await.unwrap_err();
        if !told.message().contains("not read yet") {
            break told;
        }
        passes(&running, 1).await;
    };
    assert!(
        holder.message().contains("ConfigMap") && holder.message().contains("evenkeel/evenkeel-panic: drill"),
        "{holder}"
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
