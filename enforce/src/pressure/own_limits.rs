//! Who stalls at a limit of its own: a walk through the cgroups below a domain.
//!
//! The pressure of the node, or of an owned subtree, contains the time that containers, pods and services wait because
//! they reclaim at their own `memory.max` or `memory.high`. Such a cgroup is known by its counters of `memory.events`
//! that move (cgroup-v2.rst, "Memory Interface Files"); its `memory.pressure` says how long it waits, with everything
//! below it. cgroup v2 only: v1 tells no pressure of cgroups.

use std::collections::HashMap;

use evenkeel_host::cgroup::CgroupDir;
use evenkeel_host::error::{Category, HostError};
use evenkeel_qos::pressure::OwnLimits;

/// A walk takes at most this part of the time, one in so many.
const PART_OF_TIME: u64 = 20;
/// Shortest time between two walks, microseconds: half of a window of the machine's trend has some in it.
const BETWEEN_USEC: u64 = 200_000;
/// Time after the last sign of reclaim at its limit in which a cgroup's waiting is still put down to it, microseconds:
/// on a slow disk charges are seldom.
const LINGERS_USEC: u64 = 5_000_000;
/// More cgroups than this are not walked through; then stalled time does not count, and what is available decides.
const MOST: usize = 16_384;
/// The same of levels below the domain.
const DEEPEST: usize = 32;

/// A cgroup that has run into its limit at least once.
#[derive(Debug, Clone, Copy)]
struct LimitObservation {
    hits: u64,
    some_usec: u64,
    moved_usec: Option<u64>,
    walk: u64,
}

/// What one domain's walks remember: cgroups by inode that ever ran into their limits.
#[derive(Debug, Default)]
pub(super) struct OwnLimitWalk {
    seen: HashMap<u64, LimitObservation>,
    stalled_usec: u64,
    walks: u64,
    next_usec: u64,
}

/// One walk under way.
struct Walk {
    now: u64,
    left: usize,
    is_first: bool,
    pending: bool,
}

impl OwnLimitWalk {
    /// Walks through everything below `domain`, unless the last walk was too short a time ago. `clock` tells
    /// microseconds.
    pub(super) fn look(&mut self, domain: &CgroupDir, clock: impl Fn() -> u64) -> OwnLimits {
        let now = clock();
        if now < self.next_usec {
            return OwnLimits::Unread;
        }
        let is_first = self.walks == 0;
        self.walks += 1;
        let mut walk = Walk { now, left: MOST, is_first, pending: false };
        let walked = self.below(domain, DEEPEST, &mut walk);
        self.seen.retain(|_, seen| seen.walk == self.walks);
        let cost = clock().saturating_sub(now).saturating_mul(PART_OF_TIME);
        self.next_usec = now.saturating_add(cost.max(BETWEEN_USEC));
        match walked {
            Err(error) if error.category() == Category::Unsupported => OwnLimits::Untold,
            Err(_) => OwnLimits::Pending,
            Ok(()) if walk.pending || walk.left == 0 => OwnLimits::Pending,
            Ok(()) => OwnLimits::Stalled(self.stalled_usec),
        }
    }

    fn below(&mut self, dir: &CgroupDir, depth: usize, walk: &mut Walk) -> Result<(), HostError> {
        if depth == 0 || dir.is_leaf() {
            return Ok(());
        }
        for name in dir.children()? {
            if walk.left == 0 {
                return Ok(());
            }
            walk.left -= 1;
            let stands = |error: &HostError| !error.is_gone();
            let Ok(child) = dir.child(&name) else { continue };
            match self.at(&child, depth, walk) {
                Err(error) if stands(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// One cgroup: what it waits at its own limit counts with everything below it.
    fn at(&mut self, dir: &CgroupDir, depth: usize, walk: &mut Walk) -> Result<(), HostError> {
        let hits = match dir.limit_hits(true) {
            Ok(hits) => hits,
            // Before 5.2 there is only the count of the subtree, which says that somebody in it is at a limit.
            Err(error) if error.category() == Category::Unsupported => match dir.limit_hits(false) {
                Ok(hits) => hits,
                // Without a memory controller it has no limit, and neither has anything below it.
                Err(error) if error.category() == Category::Unsupported => return Ok(()),
                Err(error) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        if hits > 0 && self.stalls(dir, hits, walk)? {
            return Ok(());
        }
        self.below(dir, depth - 1, walk)
    }

    /// Whether a cgroup that has run into its limit does so now; adds what it waited.
    fn stalls(&mut self, dir: &CgroupDir, hits: u64, walk: &mut Walk) -> Result<bool, HostError> {
        let some_usec = dir.pressure_some_usec("memory")?;
        let before = self.seen.get(&dir.at().inode).copied();
        let moved = before.map(|before| hits > before.hits);
        let moved_usec = match moved {
            Some(true) => Some(walk.now),
            _ => before.and_then(|before| before.moved_usec),
        };
        let seen = LimitObservation { hits, some_usec, moved_usec, walk: self.walks };
        self.seen.insert(dir.at().inode, seen);
        let Some(before) = before else {
            // How long it waits is known at the next walk. At the first one only of those that are at their limit.
            let suspected = !walk.is_first || is_full(dir)?;
            walk.pending |= suspected;
            return Ok(suspected);
        };
        let at_it = moved_usec.is_some_and(|at| walk.now.saturating_sub(at) < LINGERS_USEC);
        if at_it {
            let waited = some_usec.saturating_sub(before.some_usec);
            self.stalled_usec = self.stalled_usec.saturating_add(waited);
        }
        Ok(at_it)
    }
}

/// Whether it uses all it may use, but for a sixteenth.
fn is_full(dir: &CgroupDir) -> Result<bool, HostError> {
    let Some((limit, _)) = dir.reclaim_limit()? else { return Ok(false) };
    let room = limit.saturating_sub(dir.memory_current()?);
    Ok(room.get() <= limit.get() / 16)
}
