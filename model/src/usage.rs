//! Owns the usage record of the resource model: what was used, the most that was used, and what is predicted, each as
//! a distribution by resource type, over a window.
//!
//! Values are integers in the resource's internal unit: thousandths of a core for `cpu` (and whatever else is scaled by
//! 1000), bytes for `memory`, plain units otherwise. Which seconds enter a record is the caller's decision.

mod percentile;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::name::ResourceName;
pub use percentile::Percentile;

/// A distribution of values. All parts are optional.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Arithmetic mean, rounded to the nearest integer, halves up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mean: Option<u64>,
    /// Largest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max: Option<u64>,
    /// Smallest value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min: Option<u64>,
    /// Number of values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Values by percentile.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub percentiles: BTreeMap<Percentile, u64>,
}

impl Stats {
    /// The distribution of `values` with the standard percentiles by nearest rank, all exact. Of no values it is a
    /// count of 0.
    #[must_use]
    pub fn of(values: impl IntoIterator<Item = u64>) -> Self {
        let mut ascending: Vec<u64> = values.into_iter().collect();
        ascending.sort_unstable();
        let count = ascending.len() as u64;
        let sum: u128 = ascending.iter().copied().map(u128::from).sum();
        let rounded = |count: u64| (sum * 2 + u128::from(count)) / (u128::from(count) * 2);
        let percentiles = Percentile::STANDARD.into_iter();
        Self {
            mean: (count > 0).then(|| rounded(count)).and_then(|mean| u64::try_from(mean).ok()),
            max: ascending.last().copied(),
            min: ascending.first().copied(),
            count: Some(count),
            percentiles: percentiles.filter_map(|p| Some((p, p.of_sorted(&ascending)?))).collect(),
        }
    }
}

/// A window of time in seconds since 1970, its end not before its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsageWindow {
    start: i64,
    end: i64,
}

impl UsageWindow {
    /// The window from `start` (included) to `end` (not included), in seconds since 1970.
    ///
    /// # Errors
    /// [`UsageError::Window`] when it ends before it starts.
    pub fn new(start: i64, end: i64) -> Result<Self, UsageError> {
        if end < start {
            return Err(UsageError::Window { start, end });
        }
        Ok(Self { start, end })
    }

    /// First second, since 1970.
    #[must_use]
    pub fn start(self) -> i64 {
        self.start
    }

    /// The second after the last, since 1970.
    #[must_use]
    pub fn end(self) -> i64 {
        self.end
    }

    /// Length in seconds.
    #[must_use]
    pub fn seconds(self) -> u64 {
        self.end.abs_diff(self.start)
    }
}

/// How much a record can be relied on, from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Confidence(f64);

impl Confidence {
    /// A confidence from 0 to 1.
    ///
    /// # Errors
    /// [`UsageError::Confidence`] outside, and for what is no number.
    pub fn new(value: f64) -> Result<Self, UsageError> {
        if (0.0..=1.0).contains(&value) { Ok(Self(value)) } else { Err(UsageError::Confidence { value }) }
    }

    /// The share of the expected data points that were seen; 1 at most, 0 where none was expected.
    #[must_use]
    pub fn of_coverage(seen: u64, expected: u64) -> Self {
        Self(if expected == 0 { 0.0 } else { (seen as f64 / expected as f64).min(1.0) })
    }

    /// From 0 to 1.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Confidence {
    type Error = UsageError;

    fn try_from(value: f64) -> Result<Self, UsageError> {
        Self::new(value)
    }
}

impl From<Confidence> for f64 {
    fn from(confidence: Confidence) -> Self {
        confidence.0
    }
}

/// What a container, pod or node used, and is expected to use, over a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RecordForm", into = "RecordForm")]
pub struct UsageRecord {
    /// The seconds of the window.
    pub usage: BTreeMap<ResourceName, Stats>,
    /// The largest second of each of the window's parts (each minute, for instance).
    pub max_usage: BTreeMap<ResourceName, Stats>,
    /// What is expected of the next window: its values are bounds, each kept to with the confidence beside it.
    pub predicted: BTreeMap<ResourceName, Stats>,
    /// Length of the next window, seconds.
    pub predicted_seconds: Option<u64>,
    /// How likely the next window keeps to each predicted value.
    pub predicted_confidence: Option<Confidence>,
    /// The time it covers.
    pub window: Option<UsageWindow>,
    /// How much it can be relied on.
    pub confidence: Option<Confidence>,
    /// Data points that were lost or discarded.
    pub dropped: u64,
}

/// The record's JSON form: names are pinned.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RecordForm {
    #[serde(default)]
    usage: BTreeMap<ResourceName, Stats>,
    #[serde(default)]
    maxusage: BTreeMap<ResourceName, Stats>,
    #[serde(default)]
    predicted: BTreeMap<ResourceName, Stats>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    predicted_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    predicted_confidence: Option<Confidence>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window_seconds: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window_start_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    window_end_seconds: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    confidence: Option<Confidence>,
    #[serde(default)]
    dropped: u64,
}

impl From<UsageRecord> for RecordForm {
    fn from(record: UsageRecord) -> Self {
        Self {
            usage: record.usage,
            maxusage: record.max_usage,
            predicted: record.predicted,
            predicted_seconds: record.predicted_seconds,
            predicted_confidence: record.predicted_confidence,
            window_seconds: record.window.map(UsageWindow::seconds),
            window_start_seconds: record.window.map(UsageWindow::start),
            window_end_seconds: record.window.map(UsageWindow::end),
            confidence: record.confidence,
            dropped: record.dropped,
        }
    }
}

impl TryFrom<RecordForm> for UsageRecord {
    type Error = UsageError;

    fn try_from(form: RecordForm) -> Result<Self, UsageError> {
        let window = match form.window_start_seconds.zip(form.window_end_seconds) {
            Some((start, end)) => Some(UsageWindow::new(start, end)?),
            None => None,
        };
        Ok(Self {
            usage: form.usage,
            max_usage: form.maxusage,
            predicted: form.predicted,
            predicted_seconds: form.predicted_seconds,
            predicted_confidence: form.predicted_confidence,
            window,
            confidence: form.confidence,
            dropped: form.dropped,
        })
    }
}

/// What is wrong with a part of a usage record.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum UsageError {
    /// The text is no percentile.
    #[error(
        "{text:?} is not a percentile; write one above 0 and up to 100 with at most one decimal, such as 99.5"
    )]
    Percentile {
        /// The text, cut after 16 characters.
        text: String,
    },
    /// The window ends before it starts.
    #[error("the window ends at {end}, before it starts at {start}; swap the two")]
    Window {
        /// Start, in seconds since 1970.
        start: i64,
        /// End, in seconds since 1970.
        end: i64,
    },
    /// Not from 0 to 1.
    #[error("confidence {value} is not from 0 to 1; write a share such as 0.95")]
    Confidence {
        /// The value.
        value: f64,
    },
}
