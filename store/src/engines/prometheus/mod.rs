//! Owns the engine "Prometheus-compatible": remote write in, query API out. Needs nothing that only one product has:
//! Prometheus, VictoriaMetrics, Mimir and Thanos differ in their addresses, which are configured.
//!
//! Prometheus takes samples by remote write only with `--web.enable-remote-write-receiver`, and samples older than an
//! hour or out of order only within `storage.tsdb.out_of_order_time_window` (set it to 31d to fill it with history that
//! is there). What it refuses as too old, out of order or a duplicate is refused for good: it is found by cutting the
//! request in two, counted, and left out; the rest is written.

pub(crate) mod answer;
mod assembly;
mod pack;
#[cfg(test)]
mod tests;
mod wire;

use std::sync::Arc;

use super::counters::{EngineCounters, add};
use super::failure::EngineFailure;
use super::gate::RetryGate;
use super::http::{Address, AddressError, Client};
use super::reading::{Reading, Window};
use super::row::{EngineRow, PREFIX, RowKind};
use super::rows;
use crate::history::exchange::{Batch, Coverage, Engine, EngineError};
use assembly::Assembly;

/// Samples of one request: some hundred KiB once compressed.
const SAMPLES: usize = 20_000;
/// Requests that may be refused while one is cut in two to find what is wrong with it; beyond, the rest is left out.
const REFUSALS: u32 = 100;
/// What engines say of samples that can never be taken, whatever status they say it with (Prometheus 2.42 answers
/// "too old sample" with 500).
const NEVER: [&str; 4] = ["out of bounds", "too old sample", "out of order sample", "duplicate sample"];

/// A Prometheus-compatible engine.
#[derive(Debug)]
pub struct Prometheus {
    name: String,
    write: Client,
    query: Client,
    gate: RetryGate,
    reading: Reading,
    counters: Arc<EngineCounters>,
}

/// What became of a request that was cut in two.
#[derive(Debug, Default)]
struct WriteTally {
    /// Refused requests so far.
    requests: u32,
    /// Rows refused for good.
    rows: u64,
    /// What was said of one of them.
    said: String,
}

impl WriteTally {
    fn refuse(&mut self, rows: usize, failure: &EngineFailure) {
        self.rows += rows as u64;
        self.said = failure.to_string();
    }
}

impl Prometheus {
    /// An engine that is queried at `address` and written to at the same, or at another whole URL. Of what is older than
    /// `recent` minutes only days are read back.
    ///
    /// # Errors
    /// When an address cannot be used.
    pub fn new(
        address: &Address,
        write_url: Option<&str>,
        recent: u32,
        counters: Arc<EngineCounters>,
    ) -> Result<Self, AddressError> {
        let write_at = match write_url {
            Some(url) => url.to_owned(),
            None => format!("{}/api/v1/write", address.url.trim_end_matches('/')),
        };
        Ok(Self {
            name: format!("prometheus at {}", address.url),
            write: Client::new(&Address { url: write_at, ..address.clone() })?,
            query: Client::new(address)?,
            gate: RetryGate::default(),
            reading: Reading::new(recent),
            counters,
        })
    }

    fn write_rows(&mut self, rows: &[&EngineRow]) -> Result<WriteTally, EngineFailure> {
        let mut tally = WriteTally::default();
        let mut from = 0;
        while from < rows.len() {
            let mut samples = 0;
            let fitting = rows[from..].iter().take_while(|row| {
                samples += pack::samples_of(row);
                samples <= SAMPLES
            });
            let to = from + fitting.count().max(1);
            self.send(&rows[from..to], &mut tally)?;
            from = to;
        }
        Ok(tally)
    }

    /// Writes rows; cuts them in two where they are refused. True when some were too old.
    fn send(&self, rows: &[&EngineRow], tally: &mut WriteTally) -> Result<bool, EngineFailure> {
        let body =
            wire::body(&pack::request(rows)).ok_or(EngineFailure::TooLarge { what: "over 4 GiB".into() });
        let sent = body.and_then(|body| self.write.post("", &[], &wire::HEADERS, &body)).map_err(never);
        let failure = match sent {
            Ok(()) => return Ok(false),
            Err(failure @ (EngineFailure::TooLarge { .. } | EngineFailure::Refused { .. })) => failure,
            Err(failure) => return Err(failure),
        };
        self.counters.failed(&failure);
        tally.requests += 1;
        let text = failure.to_string();
        let old = text.contains(NEVER[0]) || text.contains(NEVER[1]);
        if rows.len() == 1 || tally.requests > REFUSALS {
            tally.refuse(rows.len(), &failure);
            return Ok(old);
        }
        let (earlier, later) = rows.split_at(rows.len() / 2);
        if !old {
            return Ok(self.send(earlier, tally)? | self.send(later, tally)?);
        }
        // What is older than something too old is too old as well, and need not be asked about.
        if self.send(later, tally)? {
            tally.refuse(earlier.len(), &failure);
            return Ok(true);
        }
        self.send(earlier, tally)
    }

    fn window(&self, table: RowKind, from_ms: u64, to_ms: u64) -> Window {
        let mut assembly = Assembly::new(table, from_ms, to_ms);
        // An instant query of a range gives the samples themselves. The range ends a millisecond before the window's
        // end and begins, where the engine leaves the begin out, a millisecond before its begin.
        let query = format!("{{__name__=~\"{PREFIX}{}_.+\"}}[{}ms]", table.name(), to_ms - from_ms);
        let time = format!("{}.{:03}", (to_ms - 1) / 1000, (to_ms - 1) % 1000);
        let answer = self.query.ask("/api/v1/query", &[("query", &query), ("time", &time)])?;
        answer::read(answer, &mut |(labels, samples)| assembly.take(labels, &samples))?;
        Ok(assembly.rows())
    }
}

/// A refusal for good that came with a status which says otherwise.
fn never(failure: EngineFailure) -> EngineFailure {
    match failure {
        EngineFailure::Down { what } if NEVER.iter().any(|text| what.contains(text)) => {
            EngineFailure::Refused { what }
        }
        other => other,
    }
}

impl Engine for Prometheus {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.gate.open().map_err(|failure| failure.of(&self.name))?;
        let rows = rows::rows(batch);
        let fitting: Vec<&EngineRow> = rows.iter().filter(|row| row.fits(pack::LARGEST)).collect();
        let unfit = (rows.len() - fitting.len()) as u64;
        let tally = self.write_rows(&fitting).map_err(|failure| {
            self.counters.failed(&failure);
            self.gate.heed(&failure);
            failure.of(&self.name)
        })?;
        let refused = unfit + tally.rows;
        add(&self.counters.written, rows.len() as u64 - refused);
        add(&self.counters.refused, refused);
        if refused == 0 {
            return Ok(());
        }
        let why = if tally.rows > 0 { tally.said } else { "a number is over 2^53".into() };
        Err(EngineError::Refused {
            engine: self.name.clone(),
            what: format!("{refused} of {} values; {why}", rows.len()),
            remedy:
                "for old ones set storage.tsdb.out_of_order_time_window (Prometheus); the rest was written"
                    .into(),
        })
    }

    fn read(&mut self, from: u32, to: u32, sink: &mut dyn FnMut(Batch)) -> Result<Coverage, EngineError> {
        self.gate.open().map_err(|failure| failure.of(&self.name))?;
        let mut reading = std::mem::replace(&mut self.reading, Reading::new(0));
        let done = reading.run((from, to), &mut |table, from, to| self.window(table, from, to), sink);
        self.reading = reading;
        let coverage = done.map_err(|failure| {
            self.counters.failed(&failure);
            self.gate.heed(&failure);
            failure.of(&self.name)
        })?;
        add(&self.counters.read, coverage.values());
        add(&self.counters.misread, coverage.refused);
        Ok(coverage)
    }
}
