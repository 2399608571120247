//! The two questions as pure functions: does it starve, and what is done to that one.

use evenkeel_model::qos_class::QosClass;
use serde::{Deserialize, Serialize};

/// Who goes to the eviction policy when squeezing was in vain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Evict {
    /// Nobody.
    #[default]
    Off,
    /// The one that starves.
    Starving,
    /// The one with most CPU beyond its request.
    Offender,
}

/// Everything an operator chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StarvationConfig {
    /// Whether others are squeezed.
    pub act: bool,
    /// Who is offered to the eviction policy.
    pub evict: Evict,
    /// How long a container starves before it counts, microseconds.
    pub after_usec: u64,
    /// Below this part of its request it may starve, hundredths of a percent.
    pub below: u32,
    /// Part of the time in which some of it wait for CPU, hundredths of a percent.
    pub pressure: u32,
    /// Part of the node's CPU that is busy, hundredths of a percent.
    pub busy: u32,
    /// Time between two steps, and without starvation before one is undone, microseconds.
    pub dwell_usec: u64,
    /// How long squeezing must be in vain before somebody is offered to the eviction policy, microseconds.
    pub evict_after_usec: u64,
    /// Thousandths of a core that a squeezed container keeps.
    pub floor_milli: u64,
}

/// One container at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerCpu {
    /// Which.
    pub key: u32,
    /// Whether anything may be done to it.
    pub managed: bool,
    /// Its class by CPU.
    pub class: QosClass,
    /// What it asked for, thousandths of a core.
    pub request_milli: u64,
    /// What it used since the last look.
    pub usage_milli: u64,
    /// Part of the time since then in which some of it waited for CPU, hundredths of a percent; `None` = not known.
    pub waited: Option<u32>,
    /// Its own quota stopped it since then.
    pub throttled: bool,
    /// Its weight or shares are as small as the kernel takes.
    pub least_weight: bool,
    /// `cpu.idle` can be set and is not.
    pub can_idle: bool,
}

/// Everything that says whether a container starves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Starving {
    /// What it asked for, thousandths of a core.
    pub request_milli: u64,
    /// What it gets.
    pub usage_milli: u64,
    /// Part of the time in which some of it wait, hundredths of a percent.
    pub waited: Option<u32>,
    /// Its own quota stops it.
    pub throttled: bool,
    /// Part of the node's CPU that is busy.
    pub node_busy: u32,
    /// See [`StarvationConfig::below`].
    pub below: u32,
    /// See [`StarvationConfig::pressure`].
    pub pressure: u32,
    /// See [`StarvationConfig::busy`].
    pub busy: u32,
}

/// Whether it wants the CPU it asked for and does not get it.
pub fn starves(case: &Starving) -> bool {
    let entitled = case.request_milli.saturating_mul(u64::from(case.below)) / 10_000;
    case.usage_milli < entitled
        && !case.throttled
        && case.node_busy >= case.busy
        && case.waited.is_some_and(|waited| waited >= case.pressure)
}

/// One step against one offender.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Squeeze {
    /// The smallest weight.
    Weight,
    /// Idle to the scheduler.
    Idle,
    /// So many thousandths of a core at most.
    Quota(u64),
}

impl Squeeze {
    /// What a decision shows as the new value.
    pub fn value(&self) -> String {
        match self {
            Self::Weight => "least-weight".to_owned(),
            Self::Idle => "idle".to_owned(),
            Self::Quota(milli) => format!("{milli}m"),
        }
    }
}

/// Everything a squeeze is decided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StarvationCase {
    /// Whether anything may be done to it.
    pub managed: bool,
    /// Its class by CPU.
    pub class: QosClass,
    /// What it asked for, thousandths of a core.
    pub request_milli: u64,
    /// What it uses.
    pub usage_milli: u64,
    /// Its weight is the smallest, by us or by itself.
    pub least_weight: bool,
    /// It can be made idle and is not.
    pub can_idle: bool,
    /// The quota we hold it at.
    pub quota_milli: Option<u64>,
    /// What it keeps in any case.
    pub floor_milli: u64,
    /// A quota can be set.
    pub can_quota: bool,
}

/// Smaller changes of a quota are not worth a step, thousandths of a core.
const LEAST_MILLI: u64 = 10;

impl StarvationCase {
    /// CPU beyond what it is entitled to.
    pub fn over(&self) -> u64 {
        match self.class {
            _ if !self.managed => 0,
            QosClass::BestEffort => self.usage_milli.saturating_sub(self.floor_milli),
            QosClass::Burstable => self.usage_milli.saturating_sub(self.request_milli.max(self.floor_milli)),
            QosClass::Guaranteed => 0,
        }
    }

    fn quota(&self) -> Option<Squeeze> {
        let entitled = match self.class {
            QosClass::BestEffort => self.floor_milli,
            _ => self.request_milli.max(self.floor_milli),
        };
        let to =
            (self.quota_milli.map_or(self.usage_milli, |held| held.min(self.usage_milli)) / 2).max(entitled);
        let worth = self.quota_milli.is_none_or(|held| to.saturating_add(LEAST_MILLI) <= held);
        (self.can_quota && worth).then_some(Squeeze::Quota(to))
    }
}

/// The next step against it, the mildest first; nothing against whoever has no more than it asked for. A Burstable
/// container keeps the weight of its request, and is only kept from using more.
pub fn squeeze(case: &StarvationCase) -> Option<Squeeze> {
    if case.over() < LEAST_MILLI {
        return None;
    }
    if case.class == QosClass::BestEffort {
        if !case.least_weight {
            return Some(Squeeze::Weight);
        }
        if case.can_idle {
            return Some(Squeeze::Idle);
        }
    }
    case.quota()
}
