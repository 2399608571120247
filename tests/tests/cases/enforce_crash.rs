//! An agent that is killed where it stands, at random moments: what it leaves behind, and what the next one makes of it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use evenkeel_tests::cgroups::{TestCgroup, Tier};
use evenkeel_tests::chance::Chance;
use evenkeel_tests::processes::memory_total;
use evenkeel_tests::product::{Agent, Manifest, Site, scores};
use evenkeel_tests::{figures, machine, require, wait};
use serde_json::{Value, json};

/// Knobs the agent may write; those a kernel lacks are left out.
const KNOBS: [(&str, &str); 14] = [
    ("cpu", "cpu.weight"),
    ("cpu", "cpu.idle"),
    ("cpu", "cpu.max"),
    ("cpu", "cpu.max.burst"),
    ("memory", "memory.min"),
    ("memory", "memory.low"),
    ("memory", "memory.high"),
    ("memory", "memory.max"),
    ("memory", "memory.oom.group"),
    ("cpu", "cpu.shares"),
    ("cpu", "cpu.cfs_quota_us"),
    ("cpu", "cpu.cfs_burst_us"),
    ("memory", "memory.limit_in_bytes"),
    ("memory", "memory.soft_limit_in_bytes"),
];
/// Nothing is frozen or held for longer than this after the agent was killed. It is a second at most where nobody else
/// computes, which a test does not judge: it shows how long it was.
const RELEASED_WITHIN: Duration = Duration::from_secs(30);

type Values = BTreeMap<String, String>;

/// Values of all knobs of some cgroups, and the one score all their processes have, or `mixed`.
fn values(cgroups: &[(&str, TestCgroup)]) -> Result<Values> {
    let mut found = Values::new();
    for (name, cgroup) in cgroups {
        for (controller, file) in KNOBS {
            if cgroup.directory(controller).is_ok_and(|directory| directory.join(file).is_file()) {
                found.insert(format!("{name} {file}"), cgroup.read(controller, file)?);
            }
        }
    }
    Ok(found)
}

/// The two wishes that take turns.
fn wishes(turn: usize) -> [(&'static str, Value); 3] {
    let first = turn.is_multiple_of(2);
    let (cpu, memory) = if first { ("200m", "64Mi") } else { ("400m", "96Mi") };
    let limit = if first { "128Mi" } else { "160Mi" };
    [
        (
            "safe",
            json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}),
        ),
        (
            "burst",
            json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": "900m", "memory": limit}}),
        ),
        // Forks so fast that its processes are written to while it is frozen.
        ("churn", if first { json!({}) } else { json!({"requests": {"cpu": cpu, "memory": memory}}) }),
    ]
}

fn bind(site: &Site, cgroups: &[(&str, TestCgroup)], turn: usize) -> Result<()> {
    for ((name, cgroup), (named, asked)) in cgroups.iter().zip(wishes(turn)) {
        ensure!(*name == named, "wishes are in another order");
        site.bind(
            &Manifest::new(name, &cgroup.path(), &asked).annotation("evenkeel.dev/oom-kill", "container"),
        )?;
    }
    Ok(())
}

fn await_right(agent: &Agent, cgroups: &[(&str, TestCgroup)], wanted: &Values) -> Result<()> {
    let mut last = Values::new();
    let right = wait::until("every knob to be right", wait::PATIENCE, || {
        last = values(cgroups)?;
        Ok((&last == wanted).then_some(()))
    });
    right.with_context(|| {
        let wrong: Vec<_> = wanted.iter().filter(|(knob, value)| last.get(*knob) != Some(value)).collect();
        format!("wanted: {wrong:?}; the agent's log:\n{}", agent.log_end())
    })
}

/// Starts it and returns what stands when everything has converged to a turn's wish.
fn settled(site: &Site, cgroups: &[(&str, TestCgroup)], turn: usize) -> Result<Values> {
    bind(site, cgroups, turn)?;
    let agent = site.start()?;
    for (name, _) in cgroups {
        agent.await_settled(name)?;
    }
    let found = values(cgroups)?;
    agent.stop()?;
    Ok(found)
}

/// Every value is one of the three that it may be.
fn assert_old_or_new(now: &Values, allowed: &[&Values]) -> Result<()> {
    for (knob, value) in now {
        let fine = allowed.iter().any(|values| values.get(knob) == Some(value));
        let expected: Vec<_> = allowed.iter().filter_map(|values| values.get(knob)).collect();
        ensure!(fine, "{knob} is {value}, neither old nor new: {expected:?}");
    }
    Ok(())
}

/// How long a container stays frozen after a kill; none is.
fn released(cgroups: &[(&str, TestCgroup)], killed: Instant) -> Result<Duration> {
    loop {
        let mut frozen = Vec::new();
        for (name, cgroup) in cgroups {
            if cgroup.is_frozen()? {
                frozen.push(*name);
            }
        }
        let since = killed.elapsed();
        match frozen.as_slice() {
            [] => return Ok(since),
            left if since > RELEASED_WITHIN => bail!("still frozen {since:?} after the kill: {left:?}"),
            _ => std::thread::yield_now(),
        }
    }
}

pub(crate) fn kill_nine_leaves_old_or_new_values_and_the_next_start_repairs() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut chance = Chance::of("kill -9");
    let mut site = Site::new()?;
    let cgroups: Vec<(&str, TestCgroup)> = ["safe", "burst", "churn"]
        .into_iter()
        .map(|name| Ok((name, site.tree().container(Tier::Burstable, name, "main")?)))
        .collect::<Result<_>>()?;
    for (name, cgroup) in &cgroups {
        let words: &[&str] = if *name == "churn" { &["fork-churn", "chains", "4"] } else { &["hold", "8Mi"] };
        site.run(cgroup, words)?;
    }
    let original = values(&cgroups)?;
    let started = Instant::now();
    let wanted = [settled(&site, &cgroups, 0)?, settled(&site, &cgroups, 1)?];
    ensure!(wanted[0] != wanted[1] && memory_total()? > 0, "the two wishes do not differ");
    // As long as it takes to write everything, by the slower of the two.
    let life = u64::try_from(started.elapsed().as_micros() / 2)?;
    let points = machine::scaled(25, 1000);
    let (mut longest, mut frozen, mut changed) = (Duration::ZERO, 0, 0);
    for point in 0..points {
        let before = values(&cgroups)?;
        let agent = site.start()?;
        bind(&site, &cgroups, point)?;
        let delay = Duration::from_micros(chance.below(life));
        // The moment is the test: it is drawn, and nothing is expected to have happened by then.
        std::thread::sleep(delay);
        agent.kill()?;
        let killed = Instant::now();
        for (_, cgroup) in &cgroups {
            frozen += u32::from(cgroup.is_frozen()?);
        }
        let took = released(&cgroups, killed)?;
        longest = longest.max(took);
        let now = values(&cgroups)?;
        assert_old_or_new(&now, &[&original, &wanted[0], &wanted[1]])
            .with_context(|| format!("point {point}, {delay:?} after its start"))?;
        changed += u32::from(now != before);
        if point % 10 == 9 || point + 1 == points {
            let agent = site.start()?;
            await_right(&agent, &cgroups, &wanted[point % 2])?;
            agent.await_settled("churn")?;
            let one: Vec<_> = scores(&cgroups[0].1)?;
            ensure!(!one.is_empty(), "nobody is left");
            agent.stop()?;
        }
    }
    figures::show(&format!(
        "kill -9: {points} points, every knob old or new at each; values had changed at {changed}; frozen at the kill {frozen} times, thawed within {} ms without a restart; repaired by the next start every time",
        longest.as_millis()
    ));
    Ok(())
}
