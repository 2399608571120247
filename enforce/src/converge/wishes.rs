//! From a container's plan to the knobs of its cgroup.
//!
//! Owned here: which file of which hierarchy a wish is written to, and which wishes are left to somebody else. Not
//! owned: the values ([`evenkeel_qos::plan`]), writing them ([`super::knob`]).

use std::sync::Arc;

use evenkeel_host::error::Category;
use evenkeel_host::hierarchy::Hierarchy;
use evenkeel_host::knob::{BurstUsec, CpuSet, Knob, PeriodUsec, QuotaUsec, Setting};
use evenkeel_host::snapshot::CgroupFacts;
use evenkeel_host::write::{CgroupRef, Target};
use evenkeel_model::units::{Bytes, Limit};
use evenkeel_model::workload::{SourceKind, Workload};
use evenkeel_qos::cpu::CpuQuota;
use evenkeel_qos::plan::{Wish, Wishes};

use super::knob::KnobLoop;
use crate::converge::rules::Switches;

/// Knobs of one container being gathered.
struct Gather<'a> {
    facts: &'a CgroupFacts,
    /// A controller that is missing will be given on by us.
    is_owned: bool,
    targets: Vec<Arc<Target>>,
    knobs: Vec<KnobLoop>,
}

/// Every knob that is wished of a container and that its cgroup has. `is_owned`: in a subtree given to us; `alone`: on
/// processors of its own, where a quota would only stall it, whoever set that.
pub(super) fn knobs(
    on: &Switches,
    workload: &Workload,
    wishes: &Wishes,
    facts: &CgroupFacts,
    (is_owned, alone): (bool, bool),
) -> Vec<KnobLoop> {
    let mut all = Gather { facts, is_owned, targets: Vec::new(), knobs: Vec::new() };
    all.cpu(on, wishes);
    all.memory(wishes);
    if alone {
        all.without_quota(wishes);
    }
    // A limit of a cgroup has one owner: who made the container, where that one sets limits itself.
    if !matches!(workload.source, SourceKind::Cri | SourceKind::Kubernetes | SourceKind::Names) {
        all.limits(wishes);
    }
    all.knobs.shrink_to_fit();
    all.knobs
}

impl Gather<'_> {
    fn cpu(&mut self, on: &Switches, wishes: &Wishes) {
        if on.cpu_shares {
            self.add(&wishes.cpu_shares, Knob::CpuShares, |shares| Some(Setting::CpuShares(*shares)));
        }
        if on.cpu_weight {
            self.add(&wishes.cpu_weight, Knob::CpuWeight, |weight| Some(Setting::CpuWeight(*weight)));
            self.add(&wishes.cpu_idle, Knob::CpuIdle, |idle| Some(Setting::CpuIdle(*idle)));
        }
        self.add(&wishes.cpuset_cpus, Knob::CpusetCpus, |cpus| {
            let number = |cpu: u32| usize::try_from(cpu).ok();
            Some(Setting::CpusetCpus(cpus.iter().filter_map(number).collect::<CpuSet>()))
        });
    }

    /// No quota at all, which is a wish of its own here.
    fn without_quota(&mut self, wishes: &Wishes) {
        self.add(&wishes.cpu_quota, Knob::CpuMax, |quota| {
            let period = PeriodUsec::new(quota.period_usec).ok()?;
            Some(Setting::CpuMax { quota: Limit::Max, period })
        });
        self.add(&wishes.cpu_quota, Knob::CpuCfsQuota, |_| Some(Setting::CpuCfsQuota(Limit::Max)));
    }

    fn memory(&mut self, wishes: &Wishes) {
        let some = |bytes: &Bytes| Limit::Value(*bytes);
        self.add(&wishes.memory_min, Knob::MemoryMin, |v| Some(Setting::MemoryMin(some(v))));
        self.add(&wishes.memory_low, Knob::MemoryLow, |v| Some(Setting::MemoryLow(some(v))));
        let soft = if wishes.memory_min.is_some() { &wishes.memory_min } else { &wishes.memory_low };
        self.add(soft, Knob::MemorySoftLimit, |v| Some(Setting::MemorySoftLimit(some(v))));
        self.add(&wishes.memory_high, Knob::MemoryHigh, |v| Some(Setting::MemoryHigh(some(v))));
        self.add(&wishes.memory_oom_group, Knob::MemoryOomGroup, |v| Some(Setting::MemoryOomGroup(*v)));
    }

    /// Limits, of which "none" is never written: what stood before is put back where one of ours is no longer wished.
    fn limits(&mut self, wishes: &Wishes) {
        let limited = |quota: &CpuQuota| Some((quota.quota_usec.value()?, quota.period_usec));
        self.add(&wishes.cpu_quota, Knob::CpuMax, |quota| {
            let (quota, period) = limited(quota)?;
            let quota = Limit::Value(QuotaUsec::new(quota).ok()?);
            Some(Setting::CpuMax { quota, period: PeriodUsec::new(period).ok()? })
        });
        self.add(&wishes.cpu_quota, Knob::CpuCfsPeriod, |quota| {
            Some(Setting::CpuCfsPeriod(PeriodUsec::new(limited(quota)?.1).ok()?))
        });
        self.add(&wishes.cpu_quota, Knob::CpuCfsQuota, |quota| {
            Some(Setting::CpuCfsQuota(Limit::Value(QuotaUsec::new(limited(quota)?.0).ok()?)))
        });
        let burst = |usec: &u64| BurstUsec::new(*usec).ok();
        self.add(&wishes.cpu_burst, Knob::CpuMaxBurst, |usec| burst(usec).map(Setting::CpuMaxBurst));
        self.add(&wishes.cpu_burst, Knob::CpuCfsBurst, |usec| burst(usec).map(Setting::CpuCfsBurst));
        let most = |limit: &Limit<Bytes>| limit.value().map(Limit::Value);
        self.add(&wishes.memory_max, Knob::MemoryMax, |limit| most(limit).map(Setting::MemoryMax));
        self.add(&wishes.memory_max, Knob::MemoryLimit, |limit| most(limit).map(Setting::MemoryLimit));
        let swap = |swap: &Bytes| Some(Setting::MemorySwapMax(Limit::Value(*swap)));
        self.add(&wishes.memory_swap_max, Knob::MemorySwapMax, swap);
        // v1 counts memory and swap together, so it takes a limit on memory to limit swap.
        let memory = wishes.memory_max.as_ref().and_then(|limit| limit.value.value());
        self.add(&wishes.memory_swap_max, Knob::MemorySwLimit, |swap| {
            memory.map(|memory| Setting::MemorySwLimit(Limit::Value(memory.saturating_add(*swap))))
        });
    }

    fn add<T>(&mut self, wish: &Option<Wish<T>>, knob: Knob, setting: impl Fn(&T) -> Option<Setting>) {
        let Some(wish) = wish else { return };
        let Some(place) = place_of(self.facts, knob).or_else(|| self.to_come(knob)) else { return };
        let Some(setting) = setting(&wish.value) else { return };
        let target = self.target(place);
        self.knobs.push(KnobLoop::at(target, setting, Arc::new(wish.reason.clone())));
    }

    /// Where a knob will be once its controller is given on: by us where we own the subtree, by systemd with the first
    /// property of a unit that needs it.
    fn to_come(&self, knob: Knob) -> Option<CgroupRef> {
        let core = matches!(knob, Knob::CpuIdle | Knob::CpuMaxBurst);
        let place = self.facts.knob(knob)?.place.clone();
        let systemd_brings = || crate::systemd::assumed(&Target::Cgroup(place.clone()), knob).is_some();
        ((self.is_owned && !core) || systemd_brings()).then_some(place)
    }

    /// One place for all knobs of a directory.
    fn target(&mut self, place: CgroupRef) -> Arc<Target> {
        let target = Target::Cgroup(place);
        if let Some(known) = self.targets.iter().find(|known| ***known == target) {
            return Arc::clone(known);
        }
        let target = Arc::new(target);
        self.targets.push(Arc::clone(&target));
        target
    }
}

/// Where a knob of this cgroup is, if the machine and the cgroup have it.
pub(super) fn place_of(facts: &CgroupFacts, knob: Knob) -> Option<CgroupRef> {
    let fact = facts.knob(knob)?;
    let missing = fact.value.as_ref().err().is_some_and(|error| error.category() == Category::Unsupported);
    // v2 shows no files of a controller that is not given on, which is the parent's business; older kernels have no
    // burst and no idle.
    let optional = matches!(knob, Knob::CpuIdle | Knob::CpuCfsBurst | Knob::MemorySwLimit | Knob::CpusetCpus)
        || fact.place.hierarchy == Hierarchy::V2;
    (!missing || !optional).then(|| fact.place.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::workload;
    use evenkeel_host::fake::FakeKernel;
    use evenkeel_host::hierarchy::Mode;
    use evenkeel_host::snapshot::HostReader;
    use evenkeel_model::units::{CpuShares, CpuWeight};
    use evenkeel_qos::why::Why;

    const ON: Switches = Switches {
        oom_score_adj: true,
        cpu_shares: true,
        cpu_weight: true,
        cpu_quota: true,
        cpu_burst: true,
        memory_protection: true,
        memory_max: true,
        memory_oom_group: true,
        memory_swap: true,
    };

    fn wish<T>(value: T) -> Option<Wish<T>> {
        Some(Wish { value, reason: Why::Controller("any".into()) })
    }

    fn everything() -> Wishes {
        Wishes {
            cpu_shares: wish(CpuShares::clamped(512)),
            cpu_weight: wish(CpuWeight::clamped(59)),
            cpu_quota: wish(CpuQuota { quota_usec: Limit::Value(50_000), period_usec: 100_000 }),
            cpu_burst: wish(50_000),
            memory_low: wish(Bytes::new(8192)),
            memory_high: wish(Bytes::new(12_288)),
            memory_max: wish(Limit::Value(Bytes::new(16_384))),
            memory_oom_group: wish(true),
            memory_swap_max: wish(Bytes::new(4096)),
            ..Wishes::default()
        }
    }

    fn written(mode: Mode, source: SourceKind, wishes: &Wishes) -> Vec<String> {
        let kernel = FakeKernel::new(mode);
        kernel.with(|state| state.add_cgroup("/c"));
        let facts = kernel.cgroup("/c").unwrap();
        let workload = Workload { source, ..workload("web") };
        let all = knobs(&ON, &workload, wishes, &facts, (false, false));
        all.iter().map(|knob| format!("{} {}", knob.knob(), knob.wanted)).collect()
    }

    #[test]
    fn each_version_has_its_files() {
        assert_eq!(
            written(Mode::V2, SourceKind::Manifests, &everything()),
            [
                "cpu.weight 59",
                "memory.low 8192",
                "memory.high 12288",
                "memory.oom.group 1",
                "cpu.max 50000 100000",
                "cpu.max.burst 50000",
                "memory.max 16384",
                "memory.swap.max 4096",
            ]
        );
        assert_eq!(
            written(Mode::V1, SourceKind::Systemd, &everything()),
            [
                "cpu.shares 512",
                "memory.soft_limit_in_bytes 8192",
                "cpu.cfs_period_us 100000",
                "cpu.cfs_quota_us 50000",
                "cpu.cfs_burst_us 50000",
                "memory.limit_in_bytes 16384",
                "memory.memsw.limit_in_bytes 20480",
            ]
        );
    }

    #[test]
    fn limits_are_left_to_a_source_that_sets_them_and_none_is_never_written() {
        let of_runtime = written(Mode::V2, SourceKind::Cri, &everything());
        assert_eq!(written(Mode::V2, SourceKind::Names, &everything()), of_runtime);
        assert_eq!(
            of_runtime,
            ["cpu.weight 59", "memory.low 8192", "memory.high 12288", "memory.oom.group 1"]
        );
        let unlimited = Wishes {
            cpu_quota: wish(CpuQuota { quota_usec: Limit::Max, period_usec: 100_000 }),
            memory_max: wish(Limit::Max),
            ..Wishes::default()
        };
        assert_eq!(written(Mode::V1, SourceKind::Manifests, &unlimited), [""; 0]);
    }
}
