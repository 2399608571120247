//! What the agent leaves alone: opted out, excluded, denied, unknown. All of it is sampled and shown with the reason.

use anyhow::{Context, Result};
use evenkeel_proto::v1::{ContainerStatus, ConvergeState};
use evenkeel_tests::cgroups::TestCgroup;
use evenkeel_tests::processes::score;
use evenkeel_tests::product::{Agent, Manifest, Site};
use evenkeel_tests::{machine, require, wait};
use nix::unistd::Pid;

/// A container id no other test has.
fn docker_id() -> String {
    format!("{:064x}", std::process::id())
}

fn untouched(cgroup: &TestCgroup, pid: Pid) -> Result<()> {
    assert_eq!(score(pid)?, 0, "{}", cgroup.path());
    let (file, usual) = if cgroup.is_v2() { ("cpu.weight", "100") } else { ("cpu.shares", "1024") };
    assert_eq!(cgroup.read("cpu", file)?, usual, "{}", cgroup.path());
    Ok(())
}

/// Waits until a container is known and left alone for a reason.
fn left_alone(agent: &Agent, pod: &str, because: &str) -> Result<ContainerStatus> {
    agent.await_container(pod, "left alone", |c| !c.managed && c.why.contains(because))
}

#[test]
fn what_is_not_ours_to_write_is_sampled_and_says_why() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let (ours, our_process) = site.sleeper("ours")?;
    let (opted, opted_process) = site.sleeper("opted-out")?;
    let (system, system_process) = site.sleeper("system")?;
    let (denied, denied_process) = site.sleeper("denied")?;
    let docker = site.tree().group(&format!("docker-{}.scope", docker_id()))?;
    let docker_process = site.run(&docker, &["sleep"])?;
    site.bind(&Manifest::best_effort("ours", &ours.path()))?;
    site.bind(&Manifest::best_effort("opted-out", &opted.path()).annotation("evenkeel.dev/manage", "false"))?;
    site.bind(&Manifest::best_effort("system", &system.path()).namespace("kube-system"))?;
    site.bind(&Manifest::best_effort("denied", &denied.path()))?;
    let site = site.with(|agent| agent.set("manage.deny", &format!("[{:?}]", denied.path())));
    let agent = site.start()?;

    agent.await_state("ours", ConvergeState::Converged)?;
    assert_eq!(score(our_process)?, 1000);
    left_alone(&agent, "opted-out", "evenkeel.dev/manage")?;
    left_alone(&agent, "system", "kube-system")?;
    left_alone(&agent, "denied", "manage.deny")?;
    let named = |c: &ContainerStatus| c.cgroup == docker.path();
    let status =
        agent.await_status("the docker container to be found", |s| s.containers.iter().any(named))?;
    let found = status.containers.iter().find(|c| named(c)).context("it was there")?;
    assert_eq!((found.state(), found.source.as_str()), (ConvergeState::Unclassified, "names"), "{found:#?}");

    // All of them have been looked at by two samples, and nothing was written.
    wait::until("every container to be sampled", wait::PATIENCE, || {
        let ticks = agent.ask().usage(2)?;
        let sampled = |cgroup: &TestCgroup, pod: &str| {
            ticks.last().is_some_and(|tick| {
                tick.iter().any(|usage| {
                    usage.identity.as_ref().is_some_and(|i| i.pod == pod || docker_id().starts_with(&i.pod))
                        && usage.sample.as_ref().is_some_and(|s| s.memory_current_bytes.is_some())
                        && !cgroup.path().is_empty()
                })
            })
        };
        let all = [(&ours, "ours"), (&opted, "opted-out"), (&system, "system"), (&denied, "denied")];
        Ok(all.iter().all(|(cgroup, pod)| sampled(cgroup, pod)).then_some(()))
    })?;
    for (cgroup, pid) in [
        (&opted, opted_process),
        (&system, system_process),
        (&denied, denied_process),
        (&docker, docker_process),
    ] {
        untouched(cgroup, pid)?;
    }
    agent.stop()
}

#[test]
fn a_manifest_names_a_container_found_by_its_cgroup() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut site = Site::new()?;
    let id = format!("{:032x}{:032x}", std::process::id(), 1);
    let docker = site.tree().group(&format!("docker-{id}.scope"))?;
    let pid = site.run(&docker, &["sleep"])?;
    let agent = site.start()?;
    site.bind(&Manifest::best_effort("web", &format!("docker://{id}")))?;
    agent.await_state("web", ConvergeState::Converged)?;
    assert_eq!(score(pid)?, 1000);
    agent.stop()
}

#[test]
fn a_directory_that_a_user_made_is_no_container() -> Result<()> {
    require!(machine::is_root(), "giving cgroups away needs root");
    let mut site = Site::new()?;
    let id = format!("{:032x}{:032x}", std::process::id(), 2);
    // A subtree that was given to a user, who makes a directory named as the container a manifest binds.
    let given = site.tree().group(&format!("given/docker-{id}.scope"))?;
    for directory in given.directories() {
        std::os::unix::fs::chown(&directory, Some(65534), None)?;
    }
    let evil = site.run(&given, &["sleep"])?;
    let agent = site.start()?;
    let resources = serde_json::json!({ "requests": { "memory": "1Gi" }, "limits": { "memory": "1Gi" } });
    site.bind(&Manifest::new("web", &format!("docker://{id}"), &resources))?;
    agent.await_status("the manifest to be refused", |status| {
        status
            .sources
            .iter()
            .any(|s| s.name == "manifests" && s.why.contains("no cgroup of a docker container"))
    })?;
    let followed = |agent: &Agent| -> Result<bool> {
        Ok(agent.ask().status()?.containers.iter().any(|c| c.cgroup.contains(&id)))
    };
    assert!(!followed(&agent)?);
    assert_eq!(score(evil)?, 0);
    // The real one starts, and is the one that is meant.
    let real = site.tree().group(&format!("docker-{id}.scope"))?;
    let pid = site.run(&real, &["sleep"])?;
    let web = agent.await_settled("web")?;
    assert_eq!(web.cgroup, real.path());
    assert!(score(pid)? == -999 || !machine::may_lower_scores());
    assert_eq!(score(evil)?, 0);
    agent.stop()
}
