//! What the machine remembers of one container.

use std::collections::{BTreeMap, VecDeque};

use evenkeel_model::units::Bytes;

use super::{ContainerMemory, Giving, Letting, PressureStep, Restriction, Rung, Switches, share};

/// An action whose end was not told is forgotten after this, microseconds.
const PENDING_USEC: u64 = 10_000_000;
/// Time between two releases of the same container, microseconds: the last one has to show its effect.
const BETWEEN_RELEASES_USEC: u64 = 2_000_000;
/// Re-triggers remembered.
const RETRIGGERS: usize = 8;
/// Growth over less time means nothing.
const LEAST_SPAN_USEC: u64 = 150_000;

/// A cap on growth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GrowthCap {
    pub(super) at: Bytes,
    pub(super) since_usec: u64,
    /// Whoever reaches it waits there (`memory.high`).
    pub(super) binds: bool,
}

#[derive(Debug, Clone, Default)]
pub(super) struct PressureState {
    pub(super) cap: Option<GrowthCap>,
    pub(super) frozen_usec: Option<u64>,
    /// What it held when it was first held back, and how fast it grew, bytes in a second.
    pub(super) peak: Bytes,
    pub(super) growth_then: u64,
    /// How fast it grows now.
    pub(super) growth: u64,
    /// Part of the time in which some in it waited, hundredths of a percent.
    pub(super) stall: Option<u32>,
    pub(super) pending: Option<u64>,
    /// Rungs that failed, until when they are left alone.
    pub(super) failing: BTreeMap<Rung, u64>,
    /// When each rung was last undone.
    released: BTreeMap<Rung, u64>,
    let_go_usec: Option<u64>,
    retriggered: VecDeque<u64>,
    last: Option<(u64, Bytes, Option<u64>)>,
    current: Bytes,
    /// Cap and freeze before the pending action.
    before: (Option<GrowthCap>, Option<u64>),
}

impl PressureState {
    /// True while it is held back.
    pub(super) fn holds(&self) -> bool {
        self.cap.is_some() || self.frozen_usec.is_some()
    }

    /// How much of a binding cap it uses.
    pub(super) fn capped(&self) -> Option<u64> {
        self.cap.filter(|cap| cap.binds).map(|cap| self.current.min(cap.at).get())
    }

    pub(super) fn pending(&self, now: u64) -> bool {
        self.pending.is_some_and(|since| now.saturating_sub(since) < PENDING_USEC)
    }

    /// Takes in one look.
    pub(super) fn see(&mut self, facts: &ContainerMemory, now: u64, window: u64) {
        self.current = facts.current;
        self.failing.retain(|_, until| *until > now);
        while self.retriggered.front().is_some_and(|at| now.saturating_sub(*at) > window) {
            self.retriggered.pop_front();
        }
        self.released.retain(|_, at| now.saturating_sub(*at) <= window);
        let Some((then, current, some)) = self.last else {
            self.last = Some((facts.read_usec, facts.current, facts.some_usec));
            return;
        };
        let span = facts.read_usec.saturating_sub(then);
        if span < LEAST_SPAN_USEC {
            return;
        }
        let grown = facts.current.saturating_sub(current).get();
        self.growth = u64::try_from(u128::from(grown) * 1_000_000 / u128::from(span)).unwrap_or(u64::MAX);
        self.stall = facts.some_usec.zip(some).and_then(|(b, a)| share(b.saturating_sub(a), span));
        self.last = Some((facts.read_usec, facts.current, facts.some_usec));
    }

    /// When it was first held back.
    pub(super) fn held_since(&self) -> Option<u64> {
        let cap = self.cap.map(|cap| cap.since_usec);
        [cap, self.frozen_usec].into_iter().flatten().min()
    }

    /// What is undone first, and since when it stands.
    pub(super) fn last_held(&self) -> Option<(Restriction, u64)> {
        let cap = self
            .cap
            .map(|cap| (if cap.binds { Restriction::High } else { Restriction::SoftLimit }, cap.since_usec));
        self.frozen_usec.map(|since| (Restriction::Frozen, since)).or(cap)
    }

    /// How often it came back.
    pub(super) fn retriggers(&self) -> u32 {
        u32::try_from(self.retriggered.len()).unwrap_or(u32::MAX)
    }

    /// What can be done, less what failed.
    pub(super) fn able(&self, can: Switches, now: u64) -> Switches {
        let failed = self.failing.iter().filter(|(_, until)| **until > now);
        failed.fold(can, |can, (rung, _)| can.without(*rung))
    }

    /// Rungs undone so lately that they rest.
    pub(super) fn resting(&self, now: u64, redo_after: u64) -> Vec<Rung> {
        let lately = |at: u64| now.saturating_sub(at) < redo_after;
        self.released.iter().filter(|(_, at)| lately(**at)).map(|(rung, _)| *rung).collect()
    }

    /// A step is taken.
    pub(super) fn restricted(&mut self, step: PressureStep, facts: &ContainerMemory, now: u64) {
        self.begin(now);
        if !self.holds()
            && matches!(step, PressureStep::High(_) | PressureStep::SoftLimit(_) | PressureStep::Freeze)
        {
            self.peak = facts.current;
            self.growth_then = self.growth;
            // Let go before and back again.
            if !self.released.is_empty() {
                if self.retriggered.len() >= RETRIGGERS {
                    self.retriggered.pop_front();
                }
                self.retriggered.push_back(now);
            }
        }
        match step {
            PressureStep::High(at) => self.cap_at(at, now, true),
            PressureStep::SoftLimit(at) => self.cap_at(at, now, false),
            PressureStep::Freeze => self.frozen_usec = Some(now),
            // Nobody is left to be held.
            PressureStep::Kill => (self.cap, self.frozen_usec) = (None, None),
            PressureStep::Reclaim { .. } => {}
        }
    }

    fn begin(&mut self, now: u64) {
        self.pending = Some(now);
        self.before = (self.cap, self.frozen_usec);
    }

    fn cap_at(&mut self, at: Bytes, now: u64, binds: bool) {
        let since_usec = self.cap.map_or(now, |cap| cap.since_usec);
        self.cap = Some(GrowthCap { at, since_usec, binds });
    }

    /// The pending action failed: what was held before is still held.
    pub(super) fn failed(&mut self) {
        (self.cap, self.frozen_usec) = self.before;
    }

    /// Whether the last release has had its time. Whoever may not be held at all is not kept waiting.
    pub(super) fn may_let_go(&self, now: u64, giving: &Giving) -> bool {
        giving.protected
            || giving.held == Restriction::Frozen
            || self.let_go_usec.is_none_or(|at| now.saturating_sub(at) >= BETWEEN_RELEASES_USEC)
    }

    /// Something is undone.
    pub(super) fn let_go(&mut self, letting: Letting, now: u64) {
        self.begin(now);
        self.let_go_usec = Some(now);
        match letting {
            Letting::Thaw => {
                self.frozen_usec = None;
                self.released.insert(Rung::Freeze, now);
            }
            Letting::Whole => {
                self.cap = None;
                self.released.insert(Rung::High, now);
            }
            Letting::Raise(at) => {
                if let Some(cap) = self.cap.as_mut() {
                    cap.at = at;
                }
                // Lowering it again at once would be the oscillation that releases must not begin.
                self.released.insert(Rung::High, now);
            }
        }
    }
}
