//! The cheapest nodes to add: a mix of types that holds what is missing, and a bound no mix can beat.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::add::{Addition, NodeType};
use crate::cluster::resources::amount;

/// Pods beyond which the bulk is served by the type with the best price a pod, and the rest exactly.
const EXACT: u64 = 1 << 16;

/// The cheapest mix of nodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Mix {
    /// How many nodes of which type.
    pub nodes: BTreeMap<String, u64>,
    /// How many pods they hold.
    pub holds: u64,
    /// Price of all, per hour.
    pub price: f64,
    /// No mix of these types costs less, per hour: every pod (or the dearest resource) at its best price.
    pub lower_bound: f64,
}

/// One type with a price.
struct Priced<'a> {
    name: &'a str,
    pods: u64,
    price: f64,
}

/// The cheapest mix for `missing` pods, from what one node of each type holds; `None` when no type with a price holds
/// any.
pub fn mix(additions: &[Addition], types: &[NodeType], missing: u64) -> Option<Mix> {
    let priced = |addition: &Addition| {
        let kind = types.iter().find(|kind| kind.name == addition.r#type)?;
        let price = kind.price.filter(|price| price.is_finite() && *price >= 0.0)?;
        (addition.per_node > 0).then_some((addition.per_node, price))
    };
    let mut types: Vec<Priced<'_>> = additions
        .iter()
        .filter_map(|a| priced(a).map(|(pods, price)| Priced { name: &a.r#type, pods, price }))
        .collect();
    // Of equal price a pod the smaller type: less is bought in vain.
    let rate = |kind: &Priced<'_>| kind.price / kind.pods as f64;
    types.sort_by(|a, b| rate(a).total_cmp(&rate(b)).then(a.pods.cmp(&b.pods)).then(a.name.cmp(b.name)));
    let best = types.first()?;
    let lower_bound = missing as f64 * rate(best);
    let bulk = missing.saturating_sub(EXACT) / best.pods;
    let mut nodes: BTreeMap<String, u64> = BTreeMap::new();
    if bulk > 0 {
        nodes.insert(best.name.to_owned(), bulk);
    }
    for kind in exact(&types, missing - bulk * best.pods) {
        *nodes.entry(types[kind].name.to_owned()).or_default() += 1;
    }
    let of = |name: &str| types.iter().find(|kind| kind.name == name);
    let (mut holds, mut price) = (0_u64, 0.0);
    for (name, count) in &nodes {
        let Some(kind) = of(name) else { continue };
        holds = holds.saturating_add(kind.pods.saturating_mul(*count));
        price += kind.price * *count as f64;
    }
    Some(Mix { nodes, holds, price, lower_bound })
}

/// The same for complete sets of several shapes, which may lie across nodes: the cheaper of the mix of nodes that each
/// hold whole sets and of one type alone. The bound is what the dearest resource of all sets costs where it is cheapest;
/// `of_set` tells what a set asks of each resource.
pub fn mix_sets(
    additions: &[Addition],
    types: &[NodeType],
    missing: u64,
    of_set: &BTreeMap<String, i64>,
) -> Option<Mix> {
    let alone = additions.iter().filter_map(|addition| {
        let (count, price) = (addition.nodes?, addition.price.filter(|price| price.is_finite())?);
        let nodes = BTreeMap::from([(addition.r#type.clone(), count)]);
        Some(Mix { nodes, holds: missing, price, lower_bound: 0.0 })
    });
    let all = alone.chain(mix(additions, types, missing));
    let cheapest = all.min_by(|a, b| a.price.total_cmp(&b.price))?;
    let bound = |(resource, wanted): (&String, &i64)| {
        let rate = |kind: &NodeType| {
            let capacity = amount(resource, *kind.node.status.allocatable.get(resource)?);
            Some(kind.price? / capacity as f64).filter(|rate| rate.is_finite() && *rate >= 0.0)
        };
        let rate = types.iter().filter_map(rate).min_by(f64::total_cmp)?;
        Some(missing as f64 * *wanted as f64 * rate)
    };
    let lower_bound = of_set.iter().filter_map(bound).fold(0.0, f64::max);
    Some(Mix { lower_bound, ..cheapest })
}

/// The cheapest types, each as often as it is used, that hold so many: for every smaller number first (a covering
/// knapsack).
fn exact(types: &[Priced<'_>], missing: u64) -> Vec<usize> {
    let missing = usize::try_from(missing).unwrap_or(0);
    let mut cheapest: Vec<(f64, usize)> = vec![(0.0, 0)];
    for pods in 1..=missing {
        let with = |(at, kind): (usize, &Priced<'_>)| {
            let left = pods.saturating_sub(usize::try_from(kind.pods).unwrap_or(usize::MAX));
            (cheapest[left].0 + kind.price, at)
        };
        let best = types.iter().enumerate().map(with).min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        cheapest.push(best.unwrap_or((f64::INFINITY, 0)));
    }
    let (mut left, mut chosen) = (missing, Vec::new());
    while left > 0 {
        let kind = cheapest[left].1;
        chosen.push(kind);
        left = left.saturating_sub(usize::try_from(types[kind].pods).unwrap_or(usize::MAX));
    }
    chosen
}
