//! Volumes and claims, ready to be asked.

use std::collections::HashMap;

use super::in_tree;
use super::resources::amount;
use super::selector::{NodeTerms, Selector, SelectorError};
use super::symbols::{Labels, Symbol, Symbols};
use crate::object;
use crate::object::ResourceList;

/// Annotation the volume controller sets once a claim is bound for good.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// Annotation the scheduler sets once a volume is to be made for a pod on a node.
const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// Annotation of the class for claims that name none.
const DEFAULT_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// Provisioner of classes whose volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// A disk named in a pod itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DiskUse {
    kind: DiskKind,
    read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum DiskKind {
    Gce(Symbol),
    Ebs(Symbol),
    Iscsi(Symbol),
    Rbd { monitors: Box<[Symbol]>, pool: Symbol, image: Symbol },
}

impl DiskUse {
    pub(super) fn new(volume: &object::Volume, symbols: &mut Symbols) -> Option<Self> {
        let (kind, disk) = if let Some(disk) = &volume.gce_persistent_disk {
            (DiskKind::Gce(symbols.intern(&disk.pd_name)), disk)
        } else if let Some(disk) = &volume.aws_elastic_block_store {
            (DiskKind::Ebs(symbols.intern(&disk.volume_id)), disk)
        } else if let Some(disk) = &volume.iscsi {
            (DiskKind::Iscsi(symbols.intern(&disk.iqn)), disk)
        } else {
            let disk = volume.rbd.as_ref()?;
            let monitors = disk.monitors.iter().map(|monitor| symbols.intern(monitor)).collect();
            let pool = symbols.intern(if disk.pool.is_empty() { "rbd" } else { &disk.pool });
            (DiskKind::Rbd { monitors, pool, image: symbols.intern(&disk.image) }, disk)
        };
        Some(Self { kind, read_only: disk.read_only })
    }

    /// Whether both cannot be used on one node.
    pub fn conflicts(&self, other: &Self) -> bool {
        let both_read = self.read_only && other.read_only;
        match (&self.kind, &other.kind) {
            (DiskKind::Gce(a), DiskKind::Gce(b)) | (DiskKind::Iscsi(a), DiskKind::Iscsi(b)) => {
                a == b && !both_read
            }
            // A volume of Amazon's is attached once, whatever is done with it.
            (DiskKind::Ebs(a), DiskKind::Ebs(b)) => a == b,
            (DiskKind::Rbd { .. }, DiskKind::Rbd { .. }) => self.same_rbd(other) && !both_read,
            _ => false,
        }
    }

    fn same_rbd(&self, other: &Self) -> bool {
        let (DiskKind::Rbd { monitors, pool, image }, DiskKind::Rbd { monitors: m, pool: p, image: i }) =
            (&self.kind, &other.kind)
        else {
            return false;
        };
        pool == p && image == i && monitors.iter().any(|monitor| m.contains(monitor))
    }
}

/// A persistent volume.
#[derive(Debug, Clone)]
pub struct Volume {
    /// Name.
    pub name: Symbol,
    /// Class.
    pub class: Symbol,
    /// Labels.
    pub labels: Labels,
    /// Size, bytes.
    pub bytes: i64,
    /// Access modes.
    pub modes: Box<[Symbol]>,
    /// Raw device.
    pub block: bool,
    /// Claim it belongs to, as namespace/name.
    pub claim: Option<Symbol>,
    /// Neither bound nor failed.
    pub available: bool,
    /// Nodes that reach it; `None` = every one.
    pub nodes: Option<NodeTerms>,
    /// Driver and handle.
    pub handle: Option<(Symbol, Symbol)>,
    /// Zone and region labels with each allowed value.
    pub zones: Box<[Allowed]>,
}

/// How far a claim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Binding {
    /// Bound to this volume.
    Bound(Symbol),
    /// A volume is found or made when a pod is placed.
    Waiting,
    /// Nobody may place a pod before it is bound.
    Immediate,
    /// Its volume was lost.
    Lost(Symbol),
    /// It is being deleted.
    Deleted,
}

/// A claim.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Claim {
    /// Name without namespace.
    pub name: Symbol,
    /// How far it is.
    pub binding: Binding,
    /// Class.
    pub class: Symbol,
    /// Size asked for, bytes.
    pub bytes: i64,
    /// Access modes.
    pub modes: Box<[Symbol]>,
    /// Raw device.
    pub block: bool,
    /// One pod in the whole cluster at a time.
    pub one_pod: bool,
    /// Which volumes; `None` = any.
    pub selector: Option<Selector>,
    /// Node for which its volume is being made.
    pub selected_node: Option<Symbol>,
}

/// A node label and its allowed values.
pub type Allowed = (Symbol, Box<[Symbol]>);

/// A storage class.
#[derive(Debug, Clone)]
pub struct Class {
    /// Driver; `None` = volumes are made by hand.
    pub provisioner: Option<Symbol>,
    /// Who attaches them.
    pub driver: Option<Symbol>,
    /// Volumes wait for the first pod.
    pub waits: bool,
    /// Places where volumes can be made; each a list of labels with their values; none = everywhere.
    pub topologies: Box<[Box<[Allowed]>]>,
}

/// Space for volumes of one class in one place.
#[derive(Debug, Clone)]
pub struct Space {
    /// Class.
    pub class: Symbol,
    /// Which nodes.
    pub nodes: Selector,
    /// Largest volume, bytes.
    pub bytes: i64,
}

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
