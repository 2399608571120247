//! [`Setting`]: a knob with a value of its type and range.

use std::fmt;

use super::{CpuSet, Knob, Overcommit};
use crate::cgroup::Controller;
use crate::units::{Bytes, CpuShares, CpuWeight, Limit, OomScoreAdj, OutOfRange};

macro_rules! usec {
    ($(#[$doc:meta])* $name:ident, $min:literal, $max:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// Smallest value the kernel takes.
            pub const MIN: u64 = $min;
            /// Largest value the kernel takes.
            pub const MAX: u64 = $max;

            /// Checks the range.
            ///
            /// # Errors
            /// [`OutOfRange`] when the kernel would refuse the value.
            pub const fn new(usec: u64) -> Result<Self, OutOfRange> {
                #[allow(clippy::absurd_extreme_comparisons, unused_comparisons)]
                if usec < $min || usec > $max {
                    let value = if usec > i64::MAX as u64 { i64::MAX } else { usec.cast_signed() };
                    return Err(OutOfRange { what: $what, value, min: $min, max: $max });
                }
                Ok(Self(usec))
            }

            /// Microseconds.
            pub const fn get(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

usec!(
    /// CPU bandwidth period in microseconds: 1 ms to 1 s (sched-bwc.rst).
    PeriodUsec,
    1_000,
    1_000_000,
    "cpu period in microseconds"
);
usec!(
    /// CPU time a cgroup may save up in idle periods and use beyond its quota, microseconds; 0 is off
    /// (sched-bwc.rst). The kernel also wants it to be at most the quota.
    BurstUsec,
    0,
    17_592_186_044_415,
    "cpu burst in microseconds"
);
usec!(
    /// CPU time allowed in each period, microseconds: 1 ms and up (sched-bwc.rst; the kernel's own ceiling is
    /// 2^44 microseconds, `max_cfs_runtime`).
    QuotaUsec,
    1_000,
    17_592_186_044_415,
    "cpu quota in microseconds"
);

/// A knob and a value it can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Setting {
    /// `oom_score_adj` of a process.
    OomScoreAdj(OomScoreAdj),
    /// `cpu.shares` (v1).
    CpuShares(CpuShares),
    /// `cpu.weight` (v2).
    CpuWeight(CpuWeight),
    /// `cpu.cfs_quota_us` (v1).
    CpuCfsQuota(Limit<QuotaUsec>),
    /// `cpu.cfs_period_us` (v1).
    CpuCfsPeriod(PeriodUsec),
    /// `cpu.max` (v2).
    CpuMax {
        /// CPU time in each period.
        quota: Limit<QuotaUsec>,
        /// Length of the period.
        period: PeriodUsec,
    },
    /// `memory.min` (v2).
    MemoryMin(Limit<Bytes>),
    /// `memory.low` (v2).
    MemoryLow(Limit<Bytes>),
    /// `memory.high` (v2).
    MemoryHigh(Limit<Bytes>),
    /// `memory.max` (v2).
    MemoryMax(Limit<Bytes>),
    /// `memory.oom.group` (v2).
    MemoryOomGroup(bool),
    /// `memory.limit_in_bytes` (v1).
    MemoryLimit(Limit<Bytes>),
    /// `memory.soft_limit_in_bytes` (v1).
    MemorySoftLimit(Limit<Bytes>),
    /// `freezer.state` (v1): true asks for FROZEN.
    FreezerState(bool),
    /// `cgroup.freeze` (v2): true asks for frozen.
    CgroupFreeze(bool),
    /// `cpu.idle` (v1 and v2): true takes the cgroup's weight down to that of SCHED_IDLE.
    CpuIdle(bool),
    /// `cpu.max.burst` (v2).
    CpuMaxBurst(BurstUsec),
    /// `cpu.cfs_burst_us` (v1).
    CpuCfsBurst(BurstUsec),
    /// `cpuset.cpus` (v1 and v2).
    CpusetCpus(CpuSet),
    /// `memory.swap.max` (v2).
    MemorySwapMax(Limit<Bytes>),
    /// `memory.memsw.limit_in_bytes` (v1): memory and swap together.
    MemorySwLimit(Limit<Bytes>),
    /// One controller of `cgroup.subtree_control` (v2): whether children may use it.
    SubtreeControl {
        /// Which controller.
        controller: Controller,
        /// Given to the children or not.
        on: bool,
    },
    /// `vm.overcommit_memory` of the machine.
    OvercommitMemory(Overcommit),
}

impl Setting {
    /// The knob this is a value of.
    pub const fn knob(&self) -> Knob {
        match self {
            Self::OomScoreAdj(_) => Knob::OomScoreAdj,
            Self::CpuShares(_) => Knob::CpuShares,
            Self::CpuWeight(_) => Knob::CpuWeight,
            Self::CpuCfsQuota(_) => Knob::CpuCfsQuota,
            Self::CpuCfsPeriod(_) => Knob::CpuCfsPeriod,
            Self::CpuMax { .. } => Knob::CpuMax,
            Self::MemoryMin(_) => Knob::MemoryMin,
            Self::MemoryLow(_) => Knob::MemoryLow,
            Self::MemoryHigh(_) => Knob::MemoryHigh,
            Self::MemoryMax(_) => Knob::MemoryMax,
            Self::MemoryOomGroup(_) => Knob::MemoryOomGroup,
            Self::MemoryLimit(_) => Knob::MemoryLimit,
            Self::MemorySoftLimit(_) => Knob::MemorySoftLimit,
            Self::FreezerState(_) => Knob::FreezerState,
            Self::CgroupFreeze(_) => Knob::CgroupFreeze,
            Self::CpuIdle(_) => Knob::CpuIdle,
            Self::CpuMaxBurst(_) => Knob::CpuMaxBurst,
            Self::CpuCfsBurst(_) => Knob::CpuCfsBurst,
            Self::CpusetCpus(_) => Knob::CpusetCpus,
            Self::MemorySwapMax(_) => Knob::MemorySwapMax,
            Self::MemorySwLimit(_) => Knob::MemorySwLimit,
            Self::SubtreeControl { controller, .. } => Knob::SubtreeControl(*controller),
            Self::OvercommitMemory(_) => Knob::OvercommitMemory,
        }
    }

    /// The value the kernel keeps when given this one: memory knobs are rounded down to whole pages.
    #[must_use]
    pub fn as_kept(self, page: Bytes) -> Self {
        let pages = |limit: Limit<Bytes>| match limit {
            Limit::Value(b) if page.get() > 0 => Limit::Value(Bytes::new(b.get() / page.get() * page.get())),
            other => other,
        };
        match self {
            Self::MemoryMin(v) => Self::MemoryMin(pages(v)),
            Self::MemoryLow(v) => Self::MemoryLow(pages(v)),
            Self::MemoryHigh(v) => Self::MemoryHigh(pages(v)),
            Self::MemoryMax(v) => Self::MemoryMax(pages(v)),
            Self::MemoryLimit(v) => Self::MemoryLimit(pages(v)),
            Self::MemorySoftLimit(v) => Self::MemorySoftLimit(pages(v)),
            Self::MemorySwapMax(v) => Self::MemorySwapMax(pages(v)),
            Self::MemorySwLimit(v) => Self::MemorySwLimit(pages(v)),
            other => other,
        }
    }
}

/// The text the kernel takes, without the final newline; [`Knob::parse`] reads it back.
impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OomScoreAdj(v) => v.fmt(f),
            Self::CpuShares(v) => v.fmt(f),
            Self::CpuWeight(v) => v.fmt(f),
            Self::CpuCfsQuota(Limit::Max) => f.write_str("-1"),
            Self::CpuCfsQuota(Limit::Value(v)) => v.fmt(f),
            Self::CpuCfsPeriod(v) => v.fmt(f),
            Self::CpuMax { quota, period } => write!(f, "{quota} {period}"),
            Self::CpuMaxBurst(v) | Self::CpuCfsBurst(v) => v.fmt(f),
            Self::CpusetCpus(v) => v.fmt(f),
            Self::SubtreeControl { controller, on } => {
                write!(f, "{}{}", if *on { '+' } else { '-' }, controller.name())
            }
            Self::OvercommitMemory(v) => v.fmt(f),
            Self::MemoryMin(v)
            | Self::MemoryLow(v)
            | Self::MemoryHigh(v)
            | Self::MemoryMax(v)
            | Self::MemorySwapMax(v) => match v {
                Limit::Max => f.write_str("max"),
                Limit::Value(b) => b.get().fmt(f),
            },
            Self::MemoryLimit(v) | Self::MemorySoftLimit(v) | Self::MemorySwLimit(v) => match v {
                Limit::Max => f.write_str("-1"),
                Limit::Value(b) => b.get().fmt(f),
            },
            Self::MemoryOomGroup(on) | Self::CgroupFreeze(on) | Self::CpuIdle(on) => u8::from(*on).fmt(f),
            Self::FreezerState(on) => f.write_str(if *on { "FROZEN" } else { "THAWED" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node keeps some tens of thousands of them.
    #[test]
    fn a_setting_stays_small() {
        assert!(size_of::<Setting>() <= 40, "{}", size_of::<Setting>());
    }
}
