//! The smallest changes that admit one more.

use std::sync::Arc;

use evenkeel_model::quantity::Quantity;
use serde::Serialize;

use crate::cluster::{Cluster, Taint};
use crate::engine::step::Placer;
use crate::object::{Pod, Toleration};
use crate::plugin::{Rejection, unborne_taint};
use crate::profile::Profiles;
use crate::state::State;

/// How far the effect of a change is counted.
const COUNTED: u64 = 1000;

/// One change of the pod, and what it brings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Help {
    /// What to change, in a sentence.
    pub change: String,
    /// How many more fit then; 1000 stands for as many or more.
    pub admits: u64,
}

/// Tries one change at a time against what is placed now; ends with those tried so far when `going` says that nobody
/// waits any more.
pub(super) fn help(
    cluster: &mut Cluster,
    profiles: &Profiles,
    state: &State,
    pod: &Pod,
    rejections: &[Option<Rejection>],
    going: &mut dyn FnMut(u64) -> bool,
) -> Vec<Help> {
    let mut candidates = lower_requests(cluster, state, pod, rejections);
    candidates.extend(tolerate(cluster, rejections, pod));
    candidates.extend(drop_selectors(pod));
    let mut help: Vec<Help> = candidates
        .into_iter()
        .filter_map(|(change, pod)| {
            let admits = fitting(cluster, profiles, state, &pod, going)?;
            (admits > 0).then_some(Help { change, admits })
        })
        .collect();
    help.sort_by(|a, b| b.admits.cmp(&a.admits).then_with(|| a.change.cmp(&b.change)));
    help
}

fn fitting(
    cluster: &mut Cluster,
    profiles: &Profiles,
    state: &State,
    pod: &Pod,
    going: &mut dyn FnMut(u64) -> bool,
) -> Option<u64> {
    if !going(0) {
        return None;
    }
    let pod = Arc::new(cluster.shape(pod).ok()?);
    let profile = profiles.of(cluster.word(pod.scheduler)).clone();
    let mut state = state.clone();
    let mut placer = Placer::new(cluster, &profile, &mut state, pod);
    match placer.closed(&state) {
        Some(closed) => Some(closed.count.min(COUNTED)),
        None => Some(placer.run_while(&mut state, Some(COUNTED), going).len() as u64),
    }
}

/// For each resource that alone is short somewhere: the most that would fit on such a node.
fn lower_requests(
    cluster: &Cluster,
    state: &State,
    pod: &Pod,
    rejections: &[Option<Rejection>],
) -> Vec<(String, Pod)> {
    let mut best: Vec<(usize, i64, i64)> = Vec::new();
    for (node, rejection) in rejections.iter().enumerate() {
        let Some(Rejection::Resources { pods: false, short }) = rejection else { continue };
        let [short] = short[..] else { continue };
        let free = state.allocatable[short.resource][node] - state.requested[short.resource][node];
        match best.iter_mut().find(|(resource, _, _)| *resource == short.resource) {
            Some((_, most, by)) if free > *most => (*most, *by) = (free, short.by),
            Some(_) => {}
            None => best.push((short.resource, free, short.by)),
        }
    }
    let lowered = best.into_iter().filter(|(_, free, _)| *free > 0).filter_map(|(resource, free, by)| {
        let name = cluster.resources.name(resource, &cluster.symbols).to_owned();
        let pod = with_request_lower(pod, &name, by)?;
        Some((format!("lower the {name} request to {}", amount_text(&name, free)), pod))
    });
    lowered.collect()
}

/// An amount of a resource as people write it.
pub(crate) fn amount_text(resource: &str, amount: i64) -> String {
    match resource {
        "cpu" => Quantity::from_milli(amount).canonical(),
        "memory" | "ephemeral-storage" => {
            Quantity::from_bytes(u64::try_from(amount).unwrap_or(0)).canonical()
        }
        name if name.starts_with("hugepages-") => {
            Quantity::from_bytes(u64::try_from(amount).unwrap_or(0)).canonical()
        }
        _ => Quantity::from_units(amount).canonical(),
    }
}

/// The pod with so much less of a resource, taken from the container that asks for most.
fn with_request_lower(pod: &Pod, resource: &str, by: i64) -> Option<Pod> {
    let mut pod = pod.clone();
    let by = if resource == "cpu" { Quantity::from_milli(by) } else { Quantity::from_units(by) };
    let whole = pod.spec.resources.as_mut().and_then(|whole| whole.requests.get_mut(resource));
    let largest = pod
        .spec
        .containers
        .iter_mut()
        .filter_map(|container| container.resources.requests.get_mut(resource))
        .max_by_key(|request| request.nano());
    let request = whole.or(largest)?;
    let lower = request.saturating_sub(by);
    (lower.nano() >= 0).then(|| *request = lower)?;
    Some(pod)
}

/// Each taint that keeps it from a node.
fn tolerate(cluster: &mut Cluster, rejections: &[Option<Rejection>], pod: &Pod) -> Vec<(String, Pod)> {
    let Ok(compiled) = cluster.shape(pod) else { return Vec::new() };
    let tainted = cluster.nodes.iter().zip(rejections);
    let tainted = tainted.filter(|(_, rejection)| matches!(rejection, Some(Rejection::Taint(_))));
    let mut taints: Vec<Taint> = Vec::new();
    for taint in tainted.filter_map(|(node, _)| unborne_taint(&compiled, node)) {
        if !taints.iter().any(|known| (known.key, known.value) == (taint.key, taint.value)) {
            taints.push(taint);
        }
    }
    let tolerating = |taint: Taint| {
        let (key, value) = (cluster.word(taint.key).to_owned(), cluster.word(taint.value).to_owned());
        let name = if value.is_empty() { key.clone() } else { format!("{key}={value}") };
        let operator = "Equal".to_owned();
        let mut with = pod.clone();
        with.spec.tolerations.push(Toleration { key, operator, value, effect: String::new() });
        (format!("tolerate the taint {name}"), with)
    };
    taints.into_iter().map(tolerating).collect()
}

/// Each rule of the pod taken away.
fn drop_selectors(pod: &Pod) -> Vec<(String, Pod)> {
    let mut candidates = Vec::new();
    for (key, value) in &pod.spec.node_selector {
        let mut with = pod.clone();
        with.spec.node_selector.remove(key);
        candidates.push((format!("drop the node selector {key}={value}"), with));
    }
    let mut without = |change: &str, edit: fn(&mut Pod) -> bool| {
        let mut with = pod.clone();
        if edit(&mut with) {
            candidates.push((change.to_owned(), with));
        }
    };
    without("drop the required node affinity", |pod| {
        pod.spec.affinity.node_affinity.required.take().is_some()
    });
    without("drop the required pod affinity", |pod| {
        !std::mem::take(&mut pod.spec.affinity.pod_affinity.required).is_empty()
    });
    without("drop the required pod anti-affinity", |pod| {
        !std::mem::take(&mut pod.spec.affinity.pod_anti_affinity.required).is_empty()
    });
    without("make the topology spread a preference", |pod| {
        let hard = |c: &&mut crate::object::SpreadConstraint| c.when_unsatisfiable != "ScheduleAnyway";
        let mut any = false;
        pod.spec.topology_spread_constraints.iter_mut().filter(hard).for_each(|constraint| {
            "ScheduleAnyway".clone_into(&mut constraint.when_unsatisfiable);
            any = true;
        });
        any
    });
    without("drop the host ports", |pod| {
        let ports = pod.spec.containers.iter_mut().flat_map(|container| &mut container.ports);
        let mut any = false;
        ports.for_each(|port| {
            any |= port.host_port != 0;
            port.host_port = 0;
        });
        any && !pod.spec.host_network
    });
    candidates
}
