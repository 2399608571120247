//! Changes of a pod or a cluster that may help.

use evenkeel_model::quantity::Quantity;

use crate::cluster::{Cluster, Taint};
use crate::object::{Pod, Toleration};
use crate::plugin::{Rejection, unborne_taint};

/// The pod with so much less of a resource, taken from the container that asks for most.
pub(super) fn with_request_lower(pod: &Pod, resource: &str, by: i64) -> Option<Pod> {
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
pub(super) fn tolerate(
    cluster: &mut Cluster,
    rejections: &[Option<Rejection>],
    pod: &Pod,
) -> Vec<(String, Pod)> {
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
        with.spec.tolerations.push(Toleration { key, operator, value, ..Toleration::default() });
        (format!("tolerate the taint {name}"), with)
    };
    taints.into_iter().map(tolerating).collect()
}

/// Each rule of the pod taken away.
pub(super) fn drop_selectors(pod: &Pod) -> Vec<(String, Pod)> {
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
