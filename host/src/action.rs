//! Deeds that are no settings: nothing is left behind that could be read back or undone.
//!
//! Owns the trait [`HostActor`]. Real deeds are those of [`KernelWriter`](crate::kernel_writer::KernelWriter),
//! under the same refusals as its writes. Does not decide whom they hit, nor journal or count them.

use evenkeel_model::units::Bytes;

use crate::error::{Category, HostError, HostOperation};
use crate::write::{CgroupRef, Refusal};

/// Reclaims memory of cgroups and ends their processes.
pub trait HostActor {
    /// Asks the kernel to reclaim `amount` from the cgroup and everything below it (`memory.reclaim`), and tells
    /// how much it took. Blocks until the kernel is done, which may be seconds: for a worker. With `file_only`
    /// anonymous memory is left alone.
    ///
    /// Less than the amount is no error. On a rehearsal nothing is taken and the answer is zero.
    ///
    /// # Errors
    /// `Rejected` where a write would be refused; `Unsupported` on v1, on kernels before 5.19, and for
    /// `file_only` where there is swap and a kernel that cannot leave anonymous memory alone (before 6.9);
    /// `Gone`; `Denied`.
    fn reclaim(&mut self, cgroup: &CgroupRef, amount: Bytes, file_only: bool) -> Result<Bytes, HostError>;

    /// Ends every process of the cgroup and of everything below it by SIGKILL, and tells how many there were.
    /// They may still be dying when this returns; their memory is already being taken where the kernel allows
    /// (`process_mrelease`).
    ///
    /// On a rehearsal nothing is ended and the answer is how many it would have been.
    ///
    /// # Errors
    /// `Rejected` where a write would be refused, and when pid 1, ourselves or a denied cgroup is at or
    /// below it (a signal does not end kernel threads); `Gone`; `Denied`. When some were ended and others not, the error tells of the others.
    fn kill_cgroup(&mut self, cgroup: &CgroupRef) -> Result<u32, HostError>;

    /// True when nothing is really done.
    fn is_rehearsal(&self) -> bool;
}

/// A refusal as an error, for deeds.
pub(crate) fn refused(action: HostOperation, cgroup: &CgroupRef, why: &Refusal) -> HostError {
    let category = if *why == Refusal::Replaced { Category::Gone } else { Category::Rejected };
    HostError::of_text(category, action, cgroup.to_string(), why.to_string())
}

macro_rules! passed_on {
    () => {
        fn reclaim(
            &mut self,
            cgroup: &CgroupRef,
            amount: Bytes,
            file_only: bool,
        ) -> Result<Bytes, HostError> {
            (**self).reclaim(cgroup, amount, file_only)
        }
        fn kill_cgroup(&mut self, cgroup: &CgroupRef) -> Result<u32, HostError> {
            (**self).kill_cgroup(cgroup)
        }
        fn is_rehearsal(&self) -> bool {
            (**self).is_rehearsal()
        }
    };
}

impl<A: HostActor + ?Sized> HostActor for &mut A {
    passed_on!();
}

impl<A: HostActor + ?Sized> HostActor for Box<A> {
    passed_on!();
}

/// Who both writes and acts: what a thread of the agent holds.
pub trait HostDriver: crate::write::HostWriter + HostActor {}

impl<D: crate::write::HostWriter + HostActor + ?Sized> HostDriver for D {}
