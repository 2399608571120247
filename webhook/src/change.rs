//! What of the advice is set: requests where nobody set any, or as the policy in force says.

use std::fmt::{self, Write as _};

use evenkeel_model::quantity::Quantity;
use serde_json::json;

use crate::advice::Advice;
use crate::patch::Operation;
use crate::pod::{PodContainer, PodQuestion};
use crate::{Amounts, RESOURCES};

/// Room for the operations of a container, most of which have no limits, and for the words about one resource of it. More is made where it does
/// not suffice.
const OPERATIONS: usize = 4;
const CHANGE_BYTES: usize = 192;

/// One value that is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerChange<'a> {
    /// Name of the container.
    pub container: &'a str,
    /// Where the container is, as in [`PodContainer::place`].
    place: (&'static str, usize),
    /// Place in [`RESOURCES`].
    pub resource: usize,
    /// The request: thousandths of a core, or bytes.
    pub request: u64,
    /// The same as it is written, such as `250m`.
    written: String,
    /// Why, such as `rule initial, tier image:tag 7d, 3d of history`.
    pub why: &'a str,
    /// What request and limit go back to when the container has started, where the request is that of a start.
    pub back: Option<(u64, Option<u64>)>,
    /// Operations that set it, and the limit beside it.
    patch: Vec<Operation>,
}

/// For people: `cpu request 250m for container main (rule initial, ...)`.
impl fmt::Display for ContainerChange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { container, resource, written, why, .. } = self;
        write!(f, "{} request {written} for container {container}", RESOURCES[*resource])?;
        if let Some((back, _)) = self.back {
            write!(f, " while it starts, then {}", text(*resource, back))?;
        }
        write!(f, " ({why})")
    }
}

/// All of them for people.
#[must_use]
pub fn told(changes: &[ContainerChange<'_>]) -> String {
    let mut told = String::with_capacity(CHANGE_BYTES * changes.len());
    for change in changes {
        let between = if told.is_empty() { "" } else { "; " };
        // Writing to text does not fail.
        let _written = write!(told, "{between}{change}");
    }
    told
}

/// What is set of a pod, which is nothing while the panic switch is on.
#[must_use]
pub fn changes<'a>(question: &PodQuestion<'a>, advice: &'a Advice) -> Vec<ContainerChange<'a>> {
    if advice.panic || question.has_pod_resources {
        return Vec::new();
    }
    let all = question.containers.iter().flat_map(|container| [(container, 0), (container, 1)]);
    all.filter_map(|(container, at)| change(container, at, advice)).collect()
}

/// Their operations (RFC 6902), what they stand in being made where it is missing.
#[must_use]
pub fn patch(question: &PodQuestion<'_>, changes: Vec<ContainerChange<'_>>) -> Vec<Operation> {
    let mut patch = Vec::with_capacity(OPERATIONS * question.containers.len());
    // They come in the order of the containers.
    let mut changes = changes.into_iter().peekable();
    for container in &question.containers {
        let is_of = |change: &ContainerChange<'_>| change.place == container.place;
        if !changes.peek().is_some_and(is_of) {
            continue;
        }
        let makes = [("/resources", container.has[0]), ("/resources/requests", container.has[1])];
        for (part, _) in makes.iter().filter(|(_, is_there)| !is_there) {
            patch.push(Operation::make(container.path(part)));
        }
        while let Some(change) = changes.next_if(is_of) {
            patch.extend(change.patch);
        }
    }
    patch
}

fn change<'a>(
    container: &PodContainer<'a>,
    resource: usize,
    advice: &'a Advice,
) -> Option<ContainerChange<'a>> {
    let said = advice.of(container.name)?;
    // Initial Resources fill in what nobody set; a policy decides for itself.
    if !advice.is_by_policy && container.is_set(resource) {
        return None;
    }
    let wanted = said.requests[resource].filter(|_| said.known[resource])?;
    let limit = Limit::of(container, resource, advice.is_by_policy, said.limits);
    let request = limit.stands(container.limits[resource]).map_or(wanted, |limit| wanted.min(limit));
    let boost = said.startup.filter(|_| resource == 0 && advice.startup_seconds > 0);
    let (request, limit, back) = boosted(request, limit, container.limits[resource], boost);
    let is_changed = request > 0 && container.requests[resource] != Some(request);
    if !is_changed && limit == Limit::Stays || request == 0 {
        return None;
    }
    let name = RESOURCES[resource];
    let at = |list: &str| container.path(format_args!("/resources/{list}/{name}"));
    let written = text(resource, request);
    let mut patch = vec![Operation::add(at("requests"), written.as_str())];
    match limit {
        Limit::Stays => {}
        Limit::Goes => patch.push(Operation::remove(at("limits"))),
        Limit::Becomes(limit) => patch.push(Operation::add(at("limits"), text(resource, limit))),
    }
    let (place, why) = (container.place, &said.why[resource]);
    Some(ContainerChange { container: container.name, place, resource, request, written, why, back, patch })
}

/// Request and limit while a container starts, and what they go back to. A limit that follows the request keeps its ratio to it; one that stays
/// bounds it.
fn boosted(
    request: u64,
    limit: Limit,
    present: Option<u64>,
    startup: Option<u64>,
) -> (u64, Limit, Option<(u64, Option<u64>)>) {
    let Some(startup) = startup.filter(|startup| *startup > request && request > 0) else {
        return (request, limit, None);
    };
    match limit {
        Limit::Becomes(limit) => {
            let scaled = (u128::from(limit) * u128::from(startup)).div_ceil(u128::from(request));
            let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
            (startup, Limit::Becomes(scaled), Some((request, Some(limit))))
        }
        other => {
            let startup = other.stands(present).map_or(startup, |limit| startup.min(limit));
            (startup, other, (startup > request).then_some((request, None)))
        }
    }
}

/// What becomes of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    Stays,
    Goes,
    Becomes(u64),
}

impl Limit {
    /// A policy may change limits that somebody set (`limits: none`, `ratio`), and nothing else does.
    fn of(container: &PodContainer<'_>, resource: usize, is_by_policy: bool, said: Amounts) -> Self {
        match (container.own_limits[resource], said[resource]) {
            (Some(_), None) if is_by_policy => Self::Goes,
            (Some(own), Some(limit)) if is_by_policy && limit != own => Self::Becomes(limit),
            _ => Self::Stays,
        }
    }

    /// The limit that will be there.
    const fn stands(self, present: Option<u64>) -> Option<u64> {
        match self {
            Self::Stays => present,
            Self::Goes => None,
            Self::Becomes(limit) => Some(limit),
        }
    }
}

/// The annotation with what CPU goes back to when containers have started, and for how long at most they start; nothing where none does.
#[must_use]
pub fn starting(changes: &[ContainerChange<'_>], seconds: u64) -> Option<String> {
    let mut containers = json!({});
    for change in changes {
        let Some((request, limit)) = change.back else { continue };
        let mut back = json!({ "request": text(change.resource, request) });
        if let Some(limit) = limit {
            back["limit"] = text(change.resource, limit).into();
        }
        containers[change.container] = back;
    }
    let is_any = containers.as_object().is_some_and(|all| !all.is_empty());
    is_any.then(|| json!({ "seconds": seconds, "containers": containers }).to_string())
}

fn text(resource: usize, amount: u64) -> String {
    let quantity = match resource {
        0 => Quantity::from_milli(i64::try_from(amount).unwrap_or(i64::MAX)),
        _ => Quantity::from_bytes(amount),
    };
    quantity.canonical()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;
    use serde_json::Value;

    use super::*;
    use crate::advice::ContainerAdvice;
    use crate::object::Pod;

    const MIB: u64 = 1 << 20;

    fn pod(resources: Value, annotation: &str) -> Value {
        let mut container = json!({"name": "main"});
        if !resources.is_null() {
            container["resources"] = resources;
        }
        json!({
            "metadata": {"annotations": {"kubernetes.io/limit-ranger": annotation}}, "spec": {"containers": [container]},
        })
    }

    fn read(pod: &Value) -> Pod<'_> {
        Pod::deserialize(pod).unwrap()
    }

    fn advice(requests: Amounts, limits: Amounts, is_by_policy: bool) -> Advice {
        let known = requests.map(|request| request.is_some());
        let why = ["known".to_owned(), "known".to_owned()];
        Advice {
            is_by_policy,
            containers: vec![ContainerAdvice {
                name: "main".to_owned(),
                requests,
                limits,
                known,
                why,
                ..ContainerAdvice::default()
            }],
            ..Advice::default()
        }
    }

    #[test]
    fn a_request_is_set_where_it_may_be() {
        let both = [Some(250), Some(128 * MIB)];
        let ranged =
            "LimitRanger plugin set: cpu, memory request for container main; memory limit for container main";
        let defaulted = json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "96Mi"}});
        for (resources, annotation, advice, want) in [
            (Value::Null, "", advice(both, [None; 2], false), vec!["cpu 250m", "memory 128Mi"]),
            (json!({}), "", advice([None, Some(MIB)], [None; 2], false), vec!["memory 1Mi"]),
            // Each resource apart.
            (json!({"requests": {"cpu": "1"}}), "", advice(both, [None; 2], false), vec!["memory 128Mi"]),
            // A limit alone is a request, too.
            (json!({"limits": {"memory": "1Gi"}}), "", advice(both, [None; 2], false), vec!["cpu 250m"]),
            // A default is nobody's wish, and its limit stays.
            (defaulted.clone(), ranged, advice(both, [None; 2], false), vec!["cpu 250m", "memory 96Mi"]),
            (defaulted, "", advice(both, [None; 2], false), vec![]),
            // A policy may go over what was set, and over limits.
            (
                json!({"requests": {"cpu": "1"}}),
                "",
                advice(both, [None; 2], true),
                vec!["cpu 250m", "memory 128Mi"],
            ),
            (
                json!({"limits": {"cpu": "200m"}}),
                "",
                advice([Some(250), None], [Some(400), None], true),
                vec!["cpu 250m"],
            ),
            (json!({"requests": {"cpu": "250m"}}), "", advice([Some(250), None], [None; 2], true), vec![]),
            (Value::Null, "", advice([Some(0), None], [None; 2], false), vec![]),
            (Value::Null, "", Advice { panic: true, ..advice(both, [None; 2], false) }, vec![]),
        ] {
            let pod = pod(resources.clone(), annotation);
            let read = read(&pod);
            let found = changes(&PodQuestion::of("shop", &read).unwrap(), &advice);
            let told: Vec<_> = found
                .iter()
                .map(|c| format!("{} {}", RESOURCES[c.resource], text(c.resource, c.request)))
                .collect();
            assert_eq!(told, want, "{resources} {annotation} {advice:?}");
        }
    }

    #[test]
    fn a_start_has_more_cpu_and_says_what_it_goes_back_to() {
        let mut starts = advice([Some(250), Some(MIB)], [None; 2], true);
        (starts.containers[0].startup, starts.startup_seconds) = (Some(500), 60);
        let mut ratio = advice([Some(250), Some(MIB)], [Some(1000), None], true);
        (ratio.containers[0].startup, ratio.startup_seconds) = (Some(500), 60);
        let back = r#"{"seconds":60,"containers":{"main":{"request":"250m"}}}"#;
        let both = r#"{"seconds":60,"containers":{"main":{"request":"250m","limit":"1"}}}"#;
        let none = json!({});
        for (resources, advice, cpu, limit, want) in [
            (none.clone(), starts.clone(), "500m", None, Some(back)),
            // A limit that stays bounds it.
            (json!({ "limits": { "cpu": "400m" } }), keeps(&starts, 400), "400m", None, Some(back)),
            (json!({ "limits": { "cpu": "250m" } }), keeps(&starts, 250), "250m", None, None),
            // One that follows keeps its ratio.
            (json!({ "limits": { "cpu": "800m" } }), ratio, "500m", Some("2"), Some(both)),
            (none.clone(), Advice { startup_seconds: 0, ..starts.clone() }, "250m", None, None),
        ] {
            let pod = pod(resources.clone(), "");
            let read = read(&pod);
            let question = PodQuestion::of("shop", &read).unwrap();
            let found = changes(&question, &advice);
            let starts = starting(&found, advice.startup_seconds);
            let patch = patch(&question, found);
            let set = |end: &str| {
                let all = patch.iter().rfind(|one| one.path.ends_with(end) && one.op == "add");
                all.map(|one| one.value.as_ref().unwrap().as_str().unwrap().to_owned())
            };
            assert_eq!(set("/requests/cpu").as_deref().unwrap_or("250m"), cpu, "{resources}");
            assert_eq!(set("/limits/cpu").as_deref(), limit, "{resources}");
            assert_eq!(starts.as_deref(), want, "{resources}");
        }
        let pod = pod(none, "");
        let read = read(&pod);
        let text = changes(&PodQuestion::of("shop", &read).unwrap(), &starts)[0].to_string();
        assert_eq!(text, "cpu request 500m for container main while it starts, then 250m (known)");
    }

    /// The same under a policy that keeps a limit.
    fn keeps(advice: &Advice, limit: u64) -> Advice {
        let mut advice = advice.clone();
        advice.containers[0].limits[0] = Some(limit);
        advice
    }

    #[test]
    fn a_patch_makes_what_it_needs() {
        let both = advice([Some(250), Some(128 * MIB)], [None; 2], false);
        for (resources, want) in [
            (Value::Null, vec!["add /resources", "add /resources/requests"]),
            (json!({}), vec!["add /resources/requests"]),
            (json!({"requests": {"x.y/z": "1"}}), vec![]),
        ] {
            let pod = pod(resources, "");
            let read = read(&pod);
            let question = PodQuestion::of("shop", &read).unwrap();
            let found = patch(&question, changes(&question, &both));
            let told = |one: &Operation| format!("{} {}", one.op, one.path.replace("/spec/containers/0", ""));
            let told: Vec<String> = found.iter().map(told).collect();
            assert_eq!(told[..want.len()], want);
            assert_eq!(told[want.len()..], ["add /resources/requests/cpu", "add /resources/requests/memory"]);
        }
        let pod = pod(json!({"limits": {"cpu": "200m"}}), "");
        let read = read(&pod);
        let question = PodQuestion::of("shop", &read).unwrap();
        let without = advice([Some(250), None], [None; 2], true);
        let found = patch(&question, changes(&question, &without));
        assert_eq!(found.last().unwrap().op, "remove");
        let text = changes(&question, &without)[0].to_string();
        assert_eq!(text, "cpu request 250m for container main (known)");
    }
}
