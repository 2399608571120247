//! Rollups: what is kept of many samples. Partial sums that merge exactly and in any order.

use serde::{Deserialize, Serialize};

use crate::sample::{Field, Sample};

/// Count, sum, least and greatest of some whole numbers; merging two gives what their union would have given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Aggregate {
    /// How many numbers.
    pub count: u64,
    /// Their sum, saturating.
    pub sum: u64,
    /// The least; `u64::MAX` while there is none.
    pub min: u64,
    /// The greatest; zero while there is none.
    pub max: u64,
}

impl Default for Aggregate {
    fn default() -> Self {
        Self { count: 0, sum: 0, min: u64::MAX, max: 0 }
    }
}

impl Aggregate {
    /// Takes one more number in.
    pub fn add(&mut self, value: u64) {
        self.count = self.count.saturating_add(1);
        self.sum = self.sum.saturating_add(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Takes all numbers of another aggregate in.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum = self.sum.saturating_add(other.sum);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// Arithmetic mean, rounded down; `None` without numbers.
    pub fn mean(&self) -> Option<u64> {
        self.sum.checked_div(self.count)
    }
}

/// What is kept of one container's samples within one minute (or less: an unfinished minute is a rollup too).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Rollup {
    /// Samples taken in: the seconds this rollup stands for.
    pub samples: u64,
    /// Time these samples stand for, microseconds: each from the one before to itself, at most
    /// [`Sample::MAX_WEIGHT_USEC`].
    pub time_usec: u64,
    /// CPU use in millionths of a core; a container's first sample has none.
    pub cpu_micro: Aggregate,
    /// Working set in bytes.
    pub memory_bytes: Aggregate,
    /// Time throttled, microseconds.
    pub throttled_usec: u64,
    /// Time of the samples in which the CPU use was held down ([`Sample::is_starved`]), microseconds.
    pub starved_usec: u64,
    /// OOM kills.
    pub oom_kills: u64,
}

impl Rollup {
    /// Takes a sample in, given the container's sample before it, if there was one.
    pub fn add(&mut self, earlier: Option<&Sample>, sample: &Sample) {
        self.samples = self.samples.saturating_add(1);
        self.time_usec = self.time_usec.saturating_add(sample.weight_usec());
        if let Some(memory) =
            sample.get(Field::MemoryWorkingSetBytes).or(sample.get(Field::MemoryCurrentBytes))
        {
            self.memory_bytes.add(memory);
        }
        let Some(earlier) = earlier else { return };
        if let Some(cpu) = sample.cpu_micro(earlier) {
            self.cpu_micro.add(cpu);
        }
        if sample.is_starved(earlier) {
            self.starved_usec = self.starved_usec.saturating_add(sample.weight_usec());
        }
        let grown = |field| sample.delta(earlier, field).unwrap_or(0);
        self.throttled_usec = self.throttled_usec.saturating_add(grown(Field::CpuThrottledUsec));
        self.oom_kills = self.oom_kills.saturating_add(grown(Field::OomKills));
    }

    /// Takes all samples of another rollup in.
    pub fn merge(&mut self, other: &Self) {
        self.samples = self.samples.saturating_add(other.samples);
        self.time_usec = self.time_usec.saturating_add(other.time_usec);
        self.cpu_micro.merge(&other.cpu_micro);
        self.memory_bytes.merge(&other.memory_bytes);
        self.throttled_usec = self.throttled_usec.saturating_add(other.throttled_usec);
        self.starved_usec = self.starved_usec.saturating_add(other.starved_usec);
        self.oom_kills = self.oom_kills.saturating_add(other.oom_kills);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn merging_two_halves_gives_the_whole() {
        let samples: Vec<Sample> = (0..10u64)
            .map(|i| {
                let mut s = Sample::new(Duration::from_secs(1));
                s.set(Field::CpuUsageUsec, i * i * 1000);
                s.set(Field::MemoryWorkingSetBytes, 100 - i);
                s
            })
            .collect();
        let fold = |range: std::ops::Range<usize>| {
            let mut r = Rollup::default();
            for i in range {
                r.add(i.checked_sub(1).map(|j| &samples[j]), &samples[i]);
            }
            r
        };
        let mut halves = fold(0..4);
        halves.merge(&fold(4..10));
        assert_eq!(halves, fold(0..10));
        assert_eq!((halves.samples, halves.cpu_micro.count, halves.cpu_micro.max), (10, 9, 17_000));
        assert_eq!((halves.time_usec, halves.starved_usec), (10_000_000, 0));
        assert_eq!(Aggregate::default().mean(), None);
    }
}
