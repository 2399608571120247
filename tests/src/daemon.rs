//! The project's programs as child processes: started with a configuration of their own, awaited, stopped, and their
//! logs shown when something fails.
//!
//! Owns the process and its directory. What makes a program ready is said by the test: a socket that accepts, an
//! address that answers 200, a line it prints.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{places, wait};

/// How many lines of a log an error shows.
const SHOWN_LINES: usize = 60;
/// Ports for programs that are told theirs.
const PORTS: Range<u16> = 20_000..32_000;

/// How a program shows that it is ready.
#[derive(Debug, Clone)]
pub enum Ready {
    /// A Unix socket accepts a connection.
    Socket(PathBuf),
    /// `GET` of a path answers 200 at a Unix socket.
    Http {
        /// The socket.
        socket: PathBuf,
        /// The path, such as `/readyz`.
        path: String,
    },
    /// Its output contains a text.
    Says(String),
    /// It is ready as soon as it runs, or ends by itself.
    Started,
}

/// What to start.
#[derive(Debug)]
pub struct Program {
    command: Command,
    name: String,
    ready: Ready,
}

impl Program {
    /// A program of this workspace, such as `evenkeel-agent`, built beside the running test.
    ///
    /// # Errors
    ///
    /// Fails when it has not been built.
    pub fn new(name: &str) -> Result<Program> {
        let command = places::command(name)?;
        Ok(Program { command, name: name.to_string(), ready: Ready::Started })
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, arguments: &[&str]) -> Program {
        self.command.args(arguments);
        self
    }

    /// Adds an argument that is a path.
    #[must_use]
    pub fn path(mut self, path: &Path) -> Program {
        self.command.arg(path);
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Program {
        self.command.env(name, value);
        self
    }

    /// Sets what to wait for.
    #[must_use]
    pub fn ready(mut self, ready: Ready) -> Program {
        self.ready = ready;
        self
    }

    /// Starts it, its output going to `<directory>/<name>.log`, and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be started, ends before it is ready, or is not ready in time; the text has the end of its
    /// log.
    pub fn start(mut self, directory: &Path) -> Result<Daemon> {
        let log = directory.join(format!("{}.log", self.name));
        let out = File::options().create(true).append(true).open(&log);
        let out = out.with_context(|| format!("cannot open {}", log.display()))?;
        self.command
            // A Ctrl-C on the terminal is for whoever started us; children are stopped in order.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(out.try_clone().context("cannot share the log")?)
            .stderr(out);
        let child = self.command.spawn().with_context(|| format!("cannot start {}", self.name))?;
        let mut daemon = Daemon { child, name: self.name, log };
        daemon.await_ready(&self.ready)?;
        Ok(daemon)
    }
}

/// A running program, killed when dropped without [`Daemon::stop`].
#[derive(Debug)]
pub struct Daemon {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Daemon {
    /// Its process id.
    ///
    /// # Errors
    ///
    /// Fails on a process id out of range, which Linux does not have.
    pub fn pid(&self) -> Result<Pid> {
        Ok(Pid::from_raw(i32::try_from(self.child.id()).context("a process id out of range")?))
    }

    /// All it has written so far.
    pub fn log(&self) -> String {
        read_lossy(&self.log)
    }

    fn await_ready(&mut self, ready: &Ready) -> Result<()> {
        let what = format!("{} to be ready", self.name);
        let (child, log) = (&mut self.child, &self.log);
        let awaited = wait::until(&what, wait::PATIENCE, || {
            if is_ready(ready, log) {
                return Ok(Some(()));
            }
            match child.try_wait().context("cannot see to the program")? {
                Some(status) => bail!("it ended with {status}"),
                None => Ok(None),
            }
        });
        awaited.with_context(|| format!("{}: end of its log:\n{}", self.name, tail(&self.log)))
    }

    /// Sends a signal.
    ///
    /// # Errors
    ///
    /// Fails when it is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill(self.pid()?, signal).with_context(|| format!("cannot send {signal} to {}", self.name))
    }

    /// Waits for its end.
    ///
    /// # Errors
    ///
    /// Fails when it does not end in time; the text has the end of its log.
    pub fn wait(&mut self, within: Duration) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        let child = &mut self.child;
        wait::until(&what, within, || child.try_wait().context("cannot see to the program"))
            .with_context(|| format!("{}: end of its log:\n{}", self.name, tail(&self.log)))
    }

    /// Stops it with SIGTERM.
    ///
    /// # Errors
    ///
    /// Fails when it does not end with status 0 in time; the text has the end of its log.
    pub fn stop(mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
        let status = self.wait(wait::PATIENCE)?;
        if !status.success() {
            bail!("{} ended with {status}; end of its log:\n{}", self.name, tail(&self.log));
        }
        // A task that panics need not take its program with it.
        if let Some(line) = self.log().lines().find(|line| line.contains(" panicked at ")) {
            bail!("{} ended in order, but {line}", self.name);
        }
        Ok(())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        let ended = self.child.kill().and_then(|()| self.child.wait());
        if let Err(error) = ended {
            eprintln!("{} is left behind: {error}", self.name);
        }
    }
}

/// A loopback port nobody listens on. It is below those the kernel gives to whoever wants any
/// (`net.ipv4.ip_local_port_range`), so nobody gets it by chance before the program it is for; and no two callers of one
/// process get the same.
///
/// # Errors
///
/// Fails when all are taken.
pub fn free_port() -> Result<u16> {
    static NEXT: LazyLock<AtomicU64> = LazyLock::new(|| AtomicU64::new(RandomState::new().hash_one(())));
    for _ in 0..PORTS.len() {
        let at = NEXT.fetch_add(1, Ordering::Relaxed) % PORTS.len() as u64;
        let port = PORTS.start + u16::try_from(at).context("more ports than there are")?;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("somebody listens on every loopback port from {} to {}", PORTS.start, PORTS.end);
}

/// Status and body of a `GET` on a loopback port.
///
/// # Errors
///
/// Fails when nothing answers, or not in HTTP.
pub fn http_get(port: u16, path: &str) -> Result<(u16, String)> {
    let stream = TcpStream::connect(("127.0.0.1", port)).context("cannot connect")?;
    stream.set_read_timeout(Some(wait::PATIENCE)).context("cannot limit the wait")?;
    get_on(stream, path)
}

/// Status and body of a `GET` at a Unix socket.
///
/// # Errors
///
/// Fails when nothing answers, or not in HTTP.
pub fn http_get_at(socket: &Path, path: &str) -> Result<(u16, String)> {
    let stream = UnixStream::connect(socket).context("cannot connect")?;
    stream.set_read_timeout(Some(wait::PATIENCE)).context("cannot limit the wait")?;
    get_on(stream, path)
}

fn get_on(mut stream: impl Read + Write, path: &str) -> Result<(u16, String)> {
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .context("cannot ask")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("cannot read the answer")?;
    let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    Ok((status.context("the answer has no status")?, body.to_string()))
}

fn is_ready(ready: &Ready, log: &Path) -> bool {
    match ready {
        Ready::Says(text) => read_lossy(log).contains(text),
        Ready::Socket(path) => UnixStream::connect(path).is_ok(),
        Ready::Http { socket, path } => http_get_at(socket, path).is_ok_and(|(status, _)| status == 200),
        Ready::Started => true,
    }
}

/// The last lines of a file that may not be there.
pub(crate) fn tail(path: &Path) -> String {
    last_lines(&read_lossy(path))
}

/// Text of a file, empty when it cannot be read: used where an error is being described already.
pub(crate) fn read_lossy(path: &Path) -> String {
    std::fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).replace('\r', "")).unwrap_or_default()
}

/// The last lines of a text.
pub fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n")
}
