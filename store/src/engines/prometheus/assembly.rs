//! Owns how rows are put together of the series that a Prometheus-compatible engine answers with, and what is thought
//! of points that should not be there.

use evenkeel_model::narrow::f64_to_u64;
use std::collections::BTreeMap;

use evenkeel_rightsizing::histogram::Scheme;

use super::pack::{LARGEST, histogram};
use crate::engines::row::{EngineRow, Faults, Labels, PREFIX, RowKind, SLOTS_MS};
use crate::engines::rows::LABELS;

/// A row as far as it has been read.
#[derive(Debug, Default)]
struct PartialRow {
    numbers: BTreeMap<usize, u64>,
    counts: BTreeMap<usize, (Scheme, u64)>,
    /// By time, so that one that comes twice is one.
    entries: BTreeMap<usize, BTreeMap<u64, u64>>,
    contradicted: bool,
}

/// What a series is of its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Number(usize),
    Count(usize, Scheme),
    Entry(usize),
}

/// Puts rows of one table together from the series of one answer.
#[derive(Debug)]
pub(super) struct Assembly {
    table: RowKind,
    from_ms: u64,
    to_ms: u64,
    /// Per series of rows, by begin of the period and millisecond of the second.
    parts: BTreeMap<Labels, BTreeMap<(u64, u64), PartialRow>>,
    faults: Faults,
}

impl Assembly {
    /// For rows from one time to before another, both at the begin of a period.
    pub(super) fn new(table: RowKind, from_ms: u64, to_ms: u64) -> Self {
        Self { table, from_ms, to_ms, parts: BTreeMap::new(), faults: Faults::default() }
    }

    /// Takes a series in: labels with `__name__`, and times in milliseconds with values, in any order.
    pub(super) fn take(&mut self, mut labels: Labels, samples: &[(f64, f64)]) {
        let scheme = labels.remove("scheme");
        let Some(role) = labels.remove("__name__").and_then(|name| self.role(&name, scheme.as_deref()))
        else {
            self.faults.labels += 1;
            return;
        };
        labels.retain(|name, value| LABELS.contains(&name.as_str()) && !value.is_empty());
        let rows = self.parts.entry(labels).or_default();
        for (time, value) in samples {
            let (Some(time), Some(value)) = (whole(*time), whole(*value)) else {
                self.faults.numbers += 1;
                continue;
            };
            // Engines differ in whether the ends of a range belong to it, so a millisecond more is no fault.
            if time < self.from_ms || time >= self.to_ms {
                self.faults.times += u64::from(time + 1 < self.from_ms || time > self.to_ms);
                continue;
            }
            let within = time % self.table.period_ms();
            if within >= SLOTS_MS && !matches!(role, Role::Entry(_)) {
                self.faults.times += 1;
                continue;
            }
            let part = rows.entry((time - within, within % SLOTS_MS)).or_default();
            let same = match role {
                Role::Number(at) => part.numbers.insert(at, value).is_none_or(|old| old == value),
                Role::Count(at, scheme) => {
                    part.counts.insert(at, (scheme, value)).is_none_or(|old| old == (scheme, value))
                }
                Role::Entry(at) => {
                    part.entries.entry(at).or_default().insert(time, value).is_none_or(|old| old == value)
                }
            };
            part.contradicted |= !same;
        }
    }

    fn role(&self, name: &str, scheme: Option<&str>) -> Option<Role> {
        let part = name.strip_prefix(PREFIX)?.strip_prefix(self.table.name())?.strip_prefix('_')?;
        let at = |names: &[&str], part: &str| names.iter().position(|n| *n == part);
        if let Some(at) = at(self.table.numbers(), part) {
            return scheme.is_none().then_some(Role::Number(at));
        }
        let scheme = Scheme::from_id(scheme?.parse().ok()?)?;
        match part.strip_suffix("_entries") {
            Some(part) => Some(Role::Count(at(self.table.histograms(), part)?, scheme)),
            None => Some(Role::Entry(at(self.table.histograms(), part)?)),
        }
    }

    /// The rows that are whole, by series and time, and what was not fit to be one.
    pub(super) fn rows(self) -> (Vec<EngineRow>, Faults) {
        let Self { table, parts, mut faults, .. } = self;
        let mut rows = Vec::new();
        for (labels, parts) in parts {
            for ((begin_ms, _), part) in parts {
                if part.contradicted {
                    faults.contradictions += 1;
                } else if let Some(row) = row(table, &labels, begin_ms, &part) {
                    rows.push(row);
                } else {
                    faults.incomplete += 1;
                }
            }
        }
        (rows, faults)
    }
}

/// A row of its parts; nothing where a histogram's entries are not as many as they should be. Whether a number is
/// missing is for `rows.rs` to say, which knows what they mean.
fn row(table: RowKind, labels: &Labels, begin_ms: u64, part: &PartialRow) -> Option<EngineRow> {
    let numbers = (0..table.numbers().len()).map(|at| part.numbers.get(&at).copied()).collect();
    let mut histograms = Vec::new();
    for at in 0..table.histograms().len() {
        let entries: Vec<u64> = part.entries.get(&at).into_iter().flat_map(|e| e.values().copied()).collect();
        histograms.push(match part.counts.get(&at) {
            Some((scheme, count)) if *count == entries.len() as u64 => Some(histogram(*scheme, &entries)?),
            None if entries.is_empty() => None,
            _ => return None,
        });
    }
    Some(EngineRow { table, labels: labels.clone(), begin_ms, numbers, histograms })
}

/// A double that is a whole number from 0 to 2^53.
fn whole(value: f64) -> Option<u64> {
    // The comparison is false for NaN; the cast is exact where it is true.
    (value >= 0.0 && value <= LARGEST as f64 && value.fract() == 0.0).then_some(f64_to_u64(value))
}
