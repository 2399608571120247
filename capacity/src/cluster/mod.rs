//! A cluster ready to be asked: nodes and what is on them, as numbers.
//!
//! Owned here: turning objects into numbers, one by one, so that a snapshot never has to be in memory as a whole. Not
//! owned: reading files ([`crate::load`]), rules ([`crate::plugin`]).

mod pod;
pub mod resources;
pub mod selector;
pub mod storage;
mod symbols;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::admission::Charge;
use crate::object::{self, Object};
use pod::{Compiler, claim_key};
pub use pod::{Effect, HostPort, Pod, Spread, Taint, Term, Toleration, Weighted};
use resources::{Amounts, ResourceNames, amounts};
use selector::{Requirement, Selector, SelectorError, equalities};
use storage::Storage;
pub use symbols::{Labels, Symbol, Symbols};

/// Index of a node: nodes are sorted by name, so that the smallest index is the smallest name.
pub type NodeIndex = usize;

/// A node.
#[derive(Debug, Clone)]
pub struct Node {
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
    pub pod: Arc<Pod>,
    /// Name; the namespace is the pod's.
    pub name: Symbol,
    /// Start time as text, which sorts by time; empty when it never started.
    pub started: Symbol,
    /// Who manages it, as kind/name; empty when nobody does.
    pub owner: Symbol,
    /// Where it is.
    pub node: NodeIndex,
}

/// A group of pods whose selector takes part in default spread constraints.
#[derive(Debug, Clone)]
pub struct Group {
    /// Namespace.
    pub namespace: Symbol,
    /// Its pods.
    pub selector: Vec<Requirement>,
}

/// Words every rule needs.
#[derive(Debug, Clone, Copy)]
pub struct Known {
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
    pub known: Known,
    /// Nodes by name.
    pub nodes: Vec<Node>,
    /// Pods on nodes.
    pub placed: Vec<Placed>,
    /// Labels of namespaces.
    pub namespaces: HashMap<Symbol, Labels>,
    /// Services, replica sets and the like.
    pub groups: Vec<Group>,
    /// Volumes.
    pub storage: Storage,
    /// What pods that have not ended are charged by quotas, with how many alike there are.
    pub(crate) charges: HashMap<Charge, i64>,
    /// Quotas as written; few.
    pub quotas: Vec<object::ResourceQuota>,
    /// Limit ranges as written; few.
    pub limit_ranges: Vec<object::LimitRange>,
    /// Namespaces as written, for their annotations; few.
    pub namespace_objects: Vec<object::Namespace>,
    /// Priorities by class name.
    pub priorities: HashMap<Symbol, object::PriorityClass>,
    /// Disruption budgets with their selector.
    pub budgets: Vec<(object::DisruptionBudget, Selector)>,
}

/// What stands in the way of using an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The same object twice.
    #[error("{kind} {name} is there twice")]
    Twice {
        /// Kind.
        kind: &'static str,
        /// Namespace and name.
        name: String,
    },
    /// A selector cannot be used.
    #[error("{kind} {name}: {error}")]
    Selector {
        /// Kind.
        kind: &'static str,
        /// Namespace and name.
        name: String,
        /// Why.
        error: SelectorError,
    },
}

/// Something odd that does not stop the reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oddity {
    /// Kind, namespace and name.
    pub object: String,
    /// What is odd, and what is made of it.
    pub what: String,
}

/// Largest image that counts, a pebibyte: sums of sizes cannot overflow.
const MOST_IMAGE_BYTES: i64 = 1 << 50;
/// Most oddities that are told one by one; further ones are counted.
const ODDITIES_TOLD: usize = 100;

/// A pod and the name of its node.
#[derive(Debug)]
struct Bound {
    pod: Arc<Pod>,
    name: Symbol,
    started: Symbol,
    owner: Symbol,
    node: Symbol,
}

/// Collects objects into a cluster.
#[derive(Debug)]
pub struct Builder {
    cluster: Cluster,
    /// Pods whose node has not been seen yet, if it ever will.
    bound: Vec<Bound>,
    /// Each different pod once.
    shapes: HashSet<Arc<Pod>>,
    seen: HashSet<(&'static str, Symbol)>,
    oddities: Vec<Oddity>,
    more_oddities: usize,
    pending: usize,
    ended: usize,
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nodes.
    pub nodes: usize,
    /// Pods that count on a node.
    pub placed: usize,
    /// Pods that wait for a node: they take nothing.
    pub pending: usize,
    /// Pods that ended: they take nothing.
    pub ended: usize,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// An empty cluster.
    pub fn new() -> Self {
        let mut symbols = Symbols::default();
        let known = Known {
            hostname: symbols.intern("kubernetes.io/hostname"),
            zone: symbols.intern("topology.kubernetes.io/zone"),
            unschedulable: symbols.intern("node.kubernetes.io/unschedulable"),
            empty: symbols.intern(""),
        };
        let resources = ResourceNames::new(&mut symbols);
        let cluster = Cluster {
            symbols,
            resources,
            known,
            nodes: Vec::new(),
            placed: Vec::new(),
            namespaces: HashMap::new(),
            groups: Vec::new(),
            storage: Storage::default(),
            charges: HashMap::new(),
            quotas: Vec::new(),
            limit_ranges: Vec::new(),
            namespace_objects: Vec::new(),
            priorities: HashMap::new(),
            budgets: Vec::new(),
        };
        Self {
            cluster,
            bound: Vec::new(),
            shapes: HashSet::new(),
            seen: HashSet::new(),
            oddities: Vec::new(),
            more_oddities: 0,
            pending: 0,
            ended: 0,
        }
    }

    /// Takes in one object.
    ///
    /// # Errors
    /// [`BuildError`] when it was there already or cannot be used; the builder stays as it was.
    pub fn add(&mut self, object: &Object) -> Result<(), BuildError> {
        let (kind, meta) = describe(object);
        let name = full_name(meta);
        let key = self.cluster.symbols.intern(&name);
        if !self.seen.insert((kind, key)) {
            return Err(BuildError::Twice { kind, name });
        }
        self.take(object).map_err(|error| BuildError::Selector { kind, name, error })
    }

    fn take(&mut self, object: &Object) -> Result<(), SelectorError> {
        let cluster = &mut self.cluster;
        let symbols = &mut cluster.symbols;
        match object {
            Object::Node(node) => self.node(node),
            Object::Pod(pod) => self.pod(pod)?,
            Object::Namespace(namespace) => {
                let name = symbols.intern(&namespace.metadata.name);
                let labels = Labels::new(&namespace.metadata.labels, symbols);
                cluster.namespaces.insert(name, labels);
                cluster.namespace_objects.push((**namespace).clone());
            }
            Object::Service(service) => {
                let namespace = symbols.intern(service.metadata.namespace_or_default());
                if let Some(labels) = service.spec.selector.as_ref().filter(|labels| !labels.is_empty()) {
                    let selector = equalities(labels, symbols);
                    cluster.groups.push(Group { namespace, selector });
                }
            }
            Object::ReplicaSet(set) => {
                let namespace = symbols.intern(set.metadata.namespace_or_default());
                if let Some(selector) = &set.spec.selector {
                    let mut all = equalities(&selector.match_labels, symbols);
                    for requirement in &selector.match_expressions {
                        all.push(Requirement::new(requirement, symbols)?);
                    }
                    cluster.groups.push(Group { namespace, selector: all });
                }
            }
            Object::PersistentVolume(volume) => {
                let volume = storage::volume(volume, symbols)?;
                cluster.storage.volumes.insert(volume.name, volume);
            }
            Object::PersistentVolumeClaim(claim) => {
                let meta = &claim.metadata;
                let key = claim_key(meta.namespace_or_default(), &meta.name, symbols);
                let claim = storage::claim(claim, symbols)?;
                cluster.storage.claims.insert(key, claim);
            }
            Object::StorageClass(class) => {
                let name = symbols.intern(&class.metadata.name);
                let class = storage::class(class, symbols);
                cluster.storage.classes.insert(name, class);
            }
            Object::CsiNode(node) => {
                let name = symbols.intern(&node.metadata.name);
                for driver in &node.spec.drivers {
                    if let Some(count) = driver.allocatable.as_ref().and_then(|limit| limit.count) {
                        cluster.storage.limits.insert((name, symbols.intern(&driver.name)), count);
                    }
                }
            }
            Object::CsiDriver(driver) if driver.spec.storage_capacity => {
                let name = symbols.intern(&driver.metadata.name);
                cluster.storage.space_drivers.push(name);
            }
            Object::CsiDriver(_) => {}
            Object::StorageCapacity(space) => {
                let space = storage::space(space, symbols)?;
                cluster.storage.spaces.push(space);
            }
            Object::VolumeAttachment(attachment) => {
                let node = symbols.intern(&attachment.spec.node_name);
                let driver = symbols.intern(&attachment.spec.attacher);
                if let Some(volume) = &attachment.spec.source.persistent_volume_name {
                    let volume = symbols.intern(volume);
                    cluster.storage.attached.entry(node).or_default().push((driver, volume));
                }
            }
            Object::ResourceQuota(quota) => cluster.quotas.push((**quota).clone()),
            Object::LimitRange(range) => cluster.limit_ranges.push((**range).clone()),
            Object::PriorityClass(class) => {
                let name = symbols.intern(&class.metadata.name);
                cluster.priorities.insert(name, (**class).clone());
            }
            Object::DisruptionBudget(budget) => {
                let selector = Selector::new(budget.spec.selector.as_ref(), symbols)?;
                cluster.budgets.push(((**budget).clone(), selector));
            }
        }
        Ok(())
    }

    fn node(&mut self, written: &object::Node) {
        let name = &written.metadata.name;
        let mut allocatable =
            amounts(&written.status.allocatable, &mut self.cluster.resources, &mut self.cluster.symbols);
        if allocatable.iter().any(|(_, amount)| *amount < 0) {
            self.odd(format!("Node {name}"), "a negative allocatable amount counts as nothing".to_owned());
            for (_, amount) in &mut allocatable {
                *amount = (*amount).max(0);
            }
        }
        let symbols = &mut self.cluster.symbols;
        let taints = written.spec.taints.iter().map(|taint| Taint {
            key: symbols.intern(&taint.key),
            value: symbols.intern(&taint.value),
            effect: Effect::of(&taint.effect).unwrap_or(Effect::Other),
        });
        let taints = taints.collect();
        let mut images: Vec<(Symbol, i64)> = Vec::new();
        for image in &written.status.images {
            images.extend(
                image
                    .names
                    .iter()
                    .map(|name| (symbols.intern(name), image.size_bytes.clamp(0, MOST_IMAGE_BYTES))),
            );
        }
        images.sort_unstable();
        images.dedup_by_key(|(name, _)| *name);
        let pods = self.cluster.resources.find("pods", symbols);
        let max_pods =
            pods.and_then(|pods| allocatable.iter().find(|(index, _)| *index == pods)).map_or(0, |(_, n)| *n);
        let node = Node {
            name: symbols.intern(name),
            labels: Labels::new(&written.metadata.labels, symbols),
            taints,
            unschedulable: written.spec.unschedulable,
            allocatable,
            max_pods,
            images: images.into(),
        };
        self.cluster.nodes.push(node);
    }

    fn pod(&mut self, written: &object::Pod) -> Result<(), SelectorError> {
        if matches!(written.status.phase.as_str(), "Succeeded" | "Failed") {
            self.ended += 1;
            return Ok(());
        }
        let charge = Charge::of(written, &mut self.cluster.resources, &mut self.cluster.symbols);
        *self.cluster.charges.entry(charge).or_default() += 1;
        if written.spec.node_name.is_empty() {
            self.pending += 1;
            return Ok(());
        }
        let mut pod = compile(&mut self.cluster, written)?;
        let node = self.cluster.symbols.intern(&written.spec.node_name);
        // Where it is says the placement.
        pod.node_name = None;
        let symbols = &mut self.cluster.symbols;
        let name = symbols.intern(&written.metadata.name);
        let started = symbols.intern(written.status.start_time.as_deref().unwrap_or(""));
        let pod = match self.shapes.get(&pod) {
            Some(known) => Arc::clone(known),
            None => {
                let pod = Arc::new(pod);
                self.shapes.insert(Arc::clone(&pod));
                pod
            }
        };
        let owner = written.metadata.controller().map_or(String::new(), |o| format!("{}/{}", o.kind, o.name));
        let owner = symbols.intern(&owner);
        self.bound.push(Bound { pod, name, started, owner, node });
        Ok(())
    }

    fn odd(&mut self, object: String, what: String) {
        if self.oddities.len() < ODDITIES_TOLD {
            self.oddities.push(Oddity { object, what });
        } else {
            self.more_oddities += 1;
        }
    }

    /// The cluster, what was read, and what was odd about it.
    pub fn finish(mut self) -> (Cluster, Counts, Vec<Oddity>) {
        let symbols = &self.cluster.symbols;
        self.cluster.nodes.sort_by(|a, b| symbols.word(a.name).cmp(symbols.word(b.name)));
        let index: HashMap<Symbol, NodeIndex> =
            self.cluster.nodes.iter().enumerate().map(|(at, node)| (node.name, at)).collect();
        let bound = std::mem::take(&mut self.bound);
        let mut missing = Vec::new();
        for Bound { pod, name, started, owner, node } in bound {
            match index.get(&node) {
                Some(at) => self.cluster.placed.push(Placed { pod, name, started, owner, node: *at }),
                None => missing.push((pod, name, node)),
            }
        }
        for (pod, name, node) in missing {
            let symbols = &self.cluster.symbols;
            let object = format!("Pod {}/{}", symbols.word(pod.namespace), symbols.word(name));
            let what = format!("its node {} is not in the snapshot; it takes nothing", symbols.word(node));
            self.odd(object, what);
        }
        if self.more_oddities > 0 {
            let what = format!("and {} more contradictions of these kinds", self.more_oddities);
            self.oddities.push(Oddity { object: "snapshot".to_owned(), what });
        }
        self.cluster.storage.settle();
        let counts = Counts {
            nodes: self.cluster.nodes.len(),
            placed: self.cluster.placed.len(),
            pending: self.pending,
            ended: self.ended,
        };
        (self.cluster, counts, self.oddities)
    }
}

fn compile(cluster: &mut Cluster, written: &object::Pod) -> Result<Pod, SelectorError> {
    let pod = Compiler { symbols: &mut cluster.symbols, resources: &mut cluster.resources }.pod(written)?;
    Ok(with_priority(cluster, pod, written))
}

/// The priority of the named class, else of the default one, where the pod does not carry it yet.
fn with_priority(cluster: &Cluster, mut pod: Pod, written: &object::Pod) -> Pod {
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
    /// Makes a pod ready to be placed in this cluster.
    ///
    /// # Errors
    /// [`SelectorError`] when one of its selectors cannot be used.
    pub fn shape(&mut self, written: &object::Pod) -> Result<Pod, SelectorError> {
        compile(self, written)
    }

    /// Keeps only some nodes, with what is on them, as if the others had never been.
    pub fn keep_nodes(&mut self, keep: impl Fn(&Self, &Node) -> bool) {
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
        self.placed.retain_mut(|placed| match place[placed.node] {
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

    /// Labels of a namespace; none where it is not in the snapshot.
    pub fn namespace_labels(&self, namespace: Symbol) -> &Labels {
        static NONE: std::sync::LazyLock<Labels> = std::sync::LazyLock::new(Labels::default);
        self.namespaces.get(&namespace).unwrap_or(&NONE)
    }

    /// A word.
    pub fn word(&self, symbol: Symbol) -> &str {
        self.symbols.word(symbol)
    }
}

fn full_name(meta: &object::Metadata) -> String {
    if meta.namespace.is_empty() { meta.name.clone() } else { format!("{}/{}", meta.namespace, meta.name) }
}

fn describe(object: &Object) -> (&'static str, &object::Metadata) {
    match object {
        Object::Node(o) => ("Node", &o.metadata),
        Object::Pod(o) => ("Pod", &o.metadata),
        Object::Namespace(o) => ("Namespace", &o.metadata),
        Object::Service(o) => ("Service", &o.metadata),
        Object::ReplicaSet(o) => ("ReplicaSet", &o.metadata),
        Object::PersistentVolume(o) => ("PersistentVolume", &o.metadata),
        Object::PersistentVolumeClaim(o) => ("PersistentVolumeClaim", &o.metadata),
        Object::StorageClass(o) => ("StorageClass", &o.metadata),
        Object::CsiNode(o) => ("CSINode", &o.metadata),
        Object::CsiDriver(o) => ("CSIDriver", &o.metadata),
        Object::StorageCapacity(o) => ("CSIStorageCapacity", &o.metadata),
        Object::VolumeAttachment(o) => ("VolumeAttachment", &o.metadata),
        Object::ResourceQuota(o) => ("ResourceQuota", &o.metadata),
        Object::LimitRange(o) => ("LimitRange", &o.metadata),
        Object::PriorityClass(o) => ("PriorityClass", &o.metadata),
        Object::DisruptionBudget(o) => ("PodDisruptionBudget", &o.metadata),
    }
}
