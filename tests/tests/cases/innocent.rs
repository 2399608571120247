//! Pressure that is one container's own: it reclaims at its own limit, and nothing happens to those beside it. With the
//! agent's default thresholds, but where a case says otherwise, on whatever kernel this runs.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::Decision;
use evenkeel_tests::cgroups::TestCgroup;
use evenkeel_tests::product::{Agent, Heard, Manifest, Site};
use evenkeel_tests::thrash::uncached;
use evenkeel_tests::{figures, machine, require, wait};
use serde_json::json;

const MIB: u64 = 1 << 20;
/// What the thrashing container may use and what it wants: the case of the report, 8 threads that read at random. It wants less
/// than in the report (120 MiB), of which a slow machine reads everything once for minutes before anything is read again.
pub(crate) const LIMIT: u64 = 24 * MIB;
const WANTED: u64 = 64 * MIB;
const THREADS: &str = "8";
/// Time that somebody has to wait for memory before a case ends, many times what any threshold asks for.
const WAITED: Duration = Duration::from_secs(3);
/// Longer than a slow disk takes to make somebody wait for so long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);
/// Where the guest's disk has no swap.
pub(crate) const DISK: &str = "/dev/vda";
pub(crate) const SWAP_MIB: u64 = 192;

/// A BestEffort container that holds memory, and an agent.
pub(crate) struct House {
    pub(crate) site: Site,
    neighbour: TestCgroup,
    holder: Heard,
}

impl House {
    pub(crate) fn new(site: Site) -> Result<House> {
        let mut site = site.with(|agent| agent.set("starvation.enabled", "false"));
        let neighbour = site.cgroup("neighbour")?;
        site.bind(&Manifest::best_effort("neighbour", &neighbour.path()))?;
        let holder = site.run_heard(&neighbour, &["hold", "64Mi"])?;
        ensure!(holder.await_word_or_end("holding")?, "the neighbour did not start");
        Ok(House { site, neighbour, holder })
    }

    pub(crate) fn start(&self) -> Result<Agent> {
        let agent = self.site.start()?;
        agent.await_settled("neighbour")?;
        Ok(agent)
    }

    /// A container with a limit of its own.
    pub(crate) fn limited(&self, name: &str) -> Result<TestCgroup> {
        let cgroup = self.site.cgroup(name)?;
        let file = if cgroup.is_v2() { "memory.max" } else { "memory.limit_in_bytes" };
        cgroup.set("memory", file, &LIMIT.to_string())?;
        let limit = format!("{}Mi", LIMIT / MIB);
        let asked = json!({ "requests": { "cpu": "100m", "memory": "16Mi" }, "limits": { "memory": limit } });
        self.site.bind(&Manifest::new(name, &cgroup.path(), &asked))?;
        Ok(cgroup)
    }

    /// Nothing was done to anybody, and nothing is held.
    pub(crate) fn is_untouched(&self, agent: &Agent) -> Result<()> {
        ensure!(self.holder.is_alive(), "the neighbour died");
        ensure!(!self.neighbour.is_frozen()?, "the neighbour is frozen");
        let steps: Vec<Decision> = agent.ask().decisions()?.into_iter().filter(is_step).collect();
        ensure!(steps.is_empty(), "somebody was acted on: {steps:#?}");
        let holds = agent.ask().status()?.holds;
        ensure!(holds.is_empty(), "something is held: {holds:#?}");
        Ok(())
    }

    /// Waits until somebody has waited for memory for long enough, and nobody was acted on at any moment.
    pub(crate) fn watch(&self, agent: &Agent, of: &TestCgroup) -> Result<()> {
        let before = stalled(of)?;
        wait::until("somebody to wait for memory", PATIENCE, || {
            self.is_untouched(agent)?;
            Ok((stalled(of)? - before >= WAITED).then_some(()))
        })
        .with_context(|| agent.log_end())
    }
}

pub(crate) fn is_step(decision: &Decision) -> bool {
    ["relieve", "release", "kill", "evict"].contains(&decision.kind.as_str())
}

/// Time in which some waited for memory: of the cgroup, or of the node where only it is told (v1).
fn stalled(of: &TestCgroup) -> Result<Duration> {
    let text = if of.is_v2() {
        of.read("memory", "memory.pressure")?
    } else {
        std::fs::read_to_string("/proc/pressure/memory").context("this kernel tells no pressure")?
    };
    let total = text.lines().find_map(|line| line.strip_prefix("some ")?.rsplit_once("total="));
    Ok(Duration::from_micros(total.context("no time")?.1.trim().parse()?))
}

/// The decision that names who thrashes: once, with a limit it should have.
pub(crate) fn named(agent: &Agent, pod: &str) -> Result<Decision> {
    let of = format!("default/{pod}");
    let told = wait::until("the thrashing container to be named", PATIENCE, || {
        let all = agent.ask().decisions()?;
        Ok(all.into_iter().find(|d| d.kind == "thrash" && d.pod.as_deref() == Some(of.as_str())))
    })
    .with_context(|| agent.log_end())?;
    let limit: u64 = told.new.as_deref().context("no limit is proposed")?.parse()?;
    ensure!(limit > LIMIT && limit <= 2 * LIMIT, "{told:#?}");
    ensure!(told.reason.contains(&format!("raise its limit to {} MiB", limit / MIB)), "{told:#?}");
    let others = agent.ask().decisions()?;
    let others =
        others.iter().filter(|d| d.kind == "thrash" && d.pod.as_deref() != Some(of.as_str())).count();
    ensure!(others == 0, "{others} others were named");
    Ok(told)
}

/// Where there are files on a disk: part of the guest's own, or a file of this machine's.
fn file(site: &Site) -> Result<(String, String)> {
    if machine::is_emulated() {
        return Ok((DISK.to_string(), format!("{}Mi", SWAP_MIB + 8)));
    }
    let path = site.directory().join("wanted");
    uncached(&path, WANTED as usize)?;
    Ok((path.display().to_string(), "0".to_string()))
}

/// Somebody thrashes in 24 MiB; on a guest's disk, which is slow, most of the time is spent waiting.
pub(crate) fn thrash(site: Site) -> Result<()> {
    let mut house = House::new(site)?;
    let cgroup = house.limited("thrasher")?;
    let agent = house.start()?;
    agent.await_container("thrasher", "known", |_| true)?;
    let (path, offset) = file(&house.site)?;
    house.site.run(&cgroup, &["read-random", &path, &offset, &WANTED.to_string(), THREADS])?;
    house.watch(&agent, &cgroup)?;
    let told = named(&agent, "thrasher")?;
    figures::show(&format!("thrash at a limit beside BestEffort: {}", told.reason));
    house.is_untouched(&agent)?;
    agent.stop()
}

pub(crate) fn thrash_at_a_limit_touches_nobody_and_is_named() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    require!(std::path::Path::new("/proc/pressure/memory").exists(), "this kernel tells no memory pressure");
    thrash(Site::new()?)
}
