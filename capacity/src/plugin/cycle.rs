//! One pod against one cluster: every rule prepared, then kept up to date with what is placed.

use std::sync::Arc;

use super::affinity::AffinityRules;
use super::local::{self, Fixed};
use super::reason::{Rejection, Short};
use super::registry::{FilterPlugin, PluginView, Sees};
use super::score::{Scores, score};
use super::spread::{self, SpreadRules};
use super::volume::{self, VolumeRules};
use crate::cluster::resources::ResourceIndex;
use crate::cluster::{Cluster, NodeIndex, PodInfo};
use crate::profile::{Filter, Profile, Score};
use crate::state::{ClusterState, PodId};

/// One pod against one cluster.
#[derive(Debug, Clone)]
pub struct Cycle {
    pub(crate) pod: Arc<PodInfo>,
    pub(crate) id: PodId,
    pub(crate) fixed: Arc<Fixed>,
    pub(crate) hard_spread: Option<SpreadRules>,
    pub(crate) soft_spread: Option<SpreadRules>,
    pub(crate) affinity: Option<AffinityRules>,
    pub(crate) volumes: Option<VolumeRules>,
    /// Why it is refused before any node is looked at.
    pub(crate) refused: Option<String>,
    /// What nodes must have free for it: its requests, less resources the profile ignores.
    pub(crate) needs: Box<[(ResourceIndex, i64)]>,
    pub(super) leasts: Vec<i64>,
    /// Why own filters that see the node alone put it out; empty without such filters.
    own_out: Arc<[Option<Rejection>]>,
    /// Own plugins or extenders may answer otherwise whatever is placed wherever.
    pub(crate) sees_cluster: bool,
    /// Extenders that the pod is sent to are asked.
    pub(crate) extended: bool,
}

impl Cycle {
    /// Prepares the pod with this number for what is placed now.
    pub fn new(cluster: &Cluster, profile: &Profile, state: &ClusterState, id: PodId) -> Self {
        let pod = Arc::clone(state.pod(id));
        let on = |filter| profile.filters.has(filter);
        let hard = on(Filter::PodTopologySpread).then(|| spread::rules(cluster, profile, state, &pod, true));
        let scored = profile.weight(Score::PodTopologySpread) > 0;
        let soft = scored.then(|| spread::rules(cluster, profile, state, &pod, false));
        let mut cycle = Self {
            fixed: Arc::new(Fixed::new(cluster, profile, &pod)),
            hard_spread: hard.flatten(),
            soft_spread: soft.flatten(),
            affinity: AffinityRules::new(cluster, profile, state, &pod),
            volumes: VolumeRules::new(cluster, state, &pod),
            refused: local::refuses_pod(profile, &pod)
                .or_else(|| volume::refuses_pod(cluster, profile, &pod)),
            needs: pod
                .requests
                .plain
                .iter()
                .copied()
                .filter(|(of, _)| !profile.ignores(cluster, *of))
                .collect(),
            leasts: Vec::new(),
            own_out: Arc::from([]),
            sees_cluster: profile.own_filters.iter().any(|own| own.sees() == Sees::Cluster),
            extended: profile.extenders.iter().any(|extender| extender.takes(cluster, &pod)),
            pod,
            id,
        };
        cycle.find_leasts();
        let fixed = || profile.own_filters.iter().filter(|own| own.sees() == Sees::Node);
        if fixed().next().is_some() {
            let view = PluginView { cluster, state, profile, cycle: &cycle };
            let out = |node| fixed().find_map(|own| own.refuses(&view, node));
            cycle.own_out = (0..cluster.nodes.len()).map(out).collect();
        }
        cycle
    }

    fn find_leasts(&mut self) {
        self.leasts = self.hard_spread.as_ref().map(SpreadRules::leasts).unwrap_or_default();
    }

    /// Takes in that a pod was put on a node.
    pub fn note(&mut self, cluster: &Cluster, state: &ClusterState, id: PodId, node: NodeIndex) {
        if let Some(rules) = &mut self.hard_spread {
            rules.note(cluster, state, id, node, 1);
        }
        if let Some(rules) = &mut self.soft_spread {
            rules.note(cluster, state, id, node, 1);
        }
        if let Some(rules) = &mut self.affinity {
            rules.note(cluster, state, id, node, 1);
        }
        if let Some(rules) = &mut self.volumes {
            rules.note(cluster, state, id, node, id == self.id);
        }
        self.find_leasts();
    }

    /// Whether what is placed elsewhere can matter to it.
    pub(crate) fn minds_others(&self) -> bool {
        self.hard_spread.is_some()
            || self.soft_spread.is_some()
            || self.affinity.is_some()
            || self.volumes.is_some()
            || self.sees_cluster
            || self.extended
    }

    /// What it asks of a resource.
    #[inline]
    pub(crate) fn request(&self, resource: ResourceIndex) -> i64 {
        self.pod.requests.plain.iter().find(|(known, _)| *known == resource).map_or(0, |(_, amount)| *amount)
    }

    /// Whether it asks for any of these.
    pub(crate) fn asks_for(&self, resources: &[ResourceIndex]) -> bool {
        resources.iter().any(|resource| self.request(*resource) > 0)
    }

    /// Whether pods and resources leave room for it.
    #[inline]
    pub(crate) fn has_room(&self, state: &ClusterState, node: NodeIndex) -> bool {
        state.pods[node] < state.max_pods[node]
            && self.needs.iter().all(|(resource, amount)| {
                *amount <= state.allocatable[*resource][node].saturating_sub(state.requested[*resource][node])
            })
    }

    pub(super) fn resources(&self, state: &ClusterState, node: NodeIndex) -> Option<Rejection> {
        if self.has_room(state, node) {
            return None;
        }
        let short = self.needs.iter().filter_map(|(resource, amount)| {
            let allocatable = state.allocatable[*resource][node];
            let by = amount.saturating_sub(allocatable.saturating_sub(state.requested[*resource][node]));
            (by > 0).then_some(Short { resource: *resource, by, never: *amount > allocatable })
        });
        Some(Rejection::Resources { pods: state.pods[node] >= state.max_pods[node], short: short.collect() })
    }

    /// Why each node is refused, by the first filter that refuses it, in the order of the nodes; `None` for one that is not.
    pub fn refusals(
        &self,
        cluster: &Cluster,
        profile: &Profile,
        state: &ClusterState,
    ) -> Vec<Option<Rejection>> {
        let view = PluginView { cluster, state, profile, cycle: self };
        // Most filters have nothing to say of most pods: they are left out once, and not at every node.
        let may = |filter: &Filter| profile.filters.has(*filter) && filter.may_refuse(self);
        let on: Vec<Filter> = Filter::ALL.into_iter().filter(may).collect();
        (0..cluster.nodes.len()).map(|node| self.refuses(&on, &view, node)).collect()
    }

    fn refuses(&self, on: &[Filter], view: &PluginView<'_>, node: NodeIndex) -> Option<Rejection> {
        if let Some(text) = &self.refused {
            return Some(Rejection::Pod(text.clone()));
        }
        if view.state.excluded[node] {
            return Some(Rejection::Cordoned);
        }
        on.iter().find_map(|filter| filter.refuses(view, node)).or_else(|| self.own_refuses(view, node))
    }

    /// Why own filters refuse a node.
    fn own_refuses(&self, view: &PluginView<'_>, node: NodeIndex) -> Option<Rejection> {
        let fixed = self.own_out.get(node).and_then(Clone::clone);
        let others = view.profile.own_filters.iter().filter(|own| own.sees() != Sees::Node);
        fixed.or_else(|| others.into_iter().find_map(|own| own.refuses(view, node)))
    }

    /// Whether everything but the spread lets the pod onto a node; cheaper than asking why not.
    #[inline]
    pub(crate) fn fits_but_spread(
        &self,
        cluster: &Cluster,
        profile: &Profile,
        state: &ClusterState,
        node: NodeIndex,
    ) -> bool {
        if self.refused.is_some() || self.fixed.out[node].is_some() {
            return false;
        }
        let on = |filter| profile.filters.has(filter);
        (!on(Filter::NodeResourcesFit) || self.has_room(state, node))
            && !(on(Filter::NodePorts) && self.ports_clash(state, node))
            && self.volumes.as_ref().is_none_or(|rules| rules.refuses(cluster, profile, node).is_none())
            && self
                .affinity
                .as_ref()
                .is_none_or(|rules| !on(Filter::InterPodAffinity) || rules.refuses(cluster, node).is_none())
            && (profile.own_filters.is_empty()
                || self.own_refuses(&PluginView { cluster, state, profile, cycle: self }, node).is_none())
    }

    #[inline]
    pub(super) fn ports_clash(&self, state: &ClusterState, node: NodeIndex) -> bool {
        !self.pod.ports.is_empty()
            && state.ports[node].iter().any(|used| self.pod.ports.iter().any(|port| port.conflicts(used)))
    }

    /// The part of the score that what is on the node alone decides, weighted.
    #[inline]
    pub(crate) fn local_score(&self, profile: &Profile, state: &ClusterState, node: NodeIndex) -> i64 {
        let mut sum = 0;
        for (score, weight) in &profile.scores {
            sum += weight
                * match score {
                    Score::NodeResourcesFit => self.fit_score(profile, state, node),
                    Score::NodeResourcesBalancedAllocation if self.asks_for(&profile.balanced_resources) => {
                        self.balanced_score(profile, state, node)
                    }
                    Score::ImageLocality => self.fixed.images[node],
                    _ => 0,
                };
        }
        sum
    }

    /// Nodes the pod may go to.
    pub fn feasible(&self, cluster: &Cluster, profile: &Profile, state: &ClusterState) -> Vec<NodeIndex> {
        let spread_fits = |node: NodeIndex| {
            self.hard_spread.as_ref().is_none_or(|rules| rules.refuses(node, &self.leasts).is_none())
        };
        let fits = |node: &NodeIndex| {
            !state.excluded[*node]
                && self.fits_but_spread(cluster, profile, state, *node)
                && spread_fits(*node)
        };
        (0..cluster.nodes.len()).filter(fits).collect()
    }

    /// Scores of feasible nodes.
    pub fn scores(
        &self,
        cluster: &Cluster,
        profile: &Profile,
        state: &ClusterState,
        feasible: &[NodeIndex],
    ) -> Scores {
        score(&PluginView { cluster, state, profile, cycle: self }, feasible)
    }
}
