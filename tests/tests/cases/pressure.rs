//! What the pressure loop does on a real kernel, and that nothing of it outlives the agent.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::ConvergeState;
use evenkeel_tests::cgroups::{CgroupTree, TestCgroup};
use evenkeel_tests::chance::Chance;
use evenkeel_tests::product::{Agent, Manifest, Site};
use evenkeel_tests::thrash::Thrash;
use evenkeel_tests::{figures, machine, require, wait};

/// What may stand no longer than this after the agent was killed.
const RELEASED_WITHIN: Duration = Duration::from_secs(1);

/// A machine on which a few percent of stalled time are pressure, and which forgets it quickly.
fn site() -> Result<Site> {
    let keys = [
        ("pressure.warning.some_percent", "3"),
        ("pressure.warning.some_leave_percent", "2"),
        ("pressure.warning.full_percent", "90"),
        ("pressure.warning.full_leave_percent", "80"),
        ("pressure.high.some_percent", "4"),
        ("pressure.high.some_leave_percent", "2"),
        ("pressure.high.full_percent", "90"),
        ("pressure.high.full_leave_percent", "80"),
        ("pressure.high.dwell", "\"500ms\""),
        ("pressure.critical.some_percent", "6"),
        ("pressure.critical.some_leave_percent", "3"),
        ("pressure.critical.full_percent", "95"),
        ("pressure.critical.full_leave_percent", "90"),
        ("pressure.freeze_at_most", "\"3s\""),
        ("pressure.calm_after", "\"500ms\""),
        ("pressure.redo_after", "\"1s\""),
        ("pressure.retriggers", "1000"),
        // What is available on this machine is not what is tested.
        ("pressure.look_ahead_below_percent", "1"),
        ("pressure.warning.available_percent", "3"),
        ("pressure.warning.available_leave_percent", "4"),
        ("pressure.high.available_percent", "2"),
        ("pressure.high.available_leave_percent", "3"),
        ("pressure.critical.available_percent", "1"),
        ("pressure.critical.available_leave_percent", "2"),
        ("pressure.reserve_percent", "5"),
        ("starvation.enabled", "false"),
    ];
    Ok(Site::new()?.with(|agent| keys.iter().fold(agent, |agent, (key, value)| agent.set(key, value))))
}

/// A BestEffort container that holds memory, and a Guaranteed one.
struct Pair {
    hog: TestCgroup,
    safe: TestCgroup,
}

/// The file that holds a container's growth back.
fn file(cgroup: &TestCgroup) -> &'static str {
    if cgroup.is_v2() { "memory.high" } else { "memory.soft_limit_in_bytes" }
}

fn cap(cgroup: &TestCgroup) -> Result<String> {
    cgroup.read("memory", file(cgroup))
}

fn pair(site: &mut Site) -> Result<Pair> {
    let (hog, safe) = (site.cgroup("hog")?, site.cgroup("safe")?);
    site.bind(&Manifest::best_effort("hog", &hog.path()))?;
    site.bind(&Manifest::guaranteed("safe", &safe.path(), "100m", "64Mi"))?;
    for cgroup in [&hog, &safe] {
        ensure!(site.run_heard(cgroup, &["hold", "32Mi"])?.await_word_or_end("holding")?, "it did not start");
    }
    // What stands for good is set before anything is set for a while.
    let agent = site.start()?;
    for name in ["hog", "safe"] {
        agent.await_container(name, "settled", |found| {
            matches!(
                found.state(),
                ConvergeState::Converged | ConvergeState::Denied | ConvergeState::Ineffective
            )
        })?;
    }
    agent.stop()?;
    Ok(Pair { hog, safe })
}

fn has_pressure() -> bool {
    Path::new("/proc/pressure/memory").exists()
}

fn metric(agent: &Agent, name: &str) -> Result<u64> {
    let text = agent.metrics()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.trim().parse().ok()).with_context(|| format!("no metric {name}"))
}

/// Thrashing processes beside the two containers: their own tree, so that they can be ended before the site is.
fn thrash(site: &mut Site, tree: &mut CgroupTree) -> Result<Thrash> {
    let group = tree.group("thrash")?;
    Thrash::start(tree, &group, site.directory())
}

pub(crate) fn a_best_effort_container_is_held_back_under_pressure_and_let_go() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    require!(has_pressure(), "this kernel tells no memory pressure");
    let mut site = site()?;
    let Pair { hog, safe } = pair(&mut site)?;
    let before = (cap(&hog)?, cap(&safe)?);
    let agent = site.start()?;
    agent.await_container("hog", "known", |_| true)?;
    let mut tree = CgroupTree::new()?;
    let thrashing = thrash(&mut site, &mut tree)?;
    wait::until("the hog to be held back", wait::PATIENCE, || {
        ensure!(!safe.is_frozen()?, "the Guaranteed container is frozen");
        Ok((cap(&hog)? != before.0).then_some(()))
    })
    .with_context(|| agent.log_end())?;
    wait::until("the hog to be frozen", wait::PATIENCE, || Ok(hog.is_frozen()?.then_some(())))
        .with_context(|| agent.log_end())?;
    let status = agent.ask().status()?;
    let pressure = status.pressure.context("status without pressure")?;
    ensure!(pressure.domains.first().is_some_and(|node| node.grade != "calm"), "{pressure:#?}");
    ensure!(status.holds.iter().any(|hold| hold.container == "default/hog/main"), "{:#?}", status.holds);
    thrashing.stop(&mut tree)?;
    wait::until("the hog to be let go", wait::PATIENCE, || {
        Ok((cap(&hog)? == before.0 && !hog.is_frozen()?).then_some(()))
    })
    .with_context(|| agent.log_end())?;
    wait::until("nothing to be held", wait::PATIENCE, || {
        Ok((metric(&agent, "evenkeel_agent_pressure_held")? == 0).then_some(()))
    })?;
    let decisions = agent.ask().decisions()?;
    for kind in ["relieve", "release"] {
        let found = decisions.iter().find(|d| d.kind == kind && d.pod.as_deref() == Some("default/hog"));
        let found = found.with_context(|| format!("no decision {kind}: {decisions:#?}"))?;
        ensure!(found.inputs.contains_key("grade") && !found.reason.is_empty(), "{found:#?}");
    }
    ensure!(
        !decisions.iter().any(|d| d.pod.as_deref() == Some("default/safe") && d.kind == "relieve"),
        "{decisions:#?}"
    );
    ensure!(cap(&safe)? == before.1, "the Guaranteed container's {} changed", file(&safe));
    agent.stop()
}

/// How long anything stands after a kill.
fn released(hog: &TestCgroup, before: &str, killed: Instant) -> Result<Duration> {
    loop {
        let stands = (hog.is_frozen()?, cap(hog)?);
        if !stands.0 && stands.1 == before {
            return Ok(killed.elapsed());
        }
        ensure!(
            killed.elapsed() < 10 * RELEASED_WITHIN,
            "still frozen ({}) or held at {}",
            stands.0,
            stands.1
        );
        std::thread::yield_now();
    }
}

pub(crate) fn nothing_that_was_set_for_a_while_outlives_the_agent() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    require!(has_pressure(), "this kernel tells no memory pressure");
    let mut site = site()?;
    let Pair { hog, .. } = pair(&mut site)?;
    let before = cap(&hog)?;
    let mut tree = CgroupTree::new()?;
    let thrashing = thrash(&mut site, &mut tree)?;
    let mut chance = Chance::of("nothing_that_was_set_for_a_while_outlives_the_agent");
    let (mut longest, mut held) = (Duration::ZERO, 0);
    let points = machine::scaled(50, 1000);
    for point in 0..points {
        let agent = site.start()?;
        // From before the first step to after the last: the moment of the kill is random among all of them.
        let life = Duration::from_micros(chance.below(200_000));
        if point % 2 == 0 {
            wait::until("the hog to be held back", wait::PATIENCE, || {
                Ok((cap(&hog)? != before || hog.is_frozen()?).then_some(()))
            })
            .with_context(|| agent.log_end())?;
        }
        let until = Instant::now() + life;
        while Instant::now() < until {
            std::thread::yield_now();
        }
        held += u32::from(cap(&hog)? != before || hog.is_frozen()?);
        let killed = Instant::now();
        agent.kill()?;
        longest = longest.max(released(&hog, &before, killed)?);
    }
    thrashing.stop(&mut tree)?;
    figures::show(&format!(
        "{points} kills, {held} while something was held; undone after at most {longest:?}"
    ));
    ensure!(longest <= RELEASED_WITHIN, "something stood for {longest:?} after a kill");
    ensure!(held > 0, "nothing was held at any kill");
    let agent = site.start()?;
    agent.await_container("hog", "known", |_| true)?;
    agent.stop()?;
    ensure!(cap(&hog)? == before && !hog.is_frozen()?, "something is left behind");
    Ok(())
}
