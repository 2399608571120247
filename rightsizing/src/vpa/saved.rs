//! What the Vertical Pod Autoscaler's recommender keeps of a container over its restarts: checkpoints of version v3
//! (`pkg/recommender/checkpoint`, `pkg/recommender/util/histogram.go`). Coarse: weights are cut to ten thousandths of the greatest.

use std::collections::BTreeMap;

/// A histogram of a checkpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SavedHistogram {
    /// The time at which a sample has its own weight, milliseconds since 1970.
    pub reference_ms: u64,
    /// Weights by bucket, in ten thousandths of the greatest.
    pub weights: BTreeMap<usize, u32>,
    /// Sum of the weights.
    pub total: f64,
}

/// One resource of a container in a checkpoint.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Saved {
    /// Its histogram.
    pub histogram: SavedHistogram,
    /// Start of the first sample and of the last, milliseconds since 1970.
    pub span_ms: Option<(u64, u64)>,
    /// Samples in all.
    pub samples: u64,
}
