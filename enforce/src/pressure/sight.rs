//! What the pressure loop reads of the kernel, freshly, each time it decides.

use evenkeel_model::narrow::f64_to_u32;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use evenkeel_host::cgroup::{CgroupDir, CgroupTree};
use evenkeel_host::error::{Category, HostError};
use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::node::{CpuTimes, cpu_times, meminfo};
use evenkeel_host::psi::{self, Pressure, PsiScope, Resource};
use evenkeel_host::roots::Roots;
use evenkeel_host::run_delay::waited_usec;
use evenkeel_host::write::CgroupRef;
use evenkeel_model::units::{Bytes, Limit};
use evenkeel_qos::pressure::{NodePressure, OwnLimits, Switches};

use super::own_limits::OwnLimitWalk;
use super::samples::Samples;
use crate::converge::roster::RosterEntry;
use crate::shared::micros;
use crate::usage::Usage;

/// Threads of one container asked for their waiting on v1.
const THREADS: usize = 512;

/// Memory of one container, read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct MemoryNow {
    pub(super) current: Bytes,
    /// Anonymous memory and pages of files, where they were asked for.
    pub(super) parts: Option<(Bytes, Bytes)>,
    pub(super) limit: Option<Bytes>,
    pub(super) some_usec: Option<u64>,
    pub(super) read_usec: u64,
}

/// A container's own limit and what it costs it, read now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LimitNow {
    pub(super) limit: Bytes,
    /// Kernel file of the limit.
    pub(super) knob: &'static str,
    pub(super) current: Bytes,
    /// How often it ran into the limit, and what it read back that it had given up; cumulative.
    pub(super) hits: u64,
    pub(super) refaulted: Bytes,
    pub(super) some_usec: Option<u64>,
    pub(super) read_usec: u64,
}

/// CPU of one container, cumulative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CpuNow {
    pub(super) usage_usec: u64,
    pub(super) throttled: u64,
    pub(super) waited_usec: Option<u64>,
    pub(super) least_weight: bool,
    pub(super) can_idle: bool,
    pub(super) read_usec: u64,
}

/// The loop's eyes.
pub(super) trait Sight: Send {
    /// Monotonic time, microseconds.
    fn now_usec(&self) -> u64;
    /// The node, or an owned subtree that has a limit; `None` when there is nothing to judge it by.
    fn domain(&mut self, tier: Option<&CgroupRef>) -> Option<NodePressure>;
    /// How long cgroups below the node or an owned subtree waited at limits of their own.
    fn own_limits(&mut self, tier: Option<&CgroupRef>) -> OwnLimits;
    /// How often a container ran into its own limit, cumulative.
    fn limit_hits(&mut self, entry: &RosterEntry) -> Result<u64, HostError>;
    /// A container's limit; `None` where it has none.
    fn limit(&mut self, entry: &RosterEntry) -> Result<Option<LimitNow>, HostError>;
    /// Slots of the containers in which some waited for memory at least this part of the time since this was last
    /// asked, hundredths of a percent, by the samples; `None` where the kernel does not tell.
    fn memory_waiters(&mut self, least: u32) -> Option<HashSet<u32>>;
    /// A container's memory; with `parts` also what it consists of.
    fn memory(&mut self, entry: &RosterEntry, parts: bool) -> Result<MemoryNow, HostError>;
    /// The node's CPU times.
    fn cpu_times(&mut self) -> Option<CpuTimes>;
    /// A container's CPU; `waited` asks also for what is dear: its waiting on v1 (thread by thread), and quotas of the
    /// cgroups above it.
    fn cpu(&mut self, entry: &RosterEntry, waited: bool) -> Result<CpuNow, HostError>;
    /// Slots of the containers that ran or waited for the CPU since this was last asked, by the samples; `None` when
    /// there are no fresh ones.
    fn stirred(&mut self) -> Option<HashSet<u32>>;
    /// What this machine can do.
    fn can(&self) -> Switches;
}

/// The real eyes.
pub(super) struct KernelSight {
    roots: Roots,
    tree: Arc<CgroupTree>,
    start: Instant,
    samples: Samples,
    /// Of the node and of each owned subtree by its inode.
    walks: HashMap<Option<u64>, OwnLimitWalk>,
}

impl KernelSight {
    pub(super) fn new(roots: Roots, tree: Arc<CgroupTree>, usage: Usage) -> Self {
        let samples = Samples::new(usage);
        Self { roots, tree, start: Instant::now(), samples, walks: HashMap::new() }
    }

    /// How often quotas of the cgroups above one stopped everything below them.
    fn throttled_above(&self, dir: &CgroupDir) -> u64 {
        let path = dir.path();
        let above = path.match_indices('/').map(|(at, _)| &path[..at]).filter(|above| !above.is_empty());
        let throttled = |above: &str| {
            self.tree.dir(dir.at().hierarchy, above).and_then(|dir| dir.cpu_stat()).ok()?.nr_throttled
        };
        above.filter_map(throttled).fold(0, u64::saturating_add)
    }

    fn tier(&self, at: &CgroupRef) -> Option<NodePressure> {
        let dir = self.tree.dir_of(at).ok()?;
        // Without a limit of its own it is as short of memory as the node.
        let Ok(Limit::Value(total)) = dir.memory_limit() else { return None };
        let stat = dir.memory_stat().ok()?;
        let file =
            stat.inactive_file.unwrap_or_default().saturating_add(stat.active_file.unwrap_or_default());
        let free = total.saturating_sub(dir.memory_current().ok()?);
        // Half of the page cache, as MemAvailable counts it (mm/show_mem.c, si_mem_available).
        let available = free.saturating_add(Bytes::new(file.get() / 2)).min(total);
        let swap_free = meminfo(&self.roots).ok()?.swap_free.unwrap_or_default();
        let node = NodePressure { total, available, swap_free, ..NodePressure::default() };
        Some(with_pressure(node, psi::read(PsiScope::Cgroup(&dir), Resource::Memory).ok()))
    }
}

fn with_pressure(node: NodePressure, pressure: Option<Pressure>) -> NodePressure {
    let Some(pressure) = pressure else { return node };
    let hundredths = |percent: f64| f64_to_u32((percent * 100.0).round().clamp(0.0, 10_000.0));
    NodePressure {
        some_usec: Some(pressure.some.total_usec),
        full_usec: pressure.full.map(|full| full.total_usec),
        some_avg10: Some(hundredths(pressure.some.avg10)),
        full_avg10: pressure.full.map(|full| hundredths(full.avg10)),
        ..node
    }
}

impl Sight for KernelSight {
    fn now_usec(&self) -> u64 {
        micros(self.start.elapsed())
    }

    fn domain(&mut self, tier: Option<&CgroupRef>) -> Option<NodePressure> {
        if let Some(at) = tier {
            return self.tier(at);
        }
        let memory = meminfo(&self.roots).ok()?;
        let node = NodePressure {
            total: memory.total,
            available: memory.available?,
            swap_free: memory.swap_free.unwrap_or_default(),
            ..NodePressure::default()
        };
        Some(with_pressure(node, psi::read(PsiScope::Node(&self.roots), Resource::Memory).ok()))
    }

    fn own_limits(&mut self, tier: Option<&CgroupRef>) -> OwnLimits {
        if self.tree.layout().home(Controller::Memory) != Some(Hierarchy::V2) {
            return OwnLimits::Untold;
        }
        let dir = match tier {
            Some(at) => self.tree.dir_of(at),
            None => self.tree.dir(Hierarchy::V2, "/"),
        };
        let Ok(dir) = dir else { return OwnLimits::Pending };
        let start = self.start;
        self.walks.entry(tier.map(|at| at.inode)).or_default().look(&dir, || micros(start.elapsed()))
    }

    fn limit_hits(&mut self, entry: &RosterEntry) -> Result<u64, HostError> {
        place(&self.tree, entry.memory.as_ref(), entry)?.limit_hits(false)
    }

    fn limit(&mut self, entry: &RosterEntry) -> Result<Option<LimitNow>, HostError> {
        let dir = place(&self.tree, entry.memory.as_ref(), entry)?;
        let Some((limit, knob)) = dir.reclaim_limit()? else { return Ok(None) };
        let some_usec = (dir.at().hierarchy == Hierarchy::V2).then(|| dir.pressure_some_usec("memory").ok());
        Ok(Some(LimitNow {
            limit,
            knob: knob.name(),
            current: dir.memory_current()?,
            hits: dir.limit_hits(false)?,
            refaulted: dir.memory_stat()?.refaulted.unwrap_or_default(),
            some_usec: some_usec.flatten(),
            read_usec: self.now_usec(),
        }))
    }

    fn memory_waiters(&mut self, least: u32) -> Option<HashSet<u32>> {
        self.samples.memory_waiters(least)
    }

    fn memory(&mut self, entry: &RosterEntry, parts: bool) -> Result<MemoryNow, HostError> {
        let dir = place(&self.tree, entry.memory.as_ref(), entry)?;
        let mut now = MemoryNow { current: dir.memory_current()?, ..MemoryNow::default() };
        if parts {
            let stat = dir.memory_stat()?;
            let file =
                stat.inactive_file.unwrap_or_default().saturating_add(stat.active_file.unwrap_or_default());
            now.parts = Some((stat.anon.unwrap_or_default(), file));
            now.limit = match dir.memory_limit() {
                Ok(Limit::Value(limit)) => Some(limit),
                Ok(Limit::Max) | Err(_) => None,
            };
        }
        if dir.at().hierarchy == Hierarchy::V2 {
            now.some_usec = dir.pressure_some_usec("memory").ok();
        }
        now.read_usec = self.now_usec();
        Ok(now)
    }

    fn cpu_times(&mut self) -> Option<CpuTimes> {
        cpu_times(&self.roots).ok()
    }

    fn cpu(&mut self, entry: &RosterEntry, waited: bool) -> Result<CpuNow, HostError> {
        let dir = place(&self.tree, entry.cpu.as_ref(), entry)?;
        let stat = dir.cpu_stat()?;
        let v2 = dir.at().hierarchy == Hierarchy::V2;
        let (usage_usec, waited_so_far) = if v2 {
            (stat.usage_usec.unwrap_or(0), dir.pressure_some_usec("cpu").ok())
        } else {
            let account = self.tree.layout().home(Controller::Cpuacct);
            let account = account.and_then(|h| self.tree.dir(h, &entry.tracked.cgroup).ok());
            let usage = account.map_or(Ok(0), |dir| dir.cpuacct_usage_usec())?;
            let procs = if waited { Some(dir.subtree_procs()?.pids) } else { None };
            (usage, procs.map(|pids| waited_usec(&self.roots, &pids, THREADS)))
        };
        let weight = dir.setting(if v2 { Knob::CpuWeight } else { Knob::CpuShares });
        let idle = dir.setting(Knob::CpuIdle);
        // The kernel takes no weight of an idle cgroup, and shows 3 shares of one on v1, 0 on v2
        // (sched_group_set_idle in kernel/sched/fair.c).
        let is_idle = matches!(idle, Ok(Setting::CpuIdle(true)));
        let least_weight = match weight {
            _ if is_idle => true,
            Ok(Setting::CpuWeight(weight)) => weight.get() <= 1,
            Ok(Setting::CpuShares(shares)) => shares.get() <= 2,
            _ => true,
        };
        Ok(CpuNow {
            usage_usec,
            // A pod's quota stops its containers as their own would, and no other pod can help them.
            throttled: stat.nr_throttled.unwrap_or(0).saturating_add(if waited {
                self.throttled_above(&dir)
            } else {
                0
            }),
            waited_usec: waited_so_far,
            least_weight,
            can_idle: idle.is_ok_and(|idle| idle == Setting::CpuIdle(false)),
            read_usec: self.now_usec(),
        })
    }

    fn stirred(&mut self) -> Option<HashSet<u32>> {
        self.samples.stirred()
    }

    fn can(&self) -> Switches {
        let layout = self.tree.layout();
        let v2 = layout.home(Controller::Memory) == Some(Hierarchy::V2);
        let v1 = matches!(layout.home(Controller::Memory), Some(Hierarchy::V1(_)));
        let freeze = layout.home(Controller::Freezer).is_some();
        // A kernel before 5.19 refuses memory.reclaim container by container; that is remembered there.
        Switches { reclaim: v2, high: v2, soft_limit: v1, freeze, kill: true }
    }
}

fn place(tree: &CgroupTree, at: Option<&CgroupRef>, entry: &RosterEntry) -> Result<CgroupDir, HostError> {
    let at = at.ok_or_else(|| {
        let why = "this machine lacks the controller";
        HostError::of_text(
            Category::Unsupported,
            evenkeel_host::error::HostOperation::Read,
            entry.tracked.cgroup.to_string(),
            why,
        )
    })?;
    tree.dir_of(at)
}
