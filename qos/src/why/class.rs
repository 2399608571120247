//! Class and scores.

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::{Bytes, MilliCpu};
use evenkeel_model::workload::ContainerResources;
use serde::{Deserialize, Serialize};

use crate::container::class_by;
use crate::rules::RuleSet;
use crate::score::{ScoreBranch, ScoreInput, container_score, infrastructure_score};

/// The class of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// The rule set in force.
    pub rules: RuleSet,
    /// What it asks for was inverted from a runtime's record.
    pub estimated: bool,
    /// Its memory request.
    pub memory_request: Option<Bytes>,
    /// Its memory limit.
    pub memory_limit: Option<Bytes>,
    /// Its CPU request.
    pub cpu_request_milli: Option<MilliCpu>,
    /// Its CPU limit.
    pub cpu_limit_milli: Option<MilliCpu>,
    /// The class that the record's score stands for.
    pub record_class: Option<QosClass>,
    /// The class of its pod, where that is known.
    pub pod_class: Option<QosClass>,
}

impl Class {
    /// The class under the rules in force; `None` where its memory request is not known.
    pub fn class(&self) -> Option<QosClass> {
        let resources = ContainerResources {
            cpu_request: self.cpu_request_milli,
            cpu_limit: self.cpu_limit_milli,
            memory_request: self.memory_request,
            memory_limit: self.memory_limit,
        };
        class_by(self.rules, &resources, self.estimated.then_some(self.record_class), self.pod_class)
    }

    pub(super) fn text(&self) -> String {
        let text = match (self.rules, self.class()) {
            (_, None) => "no class: the memory request is not known".to_owned(),
            (RuleSet::Proposal, Some(c)) => format!("{c} by memory: {}", memory_words(c)),
            (RuleSet::Kubelet, Some(c)) if self.pod_class.is_none() && !self.estimated => {
                format!("{c}: class of the container taken as a pod of its own, from cpu and memory")
            }
            (RuleSet::Kubelet, Some(c)) => format!("{c}: class of the pod, from cpu and memory"),
        };
        if self.estimated { format!("{text} (estimated from the runtime's record)") } else { text }
    }

    pub(crate) fn again(&self) -> String {
        self.class().map_or("none", QosClass::as_str).to_owned()
    }
}

const fn memory_words(class: QosClass) -> &'static str {
    match class {
        QosClass::Guaranteed => "the request equals the limit",
        QosClass::Burstable => "something is requested, and more may be used",
        QosClass::BestEffort => "nothing is requested",
    }
}

/// `oom_score_adj` of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerScore {
    /// The rule set in force.
    pub rules: RuleSet,
    /// What the score depends on.
    #[serde(flatten)]
    pub input: ScoreInput,
}

impl ContainerScore {
    pub(super) fn text(&self) -> String {
        let input = &self.input;
        let score = container_score(self.rules, input);
        let formula = || {
            let added = if input.share.is_zero() {
                input.memory_request.get().to_string()
            } else {
                format!("({} + {})", input.memory_request.get(), input.share.get())
            };
            format!("1000 - trunc(1000 x {added} / {})", input.capacity.get())
        };
        match score.branch {
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
        }
    }

    pub(crate) fn again(&self) -> String {
        container_score(self.rules, &self.input).value.to_string()
    }
}

/// `oom_score_adj` of infrastructure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Infrastructure {
    /// The rule set in force.
    pub rules: RuleSet,
    /// It is the process that holds a pod's namespaces.
    pub pause: bool,
}

impl Infrastructure {
    pub(super) fn text(&self) -> String {
        let text = match (self.rules, self.pause) {
            (RuleSet::Proposal, _) => "infrastructure: must not be killed before what it carries",
            (RuleSet::Kubelet, true) => "pod infrastructure: the score containerd and CRI-O give a sandbox",
            (RuleSet::Kubelet, false) => "daemon the node needs: the score of kubelet and kube-proxy",
        };
        text.to_owned()
    }

    pub(crate) fn again(&self) -> String {
        infrastructure_score(self.rules, self.pause).to_string()
    }
}
