//! Owns the answer for one pod, existing or not: its containers, what is recommended to each, the resources that follow
//! from it under the policy in force, and what they make of the pod's class.

use evenkeel_model::name::ResourceName;
use evenkeel_model::pod::{Container, Pod, ReadError, check_pod_text, read_pod};
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::Requirements;
use evenkeel_proto::convert::command_hash;
use evenkeel_proto::v1;
use evenkeel_qos::pod::qos_class;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::policy::{InitialResources, LimitsMode, UpdateMode};
use evenkeel_store::key::Image;
use serde_json::{Map, Value};

use super::advice::{AdviceSubject, index};
use super::rules::Chosen;
use super::{Desk, Now, startup, whole};
use crate::policy::{Governing, Set};

/// The advice for one container of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerAdvice {
    /// Its name.
    pub name: String,
    /// What it should have: what it asked for, with what is to be changed in its place.
    pub resources: Requirements,
    /// The recommendations behind them, CPU first.
    pub recommendations: Vec<v1::Recommendation>,
    /// CPU request while it starts, thousandths of a core, above that of its resources.
    pub startup: Option<u64>,
}

/// The advice for a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodAdvice {
    /// Its containers that count for the scheduler.
    pub containers: Vec<ContainerAdvice>,
    /// The policy that governs it, `namespace/name`.
    pub policy: Option<String>,
    /// What that policy does with recommendations.
    pub mode: Option<UpdateMode>,
    /// Policies that select it and are overruled.
    pub conflicts: Vec<String>,
    /// Class as it is.
    pub qos_before: QosClass,
    /// Class with the resources above.
    pub qos_after: QosClass,
    /// For how long at most containers request what they do while they start, seconds.
    pub startup_seconds: u64,
    /// The panic switch is on, the namespace is frozen, or it is not known yet what it allows: nothing is to be changed.
    pub panic: bool,
    /// The answers are those of the run before: history is still being read back.
    pub loading: bool,
    /// A fresh answer would have come too late: these were kept, and say their age.
    pub cached: bool,
}

impl PodAdvice {
    /// Of these containers, under the policy that governs the pod, among all that select it.
    pub(super) fn under(
        policies: &Set,
        governing: Option<Governing<'_>>,
        selecting: &[usize],
        pod: &Pod,
        containers: Vec<ContainerAdvice>,
    ) -> Self {
        let name = |at: &usize| policies.all().get(*at).map(|d| d.policy.key());
        Self {
            policy: governing.map(|g| g.policy.key()),
            mode: governing.map(|g| g.policy.mode),
            conflicts: selecting.iter().skip(1).filter_map(name).collect(),
            qos_before: qos_class(pod),
            qos_after: qos_class(&with(pod, &containers)),
            startup_seconds: governing.and_then(|g| g.policy.startup).map_or(0, |boost| boost.seconds),
            containers,
            panic: false,
            loading: false,
            cached: false,
        }
    }

    /// Whether a running pod may be given the resources in place: never when its class would change.
    pub fn in_place(&self) -> bool {
        self.qos_before == self.qos_after && !self.panic
    }
}

/// Reads one pod from YAML or JSON. A JSON object with a `spec` but without a kind is taken as a pod, and one that is yet
/// to be created needs no name.
///
/// # Errors
/// [`ReadError`] naming document, field and line.
pub fn read(text: &str) -> Result<Pod, ReadError> {
    check_pod_text(text, "request")?;
    let completed = serde_json::from_str::<Value>(text).ok().and_then(completed);
    read_pod(completed.as_deref().unwrap_or(text), "request")
}

/// The object with what the API server would fill in; nothing where nothing is missing.
fn completed(mut value: Value) -> Option<String> {
    const UNNAMED: &str = "unnamed";
    let object = value.as_object_mut()?;
    if object.get("kind").is_some_and(|kind| kind != "Pod") || !object.contains_key("spec") {
        return None;
    }
    object.insert("kind".to_owned(), "Pod".into());
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new())).as_object_mut()?;
    if metadata.get("name").is_none_or(Value::is_null) {
        let generated = metadata.get("generateName").and_then(Value::as_str).unwrap_or(UNNAMED);
        let name = generated.trim_end_matches(['-', '.']).to_owned();
        metadata.insert("name".to_owned(), name.into());
    }
    Some(value.to_string())
}

/// Recommends for every container that counts for the scheduler; under each of `rules`, or else the rule in force.
pub fn advise_pod(desk: &Desk<'_>, pod: &Pod, rules: &[Chosen]) -> PodAdvice {
    let labels = pod.metadata.labels.iter().map(|(k, v)| (k.as_str(), v.as_str()));
    let (governing, selecting) = desk.policies.governing(None, &pod.metadata.namespace, labels);
    let panic = desk.frozen;
    let advise = |container: &Container| {
        let (asked, now) = asked(pod, container);
        let one = |rule: Option<&Chosen>| desk.recommend(&asked, &now, governing, rule);
        let recommendations: Vec<_> = match rules {
            [] => one(None).into(),
            rules => rules.iter().flat_map(|rule| one(Some(rule))).collect(),
        };
        // The first two are those of the first rule.
        let in_force = recommendations.get(..2).unwrap_or_default();
        let resources =
            if panic { container.resources.clone() } else { resources(pod, container, governing, in_force) };
        ContainerAdvice { name: container.name.clone(), resources, recommendations, startup: None }
    };
    let mut containers: Vec<ContainerAdvice> = pod.counted_containers().map(advise).collect();
    if !panic {
        whole::fit(&desk.advisor.limits, pod, &mut containers);
        let largest = desk.largest[index(Resource::Cpu)];
        startup::boost(&desk.advisor.limits, pod, governing, largest, &mut containers);
    }
    PodAdvice { panic, ..PodAdvice::under(desk.policies, governing, &selecting, pod, containers) }
}

/// Whose past a container has, and what it asks for.
pub(super) fn asked(pod: &Pod, container: &Container) -> (AdviceSubject, Now) {
    let asked = container.cpu_and_memory();
    let now = Now {
        requests: [asked.cpu_request.map(|m| m.get()), asked.memory_request.map(|b| b.get())],
        limits: [asked.cpu_limit.map(|m| m.get()), asked.memory_limit.map(|b| b.get())],
        replicas: 0,
    };
    let whose = AdviceSubject {
        cluster: None,
        namespace: pod.metadata.namespace.clone(),
        workload: workload_of(pod),
        container: container.name.clone(),
        image: container.image.as_deref().and_then(Image::parse),
        command: command_hash(&container.command, &container.args),
    };
    (whose, now)
}

/// What a container should have.
pub(super) fn resources(
    pod: &Pod,
    container: &Container,
    governing: Option<Governing<'_>>,
    recommendations: &[v1::Recommendation],
) -> Requirements {
    let mut resources = container.resources.clone();
    let policy = governing.map(|g| g.policy);
    let limits = policy.map_or(LimitsMode::default(), |p| p.limits);
    for (resource, r) in Resource::ALL.into_iter().zip(recommendations) {
        let name = name_of(resource);
        let given = resources.requests.get(&name).or(resources.limits.get(&name)).is_some();
        let sets = policy.is_none_or(|p| match (p.mode, p.initial) {
            (UpdateMode::Off, _) => false,
            // A pod that is on a node is past its beginning.
            (UpdateMode::Initial, _) if pod.node_name.is_some() => false,
            (UpdateMode::Auto, _) if pod.node_name.is_some() => true,
            (_, InitialResources::Always) => true,
            (_, InitialResources::IfNotSet) => !given,
            (_, InitialResources::Never) => false,
        });
        let Some(request) = r.request.filter(|_| sets) else { continue };
        resources.requests.set(name.clone(), quantity(resource, request));
        match (limits, r.limit) {
            (LimitsMode::Keep, _) => {}
            (LimitsMode::None, _) | (_, None) => {
                resources.limits.remove(&name);
            }
            (LimitsMode::Ratio, Some(limit)) => resources.limits.set(name, quantity(resource, limit)),
        }
    }
    resources
}

/// The pod with what its containers should have.
pub(super) fn with(pod: &Pod, advice: &[ContainerAdvice]) -> Pod {
    let mut pod = pod.clone();
    for container in pod.init_containers.iter_mut().chain(&mut pod.containers) {
        if let Some(advised) = advice.iter().find(|a| a.name == container.name) {
            container.resources = advised.resources.clone();
        }
    }
    pod
}

pub(super) const fn name_of(resource: Resource) -> ResourceName {
    match resource {
        Resource::Cpu => ResourceName::CPU,
        Resource::Memory => ResourceName::MEMORY,
    }
}

/// An amount in the resource's own units.
pub(super) fn quantity(resource: Resource, amount: u64) -> Quantity {
    match resource {
        Resource::Cpu => Quantity::from_milli(i64::try_from(amount).unwrap_or(i64::MAX)),
        Resource::Memory => Quantity::from_bytes(amount),
    }
}

/// Name of the controller, as agents report it, or of the pod.
fn workload_of(pod: &Pod) -> String {
    match pod.controller() {
        Some(owner) => format!("{}/{}", owner.kind.to_lowercase(), owner.name),
        None if !matches!(pod.origin.kind.as_str(), "" | "Pod") => {
            format!("{}/{}", pod.origin.kind.to_lowercase(), pod.metadata.name)
        }
        None => pod.metadata.name.clone(),
    }
}
