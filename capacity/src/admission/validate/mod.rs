//! What the API server says of a pod that it never takes (`pkg/apis/core/validation/validation.go`), as far as the fields
//! matter to where a pod goes. Fields that no rule of the scheduler reads (images, probes, environment) are not checked, so
//! that a shape can be asked about before it is finished.

mod errors;
mod names;
mod resources;
mod selectors;

use std::collections::BTreeSet;
use std::fmt::Display;

use errors::Faults;

use crate::object::{
    Affinity, Container, Pod, PodAffinity, PodAffinityTerm, PodSpec, SpreadConstraint, Toleration,
};

const PORTS: &str = "must be between 1 and 65535, inclusive";

/// Why the API server would refuse the pod as it is, in its words; nothing where it takes it.
pub(super) fn refusal(pod: &Pod) -> Option<String> {
    let mut faults = Faults::default();
    let (meta, spec) = (&pod.metadata, &pod.spec);
    if !meta.name.is_empty() {
        names::subdomain(&meta.name).iter().for_each(|why| faults.invalid("metadata.name", &meta.name, why));
    }
    selectors::labels(&meta.labels, "metadata.labels", &mut faults);
    if spec.containers.is_empty() {
        faults.required("spec.containers", "");
    }
    containers(spec, &mut faults);
    if let Some(whole) = &spec.resources {
        resources::requirements(whole, "spec.resources", true, &mut faults);
        resources::consistency(pod, &mut faults);
    }
    selectors::labels(&spec.node_selector, "spec.nodeSelector", &mut faults);
    affinity(&spec.affinity, &mut faults);
    gates(spec, &mut faults);
    for (index, constraint) in spec.topology_spread_constraints.iter().enumerate() {
        let path = format!("spec.topologySpreadConstraints[{index}]");
        spread(constraint, &path, &mut faults);
        let same = |other: &SpreadConstraint| {
            (&other.topology_key, &other.when_unsatisfiable)
                == (&constraint.topology_key, &constraint.when_unsatisfiable)
        };
        if spec.topology_spread_constraints[index + 1..].iter().any(same) {
            let pair = format!("{{{}, {}}}", constraint.topology_key, constraint.when_unsatisfiable);
            faults.duplicate(format_args!("{path}.{{topologyKey, whenUnsatisfiable}}"), &pair);
        }
    }
    if let Some(seconds) = spec.active_deadline_seconds.filter(|s| !(1..=i64::from(i32::MAX)).contains(s)) {
        let why = "must be between 1 and 2147483647, inclusive";
        faults.invalid_number("spec.activeDeadlineSeconds", seconds, why);
    }
    for (index, written) in spec.tolerations.iter().enumerate() {
        toleration(written, &format!("spec.tolerations[{index}]"), &mut faults);
    }
    let policies = ["Never", "PreemptLowerPriority"];
    if !spec.preemption_policy.is_empty() && !policies.contains(&spec.preemption_policy.as_str()) {
        faults.unsupported(
            "spec.preemptionPolicy",
            &spec.preemption_policy,
            &["PreemptLowerPriority", "Never"],
        );
    }
    faults.answer("Pod", &meta.name)
}

fn containers(spec: &PodSpec, faults: &mut Faults) {
    let mut names: BTreeSet<&str> = BTreeSet::new();
    let mut ports = BTreeSet::new();
    for (index, container) in spec.containers.iter().enumerate() {
        let path = format!("spec.containers[{index}]");
        one_container(container, &path, spec.host_network, faults);
        unique(&mut names, container, &path, faults);
        host_ports(&mut ports, container, &path, faults);
    }
    for (index, container) in spec.init_containers.iter().enumerate() {
        let path = format!("spec.initContainers[{index}]");
        one_container(container, &path, false, faults);
        if !matches!(container.restart_policy.as_str(), "" | "Always") {
            faults.unsupported(format_args!("{path}.restartPolicy"), &container.restart_policy, &["Always"]);
        }
        unique(&mut names, container, &path, faults);
        host_ports(&mut BTreeSet::new(), container, &path, faults);
    }
}

fn unique<'a>(names: &mut BTreeSet<&'a str>, container: &'a Container, path: &str, faults: &mut Faults) {
    // A shape may leave names out.
    if !container.name.is_empty() && !names.insert(&container.name) {
        faults.duplicate(format_args!("{path}.name"), &container.name);
    }
}

fn host_ports(used: &mut BTreeSet<String>, container: &Container, path: &str, faults: &mut Faults) {
    for (index, port) in container.ports.iter().enumerate().filter(|(_, port)| port.host_port != 0) {
        let protocol = if port.protocol.is_empty() { "TCP" } else { &port.protocol };
        let text = format!("{protocol}/{}/{}", port.host_ip, port.host_port);
        if used.contains(&text) {
            faults.duplicate(format_args!("{path}.ports[{index}].hostPort"), &text);
        }
        used.insert(text);
    }
}

fn one_container(container: &Container, path: &str, host_network: bool, faults: &mut Faults) {
    for (index, port) in container.ports.iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let in_range = |port: i32| (1..=65535).contains(&port);
        if port.container_port == 0 {
            faults.required(format_args!("{path}.containerPort"), "");
        } else if !in_range(port.container_port) {
            faults.invalid_number(format_args!("{path}.containerPort"), port.container_port.into(), PORTS);
        }
        if port.host_port != 0 && !in_range(port.host_port) {
            faults.invalid_number(format_args!("{path}.hostPort"), port.host_port.into(), PORTS);
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        if !port.protocol.is_empty() && !protocols.contains(&port.protocol.as_str()) {
            faults.unsupported(format_args!("{path}.protocol"), &port.protocol, &protocols);
        }
        if host_network && port.host_port != 0 && port.host_port != port.container_port {
            let why = "must match `containerPort` when `hostNetwork` is true";
            faults.invalid_number(format_args!("{path}.hostPort"), port.host_port.into(), why);
        }
    }
    resources::requirements(&container.resources, &format!("{path}.resources"), false, faults);
}

fn affinity(affinity: &Affinity, faults: &mut Faults) {
    let path = "spec.affinity.nodeAffinity";
    let node = &affinity.node_affinity;
    if node.required.as_ref().is_some_and(|selector| selector.node_selector_terms.is_empty()) {
        let path = format_args!("{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
        faults.required(path, "must have at least one node selector term");
    }
    for (index, term) in node.required.iter().flat_map(|terms| &terms.node_selector_terms).enumerate() {
        let path =
            format!("{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{index}]");
        selectors::of_nodes(term, &path, faults);
    }
    for (index, term) in node.preferred.iter().enumerate() {
        let path = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]");
        weight(term.weight, &path, faults);
        selectors::of_nodes(&term.preference, &format!("{path}.preference"), faults);
    }
    pods(&affinity.pod_affinity, "spec.affinity.podAffinity", faults);
    pods(&affinity.pod_anti_affinity, "spec.affinity.podAntiAffinity", faults);
}

fn pods(affinity: &PodAffinity, path: &str, faults: &mut Faults) {
    for (index, term) in affinity.required.iter().enumerate() {
        pod_term(term, &format!("{path}.requiredDuringSchedulingIgnoredDuringExecution[{index}]"), faults);
    }
    for (index, term) in affinity.preferred.iter().enumerate() {
        let path = format!("{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]");
        pod_term(&term.pod_affinity_term, &format!("{path}.podAffinityTerm"), faults);
    }
    for (index, term) in affinity.preferred.iter().enumerate() {
        weight(
            term.weight,
            format_args!("{path}.preferredDuringSchedulingIgnoredDuringExecution[{index}]"),
            faults,
        );
    }
}

fn pod_term(term: &PodAffinityTerm, path: &str, faults: &mut Faults) {
    let (key, at) = (&term.topology_key, format!("{path}.topologyKey"));
    selectors::of_labels(term.label_selector.as_ref(), &format!("{path}.labelSelector"), faults);
    selectors::of_labels(term.namespace_selector.as_ref(), &format!("{path}.namespaceSelector"), faults);
    if key.is_empty() {
        faults.required(at, "can not be empty");
    } else {
        names::qualified(key).iter().for_each(|why| faults.invalid(&at, key, why));
    }
}

fn weight(weight: i64, path: impl Display, faults: &mut Faults) {
    if !(1..=100).contains(&weight) {
        faults.invalid_number(format_args!("{path}.weight"), weight, "must be in the range 1-100");
    }
}

fn gates(spec: &PodSpec, faults: &mut Faults) {
    let mut seen = BTreeSet::new();
    for (index, gate) in spec.scheduling_gates.iter().enumerate() {
        let path = format!("spec.schedulingGates[{index}]");
        names::qualified(&gate.name).iter().for_each(|why| faults.invalid(&path, &gate.name, why));
        if !seen.insert(&gate.name) {
            faults.duplicate(&path, &gate.name);
        }
    }
    if !spec.scheduling_gates.is_empty() && !spec.node_name.is_empty() {
        faults.forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared");
    }
}

fn spread(constraint: &SpreadConstraint, path: &str, faults: &mut Faults) {
    if constraint.max_skew <= 0 {
        faults.invalid_number(
            format_args!("{path}.maxSkew"),
            constraint.max_skew,
            "must be greater than zero",
        );
    }
    if constraint.topology_key.is_empty() {
        faults.required(format_args!("{path}.topologyKey"), "can not be empty");
    }
    let ways = ["DoNotSchedule", "ScheduleAnyway"];
    if !ways.contains(&constraint.when_unsatisfiable.as_str()) {
        faults.unsupported(format_args!("{path}.whenUnsatisfiable"), &constraint.when_unsatisfiable, &ways);
    }
    if let Some(domains) = constraint.min_domains {
        let path = format!("{path}.minDomains");
        if domains <= 0 {
            faults.invalid_number(&path, domains, "must be greater than zero");
        }
        if constraint.when_unsatisfiable != "DoNotSchedule" {
            let way = &constraint.when_unsatisfiable;
            let why = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {way}");
            faults.invalid_number(&path, domains, why);
        }
    }
    selectors::of_labels(constraint.label_selector.as_ref(), &format!("{path}.labelSelector"), faults);
    let policies = ["Honor", "Ignore"];
    for (policy, key) in [
        (&constraint.node_affinity_policy, "nodeAffinityPolicy"),
        (&constraint.node_taints_policy, "nodeTaintsPolicy"),
    ] {
        let odd = policy.as_deref().filter(|policy| !policies.contains(policy));
        odd.into_iter().for_each(|odd| faults.unsupported(format_args!("{path}.{key}"), odd, &policies));
    }
}

fn toleration(written: &Toleration, path: &str, faults: &mut Faults) {
    let Toleration { key, operator, value, effect, toleration_seconds } = written;
    if !key.is_empty() {
        names::qualified(key).iter().for_each(|why| faults.invalid(format_args!("{path}.key"), key, why));
    } else if operator != "Exists" {
        let why =
            "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        faults.invalid(format_args!("{path}.operator"), operator, why);
    }
    if toleration_seconds.is_some() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        faults.invalid(format_args!("{path}.effect"), effect, why);
    }
    match operator.as_str() {
        "" | "Equal" => {
            let wrong = names::label_value(value).join(";");
            if !wrong.is_empty() {
                faults.invalid(format_args!("{path}.operator"), value, wrong);
            }
        }
        "Exists" if !value.is_empty() => {
            let why = "value must be empty when `operator` is 'Exists'";
            faults.invalid(format_args!("{path}.operator"), value, why);
        }
        "Exists" => {}
        _ => faults.unsupported(format_args!("{path}.operator"), operator, &["Equal", "Exists"]),
    }
    let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    if !effect.is_empty() && !effects.contains(&effect.as_str()) {
        faults.unsupported(format_args!("{path}.effect"), effect, &effects);
    }
}
