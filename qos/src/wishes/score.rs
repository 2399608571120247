//! `oom_score_adj`.

use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, OomScoreAdj};
use evenkeel_model::workload::ContainerKind;

use crate::container::{Ask, Subject};
use crate::formula;
use crate::plan::{Reason, Wish};
use crate::rules::RuleSet;
use crate::score::{Score, ScoreBranch, ScoreInput, container_score, infrastructure_score};

pub(super) fn wish(
    node: &NodeFacts,
    rules: RuleSet,
    subject: &Subject<'_>,
    ask: &Ask,
) -> Option<Wish<OomScoreAdj>> {
    if subject.kind == ContainerKind::Infrastructure {
        return Some(infrastructure_wish(rules, subject.is_pause));
    }
    let facts = subject.facts;
    if is_unknown(rules, subject, ask) {
        return None;
    }
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

/// A runtime's record may tell the class, by the pod's cgroup, and not the request that a Burstable score follows from.
fn is_unknown(rules: RuleSet, subject: &Subject<'_>, ask: &Ask) -> bool {
    let by_request = ask.qos_class == Some(QosClass::Burstable);
    let by_priority = rules == RuleSet::Kubelet && subject.facts.node_critical;
    ask.estimated && ask.resources.memory_request.is_none() && by_request && !by_priority
}

fn infrastructure_wish(rules: RuleSet, is_pause: bool) -> Wish<OomScoreAdj> {
    let value = infrastructure_score(rules, is_pause);
    let text = match (rules, is_pause) {
        (RuleSet::Proposal, _) => "infrastructure: must not be killed before what it carries",
        (RuleSet::Kubelet, true) => "pod infrastructure: the score containerd and CRI-O give a sandbox",
        (RuleSet::Kubelet, false) => "daemon the node needs: the score of kubelet and kube-proxy",
    };
    Reason::new(text)
        .with("formula", formula::INFRASTRUCTURE)
        .with("rules", rules)
        .with("pause", is_pause)
        .wish(value)
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
        .with("formula", formula::SCORE)
        .with("rules", rules)
        .with("class", input.class)
        .with("node_critical", input.node_critical)
        .with("memory_request", input.memory_request.get())
        .with("memory_capacity", input.capacity.get())
        .with_known("smallest_regular_request", input.sidecar_of.map(Bytes::get));
    if input.share.is_zero() { reason } else { reason.with("pod_share", input.share.get()) }
}
