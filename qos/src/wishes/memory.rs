//! Memory protection, limits, whole-container kills and swap.

use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, Limit};
use evenkeel_model::workload::{ContainerKind, OomKill, Requested};

use crate::container::{Ask, Subject};
use crate::memory::{self, Protection};
use crate::plan::{PlanConfig, Wish};
use crate::why::{High, MemoryLimit, MemoryProtection, OomGroup, Swap, Why};

/// `memory.min` and `memory.low`, of which at most one is wished.
pub(super) fn protection(node: &NodeFacts, ask: &Ask) -> (Option<Wish<Bytes>>, Option<Wish<Bytes>>) {
    let known = ask.qos_class.zip(ask.resources.memory_request);
    let Some((class, memory_request)) = known else { return (None, None) };
    let why = MemoryProtection { class, memory_request, page: node.page_bytes };
    match why.made() {
        Some(Protection::Min(min)) => (Some(Why::Protection(why).wish(min)), None),
        Some(Protection::Low(low)) => (None, Some(Why::Protection(why).wish(low))),
        None => (None, None),
    }
}

/// The memory limit that binds: the container's own, else the pod's.
fn memory_limit(subject: &Subject<'_>, ask: &Ask) -> Option<Bytes> {
    ask.resources.memory_limit.filter(|l| !l.is_zero()).or(subject.facts.pod_memory_limit)
}

pub(super) fn high(
    node: &NodeFacts,
    config: &PlanConfig,
    subject: &Subject<'_>,
    ask: &Ask,
) -> Option<Wish<Bytes>> {
    let factor = config.memory_high?;
    if ask.qos_class? == QosClass::Guaranteed {
        return None;
    }
    let why = High {
        memory_request: ask.resources.memory_request.unwrap_or(Bytes::ZERO),
        memory_limit: memory_limit(subject, ask),
        memory_capacity: node.memory_bytes,
        factor_permille: factor.permille(),
        page: node.page_bytes,
    };
    Some(Why::High(why).wish(why.value(factor)?))
}

pub(super) fn max(node: &NodeFacts, subject: &Subject<'_>, ask: &Ask) -> Option<Wish<Limit<Bytes>>> {
    let memory_limit = memory_limit(subject, ask);
    // Whoever set a limit nobody told of keeps it.
    if memory_limit.is_none() && !matches!(subject.requested, Requested::Stated(_)) {
        return None;
    }
    let of_pod = ask.resources.memory_limit.is_none_or(|l| l.is_zero());
    let value = memory::max(memory_limit, node.page_bytes);
    Some(Why::Limit(MemoryLimit { memory_limit, page: node.page_bytes, of_pod }).wish(value))
}

pub(super) fn oom_group(config: &PlanConfig, subject: &Subject<'_>) -> Option<Wish<bool>> {
    if subject.kind == ContainerKind::Infrastructure {
        return None;
    }
    let oom_kill = subject.oom_kill.or(config.oom_kill)?;
    let why = OomGroup { oom_kill, by_pod: subject.oom_kill.is_some() };
    Some(Why::OomGroup(why).wish(oom_kill == OomKill::Container))
}

/// `memory.swap.max` where swap is limited by class; nothing on a node without swap.
pub(super) fn swap(
    node: &NodeFacts,
    config: &PlanConfig,
    subject: &Subject<'_>,
    ask: &Ask,
) -> Option<Wish<Bytes>> {
    if !config.swap_limits || node.swap_total_bytes.is_zero() || subject.kind == ContainerKind::Infrastructure
    {
        return None;
    }
    let why = Swap {
        class: ask.qos_class?,
        memory_request: ask.resources.memory_request.unwrap_or(Bytes::ZERO),
        memory_limit: ask.resources.memory_limit,
        memory_capacity: node.memory_bytes,
        swap_total: node.swap_total_bytes,
        page: node.page_bytes,
    };
    Some(Why::Swap(why).wish(why.value()))
}
