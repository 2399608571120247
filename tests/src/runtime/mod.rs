//! A private containerd with a CRI socket, for tests that need real containers.
//!
//! Owns one containerd process with its own root, state and socket directories, every pod run through it and the
//! cgroups they leave behind. It needs no network: pods share the node's. The machine's own containerd, if there is
//! one, is not touched.

mod cri;
pub mod engine;
mod leftovers;
mod pod;
pub mod scripted;

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

pub use cri::Cri;
pub use pod::{ContainerSpec, Pod, PodSpec, RunningContainer, resources, uid};

use crate::cgroups::CgroupTree;
use crate::image::Image;
use crate::{machine, wait};

/// The generated messages and client of the CRI.
pub mod api {
    #![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, reason = "generated code")]
    tonic::include_proto!("runtime.v1");
}

/// Programs the fixture runs.
pub const TOOLS: [&str; 4] = ["containerd", "ctr", "runc", "tar"];

/// The image with busybox that each runtime has.
pub const BUSYBOX: &str = "localhost/busybox:1";
const PAUSE: &str = "localhost/pause:1";

/// Why containers cannot run here, or `None` when they can.
pub fn impossible() -> Option<String> {
    if !machine::is_root() {
        return Some("running containers needs root".to_string());
    }
    if let Err(error) = crate::stage::busybox() {
        return Some(error.to_string());
    }
    machine::missing(&TOOLS).map(|tool| format!("{tool} is not installed: apt-get install containerd runc"))
}

/// A running containerd, stopped with everything it started when dropped.
#[derive(Debug)]
pub struct Runtime {
    // Dropped first to last: the client, the process, its files, the cgroups.
    cri: Cri,
    child: Child,
    directory: TempDir,
    cgroups: CgroupTree,
    /// Where its programs are looked for before those of the machine.
    programs: Option<PathBuf>,
}

impl Runtime {
    /// Starts containerd, waits for its CRI, and imports the images `localhost/pause:1` and [`BUSYBOX`].
    ///
    /// # Errors
    ///
    /// Fails when containerd does not come up; the text has the end of its log.
    pub fn start() -> Result<Runtime> {
        Runtime::start_from(None)
    }

    /// The same with containerd and shim of a directory in place of the machine's.
    ///
    /// # Errors
    ///
    /// As [`Runtime::start`].
    pub fn start_from(programs: Option<PathBuf>) -> Result<Runtime> {
        if let Err(error) = leftovers::sweep() {
            eprintln!("ignoring what an old containerd left: {error:#}");
        }
        let cgroups = CgroupTree::new()?;
        // Socket paths are at most 107 bytes long (unix(7)), so the directory is a short one.
        let directory = tempfile::Builder::new()
            .prefix(&leftovers::prefix())
            .tempdir()
            .context("cannot make a directory")?;
        let at = directory.path();
        std::fs::write(at.join("config.toml"), configuration(at))
            .context("cannot write containerd's configuration")?;
        let child = launch(at, programs.as_deref())?;
        let cri = Cri::new(&at.join("c.sock"))?;
        let mut runtime = Runtime { cri, child, directory, cgroups, programs };
        runtime.await_answer()?;
        runtime.import(&Image::new(PAUSE).command(&["/bin/sleep", "2147483647"]))?;
        runtime.import(&Image::new(BUSYBOX))?;
        Ok(runtime)
    }

    fn await_answer(&mut self) -> Result<()> {
        let answered = wait::until("containerd to answer", wait::PATIENCE, || {
            if let Some(status) = self.child.try_wait().context("cannot see to containerd")? {
                bail!("containerd ended with {status}");
            }
            Ok(self.cri.version().ok())
        });
        answered.map(|_| ()).with_context(|| format!("end of containerd's log:\n{}", self.log_end()))
    }

    /// Stops containerd; its pods run on.
    ///
    /// # Errors
    ///
    /// Fails when it does not stop.
    pub fn halt(&mut self) -> Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).context("a process id out of range")?);
        if self.child.try_wait().context("cannot see to containerd")?.is_none() {
            kill(pid, Signal::SIGTERM).context("cannot stop containerd")?;
        }
        wait::until("containerd to stop", wait::PATIENCE, || {
            self.child.try_wait().context("cannot see to containerd")
        })?;
        Ok(())
    }

    /// Starts containerd again after [`Runtime::halt`].
    ///
    /// # Errors
    ///
    /// Fails when it does not come up; the text has the end of its log.
    pub fn resume(&mut self) -> Result<()> {
        self.child = launch(self.directory.path(), self.programs.as_deref())?;
        self.await_answer()
    }

    /// Path of the CRI socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("c.sock")
    }

    /// The client.
    pub fn cri(&self) -> &Cri {
        &self.cri
    }

    /// Directory for a test's own files, gone with the runtime.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The cgroups in which all pods of this runtime are.
    pub fn cgroups(&self) -> &CgroupTree {
        &self.cgroups
    }

    /// Builds an image and imports it.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be built or containerd refuses it.
    pub fn import(&self, image: &Image) -> Result<()> {
        let file = tempfile::NamedTempFile::new_in(self.directory.path()).context("cannot make a file")?;
        image.write(file.path())?;
        let mut ctr = Command::new("ctr");
        ctr.arg("-a").arg(self.socket()).args([
            "-n",
            "k8s.io",
            "images",
            "import",
            "--snapshotter",
            "native",
        ]);
        machine::run(ctr.arg(file.path())).with_context(|| format!("cannot import {}", image.reference()))?;
        Ok(())
    }

    /// Runs a pod with its containers, in the cgroup a kubelet would give it below this runtime's tree.
    ///
    /// # Errors
    ///
    /// Fails when the runtime refuses; the text has the end of its log.
    pub fn run_pod(&self, spec: &PodSpec) -> Result<Pod> {
        pod::run(&self.cri, &self.cgroups.path(), self.directory.path(), spec)
            .with_context(|| format!("end of containerd's log:\n{}", self.log_end()))
    }

    /// The last lines of containerd's log.
    pub fn log_end(&self) -> String {
        crate::daemon::tail(&self.directory.path().join("log"))
    }

    fn stop(&mut self) -> Result<()> {
        // Pods first: their shims outlive containerd.
        let removed = self.cri.remove_all();
        self.halt()?;
        leftovers::end_processes(self.directory.path())?;
        leftovers::unmount_below(self.directory.path())?;
        removed.context("pods were ended the hard way")
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            eprintln!("containerd was not stopped in order: {error:#}");
        }
    }
}

/// Starts the process with the configuration in its directory.
fn launch(at: &Path, programs: Option<&Path>) -> Result<Child> {
    let path = match programs {
        Some(first) => format!("{}:{}", first.display(), machine::path()),
        None => machine::path(),
    };
    let program = programs.map_or_else(|| "containerd".into(), |first| first.join("containerd"));
    let log = File::options().create(true).append(true).open(at.join("log"));
    let log = log.context("cannot make containerd's log")?;
    Command::new(program)
        .arg("--config")
        .arg(at.join("config.toml"))
        .env("PATH", path)
        // A Ctrl-C on the terminal is for whoever started us; containerd is stopped in order.
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone().context("cannot share the log")?)
        .stderr(log)
        .spawn()
        .context("cannot start containerd")
}

/// Configuration of containerd 1.6 and 1.7 (version 2 of the format).
///
/// The `native` snapshotter copies files and so works on every file system, also where /tmp is itself an overlay.
/// Scores are restricted where the machine does not let us lower them: the pause container wants -998.
fn configuration(at: &Path) -> String {
    let at = at.display();
    let restrict = !machine::may_lower_scores();
    // A guest's root is the initial file system, away from which no root can be pivoted (pivot_root(2)).
    let no_pivot = machine::is_emulated();
    format!(
        r#"version = 2
root = "{at}/root"
state = "{at}/state"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{at}/c.sock"
[ttrpc]
  address = "{at}/t.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  restrict_oom_score_adj = {restrict}
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{at}/cni/bin"
    conf_dir = "{at}/cni/conf"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
        NoPivotRoot = {no_pivot}
"#
    )
}
