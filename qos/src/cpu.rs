//! CPU: requests into shares and weight, limits into quota, and back.
//!
//! Owned here: the integer arithmetic of the kubelet (`pkg/kubelet/cm/helpers_linux.go`) and the three ways in
//! which shares of cgroup v1 become a weight of v2. Not owned: which hierarchy a node has.

use evenkeel_model::narrow::f64_to_i64;
use evenkeel_model::units::{CpuShares, CpuWeight, Limit, MilliCpu};
use serde::{Deserialize, Serialize};

/// Shares of one whole CPU.
const SHARES_PER_CPU: u128 = 1024;
/// Thousandths in one CPU.
const MILLI_PER_CPU: u128 = 1000;
/// Distance between the smallest and largest shares.
const SHARES_SPAN: u64 = 262_142;
/// Distance between the smallest and largest weight.
const WEIGHT_SPAN: u64 = 9_999;
/// Enforcement period used where none is chosen, in microseconds (sched-bwc.rst; the kubelet's default).
pub const DEFAULT_PERIOD_USEC: u64 = 100_000;
/// Smallest quota the kernel takes, in microseconds (sched-bwc.rst).
pub const MIN_QUOTA_USEC: u64 = 1_000;

/// Shares for a request: `clamp(milli x 1024 / 1000, 2, 262144)`; a request of nothing gets the minimum, 2.
pub fn shares_from_milli(request: MilliCpu) -> CpuShares {
    let shares = u128::from(request.get()) * SHARES_PER_CPU / MILLI_PER_CPU;
    CpuShares::clamped(i64::try_from(shares).unwrap_or(i64::MAX))
}

/// The request that shares stand for, rounded up; the inverse of [`shares_from_milli`] for 2m to 256000m.
pub fn milli_from_shares(shares: CpuShares) -> MilliCpu {
    let milli = (u128::from(shares.get()) * MILLI_PER_CPU).div_ceil(SHARES_PER_CPU);
    // At most 256,000 because shares are bounded.
    MilliCpu::new(u64::try_from(milli).unwrap_or(u64::MAX))
}

/// How shares become a weight. Containers under one parent compare only when all of them use the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightConversion {
    /// A straight line from 2 to 1 and 262144 to 10000 (KEP-2254; runc before 1.3.2, crun before 1.23): 1024
    /// shares are weight 39.
    Linear,
    /// The curve through (2, 1), (1024, 100) and (262144, 10000) (opencontainers/cgroups since 0.0.3, runc since
    /// 1.3.2, crun since 1.23).
    #[default]
    Quadratic,
    /// systemd's own: `clamp(shares x 100 / 1024, 1, 10000)`.
    Systemd,
}

impl WeightConversion {
    /// The name in configuration and output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Quadratic => "quadratic",
            Self::Systemd => "systemd",
        }
    }

    /// Weight for shares.
    pub fn weight_from_shares(self, shares: CpuShares) -> CpuWeight {
        let s = u64::from(shares.get());
        let weight = match self {
            Self::Linear => 1 + (s - 2) * WEIGHT_SPAN / SHARES_SPAN,
            Self::Quadratic => return quadratic_weight(shares),
            Self::Systemd => s * 100 / 1024,
        };
        CpuWeight::clamped(i64::try_from(weight).unwrap_or(i64::MAX))
    }

    /// Weight for a request, by way of the shares a runtime would have been given, so that siblings compare.
    pub fn weight_from_milli(self, request: MilliCpu) -> CpuWeight {
        self.weight_from_shares(shares_from_milli(request))
    }

    /// Shares a weight stands for: KEP-2254's own inverse for the line, the smallest shares with that weight
    /// for the others (or the nearest, where a weight is reached by no shares).
    pub fn shares_from_weight(self, weight: CpuWeight) -> CpuShares {
        if self == Self::Linear {
            let shares = (u64::from(weight.get()) - 1) * SHARES_SPAN / WEIGHT_SPAN + 2;
            return CpuShares::clamped(i64::try_from(shares).unwrap_or(i64::MAX));
        }
        let (mut low, mut high) = (CpuShares::MIN.get(), CpuShares::MAX.get());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.weight_from_shares(CpuShares::clamped(i64::from(middle))) < weight {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        CpuShares::clamped(i64::from(low))
    }
}

impl std::fmt::Display for WeightConversion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

/// `ceil(10^((l^2 + 125 l) / 612 - 7/34))` with `l = log2(shares)`, in IEEE doubles and in this order of
/// operations, because runtimes compute it so and the results must be equal to theirs.
fn quadratic_weight(shares: CpuShares) -> CpuWeight {
    if shares == CpuShares::MIN {
        return CpuWeight::MIN;
    }
    if shares == CpuShares::MAX {
        return CpuWeight::MAX;
    }
    let l = f64::from(shares.get()).log2();
    let exponent = (l * l + 125.0 * l) / 612.0 - 7.0 / 34.0;
    CpuWeight::clamped(f64_to_i64(10_f64.powf(exponent).ceil()))
}

/// CPU bandwidth of a cgroup: at most `quota` microseconds of CPU time in each period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CpuQuota {
    /// Microseconds of CPU time per period; unlimited without a CPU limit.
    pub quota_usec: Limit<u64>,
    /// Length of a period in microseconds.
    pub period_usec: u64,
}

/// The quota alone: the period is the same everywhere.
impl std::fmt::Display for CpuQuota {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.quota_usec.fmt(f)
    }
}

impl CpuQuota {
    /// Quota for a limit in periods of `period_usec`: `max(1000, milli x period / 1000)`; a limit of zero or
    /// none is no quota.
    pub fn from_limit(limit: Option<MilliCpu>, period_usec: u64) -> Self {
        let quota_usec = match limit {
            Some(milli) if !milli.is_zero() => {
                let quota = u128::from(milli.get()) * u128::from(period_usec) / MILLI_PER_CPU;
                Limit::Value(u64::try_from(quota).unwrap_or(u64::MAX).max(MIN_QUOTA_USEC))
            }
            _ => Limit::Max,
        };
        Self { quota_usec, period_usec }
    }

    /// Burst of `percent` (at most 100) of the quota, microseconds, as the kernel takes none above the quota;
    /// `None` without a quota.
    pub fn burst(self, percent: u16) -> Option<u64> {
        let quota = u128::from(self.quota_usec.value()?);
        let burst = quota * u128::from(percent.min(100)) / 100;
        Some(u64::try_from(burst).unwrap_or(u64::MAX))
    }

    /// The limit a quota stands for: `quota x 1000 / period`; `None` when unlimited or the period is zero.
    pub fn limit(self) -> Option<MilliCpu> {
        let quota = u128::from(self.quota_usec.value()?);
        let milli = (quota * MILLI_PER_CPU).checked_div(u128::from(self.period_usec))?;
        Some(MilliCpu::new(u64::try_from(milli).unwrap_or(u64::MAX)))
    }
}
