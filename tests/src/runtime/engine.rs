//! A private Docker or Podman with its API socket, for tests that need the real programs.
//!
//! Owns one daemon with directories of its own, its image and its containers, which are removed with it. It needs no
//! network and no registry. The machine's own engines, if there are any, are not touched.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{BUSYBOX, leftovers};
use crate::{machine, stage, wait};

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
}

impl Kind {
    /// The program's name, which is the namespace of its containers.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Docker => "docker",
            Kind::Podman => "podman",
        }
    }

    /// Why it cannot run here, or `None` when it can.
    pub fn impossible(self) -> Option<String> {
        if !machine::is_root() {
            return Some("running containers needs root".to_string());
        }
        if let Err(error) = stage::busybox() {
            return Some(error.to_string());
        }
        let tools: &[&'static str] = match self {
            Kind::Docker => &["dockerd", "docker", "runc", "tar"],
            Kind::Podman => &["podman", "runc", "tar"],
        };
        machine::missing(tools)
            .map(|tool| format!("{tool} is not installed: apt-get install docker.io podman"))
    }
}

/// A running engine; it ends with all its containers when dropped.
#[derive(Debug)]
pub struct Engine {
    kind: Kind,
    child: Child,
    directory: TempDir,
}

impl Engine {
    /// Starts it, waits for its API, and imports the image [`BUSYBOX`].
    ///
    /// # Errors
    ///
    /// Fails when it does not come up; the text has the end of its log.
    pub fn start(kind: Kind) -> Result<Engine> {
        // Socket paths are at most 107 bytes long (unix(7)), so the directory is a short one.
        let directory =
            tempfile::Builder::new().prefix("eke").tempdir().context("cannot make a directory")?;
        let at = directory.path();
        let socket = format!("unix://{}", at.join("s").display());
        let mut command = match kind {
            Kind::Docker => {
                let mut command = Command::new(machine::find("dockerd")?);
                command.args([
                    "--iptables=false",
                    "--ip-masq=false",
                    "--bridge=none",
                    "--storage-driver=vfs",
                    "-H",
                ]);
                command.arg(socket).arg("--pidfile").arg(at.join("pid"));
                command.arg("--data-root").arg(at.join("data")).arg("--exec-root").arg(at.join("exec"));
                command
            }
            Kind::Podman => {
                let mut command = podman(at)?;
                command.args(["system", "service", "--time", "0"]).arg(socket);
                command
            }
        };
        let log = std::fs::File::create(at.join("log")).context("cannot make the log")?;
        command.env("PATH", machine::path()).stdin(Stdio::null()).stderr(log.try_clone()?).stdout(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", kind.name()))?;
        let mut engine = Engine { kind, child, directory };
        let answers = wait::until("the engine to answer", wait::PATIENCE, || {
            if let Some(status) = engine.child.try_wait().context("cannot see to the engine")? {
                bail!("it ended with {status}");
            }
            Ok(engine.ask(&["ps"]).is_ok().then_some(()))
        });
        answers.and_then(|()| engine.import()).with_context(|| engine.log_end())?;
        Ok(engine)
    }

    /// Path of its API socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// Runs a container that sleeps, with options of `run`; its first process.
    ///
    /// # Errors
    ///
    /// Fails when the engine refuses; the text has the end of its log.
    pub fn run(&self, name: &str, options: &[&str]) -> Result<Pid> {
        let mut words = vec!["run", "-d", "--network", "none", "--name", name];
        if self.kind == Kind::Podman {
            // Its own defaults are above what a test machine may allow.
            words.extend(["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]);
        }
        words.extend(options.iter().chain(&[BUSYBOX, "/bin/sleep", "1000000"]));
        self.ask(&words).with_context(|| self.log_end())?;
        let pid = self.ask(&["inspect", "--format", "{{.State.Pid}}", name])?;
        Ok(Pid::from_raw(pid.trim().parse().with_context(|| format!("{pid:?} is no process"))?))
    }

    /// Removes a container, running or not.
    ///
    /// # Errors
    ///
    /// Fails when the engine refuses.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.ask(&["rm", "-f", name]).map(drop)
    }

    /// Asks it something by its own command line.
    ///
    /// # Errors
    ///
    /// Fails when the command does.
    pub fn ask(&self, words: &[&str]) -> Result<String> {
        let mut command = match self.kind {
            Kind::Docker => {
                let mut command = Command::new(machine::find("docker")?);
                command.arg("-H").arg(format!("unix://{}", self.socket().display()));
                command
            }
            Kind::Podman => podman(self.directory.path())?,
        };
        machine::run(command.env("PATH", machine::path()).args(words))
    }

    fn import(&self) -> Result<()> {
        let root = self.directory.path().join("image");
        std::fs::create_dir_all(root.join("bin")).context("cannot make a directory")?;
        std::fs::copy(stage::busybox()?, root.join("bin/busybox")).context("cannot copy busybox")?;
        std::os::unix::fs::symlink("busybox", root.join("bin/sleep")).context("cannot make a link")?;
        let tar = self.directory.path().join("image.tar");
        machine::run(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&tar).arg("."))?;
        self.ask(&["import", &tar.display().to_string(), BUSYBOX]).map(drop)
    }

    fn log_end(&self) -> String {
        format!(
            "end of {}'s log:\n{}",
            self.kind.name(),
            crate::daemon::tail(&self.directory.path().join("log"))
        )
    }

    fn stop(&mut self) -> Result<()> {
        let ids = self.ask(&["ps", "-aq"])?;
        let mut words = vec!["rm", "-f"];
        words.extend(ids.split_whitespace());
        let removed = if words.len() > 2 { self.ask(&words).map(drop) } else { Ok(()) };
        let pid = Pid::from_raw(i32::try_from(self.child.id()).context("a process id out of range")?);
        kill(pid, Signal::SIGTERM).context("cannot stop the engine")?;
        wait::until("the engine to stop", wait::PATIENCE, || {
            self.child.try_wait().context("cannot see to the engine")
        })?;
        leftovers::unmount_below(self.directory.path())?;
        removed
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("{} was not stopped in order: {error:#}", self.kind.name());
        }
    }
}

/// Podman with everything below a directory.
fn podman(at: &Path) -> Result<Command> {
    let mut command = Command::new(machine::find("podman")?);
    for (option, name) in [("--root", "data"), ("--runroot", "run"), ("--tmpdir", "tmp")] {
        command.arg(option).arg(at.join(name));
    }
    command.args(["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]);
    Ok(command)
}
