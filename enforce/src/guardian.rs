//! The guardian: a tiny process that undoes what the agent only did for a while, should the agent be killed.
//!
//! It is this program again, started with `guardian`. It reads what is frozen, held and let go from its standard
//! input; when that ends (the agent is gone, however it ended) it undoes what still stands and ends itself.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufRead;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use evenkeel_host::caps::{Feature, drop_all_except, needed};
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::write::CgroupRef;

use crate::config::Config;
use crate::journal::Journal;
use crate::kernel::{Way, with_remedy};
use crate::ledger::Line;
use crate::transients::{Standing, Transients, frozen, undo_all};

/// Starts the guardian and gives both journals the pipe to it.
///
/// # Errors
/// When the process cannot be started.
pub fn start(config: &Config, journal: &mut Journal, transients: &Transients) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let mut child = Command::new(program)
        .arg("guardian")
        .env("EVENKEEL_AGENT_ROOTS__PROC", &config.roots.proc)
        .env("EVENKEEL_AGENT_ROOTS__CGROUP", &config.roots.cgroup)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("cannot start the guardian")?;
    let pipe = child.stdin.take().context("the guardian has no standard input")?;
    // Lines are shorter than what a pipe takes in one piece (PIPE_BUF, pipe(7)), so two writers do not mix them.
    let pipe = File::from(OwnedFd::from(pipe));
    let second = pipe.try_clone().context("no second descriptor of the guardian's pipe")?;
    journal.set_witness(Box::new(pipe));
    transients.set_witness(Box::new(second));
    // It ends with us and not before, so nobody has to wait for it: its parent is then pid 1.
    Ok(())
}

/// The guardian's own life.
///
/// # Errors
/// When the cgroup file system cannot be used.
pub fn run(config: &Config) -> anyhow::Result<()> {
    drop_rights();
    ignore_signals()?;
    // Opened now: when it is needed, memory may be what is short.
    let (roots, tree) = crate::kernel::open_tree(config)?;
    let mut writer = crate::kernel::open_writer(config, &roots, &tree, Way::Direct)?;
    let reader = KernelReader::new(roots, tree);
    let mut passes: BTreeSet<CgroupRef> = BTreeSet::new();
    let mut standing = Standing::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        match Line::read(&line) {
            Some(Line::Frozen { target }) => passes.extend(target.cgroup()),
            Some(Line::Thawed { target }) => {
                if let Some(at) = target.cgroup() {
                    passes.remove(&at);
                }
            }
            Some(line) => {
                standing.take(&line);
            }
            // The pipe ends in the middle of a line where the agent was killed in it.
            None => {}
        }
    }
    let mut entries: Vec<_> = passes.iter().map(frozen).collect();
    entries.extend(standing.to_undo());
    undo_all(&reader, &mut *writer, &entries, |entry, result| {
        tracing::warn!(
            cgroup = %entry.at,
            knob = %entry.old.knob(),
            ?result,
            "the agent ended while this was set for a while"
        );
    });
    Ok(())
}

/// Gives up everything but writing the cgroups of other users: the guardian is started before the agent drops its own
/// capabilities, and undoes settings of cgroups alone.
fn drop_rights() {
    if let Err(error) = drop_all_except(&needed([Feature::OtherUsersFiles])) {
        tracing::warn!(error = %with_remedy(error), "the guardian's capabilities could not be dropped");
    }
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
