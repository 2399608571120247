//! A place for one test: a directory, cgroups, and an agent set up for both.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{Agent, AgentSetup, Manifest, directory};
use crate::cgroups::{CgroupTree, TestCgroup, Tier};
use crate::{places, processes, wait};

/// Everything is gone when it is dropped, the processes too.
#[derive(Debug)]
pub struct Site {
    tree: CgroupTree,
    /// The agent to be started; changed by the test as it likes.
    pub agent: AgentSetup,
    directory: TempDir,
    heard: u32,
}

/// A workload and what it says.
#[derive(Debug, Clone)]
pub struct Heard {
    /// Its process.
    pub pid: Pid,
    said: PathBuf,
}

impl Heard {
    /// What it has said so far.
    pub fn said(&self) -> String {
        crate::daemon::read_lossy(&self.said)
    }

    /// Whether it runs.
    pub fn is_alive(&self) -> bool {
        processes::is_alive(self.pid)
    }

    /// Waits until it has said a word, or is gone; true for the first.
    ///
    /// # Errors
    ///
    /// Fails when neither happens in time.
    pub fn await_word_or_end(&self, word: &str) -> Result<bool> {
        wait::until(&format!("{} to say {word:?}", self.pid), wait::PATIENCE, || {
            if self.said().contains(word) {
                return Ok(Some(true));
            }
            Ok((!self.is_alive()).then_some(false))
        })
    }
}

impl Site {
    /// An agent's directory and an empty tree of cgroups.
    ///
    /// # Errors
    ///
    /// Fails when either cannot be made.
    pub fn new() -> Result<Site> {
        let directory = directory()?;
        let agent = AgentSetup::new(directory.path())?;
        Ok(Site { tree: CgroupTree::new()?, agent, directory, heard: 0 })
    }

    /// Changes the agent to be started.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(AgentSetup) -> AgentSetup) -> Site {
        self.agent = change(self.agent);
        self
    }

    /// Containers here may have ids and cgroups of any name, also for an agent in several processes.
    #[must_use]
    pub fn with_invented_ids(self) -> Site {
        let cgroups = format!("[{:?}]", self.tree.path());
        self.with(|agent| agent.set("parts.runtime_cgroups", &cgroups))
    }

    /// The cgroups.
    pub fn tree(&self) -> &CgroupTree {
        &self.tree
    }

    /// The directory.
    pub fn directory(&self) -> &std::path::Path {
        self.directory.path()
    }

    /// A container's cgroup, empty.
    ///
    /// # Errors
    ///
    /// Fails when the kernel refuses.
    pub fn cgroup(&self, pod: &str) -> Result<TestCgroup> {
        self.tree.container(Tier::Burstable, pod, "main")
    }

    /// Starts the workload in a cgroup.
    ///
    /// # Errors
    ///
    /// Fails when it does not start there.
    pub fn run(&mut self, cgroup: &TestCgroup, words: &[&str]) -> Result<Pid> {
        let mut command = places::command("evenkeel-workload")?;
        self.tree.spawn(cgroup, command.args(words))
    }

    /// Starts a command in a cgroup.
    ///
    /// # Errors
    ///
    /// Fails when it does not start there.
    pub fn spawn(&mut self, cgroup: &TestCgroup, command: &Command) -> Result<Pid> {
        self.tree.spawn(cgroup, command)
    }

    /// Starts the workload in a cgroup; what it says goes to the file returned.
    ///
    /// # Errors
    ///
    /// As [`Site::run`].
    pub fn run_heard(&mut self, cgroup: &TestCgroup, words: &[&str]) -> Result<Heard> {
        self.run_heard_after(":", cgroup, words)
    }

    /// The same after a command of the shell, in the same process: what a program does before it takes anything.
    ///
    /// # Errors
    ///
    /// As [`Site::run`].
    pub fn run_heard_after(&mut self, first: &str, cgroup: &TestCgroup, words: &[&str]) -> Result<Heard> {
        self.heard += 1;
        let said = self.directory.path().join(format!("said-{}", self.heard));
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(format!("{first}; exec \"$0\" \"$@\" > '{}'", said.display()));
        shell.arg(places::program("evenkeel-workload")?).args(words);
        Ok(Heard { pid: self.tree.spawn(cgroup, &shell)?, said })
    }

    /// A container with one process that sleeps.
    ///
    /// # Errors
    ///
    /// As [`Site::cgroup`] and [`Site::run`].
    pub fn sleeper(&mut self, pod: &str) -> Result<(TestCgroup, Pid)> {
        let cgroup = self.cgroup(pod)?;
        let pid = self.run(&cgroup, &["sleep"])?;
        Ok((cgroup, pid))
    }

    /// Ends one of its processes with SIGTERM.
    ///
    /// # Errors
    ///
    /// Fails when it was not started here.
    pub fn end(&mut self, pid: Pid) -> Result<()> {
        self.tree.end(pid)
    }

    /// Binds a manifest.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be written.
    pub fn bind(&self, manifest: &Manifest) -> Result<()> {
        self.agent.bind(manifest)
    }

    /// Takes the manifest of a pod away.
    ///
    /// # Errors
    ///
    /// Fails when there is none.
    pub fn unbind(&self, pod: &str) -> Result<()> {
        let file = self.agent.manifests().join(format!("{pod}.json"));
        std::fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))
    }

    /// Starts the agent.
    ///
    /// # Errors
    ///
    /// Fails when it does not come up.
    pub fn start(&self) -> Result<Agent> {
        self.agent.start()
    }
}

/// Scores of all live processes of a container, below it too.
///
/// # Errors
///
/// Fails when its cgroup cannot be listed.
pub fn scores(cgroup: &TestCgroup) -> Result<Vec<(Pid, i32)>> {
    processes::scores_below(&cgroup.directory("memory")?)
}

/// Waits until a process has a score.
///
/// # Errors
///
/// Fails when it does not get it in time, or ends.
pub fn await_score(pid: Pid, wanted: i32) -> Result<()> {
    wait::until(&format!("{pid} to have score {wanted}"), wait::PATIENCE, || {
        Ok((processes::score(pid)? == wanted).then_some(()))
    })
}
