//! Volumes and claims, ready to be asked.

mod kinds;

use std::collections::HashMap;

use super::in_tree;
use super::resources::amount;
use super::selector::{NodeTerms, Selector, SelectorError};
use super::symbols::{Labels, Symbol, Symbols};
use crate::object;
use crate::object::ResourceList;
pub use kinds::{Binding, Claim, Class, DiskUse, Space, Volume};

/// Annotation the volume controller sets once a claim is bound for good.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation the scheduler sets once a volume is to be made for a pod on a node.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of the class for claims that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// A node label and its allowed values.
pub type Allowed = (Symbol, Box<[Symbol]>);

/// Everything about storage.
#[derive(Debug, Clone, Default)]
pub struct Storage {
    /// Volumes by name.
    pub volumes: HashMap<Symbol, Volume>,
    /// Claims by namespace/name.
    pub claims: HashMap<Symbol, Claim>,
    /// Classes by name.
    pub classes: HashMap<Symbol, Class>,
    /// Drivers that ask for space to be looked at.
    pub space_drivers: Vec<Symbol>,
    /// Space.
    pub spaces: Vec<Space>,
    /// Most volumes by node and driver.
    pub limits: HashMap<(Symbol, Symbol), i64>,
    /// Volumes attached to a node, with or without a pod there, as (driver, name of the volume).
    pub attached: HashMap<Symbol, Vec<(Symbol, Symbol)>>,
    /// Class for claims that name none, with the time it was made: of several the latest holds.
    default_class: Option<(String, Symbol)>,
}

pub(super) fn volume(
    written: &object::PersistentVolume,
    symbols: &mut Symbols,
) -> Result<Volume, SelectorError> {
    let spec = &written.spec;
    let zones = object::zone_labels(&written.metadata.labels).map(|(key, values)| {
        let values = values.split("__").map(|value| symbols.intern(value)).collect();
        (symbols.intern(key), values)
    });
    let zones = zones.collect();
    let nodes =
        spec.node_affinity.required.as_ref().map(|terms| NodeTerms::new(terms, symbols)).transpose()?;
    Ok(Volume {
        name: symbols.intern(&written.metadata.name),
        class: symbols.intern(&spec.storage_class_name),
        labels: Labels::new(&written.metadata.labels, symbols),
        bytes: storage_bytes(&spec.capacity),
        modes: spec.access_modes.iter().map(|mode| symbols.intern(mode)).collect(),
        block: spec.volume_mode == "Block",
        claim: spec
            .claim_ref
            .as_ref()
            .map(|claim| super::pod::claim_key(&claim.namespace, &claim.name, symbols)),
        available: matches!(written.status.phase.as_str(), "" | "Available")
            && written.metadata.deletion_timestamp.is_none(),
        nodes,
        handle: match (&spec.csi, in_tree::of_persistent(spec, &written.metadata.labels)) {
            (Some(csi), _) => Some((symbols.intern(&csi.driver), symbols.intern(&csi.volume_handle))),
            (None, of) => of.map(|(driver, handle)| (symbols.intern(driver), symbols.intern(&handle))),
        },
        zones,
    })
}

fn storage_bytes(list: &ResourceList) -> i64 {
    list.get("storage").map_or(0, |quantity| amount("storage", *quantity))
}

/// Compiles a claim; whether its class waits is looked up later ([`Storage::settle`]).
pub(super) fn claim(
    written: &object::PersistentVolumeClaim,
    symbols: &mut Symbols,
) -> Result<Claim, SelectorError> {
    let (meta, spec) = (&written.metadata, &written.spec);
    let bound = !spec.volume_name.is_empty() && meta.annotations.contains_key(BIND_COMPLETED);
    let volume = symbols.intern(&spec.volume_name);
    let binding = if written.status.phase == "Lost" {
        Binding::Lost(volume)
    } else if meta.deletion_timestamp.is_some() {
        Binding::Deleted
    } else if bound {
        Binding::Bound(volume)
    } else if spec.volume_name.is_empty() {
        Binding::Waiting
    } else {
        Binding::Immediate
    };
    let selected = meta.annotations.get(SELECTED_NODE).map(|node| symbols.intern(node));
    let class = symbols.intern(spec.storage_class_name.as_deref().unwrap_or(""));
    Ok(Claim { selected_node: selected, ..wish(&meta.name, binding, class, spec, symbols)? })
}

fn wish(
    name: &str,
    binding: Binding,
    class: Symbol,
    spec: &object::ClaimSpec,
    symbols: &mut Symbols,
) -> Result<Claim, SelectorError> {
    Ok(Claim {
        name: symbols.intern(name),
        binding,
        class,
        bytes: storage_bytes(&spec.resources.requests),
        modes: spec.access_modes.iter().map(|mode| symbols.intern(mode)).collect(),
        block: spec.volume_mode.as_deref() == Some("Block"),
        one_pod: spec.access_modes.iter().any(|mode| mode == "ReadWriteOncePod"),
        selector: match &spec.selector {
            Some(selector) => Some(Selector::new(Some(selector), symbols)?),
            None => None,
        },
        selected_node: None,
    })
}

/// A claim that each clone of a pod gets anew, from the template of a volume of this name.
pub(super) fn own_claim(
    volume: &str,
    spec: &object::ClaimSpec,
    storage: &Storage,
    symbols: &mut Symbols,
) -> Result<Claim, SelectorError> {
    let default = storage.default_class.as_ref().map(|(_, class)| *class);
    let class = match (&spec.storage_class_name, default) {
        (Some(name), _) => symbols.intern(name),
        (None, Some(class)) => class,
        (None, None) => symbols.intern(""),
    };
    // A volume made at once, before any pod, may end up anywhere its class allows: the pod follows it.
    wish(volume, Binding::Waiting, class, spec, symbols)
}

fn class(written: &object::StorageClass, symbols: &mut Symbols) -> Class {
    let provisioned = !written.provisioner.is_empty() && written.provisioner != NO_PROVISIONER;
    let topologies = written.allowed_topologies.iter().map(|term| {
        let all = term.match_label_expressions.iter().map(|requirement| {
            let values = requirement.values.iter().map(|value| symbols.intern(value)).collect();
            (symbols.intern(&requirement.key), values)
        });
        all.collect()
    });
    let topologies = topologies.collect();
    Class {
        provisioner: provisioned.then(|| symbols.intern(&written.provisioner)),
        driver: provisioned.then(|| symbols.intern(in_tree::driver_of(&written.provisioner))),
        waits: written.volume_binding_mode == "WaitForFirstConsumer",
        topologies,
    }
}

pub(super) fn space(
    written: &object::StorageCapacity,
    symbols: &mut Symbols,
) -> Result<Space, SelectorError> {
    let bytes = written.maximum_volume_size.or(written.capacity);
    Ok(Space {
        class: symbols.intern(&written.storage_class_name),
        nodes: Selector::new(written.node_topology.as_ref(), symbols)?,
        bytes: bytes.map_or(0, |quantity| amount("storage", quantity)),
    })
}

impl Storage {
    /// Class of claims that name none.
    pub(crate) fn default_class(&self) -> Option<Symbol> {
        self.default_class.as_ref().map(|(_, class)| *class)
    }

    /// Takes in a class.
    pub(super) fn add_class(&mut self, written: &object::StorageClass, symbols: &mut Symbols) {
        let name = symbols.intern(&written.metadata.name);
        self.classes.insert(name, class(written, symbols));
        let made = written.metadata.creation_timestamp.clone().unwrap_or_default();
        let is_default = written.metadata.annotations.get(DEFAULT_CLASS).is_some_and(|value| value == "true");
        let known = self.default_class.as_ref().map(|(made, class)| (made.as_str(), symbols.word(*class)));
        // Of the same age, the first by name.
        let later = known.is_none_or(|(known, class)| {
            (made.as_str(), std::cmp::Reverse(written.metadata.name.as_str()))
                > (known, std::cmp::Reverse(class))
        });
        if is_default && later {
            self.default_class = Some((made, name));
        }
    }

    /// Claims whose class does not wait for a pod must be bound before one.
    pub(super) fn settle(&mut self) {
        for claim in self.claims.values_mut() {
            let waits = self.classes.get(&claim.class).is_some_and(|class| class.waits);
            if claim.binding == Binding::Waiting && !waits {
                claim.binding = Binding::Immediate;
            }
        }
    }
}
