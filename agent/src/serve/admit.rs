//! Whether a pod fits this node by the sum of requests.

use std::collections::BTreeMap;

use evenkeel_model::name::ResourceName;
use evenkeel_model::node::NodeFacts;
use evenkeel_model::pod::Pod;
use evenkeel_model::quantity::{Format, Quantity};
use evenkeel_model::workload::{ContainerKind, ContainerResources, Requested, Workload};
use evenkeel_proto::v1;
use evenkeel_qos::rules::defaulted;

/// What a pod lacks, resource by resource; empty when it fits. Every container found counts, whether it is managed
/// or not, because it takes its room either way. Resources this node keeps no account of are short as a whole.
pub(super) fn shortages<'a>(
    facts: &NodeFacts,
    present: impl Iterator<Item = &'a Workload>,
    pod: &Pod,
) -> Vec<v1::Shortage> {
    let (cpu, memory) = requested(present);
    let free =
        |capacity: u64, taken: u128| u64::try_from(u128::from(capacity).saturating_sub(taken)).unwrap_or(0);
    let cpu_free = i64::try_from(free(facts.cpu_milli.get(), cpu)).unwrap_or(i64::MAX);
    let memory_free = free(facts.memory_bytes.get(), memory);
    let requests = pod.effective_requests();
    requests
        .iter()
        .filter_map(|(name, asked)| {
            let free = if *name == ResourceName::CPU {
                Quantity::from_milli(cpu_free)
            } else if *name == ResourceName::MEMORY {
                Quantity::from_bytes(memory_free)
            } else {
                Quantity::ZERO.with_format(Format::DecimalSI)
            };
            (asked > free).then(|| v1::Shortage {
                resource: name.to_string(),
                requested: asked.canonical(),
                free: free.canonical(),
                by: asked.saturating_sub(free).canonical(),
            })
        })
        .collect()
}

/// Requests of CPU (thousandths) and memory (bytes): for each pod the larger of its ordinary containers and
/// sidecars together and its largest init container.
fn requested<'a>(present: impl Iterator<Item = &'a Workload>) -> (u128, u128) {
    let mut pods: BTreeMap<(&str, &str), [(u128, u128); 2]> = BTreeMap::new();
    for workload in present {
        let resources = match workload.requested {
            Requested::Stated(resources) => defaulted(resources),
            Requested::Estimated(estimate) => estimate.resources,
            Requested::Unknown => ContainerResources::default(),
        };
        let cpu = resources.cpu_request.map_or(0, |v| u128::from(v.get()));
        let memory = resources.memory_request.map_or(0, |v| u128::from(v.get()));
        let [running, init] = pods.entry((&workload.pod.namespace, &workload.pod.name)).or_default();
        if workload.kind == ContainerKind::Init {
            *init = (init.0.max(cpu), init.1.max(memory));
        } else {
            *running = (running.0 + cpu, running.1 + memory);
        }
    }
    pods.values().fold((0, 0), |(cpu, memory), [running, init]| {
        (cpu + running.0.max(init.0), memory + running.1.max(init.1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::workload;
    use evenkeel_model::pod::read_pods;
    use evenkeel_model::units::{Bytes, MilliCpu};

    #[test]
    fn a_pod_fits_into_what_requests_leave() {
        let facts = NodeFacts::of_size(Bytes::new(1 << 30), MilliCpu::new(1000));
        let present = [workload("a"), workload("b")];
        let pod = |cpu: &str, memory: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c, image: i, \
                 resources: {{requests: {{cpu: {cpu}, memory: {memory}}}}}}}]}}"
            );
            read_pods(&text, "test").unwrap().remove(0)
        };
        let short = |cpu, memory| {
            let short = shortages(&facts, present.iter(), &pod(cpu, memory));
            short.into_iter().map(|s| (s.resource, s.free, s.by)).collect::<Vec<_>>()
        };
        assert_eq!(short("0", "512Mi"), []);
        let text = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
        assert_eq!(short("100m", "513Mi"), [text("cpu", "0", "100m"), text("memory", "512Mi", "1Mi")]);
    }
}
