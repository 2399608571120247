//! The types on the arrows between threads, and the small primitives (stop flag, waker, heartbeat) that more than one
//! part needs.
//!
//! Owned here: shapes. Not owned: any decision, any I/O beyond waking a thread through an eventfd.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use evenkeel_model::node::NodeFacts;
use evenkeel_model::workload::{SourceKind, Workload};
use evenkeel_qos::rules::ResourceClasses;

use crate::config::{Config, InForce};
use crate::overlay::Overlays;
use crate::stats::Stats;

/// Path of a cgroup below the hierarchies' roots, beginning with `/`.
pub(crate) type CgroupPath = Arc<str>;

/// Changes of the tracked set that may wait for the sampler; when full the reconciler offers them again at its
/// next pass.
pub const TRACK_CHANGES_CAP: usize = 4096;
/// Snapshots from sources that may wait; a source that finds the channel full tries again after its period.
pub const SOURCE_UPDATES_CAP: usize = 64;
/// One container being tracked: everything others need to sample, announce and show it. Immutable; another cgroup inode gets
/// a new slot, other requirements or classes take the place of the old ones in theirs.
#[derive(Debug)]
pub struct Tracked {
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
pub enum TrackChange {
    /// Begin to sample it; or, where its slot is sampled already, it asks for something else.
    Added(Arc<Tracked>),
    /// Its cgroup is gone or it was replaced.
    Removed {
        /// The slot that ends.
        slot: u32,
    },
}

/// A complete snapshot of what one source sees; it replaces the source's previous one at the same address.
#[derive(Debug, Clone)]
pub struct SourceUpdate {
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
pub struct SourceProblem {
    /// What was tried.
    pub what: String,
    /// On what: file, socket, container.
    pub where_: String,
    /// Why it failed.
    pub why: String,
    /// What a person can do.
    pub remedy: String,
}

/// What every part is given at start.
pub struct Context {
    /// Valid configuration, as it was at start.
    pub config: Arc<Config>,
    /// The configuration in force, for keys that change at run time.
    pub live: InForce,
    /// Kernel's boot id.
    pub boot_id: String,
    /// Size of the machine.
    pub facts: NodeFacts,
    /// Counters of all parts.
    pub stats: Arc<Stats>,
    /// What the recommender says containers should request.
    pub overlays: Overlays,
    /// Set when the agent should end.
    pub stop: Stop,
}

/// The one flag that ends every thread. Threads look at it at each wake-up; wakers registered here are rung.
#[derive(Default)]
pub struct Stop {
    flag: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl Stop {
    /// True once the agent should end.
    pub fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Asks every part to end.
    pub fn set(&self) {
        self.flag.store(true, Ordering::Release);
        for waker in lock(&self.wakers).iter() {
            waker.wake();
        }
    }

    /// Registers a thread that sleeps in poll and must be woken to see the flag.
    pub fn register(&self, waker: Waker) {
        lock(&self.wakers).push(waker);
    }
}

/// Takes a mutex whose holder may have panicked: the data are plain values that stay meaningful.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes a thread that waits in poll. Cloned freely; ringing twice wakes once.
#[derive(Clone)]
pub struct Waker(Arc<nix::sys::eventfd::EventFd>);

impl Waker {
    /// A new eventfd, non-blocking and closed on exec.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn new() -> nix::Result<Self> {
        use nix::sys::eventfd::{EfdFlags, EventFd};
        Ok(Self(Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?)))
    }

    /// Wakes the thread. A full counter means it is awake already.
    pub fn wake(&self) {
        if let Err(errno) = self.0.write(1)
            && errno != nix::errno::Errno::EAGAIN
        {
            tracing::debug!(%errno, "ignoring a failed wake-up; the thread wakes at its next timeout");
        }
    }

    /// Takes all wake-ups so far.
    pub fn drain(&self) {
        // EAGAIN only says that there was none.
        let _ = self.0.read();
    }

    /// The descriptor to poll for reading.
    pub fn fd(&self) -> std::os::fd::BorrowedFd<'_> {
        use std::os::fd::AsFd;
        self.0.as_fd()
    }
}

/// How a source reaches the reconciler: the bounded channel and the bell of its thread.
#[derive(Clone)]
pub struct UpdateSender {
    /// Snapshots.
    pub sender: SyncSender<SourceUpdate>,
    /// Bell of the converge thread.
    pub waker: Waker,
}

impl UpdateSender {
    /// Offers a snapshot; gives it back when the channel is full (send a newer one later) or the agent ends.
    pub fn send(&self, update: SourceUpdate) -> Result<(), SourceUpdate> {
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
/// lists again.
pub(crate) type Rescan = Arc<Bell>;

/// Containers that may be asked about at one time; more are simply found at the source's own period.
const ASKED_CAP: usize = 4096;

/// Rings for a new listing, and remembers which containers a source should ask its runtime about afresh.
pub struct Bell {
    /// Wakes the sources, which wait in a way of their own.
    ring: Box<dyn Fn() + Send + Sync>,
    asked: Mutex<HashMap<String, Instant>>,
}

impl Bell {
    /// A bell that calls `ring` whenever every source should list again.
    pub fn new(ring: impl Fn() + Send + Sync + 'static) -> Self {
        Self { ring: Box::new(ring), asked: Mutex::default() }
    }

    /// Every source lists again.
    pub fn ring(&self) {
        (self.ring)();
    }

    /// Every source lists again, and what was known of one container before now counts as stale.
    pub fn ask_about(&self, id: &str) {
        let mut asked = lock(&self.asked);
        if asked.len() >= ASKED_CAP {
            asked.clear();
        }
        asked.insert(id.to_owned(), Instant::now());
        drop(asked);
        self.ring();
    }

    /// Containers about which something was asked after a time.
    pub fn asked_after(&self, time: Instant) -> Vec<String> {
        lock(&self.asked).iter().filter(|(_, asked)| **asked > time).map(|(id, _)| id.clone()).collect()
    }

    /// Whether something was asked about a container after `known`.
    pub fn asked_since(&self, id: &str, known: Instant) -> bool {
        lock(&self.asked).get(id).is_some_and(|asked| *asked >= known)
    }
}

/// Last sign of life of one thread.
pub struct Heartbeat {
    /// Name in logs and metrics.
    pub name: &'static str,
    /// Without a sign for longer than this the thread is taken for stuck.
    pub patience: Duration,
    start: Instant,
    last_usec: AtomicU64,
}

impl Heartbeat {
    /// A heartbeat that counts as fresh from now.
    pub fn new(name: &'static str, patience: Duration) -> Self {
        Self { name, patience, start: Instant::now(), last_usec: AtomicU64::new(0) }
    }

    /// Says that the thread lives.
    pub fn beat(&self) {
        self.last_usec.store(micros(self.start.elapsed()), Ordering::Relaxed);
    }

    /// Time since the last sign of life.
    pub fn age(&self) -> Duration {
        let last = Duration::from_micros(self.last_usec.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(last)
    }
}

/// Microseconds of a duration, at most `u64::MAX`.
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_is_taken_once() {
        let waker = Waker::new().unwrap();
        waker.wake();
        waker.wake();
        waker.drain();
        assert_eq!(waker.0.read(), Err(nix::errno::Errno::EAGAIN));
    }
}
