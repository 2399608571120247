//! Why a node is refused, in the scheduler's words.

use crate::cluster::Cluster;
use crate::cluster::resources::ResourceIndex;

/// Whether displacing pods could help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Code {
    /// It could.
    Unschedulable,
    /// Nothing on this node can change it.
    UnschedulableAndUnresolvable,
}

/// A resource that is short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Short {
    /// Which.
    pub resource: ResourceIndex,
    /// How much is missing.
    pub by: i64,
    /// Not even the empty node would have it.
    pub never: bool,
}

/// Why a node is refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Rejection {
    /// The pod is refused before any node is looked at.
    Pod(String),
    /// The pod names nodes, and this is none of them.
    NotListed,
    /// Cordoned.
    Cordoned,
    /// Another node is asked for by name.
    OtherNode,
    /// A taint is not borne: its key and value.
    Taint(String),
    /// Node selector or affinity.
    NodeAffinity,
    /// Affinity that the scheduler's configuration adds to every pod.
    EnforcedAffinity,
    /// A host port is taken.
    Ports,
    /// Too many pods, or resources short.
    Resources {
        /// One pod more than the node takes.
        pods: bool,
        /// Resources short.
        short: Vec<Short>,
    },
    /// A disk is in use.
    Disk,
    /// A claim for one pod is in use.
    ClaimInUse,
    /// Too many volumes.
    VolumeCount,
    /// Volumes: not reachable, not found, no space, gone.
    Volumes {
        /// A bound volume is not reachable from the node.
        unreachable: bool,
        /// No volume to bind, and none can be made here.
        unbound: bool,
        /// No space for a new volume.
        space: bool,
        /// Bound to a volume that is not there.
        missing: bool,
    },
    /// A volume is in another zone.
    Zone,
    /// The node lacks the label a spread goes by.
    SpreadLabel,
    /// The spread would be too uneven.
    Spread,
    /// Required neighbours are missing.
    Affinity,
    /// Neighbours to be away from.
    AntiAffinity,
    /// Neighbours that want to be away from it.
    OthersAntiAffinity,
    /// A plugin that is not built in, or an extender.
    Own {
        /// Why, in its words; empty where it says nothing.
        reason: String,
        /// Displacing pods could help.
        resolvable: bool,
    },
}

impl Rejection {
    /// Whether displacing pods could help.
    pub fn code(&self) -> Code {
        let resolvable = match self {
            Self::Ports
            | Self::Disk
            | Self::ClaimInUse
            | Self::VolumeCount
            | Self::Spread
            | Self::AntiAffinity
            | Self::OthersAntiAffinity => true,
            Self::Resources { short, .. } => !short.iter().any(|short| short.never),
            Self::Own { resolvable, .. } => *resolvable,
            _ => false,
        };
        if resolvable { Code::Unschedulable } else { Code::UnschedulableAndUnresolvable }
    }

    /// The scheduler's words, one or more.
    pub fn reasons(&self, cluster: &Cluster) -> Vec<String> {
        let one = |text: &str| vec![text.to_owned()];
        match self {
            Self::Pod(text) => one(text),
            Self::NotListed => one("node(s) didn't satisfy plugin(s) [NodeAffinity]"),
            Self::Cordoned => one("node(s) were unschedulable"),
            Self::OtherNode => one("node(s) didn't match the requested node name"),
            Self::Taint(text) => one(text),
            Self::NodeAffinity => one("node(s) didn't match Pod's node affinity/selector"),
            Self::EnforcedAffinity => one("node(s) didn't match scheduler-enforced node affinity"),
            Self::Ports => one("node(s) didn't have free ports for the requested pod ports"),
            Self::Resources { pods, short } => {
                let pods = pods.then(|| "Too many pods".to_owned());
                let name = |short: &Short| cluster.resources.name(short.resource, &cluster.symbols);
                pods.into_iter()
                    .chain(short.iter().map(|short| format!("Insufficient {}", name(short))))
                    .collect()
            }
            Self::Disk => one("node(s) had no available disk"),
            Self::ClaimInUse => one(
                "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by \
                 another pod",
            ),
            Self::VolumeCount => one("node(s) exceed max volume count"),
            Self::Volumes { unreachable, unbound, space, missing } => {
                let all = [
                    (*unreachable, "node(s) didn't match PersistentVolume's node affinity"),
                    (*unbound, "node(s) didn't find available persistent volumes to bind"),
                    (*space, "node(s) did not have enough free storage"),
                    (*missing, "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"),
                ];
                all.into_iter().filter(|(on, _)| *on).map(|(_, text)| text.to_owned()).collect()
            }
            Self::Zone => one("node(s) had no available volume zone"),
            Self::SpreadLabel => {
                one("node(s) didn't match pod topology spread constraints (missing required label)")
            }
            Self::Spread => one("node(s) didn't match pod topology spread constraints"),
            Self::Affinity => one("node(s) didn't match pod affinity rules"),
            Self::AntiAffinity => one("node(s) didn't match pod anti-affinity rules"),
            Self::Own { reason, .. } if reason.is_empty() => Vec::new(),
            Self::Own { reason, .. } => one(reason),
            Self::OthersAntiAffinity => one("node(s) didn't satisfy existing pods anti-affinity rules"),
        }
    }
}
