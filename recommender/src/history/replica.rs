//! Owns what one container did within one hour, and which of several replicas is the bad one.
//!
//! A replica is a pod: a container that was started again, or got another number in its stream, goes on where the one before
//! it ended, or a part of a minute would pass for the bad one of many.

use std::collections::BTreeMap;

use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::histogram::{Histogram, Scheme};

use super::sealed::at;
use crate::state::seconds::Seconds;

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

/// A part of a replica's hour: what was folded, and the seconds of a running container that were not yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) replica: &'a Replica,
    pub(crate) unfolded: Option<&'a Seconds>,
}

impl Part<'_> {
    /// Sum of heights by weight, as far as buckets tell, and sum of weights.
    fn used(&self, resource: Resource) -> (u128, u128) {
        let (mut sum, mut total) = used(&self.replica.heights[at(resource)]);
        for (value, weight) in self.unfolded.into_iter().flat_map(|seconds| seconds.unfolded_of(resource)) {
            let scheme = Scheme::default();
            sum += u128::from(scheme.start(scheme.bucket(value))) * u128::from(weight);
            total += u128::from(weight);
        }
        (sum, total)
    }

    fn add_to(&self, into: &mut Histogram, resource: Resource) {
        into.merge(&self.replica.heights[at(resource)]);
        for (value, weight) in self.unfolded.into_iter().flat_map(|seconds| seconds.unfolded_of(resource)) {
            into.add(value, weight);
        }
    }
}

/// Of n replicas the one at rank ceil(0.95 n) by mean use, and the time it was starved; no histogram of one alone.
pub(crate) fn worst(parts: &[Part<'_>], resource: Resource) -> (Option<Histogram>, u64) {
    let mut pods: BTreeMap<u32, (u128, u128)> = BTreeMap::new();
    for part in parts {
        let (sum, total) = part.used(resource);
        if total > 0 {
            let pod = pods.entry(part.replica.pod).or_default();
            *pod = (pod.0 + sum, pod.1 + total);
        }
    }
    let mut by_use: Vec<(u128, u32)> =
        pods.iter().map(|(pod, (sum, total))| (sum * 1000 / total, *pod)).collect();
    by_use.sort_by_key(|(mean, _)| *mean);
    let rank = (by_use.len() * 95).div_ceil(100);
    let Some((_, pod)) = by_use.get(rank.wrapping_sub(1)) else { return (None, 0) };
    let own = || parts.iter().filter(|part| part.replica.pod == *pod && part.used(resource).1 > 0);
    let starved_ms = own().map(|part| part.replica.starved_ms).sum();
    let heights = (by_use.len() > 1).then(|| {
        let mut heights = Histogram::new();
        own().for_each(|part| part.add_to(&mut heights, resource));
        heights
    });
    (heights, starved_ms)
}

fn used(histogram: &Histogram) -> (u128, u128) {
    let scheme = histogram.scheme();
    let (mut sum, mut total) = (0_u128, 0_u128);
    for (bucket, weight) in histogram.buckets() {
        sum += u128::from(scheme.start(*bucket)) * u128::from(*weight);
        total += u128::from(*weight);
    }
    (sum, total)
}

/// Mean height in thousandths, as far as buckets tell.
pub(crate) fn mean(histogram: &Histogram) -> u128 {
    let (sum, total) = used(histogram);
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
        let of = |replicas: &[&Replica]| {
            let part = |replica| Part { replica, unfolded: None };
            worst(&replicas.iter().copied().map(part).collect::<Vec<_>>(), Resource::Cpu)
        };
        for (count, want) in [(2, 2), (19, 19), (20, 19), (40, 38), (100, 95)] {
            let all: Vec<Replica> = (1..=count).rev().map(replica).collect();
            let (heights, starved) = of(&all.iter().collect::<Vec<_>>());
            let height = heights.and_then(|h| h.quantile(0.5)).map(|end| end >= want * want * want);
            assert_eq!((height, starved), (Some(true), want), "of {count}");
        }
        assert_eq!(of(&[&replica(7)]), (None, 7));
        assert_eq!(of(&[]), (None, 0));
        // Parts of one pod are one replica, and one that was not measured is none.
        let (first, second) = (replica(3), Replica { pod: 3, ..replica(9) });
        let silent = Replica { pod: 7, ..Replica::default() };
        assert_eq!(of(&[&first, &second, &silent]), (None, 12));
        let (heights, starved) = of(&[&first, &second, &silent, &replica(4)]);
        assert_eq!((heights.unwrap().total(), starved), (2000, 12));
    }
}
