//! A fork bomb, and the agent's tick beside it.

use anyhow::{Context, Result, ensure};
use evenkeel_tests::cgroups::Tier;
use evenkeel_tests::product::{Manifest, Site};
use evenkeel_tests::{figures, machine, require, wait};

/// Longest pause between two samples of a container that the agent may make.
const LONGEST_GAP_USEC: u64 = 3_000_000;
const BOMB: u64 = 5000;

/// A fork bomb fills its container to `pids.max`; a neighbour is sampled all the while.
pub(crate) fn a_fork_bomb_never_stops_the_tick() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (quiet, _) = site.sleeper("quiet")?;
    site.bind(&Manifest::guaranteed("quiet", &quiet.path(), "100m", "64Mi"))?;
    let bomb = site.tree().container(Tier::BestEffort, "bomb", "main")?;
    site.bind(&Manifest::best_effort("bomb", &bomb.path()))?;
    bomb.set("pids", "pids.max", &BOMB.to_string())?;
    let agent = site.start()?;
    agent.await_settled("quiet")?;
    site.run(&bomb, &["bomb", "1000000"])?;
    let mut most = 0;
    wait::until("the bomb to fill its container", 5 * wait::PATIENCE, || {
        most = most.max(bomb.read("pids", "pids.current")?.parse::<u64>()?);
        Ok((most >= BOMB - 1).then_some(()))
    })?;
    let ticks = agent.ask().sample_times("quiet", machine::scaled(10, 60))?;
    let gaps: Vec<u64> = ticks.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let longest = gaps.iter().max().copied().context("no two samples")?;
    let refused = bomb.stat("pids", "pids.events", "max").unwrap_or_default();
    figures::show(&format!(
        "fork bomb: {most} processes, {refused} forks refused; {} samples of its neighbour, longest gap {:.2} s",
        ticks.len(),
        longest as f64 / 1e6
    ));
    // Nothing may be forked any more while its processes are killed one by one.
    bomb.set("pids", "pids.max", "0")?;
    bomb.remove_within(10 * wait::PATIENCE)?;
    agent.await_container("quiet", "there", |_| true)?;
    agent.stop()?;
    ensure!(longest <= LONGEST_GAP_USEC, "the tick stopped for {longest} usec: {gaps:?}");
    Ok(())
}
