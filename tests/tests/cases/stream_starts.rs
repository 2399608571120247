//! What a container uses while it starts, as a real agent measured it, is learned; of what was there before the agent nothing is.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::Recommendation;
use evenkeel_rightsizing::Resource;
use evenkeel_tests::product::{Manifest, Pair, Recommender, await_acknowledged};
use evenkeel_tests::{figures, machine, require, wait};

/// How long a container starts: a little more than is asked for before anything is said of starts.
const START: u64 = 35;
/// A start, and the minute after which something is recommended.
const PATIENCE: Duration = Duration::from_secs(300);

/// What is recommended for the CPU of a pod.
fn recommended(recommender: &Recommender, pod: &str) -> Result<Option<Recommendation>> {
    let all = recommender.ask().recommendations("default")?;
    Ok(all.into_iter().find(|r| r.workload == pod && r.resource == Resource::Cpu.as_str()))
}

#[test]
fn a_start_that_an_agent_measured_is_learned_and_ends() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let pair = Pair::new()?;
    let cli = pair.cli();
    let Pair { mut site, recommender } = pair;
    let setup =
        recommender.set("history.start", &format!("\"{START}s\"")).set("recommend.watch_interval", "\"1s\"");
    let recommender = setup.start()?;
    let agent = site.start()?;
    // What is found in the first seconds of a stream may be of any age.
    await_acknowledged(&agent, 15)?;
    let cgroup = site.cgroup("late")?;
    site.bind(&Manifest::burstable("late", &cgroup.path(), "100m", "64Mi"))?;
    site.run(&cgroup, &["burn", "300"])?;
    let is_all = wait::until("all of a start to be learned", PATIENCE, || {
        Ok(recommended(&recommender, "late")?.filter(|r| r.start_seconds + 2 >= START).map(drop))
    });
    is_all.with_context(|| agent.log_end())?;
    // The seconds that follow are of none.
    let told_after = |more: u64| -> Result<(u64, u64)> {
        let frames = agent.ask().status()?.stream.context("a stream")?.last_acknowledged;
        await_acknowledged(&agent, frames + more)?;
        let told = recommended(&recommender, "late")?.context("it was there")?;
        Ok((told.start.with_context(|| format!("{told:?}"))?, told.start_seconds))
    };
    let learned = told_after(5)?;
    ensure!(told_after(10)? == learned, "it goes on after {learned:?}");
    let (start, seconds) = learned;
    figures::show(&format!("a start of {seconds} s used {start} thousandths of a core"));
    ensure!(seconds.abs_diff(START) <= 2, "{seconds} s");
    // What it burns, as far as this machine lets it, and half as much again where it does not.
    ensure!((10..=480).contains(&start), "{start} thousandths of a core");
    let before = recommended(&recommender, "web")?.context("nothing is recommended for what was there")?;
    ensure!((before.start, before.start_seconds) == (None, 0), "{before:?}");
    let shown = cli.run(&["recommend", "-o", "wide"])?.success()?;
    ensure!(shown.contains("START"), "{shown}");
    // It is history: the next run knows it.
    recommender.kill()?;
    let recommender = setup.start()?;
    wait::until("the start to be known again", wait::PATIENCE, || {
        let known = recommended(&recommender, "late")?;
        Ok(known.filter(|r| (r.start, r.start_seconds) == (Some(start), seconds)).map(drop))
    })?;
    recommender.stop()?;
    agent.stop()
}
