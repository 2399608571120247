//! The knobs this project turns, and the values they may take.
//!
//! A [`Setting`] is a knob together with a value of the right type and range, so that a value outside what the
//! kernel takes cannot be written down. Owns their file names and text forms (which are also the form a journal
//! keeps). Does not read or write files, and does not know who wants which value.

mod cpuset;
mod overcommit;
mod setting;

use std::fmt;
use std::str::FromStr;

use crate::cgroup::{Controller, Hierarchy};
use crate::kernel_text;
use crate::units::{CpuShares, CpuWeight, Limit, OomScoreAdj};

pub use cpuset::{CpuSet, NotACpuSet};
pub use overcommit::Overcommit;
pub use setting::{BurstUsec, PeriodUsec, QuotaUsec, Setting};

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
    /// `cpu.idle` (v1 and v2, Linux 5.15).
    CpuIdle,
    /// `cpu.max.burst` (v2, Linux 5.14).
    CpuMaxBurst,
    /// `cpu.cfs_burst_us` (v1, Linux 5.14).
    CpuCfsBurst,
    /// `cpuset.cpus` (v1 and v2).
    CpusetCpus,
    /// `memory.swap.max` (v2).
    MemorySwapMax,
    /// `memory.memsw.limit_in_bytes` (v1).
    MemorySwLimit,
    /// One controller of `cgroup.subtree_control` (v2). Written in subtrees given to us only.
    SubtreeControl(Controller),
    /// `vm.overcommit_memory` of the machine.
    OvercommitMemory,
}

impl Knob {
    /// Every knob.
    pub const ALL: [Self; 26] = [
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
        Self::CpuIdle,
        Self::CpuMaxBurst,
        Self::CpuCfsBurst,
        Self::CpusetCpus,
        Self::MemorySwapMax,
        Self::MemorySwLimit,
        Self::SubtreeControl(Controller::Cpu),
        Self::SubtreeControl(Controller::Memory),
        Self::SubtreeControl(Controller::Pids),
        Self::SubtreeControl(Controller::Cpuset),
        Self::OvercommitMemory,
    ];

    /// Name in events, the journal and configuration: that of the kernel's file, with the controller behind it
    /// where one file holds several knobs.
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
            Self::CpuIdle => "cpu.idle",
            Self::CpuMaxBurst => "cpu.max.burst",
            Self::CpuCfsBurst => "cpu.cfs_burst_us",
            Self::CpusetCpus => "cpuset.cpus",
            Self::MemorySwapMax => "memory.swap.max",
            Self::MemorySwLimit => "memory.memsw.limit_in_bytes",
            Self::SubtreeControl(Controller::Cpu) => "cgroup.subtree_control:cpu",
            Self::SubtreeControl(Controller::Cpuacct) => "cgroup.subtree_control:cpuacct",
            Self::SubtreeControl(Controller::Memory) => "cgroup.subtree_control:memory",
            Self::SubtreeControl(Controller::Pids) => "cgroup.subtree_control:pids",
            Self::SubtreeControl(Controller::Freezer) => "cgroup.subtree_control:freezer",
            Self::SubtreeControl(Controller::Cpuset) => "cgroup.subtree_control:cpuset",
            Self::SubtreeControl(Controller::Io) => "cgroup.subtree_control:io",
            Self::OvercommitMemory => "vm.overcommit_memory",
        }
    }

    /// Name of the kernel's file that holds it.
    pub const fn file(self) -> &'static str {
        match self {
            Self::SubtreeControl(_) => "cgroup.subtree_control",
            Self::OvercommitMemory => "overcommit_memory",
            other => other.name(),
        }
    }

    /// True for a knob that a container's own cgroup has: not those of processes, of inner cgroups and of the
    /// machine.
    pub const fn is_of_container(self) -> bool {
        !matches!(self, Self::OomScoreAdj | Self::SubtreeControl(_) | Self::OvercommitMemory)
    }

    /// Controller the knob belongs to; `None` for a knob of a process or of the machine.
    pub const fn controller(self) -> Option<Controller> {
        match self {
            Self::OomScoreAdj | Self::OvercommitMemory => None,
            Self::CpuShares
            | Self::CpuWeight
            | Self::CpuCfsQuota
            | Self::CpuCfsPeriod
            | Self::CpuMax
            | Self::CpuIdle
            | Self::CpuMaxBurst
            | Self::CpuCfsBurst => Some(Controller::Cpu),
            Self::CpusetCpus => Some(Controller::Cpuset),
            Self::SubtreeControl(controller) => Some(controller),
            Self::MemoryMin
            | Self::MemoryLow
            | Self::MemoryHigh
            | Self::MemoryMax
            | Self::MemoryOomGroup
            | Self::MemoryLimit
            | Self::MemorySoftLimit
            | Self::MemorySwapMax
            | Self::MemorySwLimit => Some(Controller::Memory),
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
                | Self::CpuCfsBurst
                | Self::MemorySwLimit
        )
    }

    /// Whether cgroups of this hierarchy's version can have the knob.
    pub fn exists_in(self, hierarchy: Hierarchy) -> bool {
        match self {
            Self::OomScoreAdj | Self::OvercommitMemory => false,
            Self::CpuIdle | Self::CpusetCpus => true,
            other => other.is_v1() == (hierarchy != Hierarchy::V2),
        }
    }

    /// Reads the kernel's text for this knob. `None` when it is not such a text; so also for `cpu.weight` while
    /// `cpu.idle` is 1, when the kernel shows a weight of 0 and takes none.
    pub fn parse(self, text: &[u8]) -> Option<Setting> {
        let line = kernel_text::first_line(text);
        Some(match self {
            Self::OomScoreAdj => {
                Setting::OomScoreAdj(OomScoreAdj::new(i16::try_from(kernel_text::int(line)?).ok()?).ok()?)
            }
            Self::CpuShares => {
                Setting::CpuShares(CpuShares::new(u32::try_from(kernel_text::uint(line)?).ok()?).ok()?)
            }
            Self::CpuWeight => {
                Setting::CpuWeight(CpuWeight::new(u32::try_from(kernel_text::uint(line)?).ok()?).ok()?)
            }
            Self::CpuCfsQuota => Setting::CpuCfsQuota(v1_quota(kernel_text::int(line)?)?),
            Self::CpuCfsPeriod => Setting::CpuCfsPeriod(PeriodUsec::new(kernel_text::uint(line)?).ok()?),
            Self::CpuMax => {
                let mut words = kernel_text::words(line);
                let quota = match words.next()? {
                    b"max" => Limit::Max,
                    n => Limit::Value(QuotaUsec::new(kernel_text::uint(n)?).ok()?),
                };
                Setting::CpuMax { quota, period: PeriodUsec::new(kernel_text::uint(words.next()?)?).ok()? }
            }
            Self::MemoryMin => Setting::MemoryMin(kernel_text::limit(line)?),
            Self::MemoryLow => Setting::MemoryLow(kernel_text::limit(line)?),
            Self::MemoryHigh => Setting::MemoryHigh(kernel_text::limit(line)?),
            Self::MemoryMax => Setting::MemoryMax(kernel_text::limit(line)?),
            Self::MemoryOomGroup => Setting::MemoryOomGroup(kernel_text::flag(line)?),
            Self::MemoryLimit => Setting::MemoryLimit(kernel_text::v1_limit(line)?),
            Self::MemorySoftLimit => Setting::MemorySoftLimit(kernel_text::v1_limit(line)?),
            // FREEZING is on the way: what was asked for is "frozen"; whether it is reached is another question.
            Self::FreezerState => Setting::FreezerState(match line {
                b"FROZEN" | b"FREEZING" => true,
                b"THAWED" => false,
                _ => return None,
            }),
            Self::CgroupFreeze => Setting::CgroupFreeze(kernel_text::flag(line)?),
            Self::CpuIdle => Setting::CpuIdle(kernel_text::flag(line)?),
            Self::CpuMaxBurst => Setting::CpuMaxBurst(BurstUsec::new(kernel_text::uint(line)?).ok()?),
            Self::CpuCfsBurst => Setting::CpuCfsBurst(BurstUsec::new(kernel_text::uint(line)?).ok()?),
            Self::CpusetCpus => Setting::CpusetCpus(CpuSet::parse(line)?),
            Self::MemorySwapMax => Setting::MemorySwapMax(kernel_text::limit(line)?),
            Self::MemorySwLimit => Setting::MemorySwLimit(kernel_text::v1_limit(line)?),
            Self::SubtreeControl(controller) => {
                Setting::SubtreeControl { controller, on: gives(line, controller)? }
            }
            Self::OvercommitMemory => Setting::OvercommitMemory(Overcommit::new(kernel_text::uint(line)?)?),
        })
    }
}

/// Whether a `cgroup.subtree_control` names a controller. Read back from a journal it is `+cpu` or `-cpu`.
fn gives(line: &[u8], controller: Controller) -> Option<bool> {
    let name = controller.name().as_bytes();
    match line.split_first() {
        Some((b'+', rest)) if rest == name => return Some(true),
        Some((b'-', rest)) if rest == name => return Some(false),
        _ => {}
    }
    let is_name = |w: &[u8]| w.iter().all(|b| b.is_ascii_lowercase() || *b == b'_');
    kernel_text::words(line).all(is_name).then(|| kernel_text::words(line).any(|w| w == name))
}

fn v1_quota(n: i64) -> Option<Limit<QuotaUsec>> {
    match u64::try_from(n) {
        Ok(usec) => QuotaUsec::new(usec).ok().map(Limit::Value),
        Err(_) => Some(Limit::Max),
    }
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
    use crate::units::Bytes;

    use super::*;

    #[test]
    fn kernel_text_is_read_and_written_back() {
        let table: [(Knob, &str, &str); 27] = [
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
            (Knob::CpuIdle, "1\n", "1"),
            (Knob::CpuMaxBurst, "0\n", "0"),
            (Knob::CpuCfsBurst, "20000\n", "20000"),
            (Knob::CpusetCpus, "0-3,7\n", "0-3,7"),
            (Knob::CpusetCpus, "\n", ""),
            (Knob::MemorySwapMax, "max\n", "max"),
            (Knob::MemorySwLimit, "9223372036854771712\n", "-1"),
            (Knob::SubtreeControl(Controller::Cpu), "cpuset cpu io\n", "+cpu"),
            (Knob::SubtreeControl(Controller::Memory), "cpuset cpu io\n", "-memory"),
            (Knob::SubtreeControl(Controller::Pids), "\n", "-pids"),
            (Knob::OvercommitMemory, "2\n", "2"),
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
            (Knob::CpuIdle, "-1"),
            (Knob::CpuMaxBurst, "max"),
            (Knob::CpusetCpus, "0-"),
            (Knob::SubtreeControl(Controller::Cpu), "+memory"),
            (Knob::OvercommitMemory, "3"),
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
