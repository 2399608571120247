//! Quotas: how many more of a pod each leaves room for.

use std::collections::BTreeMap;
use std::sync::Arc;

use evenkeel_model::quantity::{Format, Quantity};

use super::claims;
use crate::cluster::resources::{ResourceIndex, ResourceNames, pod_limits, pod_requests};
use crate::cluster::{self, Cluster, Symbol, Symbols};
use crate::object::{Pod, ResourceList, ResourceQuota, ScopeRequirement};

/// What one quota says of one resource.
#[derive(Debug, Clone)]
pub struct QuotaBound {
    /// Name of the quota.
    pub name: String,
    /// How many more of the pod it admits.
    pub count: u64,
    /// The resource, as the quota names it.
    pub resource: String,
    namespace: String,
    requested: Quantity,
    used: Quantity,
    hard: Quantity,
    /// The pod, where it is a claim of its clones that is refused.
    claims_of: Option<Box<Pod>>,
}

impl QuotaBound {
    fn left(&self) -> Quantity {
        self.hard.saturating_sub(self.used)
    }
}

/// A shape as quotas see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Counted<'a> {
    /// Name of its pods.
    pub name: &'a str,
    /// How many belong to a set.
    pub wanted: u64,
    /// What each quota says of each resource.
    pub quotas: &'a [QuotaBound],
}

impl<'a> Counted<'a> {
    fn of(&self, quota: &'a str) -> impl Iterator<Item = &'a QuotaBound> + use<'a> {
        self.quotas.iter().filter(move |bound| bound.name == quota)
    }
}

/// How many complete sets each quota admits, the shapes using it up together.
pub(crate) fn sets(shapes: &[Counted<'_>]) -> BTreeMap<String, u64> {
    let mut sums: BTreeMap<(&str, &str, &str), (i128, i128)> = BTreeMap::new();
    for (shape, bound) in shapes.iter().flat_map(|shape| shape.quotas.iter().map(move |bound| (shape, bound)))
    {
        let slot = sums.entry((&bound.namespace, &bound.name, &bound.resource)).or_default();
        let of_set = bound.requested.nano().saturating_mul(i128::from(shape.wanted.max(1)));
        *slot = (bound.left().nano().max(0), slot.1.saturating_add(of_set));
    }
    let mut sets: BTreeMap<String, u64> = BTreeMap::new();
    for ((_, name, _), (left, of_set)) in sums {
        let bound = u64::try_from(left / of_set.max(1)).unwrap_or(u64::MAX);
        let slot = sets.entry(name.to_owned()).or_insert(bound);
        *slot = (*slot).min(bound);
    }
    sets
}

/// A resource of which a quota admits no further set.
#[derive(Debug, Clone)]
pub(crate) struct Tight {
    /// The resource, as the quota names it.
    pub resource: String,
    /// What one set is charged.
    pub of_set: Quantity,
    /// What was used before the sets that are admitted.
    pub used: Quantity,
    /// What may be used.
    pub hard: Quantity,
}

/// The resources that keep a quota from admitting one set more than so many.
pub(crate) fn tight(quota: &str, shapes: &[Counted<'_>], sets: u64) -> Vec<Tight> {
    let mut all: BTreeMap<&str, Tight> = BTreeMap::new();
    for shape in shapes {
        for bound in shape.of(quota) {
            let wanted = i64::try_from(shape.wanted.max(1)).unwrap_or(i64::MAX);
            let charged = bound.requested.saturating_mul(wanted);
            let QuotaBound { resource, used, hard, .. } = bound;
            all.entry(resource)
                .and_modify(|tight| tight.of_set = tight.of_set.saturating_add(charged))
                .or_insert_with(|| Tight {
                    resource: resource.clone(),
                    of_set: charged,
                    used: *used,
                    hard: *hard,
                });
        }
    }
    let more = i64::try_from(sets.saturating_add(1)).unwrap_or(i64::MAX);
    let exceeds = |tight: &Tight| tight.needed(more).nano() > tight.hard.nano();
    all.into_values().filter(exceeds).collect()
}

impl Tight {
    /// What is used once so many sets are admitted.
    pub(crate) fn needed(&self, sets: i64) -> Quantity {
        self.used.saturating_add(self.of_set.saturating_mul(sets)).with_format(self.hard.format())
    }
}

/// The API server's words for the first pod (or claim of it) that a quota refuses after so many sets.
pub(crate) fn refusal(quota: &str, shapes: &[Counted<'_>], sets: u64) -> Option<String> {
    let mut taken: BTreeMap<(String, String), Quantity> = BTreeMap::new();
    let mut take = |bound: &QuotaBound, pods: u64| -> Quantity {
        let slot = taken.entry((bound.namespace.clone(), bound.resource.clone()));
        let slot = slot.or_insert_with(|| Quantity::from_units(0));
        let pods = i64::try_from(pods).unwrap_or(i64::MAX);
        *slot = slot.saturating_add(bound.requested.saturating_mul(pods));
        *slot
    };
    for shape in shapes {
        for bound in shape.of(quota) {
            take(bound, shape.wanted.saturating_mul(sets));
        }
    }
    for shape in shapes {
        let room = |bound: &QuotaBound| {
            let left = bound.left().saturating_sub(take(bound, 0)).nano().max(0);
            u64::try_from(left / bound.requested.nano()).unwrap_or(u64::MAX)
        };
        let admitted = shape.of(quota).map(room).min().unwrap_or(u64::MAX).min(shape.wanted);
        let after = shape.of(quota).map(|bound| (take(bound, admitted), bound)).collect::<Vec<_>>();
        if admitted < shape.wanted {
            let exceeds = |(taken, bound): &(Quantity, &QuotaBound)| {
                taken.saturating_add(bound.requested).nano() > bound.left().nano()
            };
            let refused: Vec<_> = after.into_iter().filter(exceeds).collect();
            let number = sets.saturating_mul(shape.wanted).saturating_add(admitted);
            return (!refused.is_empty()).then(|| words(&format!("{}-{number}", shape.name), &refused));
        }
    }
    None
}

/// All resources a quota lacks for one pod, with what was taken of each; claims are made before their pod.
fn words(pod: &str, refused: &[(Quantity, &QuotaBound)]) -> String {
    let of_claims = refused.iter().any(|(_, bound)| bound.claims_of.is_some());
    let told = || refused.iter().filter(|(_, bound)| bound.claims_of.is_some() == of_claims);
    let list = |amount: &dyn Fn(&Quantity, &QuotaBound) -> Quantity| {
        let one = |(taken, bound): &(Quantity, &QuotaBound)| {
            format!("{}={}", bound.resource, amount(taken, bound).canonical())
        };
        told().map(one).collect::<Vec<_>>().join(",")
    };
    let claim = told().find_map(|(_, bound)| claims::first_name(bound.claims_of.as_deref()?, pod));
    let (kind, name) = claim.as_deref().map_or(("pods", pod), |claim| ("persistentvolumeclaims", claim));
    format!(
        "{kind} \"{name}\" is forbidden: exceeded quota: {}, requested: {}, used: {}, limited: {}",
        refused[0].1.name,
        list(&|_, bound| bound.requested),
        list(&|taken, bound| bound.used.saturating_add(*taken)),
        list(&|_, bound| bound.hard),
    )
}

/// Every resource of every quota that counts the pod, with its bound.
///
/// # Errors
/// What a quota demands to be named and the pod does not.
pub(super) fn bounds(cluster: &Cluster, namespace: &str, pod: &Pod) -> Result<Vec<QuotaBound>, String> {
    let mut bounds = Vec::new();
    let mut quotas =
        cluster.quotas.iter().filter(|quota| super::is_of(&quota.metadata, namespace)).peekable();
    if quotas.peek().is_none() {
        return Ok(bounds);
    }
    let (of_pod, of_claims) = (charge(pod), claims::charge(cluster, pod));
    for quota in quotas {
        let applies = applies(quota, pod);
        if applies {
            demand(quota, pod)?;
        }
        let mut charge = if applies { of_pod.clone() } else { BTreeMap::new() };
        if claims::counts(quota) {
            charge.extend(of_claims.clone());
        }
        let used = used(cluster, quota, namespace);
        let one = |(resource, hard): (&String, &Quantity)| {
            let requested = *charge.get(resource).filter(|requested| requested.nano() > 0)?;
            let used = used.get(resource).copied().unwrap_or(Quantity::from_units(0));
            let left = hard.saturating_sub(used).nano().max(0);
            let count = u64::try_from(left / requested.nano()).unwrap_or(u64::MAX);
            let name = quota.metadata.name.clone();
            let requested = requested.with_format(written(pod, resource).unwrap_or(hard.format()));
            let claims_of = claims::is_of_claims(resource).then(|| Box::new(pod.clone()));
            let resource = resource.clone();
            let namespace = namespace.to_owned();
            Some(QuotaBound { name, count, resource, namespace, requested, used, hard: *hard, claims_of })
        };
        bounds.extend(quota.spec.hard.iter().filter_map(one));
    }
    Ok(bounds)
}

/// What one pod is charged, by every name a quota may use.
fn charge(pod: &Pod) -> BTreeMap<String, Quantity> {
    let mut symbols = Symbols::default();
    let mut names = ResourceNames::new(&mut symbols);
    let requests = pod_requests(pod, &mut names, &mut symbols).plain;
    let limits = pod_limits(pod, &mut names, &mut symbols);
    named(&requests, &limits, &names, &symbols)
}

/// The form in which the pod wrote what a quota calls so, the first to name it deciding, as in the API server's sums.
fn written(pod: &Pod, resource: &str) -> Option<Format> {
    let (name, is_limit) = match resource.split_once('.') {
        Some(("limits", name)) => (name, true),
        Some(("requests", name)) => (name, false),
        _ => (resource, false),
    };
    let spec = &pod.spec;
    let of_containers = spec.containers.iter().chain(&spec.init_containers).map(|c| &c.resources);
    let amount = |r: &crate::object::Requirements| {
        let list = if is_limit { &r.limits } else { &r.requests };
        list.get(name).filter(|amount| !amount.is_zero()).map(|amount| amount.format())
    };
    spec.resources.as_ref().into_iter().chain(of_containers).find_map(amount)
}

type Amounts = [(ResourceIndex, i64)];

fn named(
    requests: &Amounts,
    limits: &Amounts,
    names: &ResourceNames,
    symbols: &Symbols,
) -> BTreeMap<String, Quantity> {
    let mut charge = BTreeMap::from([
        ("pods".to_owned(), Quantity::from_units(1)),
        ("count/pods".to_owned(), Quantity::from_units(1)),
    ]);
    let quantity = |name: &str, amount: i64| {
        if name == "cpu" { Quantity::from_milli(amount) } else { Quantity::from_units(amount) }
    };
    for (resource, amount) in requests {
        let name = names.name(*resource, symbols);
        charge.insert(format!("requests.{name}"), quantity(name, *amount));
        if matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-") {
            charge.insert(name.to_owned(), quantity(name, *amount));
        }
    }
    for (resource, amount) in limits {
        let name = names.name(*resource, symbols);
        charge.insert(format!("limits.{name}"), quantity(name, *amount));
    }
    charge
}

/// The API server's words where one of these has no room for a single pod of that name.
pub(super) fn full(pod: &str, bounds: &[QuotaBound]) -> Option<String> {
    let first = &bounds.iter().find(|bound| bound.count == 0)?.name;
    let refusing = bounds.iter().filter(|bound| bound.name == *first && bound.count == 0);
    let refused: Vec<_> = refusing.map(|bound| (Quantity::from_units(0), bound)).collect();
    Some(words(pod, &refused))
}

/// Charges what was counted for one pod, which is made now.
pub(super) fn take(cluster: &mut Cluster, bounds: Vec<QuotaBound>) {
    for QuotaBound { namespace, name, resource, requested, .. } in bounds {
        let taken = cluster.taken.entry((namespace, name)).or_default();
        let slot = taken.entry(resource).or_insert(Quantity::from_units(0));
        *slot = slot.saturating_add(requested);
    }
}

/// Takes what one pod is charged off the quotas that count it: it goes.
pub(crate) fn give_back(cluster: &Cluster, bounds: &mut [QuotaBound], gone: &Charge) {
    if bounds.is_empty() {
        return;
    }
    let namespace = cluster.word(gone.namespace);
    let amounts = named(&gone.requests, &gone.limits, &cluster.resources, &cluster.symbols);
    for bound in bounds.iter_mut().filter(|bound| bound.namespace == namespace) {
        let of = |quota: &&ResourceQuota| {
            quota.metadata.name == bound.name && super::is_of(&quota.metadata, namespace)
        };
        let counts = cluster.quotas.iter().find(of).is_some_and(|quota| gone.scopes.apply(quota));
        if let Some(amount) = amounts.get(&bound.resource).filter(|_| counts) {
            bound.used = bound.used.saturating_sub(*amount);
        }
    }
}

/// Whether quotas admit one pod more than so many.
pub(crate) fn admit_one_more(bounds: &[QuotaBound], pods: u64) -> bool {
    let pods = i128::from(pods) + 1;
    bounds.iter().all(|bound| bound.requested.nano().saturating_mul(pods) <= bound.left().nano())
}

/// What is used, with what was taken since the snapshot.
fn used(cluster: &Cluster, quota: &ResourceQuota, namespace: &str) -> ResourceList {
    let mut used = used_in_snapshot(cluster, quota, namespace);
    let key = (namespace.to_owned(), quota.metadata.name.clone());
    for (resource, amount) in cluster.taken.get(&key).into_iter().flatten() {
        let slot = used.entry(resource.clone()).or_insert(Quantity::from_units(0));
        *slot = slot.saturating_add(*amount);
    }
    used
}

/// What is used as the quota itself says, else counted over the pods of the namespace.
fn used_in_snapshot(cluster: &Cluster, quota: &ResourceQuota, namespace: &str) -> ResourceList {
    if !quota.status.used.is_empty() {
        return quota.status.used.clone();
    }
    let mut used = ResourceList::new();
    if claims::counts(quota) {
        claims::used(cluster, namespace, &mut used);
    }
    let Some(namespace) = cluster.symbols.find(namespace) else { return used };
    let counted =
        |charge: &(&Arc<Charge>, &i64)| charge.0.namespace == namespace && charge.0.scopes.apply(quota);
    for (charge, pods) in cluster.charges.iter().filter(counted) {
        for (name, amount) in named(&charge.requests, &charge.limits, &cluster.resources, &cluster.symbols) {
            let slot = used.entry(name).or_insert(Quantity::from_units(0));
            *slot = slot.saturating_add(amount.saturating_mul(*pods));
        }
    }
    for (name, amount) in &mut used {
        let format = quota.spec.hard.get(name).map_or(amount.format(), |hard| hard.format());
        *amount = amount.with_format(format);
    }
    used
}

/// A quota on CPU or memory makes naming it mandatory for every container.
fn demand(quota: &ResourceQuota, pod: &Pod) -> Result<(), String> {
    let mut missing: Vec<String> = Vec::new();
    for resource in quota.spec.hard.keys() {
        let (limits, name) = match resource.as_str() {
            "cpu" | "memory" => (false, resource.as_str()),
            other => match other.split_once('.') {
                Some(("requests", name @ ("cpu" | "memory"))) => (false, name),
                Some(("limits", name @ ("cpu" | "memory"))) => (true, name),
                _ => continue,
            },
        };
        let whole = pod.spec.resources.as_ref();
        let lists = |r: &crate::object::Requirements| {
            if limits {
                r.limits.contains_key(name)
            } else {
                r.requests.contains_key(name) || r.limits.contains_key(name)
            }
        };
        if whole.is_some_and(lists) {
            continue;
        }
        let all = pod.spec.init_containers.iter().chain(&pod.spec.containers);
        let lacking: Vec<&str> = all.filter(|c| !lists(&c.resources)).map(|c| c.name.as_str()).collect();
        if !lacking.is_empty() {
            missing.push(format!("{resource} for: {}", lacking.join(",")));
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("failed quota: {}: must specify {}", quota.metadata.name, missing.join("; ")))
}

/// What of a pod decides which quotas count it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Scopes {
    best_effort: bool,
    terminating: bool,
    priority_class: String,
    crosses: bool,
}

impl Scopes {
    fn of(pod: &Pod) -> Self {
        let all = || pod.spec.init_containers.iter().chain(&pod.spec.containers);
        let asks = |r: &crate::object::Requirements| {
            let mut amounts = r.requests.iter().chain(&r.limits);
            amounts.any(|(name, amount)| matches!(name.as_str(), "cpu" | "memory") && !amount.is_zero())
        };
        let affinity = &pod.spec.affinity;
        let terms = [&affinity.pod_affinity, &affinity.pod_anti_affinity];
        let crosses = terms.iter().any(|rules| {
            let preferred = rules.preferred.iter().map(|weighted| &weighted.pod_affinity_term);
            rules
                .required
                .iter()
                .chain(preferred)
                .any(|t| !t.namespaces.is_empty() || t.namespace_selector.is_some())
        });
        Self {
            best_effort: !all().any(|container| asks(&container.resources))
                && !pod.spec.resources.as_ref().is_some_and(asks),
            terminating: pod.spec.active_deadline_seconds.is_some(),
            priority_class: pod.spec.priority_class_name.clone(),
            crosses,
        }
    }

    fn apply(&self, quota: &ResourceQuota) -> bool {
        let plain = quota.spec.scopes.iter().all(|name| self.matches(name, "Exists", &[]));
        let chosen = quota.spec.scope_selector.match_expressions.iter();
        plain
            && chosen.into_iter().all(|ScopeRequirement { scope_name, operator, values }| {
                self.matches(scope_name, operator, values)
            })
    }

    fn matches(&self, scope: &str, operator: &str, values: &[String]) -> bool {
        match scope {
            "BestEffort" => self.best_effort,
            "NotBestEffort" => !self.best_effort,
            "Terminating" => self.terminating,
            "NotTerminating" => !self.terminating,
            "CrossNamespacePodAffinity" => self.crosses,
            "PriorityClass" => match operator {
                "In" => values.contains(&self.priority_class),
                "NotIn" => !values.contains(&self.priority_class),
                "DoesNotExist" => self.priority_class.is_empty(),
                _ => !self.priority_class.is_empty(),
            },
            _ => false,
        }
    }
}

fn applies(quota: &ResourceQuota, pod: &Pod) -> bool {
    Scopes::of(pod).apply(quota)
}

/// What one pod of a namespace is charged; like ones are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Charge {
    namespace: Symbol,
    scopes: Scopes,
    requests: Box<Amounts>,
    limits: Box<Amounts>,
}

impl Charge {
    /// Of a pod that has not ended, as written and ready to be placed.
    pub(crate) fn of(
        pod: &Pod,
        ready: &cluster::PodInfo,
        names: &mut ResourceNames,
        symbols: &mut Symbols,
    ) -> Self {
        Self {
            namespace: ready.namespace,
            scopes: Scopes::of(pod),
            requests: ready.requests.plain.clone(),
            limits: pod_limits(pod, names, symbols),
        }
    }
}
