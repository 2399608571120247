//! [`V1Pressure`]: `memory.pressure_level` of a v1 cgroup.
//!
//! The kernel derives levels from how much of what it scans it can reclaim (cgroup-v1/memory.rst, section 11).
//! Coarser than PSI, and all there is for a cgroup on v1.

use std::os::fd::{AsFd, BorrowedFd};

use super::v1_eventfd::Registered;
use crate::cgroup::{CgroupDir, CgroupTree};
use crate::error::HostError;
use crate::write::CgroupRef;

/// How hard memory is to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PressureLevel {
    /// New memory is found by reclaiming caches.
    Low,
    /// Active caches are reclaimed, there is some swapping.
    Medium,
    /// About to run out.
    Critical,
}

impl PressureLevel {
    /// The kernel's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::Critical => "critical",
        }
    }
}

/// A registration for one level and those above it. Pollable for POLLIN; ended by dropping it.
#[derive(Debug)]
pub struct V1Pressure {
    level: PressureLevel,
    at: CgroupRef,
    registered: Registered,
}

impl V1Pressure {
    /// Registers for pressure in a cgroup of the v1 memory hierarchy and below it (mode `hierarchy`); the root
    /// stands for the whole machine.
    ///
    /// # Errors
    /// `Unsupported` on v2 and where the kernel has no such file; `Gone`; `Denied`.
    pub fn open(tree: &CgroupTree, cgroup: &CgroupRef, level: PressureLevel) -> Result<Self, HostError> {
        Self::open_dir(&tree.dir_of(cgroup)?, level)
    }

    /// Registers in a cgroup that is open.
    ///
    /// # Errors
    /// As [`V1Pressure::open`].
    pub fn open_dir(dir: &CgroupDir, level: PressureLevel) -> Result<Self, HostError> {
        let arguments = format!("{},hierarchy", level.name());
        let registered = Registered::new(dir, "memory.pressure_level", &arguments)?;
        Ok(Self { level, at: dir.at().clone(), registered })
    }

    /// The level it tells of.
    pub const fn level(&self) -> PressureLevel {
        self.level
    }

    /// The cgroup.
    pub const fn cgroup(&self) -> &CgroupRef {
        &self.at
    }

    /// How often the level was reached since it was last asked. The removal of the cgroup counts once. Never
    /// blocks.
    pub fn take(&self) -> u64 {
        self.registered.take()
    }
}

impl AsFd for V1Pressure {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.registered.as_fd()
    }
}
