//! A running agent and recommender, with a configuration and a store of their own.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use evenkeel_tests::daemon::{Daemon, Program, Ready, free_port, http_get, http_get_at};
use tempfile::TempDir;

/// Everything below one directory.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    /// Makes it.
    pub(crate) fn new() -> Result<Place> {
        // Socket paths are at most 107 bytes long (unix(7)), so the directory is a short one.
        let directory =
            tempfile::Builder::new().prefix("ekb").tempdir().context("cannot make a directory")?;
        let place = Place { directory };
        std::fs::create_dir(place.manifests()).context("cannot make the manifest directory")?;
        Ok(place)
    }

    /// Where manifests are read from.
    pub(crate) fn manifests(&self) -> PathBuf {
        self.path("manifests")
    }

    /// The agent's socket.
    pub(crate) fn agent_socket(&self) -> PathBuf {
        self.path("agent.sock")
    }

    /// A path below it.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn configuration(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.path(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// A running recommender.
pub(crate) struct Recommender {
    daemon: Daemon,
    socket: PathBuf,
}

/// Longest time between data written and its fdatasync begun, as the promise has it.
pub(crate) const SYNC: Duration = Duration::from_millis(200);

impl Recommender {
    /// Starts one whose store begins empty or where an earlier one in the same place left it. It inherits the calling
    /// thread's processors.
    pub(crate) fn start(place: &Place) -> Result<Recommender> {
        Recommender::start_with(place, "")
    }

    /// The same with more keys at the top of its configuration.
    pub(crate) fn start_with(place: &Place, keys: &str) -> Result<Recommender> {
        let socket = place.path("recommender.sock");
        let text = format!(
            "state_dir = {:?}\nlog.sync_interval = \"{}ms\"\n{keys}[serve]\nsocket = {socket:?}\n",
            place.path("recommender"),
            SYNC.as_millis(),
        );
        let config = place.configuration("recommender.toml", &text)?;
        let ready = Ready::Http { socket: socket.clone(), path: "/readyz".into() };
        let program = Program::new("evenkeel-recommender")?.args(&["--config"]).path(&config).ready(ready);
        Ok(Recommender { daemon: program.start(place.directory.path())?, socket })
    }

    /// Its process.
    pub(crate) fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Its metrics.
    pub(crate) fn metrics(&self) -> Result<String> {
        page(http_get_at(&self.socket, "/metrics")?)
    }

    /// Its socket.
    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The address of its gRPC services.
    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.socket.display())
    }

    /// Ends it in order.
    pub(crate) fn stop(self) -> Result<()> {
        self.daemon.stop()
    }

    /// Ends it without warning.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.daemon.signal(nix::sys::signal::Signal::SIGKILL)?;
        self.daemon.wait(evenkeel_tests::wait::PATIENCE).map(|_| ())
    }
}

/// A running agent.
pub(crate) struct Agent {
    daemon: Daemon,
    metrics: u16,
}

impl Agent {
    /// Starts one that reads the place's manifests and streams to the recommender, if there is one. Scores are
    /// pinned, so that one set too high by the measurement counts as wrong like one too low.
    pub(crate) fn start(place: &Place, recommender: Option<&Recommender>) -> Result<Agent> {
        Agent::start_with(place, recommender, "")
    }

    /// The same with more tables in its configuration.
    pub(crate) fn start_with(
        place: &Place,
        recommender: Option<&Recommender>,
        tables: &str,
    ) -> Result<Agent> {
        let metrics = free_port()?;
        let address = recommender.map_or_else(String::new, Recommender::address);
        let text = format!(
            "mode = \"enforce\"\nstate_dir = {:?}\n[roots]\nrun = {:?}\n[sources.manifests]\ndir = {:?}\n\
             [sources.cri]\nenabled = false\n\
             [converge]\nscore = \"pin\"\n[stream]\nrecommender = {address:?}\n\
             [serve]\nsocket = {:?}\nmetrics = \"127.0.0.1:{metrics}\"\n{tables}",
            place.path("agent"),
            place.directory.path(),
            place.manifests(),
            place.agent_socket(),
        );
        let config = place.configuration("agent.toml", &text)?;
        let ready = Ready::Socket(place.agent_socket());
        let program = Program::new("evenkeel-agent")?.args(&["--config"]).path(&config).ready(ready);
        Ok(Agent { daemon: program.start(place.directory.path())?, metrics })
    }

    /// Its process.
    pub(crate) fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Its metrics.
    pub(crate) fn metrics(&self) -> Result<String> {
        page(http_get(self.metrics, "/metrics")?)
    }

    /// Ends it in order.
    pub(crate) fn stop(self) -> Result<()> {
        self.daemon.stop()
    }
}

fn page((status, text): (u16, String)) -> Result<String> {
    anyhow::ensure!(status == 200, "/metrics answers {status}");
    Ok(text)
}
