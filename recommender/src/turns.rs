//! Owns how many questions are worked on at once, and how many wait: what a question costs is bounded by itself, so that
//! their number bounds what all of them cost.
//!
//! A question whose caller has gone, or whose time is over, is not begun; one that has begun is told by its [`StillWanted`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Whether an answer is still wanted.
#[derive(Debug, Clone, Default)]
pub struct StillWanted(Arc<AtomicBool>);

impl StillWanted {
    /// True until whoever asked has gone.
    pub fn is_wanted(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }

    /// Whoever asked has gone.
    pub(crate) fn give_up(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Why a question was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoTurn {
    /// As many wait as may.
    Busy,
    /// Its time is over.
    Late,
    /// A fault in the program.
    Fault,
}

/// Work that tells its result itself.
type BoxedWork = Box<dyn FnOnce(&StillWanted) + Send>;

/// The turns of one kind of work.
#[derive(Debug, Clone)]
pub(crate) struct Turns {
    waiting: Arc<Semaphore>,
    running: Arc<Semaphore>,
    counters: Arc<TurnCounters>,
}

/// What became of questions.
#[derive(Debug, Default)]
pub(crate) struct TurnCounters {
    /// Refused because as many waited as may.
    pub(crate) refused: AtomicU64,
    /// Given up before they were answered.
    pub(crate) given_up: AtomicU64,
}

/// A place among those that wait; held while a body is read, too.
#[derive(Debug)]
pub(crate) struct QueueSlot {
    _permit: OwnedSemaphorePermit,
}

/// Gives a question up when it is dropped before its answer.
struct Asking<'a> {
    wanted: StillWanted,
    counters: &'a TurnCounters,
    is_done: bool,
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.wanted.give_up();
        if !self.is_done {
            self.counters.given_up.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Turns {
    /// So many at once, and so many that wait or run.
    pub(crate) fn new(running: usize, waiting: usize) -> Self {
        Self {
            waiting: Arc::new(Semaphore::new(waiting)),
            running: Arc::new(Semaphore::new(running)),
            counters: Arc::default(),
        }
    }

    /// What became of questions.
    pub(crate) fn counters(&self) -> &TurnCounters {
        &self.counters
    }

    /// Counts one that was refused for want of room elsewhere.
    pub(crate) fn refuse(&self) -> NoTurn {
        self.counters.refused.fetch_add(1, Ordering::Relaxed);
        NoTurn::Busy
    }

    /// A place among those that wait.
    pub(crate) fn place(&self) -> Result<QueueSlot, NoTurn> {
        Arc::clone(&self.waiting)
            .try_acquire_owned()
            .map(|_permit| QueueSlot { _permit })
            .map_err(|_| self.refuse())
    }

    /// Does work on a thread where it may take its time, once it is its turn.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl FnOnce(&StillWanted) -> T + Send + 'static,
    ) -> Result<T, NoTurn> {
        let place = self.place()?;
        self.run_from(place, patience, work).await
    }

    /// The same for whoever has a place.
    pub(crate) async fn run_from<T: Send + 'static>(
        &self,
        place: QueueSlot,
        patience: Duration,
        work: impl FnOnce(&StillWanted) -> T + Send + 'static,
    ) -> Result<T, NoTurn> {
        let (answer, answered) = oneshot::channel();
        // Nobody waits for one that was given up.
        let work = move |wanted: &StillWanted| drop(answer.send(work(wanted)));
        self.run_boxed(place, patience, Box::new(work)).await?;
        answered.await.map_err(|_| NoTurn::Fault)
    }

    /// The same for all kinds of work: what a thread and a timer need is compiled once, not for each question.
    async fn run_boxed(&self, place: QueueSlot, patience: Duration, work: BoxedWork) -> Result<(), NoTurn> {
        let wanted = StillWanted::default();
        let mut asking = Asking { wanted: wanted.clone(), counters: &self.counters, is_done: false };
        let running = Arc::clone(&self.running);
        let done = async {
            let turn = running.acquire_owned().await.map_err(|_| NoTurn::Fault)?;
            let worked = tokio::task::spawn_blocking(move || {
                // Both are held until the work has ended, also when nobody waits for it any more.
                let _held = (turn, place);
                work(&wanted);
            });
            worked.await.map_err(|_| NoTurn::Fault)
        };
        let done = tokio::time::timeout(patience, done).await.map_err(|_| NoTurn::Late)?;
        asking.is_done = true;
        done
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_nobody_waits_for_any_more_is_not_begun_and_what_runs_is_told() {
        let turns = Turns::new(1, 2);
        let (go, gate) = channel::<()>();
        let (tell, told) = channel();
        let (begun, started) = channel();
        let first = turns.clone();
        let first = tokio::spawn(async move {
            let work = move |wanted: &StillWanted| {
                begun.send(()).unwrap();
                gate.recv().unwrap();
                tell.send(wanted.is_wanted()).unwrap();
            };
            first.run(Duration::from_millis(200), work).await
        });
        tokio::task::spawn_blocking(move || started.recv().unwrap()).await.unwrap();
        let second = turns.run(Duration::from_millis(50), |_| panic!("it must not begin"));
        assert_eq!(second.await.map(|()| "an answer"), Err(NoTurn::Late));
        assert_eq!(first.await.unwrap(), Err(NoTurn::Late));
        // The first still runs, and holds its place and its turn.
        let third = turns.place().unwrap();
        assert_eq!(turns.place().unwrap_err(), NoTurn::Busy);
        go.send(()).unwrap();
        let told = tokio::task::spawn_blocking(move || told.recv().unwrap()).await.unwrap();
        assert!(!told, "what runs is told that nobody waits");
        assert_eq!(turns.run_from(third, Duration::from_secs(30), |_| 3).await, Ok(3));
        let counters = turns.counters();
        assert_eq!(counters.refused.load(Ordering::Relaxed), 1);
        assert_eq!(counters.given_up.load(Ordering::Relaxed), 2);
    }
}
