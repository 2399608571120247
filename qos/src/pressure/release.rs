//! When a step is undone: only when what undoing may take is there, with a reserve left over.

use evenkeel_model::units::Bytes;
use serde::{Deserialize, Serialize};

use super::grade::{Grade, part_of};

/// What is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restriction {
    /// `memory.high`.
    High,
    /// The soft limit of v1, which nobody waits at.
    SoftLimit,
    /// Frozen.
    Frozen,
}

/// Everything an undoing is decided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Giving {
    /// What is held.
    pub held: Restriction,
    /// The grade.
    pub grade: Grade,
    /// It may not be touched any more: it is not managed, or within what it asked for.
    pub protected: bool,
    /// Memory that may be given away: available, less what was given to others in the same breath.
    pub available: Bytes,
    /// What has to be left over.
    pub reserve: Bytes,
    /// What is charged to it.
    pub current: Bytes,
    /// Its limit.
    pub limit: Option<Bytes>,
    /// What it held when it was first held back.
    pub peak: Bytes,
    /// How fast it grew then, bytes in a second.
    pub growth: Bytes,
    /// The cap it is held at, where it has one.
    pub cap: Option<Bytes>,
    /// How long it has been held, microseconds.
    pub held_for_usec: u64,
    /// How long it may be frozen, microseconds.
    pub freeze_at_most_usec: u64,
    /// By how much a cap is raised at a time.
    pub raise: Bytes,
}

/// What is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letting {
    /// Thaw.
    Thaw,
    /// Put back what the cap was before.
    Whole,
    /// Raise the cap to this.
    Raise(Bytes),
}

impl Letting {
    /// What a decision shows as the new value.
    pub fn value(&self) -> String {
        match self {
            Self::Thaw => "thawed".to_owned(),
            Self::Whole => "released".to_owned(),
            Self::Raise(to) => to.get().to_string(),
        }
    }
}

/// Seconds of growth that a container let go may be ahead of the loop.
const AHEAD: u64 = 5;

impl Giving {
    /// What undoing may take before anything could be done about it again.
    pub fn may_take(&self) -> Bytes {
        let room = self.limit.map_or(Bytes::new(u64::MAX), |limit| limit.saturating_sub(self.current));
        let lost = self.peak.saturating_sub(self.current);
        let grown = Bytes::new(self.growth.get().saturating_mul(AHEAD));
        let free = lost.saturating_add(grown).min(room);
        match (self.held, self.cap) {
            // Its cap still stands.
            (Restriction::Frozen, Some(cap)) => cap.saturating_sub(self.current).min(room),
            _ => free,
        }
    }

    fn spare(&self) -> Bytes {
        self.available.saturating_sub(self.reserve)
    }

    /// Whether it would take more if it could: it is within one sixteenth of its cap.
    fn presses(&self) -> bool {
        self.cap.is_some_and(|cap| self.current.saturating_add(part_of(cap, 625)) >= cap)
    }
}

/// What is undone now, if anything.
pub fn let_go(case: &Giving) -> Option<Letting> {
    let whole = if case.held == Restriction::Frozen { Letting::Thaw } else { Letting::Whole };
    if case.protected {
        return Some(whole);
    }
    let fits = case.may_take() <= case.spare();
    match case.held {
        Restriction::Frozen if case.held_for_usec >= case.freeze_at_most_usec => Some(Letting::Thaw),
        _ if case.grade != Grade::Calm => None,
        Restriction::High if case.presses() => {
            let to = case.current.max(case.cap.unwrap_or(Bytes::ZERO)).saturating_add(case.raise);
            (case.raise <= case.spare()).then_some(Letting::Raise(to))
        }
        Restriction::High | Restriction::SoftLimit | Restriction::Frozen => fits.then_some(whole),
    }
}
