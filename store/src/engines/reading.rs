//! Owns the way back: table by table, in windows that shrink when the engine finds them too much and grow when there is
//! little in them. Remembers how far it came, so that a question that failed goes on where it broke off.

use std::collections::BTreeSet;

use super::failure::EngineFailure;
use super::row::{EngineRow, Faults, RowKind};
use super::rows;
use crate::history::exchange::{Batch, Coverage};

/// Milliseconds of a minute.
const MINUTE_MS: u64 = 60_000;
/// Minutes back within which a day may go on: a day, and as long again until it is sealed after a restart.
const PART_MINUTES: u32 = 2 * 24 * 60;
/// A window with fewer rows than this is followed by one of twice its length.
const FEW: usize = 5_000;
/// A window with more rows than this is followed by one of half its length.
const MANY: usize = 40_000;
/// Windows of least length that may be left out one after another before the engine is said to refuse everything.
const SKIPPED_IN_A_ROW: u32 = 3;

/// Rows of one window.
pub(super) type Window = Result<(Vec<EngineRow>, Faults), EngineFailure>;

/// How far a reading has come.
#[derive(Debug)]
pub(super) struct Reading {
    /// Minutes back from the end of what is asked for within which there is more to be had than days: nobody keeps
    /// older minutes and hours here.
    recent: u32,
    cursor: Option<Cursor>,
}

#[derive(Debug)]
struct Cursor {
    /// What was asked, minutes.
    asked: (u32, u32),
    /// Where tables other than days begin.
    recent_from: u32,
    /// Position in [`RowKind::ALL`].
    table: usize,
    at_ms: u64,
    length_ms: u64,
    skipped: u32,
    coverage: Coverage,
    /// Hours since 1970 of which there is a minute or an hour.
    hours: BTreeSet<u64>,
}

impl Cursor {
    fn new(asked: (u32, u32), recent: u32) -> Self {
        let mut cursor = Self {
            asked,
            recent_from: asked.1.saturating_sub(recent).max(asked.0),
            table: 0,
            at_ms: 0,
            length_ms: 0,
            skipped: 0,
            coverage: Coverage::default(),
            hours: BTreeSet::new(),
        };
        cursor.begin();
        cursor
    }

    /// Begins with a table. Periods that began before the time that was asked for are not read: a part of an hour can
    /// not be told from the hour.
    fn begin(&mut self) {
        let Some(table) = RowKind::ALL.get(self.table) else { return };
        let from = match table {
            RowKind::CpuDay | RowKind::MemoryDay => self.asked.0,
            // Those of days that ended are in the days.
            RowKind::CpuPart | RowKind::MemoryPart => {
                self.recent_from.max(self.asked.1.saturating_sub(PART_MINUTES))
            }
            _ => self.recent_from,
        };
        self.at_ms = (u64::from(from) * MINUTE_MS).next_multiple_of(table.period_ms());
        self.length_ms = first_length_ms(*table);
        self.skipped = 0;
    }
}

/// Length of the first window: short enough for some thousand workloads.
const fn first_length_ms(table: RowKind) -> u64 {
    match table {
        RowKind::Minute => 10 * MINUTE_MS,
        RowKind::CpuHour | RowKind::MemoryHour => 12 * 60 * MINUTE_MS,
        RowKind::CpuPart | RowKind::MemoryPart => 2 * 60 * MINUTE_MS,
        RowKind::CpuDay | RowKind::MemoryDay | RowKind::Event => 7 * 24 * 60 * MINUTE_MS,
    }
}

/// Length of the shortest window; a longer one is a multiple of it.
const fn least_length_ms(table: RowKind) -> u64 {
    if table.period_ms() < MINUTE_MS { MINUTE_MS } else { table.period_ms() }
}

impl Reading {
    /// One that has not begun.
    pub(super) const fn new(recent: u32) -> Self {
        Self { recent, cursor: None }
    }

    /// Reads everything from one minute to before another and hands it to `sink`, one batch a window. After a failure
    /// the same call goes on where it failed.
    ///
    /// # Errors
    /// The failure of a window that could not be helped by a smaller one.
    pub(super) fn run(
        &mut self,
        asked: (u32, u32),
        window: &mut dyn FnMut(RowKind, u64, u64) -> Window,
        sink: &mut dyn FnMut(Batch),
    ) -> Result<Coverage, EngineFailure> {
        let mut cursor = self
            .cursor
            .take()
            .filter(|c| c.asked == asked)
            .unwrap_or_else(|| Cursor::new(asked, self.recent));
        let end_ms = u64::from(asked.1) * MINUTE_MS;
        while let Some(table) = RowKind::ALL.get(cursor.table).copied() {
            if cursor.at_ms >= end_ms {
                cursor.table += 1;
                cursor.begin();
                continue;
            }
            let to_ms = (cursor.at_ms + cursor.length_ms).min(end_ms.next_multiple_of(table.period_ms()));
            match window(table, cursor.at_ms, to_ms) {
                Ok((rows, faults)) => {
                    cursor.take(&rows, &faults, end_ms, sink);
                    cursor.next(table, to_ms, rows.len());
                }
                Err(failure) => {
                    if let Err(failure) = cursor.less(table, to_ms, failure) {
                        self.cursor = Some(cursor);
                        return Err(failure);
                    }
                }
            }
        }
        Ok(cursor.covered())
    }
}

impl Cursor {
    fn next(&mut self, table: RowKind, to_ms: u64, rows: usize) {
        self.at_ms = to_ms;
        self.skipped = 0;
        if rows < FEW {
            self.length_ms *= 2;
        } else if rows > MANY {
            self.halve(table);
        }
    }

    fn halve(&mut self, table: RowKind) {
        let least = least_length_ms(table);
        self.length_ms = (self.length_ms / 2 / least * least).max(least);
    }

    /// Asks for less, or leaves a window out that cannot be made smaller and would be refused again.
    fn less(&mut self, table: RowKind, to_ms: u64, failure: EngineFailure) -> Result<(), EngineFailure> {
        if !failure.asks_for_less() {
            return Err(failure);
        }
        if self.length_ms > least_length_ms(table) {
            self.halve(table);
            return Ok(());
        }
        self.skipped += 1;
        if matches!(failure, EngineFailure::Slow { .. }) || self.skipped >= SKIPPED_IN_A_ROW {
            return Err(failure);
        }
        tracing::warn!(table = table.name(), from_ms = self.at_ms, to_ms, %failure, "a window of history is left out");
        self.coverage.refused += 1;
        self.at_ms = to_ms;
        Ok(())
    }
}

impl Cursor {
    fn take(&mut self, rows: &[EngineRow], faults: &Faults, end_ms: u64, sink: &mut dyn FnMut(Batch)) {
        let mut batch = Batch::default();
        self.coverage.refused += faults.total();
        for row in rows.iter().filter(|row| row.begin_ms < end_ms) {
            if rows::take(row, &mut batch) {
                self.cover(row, end_ms);
            } else {
                self.coverage.refused += 1;
            }
        }
        self.coverage.minutes += batch.minutes.len() as u64;
        self.coverage.hours += batch.hours.len() as u64;
        self.coverage.days += batch.days.len() as u64;
        self.coverage.parts += batch.parts.len() as u64;
        self.coverage.events += batch.events.len() as u64;
        if !batch.is_empty() {
            sink(batch);
        }
    }

    fn cover(&mut self, row: &EngineRow, end_ms: u64) {
        let minute = |ms: u64| u32::try_from(ms / MINUTE_MS).unwrap_or(u32::MAX);
        let last_ms = row.begin_ms + row.table.period_ms().max(MINUTE_MS) - MINUTE_MS;
        let (first, last) = (minute(row.begin_ms), minute(last_ms.min(end_ms.saturating_sub(1))));
        let (from, to) = self.coverage.span.unwrap_or((first, last));
        self.coverage.span = Some((from.min(first), to.max(last)));
        if matches!(row.table, RowKind::Minute | RowKind::CpuHour | RowKind::MemoryHour) {
            self.hours.insert(row.begin_ms / RowKind::CpuHour.period_ms());
        }
    }

    /// The coverage, once everything was read.
    fn covered(self) -> Coverage {
        let span = self.hours.first().zip(self.hours.last()).map_or(0, |(first, last)| last - first + 1);
        let missing = span.saturating_sub(self.hours.len() as u64);
        Coverage { missing_hours: u32::try_from(missing).unwrap_or(u32::MAX), ..self.coverage }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slow() -> EngineFailure {
        EngineFailure::Slow { what: "test".into() }
    }

    /// Every window that was asked for of one table.
    fn asked(
        of: RowKind,
        mut answer: impl FnMut(u64, u64) -> Window,
    ) -> (Vec<(u64, u64)>, Result<Coverage, EngineFailure>) {
        let mut seen = Vec::new();
        let mut window = |table, from, to| {
            if table != of {
                return Ok((Vec::new(), Faults::default()));
            }
            seen.push((from / MINUTE_MS, to / MINUTE_MS));
            answer(from, to)
        };
        let done = Reading::new(u32::MAX).run((7, 3 * 1440 + 5), &mut window, &mut |_| {});
        (seen, done)
    }

    #[test]
    fn windows_tile_the_span_at_whole_periods_and_grow_while_empty() {
        let (seen, done) = asked(RowKind::Minute, |_, _| Ok((Vec::new(), Faults::default())));
        assert_eq!(done.unwrap(), Coverage::default());
        assert_eq!((seen[0], seen[1], seen.last().unwrap().1), ((7, 17), (17, 37), 4325));
        assert!(seen.windows(2).all(|w| w[0].1 == w[1].0) && seen.len() < 12, "{seen:?}");
        let (seen, _) = asked(RowKind::CpuHour, |_, _| Ok((Vec::new(), Faults::default())));
        assert_eq!(
            (seen[0].0, seen.last().unwrap().1),
            (60, 73 * 60),
            "the hour that began before is left out"
        );
    }

    #[test]
    fn only_days_are_asked_for_beyond_what_is_kept() {
        let mut seen = std::collections::BTreeMap::new();
        let mut window = |table, from, _to| {
            seen.entry(table).or_insert(from / MINUTE_MS);
            Ok((Vec::new(), Faults::default()))
        };
        Reading::new(1440).run((0, 3 * 1440), &mut window, &mut |_| {}).unwrap();
        let want = |table| if matches!(table, RowKind::CpuDay | RowKind::MemoryDay) { 0 } else { 2 * 1440 };
        // Parts of days no longer ago than two days, of which one is kept.
        assert!(RowKind::ALL.iter().all(|table| seen[table] == want(*table)), "{seen:?}");
    }

    #[test]
    fn gaps_are_counted() {
        let row = |minute: u64| EngineRow {
            table: RowKind::Minute,
            labels: [("container".to_owned(), "main".to_owned())].into(),
            begin_ms: minute * MINUTE_MS,
            numbers: [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
                .into_iter()
                .enumerate()
                .map(|(i, n)| (i == 0 || i == 1 || i == 5 || i > 8).then_some(n))
                .collect(),
            histograms: Vec::new(),
        };
        let mut window = |table, from: u64, to: u64| {
            let minutes = [65, 70, 130, 610].into_iter().filter(|m| (from..to).contains(&(m * MINUTE_MS)));
            let rows = if table == RowKind::Minute { minutes.map(row).collect() } else { Vec::new() };
            Ok((rows, Faults::default()))
        };
        let done = Reading::new(u32::MAX).run((0, 1440), &mut window, &mut |_| {}).unwrap();
        let want = Coverage { span: Some((65, 610)), minutes: 4, missing_hours: 7, ..Coverage::default() };
        assert_eq!(done, want, "hours 1, 2 and 10 are there");
    }

    #[test]
    fn what_is_too_much_is_asked_in_smaller_parts() {
        let (seen, done) = asked(RowKind::Minute, |from, to| {
            if to - from > 3 * MINUTE_MS { Err(slow()) } else { Ok((Vec::new(), Faults::default())) }
        });
        done.unwrap();
        assert_eq!(&seen[..3], &[(7, 17), (7, 12), (7, 9)]);
        let (seen, done) = asked(RowKind::Minute, |_, _| Err(slow()));
        assert_eq!((done.unwrap_err(), *seen.last().unwrap()), (slow(), (7, 8)));
    }

    #[test]
    fn one_window_that_is_refused_is_left_out_and_counted_and_all_refused_is_an_error() {
        let (_, done) = asked(RowKind::Minute, |from, to| {
            let hit = from <= 100 * MINUTE_MS && 100 * MINUTE_MS < to;
            if hit { Err(EngineFailure::TooLong) } else { Ok((Vec::new(), Faults::default())) }
        });
        assert_eq!(done.unwrap().refused, 1);
        let (_, done) = asked(RowKind::Minute, |_, _| Err(EngineFailure::TooLong));
        assert_eq!(done.unwrap_err(), EngineFailure::TooLong);
    }

    #[test]
    fn a_reading_that_failed_goes_on_where_it_failed() {
        let mut reading = Reading::new(u32::MAX);
        let mut seen = Vec::new();
        let mut fail = true;
        for _ in 0..2 {
            let mut window = |table, from: u64, _to| {
                if table == RowKind::Minute && from > 100 * MINUTE_MS && std::mem::take(&mut fail) {
                    return Err(EngineFailure::Down { what: "test".into() });
                }
                seen.push((table, from));
                Ok((Vec::new(), Faults::default()))
            };
            let _first_fails = reading.run((0, 5000), &mut window, &mut |_| {});
        }
        let mut once = seen.clone();
        once.dedup();
        assert_eq!(seen, once, "no window is read twice");
        // All but the two of days that go on, which are asked for from two days ago.
        assert_eq!(seen.iter().filter(|(_, from)| *from == 0).count(), RowKind::ALL.len() - 2);
    }
}
