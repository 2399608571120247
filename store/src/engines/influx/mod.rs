//! Owns the engine "InfluxDB": line protocol in, InfluxQL out, as InfluxDB 1.x has both.
//!
//! The database is made when the engine says that it is missing. What its retention policy calls too old is dropped by
//! the engine, which says how much; it is counted and not tried again. A field type that differs from what is there is
//! such a refusal too.

mod answer;
mod line;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::counters::{EngineCounters, add};
use super::failure::EngineFailure;
use super::gate::RetryGate;
use super::http::{Address, AddressError, Client};
use super::reading::{Reading, Window};
use super::row::{EngineRow, PREFIX, RowKind};
use super::rows;
use crate::history::exchange::{Batch, Coverage, Engine, EngineError};

/// Bytes of one request; the engine's documentation advises 5,000 to 10,000 points, its own bound is 25 MB.
const BYTES: usize = 2 << 20;
/// Requests that may be refused while one is cut in two to find what is wrong with it; beyond, the rest is left out.
const REFUSALS: u32 = 100;
/// Rows of one chunk of an answer.
const CHUNK: &str = "5000";

/// InfluxDB.
#[derive(Debug)]
pub struct Influx {
    name: String,
    client: Client,
    database: String,
    retention_policy: Option<String>,
    gate: RetryGate,
    reading: Reading,
    counters: Arc<EngineCounters>,
}

/// What became of rows that were sent.
#[derive(Debug, Default)]
struct WriteTally {
    requests: u32,
    rows: u64,
    said: String,
}

impl Influx {
    /// An engine at an address, with the names of database and retention policy (the database's default without). Of what
    /// is older than `recent` minutes only days are read back.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn new(
        address: &Address,
        database: &str,
        retention_policy: Option<&str>,
        recent: u32,
        counters: Arc<EngineCounters>,
    ) -> Result<Self, AddressError> {
        Ok(Self {
            name: format!("influxdb at {}, database {database}", address.url),
            client: Client::new(address)?,
            database: database.to_owned(),
            retention_policy: retention_policy.map(str::to_owned),
            gate: RetryGate::default(),
            reading: Reading::new(recent),
            counters,
        })
    }

    fn post(&self, body: &str) -> Result<(), EngineFailure> {
        let mut query = vec![("db", self.database.as_str()), ("precision", "ms")];
        query.extend(self.retention_policy.as_deref().map(|policy| ("rp", policy)));
        let send = || self.client.post("/write", &query, &[], body.as_bytes());
        match send() {
            Err(EngineFailure::Misdirected { what }) if what.contains("database not found") => {
                let make = format!("CREATE DATABASE {}", quoted(&self.database));
                answer::done(self.client.ask("/query", &[("q", &make)])?)?;
                send()
            }
            done => done,
        }
    }

    fn write_rows(&self, rows: &[&EngineRow]) -> Result<WriteTally, EngineFailure> {
        let mut tally = WriteTally::default();
        let lines: Vec<String> = rows
            .iter()
            .map(|row| {
                let mut text = String::new();
                line::write(row, &mut text);
                text
            })
            .collect();
        let mut from = 0;
        while from < lines.len() {
            let mut bytes = 0;
            let fitting = lines[from..].iter().take_while(|line| {
                bytes += line.len();
                bytes <= BYTES
            });
            let to = from + fitting.count().max(1);
            self.send(&lines[from..to], &mut tally)?;
            from = to;
        }
        Ok(tally)
    }

    /// Writes lines; cuts them in two where they are refused as a whole.
    fn send(&self, lines: &[String], tally: &mut WriteTally) -> Result<(), EngineFailure> {
        let failure = match self.post(&lines.concat()) {
            Ok(()) => return Ok(()),
            Err(failure @ (EngineFailure::TooLarge { .. } | EngineFailure::Refused { .. })) => failure,
            Err(failure) => return Err(failure),
        };
        self.counters.failed(&failure);
        tally.requests += 1;
        let text = failure.to_string();
        // All but the dropped points are written.
        let dropped = text.split_once("partial write").and_then(|(_, rest)| number_after(rest, "dropped="));
        let refused = match dropped {
            Some(dropped) => dropped.min(lines.len() as u64),
            None if lines.len() == 1 || tally.requests > REFUSALS => lines.len() as u64,
            None => {
                let (earlier, later) = lines.split_at(lines.len() / 2);
                self.send(earlier, tally)?;
                return self.send(later, tally);
            }
        };
        tally.rows += refused;
        tally.said = text;
        Ok(())
    }

    fn window(&self, table: RowKind, from_ms: u64, to_ms: u64) -> Window {
        let measurement = quoted(&format!("{PREFIX}{}", table.name()));
        let policy = self.retention_policy.as_deref().map(|p| format!("{}.", quoted(p))).unwrap_or_default();
        let query = format!(
            "SELECT * FROM {policy}{measurement} WHERE time >= {from_ms}ms AND time < {to_ms}ms GROUP BY *"
        );
        let form = [
            ("db", self.database.as_str()),
            ("q", &query),
            ("epoch", "ms"),
            ("chunked", "true"),
            ("chunk_size", CHUNK),
        ];
        match answer::rows(self.client.ask("/query", &form)?, table, from_ms, to_ms) {
            // Nothing was ever written.
            Err(EngineFailure::Refused { what }) if what.contains("database not found") => {
                Ok(Default::default())
            }
            window => window,
        }
    }
}

/// A name in InfluxQL.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

fn number_after(text: &str, mark: &str) -> Option<u64> {
    let (_, rest) = text.split_once(mark)?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

impl Engine for Influx {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn write(&mut self, batch: &Batch) -> Result<(), EngineError> {
        self.gate.open().map_err(|failure| failure.of(&self.name))?;
        let rows = rows::rows(batch);
        let fitting: Vec<&EngineRow> = rows.iter().filter(|row| row.fits(line::LARGEST)).collect();
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
        let why = if tally.rows > 0 { tally.said } else { "a number is over 2^63 - 1".into() };
        Err(EngineError::Refused {
            engine: self.name.clone(),
            what: format!("{refused} of {} values; {why}", rows.len()),
            remedy: "for old ones lengthen the retention policy; the rest was written".into(),
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
