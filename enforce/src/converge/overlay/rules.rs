//! How far and how fast recommended requests take the place of those that were asked for.

use std::time::Duration;

use evenkeel_qos::overlay::Clamp;

/// Bounds of recommended requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverlayRules {
    /// Whether anything is taken.
    pub accept: bool,
    /// A step raises to at most this percentage.
    pub up_percent: u64,
    /// A step lowers to at least this percentage.
    pub down_percent: u64,
    /// Least CPU request, thousandths of a core.
    pub cpu_least_milli: u64,
    /// Least memory request, bytes.
    pub memory_least_bytes: u64,
    /// Largest part of the node, percent.
    pub most_percent: u64,
    /// Between two steps.
    pub pause: Duration,
    /// Until a step is proven.
    pub patience: Duration,
    /// After one that was undone.
    pub rest: Duration,
    /// Older is forgotten.
    pub oldest: Duration,
}

impl OverlayRules {
    /// What holds a CPU request, on a node of so many thousandths of a core.
    pub(crate) const fn cpu(&self, node_milli: u64) -> Clamp {
        self.clamp(self.cpu_least_milli, node_milli)
    }

    /// What holds a memory request, on a node of so many bytes.
    pub(crate) const fn memory(&self, node_bytes: u64) -> Clamp {
        self.clamp(self.memory_least_bytes, node_bytes)
    }

    const fn clamp(&self, least: u64, node: u64) -> Clamp {
        let most = node / 100 * self.most_percent;
        Clamp { up_percent: self.up_percent, down_percent: self.down_percent, least, most }
    }
}
