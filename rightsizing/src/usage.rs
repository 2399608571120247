//! Statistics of seconds of use, as usage records tell them: the agent of its last minute, the recommender of what it has
//! kept, by the same percentiles of time, so that both say the same to the bucket.

use std::collections::BTreeMap;

use evenkeel_model::usage::{Percentile, Stats};

use crate::Resource;
use crate::histogram::Histogram;

/// One second, or what a sample stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsageSecond {
    /// When, milliseconds since 1970.
    pub time_ms: u64,
    /// Time it stands for, milliseconds.
    pub weight_ms: u64,
    /// Use: millionths of a core, or bytes.
    pub value: u64,
    /// Time of it in which somebody waited for memory (PSI "some"), milliseconds; nothing where the kernel does not tell.
    pub stalled_ms: u64,
}

/// Units of histories in one of records: thousandths of a core, or bytes.
pub(crate) const fn unit(resource: Resource) -> u64 {
    match resource {
        Resource::Cpu => 1_000,
        Resource::Memory => 1,
    }
}

/// The standard percentiles of time: the greatest value of the bucket in which each lies, at most the peak. In the units of
/// records; nothing of nothing.
pub fn percentiles(heights: &Histogram, peak: u64, resource: Resource) -> BTreeMap<Percentile, u64> {
    let at = |p: Percentile| {
        let value = heights.quantile(f64::from(p.tenths()) / 1_000.0)?;
        Some((p, value.min(peak) / unit(resource)))
    };
    Percentile::STANDARD.into_iter().filter_map(at).collect()
}

/// What was used in seconds, and in the greatest second of each minute.
pub fn of_seconds(seconds: &[UsageSecond], resource: Resource) -> (Stats, Stats) {
    let mut heights = Histogram::new();
    let mut greatest: BTreeMap<u64, u64> = BTreeMap::new();
    for second in seconds {
        heights.add(second.value, second.weight_ms);
        let of_minute = greatest.entry(second.time_ms / 60_000).or_default();
        *of_minute = second.value.max(*of_minute);
    }
    let told = |value: u64| value / unit(resource);
    let peak = greatest.values().copied().max().unwrap_or(0);
    let used = Stats {
        percentiles: percentiles(&heights, peak, resource),
        ..Stats::of(seconds.iter().map(|second| told(second.value)))
    };
    (used, Stats::of(greatest.into_values().map(told)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four seconds of work in each minute, of which a mean of minutes knows nothing.
    #[test]
    fn percentiles_of_seconds_know_bursts() {
        let second = |i: u64| UsageSecond {
            time_ms: i * 1_000,
            weight_ms: 1_000,
            value: if i % 60 < 4 { 900_000 } else { 2_000 },
            stalled_ms: 0,
        };
        let seconds: Vec<UsageSecond> = (0..600).map(second).collect();
        let (used, greatest) = of_seconds(&seconds, Resource::Cpu);
        assert_eq!((used.mean, used.min, used.max, used.count), (Some(62), Some(2), Some(900), Some(600)));
        let at = |tenths| used.percentiles[&Percentile::from_tenths(tenths).unwrap()];
        // The bucket of 2,000 ends at 2,015; that of 900,000 above the peak.
        assert_eq!([500, 900, 950, 990, 999].map(at), [2, 2, 900, 900, 900]);
        assert_eq!((greatest.count, greatest.min), (Some(10), Some(900)));
        assert_eq!(of_seconds(&[], Resource::Memory).0, Stats::of([]));
    }

    #[test]
    fn time_counts_and_not_samples() {
        let seconds = [(0, 50_000, 1 << 20), (50_000, 1_000, 5 << 20), (51_000, 1_000, 6 << 20)];
        let seconds = seconds.map(|(time_ms, weight_ms, value)| UsageSecond {
            time_ms,
            weight_ms,
            value,
            stalled_ms: 0,
        });
        let (used, _) = of_seconds(&seconds, Resource::Memory);
        let at = |tenths| used.percentiles[&Percentile::from_tenths(tenths).unwrap()];
        assert_eq!((at(950) >> 20, at(990)), (1, 6 << 20));
    }
}
