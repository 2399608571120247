//! Swap limits and `memory.high`, on cgroup v2 with swap on the guest's disk.

use anyhow::{Context, Result, ensure};
use evenkeel_tests::cgroups::TestCgroup;
use evenkeel_tests::processes::{memory, memory_total};
use evenkeel_tests::product::{Agent, Manifest, Site};
use evenkeel_tests::{figures, wait};
use serde_json::json;

use super::innocent_guest::Swap;

const MIB: u64 = 1 << 20;

/// A site whose agent sets what is off by default; the pressure loop stays out of it.
fn site(keys: &[(&str, &str)]) -> Result<Site> {
    let site = Site::new()?.with(|agent| agent.set("pressure.enabled", "false"));
    Ok(site.with(|agent| keys.iter().fold(agent, |agent, (key, value)| agent.set(key, value))))
}

fn await_file(agent: &Agent, cgroup: &TestCgroup, file: &str, value: &str) -> Result<()> {
    let mut last = None;
    let found = wait::until(&format!("{file} to be {value}"), wait::PATIENCE, || {
        last = cgroup.read("memory", file).ok();
        Ok((last.as_deref() == Some(value)).then_some(()))
    });
    found.with_context(|| format!("it is {last:?}\n{}", agent.log_end()))
}

/// A Burstable container has swap in proportion to its request and uses it; a BestEffort one has none and uses none.
pub(crate) fn swap_is_limited_by_class() -> Result<()> {
    let swap = Swap::on()?;
    let mut site = site(&[("memory.swap_limits", "true"), ("knobs.memory_swap", "true")])?;
    let (burst, best) = (site.cgroup("burst")?, site.cgroup("best")?);
    let asked = json!({ "requests": { "cpu": "100m", "memory": "256Mi" } });
    site.bind(&Manifest::new("burst", &burst.path(), &asked))?;
    site.bind(&Manifest::best_effort("best", &best.path()))?;
    let agent = site.start()?;
    let part = u128::from(memory("SwapTotal")?) * u128::from(256 * MIB) / u128::from(memory_total()?);
    await_file(&agent, &best, "memory.swap.max", "0")?;
    let limit: u64 = wait::until("a swap limit", wait::PATIENCE, || {
        Ok(burst.read("memory", "memory.swap.max")?.parse().ok())
    })
    .with_context(|| agent.log_end())?;
    ensure!(u128::from(limit).abs_diff(part) <= 4096, "{limit} of {part} bytes");
    // Both are made to give up memory: one can, up to its limit, the other cannot.
    for cgroup in [&burst, &best] {
        cgroup.set("memory", "memory.high", &(16 * MIB).to_string())?;
        site.run(cgroup, &["hold", "24Mi"])?;
    }
    let used =
        |cgroup: &TestCgroup| -> Result<u64> { Ok(cgroup.read("memory", "memory.swap.current")?.parse()?) };
    let swapped = wait::until("the Burstable one to swap", 5 * wait::PATIENCE, || {
        let used = used(&burst)?;
        Ok((used >= 4 * MIB).then_some(used))
    })?;
    ensure!(swapped <= limit && used(&best)? == 0, "{swapped} of {limit} bytes, and {}", used(&best)?);
    figures::show(&format!(
        "swap limits: Burstable {} of {} MiB of swap by its request, {} used; BestEffort none",
        limit / MIB,
        memory("SwapTotal")? / MIB,
        swapped / MIB
    ));
    agent.stop()?;
    burst.remove()?;
    best.remove()?;
    swap.off()
}

/// Half of the way from request to limit: the kernel reclaims there, and nobody is killed.
pub(crate) fn memory_high_holds_back_before_the_limit() -> Result<()> {
    let mut site = site(&[("memory.high_percent", "50")])?;
    let cgroup = site.cgroup("burst")?;
    let asked = json!({ "requests": { "cpu": "100m", "memory": "16Mi" }, "limits": { "memory": "48Mi" } });
    site.bind(&Manifest::new("burst", &cgroup.path(), &asked))?;
    let agent = site.start()?;
    await_file(&agent, &cgroup, "memory.high", &(32 * MIB).to_string())?;
    site.run(&cgroup, &["hold", "40Mi"])?;
    let high = || cgroup.stat("memory", "memory.events", "high");
    wait::until("the kernel to hold it back", wait::PATIENCE, || Ok((high()? > 0).then_some(())))?;
    let events = ["max", "oom_kill"].map(|name| cgroup.stat("memory", "memory.events", name));
    for count in events {
        ensure!(count? == 0, "it ran into its limit");
    }
    figures::show(&format!("memory.high: held back {} times at 32 of 48 MiB", high()?));
    agent.stop()?;
    let restored = site.agent.run(&["restore"])?;
    ensure!(restored.status == Some(0), "{}", restored.said());
    ensure!(cgroup.read("memory", "memory.high")? == "max", "{}", restored.said());
    Ok(())
}
