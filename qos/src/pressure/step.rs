//! What is done to one container: a pure function of the numbers, so that it can be asked again later.

use std::fmt;

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::Bytes;
use serde::{Deserialize, Serialize};

use super::OLDEST_FACTS_USEC;
use super::grade::{Grade, part_of};
use super::machine::Switches;
use crate::why::text;

/// Smaller amounts are not worth a step: a batch of charges of each processor is about as much
/// (`MEMCG_CHARGE_BATCH`, mm/memcontrol.c).
const LEAST: Bytes = Bytes::new(1 << 20);

/// How far up the ladder one may go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rung {
    /// `memory.reclaim`.
    Reclaim,
    /// `memory.high`, or the soft limit of v1.
    High,
    /// Freeze.
    Freeze,
    /// Kill.
    Kill,
}

impl Rung {
    /// All of them from the mildest.
    pub const ALL: [Self; 4] = [Self::Reclaim, Self::High, Self::Freeze, Self::Kill];

    /// Name in decisions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reclaim => "reclaim",
            Self::High => "high",
            Self::Freeze => "freeze",
            Self::Kill => "kill",
        }
    }

    /// How far a grade alone allows to go.
    pub const fn of(grade: Grade) -> Option<Self> {
        match grade {
            Grade::Calm => None,
            Grade::Warning => Some(Self::Reclaim),
            Grade::High => Some(Self::High),
            Grade::Critical => Some(Self::Kill),
        }
    }

    /// One higher.
    #[must_use]
    pub const fn next(self) -> Self {
        match self {
            Self::Reclaim => Self::High,
            Self::High => Self::Freeze,
            Self::Freeze | Self::Kill => Self::Kill,
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PressureStep {
    /// Ask the kernel to reclaim so much, of pages of files only where there is no swap.
    Reclaim {
        /// How much.
        amount: Bytes,
        /// Leave anonymous memory alone.
        file_only: bool,
    },
    /// Set `memory.high`.
    High(Bytes),
    /// Set `memory.soft_limit_in_bytes` (v1).
    SoftLimit(Bytes),
    /// Freeze it.
    Freeze,
    /// Kill all of it.
    Kill,
}

impl PressureStep {
    /// Its rung.
    pub const fn rung(&self) -> Rung {
        match self {
            Self::Reclaim { .. } => Rung::Reclaim,
            Self::High(_) | Self::SoftLimit(_) => Rung::High,
            Self::Freeze => Rung::Freeze,
            Self::Kill => Rung::Kill,
        }
    }

    /// What a decision shows as the new value.
    pub fn value(&self) -> String {
        match self {
            Self::Reclaim { amount, .. } => amount.get().to_string(),
            Self::High(to) | Self::SoftLimit(to) => to.get().to_string(),
            Self::Freeze => "frozen".to_owned(),
            Self::Kill => "killed".to_owned(),
        }
    }
}

/// Everything a step is decided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PressureCase {
    /// The grade.
    pub grade: Grade,
    /// Memory would be used up soon: growth is stopped where it stands.
    pub urgent: bool,
    /// How far up the ladder this container may be taken.
    pub rung: Rung,
    /// Available memory.
    pub available: Bytes,
    /// Where the grade rests on stalled time: less than this must be available, or memory is not short. `None` where
    /// it rests on what is available, and in decisions of agents that did not ask.
    pub short_below: Option<Bytes>,
    /// Killing needs less than this to be available.
    pub floor: Bytes,
    /// Unused swap; zero = none.
    pub swap_free: Bytes,
    /// Whether anything may be done to it at all.
    pub managed: bool,
    /// Its class by memory.
    pub class: QosClass,
    /// What it asked for.
    pub request: Bytes,
    /// What is charged to it.
    pub current: Bytes,
    /// Anonymous memory in it.
    pub anon: Bytes,
    /// Pages of files in it.
    pub file: Bytes,
    /// Age of these numbers, microseconds.
    pub age_usec: u64,
    /// The `memory.high` (or soft limit) we hold it at.
    pub held_at: Option<Bytes>,
    /// We hold it frozen.
    pub frozen: bool,
    /// Time since it was first held back by one of the two, microseconds.
    pub held_for_usec: Option<u64>,
    /// A kill needs that long in vain, microseconds.
    pub kill_after_usec: u64,
    /// Part of its memory taken in one step, hundredths of a percent.
    pub step: u32,
    /// What can be done here, less what just failed for this container.
    #[serde(with = "text")]
    pub can: Switches,
}

impl PressureCase {
    /// What it has beyond what it is entitled to; nothing for whoever is never touched.
    pub fn over(&self) -> Bytes {
        match self.class {
            _ if !self.managed => Bytes::ZERO,
            QosClass::BestEffort => self.current,
            QosClass::Burstable => self.current.saturating_sub(self.request),
            QosClass::Guaranteed => Bytes::ZERO,
        }
    }

    /// What the kernel could take from it without killing.
    fn reclaimable(&self) -> Bytes {
        self.file.saturating_add(self.anon.min(self.swap_free))
    }

    /// What one step takes: a part of it, no more than it has too much or than can be taken.
    fn amount(&self) -> Bytes {
        part_of(self.current, self.step).min(self.over()).min(self.reclaimable())
    }

    /// Where growth would be held. Never below the request, nor so low that only a kill could satisfy it.
    fn cap(&self) -> Bytes {
        if self.urgent { self.current } else { self.current.saturating_sub(self.amount()) }
    }

    fn kills(&self) -> bool {
        let in_vain = match self.held_for_usec {
            Some(held) => held >= self.kill_after_usec,
            // Nothing milder can be done.
            None => !self.can.freeze && !self.can.high && !self.can.soft_limit,
        };
        self.can.kill && self.rung >= Rung::Kill && self.available < self.floor && in_vain
    }

    fn freezes(&self) -> bool {
        let brake = self.urgent && self.grade == Grade::Critical;
        let held = self.held_at.is_some() || !(self.can.high || self.can.soft_limit);
        self.can.freeze && self.rung >= Rung::Freeze && !self.frozen && (brake || held)
    }

    fn caps(&self) -> Option<PressureStep> {
        if self.rung < Rung::High {
            return None;
        }
        let cap = self.cap();
        match self.held_at {
            // Lowered only as far as the kernel can follow, by steps that are worth it.
            Some(held) if cap.saturating_add(LEAST) > held || self.amount() < LEAST => None,
            _ if self.can.high => Some(PressureStep::High(cap)),
            None if self.can.soft_limit => Some(PressureStep::SoftLimit(cap)),
            _ => None,
        }
    }

    fn reclaims(&self) -> Option<PressureStep> {
        let amount = self.amount();
        let file_only = self.swap_free.is_zero();
        (self.can.reclaim && amount >= LEAST).then_some(PressureStep::Reclaim { amount, file_only })
    }
}

/// The one step that is due, if any. Guaranteed containers, Burstable ones within their request and those that are
/// not managed are never touched, nor anybody on old numbers, nor for time others waited while there is plenty.
pub fn decide(case: &PressureCase) -> Option<PressureStep> {
    if case.short_below.is_some_and(|bound| case.available >= bound) {
        return None;
    }
    if case.over() < LEAST || case.age_usec > OLDEST_FACTS_USEC || case.grade == Grade::Calm {
        return None;
    }
    if case.kills() {
        return Some(PressureStep::Kill);
    }
    if case.freezes() {
        return Some(PressureStep::Freeze);
    }
    case.caps().or_else(|| case.reclaims())
}
