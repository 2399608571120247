//! The guardian: a tiny process that undoes what the agent only did for a while, should the agent be killed.
//!
//! It is this program again, started with `guardian`. It reads what is frozen, held and let go from its standard
//! input; when that ends (the agent is gone, however it ended) it undoes what still stands and ends itself.
//!
//! Where a service manager runs something after each end of the agent (`ExecStopPost=` of systemd.service(5)), it is the one that outlives
//! the agent, and there is no such process: what it runs reads the same of the ledgers ([`undo_left`]).

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufRead;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use evenkeel_host::caps::{Feature, drop_all_except, needed};
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::node::boot_id;
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, HostWriter};

use crate::config::Config;
use crate::journal::Journal;
use crate::kernel::{Way, with_remedy};
use crate::ledger::{Ledger, Line};
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
    let mut left = Left::default();
    for line in std::io::stdin().lock().lines() {
        let Ok(line) = line else { break };
        // The pipe ends in the middle of a line where the agent was killed in it.
        if let Some(line) = Line::read(&line) {
            left.take(&line);
        }
    }
    left.undo(&reader, &mut *writer);
    Ok(())
}

/// Undoes what an agent that has ended only did for a while, by its ledgers. The files stay as they are: the next agent looks at them again.
///
/// # Errors
/// When a ledger cannot be read, or the cgroup file system not be used.
pub fn undo_left(config: &Config) -> anyhow::Result<()> {
    drop_rights();
    let (roots, tree) = crate::kernel::open_tree(config)?;
    let boot_id = boot_id(&roots).map_err(with_remedy).context("the boot's id is not known")?;
    let left = Left::of(&config.state_dir, &boot_id)?;
    let mut writer = crate::kernel::open_writer(config, &roots, &tree, Way::Direct)?;
    left.undo(&KernelReader::new(roots, tree), &mut *writer);
    Ok(())
}

/// What was done for a while and not undone.
#[derive(Debug, Default)]
struct Left {
    /// Frozen for one pass.
    passes: BTreeSet<CgroupRef>,
    standing: Standing,
}

impl Left {
    /// As the ledgers of a state directory have it; nothing where there are none.
    fn of(dir: &Path, boot_id: &str) -> anyhow::Result<Self> {
        let mut left = Self::default();
        for path in [Journal::path_in(dir), Transients::path_in(dir)] {
            let shown = path.display().to_string();
            let read = Ledger::in_memory("temporary settings", boot_id).open(path, |line| {
                left.take(&line);
                true
            });
            read.with_context(|| format!("cannot read {shown}"))?;
        }
        Ok(left)
    }

    fn take(&mut self, line: &Line) {
        match line {
            Line::Frozen { target } => self.passes.extend(target.cgroup()),
            Line::Thawed { target } => {
                if let Some(at) = target.cgroup() {
                    self.passes.remove(&at);
                }
            }
            line => {
                self.standing.take(line);
            }
        }
    }

    fn undo(&self, reader: &dyn HostReader, writer: &mut dyn HostWriter) {
        let mut entries: Vec<_> = self.passes.iter().map(frozen).collect();
        entries.extend(self.standing.to_undo());
        undo_all(reader, writer, &entries, |entry, result| {
            tracing::warn!(
                cgroup = %entry.at,
                knob = %entry.old.knob(),
                ?result,
                "the agent ended while this was set for a while"
            );
        });
    }
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

#[cfg(test)]
mod tests {
    use evenkeel_host::fake::FakeKernel;
    use evenkeel_host::hierarchy::{CgroupMode, Hierarchy};
    use evenkeel_host::knob::Setting;
    use evenkeel_host::write::Write;
    use evenkeel_model::units::{Bytes, Limit};

    use super::*;

    #[test]
    fn what_a_killed_agent_left_is_undone_by_its_ledgers_alone() {
        let (dir, kernel) = (tempfile::tempdir().unwrap(), FakeKernel::new(CgroupMode::V2));
        let high = |mib: u64| Setting::MemoryHigh(Limit::Value(Bytes::new(mib << 20)));
        kernel.with(|state| {
            for path in ["/frozen", "/held", "/standing"] {
                state.add_cgroup(path);
            }
            state.set("/frozen", Setting::CgroupFreeze(true));
            state.set("/held", high(90));
            state.set("/standing", high(80));
        });
        let place = |path: &str| kernel.cgroup(path).unwrap().place(Hierarchy::V2).unwrap().clone();
        let mut journal = Journal::open(dir.path(), "boot").unwrap();
        let transients = Transients::open(dir.path(), "boot").unwrap();
        assert!(journal.begin_transient(&Write::cgroup(place("/frozen"), Setting::CgroupFreeze(true))));
        // What is to stay is the journal's too, and is no business of this.
        let max = Setting::MemoryHigh(Limit::Max);
        journal.note(&evenkeel_host::write::Target::Cgroup(place("/standing")), max, high(80), None);
        journal.flush();
        assert!(transients.begin(&place("/held"), max, high(90)));
        // Killed: nothing is ended in order.
        std::mem::forget((journal, transients));
        let other_boot = Left::of(dir.path(), "other").unwrap();
        assert!(other_boot.passes.is_empty() && other_boot.standing.to_undo().is_empty());
        Left::of(dir.path(), "boot").unwrap().undo(&kernel, &mut kernel.clone());
        let now = |path: &str, knob| kernel.setting(&evenkeel_host::write::Target::Cgroup(place(path)), knob);
        assert_eq!(
            now("/frozen", evenkeel_host::knob::Knob::CgroupFreeze).unwrap(),
            Setting::CgroupFreeze(false)
        );
        assert_eq!(now("/held", evenkeel_host::knob::Knob::MemoryHigh).unwrap(), max);
        assert_eq!(now("/standing", evenkeel_host::knob::Knob::MemoryHigh).unwrap(), high(80));
        assert!(Left::of(&dir.path().join("none"), "boot").unwrap().passes.is_empty());
    }
}
