//! What the agent's own threads share: one tick of the sampler, live use, counters of sampling and reporting.
//!
//! Owned here: shapes, and the bell that async sources wait for. Not owned: what enforcement shares
//! ([`evenkeel_enforce::shared`]).

use std::sync::{Arc, Mutex};
use std::time::Instant;

use evenkeel_enforce::shared::{Bell, TrackChange, Tracked, lock};
use evenkeel_enforce::stats::{Count, Histogram};
use evenkeel_model::node::NodeKey;
use evenkeel_model::sample::Sample;
use evenkeel_model::traffic::Traffic;
use evenkeel_proto::v1;
use tokio::sync::Notify;

use crate::config::{Config, Reload};
use crate::outward::Outward;
use crate::pods::Pods;
use crate::trust::Trusts;

/// Live ticks a slow watcher may lag behind before it is told how many it missed.
pub(crate) const LIVE_TICKS_CAP: usize = 4;

/// What one tick of the sampler yields.
#[derive(Debug, Default)]
pub(crate) struct Tick {
    /// Wall-clock time of the tick, microseconds since 1970.
    pub time_usec: u64,
    /// Samples by slot.
    pub samples: Vec<(u32, Sample)>,
    /// Traffic by slot, of the containers whose turn it was.
    pub traffic: Vec<(u32, Traffic)>,
    /// Changes of the tracked set taken in at this tick; they precede its samples.
    pub changes: Vec<TrackChange>,
    /// How late the tick began after its deadline, microseconds.
    pub lateness_usec: u64,
}

/// Live use of all containers at one tick; built only while somebody watches.
#[derive(Debug)]
pub(crate) struct LiveTick {
    /// Wall-clock time, microseconds since 1970.
    pub time_usec: u64,
    /// One entry per sampled container.
    pub containers: Vec<LiveContainer>,
}

/// Live use of one container.
#[derive(Debug, Clone)]
pub(crate) struct LiveContainer {
    /// Who it is.
    pub tracked: Arc<Tracked>,
    /// Its latest sample.
    pub sample: Sample,
    /// Mean CPU use over the sample's interval, thousandths of a core; `None` for the first sample.
    pub cpu_milli: Option<u64>,
    /// Block I/O and network of its last look; `None` before the second.
    pub traffic: Option<Traffic>,
}

/// Where live ticks are published. Watchers subscribe; a slow one loses the oldest and learns how many.
pub(crate) type LiveBus = tokio::sync::broadcast::Sender<Arc<LiveTick>>;

/// What the sources are given to hear when they should list again.
#[derive(Clone)]
pub(crate) struct Rescan {
    bell: Arc<Bell>,
    notify: Arc<Notify>,
}

impl Default for Rescan {
    fn default() -> Self {
        let notify = Arc::new(Notify::new());
        let rung = Arc::clone(&notify);
        Self { bell: Arc::new(Bell::new(move || rung.notify_waiters())), notify }
    }
}

impl Rescan {
    /// The bell itself, for who rings it.
    pub(crate) fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// Waits for the next ring.
    pub(crate) fn notified(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }

    /// Whether something was asked about a container after `known`.
    pub(crate) fn asked_since(&self, id: &str, known: Instant) -> bool {
        self.bell.asked_since(id, known)
    }
}

/// What every part of the agent is given at start.
pub(crate) struct Context {
    /// Valid configuration, as it was at start.
    pub config: Config,
    /// What enforcement is given: its configuration, counters, stop flag.
    pub enforce: Arc<evenkeel_enforce::shared::Context>,
    /// Puts a configuration that was read anew in force.
    pub reload: Reload,
    /// Cluster and node.
    pub node: NodeKey,
    /// Random per agent start: names this run's stream.
    pub epoch: u64,
    /// Counters of sampling and reporting.
    pub stats: Stats,
    /// Who vouches for this agent, and what goes in the clear.
    pub trust: Trusts,
    /// What the API server says of the node's pods.
    pub pods: Arc<Pods>,
    /// How recommenders are reached.
    pub outward: Outward,
}

/// Counters of sampling and reporting, shown at `/metrics` under `evenkeel_agent_*`. Each is written by one part only.
#[derive(Default)]
pub(crate) struct Stats {
    /// Those of enforcement.
    pub enforce: Arc<evenkeel_enforce::stats::Stats>,

    // Sampler.
    /// Ticks done.
    pub ticks: Count,
    /// Deadlines that passed without a tick.
    pub ticks_missed: Count,
    /// Ticks whose buffer could not be handed over because the report thread was behind.
    pub ticks_dropped: Count,
    /// How late ticks began.
    pub tick_lateness: Histogram,
    /// Containers sampled at the last tick.
    pub sampled_containers: Count,
    /// Samples taken.
    pub samples: Count,
    /// Files that could not be read or understood.
    pub sample_errors: Count,

    // Report.
    /// Frames appended to the spool.
    pub frames_written: Count,
    /// Frames sent to the recommender (again after a reconnect counts again).
    pub frames_sent: Count,
    /// Frames acknowledged as durable.
    pub frames_acknowledged: Count,
    /// Bytes in the spool.
    pub spool_bytes: Count,
    /// Frames folded from seconds into minutes.
    pub frames_folded: Count,
    /// Frames lost because the spool was full or broken.
    pub frames_dropped: Count,
    /// State of the streams, for status.
    pub streams: Streams,
    /// This run's epoch, where it is no longer the one it began with.
    pub epoch: Mutex<Option<u64>>,
    /// Bytes in the ring of seconds to look back at.
    pub ring_bytes: Count,
    /// Seconds that could not be kept there.
    pub ring_seconds_lost: Count,
    /// Why none are kept now; `None` while they are.
    pub ring_failure: Mutex<Option<String>>,

    /// Events that must arrive and were not acknowledged yet.
    pub events_waiting: Count,
    /// Epochs that go on under another name, because the recommender claimed more of them than it was sent.
    pub epochs_renewed: Count,
    /// Events that must arrive and were dropped for want of room.
    pub events_dropped: Count,
}

/// What status says about each stream, in the order in which the recommenders are configured.
#[derive(Debug, Default)]
pub(crate) struct Streams(Mutex<Vec<StreamState>>);

impl Streams {
    /// Changes or reads the state of one.
    pub(crate) fn with<T>(&self, at: usize, work: impl FnOnce(&mut StreamState) -> T) -> T {
        let mut all = lock(&self.0);
        if all.len() <= at {
            all.resize_with(at + 1, StreamState::default);
        }
        work(&mut all[at])
    }

    /// All that were written so far.
    pub(crate) fn all(&self) -> Vec<StreamState> {
        lock(&self.0).clone()
    }

    /// Frames of this run's epoch up to `last` are durable with one; how many of them were with none before.
    pub(crate) fn acknowledged(&self, at: usize, last: u64) -> u64 {
        self.with(at, |_| ());
        let mut all = lock(&self.0);
        let known = all.iter().map(|state| state.last_acknowledged).max().unwrap_or(0);
        all[at].last_acknowledged = all[at].last_acknowledged.max(last);
        last.saturating_sub(known)
    }

    /// A new epoch begins.
    pub(crate) fn renew(&self) {
        lock(&self.0).iter_mut().for_each(|state| state.last_acknowledged = 0);
    }
}

/// What status says about the stream to a recommender; written by its client.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamState {
    /// A connection stands and its handshake is done.
    pub connected: bool,
    /// Last sequence number acknowledged as durable in this epoch.
    pub last_acknowledged: u64,
    /// What changes this node is taken from this recommender.
    pub leads: bool,
    /// Last failure, with its cause.
    pub last_error: Option<String>,
    /// What the recommender did not take in of what this node said.
    pub dropped: Vec<v1::Dropped>,
    /// When the token of the stream ends, as the recommender says, seconds since 1970; `None` where it does not.
    pub token_ends: Option<u64>,
}
