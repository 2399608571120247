//! Processes of a cgroup and of the subtree below it.

use nix::errno::Errno;
use nix::sys::uio::pread;

use super::dir::CgroupDir;
use crate::error::{HostError, HostOperation};
use crate::hierarchy::Hierarchy;
use crate::parse;

/// cgroup paths are at most 4096 bytes long, so a deeper tree cannot be opened by path; runtimes nest 3 to 8.
const DEEPEST: usize = 64;

/// Bytes a line surely fits in: process numbers end at 4,194,304.
const LINE: usize = 64;

/// What a listing of processes found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Procs {
    /// Process numbers, sorted, each once.
    pub pids: Vec<u32>,
    /// Lines that were no numbers.
    pub malformed: usize,
    /// True when a branch was deeper than 64 levels and was not followed.
    pub truncated: bool,
}

impl CgroupDir {
    /// Processes of this cgroup itself, in the kernel's order.
    ///
    /// # Errors
    /// `Gone` when the cgroup was removed; `Denied`; `Io`. A threaded v2 cgroup answers `Unsupported`.
    pub fn procs(&self) -> Result<Procs, HostError> {
        let mut found = Procs::default();
        self.append_procs(&mut found)?;
        Ok(found)
    }

    /// Processes of this cgroup and all below it. A cgroup that vanishes meanwhile counts as empty, and
    /// processes that move while the tree is walked may be missed: whoever needs certainty lists again.
    ///
    /// # Errors
    /// As [`CgroupDir::procs`], for this cgroup itself.
    pub fn subtree_procs(&self) -> Result<Procs, HostError> {
        let mut found = Procs::default();
        self.append_procs(&mut found)?;
        self.append_children(&mut found, 1)?;
        found.pids.sort_unstable();
        found.pids.dedup();
        Ok(found)
    }

    /// Whether it or any cgroup below it has a process: v2 tells (`cgroup.events`), v1 is walked up to the first.
    ///
    /// # Errors
    /// As [`CgroupDir::procs`], for this cgroup itself.
    pub fn is_populated(&self) -> Result<bool, HostError> {
        if self.at().hierarchy == Hierarchy::V2 {
            let [populated] = parse::pick(&self.read("cgroup.events")?, [b"populated"]);
            if let Some(populated) = populated.value() {
                return Ok(populated != 0);
            }
        }
        self.has_process(1)
    }

    fn has_process(&self, depth: usize) -> Result<bool, HostError> {
        if !self.procs()?.pids.is_empty() {
            return Ok(true);
        }
        for name in self.children()? {
            let below = self.child(&name).and_then(|child| match child.has_process(depth + 1) {
                // A threaded cgroup cannot be listed, but something made it so.
                Err(e) if e.errno() == Some(Errno::EOPNOTSUPP as i32) => Ok(true),
                other => other,
            });
            match below {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(e) if e.is_gone() => {}
                Err(e) => return Err(e),
            }
            if depth >= DEEPEST {
                break;
            }
        }
        Ok(false)
    }

    fn append_children(&self, found: &mut Procs, depth: usize) -> Result<(), HostError> {
        if self.is_leaf() {
            return Ok(());
        }
        for name in self.children()? {
            if depth >= DEEPEST {
                found.truncated = true;
                return Ok(());
            }
            let below = self.child(&name).and_then(|child| {
                // The processes of a threaded cgroup are listed by its domain, which is above it.
                match child.append_procs(found) {
                    Err(e) if e.errno() == Some(Errno::EOPNOTSUPP as i32) => {}
                    other => other?,
                }
                child.append_children(found, depth + 1)
            });
            match below {
                Err(e) if !e.is_gone() => return Err(e),
                _ => {}
            }
        }
        Ok(())
    }

    /// The kernel hands the list out a page at a time, cut between lines or within one. It stops before the buffer is full only
    /// where the next line does not fit or there is none (fs/seq_file.c, `seq_read_iter`), so most lists take one read; v1 makes
    /// the whole list again for each.
    fn append_procs(&self, found: &mut Procs) -> Result<(), HostError> {
        let fail = |e| self.error(HostOperation::Read, "cgroup.procs", e);
        let fd = self.open_file("cgroup.procs").map_err(fail)?;
        let mut buffer = [0u8; 4096];
        let (mut kept, mut offset) = (0, 0i64);
        loop {
            let n = match pread(&fd, &mut buffer[kept..], offset) {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(Errno::EINTR) => continue,
                Err(e) => return Err(fail(e)),
            };
            offset += i64::try_from(n).unwrap_or(i64::MAX);
            let filled = kept + n;
            kept = parse::procs(&buffer[..filled], &mut found.pids, &mut found.malformed);
            if kept == 0 && filled + LINE <= buffer.len() {
                return Ok(());
            }
            if kept == buffer.len() {
                // A line as long as the buffer is no process number; drop it rather than loop on it.
                found.malformed += 1;
                kept = 0;
            }
            buffer.copy_within(filled - kept..filled, 0);
        }
    }
}
