//! Owns the answers to watched questions over time, and their file.
//!
//! The file is one JSON object with a version behind a checksum (that of a release before has none), replaced whole: written beside, synced, renamed. It is small: a bounded
//! number of points for each of a bounded number of questions. A file that is damaged is set aside and told, since
//! the answers can be had again.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::Path;

use evenkeel_log::{private, sealed};
use serde::{Deserialize, Serialize};

/// Format of the file.
const VERSION: u32 = 1;

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Point {
    /// When, microseconds since 1970.
    pub(crate) time_usec: u64,
    /// How many fitted.
    pub(crate) count: u64,
    /// The bound that held.
    pub(crate) binding: String,
}

/// All answers kept, by question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct AnswerHistory {
    pub(crate) series: BTreeMap<String, VecDeque<Point>>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    version: u32,
    series: BTreeMap<String, VecDeque<Point>>,
}

impl AnswerHistory {
    /// Adds an answer; the oldest goes when there are more than `most`. Answers of a later time were given while the clock
    /// was ahead, and are no trend.
    pub(crate) fn add(&mut self, question: &str, point: Point, most: usize) {
        let points = self.series.entry(question.to_owned()).or_default();
        while points.back().is_some_and(|last| last.time_usec > point.time_usec) {
            points.pop_back();
        }
        points.push_back(point);
        while points.len() > most {
            points.pop_front();
        }
    }

    /// Reads the file; nothing where there is none.
    ///
    /// # Errors
    /// When it cannot be read or holds something else.
    pub(crate) fn read(path: &Path) -> io::Result<Self> {
        let text = match private::read(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let text = match sealed::body(&text) {
            sealed::Body::Whole(text) | sealed::Body::Unsealed(text) => text,
            sealed::Body::Damaged => return Err(io::Error::other("it does not match its checksum")),
        };
        let stored: Stored = serde_json::from_slice(text)?;
        if stored.version != VERSION {
            return Err(io::Error::other(format!("it has version {}, not {VERSION}", stored.version)));
        }
        Ok(Self { series: stored.series })
    }

    /// Replaces the file.
    ///
    /// # Errors
    /// When it cannot be written; the former one stands then.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let stored = Stored { version: VERSION, series: self.series.clone() };
        private::replace(path, &sealed::file(&serde_json::to_vec(&stored)?), true)
    }
}

/// How a count changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Trend {
    /// Change of the count per day.
    pub(crate) per_day: f64,
    /// Days until none fits at that rate; `None` when the count does not fall.
    pub(crate) days_until_none: Option<f64>,
}

/// The line of least squares through the points of the last `window_usec`; `None` with fewer than three of them.
pub(crate) fn trend(points: &VecDeque<Point>, window_usec: u64) -> Option<Trend> {
    const DAY_USEC: f64 = 86_400e6;
    let newest = points.back()?.time_usec;
    let from = newest.saturating_sub(window_usec);
    let recent = || points.iter().filter(|point| point.time_usec >= from);
    let number = recent().count();
    if number < 3 {
        return None;
    }
    // Days before the newest point.
    let day = |point: &Point| -(newest.saturating_sub(point.time_usec) as f64) / DAY_USEC;
    let n = number as f64;
    let mean_day = recent().map(day).sum::<f64>() / n;
    let mean_count = recent().map(|point| point.count as f64).sum::<f64>() / n;
    let (mut covariance, mut variance) = (0.0, 0.0);
    for point in recent() {
        let apart = day(point) - mean_day;
        covariance += apart * (point.count as f64 - mean_count);
        variance += apart * apart;
    }
    if variance <= 0.0 {
        return None;
    }
    let per_day = covariance / variance;
    let now = mean_count - per_day * mean_day;
    let days_until_none = (per_day < 0.0).then(|| (now / -per_day).max(0.0));
    Some(Trend { per_day, days_until_none })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 86_400_000_000;

    fn line(counts: &[u64]) -> VecDeque<Point> {
        let point = |(at, count): (usize, &u64)| Point {
            time_usec: (at as u64 + 20_000) * DAY,
            count: *count,
            binding: "nodes".into(),
        };
        counts.iter().enumerate().map(point).collect()
    }

    #[test]
    fn a_falling_count_ends_where_its_line_does() {
        type Wanted = Option<(f64, Option<f64>)>;
        let table: [(&[u64], Wanted); 5] = [
            (&[12, 10], None),
            (&[12, 10, 8, 6], Some((-2.0, Some(3.0)))),
            (&[5, 5, 5], Some((0.0, None))),
            (&[1, 2, 3], Some((1.0, None))),
            // Only the last four days count.
            (&[1000, 0, 9, 8, 7, 6, 5], Some((-1.0, Some(5.0)))),
        ];
        for (counts, want) in table {
            let got = trend(&line(counts), 4 * DAY).map(|t| (t.per_day, t.days_until_none));
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
            let same = match (got, want) {
                (None, None) => true,
                (Some((a, None)), Some((b, None))) => near(a, b),
                (Some((a, Some(c))), Some((b, Some(d)))) => near(a, b) && near(c, d),
                _ => false,
            };
            assert!(same, "{counts:?}: {got:?}, not {want:?}");
        }
    }

    #[test]
    fn what_is_written_is_read_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("watched.json");
        assert_eq!(AnswerHistory::read(&path).unwrap(), AnswerHistory::default());
        let mut kept = AnswerHistory::default();
        for point in line(&[4, 3, 2, 1]) {
            kept.add("web", point, 3);
        }
        assert_eq!(kept.series["web"].iter().map(|p| p.count).collect::<Vec<_>>(), [3, 2, 1]);
        // One of sixty days ahead, then the clock is right again.
        let mut ahead = kept.clone();
        let [last, late] =
            [3, 63].map(|day| Point { time_usec: (20_000 + day) * DAY, count: 0, binding: String::new() });
        ahead.add("web", late, 9);
        ahead.add("web", Point { time_usec: last.time_usec + 1, ..last }, 9);
        assert_eq!(ahead.series["web"].iter().map(|p| p.count).collect::<Vec<_>>(), [3, 2, 1, 0]);
        assert!(ahead.series["web"].iter().all(|p| p.time_usec < 20_004 * DAY));
        kept.write(&path).unwrap();
        assert_eq!(AnswerHistory::read(&path).unwrap(), kept);
        for text in ["", "{", r#"{"version": 2, "series": {}}"#] {
            std::fs::write(&path, text).unwrap();
            assert!(AnswerHistory::read(&path).is_err(), "{text}");
        }
    }
}
