//! The types on the arrows between the agent's threads: what is tracked, one tick, live use, counters, heartbeats.
//!
//! Owned here: shapes and the small primitives (stop flag, waker, heartbeat, counters) that more than one part
//! needs. Not owned: any decision, any I/O beyond waking a thread through an eventfd.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_host::error::Category;
use evenkeel_host::knob::Knob;
use evenkeel_host::write::Outcome;
use evenkeel_model::node::{NodeFacts, NodeKey};
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::sample::Sample;
use evenkeel_model::traffic::Traffic;
use evenkeel_model::workload::{SourceKind, Workload};
use evenkeel_proto::v1;
use evenkeel_qos::rules::ResourceClasses;

use crate::config::{Config, InForce};
use crate::overlay::Overlays;
use crate::trust::Trusts;

/// Path of a cgroup below the hierarchies' roots, beginning with `/`.
pub(crate) type CgroupPath = Arc<str>;

/// Changes of the tracked set that may wait for the sampler; when full the reconciler offers them again at its
/// next pass.
pub(crate) const TRACK_CHANGES_CAP: usize = 4096;
/// Snapshots from sources that may wait; a source that finds the channel full tries again after its period.
pub(crate) const SOURCE_UPDATES_CAP: usize = 64;
/// Live ticks a slow watcher may lag behind before it is told how many it missed.
pub(crate) const LIVE_TICKS_CAP: usize = 4;

/// One container being tracked: everything others need to sample, announce and show it. Immutable; another cgroup inode gets
/// a new slot, other requirements or classes take the place of the old ones in theirs.
#[derive(Debug)]
pub(crate) struct Tracked {
    /// Strictly increasing, never reused within the epoch.
    pub slot: u32,
    /// Who it is and what it asked for.
    pub workload: Arc<Workload>,
    /// Classes under the rule set in force; `None` per resource where nothing is known.
    pub classes: ResourceClasses,
    /// Path below the roots.
    pub cgroup: CgroupPath,
    /// Inode of the cgroup's directory: its identity, since a path can be reused.
    pub inode: u64,
}

/// A change of the tracked set, from the reconciler to the sampler.
#[derive(Debug, Clone)]
pub(crate) enum TrackChange {
    /// Begin to sample it; or, where its slot is sampled already, it asks for something else.
    Added(Arc<Tracked>),
    /// Its cgroup is gone or it was replaced.
    Removed {
        /// The slot that ends.
        slot: u32,
    },
}

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

/// A complete snapshot of what one source sees; it replaces the source's previous one at the same address.
#[derive(Debug, Clone)]
pub(crate) struct SourceUpdate {
    /// Which source.
    pub source: SourceKind,
    /// Directory or socket.
    pub address: String,
    /// Everything it sees; shared with the source, which tells no change by it.
    pub workloads: Vec<Arc<Workload>>,
    /// What it could not use, each by name.
    pub problems: Vec<SourceProblem>,
    /// False when the source itself cannot be read now; `workloads` is then what was last seen.
    pub healthy: bool,
}

/// Something a source could not use.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct SourceProblem {
    /// What was tried.
    pub what: String,
    /// On what: file, socket, container.
    pub where_: String,
    /// Why it failed.
    pub why: String,
    /// What a person can do.
    pub remedy: String,
}

/// What every part of the agent is given at start.
pub(crate) struct Context {
    /// Valid configuration, as it was at start.
    pub config: Config,
    /// The configuration in force, for keys that change at run time.
    pub live: InForce,
    /// Cluster and node.
    pub node: NodeKey,
    /// Kernel's boot id.
    pub boot_id: String,
    /// Random per agent start: names this run's stream.
    pub epoch: u64,
    /// Size of the machine.
    pub facts: NodeFacts,
    /// Counters of all parts.
    pub stats: Stats,
    /// What the recommender says containers should request.
    pub overlays: Overlays,
    /// Who vouches for this agent, and what goes in the clear.
    pub trust: Trusts,
    /// Set when the agent should end.
    pub stop: Stop,
}

/// The one flag that ends every thread. Threads look at it at each wake-up; wakers registered here are rung.
#[derive(Default)]
pub(crate) struct Stop {
    flag: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Stop {
    /// True once the agent should end.
    pub(crate) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Asks every part to end.
    pub(crate) fn set(&self) {
        self.flag.store(true, Ordering::Release);
        for waker in lock(&self.wakers).iter() {
            waker.wake();
        }
    }

    /// Registers a thread that sleeps in poll and must be woken to see the flag.
    pub(crate) fn register(&self, waker: Waker) {
        lock(&self.wakers).push(waker);
    }
}

/// Takes a mutex whose holder may have panicked: the data are plain values that stay meaningful.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes a thread that waits in poll. Cloned freely; ringing twice wakes once.
#[derive(Clone)]
pub(crate) struct Waker(Arc<nix::sys::eventfd::EventFd>);

impl Waker {
    /// A new eventfd, non-blocking and closed on exec.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub(crate) fn new() -> nix::Result<Self> {
        use nix::sys::eventfd::{EfdFlags, EventFd};
        Ok(Self(Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)))
    }

    /// Wakes the thread. A full counter means it is awake already.
    pub(crate) fn wake(&self) {
        if let Err(errno) = self.0.write(1)
            && errno != nix::errno::Errno::EAGAIN
        {
            tracing::debug!(%errno, "ignoring a failed wake-up; the thread wakes at its next timeout");
        }
    }

    /// Takes all wake-ups so far.
    pub(crate) fn drain(&self) {
        // EAGAIN only says that there was none.
        let _ = self.0.read();
    }

    /// The descriptor to poll for reading.
    pub(crate) fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.0.as_fd()
    }
}

/// How a source reaches the reconciler: the bounded channel and the bell of its thread.
#[derive(Clone)]
pub(crate) struct UpdateSender {
    /// Snapshots.
    pub sender: SyncSender<SourceUpdate>,
    /// Bell of the converge thread.
    pub waker: Waker,
}

impl UpdateSender {
    /// Offers a snapshot; gives it back when the channel is full (send a newer one later) or the agent ends.
    pub(crate) fn send(&self, update: SourceUpdate) -> Result<(), SourceUpdate> {
        let result = self.sender.try_send(update);
        self.waker.wake();
        result.map_err(|error| match error {
            TrySendError::Full(update) | TrySendError::Disconnected(update) => update,
        })
    }
}

/// Containers (by inode) whose settings the converger verifies at its next wake-up: a hold on one of them ended.
/// Bounded by the containers there are.
pub(crate) type Pokes = Arc<Mutex<HashSet<u64>>>;

/// Rung by the converge thread when the cgroup tree changed in a way that may mean a new container: every source
/// awaits it (`notified().await`) and lists again.
pub(crate) type Rescan = Arc<Bell>;

/// Containers that may be asked about at one time; more are simply found at the source's own period.
const ASKED_CAP: usize = 4096;

/// Rings for a new listing, and remembers which containers a source should ask its runtime about afresh.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    notify: tokio::sync::Notify,
    asked: Mutex<HashMap<String, Instant>>,
}

impl Bell {
    /// Waits for the next ring.
    pub(crate) fn notified(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }

    /// Every source lists again.
    pub(crate) fn ring(&self) {
        self.notify.notify_waiters();
    }

    /// Every source lists again, and what was known of one container before now counts as stale.
    pub(crate) fn ask_about(&self, id: &str) {
        let mut asked = lock(&self.asked);
        if asked.len() >= ASKED_CAP {
            asked.clear();
        }
        asked.insert(id.to_owned(), Instant::now());
        drop(asked);
        self.ring();
    }

    /// Whether something was asked about a container after `known`.
    pub(crate) fn asked_since(&self, id: &str, known: Instant) -> bool {
        lock(&self.asked).get(id).is_some_and(|asked| *asked >= known)
    }
}

/// Last sign of life of one thread.
pub(crate) struct Heartbeat {
    /// Name in logs and metrics.
    pub name: &'static str,
    /// Without a sign for longer than this the thread is taken for stuck.
    pub patience: Duration,
    start: Instant,
    last_usec: AtomicU64,
}

impl Heartbeat {
    /// A heartbeat that counts as fresh from now.
    pub(crate) fn new(name: &'static str, patience: Duration) -> Self {
        Self { name, patience, start: Instant::now(), last_usec: AtomicU64::new(0) }
    }

    /// Says that the thread lives.
    pub(crate) fn beat(&self) {
        self.last_usec.store(micros(self.start.elapsed()), Ordering::Relaxed);
    }

    /// Time since the last sign of life.
    pub(crate) fn age(&self) -> Duration {
        let last = Duration::from_micros(self.last_usec.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last)
    }
}

/// Microseconds of a duration, at most `u64::MAX`.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// A counter that only grows, or a gauge that is set.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    /// Grows by `n`.
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The present value.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Upper bounds of [`Histogram`]'s buckets, microseconds: a tick's lateness and a score's delay both lie between a
/// tenth of a millisecond and tens of seconds. The last bucket takes the rest.
pub(crate) const HISTOGRAM_BOUNDS_USEC: [u64; 14] = [
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// Durations in fixed buckets.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    /// Observations at or below each bound and above the one before; one more for the rest.
    pub buckets: [Count; HISTOGRAM_BOUNDS_USEC.len() + 1],
    /// Sum of all observations, microseconds.
    pub sum_usec: Count,
}

impl Histogram {
    /// Takes in one duration, microseconds.
    pub(crate) fn observe(&self, usec: u64) {
        let bucket = HISTOGRAM_BOUNDS_USEC.partition_point(|&bound| bound < usec);
        self.buckets[bucket].add(1);
        self.sum_usec.add(usec);
    }
}

/// A counter for each class by memory, and one for containers of none.
#[derive(Debug, Default)]
pub(crate) struct ByClass {
    /// BestEffort.
    pub best_effort: Count,
    /// Burstable.
    pub burstable: Count,
    /// Guaranteed.
    pub guaranteed: Count,
    /// Containers about whose requests nothing is known.
    pub unclassified: Count,
}

impl ByClass {
    /// The counter of a class.
    pub(crate) const fn of(&self, class: Option<QosClass>) -> &Count {
        match class {
            Some(QosClass::BestEffort) => &self.best_effort,
            Some(QosClass::Burstable) => &self.burstable,
            Some(QosClass::Guaranteed) => &self.guaranteed,
            None => &self.unclassified,
        }
    }
}

/// What came of writes, for one knob.
#[derive(Debug, Default)]
pub(crate) struct WriteStats {
    /// Written and read back.
    pub done: Count,
    /// Dry run: would have been written.
    pub would: Count,
    /// Refused for lack of permission.
    pub denied: Count,
    /// The kernel has no such knob or refused the value.
    pub rejected: Count,
    /// The process or cgroup was gone.
    pub gone: Count,
    /// Failed otherwise.
    pub failed: Count,
}

impl WriteStats {
    /// Counts what came of one write.
    pub(crate) fn count(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Written { .. } => self.done.add(1),
            Outcome::Unchanged { .. } => {}
            Outcome::WouldWrite { .. } => self.would.add(1),
            Outcome::Refused(_) => self.rejected.add(1),
            Outcome::Failed { error, .. } => match error.category() {
                Category::Gone => self.gone.add(1),
                Category::Denied => self.denied.add(1),
                Category::Unsupported | Category::Rejected => self.rejected.add(1),
                Category::Malformed | Category::Partial | Category::Io => self.failed.add(1),
            },
        }
    }
}

/// What came of writes, by knob.
#[derive(Debug, Default)]
pub(crate) struct Writes([WriteStats; Knob::ALL.len()], WriteStats);

impl Writes {
    /// The counters of one knob.
    pub(crate) fn of(&self, knob: Knob) -> &WriteStats {
        let place = Knob::ALL.iter().position(|known| *known == knob);
        // Knobs that are no knob of ours share the last one.
        place.and_then(|place| self.0.get(place)).unwrap_or(&self.1)
    }

    /// Every knob with its counters.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Knob, &WriteStats)> {
        Knob::ALL.into_iter().zip(&self.0)
    }
}

/// Counters of all parts, shown at `/metrics` under `evenkeel_agent_*`. Each is written by one part only.
#[derive(Default)]
pub(crate) struct Stats {
    /// State files that could not be read back whole.
    pub damages: crate::damage::Damages,

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
    /// State of the stream, for status.
    pub stream: Mutex<StreamState>,
    /// Bytes in the ring of seconds to look back at.
    pub ring_bytes: Count,
    /// Seconds that could not be kept there.
    pub ring_seconds_lost: Count,
    /// Why none are kept now; `None` while they are.
    pub ring_failure: Mutex<Option<String>>,

    /// Pressure loop.
    pub pressure: crate::pressure::view::PressureStats,

    // Converger.
    /// Writes by knob.
    pub writes: Writes,
    /// Passes over a container's processes.
    pub converge_passes: Count,
    /// Containers frozen because forks outran the passes.
    pub freezes: Count,
    /// Processes found right by a verifying pass.
    pub processes_verified: Count,
    /// Time from the start of a container's first process to all of its processes verified at their score, of
    /// containers that began while the agent ran.
    pub first_pid_to_right: Histogram,
    /// Time from noticing that a container may be wrong to having verified it.
    pub time_to_right: Histogram,
    /// Process events received from the kernel.
    pub process_events: Count,
    /// Times the kernel dropped process events and every container was looked at instead.
    pub process_events_overrun: Count,
    /// Execs of unknown processes that were not looked up, because there were too many at once.
    pub process_events_shed: Count,
    /// Times process events were not read for some seconds, because there were too many.
    pub process_events_paused: Count,
    /// Changes of the cgroup tree received from the kernel.
    pub cgroup_events: Count,
    /// Containers known.
    pub containers: Count,
    /// Containers converged.
    pub containers_converged: Count,
    /// Containers of which some knob is without its effect.
    pub containers_ineffective: Count,
    /// Containers whose requests follow a recommendation instead of what was asked for.
    pub resized: Count,
    /// Containers of which some knob is contended.
    pub containers_contended: Count,
    /// Pods of manifests whose requests do not fit beside the others'.
    pub pods_not_admitted: Count,
    /// Track changes that had to wait because the sampler was behind.
    pub track_changes_deferred: Count,
    /// Sources known and, of these, healthy.
    pub sources: Count,
    /// Healthy sources.
    pub sources_healthy: Count,

    // Node.
    /// Daemons found.
    pub daemons: Count,
    /// Of these, those that hold the score of infrastructure.
    pub daemons_protected: Count,
    /// `vm.overcommit_memory` as last read.
    pub overcommit: Count,
    /// Swap that is on, bytes.
    pub swap_bytes: Count,
    /// The cap of all workloads, bytes; 0 = off.
    pub workloads_cap_bytes: Count,
    /// What everything outside the workloads' cgroup uses and cannot give back, bytes.
    pub outside_workloads_bytes: Count,

    // Decisions.
    /// Decisions recorded.
    pub decisions: Count,
    /// Decisions that could not be written to disk.
    pub decisions_not_stored: Count,
    /// Decisions dropped from the queue for the stream.
    pub decisions_not_streamed: Count,
    /// Events that must arrive and were not acknowledged yet.
    pub events_waiting: Count,
    /// Epochs that go on under another name, because the recommender claimed more of them than it was sent.
    pub epochs_renewed: Count,
    /// Events that must arrive and were dropped for want of room.
    pub events_dropped: Count,

    // OOM kills.
    /// Processes of containers taken by the OOM killer.
    pub oom_kills: ByClass,
    /// Containers of which the agent ended the rest.
    pub rests_ended: Count,
    /// Rulings that a pod should go.
    pub evictions: ByClass,
    /// Rulings that a container should be started again.
    pub restarts: ByClass,
    /// Rulings that were carried out.
    pub rulings_carried_out: Count,
}

/// What status says about the stream to the recommender; written by the stream client.
#[derive(Debug, Clone, Default)]
pub(crate) struct StreamState {
    /// A connection stands and its handshake is done.
    pub connected: bool,
    /// Last sequence number acknowledged as durable in this epoch.
    pub last_acknowledged: u64,
    /// This run's epoch, where it is no longer the one it began with.
    pub epoch: Option<u64>,
    /// Last failure, with its cause.
    pub last_error: Option<String>,
    /// What the recommender did not take in of what this node said.
    pub dropped: Vec<v1::Dropped>,
    /// When the token of the stream ends, as the recommender says, seconds since 1970; `None` where it does not.
    pub token_ends: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_falls_into_the_first_bucket_that_holds_it() {
        let h = Histogram::default();
        for usec in [0, 100, 101, 30_000_000, 30_000_001] {
            h.observe(usec);
        }
        let counts: Vec<u64> = h.buckets.iter().map(Count::get).collect();
        assert_eq!((counts[0], counts[1], counts[13], counts[14]), (2, 1, 1, 1));
    }

    #[test]
    fn a_wake_up_is_taken_once() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        waker.drain();
        assert_eq!(waker.0.read(), Err(nix::errno::Errno::EAGAIN));
    }
}
