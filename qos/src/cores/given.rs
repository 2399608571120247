//! What an allocation means for one container.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::Limit;
use evenkeel_model::workload::{ContainerKind, Requested};

use super::allocate::{Allocation, Assignment, How};
use super::list::CpuList;
use super::pick::topology_text;
use crate::plan::{ContainerPlan, CpuQuota, PlanStatus, Wish};
use crate::rules::defaulted;
use crate::why::{ExclusiveCores, Quota, SharedPool, Why};

/// How many CPUs of its own a container asks for: Guaranteed under the rules in force, with a stated CPU request
/// that equals its limit and is a whole number of cores. `None` for all others.
pub fn wanted(planned: &ContainerPlan, requested: &Requested) -> Option<usize> {
    let Requested::Stated(resources) = requested else { return None };
    let runs_on = matches!(planned.kind, ContainerKind::Regular | ContainerKind::Sidecar);
    if !runs_on || planned.standing != PlanStatus::Planned || planned.qos_class != Some(QosClass::Guaranteed)
    {
        return None;
    }
    let r = defaulted(*resources);
    let request = r.cpu_request.filter(|request| r.cpu_limit == Some(*request))?.get();
    let is_whole = request > 0 && request % 1000 == 0;
    is_whole.then(|| usize::try_from(request / 1000).ok()).flatten()
}

/// Which processors a container runs on, where some containers have theirs to themselves.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cpus<'a> {
    /// Its own.
    Own(&'a Assignment, &'a Allocation),
    /// Those that nobody has to itself; with the reason why it has none, where it asked for some.
    Shared(&'a Allocation, Option<&'a str>),
}

impl<'a> Cpus<'a> {
    /// Those of the workload with this id.
    pub(crate) fn of(allocation: &'a Allocation, id: &str) -> Self {
        match allocation.exclusive.get(id) {
            Some(assignment) => Self::Own(assignment, allocation),
            None => Self::Shared(allocation, allocation.refused.get(id).map(String::as_str)),
        }
    }

    /// `cpuset.cpus`.
    pub(crate) fn wish(self) -> Wish<CpuList> {
        match self {
            Self::Own(assignment, allocation) => exclusive(assignment, allocation),
            Self::Shared(allocation, refused) => shared(allocation, refused),
        }
    }

    /// The quota: none with processors of its own, which it would only stall (kubelet's `DisableCPUQuotaWithExclusiveCPUs`).
    pub(crate) fn quota(self, quota: Wish<CpuQuota>) -> Wish<CpuQuota> {
        let Self::Own(Assignment { cpus, .. }, _) = self else { return quota };
        let period_usec = quota.value.period_usec;
        let why = Quota { period_usec, cpu_limit_milli: None, cpus: Some(cpus.clone()), of_pod: false };
        Why::Quota(why).wish(CpuQuota { quota_usec: Limit::Max, period_usec })
    }
}

fn exclusive(assignment: &Assignment, allocation: &Allocation) -> Wish<CpuList> {
    let (cpus, count) = (assignment.cpus.clone(), assignment.cpus.len());
    let why = match &assignment.how {
        How::Kept => ExclusiveCores { count, kept: Some(cpus.clone()), free: None, topology: None },
        How::Chosen { free } => ExclusiveCores {
            count,
            kept: None,
            free: Some(free.iter().map(|c| c.id).collect()),
            topology: Some(topology_text(&allocation.all)),
        },
    };
    Why::ExclusiveCores(Box::new(why)).wish(cpus)
}

fn shared(allocation: &Allocation, refused: Option<&str>) -> Wish<CpuList> {
    let online: CpuList = allocation.all.iter().map(|c| c.id).collect();
    let taken = online.without(&allocation.shared);
    Why::SharedPool(Box::new(SharedPool { online, taken, refused: refused.map(Into::into) }))
        .wish(allocation.shared.clone())
}
