//! Whether a pod fits this node by the sum of requests, resource by resource.
//!
//! Owned here: what the node has to give, what the pods on it take of that, and the comparison. Every container found
//! counts, whether it is managed or not, because it takes its room either way. Not owned: what a pod requests
//! (`evenkeel-model`).

use std::collections::BTreeMap;
use std::path::Path;

use evenkeel_host::node::hugepages;
use evenkeel_host::roots::Roots;
use evenkeel_model::name::ResourceName;
use evenkeel_model::node::NodeFacts;
use evenkeel_model::pod::Pod;
use evenkeel_model::quantity::{Format, Quantity};
use evenkeel_model::requirements::{ResourceList, ResourceSum as _};
use evenkeel_model::resource_type::ResourceTypes;
use evenkeel_model::workload::{ContainerKind, ContainerResources, Requested, Workload};
use evenkeel_qos::rules::defaulted;

use crate::shared::Context;

/// Pods a node takes where nobody says otherwise: the kubelet's default (`maxPods`).
const PODS: i64 = 110;

/// What a node gives to pods, as configured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocatable {
    /// Amounts that stand in for, or add to, what the machine says.
    pub stated: ResourceList,
    /// Amounts kept from it.
    pub reserved: ResourceList,
}

/// What this node gives to pods: the machine's own amounts, those of the configuration in their place or beside them,
/// less what is reserved.
pub fn of_node(context: &Context) -> ResourceList {
    let config = &context.config;
    let roots = Roots::new(&config.roots.proc, &config.roots.cgroup);
    let mut machine = of_machine(&context.facts);
    if let Some(disk) = disk(&config.state_dir) {
        machine.set(ResourceName::EPHEMERAL_STORAGE, Quantity::from_bytes(disk));
    }
    if let Ok(Some((size, count))) = hugepages(&roots)
        && let Ok(name) = ResourceName::parse(&format!("hugepages-{}", Quantity::from_bytes(size.get())))
    {
        machine.set(name, Quantity::from_bytes(size.get().saturating_mul(count)));
    }
    with_config(machine, &context.live.now().allocatable)
}

/// Of that, the resources the configuration speaks of: what a machine's size does not tell.
pub fn stated(context: &Context) -> ResourceList {
    let config = context.live.now();
    let Allocatable { stated, reserved } = &config.allocatable;
    if stated.is_empty() && reserved.is_empty() {
        return ResourceList::new();
    }
    let speaks_of = |name: &ResourceName| stated.get(name).is_some() || reserved.get(name).is_some();
    let all = of_node(context);
    all.iter().filter(|(name, _)| speaks_of(name)).map(|(name, amount)| (name.clone(), amount)).collect()
}

/// Thousandths of a core and bytes this node gives to pods.
pub(crate) fn cpu_and_memory(context: &Context) -> (u64, u64) {
    let list = with_config(of_machine(&context.facts), &context.live.now().allocatable);
    let whole = |value: i128| u64::try_from(value.max(0)).unwrap_or(u64::MAX);
    let cpu = list.get_or_zero(&ResourceName::CPU);
    let memory = list.get_or_zero(&ResourceName::MEMORY);
    (whole(cpu.milli()), whole(memory.value()))
}

fn of_machine(facts: &NodeFacts) -> ResourceList {
    let cpu = i64::try_from(facts.cpu_milli.get()).unwrap_or(i64::MAX);
    [
        (ResourceName::CPU, Quantity::from_milli(cpu)),
        (ResourceName::MEMORY, Quantity::from_bytes(facts.memory_bytes.get())),
        (ResourceName::PODS, Quantity::from_units(PODS)),
    ]
    .into_iter()
    .collect()
}

/// Size of the file system that holds the agent's state: the node's own disk, as the kubelet counts it.
fn disk(state_dir: &Path) -> Option<u64> {
    let found = state_dir.ancestors().find_map(|dir| nix::sys::statvfs::statvfs(dir).ok())?;
    // The types differ between machines.
    #[allow(clippy::useless_conversion, clippy::unnecessary_fallible_conversions)]
    let (blocks, size) = (u64::try_from(found.blocks()).ok()?, u64::try_from(found.fragment_size()).ok()?);
    blocks.checked_mul(size)
}

fn with_config(mut list: ResourceList, config: &Allocatable) -> ResourceList {
    for (name, amount) in config.stated.iter() {
        list.set(name.clone(), amount);
    }
    for (name, kept) in config.reserved.iter() {
        let left = list.get_or_zero(name).saturating_sub(kept);
        list.set(name.clone(), if left.is_negative() { Quantity::ZERO } else { left });
    }
    list
}

/// What a pod asks for: a place, and what its manifest says.
pub fn asked(pod: &Pod, types: &ResourceTypes) -> ResourceList {
    let mut asked = pod.effective_requests_of(types);
    asked.set(ResourceName::PODS, Quantity::from_units(1));
    asked
}

/// What is lacking of one resource; amounts in Kubernetes' canonical form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// Name of the resource.
    pub resource: String,
    /// What is asked for.
    pub requested: String,
    /// What is left.
    pub free: String,
    /// How much is lacking.
    pub by: String,
    /// Why, where it is not just taken; otherwise empty.
    pub why: String,
}

/// What is lacking of what is asked for, resource by resource; empty when it fits. A resource of which this node keeps no
/// account is short as a whole.
pub fn shortages(allocatable: &ResourceList, taken: &ResourceList, asked: &ResourceList) -> Vec<Shortage> {
    asked.iter().filter_map(|(name, asked)| shortage(name, asked, allocatable.get(name), taken)).collect()
}

/// The same, with what was defined of the types that are short.
pub fn with_types(mut short: Vec<Shortage>, types: &ResourceTypes) -> Vec<Shortage> {
    for shortage in &mut short {
        let name = ResourceName::parse(&shortage.resource).ok();
        if let Some(told) = name.and_then(|name| types.told(&name)) {
            let between = if shortage.why.is_empty() { "" } else { "; " };
            shortage.why = format!("{told}{between}{}", shortage.why);
        }
    }
    short
}

fn shortage(
    name: &ResourceName,
    asked: Quantity,
    all: Option<Quantity>,
    taken: &ResourceList,
) -> Option<Shortage> {
    let left = all.unwrap_or(Quantity::ZERO).saturating_sub(taken.get_or_zero(name));
    let free = if left.is_negative() { Quantity::ZERO } else { left };
    let free = if free.is_zero() { free.with_format(asked.format()) } else { free };
    let why = match all {
        None => format!("this node keeps no account of {name}; state it in node.allocatable"),
        Some(_) => String::new(),
    };
    (asked > free).then(|| Shortage {
        resource: name.to_string(),
        requested: asked.canonical(),
        free: free.canonical(),
        by: asked.saturating_sub(free).canonical(),
        why,
    })
}

/// What the pods on this node take. For a pod whose manifest is known that is what it says; for others, of CPU and
/// memory, the larger of the ordinary containers and sidecars together and of the largest init container.
pub fn requested<'a>(present: impl Iterator<Item = &'a Workload>) -> ResourceList {
    let mut pods: BTreeMap<(&str, &str), Present> = BTreeMap::new();
    for workload in present {
        let pod = pods.entry((&workload.pod.namespace, &workload.pod.name)).or_default();
        pod.take(workload);
    }
    let mut sum = ResourceList::new();
    for pod in pods.values() {
        sum.add(&pod.requests());
    }
    let count = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    sum.set(ResourceName::PODS, Quantity::from_units(count));
    sum
}

/// What is known of one pod on this node.
#[derive(Debug, Default)]
struct Present<'a> {
    whole: Option<&'a ResourceList>,
    running: ResourceList,
    init: ResourceList,
}

impl<'a> Present<'a> {
    fn take(&mut self, workload: &'a Workload) {
        self.whole = self.whole.or(workload.pod_facts.requests.as_ref());
        let resources = match workload.requested {
            Requested::Stated(resources) => defaulted(resources),
            Requested::Estimated(estimate) => estimate.resources,
            Requested::Unknown => ContainerResources::default(),
        };
        let milli = |value: u64| Quantity::from_milli(i64::try_from(value).unwrap_or(i64::MAX));
        let cpu = resources.cpu_request.map_or(Quantity::ZERO, |cpu| milli(cpu.get()));
        let memory = resources.memory_request.map_or(0, |memory| memory.get());
        let own: ResourceList = [
            (ResourceName::CPU, cpu.with_format(Format::DecimalSI)),
            (ResourceName::MEMORY, Quantity::from_bytes(memory)),
        ]
        .into_iter()
        .collect();
        if workload.kind == ContainerKind::Init {
            self.init.raise_to(&own);
        } else {
            self.running.add(&own);
        }
    }

    fn requests(&self) -> ResourceList {
        match self.whole {
            Some(whole) => whole.clone(),
            None => {
                let mut peak = self.running.clone();
                peak.raise_to(&self.init);
                peak
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::workload;
    use evenkeel_model::pod::read_pods;
    use evenkeel_model::units::{Bytes, MilliCpu};

    /// A pod with one container of these requests, an init container and an overhead where given.
    fn pod(requests: &str, init: &str, overhead: &str) -> Pod {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: p}}\nspec:\n  overhead: {{{overhead}}}\n  initContainers: [{{name: i, \
             image: i, resources: {{requests: {{{init}}}}}}}]\n  containers: [{{name: c, image: i, resources: {{requests: \
             {{{requests}}}, limits: {{}}}}}}]"
        );
        read_pods(&text, "test").unwrap().remove(0)
    }

    fn list(entries: &[(&str, &str)]) -> ResourceList {
        let parse = |(name, amount): &(&str, &str)| {
            (ResourceName::parse(name).unwrap(), Quantity::parse(amount).unwrap())
        };
        entries.iter().map(parse).collect()
    }

    /// Two cores and 2 GiB, two GPUs, three pods; a core and 512 MiB are taken by two pods.
    fn short(requests: &str, init: &str, overhead: &str) -> Vec<(String, String, String)> {
        let all = list(&[
            ("cpu", "2"),
            ("memory", "2Gi"),
            ("pods", "3"),
            ("nvidia.com/gpu", "2"),
            ("ephemeral-storage", "10Gi"),
            ("hugepages-2Mi", "4Mi"),
        ]);
        let present = [workload("a"), workload("b")];
        let asked = asked(&pod(requests, init, overhead), &ResourceTypes::predefined());
        let short = shortages(&all, &requested(present.iter()), &asked);
        short.into_iter().map(|s| (s.resource, s.free, s.by)).collect()
    }

    #[test]
    fn each_resource_is_compared_with_what_requests_leave() {
        let none = &[];
        type Short<'a> = (&'a str, &'a str, &'a str);
        let table: [(&str, &str, &str, &[Short<'_>]); 9] = [
            ("cpu: 1, memory: 1536Mi", "", "", none),
            ("cpu: 1100m, memory: 1537Mi", "", "", &[("cpu", "1", "100m"), ("memory", "1536Mi", "1Mi")]),
            ("cpu: 500m", "cpu: 1500m", "", &[("cpu", "1", "500m")]),
            ("cpu: 1", "", "cpu: 250m", &[("cpu", "1", "250m")]),
            ("nvidia.com/gpu: 2", "", "", none),
            ("nvidia.com/gpu: 3", "", "", &[("nvidia.com/gpu", "2", "1")]),
            ("example.com/fpga: 1", "", "", &[("example.com/fpga", "0", "1")]),
            ("ephemeral-storage: 11Gi", "", "", &[("ephemeral-storage", "10Gi", "1Gi")]),
            ("hugepages-2Mi: 6Mi", "", "", &[("hugepages-2Mi", "4Mi", "2Mi")]),
        ];
        for (requests, init, overhead, want) in table {
            let got = short(requests, init, overhead);
            let got: Vec<(&str, &str, &str)> =
                got.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
            assert_eq!(got, want, "{requests} / {init} / {overhead}");
        }
    }

    /// The other questions are asked about the same pods in the recommender's `tests/same_pods.rs`.
    #[test]
    fn pods_as_people_write_them_ask_for_what_kubernetes_counts() {
        let pods = read_pods(include_str!("../../model/tests/written.yaml"), "written.yaml").unwrap();
        let expected = |pod: &Pod| pod.metadata.annotations.get("expected/requests").cloned();
        let counted: Vec<_> = pods.iter().filter_map(|pod| Some((pod, expected(pod)?))).collect();
        assert_eq!(counted.len(), 10);
        for (pod, expected) in counted {
            let mut want: Vec<_> = expected.split(", ").map(|part| part.split_once('=').unwrap()).collect();
            want.push(("pods", "1"));
            let asked = asked(pod, &ResourceTypes::predefined());
            let asked: ResourceList =
                asked.iter().filter(|(_, amount)| !amount.is_zero()).map(|(n, q)| (n.clone(), q)).collect();
            assert_eq!(asked, list(&want), "{}", pod.metadata.name);
        }
    }

    #[test]
    fn types_say_what_counts_for_who_says_nothing() {
        let definitions = r#"{"example.com/seat": {"units": "", "defaultRequest": 1, "quantization": 2}}"#;
        let types = ResourceTypes::with(&serde_json::from_str(definitions).unwrap()).unwrap();
        let all = list(&[("cpu", "8"), ("pods", "3"), ("example.com/seat", "3")]);
        let short = |requests: &str| {
            let short = shortages(&all, &ResourceList::new(), &asked(&pod(requests, "", ""), &types));
            short.into_iter().map(|s| (s.resource, s.requested, s.by)).collect::<Vec<_>>()
        };
        assert_eq!(short("cpu: 1"), []);
        let seats =
            |requested: &str, by: &str| ("example.com/seat".to_owned(), requested.to_owned(), by.to_owned());
        assert_eq!(short("example.com/seat: 3"), [seats("4", "1")]);
        let asks = asked(&pod("example.com/seat: 3, cpu: 9", "", ""), &types);
        let told = with_types(shortages(&all, &ResourceList::new(), &asks), &types);
        let why: Vec<&str> = told.iter().map(|short| short.why.as_str()).collect();
        assert_eq!(why, ["a plain number, incompressible, 1 where nothing is said, in steps of 2", ""]);
    }

    #[test]
    fn a_pod_takes_a_place_and_what_its_manifest_says() {
        let all = list(&[("cpu", "8"), ("memory", "8Gi"), ("pods", "2"), ("nvidia.com/gpu", "2")]);
        let mut known = workload("a");
        known.pod_facts.requests = Some(list(&[("cpu", "7"), ("nvidia.com/gpu", "1")]));
        let mut sidecar = known.clone();
        sidecar.kind = ContainerKind::Sidecar;
        let asks = pod("cpu: 2, nvidia.com/gpu: 2", "", "");
        let types = ResourceTypes::predefined();
        let short = shortages(&all, &requested([&known, &sidecar].into_iter()), &asked(&asks, &types));
        let by: Vec<(&str, &str)> = short.iter().map(|s| (s.resource.as_str(), s.by.as_str())).collect();
        assert_eq!(by, [("cpu", "1"), ("nvidia.com/gpu", "1")]);
        let taken = requested([&known, &workload("b")].into_iter());
        let full = shortages(&all, &taken, &asked(&pod("", "", ""), &types));
        assert_eq!((full.len(), full[0].resource.as_str(), full[0].why.as_str()), (1, "pods", ""));
    }

    #[test]
    fn the_configuration_stands_in_for_the_machine_and_keeps_a_part() {
        let facts = NodeFacts::of_size(Bytes::new(4 << 30), MilliCpu::new(4000));
        let config = Allocatable {
            stated: list(&[("memory", "3Gi"), ("nvidia.com/gpu", "2")]),
            reserved: list(&[("cpu", "500m"), ("memory", "4Gi")]),
        };
        let given = with_config(of_machine(&facts), &config);
        let text: Vec<String> = given.iter().map(|(name, amount)| format!("{name}={amount}")).collect();
        assert_eq!(text, ["cpu=3500m", "memory=0", "pods=110", "nvidia.com/gpu=2"]);
    }
}
