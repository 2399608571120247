//! The process that starts the others. It begins before the enforcing part gives up any right, and keeps three capabilities: for another
//! user and group of what it starts, and to end it. It reads what the enforcing part tells it, and nothing else.
//!
//! It ends with the enforcing part, and what it started ends with the border that is closed then.

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
use evenkeel_host::caps::{Held, drop_all_except, held};

use super::{Part, confine};

/// Longest message: a word and a number, or the text of an error.
const MOST_BYTES: usize = 512;

/// The program's own file, also where its path is not there any more or not everybody's to walk.
const PROGRAM: &str = "/proc/self/exe";

/// The enforcing part's end.
pub(crate) struct Starter {
    socket: OwnedFd,
}

/// What the starter says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// The part runs.
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
    pub(crate) fn start(network_uid: u32, logging: &Logging) -> anyhow::Result<Self> {
        let missing: Vec<String> = {
            let held = held().unwrap_or_default();
            [Held::SetUid, Held::SetGid].iter().filter(|one| !held.contains(one)).map(ToString::to_string).collect()
        };
        anyhow::ensure!(
            missing.is_empty(),
            "parts.mode = \"two-processes\" needs {} to give the network's part a user of its own, which is not held: grant it, or set \
             parts.mode = \"one-process\"",
            missing.join(" and ")
        );
        let (ours, theirs) = socket::pair().context("no socket to the starter")?;
        let child = Command::new(PROGRAM)
            .args(["part", Part::Starter.name(), "--uid", &network_uid.to_string()])
            .args(logging)
            .env_clear()
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .current_dir("/")
            .spawn()
            .context("cannot start the process that starts the others")?;
        // It ends with us and not before, so nobody has to wait for it.
        drop(child);
        Ok(Self { socket: ours })
    }

    /// Has a part started with this end of a border.
    ///
    /// # Errors
    /// When the starter has ended.
    pub(crate) fn order(&self, border: &OwnedFd) -> io::Result<()> {
        socket::send(&self.socket, b"start", Some(border.as_fd()))
    }

    /// Has what runs ended at once.
    ///
    /// # Errors
    /// When the starter has ended.
    pub(crate) fn kill(&self) -> io::Result<()> {
        socket::send(&self.socket, b"kill", None)
    }

    /// The next thing it says; waits for it.
    ///
    /// # Errors
    /// When the starter has ended.
    pub(crate) fn said(&self) -> io::Result<Said> {
        let mut buffer = [0; MOST_BYTES];
        let length = socket::receive(&self.socket, &mut buffer)?.length;
        let text = String::from_utf8_lossy(&buffer[..length]);
        let (word, rest) = text.split_once(' ').unwrap_or((&*text, ""));
        let (pid, status) = rest.split_once(' ').unwrap_or((rest, ""));
        match (word, pid.parse()) {
            ("started", Ok(pid)) => Ok(Said::Started(pid)),
            ("failed", _) => Ok(Said::Failed(rest.to_owned())),
            ("ended", Ok(pid)) => Ok(Said::Ended(pid, status.to_owned())),
            _ => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the process that starts the others has ended")),
        }
    }
}

/// A part as the starter starts it, on this end of a border: anew from the program's file, with nothing of our environment, and as a
/// user of its own.
pub(crate) fn command(part: Part, uid: u32, logging: &Logging, border: Stdio) -> Command {
    let mut command = Command::new(PROGRAM);
    // Groups of ours are given up with the user (setgroups, as std documents of `uid`).
    command.args(["part", part.name()]).args(logging).env_clear().uid(uid).gid(uid);
    command.stdin(border).stdout(Stdio::null()).current_dir("/");
    command
}

/// The starter's own life.
///
/// # Errors
/// When its socket cannot be used.
pub(crate) fn run(uid: u32, logging: &Logging) -> anyhow::Result<()> {
    confine::no_dump();
    if let Err(error) = drop_all_except(&[Held::SetUid, Held::SetGid, Held::Kill]) {
        tracing::warn!(%error, "capabilities of the process that starts the others could not be dropped");
    }
    super::network::ignore_signals()?;
    let socket = Arc::new(io::stdin().as_fd().try_clone_to_owned().context("no socket of the enforcing part")?);
    let running: Arc<Mutex<Option<Child>>> = Arc::default();
    let mut buffer = [0; MOST_BYTES];
    loop {
        let received = socket::receive(&*socket, &mut buffer).context("the enforcing part cannot be read")?;
        match (&buffer[..received.length], received.descriptor) {
            ([], _) => return Ok(()),
            (b"start", Some(border)) => {
                end(&running);
                let said = match command(Part::Network, uid, logging, Stdio::from(border)).spawn() {
                    Ok(child) => {
                        let said = format!("started {}", child.id());
                        *lock(&running) = Some(child);
                        said
                    }
                    Err(error) => format!("failed {error}"),
                };
                say(&socket, &said);
                watch(&socket, &running)?;
            }
            (b"kill", _) => end(&running),
            _ => {}
        }
    }
}

/// Ends what runs, whose thread then says so.
fn end(running: &Mutex<Option<Child>>) {
    if let Some(child) = &mut *lock(running) {
        // One that has ended is none to kill.
        let _ignored = child.kill();
    }
}

/// Says when what was started ends. It is looked for ten times a second, so that it can be killed in between.
fn watch(socket: &Arc<OwnedFd>, running: &Arc<Mutex<Option<Child>>>) -> anyhow::Result<()> {
    let (socket, running) = (Arc::clone(socket), Arc::clone(running));
    let Some(pid) = lock(&running).as_ref().map(Child::id) else { return Ok(()) };
    let watched = move || loop {
        thread::sleep(Duration::from_millis(100));
        let mut child = lock(&running);
        match child.as_mut().filter(|child| child.id() == pid).map(Child::try_wait) {
            Some(Ok(None)) => {}
            Some(Ok(Some(status))) => {
                *child = None;
                return say(&socket, &format!("ended {pid} {status}"));
            }
            Some(Err(error)) => return say(&socket, &format!("ended {pid} {error}")),
            None => return,
        }
    };
    thread::Builder::new().name("watch".to_owned()).spawn(watched).context("cannot start a thread")?;
    Ok(())
}

fn say(socket: &OwnedFd, text: &str) {
    let text: String = text.chars().take(MOST_BYTES / 4).collect();
    // The enforcing part has ended: so does this loop.
    let _ignored = socket::send(socket, text.as_bytes(), None);
}
