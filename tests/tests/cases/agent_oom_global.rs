//! A machine that runs out of memory: only for guests, since the OOM killer takes whom it likes.

use anyhow::{Context, Result, ensure};
use evenkeel_tests::product::{Manifest, Site};
use evenkeel_tests::wait;

pub(crate) fn a_kill_for_want_of_the_machines_memory_is_told_as_such() -> Result<()> {
    // The loop against pressure would step in before the OOM killer does.
    let mut site = Site::new()?.with(|agent| agent.set("pressure.enabled", "false"));
    let (cgroup, _) = site.sleeper("hog")?;
    site.bind(&Manifest::best_effort("hog", &cgroup.path()))?;
    let agent = site.start()?;
    agent.await_container("hog", "known and sampled", |c| c.usage.is_some())?;
    let hog = site.run_heard(&cgroup, &["hold", "100%"])?;
    // All of an emulated machine's memory takes its time to be touched.
    wait::until("the machine to run out of memory", wait::PATIENCE * 5, || {
        Ok((!hog.is_alive() || hog.said().contains("holding")).then_some(()))
    })?;
    ensure!(!hog.is_alive(), "the machine has more memory than it has");
    let kill = wait::until("the kill to be told", wait::PATIENCE, || Ok(agent.ask().oom_kills("hog")?.pop()))
        .with_context(|| agent.log_end())?;
    let told = |name: &str| kill.inputs.get(name).map(String::as_str);
    ensure!(told("constraint") == Some("global") && told("limit_bytes") == Some("max"), "{kill:#?}");
    ensure!(told("victim_pid") == Some(hog.pid.to_string().as_str()), "{kill:#?}");
    ensure!(told("oom_score_adj") == Some("1000") && told("class") == Some("BestEffort"), "{kill:#?}");
    ensure!(kill.reason.contains("the machine ran out of memory"), "{}", kill.reason);
    let offers = agent.ask().offers("hog", false)?;
    ensure!(offers.len() == 1 && offers[0].action == "evict", "{offers:#?}");
    agent.stop()
}
