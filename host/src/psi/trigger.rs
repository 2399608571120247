//! A file of pressure that wakes whoever polls it: a threshold of stalls in a window.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{PsiScope, Resource, Stall};
use crate::error::{Category, HostError, HostOperation};

/// How much stalling within how long wakes us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    /// Stalled time, microseconds.
    pub stall_usec: u64,
    /// Window it is counted in, microseconds.
    pub window_usec: u64,
}

impl Threshold {
    /// Shortest window of any trigger (`WINDOW_MIN_US`, kernel/sched/psi.c).
    pub const SHORTEST_WINDOW: u64 = 500_000;
    /// Longest window of any trigger (`WINDOW_MAX_US`).
    pub const LONGEST_WINDOW: u64 = 10_000_000;
    /// Without CAP_SYS_RESOURCE windows are multiples of this, the period in which averages are taken anyway.
    pub const UNPRIVILEGED_STEP: u64 = 2_000_000;

    /// Whether the kernel takes it from somebody who may ask for any window.
    pub const fn is_in_range(self) -> bool {
        self.window_usec >= Self::SHORTEST_WINDOW
            && self.window_usec <= Self::LONGEST_WINDOW
            && self.stall_usec > 0
            && self.stall_usec <= self.window_usec
    }

    /// The next longer window that everybody may use, with the same part of it as threshold.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "what is above the window, which has 64 bits, is cut before"
    )]
    pub const fn unprivileged(self) -> Self {
        let steps = self.window_usec.div_ceil(Self::UNPRIVILEGED_STEP);
        let most = Self::LONGEST_WINDOW / Self::UNPRIVILEGED_STEP;
        let steps = if steps == 0 {
            1
        } else if steps > most {
            most
        } else {
            steps
        };
        let window_usec = steps * Self::UNPRIVILEGED_STEP;
        let asked = if self.window_usec == 0 { 1 } else { self.window_usec };
        let stall = self.stall_usec as u128 * window_usec as u128 / asked as u128;
        let stall_usec = if stall > window_usec as u128 { window_usec } else { stall as u64 };
        Self { stall_usec: if stall_usec == 0 { 1 } else { stall_usec }, window_usec }
    }
}

/// A trigger, to be polled for POLLPRI. It fires at most once in a window. Ended by dropping it.
#[derive(Debug)]
pub struct Trigger {
    file: File,
    threshold: Threshold,
    asked: Threshold,
}

impl Trigger {
    /// Arms a trigger: `stall_usec` of stalled time within `window_usec`. Where the kernel does not grant us such
    /// a window it is lengthened to a multiple of two seconds, with the same part of it as threshold; ask
    /// [`Trigger::threshold`] what is in force.
    ///
    /// # Errors
    /// `Unsupported` without PSI (remedy: `psi=1`) and on v1; `Rejected` when the numbers are out of range;
    /// `Denied` where only CAP_SYS_RESOURCE may arm one (kernels before 6.4): then poll; `Gone`.
    pub fn open(
        place: PsiScope<'_>,
        resource: Resource,
        stall: Stall,
        stall_usec: u64,
        window_usec: u64,
    ) -> Result<Self, HostError> {
        let asked = Threshold { stall_usec, window_usec };
        let fail = |e| place.error(HostOperation::Write, resource, e);
        match Self::arm(place, resource, stall, asked, asked) {
            Err(Errno::EINVAL | Errno::EPERM) if asked.is_in_range() && asked.unprivileged() != asked => {
                Self::arm(place, resource, stall, asked.unprivileged(), asked).map_err(fail)
            }
            other => other.map_err(fail),
        }
        .map_err(|e| match e.category() {
            Category::Denied => {
                e.with_remedy("grant CAP_SYS_RESOURCE for pressure triggers; pressure is polled")
            }
            _ => e,
        })
    }

    /// A file takes one trigger in its life, so each attempt opens it anew.
    fn arm(
        place: PsiScope<'_>,
        resource: Resource,
        stall: Stall,
        threshold: Threshold,
        asked: Threshold,
    ) -> Result<Self, Errno> {
        let mut file = File::from(place.open_for_trigger(resource)?);
        let line = format!("{} {} {}\0", stall.name(), threshold.stall_usec, threshold.window_usec);
        // The kernel takes the whole line or none of it.
        match file.write_all(line.as_bytes()) {
            Ok(()) => Ok(Self { file, threshold, asked }),
            Err(e) => Err(Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO))),
        }
    }

    /// What is in force.
    pub const fn threshold(&self) -> Threshold {
        self.threshold
    }

    /// True when the kernel did not grant the window that was asked for.
    pub fn is_lengthened(&self) -> bool {
        self.threshold != self.asked
    }

    /// Whether it has fired since it was last asked or polled. Never blocks.
    ///
    /// # Errors
    /// `Gone` when its cgroup was removed.
    pub fn has_fired(&self) -> Result<bool, HostError> {
        let mut fds = [PollFd::new(self.file.as_fd(), PollFlags::POLLPRI)];
        let fail = |e| HostError::from_errno(HostOperation::Read, "a pressure trigger", e, true);
        match poll(&mut fds, PollTimeout::ZERO) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(e) => return Err(fail(e)),
        }
        let seen = fds[0].revents().unwrap_or(PollFlags::empty());
        if seen.contains(PollFlags::POLLERR) {
            return Err(fail(Errno::ENODEV));
        }
        Ok(seen.contains(PollFlags::POLLPRI))
    }
}

impl AsFd for Trigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
