//! All knobs of one container at one turn: which are looked at, and in which order they are written.
//!
//! Owned here: the order the kernel accepts, spreading reads over audits, putting originals back where a wish is no
//! more. Not owned: one knob ([`super::knob`]).

use std::sync::Arc;

use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::write::{Outcome, Target};
use evenkeel_model::units::Limit;

use super::env::Env;
use super::knob::{Event, KnobLoop, Look};
use crate::restore::{Back, put_back};

/// Settled knobs read at one audit: with eight knobs each is seen at every eighth, and at once when its file was
/// written by somebody and the kernel tells.
const READ_AT_AUDIT: usize = 1;

/// The knobs of one container.
#[derive(Debug, Default)]
pub(super) struct Knobs {
    pub(super) all: Vec<KnobLoop>,
    /// Knobs written once and no longer wished.
    pub(super) withdrawn: Vec<(Arc<Target>, Knob)>,
    /// The settled knob that is read next.
    cursor: usize,
}

/// What came of one knob.
pub(super) struct Done {
    /// Which, among all.
    pub(super) index: usize,
    /// What is to be told.
    pub(super) event: Option<Event>,
    /// What was tried.
    pub(super) outcome: Option<Outcome>,
}

impl Knobs {
    /// These knobs, none looked at yet.
    pub(super) fn new(all: Vec<KnobLoop>) -> Self {
        Self { all, ..Self::default() }
    }

    /// Takes another set of wishes: known loops keep what they know, and what is no longer wished is put back.
    pub(super) fn replace(&mut self, fresh: Vec<KnobLoop>) {
        let mut had = std::mem::take(&mut self.all);
        self.all = fresh.into_iter().map(|wish| wish.or_kept(&mut had)).collect();
        self.withdrawn.extend(had.into_iter().map(|gone| (Arc::clone(&gone.target), gone.knob())));
        let all = &self.all;
        self.withdrawn.retain(|(at, knob)| !all.iter().any(|k| k.knob() == *knob && k.target == *at));
    }

    /// Every knob that is wished, and those that are being put back.
    pub(super) fn wished(&self) -> impl Iterator<Item = (&Target, Knob)> {
        let wished = self.all.iter().map(|knob| (&*knob.target, knob.knob()));
        wished.chain(self.withdrawn.iter().map(|(target, knob)| (&**target, *knob)))
    }

    /// Looks at everything that is not settled, and at all (`whole`) or some of what is; writes what differs.
    pub(super) fn turn(&mut self, env: &mut Env<'_>, whole: bool) -> Vec<Done> {
        let mut done = Vec::new();
        let mut differing = Vec::new();
        let due = self.due(whole);
        for index in due {
            let Some(knob) = self.all.get_mut(index) else { continue };
            match knob.look(env) {
                Look::Settled(None) => {}
                Look::Settled(event) => done.push(Done { index, event, outcome: None }),
                Look::Differs => differing.push(index),
            }
        }
        order(&self.all, &mut differing);
        for index in differing {
            if let Some(knob) = self.all.get_mut(index) {
                let (event, outcome) = knob.write(env);
                done.push(Done { index, event, outcome });
            }
        }
        done
    }

    fn due(&mut self, whole: bool) -> Vec<usize> {
        let count = self.all.len();
        if whole || count <= READ_AT_AUDIT {
            return (0..count).collect();
        }
        let cursor = self.cursor;
        self.cursor = (cursor + READ_AT_AUDIT) % count;
        let turn = |index: usize| (index + count - cursor) % count < READ_AT_AUDIT;
        (0..count)
            .filter(|&index| turn(index) || self.all.get(index).is_some_and(|k| !k.is_settled()))
            .collect()
    }

    /// Puts originals back of what is no longer wished; what somebody else changed since is left.
    pub(super) fn put_back(&mut self, env: &mut Env<'_>) -> Vec<(Knob, Setting, Setting, Outcome)> {
        let mut told = Vec::new();
        let mut left = Vec::new();
        let mut originals: Vec<_> = std::mem::take(&mut self.withdrawn)
            .into_iter()
            .filter_map(|(target, knob)| env.journal.original(&target, knob).cloned())
            .collect();
        originals.sort_by_key(|original| rank(Some(original.new), original.old, true));
        for original in originals {
            let knob = original.old.knob();
            match put_back(env.reader, env.writer, &original) {
                Back::Tried(outcome) => {
                    let again = matches!(&outcome, Outcome::Failed { error, .. } if !error.is_gone());
                    told.push((knob, original.new, original.old, outcome));
                    if again {
                        left.push((Arc::new(original.target), knob));
                        continue;
                    }
                }
                Back::Left(_) => {}
                Back::Later(_) => {
                    left.push((Arc::new(original.target), knob));
                    continue;
                }
            }
            env.journal.forget(&original.target, knob);
        }
        self.withdrawn = left;
        told
    }
}

/// Sorts knobs that differ into the order in which the kernel takes them.
fn order(all: &[KnobLoop], differing: &mut [usize]) {
    let find = |knob: Knob| all.iter().find(|k| k.knob() == knob);
    let quota = find(Knob::CpuCfsQuota).map(|k| (k.actual, k.wanted));
    let period = find(Knob::CpuCfsPeriod).map(|k| (k.actual, k.wanted));
    let first = quota_first(quota, period);
    differing.sort_by_key(|&index| all.get(index).map_or(u8::MAX, |k| rank(k.actual, k.wanted, first)));
}

/// Whether on v1 the quota is written before the period. The kernel checks each write by itself against ancestors and
/// children (`__cfs_schedulable`, kernel/sched/core.c), so that the value in between must not allow more than the
/// larger of the two.
fn quota_first(
    quota: Option<(Option<Setting>, Setting)>,
    period: Option<(Option<Setting>, Setting)>,
) -> bool {
    let (Some((quota_now, quota)), Some((period_now, period))) = (quota, period) else { return true };
    if let Some(Setting::CpuCfsQuota(Limit::Max)) = quota_now {
        return false;
    }
    if let Setting::CpuCfsQuota(Limit::Max) = quota {
        return true;
    }
    let (Some(Setting::CpuCfsPeriod(now)), Setting::CpuCfsPeriod(wanted)) = (period_now, period) else {
        return true;
    };
    wanted <= now
}

/// Place in the order of writes to one cgroup.
pub(crate) fn rank(now: Option<Setting>, wanted: Setting, quota_first: bool) -> u8 {
    let shrinks = |was: Option<u64>, will: u64| was.is_none_or(|was| will < was);
    match wanted {
        // An idle cgroup takes no weight.
        Setting::CpuIdle(on) => {
            if on {
                9
            } else {
                0
            }
        }
        // A burst is never above the quota (sched-bwc.rst): down before it, up after it.
        Setting::CpuMaxBurst(burst) | Setting::CpuCfsBurst(burst) => {
            let was = match now {
                Some(Setting::CpuMaxBurst(was) | Setting::CpuCfsBurst(was)) => Some(was.get()),
                _ => None,
            };
            if shrinks(was, burst.get()) { 1 } else { 4 }
        }
        Setting::CpuCfsQuota(_) => {
            if quota_first {
                2
            } else {
                3
            }
        }
        Setting::CpuCfsPeriod(_) => {
            if quota_first {
                3
            } else {
                2
            }
        }
        Setting::CpuMax { .. } => 2,
        // Memory with swap is never below memory alone (memcg v1, memory.rst): up before it, down after it.
        Setting::MemorySwLimit(limit) => {
            let was = match now {
                Some(Setting::MemorySwLimit(Limit::Value(was))) => Some(was.get()),
                _ => None,
            };
            match limit {
                Limit::Value(will) if shrinks(was, will.get()) => 7,
                Limit::Value(_) | Limit::Max => 5,
            }
        }
        Setting::MemoryLimit(_) => 6,
        // Controllers are taken away when nothing needs them any more.
        Setting::SubtreeControl { on, .. } => {
            if on {
                0
            } else {
                10
            }
        }
        _ => 5,
    }
}
