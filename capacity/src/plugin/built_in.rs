//! The built-in plugins as everybody else's: one filter, one score at a time.

use super::cycle::Cycle;
use super::local::Out;
use super::reason::Rejection;
use super::registry::{FilterPlugin, PluginView, ScorePlugin, Sees};
use super::score::{fewer_is_better, more_is_better};
use super::{affinity, spread};
use crate::cluster::NodeIndex;
use crate::profile::{Filter, Score};

impl FilterPlugin for Filter {
    fn name(&self) -> &'static str {
        Self::name(*self)
    }

    fn sees(&self) -> Sees {
        match self {
            Self::NodeUnschedulable | Self::NodeName | Self::TaintToleration | Self::NodeAffinity => {
                Sees::Node
            }
            Self::NodePorts | Self::NodeResourcesFit => Sees::OnNode,
            _ => Sees::Cluster,
        }
    }

    fn refuses(&self, view: &PluginView<'_>, node: NodeIndex) -> Option<Rejection> {
        let PluginView { cluster, state, profile, cycle } = *view;
        match self {
            Self::NodeUnschedulable | Self::NodeName | Self::TaintToleration | Self::NodeAffinity => {
                let out = cycle.fixed.out[node].filter(|out| of_fixed(*out) == *self)?;
                Some(out.rejection(cluster, profile.version))
            }
            Self::NodePorts => cycle.ports_clash(state, node).then_some(Rejection::Ports),
            Self::NodeResourcesFit => cycle.resources(state, node),
            Self::VolumeRestrictions | Self::NodeVolumeLimits | Self::VolumeBinding | Self::VolumeZone => {
                let rejection = cycle.volumes.as_ref()?.refuses(cluster, profile, node)?;
                (of_volumes(&rejection) == Some(*self)).then_some(rejection)
            }
            Self::PodTopologySpread => cycle.hard_spread.as_ref()?.refuses(node, &cycle.leasts),
            Self::InterPodAffinity => cycle.affinity.as_ref()?.refuses(cluster, node),
        }
    }
}

impl Filter {
    /// Whether it refuses this pod some node, as far as can be told before a node is looked at.
    pub(super) fn may_refuse(self, cycle: &Cycle) -> bool {
        match self {
            Self::NodeUnschedulable | Self::NodeName | Self::TaintToleration | Self::NodeAffinity => {
                cycle.fixed.out.iter().flatten().any(|out| of_fixed(*out) == self)
            }
            Self::NodePorts => !cycle.pod.ports.is_empty(),
            Self::NodeResourcesFit => true,
            Self::VolumeRestrictions | Self::NodeVolumeLimits | Self::VolumeBinding | Self::VolumeZone => {
                cycle.volumes.is_some()
            }
            Self::PodTopologySpread => cycle.hard_spread.is_some(),
            Self::InterPodAffinity => cycle.affinity.is_some(),
        }
    }
}

/// The filter that puts a node out for good.
fn of_fixed(out: Out) -> Filter {
    match out {
        Out::Cordoned => Filter::NodeUnschedulable,
        Out::OtherNode => Filter::NodeName,
        Out::Taint(_) => Filter::TaintToleration,
        Out::NotListed | Out::EnforcedAffinity | Out::NodeAffinity => Filter::NodeAffinity,
    }
}

/// The filter whose rule on volumes it is.
fn of_volumes(rejection: &Rejection) -> Option<Filter> {
    Some(match rejection {
        Rejection::Disk | Rejection::ClaimInUse => Filter::VolumeRestrictions,
        Rejection::VolumeCount => Filter::NodeVolumeLimits,
        Rejection::Volumes { .. } => Filter::VolumeBinding,
        Rejection::Zone => Filter::VolumeZone,
        _ => return None,
    })
}

impl ScorePlugin for Score {
    fn name(&self) -> &'static str {
        Self::name(*self)
    }

    fn scores(&self, view: &PluginView<'_>, feasible: &[NodeIndex]) -> Option<Vec<i64>> {
        let PluginView { cluster, state, profile, cycle } = *view;
        let local = |score: &dyn Fn(&Cycle, NodeIndex) -> i64| {
            Some(feasible.iter().map(|node| score(cycle, *node)).collect())
        };
        match self {
            Self::NodeResourcesFit => local(&|cycle, node| cycle.fit_score(profile, state, node)),
            Self::NodeResourcesBalancedAllocation => {
                cycle.asks_for(&profile.balanced_resources).then_some(())?;
                local(&|cycle, node| cycle.balanced_score(profile, state, node))
            }
            Self::ImageLocality => local(&|cycle, node| cycle.fixed.images[node]),
            Self::TaintToleration => {
                let raw: Vec<i64> = feasible.iter().map(|node| cycle.fixed.soft_taints[*node]).collect();
                let most = raw.iter().copied().max().unwrap_or(0);
                Some(raw.into_iter().map(|count| fewer_is_better(count, most)).collect())
            }
            Self::NodeAffinity => {
                let preferred = cycle.fixed.preferred.as_ref()?;
                let raw: Vec<i64> = feasible.iter().map(|node| preferred[*node]).collect();
                let most = raw.iter().copied().max().unwrap_or(0);
                Some(raw.into_iter().map(|weight| more_is_better(weight, most)).collect())
            }
            Self::PodTopologySpread => {
                Some(spread::normalize(&cycle.soft_spread.as_ref()?.raw_scores(feasible)))
            }
            Self::InterPodAffinity => {
                Some(affinity::normalize(&cycle.affinity.as_ref()?.raw_scores(cluster, feasible)?))
            }
        }
    }
}
