//! A pod ready to be placed: requests, rules and labels as numbers.

use std::sync::Arc;

use super::in_tree;
use super::resources::{PodRequests, ResourceNames, pod_requests};
use super::selector::{NodeTerm, NodeTerms, Requirement, Selector, SelectorError, equalities};
use super::storage::{Claim, DiskUse, Storage, own_claim};
use super::symbols::{Labels, Symbol, Symbols};
use crate::object::{self, WeightedPodAffinityTerm};

/// Which taints are borne.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Toleration {
    key: Option<Symbol>,
    /// `None` = whatever the taint's value is.
    value: Option<Symbol>,
    effect: Option<Effect>,
    /// Its operator is one the scheduler does not know (or keeps behind a gate): it bears nothing.
    never: bool,
}

/// What a taint does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// No new pod.
    NoSchedule,
    /// Rather no new pod.
    PreferNoSchedule,
    /// No pod at all.
    NoExecute,
    /// An effect of a later version, which no rule here knows.
    Other,
}

impl Effect {
    /// Reads the name; `None` where it is empty.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "" => return None,
            "NoSchedule" => Self::NoSchedule,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoExecute" => Self::NoExecute,
            _ => Self::Other,
        })
    }
}

/// A taint of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Taint {
    /// Key.
    pub key: Symbol,
    /// Value.
    pub value: Symbol,
    /// Effect.
    pub effect: Effect,
}

impl Toleration {
    fn new(written: &object::Toleration, symbols: &mut Symbols) -> Self {
        Self {
            key: (!written.key.is_empty()).then(|| symbols.intern(&written.key)),
            value: (written.operator != "Exists").then(|| symbols.intern(&written.value)),
            effect: Effect::of(&written.effect),
            never: !matches!(written.operator.as_str(), "" | "Equal" | "Exists"),
        }
    }

    /// Whether it bears a taint.
    pub fn bears(&self, taint: &Taint) -> bool {
        !self.never
            && self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.is_none_or(|key| key == taint.key)
            && self.value.is_none_or(|value| value == taint.value)
    }

    /// Whether it speaks of taints that only ask to stay away.
    pub fn is_soft(&self) -> bool {
        self.effect.is_none_or(|effect| effect == Effect::PreferNoSchedule)
    }
}

/// A port on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HostPort {
    protocol: Symbol,
    /// `None` = all addresses.
    address: Option<Symbol>,
    port: i32,
}

impl HostPort {
    /// Whether both cannot be had on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        let same_address = match (self.address, other.address) {
            (Some(own), Some(other)) => own == other,
            _ => true,
        };
        self.port == other.port && self.protocol == other.protocol && same_address
    }
}

/// How like pods are spread.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Spread {
    /// Most by which one domain may exceed the least.
    pub max_skew: i64,
    /// Node label that names the domain.
    pub key: Symbol,
    /// True = must, false = should.
    pub hard: bool,
    /// Which pods count.
    pub selector: Selector,
    /// With fewer domains the least counts as nothing.
    pub min_domains: i64,
    /// Only nodes that the pod's node selector admits count.
    pub honor_affinity: bool,
    /// Only nodes whose taints the pod bears count.
    pub honor_taints: bool,
}

/// Which pods in which topology.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Term {
    /// Which pods.
    pub selector: Selector,
    /// Node label that names the domain.
    pub key: Symbol,
    /// Namespaces by name.
    pub namespaces: Box<[Symbol]>,
    /// Namespaces by label.
    pub namespace_selector: Selector,
}

impl Term {
    /// Whether it speaks of a pod with these labels in a namespace with those.
    pub fn matches(
        &self,
        namespace: Symbol,
        of_namespace: &Labels,
        labels: &Labels,
        symbols: &Symbols,
    ) -> bool {
        (self.namespaces.contains(&namespace) || self.namespace_selector.matches(of_namespace, symbols))
            && self.selector.matches(labels, symbols)
    }
}

/// A weight as the API server admits it, 1 to 100, so that no sum of weights can overflow.
fn weight(written: i64) -> i64 {
    written.clamp(1, 100)
}

/// A term and how much it counts.
pub type Weighted = (i64, Term);

/// Kind and name of what manages a pod.
pub type Manager = (Symbol, Symbol);

/// What a pod asks for. It has no name: pods that ask for the same are kept once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodInfo {
    /// Namespace.
    pub namespace: Symbol,
    /// Labels.
    pub labels: Labels,
    /// What it asks for.
    pub requests: PodRequests,
    /// Node it must go to.
    pub node_name: Option<Symbol>,
    /// Which scheduler.
    pub scheduler: Symbol,
    /// Node labels that must be equal.
    pub node_selector: Box<[Requirement]>,
    /// Node affinity that must hold.
    pub node_terms: Option<NodeTerms>,
    /// Node affinity that should hold.
    pub node_preferences: Box<[(i64, NodeTerm)]>,
    /// Taints it bears.
    pub tolerations: Box<[Toleration]>,
    /// Ports on the node.
    pub ports: Box<[HostPort]>,
    /// Spread.
    pub spread: Box<[Spread]>,
    /// Must be near these.
    pub affinity: Box<[Term]>,
    /// Must be away from these.
    pub anti_affinity: Box<[Term]>,
    /// Should be near these.
    pub preferred: Box<[Weighted]>,
    /// Should be away from these.
    pub anti_preferred: Box<[Weighted]>,
    /// Images of its containers, with a tag.
    pub images: Box<[Symbol]>,
    /// Claims it mounts.
    pub claims: Box<[Symbol]>,
    /// Claims each clone gets anew: generic ephemeral volumes, templates of a stateful set.
    pub own_claims: Box<[Claim]>,
    /// The replica set (or the like) that manages it, whose selector takes part in default spread constraints.
    pub manager: Option<Manager>,
    /// Disks named in the pod itself.
    pub disks: Box<[DiskUse]>,
    /// Driver and handle of those that a driver attaches.
    pub attached: Box<[(Symbol, Symbol)]>,
    /// Priority.
    pub priority: i32,
    /// May others be displaced for it?
    pub preempts: bool,
    /// It is being deleted.
    pub terminating: bool,
    /// A daemon's or static pod: it comes and goes with its node.
    pub daemon: bool,
    /// The object, as an extender is sent it, of a pod that is asked about where there are extenders.
    pub sent: Option<Arc<str>>,
}

impl PodInfo {
    /// Whether it is near or away from other pods, or should be.
    pub fn is_affine(&self) -> bool {
        !(self.affinity.is_empty()
            && self.anti_affinity.is_empty()
            && self.preferred.is_empty()
            && self.anti_preferred.is_empty())
    }
}

/// Compiles pods.
pub(super) struct Compiler<'a> {
    pub symbols: &'a mut Symbols,
    pub resources: &'a mut ResourceNames,
    /// What is known of storage, for pods that are yet to be placed: claims made for them are not there yet.
    pub storage: Option<&'a Storage>,
}

impl Compiler<'_> {
    /// One pod.
    pub(super) fn pod(&mut self, written: &object::Pod) -> Result<PodInfo, SelectorError> {
        let requests = pod_requests(written, self.resources, self.symbols);
        let symbols = &mut *self.symbols;
        let (meta, spec) = (&written.metadata, &written.spec);
        let namespace = symbols.intern(meta.namespace_or_default());
        let labels = Labels::new(&meta.labels, symbols);
        let affinity = &spec.affinity;
        let mut terms = |all: &[object::PodAffinityTerm]| -> Result<Box<[Term]>, SelectorError> {
            all.iter().map(|written| term(written, namespace, &labels, symbols)).collect()
        };
        let (near, away) =
            (terms(&affinity.pod_affinity.required)?, terms(&affinity.pod_anti_affinity.required)?);
        let mut weighted = |all: &[WeightedPodAffinityTerm]| -> Result<Box<[Weighted]>, SelectorError> {
            all.iter()
                .map(|w| Ok((weight(w.weight), term(&w.pod_affinity_term, namespace, &labels, symbols)?)))
                .collect()
        };
        let (preferred, anti_preferred) =
            (weighted(&affinity.pod_affinity.preferred)?, weighted(&affinity.pod_anti_affinity.preferred)?);
        let node = &affinity.node_affinity;
        let node_terms = node.required.as_ref().map(|terms| NodeTerms::new(terms, symbols)).transpose()?;
        let preferences =
            node.preferred.iter().map(|p| Ok((weight(p.weight), NodeTerm::new(&p.preference, symbols)?)));
        let node_preferences = preferences.collect::<Result<_, SelectorError>>()?;
        let spread = spec.topology_spread_constraints.iter().map(|c| spread(c, &labels, symbols));
        let spread = spread.collect::<Result<_, SelectorError>>()?;
        let (claims, own_claims) = claims(written, self.storage, symbols)?;
        Ok(PodInfo {
            namespace,
            requests,
            node_name: (!spec.node_name.is_empty()).then(|| symbols.intern(&spec.node_name)),
            scheduler: symbols.intern(&spec.scheduler_name),
            node_selector: equalities(&spec.node_selector, symbols).into(),
            node_terms,
            node_preferences,
            tolerations: spec.tolerations.iter().map(|t| Toleration::new(t, symbols)).collect(),
            ports: host_ports(spec, symbols),
            spread,
            affinity: near,
            anti_affinity: away,
            preferred,
            anti_preferred,
            images: images(spec, symbols),
            claims,
            own_claims,
            manager: manager(meta, symbols),
            disks: spec.volumes.iter().filter_map(|volume| DiskUse::new(volume, symbols)).collect(),
            attached: attached(spec, symbols),
            priority: spec.priority.unwrap_or(0),
            preempts: spec.preemption_policy != "Never",
            terminating: meta.deletion_timestamp.is_some(),
            daemon: meta
                .controller()
                .is_some_and(|owner| matches!(owner.kind.as_str(), "DaemonSet" | "Node")),
            labels,
            sent: None,
        })
    }
}

/// The name under which claims are known: namespace and name.
pub(super) fn claim_key(namespace: &str, name: &str, symbols: &mut Symbols) -> Symbol {
    symbols.intern(&format!("{namespace}/{name}"))
}

/// Claims by name, and those that are made anew for each pod.
type Claims = (Box<[Symbol]>, Box<[Claim]>);

fn claims(
    pod: &object::Pod,
    storage: Option<&Storage>,
    symbols: &mut Symbols,
) -> Result<Claims, SelectorError> {
    let namespace = pod.metadata.namespace_or_default();
    let (mut named, mut own) = (Vec::new(), Vec::new());
    for volume in &pod.spec.volumes {
        if let Some(claim) = &volume.persistent_volume_claim {
            named.push(claim_key(namespace, &claim.claim_name, symbols));
        } else if let Some(ephemeral) = &volume.ephemeral {
            let key = claim_key(namespace, &format!("{}-{}", pod.metadata.name, volume.name), symbols);
            match storage.filter(|storage| !storage.claims.contains_key(&key)) {
                Some(storage) => {
                    let spec = &ephemeral.volume_claim_template.spec;
                    own.push(own_claim(&volume.name, spec, storage, symbols)?);
                }
                None => named.push(key),
            }
        }
    }
    Ok((named.into(), own.into()))
}

/// Kinds whose selectors take part in default spread constraints (`helper/spread.go`).
pub(super) const MANAGERS: [&str; 3] = ["ReplicationController", "ReplicaSet", "StatefulSet"];

fn manager(meta: &object::ObjectMeta, symbols: &mut Symbols) -> Option<Manager> {
    let owner = meta.controller().filter(|owner| MANAGERS.contains(&owner.kind.as_str()))?;
    Some((symbols.intern(&owner.kind), symbols.intern(&owner.name)))
}

/// Requirements that labels named by `matchLabelKeys` have the pod's own value.
fn own_values(keys: &[String], labels: &Labels, same: bool, symbols: &mut Symbols) -> Vec<Requirement> {
    let own = keys.iter().filter_map(|key| {
        let key = symbols.intern(key);
        let value = labels.get(key)?;
        Some(if same { Requirement::equal(key, value) } else { Requirement::unequal(key, value) })
    });
    own.collect()
}

fn term(
    written: &object::PodAffinityTerm,
    namespace: Symbol,
    labels: &Labels,
    symbols: &mut Symbols,
) -> Result<Term, SelectorError> {
    let selector = Selector::new(written.label_selector.as_ref(), symbols)?
        .and(own_values(&written.match_label_keys, labels, true, symbols))
        .and(own_values(&written.mismatch_label_keys, labels, false, symbols));
    let mut namespaces: Vec<Symbol> = written.namespaces.iter().map(|name| symbols.intern(name)).collect();
    if namespaces.is_empty() && written.namespace_selector.is_none() {
        namespaces.push(namespace);
    }
    Ok(Term {
        selector,
        key: symbols.intern(&written.topology_key),
        namespaces: namespaces.into(),
        namespace_selector: Selector::new(written.namespace_selector.as_ref(), symbols)?,
    })
}

fn spread(
    written: &object::SpreadConstraint,
    labels: &Labels,
    symbols: &mut Symbols,
) -> Result<Spread, SelectorError> {
    let selector = Selector::new(written.label_selector.as_ref(), symbols)?.and(own_values(
        &written.match_label_keys,
        labels,
        true,
        symbols,
    ));
    Ok(Spread {
        // As the API server admits it: 32 bits, above 0.
        max_skew: written.max_skew.clamp(1, i64::from(i32::MAX)),
        key: symbols.intern(&written.topology_key),
        hard: written.when_unsatisfiable != "ScheduleAnyway",
        selector,
        min_domains: written.min_domains.unwrap_or(1).clamp(1, i64::from(i32::MAX)),
        honor_affinity: written.node_affinity_policy.as_deref() != Some("Ignore"),
        honor_taints: written.node_taints_policy.as_deref() == Some("Honor"),
    })
}

/// Ports of containers and sidecars; ordinary init containers are over before the others begin.
fn host_ports(spec: &object::PodSpec, symbols: &mut Symbols) -> Box<[HostPort]> {
    let sidecars = spec.init_containers.iter().filter(|container| container.is_sidecar());
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| &container.ports);
    let used = ports.filter_map(|written| {
        let port = if written.host_port == 0 && spec.host_network {
            written.container_port
        } else {
            written.host_port
        };
        let protocol = if written.protocol.is_empty() { "TCP" } else { &written.protocol };
        let everywhere = matches!(written.host_ip.as_str(), "" | "0.0.0.0");
        (port > 0).then(|| HostPort {
            protocol: symbols.intern(protocol),
            address: (!everywhere).then(|| symbols.intern(&written.host_ip)),
            port,
        })
    });
    used.collect()
}

fn attached(spec: &object::PodSpec, symbols: &mut Symbols) -> Box<[(Symbol, Symbol)]> {
    let volumes = spec.volumes.iter().filter_map(in_tree::of_pod);
    volumes.map(|(driver, handle)| (symbols.intern(driver), symbols.intern(&handle))).collect()
}

fn images(spec: &object::PodSpec, symbols: &mut Symbols) -> Box<[Symbol]> {
    let containers = spec.init_containers.iter().chain(&spec.containers).map(|container| &container.image);
    let volumes =
        spec.volumes.iter().filter_map(|volume| volume.image.as_ref()).map(|image| &image.reference);
    containers.chain(volumes).map(|image| symbols.intern(&with_tag(image))).collect()
}

/// An image reference as nodes name it: one without a tag means `latest`.
fn with_tag(image: &str) -> String {
    let colon = image.rfind(':');
    if colon.is_none() || colon <= image.rfind('/') { format!("{image}:latest") } else { image.to_owned() }
}
