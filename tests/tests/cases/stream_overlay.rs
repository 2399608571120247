//! A running container follows its recommendation where policy and agent say so, stays where it is while the panic switch is
//! on, and goes back on revert and on silence.

use anyhow::{Context, Result};
use evenkeel_proto::v1::{Decision, QosClass};
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
fn a_container_follows_its_policy_step_by_step_and_goes_back_on_silence() -> Result<()> {
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

    recommender.stop()?;
    await_value(&agent, "what was asked for, on silence", |value| value == asked)?;
    agent.stop()
}

/// Waits until the agent says that the panic switch is set so.
fn await_switch(agent: &Agent, revert: bool) -> Result<()> {
    agent.await_status("the panic switch to arrive", |status| {
        let overlay = status.overlay.as_ref();
        status.panic && overlay.is_some_and(|overlay| overlay.panic_revert == revert)
    })?;
    Ok(())
}

#[test]
fn panic_freezes_over_restarts_and_silence_and_revert_gives_back_step_by_step() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut pair = pair()?;
    let agent = pair.site.start()?;
    let asked = await_value(&agent, "the pod's own request", |value| value > 2)?;
    let recommender = pair.recommender.start()?;
    await_value(&agent, "several steps", |value| value * 2 < asked)?;
    let cli = pair.cli();
    let said = cli.run(&["policy", "panic", "on", "--reason", "a drill"])?.success()?;
    assert!(said.contains("running containers keep the requests in force"), "{said}");
    await_switch(&agent, false)?;
    let frozen = await_value(&agent, "what is in force", |_| true)?;
    assert!(frozen < asked, "{frozen} of {asked}");
    let shown = agent.cli().run(&["status"])?.success()?;
    assert!(shown.contains("PANIC: ") && shown.contains("keep the requests in force"), "{shown}");
    assert!(shown.contains("a drill"), "{shown}");

    // Neither the recommender's silence nor a restart of either program changes anything.
    recommender.stop()?;
    agent.stop()?;
    let agent = pair.site.start()?;
    await_switch(&agent, false)?;
    assert_eq!(await_value(&agent, "the same after a restart", |_| true)?, frozen);
    let writes = |agent: &Agent| -> Result<usize> {
        let told = agent.ask().decisions()?;
        Ok(told.iter().filter(|d| d.kind == "resize").count())
    };
    let before = writes(&agent)?;
    // Enforcement goes on: a pod that comes now is given what it asks for.
    let (cgroup, _) = pair.site.sleeper("late")?;
    let resources = json!({ "requests": { "cpu": "200m", "memory": "64Mi" } });
    pair.site.bind(&Manifest::new("late", &cgroup.path(), &resources))?;
    await_value_of(&agent, "late", "shares of a pod that came during the panic", |value| value > asked)?;
    let recommender = pair.recommender.start()?;
    agent.await_status("a connection", |status| status.stream.as_ref().is_some_and(|s| s.connected))?;
    assert_eq!(await_value(&agent, "the same beside a recommender", |_| true)?, frozen);
    assert_eq!(writes(&agent)?, before, "nothing was changed");

    let said = cli.run(&["policy", "panic", "on", "--revert", "--reason", "a drill"])?.success()?;
    assert!(said.contains("get back the requests that were asked for, step by step"), "{said}");
    await_switch(&agent, true)?;
    await_value(&agent, "what was asked for", |value| value == asked)?;
    // It is told once it is done.
    let is_last = |d: &Decision| d.reason.starts_with("it has back") && d.reason.ends_with("a drill");
    let told = wait::until("the last step to be told", wait::PATIENCE, || {
        let told = agent.ask().decisions()?;
        Ok(told.iter().any(is_last).then_some(told))
    })?;
    let steps = told.iter().filter(|d| d.reason.starts_with("a step back towards")).count();
    assert!(steps >= 1, "more than twice as much is more than a step: {told:#?}");
    let off = cli.run(&["policy", "panic", "off"])?.success()?;
    assert!(off.contains("policies are carried out"), "{off}");
    await_value(&agent, "steps again", |value| value < asked)?;
    recommender.stop()?;
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
