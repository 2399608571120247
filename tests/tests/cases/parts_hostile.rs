//! What the enforcing part makes of parts that were taken over: it is fed rubbish, floods and lies by others that hold the parts' places, with
//! their users and on their sockets. It enforces all the same, writes nothing that is no container, keeps no more than its bounds say, and tells.

use std::fs::{self, Permissions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use evenkeel_border::ask::Ask;
use evenkeel_border::coded::Coded as _;
use evenkeel_border::found::Found;
use evenkeel_border::link::{Bounds, Channel, Link, Side};
use evenkeel_border::order::Order;
use evenkeel_border::socket;
use evenkeel_model::workload::{
    CgroupBinding, ContainerKind, ContainerResources, Managed, PodFacts, PodRef, Requested, ScorePolicy,
    SourceKind, Workload,
};
use evenkeel_proto::v1::{GetStatusResponse, PartStatus};
use evenkeel_tests::processes::{memory_of, score};
use evenkeel_tests::product::{Agent, Manifest, Site, await_score};
use evenkeel_tests::{figures, machine, places, require, stage, wait};
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket as new_socket,
};

/// Users of the network's part, of the runtime's, and of the reader.
const USERS: [(&str, u32); 3] = [("network", 65_530), ("runtime", 65_531), ("reader", 65_532)];
/// Where the agent finds the sockets of its parts (sd_listen_fds(3); the variable is the listenfd crate's).
const FIRST: i32 = 200;
/// What a hostile other is to do, on which socket, against which cgroup.
const DUTY: &str = "EVENKEEL_TESTS_HOSTILE";
/// The enforcing unit's own bound (`MemoryMax=`) is 256 MiB.
const MOST: u64 = 200 << 20;

/// Sockets of parts as a service manager would hold them, and what stands at them.
struct Place {
    site: Site,
    agent: Agent,
    others: Vec<Child>,
}

impl Drop for Place {
    fn drop(&mut self) {
        for other in &mut self.others {
            // One that ended is none to kill.
            let _ = other.kill();
            let _ = other.wait();
        }
    }
}

impl Place {
    /// An agent in three processes, of which others have the places of two.
    fn new() -> Result<Self> {
        let site = Site::new()?.with(|agent| {
            agent
                .set("parts.mode", "\"three-processes\"")
                .set("sources.cri.enabled", "true")
                .set("sources.cri.sockets", "[\"/run/no-such-runtime.sock\"]")
        });
        fs::set_permissions(site.directory(), Permissions::from_mode(0o755))?;
        let mut passed = Vec::new();
        for ((part, uid), at) in USERS.into_iter().zip(FIRST..) {
            let path = site.directory().join(format!("{part}.sock"));
            let socket = new_socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
            bind(socket.as_raw_fd(), &UnixAddr::new(&path)?)?;
            listen(&socket, Backlog::new(4)?)?;
            chown(&path, Some(uid), Some(uid))?;
            // Not closed where another program is run.
            let number = fcntl(&socket, FcntlArg::F_DUPFD(at))?;
            anyhow::ensure!(number == at, "descriptor {at} is taken");
            passed.push(number);
        }
        let agent =
            site.agent.start_with(&[("LISTEN_FDS", "3"), ("LISTEN_FDS_FIRST_FD", &FIRST.to_string())]);
        passed.into_iter().try_for_each(nix::unistd::close)?;
        Ok(Self { site, agent: agent?, others: Vec::new() })
    }

    fn socket(&self, part: &str) -> PathBuf {
        self.site.directory().join(format!("{part}.sock"))
    }

    /// The part as it is shipped.
    fn honest(&mut self, part: &str) -> Result<()> {
        let (name, uid) = user(part)?;
        // By a path that everybody may walk.
        let program = self.site.directory().join("evenkeel-agent");
        if !program.exists() {
            stage::copied(&places::program("evenkeel-agent")?, &program)?;
        }
        let mut command = Command::new(program);
        command.args(["part", name, "--readable=/sys/fs/cgroup"]).arg("--border").arg(self.socket(part));
        command.env_clear().current_dir("/").uid(uid).gid(uid).stdin(Stdio::null()).stderr(Stdio::null());
        self.others.push(command.spawn().context("cannot start a part")?);
        Ok(())
    }

    /// Somebody else in its place, with its user, who does something.
    fn hostile(&mut self, part: &str, duty: &str, cgroup: &str) -> Result<usize> {
        let (_, uid) = user(part)?;
        let mut command = Command::new("/proc/self/exe");
        command.args(["--exact", "hostile::the_hostile_other_where_one_is_asked_for", "--nocapture"]);
        command.env_clear().env(DUTY, format!("{duty} {} {cgroup}", self.socket(part).display()));
        command
            .current_dir("/")
            .uid(uid)
            .gid(uid)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.others.push(command.spawn().context("cannot start a hostile other")?);
        Ok(self.others.len() - 1)
    }

    fn end(&mut self, which: usize) -> Result<()> {
        let other = self.others.get_mut(which).context("no such process")?;
        other.kill()?;
        other.wait().map(drop).context("it does not end")
    }

    /// What the agent says, once it is as wanted.
    fn await_status(&self, what: &str, is: impl Fn(&GetStatusResponse) -> bool) -> Result<GetStatusResponse> {
        let mut last = None;
        let found = wait::until(what, wait::PATIENCE, || {
            last = self.agent.ask().status().ok();
            Ok(last.clone().filter(&is))
        });
        found.with_context(|| format!("{last:#?}\n{}", self.agent.log_end()))
    }

    /// A container that comes now gets its score.
    fn still_enforces(&mut self, pod: &str) -> Result<()> {
        let (cgroup, sleeper) = self.site.sleeper(pod)?;
        self.site.bind(&Manifest::best_effort(pod, &cgroup.path()))?;
        await_score(sleeper, 1000).with_context(|| self.agent.log_end())
    }
}

fn user(part: &str) -> Result<(&'static str, u32)> {
    USERS.into_iter().find(|(name, _)| *name == part).context("no such part")
}

fn part<'a>(status: &'a GetStatusResponse, name: &str) -> Option<&'a PartStatus> {
    status.parts.iter().find(|part| part.name == name)
}

#[test]
fn hostile_parts_stop_no_enforcement_and_have_nothing_written_that_is_no_container() -> Result<()> {
    require!(machine::is_root(), "an agent needs root");
    let mut place = Place::new()?;
    place.honest("reader")?;
    let enforcing = place.agent.daemon().pid()?;
    // Somebody's process, in a cgroup that is no container.
    let (bystanders, bystander) = place.site.sleeper("bystander")?;
    let (before, cgroup) = (score(bystander)?, bystanders.path());
    place.still_enforces("before")?;
    // Rubbish, and floods of questions whose answers nobody reads, in the network's place.
    for (duty, told) in [("rubbish", "what is no packet"), ("channels", "more channels"), ("questions", "")] {
        let other = place.hostile("network", duty, &cgroup)?;
        place.still_enforces(&format!("beside-{duty}"))?;
        wait::until_true(told, || place.agent.daemon().log().contains(told))?;
        place.end(other)?;
    }
    place.honest("network")?;
    let status = place.await_status("the network's part", |status| {
        part(status, "network").is_some_and(|part| part.pid > 0 && part.seccomp && part.restarts >= 2)
    })?;
    assert!(part(&status, "network").is_some_and(|part| !part.ended.is_empty()), "{status:#?}");
    let told = place.agent.ask().decisions()?;
    assert!(told.iter().any(|decision| decision.reason.contains("the network part ended")), "{told:#?}");
    // Rubbish and lies in the runtime's: whatever is said of the bystander's cgroup, it is no container.
    let other = place.hostile("runtime", "rubbish", &cgroup)?;
    place.await_status("rubbish to be told", |status| {
        part(status, "runtime").is_some_and(|part| part.ended.contains("no packet"))
    })?;
    place.end(other)?;
    let other = place.hostile("runtime", "lies", &cgroup)?;
    let status = place.await_status("lies to be told", |status| {
        status.sources.iter().any(|source| source.name == "cri" && !source.why.is_empty())
    })?;
    assert!(status.containers.iter().all(|container| container.cgroup != cgroup), "{status:#?}");
    place.still_enforces("beside-lies")?;
    let most = memory_of(enforcing, "VmHWM")?;
    figures::show(&format!("hostile parts: the enforcing one had {} MiB at most", most >> 20));
    assert!(most < MOST, "{} MiB", most >> 20);
    place.end(other)?;
    assert_eq!(score(bystander)?, before);
    // Whoever is well takes the place.
    place.honest("runtime")?;
    place.await_status("the runtime's part", |status| {
        part(status, "runtime").is_some_and(|part| part.pid > 0 && part.seccomp)
    })?;
    assert_eq!(place.agent.daemon().pid()?, enforcing);
    assert_eq!(score(bystander)?, before);
    Ok(())
}

/// The hostile other, where this program is run to be one; otherwise nothing.
#[test]
fn the_hostile_other_where_one_is_asked_for() -> Result<()> {
    let Ok(duty) = std::env::var(DUTY) else { return Ok(()) };
    let mut words = duty.split(' ');
    let mut word = || words.next().map(str::to_owned).context("not a duty");
    let (duty, path, cgroup) = (word()?, PathBuf::from(word()?), word()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Until it is ended from outside.
    loop {
        let ended = match duty.as_str() {
            "rubbish" => rubbish(&path),
            "channels" => runtime.block_on(channels(&path)),
            "questions" => runtime.block_on(questions(&path)),
            _ => runtime.block_on(lies(&path, &cgroup)),
        };
        // What it is told is nothing to it.
        drop(ended);
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// What this side takes is all of it.
const BOUNDS: Bounds =
    Bounds { theirs: 1000, ours: 1000, message: 64 << 20, waiting: 256 << 20, packets: 0, descriptors: true };

/// Bytes that are no packet, of any length.
fn rubbish(path: &Path) -> Result<()> {
    let border = socket::connected(path)?;
    for length in (1..4000_usize).step_by(37) {
        let bytes: Vec<u8> = (0..length).map(|at| (at * 31 + length) as u8).collect();
        socket::send(&border, &bytes, None)?;
    }
    Ok(())
}

/// More conversations than there may be.
async fn channels(path: &Path) -> Result<()> {
    let (link, _orders) = Link::start(socket::connected(path)?, Side::Second, BOUNDS)?;
    let mut open = Vec::new();
    for _ in 0..900 {
        open.push(link.open().await?);
    }
    link.gone().await;
    Ok(())
}

/// As many questions as may be open, none of whose answers are read.
async fn questions(path: &Path) -> Result<()> {
    let (link, _orders) = Link::start(socket::connected(path)?, Side::Second, BOUNDS)?;
    let mut open = Vec::new();
    for _ in 0..250 {
        let channel = link.open().await?;
        channel.send(&Ask::Metrics.message()).await?;
        open.push(channel);
    }
    link.gone().await;
    Ok(())
}

/// Containers that are none, thousands in each message, again and again.
async fn lies(path: &Path, cgroup: &str) -> Result<()> {
    let (link, mut orders) = Link::start(socket::connected(path)?, Side::Second, BOUNDS)?;
    while let Some(channel) = orders.recv().await {
        tokio::spawn(lied(channel, cgroup.to_owned()));
    }
    link.gone().await;
    Ok(())
}

async fn lied(channel: Channel, cgroup: String) -> Result<()> {
    match Order::of(&channel.receive().await?)? {
        Order::Alive => loop {
            let message = channel.receive().await?;
            channel.send(&message).await?;
        },
        Order::Follow(follow) => {
            let address = follow.cri.into_iter().next().context("nothing to follow")?;
            for round in 0_u64.. {
                let workloads = (0..9_000).map(|number| workload(round * 9_000 + number, &cgroup)).collect();
                let found = Found {
                    source: SourceKind::Cri,
                    address: address.clone(),
                    workloads,
                    problems: Vec::new(),
                    healthy: true,
                };
                channel.send(&found.message()).await?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn workload(number: u64, cgroup: &str) -> Workload {
    let id = format!("{number:064x}");
    let path = match number % 4 {
        0 => cgroup.to_owned(),
        1 => "/".to_owned(),
        2 => format!("/{id}/..{cgroup}"),
        _ => format!("{cgroup}/../{id}"),
    };
    Workload {
        id,
        source: SourceKind::Cri,
        pod: PodRef { namespace: "default".into(), name: "x".repeat(500), uid: None },
        container: "x".repeat(500),
        kind: ContainerKind::Regular,
        workload: "x".repeat(500),
        image: None,
        command_hash: None,
        cgroup: CgroupBinding::Path(path),
        pid: Some(1),
        requested: Requested::Stated(ContainerResources::default()),
        pod_facts: PodFacts::default(),
        managed: Managed::Yes,
        score_policy: ScorePolicy::Pin,
        oom_kill: None,
    }
}
