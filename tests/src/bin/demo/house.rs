//! The two daemons, the container runtime and the workloads, all below one temporary directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use evenkeel_tests::cgroups::CgroupTree;
use evenkeel_tests::daemon::{Daemon, Program, Ready, free_port};
use evenkeel_tests::runtime::{self, Runtime};
use tempfile::TempDir;

use crate::show::Show;
use crate::workloads::{self, ROLES};

/// Where the workloads run.
enum Ground {
    /// Containers of a private containerd.
    Containers(Box<Runtime>),
    /// Processes in plain cgroups, and why not containers.
    Cgroups(CgroupTree),
}

/// Everything that runs.
pub(crate) struct House {
    // Dropped first to last: daemons before what they watch, the directory last.
    agent: Option<Daemon>,
    recommender: Option<Daemon>,
    ground: Option<Ground>,
    metrics: u16,
    /// First process of each workload, by pod.
    processes: BTreeMap<&'static str, i32>,
    directory: TempDir,
}

impl House {
    /// Starts both daemons and, where it can be, containerd.
    pub(crate) fn start(show: &mut Show) -> Result<House> {
        // Socket paths are at most 107 bytes long (unix(7)), so the directory is a short one.
        let directory =
            tempfile::Builder::new().prefix("ekd").tempdir().context("cannot make a directory")?;
        let metrics = free_port()?;
        let mut house = House {
            agent: None,
            recommender: None,
            ground: None,
            metrics,
            processes: BTreeMap::new(),
            directory,
        };
        std::fs::create_dir(house.manifests()).context("cannot make the manifest directory")?;
        house.ground = Some(ground(show)?);
        house.recommender = Some(house.start_recommender()?);
        house.agent = Some(house.start_agent()?);
        Ok(house)
    }

    /// The agent's socket.
    pub(crate) fn agent_socket(&self) -> PathBuf {
        self.path("agent.sock")
    }

    /// The recommender's socket.
    pub(crate) fn recommender_socket(&self) -> PathBuf {
        self.path("recommender.sock")
    }

    /// The recommender's address.
    pub(crate) fn recommender_address(&self) -> String {
        format!("unix://{}", self.recommender_socket().display())
    }

    /// The agent's metrics.
    pub(crate) fn metrics_address(&self) -> String {
        format!("http://127.0.0.1:{}/metrics", self.metrics)
    }

    /// Where everything is kept until it ends.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The score the kernel has for a workload's first process, read past the agent.
    pub(crate) fn score(&self, pod: &str) -> Option<i64> {
        let pid = self.processes.get(pod)?;
        std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).ok()?.trim().parse().ok()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn manifests(&self) -> PathBuf {
        self.path("manifests")
    }

    fn start_recommender(&self) -> Result<Daemon> {
        let config = self.path("recommender.toml");
        let text = format!(
            "state_dir = {:?}\n[serve]\nsocket = {:?}\n",
            self.path("recommender"),
            self.recommender_socket()
        );
        std::fs::write(&config, text).context("cannot write the recommender's configuration")?;
        let ready = Ready::Http { socket: self.recommender_socket(), path: "/readyz".into() };
        Program::new("evenkeel-recommender")?
            .args(&["--config"])
            .path(&config)
            .ready(ready)
            .start(self.directory())
    }

    fn start_agent(&self) -> Result<Daemon> {
        let config = self.path("agent.toml");
        let sockets: Vec<PathBuf> = match &self.ground {
            Some(Ground::Containers(runtime)) => vec![runtime.socket()],
            _ => Vec::new(),
        };
        let text = format!(
            "mode = \"enforce\"\nstate_dir = {:?}\n[roots]\nrun = {:?}\n[manage]\ntrust_annotations = [\"demo\"]\n\
             [sources.manifests]\ndir = {:?}\n[sources.cri]\nsockets = {sockets:?}\n\
             [stream]\nrecommender = \"{}\"\n[serve]\nsocket = {:?}\nmetrics = \"127.0.0.1:{}\"\n",
            self.path("agent"),
            self.directory(),
            self.manifests(),
            self.recommender_address(),
            self.agent_socket(),
            self.metrics,
        );
        std::fs::write(&config, text).context("cannot write the agent's configuration")?;
        let ready = Ready::Socket(self.agent_socket());
        Program::new("evenkeel-agent")?.args(&["--config"]).path(&config).ready(ready).start(self.directory())
    }

    /// Starts the three containers.
    pub(crate) fn start_workloads(&mut self, show: &mut Show) -> Result<()> {
        let manifests = self.manifests();
        match self.ground.as_mut() {
            Some(Ground::Containers(runtime)) => {
                show.heading("starting three containers under a private containerd");
                workloads::import(runtime)?;
                for role in &ROLES {
                    show.line(&role.describe());
                    self.processes.insert(role.pod, role.run_container(runtime)?);
                }
            }
            Some(Ground::Cgroups(tree)) => {
                show.heading("starting three processes in cgroups of their own, bound by manifests");
                for role in &ROLES {
                    show.line(&role.describe());
                    self.processes.insert(role.pod, role.run_process(tree, &manifests)?);
                }
            }
            None => {}
        }
        Ok(())
    }

    /// Stops everything; what does not stop in order is killed and said.
    pub(crate) fn stop(&mut self) {
        for daemon in [self.agent.take(), self.recommender.take()].into_iter().flatten() {
            if let Err(error) = daemon.stop() {
                eprintln!("warning: {error:#}");
            }
        }
        self.ground = None;
    }
}

/// Containers where they can be had, cgroups otherwise.
fn ground(show: &mut Show) -> Result<Ground> {
    let why = match runtime::impossible() {
        Some(why) => why,
        None => match Runtime::start() {
            Ok(runtime) => return Ok(Ground::Containers(Box::new(runtime))),
            Err(error) => format!("{error:#}"),
        },
    };
    show.line(&format!("no real containers here, plain cgroups instead: {why}"));
    CgroupTree::new().map(Ground::Cgroups)
}
