//! What the pressure loop does on a real kernel, and that nothing of it outlives the agent.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::ConvergeState;
use evenkeel_tests::cgroups::{CgroupTree, TestCgroup};
use evenkeel_tests::chance::Chance;
use evenkeel_tests::processes::{memory, memory_total};
use evenkeel_tests::product::{Agent, Manifest, Site};
use evenkeel_tests::thrash::Thrash;
use evenkeel_tests::{figures, machine, places, require, wait};
use nix::unistd::Pid;

/// Nothing stands longer than this after the agent was killed. It is a second at most where nobody else computes, which a
/// test does not judge: it shows how long it was.
const RELEASED_WITHIN: Duration = Duration::from_secs(30);

/// A machine that is easily short of memory, and forgets it quickly.
fn site() -> Result<Site> {
    let site = Site::new()?;
    let keys: &[(&str, &str)] = if is_short()? { &LITTLE } else { &STALLED };
    let keys = COMMON.iter().chain(keys);
    Ok(site.with(|agent| keys.fold(agent, |agent, (key, value)| agent.set(key, value))))
}

/// Whether memory is made short here, as it can be in a guest, and has to be on v2, where stalls are told apart.
fn is_short() -> Result<bool> {
    Ok(machine::is_emulated() || CgroupTree::new()?.group("")?.is_v2())
}

const COMMON: [(&str, &str); 7] = [
    ("pressure.high.dwell", "\"500ms\""),
    ("pressure.freeze_at_most", "\"3s\""),
    ("pressure.calm_after", "\"500ms\""),
    ("pressure.redo_after", "\"1s\""),
    ("pressure.retriggers", "1000"),
    ("pressure.look_ahead_below_percent", "1"),
    ("starvation.enabled", "false"),
];

/// Less than half of memory being available is short, and nobody's stalls count.
const LITTLE: [(&str, &str); 8] = [
    ("pressure.stall_below_percent", "1"),
    ("pressure.warning.available_percent", "50"),
    ("pressure.warning.available_leave_percent", "55"),
    ("pressure.high.available_percent", "48"),
    ("pressure.high.available_leave_percent", "52"),
    ("pressure.critical.available_percent", "46"),
    ("pressure.critical.available_leave_percent", "50"),
    ("pressure.reserve_percent", "56"),
];
/// Part of memory that is left then, percent.
const LEFT: u64 = 35;

/// A few percent of stalled time are pressure, whatever this machine has available.
const STALLED: [(&str, &str); 20] = [
    ("pressure.warning.some_percent", "3"),
    ("pressure.warning.some_leave_percent", "2"),
    ("pressure.warning.full_percent", "90"),
    ("pressure.warning.full_leave_percent", "80"),
    ("pressure.high.some_percent", "4"),
    ("pressure.high.some_leave_percent", "2"),
    ("pressure.high.full_percent", "90"),
    ("pressure.high.full_leave_percent", "80"),
    ("pressure.critical.some_percent", "6"),
    ("pressure.critical.some_leave_percent", "3"),
    ("pressure.critical.full_percent", "95"),
    ("pressure.critical.full_leave_percent", "90"),
    // What is available on this machine is not what is tested.
    ("pressure.warning.available_percent", "3"),
    ("pressure.warning.available_leave_percent", "4"),
    ("pressure.high.available_percent", "2"),
    ("pressure.high.available_leave_percent", "3"),
    ("pressure.critical.available_percent", "1"),
    ("pressure.critical.available_leave_percent", "2"),
    ("pressure.reserve_percent", "5"),
    ("pressure.stall_below_percent", "100"),
];

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

/// What makes memory short: processes in a tree of their own, so that they can be ended before the site is.
enum Shortage {
    Stalls(Thrash),
    Full(Pid),
}

impl Shortage {
    fn start(site: &mut Site, tree: &mut CgroupTree) -> Result<Shortage> {
        let group = tree.group("short")?;
        if !is_short()? {
            return Ok(Shortage::Stalls(Thrash::start(tree, &group, site.directory())?));
        }
        let taken = memory("MemAvailable")?.saturating_sub(memory_total()? / 100 * LEFT);
        let mut command = Command::new(places::program("evenkeel-workload")?);
        command.args(["hold", &format!("{}Mi", taken >> 20)]);
        Ok(Shortage::Full(tree.spawn(&group, &command)?))
    }

    fn stop(self, tree: &mut CgroupTree) -> Result<()> {
        match self {
            Shortage::Stalls(thrash) => thrash.stop(tree),
            Shortage::Full(pid) => tree.end(pid),
        }
    }
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
    let shortage = Shortage::start(&mut site, &mut tree)?;
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
    shortage.stop(&mut tree)?;
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
        ensure!(killed.elapsed() < RELEASED_WITHIN, "still frozen ({}) or held at {}", stands.0, stands.1);
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
    let shortage = Shortage::start(&mut site, &mut tree)?;
    let mut chance = Chance::of("nothing_that_was_set_for_a_while_outlives_the_agent");
    let (mut longest, mut held) = (Duration::ZERO, 0);
    let points = machine::scaled(25, 1000);
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
    shortage.stop(&mut tree)?;
    figures::show(&format!(
        "{points} kills, {held} while something was held; undone after at most {longest:?}"
    ));
    ensure!(held > 0, "nothing was held at any kill");
    let agent = site.start()?;
    agent.await_container("hog", "known", |_| true)?;
    agent.stop()?;
    ensure!(cap(&hog)? == before && !hog.is_frozen()?, "something is left behind");
    Ok(())
}
