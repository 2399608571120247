//! Knobs beside scores: limits, protection, who rewrites them, what has no effect, and everything put back; on whatever
//! kernel this runs.

use anyhow::{Context, Result};
use evenkeel_proto::v1::{ContainerStatus, ConvergeState, KnobValue};
use evenkeel_tests::cgroups::{CgroupTree, TestCgroup};
use evenkeel_tests::processes::score;
use evenkeel_tests::product::{Agent, Manifest, Site, parse_metrics};
use evenkeel_tests::thrash::Thrash;
use evenkeel_tests::{machine, require, wait};
use serde_json::json;

const MIB: u64 = 1 << 20;

/// A controller, its file, and what it holds before and under a limit of half a CPU and 128 MiB, 64 of them requested.
type Row = (&'static str, &'static str, &'static str, &'static str);

const V1: [Row; 6] = [
    ("cpu", "cpu.shares", "1024", "256"),
    ("cpu", "cpu.cfs_quota_us", "-1", "50000"),
    ("cpu", "cpu.cfs_period_us", "100000", "100000"),
    ("cpu", "cpu.cfs_burst_us", "0", "50000"),
    ("memory", "memory.limit_in_bytes", "9223372036854771712", "134217728"),
    ("memory", "memory.soft_limit_in_bytes", "9223372036854771712", "67108864"),
];
const V2: [Row; 5] = [
    ("cpu", "cpu.max", "max 100000", "50000 100000"),
    ("cpu", "cpu.max.burst", "0", "50000"),
    ("memory", "memory.max", "max", "134217728"),
    ("memory", "memory.low", "0", "67108864"),
    ("memory", "memory.oom.group", "0", "1"),
];

fn rows(cgroup: &TestCgroup) -> &'static [Row] {
    if cgroup.is_v2() { &V2 } else { &V1 }
}

fn limited(pod: &str, cgroup: &TestCgroup, memory: &str) -> Manifest {
    let resources = json!({
        "requests": { "cpu": "250m", "memory": "64Mi" }, "limits": { "cpu": "500m", "memory": memory },
    });
    Manifest::new(pod, &cgroup.path(), &resources).annotation("evenkeel.dev/oom-kill", "container")
}

fn knob<'a>(container: &'a ContainerStatus, name: &str) -> Result<&'a KnobValue> {
    let found = container.knobs.iter().find(|knob| knob.name == name);
    found.with_context(|| format!("no {name} in {container:#?}"))
}

/// Waits until one knob is as wanted.
fn await_knob(
    agent: &Agent,
    pod: &str,
    name: &str,
    what: &str,
    is: impl Fn(&KnobValue) -> bool,
) -> Result<KnobValue> {
    let has = |c: &ContainerStatus| c.knobs.iter().any(|knob| knob.name == name && is(knob));
    let container = agent.await_container(pod, what, has)?;
    Ok(knob(&container, name)?.clone())
}

fn hurried(site: Site) -> Site {
    site.with(|agent| agent.set("converge.audit_period", "\"1s\""))
}

fn weight(cgroup: &TestCgroup) -> &'static str {
    if cgroup.is_v2() { "cpu.weight" } else { "cpu.shares" }
}

pub(crate) fn limits_of_a_manifest_are_applied_counted_and_put_back() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (cgroup, _) = site.sleeper("web")?;
    site.bind(&limited("web", &cgroup, "128Mi"))?;
    let agent = site.start()?;
    for (controller, file, _, wanted) in rows(&cgroup) {
        wait::until_true(&format!("{file} to be {wanted}"), || {
            cgroup.read(controller, file).is_ok_and(|now| now == *wanted)
        })?;
    }
    agent.await_settled("web")?;
    let metrics = parse_metrics(&agent.metrics()?)?;
    let done = metrics.labels("evenkeel_agent_writes_total");
    assert!(done.iter().any(|of| of["knob"] == rows(&cgroup)[1].1 && of["result"] == "done"), "{done:#?}");
    // A resize in place: the burst is never above the quota in between, or the kernel would refuse one of the two.
    let smaller = json!({
        "requests": { "cpu": "100m", "memory": "64Mi" }, "limits": { "cpu": "200m", "memory": "96Mi" },
    });
    site.bind(&Manifest::new("web", &cgroup.path(), &smaller))?;
    let (file, wanted) =
        if cgroup.is_v2() { ("cpu.max", "20000 100000") } else { ("cpu.cfs_quota_us", "20000") };
    wait::until_true("the smaller quota", || cgroup.read("cpu", file).is_ok_and(|now| now == wanted))?;
    agent.kill()?;
    let restored = site.agent.run(&["restore"])?;
    assert_eq!(restored.status, Some(0), "{}", restored.said());
    for (controller, file, before, _) in rows(&cgroup) {
        assert_eq!(cgroup.read(controller, file)?, *before, "{file}: {}", restored.said());
    }
    Ok(())
}

pub(crate) fn a_limit_below_use_is_refused_by_name_and_kills_nobody() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = hurried(Site::new()?);
    let cgroup = site.cgroup("web")?;
    let holder = site.run_heard(&cgroup, &["hold", "96Mi"])?;
    assert!(holder.await_word_or_end("holding")?, "{}", holder.said());
    site.bind(&limited("web", &cgroup, "64Mi"))?;
    let name = if cgroup.is_v2() { "memory.max" } else { "memory.limit_in_bytes" };
    let agent = site.start()?;
    let refused = await_knob(&agent, "web", name, "refused", |knob| knob.state() == ConvergeState::Denied)?;
    assert!(refused.reason.contains("would call the OOM killer"), "{}", refused.reason);
    assert_eq!(refused.wanted, Some((64 * MIB).to_string()));
    // The rest of it is kept all the same, and with room enough the limit is set.
    let quota = if cgroup.is_v2() { "cpu.max" } else { "cpu.cfs_quota_us" };
    await_knob(&agent, "web", quota, "set", |knob| knob.state() == ConvergeState::Converged)?;
    site.bind(&limited("web", &cgroup, "256Mi"))?;
    await_knob(&agent, "web", name, "set", |knob| knob.actual == Some((256 * MIB).to_string()))?;
    assert!(holder.is_alive());
    agent.stop()
}

pub(crate) fn who_keeps_rewriting_a_knob_is_told_and_not_fought() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = hurried(Site::new()?);
    let (cgroup, _) = site.sleeper("web")?;
    let name = weight(&cgroup);
    site.bind(&Manifest::burstable("web", &cgroup.path(), "500m", "64Mi"))?;
    let agent = site.start()?;
    agent.await_settled("web")?;
    let contended = wait::until("the knob to be contended", wait::PATIENCE, || {
        cgroup.set("cpu", name, "7")?;
        std::thread::sleep(std::time::Duration::from_millis(200));
        let container = agent.container("web")?.context("the agent lost web")?;
        Ok(container.knobs.into_iter().find(|k| k.name == name && k.state() == ConvergeState::Contended))
    })?;
    assert_eq!((contended.by.as_str(), contended.count >= 3), ("rewritten to 7", true), "{contended:?}");
    assert!(contended.since_usec > 0 && contended.remedy.contains("[knobs]"), "{contended:?}");
    assert_eq!(cgroup.read("cpu", name)?, "7");
    let told = |d: &evenkeel_proto::v1::Decision| d.kind == "contended" && d.knob.as_deref() == Some(name);
    assert_eq!(agent.ask().decisions()?.iter().filter(|d| told(d)).count(), 1);
    agent.stop()
}

pub(crate) fn what_has_no_effect_is_told_with_the_ancestor_and_the_remedy() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = hurried(Site::new()?);
    let (cgroup, _) = site.sleeper("web")?;
    let name = weight(&cgroup);
    let path = cgroup.path();
    let parent = path.rsplit_once('/').context("no parent")?.0.to_owned();
    site.bind(&Manifest::burstable("web", &path, "500m", "64Mi"))?;
    let agent = site.start()?;
    let is = |state: ConvergeState| move |knob: &KnobValue| knob.state() == state;
    let alone = await_knob(&agent, "web", name, "without effect", is(ConvergeState::Ineffective))?;
    assert!(parent.starts_with(&alone.by) && !alone.by.is_empty(), "{alone:?} in {path}");
    assert!(alone.count > 0 && alone.since_usec > 0 && alone.remedy.contains("own = ["), "{alone:?}");
    // It is written all the same, and counts once a sibling competes.
    assert_eq!(alone.wanted, alone.actual);
    let below = parent.splitn(3, '/').nth(2).context("no tree")?.to_owned();
    let sibling = site.tree().group(&format!("{below}/sibling"))?;
    site.run(&sibling, &["sleep"])?;
    await_knob(&agent, "web", name, "effective", is(ConvergeState::Converged))?;
    if cgroup.is_v2() {
        let low = await_knob(&agent, "web", "memory.low", "not granted", is(ConvergeState::Ineffective))?;
        assert!(low.remedy.contains("memory.low of"), "{low:?}");
    }
    agent.stop()
}

pub(crate) fn an_owned_subtree_holds_the_sums_and_is_put_back() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let own = site.tree().group("own")?;
    let inner = site.tree().group("own/pods")?;
    if own.is_v2() {
        // What is above the subtree is somebody else's, who has to grant what it is to promise.
        site.tree().group("")?.set("memory", "memory.low", "256M")?;
    }
    let path = own.path();
    site = hurried(site).with(|agent| agent.set("own", &format!("[{path:?}]")));
    let mut containers = Vec::new();
    for (name, cpu, memory) in [("a", "600m", "64Mi"), ("b", "300m", "32Mi")] {
        let cgroup = site.tree().group(&format!("own/pods/{name}"))?;
        site.run(&cgroup, &["sleep"])?;
        site.bind(&Manifest::burstable(name, &cgroup.path(), cpu, memory))?;
        containers.push(cgroup);
    }
    let name = weight(&inner);
    let before = inner.read("cpu", name).ok();
    let agent = site.start()?;
    for pod in ["a", "b"] {
        await_knob(&agent, pod, name, "effective", |knob| knob.state() == ConvergeState::Converged)?;
    }
    let value = |cgroup: &TestCgroup| -> Result<f64> { Ok(cgroup.read("cpu", name)?.parse()?) };
    let ratio = value(&containers[0])? / value(&containers[1])?;
    assert!((ratio - 2.0).abs() < 0.05, "{ratio}");
    if inner.is_v2() {
        for cgroup in [&own, &inner] {
            wait::until_true("the sum of both", || {
                cgroup.read("memory", "memory.low").is_ok_and(|low| low == (96 * MIB).to_string())
            })?;
        }
        await_knob(&agent, "a", "memory.low", "granted", |knob| knob.state() == ConvergeState::Converged)?;
    } else {
        assert_eq!(inner.read("cpu", name)?, "921", "900m x 1024 / 1000");
    }
    agent.stop()?;
    let restored = site.agent.run(&["restore"])?;
    assert_eq!(restored.status, Some(0), "{}", restored.said());
    if let Some(before) = before {
        assert_eq!(inner.read("cpu", name)?, before, "{}", restored.said());
    }
    Ok(())
}

/// The assignment race: no audit comes in this test's time, and memory is short while the container starts.
pub(crate) fn a_container_that_starts_under_pressure_is_scored_before_the_audit() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?.with(|agent| agent.set("converge.audit_period", "\"1h\""));
    // A tree of its own for those who stall.
    let mut tree = CgroupTree::new()?;
    let short = tree.group("short")?;
    let late = site.cgroup("late")?;
    site.bind(&Manifest::best_effort("late", &late.path()))?;
    let agent = site.start()?;
    agent.await_settled("late")?;
    let thrash = Thrash::start(&mut tree, &short, site.directory())?;
    let pid = site.run(&late, &["sleep"])?;
    wait::until_true("the new process to have its score", || score(pid).is_ok_and(|now| now == 1000))?;
    let name = "evenkeel_agent_first_pid_to_right_score_seconds_count";
    wait::until("the time to be counted", wait::PATIENCE, || {
        let metrics = parse_metrics(&agent.metrics()?)?;
        Ok(metrics.sum(name).filter(|count| *count >= 1.0))
    })?;
    thrash.stop(&mut tree)?;
    agent.stop()
}
