//! Memory protection, limits, whole-container kills and swap.

use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, Limit};
use evenkeel_model::workload::{ContainerKind, OomKill, Requested};

use crate::container::{Ask, Subject};
use crate::formula;
use crate::memory::{self, Protection};
use crate::plan::{PlanConfig, Reason, Wish};

/// `memory.min` and `memory.low`, of which at most one is wished.
pub(super) fn protection(node: &NodeFacts, ask: &Ask) -> (Option<Wish<Bytes>>, Option<Wish<Bytes>>) {
    let known = ask.qos_class.zip(ask.resources.memory_request);
    let Some((class, request)) = known else { return (None, None) };
    let reason = |text: &str| {
        Reason::new(text)
            .with("formula", formula::PROTECTION)
            .with("class", class)
            .with("memory_request", request.get())
            .with("page", node.page_bytes.get())
    };
    match memory::protection(class, request, node.page_bytes) {
        Some(Protection::Min(min)) => {
            let text = "Guaranteed: the memory request is never reclaimed, in whole pages";
            (Some(reason(text).wish(min)), None)
        }
        Some(Protection::Low(low)) => {
            let text = "Burstable: the memory request is reclaimed last, in whole pages";
            (None, Some(reason(text).wish(low)))
        }
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
    let request = ask.resources.memory_request.unwrap_or(Bytes::ZERO);
    let limit = memory_limit(subject, ask);
    let value = memory::high(request, limit, node.memory_bytes, factor, node.page_bytes)?;
    let upper = if limit.is_some() { "limit" } else { "machine's memory" };
    let text = format!("{} thousandths of the way from request to {upper}", factor.permille());
    let reason = Reason::new(text)
        .with("formula", formula::HIGH)
        .with("memory_request", request.get())
        .with_known("memory_limit", limit.map(Bytes::get))
        .with("memory_capacity", node.memory_bytes.get())
        .with("factor_permille", factor.permille())
        .with("page", node.page_bytes.get());
    Some(reason.wish(value))
}

pub(super) fn max(node: &NodeFacts, subject: &Subject<'_>, ask: &Ask) -> Option<Wish<Limit<Bytes>>> {
    let limit = memory_limit(subject, ask);
    let text = match limit {
        Some(_) if ask.resources.memory_limit.is_some_and(|l| !l.is_zero()) => "memory limit, in whole pages",
        Some(_) => "memory limit of the pod, in whole pages",
        None if matches!(subject.requested, Requested::Stated(_)) => "no memory limit",
        // Whoever set a limit nobody told of keeps it.
        None => return None,
    };
    let reason = Reason::new(text)
        .with("formula", formula::LIMIT)
        .with_known("memory_limit", limit.map(Bytes::get))
        .with("page", node.page_bytes.get());
    Some(reason.wish(memory::max(limit, node.page_bytes)))
}

pub(super) fn oom_group(config: &PlanConfig, subject: &Subject<'_>) -> Option<Wish<bool>> {
    if subject.kind == ContainerKind::Infrastructure {
        return None;
    }
    let (choice, who) = match (subject.oom_kill, config.oom_kill) {
        (Some(choice), _) => (choice, "asked for by its pod"),
        (None, Some(choice)) => (choice, "the node's default"),
        (None, None) => return None,
    };
    let text = match choice {
        OomKill::Container => format!("an OOM kill takes the whole container: {who}"),
        OomKill::Process => format!("an OOM kill takes one process: {who}"),
    };
    let word = match choice {
        OomKill::Container => "container",
        OomKill::Process => "process",
    };
    let reason = Reason::new(text).with("formula", formula::OOM_GROUP).with("oom_kill", word);
    Some(reason.wish(choice == OomKill::Container))
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
    let class = ask.qos_class?;
    let request = ask.resources.memory_request.unwrap_or(Bytes::ZERO);
    let limit = ask.resources.memory_limit;
    let value =
        memory::swap(class, request, limit, node.memory_bytes, node.swap_total_bytes, node.page_bytes);
    let text = if value.is_zero() {
        format!("{class}: no swap, so that its memory is memory")
    } else {
        format!("Burstable: swap x {} / {}, in whole pages", request.get(), node.memory_bytes.get())
    };
    let reason = Reason::new(text)
        .with("formula", formula::SWAP)
        .with("class", class)
        .with("memory_request", request.get())
        .with_known("memory_limit", limit.map(Bytes::get))
        .with("memory_capacity", node.memory_bytes.get())
        .with("swap_total", node.swap_total_bytes.get())
        .with("page", node.page_bytes.get());
    Some(reason.wish(value))
}
