//! Objects into a cluster, one by one: what is there twice is refused, what contradicts itself is told and survived.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::mem::{Discriminant, discriminant};
use std::sync::Arc;

use super::pod::{Effect, PodInfo, Taint, claim_key};
use super::resources::{ResourceNames, amounts};
use super::selector::{Selector, SelectorError, equalities};
use super::storage::{self, Storage};
use super::symbols::{Labels, Symbol, Symbols};
use super::{
    Cluster, ClusterCache, NodeIndex, NodeInfo, Placed, SpreadGroup, Uid, WellKnownSymbols, compile,
};
use crate::admission::Charge;
use crate::object::{self, Object};

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

impl BuildError {
    /// Kind of the object.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Twice { kind, .. } | Self::Selector { kind, .. } => kind,
        }
    }
}

/// Something odd that does not stop the reading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oddity {
    /// Kind, namespace and name.
    pub object: String,
    /// What is odd, and what is made of it.
    pub what: String,
}

/// What is odd: the first are told, further ones are counted.
#[derive(Debug, Clone, Default)]
pub(super) struct Oddities {
    told: Vec<Oddity>,
    more: usize,
}

impl Oddities {
    pub(super) fn add(&mut self, object: String, what: String) {
        if self.told.len() < ODDITIES_TOLD {
            self.told.push(Oddity { object, what });
        } else {
            self.more += 1;
        }
    }

    /// A pod on a node that is not there.
    pub(super) fn lost(&mut self, namespace: &str, name: &str, node: &str) {
        let what = format!("its node {node} is not in the snapshot; it takes nothing");
        self.add(format!("Pod {namespace}/{name}"), what);
    }

    pub(super) fn is_any(&self) -> bool {
        !self.told.is_empty()
    }

    pub(super) fn told(mut self) -> Vec<Oddity> {
        if self.more > 0 {
            let what = format!("and {} more contradictions of these kinds", self.more);
            self.told.push(Oddity { object: "snapshot".to_owned(), what });
        }
        self.told
    }
}

/// Largest image that counts, a pebibyte: sums of sizes cannot overflow.
const MOST_IMAGE_BYTES: i64 = 1 << 50;
/// Most oddities that are told one by one; further ones are counted.
const ODDITIES_TOLD: usize = 100;

/// Most kinds of conditions of which it is told that nobody reports them.
const CONDITIONS_TOLD: usize = 8;

/// A pod and the name of its node.
#[derive(Debug)]
struct BoundPod {
    placed: Placed,
    node: Symbol,
}

/// What many pods have in common, made ready once for all of them.
#[derive(Debug, Clone)]
pub struct Alike {
    pub(super) pod: Arc<PodInfo>,
    pub(super) charge: Arc<Charge>,
    pub(super) owner: Symbol,
}

/// What tells one pod from others that are alike.
#[derive(Debug, Clone, Copy)]
pub struct PodIdentity<'a> {
    /// Name.
    pub name: &'a str,
    /// The API server's identifier.
    pub uid: &'a str,
    /// Its node; empty where it has none yet.
    pub node: &'a str,
    /// When the kubelet took it, RFC 3339; empty before.
    pub started: &'a str,
}

/// Collects objects into a cluster.
#[derive(Debug)]
pub struct Builder {
    pub(super) cluster: Cluster,
    /// Pods whose node has not been seen yet, if it ever will.
    bound: Vec<BoundPod>,
    /// Each different pod once.
    pub(super) shapes: HashSet<Arc<PodInfo>>,
    /// Kind, namespace (empty where there is none) and name of everything.
    seen: HashSet<(Discriminant<Object>, Symbol, Symbol)>,
    pub(super) oddities: Oddities,
    pending: usize,
    ended: usize,
    pub(super) untold: BTreeMap<String, usize>,
    /// The kind of the object before, which is known to be listed.
    last_listed: Option<&'static str>,
}

/// What was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Nodes.
    pub nodes: usize,
    /// Pods that count on a node.
    pub placed: usize,
    /// Pods that wait for a node: they take nothing.
    pub pending: usize,
    /// Pods that ended: they take nothing.
    pub ended: usize,
    /// Nodes by conditions that nobody reports of them ([`object::NOT_REPORTED`]).
    pub untold: BTreeMap<String, usize>,
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
        let known = WellKnownSymbols {
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
            placed: Arc::default(),
            namespaces: HashMap::new(),
            groups: Vec::new(),
            storage: Storage::default(),
            charges: HashMap::new(),
            taken: BTreeMap::new(),
            quotas: Vec::new(),
            limit_ranges: Vec::new(),
            namespace_objects: Vec::new(),
            priorities: HashMap::new(),
            runtime_classes: BTreeMap::new(),
            listed: BTreeSet::new(),
            says_listed: false,
            budgets: Vec::new(),
            tells_extenders: false,
            counted: None,
        };
        Self {
            cluster,
            bound: Vec::new(),
            shapes: HashSet::new(),
            seen: HashSet::new(),
            oddities: Oddities::default(),
            pending: 0,
            ended: 0,
            untold: BTreeMap::new(),
            last_listed: None,
        }
    }

    /// Goes on with a cluster that was built.
    fn over(cluster: Cluster) -> Self {
        Self { cluster, ..Self::new() }
    }

    /// Whether an object may be made with pods ([`Cluster::apply`]).
    pub(crate) fn applies(object: &Object) -> bool {
        matches!(
            object,
            Object::Namespace(_)
                | Object::PersistentVolume(_)
                | Object::PersistentVolumeClaim(_)
                | Object::StorageClass(_)
                | Object::ResourceQuota(_)
                | Object::LimitRange(_)
                | Object::PriorityClass(_)
                | Object::RuntimeClass(_)
        )
    }

    /// Takes in one object.
    ///
    /// # Errors
    /// [`BuildError`] when it was there already or cannot be used; the builder stays as it was.
    pub fn add(&mut self, object: &Object) -> Result<(), BuildError> {
        let (kind, meta) = describe(object);
        let symbols = &mut self.cluster.symbols;
        let namespace = if is_cluster_wide(kind) { "" } else { meta.namespace_or_default() };
        let key = (discriminant(object), symbols.intern(namespace), symbols.intern(&meta.name));
        if self.seen.contains(&key) {
            return Err(BuildError::Twice { kind, name: full_name(kind, meta) });
        }
        self.take(object).map_err(|error| BuildError::Selector {
            kind,
            name: full_name(kind, meta),
            error,
        })?;
        self.seen.insert(key);
        if self.last_listed != Some(kind) {
            self.listed(kind);
            self.last_listed = Some(kind);
        }
        Ok(())
    }

    /// All objects of a kind are there, even where there are none.
    pub fn listed(&mut self, kind: &str) {
        if !self.cluster.listed.contains(kind) {
            self.cluster.listed.insert(kind.to_owned());
        }
    }

    /// Which kinds are listed is said, and not only told by their objects.
    pub(crate) const fn says_listed(&mut self) {
        self.cluster.says_listed = true;
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
            Object::Service(service) => self.service(service, None),
            Object::ReplicationController(controller) => {
                self.service(controller, Some("ReplicationController"));
            }
            Object::ReplicaSet(set) => self.set(set, "ReplicaSet")?,
            Object::StatefulSet(set) => self.set(set, "StatefulSet")?,
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
                cluster.storage.add_class(class, symbols);
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
            Object::RuntimeClass(class) => {
                cluster.runtime_classes.insert(class.metadata.name.clone(), (**class).clone());
            }
            Object::DisruptionBudget(budget) => {
                let selector = Selector::new(budget.spec.selector.as_ref(), symbols)?;
                cluster.budgets.push(((**budget).clone(), selector));
            }
        }
        Ok(())
    }

    fn service(&mut self, written: &object::Service, kind: Option<&str>) {
        let symbols = &mut self.cluster.symbols;
        let namespace = symbols.intern(written.metadata.namespace_or_default());
        let manager = kind.map(|kind| (symbols.intern(kind), symbols.intern(&written.metadata.name)));
        if let Some(labels) = written.spec.selector.as_ref().filter(|labels| !labels.is_empty()) {
            let selector = equalities(labels, symbols);
            self.cluster.groups.push(Arc::new(SpreadGroup { namespace, manager, selector }));
        }
    }

    fn set(&mut self, written: &object::ReplicaSet, kind: &str) -> Result<(), SelectorError> {
        let symbols = &mut self.cluster.symbols;
        let namespace = symbols.intern(written.metadata.namespace_or_default());
        let manager = Some((symbols.intern(kind), symbols.intern(&written.metadata.name)));
        if let Some(selector) = &written.spec.selector {
            let selector = selector.requirements(|word| symbols.intern(word))?;
            self.cluster.groups.push(Arc::new(SpreadGroup { namespace, manager, selector }));
        }
        Ok(())
    }

    fn node(&mut self, written: &object::Node) {
        let node = self.ready(written);
        self.cluster.nodes.push(Arc::new(node));
    }

    /// A node as numbers.
    pub(super) fn ready(&mut self, written: &object::Node) -> NodeInfo {
        let name = &written.metadata.name;
        let conditions = written.status.conditions.iter();
        for untold in conditions.filter(|condition| condition.reason == object::NOT_REPORTED) {
            if self.untold.contains_key(&untold.kind) || self.untold.len() < CONDITIONS_TOLD {
                *self.untold.entry(untold.kind.clone()).or_default() += 1;
            }
        }
        let mut allocatable =
            amounts(&written.status.allocatable, &mut self.cluster.resources, &mut self.cluster.symbols);
        if allocatable.iter().any(|(_, amount)| *amount < 0) {
            self.oddities
                .add(format!("Node {name}"), "a negative allocatable amount counts as nothing".to_owned());
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
        NodeInfo {
            name: symbols.intern(name),
            labels: Labels::new(&written.metadata.labels, symbols),
            taints,
            unschedulable: written.spec.unschedulable,
            allocatable,
            max_pods,
            images: images.into(),
        }
    }

    fn pod(&mut self, written: &object::Pod) -> Result<(), SelectorError> {
        if matches!(written.status.phase.as_str(), "Succeeded" | "Failed") {
            self.ended += 1;
            return Ok(());
        }
        let alike = self.alike(written)?;
        let one = PodIdentity {
            name: &written.metadata.name,
            uid: &written.metadata.uid,
            node: &written.spec.node_name,
            started: written.status.start_time.as_deref().unwrap_or(""),
        };
        self.add_one(&alike, one);
        Ok(())
    }

    /// Makes ready what many pods have in common; none of them is there yet.
    ///
    /// # Errors
    /// [`SelectorError`] when one of its selectors cannot be used.
    pub(crate) fn alike(&mut self, common: &object::Pod) -> Result<Alike, SelectorError> {
        let mut pod = compile(&mut self.cluster, common, false)?;
        // Where it is says the placement.
        pod.node_name = None;
        let Cluster { resources, symbols, charges, .. } = &mut self.cluster;
        let charge = Charge::of(common, &pod, resources, symbols);
        let charge =
            charges.get_key_value(&charge).map_or_else(|| Arc::new(charge), |(known, _)| Arc::clone(known));
        let pod = match self.shapes.get(&pod) {
            Some(known) => Arc::clone(known),
            None => {
                let pod = Arc::new(pod);
                self.shapes.insert(Arc::clone(&pod));
                pod
            }
        };
        let owner = common.metadata.controller().map_or(String::new(), |o| format!("{}/{}", o.kind, o.name));
        let owner = symbols.intern(&owner);
        Ok(Alike { pod, charge, owner })
    }

    /// Takes in one pod of them, which has not ended.
    pub(crate) fn add_one(&mut self, alike: &Alike, one: PodIdentity<'_>) {
        let Alike { pod, charge, owner } = alike;
        *self.cluster.charges.entry(Arc::clone(charge)).or_default() += 1;
        if one.node.is_empty() {
            self.pending += 1;
            return;
        }
        let symbols = &mut self.cluster.symbols;
        let (node, name) = (symbols.intern(one.node), symbols.intern(one.name));
        let (uid, started) = (Uid::parse(one.uid), symbols.intern(one.started));
        let (pod, charge, owner) = (Arc::clone(pod), Arc::clone(charge), *owner);
        self.bound
            .push(BoundPod { placed: Placed { pod, name, uid, started, owner, node: 0, charge }, node });
    }

    /// Counts pods that ended: they take nothing.
    pub(crate) fn add_ended(&mut self, pods: usize) {
        self.ended += pods;
    }

    fn sort_nodes(&mut self) {
        let symbols = &self.cluster.symbols;
        self.cluster.nodes.sort_by(|a, b| symbols.word(a.name).cmp(symbols.word(b.name)));
    }

    /// The cluster so far, to which pods are added one by one, and taken out.
    pub(crate) fn keep(mut self) -> ClusterCache {
        self.sort_nodes();
        self.cluster.storage.settle();
        ClusterCache::over(self)
    }

    /// The cluster, what was read, and what was odd about it.
    pub fn finish(mut self) -> (Cluster, ObjectCounts, Vec<Oddity>) {
        self.sort_nodes();
        let index: HashMap<Symbol, NodeIndex> =
            self.cluster.nodes.iter().enumerate().map(|(at, node)| (node.name, at)).collect();
        let bound = std::mem::take(&mut self.bound);
        let (mut on_nodes, mut missing) = (Vec::with_capacity(bound.len()), Vec::new());
        for BoundPod { placed, node } in bound {
            match index.get(&node) {
                Some(at) => on_nodes.push(Placed { node: *at, ..placed }),
                None => missing.push((placed.pod, placed.name, node)),
            }
        }
        self.cluster.placed = Arc::new(on_nodes);
        let symbols = &self.cluster.symbols;
        for (pod, name, node) in missing {
            self.oddities.lost(symbols.word(pod.namespace), symbols.word(name), symbols.word(node));
        }
        self.cluster.storage.settle();
        self.cluster.symbols.share();
        let counts = ObjectCounts {
            nodes: self.cluster.nodes.len(),
            placed: self.cluster.placed.len(),
            pending: self.pending,
            ended: self.ended,
            untold: self.untold,
        };
        (self.cluster, counts, self.oddities.told())
    }
}

impl Cluster {
    /// Makes objects that the cluster has none of the name of, as kubectl's `apply` would; which, by kind and name.
    ///
    /// # Errors
    /// [`BuildError`] of the first that cannot be used.
    pub(crate) fn apply(self, objects: &[Object]) -> Result<(Self, Vec<String>), BuildError> {
        let (mut builder, mut made) = (Builder::over(self), Vec::new());
        for object in objects {
            let (kind, meta) = describe(object);
            if !Builder::applies(object) || builder.cluster.has(object) {
                continue;
            }
            let object = builder.cluster.with_default_class(object);
            builder.take(&object).map_err(|error| BuildError::Selector {
                kind,
                name: full_name(kind, meta),
                error,
            })?;
            made.push(format!("{kind} {}", full_name(kind, meta)));
        }
        builder.cluster.storage.settle();
        Ok((builder.cluster, made))
    }

    /// Whether there is an object of the kind and name.
    fn has(&self, object: &Object) -> bool {
        let (_, meta) = describe(object);
        let named = |other: &object::ObjectMeta| {
            other.name == meta.name && other.namespace_or_default() == meta.namespace_or_default()
        };
        let word = |text: &str| self.symbols.find(text);
        match object {
            Object::Namespace(_) => {
                self.namespace_objects.iter().any(|known| known.metadata.name == meta.name)
            }
            Object::ResourceQuota(_) => self.quotas.iter().any(|known| named(&known.metadata)),
            Object::LimitRange(_) => self.limit_ranges.iter().any(|known| named(&known.metadata)),
            Object::PriorityClass(_) => {
                word(&meta.name).is_some_and(|name| self.priorities.contains_key(&name))
            }
            Object::RuntimeClass(_) => self.runtime_classes.contains_key(&meta.name),
            Object::StorageClass(_) => {
                word(&meta.name).is_some_and(|name| self.storage.classes.contains_key(&name))
            }
            Object::PersistentVolume(_) => {
                word(&meta.name).is_some_and(|name| self.storage.volumes.contains_key(&name))
            }
            Object::PersistentVolumeClaim(_) => {
                let key = format!("{}/{}", meta.namespace_or_default(), meta.name);
                word(&key).is_some_and(|key| self.storage.claims.contains_key(&key))
            }
            _ => false,
        }
    }

    /// A claim without a class gets the default one (`DefaultStorageClass`).
    fn with_default_class(&self, object: &Object) -> Object {
        let mut object = object.clone();
        if let Object::PersistentVolumeClaim(claim) = &mut object
            && claim.spec.storage_class_name.is_none()
        {
            let class = self.storage.default_class().map(|class| self.word(class).to_owned());
            claim.spec.storage_class_name = class;
        }
        object
    }
}

/// Namespace and name, or the name alone of what is in no namespace.
fn full_name(kind: &str, meta: &object::ObjectMeta) -> String {
    if is_cluster_wide(kind) {
        meta.name.clone()
    } else {
        format!("{}/{}", meta.namespace_or_default(), meta.name)
    }
}

/// Kinds that are in no namespace.
fn is_cluster_wide(kind: &str) -> bool {
    matches!(
        kind,
        "Node"
            | "Namespace"
            | "PersistentVolume"
            | "StorageClass"
            | "CSINode"
            | "CSIDriver"
            | "VolumeAttachment"
            | "PriorityClass"
            | "RuntimeClass"
    )
}

fn describe(object: &Object) -> (&'static str, &object::ObjectMeta) {
    match object {
        Object::Node(o) => ("Node", &o.metadata),
        Object::Pod(o) => ("Pod", &o.metadata),
        Object::Namespace(o) => ("Namespace", &o.metadata),
        Object::Service(o) => ("Service", &o.metadata),
        Object::ReplicationController(o) => ("ReplicationController", &o.metadata),
        Object::ReplicaSet(o) => ("ReplicaSet", &o.metadata),
        Object::StatefulSet(o) => ("StatefulSet", &o.metadata),
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
        Object::RuntimeClass(o) => ("RuntimeClass", &o.metadata),
        Object::DisruptionBudget(o) => ("PodDisruptionBudget", &o.metadata),
    }
}
