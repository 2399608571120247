//! The runtime source against a scripted runtime: how soon a container is known, what a container that cannot be asked
//! about costs the others, and what a runtime's and a pod's words can do.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use evenkeel_proto::v1::{ConvergeState, GetStatusResponse};
use evenkeel_tests::cgroups::{TestCgroup, Tier};
use evenkeel_tests::processes::score;
use evenkeel_tests::product::{Agent, Site, await_score};
use evenkeel_tests::runtime::scripted::{Events, Manner, Scripted, Told};
use evenkeel_tests::stalls::Stalls;
use evenkeel_tests::{machine, require, wait};
use nix::unistd::Pid;
use tonic::Code;

/// A new container is to be known within this of being listed.
const KNOWN_WITHIN: Duration = Duration::from_secs(1);

/// A place, a runtime, and an agent that asks it.
struct Node {
    agent: Agent,
    runtime: Scripted,
    site: Site,
}

impl Node {
    fn start(events: Events) -> Result<Node> {
        Node::start_with(events, |_, _| Ok(()))
    }

    fn start_with(events: Events, first: impl Fn(&mut Site, &Scripted) -> Result<()>) -> Result<Node> {
        let site = Site::new()?;
        let runtime = Scripted::start(site.directory(), events)?;
        // Events alone must do: the audit comes once an hour.
        let mut site = site
            .with(|agent| agent.runtime(runtime.socket()).set("converge.audit_period", "\"1h\""))
            // Ids are invented here.
            .with_invented_ids();
        first(&mut site, &runtime)?;
        let agent = site.start()?;
        wait::until("the runtime to be listed", wait::PATIENCE, || Ok((runtime.lists() > 0).then_some(())))?;
        Ok(Node { agent, runtime, site })
    }

    /// How long after `listed` the agent knows the pod.
    fn known_after(&self, pod: &str, listed: Instant) -> Result<Duration> {
        wait::until(&format!("{pod} to be known"), wait::PATIENCE, || self.agent.container(pod))?;
        Ok(listed.elapsed())
    }

    /// Waits until the agent has told of all of these.
    fn await_told(&self, words: &[&str]) -> Result<()> {
        let told = |words: &&str| {
            let log = self.agent.daemon().log();
            log.lines().any(|line| line.contains(" WARN ") && line.contains(words))
        };
        let all = wait::until(&format!("{words:?} to be told"), wait::PATIENCE, || {
            Ok(words.iter().all(told).then_some(()))
        });
        all.with_context(|| self.agent.log_end())
    }

    fn best_effort(&mut self, pod: &str) -> Result<(TestCgroup, Pid)> {
        best_effort(&mut self.site, pod)
    }
}

/// A process in the cgroup of a BestEffort container.
fn best_effort(site: &mut Site, pod: &str) -> Result<(TestCgroup, Pid)> {
    let cgroup = site.tree().container(Tier::BestEffort, pod, "main")?;
    let pid = site.run(&cgroup, &["sleep"])?;
    Ok((cgroup, pid))
}

/// The source `cri` of a status.
fn source(status: &GetStatusResponse) -> Option<&evenkeel_proto::v1::SourceStatus> {
    status.sources.iter().find(|source| source.name == "cri")
}

#[test]
fn a_new_container_is_known_within_a_second_without_container_events() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let (mut node, stalls) = (Node::start(Events::Unimplemented)?, Stalls::watch());
    for round in 0..4 {
        // A pod of its own in a tier of its own: no neighbour's directory tells of it. The runtime lists it late, as one on
        // a loaded machine does.
        let pod = format!("slow-{round}");
        let tier = [Tier::Burstable, Tier::BestEffort, Tier::Guaranteed, Tier::BestEffort][round];
        let cgroup = node.site.tree().container(tier, &pod, "main")?;
        node.site.run(&cgroup, &["sleep"])?;
        let made = Instant::now();
        wait::until("the runtime to have started it", wait::PATIENCE, || {
            Ok((made.elapsed() >= Duration::from_millis(700)).then_some(()))
        })?;
        let listed = node.runtime.tell(Told::best_effort(&pod, &cgroup.path()));
        let after = node.known_after(&pod, listed)?;
        ensure!(
            after < stalls.allow(KNOWN_WITHIN),
            "{pod} was known after {after:?}\n{}",
            node.agent.log_end()
        );
    }
    ensure!(node.agent.daemon().log().contains("has no container events"), "{}", node.agent.log_end());
    ensure!(node.runtime.streams() == 1, "what is not there is asked for once");
    node.agent.stop()
}

#[test]
fn container_events_tell_of_a_new_container_in_every_way_runtimes_have_them() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    for events in [Events::SilentUntilFirst, Events::OpenAtOnce] {
        let pods = ["one", "two", "three", "four"];
        let mut node = Node::start_with(events, |site, _| {
            pods.iter().try_for_each(|pod| site.tree().container(Tier::BestEffort, pod, "main").map(drop))
        })?;
        wait::until("the events to be asked for", wait::PATIENCE, || {
            Ok((node.runtime.streams() > 0).then_some(()))
        })?;
        let stalls = Stalls::watch();
        for pod in pods {
            // Its cgroup was there before the agent: only the runtime's event tells.
            let cgroup = node.site.tree().container(Tier::BestEffort, pod, "main")?;
            let listed = node.runtime.tell(Told::best_effort(pod, &cgroup.path()));
            let after = node.known_after(pod, listed)?;
            ensure!(
                after < stalls.allow(KNOWN_WITHIN),
                "{events:?}: {pod} after {after:?}\n{}",
                node.agent.log_end()
            );
        }
        let (_, pid) = node.best_effort("five")?;
        let cgroup = node.site.tree().container(Tier::BestEffort, "five", "main")?;
        node.runtime.tell(Told::best_effort("five", &cgroup.path()));
        await_score(pid, 1000)?;
        ensure!(node.runtime.streams() == 1, "{} streams", node.runtime.streams());
        node.agent.stop()?;
    }
    Ok(())
}

#[test]
fn a_stream_of_events_that_ends_is_opened_again() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let node = Node::start(Events::EndsAfterEach)?;
    for streams in 1..=3 {
        wait::until("the events to be asked for again", wait::PATIENCE, || {
            Ok((node.runtime.streams() >= streams).then_some(()))
        })?;
        node.runtime.tell(Told::best_effort("web", "/nowhere"));
    }
    node.agent.stop()
}

#[test]
fn a_container_that_cannot_be_asked_about_is_its_own_problem() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut node = Node::start(Events::OpenAtOnce)?;
    let bad = [
        ("errs", Manner::Errs(Code::Unknown)),
        ("refuses", Manner::Errs(Code::DeadlineExceeded)),
        ("hangs", Manner::Hangs),
        ("rubbish", Manner::Says("{".to_string())),
        (
            "climbs",
            Manner::Says(r#"{"runtimeSpec": {"linux": {"cgroupsPath": "/a/../../etc"}}}"#.to_string()),
        ),
    ];
    for (pod, manner) in &bad {
        let (cgroup, _) = node.best_effort(pod)?;
        node.runtime.tell(Told::best_effort(pod, &cgroup.path()).manner(manner.clone()));
    }
    for pod in ["good", "fine"] {
        let (cgroup, pid) = node.best_effort(pod)?;
        let listed = node.runtime.tell(Told::best_effort(pod, &cgroup.path()));
        let after = node.known_after(pod, listed)?;
        // The hung call is not waited for; it takes ten seconds to fail.
        ensure!(after < Duration::from_secs(5), "{pod} was known after {after:?}");
        await_score(pid, 1000)?;
    }
    let named = ["errs", "refuses", "rubbish", "climbs"].map(|pod| format!("container container-{pod}"));
    node.await_told(&named.each_ref().map(String::as_str))?;
    let status = node.agent.await_status("a healthy source", |s| source(s).is_some_and(|cri| cri.healthy))?;
    let known = |pod: &str| status.containers.iter().any(|c| c.cgroup.contains(&format!("pod{pod}/main")));
    for (pod, _) in &bad {
        assert!(!known(pod), "{pod} is known");
    }
    // One that answers at last is taken in.
    let (cgroup, pid) = node.best_effort("errs")?;
    node.runtime.tell(Told::best_effort("errs", &cgroup.path()));
    await_score(pid, 1000)?;
    node.agent.stop()
}

#[test]
fn the_source_fails_only_when_listing_fails() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut node = Node::start(Events::Unimplemented)?;
    let (cgroup, pid) = node.best_effort("web")?;
    node.runtime.tell(Told::best_effort("web", &cgroup.path()));
    await_score(pid, 1000)?;
    node.runtime.fail_lists(true);
    node.agent.await_status("the runtime to be missed", |s| source(s).is_some_and(|cri| !cri.healthy))?;
    assert!(node.agent.container("web")?.is_some(), "what was known stays");
    node.runtime.fail_lists(false);
    node.agent.await_status("the runtime to be back", |s| source(s).is_some_and(|cri| cri.healthy))?;
    node.agent.await_state("web", ConvergeState::Converged)?;
    node.agent.stop()
}

#[test]
fn the_words_of_a_pod_give_it_no_rights() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut node = Node::start(Events::OpenAtOnce)?;
    let claim = r#"{"main": {"limits": {"cpu": "2", "memory": "16Gi"}}}"#;
    let (evil, evil_pid) = node.best_effort("evil")?;
    let (hog, hog_pid) = node.best_effort("hog")?;
    node.runtime.tell(
        Told::best_effort("evil", &evil.path())
            .annotation("evenkeel.dev/resources", claim)
            .annotation("evenkeel.dev/score", "\u{1b}[2J"),
    );
    node.runtime.tell(Told::best_effort("hog", &hog.path()).annotation("evenkeel.dev/manage", "false"));
    for (pod, pid) in [("evil", evil_pid), ("hog", hog_pid)] {
        let found = node.agent.await_state(pod, ConvergeState::Converged)?;
        let identity = found.identity.context("an identity")?;
        assert_eq!(identity.memory_class(), evenkeel_proto::v1::QosClass::BestEffort, "{pod}");
        assert_eq!(score(pid)?, 1000, "{pod}");
    }
    let shares = if evil.is_v2() { ("cpu.weight", "1") } else { ("cpu.shares", "2") };
    assert_eq!(evil.read("cpu", shares.0)?, shares.1);
    let claims = ["evenkeel.dev/resources", "evenkeel.dev/manage", "evenkeel.dev/score"];
    node.await_told(&claims)?;
    assert!(!node.agent.daemon().log().contains('\u{1b}'));
    node.agent.stop()
}

#[test]
fn a_runtime_that_lies_about_cgroups_gets_nobody_elses() -> Result<()> {
    require!(machine::is_root(), "making cgroups needs root");
    let mut node = Node::start(Events::OpenAtOnce)?;
    let (good, good_pid) = node.best_effort("good")?;
    node.runtime.tell(Told::best_effort("good", &good.path()));
    await_score(good_pid, 1000)?;
    // The root, a path that climbs, one that is not there, and the pod above somebody else's container.
    let above = good.path().rsplit_once('/').map(|(parent, _)| parent.to_string()).context("a parent")?;
    for (pod, path) in [("root", "/"), ("climbs", "/a/../b"), ("nowhere", "/no/such"), ("above", &above)] {
        node.runtime.tell(Told { shares: 1024, score: -997, ..Told::best_effort(pod, path) });
    }
    node.agent
        .await_container("above", "left alone", |c| !c.managed && c.why.contains("inside its cgroup"))?;
    node.await_told(&["container container-root", "container container-climbs"])?;
    assert_eq!(score(good_pid)?, 1000);
    assert!(node.agent.container("root")?.is_none() && node.agent.container("climbs")?.is_none());
    node.agent.stop()
}
