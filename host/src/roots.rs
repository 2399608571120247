//! Where the kernel's file systems are mounted for us.
//!
//! Owns the two root directories every other module is given. Does not look inside them beyond the question
//! whether process numbers read there are ours to use. Nothing in this workspace names `/proc` or
//! `/sys/fs/cgroup` outside this file.

use std::path::{Path, PathBuf};

use crate::error::{HostError, HostOperation};

/// Root directories of procfs and of the cgroup file systems.
///
/// Inside a pod these are where the host's are mounted, for example `/host/proc` and `/host/sys/fs/cgroup`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    proc: PathBuf,
    cgroup: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self::new("/proc", "/sys/fs/cgroup")
    }
}

impl Roots {
    /// Roots at the given directories.
    pub fn new(proc: impl Into<PathBuf>, cgroup: impl Into<PathBuf>) -> Self {
        Self { proc: proc.into(), cgroup: cgroup.into() }
    }

    /// Directory of procfs.
    pub fn proc(&self) -> &Path {
        &self.proc
    }

    /// Directory of the cgroup file system, or the directory holding one mount per v1 hierarchy.
    pub fn cgroup(&self) -> &Path {
        &self.cgroup
    }

    /// Directory of sysfs that tells of processors and their places.
    pub fn devices(&self) -> &Path {
        Path::new("/sys/devices/system")
    }

    /// The device of the kernel's log.
    pub fn kernel_log(&self) -> &Path {
        Path::new("/dev/kmsg")
    }

    /// Our own process number as this procfs counts.
    ///
    /// # Errors
    /// `Gone` when this procfs belongs to a process namespace we are not in; `Malformed` when it is no procfs.
    pub fn own_pid(&self) -> Result<u32, HostError> {
        let link = self.proc.join("self");
        let seen =
            std::fs::read_link(&link).map_err(|e| HostError::from_io(HostOperation::Read, &link, &e))?;
        seen.to_str()
            .and_then(|s| s.parse().ok())
            .ok_or_else(|| HostError::malformed(&link, "the link does not name a process"))
    }

    /// Whether process numbers in `cgroup.procs` mean the same processes as directories of this procfs.
    ///
    /// The kernel translates `cgroup.procs` into the reader's process namespace and shows strangers as 0, while
    /// a procfs mount keeps the numbers of the namespace it was mounted in. In a pod both agree only with
    /// `hostPID: true`. Sampling works either way; converging scores does not.
    ///
    /// # Errors
    /// As [`Roots::own_pid`].
    pub fn pids_agree(&self) -> Result<bool, HostError> {
        Ok(self.own_pid()? == std::process::id())
    }

    /// Whether this procfs shows us other users' processes at all, judged by pid 1.
    ///
    /// Mounted with `hidepid=2` (proc(5)) it hides them from whoever lacks CAP_SYS_PTRACE, and a hidden process
    /// looks like one that has ended.
    pub fn shows_all_processes(&self) -> bool {
        self.proc.join("1/stat").exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_number_is_read_through_the_root() {
        let system = Roots::default();
        assert_eq!(system.own_pid(), Ok(std::process::id()));
        assert_eq!(system.pids_agree(), Ok(true));
        assert!(system.shows_all_processes());
        let tmp = tempfile::tempdir().unwrap();
        let roots = Roots::new(tmp.path(), tmp.path());
        assert!(roots.own_pid().unwrap_err().is_gone());
        std::os::unix::fs::symlink("not-a-pid", tmp.path().join("self")).unwrap();
        assert!(roots.own_pid().unwrap_err().to_string().contains("does not name a process"));
        assert!(!roots.shows_all_processes());
    }
}
