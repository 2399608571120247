//! Owns how rows become samples of a Prometheus-compatible engine, and samples rows.
//!
//! A number is a series of its own, `evenkeel_<table>_<number>`, with a sample in the first second of the row's period
//! (see [`EngineRow::time_ms`]). A histogram is two: `evenkeel_<table>_<histogram>_entries` says how many entries it has, and
//! `evenkeel_<table>_<histogram>` holds them, one a second from the row's time on, each `bucket * 2^41 + weight`; a
//! weight of 2^41 or more is several entries of one bucket. So a histogram costs two series however many buckets it
//! has, every value is a whole number of at most 2^53, and what is missing is noticed. The label `scheme` of both is
//! the histogram's scheme. Seconds apart, the entries survive engines that keep one sample a second of a series; where
//! one keeps less (deduplication), histograms come back incomplete, which is counted, and are not used.

use std::collections::BTreeMap;

use evenkeel_rightsizing::histogram::{Histogram, Scheme};

use super::wire::{Label, TimeSeries, WireSample, WriteRequest};
use crate::engines::row::{EngineRow, Labels, PREFIX, SLOTS_MS};

/// Largest number: up to 2^53 every whole number survives as a double.
pub(super) const LARGEST: u64 = 1 << 53;

/// Bits of an entry that hold the weight.
const WEIGHT_BITS: u32 = 41;
/// Largest weight of one entry.
const WEIGHT: u64 = (1 << WEIGHT_BITS) - 1;

/// The request that writes rows.
pub(super) fn request(rows: &[&EngineRow]) -> WriteRequest {
    let mut series: BTreeMap<Labels, Vec<WireSample>> = BTreeMap::new();
    for row in rows {
        for (name, scheme, time_ms, value) in samples(row) {
            let mut labels = row.labels.clone();
            labels.insert("__name__".into(), name);
            labels.extend(scheme.map(|s| ("scheme".into(), s.id().to_string())));
            // Neither is lossy: a time is below 2^63 ms for the next 292 million years, and a value below 2^53.
            let sample = WireSample { value: value as f64, timestamp: time_ms.cast_signed() };
            series.entry(labels).or_default().push(sample);
        }
    }
    let in_order = |(labels, mut samples): (Labels, Vec<WireSample>)| {
        samples.sort_by_key(|s| s.timestamp);
        let labels = labels.into_iter().map(|(name, value)| Label { name, value }).collect();
        TimeSeries { labels, samples }
    };
    WriteRequest { timeseries: series.into_iter().map(in_order).collect() }
}

/// Samples of a row: name, scheme where there is one, time and value.
fn samples(row: &EngineRow) -> Vec<(String, Option<Scheme>, u64, u64)> {
    let named = |part: &str| format!("{PREFIX}{}_{part}", row.table.name());
    let time_ms = row.time_ms();
    let numbers = row.table.numbers().iter().zip(&row.numbers);
    let mut found: Vec<_> =
        numbers.filter_map(|(name, value)| Some((named(name), None, time_ms, (*value)?))).collect();
    for (name, histogram) in row.table.histograms().iter().zip(&row.histograms) {
        let Some(histogram) = histogram else { continue };
        let scheme = Some(histogram.scheme());
        let entries = entries(histogram);
        found.push((named(&format!("{name}_entries")), scheme, time_ms, entries.len() as u64));
        let times = (0..).map(|second| time_ms + second * SLOTS_MS);
        found.extend(entries.into_iter().zip(times).map(|(entry, time)| (named(name), scheme, time, entry)));
    }
    found
}

/// How many samples a row becomes.
pub(super) fn samples_of(row: &EngineRow) -> usize {
    row.numbers.iter().flatten().count()
        + row.histograms.iter().flatten().map(|h| 1 + h.buckets().len()).sum::<usize>()
}

fn entries(histogram: &Histogram) -> Vec<u64> {
    let mut found = Vec::with_capacity(histogram.buckets().len());
    for (bucket, weight) in histogram.buckets() {
        let mut left = *weight;
        while left > 0 {
            let part = left.min(WEIGHT);
            found.push(u64::from(*bucket) << WEIGHT_BITS | part);
            left -= part;
        }
    }
    found
}

/// A histogram of its entries, which may come in any order; nothing where a weight is zero.
pub(super) fn histogram(scheme: Scheme, entries: &[u64]) -> Option<Histogram> {
    let mut weights: BTreeMap<u16, u64> = BTreeMap::new();
    for entry in entries {
        let all = weights.entry(u16::try_from(entry >> WEIGHT_BITS).ok()?).or_default();
        *all = all.checked_add(entry & WEIGHT)?;
    }
    Histogram::from_buckets(scheme, weights.into_iter().collect())
}
