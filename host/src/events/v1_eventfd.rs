//! cgroup v1 notifications: an eventfd registered through `cgroup.event_control` (cgroup-v1/memory.rst).
//!
//! The registration lives as long as the eventfd; the kernel signals it once more when the cgroup is removed.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::cgroup::CgroupDir;
use crate::error::{HostError, HostOperation};

#[derive(Debug)]
pub(super) struct Registered {
    eventfd: EventFd,
}

impl Registered {
    /// Registers for the events of `file`, with what the file wants as arguments.
    pub(super) fn new(dir: &CgroupDir, file: &str, arguments: &str) -> Result<Self, HostError> {
        let fail = |e| dir.error(HostOperation::Watch, file, e);
        let eventfd = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK).map_err(fail)?;
        let source = dir.open_file(file).map_err(fail)?;
        let blank = if arguments.is_empty() { "" } else { " " };
        let request = format!("{} {}{blank}{arguments}", eventfd.as_fd().as_raw_fd(), source.as_raw_fd());
        dir.write("cgroup.event_control", &request)?;
        Ok(Self { eventfd })
    }

    /// How often it was signalled since it was last asked.
    pub(super) fn take(&self) -> u64 {
        match self.eventfd.read() {
            Ok(n) => n,
            Err(Errno::EAGAIN | Errno::EINTR) => 0,
            // An eventfd has no other errors; were there one, to look is the safe answer.
            Err(_) => 1,
        }
    }
}

impl AsFd for Registered {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.eventfd.as_fd()
    }
}
