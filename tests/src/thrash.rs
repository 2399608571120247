//! Memory pressure on purpose: processes that stall because their cgroup has too little memory for what they do.
//!
//! The node's pressure counts every stall, so the machine itself needs not be short of anything.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::unistd::Pid;

use crate::cgroups::{CgroupTree, TestCgroup};
use crate::places;

/// Memory the cgroup has, and what its processes want of it.
const HAS: usize = 48 << 20;
const WANTS: usize = 128 << 20;
/// Readers: enough to stall most of the time, few enough to leave others a processor.
const READERS: usize = 3;

/// Processes that thrash, until stopped.
#[derive(Debug)]
pub struct Thrash {
    pids: Vec<Pid>,
}

impl Thrash {
    /// Starts them in `cgroup`, which gets a limit; a file of theirs is made in `directory`.
    ///
    /// On v1 they read a file that does not fit. On v2 they write to memory beyond `memory.high`, where the kernel makes
    /// them wait, so that no disk is needed.
    ///
    /// # Errors
    ///
    /// Fails when the limit or the file cannot be made or a process does not start.
    pub fn start(tree: &mut CgroupTree, cgroup: &TestCgroup, directory: &Path) -> Result<Thrash> {
        let program = places::program("evenkeel-workload")?;
        let mut command = Command::new(program);
        if cgroup.is_v2() {
            cgroup.set("memory", "memory.high", &(16 << 20).to_string())?;
            command.args(["grow", "5", "25%"]);
            return Ok(Thrash { pids: vec![tree.spawn(cgroup, &command)?] });
        }
        cgroup.set("memory", "memory.limit_in_bytes", &HAS.to_string())?;
        let file = directory.join("thrashed");
        uncached(&file, WANTS).with_context(|| format!("cannot make {}", file.display()))?;
        command.arg("read").arg(&file).args(["0", &WANTS.to_string(), "again"]);
        let pids = (0..READERS).map(|_| tree.spawn(cgroup, &command)).collect::<Result<_>>()?;
        Ok(Thrash { pids })
    }

    /// Ends them.
    ///
    /// # Errors
    ///
    /// Fails when one does not end.
    pub fn stop(self, tree: &mut CgroupTree) -> Result<()> {
        self.pids.into_iter().try_for_each(|pid| tree.end(pid))
    }
}

/// Makes a file of which no page is in memory: whoever reads it is charged for it.
///
/// # Errors
///
/// Fails when it cannot be written.
pub fn uncached(path: &Path, size: usize) -> Result<()> {
    let mut file = File::create(path)?;
    let block = vec![0x5a; 1 << 20];
    for _ in 0..size >> 20 {
        file.write_all(&block)?;
    }
    file.sync_all()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    Ok(())
}
