//! The step loop that only looks at what changed: nodes wait in heaps by their score, so a placing costs the logarithm
//! of the nodes.
//!
//! It serves shapes whose score on a node changes only with what is on that node: no soft spread, no preference for or
//! against pods that clones themselves would change. One hard spread and anti-affinity to its own kind are served as
//! well. Nodes whose share of the score depends on all others (taints, node and pod preferences) form a class by those
//! raw scores; within a class the order is by the rest alone, so a change of the largest raw score moves whole classes
//! and never a heap. For a spread each class is split by domain, and a domain that would become too full is closed
//! until the others have caught up.

use evenkeel_model::narrow::usize_to_u32;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::cluster::{Cluster, NodeIndex, Symbol};
use crate::plugin::{
    Cycle, NO_DOMAIN, SpreadRules, Terms, VolumeRules, fewer_is_better, more_is_better, spread_over,
};
use crate::profile::{Profile, Score};
use crate::state::ClusterState;

/// A node in a heap: its score, and its number so that the smallest name wins a tie.
type Entry = (i64, Reverse<u32>);

/// Raw scores that are put in proportion over all feasible nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Class {
    soft_taints: i64,
    preferred: i64,
    pods: i64,
}

/// Nodes of one class in one domain.
#[derive(Debug, Clone)]
struct NodeHeap {
    class: u32,
    domain: u32,
    heap: BinaryHeap<Entry>,
    alive: u32,
    /// Its one entry among the tops of its class that counts.
    listed: Option<Entry>,
}

/// Domains of the hard spread.
#[derive(Debug, Clone, Default)]
struct Domains {
    /// Matching pods.
    count: Vec<i64>,
    eligible: Vec<bool>,
    open: Vec<bool>,
    groups: Vec<Vec<u32>>,
    /// Number of eligible domains by count.
    histogram: HashMap<i64, u32>,
    least: i64,
    terms: Terms,
    /// The least counts as nothing, whatever it is.
    too_few: bool,
    /// Closed domains by count.
    closed: HashMap<i64, Vec<u32>>,
}

/// Nodes in the order in which a shape would take them.
#[derive(Debug, Clone)]
pub(crate) struct Ranked {
    classes: Vec<Class>,
    feasible: Vec<u64>,
    tops: Vec<BinaryHeap<(i64, Reverse<u32>, u32)>>,
    groups: Vec<NodeHeap>,
    group_of: Vec<u32>,
    local: Vec<i64>,
    alive: Vec<bool>,
    domains: Option<Domains>,
    /// Nodes by a label's value that the first of this shape closes for the others.
    closing: HashMap<(Symbol, Symbol), Vec<u32>>,
    closing_keys: Vec<Symbol>,
    /// Placements of the state that were looked at.
    seen: usize,
    weights: Weights,
}

/// Bounds of the raw scores over all feasible nodes.
#[derive(Debug, Clone, Copy)]
struct ScoreBounds {
    most_taints: i64,
    most_preferred: i64,
    least_pods: i64,
    most_pods: i64,
}

#[derive(Debug, Clone, Copy)]
struct Weights {
    taints: i64,
    preferred: Option<i64>,
    pods: Option<i64>,
}

/// Whether this shape can be served.
pub(crate) fn serves(cycle: &Cycle) -> bool {
    cycle.refused.is_none()
        && !cycle.sees_cluster
        && !cycle.extended
        && cycle.soft_spread.is_none()
        && cycle.hard_spread.as_ref().is_none_or(|rules| rules.constraints.len() == 1)
        && cycle.affinity.as_ref().is_none_or(|rules| rules.is_settled())
        && cycle.volumes.as_ref().is_none_or(VolumeRules::is_settled)
}

impl Ranked {
    /// Orders all nodes for a shape that [`serves`] admits.
    pub(crate) fn new(cluster: &Cluster, profile: &Profile, state: &ClusterState, cycle: &Cycle) -> Self {
        let nodes = cluster.nodes.len();
        let all: Vec<NodeIndex> = (0..nodes).collect();
        let pods = cycle.affinity.as_ref().and_then(|rules| rules.raw_scores(cluster, &all));
        let weight = |score| profile.weight(score);
        let mut ranked = Self {
            classes: Vec::new(),
            feasible: Vec::new(),
            tops: Vec::new(),
            groups: Vec::new(),
            group_of: Vec::with_capacity(nodes),
            local: vec![0; nodes],
            alive: vec![false; nodes],
            domains: cycle.hard_spread.as_ref().map(Domains::new),
            closing: HashMap::new(),
            closing_keys: cycle.affinity.as_ref().map_or_else(Vec::new, |rules| rules.closing_keys()),
            seen: state.placements.len(),
            weights: Weights {
                taints: weight(Score::TaintToleration),
                preferred: cycle.fixed.preferred.is_some().then(|| weight(Score::NodeAffinity)),
                pods: pods.is_some().then(|| weight(Score::InterPodAffinity)),
            },
        };
        let (mut class_ids, mut group_ids) = (HashMap::new(), HashMap::new());
        // Most nodes are like the one before.
        let mut before: Option<(Class, u32, u32)> = None;
        for node in 0..nodes {
            let class = Class {
                soft_taints: cycle.fixed.soft_taints[node],
                preferred: cycle.fixed.preferred.as_ref().map_or(0, |preferred| preferred[node]),
                pods: pods.as_ref().map_or(0, |pods| pods[node]),
            };
            let domain = cycle.hard_spread.as_ref().map_or(0, |rules| rules.constraints[0].domain[node]);
            let group = match before {
                Some((same, there, group)) if (same, there) == (class, domain) => group,
                _ => {
                    let id = *class_ids.entry(class).or_insert_with(|| ranked.add_class(class));
                    *group_ids.entry((id, domain)).or_insert_with(|| ranked.add_group(id, domain))
                }
            };
            before = Some((class, domain, group));
            ranked.group_of.push(group);
        }
        for node in 0..nodes {
            ranked.refresh(cluster, profile, state, cycle, node);
        }
        for key in ranked.closing_keys.clone() {
            for (at, node) in cluster.nodes.iter().enumerate() {
                if let Some(value) = node.labels.get(key) {
                    ranked.closing.entry((key, value)).or_default().push(usize_to_u32(at));
                }
            }
        }
        ranked
    }

    fn add_class(&mut self, class: Class) -> u32 {
        let id = usize_to_u32(self.classes.len());
        self.classes.push(class);
        self.feasible.push(0);
        self.tops.push(BinaryHeap::new());
        id
    }

    fn add_group(&mut self, class: u32, domain: u32) -> u32 {
        let group = usize_to_u32(self.groups.len());
        self.groups.push(NodeHeap { class, domain, heap: BinaryHeap::new(), alive: 0, listed: None });
        if let Some(domains) = &mut self.domains
            && domain != NO_DOMAIN
        {
            domains.groups[domain as usize].push(group);
        }
        group
    }

    fn is_open(&self, domain: u32) -> bool {
        self.domains.as_ref().is_none_or(|domains| domain != NO_DOMAIN && domains.open[domain as usize])
    }

    /// Looks at one node anew.
    fn refresh(
        &mut self,
        cluster: &Cluster,
        profile: &Profile,
        state: &ClusterState,
        cycle: &Cycle,
        node: NodeIndex,
    ) {
        let alive = !state.excluded[node] && cycle.fits_but_spread(cluster, profile, state, node);
        let group = self.group_of[node];
        let open = self.is_open(self.groups[group as usize].domain);
        let entry = &mut self.groups[group as usize];
        if alive != self.alive[node] {
            let feasible = &mut self.feasible[entry.class as usize];
            if alive {
                entry.alive += 1;
                *feasible += u64::from(open);
            } else {
                entry.alive -= 1;
                *feasible -= u64::from(open);
            }
            self.alive[node] = alive;
        }
        if !alive {
            return;
        }
        let score = cycle.local_score(profile, state, node);
        self.local[node] = score;
        entry.heap.push((score, Reverse(usize_to_u32(node))));
        if open {
            self.list(group, (score, Reverse(usize_to_u32(node))));
        }
    }

    /// Enters a group's best node among the tops of its class, unless a better one of it is there.
    fn list(&mut self, group: u32, entry: Entry) {
        let known = &mut self.groups[group as usize];
        if known.listed.is_none_or(|listed| listed < entry) {
            known.listed = Some(entry);
            self.tops[known.class as usize].push((entry.0, entry.1, group));
        }
    }

    /// Takes in what was placed since the last look, by whomever.
    pub(crate) fn catch_up(
        &mut self,
        cluster: &Cluster,
        profile: &Profile,
        state: &ClusterState,
        cycle: &Cycle,
    ) {
        while let Some((_, node)) = state.placements.get(self.seen).copied() {
            self.seen += 1;
            self.refresh(cluster, profile, state, cycle, node as usize);
        }
    }

    /// Takes in that one of this shape was placed: domains fill, and those of its own kind may be kept away.
    pub(crate) fn placed(
        &mut self,
        cluster: &Cluster,
        profile: &Profile,
        state: &ClusterState,
        cycle: &Cycle,
        node: NodeIndex,
    ) {
        for key in self.closing_keys.clone() {
            let value = cluster.nodes[node].labels.get(key);
            // Closed once, closed for good.
            for near in value.and_then(|value| self.closing.remove(&(key, value))).into_iter().flatten() {
                self.refresh(cluster, profile, state, cycle, near as usize);
            }
        }
        self.catch_up(cluster, profile, state, cycle);
        let domain = self.groups[self.group_of[node] as usize].domain;
        let Some(domains) = &mut self.domains else { return };
        for changed in domains.add(domain) {
            self.turn(changed);
        }
    }

    /// Opens or closes a domain as its state says.
    fn turn(&mut self, domain: u32) {
        let Some(domains) = &mut self.domains else { return };
        let open = domains.fits(domain as usize);
        if open == domains.open[domain as usize] {
            return;
        }
        domains.open[domain as usize] = open;
        for group in domains.groups[domain as usize].clone() {
            let class = self.groups[group as usize].class as usize;
            let alive = u64::from(self.groups[group as usize].alive);
            if open {
                self.feasible[class] += alive;
                if let Some(top) = self.top_of(group) {
                    self.list(group, top);
                }
            } else {
                self.feasible[class] -= alive;
            }
        }
    }

    /// The best live node of a group; entries that no longer hold are dropped.
    fn top_of(&mut self, group: u32) -> Option<Entry> {
        let heap = &mut self.groups[group as usize].heap;
        while let Some(&(score, Reverse(node))) = heap.peek() {
            if self.alive[node as usize] && self.local[node as usize] == score {
                return Some((score, Reverse(node)));
            }
            heap.pop();
        }
        None
    }

    /// The best node of a class.
    fn top_of_class(&mut self, class: usize) -> Option<Entry> {
        while let Some(&(score, node, group)) = self.tops[class].peek() {
            if self.groups[group as usize].listed == Some((score, node)) {
                let open = self.is_open(self.groups[group as usize].domain);
                let top = if open { self.top_of(group) } else { None };
                if top == Some((score, node)) {
                    return top;
                }
                self.groups[group as usize].listed = None;
                self.tops[class].pop();
                if let Some(top) = top {
                    self.list(group, top);
                }
            } else {
                self.tops[class].pop();
            }
        }
        None
    }

    /// Bounds of the raw scores over classes with a feasible node; `None` when no node is feasible.
    fn bounds(&self) -> Option<ScoreBounds> {
        let mut bounds: Option<ScoreBounds> = None;
        for (class, feasible) in self.classes.iter().zip(&self.feasible) {
            if *feasible == 0 {
                continue;
            }
            let known = bounds.get_or_insert(ScoreBounds {
                most_taints: 0,
                most_preferred: 0,
                least_pods: class.pods,
                most_pods: class.pods,
            });
            known.most_taints = known.most_taints.max(class.soft_taints);
            known.most_preferred = known.most_preferred.max(class.preferred);
            known.least_pods = known.least_pods.min(class.pods);
            known.most_pods = known.most_pods.max(class.pods);
        }
        bounds
    }

    /// The part of the score that a class has in common.
    fn shared(&self, class: Class, bounds: &ScoreBounds) -> i64 {
        let weights = &self.weights;
        let preferred = weights.preferred.map(|w| w * more_is_better(class.preferred, bounds.most_preferred));
        let pods = weights.pods.map(|w| w * spread_over(class.pods, bounds.least_pods, bounds.most_pods));
        weights.taints * fewer_is_better(class.soft_taints, bounds.most_taints)
            + preferred.unwrap_or(0)
            + pods.unwrap_or(0)
    }

    /// The node the next pod of this shape goes to.
    pub(crate) fn best(&mut self) -> Option<NodeIndex> {
        let bounds = self.bounds()?;
        let mut best: Option<Entry> = None;
        for class in 0..self.classes.len() {
            if self.feasible[class] > 0 {
                let shared = self.shared(self.classes[class], &bounds);
                best = best.max(self.top_of_class(class).map(|(score, node)| (score + shared, node)));
            }
        }
        best.map(|(_, Reverse(node))| node as usize)
    }
}

impl Domains {
    fn new(rules: &SpreadRules) -> Self {
        let constraint = &rules.constraints[0];
        let terms = constraint.terms();
        let mut histogram: HashMap<i64, u32> = HashMap::new();
        for (count, _) in
            constraint.in_domain.iter().zip(&constraint.eligible).filter(|(_, eligible)| **eligible)
        {
            *histogram.entry(*count).or_default() += 1;
        }
        let eligible = histogram.values().map(|n| i64::from(*n)).sum::<i64>();
        let too_few = eligible < terms.min_domains;
        let mut domains = Self {
            count: constraint.in_domain.clone(),
            eligible: constraint.eligible.clone(),
            open: vec![false; constraint.in_domain.len()],
            groups: vec![Vec::new(); constraint.in_domain.len()],
            least: if too_few { 0 } else { histogram.keys().min().copied().unwrap_or(0) },
            histogram,
            terms,
            too_few,
            closed: HashMap::new(),
        };
        for domain in 0..domains.open.len() {
            domains.open[domain] = domains.fits(domain);
            if !domains.open[domain] {
                domains.closed.entry(domains.count[domain]).or_default().push(usize_to_u32(domain));
            }
        }
        domains
    }

    /// Whether one more keeps the skew.
    fn fits(&self, domain: usize) -> bool {
        let here = if self.eligible[domain] { self.count[domain] } else { 0 };
        here + self.terms.own - self.least <= self.terms.max_skew
    }

    /// One more in a domain; which domains may open or close.
    fn add(&mut self, domain: u32) -> Vec<u32> {
        let at = domain as usize;
        if !self.terms.grows || domain == NO_DOMAIN || !self.eligible[at] {
            return Vec::new();
        }
        let before = self.count[at];
        self.count[at] += 1;
        *self.histogram.entry(before + 1).or_default() += 1;
        let emptied = self.histogram.get_mut(&before).is_some_and(|n| {
            *n -= 1;
            *n == 0
        });
        let mut changed = vec![domain];
        if emptied {
            self.histogram.remove(&before);
            if before == self.least && !self.too_few {
                // Counts grow by one, so the next least is the one that has just been reached.
                self.least += 1;
                changed.extend(
                    self.closed
                        .remove(&(self.least + self.terms.max_skew - self.terms.own))
                        .into_iter()
                        .flatten(),
                );
            }
        }
        if !self.fits(at) {
            self.closed.entry(self.count[at]).or_default().push(domain);
        }
        changed
    }
}
