//! The guardian: a tiny process that thaws what the agent froze, should the agent be killed in between.
//!
//! It is this program again, started with `guardian`. It reads what is frozen and thawed from its standard input;
//! when that ends (the agent is gone, however it ended) it thaws what is still frozen and ends itself.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use evenkeel_host::freeze::freeze_write;
use evenkeel_host::write::CgroupRef;

use crate::config::Config;
use crate::journal::{Journal, Transient};

/// Starts the guardian and gives the journal the pipe to it. Call it before capabilities are dropped only where
/// the guardian needs more than the agent: it needs the same.
///
/// # Errors
/// When the process cannot be started.
pub(crate) fn start(config: &Config, journal: &mut Journal) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut child = Command::new(program)
        .arg("guardian")
        .env("EVENKEEL_ROOTS__PROC", &config.roots.proc)
        .env("EVENKEEL_ROOTS__CGROUP", &config.roots.cgroup)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start the guardian")?;
    let pipe = child.stdin.take().context("the guardian has no standard input")?;
    journal.set_witness(Box::new(pipe));
    // It ends with us and not before, so nobody has to wait for it: its parent is then pid 1.
    Ok(())
}

/// The guardian's own life.
///
/// # Errors
/// When the cgroup file system cannot be used.
pub(crate) fn run(config: &Config) -> anyhow::Result<()> {
    ignore_signals()?;
    let mut frozen: BTreeSet<CgroupRef> = BTreeSet::new();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match Journal::read_transient(&line) {
            Some(Transient::Frozen(at)) => {
                frozen.insert(at);
            }
            Some(Transient::Thawed(at)) => {
                frozen.remove(&at);
            }
            None => {}
        }
    }
    if frozen.is_empty() {
        return Ok(());
    }
    let (roots, tree) = crate::kernel::open_tree(config)?;
    let mut writer = crate::kernel::open_writer(config, &roots, &tree)?;
    for at in frozen {
        let outcome = writer.apply(&freeze_write(&at, false));
        tracing::warn!(cgroup = %at, outcome = outcome.name(), "the agent ended while this cgroup was frozen");
    }
    Ok(())
}

/// A service manager signals every process of the service; the agent undoes its own work then, and only its end
/// counts here.
fn ignore_signals() -> anyhow::Result<()> {
    use nix::sys::signal::{SigSet, Signal};
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block().context("cannot block signals")
}
