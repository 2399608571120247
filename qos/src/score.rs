//! `oom_score_adj`: who the kernel kills first when memory runs out.
//!
//! Owned here: the scores of both rule sets, in integers, truncating where they truncate. Not owned: classes
//! (given), and making processes have the score.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, OomScoreAdj};
use serde::{Deserialize, Serialize};

use crate::rules::RuleSet;

/// Score of a best-effort container, in both rule sets.
pub const BEST_EFFORT: i16 = 1000;
/// The proposal's score of a guaranteed container and of infrastructure.
pub const PROPOSAL_GUARANTEED: i16 = -999;
/// The proposal's smallest score of a burstable container: one above what a guaranteed one can reach.
pub const PROPOSAL_FLOOR: i64 = 2;
/// Kubernetes' score of a guaranteed pod's containers and of node-critical pods.
pub const KUBELET_GUARANTEED: i16 = -997;
/// Kubernetes' smallest score of a burstable pod's container (1000 - 997).
pub const KUBELET_FLOOR: i64 = 3;
/// Kubernetes' largest score of a burstable pod's container: one below best-effort.
pub const KUBELET_CEILING: i64 = 999;
/// Score of daemons a node cannot live without beside a kubelet (`--oom-score-adj` of kubelet and kube-proxy,
/// `OOMScoreAdjust=-999` in the runtimes' unit files).
pub const DAEMON: i16 = -999;
/// Score that containerd and CRI-O give a sandbox's pause process.
pub const KUBELET_PAUSE: i16 = -998;

/// What the score of one container depends on; fields are named as decisions name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScoreInput {
    /// Its class under the rule set: by memory (proposal) or of its pod (kubelet).
    pub class: QosClass,
    /// Its own memory request; zero when it has none.
    pub memory_request: Bytes,
    /// Memory of the machine, not what is allocatable.
    #[serde(rename = "memory_capacity")]
    pub capacity: Bytes,
    /// Its pod is node-critical (kubelet only).
    pub node_critical: bool,
    /// Its part of a pod-level memory request its containers do not account for (kubelet only).
    #[serde(rename = "pod_share", default, skip_serializing_if = "has_none")]
    pub share: Bytes,
    /// For a sidecar, the smallest memory request of its pod's ordinary containers (kubelet only).
    #[serde(rename = "smallest_regular_request")]
    pub sidecar_of: Option<Bytes>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn has_none(share: &Bytes) -> bool {
    share.is_zero()
}

/// Which branch of the rules gave a score; the reason's text follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScoreBranch {
    /// Guaranteed.
    Guaranteed,
    /// Best-effort.
    BestEffort,
    /// Node-critical pod.
    NodeCritical,
    /// `1000 - trunc(1000 x request / capacity)`.
    Formula,
    /// The formula fell below the floor.
    Floor,
    /// The formula reached best-effort's score and was put one below.
    Ceiling,
    /// A sidecar takes the lower score of the smallest ordinary container.
    Sidecar,
}

/// A score and the branch it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OomScore {
    /// The value to write.
    pub value: OomScoreAdj,
    /// Why.
    pub branch: ScoreBranch,
}

/// Score of a container under `rules`.
pub fn container_score(rules: RuleSet, input: &ScoreInput) -> OomScore {
    match rules {
        RuleSet::Proposal => proposal_score(input),
        RuleSet::Kubelet => kubelet_score(input),
    }
}

/// The proposal: -999, 1000, or `1000 - 10 x (% of memory requested)` and at least 2. There is no ceiling: a
/// request too small to count is as killable as none.
fn proposal_score(input: &ScoreInput) -> OomScore {
    match input.class {
        QosClass::Guaranteed => fixed(PROPOSAL_GUARANTEED, ScoreBranch::Guaranteed),
        QosClass::BestEffort => fixed(BEST_EFFORT, ScoreBranch::BestEffort),
        QosClass::Burstable => {
            let raw = formula(input.memory_request, Bytes::ZERO, input.capacity);
            if raw < PROPOSAL_FLOOR {
                bounded(PROPOSAL_FLOOR, ScoreBranch::Floor)
            } else {
                bounded(raw, ScoreBranch::Formula)
            }
        }
    }
}

/// Kubernetes 1.36, `pkg/kubelet/qos/policy.go`.
fn kubelet_score(input: &ScoreInput) -> OomScore {
    if input.node_critical {
        return fixed(KUBELET_GUARANTEED, ScoreBranch::NodeCritical);
    }
    match input.class {
        QosClass::Guaranteed => return fixed(KUBELET_GUARANTEED, ScoreBranch::Guaranteed),
        QosClass::BestEffort => return fixed(BEST_EFFORT, ScoreBranch::BestEffort),
        QosClass::Burstable => {}
    }
    let own = formula(input.memory_request, input.share, input.capacity);
    let sidecar = input.sidecar_of.map(|smallest| formula(smallest, input.share, input.capacity));
    let (raw, branch) = match sidecar {
        Some(of_smallest) if of_smallest < own => (of_smallest, ScoreBranch::Sidecar),
        _ => (own, ScoreBranch::Formula),
    };
    if raw < KUBELET_FLOOR {
        bounded(KUBELET_FLOOR, ScoreBranch::Floor)
    } else if raw > KUBELET_CEILING {
        bounded(KUBELET_CEILING, ScoreBranch::Ceiling)
    } else {
        bounded(raw, branch)
    }
}

/// Score of a process the node or a pod cannot live without: the pod's pause process or a daemon.
pub fn infrastructure_score(rules: RuleSet, is_pause: bool) -> OomScoreAdj {
    let value = match (rules, is_pause) {
        (RuleSet::Proposal, _) => PROPOSAL_GUARANTEED,
        (RuleSet::Kubelet, true) => KUBELET_PAUSE,
        (RuleSet::Kubelet, false) => DAEMON,
    };
    OomScoreAdj::clamped(i64::from(value))
}

/// `1000 - trunc(1000 x (request + share) / capacity)`; a machine of unknown (zero) memory counts as one that
/// the request fills. May be far below zero for a request larger than the machine.
pub(crate) fn formula(request: Bytes, share: Bytes, capacity: Bytes) -> i64 {
    let asked = (u128::from(request.get()) + u128::from(share.get())) * 1000;
    let permille = asked.checked_div(u128::from(capacity.get())).unwrap_or(1000);
    1000_i64.saturating_sub(i64::try_from(permille).unwrap_or(i64::MAX))
}

fn fixed(value: i16, branch: ScoreBranch) -> OomScore {
    bounded(i64::from(value), branch)
}

fn bounded(value: i64, branch: ScoreBranch) -> OomScore {
    OomScore { value: OomScoreAdj::clamped(value), branch }
}
