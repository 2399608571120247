//! Rules that look at the node alone and that placing pods does not change: cordon, name, taints, node affinity, images.

use evenkeel_model::narrow::{f64_to_i64, usize_to_i64};
use std::collections::HashMap;
use std::sync::Arc;

use super::reason::Rejection;
use crate::cluster::selector::{self, NodeTerm};
use crate::cluster::{Cluster, Effect, NodeIndex, NodeInfo, PodInfo, Symbol, Taint, Toleration};
use crate::profile::{Filter, Profile, Version};

/// Smallest sum of image sizes that counts, bytes (`image_locality.go`).
const IMAGE_LEAST: i64 = 23 * 1024 * 1024;
/// Size of one container's image above which more does not count, bytes.
const IMAGE_MOST: i64 = 1000 * 1024 * 1024;

/// What the fixed rules say of every node.
#[derive(Debug, Clone)]
pub(crate) struct Fixed {
    /// Why a node is out for good.
    pub out: Vec<Option<Out>>,
    /// Taints that only ask to stay away and are not borne.
    pub soft_taints: Vec<i64>,
    /// Weights of preferred node affinity that holds; `None` when the pod has none.
    pub preferred: Option<Vec<i64>>,
    /// Image score, 0 to 100.
    pub images: Vec<i64>,
}

/// Why a node is out for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Out {
    NotListed,
    Cordoned,
    OtherNode,
    Taint(Taint),
    EnforcedAffinity,
    NodeAffinity,
}

impl Out {
    pub(crate) fn rejection(self, cluster: &Cluster, version: Version) -> Rejection {
        match self {
            Self::NotListed => Rejection::NotListed,
            Self::Cordoned => Rejection::Cordoned,
            Self::OtherNode => Rejection::OtherNode,
            Self::Taint(taint) => Rejection::Taint(match version {
                Version::V1_34 => {
                    let (key, value) = (cluster.word(taint.key), cluster.word(taint.value));
                    format!("node(s) had untolerated taint {{{key}: {value}}}")
                }
                Version::V1_36 => "node(s) had untolerated taint(s)".to_owned(),
            }),
            Self::EnforcedAffinity => Rejection::EnforcedAffinity,
            Self::NodeAffinity => Rejection::NodeAffinity,
        }
    }
}

impl Fixed {
    pub(crate) fn new(cluster: &Cluster, profile: &Profile, pod: &PodInfo) -> Self {
        let listed = listed_nodes(pod);
        let out = cluster.nodes.iter().map(|node| out(cluster, profile, pod, listed.as_deref(), node));
        let soft: Vec<&Toleration> = pod.tolerations.iter().filter(|t| t.is_soft()).collect();
        let soft_taints = cluster.nodes.iter().map(|node| {
            let unborne = |taint: &&Taint| {
                taint.effect == Effect::PreferNoSchedule && !soft.iter().any(|t| t.bears(taint))
            };
            usize_to_i64(node.taints.iter().filter(unborne).count())
        });
        let preferences = || pod.node_preferences.iter().chain(&profile.added_preferences);
        let preferred = preferences()
            .next()
            .map(|_| cluster.nodes.iter().map(|node| preference(cluster, preferences(), node)).collect());
        Self {
            out: out.collect(),
            soft_taints: soft_taints.collect(),
            preferred,
            images: images(cluster, pod),
        }
    }
}

fn preference<'a>(
    cluster: &Cluster,
    preferences: impl Iterator<Item = &'a (i64, NodeTerm)>,
    node: &NodeInfo,
) -> i64 {
    let met = preferences.filter(|(_, term)| term.matches(node.name, &node.labels, &cluster.symbols));
    met.map(|(weight, _)| *weight).sum()
}

/// Nodes the pod's affinity lists by name, when every term of it does.
pub(super) fn listed_nodes(pod: &PodInfo) -> Option<Vec<Symbol>> {
    let terms = pod.node_terms.as_ref().filter(|terms| !terms.0.is_empty())?;
    let names: Option<Vec<Vec<Symbol>>> = terms.0.iter().map(NodeTerm::node_names).collect();
    Some(names?.concat())
}

/// Why the pod is refused before any node is looked at: its affinity lists nodes by name, and each term contradicts
/// itself (`node_affinity.go`).
pub(super) fn refuses_pod(profile: &Profile, pod: &PodInfo) -> Option<String> {
    let conflict =
        profile.filters.has(Filter::NodeAffinity) && listed_nodes(pod).is_some_and(|n| n.is_empty());
    conflict.then(|| "pod affinity terms conflict".to_owned())
}

fn out(
    cluster: &Cluster,
    profile: &Profile,
    pod: &PodInfo,
    listed: Option<&[Symbol]>,
    node: &NodeInfo,
) -> Option<Out> {
    let filters = profile.filters;
    if filters.has(Filter::NodeAffinity) && listed.is_some_and(|names| !names.contains(&node.name)) {
        return Some(Out::NotListed);
    }
    if filters.has(Filter::NodeUnschedulable) && node.unschedulable && !bears_cordon(cluster, pod) {
        return Some(Out::Cordoned);
    }
    if filters.has(Filter::NodeName) && pod.node_name.is_some_and(|name| name != node.name) {
        return Some(Out::OtherNode);
    }
    if filters.has(Filter::TaintToleration)
        && let Some(taint) = unborne_taint(pod, node)
    {
        return Some(Out::Taint(taint));
    }
    if !filters.has(Filter::NodeAffinity) {
        return None;
    }
    let added = profile.added_affinity.as_ref();
    if added.is_some_and(|terms| !terms.matches(node.name, &node.labels, &cluster.symbols)) {
        return Some(Out::EnforcedAffinity);
    }
    (!admits(cluster, pod, node)).then_some(Out::NodeAffinity)
}

fn bears_cordon(cluster: &Cluster, pod: &PodInfo) -> bool {
    let taint =
        Taint { key: cluster.known.unschedulable, value: cluster.known.empty, effect: Effect::NoSchedule };
    pod.tolerations.iter().any(|toleration| toleration.bears(&taint))
}

/// The first taint that keeps the pod away.
pub(crate) fn unborne_taint(pod: &PodInfo, node: &NodeInfo) -> Option<Taint> {
    let keeps_away = |taint: &&Taint| {
        matches!(taint.effect, Effect::NoSchedule | Effect::NoExecute)
            && !pod.tolerations.iter().any(|toleration| toleration.bears(taint))
    };
    node.taints.iter().find(keeps_away).copied()
}

/// Whether node selector and required node affinity admit a node.
pub(super) fn admits(cluster: &Cluster, pod: &PodInfo, node: &NodeInfo) -> bool {
    let symbols = &cluster.symbols;
    let selected =
        pod.node_selector.iter().all(|requirement| selector::matches(requirement, &node.labels, symbols));
    selected && pod.node_terms.as_ref().is_none_or(|terms| terms.matches(node.name, &node.labels, symbols))
}

/// Image score of every node: how much of the pod's images is there, weighed by how widely each is spread.
fn images(cluster: &Cluster, pod: &PodInfo) -> Vec<i64> {
    let nodes = cluster.nodes.len();
    let mut sums = vec![0_i64; nodes];
    if pod.images.is_empty() || cluster.nodes.iter().all(|node| node.images.is_empty()) {
        return sums;
    }
    let mut known: HashMap<Symbol, Vec<(NodeIndex, i64)>> = HashMap::new();
    for image in &pod.images {
        let there = known.entry(*image).or_insert_with(|| holders(cluster, *image)).clone();
        let share = there.len() as f64 / nodes as f64;
        for (node, size) in there {
            sums[node] += f64_to_i64(size as f64 * share);
        }
    }
    let most = IMAGE_MOST * usize_to_i64(pod.images.len());
    sums.into_iter()
        .map(|sum| 100 * (sum.clamp(IMAGE_LEAST, most) - IMAGE_LEAST) / (most - IMAGE_LEAST))
        .collect()
}

/// Nodes that have an image, and its size: the one that the first of them tells holds for all (`cache.go`).
fn holders(cluster: &Cluster, image: Symbol) -> Vec<(NodeIndex, i64)> {
    let has = |(at, node): (NodeIndex, &Arc<NodeInfo>)| {
        let found = node.images.binary_search_by_key(&image, |(name, _)| *name).ok()?;
        Some((at, node.images[found].1))
    };
    let mut holders: Vec<(NodeIndex, i64)> = cluster.nodes.iter().enumerate().filter_map(has).collect();
    if let Some((_, size)) = holders.first().copied() {
        holders.iter_mut().for_each(|(_, known)| *known = size);
    }
    holders
}
