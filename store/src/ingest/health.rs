//! Owns what the ingest threads tell about themselves: counters and the present trouble, read by metrics and `/readyz`.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use super::contest::Contests;
use crate::engines::EngineCounters;
use crate::key::{NodeKey, StreamKey};
use crate::state::clock::Doubt;

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
    /// Connections refused because an older one of the same node lives.
    pub rivals_refused: AtomicU64,
    /// Times a connection was not read for the rest of a minute.
    pub held: AtomicU64,
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
    /// Bytes of it that are not counted yet.
    pub uncounted_bytes: AtomicU64,
    /// Appends and flushes that failed.
    pub log_failures: AtomicU64,
    /// Checkpoints written.
    pub checkpoints: AtomicU64,
    /// Size of the last one, bytes.
    pub checkpoint_bytes: AtomicU64,
    /// Time the last one took, microseconds.
    pub checkpoint_usec: AtomicU64,
    connected: Mutex<HashMap<NodeKey, HashSet<u64>>>,
    /// When the last connection of a node ended.
    left: Mutex<HashMap<NodeKey, Instant>>,
    /// Nodes for which two connections spoke lately.
    contests: Mutex<Contests>,
    clock_doubt: Mutex<Option<Doubt>>,
    clock_correction: AtomicI64,
    log_trouble: Mutex<Option<String>>,
    checkpoint_trouble: Mutex<Option<String>>,
    room_trouble: Mutex<Option<String>>,
    /// Of the engines outside.
    engines: Mutex<Vec<Arc<EngineCounters>>>,
}

impl Default for Health {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            beat: AtomicU64::default(),
            connections: AtomicU64::default(),
            superseded: AtomicU64::default(),
            rivals_refused: AtomicU64::default(),
            held: AtomicU64::default(),
            duplicates: AtomicU64::default(),
            refused: AtomicU64::default(),
            violations: AtomicU64::default(),
            sample_bytes: AtomicU64::default(),
            syncs: AtomicU64::default(),
            sync_usec: AtomicU64::default(),
            sync_max_usec: AtomicU64::default(),
            log_bytes: AtomicU64::default(),
            uncounted_bytes: AtomicU64::default(),
            log_failures: AtomicU64::default(),
            checkpoints: AtomicU64::default(),
            checkpoint_bytes: AtomicU64::default(),
            checkpoint_usec: AtomicU64::default(),
            connected: Mutex::default(),
            left: Mutex::default(),
            contests: Mutex::default(),
            clock_doubt: Mutex::default(),
            clock_correction: AtomicI64::default(),
            log_trouble: Mutex::default(),
            checkpoint_trouble: Mutex::default(),
            room_trouble: Mutex::default(),
            engines: Mutex::default(),
        }
    }
}

/// Adds to a counter.
pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// Reads a counter.
pub fn read(counter: &AtomicU64) -> u64 {
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
    pub fn is_connected(&self, key: &StreamKey) -> bool {
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        connected.get(&NodeKey::of(key)).is_some_and(|epochs| epochs.contains(&key.epoch))
    }

    /// Whether a connection of a node is open, of whatever epoch: an agent first delivers what an earlier run left.
    pub fn is_node_connected(&self, node: &NodeKey) -> bool {
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        connected.get(node).is_some_and(|epochs| !epochs.is_empty())
    }

    /// For how long a node has not been connected: since its last connection, or since the start; nothing while it is.
    pub fn away(&self, node: &NodeKey) -> Option<Duration> {
        if self.is_node_connected(node) {
            return None;
        }
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner).get(node).copied();
        Some(left.unwrap_or(self.started).elapsed())
    }

    /// Time since the process began to take frames.
    pub fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub(crate) fn set_clock(&self, doubt: Option<Doubt>, correction_usec: i64) {
        *self.clock_doubt.lock().unwrap_or_else(PoisonError::into_inner) = doubt;
        self.clock_correction.store(correction_usec, Ordering::Relaxed);
    }

    /// What to add to the machine's clock, microseconds.
    pub fn clock_correction(&self) -> i64 {
        self.clock_correction.load(Ordering::Relaxed)
    }

    /// How nodes contradict the clock of this machine, if they do.
    pub fn clock_doubt(&self) -> Option<Doubt> {
        *self.clock_doubt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for people, with the remedy.
    pub fn clock_trouble(&self) -> Option<String> {
        self.clock_doubt().map(|doubt| {
            let minutes = doubt.ahead_usec.unsigned_abs() / 60_000_000;
            let (days, hours, minutes) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
            let side = if doubt.ahead_usec < 0 { "behind" } else { "ahead of" };
            format!(
                "the clock of this machine is {days}d {hours}h {minutes}m {side} {} of {} nodes heard last; no history \
                 expires; set the clock (timedatectl), or that of the nodes",
                doubt.against, doubt.of
            )
        })
    }

    pub(crate) fn set_connected(&self, key: &StreamKey, open: bool) {
        let mut connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        if open {
            connected.entry(NodeKey::of(key)).or_default().insert(key.epoch);
        } else if let Some(epochs) = connected.get_mut(&NodeKey::of(key)) {
            epochs.remove(&key.epoch);
            if epochs.is_empty() {
                connected.remove(&NodeKey::of(key));
                let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
                left.insert(NodeKey::of(key), Instant::now());
            }
        }
    }

    /// Two connections want to speak for a node; people are told when that happens again and again.
    pub(crate) fn contested(&self, node: &NodeKey) {
        let mut contests = self.contests.lock().unwrap_or_else(PoisonError::into_inner);
        if contests.add(node, Instant::now()) {
            warn!(
                cluster = node.cluster,
                node = node.node,
                "two agents speak for this node in turns; stop one, or give each its own node.name"
            );
        }
    }

    /// Nodes for which two agents speak in turns now.
    pub fn contests(&self) -> Vec<NodeKey> {
        self.contests.lock().unwrap_or_else(PoisonError::into_inner).now(Instant::now())
    }

    /// The same for people, with the remedy.
    pub fn contest_trouble(&self) -> Option<String> {
        let nodes = self.contests();
        let names: Vec<String> = nodes.iter().take(3).map(|n| format!("{}/{}", n.cluster, n.node)).collect();
        (!nodes.is_empty()).then(|| {
            format!(
                "two agents speak in turns for {} nodes ({}); stop one of each, or give each its own node.name",
                nodes.len(),
                names.join(", ")
            )
        })
    }

    /// Engines outside, by what is counted of each.
    pub fn set_engines(&self, counters: &[Arc<EngineCounters>]) {
        *self.engines.lock().unwrap_or_else(PoisonError::into_inner) = counters.to_vec();
    }

    /// A count of all engines outside together.
    pub fn of_engines(&self, count: fn(&EngineCounters) -> &AtomicU64) -> u64 {
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

    /// Why there is no room on the disk for the next checkpoint, if so.
    pub fn room_trouble(&self) -> Option<String> {
        self.room_trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set_room_trouble(&self, trouble: Option<String>) -> bool {
        changed(&self.room_trouble, trouble)
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
