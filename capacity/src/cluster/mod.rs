//! A cluster ready to be asked: nodes and what is on them, as numbers.
//!
//! Owned here: turning objects into numbers, one by one, so that a snapshot never has to be in memory as a whole. Not
//! owned: reading files ([`crate::load`]), rules ([`crate::plugin`]).

mod build;
mod in_tree;
mod keep;
mod pod;
pub mod resources;
pub mod selector;
pub mod storage;
mod symbols;
mod uid;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::admission::Charge;
use crate::state::ClusterState;
use crate::{extender, object};
pub use build::{Alike, BuildError, Builder, ObjectCounts, Oddity, PodIdentity};
pub use keep::{Change, ClusterCache, Now};
use pod::Compiler;
pub use pod::{Effect, HostPort, Manager, PodInfo, Spread, Taint, Term, Toleration, Weighted};
use resources::{Amounts, ResourceNames};
use selector::{Requirement, Selector, SelectorError};
use storage::Storage;
pub use symbols::{Labels, Symbol, Symbols};
pub(crate) use uid::Uid;

/// Index of a node: nodes are sorted by name, so that the smallest index is the smallest name.
pub type NodeIndex = usize;

/// A node.
#[derive(Debug, Clone)]
pub struct NodeInfo {
    /// Name.
    pub name: Symbol,
    /// Labels.
    pub labels: Labels,
    /// Taints.
    pub taints: Box<[Taint]>,
    /// Cordoned.
    pub unschedulable: bool,
    /// What pods may request in all.
    pub allocatable: Amounts,
    /// Most pods.
    pub max_pods: i64,
    /// Images on its disk with their size, bytes; sorted by name.
    pub images: Box<[(Symbol, i64)]>,
}

/// A pod on a node.
#[derive(Debug, Clone)]
pub struct Placed {
    /// What it asks for; shared by all that ask for the same.
    pub pod: Arc<PodInfo>,
    /// Name; the namespace is the pod's.
    pub name: Symbol,
    /// The API server's identifier.
    pub(crate) uid: Option<Uid>,
    /// Start time as text, which sorts by time; empty when it never started.
    pub started: Symbol,
    /// Who manages it, as kind/name; empty when nobody does.
    pub owner: Symbol,
    /// Where it is.
    pub node: NodeIndex,
    /// What quotas charge for it; shared by all that are charged the same.
    pub(crate) charge: Arc<Charge>,
}

/// A group of pods whose selector takes part in default spread constraints.
#[derive(Debug, Clone)]
pub struct SpreadGroup {
    /// Namespace.
    pub namespace: Symbol,
    /// Kind and name of what manages its pods; `None` = a service, whose pods are all that match.
    pub manager: Option<Manager>,
    /// Its pods.
    pub selector: Vec<Requirement>,
}

/// Words every rule needs.
#[derive(Debug, Clone, Copy)]
pub struct WellKnownSymbols {
    /// `kubernetes.io/hostname`.
    pub hostname: Symbol,
    /// `topology.kubernetes.io/zone`.
    pub zone: Symbol,
    /// The taint of a cordoned node.
    pub unschedulable: Symbol,
    /// The empty word.
    pub empty: Symbol,
}

/// A cluster.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// Words.
    pub symbols: Symbols,
    /// Resources.
    pub resources: ResourceNames,
    /// Words every rule needs.
    pub known: WellKnownSymbols,
    /// Nodes by name.
    pub nodes: Vec<Arc<NodeInfo>>,
    /// Pods on nodes.
    pub placed: Arc<Vec<Placed>>,
    /// Labels of namespaces.
    pub namespaces: HashMap<Symbol, Labels>,
    /// Services, replica sets and the like.
    pub groups: Vec<Arc<SpreadGroup>>,
    /// Volumes.
    pub storage: Storage,
    /// What pods that have not ended are charged by quotas, with how many alike there are.
    pub(crate) charges: HashMap<Arc<Charge>, i64>,
    /// What pods made since the snapshot take of each quota, by its namespace and name.
    pub(crate) taken: BTreeMap<(String, String), object::ResourceList>,
    /// Quotas as written; few.
    pub quotas: Vec<object::ResourceQuota>,
    /// Limit ranges as written; few.
    pub limit_ranges: Vec<object::LimitRange>,
    /// Namespaces as written, for their annotations; few.
    pub namespace_objects: Vec<object::Namespace>,
    /// Priorities by class name.
    pub priorities: HashMap<Symbol, object::PriorityClass>,
    /// Runtime classes by name; few.
    pub runtime_classes: BTreeMap<String, object::RuntimeClass>,
    /// Kinds whose objects are all here, even where there are none.
    pub(crate) listed: BTreeSet<String>,
    /// Whether the snapshot itself says which kinds it lists.
    pub(crate) says_listed: bool,
    /// Disruption budgets with their selector.
    pub budgets: Vec<(object::DisruptionBudget, Selector)>,
    /// Extenders are asked about pods that are made ready.
    pub(crate) tells_extenders: bool,
    /// What its pods take, where it is kept while they change.
    pub(crate) counted: Option<Counted>,
}

/// What pods take of nodes, and of which pods and nodes that is said.
#[derive(Debug, Clone)]
pub(crate) struct Counted {
    pub(crate) state: Arc<ClusterState>,
    pub(crate) placed: Arc<Vec<Placed>>,
    pub(crate) nodes: Vec<Arc<NodeInfo>>,
}

/// Makes a pod of the snapshot ready, or (`asked`) one that is yet to be placed.
fn compile(cluster: &mut Cluster, written: &object::Pod, asked: bool) -> Result<PodInfo, SelectorError> {
    let mut compiler = Compiler {
        symbols: &mut cluster.symbols,
        resources: &mut cluster.resources,
        storage: asked.then_some(&cluster.storage),
    };
    let pod = compiler.pod(written)?;
    Ok(with_priority(cluster, pod, written))
}

/// The priority of the named class, else of the default one, where the pod does not carry it yet.
fn with_priority(cluster: &Cluster, mut pod: PodInfo, written: &object::Pod) -> PodInfo {
    if written.spec.priority.is_none() {
        let named = cluster.symbols.find(&written.spec.priority_class_name);
        let class = named.and_then(|name| cluster.priorities.get(&name));
        let class = class.or_else(|| cluster.priorities.values().find(|class| class.global_default));
        if let Some(class) = class {
            pod.priority = class.value;
            pod.preempts = pod.preempts && class.preemption_policy != "Never";
        }
    }
    pod
}

impl Cluster {
    /// What its pods take, if that is known of just these pods on just these nodes.
    pub(crate) fn counted(&self) -> Option<&ClusterState> {
        let counted = self.counted.as_ref()?;
        let is_same = Arc::ptr_eq(&counted.placed, &self.placed)
            && counted.nodes.len() == self.nodes.len()
            && counted.nodes.iter().zip(&self.nodes).all(|(then, now)| Arc::ptr_eq(then, now));
        is_same.then_some(&*counted.state)
    }

    /// Makes a pod ready to be placed in this cluster.
    ///
    /// # Errors
    /// [`SelectorError`] when one of its selectors cannot be used.
    pub fn shape(&mut self, written: &object::Pod) -> Result<PodInfo, SelectorError> {
        let mut pod = compile(self, written, true)?;
        self.learn_group(written, &pod)?;
        pod.sent = self.tells_extenders.then(|| extender::sent::pod(written).to_string().into());
        Ok(pod)
    }

    /// Takes in the group of a pod that brings its own and whose manager the snapshot does not know.
    fn learn_group(&mut self, written: &object::Pod, pod: &PodInfo) -> Result<(), SelectorError> {
        let (Some(manager), Some(selector)) = (pod.manager, &written.own_group) else { return Ok(()) };
        let known =
            |group: &Arc<SpreadGroup>| group.namespace == pod.namespace && group.manager == Some(manager);
        if !self.groups.iter().any(known) {
            let selector = selector.requirements(|word| self.symbols.intern(word))?;
            self.groups.push(Arc::new(SpreadGroup {
                namespace: pod.namespace,
                manager: Some(manager),
                selector,
            }));
        }
        Ok(())
    }

    /// Keeps only some nodes, with what is on them, as if the others had never been.
    pub fn keep_nodes(&mut self, keep: impl Fn(&Self, &NodeInfo) -> bool) {
        let kept: Vec<bool> = self.nodes.iter().map(|node| keep(self, node)).collect();
        let mut index = 0;
        let place: Vec<Option<NodeIndex>> = kept
            .iter()
            .map(|kept| {
                kept.then(|| {
                    index += 1;
                    index - 1
                })
            })
            .collect();
        let mut at = 0;
        self.nodes.retain(|_| {
            at += 1;
            kept[at - 1]
        });
        Arc::make_mut(&mut self.placed).retain_mut(|placed| match place[placed.node] {
            Some(node) => {
                placed.node = node;
                true
            }
            None => false,
        });
    }

    /// The node of a name.
    pub fn node(&self, name: &str) -> Option<NodeIndex> {
        self.nodes.binary_search_by(|node| self.word(node.name).cmp(name)).ok()
    }

    /// Disruption budgets that protect a pod, with their index. As the scheduler has it, an empty selector protects nobody, and neither is a
    /// pod without labels protected (`preemption.go`).
    pub(crate) fn budgets_of(
        &self,
        pod: &PodInfo,
    ) -> impl Iterator<Item = (usize, &object::DisruptionBudget)> {
        let protects = move |(_, (budget, selector)): &(usize, &(object::DisruptionBudget, Selector))| {
            budget.metadata.namespace_or_default() == self.word(pod.namespace)
                && pod.labels.iter().next().is_some()
                && !selector.is_everything()
                && selector.matches(&pod.labels, &self.symbols)
        };
        self.budgets.iter().enumerate().filter(protects).map(|(at, (budget, _))| (at, budget))
    }

    /// Labels of a namespace; none where it is not in the snapshot.
    pub fn namespace_labels(&self, namespace: Symbol) -> &Labels {
        static NONE: std::sync::LazyLock<Labels> = std::sync::LazyLock::new(Labels::default);
        self.namespaces.get(&namespace).unwrap_or(&NONE)
    }

    /// Whether the snapshot lists a kind, so that an object that is not here is not in the cluster.
    pub(crate) fn lists(&self, kind: &str) -> bool {
        self.listed.contains(kind)
    }

    /// What bounds pods and is not known, because the snapshot says which kinds it was allowed to list.
    pub(crate) fn unlisted(&self) -> Option<String> {
        const BOUNDS: [(&str, &str); 3] = [
            ("ResourceQuota", "quotas do not bind"),
            ("LimitRange", "defaults and bounds of namespaces do not hold"),
            ("Namespace", "namespace selectors and node selectors of namespaces select nothing"),
        ];
        let missing = BOUNDS.iter().filter(|(kind, _)| self.says_listed && !self.lists(kind));
        let missing: Vec<String> = missing.map(|(kind, cost)| format!("no {kind} ({cost})")).collect();
        (!missing.is_empty()).then(|| format!("the snapshot says that it lists {}", missing.join(", ")))
    }

    /// A word.
    pub fn word(&self, symbol: Symbol) -> &str {
        self.symbols.word(symbol)
    }
}
