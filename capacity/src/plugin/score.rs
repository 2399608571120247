//! Scores of nodes for one pod: each plugin's, normalised and weighted.

use super::cycle::Cycle;
use super::{affinity, spread};
use crate::cluster::resources::{CPU, MEMORY, ResourceIndex};
use crate::cluster::{Cluster, NodeIndex};
use crate::profile::{FitStrategy, Profile, Score, Version};
use crate::state::State;

/// Weighted scores of the feasible nodes.
#[derive(Debug, Clone, Default)]
pub struct Scores {
    /// Sum by node, in the order of the feasible nodes.
    pub totals: Vec<i64>,
    /// Weight times normalised score of each plugin that took part.
    pub by_plugin: Vec<(Score, Vec<i64>)>,
}

/// Scores every feasible node.
pub(super) fn score(
    cycle: &Cycle,
    cluster: &Cluster,
    profile: &Profile,
    state: &State,
    feasible: &[NodeIndex],
) -> Scores {
    let mut scores = Scores { totals: vec![0; feasible.len()], by_plugin: Vec::new() };
    for (plugin, weight) in &profile.scores {
        if let Some(normal) = normalized(*plugin, cycle, cluster, profile, state, feasible) {
            let weighted: Vec<i64> = normal.into_iter().map(|score| score * weight).collect();
            for (total, score) in scores.totals.iter_mut().zip(&weighted) {
                *total += score;
            }
            scores.by_plugin.push((*plugin, weighted));
        }
    }
    scores
}

/// A plugin's scores, 0 to 100; `None` when it has nothing to say about this pod.
fn normalized(
    plugin: Score,
    cycle: &Cycle,
    cluster: &Cluster,
    profile: &Profile,
    state: &State,
    feasible: &[NodeIndex],
) -> Option<Vec<i64>> {
    let local = |score: &dyn Fn(NodeIndex) -> i64| Some(feasible.iter().map(|node| score(*node)).collect());
    match plugin {
        Score::NodeResourcesFit => local(&|node| cycle.fit_score(profile, state, node)),
        Score::NodeResourcesBalancedAllocation => {
            cycle.asks_for(&profile.balanced_resources).then_some(())?;
            local(&|node| cycle.balanced_score(profile, state, node))
        }
        Score::ImageLocality => local(&|node| cycle.fixed.images[node]),
        Score::TaintToleration => {
            let raw: Vec<i64> = feasible.iter().map(|node| cycle.fixed.soft_taints[*node]).collect();
            let most = raw.iter().copied().max().unwrap_or(0);
            Some(raw.into_iter().map(|count| fewer_is_better(count, most)).collect())
        }
        Score::NodeAffinity => {
            let preferred = cycle.fixed.preferred.as_ref()?;
            let raw: Vec<i64> = feasible.iter().map(|node| preferred[*node]).collect();
            let most = raw.iter().copied().max().unwrap_or(0);
            Some(raw.into_iter().map(|weight| more_is_better(weight, most)).collect())
        }
        Score::PodTopologySpread => {
            Some(spread::normalize(&cycle.soft_spread.as_ref()?.raw_scores(feasible)))
        }
        Score::InterPodAffinity => {
            Some(affinity::normalize(&cycle.affinity.as_ref()?.raw_scores(cluster, feasible)?))
        }
    }
}

/// 100 for none, 0 for the most.
pub(crate) fn fewer_is_better(count: i64, most: i64) -> i64 {
    if most == 0 { 100 } else { 100 - 100 * count / most }
}

/// 100 for the most.
pub(crate) fn more_is_better(weight: i64, most: i64) -> i64 {
    if most == 0 { 0 } else { 100 * weight / most }
}

/// Share of a resource that is left, 0 to 100, rounded down.
pub(crate) fn least_allocated(requested: i64, allocatable: i64) -> i64 {
    if allocatable == 0 || requested > allocatable { 0 } else { share(allocatable - requested, allocatable) }
}

/// `part * 100 / whole`, also where the product would not fit 64 bits.
fn share(part: i64, whole: i64) -> i64 {
    match part.checked_mul(100) {
        Some(product) => product / whole,
        None => (i128::from(part) * 100 / i128::from(whole)) as i64,
    }
}

impl Cycle {
    /// Requested amounts with this pod, as the fit score counts them: CPU and memory of containers that ask for nothing
    /// count a little. `None` where the resource takes no part.
    #[inline]
    fn scored_use(&self, state: &State, node: NodeIndex, resource: ResourceIndex) -> Option<(i64, i64)> {
        let allocatable = state.allocatable.get(resource)?[node];
        let requested = match resource {
            CPU | MEMORY => {
                state.scored[resource][node].saturating_add(self.pod.requests.scored_alone[resource])
            }
            _ => {
                let own = self.request(resource);
                if own == 0 && resource > crate::cluster::resources::EPHEMERAL {
                    return None;
                }
                state.requested[resource][node].saturating_add(own)
            }
        };
        (allocatable != 0).then_some((requested, allocatable))
    }

    /// `NodeResourcesFit`, 0 to 100.
    #[inline]
    pub(crate) fn fit_score(&self, profile: &Profile, state: &State, node: NodeIndex) -> i64 {
        let (mut sum, mut weights) = (0, 0);
        for (resource, weight) in &profile.fit_resources {
            let Some((requested, allocatable)) = self.scored_use(state, node, *resource) else { continue };
            let score = match &profile.fit {
                FitStrategy::LeastAllocated => least_allocated(requested, allocatable),
                FitStrategy::MostAllocated => share(requested.min(allocatable), allocatable),
                FitStrategy::RequestedToCapacityRatio(points) => {
                    let used = if requested > allocatable { 100 } else { share(requested, allocatable) };
                    let score = broken_line(points, used);
                    if score <= 0 {
                        continue;
                    }
                    score
                }
            };
            sum += score * weight;
            weights += weight;
        }
        if weights == 0 {
            return 0;
        }
        match profile.fit {
            FitStrategy::RequestedToCapacityRatio(_) => (sum as f64 / weights as f64).round() as i64,
            _ => sum / weights,
        }
    }

    /// `NodeResourcesBalancedAllocation`, 0 to 100.
    #[inline]
    pub(crate) fn balanced_score(&self, profile: &Profile, state: &State, node: NodeIndex) -> i64 {
        let with = self.balance(profile, state, node, true);
        match profile.version {
            Version::V1_34 => with,
            Version::V1_36 => 50 + (50 + with - self.balance(profile, state, node, false)) / 2,
        }
    }

    #[inline]
    fn balance(&self, profile: &Profile, state: &State, node: NodeIndex, with_own: bool) -> i64 {
        let fraction = |resource: ResourceIndex| {
            let allocatable = state.allocatable.get(resource)?[node];
            let own = self.request(resource);
            if allocatable == 0 || (own == 0 && resource > crate::cluster::resources::EPHEMERAL) {
                return None;
            }
            let requested = state.requested[resource][node].saturating_add(if with_own { own } else { 0 });
            Some((requested as f64 / allocatable as f64).min(1.0))
        };
        let deviation = if let [first, second] = profile.balanced_resources[..] {
            match (fraction(first), fraction(second)) {
                (Some(first), Some(second)) => ((first - second) / 2.0).abs(),
                _ => 0.0,
            }
        } else {
            let fractions: Vec<f64> =
                profile.balanced_resources.iter().filter_map(|r| fraction(*r)).collect();
            deviation(&fractions)
        };
        ((1.0 - deviation) * 100.0) as i64
    }
}

/// Half the distance of two, else the standard deviation.
fn deviation(fractions: &[f64]) -> f64 {
    match fractions {
        [] | [_] => 0.0,
        [first, second] => ((first - second) / 2.0).abs(),
        all => {
            let mean = all.iter().sum::<f64>() / all.len() as f64;
            (all.iter().map(|f| (f - mean) * (f - mean)).sum::<f64>() / all.len() as f64).sqrt()
        }
    }
}

/// Value at `x` of the line through points sorted by x; level outside them.
fn broken_line(points: &[(i64, i64)], x: i64) -> i64 {
    for (at, (right, height)) in points.iter().enumerate() {
        if x <= *right {
            let Some((left, low)) = at.checked_sub(1).map(|before| points[before]) else { return *height };
            return low + (height - low) * (x - left) / (right - left).max(1);
        }
    }
    points.last().map_or(0, |(_, height)| *height)
}
