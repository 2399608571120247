//! Owns the threads of an engine: one that writes what waits in the queue, one that reads back at start.
//!
//! The queue holds values, not batches, up to a bound; when it is full the oldest batches are dropped and counted, since
//! the newest say most about what containers need now. A batch that fails is tried again until it is acknowledged,
//! refused for good, or dropped. Handing a batch over never waits for the engine.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::backoff::Backoff;
use super::counters::{EngineCounters, add};
use crate::history::exchange::{Batch, Coverage, Engine};

/// Values of one write: some ten thousand samples for Prometheus.
const PIECE: usize = 2_000;

/// Values taken in at once when they are read back: who takes them holds others up meanwhile.
const TAKEN: usize = 500;

/// How often a thread that is to end is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// Where values wait for an engine.
#[derive(Debug)]
pub struct Queue {
    state: Mutex<WriteQueue>,
    changed: Condvar,
    /// Values that may wait.
    most: usize,
    counters: Arc<EngineCounters>,
}

#[derive(Debug, Default)]
struct WriteQueue {
    batches: VecDeque<Batch>,
    values: usize,
    stopping: bool,
}

impl Queue {
    /// An empty queue for so many values.
    pub fn new(most: usize, counters: Arc<EngineCounters>) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), most, counters }
    }

    /// Puts a batch at the end, in pieces. When there is no room, the oldest pieces go.
    pub fn push(&self, batch: Batch) {
        let mut state = self.lock();
        for piece in pieces(batch, PIECE) {
            state.values += piece.len();
            state.batches.push_back(piece);
        }
        while state.values > self.most
            && let Some(oldest) = state.batches.pop_front()
        {
            state.values -= oldest.len();
            add(&self.counters.dropped, oldest.len() as u64);
        }
        self.shown(&state);
        self.changed.notify_all();
    }

    /// Lets the threads end: the writer when the queue is empty or the next write fails, the reader at once.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_all();
    }

    /// The oldest batch, as soon as there is one; nothing once it is empty and to be stopped.
    fn next(&self) -> Option<Batch> {
        let mut state = self.lock();
        loop {
            if let Some(batch) = state.batches.pop_front() {
                state.values -= batch.len();
                self.shown(&state);
                return Some(batch);
            }
            if state.stopping {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Puts a batch back to the front; drops it where newer ones have taken its room.
    fn put_back(&self, batch: Batch) {
        let mut state = self.lock();
        if state.values + batch.len() > self.most {
            add(&self.counters.dropped, batch.len() as u64);
            return;
        }
        state.values += batch.len();
        state.batches.push_front(batch);
        self.shown(&state);
    }

    /// Waits; true when it is time to end.
    fn pause(&self, length: Duration) -> bool {
        let until = Instant::now() + length;
        let mut state = self.lock();
        while !state.stopping {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    fn shown(&self, state: &WriteQueue) {
        self.counters.waiting.store(state.values as u64, Ordering::Relaxed);
    }

    /// A panic of another holder leaves the queue as whole as it was.
    fn lock(&self) -> MutexGuard<'_, WriteQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for threads that were told to end, but no longer than `within`: an engine may take as long as its time-out, and
/// what it did not take the own store has.
pub fn join(threads: &[JoinHandle<()>], within: Duration) {
    let deadline = Instant::now() + within;
    while !threads.iter().all(JoinHandle::is_finished) {
        if Instant::now() >= deadline {
            warn!("an engine did not take what waited for it in time");
            return;
        }
        thread::sleep(LOOK);
    }
}

/// Cuts a batch into such of at most so many values.
pub(super) fn pieces(mut batch: Batch, most: usize) -> Vec<Batch> {
    let mut found = Vec::new();
    while !batch.is_empty() {
        let mut piece = Batch::default();
        let mut room = most.max(1);
        move_some(&mut batch.minutes, &mut piece.minutes, &mut room);
        move_some(&mut batch.hours, &mut piece.hours, &mut room);
        move_some(&mut batch.days, &mut piece.days, &mut room);
        move_some(&mut batch.parts, &mut piece.parts, &mut room);
        move_some(&mut batch.events, &mut piece.events, &mut room);
        found.push(piece);
    }
    // Each piece was taken from the ends, which costs no moving of the rest.
    found.reverse();
    found
}

fn move_some<T>(from: &mut Vec<T>, to: &mut Vec<T>, room: &mut usize) {
    let count = (*room).min(from.len());
    *room -= count;
    to.extend(from.drain(from.len() - count..));
}

/// Starts the thread that writes.
///
/// # Errors
/// When the system gives no thread.
pub fn write(mut engine: Box<dyn Engine>, queue: Arc<Queue>) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name("engine-write".into()).spawn(move || {
        let mut backoff = Backoff::new();
        let mut failing = false;
        while let Some(batch) = queue.next() {
            match engine.write(&batch) {
                Ok(()) => {}
                Err(error) if error.is_transient() => {
                    let pause = backoff.pause(chance());
                    if !failing {
                        warn!(%error, pause_ms = pause.as_millis(), "an engine takes no history; it is kept and tried again");
                    }
                    failing = true;
                    queue.put_back(batch);
                    if queue.pause(pause) {
                        return;
                    }
                    continue;
                }
                Err(error) => warn!(%error, "an engine refuses a part of the history"),
            }
            if failing {
                info!(engine = engine.name(), "the engine takes history again");
            }
            (backoff, failing) = (Backoff::new(), false);
        }
    })
}

/// Starts the thread that reads back from one minute (since 1970 UTC) to another, in small batches; it goes on until everything was read,
/// was refused, or the queue is stopped, and hands the coverage to `done` in the first two cases.
///
/// # Errors
/// When the system gives no thread.
pub fn read(
    mut engine: Box<dyn Engine>,
    queue: Arc<Queue>,
    span: (u32, u32),
    mut sink: impl FnMut(Batch) + Send + 'static,
    done: impl FnOnce(Coverage) + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    thread::Builder::new().name("engine-read".into()).spawn(move || {
        let mut backoff = Backoff::new();
        let coverage = loop {
            let mut taken = |batch| pieces(batch, TAKEN).into_iter().for_each(&mut sink);
            match engine.read(span.0, span.1, &mut taken) {
                Ok(coverage) => break coverage,
                Err(error) if error.is_transient() => {
                    let pause = backoff.pause(chance());
                    warn!(%error, pause_ms = pause.as_millis(), "history cannot be read back yet; it is tried again");
                    if queue.pause(pause) {
                        return;
                    }
                }
                Err(error) => {
                    warn!(%error, "history is not read back");
                    break Coverage::default();
                }
            }
        };
        report(&engine.name(), span, &coverage);
        done(coverage);
    })
}

fn report(engine: &str, asked: (u32, u32), coverage: &Coverage) {
    let time = |minute: u32| {
        let seconds = i64::from(minute) * 60;
        jiff::Timestamp::from_second(seconds).map_or_else(|_| minute.to_string(), |time| time.to_string())
    };
    let (from, to) = match coverage.span {
        Some((from, to)) => (time(from), time(to)),
        None => ("none".to_owned(), "none".to_owned()),
    };
    info!(
        engine,
        asked_from = time(asked.0),
        asked_to = time(asked.1),
        from,
        to,
        minutes = coverage.minutes,
        hours = coverage.hours,
        days = coverage.days,
        parts = coverage.parts,
        events = coverage.events,
        refused = coverage.refused,
        missing_hours = coverage.missing_hours,
        "history read back"
    );
}

/// A number nobody can foresee, for pauses: the keys of a hash map are drawn from the system's source of chance.
fn chance() -> u32 {
    use std::hash::{BuildHasher, RandomState};
    (RandomState::new().hash_one(0u8) >> 32) as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::engines::samples::{batch, sorted};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn pieces_are_small_and_hold_everything_once(given in batch(), most in 1..7usize) {
            let mut all = Batch::default();
            for piece in pieces(given.clone(), most) {
                prop_assert!((1..=most).contains(&piece.len()));
                all.minutes.extend(piece.minutes);
                all.hours.extend(piece.hours);
                all.days.extend(piece.days);
                all.parts.extend(piece.parts);
                all.events.extend(piece.events);
            }
            prop_assert_eq!(sorted(&all), sorted(&given));
        }
    }
}
