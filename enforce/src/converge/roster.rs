//! What other threads know of the containers: who they are, whether they may be written, and where their cgroups are.
//!
//! Owned here: the shape. The list is immutable and shared; the converger replaces it when a container comes, goes
//! or wishes something else.

use std::sync::Arc;

use evenkeel_host::write::CgroupRef;

use super::container::TrackedContainer;
use crate::shared::Tracked;

/// One container as other threads need it.
#[derive(Debug, Clone)]
pub(crate) struct RosterEntry {
    /// Who it is and what it asked for.
    pub tracked: Arc<Tracked>,
    /// Whether anything about it may be written.
    pub managed: bool,
    /// Its place in the memory controller's hierarchy.
    pub memory: Option<CgroupRef>,
    /// Its place in the CPU controller's hierarchy.
    pub cpu: Option<CgroupRef>,
    /// Its place in the freezer's hierarchy.
    pub freezer: Option<CgroupRef>,
}

/// The list with its number.
#[derive(Debug, Default)]
pub(super) struct Roster {
    pub(super) generation: u64,
    pub(super) entries: Arc<Vec<RosterEntry>>,
}

/// A container's entry.
pub(super) fn entry(container: &TrackedContainer) -> RosterEntry {
    RosterEntry {
        tracked: Arc::clone(&container.tracked),
        managed: container.unmanaged.is_none(),
        memory: container.memory.clone(),
        cpu: container.cpu.clone(),
        freezer: container.freezer.clone(),
    }
}
