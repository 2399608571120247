//! [`Overcommit`]: how the kernel answers requests for more memory than there is.

use std::fmt;

/// A value of `vm.overcommit_memory` (Documentation/mm/overcommit-accounting.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Overcommit {
    /// 0: obvious overcommits are refused.
    Heuristic,
    /// 1: nothing is refused. What Kubernetes asks of a node.
    Always,
    /// 2: never more than swap and a part of memory; then no OOM killer is needed, and scores mean little.
    Never,
}

impl Overcommit {
    /// From the kernel's number; `None` when it is not one of the three.
    pub const fn new(number: u64) -> Option<Self> {
        match number {
            0 => Some(Self::Heuristic),
            1 => Some(Self::Always),
            2 => Some(Self::Never),
            _ => None,
        }
    }

    /// The kernel's number.
    pub const fn get(self) -> u8 {
        match self {
            Self::Heuristic => 0,
            Self::Always => 1,
            Self::Never => 2,
        }
    }
}

impl fmt::Display for Overcommit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
