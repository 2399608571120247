//! A process that connects to the system bus and hands the connections over.
//!
//! The bus knows who calls by the user that connected. The reader may make no socket, and one that root connected would give it all that root
//! may ask of systemd. So this process connects: for a reader that a starter started it is nobody's, and lives for one connection. It
//! has not the reader's user then, since a bus turns away users that have no name on the machine (dbus-daemon 1.14), and nobody has one
//! everywhere. Where the reader is a unit its user has a name: the reader starts this process before it gives up
//! starting any, and asks it for a connection whenever it needs one ([`Helper`]).
//!
//! It is told to connect and nothing else, and reads nothing.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_border::socket;
use evenkeel_enforce::systemd::bus::SOCKET;
use nix::sys::socket::{setsockopt, sockopt::ReceiveTimeout};
use nix::sys::time::{TimeVal, TimeValLike as _};
use tokio::sync::oneshot;

use super::confine::confine;
use super::starter::{Logging, NAME, PROGRAM};
use super::{Given, Part};

/// Nobody's user and group (systemd's uids-gids.md).
pub(crate) const NOBODY: u32 = 65_534;
/// Longest message: why there is no connection.
const MOST_BYTES: usize = 512;
/// Connections are made so often at most.
const PAUSE: Duration = Duration::from_millis(200);
/// Time for a process to begin and connect to the bus.
const CONNECTING: Duration = Duration::from_secs(5);

/// Connects for each message that comes on standard input, until nobody has the other end.
///
/// # Errors
/// When it cannot be confined, or its socket not be used.
pub(crate) fn run(given: &Given) -> anyhow::Result<()> {
    confine(Part::Connector, given)?;
    let mut buffer = [0; MOST_BYTES];
    while socket::receive(io::stdin(), &mut buffer).context("no socket on standard input")?.length > 0 {
        let sent = match UnixStream::connect(SOCKET) {
            Ok(stream) => socket::send(io::stdin(), b"connected", Some(stream.as_fd())),
            Err(error) => {
                let why: String = error.to_string().chars().take(MOST_BYTES / 4).collect();
                socket::send(io::stdin(), why.as_bytes(), None)
            }
        };
        sent.context("nobody waits for the connection")?;
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Has the process with the other end of a socket connect to the bus; waits for it.
///
/// # Errors
/// When it does not connect.
pub(super) fn connected(over: &OwnedFd) -> anyhow::Result<OwnedFd> {
    let within = TimeVal::milliseconds(i64::try_from(CONNECTING.as_millis()).unwrap_or(i64::MAX));
    setsockopt(over, ReceiveTimeout, &within).context("no socket to the one that connects")?;
    socket::send(over, b"connect", None).context("nobody connects to the system bus")?;
    let mut buffer = [0; MOST_BYTES];
    let received = socket::receive(over, &mut buffer).context("nobody connects to the system bus")?;
    let why = String::from_utf8_lossy(buffer.get(..received.length).unwrap_or_default()).into_owned();
    received.descriptor.with_context(|| format!("{SOCKET} is not connected to: {why}"))
}

/// Such a process of this one's own user, which connects whenever it is asked.
#[derive(Debug)]
pub(crate) struct Helper {
    socket: OwnedFd,
    process: Mutex<Option<Child>>,
}

impl Helper {
    /// Starts it; must be called before this process gives up starting any.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(given: &Given, logging: &Logging) -> anyhow::Result<Self> {
        let (ours, theirs) = socket::pair().context("no socket to the one that connects")?;
        let mut command = Command::new(PROGRAM);
        command.arg0(NAME).args(["part", Part::Connector.name()]).args(logging);
        command.args(given.allow_unconfined.then_some("--allow-unconfined"));
        command.env_clear().current_dir("/").stdin(Stdio::from(theirs)).stdout(Stdio::null());
        let process = command.spawn().context("cannot start the process that connects to the system bus")?;
        Ok(Self { socket: ours, process: Mutex::new(Some(process)) })
    }

    /// A connection to the system bus.
    ///
    /// # Errors
    /// When it does not connect.
    pub(crate) async fn connect(self: Arc<Self>) -> io::Result<OwnedFd> {
        let connecting = tokio::task::spawn_blocking(move || connected(&self.socket));
        connecting.await?.map_err(io::Error::other)
    }

    /// Comes when it ends; no more than once.
    ///
    /// # Errors
    /// When it was waited for before, or no thread can be made.
    pub(super) fn gone(&self) -> anyhow::Result<oneshot::Receiver<()>> {
        let process = self.process.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut process = process.context("the process that connects is waited for once")?;
        let (sender, receiver) = oneshot::channel();
        let waiting = move || {
            // However it ended, it connects no more.
            let _ignored = process.wait();
            drop(sender);
        };
        thread::Builder::new()
            .name("connector".to_owned())
            .spawn(waiting)
            .context("cannot start a thread")?;
        Ok(receiver)
    }
}
