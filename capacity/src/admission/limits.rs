//! Limit ranges: defaults of containers, bounds of containers and pods.

use evenkeel_model::pod::effective;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::ResourceSum;

use crate::object::{Container, LimitRange, LimitRangeItem, Pod, Requirements, ResourceList};

/// Fills in requests and limits that are missing.
pub(super) fn fill(ranges: &[&LimitRange], pod: &mut Pod, changes: &mut Vec<String>) {
    for container in pod.spec.init_containers.iter_mut().chain(&mut pod.spec.containers) {
        for range in ranges {
            for item in of_kind(range, "Container") {
                let (limits, requests) = defaults(item);
                fill_one(&mut container.resources.limits, &limits, "limit", &container.name, range, changes);
                fill_one(
                    &mut container.resources.requests,
                    &requests,
                    "request",
                    &container.name,
                    range,
                    changes,
                );
            }
        }
    }
}

/// The API server's own defaults: a request given by nobody is the limit (`pkg/apis/core/v1/defaults.go`); that of the pod
/// as a whole is what its containers ask for, where they ask for it.
pub(super) fn default_requests(pod: &mut Pod) {
    for container in pod.spec.init_containers.iter_mut().chain(&mut pod.spec.containers) {
        let Requirements { requests, limits } = &mut container.resources;
        requests.fill_from(limits);
    }
    let mut asked = aggregate(pod, |container| &container.resources.requests);
    asked.retain(|name, _| matches!(name.as_str(), "cpu" | "memory"));
    if let Some(Requirements { requests, limits }) = &mut pod.spec.resources {
        effective::default_pod_requests(requests, limits, &asked);
    }
}

fn fill_one(
    list: &mut ResourceList,
    defaults: &ResourceList,
    what: &str,
    container: &str,
    range: &LimitRange,
    changes: &mut Vec<String>,
) {
    for (name, value) in defaults {
        if !list.contains_key(name) {
            list.insert(name.clone(), *value);
            let range = &range.metadata.name;
            changes.push(format!(
                "{name} {what} {} of container {container} by limit range {range}",
                value.canonical()
            ));
        }
    }
}

fn of_kind<'a>(range: &'a LimitRange, kind: &'a str) -> impl Iterator<Item = &'a LimitRangeItem> {
    range.spec.limits.iter().filter(move |item| item.kind == kind)
}

/// Default limits and requests of an item, filled up as the API server does when the range is stored.
fn defaults(item: &LimitRangeItem) -> (ResourceList, ResourceList) {
    let or = |list: &ResourceList, other: &ResourceList| {
        let mut list = list.clone();
        list.fill_from(other);
        list
    };
    let limits = or(&item.default_limit, &item.max);
    let requests = or(&or(&item.default_request, &limits), &item.min);
    (limits, requests)
}

/// Checks bounds; the first range that refuses the pod tells all that it finds.
pub(super) fn check(ranges: &[&LimitRange], pod: &Pod) -> Result<(), String> {
    for range in ranges {
        let mut wrong = Vec::new();
        for item in &range.spec.limits {
            match item.kind.as_str() {
                "Container" => {
                    let all = pod.spec.containers.iter().chain(&pod.spec.init_containers);
                    all.for_each(|container| bounds(item, "Container", &container.resources, &mut wrong));
                }
                "Pod" => bounds(item, "Pod", &whole(pod), &mut wrong),
                _ => {}
            }
        }
        match wrong.as_slice() {
            [] => {}
            [one] => return Err(one.clone()),
            all => return Err(format!("[{}]", all.join(", "))),
        }
    }
    Ok(())
}

fn bounds(item: &LimitRangeItem, kind: &str, resources: &Requirements, wrong: &mut Vec<String>) {
    let mut tell = |why: Option<String>| {
        if let Some(why) = why.filter(|why| !wrong.contains(why)) {
            wrong.push(why);
        }
    };
    let amounts = |name: &String| (resources.requests.get(name), resources.limits.get(name));
    for (name, least) in &item.min {
        let (request, limit) = amounts(name);
        let short = |amount: &&Quantity| amount.nano() < least.nano();
        let why = match (request, request.filter(short), limit.filter(short)) {
            (None, ..) => Some(".  No request is specified".to_owned()),
            (_, Some(request), _) => Some(format!(", but request is {}", request.canonical())),
            (_, None, Some(limit)) => Some(format!(", but limit is {}", limit.canonical())),
            _ => None,
        };
        tell(why.map(|why| format!("minimum {name} usage per {kind} is {}{why}", least.canonical())));
    }
    for (name, most) in &item.max {
        let (request, limit) = amounts(name);
        let large = |amount: &&Quantity| amount.nano() > most.nano();
        let why = match (limit, limit.filter(large), request.filter(large)) {
            (None, ..) => Some(".  No limit is specified".to_owned()),
            (_, Some(limit), _) => Some(format!(", but limit is {}", limit.canonical())),
            (_, None, Some(request)) => Some(format!(", but request is {}", request.canonical())),
            _ => None,
        };
        tell(why.map(|why| format!("maximum {name} usage per {kind} is {}{why}", most.canonical())));
    }
    for (name, most) in &item.max_limit_request_ratio {
        let (request, limit) = amounts(name);
        let some = |amount: &&Quantity| !amount.is_zero();
        let why = match (request.filter(some), limit.filter(some)) {
            (None, _) => Some("no request is specified or request is 0".to_owned()),
            (_, None) => Some("no limit is specified or limit is 0".to_owned()),
            (Some(request), Some(limit)) => {
                let ratio = limit.nano() as f64 / request.nano() as f64;
                let large = ratio > most.nano() as f64 / 1e9;
                large.then(|| format!("provided ratio is {ratio:.6}"))
            }
        };
        tell(why.map(|why| {
            format!("{name} max limit to request ratio per {kind} is {}, but {why}", most.canonical())
        }));
    }
}

/// Requests and limits of a pod as a whole, as limit ranges count them: what its containers ask for, or what the pod says.
fn whole(pod: &Pod) -> Requirements {
    let Requirements { mut requests, mut limits } = pod.spec.resources.clone().unwrap_or_default();
    requests.fill_from(&aggregate(pod, |container| &container.resources.requests));
    limits.fill_from(&aggregate(pod, |container| &container.resources.limits));
    Requirements { requests, limits }
}

/// What a pod's containers ask for at its busiest moment: sidecars run beside what comes after them.
pub(super) fn aggregate(pod: &Pod, list: fn(&Container) -> &ResourceList) -> ResourceList {
    effective::busiest_moment(pod.spec.by_kind().map(|(kind, container)| (kind, list(container).clone())))
}

/// A pod of the largest size allowed.
pub(super) fn largest(ranges: &[&LimitRange], namespace: &str) -> Result<Pod, String> {
    let mut most = least_of(ranges, "Pod");
    if most.is_empty() {
        most = least_of(ranges, "Container");
    }
    if most.is_empty() {
        return Err(format!(
            "namespace {namespace} has no limit range with a max for pods or containers, so no pod is the largest; give one with -f"
        ));
    }
    let mut pod = Pod::default();
    "largest".clone_into(&mut pod.metadata.name);
    namespace.clone_into(&mut pod.metadata.namespace);
    let resources = Requirements { requests: most.clone(), limits: most };
    pod.spec.containers.push(Container { name: "largest".to_owned(), resources, ..Container::default() });
    Ok(pod)
}

/// The smallest of all maxima, by resource.
fn least_of(ranges: &[&LimitRange], kind: &str) -> ResourceList {
    let mut least = ResourceList::new();
    for (name, value) in ranges.iter().flat_map(|range| of_kind(range, kind)).flat_map(|item| &item.max) {
        let slot = least.entry(name.clone()).or_insert(*value);
        if slot.nano() > value.nano() {
            *slot = *value;
        }
    }
    least
}
