//! Amounts of resources as whole numbers: thousandths of a core, bytes, pieces.

mod exact;

use evenkeel_model::pod::effective;
use evenkeel_model::quantity::Quantity;
use evenkeel_model::requirements::ResourceSum;

use super::symbols::{Symbol, Symbols};
use crate::object::{Container, Pod, Requirements, ResourceList};
use exact::ExactSum;

/// Index of a resource in a cluster.
pub type ResourceIndex = usize;
/// Thousandths of a core.
pub const CPU: ResourceIndex = 0;
/// Bytes.
pub const MEMORY: ResourceIndex = 1;
/// Bytes.
pub const EPHEMERAL: ResourceIndex = 2;

/// What the scheduler counts for a container that asks for no CPU, thousandths (`non_zero.go`). Scores only.
const DEFAULT_CPU_MILLI: i64 = 100;
/// The same for memory, bytes.
const DEFAULT_MEMORY_BYTES: i64 = 200 * 1024 * 1024;

/// Resources a cluster knows, by index.
#[derive(Debug, Clone)]
pub struct ResourceNames {
    names: Vec<Symbol>,
}

impl ResourceNames {
    /// CPU, memory and local storage, which always come first.
    pub fn new(symbols: &mut Symbols) -> Self {
        Self { names: ["cpu", "memory", "ephemeral-storage"].map(|name| symbols.intern(name)).into() }
    }

    /// The index of a resource, a new one where it was not known.
    pub fn index(&mut self, name: &str, symbols: &mut Symbols) -> ResourceIndex {
        // Nearly all amounts are of these, which always come first.
        match name {
            "cpu" => return CPU,
            "memory" => return MEMORY,
            "ephemeral-storage" => return EPHEMERAL,
            _ => {}
        }
        let name = symbols.intern(name);
        self.names.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }

    /// The index of a resource that is known.
    pub fn find(&self, name: &str, symbols: &Symbols) -> Option<ResourceIndex> {
        let name = symbols.find(name)?;
        self.names.iter().position(|known| *known == name)
    }

    /// The name of a resource.
    pub fn name<'a>(&self, index: ResourceIndex, symbols: &'a Symbols) -> &'a str {
        self.names.get(index).map_or("", |name| symbols.word(*name))
    }

    /// Number of resources.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Never: there are always three.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

/// An amount as the scheduler counts it: CPU in thousandths, others in whole units, both rounded up; what exceeds
/// 64 bits counts as the largest number.
pub fn amount(name: &str, quantity: Quantity) -> i64 {
    let value = if name == "cpu" { quantity.milli() } else { quantity.value() };
    i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX })
}

/// Amounts by index, sorted, without zeros.
pub type Amounts = Vec<(ResourceIndex, i64)>;

/// What a pod asks for.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct PodRequests {
    /// What the filter counts.
    pub plain: Box<[(ResourceIndex, i64)]>,
    /// CPU and memory as the scores count them on a node: containers that ask for nothing count a little.
    pub scored: [i64; 2],
    /// What the fit score counts for the pod that is about to be placed: its containers alone, not what it asks for as a
    /// whole (recorded so from v1.36).
    pub scored_alone: [i64; 2],
}

/// Rounded up to thousandths of a core or to whole units; what exceeds 64 bits counts as the largest number.
fn rounded(index: ResourceIndex, nano: i128) -> i64 {
    let unit = if index == CPU { 1_000_000 } else { 1_000_000_000 };
    let up = nano.div_euclid(unit) + i128::from(nano.rem_euclid(unit) > 0);
    i64::try_from(up).unwrap_or(if up < 0 { i64::MIN } else { i64::MAX })
}

/// The effective requests of a pod ([`evenkeel_model::pod::effective`]), and what the scores make of them.
pub fn pod_requests(pod: &Pod, names: &mut ResourceNames, symbols: &mut Symbols) -> PodRequests {
    let mut containers =
        |scored: [bool; 2]| aggregate(pod, |own| container_requests(pod, own, scored, names, symbols));
    let (plain, counted) = (containers([false; 2]), containers([true; 2]));
    let as_a_whole = containers([CPU, MEMORY].map(|resource| is_missing(pod, resource)));
    let whole = whole_requests(pod, &plain, names, symbols);
    let overhead = sum(named(&pod.spec.overhead), names, symbols);
    let counted_on_node = if whole.is_empty() { &counted } else { &as_a_whole };
    let scored = effective::pod_requests(counted_on_node, whole.clone(), &overhead);
    let by_containers = effective::pod_requests(&counted, ExactSum::default(), &overhead);
    PodRequests {
        plain: effective::pod_requests(&plain, whole, &overhead).positive(),
        scored: [scored.at(CPU), scored.at(MEMORY)],
        scored_alone: [by_containers.at(CPU), by_containers.at(MEMORY)],
    }
}

/// Whether nothing in the pod asks for a resource: only then a pod that asks for something as a whole counts the scores'
/// default for its containers (`types.go`, `getNonMissingContainerRequests`).
fn is_missing(pod: &Pod, resource: ResourceIndex) -> bool {
    let name = if resource == CPU { "cpu" } else { "memory" };
    let own = pod.spec.by_kind().map(|(_, container)| &container.resources);
    let mut all = own.chain(&pod.spec.resources);
    !all.any(|written| defaulted(written).any(|(known, _)| known == name))
        && !pod.spec.overhead.contains_key(name)
}

fn named(list: &ResourceList) -> impl Iterator<Item = (&str, Quantity)> {
    list.iter().map(|(name, quantity)| (name.as_str(), *quantity))
}

fn sum<'a>(
    list: impl Iterator<Item = (&'a str, Quantity)>,
    names: &mut ResourceNames,
    symbols: &mut Symbols,
) -> ExactSum {
    let mut sum = ExactSum::default();
    list.for_each(|(name, quantity)| *sum.slot(names.index(name, symbols)) = Some(quantity.nano()));
    sum
}

/// What the pod asks for as a whole, with the defaults filled in.
fn whole_requests(
    pod: &Pod,
    of_containers: &ExactSum,
    names: &mut ResourceNames,
    symbols: &mut Symbols,
) -> ExactSum {
    let Some(Requirements { requests, limits }) = &pod.spec.resources else { return ExactSum::default() };
    let mut pod_level = |list| sum(named(list).filter(|(name, _)| is_pod_level(name)), names, symbols);
    let (mut requests, limits) = (pod_level(requests), pod_level(limits));
    effective::default_pod_requests(&mut requests, &limits, &of_containers.cpu_and_memory());
    requests
}

/// The effective limits of a pod, by the same rules; a container without one adds nothing.
pub fn pod_limits(
    pod: &Pod,
    names: &mut ResourceNames,
    symbols: &mut Symbols,
) -> Box<[(ResourceIndex, i64)]> {
    let of_containers = aggregate(pod, |container| sum(named(&container.resources.limits), names, symbols));
    let pod_level = pod.spec.resources.iter().flat_map(|whole| named(&whole.limits));
    let pod_level = sum(pod_level.filter(|(name, _)| is_pod_level(name)), names, symbols);
    let overhead = sum(named(&pod.spec.overhead), names, symbols);
    effective::pod_limits(&of_containers, pod_level, &overhead).positive()
}

/// Resources that may be asked for by the pod as a whole.
fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Requests, where one that is not given defaults to the limit.
fn defaulted(written: &Requirements) -> impl Iterator<Item = (&str, Quantity)> {
    let limits = named(&written.limits).filter(|(name, _)| !written.requests.contains_key(*name));
    named(&written.requests).chain(limits)
}

fn aggregate(pod: &Pod, mut amounts: impl FnMut(&Container) -> ExactSum) -> ExactSum {
    effective::busiest_moment(pod.spec.by_kind().map(|(kind, container)| (kind, amounts(container))))
}

fn container_requests(
    pod: &Pod,
    container: &Container,
    scored: [bool; 2],
    names: &mut ResourceNames,
    symbols: &mut Symbols,
) -> ExactSum {
    let status = running_status(pod, container);
    // A resize the node can never grant does not count; until it is granted the larger of asked, granted and in force.
    let counts = status.is_none() || !pod.status.is_resize_infeasible();
    let mut sum = sum(defaulted(&container.resources).filter(|_| counts), names, symbols);
    for (name, quantity) in status.into_iter().flatten() {
        let slot = sum.slot(names.index(name, symbols));
        *slot = (*slot).max(Some(quantity.nano()));
    }
    let given = |name: &str| defaulted(&container.resources).any(|(given, _)| given == name);
    for (index, name, default) in [
        (CPU, "cpu", i128::from(DEFAULT_CPU_MILLI) * 1_000_000),
        (MEMORY, "memory", i128::from(DEFAULT_MEMORY_BYTES) * 1_000_000_000),
    ] {
        if scored[index] && !given(name) {
            *sum.slot(index) = Some(default);
        }
    }
    sum
}

/// What the node says a running container has and was granted; nothing for ordinary init containers, and where the node
/// does not say.
fn running_status<'a>(
    pod: &'a Pod,
    container: &Container,
) -> Option<impl Iterator<Item = (&'a String, &'a Quantity)>> {
    let statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    let mut statuses = statuses.filter(|status| status.name == container.name);
    let status = statuses.next()?;
    let is_init = pod.spec.init_containers.iter().any(|init| init.name == container.name);
    if is_init && !container.is_sidecar() {
        return None;
    }
    Some(status.resources.as_ref()?.requests.iter().chain(&status.allocated_resources))
}

/// Amounts of a list as written.
pub fn amounts(list: &ResourceList, names: &mut ResourceNames, symbols: &mut Symbols) -> Amounts {
    let mut amounts: Amounts =
        list.iter().map(|(name, quantity)| (names.index(name, symbols), amount(name, *quantity))).collect();
    amounts.sort_unstable();
    amounts
}
