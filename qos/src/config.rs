//! What an operator chooses about planning: rule set, conversion, and which knobs are planned at all.
//!
//! Owned here: the valid form of these choices. Not owned: where they come from (file, flag, environment).

use serde::{Deserialize, Serialize};

use crate::cpu::WeightConversion;
use crate::rules::RuleSet;

/// Which knobs are planned. A knob that is off is never wished, so somebody else may own it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields, default)]
pub struct KnobSwitches {
    /// `oom_score_adj` of every process.
    pub oom_score_adj: bool,
    /// `cpu.shares` (v1) and `cpu.weight` (v2).
    pub cpu_shares: bool,
    /// `cpu.cfs_quota_us` and `cpu.cfs_period_us` (v1), `cpu.max` (v2).
    pub cpu_quota: bool,
    /// `memory.min` and `memory.low` (v2), `memory.soft_limit_in_bytes` (v1).
    pub memory_protection: bool,
    /// `memory.max` (v2), `memory.limit_in_bytes` (v1).
    pub memory_max: bool,
    /// `memory.oom.group` (v2), the agent's own kill of the rest (v1).
    pub memory_oom_group: bool,
}

impl KnobSwitches {
    /// Every knob planned.
    pub const ALL: Self = Self {
        oom_score_adj: true,
        cpu_shares: true,
        cpu_quota: true,
        memory_protection: true,
        memory_max: true,
        memory_oom_group: true,
    };

    /// No knob planned: classes only.
    pub const NONE: Self = Self {
        oom_score_adj: false,
        cpu_shares: false,
        cpu_quota: false,
        memory_protection: false,
        memory_max: false,
        memory_oom_group: false,
    };
}

impl Default for KnobSwitches {
    fn default() -> Self {
        Self::ALL
    }
}

/// How far between request and limit (or the machine's memory) `memory.high` lies, in thousandths: 0 puts it
/// at the request, 1000 at the limit. KEP-2570 proposed 900 and later made "off" the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct MemoryHighFactor(u16);

/// A factor above 1000 thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FactorTooLarge(u16);

impl std::fmt::Display for FactorTooLarge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "memory.high factor {} is outside 0..=1000 thousandths", self.0)
    }
}

impl std::error::Error for FactorTooLarge {}

impl MemoryHighFactor {
    /// Checks the range.
    ///
    /// # Errors
    /// [`FactorTooLarge`] above 1000.
    pub const fn new(permille: u16) -> Result<Self, FactorTooLarge> {
        if permille > 1000 { Err(FactorTooLarge(permille)) } else { Ok(Self(permille)) }
    }

    /// The factor in thousandths.
    pub const fn permille(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for MemoryHighFactor {
    type Error = FactorTooLarge;

    fn try_from(permille: u16) -> Result<Self, Self::Error> {
        Self::new(permille)
    }
}

impl From<MemoryHighFactor> for u16 {
    fn from(factor: MemoryHighFactor) -> Self {
        factor.0
    }
}

/// Everything planning depends on besides the node and its containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlanConfig {
    /// The rule set in force.
    pub rules: RuleSet,
    /// How shares become `cpu.weight`: must be what the node's container runtime uses, or siblings do not compare.
    pub cpu_weight: WeightConversion,
    /// Which knobs are planned.
    pub knobs: KnobSwitches,
    /// Where `memory.high` goes; `None` (the default) leaves it alone.
    pub memory_high: Option<MemoryHighFactor>,
    /// Whether a container dies as a whole where its pod does not say; `None` leaves the kernel's setting alone.
    pub oom_kill: Option<evenkeel_model::workload::OomKill>,
}
