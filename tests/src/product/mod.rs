//! The product as an operator has it: agent, recommender and command line, each with a configuration of its own in a
//! directory of its own.
//!
//! Owns starting them that way and asking them over the interfaces anybody can use. What they should answer is said by
//! the suites.

mod agent;
mod ask;
mod cli;
mod manifest;
mod metrics;
mod pair;
mod recommender;
mod site;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

pub use agent::{Agent, AgentSetup};
pub use ask::{AskAgent, AskRecommender, services};
pub use cli::{Cli, Ended};
pub use manifest::Manifest;
pub use metrics::{Series, parse_metrics};
pub use pair::{Kept, Pair, await_acknowledged, await_written, kept};
pub use recommender::{Recommender, RecommenderSetup};
pub use site::{Heard, Site, await_score, scores};

/// A short directory for sockets: their paths are at most 107 bytes long (unix(7)).
///
/// # Errors
///
/// Fails when none can be made.
pub fn directory() -> Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("ekt").tempdir().context("cannot make a directory")
}

/// Dotted keys and their values in TOML.
#[derive(Debug, Clone, Default)]
struct Keys(BTreeMap<String, String>);

impl Keys {
    fn set(&mut self, key: &str, value: impl Into<String>) {
        self.0.insert(key.to_string(), value.into());
    }

    fn unset(&mut self, key: &str) {
        self.0.remove(key);
    }

    fn write(&self, file: &Path) -> Result<()> {
        let mut text = String::new();
        for (key, value) in &self.0 {
            writeln!(text, "{key} = {value}").context("cannot write to memory")?;
        }
        std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// A text as TOML has it.
fn quoted(text: impl std::fmt::Display) -> String {
    format!("{:?}", text.to_string())
}
