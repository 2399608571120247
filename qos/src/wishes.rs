//! The wishes of one classified container, knob by knob.
//!
//! Owned here: which knob follows from which fact, and the reason's text. Not owned: the arithmetic (`score`,
//! `cpu`, `memory`) and the class (`container`).

use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, CpuShares, CpuWeight, Limit, MilliCpu, OomScoreAdj};
use evenkeel_model::workload::{ContainerKind, OomKill, Requested};

use crate::container::{Ask, Subject};
use crate::cpu::{CpuQuota, DEFAULT_PERIOD_USEC, shares_from_milli};
use crate::memory::{self, Protection};
use crate::plan::{PlanConfig, Reason, Wish, Wishes};
use crate::rules::RuleSet;
use crate::score::{Score, ScoreBranch, ScoreInput, container_score, infrastructure_score};

/// All wishes of a container that may be written.
pub(crate) fn for_container(
    node: &NodeFacts,
    config: &PlanConfig,
    subject: &Subject<'_>,
    ask: &Ask,
) -> Wishes {
    let knobs = &config.knobs;
    let (memory_min, memory_low) = if knobs.memory_protection { protection(node, ask) } else { (None, None) };
    Wishes {
        oom_score_adj: knobs.oom_score_adj.then(|| score(node, config.rules, subject, ask)).flatten(),
        cpu_shares: knobs.cpu_shares.then(|| shares(ask, subject)).flatten(),
        cpu_weight: knobs.cpu_shares.then(|| weight(config, ask, subject)).flatten(),
        cpu_quota: knobs.cpu_quota.then(|| quota(subject, ask)).flatten(),
        memory_min,
        memory_low,
        memory_high: memory_high(node, config, subject, ask),
        memory_max: knobs.memory_max.then(|| memory_max(node, subject, ask)).flatten(),
        memory_oom_group: knobs.memory_oom_group.then(|| oom_group(config, subject)).flatten(),
    }
}

fn score(node: &NodeFacts, rules: RuleSet, subject: &Subject<'_>, ask: &Ask) -> Option<Wish<OomScoreAdj>> {
    if subject.kind == ContainerKind::Infrastructure {
        return Some(infrastructure_wish(rules, subject.is_pause));
    }
    let facts = subject.facts;
    // A score read back from a runtime already contains the pod's share and the sidecar rule.
    let by_pod = !ask.estimated;
    let input = ScoreInput {
        class: ask.qos_class?,
        memory_request: ask.resources.memory_request.unwrap_or(Bytes::ZERO),
        capacity: node.memory_bytes,
        node_critical: facts.node_critical,
        share: facts.memory_share_per_container.filter(|_| by_pod).unwrap_or(Bytes::ZERO),
        sidecar_of: facts
            .min_regular_memory_request
            .filter(|_| by_pod && subject.kind == ContainerKind::Sidecar),
    };
    let result = container_score(rules, &input);
    Some(score_reason(rules, &input, result).wish(result.value))
}

fn infrastructure_wish(rules: RuleSet, is_pause: bool) -> Wish<OomScoreAdj> {
    let value = infrastructure_score(rules, is_pause);
    let text = match (rules, is_pause) {
        (RuleSet::Proposal, _) => "infrastructure: must not be killed before what it carries",
        (RuleSet::Kubelet, true) => "pod infrastructure: the score containerd and CRI-O give a sandbox",
        (RuleSet::Kubelet, false) => "daemon the node needs: the score of kubelet and kube-proxy",
    };
    Reason::new(text).with("rules", rules).wish(value)
}

fn score_reason(rules: RuleSet, input: &ScoreInput, score: Score) -> Reason {
    let formula = || {
        let added = if input.share.is_zero() {
            input.memory_request.get().to_string()
        } else {
            format!("({} + {})", input.memory_request.get(), input.share.get())
        };
        format!("1000 - trunc(1000 x {added} / {})", input.capacity.get())
    };
    let text = match score.branch {
        ScoreBranch::Guaranteed => "Guaranteed: killed last".to_owned(),
        ScoreBranch::BestEffort => "BestEffort: killed first".to_owned(),
        ScoreBranch::NodeCritical => "node-critical pod: killed last whatever its class".to_owned(),
        ScoreBranch::Formula => format!("Burstable: {}", formula()),
        ScoreBranch::Floor => format!("Burstable: {} is below {}, the floor", formula(), score.value),
        ScoreBranch::Ceiling => format!("Burstable: {} is best-effort's, so one below", formula()),
        ScoreBranch::Sidecar => format!(
            "Burstable sidecar: the score of the smallest ordinary container, which requests {}",
            input.sidecar_of.unwrap_or(Bytes::ZERO).get()
        ),
    };
    let reason = Reason::new(text)
        .with("rules", rules)
        .with("memory_request", input.memory_request.get())
        .with("memory_capacity", input.capacity.get())
        .with_known("smallest_regular_request", input.sidecar_of.map(Bytes::get));
    if input.share.is_zero() { reason } else { reason.with("pod_share", input.share.get()) }
}

/// The CPU request that shares follow from, in thousandths, with the words for it. `None` where it is not known.
fn cpu_request(ask: &Ask, subject: &Subject<'_>) -> Option<(MilliCpu, &'static str)> {
    match (subject.requested, ask.resources.cpu_request) {
        (Requested::Stated(r), Some(milli)) if r.cpu_request.is_none() => {
            Some((milli, "cpu limit, in place of a request"))
        }
        (Requested::Stated(_), Some(milli)) => Some((milli, "cpu request")),
        (Requested::Stated(_), None) => Some((MilliCpu::ZERO, "no cpu request: the least")),
        (Requested::Estimated(_), Some(milli)) => Some((milli, "cpu request, estimated")),
        (Requested::Estimated(_), None) | (Requested::Unknown, _) => None,
    }
}

fn shares(ask: &Ask, subject: &Subject<'_>) -> Option<Wish<CpuShares>> {
    let (milli, words) = cpu_request(ask, subject)?;
    let text = format!("{words}: {}m x 1024 / 1000, within 2..262144", milli.get());
    Some(Reason::new(text).with("cpu_request_milli", milli.get()).wish(shares_from_milli(milli)))
}

fn weight(config: &PlanConfig, ask: &Ask, subject: &Subject<'_>) -> Option<Wish<CpuWeight>> {
    let (milli, words) = cpu_request(ask, subject)?;
    let shares = shares_from_milli(milli);
    let text = format!("{words}: {shares} shares by the {} conversion", config.cpu_weight);
    let reason = Reason::new(text)
        .with("cpu_request_milli", milli.get())
        .with("cpu_shares", shares)
        .with("conversion", config.cpu_weight);
    Some(reason.wish(config.cpu_weight.weight_from_shares(shares)))
}

fn quota(subject: &Subject<'_>, ask: &Ask) -> Option<Wish<CpuQuota>> {
    let own = ask.resources.cpu_limit.filter(|l| !l.is_zero());
    let limit = own.or(subject.facts.pod_cpu_limit);
    let value = CpuQuota::from_limit(limit, DEFAULT_PERIOD_USEC);
    let text = match (limit, own) {
        (Some(l), Some(_)) => format!("cpu limit: {}m of each {DEFAULT_PERIOD_USEC} us", l.get()),
        (Some(l), None) => format!("cpu limit of the pod: {}m of each {DEFAULT_PERIOD_USEC} us", l.get()),
        (None, _) if matches!(subject.requested, Requested::Stated(_)) => "no cpu limit".to_owned(),
        // Whoever set a limit nobody told of keeps it.
        (None, _) => return None,
    };
    Some(Reason::new(text).with_known("cpu_limit_milli", limit.map(|l| l.get())).wish(value))
}

/// `memory.min` and `memory.low`, of which at most one is wished.
fn protection(node: &NodeFacts, ask: &Ask) -> (Option<Wish<Bytes>>, Option<Wish<Bytes>>) {
    let known = ask.qos_class.zip(ask.resources.memory_request);
    let Some((class, request)) = known else { return (None, None) };
    let reason = |text: &str| {
        Reason::new(text).with("memory_request", request.get()).with("page", node.page_bytes.get())
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

fn memory_high(
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
        .with("memory_request", request.get())
        .with_known("memory_limit", limit.map(Bytes::get))
        .with("memory_capacity", node.memory_bytes.get())
        .with("factor_permille", factor.permille());
    Some(reason.wish(value))
}

fn memory_max(node: &NodeFacts, subject: &Subject<'_>, ask: &Ask) -> Option<Wish<Limit<Bytes>>> {
    let limit = memory_limit(subject, ask);
    let text = match limit {
        Some(_) if ask.resources.memory_limit.is_some_and(|l| !l.is_zero()) => "memory limit, in whole pages",
        Some(_) => "memory limit of the pod, in whole pages",
        None if matches!(subject.requested, Requested::Stated(_)) => "no memory limit",
        // Whoever set a limit nobody told of keeps it.
        None => return None,
    };
    let reason = Reason::new(text).with_known("memory_limit", limit.map(Bytes::get));
    Some(reason.wish(memory::max(limit, node.page_bytes)))
}

fn oom_group(config: &PlanConfig, subject: &Subject<'_>) -> Option<Wish<bool>> {
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
    Some(Reason::new(text).wish(choice == OomKill::Container))
}
