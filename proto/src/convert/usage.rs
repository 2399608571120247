//! Usage records.

use std::collections::BTreeMap;

use evenkeel_model::name::ResourceName;
use evenkeel_model::usage::{Confidence, Percentile, Stats, UsageRecord, UsageWindow};

use super::ConvertError;
use crate::v1;

/// The record of one container as a message.
pub fn usage_record(
    record: &UsageRecord,
    namespace: &str,
    workload: &str,
    container: &str,
) -> v1::UsageRecord {
    v1::UsageRecord {
        namespace: namespace.to_owned(),
        workload: workload.to_owned(),
        container: container.to_owned(),
        usage: stats_to_wire(&record.usage),
        max_usage: stats_to_wire(&record.max_usage),
        predicted: stats_to_wire(&record.predicted),
        predicted_seconds: record.predicted_seconds,
        predicted_confidence: record.predicted_confidence.map(Confidence::get),
        window_seconds: record.window.map_or(0, UsageWindow::seconds),
        confidence: record.confidence.map(Confidence::get),
        dropped: record.dropped,
        window_start_seconds: record.window.map(UsageWindow::start),
    }
}

fn stats_to_wire(stats: &BTreeMap<ResourceName, Stats>) -> BTreeMap<String, v1::Stats> {
    stats.iter().map(|(name, stats)| (name.to_string(), stats.into())).collect()
}

impl From<&Stats> for v1::Stats {
    fn from(stats: &Stats) -> Self {
        Self {
            mean: stats.mean,
            max: stats.max,
            min: stats.min,
            count: stats.count.unwrap_or(0),
            percentiles: stats.percentiles.iter().map(|(p, value)| (p.to_string(), *value)).collect(),
        }
    }
}

impl TryFrom<&v1::Stats> for Stats {
    type Error = ConvertError;

    fn try_from(wire: &v1::Stats) -> Result<Self, ConvertError> {
        let percentiles = wire.percentiles.iter().map(|(text, value)| {
            let percentile: Percentile = text.parse().map_err(|e| invalid("percentiles", &e))?;
            Ok((percentile, *value))
        });
        Ok(Self {
            mean: wire.mean,
            max: wire.max,
            min: wire.min,
            count: Some(wire.count),
            percentiles: percentiles.collect::<Result<_, ConvertError>>()?,
        })
    }
}

fn invalid(field: &'static str, why: &dyn std::fmt::Display) -> ConvertError {
    ConvertError::Invalid { field, why: why.to_string() }
}

fn stats_from_wire(
    field: &'static str,
    wire: &BTreeMap<String, v1::Stats>,
) -> Result<BTreeMap<ResourceName, Stats>, ConvertError> {
    let one = |(name, stats): (&String, &v1::Stats)| {
        let name: ResourceName = name.parse().map_err(|e| invalid(field, &e))?;
        Ok((name, stats.try_into()?))
    };
    wire.iter().map(one).collect()
}

impl TryFrom<&v1::UsageRecord> for UsageRecord {
    type Error = ConvertError;

    fn try_from(wire: &v1::UsageRecord) -> Result<Self, ConvertError> {
        let window = wire.window_start_seconds.map(|start| {
            let end = start.saturating_add_unsigned(wire.window_seconds);
            UsageWindow::new(start, end).map_err(|e| invalid("window_seconds", &e))
        });
        let share =
            |field, wire: Option<f64>| wire.map(Confidence::new).transpose().map_err(|e| invalid(field, &e));
        Ok(Self {
            usage: stats_from_wire("usage", &wire.usage)?,
            max_usage: stats_from_wire("max_usage", &wire.max_usage)?,
            predicted: stats_from_wire("predicted", &wire.predicted)?,
            window: window.transpose()?,
            predicted_seconds: wire.predicted_seconds,
            predicted_confidence: share("predicted_confidence", wire.predicted_confidence)?,
            confidence: share("confidence", wire.confidence)?,
            dropped: wire.dropped,
        })
    }
}
