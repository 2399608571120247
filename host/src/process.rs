//! A process held by its directory in procfs, so that a reused pid is never mistaken for it.
//!
//! Opening `/proc/PID` pins the process: once it has ended every file below the handle answers ESRCH, whoever
//! has its number then (proc(5)). Owns reading `stat`, `oom_score_adj` and `cgroup` through the handle. Does not
//! decide which process may be written.

use std::os::fd::OwnedFd;

use evenkeel_model::units::OomScoreAdj;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{read, write};

use crate::error::{Category, HostError, HostOperation};
use crate::hierarchy::{Controller, Hierarchy};
use crate::parse::{self, ProcStat};
use crate::roots::Roots;
use crate::snapshot::ProcessFacts;
use crate::write::ProcessId;

/// `PF_KTHREAD` of the kernel's `sched.h`, shown in the flags field of `stat` (proc(5)).
const PF_KTHREAD: u64 = 0x0020_0000;

/// A process, pinned.
#[derive(Debug)]
pub struct ProcessHandle {
    fd: OwnedFd,
    pid: u32,
}

impl ProcessHandle {
    /// Opens the directory of a pid.
    ///
    /// # Errors
    /// `Gone` when there is no such process; `Io` when descriptors run out.
    pub fn open(roots: &Roots, pid: u32) -> Result<Self, HostError> {
        let path = roots.proc().join(pid.to_string());
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = open(&path, flags, Mode::empty())
            .map_err(|e| HostError::from_errno(HostOperation::Open, path.display().to_string(), e, false))?;
        Ok(Self { fd, pid })
    }

    /// Opens the process meant by `id`.
    ///
    /// # Errors
    /// `Gone` when it has ended, also when its number is another process's now.
    pub fn open_same(roots: &Roots, id: ProcessId) -> Result<Self, HostError> {
        let handle = Self::open(roots, id.pid)?;
        let now = handle.stat()?.start_time;
        if now == id.start_time {
            return Ok(handle);
        }
        let why = format!("the pid is now that of a process started at {now}");
        Err(HostError::of_text(Category::Gone, HostOperation::Open, id.to_string(), why))
    }

    pub(crate) const fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Its process number.
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// `stat`: state, parent, flags, start time.
    ///
    /// # Errors
    /// `Gone` when the process has ended; `Malformed`.
    pub fn stat(&self) -> Result<ProcStat, HostError> {
        let mut buffer = [0; 1024];
        let text = self.read_into("stat", &mut buffer)?;
        parse::proc_stat(text).ok_or_else(|| self.malformed("stat"))
    }

    /// Its `oom_score_adj`.
    ///
    /// # Errors
    /// `Gone` when the process has ended; `Malformed`.
    pub fn oom_score_adj(&self) -> Result<OomScoreAdj, HostError> {
        let mut buffer = [0; 64];
        let text = self.read_into("oom_score_adj", &mut buffer)?;
        parse_score(text).ok_or_else(|| self.malformed("oom_score_adj"))
    }

    /// Writes its `oom_score_adj`. Crate-private: everybody else goes through a `HostWriter`.
    pub(crate) fn set_oom_score_adj(&self, score: OomScoreAdj) -> Result<(), HostError> {
        let fail = |e| self.error(HostOperation::Write, "oom_score_adj", e);
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let fd = openat(&self.fd, "oom_score_adj", flags, Mode::empty()).map_err(fail)?;
        write(&fd, format!("{score}\n").as_bytes()).map(|_| ()).map_err(fail)
    }

    /// Identity, state and score in one.
    ///
    /// # Errors
    /// `Gone` when the process has ended; `Malformed`.
    pub fn facts(&self) -> Result<ProcessFacts, HostError> {
        let stat = self.stat()?;
        Ok(ProcessFacts {
            id: ProcessId { pid: self.pid, start_time: stat.start_time },
            parent: stat.parent,
            zombie: is_zombie(&stat),
            kernel_thread: is_kernel_thread(&stat),
            score: self.oom_score_adj()?,
        })
    }

    /// Its cgroup path in each hierarchy, as seen from our cgroup namespace: outside the initial one the paths
    /// are relative to our own cgroup and may begin with `/..`.
    ///
    /// # Errors
    /// `Gone` when the process has ended.
    pub fn cgroups(&self) -> Result<Vec<(Hierarchy, String)>, HostError> {
        let mut buffer = vec![0; 16 * 1024];
        let text = self.read_into("cgroup", &mut buffer)?;
        Ok(cgroup_lines(text))
    }

    pub(crate) fn read_into<'b>(&self, file: &str, buffer: &'b mut [u8]) -> Result<&'b [u8], HostError> {
        let fail = |e| self.error(HostOperation::Read, file, e);
        let fd = openat(&self.fd, file, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(fail)?;
        let len = read_once(&fd, buffer).map_err(fail)?;
        Ok(&buffer[..len])
    }

    fn subject(&self, file: &str) -> String {
        format!("pid {} {file}", self.pid)
    }

    pub(crate) fn error(&self, action: HostOperation, file: &str, errno: Errno) -> HostError {
        HostError::from_errno(action, self.subject(file), errno, false)
    }

    fn malformed(&self, file: &str) -> HostError {
        let why = "the text is not understood";
        HostError::of_text(Category::Malformed, HostOperation::Read, self.subject(file), why)
    }
}

/// The score of whoever has this pid now, by three system calls and without allocation after the path.
///
/// # Errors
/// `Gone` when there is no such process; `Malformed`.
pub fn score_of(roots: &Roots, pid: u32) -> Result<OomScoreAdj, HostError> {
    let path = roots.proc().join(format!("{pid}/oom_score_adj"));
    let fail = |e| HostError::from_errno(HostOperation::Read, path.display().to_string(), e, false);
    let fd = open(&path, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty()).map_err(fail)?;
    let mut buffer = [0; 64];
    let len = read_once(&fd, &mut buffer).map_err(fail)?;
    parse_score(&buffer[..len]).ok_or_else(|| HostError::malformed(&path, "the text is not understood"))
}

fn read_once(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match read(fd, buffer) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

fn parse_score(text: &[u8]) -> Option<OomScoreAdj> {
    let n = parse::int(parse::first_line(text))?;
    OomScoreAdj::new(i16::try_from(n).ok()?).ok()
}

/// Ended but not yet collected by its parent.
pub const fn is_zombie(stat: &ProcStat) -> bool {
    matches!(stat.state, b'Z' | b'X' | b'x')
}

/// A thread of the kernel itself.
pub const fn is_kernel_thread(stat: &ProcStat) -> bool {
    stat.flags & PF_KTHREAD != 0
}

/// Lines of `/proc/PID/cgroup` (cgroups(7)): `id:controllers:path`, with `0::` for v2. Named v1 hierarchies and
/// controllers we do not know are left out.
pub(crate) fn cgroup_lines(text: &[u8]) -> Vec<(Hierarchy, String)> {
    let mut found = Vec::new();
    for line in text.split(|&b| b == b'\n') {
        let mut parts = line.splitn(3, |&b| b == b':');
        let (Some(id), Some(controllers), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        let path = String::from_utf8_lossy(path).into_owned();
        if id == b"0" && controllers.is_empty() {
            found.push((Hierarchy::V2, path));
            continue;
        }
        let of = |c: &Controller| controllers.split(|&b| b == b',').any(|n| n == c.name().as_bytes());
        found.extend(Controller::ALL.into_iter().find(of).map(|first| (Hierarchy::V1(first), path)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn membership_lines_are_sorted_by_hierarchy() {
        let text = b"9:name=systemd:/\n4:memory:/a:b\n2:cpu,cpuacct:/c\nnonsense\n0::/u\n";
        assert_eq!(
            cgroup_lines(text),
            vec![
                (Hierarchy::V1(Controller::Memory), "/a:b".to_owned()),
                (Hierarchy::V1(Controller::Cpu), "/c".to_owned()),
                (Hierarchy::V2, "/u".to_owned()),
            ]
        );
    }

    #[test]
    fn our_own_process_is_read_and_an_impostor_is_not_taken_for_it() {
        let roots = Roots::default();
        let me = ProcessHandle::open(&roots, std::process::id()).unwrap();
        let facts = me.facts().unwrap();
        assert!(!facts.zombie && !facts.kernel_thread);
        assert_eq!(score_of(&roots, me.pid()).unwrap(), facts.score);
        assert!(ProcessHandle::open_same(&roots, facts.id).is_ok());
        let other = ProcessId { start_time: facts.id.start_time + 1, ..facts.id };
        assert!(ProcessHandle::open_same(&roots, other).unwrap_err().is_gone());
    }

    #[test]
    fn an_ended_process_is_gone_through_its_handle() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let handle = ProcessHandle::open(&Roots::default(), child.id()).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(handle.stat().unwrap_err().is_gone());
        assert!(handle.oom_score_adj().unwrap_err().is_gone());
    }
}
