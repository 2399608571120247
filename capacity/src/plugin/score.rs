//! Scores of nodes for one pod: each plugin's, normalised and weighted.

use super::cycle::Cycle;
use super::registry::{PluginView, ScorePlugin};
use crate::cluster::NodeIndex;
use crate::cluster::resources::{CPU, MEMORY, ResourceIndex};
use crate::profile::{FitStrategy, Profile, Version};
use crate::state::ClusterState;
use evenkeel_model::narrow::f64_to_i64;

/// Weighted scores of the feasible nodes.
#[derive(Debug, Clone, Default)]
pub struct Scores {
    /// Sum by node, in the order of the feasible nodes.
    pub totals: Vec<i64>,
    /// Weight times normalised score of each plugin that took part.
    pub by_plugin: Vec<(&'static str, Vec<i64>)>,
}

/// Scores every feasible node.
pub(super) fn score(view: &PluginView<'_>, feasible: &[NodeIndex]) -> Scores {
    let mut scores = Scores { totals: vec![0; feasible.len()], by_plugin: Vec::new() };
    for (plugin, weight) in &view.profile.scores {
        if let Some(normal) = plugin.scores(view, feasible) {
            scores.add(plugin.name(), normal.into_iter().map(|score| score * weight).collect());
        }
    }
    for (plugin, weight) in &view.profile.own_scores {
        if let Some(mut normal) = plugin.scores(view, feasible) {
            normal.resize(feasible.len(), 0);
            let weighted = normal.into_iter().map(|score| score.clamp(0, 100) * weight);
            scores.add(plugin.name(), weighted.collect());
        }
    }
    scores
}

impl Scores {
    /// Adds what one plugin gives, weighted.
    pub(crate) fn add(&mut self, plugin: &'static str, weighted: Vec<i64>) {
        for (total, score) in self.totals.iter_mut().zip(&weighted) {
            *total = total.saturating_add(*score);
        }
        self.by_plugin.push((plugin, weighted));
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
        None => i64::try_from(i128::from(part) * 100 / i128::from(whole)).unwrap_or(i64::MAX),
    }
}

impl Cycle {
    /// Requested amounts with this pod, as the fit score counts them: CPU and memory of containers that ask for nothing
    /// count a little. `None` where the resource takes no part.
    #[inline]
    fn scored_use(
        &self,
        state: &ClusterState,
        node: NodeIndex,
        resource: ResourceIndex,
    ) -> Option<(i64, i64)> {
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
    pub(crate) fn fit_score(&self, profile: &Profile, state: &ClusterState, node: NodeIndex) -> i64 {
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
            FitStrategy::RequestedToCapacityRatio(_) => f64_to_i64((sum as f64 / weights as f64).round()),
            _ => sum / weights,
        }
    }

    /// `NodeResourcesBalancedAllocation`, 0 to 100.
    #[inline]
    pub(crate) fn balanced_score(&self, profile: &Profile, state: &ClusterState, node: NodeIndex) -> i64 {
        let with = self.balance(profile, state, node, true);
        match profile.version {
            Version::V1_34 => with,
            Version::V1_36 => 50 + (50 + with - self.balance(profile, state, node, false)) / 2,
        }
    }

    #[inline]
    fn balance(&self, profile: &Profile, state: &ClusterState, node: NodeIndex, with_own: bool) -> i64 {
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
        f64_to_i64((1.0 - deviation) * 100.0)
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
