//! Volumes, claims, classes and disks as they are kept.

use super::super::selector::{NodeTerms, Selector};
use super::super::symbols::{Labels, Symbol, Symbols};
use super::Allowed;
use crate::object;

/// A disk named in a pod itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DiskUse {
    kind: DiskKind,
    read_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum DiskKind {
    Gce(Symbol),
    Ebs(Symbol),
    Iscsi(Symbol),
    Rbd { monitors: Box<[Symbol]>, pool: Symbol, image: Symbol },
}

impl DiskUse {
    pub(crate) fn new(volume: &object::Volume, symbols: &mut Symbols) -> Option<Self> {
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
