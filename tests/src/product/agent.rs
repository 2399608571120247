//! An agent with everything of its own. Owns its configuration, its process and waiting for what its status says.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use evenkeel_proto::v1::{ContainerStatus, ConvergeState, GetStatusResponse};

use super::ask::AskAgent;
use super::cli::{Cli, Ended};
use super::manifest::Manifest;
use super::{Keys, quoted};
use crate::daemon::{Daemon, Program, Ready, free_port, http_get};
use crate::{places, wait};

/// An agent to be started, any number of times, on the same state.
#[derive(Debug, Clone)]
pub struct AgentSetup {
    directory: PathBuf,
    keys: Keys,
    metrics: u16,
}

impl AgentSetup {
    /// An agent that keeps everything in `directory`, reads manifests there, asks no runtime or engine, protects no
    /// daemon, streams to nobody and audits every second.
    ///
    /// # Errors
    ///
    /// Fails when the directory cannot be written or no port is free.
    pub fn new(directory: &Path) -> Result<AgentSetup> {
        let metrics = free_port()?;
        let mut setup = AgentSetup { directory: directory.to_path_buf(), keys: Keys::default(), metrics };
        std::fs::create_dir_all(setup.manifests()).context("cannot make the manifest directory")?;
        let keys = [
            ("mode", quoted("enforce")),
            ("node.cluster", quoted("test")),
            ("node.name", quoted("node-a")),
            ("state_dir", quoted(directory.join("agent").display())),
            // Several run on one machine here.
            ("roots.run", quoted(directory.join("run").display())),
            ("sources.manifests.dir", quoted(setup.manifests().display())),
            ("sources.cri.enabled", "false".to_string()),
            ("sources.engines.enabled", "false".to_string()),
            // The machine's own daemons are nobody's business here.
            ("daemons.enabled", "false".to_string()),
            ("converge.audit_period", quoted("1s")),
            ("stream.recommender", quoted("")),
            ("serve.socket", quoted(setup.socket().display())),
            ("serve.metrics", quoted(format!("127.0.0.1:{metrics}"))),
        ];
        for (key, value) in keys {
            setup.keys.set(key, value);
        }
        // Whole suites may be run with the agent in several processes.
        if let Ok(mode) = std::env::var("EVENKEEL_TEST_PARTS") {
            setup.keys.set("parts.mode", quoted(mode));
        }
        Ok(setup)
    }

    /// Sets a key to a value in TOML.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> AgentSetup {
        self.keys.set(key, value);
        self
    }

    /// Leaves a key out, so that its default holds.
    #[must_use]
    pub fn unset(mut self, key: &str) -> AgentSetup {
        self.keys.unset(key);
        self
    }

    /// Asks the runtime behind a socket.
    #[must_use]
    pub fn runtime(self, socket: &Path) -> AgentSetup {
        let sockets = format!("[{}]", quoted(socket.display()));
        self.set("sources.cri.enabled", "true").set("sources.cri.sockets", &sockets)
    }

    /// Asks Docker and Podman at these sockets.
    #[must_use]
    pub fn engines(self, docker: &Path, podman: &Path) -> AgentSetup {
        self.set("sources.engines.enabled", "true")
            .set("sources.engines.docker", &quoted(docker.display()))
            .set("sources.engines.podman", &quoted(podman.display()))
    }

    /// Streams to a recommender.
    #[must_use]
    pub fn recommender(self, address: &str) -> AgentSetup {
        self.set("stream.recommender", &quoted(address))
    }

    /// Its state directory, unless set otherwise.
    pub fn state(&self) -> PathBuf {
        self.directory.join("agent")
    }

    /// The agent's socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("agent.sock")
    }

    /// Where its metrics are.
    pub fn metrics_url(&self) -> String {
        format!("http://127.0.0.1:{}/metrics", self.metrics)
    }

    /// Where its manifests are.
    pub fn manifests(&self) -> PathBuf {
        self.directory.join("manifests")
    }

    /// Adds a manifest, or replaces the one of that name at once.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be written.
    pub fn bind(&self, manifest: &Manifest) -> Result<()> {
        let text = manifest.json().to_string();
        self.file(&format!("{}.json", manifest.name()), &text)
    }

    /// Adds or replaces a file among the manifests.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be written.
    pub fn file(&self, name: &str, text: &str) -> Result<()> {
        let draft = self.directory.join("draft");
        std::fs::write(&draft, text).context("cannot write a manifest")?;
        std::fs::rename(&draft, self.manifests().join(name)).context("cannot move a manifest")
    }

    /// Writes the configuration and returns its path.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be written.
    pub fn config(&self) -> Result<PathBuf> {
        let file = self.directory.join("agent.toml");
        self.keys.write(&file)?;
        Ok(file)
    }

    /// Runs the agent with arguments of its own to its end.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be run.
    pub fn run(&self, arguments: &[&str]) -> Result<Ended> {
        let mut command = places::command("evenkeel-agent")?;
        Ended::of(command.arg("--config").arg(self.config()?).args(arguments))
    }

    /// Starts the agent and waits until its socket answers.
    ///
    /// # Errors
    ///
    /// Fails when it ends or does not answer; the text has the end of its log.
    pub fn start(&self) -> Result<Agent> {
        self.start_with(&[])
    }

    /// The same with variables in its environment.
    ///
    /// # Errors
    ///
    /// As [`AgentSetup::start`].
    pub fn start_with(&self, environment: &[(&str, &str)]) -> Result<Agent> {
        let program = Program::new("evenkeel-agent")?.args(&["--config"]).path(&self.config()?);
        let program = environment.iter().fold(program, |program, (name, value)| program.env(name, value));
        let daemon = program.ready(Ready::Socket(self.socket())).start(&self.directory)?;
        let ask = AskAgent::new(&format!("unix://{}", self.socket().display()))?;
        Ok(Agent { daemon, ask, setup: self.clone() })
    }
}

/// A running agent, killed when dropped.
#[derive(Debug)]
pub struct Agent {
    daemon: Daemon,
    ask: AskAgent,
    setup: AgentSetup,
}

impl Agent {
    /// Its process.
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Its process, to be ended by the test.
    pub fn into_daemon(self) -> Daemon {
        // An idle connection, which nobody attends to here, would be waited for.
        drop(self.ask);
        self.daemon
    }

    /// Questions to it.
    pub fn ask(&self) -> &AskAgent {
        &self.ask
    }

    /// The command line, asking this agent.
    pub fn cli(&self) -> Cli {
        Cli::default().agent(&format!("unix://{}", self.setup.socket().display()))
    }

    /// Its metrics.
    ///
    /// # Errors
    ///
    /// Fails when they are not served.
    pub fn metrics(&self) -> Result<String> {
        let (status, text) = http_get(self.setup.metrics, "/metrics")?;
        anyhow::ensure!(status == 200, "/metrics answers {status}: {text}");
        Ok(text)
    }

    /// The container `main` of a pod, when the agent knows it.
    ///
    /// # Errors
    ///
    /// Fails when the agent does not answer.
    pub fn container(&self, pod: &str) -> Result<Option<ContainerStatus>> {
        self.ask.container(pod)
    }

    /// Waits until the container `main` of a pod is as wanted and returns it.
    ///
    /// # Errors
    ///
    /// Fails when it is not in time; the text has its last state and the end of the agent's log.
    pub fn await_container(
        &self,
        pod: &str,
        what: &str,
        is: impl Fn(&ContainerStatus) -> bool,
    ) -> Result<ContainerStatus> {
        let mut last = None;
        let found = wait::until(&format!("{pod} to be {what}"), wait::PATIENCE, || {
            last = self.container(pod)?;
            Ok(last.clone().filter(&is))
        });
        found.with_context(|| format!("last seen: {last:#?}\nthe agent's log:\n{}", self.log_end()))
    }

    /// Waits until the container `main` of a pod is in a state and returns it.
    ///
    /// # Errors
    ///
    /// As [`Agent::await_container`].
    pub fn await_state(&self, pod: &str, state: ConvergeState) -> Result<ContainerStatus> {
        self.await_container(pod, state.as_str_name(), |c| c.state() == state)
    }

    /// Waits until all that can be done for the container `main` of a pod is done: it is as wished, or what is not is
    /// refused by the kernel or without effect where it is.
    ///
    /// # Errors
    ///
    /// As [`Agent::await_container`].
    pub fn await_settled(&self, pod: &str) -> Result<ContainerStatus> {
        use ConvergeState::{Converged, Denied, Ineffective};
        self.await_container(pod, "settled", |c| matches!(c.state(), Converged | Denied | Ineffective))
    }

    /// Waits until its status is as wanted and returns it.
    ///
    /// # Errors
    ///
    /// Fails when it is not in time; the text has the last status and the end of the agent's log.
    pub fn await_status(
        &self,
        what: &str,
        is: impl Fn(&GetStatusResponse) -> bool,
    ) -> Result<GetStatusResponse> {
        let mut last = None;
        let found = wait::until(what, wait::PATIENCE, || {
            let status = self.ask.status()?;
            last = Some(status.clone());
            Ok(Some(status).filter(&is))
        });
        found.with_context(|| format!("last status: {last:#?}\nthe agent's log:\n{}", self.log_end()))
    }

    /// The last lines of its log.
    pub fn log_end(&self) -> String {
        crate::daemon::last_lines(&self.daemon.log())
    }

    /// Stops it with SIGTERM.
    ///
    /// # Errors
    ///
    /// Fails when it does not end with status 0.
    pub fn stop(self) -> Result<()> {
        self.into_daemon().stop()
    }

    /// Kills it where it stands.
    ///
    /// # Errors
    ///
    /// Fails when it is gone already.
    pub fn kill(mut self) -> Result<()> {
        self.daemon.signal(nix::sys::signal::Signal::SIGKILL)?;
        self.daemon.wait(wait::PATIENCE).map(|_| ())
    }
}
