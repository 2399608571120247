//! The three QoS classes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How much a container may rely on what it asked for; order is from least to most protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum QosClass {
    /// Asked for nothing: first to give way.
    BestEffort,
    /// Asked for something, may use more.
    Burstable,
    /// Asked for exactly what it may use.
    Guaranteed,
}

impl QosClass {
    /// The class's name as Kubernetes writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BestEffort => "BestEffort",
            Self::Burstable => "Burstable",
            Self::Guaranteed => "Guaranteed",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Classes of one container, per resource (the proposal classifies each resource by itself).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Classes {
    /// Class by memory.
    pub memory: QosClass,
    /// Class by CPU.
    pub cpu: QosClass,
}
