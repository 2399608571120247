//! Policies over the real interfaces: applied, kept, read from files, in conflict, and what they make of answers.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says by panicking what is wrong")]

use crate::common;

use common::{Agent, Running, http, pod, until};
use evenkeel_proto::v1;
use evenkeel_proto::v1::policy_service_client::PolicyServiceClient;
use evenkeel_proto::v1::recommender_service_client::RecommenderServiceClient;
use evenkeel_proto::v1::watch_recommendations_response::Event;
use evenkeel_recommender::config::{Config, LimitRangeSection, Span};
use serde_json::{Value, json};

fn policy(name: &str, app: &str, more: &str) -> String {
    format!(
        r#"{{"apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": {{"name": "{name}", "namespace": "shop"}},
            "spec": {{"target": {{"matchLabels": {{"app": "{app}"}}}}{more}}}}}"#
    )
}

fn labelled(image: &str, app: &str, more: &str) -> String {
    format!(
        r#"{{"metadata": {{"name": "p", "namespace": "shop", "labels": {{"app": "{app}"}}}},
            "spec": {{"containers": [{{"name": "main", "image": "{image}"{more}}}]}}}}"#
    )
}

fn quick(config: &mut Config) {
    config.recommend.watch_interval = Span::from_millis(50);
    config.policies = Vec::new();
    config.panic_file = std::path::PathBuf::new();
}

/// A recommender that has seen two containers for 70 seconds: a quarter of a core and 64 MiB each.
async fn started(dir: &std::path::Path, adjust: impl FnOnce(&mut Config)) -> (Running, common::Link) {
    let running = Running::start(dir, |config| {
        quick(config);
        adjust(config);
    })
    .await;
    let mut agent = Agent::new(1, &["web:1", "db:1"]);
    agent.requested = Some(v1::ResourceValues {
        cpu_request_milli: Some(1000),
        cpu_limit_milli: Some(2000),
        memory_request_bytes: Some(1 << 30),
        memory_limit_bytes: Some(1 << 30),
    });
    let mut link = agent.connect(running.grpc).await;
    link.send(agent.measure(70)).await;
    link.acknowledged(70).await;
    (running, link)
}

async fn answer(running: &Running, body: &str) -> Value {
    let (status, text) = http(running.http, "POST", "/recommendedPodResources", body).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_bounds_answers_and_outlives_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let (running, _link) = started(dir.path(), |_| {}).await;
    let mut client = PolicyServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let bounds =
        r#", "resourcesPolicy": {"containers": [{"name": "main", "requests": {"cpu": {"min": "400m"}}}]}"#;
    let object = policy("web", "w0", bounds);
    let ask = |dry_run| v1::ApplyRequest { policy: object.clone(), dry_run };
    let dry = client.apply(ask(true)).await.unwrap().into_inner();
    assert_eq!(dry.outcome, "created");
    let previewed: Vec<_> =
        dry.preview.iter().map(|r| (r.workload.as_str(), r.resource.as_str(), r.request, r.raw)).collect();
    let memory = dry.preview[1].request;
    assert_eq!(previewed[0], ("deployment/w0", "cpu", Some(400), dry.preview[0].raw));
    assert_eq!(
        (previewed.len(), dry.preview[0].capped_by.as_slice()),
        (2, ["policy min".to_owned()].as_slice())
    );
    assert!(dry.preview[0].raw < Some(400) && memory.is_some(), "{previewed:?}");
    for change in &dry.preview {
        let (before, after) = (change.qos_class_before(), change.qos_class_after());
        assert_eq!((before, after), (v1::QosClass::Burstable, v1::QosClass::Burstable), "{change:?}");
    }
    let none = client.list(v1::ListRequest::default()).await.unwrap().into_inner();
    assert!(none.policies.is_empty(), "a dry run stores nothing");

    assert_eq!(client.apply(ask(false)).await.unwrap().into_inner().outcome, "created");
    assert_eq!(client.apply(ask(false)).await.unwrap().into_inner().outcome, "unchanged");
    let got = answer(&running, &labelled("web:1", "w0", "")).await;
    assert_eq!(got["containers"][0]["resources"]["requests"]["cpu"], "400m");
    assert_eq!(got["evenkeel"]["policy"], "shop/web");
    assert_eq!(answer(&running, &pod("web:1", "")).await["evenkeel"]["policy"], json!(null));
    running.stop().await;

    let running = Running::start(dir.path(), quick).await;
    let got = answer(&running, &labelled("web:1", "w0", "")).await;
    assert_eq!(got["containers"][0]["evenkeel"]["cpu"]["cappedBy"], json!(["policy min"]));
    let path = "/api/v1/policies/shop/web";
    assert_eq!(http(running.http, "DELETE", path, "").await.0, 204);
    assert_eq!(http(running.http, "DELETE", path, "").await.0, 404);
    assert_eq!(answer(&running, &labelled("web:1", "w0", "")).await["evenkeel"]["policy"], json!(null));
    running.stop().await;
    let running = Running::start(dir.path(), quick).await;
    assert_eq!(http(running.http, "GET", path, "").await.0, 404);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_policies_the_older_governs_and_both_say_so() {
    let dir = tempfile::tempdir().unwrap();
    let (running, _link) = started(dir.path(), |_| {}).await;
    for (name, more) in [("b", r#", "updatePolicy": {"mode": "off"}"#), ("a", "")] {
        let (status, text) = http(running.http, "POST", "/api/v1/policies", &policy(name, "w1", more)).await;
        assert_eq!(status, 201, "{text}");
        // Age is in milliseconds.
        let now = std::time::Instant::now();
        until(|| async { (now.elapsed().as_millis() > 1).then_some(()) }).await;
    }
    let (status, text) = http(running.http, "POST", "/api/v1/policies", &policy("c", "nobody", "")).await;
    assert_eq!(status, 201, "{text}");
    let got = answer(&running, &labelled("db:1", "w1", "")).await;
    assert_eq!(
        (&got["evenkeel"]["policy"], &got["evenkeel"]["conflicts"]),
        (&json!("shop/b"), &json!(["shop/a"]))
    );
    assert_eq!(got["containers"][0]["resources"]["requests"], json!({}), "mode off sets nothing");
    assert!(got["containers"][0]["evenkeel"]["cpu"]["request"].is_u64(), "and recommends all the same");

    let condition = |policy: &Value, kind: &str| {
        let all = policy["status"]["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|c| c["type"] == kind).map(|c| c["reason"].clone())
    };
    let [a, b, c] = until(|| async {
        let mut found = Vec::new();
        for name in ["a", "b", "c"] {
            let path = format!("/api/v1/policies/shop/{name}");
            found.push(serde_json::from_str::<Value>(&http(running.http, "GET", &path, "").await.1).unwrap());
        }
        let done = found.iter().all(|p| condition(p, "Selects").is_some());
        <[Value; 3]>::try_from(found).ok().filter(|_| done)
    })
    .await;
    assert_eq!(b["status"]["conflicts"], json!([{"policy": "shop/a", "containers": 1, "governs": true}]));
    assert_eq!(a["status"]["conflicts"], json!([{"policy": "shop/b", "containers": 1, "governs": false}]));
    assert_eq!(
        (condition(&a, "Selects"), condition(&b, "Selects")),
        (Some(json!("Overruled")), Some(json!("Governs")))
    );
    assert_eq!(condition(&c, "Selects"), Some(json!("SelectsNothing")));
    let provided = [&a, &b, &c].map(|policy| condition(policy, "RecommendationProvided"));
    assert_eq!(provided, ["GovernsNothing", "Known", "GovernsNothing"].map(|reason| Some(json!(reason))));
    let metrics = http(running.http, "GET", "/metrics", "").await.1;
    for (name, count) in [("policies", 3), ("policies_selecting_nothing", 1), ("policies_in_conflict", 2)] {
        assert!(metrics.contains(&format!("evenkeel_recommender_{name} {count}\n")), "{name}: {metrics}");
    }
    let requests = &b["status"]["recommendation"]["containers"][0]["resources"]["requests"];
    assert!(requests["cpu"].is_string() && requests["memory"].is_string(), "{b}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limits_follow_their_mode_and_a_changed_class_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let (running, _link) = started(dir.path(), |_| {}).await;
    for limits in ["none", "keep", "ratio"] {
        let more = format!(r#", "resourcesPolicy": {{"limits": "{limits}"}}"#);
        let object = policy(limits, limits, &more);
        assert_eq!(http(running.http, "POST", "/api/v1/policies", &object).await.0, 201);
    }
    let set = policy("unset", "unset", r#", "initialResourcesPolicy": "if-not-set""#);
    assert_eq!(http(running.http, "POST", "/api/v1/policies", &set).await.0, 201);
    let guaranteed = r#", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}}"#;
    let table = [
        ("none", json!({}), "Burstable"),
        ("keep", json!({"cpu": "1", "memory": "1Gi"}), "Burstable"),
        ("ratio", Value::Null, "Guaranteed"),
        ("unset", json!({"cpu": "1", "memory": "1Gi"}), "Guaranteed"),
    ];
    for (app, limits, class) in table {
        let got = answer(&running, &labelled("web:1", app, guaranteed)).await;
        let resources = &got["containers"][0]["resources"];
        // With their ratio kept, equal limits stay equal to the requests.
        let limits = if limits.is_null() { resources["requests"].clone() } else { limits };
        assert_eq!(resources["limits"], limits, "{app}: {got}");
        let after = got["evenkeel"]["qosClass"]["after"].as_str().unwrap();
        let changes = after != "Guaranteed";
        assert_eq!((after, &got["evenkeel"]["changesClass"]), (class, &json!(changes)), "{app}");
        assert_eq!(got["evenkeel"]["inPlace"], json!(!changes), "{app}");
        assert_eq!(resources["requests"]["cpu"] == "1", app == "unset", "{app}: {got}");
    }
    let capped = r#", "resources": {"limits": {"cpu": "10m"}}"#;
    let got = answer(&running, &labelled("web:1", "keep", capped)).await;
    assert_eq!(got["containers"][0]["evenkeel"]["cpu"]["cappedBy"], json!(["limit"]));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_and_limit_ranges_cap_and_well_known_images_are_predefined() {
    let dir = tempfile::tempdir().unwrap();
    let (running, _link) = started(dir.path(), |config| {
        config.recommend.limit_ranges = vec![LimitRangeSection {
            namespace: "shop".into(),
            cpu_min: None,
            cpu_max: "50m".parse().ok(),
            memory_min: "1Gi".parse().ok(),
            memory_max: None,
        }];
    })
    .await;
    let got = answer(&running, &pod("web:1", "")).await;
    let evenkeel = &got["containers"][0]["evenkeel"];
    assert_eq!(evenkeel["cpu"]["cappedBy"], json!(["LimitRange max"]));
    assert_eq!((&evenkeel["cpu"]["request"], &evenkeel["memory"]["request"]), (&json!(50), &json!(1 << 30)));
    assert!(evenkeel["cpu"]["raw"].as_u64().unwrap() > 50);
    let ratio = policy("ratio", "ratio", r#", "resourcesPolicy": {"limits": "ratio"}"#);
    assert_eq!(http(running.http, "POST", "/api/v1/policies", &ratio).await.0, 201);
    let double = r#", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}"#;
    let got = answer(&running, &labelled("web:1", "ratio", double)).await;
    // The limit, twice the request, is what reaches the greatest value.
    let cpu = |what: &str| got["containers"][0]["resources"][what]["cpu"].clone();
    assert_eq!((cpu("requests"), cpu("limits")), (json!("25m"), json!("50m")));
    assert_eq!(got["containers"][0]["evenkeel"]["cpu"]["cappedBy"], json!(["LimitRange max"]));
    let huge = policy(
        "huge",
        "huge",
        r#", "resourcesPolicy": {"containers": [{"name": "*", "requests": {"memory": {"min": "1Ti"}}}]}"#,
    );
    assert_eq!(http(running.http, "POST", "/api/v1/policies", &huge).await.0, 201);
    let got = answer(&running, &labelled("web:1", "huge", "")).await;
    assert_eq!(got["containers"][0]["evenkeel"]["memory"]["cappedBy"], json!(["policy min", "largest node"]));
    assert_eq!(got["containers"][0]["evenkeel"]["memory"]["request"], json!(8_u64 << 30));

    let known = answer(&running, &pod("docker.io/library/redis:7", "")).await;
    assert_eq!(known["containers"][0]["evenkeel"]["memory"]["tier"], "predefined");
    assert_eq!(known["containers"][0]["evenkeel"]["memory"]["samples"], 0);
    let unknown = answer(&running, &pod("nobody/knows:1", "")).await;
    assert_eq!(unknown["containers"][0]["evenkeel"]["memory"]["tier"], "none");
    assert_eq!(unknown["containers"][0]["resources"]["requests"], json!({}));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_read_when_they_change_and_belong_to_whoever_edits_them() {
    let dir = tempfile::tempdir().unwrap();
    let files = dir.path().join("etc");
    std::fs::create_dir(&files).unwrap();
    let place = files.clone();
    let (running, _link) = started(&dir.path().join("state"), |config| config.policies = vec![place]).await;
    std::fs::write(files.join("shop.yaml"), policy("web", "w0", "")).unwrap();
    let source = until(|| async {
        let (status, text) = http(running.http, "GET", "/api/v1/policies/shop/web", "").await;
        let found: Value = (status == 200).then(|| serde_json::from_str(&text).ok()).flatten()?;
        found["status"]["source"].as_str().map(str::to_owned)
    })
    .await;
    assert!(source.ends_with("shop.yaml"), "{source}");
    let (status, text) = http(running.http, "POST", "/api/v1/policies", &policy("web", "w1", "")).await;
    assert!(status == 409 && text.contains("shop.yaml"), "{status} {text}");
    assert_eq!(http(running.http, "DELETE", "/api/v1/policies/shop/web", "").await.0, 409);
    // A broken file is counted, and what it said before stays.
    std::fs::write(files.join("shop.yaml"), "kind: Policy").unwrap();
    let troubles = "evenkeel_recommender_policy_file_troubles 1\n";
    until(|| async { http(running.http, "GET", "/metrics", "").await.1.contains(troubles).then_some(()) })
        .await;
    let ready = http(running.http, "GET", "/readyz", "").await;
    assert!(
        ready.0 == 200 && ready.1.contains("[-]policies: ") && ready.1.contains("shop.yaml: "),
        "{ready:?}"
    );
    assert_eq!(http(running.http, "GET", "/api/v1/policies/shop/web", "").await.0, 200);
    std::fs::remove_file(files.join("shop.yaml")).unwrap();
    until(|| async {
        (http(running.http, "GET", "/api/v1/policies/shop/web", "").await.0 == 404).then_some(())
    })
    .await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_objects_are_refused_with_the_field() {
    let dir = tempfile::tempdir().unwrap();
    let running = Running::start(dir.path(), |config| {
        quick(config);
        config.recommend.max_policies = 1;
    })
    .await;
    let table = [
        (policy("a", "x", r#", "rule": "magic""#), 400, "spec.rule"),
        (policy("a", "x", r#", "rule": "initial", "parameters": {"percentile": 1}"#), 400, "percentile"),
        (policy("a", "x", r#", "limit": "keep""#), 400, "spec.limit"),
        (
            policy("a", "x", r#", "resourcesPolicy": {"containers": [{"name": "m", "requests": {"cpu": {"min": 2, "max": 1}}}]}"#),
            400,
            "above max",
        ),
        (policy("a", "x", r#", "updatePolicy": {"mode": "off"}, "initialResourcesPolicy": "always""#), 400, "is off"),
        (
            r#"{"apiVersion": "evenkeel.dev/v1", "kind": "Policy", "metadata": {"name": "a"}, "spec": {"target":
                {"matchLabels": {"app": "x"}, "matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}}}"#
                .to_owned(),
            400,
            "selects nothing",
        ),
        ("kind: Policy".to_owned(), 400, "apiVersion"),
        (String::new(), 400, "no policy"),
        (policy("a", "x", ""), 201, "created"),
        (policy("b", "x", ""), 409, "max_policies"),
    ];
    for (object, status, want) in table {
        let (got, text) = http(running.http, "POST", "/api/v1/policies", &object).await;
        assert!(got == status && text.contains(want), "{object}: {got} {text}");
    }
    let metrics = http(running.http, "GET", "/metrics", "").await.1;
    assert!(metrics.contains("evenkeel_recommender_policies_refused_total 8\n"), "{metrics}");
    let (status, text) =
        http(running.http, "PUT", "/api/v1/policies/shop/other", &policy("a", "x", "")).await;
    assert!(status == 400 && text.contains("shop/other"), "{status} {text}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_switch_stops_changes_and_its_file_holds_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("panic");
    let place = file.clone();
    let (running, _link) = started(&dir.path().join("state"), |config| config.panic_file = place).await;
    let changed = || async {
        let got = answer(&running, &pod("web:1", "")).await;
        (got["evenkeel"]["panic"] == json!(true), got["containers"][0]["resources"]["requests"] != json!({}))
    };
    assert_eq!(changed().await, (false, true));
    std::fs::write(&file, "").unwrap();
    until(|| async { (changed().await == (true, false)).then_some(()) }).await;
    let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let off = v1::SetPanicRequest { on: false, ..Default::default() };
    let refused = client.set_panic(off).await.unwrap_err();
    assert!(refused.message().contains("panic"), "{refused:?}");
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    std::fs::remove_file(&file).unwrap();
    until(|| async { (changed().await == (false, true)).then_some(()) }).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_cannot_be_written_keeps_nobody_from_stopping_changes() {
    for by_call in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (state, file) = (dir.path().join("state"), dir.path().join("panic"));
        let place = file.clone();
        let (running, mut link) = started(&state, |config| {
            config.panic_file = place;
            config.serve.request_timeout = Span::from_secs(1);
        })
        .await;
        let is_frozen =
            || async { answer(&running, &pod("web:1", "")).await["evenkeel"]["panic"] == json!(true) };
        assert!(!is_frozen().await);
        std::fs::remove_dir_all(&state).unwrap();
        // The thread that writes waits for the log from here on.
        link.send(vec![v1::Frame { sequence: 71, ..v1::Frame::default() }]).await;
        until(|| async { (http(running.http, "GET", "/readyz", "").await.0 == 503).then_some(()) }).await;
        if by_call {
            let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
            let mut set = async |on| client.set_panic(v1::SetPanicRequest { on, ..Default::default() }).await;
            let late = set(true).await.unwrap_err();
            assert!(late.message().contains("the switch is on, but not durable"), "{late}");
            assert!(is_frozen().await);
            let late = set(false).await.unwrap_err();
            assert!(late.message().contains("the switch is on until the log can be written"), "{late}");
        } else {
            std::fs::write(&file, "").unwrap();
            until(|| async { is_frozen().await.then_some(()) }).await;
            std::fs::remove_file(&file).unwrap();
            tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        }
        assert!(is_frozen().await);
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flag_holds_the_switch_and_a_call_sets_it_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let (running, link) = started(dir.path(), |config| config.panic = true).await;
    drop(link);
    // The switch on, something changed.
    async fn seen(running: &Running) -> (bool, bool) {
        let got = answer(running, &pod("web:1", "")).await;
        (got["evenkeel"]["panic"] == json!(true), got["containers"][0]["resources"]["requests"] != json!({}))
    }
    async fn set(running: &Running, on: bool) -> Result<(), tonic::Status> {
        let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
        client.set_panic(v1::SetPanicRequest { on, reason: "drill".into(), revert: false }).await.map(|_| ())
    }
    assert_eq!(seen(&running).await, (true, false), "before anything is answered");
    let got = answer(&running, &pod("web:1", "")).await;
    assert!(got["containers"][0]["evenkeel"]["cpu"]["request"].is_u64(), "shown all the same: {got}");
    assert_eq!(set(&running, false).await.unwrap_err().code(), tonic::Code::FailedPrecondition);
    running.stop().await;

    // Without the flag what the flag set is over.
    let running = Running::start(dir.path(), quick).await;
    assert_eq!(seen(&running).await, (false, true));
    set(&running, true).await.unwrap();
    assert_eq!(seen(&running).await, (true, false));
    running.stop().await;
    let running = Running::start(dir.path(), quick).await;
    assert_eq!(seen(&running).await, (true, false), "set by a call, it outlives the process");
    set(&running, false).await.unwrap();
    assert_eq!(seen(&running).await, (false, true));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_set_at_first_follows_initial_resources_policy_and_mode() {
    let dir = tempfile::tempdir().unwrap();
    let (running, _link) = started(dir.path(), |_| {}).await;
    let all = [
        ("always", "auto", "always"),
        ("unset", "auto", "if-not-set"),
        ("never", "auto", "never"),
        ("first", "initial", "always"),
        ("first-unset", "initial", "if-not-set"),
    ];
    for (app, mode, initial) in all {
        let more =
            format!(r#", "updatePolicy": {{"mode": "{mode}"}}, "initialResourcesPolicy": "{initial}""#);
        assert_eq!(http(running.http, "POST", "/api/v1/policies", &policy(app, app, &more)).await.0, 201);
    }
    // What a pod asks for, whether it is on a node, and of which resources the request is set.
    let nothing = "";
    let cpu = r#", "resources": {"requests": {"cpu": "3"}}"#;
    let limit = r#", "resources": {"limits": {"memory": "4Gi"}}"#;
    let table = [
        ("always", nothing, false, (true, true)),
        ("always", cpu, false, (true, true)),
        ("always", limit, false, (true, true)),
        ("unset", nothing, false, (true, true)),
        ("unset", cpu, false, (false, true)),
        ("unset", limit, false, (true, false)),
        ("never", nothing, false, (false, false)),
        ("never", cpu, false, (false, false)),
        ("first", cpu, false, (true, true)),
        ("first-unset", cpu, false, (false, true)),
        // Running: only mode auto goes on, whatever was set at first.
        ("always", cpu, true, (true, true)),
        ("never", cpu, true, (true, true)),
        ("first", cpu, true, (false, false)),
    ];
    for (app, asked, running_now, want) in table {
        let mut object: Value = serde_json::from_str(&labelled("web:1", app, asked)).unwrap();
        if running_now {
            object["spec"]["nodeName"] = json!("node-1");
        }
        let before = object["spec"]["containers"][0]["resources"]["requests"].clone();
        let got = answer(&running, &object.to_string()).await;
        let requests = &got["containers"][0]["resources"]["requests"];
        let set = |name: &str| requests[name] != before[name] && !requests[name].is_null();
        assert_eq!((set("cpu"), set("memory")), want, "{app} {asked} {running_now}: {got}");
        assert_eq!(got["evenkeel"]["policy"], format!("shop/{app}"));
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_gives_everything_a_bookmark_and_then_changes() {
    let dir = tempfile::tempdir().unwrap();
    let (running, _link) = started(dir.path(), |_| {}).await;
    let passes = || async {
        let text = http(running.http, "GET", "/metrics", "").await.1;
        let line = text.lines().find_map(|l| l.strip_prefix("evenkeel_recommender_passes_total "));
        line.and_then(|number| number.parse::<u64>().ok()).unwrap()
    };
    // The pass that runs now may have begun before the samples were there.
    let before = passes().await;
    until(|| async { (passes().await >= before + 2).then_some(()) }).await;
    let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let request = v1::WatchRecommendationsRequest {};
    let mut watched = client.watch_recommendations(request).await.unwrap().into_inner();
    let mut before = 0;
    loop {
        match watched.message().await.unwrap().unwrap().event.unwrap() {
            Event::Recommendation(_) => before += 1,
            Event::Bookmark(_) => break,
            Event::Removed(r) => panic!("{r:?}"),
        }
    }
    assert_eq!(before, 4);
    let bounds = r#", "resourcesPolicy": {"containers": [{"name": "*", "requests": {"cpu": {"min": "3"}}}]}"#;
    assert_eq!(http(running.http, "POST", "/api/v1/policies", &policy("web", "w0", bounds)).await.0, 201);
    let told = loop {
        match watched.message().await.unwrap().unwrap().event.unwrap() {
            Event::Recommendation(r) if r.policy == "shop/web" && r.resource == "cpu" => break r,
            Event::Recommendation(_) => {}
            other => panic!("{other:?}"),
        }
    };
    // The container's limit of two cores stays, and is the last word.
    assert_eq!((told.request, told.workload.as_str()), (Some(2000), "deployment/w0"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rule_answers_side_by_side() {
    let dir = tempfile::tempdir().unwrap();
    let (running, _link) = started(dir.path(), |_| {}).await;
    let mut client = RecommenderServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let rules = evenkeel_recommender::recommend::rules::NAMES;
    let request = v1::ListRecommendationsRequest {
        namespace: "shop".into(),
        rules: vec!["*".into()],
        selector: String::new(),
    };
    let all = client.list_recommendations(request).await.unwrap().into_inner().recommendations;
    assert_eq!(all.len(), 2 * 2 * rules.len());
    for rule in rules {
        assert!(all.iter().filter(|r| r.rule == rule).count() == 4, "{rule}");
    }
    let request = v1::RecommendPodRequest { pod: pod("web:1", ""), rules: vec!["magic".into()] };
    let refused = client.recommend_pod(request).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    running.stop().await;
}

/// Limit ranges and quotas go through the calls of policies: they are kept, listed, deleted, cap answers and bound capacity.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn limit_ranges_and_quotas_are_set_as_policies_are() {
    const POLICIES: &str = "/api/v1/policies";
    let dir = tempfile::tempdir().unwrap();
    let (running, _link) = started(dir.path(), |_| {}).await;
    let mut client = PolicyServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let range = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: bounds, namespace: shop}\n\
                 spec: {limits: [{type: Container, min: {cpu: 450m}, max: {memory: 2Gi}, maxLimitRequestRatio: {cpu: 4}}]}\n";
    let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few", "namespace": "shop"},
        "spec": {"hard": {"pods": "5"}}});
    let cpu = |got: &Value| got["containers"][0]["evenkeel"]["cpu"].clone();
    let before = cpu(&answer(&running, &pod("web:1", "")).await);
    assert!(before["request"].as_u64().unwrap() < 450, "{before}");

    let ask = |dry_run| v1::ApplyRequest { policy: range.to_owned(), dry_run };
    assert_eq!(client.apply(ask(true)).await.unwrap().into_inner().outcome, "created");
    assert_eq!(cpu(&answer(&running, &pod("web:1", "")).await), before, "a dry run stores nothing");
    assert_eq!(client.apply(ask(false)).await.unwrap().into_inner().outcome, "created");
    assert_eq!(client.apply(ask(false)).await.unwrap().into_inner().outcome, "unchanged");
    let capped = cpu(&answer(&running, &pod("web:1", "")).await);
    assert_eq!(
        (&capped["request"], &capped["cappedBy"]),
        (&json!(450), &json!(["LimitRange min"])),
        "{capped}"
    );
    let (status, text) = http(running.http, "POST", POLICIES, &quota.to_string()).await;
    assert_eq!(status, 201, "{text}");

    // Agents report two pods of that namespace.
    let resources =
        json!({"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "1", "memory": "64Mi"}});
    let question = json!({"pods": [{"metadata": {"name": "p", "namespace": "shop"}, "spec": {"containers": [
        {"name": "c", "resources": resources}]}}]});
    let count = async |running: &Running| {
        let (status, text) = http(running.http, "POST", "/api/v1/capacity", &question.to_string()).await;
        assert_eq!(status, 200, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        (answer["count"].as_u64().unwrap(), answer["binding"].as_str().unwrap().to_owned())
    };
    assert_eq!(count(&running).await, (3, "quota/few".to_owned()));
    running.stop().await;

    // Both outlive the process.
    let running = Running::start(dir.path(), quick).await;
    let mut client = PolicyServiceClient::connect(running.grpc.to_string()).await.unwrap();
    let listed = client.list(v1::ListRequest::default()).await.unwrap().into_inner();
    assert_eq!((listed.policies.len(), listed.objects.len()), (0, 2));
    let (_, text) = http(running.http, "GET", POLICIES, "").await;
    let listed: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(listed["objects"][1], quota, "{listed}");
    assert_eq!(cpu(&answer(&running, &pod("web:1", "")).await)["request"], 450);
    let get =
        |kind: &str| v1::GetRequest { namespace: "shop".into(), name: "bounds".into(), kind: kind.into() };
    assert!(client.get(get("LimitRange")).await.unwrap().into_inner().policy.contains("450m"));
    assert_eq!(
        client.get(get("")).await.unwrap_err().code(),
        tonic::Code::NotFound,
        "there is no policy of the name"
    );
    assert_eq!(client.get(get("Node")).await.unwrap_err().code(), tonic::Code::InvalidArgument);

    let path = format!("{POLICIES}/shop/few?kind=ResourceQuota");
    assert_eq!(http(running.http, "GET", &path, "").await.0, 200);
    assert_eq!(http(running.http, "DELETE", &format!("{POLICIES}/shop/few"), "").await.0, 404);
    assert_eq!(http(running.http, "DELETE", &format!("{POLICIES}/shop/few?kind=Node"), "").await.0, 400);
    assert_eq!(http(running.http, "DELETE", &path, "").await.0, 204);
    assert_eq!(http(running.http, "DELETE", &path, "").await.0, 404);
    let delete =
        v1::DeleteRequest { namespace: "shop".into(), name: "bounds".into(), kind: "LimitRange".into() };
    client.delete(delete).await.unwrap();
    assert_eq!(cpu(&answer(&running, &pod("web:1", "")).await)["cappedBy"], json!([]));

    for (object, why) in [
        (range.replace("450m", "9"), "spec.limits[0].min"),
        (range.replace("bounds", "B!"), "metadata.name"),
        (range.replace("v1", "v2"), "apiVersion"),
    ] {
        let bad = if why == "spec.limits[0].min" {
            object.replace("max: {memory: 2Gi}", "max: {cpu: 1}")
        } else {
            object
        };
        let (status, text) = http(running.http, "POST", POLICIES, &bad).await;
        assert!(status == 400 && text.contains(why), "{why}: {status} {text}");
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_range_of_a_file_is_changed_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("limits.yaml");
    let range = "kind: LimitRange\nmetadata: {name: bounds, namespace: shop}\nspec: {limits: [{type: Container, min: {cpu: 450m}}]}\n";
    std::fs::write(&file, range).unwrap();
    let (running, _link) = started(&dir.path().join("state"), |config| config.objects = vec![file]).await;
    let (status, text) = http(running.http, "POST", "/api/v1/policies", range).await;
    assert!(status == 409 && text.contains("LimitRange shop/bounds is kept in"), "{status} {text}");
    let path = "/api/v1/policies/shop/bounds?kind=LimitRange";
    assert_eq!(http(running.http, "DELETE", path, "").await.0, 409);
    running.stop().await;
}
