//! Owns the key of a series of minutes, and the numbers it has while the program runs.

use evenkeel_model::key::ContainerKey;

use super::Image;

/// Who a series belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey {
    /// The workload's container.
    pub of: ContainerKey,
    /// Image, where known.
    pub image: Option<Image>,
}

/// Number of a series while the program runs; not kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesId(pub(crate) u64);

/// A container of a series: stream and slot.
pub type ReplicaKey = (u64, u32);
