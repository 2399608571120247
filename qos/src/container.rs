//! One container: from what is known of it to its class, and from there to its wishes.
//!
//! Owned here: which rule applies to which container, and what is left alone. The arithmetic is elsewhere.

use evenkeel_model::node::NodeFacts;
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::workload::{
    ContainerKind, ContainerResources, Managed, OomKill, PodFacts, Requested, SourceKind, Workload,
};

use crate::plan::{ContainerPlan, PlanConfig, PlanStatus, Wishes};
use crate::rules::{PodShape, ResourceClasses, RuleSet, cpu_class, defaulted, memory_class, pod_class};
use crate::why::{Class, Why};
use crate::wishes::{self, OtherDecisions};

/// What planning needs to know of one container, wherever it came from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    pub(crate) kind: ContainerKind,
    /// A runtime's sandbox process rather than a daemon; matters for infrastructure only.
    pub(crate) is_pause: bool,
    pub(crate) requested: &'a Requested,
    pub(crate) facts: &'a PodFacts,
    pub(crate) oom_kill: Option<OomKill>,
}

/// What a container asks for and the class that gives it.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    /// Requests and limits, requests defaulted where they were stated.
    pub(crate) resources: ContainerResources,
    pub(crate) estimated: bool,
    pub(crate) qos_class: Option<QosClass>,
    pub(crate) classes: ResourceClasses,
    pub(crate) class_reason: Why,
}

/// Plans one workload, with what other rules decided of it.
pub(crate) fn plan_container(
    node: &NodeFacts,
    config: &PlanConfig,
    w: &Workload,
    given: &OtherDecisions<'_>,
) -> ContainerPlan {
    let subject = Subject {
        kind: w.kind,
        is_pause: matches!(w.source, SourceKind::Cri | SourceKind::Kubernetes),
        requested: &w.requested,
        facts: &w.pod_facts,
        oom_kill: w.oom_kill,
    };
    let ask = ask(config.rules, &subject);
    let standing = standing(&subject, &ask, &w.managed);
    let wishes = match standing {
        PlanStatus::Planned => wishes::for_container(node, config, &subject, &ask, given),
        PlanStatus::Unmanaged(_) | PlanStatus::Unclassified(_) => Wishes::default(),
    };
    ContainerPlan {
        id: w.id.clone(),
        pod: w.pod.clone(),
        container: w.container.clone(),
        kind: w.kind,
        qos_class: ask.qos_class,
        classes: ask.classes,
        class_reason: ask.class_reason,
        estimated: ask.estimated,
        standing,
        wishes,
    }
}

/// Whether the container may be written: it must be managed, and something must be known of it.
fn standing(subject: &Subject<'_>, ask: &Ask, managed: &Managed) -> PlanStatus {
    match managed {
        Managed::No(why) => PlanStatus::Unmanaged(why.clone()),
        Managed::Yes if is_unknown(subject, ask) => {
            PlanStatus::Unclassified("nothing is known of what it requests: sampled, never written".into())
        }
        Managed::Yes => PlanStatus::Planned,
    }
}

fn is_unknown(subject: &Subject<'_>, ask: &Ask) -> bool {
    subject.kind != ContainerKind::Infrastructure && ask.classes == ResourceClasses::default()
}

/// Resolves what a container asks for and classifies it.
pub(crate) fn ask(rules: RuleSet, subject: &Subject<'_>) -> Ask {
    match *subject.requested {
        Requested::Unknown => Ask {
            resources: ContainerResources::default(),
            estimated: false,
            qos_class: None,
            classes: ResourceClasses::default(),
            class_reason: Why::Unclassified(subject.kind),
        },
        Requested::Stated(resources) => {
            let resources = defaulted(resources);
            let memory = class_by(RuleSet::Proposal, &resources, None, None);
            let pod = class_by(RuleSet::Kubelet, &resources, None, subject.facts.qos_class);
            let classes = ResourceClasses { memory, cpu: Some(cpu_class(&resources)) };
            classified(rules, subject, resources, classes, pod, None)
        }
        Requested::Estimated(estimate) => {
            let r = estimate.resources;
            // Not defaulted: the record's limits are no requests.
            let cpu = r.cpu_request.map(|_| cpu_class(&r));
            let record = Some(estimate.memory_class);
            let memory = class_by(RuleSet::Proposal, &r, record, None);
            let pod = class_by(RuleSet::Kubelet, &r, record, subject.facts.qos_class);
            classified(rules, subject, r, ResourceClasses { memory, cpu }, pod, record)
        }
    }
}

/// The class of a container under `rules`: by memory (proposal), or of its pod (kubelet), which is what is known of
/// the pod or else the container taken as a pod of its own. `record` is given for what was inverted from a
/// runtime's record, with the class its score stands for.
pub(crate) fn class_by(
    rules: RuleSet,
    resources: &ContainerResources,
    record: Option<Option<QosClass>>,
    of_pod: Option<QosClass>,
) -> Option<QosClass> {
    let memory = match record {
        None => Some(memory_class(resources)),
        Some(by_score) => by_score.or_else(|| resources.memory_request.map(|_| memory_class(resources))),
    };
    match (rules, record) {
        (RuleSet::Proposal, _) => memory,
        (RuleSet::Kubelet, None) => {
            Some(of_pod.unwrap_or_else(|| pod_class(PodShape::Containers(&[*resources]))))
        }
        (RuleSet::Kubelet, Some(_)) => of_pod.or(memory),
    }
}

/// Puts the class of the rule set in force on what was resolved.
fn classified(
    rules: RuleSet,
    subject: &Subject<'_>,
    resources: ContainerResources,
    own: ResourceClasses,
    pod: Option<QosClass>,
    record: Option<Option<QosClass>>,
) -> Ask {
    let (qos_class, classes) = match rules {
        RuleSet::Proposal => (own.memory, own),
        // Kubernetes knows one class, that of the pod, for every container and resource.
        RuleSet::Kubelet => (pod, ResourceClasses { memory: pod, cpu: pod.or(own.cpu) }),
    };
    let estimated = record.is_some();
    let class_reason = Why::Class(Box::new(Class {
        rules,
        estimated,
        memory_request: resources.memory_request,
        memory_limit: resources.memory_limit,
        cpu_request_milli: resources.cpu_request,
        cpu_limit_milli: resources.cpu_limit,
        record_class: record.flatten(),
        pod_class: subject.facts.qos_class,
    }));
    Ask { resources, estimated, qos_class, classes, class_reason }
}
