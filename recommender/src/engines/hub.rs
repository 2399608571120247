//! Owns all engines of the configuration while the program runs: opens them, starts their threads, ends them.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::counters::Counters;
use super::worker::{self, Queue};
use super::{OpenError, open};
use crate::config::EngineSection;
use crate::history::exchange::Batch;

/// Values taken in at once: who takes them holds others up meanwhile.
const TAKEN: usize = 500;
/// How often a thread that is to end is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// The engines at work.
#[derive(Debug, Default)]
pub struct Hub {
    queues: Vec<Arc<Queue>>,
    threads: Vec<JoinHandle<()>>,
}

impl Hub {
    /// Opens every engine and starts its threads. What an engine has from one minute (since 1970 UTC) to another goes to
    /// `sink`, from a thread of each engine; of what is older than `recent` minutes only days. An engine that does not
    /// answer holds nothing up.
    ///
    /// # Errors
    /// When a section cannot be used, a secret is not there, or the system gives no thread.
    pub fn start(
        sections: &[EngineSection],
        span: (u32, u32),
        recent: u32,
        sink: &Arc<dyn Fn(Batch) + Send + Sync>,
    ) -> Result<Self, OpenError> {
        let mut hub = Self::default();
        for section in sections {
            let counters = Arc::new(Counters::default());
            let engine = open(section, recent, &counters)?;
            let room = if section.write { section.queue } else { 0 };
            let queue = Arc::new(Queue::new(engine.name(), room, Arc::clone(&counters)));
            info!(engine = engine.name(), write = section.write, read = section.read, "an engine outside");
            if section.read {
                let engine = open(section, recent, &counters)?;
                let sink = Arc::clone(sink);
                hub.threads.push(worker::read(
                    engine,
                    Arc::clone(&queue),
                    span,
                    move |batch| in_pieces(batch, sink.as_ref()),
                    |_| {},
                )?);
            }
            if section.write {
                hub.threads.push(worker::write(engine, Arc::clone(&queue))?);
            }
            hub.queues.push(queue);
        }
        Ok(hub)
    }

    /// Where values wait, an entry an engine.
    pub fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.queues.iter()
    }

    /// Lets what waits be written and the threads end; no longer than `within`, after which what still waits is left.
    /// The own store has it.
    pub fn stop(self, within: Duration) {
        self.queues.iter().for_each(|queue| queue.stop());
        let deadline = Instant::now() + within;
        while !self.threads.iter().all(JoinHandle::is_finished) {
            if Instant::now() >= deadline {
                warn!("an engine did not take what waited for it in time");
                return;
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn in_pieces(batch: Batch, sink: &(dyn Fn(Batch) + Send + Sync)) {
    worker::pieces(batch, TAKEN).into_iter().for_each(sink);
}
