//! A recommender with everything of its own. Owns its configuration and its process.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::Value;

use super::ask::AskRecommender;
use super::{Keys, quoted};
use crate::daemon::{Daemon, Program, Ready, http_get_at};
use crate::wait;

/// A recommender to be started, any number of times, at the same socket on the same state.
#[derive(Debug, Clone)]
pub struct RecommenderSetup {
    directory: PathBuf,
    keys: Keys,
}

impl RecommenderSetup {
    /// A recommender that keeps everything in `directory`.
    ///
    /// # Errors
    ///
    /// Never so far.
    pub fn new(directory: &Path) -> Result<RecommenderSetup> {
        let mut setup = RecommenderSetup { directory: directory.to_path_buf(), keys: Keys::default() };
        setup.keys.set("state_dir", quoted(setup.state().display()));
        setup.keys.set("serve.socket", quoted(setup.socket().display()));
        Ok(setup)
    }

    /// Sets a key to a value in TOML.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> RecommenderSetup {
        self.keys.set(key, value);
        self
    }

    /// Where it keeps what it acknowledged, unless set otherwise.
    pub fn state(&self) -> PathBuf {
        self.directory.join("recommender")
    }

    /// Its socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.join("recommender.sock")
    }

    /// Its gRPC address.
    pub fn address(&self) -> String {
        format!("unix://{}", self.socket().display())
    }

    /// Writes the configuration and returns its path.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be written.
    pub fn config(&self) -> Result<PathBuf> {
        let file = self.directory.join("recommender.toml");
        self.keys.write(&file)?;
        Ok(file)
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    ///
    /// Fails when it ends or is not ready in time; the text has the end of its log.
    pub fn start(&self) -> Result<Recommender> {
        let config = self.config()?;
        let ready = Ready::Http { socket: self.socket(), path: "/readyz".to_string() };
        let program = Program::new("evenkeel-recommender")?.args(&["--config"]).path(&config);
        let daemon = program.ready(ready).start(&self.directory)?;
        Ok(Recommender { daemon, ask: AskRecommender::new(&self.address())?, socket: self.socket() })
    }
}

/// A running recommender, killed when dropped.
#[derive(Debug)]
pub struct Recommender {
    daemon: Daemon,
    ask: AskRecommender,
    socket: PathBuf,
}

impl Recommender {
    /// Its process.
    pub fn daemon(&self) -> &Daemon {
        &self.daemon
    }

    /// Questions to it.
    pub fn ask(&self) -> &AskRecommender {
        &self.ask
    }

    /// Status and body of a `GET`.
    ///
    /// # Errors
    ///
    /// Fails when nothing answers.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        http_get_at(&self.socket, path)
    }

    /// Whether it leads, by its metrics.
    ///
    /// # Errors
    ///
    /// Fails when nothing answers.
    pub fn leads(&self) -> Result<bool> {
        Ok(self.get("/metrics")?.1.lines().any(|line| line == "evenkeel_recommender_leads 1"))
    }

    /// Status and JSON of a request with a body, by GET or POST.
    ///
    /// # Errors
    ///
    /// Fails when nothing answers, or not in JSON.
    pub fn send(&self, method: &str, path: &str, body: &Value) -> Result<(u16, Value)> {
        let mut stream = UnixStream::connect(&self.socket).context("cannot connect")?;
        stream.set_read_timeout(Some(wait::PATIENCE)).context("cannot limit the wait")?;
        let body = body.to_string();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .context("cannot ask")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).context("cannot read the answer")?;
        let (head, body) = answer.split_once("\r\n\r\n").context("the answer is not HTTP")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let json = serde_json::from_str(body).with_context(|| format!("not JSON: {answer}"))?;
        Ok((status.context("the answer has no status")?, json))
    }

    /// Stops it with SIGTERM.
    ///
    /// # Errors
    ///
    /// Fails when it does not end with status 0.
    pub fn stop(self) -> Result<()> {
        // An idle connection, which nobody attends to here, would be waited for.
        drop(self.ask);
        self.daemon.stop()
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
