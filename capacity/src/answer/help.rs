//! The smallest changes that admit one more, each tried: the whole question is asked again with it.
//!
//! Where nodes bind, the pod's rules and requests are changed one at a time; where a quota binds, the quota or what the pod
//! asks of it.

mod change;

use evenkeel_model::quantity::Quantity;
use serde::{Deserialize, Serialize};

use super::count::{Ask, tally};
use super::prepared::Prepared;
use crate::admission::quota::{self, Tight};
use crate::cluster::resources::{ResourceNames, pod_limits, pod_requests};
use crate::cluster::{Cluster, Symbols};
use crate::object::{Pod, Requirements, ResourceQuota};
use crate::plugin::Rejection;
use crate::profile::Profiles;
use crate::state::ClusterState;
use change::{drop_selectors, tolerate, with_request_lower};

/// How far the effect of a change is counted.
const COUNTED: u64 = 1000;

/// One change, and what it brings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Help {
    /// What to change, in a sentence.
    pub change: String,
    /// How many more fit once it is made, under all bounds; 1000 stands for as many or more.
    pub admits: u64,
}

/// What was asked and counted.
pub(super) struct Tried<'a> {
    pub(super) ask: &'a Ask,
    pub(super) prepared: &'a Prepared,
    /// What was placed before anything was counted.
    pub(super) before: &'a ClusterState,
    /// How many sets fit.
    pub(super) count: u64,
}

/// A change to try.
enum CandidateChange {
    /// The shape that does not fit is another one.
    Pod(Box<Pod>),
    /// Quotas allow more.
    Quotas(Vec<ResourceQuota>),
}

/// The shape that does not fit.
pub(super) struct Misfit<'a> {
    /// Which one.
    pub(super) shape: usize,
    /// Why no node takes it, node by node.
    pub(super) rejections: &'a [Option<Rejection>],
    /// The bound that holds.
    pub(super) binding: &'a str,
}

/// Makes one change at a time and counts anew; ends with those tried so far when `going` says that nobody waits any more.
pub(super) fn help(
    cluster: &mut Cluster,
    profiles: &Profiles,
    state: &ClusterState,
    tried: &Tried<'_>,
    misfit: &Misfit<'_>,
    going: &mut dyn FnMut(u64) -> bool,
) -> Vec<Help> {
    let Misfit { shape, rejections, binding } = *misfit;
    let pod = &tried.prepared.admitted[shape].pod;
    let mut candidates: Vec<(String, CandidateChange)> = Vec::new();
    match binding.strip_prefix("quota/") {
        Some(quota) => candidates.extend(within_quota(cluster, tried, quota)),
        None => {
            let mut changed = lower_requests(cluster, state, pod, rejections);
            changed.extend(tolerate(cluster, rejections, pod));
            changed.extend(drop_selectors(pod));
            candidates.extend(
                changed.into_iter().map(|(change, pod)| (change, CandidateChange::Pod(Box::new(pod)))),
            );
        }
    }
    let mut help = Vec::new();
    for (change, with) in candidates {
        if !going(0) {
            break;
        }
        let admits = gain(cluster, profiles, tried, shape, with, going);
        help.extend(admits.filter(|admits| *admits > 0).map(|admits| Help { change, admits }));
    }
    help.sort_by(|a, b| b.admits.cmp(&a.admits).then_with(|| a.change.cmp(&b.change)));
    help
}

/// How many more fit with a change: the whole question, asked again.
fn gain(
    cluster: &mut Cluster,
    profiles: &Profiles,
    tried: &Tried<'_>,
    shape: usize,
    with: CandidateChange,
    going: &mut dyn FnMut(u64) -> bool,
) -> Option<u64> {
    let mut ask = Ask { first: Vec::new(), help: false, ..tried.ask.clone() };
    ask.max = Some(tried.count.saturating_add(COUNTED));
    let counted = match with {
        CandidateChange::Pod(pod) => {
            ask.shapes[shape].pod = *pod;
            tally(cluster, profiles, tried.before, &ask, None, going)
        }
        CandidateChange::Quotas(quotas) => {
            let stored = std::mem::replace(&mut cluster.quotas, quotas);
            let counted = tally(cluster, profiles, tried.before, &ask, None, going);
            cluster.quotas = stored;
            counted
        }
    };
    // A change that cannot be counted is no help.
    Some(counted.ok()?.saturating_sub(tried.count))
}

/// What lets one set more through a quota: more of it, or pods that ask for less.
fn within_quota(cluster: &Cluster, tried: &Tried<'_>, quota: &str) -> Vec<(String, CandidateChange)> {
    let tight = quota::tight(quota, &tried.prepared.counted(tried.ask), tried.count);
    let more = i64::try_from(tried.count.saturating_add(1)).unwrap_or(i64::MAX);
    let raised = tight.iter().map(|t| format!("{} to {}", t.resource, t.needed(more).canonical()));
    let raised = raised.collect::<Vec<_>>().join(" and ");
    let namespaces: Vec<&str> =
        tried.prepared.admitted.iter().map(|admitted| admitted.pod.metadata.namespace_or_default()).collect();
    let mut quotas = cluster.quotas.clone();
    let named = quotas.iter_mut().filter(|known| {
        known.metadata.name == quota && namespaces.contains(&known.metadata.namespace_or_default())
    });
    for known in named {
        let hard = tight.iter().map(|t| (t.resource.clone(), t.needed(more)));
        known.spec.hard.extend(hard);
    }
    let mut candidates = vec![(format!("raise {raised} in quota {quota}"), CandidateChange::Quotas(quotas))];
    if let ([only], [shape]) = (&tried.prepared.admitted[..], &tried.ask.shapes[..]) {
        let pods = more.saturating_mul(i64::try_from(shape.wanted.max(1)).unwrap_or(i64::MAX));
        let lower = with_less(&only.pod, &tight, pods);
        candidates.extend(lower.map(|(change, pod)| (change, CandidateChange::Pod(Box::new(pod)))));
    }
    candidates
}

/// A pod of which so many fit into what a quota leaves, lowered in everything that is tight.
fn with_less(pod: &Pod, tight: &[Tight], pods: i64) -> Option<(String, Pod)> {
    let mut with = pod.clone();
    let mut changes = Vec::new();
    for Tight { resource, used, hard, .. } in tight {
        let (of, name) = match resource.split_once('.') {
            Some((of @ ("limits" | "requests"), name)) => (of, name),
            None if matches!(resource.as_str(), "cpu" | "memory" | "ephemeral-storage") => {
                ("requests", resource.as_str())
            }
            _ => return None,
        };
        // What is not shared out in any amount is not lowered.
        let unit: i128 = match name {
            "cpu" => 1_000_000,
            "memory" | "ephemeral-storage" => 1_000_000_000 << 20,
            _ => return None,
        };
        let each = (hard.nano() - used.nano()) / i128::from(pods.max(1));
        let each = each - each.rem_euclid(unit);
        let amount = i64::try_from(each / if name == "cpu" { 1_000_000 } else { 1_000_000_000 }).ok()?;
        (amount > 0).then_some(())?;
        lower_to(&mut with, of, name, amount)?;
        let of = of.trim_end_matches('s');
        changes.push(format!("the {name} {of} to {}", amount_text(name, amount)));
    }
    (!changes.is_empty()).then(|| (format!("lower {}", changes.join(" and ")), with))
}

/// Brings the pod's whole request or limit of a resource down to an amount; a request stays below its limit.
fn lower_to(pod: &mut Pod, of: &str, name: &str, amount: i64) -> Option<()> {
    let mut symbols = Symbols::default();
    let mut names = ResourceNames::new(&mut symbols);
    let whole = match of {
        "limits" => pod_limits(pod, &mut names, &mut symbols),
        _ => pod_requests(pod, &mut names, &mut symbols).plain,
    };
    let index = names.find(name, &symbols)?;
    let now = whole.iter().find(|(known, _)| *known == index).map(|(_, amount)| *amount)?;
    let by = now.checked_sub(amount).filter(|by| *by > 0)?;
    let by = if name == "cpu" { Quantity::from_milli(by) } else { Quantity::from_units(by) };
    let asked = |r: &Requirements| {
        if of == "limits" { r.limits.get(name).copied() } else { r.requests.get(name).copied() }
    };
    let largest = pod.spec.containers.iter_mut().map(|container| &mut container.resources);
    let largest = largest.filter(|r| asked(r).is_some()).max_by_key(|r| asked(r).map(Quantity::nano));
    let resources = pod.spec.resources.as_mut().filter(|whole| asked(whole).is_some()).or(largest)?;
    let lower = asked(resources)?.saturating_sub(by);
    (lower.nano() > 0).then_some(())?;
    if of == "limits" {
        resources.limits.insert(name.to_owned(), lower);
        let request = resources.requests.get_mut(name).filter(|request| request.nano() > lower.nano());
        request.into_iter().for_each(|request| *request = lower);
    } else {
        resources.requests.insert(name.to_owned(), lower);
    }
    Some(())
}

/// For each resource that alone is short somewhere: the most that would fit on such a node.
fn lower_requests(
    cluster: &Cluster,
    state: &ClusterState,
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
        name if matches!(name, "memory" | "ephemeral-storage") || name.starts_with("hugepages-") => {
            let binary = Quantity::from_bytes(u64::try_from(amount).unwrap_or(0)).canonical();
            let decimal = Quantity::from_units(amount).canonical();
            // 4G is no round number of Ki.
            if decimal.len() < binary.len() { decimal } else { binary }
        }
        _ => Quantity::from_units(amount).canonical(),
    }
}
