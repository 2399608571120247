//! Controllers and hierarchies of cgroups, as values.
//!
//! Owned here: their names, and what every version of cgroups has. Not owned: which of them a machine has and where, which is
//! looked up at the kernel's edge (`evenkeel-host`).

use std::fmt;

/// A resource controller of the kernel, by its v1 name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    /// CPU shares, weight and bandwidth.
    Cpu,
    /// CPU accounting. Built into every v2 cgroup.
    Cpuacct,
    /// Memory.
    Memory,
    /// Number of processes.
    Pids,
    /// Freezing. Built into every v2 cgroup since Linux 5.2.
    Freezer,
    /// Which processors may be used.
    Cpuset,
    /// Block I/O: `blkio` in v1, `io` in v2.
    Io,
}

impl Controller {
    /// Every controller.
    pub const ALL: [Self; 7] =
        [Self::Cpu, Self::Cpuacct, Self::Memory, Self::Pids, Self::Freezer, Self::Cpuset, Self::Io];

    /// The kernel's name, in v1 where it has two.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuacct => "cpuacct",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Freezer => "freezer",
            Self::Cpuset => "cpuset",
            Self::Io => "blkio",
        }
    }

    /// The controller of a name, as either version has it.
    pub fn of_name(name: &str) -> Option<Self> {
        let name = if name == "io" { Self::Io.name() } else { name };
        Self::ALL.into_iter().find(|c| c.name() == name)
    }

    /// True where cgroup v2 has it in every cgroup, whatever `cgroup.subtree_control` says.
    pub const fn is_core_in_v2(self) -> bool {
        matches!(self, Self::Cpuacct | Self::Freezer)
    }
}

/// One cgroup hierarchy. A combined v1 mount is named by the first of its controllers in [`Controller::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hierarchy {
    /// The v2 tree.
    V2,
    /// The v1 tree with this controller.
    V1(Controller),
}

impl fmt::Display for Hierarchy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V2 => "unified",
            Self::V1(c) => c.name(),
        })
    }
}
