//! The kernel's log of OOM kills.
//!
//! Owns reading `/dev/kmsg` (Documentation/ABI/testing/dev-kmsg) without blocking and joining the two lines the
//! kernel writes for a kill into one [`OomKill`]. Everything else in the log is passed over. Never blocks, keeps
//! at most one unfinished kill.

mod record;

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::libc;

use crate::error::{HostError, HostOperation};
use crate::roots::Roots;

pub use record::{Constraint, Joiner, KernelRecord, OomKill};

/// Records read in one call at most, so that a flood cannot keep the caller for ever.
const BATCH: usize = 1024;

/// Longer than any record (`PRINTK_MESSAGE_MAX`, kernel/printk/internal.h).
const LONGEST_RECORD: usize = 8192;

/// What the log told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEvent {
    /// A process was ended by the OOM killer.
    Killed(OomKill),
    /// Records were overwritten before they were read: kills may be missing, counters are not.
    Overrun,
}

/// The log, from now on. Pollable for POLLIN.
#[derive(Debug)]
pub struct KernelLog {
    file: File,
    joiner: Joiner,
    overruns: u64,
}

impl KernelLog {
    /// Opens the log behind its last record.
    ///
    /// # Errors
    /// `Denied` without CAP_SYSLOG where `kernel.dmesg_restrict` is set; `Gone` where there is no such device.
    pub fn open(roots: &Roots) -> Result<Self, HostError> {
        Self::open_at(roots.kernel_log())
    }

    fn open_at(path: &Path) -> Result<Self, HostError> {
        let fail = |e: std::io::Error| {
            let error = HostError::from_io(HostOperation::Open, path, &e);
            match e.kind() {
                ErrorKind::PermissionDenied => error.with_remedy("grant CAP_SYSLOG and access to /dev/kmsg"),
                ErrorKind::NotFound => error.with_remedy("make the host's /dev/kmsg visible here"),
                _ => error,
            }
        };
        let mut file =
            OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(fail)?;
        file.seek(SeekFrom::End(0)).map_err(fail)?;
        Ok(Self { file, joiner: Joiner::default(), overruns: 0 })
    }

    /// Appends what was logged since the last call, at most 1,024 records of any kind; returns how many records
    /// were read, 0 when nothing is left. Never blocks.
    ///
    /// # Errors
    /// `Io` when the device cannot be read.
    pub fn read(&mut self, into: &mut Vec<LogEvent>) -> Result<usize, HostError> {
        let mut buffer = [0; LONGEST_RECORD];
        let mut taken = 0;
        while taken < BATCH {
            // The device hands out one record for each read.
            match self.file.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => into.extend(self.joiner.take(&buffer[..n]).map(LogEvent::Killed)),
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {
                    self.overruns += 1;
                    into.push(LogEvent::Overrun);
                }
                // Larger than the buffer: skipped by the kernel.
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {}
                Err(e) => return Err(HostError::from_io(HostOperation::Read, Path::new("kernel log"), &e)),
            }
            taken += 1;
        }
        Ok(taken)
    }

    /// How often records were lost so far.
    pub const fn overruns(&self) -> u64 {
        self.overruns
    }
}

impl AsFd for KernelLog {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_that_is_not_there_is_an_error_with_a_remedy() {
        let tmp = tempfile::tempdir().unwrap();
        let error = KernelLog::open_at(&tmp.path().join("kmsg")).unwrap_err();
        assert!(error.is_gone() && error.remedy().is_some());
    }

    #[test]
    fn only_what_comes_later_is_read() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("kmsg");
        std::fs::write(&path, "3,1,1,-;Out of memory: Killed process 1 (a) total-vm:1kB\n").unwrap();
        let mut log = KernelLog::open_at(&path).unwrap();
        let mut events = Vec::new();
        assert_eq!(log.read(&mut events), Ok(0));
        assert_eq!((events.len(), log.overruns()), (0, 0));
    }
}
