//! How much the answer depends on how ties fall.

use serde::{Deserialize, Serialize};

use crate::answer::{Ask, AskError, tally};
use crate::cluster::Cluster;
use crate::profile::Profiles;
use crate::state::ClusterState;

/// Counts over many ways in which ties may fall.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// Answers the question `trials` times, under all its bounds, ties falling by seed, seed + 1 and so on. `going` says
/// between two of them whether the answer is still wanted; those that were made are told then.
///
/// # Errors
/// When a selector cannot be used.
pub fn trials(
    cluster: &mut Cluster,
    profiles: &Profiles,
    state: &ClusterState,
    ask: &Ask,
    seed: u64,
    trials: u64,
    going: &mut dyn FnMut(u64) -> bool,
) -> Result<Trials, AskError> {
    let mut counts: Vec<u64> = Vec::new();
    for trial in 0..trials.max(1) {
        let count = tally(cluster, profiles, state, ask, Some(seed.wrapping_add(trial)), going)?;
        // One that was given up half way tells nothing; the first is needed for there to be any.
        let wanted = going(trial);
        if wanted || trial == 0 {
            counts.push(count);
        }
        if !wanted {
            break;
        }
    }
    counts.sort_unstable();
    Ok(Trials {
        trials: counts.len() as u64,
        min: counts[0],
        median: counts[counts.len() / 2],
        max: counts[counts.len() - 1],
    })
}
