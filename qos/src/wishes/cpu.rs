//! Shares, weight, idle, quota and burst.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{CpuShares, CpuWeight, MilliCpu};
use evenkeel_model::workload::{ContainerKind, Requested};

use crate::container::{Ask, Subject};
use crate::cpu::{CpuQuota, shares_from_milli};
use crate::formula;
use crate::plan::{PlanConfig, Reason, Wish};

/// The CPU request that shares follow from, in thousandths, with the words for it. `None` where it is not known.
fn cpu_request(ask: &Ask, subject: &Subject<'_>) -> Option<(MilliCpu, &'static str)> {
    match (subject.requested, ask.resources.cpu_request) {
        (Requested::Stated(r), Some(milli)) if r.cpu_request.is_none() => {
            Some((milli, "cpu limit, in place of a request"))
        }
        (Requested::Stated(_), Some(milli)) => Some((milli, "cpu request")),
        (Requested::Stated(_), None) => Some(match subject.facts.pod_cpu_request {
            // Kubernetes 1.36: who requests no CPU in a pod that does as a whole has the pod's shares.
            Some(pod) => (pod, "cpu request of the pod"),
            None => (MilliCpu::ZERO, "no cpu request: the least"),
        }),
        (Requested::Estimated(_), Some(milli)) => Some((milli, "cpu request, estimated")),
        (Requested::Estimated(_), None) | (Requested::Unknown, _) => None,
    }
}

pub(super) fn shares(ask: &Ask, subject: &Subject<'_>) -> Option<Wish<CpuShares>> {
    let (milli, words) = cpu_request(ask, subject)?;
    let text = format!("{words}: {}m x 1024 / 1000, within 2..262144", milli.get());
    let reason = Reason::new(text).with("formula", formula::SHARES).with("cpu_request_milli", milli.get());
    Some(reason.wish(shares_from_milli(milli)))
}

pub(super) fn weight(config: &PlanConfig, ask: &Ask, subject: &Subject<'_>) -> Option<Wish<CpuWeight>> {
    let (milli, words) = cpu_request(ask, subject)?;
    let shares = shares_from_milli(milli);
    let text = format!("{words}: {shares} shares by the {} conversion", config.cpu_weight);
    let reason = Reason::new(text)
        .with("formula", formula::WEIGHT)
        .with("cpu_request_milli", milli.get())
        .with("cpu_shares", shares)
        .with("conversion", config.cpu_weight);
    Some(reason.wish(config.cpu_weight.weight_from_shares(shares)))
}

pub(super) fn quota(config: &PlanConfig, subject: &Subject<'_>, ask: &Ask) -> Option<Wish<CpuQuota>> {
    let own = ask.resources.cpu_limit.filter(|l| !l.is_zero());
    let limit = own.or(subject.facts.pod_cpu_limit);
    let period = config.cpu_period.usec();
    let value = CpuQuota::from_limit(limit, period);
    let text = match (limit, own) {
        (Some(l), Some(_)) => format!("cpu limit: {}m of each {period} us", l.get()),
        (Some(l), None) => format!("cpu limit of the pod: {}m of each {period} us", l.get()),
        (None, _) if matches!(subject.requested, Requested::Stated(_)) => "no cpu limit".to_owned(),
        // Whoever set a limit nobody told of keeps it.
        (None, _) => return None,
    };
    let reason = Reason::new(text)
        .with("formula", formula::QUOTA)
        .with("period_usec", period)
        .with_known("cpu_limit_milli", limit.map(MilliCpu::get));
    Some(reason.wish(value))
}

/// `cpu.max.burst` on top of `quota`; nothing where there is no quota to save up from.
pub(super) fn burst(config: &PlanConfig, quota: CpuQuota) -> Option<Wish<u64>> {
    let percent = config.cpu_burst?.get();
    let usec = quota.burst(percent)?;
    let text = format!("{percent} % of the quota may be saved up while it is not used");
    let reason = Reason::new(text)
        .with("formula", formula::BURST)
        .with("burst_percent", percent)
        .with_known("quota_usec", quota.quota_usec.value());
    Some(reason.wish(usec))
}

/// `cpu.idle` by the class by CPU. Only ever wished as true: who stops wishing it puts the original back.
pub(super) fn idle(config: &PlanConfig, subject: &Subject<'_>, ask: &Ask) -> Option<Wish<bool>> {
    let is_best_effort = ask.classes.cpu? == QosClass::BestEffort;
    if !config.cpu_idle_best_effort || !is_best_effort || subject.kind == ContainerKind::Infrastructure {
        return None;
    }
    let text = "BestEffort by cpu: runs only when nobody else wants to";
    Some(Reason::new(text).with("formula", formula::IDLE).with("class", QosClass::BestEffort).wish(true))
}
