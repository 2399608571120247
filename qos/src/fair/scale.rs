//! From targets to integers the kernel takes: one scale for all siblings, fine enough and no finer.

use evenkeel_model::units::{CpuShares, CpuWeight};

use super::target::MicroCpu;

/// Millionths in one core.
const ONE_CPU: u64 = 1_000_000;
/// Largest rounding error of a single value, in thousandths: two values then differ from their ratio by less
/// than one percent.
const TOLERATED_PERMILLE: u128 = 4;
/// `cpu.weight` of one whole CPU: the kernel's default for a cgroup, and what 1024 shares become in today's
/// runtimes.
pub const WEIGHT_SCALE: u64 = 100;
/// `cpu.shares` of one whole CPU.
pub const SHARES_SCALE: u64 = 1024;

/// How a target becomes a value: `round(target x times / per)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    /// Numerator.
    pub times: u64,
    /// Denominator, millionths of a core.
    pub per: u64,
}

impl Scale {
    /// The scale of `cpu.weight` for these siblings: `precise` are those whose ratio matters now, `rest` those
    /// of which only the sum matters.
    pub fn for_weight(precise: &[MicroCpu], rest: &[MicroCpu]) -> Self {
        Self::fitting(WEIGHT_SCALE, CpuWeight::MIN.get(), CpuWeight::MAX.get(), precise, rest)
    }

    /// The scale of `cpu.shares` for these siblings, likewise.
    pub fn for_shares(precise: &[MicroCpu], rest: &[MicroCpu]) -> Self {
        Self::fitting(SHARES_SCALE, CpuShares::MIN.get(), CpuShares::MAX.get(), precise, rest)
    }

    /// The smallest power of two times the usual scale that rounds every precise value within tolerance and does
    /// not blow up the sum of the rest; where the range of the knob does not allow it, the finest that does.
    fn fitting(usual: u64, min: u32, max: u32, precise: &[MicroCpu], rest: &[MicroCpu]) -> Self {
        let max = u64::from(max);
        let largest = precise.iter().chain(rest).copied().max().unwrap_or_default();
        let fits = |s: &Self| s.exact(largest) <= (u128::from(max), 0);
        let mut scale = Self { times: usual, per: ONE_CPU };
        if !fits(&scale) {
            return Self { times: max, per: largest.get() };
        }
        let all = || precise.iter().chain(rest).copied();
        let is_fine = |s: Self| precise.iter().all(|t| s.is_precise(*t)) && s.keeps_sum(all(), min);
        while !is_fine(scale) {
            let finer = Self { times: scale.times * 2, ..scale };
            if !fits(&finer) {
                break;
            }
            scale = finer;
        }
        scale
    }

    /// Quotient and remainder of `target x times / per`.
    fn exact(self, target: MicroCpu) -> (u128, u128) {
        let scaled = u128::from(target.get()) * u128::from(self.times);
        let per = u128::from(self.per.max(1));
        (scaled / per, scaled % per)
    }

    /// The target in this scale, rounded to the nearest whole number.
    pub fn apply(self, target: MicroCpu) -> u64 {
        let (whole, rest) = self.exact(target);
        let up = u128::from(rest * 2 >= u128::from(self.per.max(1)));
        u64::try_from(whole + up).unwrap_or(u64::MAX)
    }

    /// The target as a weight.
    pub fn weight(self, target: MicroCpu) -> CpuWeight {
        CpuWeight::clamped(i64::try_from(self.apply(target)).unwrap_or(i64::MAX))
    }

    /// The target as shares.
    pub fn shares(self, target: MicroCpu) -> CpuShares {
        CpuShares::clamped(i64::try_from(self.apply(target)).unwrap_or(i64::MAX))
    }

    /// Whether rounding, and raising to the smallest value the knob takes, adds at most one percent to the sum:
    /// many small values must not outweigh a large one.
    fn keeps_sum(self, targets: impl Iterator<Item = MicroCpu>, min: u32) -> bool {
        let (mut scaled, mut given) = (0_u128, 0_u128);
        for target in targets {
            scaled += u128::from(target.get()) * u128::from(self.times);
            given += u128::from(self.apply(target).max(u64::from(min)));
        }
        given.saturating_mul(u128::from(self.per)).saturating_mul(100) <= scaled.saturating_mul(101)
    }

    /// Whether rounding changes the target by at most [`TOLERATED_PERMILLE`].
    fn is_precise(self, target: MicroCpu) -> bool {
        let scaled = u128::from(target.get()) * u128::from(self.times);
        let rounded = u128::from(self.apply(target)) * u128::from(self.per.max(1));
        rounded.abs_diff(scaled).saturating_mul(1000) <= scaled.saturating_mul(TOLERATED_PERMILLE)
    }
}

/// `times/per`, as in the inputs of a decision.
impl std::fmt::Display for Scale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.times, self.per)
    }
}

impl std::str::FromStr for Scale {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (times, per) = text.split_once('/').unwrap_or((text, "1"));
        Ok(Self { times: times.parse()?, per: per.parse()? })
    }
}
