//! Requests and limits as the API server takes them (`ValidateContainerResourceRequirements`,
//! `validatePodResourceRequirements`, `validatePodResourceConsistency`).

use std::fmt::Display;

use evenkeel_model::quantity::Quantity;

use super::errors::Faults;
use super::names::{LONGEST_SUBDOMAIN, qualified};
use crate::admission::limits::aggregate;
use crate::object::{Pod, Requirements, ResourceList};

/// Resources a pod may ask for as a whole, as they are told.
const POD_LEVEL: [&str; 3] = ["cpu", "hugepages-", "memory"];
/// Resources without a prefix that quotas may name and containers may not ask for.
const OF_QUOTAS: [&str; 17] = [
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

fn is_hugepages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

/// Without a prefix, or with Kubernetes' own.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Also as `requests.NAME`, as quotas write it, which makes the prefix longer and changes nothing else.
fn is_extended(name: &str) -> bool {
    const BEFORE: &str = "requests.";
    let prefix = name.split_once('/').map_or(0, |(prefix, _)| prefix.len());
    !is_native(name)
        && !name.starts_with(BEFORE)
        && prefix + BEFORE.len() <= LONGEST_SUBDOMAIN
        && qualified(name).is_empty()
}

fn may_exceed(name: &str) -> bool {
    is_native(name) && !is_hugepages(name)
}

fn container_name(name: &str, path: &dyn Display, faults: &mut Faults) {
    for why in qualified(name) {
        faults.invalid(path, name, why);
    }
    let of_containers = matches!(name, "cpu" | "memory" | "ephemeral-storage") || is_hugepages(name);
    if !name.contains('/') {
        if !of_containers && !OF_QUOTAS.contains(&name) {
            faults.invalid(path, name, "must be a standard resource type or fully qualified");
        }
        if !of_containers {
            faults.invalid(path, name, "must be a standard resource for containers");
        }
    } else if !is_native(name) && !is_extended(name) {
        faults.invalid(path, name, "doesn't follow extended resource name standard");
    }
}

fn pod_name(name: &str, path: &dyn Display, faults: &mut Faults) {
    if !matches!(name, "cpu" | "memory") && !is_hugepages(name) {
        faults.unsupported(path, name, &POD_LEVEL);
    }
}

fn amount(name: &str, amount: Quantity, path: &dyn Display, faults: &mut Faults) {
    if amount.nano() < 0 {
        faults.invalid(path, &amount.canonical(), "must be greater than or equal to 0");
    }
    if amount.nano() % 1_000_000_000 != 0 && is_extended(name) {
        faults.invalid(path, &amount.canonical(), "must be an integer");
    }
    if is_hugepages(name) && !divides(name, amount) {
        let text = amount.canonical();
        faults.invalid(path, &text, format_args!("{text} is not positive integer multiple of {name}"));
    }
}

/// Whether an amount of huge pages is whole pages.
fn divides(name: &str, amount: Quantity) -> bool {
    let size = name.strip_prefix("hugepages-").and_then(|size| size.parse::<Quantity>().ok());
    size.is_some_and(|size| size.nano() > 0 && amount.nano() % size.nano() == 0)
}

/// Requests and limits of one container (or, `as_a_whole`, of the pod) at this path.
pub(super) fn requirements(written: &Requirements, path: &str, as_a_whole: bool, faults: &mut Faults) {
    let check = if as_a_whole { pod_name } else { container_name };
    // Paths are written where something is wrong alone: nearly all pods of a large question are right.
    for (name, value) in &written.limits {
        let path = format_args!("{path}.limits[{name}]");
        check(name, &path, faults);
        amount(name, *value, &path, faults);
    }
    for (name, value) in &written.requests {
        let of_name = format_args!("{path}.requests[{name}]");
        check(name, &of_name, faults);
        amount(name, *value, &of_name, faults);
        against_limit(written, name, *value, path, faults);
    }
    let names = || written.limits.keys().chain(written.requests.keys());
    if names().any(|name| is_hugepages(name))
        && !names().any(|name| matches!(name.as_str(), "cpu" | "memory"))
    {
        faults.forbidden(path, "HugePages require cpu or memory");
    }
}

/// A request is at most the limit; of what cannot be shared it is the limit, which must be there.
fn against_limit(written: &Requirements, name: &str, request: Quantity, path: &str, faults: &mut Faults) {
    let Some(limit) = written.limits.get(name) else {
        if !may_exceed(name) {
            faults.required(
                format_args!("{path}.limits"),
                "Limit must be set for non overcommitable resources",
            );
        }
        return;
    };
    let path = format_args!("{path}.requests");
    let mut wrong = |how: &str| {
        let most = limit.canonical();
        faults.invalid(path, &request.canonical(), format_args!("must be {how} {name} limit of {most}"));
    };
    if !may_exceed(name) && request.nano() != limit.nano() {
        wrong("equal to");
    } else if request.nano() > limit.nano() {
        wrong("less than or equal to");
    }
}

/// A pod that asks for something as a whole asks for at least what its containers do, and limits them.
pub(super) fn consistency(pod: &Pod, faults: &mut Faults) {
    let Some(whole) = &pod.spec.resources else { return };
    at_least(&whole.requests, &aggregate(pod, |container| &container.resources.requests), "requests", faults);
    let limits = aggregate(pod, |container| &container.resources.limits);
    let limits = limits.into_iter().filter(|(name, _)| is_hugepages(name)).collect();
    at_least(&whole.limits, &limits, "limits", faults);
    for (index, container) in pod.spec.containers.iter().enumerate() {
        for (name, limit) in &container.resources.limits {
            let Some(most) = whole.limits.get(name).filter(|most| limit.nano() > most.nano()) else {
                continue;
            };
            let path = format!("spec.resources.containers[{index}][{name}].limits");
            let most = most.canonical();
            faults.invalid(
                path,
                &limit.canonical(),
                format_args!("must be less than or equal to pod limits of {most}"),
            );
        }
    }
}

fn at_least(whole: &ResourceList, least: &ResourceList, of: &str, faults: &mut Faults) {
    for (name, least) in least {
        let Some(given) = whole.get(name).filter(|given| given.nano() < least.nano()) else { continue };
        let why =
            format!("must be greater than or equal to aggregate container {of} of {}", least.canonical());
        faults.invalid(format_args!("spec.resources.{of}[{name}]"), &given.canonical(), why);
    }
}
