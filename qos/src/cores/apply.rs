//! What an allocation means for a plan.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::Limit;
use evenkeel_model::workload::{ContainerKind, Requested};

use super::allocate::{Allocation, Assignment, How};
use super::list::CpuList;
use super::pick::topology_text;
use crate::formula;
use crate::plan::{ContainerPlan, CpuQuota, Plan, Reason, Standing, Wish};
use crate::rules::defaulted;

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
    let count = assignment.cpus.len();
    let reason = Reason::new(match assignment.how {
        How::Kept => format!("Guaranteed with whole cores: keeps its {count}"),
        How::Chosen { .. } => format!("Guaranteed with whole cores: {count} of its own"),
    });
    let reason = reason.with("formula", formula::EXCLUSIVE).with("count", count);
    let reason = match &assignment.how {
        How::Kept => reason.with("kept", &assignment.cpus),
        How::Chosen { free } => {
            let free: CpuList = free.iter().map(|c| c.id).collect();
            reason.with("free", free).with("topology", topology_text(&allocation.all))
        }
    };
    let wishes = &mut container.wishes;
    wishes.cpuset_cpus = Some(reason.wish(assignment.cpus.clone()));
    wishes.cpu_burst = None;
    if let Some(quota) = &mut wishes.cpu_quota {
        let period_usec = quota.value.period_usec;
        *quota = Reason::new(format!("no quota: it has cpus {} to itself", assignment.cpus))
            .with("formula", formula::QUOTA)
            .with("period_usec", period_usec)
            .with("cpus", &assignment.cpus)
            .wish(CpuQuota { quota_usec: Limit::Max, period_usec });
    }
}

fn shared(allocation: &Allocation, refused: Option<&String>) -> Wish<CpuList> {
    let all: CpuList = allocation.all.iter().map(|c| c.id).collect();
    let text = match refused {
        Some(why) => format!("shared pool: {why}"),
        None => "shared pool: the cpus nobody has to itself".to_owned(),
    };
    Reason::new(text)
        .with("formula", formula::SHARED_POOL)
        .with("online", &all)
        .with("taken", all.without(&allocation.shared))
        .wish(allocation.shared.clone())
}
