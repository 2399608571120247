//! Squeezing CPU: which knobs a step of the starvation rule means on this machine.

use evenkeel_host::hierarchy::Hierarchy;
use evenkeel_host::knob::{Knob, PeriodUsec, QuotaUsec, Setting};
use evenkeel_host::write::{CgroupRef, Target};
use evenkeel_model::units::{CpuShares, CpuWeight, Limit};
use evenkeel_qos::starvation::Squeeze;

use super::worker::{Done, Worker, lacks};
use crate::converge::roster::RosterEntry;
use crate::holds::Holder;

/// The kernel's default period (sched-bwc.rst), microseconds.
const PERIOD_USEC: u64 = 100_000;

/// Kernel file a step is about.
pub(super) fn knob(step: Squeeze, entry: &RosterEntry) -> &'static str {
    let v2 = entry.cpu.as_ref().is_some_and(|at| at.hierarchy == Hierarchy::V2);
    knob_of(step, v2).name()
}

const fn knob_of(step: Squeeze, v2: bool) -> Knob {
    match (step, v2) {
        (Squeeze::Weight, true) => Knob::CpuWeight,
        (Squeeze::Weight, false) => Knob::CpuShares,
        (Squeeze::Idle, _) => Knob::CpuIdle,
        (Squeeze::Quota(_), true) => Knob::CpuMax,
        (Squeeze::Quota(_), false) => Knob::CpuCfsQuota,
    }
}

impl Worker {
    pub(super) fn squeeze(&mut self, step: Squeeze, entry: &RosterEntry, why: &str) -> Done {
        let Some(at) = entry.cpu.clone() else { return lacks("cpu") };
        let v2 = at.hierarchy == Hierarchy::V2;
        let weight = if v2 {
            Setting::CpuWeight(CpuWeight::clamped(1))
        } else {
            Setting::CpuShares(CpuShares::clamped(2))
        };
        match step {
            Squeeze::Weight => self.hold_by(Holder::Starvation, &at, weight, entry, why),
            Squeeze::Idle => {
                // The kernel takes no weight while a cgroup is idle and forgets the one it had: keep it, and keep
                // others from trying.
                let kept = self.hold_by(Holder::Starvation, &at, weight, entry, why);
                if !kept.is_fine() {
                    return kept;
                }
                self.hold_by(Holder::Starvation, &at, Setting::CpuIdle(true), entry, why)
            }
            Squeeze::Quota(milli) => match self.quota(&at, milli, v2) {
                Some(quota) => self.hold_by(Holder::Starvation, &at, quota, entry, why),
                None => Done::failed("its period cannot be read".to_owned()),
            },
        }
    }

    /// A quota of so many thousandths of a core in the period that is in force.
    fn quota(&self, at: &CgroupRef, milli: u64, v2: bool) -> Option<Setting> {
        let read = |knob| self.reader.setting(&Target::Cgroup(at.clone()), knob).ok();
        let period = match read(if v2 { Knob::CpuMax } else { Knob::CpuCfsPeriod })? {
            Setting::CpuMax { period, .. } | Setting::CpuCfsPeriod(period) => period,
            _ => PeriodUsec::new(PERIOD_USEC).ok()?,
        };
        let usec = milli.saturating_mul(period.get()) / 1000;
        let quota = Limit::Value(QuotaUsec::new(usec.max(QuotaUsec::MIN)).ok()?);
        Some(if v2 { Setting::CpuMax { quota, period } } else { Setting::CpuCfsQuota(quota) })
    }

    pub(super) fn unsqueeze(&mut self, step: Squeeze, entry: &RosterEntry) -> Done {
        let Some(at) = entry.cpu.clone() else { return lacks("cpu") };
        let v2 = at.hierarchy == Hierarchy::V2;
        let done = self.let_go(&at, knob_of(step, v2));
        // The weight that was kept beside it, unless squeezing it was a step of its own, which comes next.
        if step == Squeeze::Idle && done.is_fine() {
            return self.let_go(&at, knob_of(Squeeze::Weight, v2));
        }
        done
    }
}
