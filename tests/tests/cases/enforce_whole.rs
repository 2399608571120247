//! Whole containers: what goes with a process that the OOM killer takes, on whatever kernel this runs.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::Decision;
use evenkeel_tests::cgroups::Tier;
use evenkeel_tests::processes::is_alive;
use evenkeel_tests::product::{Manifest, Site};
use evenkeel_tests::{figures, machine, places, require, wait};
use serde_json::json;

/// Two processes, one of which runs into its container's limit: both go where that is asked for, one where it is not.
pub(crate) fn a_container_that_loses_one_process_is_gone_as_a_whole_when_asked() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?.with(|agent| agent.set("pressure.enabled", "false"));
    let agent = site.start()?;
    let rounds = machine::scaled(5, 20);
    for (wish, whole) in [("container", true), ("process", false)] {
        let mut gone = 0;
        for round in 0..rounds {
            let name = format!("{wish}-{round}");
            let cgroup = site.tree().container(Tier::Burstable, &name, "main")?;
            let asked = json!({"requests": {"memory": "8Mi"}, "limits": {"memory": "32Mi"}});
            let family = Manifest::new(&name, &cgroup.path(), &asked);
            site.bind(&family.annotation("evenkeel.dev/oom-kill", wish))?;
            let parent = site.run(&cgroup, &["sleep"])?;
            agent.await_settled(&name)?;
            let mut shell = Command::new("/bin/sh");
            let workload = places::program("evenkeel-workload")?;
            shell.args(["-c", &format!("{} hold 64Mi; exec sleep 1000000", workload.display())]);
            site.spawn(&cgroup, &shell)?;
            wait::until_true("the OOM killer", || cgroup.oom_kills().is_ok_and(|kills| kills > 0))?;
            if whole {
                let left =
                    || cgroup.processes().map(|all| all.into_iter().filter(|pid| is_alive(*pid)).count());
                wait::until(
                    "all of the container to go",
                    wait::PATIENCE,
                    || Ok((left()? == 0).then_some(())),
                )
                .with_context(|| format!("round {round}; the agent's log:\n{}", agent.log_end()))?;
            } else {
                // The shell goes on after its child, and the agent has told of the kill: nothing more will come.
                wait::until_true("the shell to go on", || {
                    cgroup.processes().is_ok_and(|all| all.iter().any(|pid| name_of(*pid) == "sleep"))
                })?;
                wait::until("the agent to tell of it", wait::PATIENCE, || {
                    let told = agent.ask().decisions()?;
                    let pod = format!("default/{name}");
                    let of_pod =
                        |d: &Decision| d.kind == "oom-kill" && d.pod.as_deref() == Some(pod.as_str());
                    Ok(told.iter().any(of_pod).then_some(()))
                })?;
            }
            gone += u32::from(!is_alive(parent));
            cgroup.remove()?;
            site.unbind(&name)?;
        }
        let expected = if whole { rounds } else { 0 };
        figures::show(&format!("oom-kill = {wish}: whole container gone in {gone} of {rounds}"));
        ensure!(gone == expected, "oom-kill = {wish}: {gone} of {rounds} containers went as a whole");
    }
    agent.stop()
}

fn name_of(pid: nix::unistd::Pid) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_string()
}
