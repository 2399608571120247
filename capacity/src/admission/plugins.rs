//! Admission plugins of the API server that are on by default and decide where a pod goes, in its order: the namespace's
//! life, priorities, default tolerations, runtime classes.
//!
//! What a snapshot does not list cannot be missed: a class that is not there is refused where the snapshot lists its kind,
//! and else told as unknown. Not owned: limit ranges and quotas ([`super::limits`], [`super::quota`]).

use super::{PodRefusal, forbidden};
use crate::cluster::Cluster;
use crate::object::{Pod, PriorityClass, RuntimeClass, Toleration};

/// Namespaces that every cluster has.
const OWN_NAMESPACES: [&str; 4] = ["default", "kube-system", "kube-public", "kube-node-lease"];
/// Priorities that every cluster has.
const OWN_PRIORITIES: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];
/// Taints that every pod bears for a while (`defaulttolerationseconds/admission.go`).
const BORNE_FOR_A_WHILE: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
/// For how long, seconds.
const A_WHILE: i64 = 300;

/// `NamespaceLifecycle`: the namespace is there and does not end.
pub(super) fn namespace(cluster: &Cluster, namespace: &str, pod: &Pod) -> Result<(), PodRefusal> {
    let found = cluster.namespace_objects.iter().find(|known| known.metadata.name == namespace);
    match found {
        Some(found) if found.metadata.deletion_timestamp.is_some() => {
            let why = format!(
                "unable to create new content in namespace {namespace} because it is being terminated"
            );
            Err(forbidden(pod, &why))
        }
        None if cluster.lists("Namespace") && !OWN_NAMESPACES.contains(&namespace) => {
            Err(PodRefusal::api(format!("namespaces {namespace:?} not found")))
        }
        _ => Ok(()),
    }
}

/// `Priority`: number and preemption of the class that is named, else of the default one.
pub(super) fn priority(cluster: &Cluster, pod: &mut Pod, notes: &mut Vec<String>) -> Result<(), PodRefusal> {
    let Some((value, policy)) = class_of(cluster, pod, notes)? else { return Ok(()) };
    if let Some(written) = pod.spec.priority.filter(|written| *written != value) {
        let why = format!(
            "the integer value of priority ({written}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return Err(forbidden(pod, &why));
    }
    let written = &pod.spec.preemption_policy;
    if !written.is_empty() && *written != policy {
        let why = format!(
            "the string value of PreemptionPolicy ({written}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(forbidden(pod, &why));
    }
    pod.spec.priority = Some(value);
    pod.spec.preemption_policy = policy;
    Ok(())
}

/// Number and preemption policy of a pod's class; nothing where its classes are not known.
fn class_of(
    cluster: &Cluster,
    pod: &mut Pod,
    notes: &mut Vec<String>,
) -> Result<Option<(i32, String)>, PodRefusal> {
    let of = |class: &PriorityClass| {
        let policy = Some(class.preemption_policy.as_str()).filter(|policy| !policy.is_empty());
        Some((class.value, policy.unwrap_or("PreemptLowerPriority").to_owned()))
    };
    let name = &pod.spec.priority_class_name;
    if name.is_empty() {
        // Of several default classes the lowest one holds.
        let default =
            cluster.priorities.values().filter(|class| class.global_default).min_by_key(|class| class.value);
        return Ok(match default {
            Some(class) => {
                class.metadata.name.clone_into(&mut pod.spec.priority_class_name);
                of(class)
            }
            None if cluster.lists("PriorityClass") => Some((0, "PreemptLowerPriority".to_owned())),
            None => None,
        });
    }
    let known = cluster.symbols.find(name).and_then(|name| cluster.priorities.get(&name));
    if let Some(class) = known {
        return Ok(of(class));
    }
    if let Some((_, value)) = OWN_PRIORITIES.iter().find(|(own, _)| own == name) {
        return Ok(Some((*value, "PreemptLowerPriority".to_owned())));
    }
    if cluster.lists("PriorityClass") {
        return Err(forbidden(pod, &format!("no PriorityClass with name {name} was found")));
    }
    notes.push(format!(
        "priority class {name} is not known: the snapshot lists no priority classes; the pod has the priority {}",
        pod.spec.priority.unwrap_or(0)
    ));
    Ok(None)
}

/// `DefaultTolerationSeconds`: nodes that are not ready or not reachable are borne for five minutes.
pub(super) fn default_tolerations(pod: &mut Pod) {
    for key in BORNE_FOR_A_WHILE {
        let borne = |t: &Toleration| {
            (t.key.is_empty() || t.key == key) && (t.effect.is_empty() || t.effect == "NoExecute")
        };
        if !pod.spec.tolerations.iter().any(borne) {
            pod.spec.tolerations.push(Toleration {
                key: key.to_owned(),
                operator: "Exists".to_owned(),
                effect: "NoExecute".to_owned(),
                toleration_seconds: Some(A_WHILE),
                ..Toleration::default()
            });
        }
    }
}

/// `RuntimeClass`: overhead, node selector and tolerations of the class that is named.
pub(super) fn runtime_class(
    cluster: &Cluster,
    pod: &mut Pod,
    changes: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> Result<(), PodRefusal> {
    let Some(name) = pod.spec.runtime_class_name.clone() else { return Ok(()) };
    let Some(class) = cluster.runtime_classes.get(&name) else {
        if cluster.lists("RuntimeClass") {
            return Err(forbidden(pod, &format!("pod rejected: RuntimeClass {name:?} not found")));
        }
        notes.push(format!(
            "runtime class {name} is not known: the snapshot lists no runtime classes; its overhead, node selector and \
             tolerations are not counted"
        ));
        return Ok(());
    };
    add_overhead(class, pod, changes)?;
    add_scheduling(class, pod, changes)
}

fn add_overhead(class: &RuntimeClass, pod: &mut Pod, changes: &mut Vec<String>) -> Result<(), PodRefusal> {
    let Some(overhead) = &class.overhead else { return Ok(()) };
    let same = |pod: &Pod| {
        let written = &pod.spec.overhead;
        written.len() == overhead.pod_fixed.len()
            && overhead
                .pod_fixed
                .iter()
                .all(|(name, fixed)| written.get(name).is_some_and(|w| w.nano() == fixed.nano()))
    };
    if pod.spec.overhead.is_empty() {
        let name = &class.metadata.name;
        let told =
            overhead.pod_fixed.iter().map(|(resource, amount)| format!("{resource}={}", amount.canonical()));
        let told = told.collect::<Vec<_>>().join(",");
        changes.push(format!("overhead {told} of runtime class {name}"));
        pod.spec.overhead.clone_from(&overhead.pod_fixed);
    } else if !same(pod) {
        return Err(forbidden(
            pod,
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ));
    }
    Ok(())
}

fn add_scheduling(class: &RuntimeClass, pod: &mut Pod, changes: &mut Vec<String>) -> Result<(), PodRefusal> {
    let Some(scheduling) = &class.scheduling else { return Ok(()) };
    let name = &class.metadata.name;
    for (key, value) in &scheduling.node_selector {
        match pod.spec.node_selector.get(key) {
            Some(own) if own != value => {
                let why = format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
                );
                return Err(forbidden(pod, &why));
            }
            Some(_) => {}
            None => {
                changes.push(format!("node selector {key}={value} of runtime class {name}"));
                pod.spec.node_selector.insert(key.clone(), value.clone());
            }
        }
    }
    for toleration in &scheduling.tolerations {
        if !pod.spec.tolerations.contains(toleration) {
            let of = if toleration.key.is_empty() { "every taint" } else { &toleration.key };
            changes.push(format!("toleration of {of} of runtime class {name}"));
            pod.spec.tolerations.push(toleration.clone());
        }
    }
    Ok(())
}

/// `RuntimeClass`, its second look: an overhead comes from a class.
pub(super) fn overhead(cluster: &Cluster, pod: &Pod) -> Result<(), PodRefusal> {
    let class = pod.spec.runtime_class_name.as_ref().and_then(|name| cluster.runtime_classes.get(name));
    let given = class.is_some_and(|class| class.overhead.is_some());
    if pod.spec.overhead.is_empty() || given || !cluster.lists("RuntimeClass") {
        return Ok(());
    }
    let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
    Err(forbidden(pod, why))
}

/// What the simulator cannot know of a pod that is made.
pub(super) fn unknown(pod: &Pod) -> Option<String> {
    let claims: Vec<&str> = pod.spec.resource_claims.iter().map(|claim| claim.name.as_str()).collect();
    (!claims.is_empty()).then(|| {
        format!(
            "pod {} claims devices ({}): claims, device classes and slices (dynamic resource allocation) are not simulated, so \
             that the count is an upper bound",
            pod.metadata.name,
            claims.join(", ")
        )
    })
}
