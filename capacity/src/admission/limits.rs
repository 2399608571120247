//! Limit ranges: defaults of containers, bounds of containers and pods.

use evenkeel_model::quantity::Quantity;

use crate::object::{Container, LimitRange, LimitRangeItem, Pod, Requirements, ResourceList};

/// Fills in requests and limits that are missing. A request given by nobody is first the container's own limit.
pub(super) fn fill(ranges: &[&LimitRange], pod: &mut Pod, changes: &mut Vec<String>) {
    for container in pod.spec.init_containers.iter_mut().chain(&mut pod.spec.containers) {
        default_requests(&mut container.resources);
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

fn default_requests(resources: &mut Requirements) {
    for (name, limit) in &resources.limits {
        resources.requests.entry(name.clone()).or_insert(*limit);
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
        for (name, value) in other {
            list.entry(name.clone()).or_insert(*value);
        }
        list
    };
    let limits = or(&item.default_limit, &item.max);
    let requests = or(&or(&item.default_request, &limits), &item.min);
    (limits, requests)
}

/// Checks bounds.
pub(super) fn check(ranges: &[&LimitRange], pod: &Pod) -> Result<(), String> {
    let mut wrong = Vec::new();
    for range in ranges {
        for item in of_kind(range, "Container") {
            let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
            all.for_each(|container| bounds(item, "Container", &container.resources, &mut wrong));
        }
        for item in of_kind(range, "Pod") {
            bounds(item, "Pod", &whole(pod), &mut wrong);
        }
    }
    match wrong.as_slice() {
        [] => Ok(()),
        [one] => Err(one.clone()),
        all => Err(format!("[{}]", all.join(", "))),
    }
}

fn bounds(item: &LimitRangeItem, kind: &str, resources: &Requirements, wrong: &mut Vec<String>) {
    for (name, least) in &item.min {
        let request = resources.requests.get(name);
        let limit = resources.limits.get(name);
        match request {
            None => wrong.push(format!(
                "minimum {name} usage per {kind} is {}.  No request is specified",
                least.canonical()
            )),
            Some(request) if request.nano() < least.nano() => {
                wrong.push(format!(
                    "minimum {name} usage per {kind} is {}, but request is {}",
                    least.canonical(),
                    request.canonical()
                ));
            }
            Some(_) => {}
        }
        if let Some(limit) = limit.filter(|limit| limit.nano() < least.nano()) {
            wrong.push(format!(
                "minimum {name} usage per {kind} is {}, but limit is {}",
                least.canonical(),
                limit.canonical()
            ));
        }
    }
    for (name, most) in &item.max {
        match resources.limits.get(name) {
            None => wrong.push(format!(
                "maximum {name} usage per {kind} is {}.  No limit is specified",
                most.canonical()
            )),
            Some(limit) if limit.nano() > most.nano() => {
                wrong.push(format!(
                    "maximum {name} usage per {kind} is {}, but limit is {}",
                    most.canonical(),
                    limit.canonical()
                ));
            }
            Some(_) => {}
        }
        if let Some(request) = resources.requests.get(name).filter(|request| request.nano() > most.nano()) {
            wrong.push(format!(
                "maximum {name} usage per {kind} is {}, but request is {}",
                most.canonical(),
                request.canonical()
            ));
        }
    }
    for (name, most) in &item.max_limit_request_ratio {
        let known =
            resources.limits.get(name).zip(resources.requests.get(name).filter(|request| !request.is_zero()));
        let ratio = known.map(|(limit, request)| limit.nano() as f64 / request.nano() as f64);
        match ratio {
            None => wrong.push(format!("{name} max limit to request ratio per {kind} is {}, but no request is specified or request is 0", most.canonical())),
            Some(ratio) if ratio > most.nano() as f64 / 1e9 => {
                wrong.push(format!("{name} max limit to request ratio per {kind} is {}, but provided ratio is {ratio:.6}", most.canonical()));
            }
            Some(_) => {}
        }
    }
}

/// Requests and limits of a pod as a whole, as limit ranges count them: the sums, or the largest init container's.
fn whole(pod: &Pod) -> Requirements {
    let of = |list: fn(&Container) -> &ResourceList| {
        let mut sum = ResourceList::new();
        for container in &pod.spec.containers {
            for (name, value) in list(container) {
                let slot = sum.entry(name.clone()).or_insert(Quantity::from_units(0));
                *slot = slot.saturating_add(*value);
            }
        }
        for container in &pod.spec.init_containers {
            for (name, value) in list(container) {
                let slot = sum.entry(name.clone()).or_insert(*value);
                if slot.nano() < value.nano() {
                    *slot = *value;
                }
            }
        }
        sum
    };
    Requirements { requests: of(|c| &c.resources.requests), limits: of(|c| &c.resources.limits) }
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
