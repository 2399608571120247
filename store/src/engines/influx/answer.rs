//! Owns the reading of answers to InfluxQL (docs.influxdata.com, InfluxDB 1.x, "Querying data with the HTTP API"): a row
//! of JSON objects, one a chunk, so that only one chunk is in memory as text.

use std::collections::BTreeMap;
use std::io::BufReader;

use serde::Deserialize;
use serde_json::Value;

use super::line;
use crate::engines::failure::EngineFailure;
use crate::engines::http::BoundedBody;
use crate::engines::row::{EngineRow, Faults, Labels, PREFIX, RowKind, SLOTS_MS};
use crate::engines::rows::LABELS;

/// A chunk of an answer.
#[derive(Debug, Deserialize)]
struct Chunk {
    #[serde(default)]
    results: Vec<QueryResult>,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct QueryResult {
    #[serde(default)]
    series: Vec<InfluxSeries>,
    /// More of this result follows in the next chunk.
    #[serde(default)]
    partial: bool,
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct InfluxSeries {
    name: String,
    #[serde(default)]
    tags: BTreeMap<String, String>,
    columns: Vec<String>,
    #[serde(default)]
    values: Vec<Vec<Value>>,
}

/// Reads an answer without looking at its series: that of a statement that returns none.
pub(super) fn done(answer: BoundedBody) -> Result<(), EngineFailure> {
    chunks(answer, &mut |_| {})
}

/// Reads the rows of one table from one time to before another.
pub(super) fn rows(
    answer: BoundedBody,
    table: RowKind,
    from_ms: u64,
    to_ms: u64,
) -> Result<(Vec<EngineRow>, Faults), EngineFailure> {
    let mut found = WindowRows { table, from_ms, to_ms, rows: BTreeMap::new(), faults: Faults::default() };
    chunks(answer, &mut |series| found.take(series))?;
    Ok((found.rows.into_values().flatten().collect(), found.faults))
}

fn chunks(mut answer: BoundedBody, sink: &mut dyn FnMut(InfluxSeries)) -> Result<(), EngineFailure> {
    let mut reader = BufReader::new(&mut answer);
    let (mut any, mut more, mut wrong) = (false, false, None);
    for chunk in serde_json::Deserializer::from_reader(&mut reader).into_iter::<Chunk>() {
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => {
                wrong =
                    Some(EngineFailure::Malformed { what: format!("not an answer to InfluxQL: {error}") });
                break;
            }
        };
        any = true;
        if let Some(said) = chunk.error {
            wrong = Some(EngineFailure::Refused { what: said });
            break;
        }
        for outcome in chunk.results {
            more = outcome.partial;
            if let Some(said) = outcome.error {
                wrong = Some(EngineFailure::Refused { what: said });
            }
            outcome.series.into_iter().for_each(&mut *sink);
        }
    }
    match (answer.take_failure(), wrong) {
        (Some(failure), _) | (None, Some(failure)) => Err(failure),
        (None, None) if !any || more => Err(EngineFailure::Down { what: "the answer broke off".into() }),
        (None, None) => Ok(()),
    }
}

/// Rows of one window, as they come in.
struct WindowRows {
    table: RowKind,
    from_ms: u64,
    to_ms: u64,
    /// Nothing where a row contradicts another of the same series and time.
    rows: BTreeMap<(Labels, u64), Option<EngineRow>>,
    faults: Faults,
}

impl WindowRows {
    fn take(&mut self, series: InfluxSeries) {
        let named = series.name.strip_prefix(PREFIX) == Some(self.table.name());
        let labels: Option<Labels> = series
            .tags
            .into_iter()
            .filter(|(name, value)| LABELS.contains(&name.as_str()) && !value.is_empty())
            .map(|(name, value)| Some((name, line::untag(&value)?)))
            .collect();
        let (true, Some(labels)) = (named, labels) else {
            self.faults.labels += 1;
            return;
        };
        for values in &series.values {
            self.point(&labels, &series.columns, values);
        }
    }

    fn point(&mut self, labels: &Labels, columns: &[String], values: &[Value]) {
        let column = |name: &str| columns.iter().position(|c| c == name).and_then(|at| values.get(at));
        let Some(time) = column("time").and_then(Value::as_u64) else {
            self.faults.numbers += 1;
            return;
        };
        let within = time % self.table.period_ms();
        if time < self.from_ms || time >= self.to_ms || within >= SLOTS_MS {
            self.faults.times += 1;
            return;
        }
        let known = |name: &str| column(name).filter(|value| !value.is_null());
        let numbers: Option<Vec<Option<u64>>> = self
            .table
            .numbers()
            .iter()
            .map(|name| known(name).map_or(Some(None), |value| value.as_u64().map(Some)))
            .collect();
        let histograms: Option<Vec<_>> = self
            .table
            .histograms()
            .iter()
            .map(|name| known(name).map_or(Some(None), |v| line::histogram(v.as_str()?).map(Some)))
            .collect();
        let (Some(numbers), Some(histograms)) = (numbers, histograms) else {
            self.faults.numbers += 1;
            return;
        };
        let row = EngineRow {
            table: self.table,
            labels: labels.clone(),
            begin_ms: time - within,
            numbers,
            histograms,
        };
        let same = self.rows.entry((labels.clone(), time)).or_insert_with(|| Some(row.clone()));
        if same.as_ref().is_some_and(|same| *same != row) {
            *same = None;
            self.faults.contradictions += 1;
        }
    }
}
