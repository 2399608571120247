//! Owns the engines outside while the program runs: a thread that writes to each, one that reads from it at start.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use super::store::SharedState;
use crate::config::Settings;
use crate::engines::worker::{self, Queue};
use crate::engines::{self, EngineCounters};
use crate::history::exchange::Batch;

/// Minutes of a day.
const DAY: u32 = 24 * 60;

/// The running engines.
#[derive(Debug, Default)]
pub struct Outside {
    queues: Vec<Arc<Queue>>,
    threads: Vec<JoinHandle<()>>,
    counts: Vec<Arc<EngineCounters>>,
}

impl Outside {
    /// Starts what is configured: from now on everything sealed is offered, and what an engine has of the time that is
    /// kept is taken in where nothing is here.
    pub fn start(config: &Settings, state: &SharedState, now_usec: u64) -> anyhow::Result<Self> {
        let mut outside = Self::default();
        for (number, section) in config.history.engines.iter().enumerate() {
            let counters = Arc::new(EngineCounters::default());
            let queue = Arc::new(Queue::new(section.queue, Arc::clone(&counters)));
            if section.write {
                let engine = engines::open(section, &counters)?;
                outside.threads.push(worker::write(engine, Arc::clone(&queue))?);
                state.offer_to(Arc::clone(&queue));
            }
            if section.read {
                let engine = engines::open(section, &counters)?;
                let now = u32::try_from(now_usec / 60_000_000).unwrap_or(u32::MAX);
                let minutes = u32::try_from(config.retention.days.minutes()).unwrap_or(u32::MAX);
                // From the beginning of a day: a part of one would be taken in as if it were all of it.
                let span = (now.saturating_sub(minutes) / DAY * DAY, now);
                let (into, done) = (state.clone(), state.clone());
                state.filling(now);
                let sink = move |batch: Batch| {
                    into.fill(number, &batch);
                };
                let reading = worker::read(engine, Arc::clone(&queue), span, sink, move |_| done.filled());
                outside.threads.push(reading?);
            }
            outside.counts.push(counters);
            outside.queues.push(queue);
        }
        Ok(outside)
    }

    /// Counts of each engine.
    pub fn counts(&self) -> &[Arc<EngineCounters>] {
        &self.counts
    }

    /// Ends the threads; what an engine does not take within this time it is not given any more.
    pub fn stop(self, within: Duration) {
        self.queues.iter().for_each(|queue| queue.stop());
        worker::join(&self.threads, within);
    }
}
