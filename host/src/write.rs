//! Writes are values.
//!
//! Owns the words in which a change of the kernel is asked for and answered: [`Write`], [`Outcome`], and the
//! trait [`HostWriter`]. A write names its target so that a reused path or pid cannot be hit by mistake: a
//! cgroup by hierarchy and inode, a process by pid and start time. Does not itself write
//! ([`KernelWriter`](crate::kernel_writer::KernelWriter) does) and does not decide what to write.

use std::fmt;
use std::sync::Arc;

use crate::error::HostError;
use crate::hierarchy::Hierarchy;
use crate::knob::{Knob, Setting};

/// A cgroup in one hierarchy: the inode is its identity, the path is how it is reached.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupRef {
    /// Which tree.
    pub hierarchy: Hierarchy,
    /// Inode number of its directory.
    pub inode: u64,
    /// Path below the hierarchy's root, beginning with `/`. Shared: a cgroup is named by all that keep something of it.
    pub path: Arc<str>,
}

impl fmt::Display for CgroupRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}#{}", self.hierarchy, self.path, self.inode)
    }
}

/// A process: pids are reused, the pair with the start time is not (within one boot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    /// Process number.
    pub pid: u32,
    /// Start time in clock ticks since boot (proc(5), field 22 of `stat`).
    pub start_time: u64,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} (started at {})", self.pid, self.start_time)
    }
}

/// What a write is aimed at.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Target {
    /// A cgroup.
    Cgroup(CgroupRef),
    /// A process.
    Process(ProcessId),
    /// The machine itself.
    Node,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cgroup(c) => c.fmt(f),
            Self::Process(p) => p.fmt(f),
            Self::Node => f.write_str("the machine"),
        }
    }
}

/// One change of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Write {
    /// What to change.
    pub target: Target,
    /// The knob and its new value.
    pub setting: Setting,
}

impl Write {
    /// A write to a cgroup.
    pub const fn cgroup(target: CgroupRef, setting: Setting) -> Self {
        Self { target: Target::Cgroup(target), setting }
    }

    /// A write to a process.
    pub const fn process(target: ProcessId, setting: Setting) -> Self {
        Self { target: Target::Process(target), setting }
    }

    /// A write to a knob of the machine.
    pub const fn node(setting: Setting) -> Self {
        Self { target: Target::Node, setting }
    }

    /// The knob.
    pub const fn knob(&self) -> Knob {
        self.setting.knob()
    }
}

/// Why the writer itself will not do it, whatever it is asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Pid 1.
    #[error("pid 1 is never written")]
    Init,
    /// A kernel thread.
    #[error("kernel threads are never written")]
    KernelThread,
    /// The agent's own process.
    #[error("the agent's own process is never written")]
    OwnProcess,
    /// A cgroup the agent itself runs in (or, for freezing, one above it).
    #[error("the agent's own cgroup is never written")]
    OwnCgroup,
    /// The root of a hierarchy.
    #[error("the root cgroup is never written")]
    RootCgroup,
    /// On the configured deny list.
    #[error("cgroup is below {prefix}, which the configuration denies")]
    DenyList {
        /// The entry of the list.
        prefix: String,
    },
    /// A knob of inner cgroups, outside the subtrees given to us.
    #[error("inner cgroups are written only in subtrees the configuration gives to the agent (own)")]
    NotOwned,
    /// The path now leads to another cgroup, or the pid to another process.
    #[error("the target was replaced by another one of the same name")]
    Replaced,
    /// A cgroup knob aimed at a process or the other way round, or a knob of the other cgroup version.
    #[error("this kind of target has no such knob")]
    WrongTarget,
}

/// What became of a [`Write`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The kernel held the value already; nothing was written.
    Unchanged {
        /// What it holds.
        value: Setting,
    },
    /// Written and read back.
    Written {
        /// Before, where it could be read.
        old: Option<Setting>,
        /// After, as the kernel says; it may round.
        new: Setting,
    },
    /// Dry run: it would have been written.
    WouldWrite {
        /// What the kernel holds, where it could be read.
        old: Option<Setting>,
    },
    /// Not tried.
    Refused(Refusal),
    /// Tried in vain.
    Failed {
        /// Before, where it could be read.
        old: Option<Setting>,
        /// Why.
        error: HostError,
    },
}

impl Outcome {
    /// True when the kernel now holds the value (after rounding), or the target is gone and nothing is left to do.
    pub fn is_done(&self) -> bool {
        match self {
            Self::Unchanged { .. } | Self::Written { .. } => true,
            Self::Failed { error, .. } => error.is_gone(),
            Self::Refused(_) | Self::WouldWrite { .. } => false,
        }
    }

    /// The value before, where it is known.
    pub const fn old(&self) -> Option<Setting> {
        match self {
            Self::Unchanged { value } => Some(*value),
            Self::Written { old, .. } | Self::WouldWrite { old } | Self::Failed { old, .. } => *old,
            Self::Refused(_) => None,
        }
    }

    /// Short name for the decision log and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Unchanged { .. } => "unchanged",
            Self::Written { .. } => "written",
            Self::WouldWrite { .. } => "would-write",
            Self::Refused(_) => "refused",
            Self::Failed { error, .. } => error.category().name(),
        }
    }
}

/// Applies one value of the closed set of writes.
pub trait HostWriter {
    /// Reads the old value, writes if it differs, reads back. Never panics, never writes anything else.
    fn apply(&mut self, write: &Write) -> Outcome;
}

impl<W: HostWriter + ?Sized> HostWriter for &mut W {
    fn apply(&mut self, write: &Write) -> Outcome {
        (**self).apply(write)
    }
}

impl<W: HostWriter + ?Sized> HostWriter for Box<W> {
    fn apply(&mut self, write: &Write) -> Outcome {
        (**self).apply(write)
    }
}
