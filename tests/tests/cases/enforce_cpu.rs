//! Who gets the CPU when all want it, on whatever kernel this runs. Everything competes on the same CPUs, in a subtree
//! the agent owns, and is measured in CPU time consumed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use evenkeel_tests::cgroups::TestCgroup;
use evenkeel_tests::product::{Agent, Manifest, Site};
use evenkeel_tests::{figures, machine, require, wait};
use serde_json::{Value, json};

/// CPU time that is divided in each measurement.
fn divided() -> Duration {
    Duration::from_secs(machine::scaled(5, 10))
}

/// Longer than any busy machine takes to give it.
const PATIENCE: Duration = Duration::from_secs(300);

/// CPUs of the machine, of all of which the fair mode gives parts.
fn cpus() -> Result<u32> {
    Ok(u32::try_from(std::thread::available_parallelism().context("no number of CPUs")?.get())?)
}

/// A site with a subtree of the agent's. Nobody is squeezed: on a busy machine who requests half of it does not get that,
/// whatever its siblings have.
fn site(mode: &str) -> Result<Site> {
    let site = Site::new()?;
    let own = site.tree().group("own")?.path();
    Ok(site.with(|agent| {
        let agent = agent.set("own", &format!("[{own:?}]")).set("cpu.excess", &format!("{mode:?}"));
        agent.set("starvation.enabled", "false")
    }))
}

/// A container that burns the first CPU.
fn burner(site: &mut Site, name: &str, request_milli: u32) -> Result<TestCgroup> {
    let cgroup = site.tree().group(&format!("own/{name}"))?;
    let asked: Value = match request_milli {
        0 => json!({}),
        milli => json!({ "requests": { "cpu": format!("{milli}m") } }),
    };
    site.bind(&Manifest::new(name, &cgroup.path(), &asked))?;
    site.run(&cgroup, &["burn-on", "0"])?;
    Ok(cgroup)
}

/// Weight or shares.
fn weight(cgroup: &TestCgroup) -> Result<f64> {
    let knob = if cgroup.is_v2() { "cpu.weight" } else { "cpu.shares" };
    Ok(cgroup.read("cpu", knob)?.parse()?)
}

/// Part of the first in what both use from now on, over so much CPU time.
fn part(pair: [&TestCgroup; 2], time: Duration) -> Result<f64> {
    let used = || -> Result<[u64; 2]> { Ok([pair[0].cpu_usec()?, pair[1].cpu_usec()?]) };
    let start = used()?;
    wait::until("CPU time to be used", PATIENCE, || {
        let now = used()?;
        let each = [now[0] - start[0], now[1] - start[1]];
        let sum = each[0] + each[1];
        Ok((u128::from(sum) >= time.as_micros()).then(|| each[0] as f64 / sum as f64))
    })
}

/// Waits until the agent has given the first so many times the second's weight, within a hundredth.
fn await_ratio(agent: &Agent, pair: [&TestCgroup; 2], ratio: f64) -> Result<()> {
    let reached = wait::until(&format!("weights of {ratio}:1"), wait::PATIENCE, || {
        let now = weight(pair[0])? / weight(pair[1])?;
        Ok(((now / ratio - 1.0).abs() < 0.01).then_some(()))
    });
    reached.with_context(|| {
        let now = pair.map(|cgroup| weight(cgroup).unwrap_or_default());
        format!("weights are {now:?}; the agent's log:\n{}", agent.log_end())
    })
}

fn assert_part(what: &str, measured: &[f64], wanted: f64) -> Result<()> {
    let shown: Vec<String> = measured.iter().map(|part| format!("{:.2}", 100.0 * part)).collect();
    figures::show(&format!(
        "{what}: {} % of the CPU time of both, {:.2} % wanted",
        shown.join(", "),
        100.0 * wanted
    ));
    // Both sides of the ratio are to be right. The median: what holds up a virtual processor is charged to who runs.
    let mut sorted = measured.to_vec();
    sorted.sort_by(f64::total_cmp);
    let part = sorted.get(sorted.len() / 2).context("nothing was measured")?;
    let near = |part: f64, wanted: f64| (part / wanted - 1.0).abs() <= 0.05;
    ensure!(
        near(*part, wanted) && near(1.0 - part, 1.0 - wanted),
        "{what}: the median is not within 5 % of {wanted:.3}: {shown:?}"
    );
    Ok(())
}

/// 60 % and 30 % of a CPU are requested; the tenth that nobody requested goes 2:1.
pub(crate) fn excess_is_shared_in_proportion_to_requests() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = site("proportional")?;
    let a = burner(&mut site, "a", 600)?;
    let b = burner(&mut site, "b", 300)?;
    let agent = site.start()?;
    await_ratio(&agent, [&a, &b], 2.0)?;
    let measured = measure([&a, &b])?;
    agent.stop()?;
    assert_part("A 600m, B 300m, proportional: A has", &measured, 2.0 / 3.0)
}

/// Half of the machine is requested by A and nothing by B: B gets half of what is left.
pub(crate) fn excess_is_shared_equally_in_fair_mode() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = site("fair")?;
    let a = burner(&mut site, "a", 500 * cpus()?)?;
    let b = burner(&mut site, "b", 0)?;
    let agent = site.start()?;
    await_ratio(&agent, [&a, &b], 3.0)?;
    let measured = measure([&a, &b])?;
    agent.stop()?;
    assert_part("A half, B nothing, fair: A has", &measured, 0.75)
}

/// Nothing requested: all of the CPU alone, next to nothing beside one with a request.
pub(crate) fn without_a_request_the_whole_cpu_alone_and_little_beside_one_with() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = site("proportional")?;
    let agent = site.start()?;
    let idle = burner(&mut site, "idle", 0)?;
    agent.await_settled("idle")?;
    let (before, unused) = (idle.cpu_usec()?, unused_usec()?);
    wait::until("CPU time to be used", PATIENCE, || {
        Ok((u128::from(idle.cpu_usec()? - before) >= divided().as_micros() / 3).then_some(()))
    })?;
    let (used, unused) = ((idle.cpu_usec()? - before) as f64, (unused_usec()? - unused) as f64);
    let alone = used / (used + unused);
    let busy = burner(&mut site, "busy", 500)?;
    agent.await_settled("busy")?;
    let beside = part([&idle, &busy], divided())?;
    agent.stop()?;
    let shown = format!(
        "no CPU request: {:.1} % of what is free alone, {:.2} % beside 500m",
        100.0 * alone,
        100.0 * beside
    );
    figures::show(&shown);
    ensure!(beside > 0.0005 && beside < 0.05, "not a small part: {shown}");
    // A machine with more CPUs leaves the others unused.
    ensure!(alone > 0.9 || cpus()? > 1, "not the whole CPU: {shown}");
    Ok(())
}

/// Time in which nobody used the CPUs, since boot: idle and iowait of proc_stat(5), in ticks of 10 ms.
fn unused_usec() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
    let all = text.lines().next().context("/proc/stat is empty")?;
    let ticks = all.split_whitespace().skip(4).take(2).map(|word| word.parse::<u64>().context("not ticks"));
    Ok(ticks.sum::<Result<u64>>()? * 10_000)
}

/// Each repetition's part.
fn measure(pair: [&TestCgroup; 2]) -> Result<Vec<f64>> {
    (0..machine::scaled(3, 20)).map(|_| part(pair, divided())).collect()
}
