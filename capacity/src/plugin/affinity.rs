//! Near and away from other pods: required terms filter, preferred ones score (`interpodaffinity`).

use evenkeel_model::narrow::f64_to_i64;
use std::collections::HashMap;

use super::reason::Rejection;
use crate::cluster::{Cluster, NodeIndex, PodInfo, Symbol, Term};
use crate::profile::Profile;
use crate::state::ClusterState;

/// Sums by the value of one node label.
#[derive(Debug, Clone, Default)]
struct ByKey(HashMap<(Symbol, Symbol), AffinitySum>);

/// Amounts of pods added up. A sum of nothing that pods add to is not the same as no pod: the score takes part then.
#[derive(Debug, Clone, Copy, Default)]
struct AffinitySum {
    amount: i64,
    /// How many were added.
    parts: i64,
}

impl ByKey {
    /// Adds an amount (`sign` 1) or takes it off again (-1).
    fn add(&mut self, cluster: &Cluster, key: Symbol, node: NodeIndex, amount: i64, sign: i64) {
        if let Some(value) = cluster.nodes[node].labels.get(key) {
            let sum = self.0.entry((key, value)).or_default();
            sum.amount += sign * amount;
            sum.parts += sign;
            if sum.parts == 0 {
                self.0.remove(&(key, value));
            }
        }
    }

    fn get(&self, key: Symbol, value: Symbol) -> i64 {
        self.0.get(&(key, value)).map_or(0, |sum| sum.amount)
    }
}

/// What one other pod means to this one; the same for all clones of it.
#[derive(Debug, Clone, Default)]
struct Effects {
    /// It meets every required affinity.
    meets_all: bool,
    /// Which of the required anti-affinities it meets.
    away: Vec<Symbol>,
    /// Its own required anti-affinities that this pod meets.
    keeps_away: Vec<Symbol>,
    /// What it adds to the score where it is.
    score: Vec<(Symbol, i64)>,
}

/// Near and away, for one pod.
#[derive(Debug, Clone)]
pub(crate) struct AffinityRules {
    near: Box<[Term]>,
    away: Box<[Term]>,
    /// The pod meets its own required affinity: the first of a group may begin anywhere.
    meets_own: bool,
    near_counts: ByKey,
    away_counts: ByKey,
    others_away: ByKey,
    scores: ByKey,
    /// What one more of its own kind means.
    own: Option<Box<Effects>>,
    /// What every other pod means, by its number.
    cache: HashMap<u32, Option<Box<Effects>>>,
    pod: std::sync::Arc<PodInfo>,
    hard_weight: i64,
    /// What others would like does not count.
    own_preferences_only: bool,
}

impl AffinityRules {
    /// Rules of a pod against everybody placed; `None` when neither it nor anybody has any.
    pub(crate) fn new(
        cluster: &Cluster,
        profile: &Profile,
        state: &ClusterState,
        pod: &std::sync::Arc<PodInfo>,
    ) -> Option<Self> {
        if !pod.is_affine() && !state.affine {
            return None;
        }
        let labels = cluster.namespace_labels(pod.namespace);
        let meets_own = pod
            .affinity
            .iter()
            .all(|term| term.matches(pod.namespace, labels, &pod.labels, &cluster.symbols));
        let mut rules = Self {
            near: pod.affinity.clone(),
            away: pod.anti_affinity.clone(),
            meets_own,
            near_counts: ByKey::default(),
            away_counts: ByKey::default(),
            others_away: ByKey::default(),
            scores: ByKey::default(),
            own: None,
            cache: HashMap::new(),
            pod: std::sync::Arc::clone(pod),
            hard_weight: profile.hard_pod_affinity_weight,
            own_preferences_only: profile.own_pod_preferences_only,
        };
        rules.own = rules.effects(cluster, pod);
        for (id, node) in &state.placements {
            rules.note(cluster, state, *id, *node as usize, 1);
        }
        Some(rules)
    }

    /// Takes in that a pod was put on a node (or taken off it).
    pub(crate) fn note(
        &mut self,
        cluster: &Cluster,
        state: &ClusterState,
        id: u32,
        node: NodeIndex,
        sign: i64,
    ) {
        if !self.cache.contains_key(&id) {
            let effects = self.effects(cluster, state.pod(id));
            self.cache.insert(id, effects);
        }
        let Some(Some(effects)) = self.cache.get(&id) else { return };
        if effects.meets_all {
            for term in &self.near {
                self.near_counts.add(cluster, term.key, node, 1, sign);
            }
        }
        for key in &effects.away {
            self.away_counts.add(cluster, *key, node, 1, sign);
        }
        for key in &effects.keeps_away {
            self.others_away.add(cluster, *key, node, 1, sign);
        }
        for (key, weight) in &effects.score {
            self.scores.add(cluster, *key, node, *weight, sign);
        }
    }

    fn effects(&self, cluster: &Cluster, other: &PodInfo) -> Option<Box<Effects>> {
        let symbols = &cluster.symbols;
        let of_other = cluster.namespace_labels(other.namespace);
        let of_own = cluster.namespace_labels(self.pod.namespace);
        let speaks_of_other = |term: &Term| term.matches(other.namespace, of_other, &other.labels, symbols);
        let speaks_of_own = |term: &Term| term.matches(self.pod.namespace, of_own, &self.pod.labels, symbols);
        let mut score: Vec<(Symbol, i64)> = Vec::new();
        let mut add = |terms: &[(i64, Term)], sign: i64, speaks: &dyn Fn(&Term) -> bool| {
            let spoken = terms.iter().filter(|(_, term)| speaks(term));
            score.extend(spoken.map(|(weight, term)| (term.key, sign * weight)));
        };
        add(&self.pod.preferred, 1, &speaks_of_other);
        add(&self.pod.anti_preferred, -1, &speaks_of_other);
        if !self.own_preferences_only {
            add(&other.preferred, 1, &speaks_of_own);
            add(&other.anti_preferred, -1, &speaks_of_own);
        }
        if self.hard_weight > 0 {
            let required = other.affinity.iter().filter(|term| speaks_of_own(term));
            score.extend(required.map(|term| (term.key, self.hard_weight)));
        }
        let effects = Effects {
            meets_all: !self.near.is_empty() && self.near.iter().all(speaks_of_other),
            away: self.away.iter().filter(|term| speaks_of_other(term)).map(|term| term.key).collect(),
            keeps_away: other
                .anti_affinity
                .iter()
                .filter(|term| speaks_of_own(term))
                .map(|term| term.key)
                .collect(),
            score,
        };
        let any = effects.meets_all
            || !(effects.away.is_empty() && effects.keeps_away.is_empty() && effects.score.is_empty());
        any.then(|| Box::new(effects))
    }

    /// Why a node is refused.
    pub(crate) fn refuses(&self, cluster: &Cluster, node: NodeIndex) -> Option<Rejection> {
        let labels = &cluster.nodes[node].labels;
        let mut met = true;
        for term in &self.near {
            let Some(value) = labels.get(term.key) else { return Some(Rejection::Affinity) };
            met &= self.near_counts.get(term.key, value) > 0;
        }
        // The first of a group that wants to be together may go anywhere.
        let first_of_group = self.near_counts.0.is_empty() && self.meets_own;
        if !(met || first_of_group) {
            return Some(Rejection::Affinity);
        }
        let near_one =
            |key: Symbol, counts: &ByKey| labels.get(key).is_some_and(|value| counts.get(key, value) > 0);
        if self.away.iter().any(|term| near_one(term.key, &self.away_counts)) {
            return Some(Rejection::AntiAffinity);
        }
        let keeps_away = self.others_away.0.keys().any(|(key, value)| labels.get(*key) == Some(*value));
        keeps_away.then_some(Rejection::OthersAntiAffinity)
    }

    /// Whether placing this very pod changes nothing but where it wants to be away from its own kind: its own score
    /// stays as it is, and required neighbours are found already or not asked for.
    pub(crate) fn is_settled(&self) -> bool {
        let changes_score = self.own.as_ref().is_some_and(|own| !own.score.is_empty());
        !changes_score && (self.near.is_empty() || !self.near_counts.0.is_empty())
    }

    /// Node labels by whose value one of its own kind keeps further ones away.
    pub(crate) fn closing_keys(&self) -> Vec<Symbol> {
        let own = self.own.iter();
        let mut keys: Vec<Symbol> =
            own.flat_map(|own| own.away.iter().chain(&own.keeps_away)).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    /// Raw scores of nodes; `None` when nothing adds to any.
    pub(crate) fn raw_scores(&self, cluster: &Cluster, feasible: &[NodeIndex]) -> Option<Vec<i64>> {
        if self.scores.0.is_empty() {
            return None;
        }
        let mut keys: Vec<Symbol> = self.scores.0.keys().map(|(key, _)| *key).collect();
        keys.sort_unstable();
        keys.dedup();
        let score = |node: &NodeIndex| {
            let labels = &cluster.nodes[*node].labels;
            let part = |key: &Symbol| labels.get(*key).map_or(0, |value| self.scores.get(*key, value));
            keys.iter().map(part).sum()
        };
        Some(feasible.iter().map(score).collect())
    }
}

/// Raw scores to 0..=100 by the distance between the least and the most, in the scheduler's own doubles.
pub(super) fn normalize(raw: &[i64]) -> Vec<i64> {
    let (Some(least), Some(most)) = (raw.iter().min(), raw.iter().max()) else { return Vec::new() };
    raw.iter().map(|score| spread_over(*score, *least, *most)).collect()
}

/// Where a score lies between the least (0) and the most (100).
pub(crate) fn spread_over(score: i64, least: i64, most: i64) -> i64 {
    let span = most - least;
    if span > 0 { f64_to_i64(100.0 * ((score - least) as f64 / span as f64)) } else { 0 }
}
