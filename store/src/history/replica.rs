//! Owns what one container did within one hour, and which of several replicas is the bad one.
//!
//! A replica is a pod: a container that was started again, or got another number in its stream, goes on where the one before
//! it ended, or a part of a minute would pass for the bad one of many.
//!
//! Jobs may have any number of pods in an hour. Of more than a few hundred a sample stands for all: those with the lowest
//! numbers, which are hashes of their names. Whether a pod belongs to it does not depend on when it came.

use std::collections::BTreeMap;

use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::histogram::{Histogram, Scheme};

use super::sealed::at;
use super::starts::InStart;
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
    /// The part of it in which a container started.
    pub(crate) start: Option<Box<InStart>>,
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
        if let Some(start) = &other.start {
            self.start.get_or_insert_default().merge(start);
        }
    }
}

/// Ended replicas of an hour that are kept. The rank of the bad one is known to 1.4 percent of the replicas with it
/// (standard error of a quantile of 0.95).
const SAMPLE: usize = 256;

/// The replicas of an hour that have ended, each pod once; a sample of them where there are many.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Replicas(Vec<Replica>);

impl Replicas {
    /// Takes a part of a pod's hour in.
    pub(crate) fn add(&mut self, replica: Replica) {
        match self.0.binary_search_by_key(&replica.pod, |had| had.pod) {
            Ok(at) => self.0[at].merge(&replica),
            Err(at) if at < SAMPLE => {
                self.0.truncate(SAMPLE - 1);
                self.0.insert(at, replica);
            }
            Err(_) => {}
        }
    }

    /// By their pods' numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Replica> {
        self.0.iter()
    }

    /// The parts of all replicas, or of those of the sample, with what containers that run have of the hour.
    pub(crate) fn with<'a>(&'a self, running: impl Iterator<Item = ReplicaPart<'a>>) -> Vec<ReplicaPart<'a>> {
        let last = self.0.get(SAMPLE - 1).map_or(u32::MAX, |last| last.pod);
        let ended = self.iter().map(|replica| ReplicaPart { replica, unfolded: None, is_starting: false });
        ended.chain(running.filter(|part| part.replica.pod <= last)).collect()
    }
}

impl FromIterator<Replica> for Replicas {
    fn from_iter<I: IntoIterator<Item = Replica>>(replicas: I) -> Self {
        let mut all = Self::default();
        replicas.into_iter().for_each(|replica| all.add(replica));
        all
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
    /// All of it is of a start, in which the CPU use was held down for so long, milliseconds.
    pub(crate) start: Option<u64>,
}

/// A part of a replica's hour: what was folded, and the seconds of a running container that were not yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReplicaPart<'a> {
    pub(crate) replica: &'a Replica,
    pub(crate) unfolded: Option<&'a Seconds>,
    /// These are of a start.
    pub(crate) is_starting: bool,
}

impl ReplicaPart<'_> {
    /// Whether any of it is of a start.
    pub(crate) fn has_start(&self) -> bool {
        self.replica.start.is_some() || self.is_starting && self.unfolded.is_some_and(Seconds::has_unfolded)
    }

    /// The CPU use of the part without its start, and for how long it was held down then.
    fn running(&self) -> (Histogram, u64) {
        let mut heights = self.replica.heights[at(Resource::Cpu)].clone();
        let mut starved_ms = self.replica.starved_ms;
        if let Some(start) = &self.replica.start {
            heights.unmerge(&start.heights);
            starved_ms = starved_ms.saturating_sub(start.starved_ms);
        }
        for (value, weight) in self.unfolded.filter(|_| !self.is_starting).into_iter().flat_map(cpu) {
            heights.add(value, weight);
        }
        (heights, starved_ms)
    }

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
pub(crate) fn worst(parts: &[ReplicaPart<'_>], resource: Resource) -> (Option<Histogram>, u64) {
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

fn cpu(seconds: &Seconds) -> impl Iterator<Item = (u64, u64)> {
    seconds.unfolded_of(Resource::Cpu)
}

/// The same as [`worst`] of the CPU, where starts are left out of what each did.
pub(crate) fn worst_running(parts: &[ReplicaPart<'_>]) -> (Option<Histogram>, u64) {
    let running = |part: &ReplicaPart<'_>| {
        let (cpu, starved_ms) = part.running();
        let (hour, pod) = (part.replica.hour, part.replica.pod);
        Replica { hour, pod, starved_ms, heights: [cpu, Histogram::new()], start: None }
    };
    let without: Vec<Replica> = parts.iter().map(running).collect();
    let part = |replica| ReplicaPart { replica, unfolded: None, is_starting: false };
    worst(&without.iter().map(part).collect::<Vec<_>>(), Resource::Cpu)
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
            let part = |replica| ReplicaPart { replica, unfolded: None, is_starting: false };
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

    #[test]
    fn a_start_makes_no_replica_the_bad_one_of_the_running_state() {
        let replica = |pod: u32, running: u64, start: u64| {
            let mut one = Replica { pod, starved_ms: 70, ..Replica::default() };
            one.heights[0].add(running, 1000);
            if start > 0 {
                let mut in_start = InStart { starved_ms: 50, ..InStart::default() };
                in_start.heights.add(start, 5000);
                one.heights[0].merge(&in_start.heights);
                one.start = Some(Box::new(in_start));
            }
            one
        };
        let (quiet, busy) = (replica(1, 100, 9000), replica(2, 300, 0));
        let part = |replica| ReplicaPart { replica, unfolded: None, is_starting: false };
        let parts = [part(&quiet), part(&busy)];
        let height = |(heights, starved): (Option<Histogram>, u64)| (heights.unwrap().total(), starved);
        assert_eq!(height(worst(&parts, Resource::Cpu)), (6000, 70));
        assert_eq!(height(worst_running(&parts)), (1000, 70));
        let alone = [part(&quiet)];
        assert_eq!(worst_running(&alone), (None, 20));
        // Another part of the pod's hour takes the start along.
        let mut whole = replica(1, 100, 0);
        whole.merge(&quiet);
        assert_eq!(whole.start.unwrap().starved_ms, 50);
    }

    #[test]
    fn of_many_replicas_a_sample_is_kept_whatever_their_order() {
        let replica = |pod: u32| {
            let mut one = Replica { pod: pod_id(&format!("job-{pod}")), ..Replica::default() };
            one.heights[0].add(u64::from(pod), 1000);
            one
        };
        let few: Replicas = (0..200).map(replica).collect();
        let running = replica(777);
        let part = || ReplicaPart { replica: &running, unfolded: None, is_starting: false };
        assert_eq!((few.iter().count(), few.with([part()].into_iter()).len()), (200, 201));
        let many: Replicas = (0..10_000).map(replica).collect();
        let backwards: Replicas = (0..10_000).rev().map(replica).collect();
        assert_eq!((many.iter().count(), &many), (SAMPLE, &backwards));
        // A running pod counts if it would be in the sample once it has ended.
        let is_in = many.iter().any(|kept| kept.pod == running.pod);
        assert_eq!(many.with([part()].into_iter()).len(), SAMPLE + usize::from(is_in));
        let lowest = Replica { pod: 0, ..running.clone() };
        let lowest = ReplicaPart { replica: &lowest, unfolded: None, is_starting: false };
        assert_eq!(many.with([lowest].into_iter()).len(), SAMPLE + 1);
        // 10,000 heights in a row: the bad one of the sample is near the 9,500th.
        let (heights, _) = worst(&many.with(std::iter::empty()), Resource::Cpu);
        let height = heights.and_then(|h| h.quantile(0.5)).unwrap();
        assert!((9000..9900).contains(&height), "{height}");
    }
}
