//! How many descriptors sampling needs, how many there are, and who may keep some.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::sources::sources_of;
use super::traffic;
use crate::error::{HostError, HostOperation};
use crate::hierarchy::Layout;

/// Left to the rest of the program: sockets, logs, cgroup and process directories held for a moment.
const RESERVE: u64 = 256;

/// One of so many descriptors is for a directory of a cgroup that audits keep open.
const DIRECTORIES: u64 = 8;

/// Descriptors it takes to keep every file of that many containers open, with an eighth for their directories and a
/// reserve of 256 for the rest of the program.
pub fn descriptors_needed(layout: &Layout, containers: u64) -> u64 {
    let each = sources_of(layout).len() as u64 + traffic::DESCRIPTORS;
    let files = containers.saturating_mul(each).saturating_add(RESERVE);
    files.saturating_add(files.div_ceil(DIRECTORIES - 1))
}

/// What RLIMIT_NOFILE is after [`raise_nofile`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nofile {
    /// Descriptors we may have open.
    pub limit: u64,
    /// Descriptors asked for.
    pub wanted: u64,
}

impl Nofile {
    /// False when it is less than was asked for: containers beyond it are read by opening and closing each file
    /// every time, which costs about three times the CPU. The remedy is `LimitNOFILE=` of the unit, or
    /// CAP_SYS_RESOURCE, or the sysctl `fs.nr_open`.
    pub const fn is_enough(self) -> bool {
        self.limit >= self.wanted
    }

    /// Directories of cgroups that may be kept open
    /// ([`KernelReader::keeping_open`](crate::kernel_reader::KernelReader::keeping_open)).
    pub const fn directories(self) -> u64 {
        self.limit / DIRECTORIES
    }
}

/// Raises RLIMIT_NOFILE to `wanted`: up to the hard limit always, beyond it where the kernel lets us
/// (CAP_SYS_RESOURCE, sysctl `fs.nr_open`). Never lowers it.
///
/// # Errors
/// When the limit cannot even be read.
pub fn raise_nofile(wanted: u64) -> Result<Nofile, HostError> {
    let fail = |e: Errno| HostError::from_errno(HostOperation::Adjust, "RLIMIT_NOFILE", e, true);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(fail)?;
    if soft < wanted {
        let beyond = wanted > hard && setrlimit(Resource::RLIMIT_NOFILE, wanted, wanted).is_ok();
        if !beyond && setrlimit(Resource::RLIMIT_NOFILE, wanted.min(hard), hard).is_err() {
            // What we have is what is reported below; a refusal takes nothing away.
            return Ok(Nofile { limit: soft, wanted });
        }
    }
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).map_err(fail)?;
    Ok(Nofile { limit, wanted })
}

/// The descriptors that readers may keep between ticks; shared by all of them.
#[derive(Debug, Clone)]
pub struct Descriptors {
    left: Arc<AtomicU64>,
}

impl Descriptors {
    /// Lets readers keep what `limit` leaves after an eighth for directories and the reserve of 256 for the rest of the
    /// program.
    pub fn within(limit: u64) -> Self {
        let files = limit.saturating_sub(limit / DIRECTORIES).saturating_sub(RESERVE);
        Self { left: Arc::new(AtomicU64::new(files)) }
    }

    /// Descriptors that may still be kept.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Takes `n`, all or none.
    pub(super) fn take(&self, n: u64) -> Option<DescriptorLease> {
        self.left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(n))
            .ok()
            .map(|_| DescriptorLease { from: self.clone(), n })
    }
}

/// Descriptors taken by one reader, given back when it is dropped.
#[derive(Debug)]
pub(super) struct DescriptorLease {
    from: Descriptors,
    n: u64,
}

impl DescriptorLease {
    /// Gives back what turned out not to be needed.
    pub(super) fn shrink_to(&mut self, n: u64) {
        let spare = self.n.saturating_sub(n);
        self.from.left.fetch_add(spare, Ordering::Relaxed);
        self.n -= spare;
    }
}

impl Drop for DescriptorLease {
    fn drop(&mut self) {
        self.from.left.fetch_add(self.n, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_taken_whole_and_given_back() {
        let all = Descriptors::within((RESERVE + 10) * DIRECTORIES / (DIRECTORIES - 1));
        let mut first = all.take(8).unwrap();
        assert!(all.take(3).is_none());
        first.shrink_to(5);
        assert_eq!(all.left(), 5);
        drop(first);
        assert_eq!(all.left(), 10);
    }

    #[test]
    fn a_limit_below_the_present_one_changes_nothing() {
        let before = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let got = raise_nofile(1).unwrap();
        assert!(got.is_enough());
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), before);
    }
}
