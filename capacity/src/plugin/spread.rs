//! Topology spread: hard constraints filter, soft ones score (`podtopologyspread`).

use evenkeel_model::narrow::{f64_to_i64, usize_to_i64, usize_to_u32};
use std::collections::HashMap;

use super::local::{admits, unborne_taint};
use super::reason::Rejection;
use crate::cluster::selector::{Requirement, Selector};
use crate::cluster::{Cluster, NodeIndex, PodInfo, Spread, Symbol};
use crate::profile::{DefaultSpread, Profile};
use crate::state::ClusterState;

/// A node outside every domain of a constraint.
pub(crate) const NO_DOMAIN: u32 = u32::MAX;

/// One constraint with its counts.
#[derive(Debug, Clone)]
pub(crate) struct Constraint {
    rule: Spread,
    /// The pod itself counts.
    own: i64,
    /// Domain of each node; [`NO_DOMAIN`] without the label.
    pub domain: Vec<u32>,
    /// Nodes whose pods count.
    counted: Vec<bool>,
    /// Matching pods of each node.
    on_node: Vec<i64>,
    /// Matching pods of each domain, over nodes that count.
    pub in_domain: Vec<i64>,
    /// Domains with a node that counts.
    pub eligible: Vec<bool>,
}

/// What a constraint asks for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Terms {
    /// 1 when the pod itself matches.
    pub own: i64,
    /// Pods of this kind count once they are placed.
    pub grows: bool,
    /// Most by which a domain may exceed the least.
    pub max_skew: i64,
    /// With fewer domains the least counts as nothing.
    pub min_domains: i64,
}

/// Constraints of one pod: all hard, or all soft.
#[derive(Debug, Clone)]
pub(crate) struct SpreadRules {
    pub constraints: Vec<Constraint>,
    namespace: Symbol,
    /// A node without any of the labels takes no part.
    all_labels: bool,
    hostname: Symbol,
    /// Whether a pod matches each constraint, by its number.
    cache: HashMap<u32, Vec<bool>>,
}

/// The constraints of a pod: its own, or the profile's defaults for its group.
pub(crate) fn rules(
    cluster: &Cluster,
    profile: &Profile,
    state: &ClusterState,
    pod: &PodInfo,
    hard: bool,
) -> Option<SpreadRules> {
    let defaulted = pod.spread.is_empty();
    let all = if defaulted { defaults(cluster, profile, pod) } else { pod.spread.to_vec() };
    let all: Vec<Spread> = all.into_iter().filter(|rule| rule.hard == hard).collect();
    if all.is_empty() {
        return None;
    }
    let system = defaulted && profile.default_spread == DefaultSpread::System;
    let mut rules = SpreadRules {
        constraints: all.into_iter().map(|rule| Constraint::new(cluster, pod, rule)).collect(),
        namespace: pod.namespace,
        all_labels: !system,
        hostname: cluster.known.hostname,
        cache: HashMap::new(),
    };
    rules.drop_partial_nodes();
    for constraint in &mut rules.constraints {
        constraint.find_eligible();
    }
    for (id, node) in &state.placements {
        rules.note(cluster, state, *id, *node as usize, 1);
    }
    Some(rules)
}

/// Default constraints select what the pod's services and replica sets select.
fn defaults(cluster: &Cluster, profile: &Profile, pod: &PodInfo) -> Vec<Spread> {
    let mine = cluster.groups.iter().filter(|group| group.namespace == pod.namespace);
    let mut all: Vec<Requirement> = Vec::new();
    for group in mine {
        // A service's pods are those that match; of what manages pods, the one that manages this pod counts.
        let counts = match group.manager {
            Some(manager) => pod.manager == Some(manager),
            None => Selector::All(group.selector.clone().into()).matches(&pod.labels, &cluster.symbols),
        };
        if counts {
            all.extend(group.selector.iter().cloned());
        }
    }
    if all.is_empty() {
        return Vec::new();
    }
    let selector = Selector::All(all.into());
    let rule = |max_skew, key, hard| Spread {
        max_skew,
        key,
        hard,
        selector: selector.clone(),
        min_domains: 1,
        honor_affinity: true,
        honor_taints: false,
    };
    match &profile.default_spread {
        DefaultSpread::System => {
            vec![rule(3, cluster.known.hostname, false), rule(5, cluster.known.zone, false)]
        }
        DefaultSpread::Listed(listed) => listed
            .iter()
            .filter_map(|listed| Some(rule(listed.max_skew, cluster.symbols.find(&listed.key)?, listed.hard)))
            .collect(),
    }
}

impl Constraint {
    fn new(cluster: &Cluster, pod: &PodInfo, rule: Spread) -> Self {
        let nodes = cluster.nodes.len();
        let mut names: HashMap<Symbol, u32> = HashMap::new();
        let domain: Vec<u32> = cluster
            .nodes
            .iter()
            .map(|node| {
                node.labels.get(rule.key).map_or(NO_DOMAIN, |value| {
                    let next = usize_to_u32(names.len());
                    *names.entry(value).or_insert(next)
                })
            })
            .collect();
        let counted = cluster.nodes.iter().map(|node| {
            (!rule.honor_affinity || admits(cluster, pod, node))
                && (!rule.honor_taints || unborne_taint(pod, node).is_none())
        });
        Self {
            own: i64::from(rule.selector.matches(&pod.labels, &cluster.symbols)),
            counted: counted.collect(),
            on_node: vec![0; nodes],
            in_domain: vec![0; names.len()],
            eligible: vec![false; names.len()],
            domain,
            rule,
        }
    }

    fn find_eligible(&mut self) {
        for (node, domain) in self.domain.iter().enumerate() {
            if *domain != NO_DOMAIN && self.counted[node] {
                self.eligible[*domain as usize] = true;
            }
        }
    }

    /// Fewest matching pods of a domain; 0 with fewer domains than asked for.
    pub(crate) fn least(&self) -> i64 {
        let mut counts =
            self.in_domain.iter().zip(&self.eligible).filter(|(_, eligible)| **eligible).map(|(n, _)| *n);
        let domains = usize_to_i64(self.eligible.iter().filter(|eligible| **eligible).count());
        if domains < self.rule.min_domains { 0 } else { counts.by_ref().min().unwrap_or(0) }
    }

    /// What the constraint asks for, as numbers.
    pub(crate) fn terms(&self) -> Terms {
        Terms {
            own: self.own,
            // An empty selector matches the pod itself and yet counts nobody.
            grows: self.own > 0 && !self.rule.selector.is_everything(),
            max_skew: self.rule.max_skew,
            min_domains: self.rule.min_domains,
        }
    }

    /// Whether one more in this node's domain keeps the skew, the least being known.
    fn keeps_skew(&self, node: NodeIndex, least: i64) -> bool {
        let domain = self.domain[node] as usize;
        let here = if self.eligible[domain] { self.in_domain[domain] } else { 0 };
        here + self.own - least <= self.rule.max_skew
    }
}

impl SpreadRules {
    /// Nodes that lack one of the labels count for none of the constraints.
    fn drop_partial_nodes(&mut self) {
        if !self.all_labels {
            return;
        }
        for node in 0..self.constraints.first().map_or(0, |c| c.domain.len()) {
            if self.constraints.iter().any(|c| c.domain[node] == NO_DOMAIN) {
                for constraint in &mut self.constraints {
                    constraint.counted[node] = false;
                }
            }
        }
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
        let pod = state.pod(id);
        if pod.namespace != self.namespace || pod.terminating {
            return;
        }
        let constraints = &self.constraints;
        let matching = self.cache.entry(id).or_insert_with(|| {
            // An empty selector counts nothing here, though it matches the pod itself.
            let counts = |c: &Constraint| {
                !c.rule.selector.is_everything() && c.rule.selector.matches(&pod.labels, &cluster.symbols)
            };
            constraints.iter().map(counts).collect()
        });
        for (constraint, matching) in self.constraints.iter_mut().zip(matching.iter()) {
            if !*matching {
                continue;
            }
            constraint.on_node[node] += sign;
            let domain = constraint.domain[node];
            if domain != NO_DOMAIN && constraint.counted[node] {
                constraint.in_domain[domain as usize] += sign;
            }
        }
    }

    /// The least of each constraint, for [`SpreadRules::refuses`].
    pub(crate) fn leasts(&self) -> Vec<i64> {
        self.constraints.iter().map(Constraint::least).collect()
    }

    /// Why a node is refused.
    pub(crate) fn refuses(&self, node: NodeIndex, leasts: &[i64]) -> Option<Rejection> {
        for (constraint, least) in self.constraints.iter().zip(leasts) {
            if constraint.domain[node] == NO_DOMAIN {
                return Some(Rejection::SpreadLabel);
            }
            if !constraint.keeps_skew(node, *least) {
                return Some(Rejection::Spread);
            }
        }
        None
    }

    /// Raw scores of the feasible nodes (lower is better); `None` for a node that takes no part.
    pub(crate) fn raw_scores(&self, feasible: &[NodeIndex]) -> Vec<Option<i64>> {
        let takes_part = |node: NodeIndex| {
            !self.all_labels || self.constraints.iter().all(|c| c.domain[node] != NO_DOMAIN)
        };
        let ignored = feasible.iter().filter(|node| !takes_part(**node)).count();
        let per_constraint: Vec<(f64, bool)> = self
            .constraints
            .iter()
            .map(|constraint| {
                let by_host = constraint.rule.key == self.hostname;
                let domains = if by_host {
                    feasible.len() - ignored
                } else {
                    let mut seen = vec![false; constraint.in_domain.len()];
                    // Nodes without the label, where they take part, are one domain together (`initPreScoreState`).
                    let mut without = false;
                    for node in feasible.iter().filter(|node| takes_part(**node)) {
                        match constraint.domain[*node] {
                            NO_DOMAIN => without = true,
                            domain => seen[domain as usize] = true,
                        }
                    }
                    seen.into_iter().filter(|seen| *seen).count() + usize::from(without)
                };
                (((domains + 2) as f64).ln(), by_host)
            })
            .collect();
        let score = |node: NodeIndex| {
            let mut sum = 0.0_f64;
            for (constraint, (weight, by_host)) in self.constraints.iter().zip(&per_constraint) {
                if constraint.domain[node] == NO_DOMAIN {
                    continue;
                }
                let count = if *by_host {
                    constraint.on_node[node]
                } else {
                    constraint.in_domain[constraint.domain[node] as usize]
                };
                sum += count as f64 * weight + (constraint.rule.max_skew - 1) as f64;
            }
            f64_to_i64(sum.round())
        };
        feasible.iter().map(|node| takes_part(*node).then(|| score(*node))).collect()
    }
}

/// Raw scores to 0..=100: the emptiest domain gets the most.
pub(super) fn normalize(raw: &[Option<i64>]) -> Vec<i64> {
    let known = || raw.iter().flatten().copied();
    let (Some(least), Some(most)) = (known().min(), known().max()) else { return vec![0; raw.len()] };
    let one = |score: i64| if most == 0 { 100 } else { 100 * (most + least - score) / most };
    raw.iter().map(|score| score.map_or(0, one)).collect()
}
