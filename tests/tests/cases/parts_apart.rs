//! What an agent in three processes does as one in a single process does, and what it does when a part is killed, stopped or held up.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;

use anyhow::{Context as _, Result, ensure};
use evenkeel_proto::v1::PartStatus;
use evenkeel_tests::cgroups::Tier;
use evenkeel_tests::matrix::the_starter_keeps_nothing_but_starting;
use evenkeel_tests::processes::score;
use evenkeel_tests::product::{Agent, Manifest, Pair, Site, await_acknowledged, await_score, kept};
use evenkeel_tests::runtime::scripted::{Events, Scripted, Told};
use evenkeel_tests::{machine, require, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::{FDTarget, Process};

/// Users of the network's part, the runtime's and the reader.
const NETWORK: u32 = 65_530;
const RUNTIME: u32 = 65_531;
const READER: u32 = 65_532;

fn apart(setup: evenkeel_tests::product::AgentSetup) -> evenkeel_tests::product::AgentSetup {
    setup.set("parts.mode", "\"three-processes\"")
}

/// The network's part, once it is there and confined.
fn network(agent: &Agent) -> Result<PartStatus> {
    part(agent, "network")
}

fn part(agent: &Agent, name: &str) -> Result<PartStatus> {
    wait::until(&format!("the {name} part"), wait::PATIENCE, || {
        // Nobody answers while the network's is away.
        let Ok(status) = agent.ask().status() else { return Ok(None) };
        Ok(status.parts.into_iter().find(|part| part.name == name && part.pid > 0 && part.seccomp))
    })
}

fn pid(part: &PartStatus) -> Result<Pid> {
    Ok(Pid::from_raw(part.pid.try_into()?))
}

/// How many sockets of TCP and UDP a process has open.
fn network_sockets(pid: Pid) -> Result<usize> {
    let process = Process::new(pid.as_raw())?;
    let inodes = [process.tcp()?, process.tcp6()?].concat().into_iter().map(|entry| entry.inode);
    let udp = [process.udp()?, process.udp6()?].concat().into_iter().map(|entry| entry.inode);
    let inodes: BTreeSet<u64> = inodes.chain(udp).collect();
    let is_one = |target: &FDTarget| matches!(target, FDTarget::Socket(inode) if inodes.contains(inode));
    Ok(process.fd()?.flatten().filter(|one| is_one(&one.target)).count())
}

#[test]
fn an_agent_in_three_processes_says_who_may_what_and_answers_as_one() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let mut site = Site::new()?.with(apart);
    let (cgroup, sleeper) = site.sleeper("web")?;
    site.bind(&Manifest::best_effort("web", &cgroup.path()))?;
    let agent = site.start()?;
    agent.await_settled("web")?;
    await_score(sleeper, 1000)?;
    for (name, uid) in [("network", NETWORK), ("runtime", RUNTIME), ("reader", READER)] {
        let part = part(&agent, name)?;
        assert_eq!((part.uid, part.capabilities.len(), part.no_new_privs), (uid, 0, true), "{part:?}");
    }
    the_starter_keeps_nothing_but_starting(agent.daemon().pid()?)?;
    assert_eq!(network_sockets(agent.daemon().pid()?)?, 0);
    assert!(network_sockets(pid(&network(&agent)?)?)? > 0, "none of the part that serves /metrics was seen");
    let status = agent.ask().status()?;
    assert_eq!(status.parts_mode, "three-processes");
    let own = status.parts.iter().find(|part| part.name == "enforcing").context("no enforcing part")?;
    assert_eq!((Pid::from_raw(own.pid.try_into()?), own.uid, own.seccomp), (agent.daemon().pid()?, 0, true));
    assert!(own.capabilities.iter().all(|held| held != "CAP_SETUID" && held != "CAP_SYS_ADMIN"), "{own:?}");
    // Each kind of question crosses the border.
    assert!(agent.metrics()?.contains("evenkeel_agent_ticks_total"));
    assert!(!agent.ask().decisions()?.is_empty());
    assert_eq!(agent.ask().usage(2)?.len(), 2);
    for words in [&["status"][..], &["top", "--once"], &["events"]] {
        let said = agent.cli().run(words)?;
        ensure!(said.status == Some(0), "{words:?}: {}", said.said());
    }
    let said = agent.cli().run(&["status"])?;
    assert!(said.said().contains("process network: pid"), "{}", said.said());
    agent.stop()
}

#[test]
fn enforcement_goes_on_while_the_network_is_killed_and_nothing_that_was_seen_is_lost() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let Pair { site, recommender } = Pair::hurried()?;
    let mut pair = Pair { site: site.with(apart), recommender };
    let recommender = pair.recommender.start()?;
    let agent = pair.site.start()?;
    await_acknowledged(&agent, 3)?;
    let enforcing = agent.daemon().pid()?;
    let before = network(&agent)?;
    for round in 0..machine::scaled(3, 100_u64) {
        let pod = format!("late-{round}");
        let part = network(&agent)?;
        kill(pid(&part)?, Signal::SIGKILL)?;
        // What comes now is right all the same.
        let (cgroup, sleeper) = pair.site.sleeper(&pod)?;
        pair.site.bind(&Manifest::best_effort(&pod, &cgroup.path()))?;
        await_score(sleeper, 1000)?;
        let again = network(&agent)?;
        assert_ne!(again.pid, part.pid);
        assert!(again.ended.contains("signal: 9"), "{again:?}");
        pair.site.end(sleeper)?;
    }
    let after = network(&agent)?;
    assert!(after.restarts >= before.restarts + machine::scaled(3, 100));
    assert_eq!(agent.daemon().pid()?, enforcing);
    let written = agent.ask().status()?.stream.context("no stream")?.frames_written;
    await_acknowledged(&agent, written)?;
    let known = kept(&recommender)?;
    assert_eq!(known.node.gaps, 0, "{:?}", known.node);
    assert!(known.node.frames >= written);
    agent.stop()?;
    recommender.stop()
}

#[test]
fn a_network_that_falls_silent_is_replaced_and_clients_that_hang_hold_nobody_up() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let mut site = Site::new()?.with(apart);
    let agent = site.start()?;
    let first = network(&agent)?;
    // Clients that say nothing.
    let hanging: Vec<UnixStream> =
        (0..50).map(|_| UnixStream::connect(site.agent.socket())).collect::<Result<_, _>>()?;
    agent.ask().status()?;
    kill(pid(&first)?, Signal::SIGSTOP)?;
    let (cgroup, sleeper) = site.sleeper("web")?;
    site.bind(&Manifest::best_effort("web", &cgroup.path()))?;
    await_score(sleeper, 1000)?;
    // Whoever asks meanwhile is answered by the next one.
    let second = network(&agent)?;
    assert_ne!(second.pid, first.pid);
    assert!(second.ended.contains("did not show"), "{second:?}");
    let reasons = agent.ask().decisions()?;
    assert!(reasons.iter().any(|decision| decision.reason.contains("the network part ended")));
    drop(hanging);
    agent.stop()
}

#[test]
fn containers_stay_while_the_runtimes_part_is_killed_and_what_is_no_container_is_refused() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let site = Site::new()?.with(apart);
    let runtime = Scripted::start(site.directory(), Events::OpenAtOnce)?;
    let mut site = site.with(|agent| agent.runtime(runtime.socket()));
    let agent = site.start()?;
    let mut pids = Vec::new();
    for (round, pod) in ["one", "two"].into_iter().enumerate() {
        let id = format!("{round:064x}");
        let cgroup = site.tree().group(&format!("{}/{id}", Tier::BestEffort.pod_path(pod)))?;
        pids.push(site.run(&cgroup, &["sleep"])?);
        runtime.tell(Told::best_effort(pod, &cgroup.path()));
        await_score(pids[round], 1000)?;
        let before = part(&agent, "runtime")?;
        kill(pid(&before)?, Signal::SIGKILL)?;
        wait::until_true("another one", || part(&agent, "runtime").is_ok_and(|now| now.pid != before.pid))?;
        assert!(agent.container("one")?.is_some(), "what was found stands");
    }
    // Named by nothing of its own, as if somebody passed off what is no container.
    let other = site.tree().container(Tier::BestEffort, "three", "main")?;
    let left_alone = site.run(&other, &["sleep"])?;
    runtime.tell(Told::best_effort("three", &other.path()));
    wait::until_true("it to be told", || agent.daemon().log().contains("its id is none of a runtime"))?;
    assert!(agent.container("three")?.is_none());
    assert_eq!(score(left_alone)?, 0);
    agent.stop()
}

#[test]
fn manifests_are_read_apart_and_what_they_said_stands_while_the_reader_is_killed() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let mut site = Site::new()?.with(apart);
    let (first, sleeper) = site.sleeper("first")?;
    site.bind(&Manifest::best_effort("first", &first.path()))?;
    let agent = site.start()?;
    await_score(sleeper, 1000)?;
    for pod in ["second", "third"] {
        let before = part(&agent, "reader")?;
        kill(pid(&before)?, Signal::SIGKILL)?;
        let (cgroup, sleeper) = site.sleeper(pod)?;
        site.bind(&Manifest::best_effort(pod, &cgroup.path()))?;
        await_score(sleeper, 1000)?;
        let again = part(&agent, "reader")?;
        assert_ne!(again.pid, before.pid);
        assert!(again.ended.contains("signal: 9"), "{again:?}");
        assert!(agent.container("first")?.is_some(), "what was read stands");
    }
    // One that cannot be read is told of by its place, as where one process reads it.
    std::fs::write(site.agent.manifests().join("bad.yaml"), "kind: Pod\n  x")?;
    agent.await_status("the bad one to be told", |status| {
        status.sources.iter().any(|source| source.name == "manifests" && source.why.contains("bad.yaml"))
    })?;
    assert!(agent.container("second")?.is_some());
    agent.stop()
}

#[test]
fn where_nothing_is_to_be_read_there_is_no_reader() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let unread = |agent: evenkeel_tests::product::AgentSetup| {
        agent.set("sources.manifests.enabled", "false").set("sources.systemd.enabled", "false")
    };
    let site = Site::new()?.with(apart).with(unread);
    let agent = site.start()?;
    part(&agent, "runtime")?;
    assert!(agent.ask().status()?.parts.iter().all(|part| part.name != "reader"));
    agent.stop()
}

#[test]
fn the_network_ends_with_the_agent_and_its_addresses_are_free() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let site = Site::new()?.with(apart);
    for round in 0..2 {
        let agent = site.start()?;
        let part = network(&agent)?;
        let port = site.agent.metrics_url();
        let port: u16 = port.trim_start_matches("http://127.0.0.1:").trim_end_matches("/metrics").parse()?;
        wait::until_true("metrics", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())?;
        if round == 0 {
            agent.kill()?;
        } else {
            agent.stop()?;
        }
        wait::until_true("the network's part to end", || {
            !std::path::Path::new(&format!("/proc/{}", part.pid)).exists()
        })?;
        assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
    }
    Ok(())
}

#[test]
fn who_may_not_change_users_is_told_what_three_processes_need() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let site = Site::new()?.with(apart);
    let config = site.agent.config()?;
    let mut command = std::process::Command::new("setpriv");
    command.args(["--bounding-set", "-setuid,-setgid", "--inh-caps", "-setuid,-setgid"]);
    command.arg(evenkeel_tests::places::program("evenkeel-agent")?).arg("--config").arg(config);
    let mut said = String::new();
    let mut child = command.stderr(std::process::Stdio::piped()).spawn()?;
    child.stderr.take().context("no log")?.read_to_string(&mut said)?;
    assert!(!child.wait()?.success());
    assert!(said.contains("CAP_SETUID and CAP_SETGID") && said.contains("one-process"), "{said}");
    Ok(())
}
