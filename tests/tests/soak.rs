//! Suite `soak`: the same thing many times, for what only shows then. `EVENKEEL_FULL=1` makes it many times more.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use evenkeel_tests::cgroups::{CgroupTree, Tier};
use evenkeel_tests::product::{Manifest, Site};
use evenkeel_tests::{figures, machine, places, require, wait};

#[test]
fn trees_full_of_forking_processes_are_removed_every_time() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    for round in 0..machine::scaled(5, 200) {
        let mut tree = CgroupTree::new()?;
        let cgroup = tree.container(Tier::BestEffort, "0001", &format!("c{round}"))?;
        let mut churn = Command::new(places::program("evenkeel-workload")?);
        tree.spawn(&cgroup, churn.args(["fork-churn", "chains", "8"]))?;
        wait::until_true("the chains to run", || cgroup.processes().is_ok_and(|members| members.len() > 4))?;
        tree.remove()?;
    }
    Ok(())
}

/// What an agent has open, but for what has bounds of its own: segments of logs, and what is kept open of the container
/// that stays.
fn descriptors(pid: nix::unistd::Pid) -> Result<Vec<String>> {
    let path = format!("/proc/{pid}/fd");
    let all = std::fs::read_dir(&path).with_context(|| format!("cannot list {path}"))?;
    let open = all.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    let open = open.map(|what| what.display().to_string());
    Ok(open.filter(|what| !what.ends_with(".seg") && !what.contains("/podquiet/")).collect())
}

/// A hundred containers a second come, are found, and go.
#[test]
fn containers_that_come_and_go_leave_no_descriptor_behind() -> Result<()> {
    const PER_SECOND: u32 = 100;
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (quiet, _) = site.sleeper("quiet")?;
    site.bind(&Manifest::burstable("quiet", &quiet.path(), "100m", "64Mi"))?;
    let names: Vec<String> = (0..PER_SECOND).map(|number| format!("fly-{number}")).collect();
    for name in &names {
        let path = format!("{}/{}/main", site.tree().path(), Tier::BestEffort.pod_path(name));
        site.bind(&Manifest::best_effort(name, &path))?;
    }
    let agent = site.start()?;
    agent.await_settled("quiet")?;
    let pid = agent.daemon().pid()?;
    let settle = || -> Result<Vec<String>> {
        wait::until("the agent to know none of those that come and go", wait::PATIENCE, || {
            // Others may run on this machine.
            let known = agent.ask().status()?.containers;
            Ok((!known.iter().filter_map(|c| c.identity.as_ref()).any(|c| c.pod.starts_with("fly-")))
                .then_some(()))
        })?;
        descriptors(pid)
    };
    // What the first of them makes the agent open for good is no loss.
    let first = site.tree().container(Tier::BestEffort, &names[0], "main")?;
    agent.await_container(&names[0], "known", |_| true)?;
    first.remove()?;
    let before = settle()?;
    let (start, time) = (Instant::now(), Duration::from_secs(machine::scaled(20, 180)));
    let (mut made, mut most) = (0_u32, 0);
    while start.elapsed() < time {
        let mut alive = Vec::new();
        for (index, name) in names.iter().enumerate() {
            alive.push(site.tree().container(Tier::BestEffort, name, "main")?);
            made += 1;
            // Half live for the time it takes to make ten others, half go at once.
            if index % 2 == 0 || alive.len() > 10 {
                alive.remove(0).remove()?;
            }
            if let Some(early) =
                (start + made * Duration::from_secs(1) / PER_SECOND).checked_duration_since(Instant::now())
            {
                std::thread::sleep(early);
            }
        }
        most = most.max(descriptors(pid)?.len());
        for cgroup in alive {
            cgroup.remove()?;
        }
    }
    let rate = f64::from(made) / start.elapsed().as_secs_f64();
    let mut after = settle()?;
    // A connection that was just closed may still be counted.
    let back = wait::until("the descriptors to be as many as before", wait::PATIENCE, || {
        after = descriptors(pid)?;
        Ok((after.len() <= before.len()).then_some(()))
    });
    figures::show(&format!(
        "coming and going: {made} containers, {rate:.0} a second; {} descriptors before, {most} at most, {} after",
        before.len(),
        after.len()
    ));
    back.with_context(|| format!("open before: {before:#?}\nand after: {after:#?}"))?;
    agent.stop()
}
