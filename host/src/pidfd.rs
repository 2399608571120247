//! A process held by a pidfd, so that a signal cannot hit another one with its number.
//!
//! Owns three system calls that neither the standard library nor nix wraps: pidfd_open(2) (Linux 5.3),
//! pidfd_send_signal(2) (5.1), process_mrelease(2) (5.15).

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::libc;

/// A process of our own process namespace.
#[derive(Debug)]
pub(crate) struct PidFd {
    fd: OwnedFd,
    pid: u32,
}

impl PidFd {
    /// Holds whoever has this number now.
    pub(crate) fn open(pid: u32) -> Result<Self, Errno> {
        let number = libc::pid_t::try_from(pid).map_err(|_| Errno::ESRCH)?;
        if number <= 0 {
            return Err(Errno::ESRCH);
        }
        // SAFETY: pidfd_open takes two integers and touches no memory of ours.
        #[allow(unsafe_code)]
        let raw = unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0 as libc::c_uint) };
        let raw = RawFd::try_from(Errno::result(raw)?).map_err(|_| Errno::EBADF)?;
        // SAFETY: the call succeeded, so `raw` is an open descriptor (close-on-exec), and nobody else has seen it.
        #[allow(unsafe_code)]
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Self { fd, pid })
    }

    pub(crate) const fn pid(&self) -> u32 {
        self.pid
    }

    /// SIGKILL.
    pub(crate) fn kill(&self) -> Result<(), Errno> {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        let none = 0 as libc::c_uint;
        // SAFETY: the descriptor is open as long as `self` lives; a null siginfo is allowed and means kill(2)'s.
        #[allow(unsafe_code)]
        let done = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.fd.as_raw_fd(), libc::SIGKILL, no_info, none)
        };
        Errno::result(done).map(|_| ())
    }

    /// Takes the memory of a process that is being killed without waiting for it. A kernel that cannot, or a
    /// process that is not dying or already gone, is left alone.
    pub(crate) fn release_memory(&self) {
        // SAFETY: process_mrelease takes two integers; the kernel refuses processes that are not dying.
        #[allow(unsafe_code)]
        let _best_effort =
            unsafe { libc::syscall(libc::SYS_process_mrelease, self.fd.as_raw_fd(), 0 as libc::c_uint) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn a_held_process_is_ended_and_numbers_that_are_none_are_refused() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let held = PidFd::open(child.id()).unwrap();
        held.kill().unwrap();
        held.release_memory();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert_eq!(held.kill(), Err(Errno::ESRCH));
        for pid in [0, u32::MAX, child.id()] {
            assert_eq!(PidFd::open(pid).err(), Some(Errno::ESRCH), "{pid}");
        }
    }
}
