//! What people and programs are answered once seconds arrive.

use anyhow::{Context, Result};
use evenkeel_tests::product::{Manifest, Pair, await_acknowledged, kept, parse_metrics, services};
use evenkeel_tests::{machine, require, wait};
use serde_json::{Value, json};

#[test]
fn every_command_answers_with_the_pod() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let pair = Pair::new()?;
    let recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    await_acknowledged(&agent, 2)?;
    kept(&recommender)?;
    let cli = pair.cli();
    for words in [&["usage"][..], &["recommend"], &["events"], &["top", "--once"], &["status"]] {
        let shown = cli.run(words)?.success().with_context(|| words.join(" "))?;
        assert!(shown.contains("web"), "{words:?}: {shown}");
        let json = cli.json(words)?;
        assert!(json.to_string().contains("web"), "{words:?}: {json:#}");
    }
    let nodes = cli.json(&["nodes"])?;
    assert_eq!((&nodes[0]["node"], &nodes[0]["cluster"]), (&"node-a".into(), &"test".into()));
    wait::until("decisions to arrive at the recommender", wait::PATIENCE, || {
        Ok(cli.json(&["events", "--all-nodes"])?.to_string().contains("default/web").then_some(()))
    })?;

    let usage = cli.json(&["usage"])?;
    let web = usage.as_array().and_then(|list| list.iter().find(|r| r["workload"] == "web"));
    let memory = &web.context("no record of the pod")?["usage"]["memory"];
    for key in ["mean", "max", "min", "count", "percentiles"] {
        assert!(!memory[key].is_null(), "no {key} in {memory:#}");
    }
    let recommended = cli.json(&["recommend"])?;
    let keys = [
        "namespace",
        "workload",
        "container",
        "resource",
        "current",
        "request",
        "lower",
        "upper",
        "raw",
        "cappedBy",
        "rule",
        "tier",
        "samples",
        "spanSeconds",
        "confidence",
        "risk",
        "ageSeconds",
    ];
    let list = recommended.as_array().context("recommend gives a list")?;
    assert_eq!(list.len(), 2, "cpu and memory of one container: {recommended:#}");
    for entry in list {
        assert!(keys.iter().all(|key| entry.get(*key).is_some()), "{entry:#}");
        assert_eq!(entry["rule"], "goal", "{entry:#}");
        assert_ne!(entry["tier"], "none", "{entry:#}");
        assert!(entry["request"].as_u64().is_some(), "{entry:#}");
    }
    agent.stop()?;
    recommender.stop()
}

/// Both count the same seconds, the one as it measures them, the other as they arrive.
#[test]
fn agent_and_recommender_tell_the_same_percentiles() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let pair = Pair::new()?;
    let recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    await_acknowledged(&agent, 10)?;
    let cli = pair.cli();
    let of = |words: &[&str]| -> Result<Value> {
        let list = cli.json(words)?;
        let found = list.as_array().and_then(|list| list.iter().find(|r| r["workload"] == "web")).cloned();
        Ok(found.unwrap_or_default())
    };
    let (told, kept) = wait::until("both to tell of the same seconds", wait::PATIENCE, || {
        let told = of(&["usage", "--local"])?;
        let kept = of(&["usage", "--window", "60s"])?;
        let same = |key: &str| !told[key].is_null() && told[key] == kept[key];
        Ok((same("windowStartSeconds") && same("windowSeconds")).then_some((told, kept)))
    })?;
    for resource in ["cpu", "memory"] {
        assert_eq!(told["usage"][resource], kept["usage"][resource], "{told:#} {kept:#}");
    }
    agent.stop()?;
    recommender.stop()
}

/// A pod of one container of an image.
fn pod(image: &str) -> Value {
    json!({ "metadata": { "name": "new" }, "spec": { "containers": [{ "name": "c", "image": image }] } })
}

#[test]
fn rest_answers_for_an_image_seen_and_admits_what_it_does_not_know() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let pair = Pair::new()?;
    let recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    kept(&recommender)?;
    for method in ["GET", "POST"] {
        let (status, seen) = wait::until("cpu and memory of the image", wait::PATIENCE, || {
            let (status, seen) =
                recommender.send(method, "/recommendedPodResources", &pod("localhost/workload:1"))?;
            let whole = ["cpu", "memory"]
                .iter()
                .all(|resource| !seen["containers"][0]["resources"]["requests"][resource].is_null());
            Ok((whole || status != 200).then_some((status, seen)))
        })?;
        assert_eq!(status, 200, "{seen:#}");
        assert_eq!(seen["containers"][0]["name"], "c");
        assert_ne!(seen["containers"][0]["evenkeel"]["memory"]["tier"], "none", "{seen:#}");
        let (status, unknown) =
            recommender.send(method, "/recommendedPodResources", &pod("localhost/never-seen:7"))?;
        assert_eq!(status, 200, "{unknown:#}");
        let container = &unknown["containers"][0];
        assert_eq!(container["evenkeel"]["memory"]["tier"], "none", "{unknown:#}");
        assert_eq!(container["resources"]["requests"], json!({}), "{unknown:#}");
    }
    let (status, refused) = recommender.send("POST", "/recommendedPodResources", &json!({ "spec": 1 }))?;
    assert!(status == 400 && refused["error"]["remedy"].is_string(), "{status} {refused:#}");
    agent.stop()?;
    recommender.stop()
}

#[test]
fn health_reflection_and_metrics_are_there() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let pair = Pair::new()?;
    let recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    await_acknowledged(&agent, 2)?;
    for path in ["/healthz", "/readyz", "/openapi.json", "/api/v1/nodes"] {
        assert_eq!(recommender.get(path)?.0, 200, "{path}");
    }
    let of_recommender = services(&pair.recommender.address())?;
    for service in ["IngestService", "RecommenderService", "CapacityService"] {
        assert!(of_recommender.contains(&format!("evenkeel.v1.{service}")), "{of_recommender:?}");
    }
    let of_agent = services(&format!("unix://{}", pair.site.agent.socket().display()))?;
    assert!(of_agent.contains(&"evenkeel.v1.AgentService".to_string()), "{of_agent:?}");

    let metrics = parse_metrics(&recommender.get("/metrics")?.1)?;
    assert!(metrics.sum("evenkeel_recommender_frames_total").is_some_and(|frames| frames >= 2.0));
    assert!(metrics.sum("evenkeel_recommender_samples_total").is_some());
    assert_eq!(metrics.sum("evenkeel_recommender_nodes"), Some(1.0));
    assert_eq!(metrics.kind("evenkeel_recommender_log_bytes"), Some("gauge"));
    let metrics = parse_metrics(&agent.metrics()?)?;
    let acknowledged = metrics.sum("evenkeel_agent_frames_acknowledged_total");
    assert!(acknowledged.is_some_and(|frames| frames >= 2.0), "{acknowledged:?}");
    agent.stop()?;
    recommender.stop()
}

/// More of a pod fit on what the agent reported of this machine.
#[test]
fn capacity_is_estimated_from_what_the_agents_report() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let pair = Pair::new()?;
    let recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    await_acknowledged(&agent, 2)?;
    let shape = Manifest::burstable("more", "/nowhere", "10m", "1Mi").json().to_string();
    let answer = recommender.ask().estimate(&shape)?;
    assert!(answer.count > 0, "{answer:?}");
    assert_eq!(answer.per_node.get("node-a"), Some(&answer.count));
    agent.stop()?;
    recommender.stop()
}
