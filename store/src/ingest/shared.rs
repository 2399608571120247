//! Owns the way to the state for everybody but the store: short looks, long ones, and the order of locks.

use std::ops::{Deref, DerefMut};
use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

use super::backlog::Logged;
use crate::engines::worker::Queue;
use crate::history::exchange::Batch;
use crate::history::files::{HistoryFiles, Outgoing};
use crate::history::fill;
use crate::state::{PanicSwitch, RecordOutcome, StoreState};

/// Containers whose minutes are taken under one lock: less than a millisecond.
const FRESH_AT_ONCE: usize = 500;

/// The state, read by many and changed by the store alone.
///
/// A lock under which whoever waits to write goes before new readers makes everybody wait for a long look as soon as a
/// record arrives. So whoever looks for long, or writes, goes through a gate first: records wait at the gate, and short
/// looks pass beside the long one. Locks are taken in the order files, gate, state.
#[derive(Debug, Clone)]
pub struct SharedState {
    state: Arc<RwLock<StoreState>>,
    gate: Arc<Mutex<()>>,
    /// The history's files; held while a checkpoint is taken and written, so that a newer one is never replaced by an
    /// older one.
    files: Arc<Mutex<HistoryFiles>>,
    /// Queues of the engines outside that keep the history too.
    engines: Arc<RwLock<Vec<Arc<Queue>>>>,
    /// The panic switch in force: known before the state counts it, and switched on before the log has it.
    panic: Arc<RwLock<PanicInForce>>,
}

/// The panic switch in force, and which wish it is.
#[derive(Debug, Default)]
struct PanicInForce {
    switch: PanicSwitch,
    wish: PanicWish,
    newest: PanicWish,
}

/// Wishes about the panic switch, in the order in which they were uttered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PanicWish(u64);

/// A long look. The state is given back before the gate.
#[derive(Debug)]
pub struct Study<'a> {
    state: RwLockReadGuard<'a, StoreState>,
    _gate: MutexGuard<'a, ()>,
}

/// The state, to be changed.
#[derive(Debug)]
pub struct Writing<'a> {
    state: RwLockWriteGuard<'a, StoreState>,
    _gate: MutexGuard<'a, ()>,
}

impl Deref for Study<'_> {
    type Target = StoreState;

    fn deref(&self) -> &StoreState {
        &self.state
    }
}

impl Deref for Writing<'_> {
    type Target = StoreState;

    fn deref(&self) -> &StoreState {
        &self.state
    }
}

impl DerefMut for Writing<'_> {
    fn deref_mut(&mut self) -> &mut StoreState {
        &mut self.state
    }
}

impl SharedState {
    pub(super) fn new(state: StoreState, files: HistoryFiles) -> Self {
        Self {
            state: Arc::new(RwLock::new(state)),
            gate: Arc::default(),
            files: Arc::new(Mutex::new(files)),
            engines: Arc::default(),
            panic: Arc::default(),
        }
    }

    /// Whether the panic switch is on, without waiting for the state.
    pub fn is_panic(&self) -> bool {
        self.panic.read().unwrap_or_else(PoisonError::into_inner).switch.on
    }

    /// The panic switch in force, without waiting for the state.
    pub fn panic(&self) -> PanicSwitch {
        self.panic.read().unwrap_or_else(PoisonError::into_inner).switch.clone()
    }

    /// Takes a wish about the panic switch: switched on it is in force from here, whatever becomes of the log.
    pub(super) fn wish_panic(&self, switch: PanicSwitch) -> PanicWish {
        let mut panic = self.panic.write().unwrap_or_else(PoisonError::into_inner);
        panic.newest.0 += 1;
        if switch.on {
            (panic.switch, panic.wish) = (switch, panic.newest);
        }
        panic.newest
    }

    /// The log has a wish: it is in force, unless a later one is, which an earlier one that waited does not undo.
    pub(super) fn tell_panic(&self, switch: PanicSwitch, wish: PanicWish) {
        let mut panic = self.panic.write().unwrap_or_else(PoisonError::into_inner);
        if wish >= panic.wish {
            (panic.switch, panic.wish) = (switch, wish);
        }
    }

    /// Looks at the state for less than a millisecond; ingest waits meanwhile, and other readers behind it.
    pub fn read(&self) -> RwLockReadGuard<'_, StoreState> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same where nobody has to be waited for.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, StoreState>> {
        match self.state.try_read() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Looks at the state for longer; ingest waits meanwhile, and so do other long looks, but not [short ones](Self::read).
    pub fn study(&self) -> Study<'_> {
        let gate = self.pass_gate();
        Study { state: self.read(), _gate: gate }
    }

    /// The state to be changed; ingest and everybody who looks wait meanwhile.
    pub fn write(&self) -> Writing<'_> {
        let gate = self.pass_gate();
        Writing { state: self.state.write().unwrap_or_else(PoisonError::into_inner), _gate: gate }
    }

    /// Counts a record of the log.
    pub(crate) fn count(&self, logged: Logged) -> RecordOutcome {
        let mut state = self.write();
        state.applied = logged.seq;
        state.apply(logged.received_usec, logged.entry)
    }

    fn pass_gate(&self) -> MutexGuard<'_, ()> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes values in that another engine had, where there is nothing of their time; how many.
    pub fn fill(&self, engine: usize, batch: &Batch) -> u64 {
        fill::fill(&mut self.write(), engine, batch)
    }

    /// An engine is going to be read: what it gives fills what is not here now.
    pub(crate) fn filling(&self, minute: u32) {
        fill::begin(&mut self.write(), minute);
    }

    /// No more comes from one of the engines that are read.
    pub(crate) fn filled(&self) {
        fill::end(&mut self.write());
    }

    /// Offers what has come since the last call, the minute of which is given and becomes the present one.
    pub(super) fn offer_fresh(&self, turned: &mut u32) {
        let engines = self.engines.read().unwrap_or_else(PoisonError::into_inner);
        if engines.is_empty() {
            return;
        }
        let offer = |batch: Batch| engines.iter().for_each(|queue| queue.push(batch.clone()));
        loop {
            // By and by, so that records need not wait for long.
            let fresh = self.write().history.take_fresh(FRESH_AT_ONCE);
            if fresh.is_empty() {
                break;
            }
            offer(fill::batch_of_minutes(&fresh));
        }
        let parts = {
            let state = self.study();
            let now = state.clock.now();
            fill::parts(&state, std::mem::replace(turned, now), now)
        };
        offer(parts);
    }

    /// What is sealed goes to these engines as well from now on.
    pub(crate) fn offer_to(&self, queue: Arc<Queue>) {
        self.write().history.offer_fresh();
        self.engines.write().unwrap_or_else(PoisonError::into_inner).push(queue);
    }

    pub(super) fn offer(&self, outgoing: &Outgoing) {
        let engines = self.engines.read().unwrap_or_else(PoisonError::into_inner);
        if engines.is_empty() {
            return;
        }
        let batch = fill::batch_of(outgoing);
        engines.iter().for_each(|queue| queue.push(batch.clone()));
    }

    pub(crate) fn files(&self) -> MutexGuard<'_, HistoryFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
