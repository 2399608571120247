//! Owns the threads that answer: few, so that a large question never takes from ingest, with a short queue before them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use tokio::sync::oneshot;

pub(crate) use crate::turns::StillWanted;

type Job = Box<dyn FnOnce() + Send>;

/// As many questions as may wait are waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("as many questions as capacity.queue allows are waiting already")]
pub(crate) struct Busy;

/// The threads, ended when the last handle is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    jobs: SyncSender<Job>,
    counters: Arc<PoolCounters>,
}

/// What the pool has done.
#[derive(Debug, Default)]
pub(crate) struct PoolCounters {
    /// Questions answered.
    pub(crate) answered: AtomicU64,
    /// Questions refused for lack of room.
    pub(crate) refused: AtomicU64,
    /// Questions whose caller left before the answer.
    pub(crate) given_up: AtomicU64,
}

/// An answer that is on its way; dropping it gives the question up.
pub(crate) struct PendingAnswer<T> {
    answer: oneshot::Receiver<T>,
    wanted: StillWanted,
    counters: Arc<PoolCounters>,
    done: bool,
}

impl<T> PendingAnswer<T> {
    /// The answer; nothing when the thread failed.
    pub(crate) async fn answer(mut self) -> Option<T> {
        let answer = (&mut self.answer).await.ok();
        self.done = true;
        self.counters.answered.fetch_add(1, Ordering::Relaxed);
        answer
    }
}

impl<T> Drop for PendingAnswer<T> {
    fn drop(&mut self) {
        self.wanted.give_up();
        if !self.done {
            self.counters.given_up.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system gives none.
    pub(crate) fn start(workers: usize, queue: usize) -> std::io::Result<Self> {
        let (jobs, waiting) = sync_channel::<Job>(queue);
        let waiting = Arc::new(Mutex::new(waiting));
        for _ in 0..workers {
            let waiting = Arc::clone(&waiting);
            thread::Builder::new().name("capacity".to_owned()).spawn(move || work(&waiting))?;
        }
        Ok(Self { jobs, counters: Arc::default() })
    }

    /// Hands a question to a thread.
    ///
    /// # Errors
    /// [`Busy`] when the queue is full.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        work: impl FnOnce(&StillWanted) -> T + Send + 'static,
    ) -> Result<PendingAnswer<T>, Busy> {
        let (told, answer) = oneshot::channel();
        let wanted = StillWanted::default();
        let asked = wanted.clone();
        let job: Job = Box::new(move || {
            if asked.is_wanted() {
                // Whoever asked may have left meanwhile.
                let _left = told.send(work(&asked));
            }
        });
        match self.jobs.try_send(job) {
            Ok(()) => Ok(PendingAnswer { answer, wanted, counters: Arc::clone(&self.counters), done: false }),
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                Err(Busy)
            }
        }
    }

    /// What it has done.
    pub(crate) fn counters(&self) -> &PoolCounters {
        &self.counters
    }
}

fn work(waiting: &Mutex<Receiver<Job>>) {
    loop {
        let job = waiting.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(job) = job else { return };
        // A fault in one question ends that question; its caller sees that no answer came.
        let _fault = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn one_more_than_fits_is_refused_and_who_leaves_is_not_answered() {
        let pool = Pool::start(1, 1).unwrap();
        let (go, gate) = channel::<()>();
        let (begun, started) = channel::<()>();
        let first = pool.submit(move |wanted| {
            begun.send(()).unwrap();
            gate.recv().unwrap();
            wanted.is_wanted()
        });
        let first = first.unwrap();
        started.recv().unwrap();
        let second = pool.submit(|_| 2).unwrap();
        assert_eq!(pool.submit(|_| 3).err(), Some(Busy));
        drop(second);
        go.send(()).unwrap();
        assert_eq!(first.answer().await, Some(true));
        let third = loop {
            // The thread may not have taken the abandoned one off the queue yet.
            if let Ok(third) = pool.submit(|_| 3) {
                break third;
            }
            thread::yield_now();
        };
        assert_eq!(third.answer().await, Some(3));
        let failing = pool.submit(|_| -> u8 { std::panic::resume_unwind(Box::new("fault")) }).unwrap();
        assert_eq!(failing.answer().await, None);
        let counters = pool.counters();
        assert!(counters.refused.load(Ordering::Relaxed) >= 1);
        assert_eq!(counters.given_up.load(Ordering::Relaxed), 1);
    }
}
