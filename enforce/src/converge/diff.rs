//! From what is desired and what was observed to writes: a pure function.
//!
//! Owned here: the order in which the kernel takes the writes to one cgroup. Not owned: reading, whose knob it is
//! ([`super::knob`]), writing, the order among the cgroups of an owned subtree ([`evenkeel_qos::own::steps`]).

use std::sync::Arc;

use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::write::{Target, Write};
use evenkeel_model::units::Limit;

/// One knob of a cgroup: what it should hold, and what it was seen to hold.
#[derive(Debug, Clone)]
pub(crate) struct ObservedKnob {
    /// Where it is.
    pub(crate) target: Arc<Target>,
    /// What it should hold.
    pub(crate) desired: Setting,
    /// What the kernel makes of that: it may round.
    pub(crate) accepted: Setting,
    /// What it holds; `None` where that could not be read.
    pub(crate) observed: Option<Setting>,
    /// It is written where it differs: nobody else keeps rewriting it, and nothing temporary holds it.
    pub(crate) is_ours: bool,
}

/// The writes that take the knobs of one cgroup from what they hold to what they should, in the order in which the kernel
/// takes them. Nothing for those that hold it, and for those that are somebody else's.
pub(crate) fn diff(knobs: &[ObservedKnob]) -> Vec<Write> {
    let find = |knob: Knob| knobs.iter().find(|k| k.desired.knob() == knob).map(|k| (k.observed, k.desired));
    let first = quota_first(find(Knob::CpuCfsQuota), find(Knob::CpuCfsPeriod));
    let mut differing: Vec<&ObservedKnob> =
        knobs.iter().filter(|k| k.is_ours && k.observed != Some(k.accepted)).collect();
    differing.sort_by_key(|k| rank(k.observed, k.desired, first));
    let write = |k: &ObservedKnob| Write { target: (*k.target).clone(), setting: k.desired };
    differing.into_iter().map(write).collect()
}

/// Whether on v1 the quota is written before the period. The kernel checks each write by itself against ancestors and
/// children (`__cfs_schedulable`, kernel/sched/core.c), so that the value in between must not allow more than the
/// larger of the two.
fn quota_first(
    quota: Option<(Option<Setting>, Setting)>,
    period: Option<(Option<Setting>, Setting)>,
) -> bool {
    let (Some((quota_now, quota)), Some((period_now, period))) = (quota, period) else { return true };
    if let Some(Setting::CpuCfsQuota(Limit::Max)) = quota_now {
        return false;
    }
    if let Setting::CpuCfsQuota(Limit::Max) = quota {
        return true;
    }
    let (Some(Setting::CpuCfsPeriod(now)), Setting::CpuCfsPeriod(wanted)) = (period_now, period) else {
        return true;
    };
    wanted <= now
}

/// Place in the order of writes to one cgroup.
pub(crate) fn rank(now: Option<Setting>, wanted: Setting, quota_first: bool) -> u8 {
    let shrinks = |was: Option<u64>, will: u64| was.is_none_or(|was| will < was);
    match wanted {
        // An idle cgroup takes no weight.
        Setting::CpuIdle(on) => {
            if on {
                9
            } else {
                0
            }
        }
        // A burst is never above the quota (sched-bwc.rst): down before it, up after it.
        Setting::CpuMaxBurst(burst) | Setting::CpuCfsBurst(burst) => {
            let was = match now {
                Some(Setting::CpuMaxBurst(was) | Setting::CpuCfsBurst(was)) => Some(was.get()),
                _ => None,
            };
            if shrinks(was, burst.get()) { 1 } else { 4 }
        }
        Setting::CpuCfsQuota(_) => {
            if quota_first {
                2
            } else {
                3
            }
        }
        Setting::CpuCfsPeriod(_) => {
            if quota_first {
                3
            } else {
                2
            }
        }
        Setting::CpuMax { .. } => 2,
        // Memory with swap is never below memory alone (memcg v1, memory.rst): up before it, down after it.
        Setting::MemorySwLimit(limit) => {
            let was = match now {
                Some(Setting::MemorySwLimit(Limit::Value(was))) => Some(was.get()),
                _ => None,
            };
            match limit {
                Limit::Value(will) if shrinks(was, will.get()) => 7,
                Limit::Value(_) | Limit::Max => 5,
            }
        }
        Setting::MemoryLimit(_) => 6,
        // Controllers are taken away when nothing needs them any more.
        Setting::SubtreeControl { on, .. } => {
            if on {
                0
            } else {
                10
            }
        }
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_host::hierarchy::Hierarchy;
    use evenkeel_host::knob::{BurstUsec, PeriodUsec, QuotaUsec};
    use evenkeel_host::write::CgroupRef;
    use evenkeel_model::units::{Bytes, CpuWeight};
    use proptest::prelude::*;

    fn seen(desired: Setting, observed: Option<Setting>) -> ObservedKnob {
        let at = CgroupRef { hierarchy: Hierarchy::V2, path: "/web".into(), inode: 7 };
        ObservedKnob {
            target: Arc::new(Target::Cgroup(at)),
            desired,
            accepted: desired,
            observed,
            is_ours: true,
        }
    }

    fn text(writes: &[Write]) -> Vec<String> {
        writes.iter().map(|write| format!("{} {}", write.knob(), write.setting)).collect()
    }

    fn weight(n: i64) -> Setting {
        Setting::CpuWeight(CpuWeight::clamped(n))
    }

    #[test]
    fn only_what_differs_and_is_ours_is_written() {
        let rounded = ObservedKnob { accepted: weight(101), ..seen(weight(100), Some(weight(101))) };
        let contended =
            ObservedKnob { is_ours: false, ..seen(Setting::CpuIdle(true), Some(Setting::CpuIdle(false))) };
        let unread = seen(Setting::MemoryOomGroup(true), None);
        let right = seen(
            Setting::MemoryLow(Limit::Value(Bytes::new(4096))),
            Some(Setting::MemoryLow(Limit::Value(Bytes::new(4096)))),
        );
        assert_eq!(text(&diff(&[rounded, contended, unread, right])), ["memory.oom.group 1"]);
    }

    #[test]
    fn the_period_goes_first_where_the_quota_would_be_too_much_for_the_old_one() {
        let (quota, period) = (
            |usec| Setting::CpuCfsQuota(Limit::Value(QuotaUsec::new(usec).unwrap())),
            |usec| Setting::CpuCfsPeriod(PeriodUsec::new(usec).unwrap()),
        );
        let order = |from: (u64, u64), to: (u64, u64)| {
            let knobs = [seen(quota(to.0), Some(quota(from.0))), seen(period(to.1), Some(period(from.1)))];
            text(&diff(&knobs))
        };
        assert_eq!(
            order((80_000, 50_000), (50_000, 100_000)),
            ["cpu.cfs_period_us 100000", "cpu.cfs_quota_us 50000"]
        );
        assert_eq!(
            order((20_000, 200_000), (50_000, 100_000)),
            ["cpu.cfs_quota_us 50000", "cpu.cfs_period_us 100000"]
        );
    }

    #[test]
    fn a_burst_shrinks_before_its_quota_and_memory_with_swap_grows_before_memory() {
        let burst = |usec| Setting::CpuMaxBurst(BurstUsec::new(usec).unwrap());
        let max = Setting::CpuMax {
            quota: Limit::Value(QuotaUsec::new(50_000).unwrap()),
            period: PeriodUsec::new(100_000).unwrap(),
        };
        let order = |from| text(&diff(&[seen(max, None), seen(burst(20_000), Some(burst(from)))]));
        assert_eq!(order(40_000), ["cpu.max.burst 20000", "cpu.max 50000 100000"]);
        assert_eq!(order(0), ["cpu.max 50000 100000", "cpu.max.burst 20000"]);
        let bytes = |n| Limit::Value(Bytes::new(n));
        let order = |from| {
            let memory = seen(Setting::MemoryLimit(bytes(8192)), Some(Setting::MemoryLimit(bytes(from))));
            let swap =
                seen(Setting::MemorySwLimit(bytes(16_384)), Some(Setting::MemorySwLimit(bytes(2 * from))));
            text(&diff(&[memory, swap]))
        };
        assert_eq!(order(4096)[0], "memory.memsw.limit_in_bytes 16384");
        assert_eq!(order(32_768)[0], "memory.limit_in_bytes 8192");
    }

    proptest! {
        #[test]
        fn after_the_writes_nothing_differs(values in prop::collection::vec((0_i64..4, prop::option::of(0_i64..4), any::<bool>()), 0..4)) {
            let setting = |at: usize, n: i64| match at {
                0 => weight(n + 1),
                1 => Setting::MemoryLow(Limit::Value(Bytes::new(n.unsigned_abs() * 4096))),
                2 => Setting::MemoryOomGroup(n > 1),
                _ => Setting::CpuIdle(n > 1),
            };
            let mut knobs: Vec<ObservedKnob> = values.iter().enumerate()
                .map(|(at, (to, from, is_ours))| {
                    let from = from.map(|from| setting(at, from));
                    ObservedKnob { is_ours: *is_ours, ..seen(setting(at, *to), from) }
                })
                .collect();
            let writes = diff(&knobs);
            for write in &writes {
                for knob in knobs.iter_mut().filter(|knob| knob.desired.knob() == write.knob()) {
                    prop_assert!(knob.is_ours && knob.observed != Some(write.setting));
                    knob.observed = Some(write.setting);
                }
            }
            prop_assert_eq!(diff(&knobs), Vec::new());
            prop_assert!(knobs.iter().all(|knob| !knob.is_ours || knob.observed == Some(knob.desired)));
        }
    }
}
