//! `oom_score_adj`.

use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, OomScoreAdj};
use evenkeel_model::workload::ContainerKind;

use crate::container::{Ask, Subject};
use crate::plan::Wish;
use crate::rules::RuleSet;
use crate::score::{ScoreInput, container_score, infrastructure_score};
use crate::why::{ContainerScore, Infrastructure, Why};

pub(super) fn wish(
    node: &NodeFacts,
    rules: RuleSet,
    subject: &Subject<'_>,
    ask: &Ask,
    by_use: Option<&Wish<OomScoreAdj>>,
) -> Option<Wish<OomScoreAdj>> {
    if subject.kind == ContainerKind::Infrastructure {
        let pause = subject.is_pause;
        let score = infrastructure_score(rules, pause);
        return Some(Why::Infrastructure(Infrastructure { rules, pause }).wish(score));
    }
    let facts = subject.facts;
    if is_unknown(rules, subject, ask) {
        return None;
    }
    if let Some(wish) = by_use.filter(|_| ask.classes.memory == Some(QosClass::Burstable)) {
        return Some(wish.clone());
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
    let score = container_score(rules, &input).value;
    Some(Why::Score(ContainerScore { rules, input }).wish(score))
}

/// A runtime's record may tell the class, by the pod's cgroup, and not the request that a Burstable score follows from.
fn is_unknown(rules: RuleSet, subject: &Subject<'_>, ask: &Ask) -> bool {
    let by_request = ask.qos_class == Some(QosClass::Burstable);
    let by_priority = rules == RuleSet::Kubelet && subject.facts.node_critical;
    ask.estimated && ask.resources.memory_request.is_none() && by_request && !by_priority
}
