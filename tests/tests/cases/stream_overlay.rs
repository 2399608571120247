//! A running container follows its recommendation where policy and agent say so, and goes back on panic and on silence.

use anyhow::{Context, Result};
use evenkeel_proto::v1::QosClass;
use evenkeel_tests::product::{Agent, Manifest, Pair};
use evenkeel_tests::{machine, require, wait};
use serde_json::json;

const POLICY: &str = "
apiVersion: evenkeel.dev/v1
kind: Policy
metadata: {name: all, namespace: default}
spec:
  target: {}
  updatePolicy: {mode: auto}
";

/// The pair with a policy for its pod, which sleeps and asks for 100m; everything in seconds.
fn pair() -> Result<Pair> {
    let Pair { site, recommender } = Pair::new()?;
    let policies = site.directory().join("policies");
    std::fs::create_dir_all(&policies).context("cannot make a directory for policies")?;
    std::fs::write(policies.join("all.yaml"), POLICY).context("cannot write a policy")?;
    let recommender = recommender
        .set("policies", &format!("[{policies:?}]"))
        .set("panic_file", &format!("{:?}", site.directory().join("panic")))
        .set("recommend.watch_interval", "\"1s\"")
        .set("acting.interval", "\"2s\"")
        .set("acting.min_span", "\"1s\"");
    let site = site.with(|agent| agent.set("overlay.accept", "true").set("overlay.pause", "\"1s\""));
    Ok(Pair { site, recommender })
}

/// Shares or weight of a pod as the agent last read them back; 0 while nothing was.
fn held(agent: &Agent, pod: &str) -> Result<u64> {
    let knobs = agent.ask().container(pod)?.map(|container| container.knobs).unwrap_or_default();
    let knob = knobs.into_iter().find(|knob| knob.name == "cpu.shares" || knob.name == "cpu.weight");
    let value = knob.filter(|knob| knob.actual == knob.wanted).and_then(|knob| knob.actual);
    value.map_or(Ok(0), |value| value.parse().with_context(|| format!("the knob holds {value}")))
}

/// Waits until the kernel has a value for the pod `web` that fits, and returns it.
fn await_value(agent: &Agent, what: &str, fits: impl Fn(u64) -> bool) -> Result<u64> {
    await_value_of(agent, "web", what, fits)
}

/// The same of another pod.
fn await_value_of(agent: &Agent, pod: &str, what: &str, fits: impl Fn(u64) -> bool) -> Result<u64> {
    let known = |value: &u64| *value > 0 && fits(*value);
    let found = wait::until(what, wait::PATIENCE, || Ok(Some(held(agent, pod)?).filter(known)));
    found.with_context(|| agent.log_end())
}

#[test]
fn a_container_follows_its_policy_step_by_step_and_goes_back_on_panic_and_on_silence() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let pair = pair()?;
    let agent = pair.site.start()?;
    let asked = await_value(&agent, "the pod's own request", |value| value > 2)?;
    let recommender = pair.recommender.start()?;
    // A sleeping container needs next to nothing; a step takes a fifth at most.
    let lower = await_value(&agent, "a first step", |value| value < asked)?;
    assert!(lower * 10 >= asked * 7, "{asked} to {lower} is more than a step");
    await_value(&agent, "several steps", |value| value * 2 < asked)?;
    let told = agent.ask().decisions()?;
    let steps: Vec<_> = told.iter().filter(|d| d.kind == "resize").collect();
    assert!(
        steps.iter().any(|d| d.knob.as_deref() == Some("cpu.request") && d.reason.contains("default/all")),
        "{steps:#?}"
    );
    assert!(steps.iter().any(|d| d.reason.contains("took effect on every process")), "{steps:#?}");

    let cli = pair.cli();
    cli.run(&["policy", "panic", "on", "--reason", "a drill"])?.success()?;
    await_value(&agent, "what was asked for, on panic", |value| value == asked)?;
    cli.run(&["policy", "panic", "off"])?.success()?;
    await_value(&agent, "steps again", |value| value * 2 < asked)?;
    recommender.stop()?;
    await_value(&agent, "what was asked for, on silence", |value| value == asked)?;
    agent.stop()
}

#[test]
fn a_cpu_request_that_was_never_asked_for_is_given_and_another_class_never() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut pair = pair()?;
    for (pod, resources) in
        [("memory-only", json!({ "requests": { "memory": "64Mi" } })), ("nothing", json!({}))]
    {
        let (cgroup, _) = pair.site.sleeper(pod)?;
        pair.site.bind(&Manifest::new(pod, &cgroup.path(), &resources))?;
    }
    let agent = pair.site.start()?;
    let least = await_value_of(&agent, "memory-only", "the least the kernel knows", |_| true)?;
    let recommender = pair.recommender.start()?;
    await_value_of(&agent, "memory-only", "a first request of CPU", |value| value > least)?;
    let status = agent.await_status("a refusal to be shown", |status| {
        status
            .overlay
            .as_ref()
            .is_some_and(|overlay| overlay.refused.iter().any(|r| r.pod == "default/nothing"))
    })?;
    let overlay = status.overlay.context("it was there")?;
    let refusal = overlay.refused.iter().find(|r| r.pod == "default/nothing").context("it was there")?;
    assert!(refusal.why.starts_with("refused: would change the class"), "{refusal:?}");
    let class = |pod: &str| -> Result<i32> {
        let identity = agent.ask().container(pod)?.and_then(|c| c.identity);
        Ok(identity.context("an identity")?.memory_class)
    };
    assert_eq!(class("nothing")?, i32::from(QosClass::BestEffort));
    assert_eq!(class("memory-only")?, i32::from(QosClass::Burstable));
    let table = agent.cli().run(&["status"])?.success()?;
    assert!(table.contains("would change the class"), "{table}");
    recommender.stop()?;
    await_value_of(&agent, "memory-only", "none again, on silence", |value| value == least)?;
    agent.stop()
}
