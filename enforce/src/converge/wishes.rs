//! From a container's plan to the knobs of its cgroup.
//!
//! Owned here: which file of which hierarchy a wish is written to, and which wishes are left to somebody else. Not
//! owned: the values ([`evenkeel_qos::desired`]), writing them ([`super::knob`]).

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
use evenkeel_qos::why::Why;

use super::knob::KnobLoop;
use crate::converge::rules::Switches;

/// One setting of a container, in the terms of one hierarchy's file.
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedSetting<'a> {
    /// What its knob should hold.
    pub(super) setting: Setting,
    /// Why.
    pub(super) why: &'a Why,
}

/// What is wished of a container, as settings of every hierarchy there may be. `alone`: on processors of its own, where a
/// quota would only stall it, whoever set that.
pub(super) fn settings<'a>(
    on: &Switches,
    workload: &Workload,
    wishes: &'a Wishes,
    alone: bool,
) -> Vec<WantedSetting<'a>> {
    let mut all = Settings(Vec::new());
    all.cpu(on, wishes);
    all.memory(wishes);
    if alone {
        all.without_quota(wishes);
    }
    // A limit of a cgroup has one owner: who made the container, where that one sets limits itself.
    if !matches!(workload.source, SourceKind::Cri | SourceKind::Kubernetes | SourceKind::Names) {
        all.limits(wishes);
    }
    all.0
}

/// Every one of these settings that the cgroup has a knob for. `is_owned`: in a subtree given to us.
pub(super) fn knobs(settings: &[WantedSetting<'_>], facts: &CgroupFacts, is_owned: bool) -> Vec<KnobLoop> {
    let mut places = Places { facts, is_owned, targets: Vec::new() };
    let knob = |wanted: &WantedSetting<'_>| {
        let target = places.target(wanted.setting.knob())?;
        Some(KnobLoop::at(target, wanted.setting, Arc::new(wanted.why.clone())))
    };
    let mut all: Vec<KnobLoop> = settings.iter().filter_map(knob).collect();
    all.shrink_to_fit();
    all
}

/// Settings being gathered.
struct Settings<'a>(Vec<WantedSetting<'a>>);

impl<'a> Settings<'a> {
    fn cpu(&mut self, on: &Switches, wishes: &'a Wishes) {
        if on.cpu_shares {
            self.add(&wishes.cpu_shares, |shares| Some(Setting::CpuShares(*shares)));
        }
        if on.cpu_weight {
            self.add(&wishes.cpu_weight, |weight| Some(Setting::CpuWeight(*weight)));
            self.add(&wishes.cpu_idle, |idle| Some(Setting::CpuIdle(*idle)));
        }
        self.add(&wishes.cpuset_cpus, |cpus| {
            let number = |cpu: u32| usize::try_from(cpu).ok();
            Some(Setting::CpusetCpus(cpus.iter().filter_map(number).collect::<CpuSet>()))
        });
    }

    /// No quota at all, which is a wish of its own here.
    fn without_quota(&mut self, wishes: &'a Wishes) {
        self.add(&wishes.cpu_quota, |quota| {
            let period = PeriodUsec::new(quota.period_usec).ok()?;
            Some(Setting::CpuMax { quota: Limit::Max, period })
        });
        self.add(&wishes.cpu_quota, |_| Some(Setting::CpuCfsQuota(Limit::Max)));
    }

    fn memory(&mut self, wishes: &'a Wishes) {
        let some = |bytes: &Bytes| Limit::Value(*bytes);
        self.add(&wishes.memory_min, |v| Some(Setting::MemoryMin(some(v))));
        self.add(&wishes.memory_low, |v| Some(Setting::MemoryLow(some(v))));
        let soft = if wishes.memory_min.is_some() { &wishes.memory_min } else { &wishes.memory_low };
        self.add(soft, |v| Some(Setting::MemorySoftLimit(some(v))));
        self.add(&wishes.memory_high, |v| Some(Setting::MemoryHigh(some(v))));
        self.add(&wishes.memory_oom_group, |v| Some(Setting::MemoryOomGroup(*v)));
    }

    /// Limits, of which "none" is never written: what stood before is put back where one of ours is no longer wished.
    fn limits(&mut self, wishes: &'a Wishes) {
        let limited = |quota: &CpuQuota| Some((quota.quota_usec.value()?, quota.period_usec));
        self.add(&wishes.cpu_quota, |quota| {
            let (quota, period) = limited(quota)?;
            let quota = Limit::Value(QuotaUsec::new(quota).ok()?);
            Some(Setting::CpuMax { quota, period: PeriodUsec::new(period).ok()? })
        });
        self.add(&wishes.cpu_quota, |quota| {
            Some(Setting::CpuCfsPeriod(PeriodUsec::new(limited(quota)?.1).ok()?))
        });
        self.add(&wishes.cpu_quota, |quota| {
            Some(Setting::CpuCfsQuota(Limit::Value(QuotaUsec::new(limited(quota)?.0).ok()?)))
        });
        let burst = |usec: &u64| BurstUsec::new(*usec).ok();
        self.add(&wishes.cpu_burst, |usec| burst(usec).map(Setting::CpuMaxBurst));
        self.add(&wishes.cpu_burst, |usec| burst(usec).map(Setting::CpuCfsBurst));
        let most = |limit: &Limit<Bytes>| limit.value().map(Limit::Value);
        self.add(&wishes.memory_max, |limit| most(limit).map(Setting::MemoryMax));
        self.add(&wishes.memory_max, |limit| most(limit).map(Setting::MemoryLimit));
        self.add(&wishes.memory_swap_max, |swap| Some(Setting::MemorySwapMax(Limit::Value(*swap))));
        // v1 counts memory and swap together, so it takes a limit on memory to limit swap.
        let memory = wishes.memory_max.as_ref().and_then(|limit| limit.value.value());
        self.add(&wishes.memory_swap_max, |swap| {
            memory.map(|memory| Setting::MemorySwLimit(Limit::Value(memory.saturating_add(*swap))))
        });
    }

    fn add<T>(&mut self, wish: &'a Option<Wish<T>>, setting: impl Fn(&T) -> Option<Setting>) {
        let wanted =
            |wish: &'a Wish<T>| Some(WantedSetting { setting: setting(&wish.value)?, why: &wish.reason });
        self.0.extend(wish.as_ref().and_then(wanted));
    }
}

/// Where a cgroup's knobs are.
struct Places<'a> {
    facts: &'a CgroupFacts,
    /// A controller that is missing will be given on by us.
    is_owned: bool,
    targets: Vec<Arc<Target>>,
}

impl Places<'_> {
    /// Where a knob is or will be.
    fn target(&mut self, knob: Knob) -> Option<Arc<Target>> {
        let place = place_of(self.facts, knob).or_else(|| self.to_come(knob))?;
        Some(self.shared(place))
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
    fn shared(&mut self, place: CgroupRef) -> Arc<Target> {
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
    use evenkeel_host::hierarchy::CgroupMode;
    use evenkeel_host::snapshot::HostReader;
    use evenkeel_model::units::{CpuShares, CpuWeight};

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

    fn written(mode: CgroupMode, source: SourceKind, wishes: &Wishes) -> Vec<String> {
        let kernel = FakeKernel::new(mode);
        kernel.with(|state| state.add_cgroup("/c"));
        let facts = kernel.cgroup("/c").unwrap();
        let workload = Workload { source, ..workload("web") };
        let all = knobs(&settings(&ON, &workload, wishes, false), &facts, false);
        all.iter().map(|knob| format!("{} {}", knob.knob(), knob.wanted)).collect()
    }

    #[test]
    fn each_version_has_its_files() {
        assert_eq!(
            written(CgroupMode::V2, SourceKind::Manifests, &everything()),
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
            written(CgroupMode::V1, SourceKind::Systemd, &everything()),
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
        let of_runtime = written(CgroupMode::V2, SourceKind::Cri, &everything());
        assert_eq!(written(CgroupMode::V2, SourceKind::Names, &everything()), of_runtime);
        assert_eq!(
            of_runtime,
            ["cpu.weight 59", "memory.low 8192", "memory.high 12288", "memory.oom.group 1"]
        );
        let unlimited = Wishes {
            cpu_quota: wish(CpuQuota { quota_usec: Limit::Max, period_usec: 100_000 }),
            memory_max: wish(Limit::Max),
            ..Wishes::default()
        };
        assert_eq!(written(CgroupMode::V1, SourceKind::Manifests, &unlimited), [""; 0]);
    }
}
