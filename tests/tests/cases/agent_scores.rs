//! What the agent makes of processes and knobs, on whatever kernel this runs: the machine's own, or a guest's.

use std::process::Command;

use anyhow::{Context, Result};
use evenkeel_proto::v1::{ContainerStatus, ConvergeState, KnobValue};
use evenkeel_tests::cgroups::TestCgroup;
use evenkeel_tests::processes::{memory_total, score, set_score};
use evenkeel_tests::product::{Agent, Manifest, Site, await_score, scores};
use evenkeel_tests::{machine, require, wait};

const MIB: u64 = 1 << 20;

/// The proposal's score of a container that requests memory without an equal limit.
fn burstable(request_bytes: u64) -> Result<i32> {
    let part = 1000 * request_bytes / memory_total()?;
    Ok(i32::try_from(1000 - part)?.max(2))
}

fn knob<'a>(container: &'a ContainerStatus, name: &str) -> Result<&'a KnobValue> {
    let found = container.knobs.iter().find(|knob| knob.name == name);
    found.with_context(|| format!("no {name} in {container:#?}"))
}

/// Name, wish for these shares and present value of the CPU knob this kernel has.
fn cpu(cgroup: &TestCgroup, shares: u64) -> Result<(&'static str, String, String)> {
    if cgroup.is_v2() {
        // KEP-2254's line, which the agents of these tests are told to use.
        let weight = 1 + (shares - 2) * 9999 / 262_142;
        return Ok(("cpu.weight", weight.to_string(), cgroup.read("cpu", "cpu.weight")?));
    }
    Ok(("cpu.shares", shares.to_string(), cgroup.read("cpu", "cpu.shares")?))
}

fn linear(site: Site) -> Site {
    site.with(|agent| agent.set("cpu.weight_conversion", "\"linear\""))
}

/// Asserts that a container is verified and that the kernel says the same. A cgroup is right before its first process is in
/// it, and on v1 before it is made in every hierarchy: that is waited for.
fn assert_settled(agent: &Agent, pod: &str, cgroup: &TestCgroup, wanted: i32, shares: u64) -> Result<()> {
    let (name, weight, _) = cpu(cgroup, shares)?;
    let all = u32::try_from(scores(cgroup)?.len())?;
    let is_settled = |c: &ContainerStatus| {
        let is_set = |knob: &KnobValue| knob.name == name && knob.actual.as_ref() == Some(&weight);
        c.state() == ConvergeState::Converged && c.processes == all && c.knobs.iter().any(is_set)
    };
    let container = agent.await_container(pod, &format!("settled with {all} processes"), is_settled)?;
    let found = scores(cgroup)?;
    assert!(!found.is_empty() && found.iter().all(|(_, score)| *score == wanted), "{pod}: {found:?}");
    let of_score = knob(&container, "oom_score_adj")?;
    assert_eq!(
        (of_score.wanted.clone(), of_score.actual.clone()),
        (Some(wanted.to_string()), Some(wanted.to_string()))
    );
    assert_eq!(cpu(cgroup, shares)?.2, weight, "{pod}");
    assert!(container.managed && container.verified_at_usec > 0, "{container:#?}");
    Ok(())
}

pub(crate) fn every_process_gets_its_containers_score_and_every_cgroup_its_share() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = linear(Site::new()?);
    let family = site.cgroup("family")?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "sleep 1000000 & sleep 1000000 & wait"]);
    site.spawn(&family, &shell)?;
    let (nested, _) = site.sleeper("nested")?;
    let inner = site.run(&nested, &["sleep"])?;
    nested.nest("inner", inner)?;
    let (idle, _) = site.sleeper("idle")?;
    let tiny = site.sleeper("tiny")?.0;
    wait::until_true("the family to be three", || family.processes().is_ok_and(|all| all.len() == 3))?;
    let quarter = memory_total()? / 4 / MIB;
    site.bind(&Manifest::burstable("family", &family.path(), "500m", &format!("{quarter}Mi")))?;
    site.bind(&Manifest::burstable("nested", &nested.path(), "1500m", "100Mi"))?;
    site.bind(&Manifest::burstable("tiny", &tiny.path(), "1m", "1"))?;
    site.bind(&Manifest::best_effort("idle", &idle.path()))?;
    let agent = site.start()?;
    assert_settled(&agent, "family", &family, burstable(quarter * MIB)?, 512)?;
    assert_settled(&agent, "nested", &nested, burstable(100 * MIB)?, 1536)?;
    assert_settled(&agent, "tiny", &tiny, 1000, 2)?;
    assert_settled(&agent, "idle", &idle, 1000, 2)?;
    assert_eq!(score(inner)?, burstable(100 * MIB)?);
    agent.stop()
}

pub(crate) fn a_guaranteed_container_is_protected_or_its_denial_is_told_once() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = linear(Site::new()?);
    let (safe, pid) = site.sleeper("safe")?;
    let (other, _) = site.sleeper("other")?;
    site.bind(&Manifest::guaranteed("safe", &safe.path(), "250m", "64Mi"))?;
    site.bind(&Manifest::best_effort("other", &other.path()))?;
    let agent = site.start()?;
    assert_settled(&agent, "other", &other, 1000, 2)?;
    if machine::may_lower_scores() {
        assert_settled(&agent, "safe", &safe, -999, 256)?;
        return agent.stop();
    }
    let denied = agent.await_state("safe", ConvergeState::Denied)?;
    let of_score = knob(&denied, "oom_score_adj")?;
    assert_eq!((of_score.wanted.as_deref(), of_score.state()), (Some("-999"), ConvergeState::Denied));
    assert!(of_score.reason.contains("CAP_SYS_RESOURCE"), "{}", of_score.reason);
    let (name, weight, actual) = cpu(&safe, 256)?;
    // The weight is what it should be; alone in its pod, the container has nobody to compete with.
    assert_eq!((&actual, knob(&denied, name)?.state()), (&weight, ConvergeState::Ineffective));
    assert_eq!(score(pid)?, 0);

    // Two audits later it has still been told once, and the node says how to change it.
    let mut verified = agent.await_state("other", ConvergeState::Converged)?.verified_at_usec;
    for _ in 0..2 {
        let later = |c: &ContainerStatus| c.verified_at_usec > verified;
        verified = agent.await_container("other", "audited again", later)?.verified_at_usec;
    }
    let decisions = agent.ask().decisions()?;
    let told: Vec<_> =
        decisions.iter().filter(|d| d.kind == "denied" && d.pod.as_deref() == Some("default/safe")).collect();
    assert_eq!(told.len(), 1, "{told:#?}");
    assert_eq!((told[0].knob.as_deref(), told[0].new.as_deref()), (Some("oom_score_adj"), Some("-999")));
    let status = agent.ask().status()?;
    let of_node = status.knobs.iter().find(|knob| knob.name == "oom_score_adj").context("no such knob")?;
    assert!(of_node.state == "denied" && of_node.remedy.contains("CAP_SYS_RESOURCE"), "{of_node:?}");
    agent.stop()
}

pub(crate) fn a_process_moved_in_and_a_knob_changed_become_right_again() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = linear(Site::new()?);
    let (cgroup, _) = site.sleeper("web")?;
    let elsewhere = site.sleeper("elsewhere")?.1;
    set_score(elsewhere, 300)?;
    site.bind(&Manifest::burstable("web", &cgroup.path(), "100m", "64Mi"))?;
    let agent = site.start()?;
    agent.await_state("web", ConvergeState::Converged)?;
    cgroup.attach(elsewhere)?;
    await_score(elsewhere, burstable(64 * MIB)?)?;
    let (name, weight, _) = cpu(&cgroup, 102)?;
    cgroup.set("cpu", name, "777")?;
    wait::until_true("the knob to be put back", || cgroup.read("cpu", name).is_ok_and(|now| now == weight))?;
    agent.stop()
}

/// As a runtime does it for an exec probe: a process joins the cgroup and becomes its program. The audit is an hour off.
pub(crate) fn a_process_that_joins_is_right_as_soon_as_the_kernel_tells() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?.with(|agent| agent.set("converge.audit_period", "\"1h\""));
    let (cgroup, _) = site.sleeper("web")?;
    site.bind(&Manifest::best_effort("web", &cgroup.path()))?;
    let agent = site.start()?;
    agent.await_state("web", ConvergeState::Converged)?;
    let wake = agent.ask().status()?.wake.context("no wake in the status")?;
    require!(wake.process_events, format!("the kernel gives no process events: {}", wake.why));
    let joined = site.run(&cgroup, &["sleep"])?;
    await_score(joined, 1000)?;
    agent.await_container("web", "verified with both", |c| c.processes == 2)?;
    agent.stop()
}

pub(crate) fn a_self_raised_score_is_respected_unless_pinned() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (free, chooser) = site.sleeper("free")?;
    let (fixed, pinned) = site.sleeper("fixed")?;
    let of = |name: &str, cgroup: &TestCgroup| Manifest::burstable(name, &cgroup.path(), "100m", "256Mi");
    site.bind(&of("free", &free))?;
    site.bind(&of("fixed", &fixed).annotation("evenkeel.dev/score", "pin"))?;
    let agent = site.start()?;
    let target = burstable(256 * MIB)?;
    agent.await_state("free", ConvergeState::Converged)?;
    agent.await_state("fixed", ConvergeState::Converged)?;
    set_score(chooser, 1000)?;
    set_score(pinned, 1000)?;
    await_score(pinned, target)?;
    let seen = agent.await_state("free", ConvergeState::Converged)?.verified_at_usec;
    agent.await_container("free", "audited again", |c| c.verified_at_usec > seen)?;
    assert_eq!(score(chooser)?, 1000);
    // Below the target nobody may be.
    set_score(chooser, 0)?;
    await_score(chooser, target)?;
    agent.stop()
}

/// The three shapes in which lineages outrun whoever writes to their processes one by one.
pub(crate) fn no_live_process_is_wrong_once_converged_under_fork_churn() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let agent = site.start()?;
    let target = burstable(64 * MIB)?;
    let trials = if machine::is_emulated() { 2 } else { machine::scaled(10, 350) };
    for shape in [["workers", "20"], ["chains", "1"], ["chains", "32"]] {
        for trial in 0..trials {
            let name = format!("{}-{}-{trial}", shape[0], shape[1]);
            let cgroup = site.cgroup(&name)?;
            let churn = site.run(&cgroup, &["fork-churn", shape[0], shape[1]])?;
            let mut seen = std::collections::BTreeSet::new();
            wait::until(&format!("{name} to fork"), wait::PATIENCE, || {
                seen.extend(cgroup.processes()?);
                Ok((seen.len() > 10).then_some(()))
            })?;
            site.bind(&Manifest::burstable(&name, &cgroup.path(), "100m", "64Mi"))?;
            agent.await_state(&name, ConvergeState::Converged)?;
            let wrong: Vec<_> = scores(&cgroup)?.into_iter().filter(|(_, score)| *score != target).collect();
            assert!(wrong.is_empty(), "{name}: {wrong:?}");
            site.end(churn)?;
            cgroup.remove()?;
        }
    }
    agent.stop()
}

pub(crate) fn a_changed_manifest_is_a_new_generation_and_a_vanished_cgroup_is_gone() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = linear(Site::new()?);
    let (cgroup, pid) = site.sleeper("web")?;
    site.bind(&Manifest::burstable("web", &cgroup.path(), "100m", "64Mi"))?;
    let agent = site.start()?;
    let first = agent.await_state("web", ConvergeState::Converged)?;
    let half = memory_total()? / 2 / MIB;
    site.bind(&Manifest::burstable("web", &cgroup.path(), "200m", &format!("{half}Mi")))?;
    let is_next =
        |c: &ContainerStatus| c.generation > first.generation && c.state() == ConvergeState::Converged;
    agent.await_container("web", "converged to its new wish", is_next)?;
    assert_settled(&agent, "web", &cgroup, burstable(half * MIB)?, 204)?;

    site.end(pid)?;
    cgroup.remove()?;
    wait::until("the container to be gone", wait::PATIENCE, || {
        Ok(agent.container("web")?.is_none().then_some(()))
    })?;
    let decisions = agent.ask().decisions()?;
    let kinds: Vec<&str> = decisions
        .iter()
        .filter(|d| d.pod.as_deref() == Some("default/web"))
        .map(|d| d.kind.as_str())
        .collect();
    for kind in ["found", "classified", "set", "converged", "gone"] {
        assert!(kinds.contains(&kind), "no {kind} in {kinds:?}");
    }
    // The same path again is another cgroup, and another container.
    let (again, _) = site.sleeper("web")?;
    assert_settled(&agent, "web", &again, burstable(half * MIB)?, 204)?;
    agent.stop()
}
