//! Targets: how much CPU each sibling should get when all active ones want as much as they can.

use evenkeel_model::units::MilliCpu;
use serde::{Deserialize, Serialize};

/// CPU in millionths of a core: targets are fractions of thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MicroCpu(u64);

impl MicroCpu {
    /// Wraps millionths of a core.
    pub const fn new(value: u64) -> Self {
        Self(value)
    }

    /// Millionths of a core.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole thousandths of a core, rounded down.
    pub const fn milli(self) -> MilliCpu {
        MilliCpu::new(self.0 / 1000)
    }
}

impl From<MilliCpu> for MicroCpu {
    fn from(milli: MilliCpu) -> Self {
        Self(milli.get().saturating_mul(1000))
    }
}

impl std::fmt::Display for MicroCpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} millionths of a cpu", self.0)
    }
}

/// One of several siblings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Competitor {
    /// What it requests; zero where nothing is.
    pub request: MilliCpu,
    /// Whether it takes part in the excess now.
    pub is_active: bool,
}

/// The least any sibling is given, so that nobody is starved for good: what the smallest `cpu.weight` stands for
/// where the largest is one whole CPU.
const LEAST: MicroCpu = MicroCpu(100);

/// What all siblings of one parent share: enough to tell the target of each. Fields are named as decisions name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// CPU the siblings divide among them.
    #[serde(rename = "capacity_micro")]
    pub capacity: MicroCpu,
    /// Sum of the active siblings' requests.
    #[serde(rename = "active_requests_micro")]
    pub active_requests: MicroCpu,
    /// How many are active.
    #[serde(rename = "active_siblings")]
    pub active: u64,
    /// Target of an idle sibling that requests less than this: enough to be seen waking up.
    #[serde(rename = "wake_micro")]
    pub wake: MicroCpu,
}

impl Level {
    /// Sums up siblings that divide `capacity`. `active_above` is the use above which a container counts as
    /// active: an idle one is given twice as much, if everybody's equal part allows, so that it can reach it.
    pub fn of(capacity: MicroCpu, active_above: MilliCpu, siblings: &[Competitor]) -> Self {
        let sum = |only_active: bool| {
            siblings
                .iter()
                .filter(|s| s.is_active || !only_active)
                .fold(0_u64, |sum, s| sum.saturating_add(MicroCpu::from(s.request).0))
        };
        let count = siblings.iter().filter(|s| s.is_active).count();
        let all = u64::try_from(siblings.len()).unwrap_or(u64::MAX);
        let equal_part = capacity.0.saturating_sub(sum(false)).checked_div(all).unwrap_or(0);
        let seen = MicroCpu::from(active_above).0.saturating_mul(2);
        Self {
            capacity,
            active_requests: MicroCpu(sum(true)),
            active: u64::try_from(count).unwrap_or(u64::MAX),
            wake: MicroCpu(seen.min(equal_part)).max(LEAST),
        }
    }

    /// Each active sibling's equal part of what the active ones did not request; nothing where they request
    /// more than there is.
    pub fn equal_part(&self) -> MicroCpu {
        let excess = self.capacity.0.saturating_sub(self.active_requests.0);
        MicroCpu(excess.checked_div(self.active).unwrap_or(0))
    }

    /// Target of one of the siblings: `request + (capacity - sum of active requests) / active`. An idle one
    /// keeps its request (at least `wake`), so that it gets it at once when it wakes.
    pub fn target(&self, one: Competitor) -> MicroCpu {
        let request = MicroCpu::from(one.request);
        if one.is_active {
            MicroCpu(request.0.saturating_add(self.equal_part().0)).max(LEAST)
        } else {
            request.max(self.wake)
        }
    }
}
