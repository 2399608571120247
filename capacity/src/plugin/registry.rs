//! Plugins by name: what a scheduler's configuration may switch on, the built-in ones and those of whoever uses this crate.
//!
//! Built-in plugins implement the same traits ([`super::built_in`]). Where only whether a pod fits is asked, millions of
//! times, they are asked without a virtual call; own plugins are asked through their trait, as often as [`Sees`] says.

use std::fmt::Debug;
use std::sync::Arc;

use super::cycle::Cycle;
use super::reason::Rejection;
use crate::cluster::{Cluster, NodeIndex, PodInfo};
use crate::extender::Transport;
use crate::profile::{Filter, Profile, Score};
use crate::scenario::{DefaultPreemption, Nomination, Stuck};
use crate::state::ClusterState;

/// One pod against one cluster, as it is now.
#[derive(Debug, Clone, Copy)]
pub struct PluginView<'a> {
    /// Nodes, and words.
    pub cluster: &'a Cluster,
    /// What is on the nodes.
    pub state: &'a ClusterState,
    /// What the scheduler does.
    pub profile: &'a Profile,
    /// The pod, every built-in rule prepared for it.
    pub(crate) cycle: &'a Cycle,
}

impl<'a> PluginView<'a> {
    /// The pod.
    pub fn pod(&self) -> &'a PodInfo {
        &self.cycle.pod
    }

    /// A label of a node.
    pub fn node_label(&self, node: NodeIndex, key: &str) -> Option<&'a str> {
        let key = self.cluster.symbols.find(key)?;
        self.cluster.nodes[node].labels.get(key).map(|value| self.cluster.word(value))
    }

    /// A label of the pod.
    pub fn pod_label(&self, key: &str) -> Option<&'a str> {
        let key = self.cluster.symbols.find(key)?;
        self.pod().labels.get(key).map(|value| self.cluster.word(value))
    }

    /// What the pod requests of a resource: CPU in thousandths of a core, anything else in whole units.
    pub fn request(&self, resource: &str) -> i64 {
        let resource = self.cluster.resources.find(resource, &self.cluster.symbols);
        resource.map_or(0, |resource| self.cycle.request(resource))
    }

    /// What a node has left of a resource, in the same units.
    pub fn free(&self, node: NodeIndex, resource: &str) -> i64 {
        let resource = self.cluster.resources.find(resource, &self.cluster.symbols);
        resource.filter(|resource| *resource < self.state.allocatable.len()).map_or(0, |resource| {
            self.state.allocatable[resource][node].saturating_sub(self.state.requested[resource][node])
        })
    }
}

/// What a filter's answer about a node depends on, besides the pod. The less it is, the less often the filter is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sees {
    /// The node as it is written: asked once a node.
    Node,
    /// What is on the node: asked again when that changes.
    OnNode,
    /// Anything: asked about every node for every pod.
    Cluster,
}

/// Whether a node takes a pod.
pub trait FilterPlugin: Debug + Send + Sync {
    /// Name, as configurations have it.
    fn name(&self) -> &'static str;

    /// What the answer depends on.
    fn sees(&self) -> Sees {
        Sees::Cluster
    }

    /// Why a node does not take the pod; nothing where it does.
    fn refuses(&self, view: &PluginView<'_>, node: NodeIndex) -> Option<Rejection>;
}

/// How well nodes suit a pod.
pub trait ScorePlugin: Debug + Send + Sync {
    /// Name, as configurations have it.
    fn name(&self) -> &'static str;

    /// A score for each of these nodes, in their order; nothing where it has no say about the pod. What is beyond 0 to 100
    /// counts as 0 or 100, and what is missing as 0.
    fn scores(&self, view: &PluginView<'_>, nodes: &[NodeIndex]) -> Option<Vec<i64>>;
}

/// What is done for a pod that no node takes.
pub trait PostFilterPlugin: Debug + Send + Sync {
    /// Name, as configurations have it.
    fn name(&self) -> &'static str;

    /// The node the pod goes to once others have gone; nothing where that does not help.
    fn nominate(&self, stuck: &Stuck<'_>) -> Option<Nomination>;
}

/// A filter by its kind.
#[derive(Debug, Clone)]
pub(crate) enum AnyFilter {
    BuiltIn(Filter),
    Own(Arc<dyn FilterPlugin>),
}

/// A score by its kind.
#[derive(Debug, Clone)]
pub(crate) enum AnyScore {
    BuiltIn(Score),
    Own(Arc<dyn ScorePlugin>),
}

/// Plugins by name. A name serves one filter, one score and one post-filter at most.
#[derive(Debug, Clone)]
pub struct Registry {
    filters: Vec<AnyFilter>,
    scores: Vec<AnyScore>,
    post_filters: Vec<Arc<dyn PostFilterPlugin>>,
    pub(crate) transport: Option<Arc<dyn Transport>>,
}

/// A plugin of this name and kind is there already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a {kind} named {name} is registered already; give another name")]
pub struct RegisterError {
    kind: &'static str,
    name: &'static str,
}

impl Default for Registry {
    /// The built-in plugins.
    fn default() -> Self {
        Self {
            filters: Filter::ALL.into_iter().map(AnyFilter::BuiltIn).collect(),
            scores: Score::ALL.into_iter().map(AnyScore::BuiltIn).collect(),
            post_filters: vec![Arc::new(DefaultPreemption)],
            transport: None,
        }
    }
}

impl Registry {
    /// Adds a filter, which a configuration may then enable by its name.
    ///
    /// # Errors
    /// When there is one of this name.
    pub fn filter(&mut self, plugin: impl FilterPlugin + 'static) -> Result<(), RegisterError> {
        let name = plugin.name();
        free_name("filter", name, self.find_filter(name).is_some())?;
        self.filters.push(AnyFilter::Own(Arc::new(plugin)));
        Ok(())
    }

    /// Adds a score.
    ///
    /// # Errors
    /// When there is one of this name.
    pub fn score(&mut self, plugin: impl ScorePlugin + 'static) -> Result<(), RegisterError> {
        let name = plugin.name();
        free_name("score", name, self.find_score(name).is_some())?;
        self.scores.push(AnyScore::Own(Arc::new(plugin)));
        Ok(())
    }

    /// Adds a post-filter.
    ///
    /// # Errors
    /// When there is one of this name.
    pub fn post_filter(&mut self, plugin: impl PostFilterPlugin + 'static) -> Result<(), RegisterError> {
        let name = plugin.name();
        free_name("post-filter", name, self.find_post_filter(name).is_some())?;
        self.post_filters.push(Arc::new(plugin));
        Ok(())
    }

    /// Asks the extenders of a configuration over this; without it a configuration that has any is refused.
    pub fn extenders_over(&mut self, transport: Arc<dyn Transport>) {
        self.transport = Some(transport);
    }

    pub(crate) fn find_filter(&self, name: &str) -> Option<&AnyFilter> {
        self.filters.iter().find(|filter| match filter {
            AnyFilter::BuiltIn(filter) => filter.name() == name,
            AnyFilter::Own(plugin) => plugin.name() == name,
        })
    }

    pub(crate) fn find_score(&self, name: &str) -> Option<&AnyScore> {
        self.scores.iter().find(|score| match score {
            AnyScore::BuiltIn(score) => score.name() == name,
            AnyScore::Own(plugin) => plugin.name() == name,
        })
    }

    pub(crate) fn find_post_filter(&self, name: &str) -> Option<&Arc<dyn PostFilterPlugin>> {
        self.post_filters.iter().find(|plugin| plugin.name() == name)
    }
}

fn free_name(kind: &'static str, name: &'static str, taken: bool) -> Result<(), RegisterError> {
    if taken { Err(RegisterError { kind, name }) } else { Ok(()) }
}
