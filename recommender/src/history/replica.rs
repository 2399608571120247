//! Owns what one container did within one hour, and which of several replicas is the bad one.
//!
//! A replica is a pod: a container that was started again, or got another number in its stream, goes on where the one before
//! it ended, or a part of a minute would pass for the bad one of many.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use evenkeel_rightsizing::histogram::Histogram;

/// One container's hour, or the part of it that has arrived.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Replica {
    /// Hour since 1970.
    pub(crate) hour: u32,
    /// Its pod, as [`pod_id`] has it.
    pub(crate) pod: u32,
    /// Time in which the CPU use was held down, milliseconds.
    pub(crate) starved_ms: u64,
    /// Time at each height of CPU (millionths of a core) and of memory (bytes).
    pub(crate) heights: [Histogram; 2],
}

/// A pod's name in short, the same in every run: replicas of one hour are told apart by it.
pub(crate) fn pod_id(pod: &str) -> u32 {
    crc32c::crc32c(pod.as_bytes())
}

impl Replica {
    /// Takes another part of the same pod's hour in.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.starved_ms += other.starved_ms;
        for (into, from) in self.heights.iter_mut().zip(&other.heights) {
            into.merge(from);
        }
    }
}

/// What arrived since the last look, all of one hour.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Fold {
    /// Hour since 1970.
    pub(crate) hour: u32,
    /// Time at each height of CPU and of memory.
    pub(crate) heights: [Histogram; 2],
    /// Greatest sample of each.
    pub(crate) peaks: [u64; 2],
}

/// Of n replicas the one at rank ceil(0.95 n) by mean use, and the time it was starved; no histogram of one alone.
pub(crate) fn worst(replicas: &[&Replica], resource: usize) -> (Option<Histogram>, u64) {
    let mut pods: BTreeMap<u32, Cow<'_, Replica>> = BTreeMap::new();
    for replica in replicas.iter().filter(|replica| !replica.heights[resource].is_empty()) {
        match pods.entry(replica.pod) {
            Entry::Vacant(place) => drop(place.insert(Cow::Borrowed(*replica))),
            Entry::Occupied(mut place) => place.get_mut().to_mut().merge(replica),
        }
    }
    let mut by_use: Vec<(u128, &Replica)> =
        pods.values().map(|replica| (mean(&replica.heights[resource]), &**replica)).collect();
    by_use.sort_by_key(|(mean, _)| *mean);
    let rank = (by_use.len() * 95).div_ceil(100);
    match by_use.get(rank.wrapping_sub(1)) {
        Some((_, bad)) if by_use.len() > 1 => (Some(bad.heights[resource].clone()), bad.starved_ms),
        Some((_, only)) => (None, only.starved_ms),
        None => (None, 0),
    }
}

/// Mean height in thousandths, as far as buckets tell.
pub(crate) fn mean(histogram: &Histogram) -> u128 {
    let scheme = histogram.scheme();
    let (mut sum, mut total) = (0_u128, 0_u128);
    for (bucket, weight) in histogram.buckets() {
        sum += u128::from(scheme.start(*bucket)) * u128::from(*weight);
        total += u128::from(*weight);
    }
    (sum * 1000).checked_div(total).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bad_replica_is_at_rank_95_percent() {
        let replica = |height: u64| {
            let mut one = Replica { pod: height as u32, starved_ms: height, ..Replica::default() };
            // So far apart that no two are in one bucket.
            one.heights[0].add(height * height * height, 1000);
            one
        };
        for (count, want) in [(2, 2), (19, 19), (20, 19), (40, 38), (100, 95)] {
            let all: Vec<Replica> = (1..=count).rev().map(replica).collect();
            let (heights, starved) = worst(&all.iter().collect::<Vec<_>>(), 0);
            let height = heights.and_then(|h| h.quantile(0.5)).map(|end| end >= want * want * want);
            assert_eq!((height, starved), (Some(true), want), "of {count}");
        }
        assert_eq!(worst(&[&replica(7)], 0), (None, 7));
        assert_eq!(worst(&[], 0), (None, 0));
        // Parts of one pod are one replica, and one that was not measured is none.
        let (first, second) = (replica(3), Replica { pod: 3, ..replica(9) });
        let silent = Replica { pod: 7, ..Replica::default() };
        assert_eq!(worst(&[&first, &second, &silent], 0), (None, 12));
        let (heights, starved) = worst(&[&first, &second, &silent, &replica(4)], 0);
        assert_eq!((heights.unwrap().total(), starved), (2000, 12));
    }
}
