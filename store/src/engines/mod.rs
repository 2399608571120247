//! Engines outside that keep the history as well: they take the same data out as it is sealed (minutes of containers,
//! hours and days of histograms, kills and evictions) and give it back at start.
//!
//! Owned here: what leaves and how it comes back without loss ([`Prometheus`], [`Influx`]), what failures mean and what
//! is done about them, the queue in front of each engine ([`worker`]). Not owned: what the values mean and when they are
//! sealed (`history`).
//!
//! A value that is written again replaces itself; what arrives late lies beside what was there. VictoriaMetrics drops what
//! is older than its retention without a word. Where an engine thins out what it keeps (downsampling, deduplication over
//! more than a second), what comes back is incomplete, counted, and not used.
//!
//! None of them blocks ingest: values wait in a queue with a bound, the oldest are dropped and counted when it is full.
//!
//! # What an acknowledgement is worth
//!
//! Killed (SIGKILL) right after it acknowledged a write, and started again, Prometheus 2.42 and InfluxDB 1.6 still have
//! the write: both put it into a log before they answer. VictoriaMetrics 1.79 has lost it: it keeps what arrives in
//! memory for about a second before it writes it to disk, by design. The embedded store is the one that loses nothing
//! acknowledged, so it stays the first; an engine adds to it.

mod backoff;
mod counters;
mod failure;
mod gate;
mod http;
mod influx;
mod open;
mod prometheus;
mod reading;
mod row;
mod rows;
#[cfg(test)]
mod samples;
pub mod worker;

pub use counters::EngineCounters;
pub use http::{Address, AddressError, Login, Secret};
pub use influx::Influx;
pub use open::{OpenError, open};
pub use prometheus::Prometheus;
