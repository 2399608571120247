//! What is known of a container at the moment a process of it was killed.
//!
//! Owned here: reading its memory files once, and the guess at whose limit was hit where the kernel's log does not
//! say. Not owned: counting kills.

use evenkeel_host::cgroup::{CgroupDir, CgroupTree};
use evenkeel_host::hierarchy::Hierarchy;
use evenkeel_host::kernel_log::Constraint;
use evenkeel_host::parse;
use evenkeel_host::write::CgroupRef;
use evenkeel_model::units::{Bytes, Limit};

/// Levels above a container that are looked at for a limit.
const ANCESTORS: usize = 16;

/// Memory of a container, right after a kill. What could not be read is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct KillMemory {
    /// Charged now, after the victim's memory may have been given back.
    pub usage: Option<Bytes>,
    /// The most it was ever charged.
    pub peak: Option<Bytes>,
    /// Its limit.
    pub limit: Option<Limit<Bytes>>,
    /// Whose limit was hit, as far as counters tell.
    pub constraint: Option<Constraint>,
}

/// Reads a container's files. `ooms` is how often it was out of memory itself when last looked at (v2).
pub(super) fn read(tree: &CgroupTree, at: &CgroupRef, ooms: Option<u64>) -> KillMemory {
    let Ok(dir) = tree.dir_of(at) else { return KillMemory::default() };
    let limit = dir.memory_limit().ok();
    let peak_file = if at.hierarchy == Hierarchy::V2 { "memory.peak" } else { "memory.max_usage_in_bytes" };
    let peak =
        dir.read(peak_file).ok().and_then(|text| parse::uint(parse::first_line(&text))).map(Bytes::new);
    let own = if at.hierarchy == Hierarchy::V2 {
        count_of_ooms(&dir).zip(ooms).map(|(now, before)| now > before)
    } else {
        limit.zip(peak).map(|(limit, peak)| matches!(limit, Limit::Value(limit) if is_reached(limit, peak)))
    };
    let constraint = match own {
        Some(true) => Some(Constraint::Memcg),
        // Without a limit above it only the machine can have run out.
        Some(false) if !has_limit_above(tree, at) => Some(Constraint::None),
        _ => None,
    };
    KillMemory { usage: dir.memory_current().ok(), peak, limit, constraint }
}

/// How often a v2 cgroup hit its own limit or one below it in vain (`oom` of `memory.events`, cgroup-v2.rst).
pub(super) fn ooms(tree: &CgroupTree, at: &CgroupRef) -> Option<u64> {
    if at.hierarchy != Hierarchy::V2 {
        return None;
    }
    tree.dir_of(at).ok().and_then(|dir| count_of_ooms(&dir))
}

fn count_of_ooms(dir: &CgroupDir) -> Option<u64> {
    dir.memory_events().ok().and_then(|events| events.oom)
}

/// The kernel charges in batches (`MEMCG_CHARGE_BATCH`, 64 pages a CPU), so a limit may be hit a little below it.
fn is_reached(limit: Bytes, peak: Bytes) -> bool {
    peak.get().saturating_add(limit.get() / 64) >= limit.get()
}

/// Whether a cgroup above it has a limit of its own.
fn has_limit_above(tree: &CgroupTree, at: &CgroupRef) -> bool {
    let mut path = &*at.path;
    for _ in 0..ANCESTORS {
        let Some((above, _)) = path.trim_end_matches('/').rsplit_once('/') else { return false };
        if above.is_empty() {
            return false;
        }
        let limit = tree.dir(at.hierarchy, above).and_then(|dir| dir.memory_limit());
        if !matches!(limit, Ok(Limit::Max)) {
            // What cannot be read may be a limit.
            return true;
        }
        path = above;
    }
    true
}
