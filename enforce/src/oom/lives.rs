//! Every container that is watched for OOM kills, and for a while those that are gone.
//!
//! Owned here: what is known of each, the bound on those gone, and finding one by slot or by the kernel's path. Not
//! owned: the watches, the cases.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_host::write::CgroupRef;

use super::ledger::Ledger;
use super::victims::is_within;
use crate::shared::Tracked;

/// A container that is gone is remembered for so long: its last sample and the kernel's log may come later.
const AFTERLIFE: Duration = Duration::from_secs(10);
/// Those gone that are remembered at most; more are forgotten sooner, oldest first.
const GONE: usize = 4096;

/// One container.
#[derive(Debug)]
pub(super) struct Life {
    pub(super) tracked: Arc<Tracked>,
    pub(super) managed: bool,
    pub(super) ledger: Ledger,
    /// Kills from before it was watched.
    pub(super) before: u64,
    /// How often it was out of memory itself, when last looked at (v2).
    pub(super) ooms: Option<u64>,
    /// The kernel tells of it.
    pub(super) watched: bool,
    /// When it ran out of memory and nobody was counted as killed yet (v1).
    pub(super) out_of_memory: Option<Instant>,
    /// Since when its cgroup is no more.
    pub(super) gone: Option<Instant>,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Lives {
    lives: BTreeMap<CgroupRef, Life>,
    by_slot: HashMap<u32, CgroupRef>,
}

impl Lives {
    pub(super) fn get_mut(&mut self, at: &CgroupRef) -> Option<&mut Life> {
        self.lives.get_mut(at)
    }

    pub(super) fn insert(&mut self, at: CgroupRef, life: Life) {
        self.by_slot.insert(life.tracked.slot, at.clone());
        self.lives.insert(at, life);
    }

    /// A known container may have a new slot.
    pub(super) fn update(&mut self, at: &CgroupRef, tracked: &Arc<Tracked>, managed: bool) {
        let Some(life) = self.lives.get_mut(at) else { return };
        life.managed = managed;
        if !Arc::ptr_eq(&life.tracked, tracked) {
            let before = std::mem::replace(&mut life.tracked, Arc::clone(tracked)).slot;
            if before != tracked.slot {
                self.by_slot.remove(&before);
                self.by_slot.insert(tracked.slot, at.clone());
            }
        }
    }

    /// Whether a container that is there is known.
    pub(super) fn is_present(&self, at: &CgroupRef) -> bool {
        self.lives.get(at).is_some_and(|life| life.gone.is_none())
    }

    /// The container of a slot.
    pub(super) fn of_slot(&self, slot: u32) -> Option<CgroupRef> {
        self.by_slot.get(&slot).cloned()
    }

    /// The container a path of the kernel's log is in: the innermost; one that is there before one that is gone.
    pub(super) fn of_path(&self, path: &str) -> Option<CgroupRef> {
        let within = self.lives.iter().filter(|(at, _)| is_within(path, &at.path));
        let best = within.max_by_key(|(at, life)| (at.path.len(), life.gone.is_none(), life.gone));
        best.map(|(at, _)| at.clone())
    }

    /// Containers that are there.
    pub(super) fn present(&self) -> impl Iterator<Item = (&CgroupRef, &Life)> {
        self.lives.iter().filter(|(_, life)| life.gone.is_none())
    }

    /// Forgets those gone too long or too many.
    pub(super) fn forget(&mut self, now: Instant) {
        let mut gone: Vec<(Instant, CgroupRef)> =
            self.lives.iter().filter_map(|(at, life)| Some((life.gone?, at.clone()))).collect();
        if gone.is_empty() {
            return;
        }
        gone.sort_unstable();
        let excess = gone.len().saturating_sub(GONE);
        for (index, (since, at)) in gone.into_iter().enumerate() {
            if (index < excess || now.duration_since(since) >= AFTERLIFE)
                && let Some(life) = self.lives.remove(&at)
                && self.by_slot.get(&life.tracked.slot) == Some(&at)
            {
                self.by_slot.remove(&life.tracked.slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_host::hierarchy::Hierarchy;

    use super::*;
    use crate::testing::in_slot as tracked;

    fn at(path: &str, inode: u64) -> CgroupRef {
        CgroupRef { hierarchy: Hierarchy::V2, inode, path: path.into() }
    }

    fn life(slot: u32, gone: Option<Instant>) -> Life {
        Life {
            tracked: Arc::new(tracked(slot, "web")),
            managed: true,
            ledger: Ledger::default(),
            before: 0,
            ooms: None,
            watched: true,
            out_of_memory: None,
            gone,
        }
    }

    #[test]
    fn a_path_is_of_the_innermost_and_of_the_living() {
        let (mut lives, now) = (Lives::default(), Instant::now());
        lives.insert(at("/web", 1), life(1, Some(now)));
        lives.insert(at("/web", 2), life(2, None));
        lives.insert(at("/web/inner", 3), life(3, None));
        assert_eq!(lives.of_path("/web/a"), Some(at("/web", 2)));
        assert_eq!(lives.of_path("/sandbox/web/inner/b"), Some(at("/web/inner", 3)));
        assert_eq!(lives.of_path("/other"), None);
        assert!(lives.is_present(&at("/web", 2)) && !lives.is_present(&at("/web", 1)));
        lives.update(&at("/web", 2), &Arc::new(tracked(9, "web")), false);
        assert_eq!((lives.of_slot(2), lives.of_slot(9)), (None, Some(at("/web", 2))));
        lives.forget(now);
        assert_eq!(lives.of_slot(1), Some(at("/web", 1)));
        lives.forget(now + AFTERLIFE);
        assert_eq!((lives.of_slot(1), lives.present().count()), (None, 2));
    }
}
