//! What is asked of the API server before anything is decided: pods as they are now, who made them, and what else acts on them.

use std::collections::{BTreeMap, BTreeSet};

use evenkeel_kubernetes::objects::ApiError;
use evenkeel_kubernetes::{ClusterView, PANIC};
use evenkeel_updater::Workload;
use evenkeel_webhook::serve::STARTING;
use serde_json::Value;

use super::Updater;
use super::facts;
use super::offers::Offers;
use super::wishes::WorkloadTarget;
use crate::gates;

const CORE: &str = "/api/v1";
const APPS: &str = "/apps/v1";

/// Kinds of owners whose template and count of replicas are asked for.
const OWNERS: [(&str, &str, &str); 4] = [
    ("ReplicaSet", APPS, "replicasets"),
    ("StatefulSet", APPS, "statefulsets"),
    ("DaemonSet", APPS, "daemonsets"),
    ("ReplicationController", CORE, "replicationcontrollers"),
];

/// What of a namespace is looked at.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) workloads: Vec<Workload>,
    /// When the webhook last set what a pod asks for.
    pub(super) set_at: Option<u64>,
}

/// What a kind that the cluster need not have has in a namespace.
async fn optional(
    updater: &Updater,
    root: &str,
    namespace: &str,
    plural: &str,
) -> Result<Vec<Value>, ApiError> {
    match updater.api.list_in(root, namespace, plural, None).await {
        Err(ApiError::Absent(_)) => Ok(Vec::new()),
        other => other,
    }
}

/// Whether others change it first: it waits for a gate of ours, or has more CPU while it starts.
fn is_begun_with(pod: &Value) -> bool {
    gates::OURS.is_on(pod) || pod["metadata"]["annotations"][STARTING].is_string()
}

/// The workloads of a namespace that something is recommended to.
///
/// # Errors
/// When part of it cannot be had: without it nothing is decided.
pub(super) async fn namespace(
    updater: &Updater,
    view: &ClusterView,
    namespace: &str,
    wishes: &BTreeMap<String, WorkloadTarget>,
    offers: &Offers,
    now: u64,
) -> Result<Gathered, ApiError> {
    let own = updater.api.object(&format!("{CORE}/namespaces"), &[namespace]).await?;
    let frozen = own["metadata"]["annotations"].get(PANIC).filter(|value| *value != "false");
    let frozen = frozen.map(|_| format!("namespace {namespace} has the annotation {PANIC}"));
    // Of one policy with one label, those pods alone.
    let policies: BTreeSet<String> = wishes.values().map(|wish| wish.policy.key()).collect();
    let only = wishes.values().next().filter(|_| policies.len() == 1);
    let label = only.and_then(|wish| wish.policy.selector.one_label());
    let pods = updater.api.list_in(CORE, namespace, "pods", label).await?;
    let scalers = optional(updater, "/apis/autoscaling/v2", namespace, "horizontalpodautoscalers").await?;
    let others =
        optional(updater, "/apis/autoscaling.k8s.io/v1", namespace, "verticalpodautoscalers").await?;
    let budgets = optional(updater, "/apis/policy/v1", namespace, "poddisruptionbudgets").await?;
    let mut found: BTreeMap<String, Workload> = BTreeMap::new();
    let mut owners: BTreeSet<(String, String, String)> = BTreeSet::new();
    for object in pods.iter().filter(|pod| !is_begun_with(pod)) {
        let Some(mut pod) = facts::pod(object, now) else { continue };
        let Some(workload) = view.workload(namespace, &pod.name, &pod.uid) else { continue };
        let Some(wish) = wishes.get(&workload) else { continue };
        pod.offer = offers.of(namespace, &pod);
        if let Some((kind, name)) = facts::owner(object) {
            owners.insert((workload.clone(), kind, name));
        }
        let of = found.entry(workload.clone()).or_insert_with(|| Workload {
            namespace: namespace.to_owned(),
            policy: wish.policy.key(),
            updates: wish.policy.updates.clone(),
            limits: wish.policy.limits,
            replicas: 0,
            pods: Vec::new(),
            targets: wish.targets.clone(),
            allowed_disruptions: facts::disruptions(&budgets, &object["metadata"]["labels"]),
            scaled_by: facts::scalers(&scalers, &workload),
            updated_by: facts::other_updater(&others, &workload),
            frozen: frozen.clone(),
            name: workload,
        });
        of.pods.push(pod);
    }
    for (workload, kind, name) in owners {
        let Some((_, root, plural)) = OWNERS.iter().find(|(known, ..)| *known == kind) else { continue };
        let root = if *root == CORE { CORE.to_owned() } else { format!("/apis{root}") };
        let owner = match updater.api.object(&format!("{root}/namespaces"), &[namespace, plural, &name]).await
        {
            Err(ApiError::Absent(_)) => continue,
            other => other?,
        };
        let (template, replicas) = facts::template(&owner);
        let Some(of) = found.get_mut(&workload) else { continue };
        of.replicas = of.replicas.saturating_add(replicas.unwrap_or(0));
        let made_by = format!("{kind}/{name}");
        for pod in of.pods.iter_mut().filter(|pod| pod.owner == made_by) {
            pod.asked.clone_from(&template);
        }
    }
    let set_at = pods.iter().filter_map(facts::set_at).max();
    let mut workloads: Vec<Workload> = found.into_values().collect();
    for workload in &mut workloads {
        let there = workload.pods.iter().filter(|pod| !pod.is_ending).count();
        workload.replicas = workload.replicas.max(u32::try_from(there).unwrap_or(u32::MAX));
    }
    Ok(Gathered { workloads, set_at })
}

/// Why it is not proven that a pod made anew is given what is recommended: the webhook's registration is there, and what it calls serves; or a pod
/// of the last hour was given it.
pub(super) async fn admission(
    updater: &Updater,
    webhook: &str,
    set_at: Option<u64>,
    now: u64,
) -> Result<(), String> {
    const HOUR: u64 = 3600;
    if set_at.is_some_and(|at| at.saturating_add(HOUR) > now) {
        return Ok(());
    }
    if webhook.is_empty() {
        return Err("no pod of the last hour was given requests by the webhook, and kubernetes.updater.webhook names none".to_owned());
    }
    let root = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let registration =
        updater.api.object(root, &[webhook]).await.map_err(|error| format!("{webhook}: {error}"))?;
    let hooks = registration["webhooks"].as_array().cloned().unwrap_or_default();
    let service =
        hooks.iter().map(|hook| &hook["clientConfig"]["service"]).find(|service| service.is_object());
    let Some((namespace, name)) =
        service.and_then(|of| Some((of["namespace"].as_str()?, of["name"].as_str()?)))
    else {
        return Err(format!("{webhook} names no service that could be looked at"));
    };
    let label = Some(("kubernetes.io/service-name", name));
    let slices = updater.api.list_in("/apis/discovery.k8s.io/v1", namespace, "endpointslices", label).await;
    let slices = slices.map_err(|error| format!("the endpoints of {namespace}/{name}: {error}"))?;
    let mut endpoints = slices.iter().flat_map(|slice| slice["endpoints"].as_array().into_iter().flatten());
    // Without the condition an endpoint counts as ready (EndpointConditions).
    match endpoints.any(|endpoint| endpoint["conditions"]["ready"] != false) {
        true => Ok(()),
        false => Err(format!("service {namespace}/{name} of {webhook} has no endpoint that serves")),
    }
}
