//! How much the answer depends on how ties fall.

use std::sync::Arc;

use serde::Serialize;

use crate::cluster::{Cluster, Pod};
use crate::engine::step::Placer;
use crate::profile::Profiles;
use crate::state::State;

/// Counts over many ways in which ties may fall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Trials {
    /// How many.
    pub trials: u64,
    /// Smallest count.
    pub min: u64,
    /// Middle one.
    pub median: u64,
    /// Largest one.
    pub max: u64,
}

/// Places the shape `trials` times, ties falling by seed, seed + 1 and so on. `going` says between two of them whether
/// the answer is still wanted; those that were made are told then.
pub fn trials(
    cluster: &Cluster,
    profiles: &Profiles,
    state: &State,
    pod: &Arc<Pod>,
    max: Option<u64>,
    (seed, trials): (u64, u64),
    going: &mut dyn FnMut(u64) -> bool,
) -> Trials {
    let profile = profiles.of(cluster.word(pod.scheduler));
    let mut counts: Vec<u64> = Vec::new();
    for trial in 0..trials.max(1) {
        let mut state = state.clone();
        let placer = Placer::new(cluster, profile, &mut state, Arc::clone(pod));
        let placed = placer.seeded(seed.wrapping_add(trial)).run_while(&mut state, max, going);
        // One that was given up half way tells nothing; the first is needed for there to be any.
        let wanted = going(trial);
        if wanted || trial == 0 {
            counts.push(placed.len() as u64);
        }
        if !wanted {
            break;
        }
    }
    counts.sort_unstable();
    Trials {
        trials: counts.len() as u64,
        min: counts[0],
        median: counts[counts.len() / 2],
        max: counts[counts.len() - 1],
    }
}
