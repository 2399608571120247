//! What a scheduler does, as values: which filters and scores, with which weights and arguments.
//!
//! The default is kube-scheduler's default profile. Not owned: the rules themselves ([`crate::plugin`]), reading a
//! configuration file ([`crate::config`]).

mod plugin;

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::resources::{CPU, MEMORY, ResourceIndex};
use crate::cluster::selector::{NodeTerm, NodeTerms};
use crate::extender::Extender;
use crate::plugin::{FilterPlugin, PostFilterPlugin, ScorePlugin};
use crate::scenario::DefaultPreemption;
pub use plugin::{Filter, Filters, Score};

/// How left or used amounts become a score.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FitStrategy {
    /// The emptier the better.
    LeastAllocated,
    /// The fuller the better.
    MostAllocated,
    /// By a broken line through points of (use in percent, score 0 to 100).
    RequestedToCapacityRatio(Vec<(i64, i64)>),
}

/// Resources and their weights.
pub type ResourceWeights = Vec<(ResourceIndex, i64)>;

/// Which spread holds for pods that ask for none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DefaultSpread {
    /// The scheduler's own: hostnames by 3 and zones by 5, should.
    System,
    /// From the configuration; the selector is the pod's group.
    Listed(Vec<ListedSpread>),
}

/// A default constraint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedSpread {
    /// Most by which one domain may exceed the least.
    pub max_skew: i64,
    /// Node label.
    pub key: String,
    /// True = must.
    pub hard: bool,
}

/// Rules that changed between versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Version {
    /// Up to Kubernetes 1.34.
    V1_34,
    /// Kubernetes 1.36.
    #[default]
    V1_36,
}

/// Name of the scheduler of pods that name none.
pub(crate) const DEFAULT_SCHEDULER: &str = "default-scheduler";

/// What a scheduler does.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Name pods choose it by.
    pub name: String,
    /// Filters.
    pub filters: Filters,
    /// Scores with their weights.
    pub scores: Vec<(Score, i64)>,
    /// How resources are scored.
    pub fit: FitStrategy,
    /// Which resources are scored.
    pub fit_resources: ResourceWeights,
    /// Which resources are balanced.
    pub balanced_resources: Vec<ResourceIndex>,
    /// Extended resources that nodes need not have: by name, or by what is before the `/`.
    pub ignored_resources: Vec<String>,
    /// Node affinity every pod of this profile gets.
    pub added_affinity: Option<NodeTerms>,
    /// Node affinity every pod of this profile should have, with weights.
    pub added_preferences: Vec<(i64, NodeTerm)>,
    /// Spread of pods that ask for none.
    pub default_spread: DefaultSpread,
    /// Weight of a required affinity of others that the pod meets.
    pub hard_pod_affinity_weight: i64,
    /// What others would like to be near or away from does not count.
    pub own_pod_preferences_only: bool,
    /// Nodes the scheduler looks for, percent of all; 0 = it chooses by their number.
    pub percentage_of_nodes_to_score: u64,
    /// Rules that changed.
    pub version: Version,
    /// Filters that are not built in, asked after those that are.
    pub own_filters: Vec<Arc<dyn FilterPlugin>>,
    /// Scores that are not built in, with their weights.
    pub own_scores: Vec<(Arc<dyn ScorePlugin>, i64)>,
    /// What is done for a pod that no node takes; nothing where that is off.
    pub post_filter: Option<Arc<dyn PostFilterPlugin>>,
    /// Other programs that are asked after all filters.
    pub extenders: Vec<Arc<Extender>>,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            name: DEFAULT_SCHEDULER.to_owned(),
            filters: Filters::ALL,
            scores: vec![
                (Score::TaintToleration, 3),
                (Score::NodeAffinity, 2),
                (Score::PodTopologySpread, 2),
                (Score::InterPodAffinity, 2),
                (Score::NodeResourcesFit, 1),
                (Score::NodeResourcesBalancedAllocation, 1),
                (Score::ImageLocality, 1),
            ],
            fit: FitStrategy::LeastAllocated,
            fit_resources: vec![(CPU, 1), (MEMORY, 1)],
            balanced_resources: vec![CPU, MEMORY],
            ignored_resources: Vec::new(),
            added_affinity: None,
            added_preferences: Vec::new(),
            default_spread: DefaultSpread::System,
            hard_pod_affinity_weight: 1,
            own_pod_preferences_only: false,
            percentage_of_nodes_to_score: 0,
            version: Version::default(),
            own_filters: Vec::new(),
            own_scores: Vec::new(),
            post_filter: Some(Arc::new(DefaultPreemption)),
            extenders: Vec::new(),
        }
    }
}

impl Profile {
    /// The weight of a score; 0 = off.
    pub fn weight(&self, score: Score) -> i64 {
        self.scores.iter().find(|(known, _)| *known == score).map_or(0, |(_, weight)| *weight)
    }

    /// After how many nodes that fit the scheduler looks no further (`schedule_one.go`, `numFeasibleNodesToFind`).
    pub(crate) fn nodes_looked_for(&self, nodes: u64) -> u64 {
        const LEAST: u64 = 100;
        let percentage = match self.percentage_of_nodes_to_score {
            0 => (50_u64.saturating_sub(nodes / 125)).max(5),
            percentage => percentage,
        };
        (nodes.saturating_mul(percentage) / 100).max(LEAST).min(nodes)
    }

    /// Whether nodes need not have a resource free (`fit.go`, `fitsRequest`): only extended ones can be ignored.
    pub(crate) fn ignores(&self, cluster: &Cluster, resource: ResourceIndex) -> bool {
        let name = cluster.resources.name(resource, &cluster.symbols);
        let Some((group, _)) = name.split_once('/').filter(|_| !name.contains("kubernetes.io/")) else {
            return false;
        };
        self.ignored_resources.iter().any(|ignored| ignored == name || ignored == group)
    }
}

/// Profiles of one scheduler; never empty.
#[derive(Debug, Clone)]
pub struct Profiles(Vec<Profile>);

impl Default for Profiles {
    fn default() -> Self {
        Self(vec![Profile::default()])
    }
}

impl Profiles {
    /// These profiles; the default one where there are none.
    pub fn new(profiles: Vec<Profile>) -> Self {
        if profiles.is_empty() { Self::default() } else { Self(profiles) }
    }

    /// The same profiles, each changed.
    #[must_use]
    pub(crate) fn map(&self, change: impl Fn(&mut Profile)) -> Self {
        let mut profiles = self.0.clone();
        profiles.iter_mut().for_each(change);
        Self(profiles)
    }

    /// Whether a scheduler of this name looks at pods; without a name it is the default one.
    pub(crate) fn serves(&self, name: &str) -> bool {
        let name = if name.is_empty() { DEFAULT_SCHEDULER } else { name };
        self.0.iter().any(|profile| profile.name == name)
    }

    /// Why the count cannot be relied on: an extender, which all profiles share, gave no answer.
    pub(crate) fn extender_failure(&self) -> Option<String> {
        self.0[0].extenders.iter().find_map(|extender| extender.failure())
    }

    /// What is odd about the answers of extenders.
    pub(crate) fn extender_remarks(&self) -> Vec<String> {
        self.0[0].extenders.iter().flat_map(|extender| extender.remarks()).collect()
    }

    /// Names of all profiles.
    pub(crate) fn names(&self) -> String {
        self.0.iter().map(|profile| profile.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The profile a pod asks for by scheduler name; the first one where the name is not known.
    pub fn of(&self, name: &str) -> &Profile {
        self.0.iter().find(|profile| profile.name == name).unwrap_or(&self.0[0])
    }
}
