//! Subtrees given to the agent: what their inner cgroups must hold for the leaves' promises to be kept.
//!
//! Owned here: `memory.min` and `memory.low` of an inner cgroup are the sums of what lies below it, weights per
//! level follow from the sum of requests, and the order of writes: raised from the top, lowered from the bottom,
//! so that no leaf's promise is uncovered in between. Not owned: which subtrees, writing.
//!
//! Inside an owned subtree every sibling is the agent's, so weights need not compare with what a runtime wrote.
//! They are then proportional to requests at the finest scale the node allows ([`scaled_weight`]): the
//! runtimes' curve turns 600m and 300m into 67 and 40, not 2:1. Only the topmost cgroup of the subtree, whose
//! siblings are others', uses the node's conversion.

use std::collections::BTreeMap;

use evenkeel_model::units::{Bytes, CpuShares, CpuWeight, MilliCpu};

use crate::cpu::{WeightConversion, shares_from_milli};
use crate::effective::ProtectionKnob;
use crate::fair::Allotment;
use crate::plan::Wish;
use crate::why::{self, Below, Origin, ScaledWeight, Shares, Why};

/// A container in an owned subtree and what it is promised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Path of its cgroup below the hierarchy's root.
    pub path: String,
    /// Its `memory.min`; zero where none is wished.
    pub min: Bytes,
    /// Its `memory.low`; zero where none is wished.
    pub low: Bytes,
    /// Its CPU request; zero where it has none.
    pub request: MilliCpu,
}

/// What an inner cgroup holds now; `None` where it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Current {
    /// `memory.min`.
    pub min: Option<Bytes>,
    /// `memory.low`.
    pub low: Option<Bytes>,
}

/// What an inner cgroup should hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerCgroup {
    /// `memory.min`.
    pub min: Wish<Bytes>,
    /// `memory.low`.
    pub low: Wish<Bytes>,
    /// `cpu.weight` (v2).
    pub weight: Wish<CpuWeight>,
    /// `cpu.shares` (v1).
    pub shares: Wish<CpuShares>,
    /// Sum of the requests below it.
    pub request: MilliCpu,
}

/// One value to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InnerValue {
    /// `memory.min`.
    Min(Wish<Bytes>),
    /// `memory.low`.
    Low(Wish<Bytes>),
    /// `cpu.weight` (v2).
    Weight(Wish<CpuWeight>),
    /// `cpu.shares` (v1).
    Shares(Wish<CpuShares>),
}

/// One write, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerWrite {
    /// The inner cgroup.
    pub path: String,
    /// What to write.
    pub value: InnerValue,
}

/// How requests become weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The node's conversion.
    pub conversion: WeightConversion,
    /// What the topmost cgroup counts as requesting among its siblings (`system.slice`, ...), as the kubelet
    /// gives `kubepods` what is allocatable; at least the sum below it is used.
    pub root_request: MilliCpu,
    /// CPU of the node, which is the largest weight inside the subtree.
    pub node: MilliCpu,
}

/// What counts as requested by whoever requests less: about the 2 of 1024 shares that the kubelet gives at least. By the
/// finest scale alone, who requests nothing would get a five-thousandth of what half a core gets, which is none.
pub(crate) const LEAST_REQUEST: MilliCpu = MilliCpu::new(2);

/// Weight inside an owned subtree: `request x 10000 / node`, rounded, within 1..10000, of at least 2m. Leaves of an owned
/// subtree take this one too, in place of what `plan` wishes by the conversion.
pub fn scaled_weight(request: MilliCpu, node: MilliCpu) -> CpuWeight {
    let (request, node) = (u128::from(request.max(LEAST_REQUEST).get()), u128::from(node.get().max(1)));
    let weight = (request * u128::from(CpuWeight::MAX.get()) + node / 2) / node;
    CpuWeight::clamped(i64::try_from(weight).unwrap_or(i64::MAX))
}

/// The wish for the weight of a container in an owned subtree.
pub fn leaf_weight(request: MilliCpu, node: MilliCpu) -> Wish<CpuWeight> {
    let why = ScaledWeight { cpu_request_milli: request, node_cpu_milli: node, below: None };
    Why::ScaledWeight(why).wish(scaled_weight(request, node))
}

#[derive(Debug, Clone, Copy, Default)]
struct ProtectionSums {
    min: Bytes,
    low: Bytes,
    request: MilliCpu,
    leaves: u64,
}

/// What every inner cgroup of the subtree `root` should hold, from `root` itself to the parents of leaves, by
/// path. Leaves outside the subtree are not counted; the insides of a container are its own.
pub fn inner(root: &str, rule: Rule, leaves: &[Leaf]) -> BTreeMap<String, InnerCgroup> {
    divided(root, rule, leaves, &BTreeMap::new())
}

/// The same where some of these cgroups have a fair part of the CPU, which takes the place of what follows from
/// requests.
pub(crate) fn divided(
    root: &str,
    rule: Rule,
    leaves: &[Leaf],
    parts: &BTreeMap<String, Allotment>,
) -> BTreeMap<String, InnerCgroup> {
    let root = root.trim_end_matches('/');
    let mut sums: BTreeMap<&str, ProtectionSums> = BTreeMap::new();
    for leaf in leaves.iter().filter(|l| below(root, &l.path)) {
        for ancestor in ancestors(root, &leaf.path) {
            let sum = sums.entry(ancestor).or_default();
            sum.min = sum.min.saturating_add(leaf.min);
            sum.low = sum.low.saturating_add(leaf.low);
            sum.request = sum.request.saturating_add(leaf.request);
            sum.leaves += 1;
        }
    }
    for leaf in leaves {
        sums.remove(leaf.path.as_str());
    }
    let hold = |(path, sum): (&str, ProtectionSums)| {
        (path.to_owned(), hold(sum, path == root, rule, parts.get(path)))
    };
    sums.into_iter().map(hold).collect()
}

fn hold(sum: ProtectionSums, is_root: bool, rule: Rule, part: Option<&Allotment>) -> InnerCgroup {
    let memory = |of, children_sum| {
        Why::SumOfChildren(why::InnerProtection { leaves: sum.leaves, children_sum, of }).wish(children_sum)
    };
    let request = if is_root { sum.request.max(rule.root_request) } else { sum.request };
    let below = Some(Below { leaves: sum.leaves, requests_sum_milli: sum.request });
    let (cpu_request_milli, origin) = (request, Origin::default());
    let shares = shares_from_milli(request);
    let weight = if let Some(part) = part {
        part.weight_wish()
    } else if is_root {
        let (cpu_shares, conversion) = (Some(shares.get()), rule.conversion);
        Why::Weight(why::Weight { cpu_request_milli, cpu_shares, conversion, below, origin })
            .wish(conversion.weight_from_shares(shares))
    } else {
        Why::ScaledWeight(ScaledWeight { cpu_request_milli, node_cpu_milli: rule.node, below })
            .wish(scaled_weight(request, rule.node))
    };
    InnerCgroup {
        min: memory(ProtectionKnob::Min, sum.min),
        low: memory(ProtectionKnob::Low, sum.low),
        weight,
        shares: part.map_or_else(
            || Why::Shares(Shares { cpu_request_milli, below, origin }).wish(shares),
            Allotment::shares_wish,
        ),
        request,
    }
}

/// The writes that take the inner cgroups from what they hold to what they should, in an order that never
/// uncovers a leaf: protections that grow from the top down, then weights, then protections that shrink from the
/// bottom up. Values that already hold are left out.
pub fn steps(wanted: &BTreeMap<String, InnerCgroup>, now: &BTreeMap<String, Current>) -> Vec<InnerWrite> {
    let mut paths: Vec<_> = wanted.iter().collect();
    // By depth; paths of one depth in their own order.
    paths.sort_by_key(|(path, _)| path.matches('/').count());
    let (mut raise, mut weights, mut lower) = (Vec::new(), Vec::new(), Vec::new());
    for (path, inner) in paths {
        let current = now.get(path).copied().unwrap_or_default();
        let step = |value| InnerWrite { path: path.clone(), value };
        let protections = [
            (current.min, inner.min.value, InnerValue::Min(inner.min.clone())),
            (current.low, inner.low.value, InnerValue::Low(inner.low.clone())),
        ];
        for (held, wished, value) in protections {
            match held {
                Some(held) if held == wished => {}
                Some(held) if held > wished => lower.push(step(value)),
                _ => raise.push(step(value)),
            }
        }
        weights.push(step(InnerValue::Weight(inner.weight.clone())));
        weights.push(step(InnerValue::Shares(inner.shares.clone())));
    }
    lower.reverse();
    raise.into_iter().chain(weights).chain(lower).collect()
}

/// Whether `path` lies below `root` (not `root` itself).
pub fn below(root: &str, path: &str) -> bool {
    let root = root.trim_end_matches('/');
    path.strip_prefix(root).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

/// The cgroups from `root` to the parent of `path`, which lies below `root`.
fn ancestors<'a>(root: &str, path: &'a str) -> impl Iterator<Item = &'a str> {
    let ends = path.match_indices('/').map(|(at, _)| at);
    let start = root.len();
    ends.filter(move |at| *at >= start && *at > 0).map(|at| &path[..at])
}
