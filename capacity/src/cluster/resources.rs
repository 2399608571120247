//! Amounts of resources as whole numbers: thousandths of a core, bytes, pieces.

use evenkeel_model::quantity::Quantity;

use super::symbols::{Symbol, Symbols};
use crate::object::{Container, Pod, Requirements, ResourceList};

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

/// Sums in thousand-millionths, as exact as quantities are: they are rounded once, at the end, as the scheduler does.
#[derive(Clone, Default)]
struct Sum(Vec<i128>);

impl Sum {
    fn at(&self, index: ResourceIndex) -> i64 {
        rounded(index, self.0.get(index).copied().unwrap_or(0))
    }

    fn positive(&self) -> Box<[(ResourceIndex, i64)]> {
        let all = (0..self.0.len()).map(|index| (index, self.at(index)));
        all.filter(|(_, amount)| *amount > 0).collect()
    }

    fn slot(&mut self, index: ResourceIndex) -> &mut i128 {
        if self.0.len() <= index {
            self.0.resize(index + 1, 0);
        }
        &mut self.0[index]
    }

    fn raise(&mut self, index: ResourceIndex, by: i128) {
        let slot = self.slot(index);
        *slot = slot.saturating_add(by);
    }

    fn add(&mut self, other: &Self) {
        for (index, amount) in other.0.iter().enumerate() {
            self.raise(index, *amount);
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (index, amount) in other.0.iter().enumerate() {
            let slot = self.slot(index);
            *slot = (*slot).max(*amount);
        }
    }
}

/// Rounded up to thousandths of a core or to whole units; what exceeds 64 bits counts as the largest number.
fn rounded(index: ResourceIndex, nano: i128) -> i64 {
    let unit = if index == CPU { 1_000_000 } else { 1_000_000_000 };
    let up = nano.div_euclid(unit) + i128::from(nano.rem_euclid(unit) > 0);
    i64::try_from(up).unwrap_or(if up < 0 { i64::MIN } else { i64::MAX })
}

/// The effective requests of a pod (component-helpers `resource/helpers.go`, `PodRequests`): the busiest moment of
/// its life, or what the pod asks as a whole, and its overhead.
pub fn pod_requests(pod: &Pod, names: &mut ResourceNames, symbols: &mut Symbols) -> PodRequests {
    let mut containers =
        |scored: [bool; 2]| aggregate(pod, &mut |own| container_requests(pod, own, scored, names, symbols));
    let (plain, counted) = (containers([false; 2]), containers([true; 2]));
    let as_a_whole = containers([CPU, MEMORY].map(|resource| is_missing(pod, resource)));
    let whole = whole_requests(pod, &plain, names, symbols);
    let overhead: Vec<_> =
        pod.spec.overhead.iter().map(|(name, amount)| (names.index(name, symbols), amount.nano())).collect();
    let finish = |mut sum: Sum, whole: &[(ResourceIndex, i128)]| {
        whole.iter().for_each(|(index, amount)| *sum.slot(*index) = *amount);
        overhead.iter().for_each(|(index, amount)| sum.raise(*index, *amount));
        sum
    };
    let counted_on_node = if whole.is_empty() { counted.clone() } else { as_a_whole };
    let (scored, by_containers) = (finish(counted_on_node, &whole), finish(counted, &[]));
    PodRequests {
        plain: finish(plain, &whole).positive(),
        scored: [scored.at(CPU), scored.at(MEMORY)],
        scored_alone: [by_containers.at(CPU), by_containers.at(MEMORY)],
    }
}

/// Whether nothing in the pod asks for a resource: only then a pod that asks for something as a whole counts the scores'
/// default for its containers (`types.go`, `getNonMissingContainerRequests`).
fn is_missing(pod: &Pod, resource: ResourceIndex) -> bool {
    let name = if resource == CPU { "cpu" } else { "memory" };
    let own =
        pod.spec.containers.iter().chain(&pod.spec.init_containers).map(|container| &container.resources);
    let mut all = own.chain(&pod.spec.resources);
    !all.any(|written| defaulted(written).any(|(known, _)| known == name))
        && !pod.spec.overhead.contains_key(name)
}

/// What the pod asks for as a whole. A request that is not given defaults, beside a limit, to the sum of the containers,
/// or to the limit where no container names the resource (`pkg/apis/core/v1/defaults.go`, `defaultPodRequests`).
fn whole_requests(
    pod: &Pod,
    containers: &Sum,
    names: &mut ResourceNames,
    symbols: &mut Symbols,
) -> Vec<(ResourceIndex, i128)> {
    let Some(whole) = &pod.spec.resources else { return Vec::new() };
    let all = || pod.spec.containers.iter().chain(&pod.spec.init_containers);
    let named = |name: &str| all().any(|own| defaulted(&own.resources).any(|(known, _)| known == name));
    let defaulted = defaulted(whole).filter(|(name, _)| is_pod_level(name));
    let one = |(name, amount): (&str, Quantity)| {
        let index = names.index(name, symbols);
        let own = !whole.requests.contains_key(name) && named(name);
        (index, if own { containers.0.get(index).copied().unwrap_or(0) } else { amount.nano() })
    };
    defaulted.map(one).collect()
}

/// The effective limits of a pod, by the same rules; a container without one adds nothing.
pub fn pod_limits(
    pod: &Pod,
    names: &mut ResourceNames,
    symbols: &mut Symbols,
) -> Box<[(ResourceIndex, i64)]> {
    let mut sum = aggregate(pod, &mut |container| {
        let mut sum = Sum::default();
        for (name, quantity) in &container.resources.limits {
            *sum.slot(names.index(name, symbols)) = quantity.nano();
        }
        sum
    });
    for (name, quantity) in pod.spec.resources.iter().flat_map(|whole| &whole.limits) {
        if is_pod_level(name) {
            *sum.slot(names.index(name, symbols)) = quantity.nano();
        }
    }
    for (name, quantity) in &pod.spec.overhead {
        let slot = sum.slot(names.index(name, symbols));
        if *slot > 0 {
            *slot = slot.saturating_add(quantity.nano());
        }
    }
    sum.positive()
}

/// Resources that may be asked for by the pod as a whole.
fn is_pod_level(name: &str) -> bool {
    matches!(name, "cpu" | "memory") || name.starts_with("hugepages-")
}

/// Requests, where one that is not given defaults to the limit.
fn defaulted(written: &Requirements) -> impl Iterator<Item = (&str, Quantity)> {
    let requests = written.requests.iter().map(|(name, quantity)| (name.as_str(), *quantity));
    let limits = written.limits.iter().filter(|(name, _)| !written.requests.contains_key(*name));
    requests.chain(limits.map(|(name, quantity)| (name.as_str(), *quantity)))
}

fn aggregate(pod: &Pod, requests: &mut impl FnMut(&Container) -> Sum) -> Sum {
    let (mut running, mut sidecars, mut peak) = (Sum::default(), Sum::default(), Sum::default());
    for container in &pod.spec.containers {
        running.add(&requests(container));
    }
    for container in &pod.spec.init_containers {
        let own = requests(container);
        if container.is_sidecar() {
            running.add(&own);
            sidecars.add(&own);
            peak.raise_to(&sidecars);
        } else {
            let mut moment = sidecars.clone();
            moment.add(&own);
            peak.raise_to(&moment);
        }
    }
    running.raise_to(&peak);
    running
}

fn container_requests(
    pod: &Pod,
    container: &Container,
    scored: [bool; 2],
    names: &mut ResourceNames,
    symbols: &mut Symbols,
) -> Sum {
    let mut sum = Sum::default();
    let status = running_status(pod, container);
    // A resize the node can never grant does not count; until it is granted the larger of asked, granted and in force.
    if status.is_none() || !pod.status.is_resize_infeasible() {
        for (name, quantity) in defaulted(&container.resources) {
            *sum.slot(names.index(name, symbols)) = quantity.nano();
        }
    }
    for (name, quantity) in status.into_iter().flatten() {
        let slot = sum.slot(names.index(name, symbols));
        *slot = (*slot).max(quantity.nano());
    }
    let given = |name: &str| defaulted(&container.resources).any(|(given, _)| given == name);
    for (index, name, default) in [
        (CPU, "cpu", i128::from(DEFAULT_CPU_MILLI) * 1_000_000),
        (MEMORY, "memory", i128::from(DEFAULT_MEMORY_BYTES) * 1_000_000_000),
    ] {
        if scored[index] && !given(name) {
            *sum.slot(index) = default;
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
