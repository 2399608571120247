//! How bad it is: calm, warning, high or critical, with a way in and a way out of each.

use std::fmt;

use evenkeel_model::units::Bytes;
use serde::{Deserialize, Serialize};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// Nothing is done; what was done is undone.
    #[default]
    Calm,
    /// Memory is reclaimed.
    Warning,
    /// Growth is held back.
    High,
    /// Growth is stopped, and memory freed if nothing else helps.
    Critical,
}

impl Grade {
    /// The grades in which something is done, from the mildest.
    pub const BAD: [Self; 3] = [Self::Warning, Self::High, Self::Critical];

    /// Name in decisions and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Warning => "warning",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }

    /// Position: 0 for calm.
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Grade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Where a grade begins and where it ends, in hundredths of a percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pair {
    /// Begins here.
    pub enter: u32,
    /// Ends here: below `enter` for stalled time, above it for available memory.
    pub leave: u32,
}

/// The thresholds of one grade.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Band {
    /// Part of the time in which some waited for memory.
    pub some: Pair,
    /// Part of the time in which all waited.
    pub full: Pair,
    /// Part of memory that is available.
    pub available: Pair,
    /// Memory would be used up within this time at the present rate, microseconds; `None` does not look ahead.
    pub exhaustion_usec: Option<u64>,
    /// How long a threshold is passed before it counts, microseconds. A projected exhaustion counts at once.
    pub dwell_usec: u64,
    /// Time between two steps in this grade, microseconds.
    pub cool_down_usec: u64,
}

/// The three bands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bands {
    /// Warning.
    pub warning: Band,
    /// High.
    pub high: Band,
    /// Critical.
    pub critical: Band,
    /// Percentages of available memory count on at most so much memory.
    pub basis_at_most: Bytes,
    /// The look ahead counts only once less than this part is available, hundredths of a percent.
    pub look_ahead_below: u32,
    /// Stalled time counts only while less than this part is available, hundredths of a percent: whoever waits while
    /// there is plenty waits at a limit of its own.
    pub stall_below: u32,
    /// How long a grade is left before it ends, microseconds.
    pub calm_after_usec: u64,
}

impl Bands {
    /// The band of a grade; `None` for calm.
    pub const fn of(&self, grade: Grade) -> Option<&Band> {
        match grade {
            Grade::Calm => None,
            Grade::Warning => Some(&self.warning),
            Grade::High => Some(&self.high),
            Grade::Critical => Some(&self.critical),
        }
    }

    /// Whether stalled time says anything about memory of which so much is available: not while there is plenty.
    pub fn stall_counts(&self, available: Bytes, total: Bytes) -> bool {
        available < part_of(self.basis(total), self.stall_below)
    }

    /// What percentages of available memory are of.
    pub fn basis(&self, total: Bytes) -> Bytes {
        total.min(self.basis_at_most)
    }
}

/// What a grade is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Signals {
    /// Part of the time in which some waited, less that at limits of their own where it is told apart, hundredths of a
    /// percent; `None` where the kernel does not tell.
    pub some: Option<u32>,
    /// Part of the time in which all waited, likewise.
    pub full: Option<u32>,
    /// Part of the time in which some waited at a limit of their own; `None` where it is not told apart.
    pub own_limit: Option<u32>,
    /// Available memory.
    pub available: Bytes,
    /// What percentages of it are of.
    pub basis: Bytes,
    /// Time until nothing is available at the present rate, microseconds; `None` when it is not shrinking.
    pub exhaustion_usec: Option<u64>,
}

/// Which signal passed its threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PressureCause {
    /// Memory would be used up soon.
    Exhaustion,
    /// Little memory is available.
    Available,
    /// All wait.
    Full,
    /// Some wait.
    Some,
}

impl PressureCause {
    /// Name in decisions.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exhaustion => "exhaustion",
            Self::Available => "available",
            Self::Full => "full",
            Self::Some => "some",
        }
    }
}

/// `part` hundredths of a percent of `whole`.
pub(super) fn part_of(whole: Bytes, part: u32) -> Bytes {
    Bytes::new(u64::try_from(u128::from(whole.get()) * u128::from(part) / 10_000).unwrap_or(u64::MAX))
}

impl Signals {
    /// Whether memory would be used up within the band's time, and little enough is available for that to count.
    fn runs_out(&self, band: &Band, bands: &Bands) -> bool {
        let soon = self.exhaustion_usec.zip(band.exhaustion_usec).is_some_and(|(left, limit)| left < limit);
        soon && self.available < part_of(self.basis, bands.look_ahead_below)
    }

    /// Whether stalled time says anything about this memory: not while plenty of it is available.
    pub fn stall_counts(&self, bands: &Bands) -> bool {
        self.available < part_of(self.basis, bands.stall_below)
    }

    /// Why the band is entered, the most pressing first.
    pub fn enters(&self, band: &Band, bands: &Bands) -> Option<PressureCause> {
        if self.runs_out(band, bands) {
            return Some(PressureCause::Exhaustion);
        }
        if self.available < part_of(self.basis, band.available.enter) {
            return Some(PressureCause::Available);
        }
        if !self.stall_counts(bands) {
            return None;
        }
        if self.full.is_some_and(|full| full >= band.full.enter) {
            return Some(PressureCause::Full);
        }
        self.some.is_some_and(|some| some >= band.some.enter).then_some(PressureCause::Some)
    }

    /// Whether everything is on the far side of the band's way out.
    pub fn leaves(&self, band: &Band, bands: &Bands) -> bool {
        let stalled = self.full.is_some_and(|full| full >= band.full.leave)
            || self.some.is_some_and(|some| some >= band.some.leave);
        !self.runs_out(band, bands)
            && self.available >= part_of(self.basis, band.available.leave)
            && !(stalled && self.stall_counts(bands))
    }
}

/// Keeps the grade over time: dwell on the way up, patience on the way down.
#[derive(Debug, Clone, Default)]
pub struct Grader {
    grade: Grade,
    cause: Option<PressureCause>,
    since_usec: u64,
    above_since: [Option<u64>; 3],
    below_since: Option<u64>,
}

impl Grader {
    /// The grade in force.
    pub const fn grade(&self) -> Grade {
        self.grade
    }

    /// What brought it about.
    pub const fn cause(&self) -> Option<PressureCause> {
        self.cause
    }

    /// Since when it is in force.
    pub const fn since_usec(&self) -> u64 {
        self.since_usec
    }

    /// Takes in the signals of `now`. `fired` names the grade a trigger of the kernel stands for and for how long it
    /// had watched the threshold before it fired: that time counts as dwell. Like all stalled time it counts only
    /// while little is available.
    pub fn step(
        &mut self,
        now_usec: u64,
        signals: &Signals,
        bands: &Bands,
        fired: Option<(Grade, u64)>,
    ) -> Grade {
        let fired = fired.filter(|_| signals.stall_counts(bands));
        let mut reached = None;
        for (index, grade) in Grade::BAD.into_iter().enumerate() {
            let Some(band) = bands.of(grade) else { continue };
            let told = fired.is_some_and(|(up_to, _)| up_to >= grade);
            let cause = signals.enters(band, bands);
            let Some(cause) = cause.or(told.then_some(PressureCause::Some)) else {
                self.above_since[index] = None;
                continue;
            };
            let since = self.above_since[index].get_or_insert(now_usec);
            if let Some((_, window)) = fired.filter(|_| told) {
                *since = (*since).min(now_usec.saturating_sub(window));
            }
            let waited = now_usec.saturating_sub(*since) >= band.dwell_usec;
            if waited || cause == PressureCause::Exhaustion {
                reached = Some((grade, cause));
            }
        }
        match reached {
            Some((grade, cause)) if grade >= self.grade => {
                self.below_since = None;
                self.enter(grade, Some(cause), now_usec);
            }
            _ => self.fall(now_usec, signals, bands),
        }
        self.grade
    }

    fn fall(&mut self, now_usec: u64, signals: &Signals, bands: &Bands) {
        let target = Grade::BAD
            .into_iter()
            .rev()
            .filter(|grade| *grade <= self.grade)
            .find(|grade| bands.of(*grade).is_some_and(|band| !signals.leaves(band, bands)))
            .unwrap_or(Grade::Calm);
        if target >= self.grade {
            self.below_since = None;
            return;
        }
        let since = *self.below_since.get_or_insert(now_usec);
        if now_usec.saturating_sub(since) >= bands.calm_after_usec {
            self.below_since = None;
            let cause = self.cause.filter(|_| target > Grade::Calm);
            self.enter(target, cause, now_usec);
        }
    }

    fn enter(&mut self, grade: Grade, cause: Option<PressureCause>, now_usec: u64) {
        if grade != self.grade {
            self.since_usec = now_usec;
        }
        self.grade = grade;
        self.cause = cause;
    }
}
