//! Which program a process runs, for whoever looks for a daemon by name.
//!
//! Cold: one look at a process opens several files, and listing all numbers reads a directory as long as the
//! machine has processes. Owns what is read and how one process is held meanwhile. Does not decide who is a daemon.

use std::path::PathBuf;

use evenkeel_model::units::OomScoreAdj;
use nix::fcntl::{AtFlags, readlinkat};
use nix::sys::stat::{fstat, fstatat};

use crate::error::{HostError, HostOperation};
use crate::hierarchy::Hierarchy;
use crate::parse;
use crate::process::{ProcessHandle, is_kernel_thread, is_zombie};
use crate::roots::Roots;
use crate::write::ProcessId;

/// What the kernel appends to the path of a program whose file was removed or replaced (proc(5)).
const DELETED: &str = " (deleted)";
/// Longest name in `comm` (`TASK_COMM_LEN` of the kernel's `sched.h`, without the end).
pub const COMM_LENGTH: usize = 15;

/// A process and the program it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    /// Who it is.
    pub id: ProcessId,
    /// Its name, cut at [`COMM_LENGTH`]; any process may choose it.
    pub comm: String,
    /// Path of the program's file as the process sees it. `None` where we may not look: it takes a capability
    /// for processes that hold more of them than we do (ptrace(2), `PTRACE_MODE_READ_FSCREDS`).
    pub program: Option<PathBuf>,
    /// First word of its command line; any process may choose it. `None` when it is empty.
    pub first_word: Option<String>,
    /// Effective user id.
    pub uid: u32,
    /// It is in a process namespace below that of procfs: a container, most likely.
    pub in_inner_namespace: bool,
    /// Its root directory is that of pid 1; `None` where we may not look.
    pub shares_root: Option<bool>,
    /// Its cgroups, as [`ProcessHandle::cgroups`] tells them.
    pub cgroups: Vec<(Hierarchy, String)>,
    /// A thread of the kernel, or a process that has ended.
    pub is_no_program: bool,
}

impl Running {
    /// Path of its program as far as it can be known: by the kernel, or else as the process says itself.
    pub fn best_path(&self) -> PathBuf {
        let said = || self.first_word.clone().unwrap_or_else(|| self.comm.clone());
        self.program.clone().unwrap_or_else(|| PathBuf::from(said()))
    }
}

/// Numbers of every process, in no particular order.
///
/// # Errors
/// `Denied` or `Io` when procfs cannot be listed.
pub fn pids(roots: &Roots) -> Result<Vec<u32>, HostError> {
    let fail = |e: std::io::Error| HostError::from_io(HostOperation::List, roots.proc(), &e);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(roots.proc()).map_err(fail)? {
        found.extend(
            parse::uint(entry.map_err(fail)?.file_name().as_encoded_bytes())
                .and_then(|n| u32::try_from(n).ok()),
        );
    }
    Ok(found)
}

/// The name of whoever has this pid now: the cheap question before [`running`].
///
/// # Errors
/// `Gone` when there is no such process.
pub fn comm_of(roots: &Roots, pid: u32) -> Result<String, HostError> {
    let path = roots.proc().join(format!("{pid}/comm"));
    let text = std::fs::read(&path).map_err(|e| HostError::from_io(HostOperation::Read, &path, &e))?;
    Ok(text_of(&text))
}

/// Which program a process runs.
///
/// # Errors
/// `Gone` when there is no such process, also when it ended meanwhile.
pub fn running(roots: &Roots, pid: u32) -> Result<Running, HostError> {
    let handle = ProcessHandle::open(roots, pid)?;
    let stat = handle.stat()?;
    let mut buffer = [0; 4096];
    let comm = text_of(handle.read_into("comm", &mut buffer)?);
    let status = handle.read_into("status", &mut buffer)?;
    let in_inner_namespace = namespaces(status) > 1;
    let command = handle.read_into("cmdline", &mut buffer)?;
    let first = command.split(|&b| b == 0).next().unwrap_or_default();
    let uid = fstat(handle.fd()).map_err(|e| handle.error(HostOperation::Read, "", e))?.st_uid;
    let cgroups = handle.cgroups()?;
    Ok(Running {
        id: ProcessId { pid, start_time: stat.start_time },
        comm,
        program: program(&handle),
        first_word: (!first.is_empty()).then(|| String::from_utf8_lossy(first).into_owned()),
        uid,
        in_inner_namespace,
        shares_root: shares_root(roots, &handle),
        cgroups,
        is_no_program: is_kernel_thread(&stat) || is_zombie(&stat),
    })
}

/// Sets the score of our own process, which a [`HostWriter`](crate::write::HostWriter) refuses, and tells what it
/// was. For the start of a daemon, before it begins children that inherit it.
///
/// # Errors
/// `Denied` when the score is below what we were last set to by somebody privileged and we lack
/// CAP_SYS_RESOURCE; as [`Roots::own_pid`].
pub fn set_own_score(roots: &Roots, score: OomScoreAdj) -> Result<OomScoreAdj, HostError> {
    let own = ProcessHandle::open(roots, roots.own_pid()?)?;
    let old = own.oom_score_adj()?;
    if old != score {
        own.set_oom_score_adj(score)?;
    }
    Ok(old)
}

fn program(handle: &ProcessHandle) -> Option<PathBuf> {
    let path = readlinkat(handle.fd(), "exe").ok()?;
    let text = path.to_str()?;
    Some(PathBuf::from(text.strip_suffix(DELETED).unwrap_or(text)))
}

fn shares_root(roots: &Roots, handle: &ProcessHandle) -> Option<bool> {
    let theirs = fstatat(handle.fd(), "root", AtFlags::empty()).ok()?;
    let first = ProcessHandle::open(roots, 1).ok()?;
    let init = fstatat(first.fd(), "root", AtFlags::empty()).ok()?;
    Some((theirs.st_dev, theirs.st_ino) == (init.st_dev, init.st_ino))
}

/// Process namespaces a process has a number in, from that of procfs down: `NSpid` of `status` (proc(5), Linux 4.1).
fn namespaces(status: &[u8]) -> usize {
    let line = status.split(|&b| b == b'\n').find_map(|line| line.strip_prefix(b"NSpid:"));
    line.map_or(1, |numbers| parse::words(numbers).count())
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(parse::first_line(bytes)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_program_is_told() {
        let roots = Roots::default();
        let own = running(&roots, std::process::id()).unwrap();
        assert_eq!(own.program, std::env::current_exe().ok());
        assert_eq!(own.uid, nix::unistd::geteuid().as_raw());
        assert_eq!(comm_of(&roots, own.id.pid).unwrap().len(), own.comm.len());
        assert!(!own.is_no_program && !own.in_inner_namespace);
        assert!(pids(&roots).unwrap().contains(&own.id.pid));
        assert!(running(&roots, u32::MAX >> 1).unwrap_err().is_gone());
    }

    #[test]
    fn our_own_score_is_set_to_what_it_is() {
        let roots = Roots::default();
        let now = crate::process::score_of(&roots, std::process::id()).unwrap();
        assert_eq!(set_own_score(&roots, now), Ok(now));
    }

    #[test]
    fn an_inner_namespace_is_seen() {
        assert_eq!(namespaces(b"Name:\tx\nNSpid:\t7\nNSpgid:\t7\n"), 1);
        assert_eq!(namespaces(b"Name:\tx\nNSpid:\t700\t1\n"), 2);
        assert_eq!(namespaces(b"Name:\tx\n"), 1);
    }
}
