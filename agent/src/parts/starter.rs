//! The process that starts the others. It begins before the enforcing part gives up any right, and keeps three capabilities: for another
//! user and group of what it starts, and to end it. It is a user of its own and may not become root again, whose are the files of every
//! cgroup. It reads what the enforcing part tells it, and nothing else.
//!
//! It ends with the enforcing part, and what it started ends with the border that is closed then.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::socket;
use evenkeel_enforce::shared::lock;
use evenkeel_host::caps::{UsableCapability, drop_all_except, held};
use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};

use super::{Given, Part, confine, connector};

/// User and group of the starter: the first that no part is given (`parts.network_uid` and the others).
pub(crate) const UID: u32 = 65_533;
/// What it keeps.
const KEPT: [UsableCapability; 3] =
    [UsableCapability::SetUid, UsableCapability::SetGid, UsableCapability::Kill];

/// Longest message: a word and a number, or the text of an error.
const MOST_BYTES: usize = 512;

/// The program's own file, also where its path is not there any more or not everybody's to walk.
pub(super) const PROGRAM: &str = "/proc/self/exe";
/// What it is called in lists of processes.
pub(super) const NAME: &str = "evenkeel-agent";

/// The enforcing part's end.
pub(crate) struct Starter {
    socket: OwnedFd,
}

/// What the starter says of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// It runs.
    Started(u32),
    /// It does not.
    Failed(String),
    /// It ended, with this status.
    Ended(u32, String),
}

/// Flags that every part is given: those of the log.
pub(crate) type Logging = Vec<String>;

impl Starter {
    /// Starts the starter. Must be called before capabilities are dropped and threads start.
    ///
    /// # Errors
    /// When the capabilities it needs are not held, or the process cannot be started.
    pub(crate) fn start(given: &Given, logging: &Logging) -> anyhow::Result<Self> {
        let held = held().unwrap_or_default();
        let missing = [UsableCapability::SetUid, UsableCapability::SetGid]
            .into_iter()
            .filter(|one| !held.contains(one));
        let missing: Vec<String> = missing.map(|one| one.to_string()).collect();
        anyhow::ensure!(
            missing.is_empty(),
            "parts.mode = \"three-processes\" needs {} to give each part a user of its own, which is not held: grant it, or set parts.mode = \
             \"one-process\"",
            missing.join(" and ")
        );
        let (ours, theirs) = socket::pair().context("no socket to the starter")?;
        let mut command = Command::new(PROGRAM);
        command.arg0(NAME).args(["part", Part::Starter.name()]).args(logging);
        command.arg(format!("--network-uid={}", given.network_uid));
        command.arg(format!("--runtime-uid={}", given.runtime_uid));
        command.arg(format!("--reader-uid={}", given.reader_uid));
        command.args(readable(given)).args(unconfined(given));
        command.env_clear().current_dir("/").stdin(Stdio::from(theirs)).stdout(Stdio::null());
        // It ends with us and not before, so nobody has to wait for it.
        drop(command.spawn().context("cannot start the process that starts the others")?);
        Ok(Self { socket: ours })
    }

    /// Has a part started with this end of a border.
    ///
    /// # Errors
    /// When the starter has ended.
    pub(crate) fn order(&self, part: Part, border: &OwnedFd) -> io::Result<()> {
        socket::send(&self.socket, format!("start {}", part.name()).as_bytes(), Some(border.as_fd()))
    }

    /// Has one that runs ended at once.
    ///
    /// # Errors
    /// When the starter has ended.
    pub(crate) fn kill(&self, part: Part) -> io::Result<()> {
        socket::send(&self.socket, format!("kill {}", part.name()).as_bytes(), None)
    }

    /// The next thing it says, and of which part; waits for it.
    ///
    /// # Errors
    /// When the starter has ended.
    pub(crate) fn said(&self) -> io::Result<(Part, Said)> {
        let mut buffer = [0; MOST_BYTES];
        let length = socket::receive(&self.socket, &mut buffer)?.length;
        let text = String::from_utf8_lossy(&buffer[..length]);
        said(&text).ok_or_else(|| {
            io::Error::new(io::ErrorKind::UnexpectedEof, "the process that starts the others has ended")
        })
    }
}

/// Reads what it said: `started network 17`.
fn said(text: &str) -> Option<(Part, Said)> {
    let mut words = text.splitn(4, ' ');
    let (word, part, number) = (words.next()?, part(words.next()?)?, words.next()?);
    let rest = words.next().unwrap_or_default();
    let said = match (word, number.parse()) {
        ("started", Ok(pid)) => Said::Started(pid),
        ("ended", Ok(pid)) => Said::Ended(pid, rest.to_owned()),
        ("failed", _) => Said::Failed(format!("{number} {rest}")),
        _ => return None,
    };
    Some((part, said))
}

/// The parts that are started.
fn part(name: &str) -> Option<Part> {
    Part::STARTED.into_iter().chain([Part::Connector]).find(|part| part.name() == name)
}

fn readable(given: &Given) -> impl Iterator<Item = OsString> {
    given.readable.iter().map(|dir| {
        let mut flag = OsString::from("--readable=");
        flag.push(dir);
        flag
    })
}

fn unconfined(given: &Given) -> Option<&'static str> {
    given.allow_unconfined.then_some("--allow-unconfined")
}

/// A part as the starter starts it, on this end of a border: anew from the program's file, with nothing of our environment, and as a
/// user of its own.
fn command(part: Part, given: &Given, logging: &Logging, border: OwnedFd) -> Command {
    let uid = match part {
        Part::Runtime => given.runtime_uid,
        Part::Reader => given.reader_uid,
        Part::Connector => connector::NOBODY,
        _ => given.network_uid,
    };
    let mut command = Command::new(PROGRAM);
    command.arg0(NAME).args(["part", part.name()]).args(logging).args(unconfined(given));
    if matches!(part, Part::Runtime | Part::Reader) {
        command.args(readable(given));
    }
    // Groups of ours are given up with the user (setgroups, as std documents of `uid`).
    command.env_clear().current_dir("/").uid(uid).gid(uid);
    command.stdin(Stdio::from(border)).stdout(Stdio::null());
    command
}

/// What runs, by part.
type Running = Arc<Mutex<BTreeMap<Part, Child>>>;

/// The starter's own life.
///
/// # Errors
/// When its socket cannot be used.
pub(crate) fn run(given: &Given, logging: &Logging) -> anyhow::Result<()> {
    close_others()?;
    give_up(given)?;
    super::ignore_signals(given)?;
    let running = Running::default();
    let mut buffer = [0; MOST_BYTES];
    loop {
        let received =
            socket::receive(io::stdin(), &mut buffer).context("the enforcing part cannot be read")?;
        let text = String::from_utf8_lossy(&buffer[..received.length]);
        if text.is_empty() {
            return Ok(());
        }
        match (text.split_once(' ').and_then(|(word, name)| Some((word, part(name)?))), received.descriptor) {
            (Some(("start", part)), Some(border)) => {
                end_at_once(&running, part);
                let name = part.name();
                match command(part, given, logging, border).spawn() {
                    Ok(child) => {
                        let pid = child.id();
                        lock(&running).insert(part, child);
                        say(&format!("started {name} {pid}"));
                        watch(&running, part, pid)?;
                    }
                    Err(error) => say(&format!("failed {name} {error}")),
                }
            }
            (Some(("kill", part)), _) => end(&running, part),
            _ => {}
        }
    }
}

/// Closes what it inherited of whoever started the agent, and would hand on; must be called before it has opened anything itself.
fn close_others() -> anyhow::Result<()> {
    let listed = std::fs::read_dir("/proc/self/fd").context("descriptors cannot be listed")?;
    let numbers: Vec<i32> =
        listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for number in numbers.into_iter().filter(|number| *number > 2) {
        // The directory's own is closed already.
        let _ignored = nix::unistd::close(number);
    }
    Ok(())
}

/// Gives up everything but what starting needs, for good; must be called before any thread starts.
///
/// # Errors
/// When it would stay root, or not be confined.
pub(super) fn give_up(given: &Given) -> anyhow::Result<()> {
    // Twice: the bounding set is root's to cut, and what is kept is taken up again as another user.
    drop_all_except(&KEPT).context("capabilities of the process that starts the others")?;
    nix::sys::prctl::set_keepcaps(true).context("capabilities do not outlive the change of the user")?;
    let (uid, gid) = (Uid::from_raw(UID), Gid::from_raw(UID));
    setgroups(&[]).context("groups cannot be given up")?;
    setresgid(gid, gid, gid).context("the group cannot be changed")?;
    setresuid(uid, uid, uid).context("the user cannot be changed")?;
    drop_all_except(&KEPT).context("capabilities of the process that starts the others")?;
    confine::confine(Part::Starter, given)
}

/// Ends what runs, whose thread then says so.
fn end(running: &Running, part: Part) {
    if let Some(child) = lock(running).get_mut(&part) {
        // One that has ended is none to kill.
        let _ignored = child.kill();
    }
}

/// The same, and waits for its end: another one is to take its place.
fn end_at_once(running: &Running, part: Part) {
    end(running, part);
    if let Some(mut child) = lock(running).remove(&part) {
        let _ignored = child.wait();
    }
}

/// Says when what was started ends. It is looked for ten times a second, so that it can be killed in between.
fn watch(running: &Running, part: Part, pid: u32) -> anyhow::Result<()> {
    let running = Arc::clone(running);
    let watched = move || loop {
        thread::sleep(Duration::from_millis(100));
        let mut running = lock(&running);
        // Another one took its place.
        let Some(child) = running.get_mut(&part).filter(|child| child.id() == pid) else { return };
        let status = match child.try_wait() {
            Ok(None) => continue,
            Ok(Some(status)) => status.to_string(),
            Err(error) => error.to_string(),
        };
        running.remove(&part);
        return say(&format!("ended {} {pid} {status}", part.name()));
    };
    thread::Builder::new().name("watch".to_owned()).spawn(watched).context("cannot start a thread")?;
    Ok(())
}

/// Over its standard input, which is the one descriptor that it keeps beside the log's.
fn say(text: &str) {
    let text: String = text.chars().take(MOST_BYTES / 4).collect();
    // The enforcing part has ended: so does this loop.
    let _ignored = socket::send(io::stdin(), text.as_bytes(), None);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_starter_says_is_read() {
        for (text, want) in [
            ("started network 17", Some((Part::Network, Said::Started(17)))),
            (
                "ended runtime 17 signal: 9 (SIGKILL)",
                Some((Part::Runtime, Said::Ended(17, "signal: 9 (SIGKILL)".into()))),
            ),
            (
                "failed network Operation not permitted (os error 1)",
                Some((Part::Network, Said::Failed("Operation not permitted (os error 1)".into()))),
            ),
            ("started enforcing 17", None),
            ("started network", None),
            ("ended network x y", None),
            ("", None),
        ] {
            assert_eq!(said(text), want, "{text}");
        }
    }
}
