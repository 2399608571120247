//! Options that are off by default, and starvation, on whatever kernel this runs: what the kernel holds, who gets what,
//! and everything put back.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::Decision;
use evenkeel_tests::cgroups::TestCgroup;
use evenkeel_tests::processes::score;
use evenkeel_tests::product::{Agent, Manifest, Site};
use evenkeel_tests::{figures, machine, require, wait};
use nix::unistd::Pid;

fn cpus() -> Result<usize> {
    Ok(std::thread::available_parallelism().context("no number of CPUs")?.get())
}

/// Waits until a file of a cgroup holds a value.
fn await_file(agent: &Agent, cgroup: &TestCgroup, controller: &str, file: &str, value: &str) -> Result<()> {
    let mut last = None;
    let found = wait::until(&format!("{file} to be {value}"), wait::PATIENCE, || {
        last = cgroup.read(controller, file).ok();
        Ok((last.as_deref() == Some(value)).then_some(()))
    });
    found.with_context(|| format!("it is {last:?}\n{}", agent.log_end()))
}

/// Directory of a cgroup in the cpuset hierarchy, made with all CPUs where it is one of v1's, in which the fixture's
/// cgroups are not.
fn cpuset(cgroup: &TestCgroup) -> Result<PathBuf> {
    if cgroup.is_v2() {
        return cgroup.directory("memory");
    }
    let mut at = PathBuf::from("/sys/fs/cgroup/cpuset");
    for part in cgroup.path().split('/').filter(|part| !part.is_empty()) {
        let above = at.clone();
        at.push(part);
        std::fs::create_dir_all(&at).with_context(|| format!("cannot make {}", at.display()))?;
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let value = std::fs::read_to_string(above.join(file))?;
            std::fs::write(at.join(file), value.trim())?;
        }
    }
    Ok(at)
}

fn move_to(directory: &Path, pid: Pid) -> Result<()> {
    std::fs::write(directory.join("cgroup.procs"), pid.to_string()).context("cannot move a process")
}

/// CPUs a process may run on, as the kernel tells.
fn allowed(pid: Pid) -> Result<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    Ok(line.context("no list of CPUs")?.trim().to_string())
}

/// Who requests a whole core gets one, and nobody else runs there, until it is put back.
pub(crate) fn a_whole_core_is_its_own() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    require!(cpus()? > 1, "there is one CPU, and somebody has to be left with one");
    let mut site = Site::new()?.with(|agent| agent.set("cpu.exclusive_cores", "true"));
    let site_has = Path::new("/sys/fs/cgroup/cpuset").exists() || site.tree().group("")?.is_v2();
    require!(site_has, "this machine has no cpuset controller");
    let mut pids = Vec::new();
    for name in ["whole", "shared"] {
        let (cgroup, pid) = site.sleeper(name)?;
        if !cgroup.is_v2() {
            move_to(&cpuset(&cgroup)?, pid)?;
        }
        pids.push((cgroup, pid));
    }
    let all = allowed(pids[0].1)?;
    site.bind(&Manifest::guaranteed("whole", &pids[0].0.path(), "1", "64Mi"))?;
    site.bind(&Manifest::best_effort("shared", &pids[1].0.path()))?;
    let agent = site.start()?;
    let lists = wait::until("a core of its own", wait::PATIENCE, || {
        let now = [allowed(pids[0].1)?, allowed(pids[1].1)?];
        Ok((now[0].parse::<u32>().is_ok() && now[1] != all).then_some(now))
    })
    .with_context(|| agent.log_end())?;
    let own: u32 = lists[0].parse()?;
    let others = cpu_list(&lists[1])?;
    ensure!(!others.contains(&own) && !others.is_empty(), "CPU {own} is shared: {lists:?}");
    figures::show(&format!("exclusive cores: CPU {own} of {all}, {} for the others", lists[1]));
    agent.stop()?;
    let restored = site.agent.run(&["restore"])?;
    ensure!(restored.status == Some(0), "{}", restored.said());
    for (_, pid) in &pids {
        ensure!(allowed(*pid)? == all, "it may run on {}: {}", allowed(*pid)?, restored.said());
    }
    for (cgroup, pid) in &pids {
        if !cgroup.is_v2() {
            move_to(Path::new("/sys/fs/cgroup/cpuset"), *pid)?;
        }
    }
    Ok(())
}

/// A list of CPUs as the kernel writes it: `0-2,5`.
fn cpu_list(text: &str) -> Result<Vec<u32>> {
    let mut all = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        all.extend(from.parse::<u32>()?..=to.parse::<u32>()?);
    }
    Ok(all)
}

/// Containers of an owned subtree, so that they compete with each other alone.
fn owned(site: Site) -> Result<Site> {
    let own = site.tree().group("own")?.path();
    Ok(site.with(|agent| agent.set("own", &format!("[{own:?}]"))))
}

/// A BestEffort container runs when nobody else wants to.
pub(crate) fn an_idle_container_runs_when_nobody_else_wants_to() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let site = Site::new()?
        .with(|agent| agent.set("cpu.idle_best_effort", "true").set("starvation.enabled", "false"));
    let mut site = owned(site)?;
    let idle = site.tree().group("own/idle")?;
    require!(idle.read("cpu", "cpu.idle").is_ok(), "this kernel has no cpu.idle");
    let busy = site.tree().group("own/busy")?;
    site.bind(&Manifest::best_effort("idle", &idle.path()))?;
    site.bind(&Manifest::burstable("busy", &busy.path(), "100m", "16Mi"))?;
    for cgroup in [&idle, &busy] {
        site.run(cgroup, &["burn-on", "0"])?;
    }
    let agent = site.start()?;
    await_file(&agent, &idle, "cpu", "cpu.idle", "1")?;
    ensure!(busy.read("cpu", "cpu.idle")? == "0", "a Burstable container is idle");
    let before = [idle.cpu_usec()?, busy.cpu_usec()?];
    let used = wait::until("CPU time to be used", 5 * wait::PATIENCE, || {
        let used = [idle.cpu_usec()? - before[0], busy.cpu_usec()? - before[1]];
        Ok((used[0] + used[1] > 2_000_000).then_some(used))
    })?;
    let part = 100.0 * used[0] as f64 / (used[0] + used[1]) as f64;
    figures::show(&format!("cpu.idle: {part:.2} % of the CPU time of both beside 100m"));
    // A weight of 3 beside 1024 shares or a weight of 100: kernel/sched/sched.h, WEIGHT_IDLEPRIO.
    ensure!(part < 5.0, "the idle one had {part:.1} %");
    agent.stop()?;
    let restored = site.agent.run(&["restore"])?;
    ensure!(restored.status == Some(0), "{}", restored.said());
    ensure!(idle.read("cpu", "cpu.idle")? == "0", "{}", restored.said());
    Ok(())
}

/// Who is most over its request goes first, and no longer once it is not.
pub(crate) fn dynamic_scores_follow_use_over_request() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?.with(|agent| agent.set("scores", "\"dynamic\""));
    let mut pids = Vec::new();
    for (name, request, holds) in
        [("worst", "8Mi", "96Mi"), ("over", "8Mi", "24Mi"), ("within", "512Mi", "24Mi")]
    {
        let (cgroup, pid) = site.sleeper(name)?;
        site.bind(&Manifest::burstable(name, &cgroup.path(), "100m", request))?;
        let held = site.run_heard(&cgroup, &["hold", holds])?;
        ensure!(held.await_word_or_end("holding")?, "{name} did not start");
        pids.push((pid, held.pid));
    }
    let agent = site.start()?;
    let scores = || -> Result<Vec<i32>> { pids.iter().map(|(pid, _)| score(*pid)).collect() };
    let ranked = wait::until("the worst to be first", wait::PATIENCE, || {
        let now = scores()?;
        Ok((now[0] >= 950 && now[0] > now[1] && now[1] > now[2] && now[2] < 900).then_some(now))
    });
    let before = ranked.with_context(|| format!("{:?}\n{}", scores().ok(), agent.log_end()))?;
    // What it had too much goes, and with it its place.
    site.end(pids[0].1)?;
    let after = wait::until("the other to be first", wait::PATIENCE, || {
        let now = scores()?;
        Ok((now[0] < 900 && now[1] >= 950).then_some(now))
    });
    let after = after.with_context(|| format!("{:?}\n{}", scores().ok(), agent.log_end()))?;
    figures::show(&format!(
        "dynamic scores: worst, over, within: {before:?}; the worst gave back: {after:?}"
    ));
    agent.stop()
}

/// Decisions about the CPU of a pod: kind, value, result.
fn told(agent: &Agent, pod: &str) -> Result<Vec<(String, String, String)>> {
    let pod = format!("default/{pod}");
    let cpu = |d: &Decision| d.knob.as_deref().is_some_and(|knob| knob.starts_with("cpu"));
    let steps = ["relieve", "release", "starved"];
    let all =
        agent.ask().decisions()?.into_iter().filter(|d| d.pod.as_deref() == Some(pod.as_str()) && cpu(d));
    let all = all.filter(|d| steps.contains(&d.kind.as_str()));
    Ok(all.map(|d| (d.kind, d.new.unwrap_or_default(), d.result)).collect())
}

/// Whoever does not get the CPU it requested is given it: the one that has it is squeezed, step by step, none of which
/// the kernel refuses, and let go.
pub(crate) fn who_starves_is_given_its_cpu_and_who_had_it_is_let_go() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let keys = [
        ("starvation.after", "\"2s\""),
        ("starvation.dwell", "\"1s\""),
        ("starvation.busy_percent", "80"),
        ("pressure.enabled", "false"),
    ];
    let mut site =
        Site::new()?.with(|agent| keys.iter().fold(agent, |agent, (key, value)| agent.set(key, value)));
    let cpus = cpus()?;
    // In cgroups of equal weight side by side, so that each gets half, whatever weight it has within.
    let hungry = site.tree().group("left/hungry")?;
    let greedy = site.tree().group("right/greedy")?;
    site.bind(&Manifest::burstable("hungry", &hungry.path(), &format!("{}m", 900 * cpus), "16Mi"))?;
    site.bind(&Manifest::best_effort("greedy", &greedy.path()))?;
    let burn = (1000 * cpus).to_string();
    let eater = site.run(&hungry, &["burn", &burn])?;
    site.run(&greedy, &["burn", &burn])?;
    let quota = if greedy.is_v2() { "cpu.max" } else { "cpu.cfs_quota_us" };
    let before = greedy.read("cpu", quota)?;
    // First its own pod's quota keeps it from what it requested: that is nobody else's doing.
    let pod = site.tree().group("left")?;
    let (quota_file, little, none) = if pod.is_v2() {
        ("cpu.max", format!("{} 100000", 2000 * cpus), "max 100000")
    } else {
        ("cpu.cfs_quota_us", (2000 * cpus).to_string(), "-1")
    };
    pod.set("cpu", quota_file, &little)?;
    let agent = site.start()?;
    agent.await_container("hungry", "known", |_| true)?;
    let throttled = || pod.stat("cpu", "cpu.stat", "nr_throttled");
    let stopped = throttled()?;
    wait::until("the pod's quota to stop it for a while", 3 * wait::PATIENCE, || {
        let all = [told(&agent, "hungry")?, told(&agent, "greedy")?].concat();
        ensure!(all.is_empty(), "somebody is blamed for its own pod's quota: {all:?}");
        Ok((throttled()? - stopped > 60).then_some(()))
    })?;
    pod.set("cpu", quota_file, none)?;
    wait::until("a quota against the greedy one", 3 * wait::PATIENCE, || {
        Ok((greedy.read("cpu", quota)? != before).then_some(()))
    })
    .with_context(|| format!("{:?}\n{}", told(&agent, "greedy"), agent.log_end()))?;
    let starved = told(&agent, "hungry")?;
    ensure!(starved.iter().any(|(kind, value, _)| kind == "starved" && value == "starving"), "{starved:?}");
    let steps = told(&agent, "greedy")?;
    let refused =
        steps.iter().filter(|(.., result)| !["done", "unchanged"].contains(&result.as_str())).count();
    ensure!(refused == 0, "the kernel refused {refused}: {steps:?}");
    let values: Vec<&str> = steps.iter().map(|(_, value, _)| value.as_str()).collect();
    // It has the least weight already, and once it is idle none can be set.
    ensure!(values.iter().filter(|value| **value == "least-weight").count() <= 1, "{values:?}");
    ensure!(values.contains(&"idle") && values.iter().any(|value| value.ends_with('m')), "{values:?}");
    figures::show(&format!("starvation: {} of {} CPUs requested; steps {values:?}", 900 * cpus, 1000 * cpus));
    site.end(eater)?;
    wait::until("everything to be let go", 3 * wait::PATIENCE, || {
        let held = agent.ask().status()?.holds.len();
        Ok((held == 0 && greedy.read("cpu", quota)? == before).then_some(()))
    })
    .with_context(|| format!("{:?}\n{}", told(&agent, "greedy"), agent.log_end()))?;
    if let Ok(idle) = greedy.read("cpu", "cpu.idle") {
        ensure!(idle == "0", "it is still idle");
    }
    agent.stop()
}
