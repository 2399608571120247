//! The knobs this project turns, and the values they may take.
//!
//! A [`Setting`] is a knob together with a value of the right type and range, so that a value outside what the
//! kernel takes cannot be written down. Owns their file names and text forms (which are also the form a journal
//! keeps). Does not read or write files, and does not know who wants which value.

mod setting;

use std::fmt;
use std::str::FromStr;

use evenkeel_model::units::{CpuShares, CpuWeight, Limit, OomScoreAdj};

use crate::hierarchy::Controller;
use crate::parse;

pub use setting::{PeriodUsec, QuotaUsec, Setting};

/// One knob of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Knob {
    /// `oom_score_adj` of a process.
    OomScoreAdj,
    /// `cpu.shares` (v1).
    CpuShares,
    /// `cpu.weight` (v2).
    CpuWeight,
    /// `cpu.cfs_quota_us` (v1).
    CpuCfsQuota,
    /// `cpu.cfs_period_us` (v1).
    CpuCfsPeriod,
    /// `cpu.max` (v2): quota and period together.
    CpuMax,
    /// `memory.min` (v2).
    MemoryMin,
    /// `memory.low` (v2).
    MemoryLow,
    /// `memory.high` (v2).
    MemoryHigh,
    /// `memory.max` (v2).
    MemoryMax,
    /// `memory.oom.group` (v2).
    MemoryOomGroup,
    /// `memory.limit_in_bytes` (v1).
    MemoryLimit,
    /// `memory.soft_limit_in_bytes` (v1).
    MemorySoftLimit,
    /// `freezer.state` (v1).
    FreezerState,
    /// `cgroup.freeze` (v2).
    CgroupFreeze,
}

impl Knob {
    /// Every knob.
    pub const ALL: [Self; 15] = [
        Self::OomScoreAdj,
        Self::CpuShares,
        Self::CpuWeight,
        Self::CpuCfsQuota,
        Self::CpuCfsPeriod,
        Self::CpuMax,
        Self::MemoryMin,
        Self::MemoryLow,
        Self::MemoryHigh,
        Self::MemoryMax,
        Self::MemoryOomGroup,
        Self::MemoryLimit,
        Self::MemorySoftLimit,
        Self::FreezerState,
        Self::CgroupFreeze,
    ];

    /// Name of the kernel's file, which is also the knob's name in events and configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OomScoreAdj => "oom_score_adj",
            Self::CpuShares => "cpu.shares",
            Self::CpuWeight => "cpu.weight",
            Self::CpuCfsQuota => "cpu.cfs_quota_us",
            Self::CpuCfsPeriod => "cpu.cfs_period_us",
            Self::CpuMax => "cpu.max",
            Self::MemoryMin => "memory.min",
            Self::MemoryLow => "memory.low",
            Self::MemoryHigh => "memory.high",
            Self::MemoryMax => "memory.max",
            Self::MemoryOomGroup => "memory.oom.group",
            Self::MemoryLimit => "memory.limit_in_bytes",
            Self::MemorySoftLimit => "memory.soft_limit_in_bytes",
            Self::FreezerState => "freezer.state",
            Self::CgroupFreeze => "cgroup.freeze",
        }
    }

    /// Controller the knob belongs to; `None` for a knob of a process.
    pub const fn controller(self) -> Option<Controller> {
        match self {
            Self::OomScoreAdj => None,
            Self::CpuShares | Self::CpuWeight | Self::CpuCfsQuota | Self::CpuCfsPeriod | Self::CpuMax => {
                Some(Controller::Cpu)
            }
            Self::MemoryMin
            | Self::MemoryLow
            | Self::MemoryHigh
            | Self::MemoryMax
            | Self::MemoryOomGroup
            | Self::MemoryLimit
            | Self::MemorySoftLimit => Some(Controller::Memory),
            Self::FreezerState | Self::CgroupFreeze => Some(Controller::Freezer),
        }
    }

    /// True for a knob that exists in v1 hierarchies only.
    pub const fn is_v1(self) -> bool {
        matches!(
            self,
            Self::CpuShares
                | Self::CpuCfsQuota
                | Self::CpuCfsPeriod
                | Self::MemoryLimit
                | Self::MemorySoftLimit
                | Self::FreezerState
        )
    }

    /// Reads the kernel's text for this knob. `None` when it is not such a text; so also for `cpu.weight` while
    /// `cpu.idle` is 1, when the kernel shows a weight of 0 and takes none.
    pub fn parse(self, text: &[u8]) -> Option<Setting> {
        let line = parse::first_line(text);
        Some(match self {
            Self::OomScoreAdj => {
                Setting::OomScoreAdj(OomScoreAdj::new(i16::try_from(parse::int(line)?).ok()?).ok()?)
            }
            Self::CpuShares => {
                Setting::CpuShares(CpuShares::new(u32::try_from(parse::uint(line)?).ok()?).ok()?)
            }
            Self::CpuWeight => {
                Setting::CpuWeight(CpuWeight::new(u32::try_from(parse::uint(line)?).ok()?).ok()?)
            }
            Self::CpuCfsQuota => Setting::CpuCfsQuota(v1_quota(parse::int(line)?)?),
            Self::CpuCfsPeriod => Setting::CpuCfsPeriod(PeriodUsec::new(parse::uint(line)?).ok()?),
            Self::CpuMax => {
                let mut words = parse::words(line);
                let quota = match words.next()? {
                    b"max" => Limit::Max,
                    n => Limit::Value(QuotaUsec::new(parse::uint(n)?).ok()?),
                };
                Setting::CpuMax { quota, period: PeriodUsec::new(parse::uint(words.next()?)?).ok()? }
            }
            Self::MemoryMin => Setting::MemoryMin(parse::limit(line)?),
            Self::MemoryLow => Setting::MemoryLow(parse::limit(line)?),
            Self::MemoryHigh => Setting::MemoryHigh(parse::limit(line)?),
            Self::MemoryMax => Setting::MemoryMax(parse::limit(line)?),
            Self::MemoryOomGroup => Setting::MemoryOomGroup(parse::flag(line)?),
            Self::MemoryLimit => Setting::MemoryLimit(parse::v1_limit(line)?),
            Self::MemorySoftLimit => Setting::MemorySoftLimit(parse::v1_limit(line)?),
            // FREEZING is on the way: what was asked for is "frozen"; whether it is reached is another question.
            Self::FreezerState => Setting::FreezerState(match line {
                b"FROZEN" | b"FREEZING" => true,
                b"THAWED" => false,
                _ => return None,
            }),
            Self::CgroupFreeze => Setting::CgroupFreeze(parse::flag(line)?),
        })
    }
}

fn v1_quota(n: i64) -> Option<Limit<QuotaUsec>> {
    if n < 0 { Some(Limit::Max) } else { QuotaUsec::new(n as u64).ok().map(Limit::Value) }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no knob's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a knob; knobs are named as the kernel names their files, such as cpu.shares")]
pub struct UnknownKnob(pub String);

impl FromStr for Knob {
    type Err = UnknownKnob;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|k| k.name() == s).ok_or_else(|| UnknownKnob(s.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_model::units::Bytes;

    use super::*;

    #[test]
    fn kernel_text_is_read_and_written_back() {
        let table: [(Knob, &str, &str); 16] = [
            (Knob::OomScoreAdj, "-997\n", "-997"),
            (Knob::CpuShares, "1024\n", "1024"),
            (Knob::CpuWeight, "100\n", "100"),
            (Knob::CpuCfsQuota, "-1\n", "-1"),
            (Knob::CpuCfsQuota, "50000\n", "50000"),
            (Knob::CpuCfsPeriod, "100000\n", "100000"),
            (Knob::CpuMax, "max 100000\n", "max 100000"),
            (Knob::CpuMax, "20000 100000\n", "20000 100000"),
            (Knob::MemoryMin, "0\n", "0"),
            (Knob::MemoryHigh, "max\n", "max"),
            (Knob::MemoryMax, "1073741824\n", "1073741824"),
            (Knob::MemoryOomGroup, "1\n", "1"),
            (Knob::MemoryLimit, "9223372036854771712\n", "-1"),
            (Knob::MemorySoftLimit, "4096\n", "4096"),
            (Knob::FreezerState, "FREEZING\n", "FROZEN"),
            (Knob::CgroupFreeze, "0\n", "0"),
        ];
        for (knob, kernel, ours) in table {
            let setting = knob.parse(kernel.as_bytes()).unwrap_or_else(|| panic!("{knob} {kernel:?}"));
            assert_eq!((setting.knob(), setting.to_string().as_str()), (knob, ours));
            assert_eq!(knob.parse(ours.as_bytes()), Some(setting));
        }
    }

    #[test]
    fn text_that_is_not_the_knobs_is_refused() {
        for (knob, text) in [
            (Knob::OomScoreAdj, "1001"),
            (Knob::CpuShares, "1"),
            (Knob::CpuWeight, "0"),
            (Knob::CpuMax, "100000"),
            (Knob::CpuMax, "max"),
            (Knob::MemoryMax, "-1"),
            (Knob::MemoryMax, ""),
            (Knob::FreezerState, "frozen"),
            (Knob::CgroupFreeze, "2"),
        ] {
            assert_eq!(knob.parse(text.as_bytes()), None, "{knob} {text:?}");
        }
    }

    #[test]
    fn memory_is_kept_in_whole_pages() {
        let page = Bytes::new(4096);
        let s = Setting::MemoryHigh(Limit::Value(Bytes::new(10_000))).as_kept(page);
        assert_eq!(s, Setting::MemoryHigh(Limit::Value(Bytes::new(8192))));
        assert_eq!(Setting::MemoryMin(Limit::Max).as_kept(page), Setting::MemoryMin(Limit::Max));
    }

    #[test]
    fn names_are_read_back() {
        for knob in Knob::ALL {
            assert_eq!(knob.name().parse(), Ok(knob));
        }
        assert!("cpu.share".parse::<Knob>().is_err());
    }
}
