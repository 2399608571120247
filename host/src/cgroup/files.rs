//! One method per kernel file, named like it, for cold use.

use evenkeel_model::units::{Bytes, Limit};

use super::dir::CgroupDir;
use crate::error::{Category, HostError, HostOperation};
use crate::hierarchy::{Controller, Hierarchy};
use crate::knob::{Knob, Setting};
use crate::node::page_size;
use crate::parse::{self, Picked};

/// `cpu.stat`. On v1 `usage_usec` is absent and throttled time is converted from nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuStat {
    /// CPU time used, microseconds.
    pub usage_usec: Option<u64>,
    /// Enforcement periods elapsed.
    pub nr_periods: Option<u64>,
    /// Periods in which the cgroup was throttled.
    pub nr_throttled: Option<u64>,
    /// Time throttled, microseconds.
    pub throttled_usec: Option<u64>,
}

/// The lines of `memory.stat` that are of use here, of the whole subtree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryStat {
    /// Anonymous memory (`anon`, v1 `total_rss`).
    pub anon: Option<Bytes>,
    /// Page cache not recently used (`inactive_file`, v1 `total_inactive_file`).
    pub inactive_file: Option<Bytes>,
    /// Page cache recently used (`active_file`, v1 `total_active_file`).
    pub active_file: Option<Bytes>,
    /// Swap (v1 `total_swap`; v2 has a file of its own).
    pub swap: Option<Bytes>,
    /// Pages that were read back although they had been in memory not long before, since the cgroup was made
    /// (`workingset_refault_*`, since 5.9).
    pub refaulted: Option<Bytes>,
}

/// `memory.events` (v2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryEvents {
    /// Times reclaimed because usage went over `memory.high`.
    pub high: Option<u64>,
    /// Times the limit was about to be exceeded.
    pub max: Option<u64>,
    /// Times the OOM killer was called for this cgroup's limit.
    pub oom: Option<u64>,
    /// Processes killed by any OOM killer.
    pub oom_kill: Option<u64>,
}

/// Refaults are told in pages by v2. By v1 they are told in pages since 6.8 and in bytes before (`memcg_stat_format`
/// in mm/memcontrol-v1.c): a page that is read back is charged, so that there are never more than pages charged.
fn refaulted_bytes(count: u64, charged_pages: Option<u64>) -> Bytes {
    let is_bytes = charged_pages.is_some_and(|charged| count > charged);
    Bytes::new(if is_bytes { count } else { count.saturating_mul(page_size().get()) })
}

impl CgroupDir {
    fn is_v2(&self) -> bool {
        self.at().hierarchy == Hierarchy::V2
    }

    fn read_number(&self, file: &str) -> Result<u64, HostError> {
        let text = self.read(file)?;
        parse::uint(parse::first_line(&text)).ok_or_else(|| self.malformed(file))
    }

    fn malformed(&self, file: &str) -> HostError {
        let subject = format!("{}:{}/{file}", self.at().hierarchy, self.path());
        HostError::of_text(Category::Malformed, HostOperation::Read, subject, "the text is not understood")
    }

    /// `cpu.stat`.
    ///
    /// # Errors
    /// As [`CgroupDir::read`].
    pub fn cpu_stat(&self) -> Result<CpuStat, HostError> {
        let text = self.read("cpu.stat")?;
        let [usage, periods, throttled, usec, nsec] = parse::pick(
            &text,
            [b"usage_usec", b"nr_periods", b"nr_throttled", b"throttled_usec", b"throttled_time"],
        )
        .map(Picked::value);
        Ok(CpuStat {
            usage_usec: usage,
            nr_periods: periods,
            nr_throttled: throttled,
            throttled_usec: usec.or(nsec.map(|n| n / 1000)),
        })
    }

    /// `cpuacct.usage` (v1), in microseconds.
    ///
    /// # Errors
    /// As [`CgroupDir::read`]; `Malformed`.
    pub fn cpuacct_usage_usec(&self) -> Result<u64, HostError> {
        Ok(self.read_number("cpuacct.usage")? / 1000)
    }

    /// `memory.current`, v1 `memory.usage_in_bytes`.
    ///
    /// # Errors
    /// As [`CgroupDir::read`]; `Malformed`.
    pub fn memory_current(&self) -> Result<Bytes, HostError> {
        let file = if self.is_v2() { "memory.current" } else { "memory.usage_in_bytes" };
        self.read_number(file).map(Bytes::new)
    }

    /// `memory.stat`.
    ///
    /// # Errors
    /// As [`CgroupDir::read`].
    pub fn memory_stat(&self) -> Result<MemoryStat, HostError> {
        let text = self.read("memory.stat")?;
        let keys: [&[u8]; 7] = if self.is_v2() {
            [
                b"anon",
                b"inactive_file",
                b"active_file",
                b"swap",
                b"workingset_refault_anon",
                b"workingset_refault_file",
                b"total_pgpgin",
            ]
        } else {
            [
                b"total_rss",
                b"total_inactive_file",
                b"total_active_file",
                b"total_swap",
                b"total_workingset_refault_anon",
                b"total_workingset_refault_file",
                b"total_pgpgin",
            ]
        };
        let [anon, inactive_file, active_file, swap, refault_anon, refault_file, charged] =
            parse::pick(&text, keys).map(Picked::value);
        let refaulted = [refault_anon, refault_file].into_iter().flatten().reduce(u64::saturating_add);
        let [anon, inactive_file, active_file, swap] =
            [anon, inactive_file, active_file, swap].map(|bytes| bytes.map(Bytes::new));
        let refaulted = refaulted.map(|count| refaulted_bytes(count, charged));
        Ok(MemoryStat { anon, inactive_file, active_file, swap, refaulted })
    }

    /// `memory.events` (v2), of the subtree.
    ///
    /// # Errors
    /// As [`CgroupDir::read`].
    pub fn memory_events(&self) -> Result<MemoryEvents, HostError> {
        let text = self.read("memory.events")?;
        let [high, max, oom, oom_kill] =
            parse::pick(&text, [b"high", b"max", b"oom", b"oom_kill"]).map(Picked::value);
        Ok(MemoryEvents { high, max, oom, oom_kill })
    }

    /// How often it was about to use more than `memory.max` or `memory.high` allow (`memory.events`, with `local` of
    /// this cgroup alone, since 5.2; v1 `memory.failcnt`, of this cgroup alone), since it was made.
    ///
    /// # Errors
    /// As [`CgroupDir::read`]; `Malformed`.
    pub fn limit_hits(&self, local: bool) -> Result<u64, HostError> {
        if !self.is_v2() {
            return self.read_number("memory.failcnt");
        }
        let file = if local { "memory.events.local" } else { "memory.events" };
        let text = self.read(file)?;
        let [high, max] = parse::pick(&text, [b"high", b"max"]).map(|count| count.value().unwrap_or(0));
        Ok(high.saturating_add(max))
    }

    /// The least use at which it is made to give up pages for a limit of its own, and the file that says so:
    /// `memory.max` or `memory.high`, v1 `memory.limit_in_bytes`. `None` where it has none.
    ///
    /// # Errors
    /// As [`CgroupDir::memory_limit`].
    pub fn reclaim_limit(&self) -> Result<Option<(Bytes, Knob)>, HostError> {
        let of = |limit: Limit<Bytes>, knob| match limit {
            Limit::Value(bytes) => Some((bytes, knob)),
            Limit::Max => None,
        };
        let max = of(self.memory_limit()?, if self.is_v2() { Knob::MemoryMax } else { Knob::MemoryLimit });
        let high = match self.is_v2().then(|| self.setting(Knob::MemoryHigh)) {
            Some(Ok(Setting::MemoryHigh(limit))) => of(limit, Knob::MemoryHigh),
            _ => None,
        };
        Ok([max, high].into_iter().flatten().min_by_key(|(bytes, _)| *bytes))
    }

    /// `pids.current`.
    ///
    /// # Errors
    /// As [`CgroupDir::read`]; `Malformed`.
    pub fn pids_current(&self) -> Result<u64, HostError> {
        self.read_number("pids.current")
    }

    /// The limit on memory (`memory.max`, v1 `memory.limit_in_bytes`).
    ///
    /// # Errors
    /// As [`CgroupDir::read`]; `Malformed`.
    pub fn memory_limit(&self) -> Result<Limit<Bytes>, HostError> {
        let knob = if self.is_v2() { Knob::MemoryMax } else { Knob::MemoryLimit };
        match self.setting(knob)? {
            Setting::MemoryMax(v) | Setting::MemoryLimit(v) => Ok(v),
            _ => Err(self.malformed(knob.name())),
        }
    }

    /// Total `some` stall time of a pressure file (`cpu`, `memory`, `io`), microseconds.
    ///
    /// # Errors
    /// As [`CgroupDir::read`]; `Malformed`.
    pub fn pressure_some_usec(&self, resource: &str) -> Result<u64, HostError> {
        let file = format!("{resource}.pressure");
        parse::pressure_some_total(&self.read(&file)?).value().ok_or_else(|| self.malformed(&file))
    }

    /// Controllers this cgroup may use (v2 `cgroup.controllers`).
    ///
    /// # Errors
    /// As [`CgroupDir::read`].
    pub fn controllers(&self) -> Result<Vec<Controller>, HostError> {
        self.controller_list("cgroup.controllers")
    }

    /// Controllers this cgroup gives on to its children (v2 `cgroup.subtree_control`).
    ///
    /// # Errors
    /// As [`CgroupDir::read`].
    pub fn subtree_control(&self) -> Result<Vec<Controller>, HostError> {
        self.controller_list("cgroup.subtree_control")
    }

    fn controller_list(&self, file: &str) -> Result<Vec<Controller>, HostError> {
        let text = self.read(file)?;
        let named = |w: &[u8]| Controller::ALL.into_iter().find(|c| c.name().as_bytes() == w);
        Ok(parse::words(&text).filter_map(named).collect())
    }

    /// Whether every process is frozen now: v2 `cgroup.events`, v1 `freezer.state`.
    ///
    /// # Errors
    /// As [`CgroupDir::read`]; `Malformed`.
    pub fn is_frozen(&self) -> Result<bool, HostError> {
        if self.is_v2() {
            let [frozen] = parse::pick(&self.read("cgroup.events")?, [b"frozen"]);
            return frozen.value().map(|n| n != 0).ok_or_else(|| self.malformed("cgroup.events"));
        }
        Ok(parse::first_line(&self.read("freezer.state")?) == b"FROZEN")
    }

    /// The present value of a knob.
    ///
    /// # Errors
    /// As [`CgroupDir::read`]; `Malformed`.
    pub fn setting(&self, knob: Knob) -> Result<Setting, HostError> {
        let mut buffer = [0; 4096];
        knob.parse(self.read_line(knob.file(), &mut buffer)?).ok_or_else(|| self.malformed(knob.file()))
    }

    /// Writes a knob. Crate-private: everybody else goes through a `HostWriter`, which refuses what must not be
    /// written.
    pub(crate) fn set(&self, setting: &Setting) -> Result<(), HostError> {
        self.write(setting.knob().file(), &setting.to_string())
    }
}
