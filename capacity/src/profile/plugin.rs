//! Plugins of the scheduler that a profile may have.

/// A filter, in the order of the default profile: the first that refuses a node ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
pub enum Filter {
    /// Cordoned nodes.
    NodeUnschedulable = 1,
    /// The node asked for by name.
    NodeName = 1 << 1,
    /// Taints.
    TaintToleration = 1 << 2,
    /// Node selector and node affinity.
    NodeAffinity = 1 << 3,
    /// Host ports.
    NodePorts = 1 << 4,
    /// Resources.
    NodeResourcesFit = 1 << 5,
    /// Disks and claims that bear one user.
    VolumeRestrictions = 1 << 6,
    /// Volumes a node can attach.
    NodeVolumeLimits = 1 << 7,
    /// Volumes reachable from the node.
    VolumeBinding = 1 << 8,
    /// Zones of volumes.
    VolumeZone = 1 << 9,
    /// Spread.
    PodTopologySpread = 1 << 10,
    /// Near and away from pods.
    InterPodAffinity = 1 << 11,
}

impl Filter {
    /// Every filter in order.
    pub const ALL: [Self; 12] = [
        Self::NodeUnschedulable,
        Self::NodeName,
        Self::TaintToleration,
        Self::NodeAffinity,
        Self::NodePorts,
        Self::NodeResourcesFit,
        Self::VolumeRestrictions,
        Self::NodeVolumeLimits,
        Self::VolumeBinding,
        Self::VolumeZone,
        Self::PodTopologySpread,
        Self::InterPodAffinity,
    ];

    /// The plugin's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeUnschedulable => "NodeUnschedulable",
            Self::NodeName => "NodeName",
            Self::TaintToleration => "TaintToleration",
            Self::NodeAffinity => "NodeAffinity",
            Self::NodePorts => "NodePorts",
            Self::NodeResourcesFit => "NodeResourcesFit",
            Self::VolumeRestrictions => "VolumeRestrictions",
            Self::NodeVolumeLimits => "NodeVolumeLimits",
            Self::VolumeBinding => "VolumeBinding",
            Self::VolumeZone => "VolumeZone",
            Self::PodTopologySpread => "PodTopologySpread",
            Self::InterPodAffinity => "InterPodAffinity",
        }
    }
}

/// A set of filters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Filters(u16);

impl Filters {
    /// Every filter.
    pub const ALL: Self = Self(0xfff);

    /// Whether one is on.
    pub const fn has(self, filter: Filter) -> bool {
        self.0 & filter as u16 != 0
    }

    /// The same without one.
    #[must_use]
    pub const fn without(self, filter: Filter) -> Self {
        Self(self.0 & !(filter as u16))
    }

    /// The same with one.
    #[must_use]
    pub const fn with(self, filter: Filter) -> Self {
        Self(self.0 | filter as u16)
    }
}

/// A score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Score {
    /// How much is left, or used.
    NodeResourcesFit,
    /// How even the use of resources is.
    NodeResourcesBalancedAllocation,
    /// Taints that only ask to stay away.
    TaintToleration,
    /// Node affinity that should hold.
    NodeAffinity,
    /// Spread that should hold.
    PodTopologySpread,
    /// Pods that should be near or away.
    InterPodAffinity,
    /// Images already there.
    ImageLocality,
}

impl Score {
    /// Every score.
    pub const ALL: [Self; 7] = [
        Self::NodeResourcesFit,
        Self::NodeResourcesBalancedAllocation,
        Self::TaintToleration,
        Self::NodeAffinity,
        Self::PodTopologySpread,
        Self::InterPodAffinity,
        Self::ImageLocality,
    ];

    /// The plugin's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NodeResourcesFit => "NodeResourcesFit",
            Self::NodeResourcesBalancedAllocation => "NodeResourcesBalancedAllocation",
            Self::TaintToleration => "TaintToleration",
            Self::NodeAffinity => "NodeAffinity",
            Self::PodTopologySpread => "PodTopologySpread",
            Self::InterPodAffinity => "InterPodAffinity",
            Self::ImageLocality => "ImageLocality",
        }
    }
}
