//! What an operator chooses about planning: rule set, conversion, and which knobs are planned at all.
//!
//! Owned here: the valid form of these choices. Not owned: where they come from (file, flag, environment).

use serde::{Deserialize, Serialize};

use crate::cpu::{DEFAULT_PERIOD_USEC, WeightConversion};
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
    /// `cpu.max.burst` (v2), `cpu.cfs_burst_us` (v1), where [`PlanConfig::cpu_burst`] asks for it.
    pub cpu_burst: bool,
    /// `memory.min` and `memory.low` (v2), `memory.soft_limit_in_bytes` (v1).
    pub memory_protection: bool,
    /// `memory.max` (v2), `memory.limit_in_bytes` (v1).
    pub memory_max: bool,
    /// `memory.oom.group` (v2), the agent's own kill of the rest (v1).
    pub memory_oom_group: bool,
    /// `memory.swap.max` (v2), `memory.memsw.limit_in_bytes` (v1), where [`PlanConfig::swap_limits`] asks for it.
    pub memory_swap: bool,
}

impl KnobSwitches {
    /// Every knob planned.
    pub const ALL: Self = Self {
        oom_score_adj: true,
        cpu_shares: true,
        cpu_quota: true,
        cpu_burst: true,
        memory_protection: true,
        memory_max: true,
        memory_oom_group: true,
        memory_swap: true,
    };

    /// No knob planned: classes only.
    pub const NONE: Self = Self {
        oom_score_adj: false,
        cpu_shares: false,
        cpu_quota: false,
        cpu_burst: false,
        memory_protection: false,
        memory_max: false,
        memory_oom_group: false,
        memory_swap: false,
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

/// Length of the period in which a CPU quota holds, microseconds. The kernel takes 1 ms to 1 s (sched-bwc.rst);
/// shorter stalls shorter and costs more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct CpuPeriod(u64);

/// A period outside what the kernel takes, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeriodOutOfRange(u64);

impl std::fmt::Display for PeriodOutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cpu period of {} microseconds is outside 1000..=1000000", self.0)
    }
}

impl std::error::Error for PeriodOutOfRange {}

impl CpuPeriod {
    /// Checks the range.
    ///
    /// # Errors
    /// [`PeriodOutOfRange`] below 1 ms or above 1 s.
    pub const fn new(usec: u64) -> Result<Self, PeriodOutOfRange> {
        if usec < 1_000 || usec > 1_000_000 { Err(PeriodOutOfRange(usec)) } else { Ok(Self(usec)) }
    }

    /// Microseconds.
    pub const fn usec(self) -> u64 {
        self.0
    }
}

impl Default for CpuPeriod {
    fn default() -> Self {
        Self(DEFAULT_PERIOD_USEC)
    }
}

impl TryFrom<u64> for CpuPeriod {
    type Error = PeriodOutOfRange;

    fn try_from(usec: u64) -> Result<Self, Self::Error> {
        Self::new(usec)
    }
}

impl From<CpuPeriod> for u64 {
    fn from(period: CpuPeriod) -> Self {
        period.0
    }
}

/// CPU time a container may save up while idle and use on top of its quota later, in percent of the quota: 1 to
/// 100, for the kernel takes no burst above the quota (sched-bwc.rst, since 5.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct BurstPercent(u16);

/// A burst of nothing or of more than the quota, percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BurstOutOfRange(u16);

impl std::fmt::Display for BurstOutOfRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "cpu burst of {} percent of the quota is outside 1..=100", self.0)
    }
}

impl std::error::Error for BurstOutOfRange {}

impl BurstPercent {
    /// Checks the range.
    ///
    /// # Errors
    /// [`BurstOutOfRange`] for zero and above 100.
    pub const fn new(percent: u16) -> Result<Self, BurstOutOfRange> {
        if percent == 0 || percent > 100 { Err(BurstOutOfRange(percent)) } else { Ok(Self(percent)) }
    }

    /// Percent of the quota.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for BurstPercent {
    type Error = BurstOutOfRange;

    fn try_from(percent: u16) -> Result<Self, Self::Error> {
        Self::new(percent)
    }
}

impl From<BurstPercent> for u16 {
    fn from(percent: BurstPercent) -> Self {
        percent.0
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
    /// Period of CPU quotas.
    pub cpu_period: CpuPeriod,
    /// Burst on top of a CPU quota; `None` (the default) leaves it alone.
    pub cpu_burst: Option<BurstPercent>,
    /// Containers that are best-effort by CPU run only when nobody else wants to (`cpu.idle`, since 5.15). Set
    /// it only where the kernel has the knob: an idle cgroup takes neither shares nor weight, so neither is
    /// wished for one.
    pub cpu_idle_best_effort: bool,
    /// Swap limited by class (KEP-2400): none for guaranteed and best-effort containers, a part in proportion to
    /// the request for burstable ones. `false` (the default) leaves swap limits alone.
    pub swap_limits: bool,
}
