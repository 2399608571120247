//! What an allocation means for a plan.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::Limit;
use evenkeel_model::workload::{ContainerKind, Requested};

use super::allocate::{Allocation, Assignment, How};
use super::list::CpuList;
use super::pick::topology_text;
use crate::plan::{ContainerPlan, CpuQuota, Plan, Standing, Wish};
use crate::rules::defaulted;
use crate::why::{ExclusiveCores, Quota, SharedPool, Why};

/// How many CPUs of its own a container asks for: Guaranteed under the rules in force, with a stated CPU request
/// that equals its limit and is a whole number of cores. `None` for all others.
pub fn wanted(planned: &ContainerPlan, requested: &Requested) -> Option<usize> {
    let Requested::Stated(resources) = requested else { return None };
    let runs_on = matches!(planned.kind, ContainerKind::Regular | ContainerKind::Sidecar);
    if !runs_on || planned.standing != Standing::Planned || planned.qos_class != Some(QosClass::Guaranteed) {
        return None;
    }
    let r = defaulted(*resources);
    let request = r.cpu_request.filter(|request| r.cpu_limit == Some(*request))?.get();
    let is_whole = request > 0 && request % 1000 == 0;
    is_whole.then(|| usize::try_from(request / 1000).ok()).flatten()
}

/// Puts an allocation into a plan: who has CPUs of its own gets them and loses its quota (which would only stall
/// it: kubelet's `DisableCPUQuotaWithExclusiveCPUs`); every other planned container gets the shared pool.
pub fn apply(plan: &mut Plan, allocation: &Allocation) {
    for container in plan.containers.iter_mut().filter(|c| c.standing == Standing::Planned) {
        match allocation.exclusive.get(&container.id) {
            Some(assignment) => exclusive(container, assignment, allocation),
            None => {
                let why = allocation.refused.get(&container.id);
                container.wishes.cpuset_cpus = Some(shared(allocation, why));
            }
        }
    }
}

fn exclusive(container: &mut ContainerPlan, assignment: &Assignment, allocation: &Allocation) {
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
    let wishes = &mut container.wishes;
    wishes.cpu_burst = None;
    if let Some(quota) = &mut wishes.cpu_quota {
        let period_usec = quota.value.period_usec;
        let why = Quota { period_usec, cpu_limit_milli: None, cpus: Some(cpus.clone()), of_pod: false };
        *quota = Why::Quota(why).wish(CpuQuota { quota_usec: Limit::Max, period_usec });
    }
    wishes.cpuset_cpus = Some(Why::ExclusiveCores(Box::new(why)).wish(cpus));
}

fn shared(allocation: &Allocation, refused: Option<&String>) -> Wish<CpuList> {
    let online: CpuList = allocation.all.iter().map(|c| c.id).collect();
    let taken = online.without(&allocation.shared);
    let refused = refused.map(|why| why.as_str().into());
    Why::SharedPool(Box::new(SharedPool { online, taken, refused })).wish(allocation.shared.clone())
}
