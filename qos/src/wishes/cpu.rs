//! Shares, weight, idle, quota and burst.

use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{CpuShares, CpuWeight, MilliCpu};
use evenkeel_model::workload::{ContainerKind, Requested};

use super::OtherDecisions;
use crate::container::{Ask, Subject};
use crate::cpu::{CpuQuota, shares_from_milli};
use crate::own::leaf_weight;
use crate::plan::{PlanConfig, Wish};
use crate::rules::cpu_request_of;
use crate::why::{Burst, Idle, Origin, Quota, Shares, Weight, Why};

/// The CPU request that shares follow from, and where it comes from. `None` where it is not known.
const fn cpu_request(ask: &Ask, subject: &Subject<'_>) -> Option<(MilliCpu, Origin)> {
    match (subject.requested, ask.resources.cpu_request) {
        (Requested::Stated(r), Some(milli)) if r.cpu_request.is_none() => Some((milli, Origin::Limit)),
        (Requested::Stated(_), Some(milli)) => Some((milli, Origin::Request)),
        (Requested::Stated(_), None) => Some(match subject.facts.pod_cpu_request {
            // Kubernetes 1.36: who requests no CPU in a pod that does as a whole has the pod's shares.
            Some(pod) => (pod, Origin::Pod),
            None => (MilliCpu::ZERO, Origin::Nothing),
        }),
        (Requested::Estimated(_), Some(milli)) => Some((milli, Origin::Record)),
        (Requested::Estimated(_), None) | (Requested::Unknown, _) => None,
    }
}

pub(super) fn shares(
    ask: &Ask,
    subject: &Subject<'_>,
    given: &OtherDecisions<'_>,
) -> Option<Wish<CpuShares>> {
    let (cpu_request_milli, origin) = cpu_request(ask, subject)?;
    if let Some(part) = given.part {
        return Some(part.shares_wish());
    }
    let why = Shares { cpu_request_milli, below: None, origin };
    Some(Why::Shares(why).wish(shares_from_milli(cpu_request_milli)))
}

pub(super) fn weight(
    node: &NodeFacts,
    config: &PlanConfig,
    ask: &Ask,
    subject: &Subject<'_>,
    given: &OtherDecisions<'_>,
) -> Option<Wish<CpuWeight>> {
    let (cpu_request_milli, origin) = cpu_request(ask, subject)?;
    if let Some(part) = given.part {
        return Some(part.weight_wish());
    }
    // Every sibling is ours there, so weights need not compare with what a runtime wrote.
    if given.is_owned {
        return cpu_request_of(subject.requested).map(|request| leaf_weight(request, node.cpu_milli));
    }
    let (shares, conversion) = (shares_from_milli(cpu_request_milli), config.cpu_weight);
    let cpu_shares = Some(shares.get());
    let why = Weight { cpu_request_milli, cpu_shares, conversion, below: None, origin };
    Some(Why::Weight(why).wish(conversion.weight_from_shares(shares)))
}

pub(super) fn quota(config: &PlanConfig, subject: &Subject<'_>, ask: &Ask) -> Option<Wish<CpuQuota>> {
    let own = ask.resources.cpu_limit.filter(|l| !l.is_zero());
    let cpu_limit_milli = own.or(subject.facts.pod_cpu_limit);
    // Whoever set a limit nobody told of keeps it.
    if cpu_limit_milli.is_none() && !matches!(subject.requested, Requested::Stated(_)) {
        return None;
    }
    let period_usec = config.cpu_period.usec();
    let value = CpuQuota::from_limit(cpu_limit_milli, period_usec);
    Some(Why::Quota(Quota { period_usec, cpu_limit_milli, cpus: None, of_pod: own.is_none() }).wish(value))
}

/// `cpu.max.burst` on top of `quota`; nothing where there is no quota to save up from.
pub(super) fn burst(config: &PlanConfig, quota: CpuQuota) -> Option<Wish<u64>> {
    let burst_percent = config.cpu_burst?.get();
    let usec = quota.burst(burst_percent)?;
    Some(Why::Burst(Burst { burst_percent, quota_usec: quota.quota_usec.value() }).wish(usec))
}

/// `cpu.idle` by the class by CPU. Only ever wished as true: who stops wishing it puts the original back.
pub(super) fn idle(config: &PlanConfig, subject: &Subject<'_>, ask: &Ask) -> Option<Wish<bool>> {
    let class = ask.classes.cpu.filter(|class| *class == QosClass::BestEffort)?;
    if !config.cpu_idle_best_effort || subject.kind == ContainerKind::Infrastructure {
        return None;
    }
    Some(Why::Idle(Idle { class }).wish(true))
}
