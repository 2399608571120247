//! Kills and what is offered because of them arrive once, whatever is killed on the way.

use anyhow::{Context, Result, ensure};
use evenkeel_tests::product::{Cli, Pair, await_acknowledged, await_written};
use evenkeel_tests::{machine, require, wait};

/// Kinds and numbers of the events about the pod `web` that the recommender has.
fn arrived(cli: &Cli) -> Result<Vec<(String, u64)>> {
    let all =
        cli.json(&["events", "--all-nodes", "--pod", "web", "--kind", "oom-kill,kill,evict,restart"])?;
    let events = all.as_array().context("events are a list")?;
    let told = |e: &serde_json::Value| Some((e["kind"].as_str()?.to_owned(), e["seq"].as_u64()?));
    events.iter().map(|e| told(e).context("an event has a kind and a number")).collect()
}

#[test]
fn a_kill_and_its_ruling_arrive_once_whoever_is_killed_before_they_do() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut pair = Pair::hurried()?;
    let cgroup = pair.site.cgroup("web")?;
    let limit = if cgroup.is_v2() { "memory.max" } else { "memory.limit_in_bytes" };
    cgroup.set("memory", limit, "50331648")?;
    // Nobody takes frames yet.
    let agent = pair.site.start()?;
    agent.await_container("web", "known and sampled", |c| c.usage.is_some())?;
    let hog = pair.site.run_heard(&cgroup, &["hold", "96Mi"])?;
    ensure!(!hog.await_word_or_end("holding")?, "the limit was not kept");
    wait::until("the ruling", wait::PATIENCE, || {
        Ok((!agent.ask().offers("web", false)?.is_empty()).then_some(()))
    })?;
    agent.kill()?;
    let agent = pair.site.start()?;
    let written = await_written(&agent, 5)?;
    let mut recommender = pair.recommender.start()?;
    await_acknowledged(&agent, written)?;
    let cli = pair.cli();
    let first = wait::until("kill and ruling to arrive", wait::PATIENCE, || {
        let arrived = arrived(&cli)?;
        Ok((arrived.len() >= 2).then_some(arrived))
    })?;
    let kinds: Vec<&str> = first.iter().map(|(kind, _)| kind.as_str()).collect();
    ensure!(kinds == ["oom-kill", "restart"], "{first:?}");
    agent.kill()?;
    // Both sides are killed, and whatever they send and take again changes nothing.
    for round in 0..machine::scaled(2, 10) {
        recommender.kill()?;
        agent_again(&pair)?;
        recommender = pair.recommender.start()?;
        let agent = pair.site.start()?;
        let written = await_written(&agent, 3)?;
        await_acknowledged(&agent, written)?;
        let again = arrived(&cli)?;
        ensure!(again == first, "round {round}: {again:?} after {first:?}");
        agent.stop()?;
    }
    recommender.stop()
}

/// A run of the agent that ends by a kill.
fn agent_again(pair: &Pair) -> Result<()> {
    let agent = pair.site.start()?;
    await_written(&agent, 3)?;
    agent.kill()
}
