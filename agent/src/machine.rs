//! One agent a machine: the lock that every agent which writes takes, whatever its state directory and socket.
//!
//! Two that write would take each other for somebody else, and journal each other's values as originals.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use evenkeel_enforce::config::Mode;
use evenkeel_log::{Lock, LogError};

use crate::config::Config;

/// The lock's file below `roots.run`.
const LOCK: &str = "evenkeel/agent.lock";

/// Where the lock is.
pub(crate) fn lock(config: &Config) -> PathBuf {
    config.enforce.roots.run.join(LOCK)
}

/// Takes the machine's lock, held until dropped. A dry run needs none and gets none. Where the lock cannot be had for
/// another reason than another agent, that is said and the agent goes on, unless `strict` is set.
///
/// # Errors
/// When another agent has it; with `strict`, when it cannot be made.
pub(crate) fn only_agent(config: &Config) -> anyhow::Result<Option<Lock>> {
    if config.enforce.mode == Mode::DryRun {
        return Ok(None);
    }
    let path = lock(config);
    let shown = path.display();
    let dir = path.parent().unwrap_or(&path);
    let made = evenkeel_net::socket::make_dir(dir).with_context(|| format!("cannot make {}", dir.display()));
    match made.and_then(|()| Ok(Lock::take(&path)?)) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) => {
            if let Some(LogError::Locked { holder, .. }) = error.downcast_ref() {
                let who = holder.map_or_else(String::new, |pid| format!(" (process {pid})"));
                bail!(
                    "another agent{who} runs on this machine and holds {shown}; stop it, or look without writing by \
                     --dry-run"
                );
            }
            if config.enforce.strict {
                return Err(error).context("cannot make sure that no other agent runs");
            }
            tracing::warn!(
                error = format!("{error:#}"),
                "cannot make sure that no other agent runs on this machine"
            );
            Ok(None)
        }
    }
}
