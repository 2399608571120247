//! The command line as a person runs it, and programs that run to their end.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::places;

/// What a program left behind.
#[derive(Debug, Clone)]
pub struct Ended {
    /// Exit status; none when a signal ended it.
    pub status: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ended {
    /// Runs a command to its end, without standard input.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be started.
    pub fn of(command: &mut Command) -> Result<Ended> {
        let output = command.stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot run {command:?}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Ok(Ended { status: output.status.code(), stdout, stderr })
    }

    /// Both outputs.
    pub fn said(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }

    /// Standard output, when it ended with 0.
    ///
    /// # Errors
    ///
    /// Fails with what it said otherwise.
    pub fn success(self) -> Result<String> {
        anyhow::ensure!(self.status == Some(0), "ended with {:?}: {}", self.status, self.said());
        Ok(self.stdout)
    }
}

/// `evenkeel` with addresses to ask.
#[derive(Debug, Clone, Default)]
pub struct Cli {
    agent: Option<String>,
    recommender: Option<String>,
    kubeconfig: Option<PathBuf>,
}

impl Cli {
    /// Asks this agent.
    #[must_use]
    pub fn agent(mut self, address: &str) -> Cli {
        self.agent = Some(address.to_string());
        self
    }

    /// Asks this recommender.
    #[must_use]
    pub fn recommender(mut self, address: &str) -> Cli {
        self.recommender = Some(address.to_string());
        self
    }

    /// Finds the cluster in this file.
    #[must_use]
    pub fn kubeconfig(mut self, file: &Path) -> Cli {
        self.kubeconfig = Some(file.to_path_buf());
        self
    }

    /// Runs it.
    ///
    /// # Errors
    ///
    /// Fails when it cannot be run.
    pub fn run(&self, arguments: &[&str]) -> Result<Ended> {
        let mut command = places::command("evenkeel")?;
        command.args(arguments);
        for (variable, address) in
            [("EVENKEEL_AGENT", &self.agent), ("EVENKEEL_RECOMMENDER", &self.recommender)]
        {
            if let Some(address) = address {
                command.env(variable, address);
            }
        }
        if let Some(file) = &self.kubeconfig {
            command.env("KUBECONFIG", file);
        }
        Ended::of(&mut command)
    }

    /// Its answer in JSON.
    ///
    /// # Errors
    ///
    /// Fails when it does not end with 0 or the answer is not JSON.
    pub fn json(&self, arguments: &[&str]) -> Result<Value> {
        let mut all = arguments.to_vec();
        all.extend(["-o", "json"]);
        let text = self.run(&all)?.success().with_context(|| format!("evenkeel {}", all.join(" ")))?;
        serde_json::from_str(&text).with_context(|| format!("not JSON: {text}"))
    }
}
