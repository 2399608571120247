//! Owns what the ingest threads tell about themselves: counters and the present trouble, read by metrics and `/readyz`.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::record::Key;
use crate::engines::Counters;

/// Counters and trouble; one instance per process, written by the ingest threads.
#[derive(Debug)]
pub struct Health {
    started: Instant,
    /// When the ingest thread last showed that it is not stuck, milliseconds after `started`.
    beat: AtomicU64,
    /// Connections open.
    pub connections: AtomicU64,
    /// Connections ended because a newer one took their stream.
    pub superseded: AtomicU64,
    /// Frames acknowledged without being counted again.
    pub duplicates: AtomicU64,
    /// Frames refused.
    pub refused: AtomicU64,
    /// Connections ended because the client did not keep to the protocol.
    pub violations: AtomicU64,
    /// Bytes of samples received.
    pub sample_bytes: AtomicU64,
    /// Syncs done.
    pub syncs: AtomicU64,
    /// Microseconds they took together.
    pub sync_usec: AtomicU64,
    /// Longest of them, microseconds.
    pub sync_max_usec: AtomicU64,
    /// Bytes of the log.
    pub log_bytes: AtomicU64,
    /// Appends and flushes that failed.
    pub log_failures: AtomicU64,
    /// Checkpoints written.
    pub checkpoints: AtomicU64,
    /// Size of the last one, bytes.
    pub checkpoint_bytes: AtomicU64,
    /// Time the last one took, microseconds.
    pub checkpoint_usec: AtomicU64,
    connected: Mutex<HashSet<Key>>,
    log_trouble: Mutex<Option<String>>,
    checkpoint_trouble: Mutex<Option<String>>,
    /// Of the engines outside.
    engines: Mutex<Vec<Arc<Counters>>>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            beat: AtomicU64::default(),
            connections: AtomicU64::default(),
            superseded: AtomicU64::default(),
            duplicates: AtomicU64::default(),
            refused: AtomicU64::default(),
            violations: AtomicU64::default(),
            sample_bytes: AtomicU64::default(),
            syncs: AtomicU64::default(),
            sync_usec: AtomicU64::default(),
            sync_max_usec: AtomicU64::default(),
            log_bytes: AtomicU64::default(),
            log_failures: AtomicU64::default(),
            checkpoints: AtomicU64::default(),
            checkpoint_bytes: AtomicU64::default(),
            checkpoint_usec: AtomicU64::default(),
            connected: Mutex::default(),
            log_trouble: Mutex::default(),
            checkpoint_trouble: Mutex::default(),
            engines: Mutex::default(),
        }
    }
}

/// Adds to a counter.
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Reads a counter.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Health {
    /// The ingest thread is not stuck.
    pub(crate) fn beat(&self) {
        let since = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.beat.store(since, Ordering::Relaxed);
    }

    /// Whether the ingest thread has shown itself within this time. The other threads are not asked: what makes them slow
    /// is the disk, and starting anew does not make it faster.
    pub fn is_alive(&self, within: Duration) -> bool {
        let beat = Duration::from_millis(read(&self.beat));
        self.started.elapsed().saturating_sub(beat) < within
    }

    /// Whether a connection for this stream is open.
    pub fn is_connected(&self, key: &Key) -> bool {
        self.connected.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    pub(crate) fn set_connected(&self, key: &Key, open: bool) {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if open {
            connected.insert(key.clone());
        } else {
            connected.remove(key);
        }
    }

    pub(crate) fn set_engines(&self, counters: &[Arc<Counters>]) {
        *self.engines.lock().unwrap_or_else(PoisonError::into_inner) = counters.to_vec();
    }

    /// A count of all engines outside together.
    pub(crate) fn of_engines(&self, count: fn(&Counters) -> &AtomicU64) -> u64 {
        let engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        engines.iter().map(|counters| read(count(counters))).sum()
    }

    /// Why nothing is being acknowledged, if so.
    pub fn log_trouble(&self) -> Option<String> {
        self.log_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the last checkpoint was not written, if so.
    pub fn checkpoint_trouble(&self) -> Option<String> {
        self.checkpoint_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Sets or ends the log's trouble; true when that is a change worth a log line.
    pub(crate) fn set_log_trouble(&self, trouble: Option<String>) -> bool {
        changed(&self.log_trouble, trouble)
    }

    /// Likewise for checkpoints.
    pub(crate) fn set_checkpoint_trouble(&self, trouble: Option<String>) -> bool {
        changed(&self.checkpoint_trouble, trouble)
    }
}

fn changed(place: &Mutex<Option<String>>, to: Option<String>) -> bool {
    let mut place = place.lock().unwrap_or_else(PoisonError::into_inner);
    let news = place.is_some() != to.is_some();
    *place = to;
    news
}
