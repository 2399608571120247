//! The sampler: one tick a second over every tracked container.
//!
//! Owned here: the thread, its deadlines, how late it was, which containers have a reader, and the buffers that go
//! round between this thread and the report thread. Not owned: kernel files (`evenkeel_host::sampler`), the list of
//! containers (the reconciler). It never writes, never waits for another thread, and allocates nothing on a tick
//! without changes.
//!
//! Where the report thread is so far behind that no buffer is left, the tick is not sampled at all: the next one
//! then carries the interval since the last one that was handed over, so that no time is counted twice or lost.

#[cfg(test)]
mod allocations;
mod clock;
mod readers;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_enforce::shared::{Heartbeat, TrackChange, Waker};
use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::roots::Roots;
use evenkeel_host::sampler::{Descriptors, Plan, SampleContext, descriptors_needed, raise_nofile};

use crate::shared::{Context, Tick};

use clock::{Clock, Due};
use readers::Readers;

/// Buffers that go round: one being filled, one being reported, two for a report thread that folds its spool.
const BUFFERS: usize = 4;

/// How long containers that follow the first one known are waited for before the first tick: a source lists them together.
const TOGETHER: Duration = Duration::from_millis(30);
/// How often the wait for that one looks whether the agent is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// Containers whose files can be kept open without being asked for more descriptors: a large node.
const CONTAINERS: u64 = 4096;

/// The report thread's ends of the sampler's channels.
pub(crate) struct Ticks {
    /// Full buffers, oldest first.
    pub full: Receiver<Tick>,
    /// Emptied buffers for reuse.
    pub empty: SyncSender<Tick>,
}

/// The sampler's own ends.
struct Ends {
    full: SyncSender<Tick>,
    empty: Receiver<Tick>,
}

/// Starts the sample thread.
///
/// # Errors
/// When the cgroup tree cannot be opened or the thread cannot be made.
pub(crate) fn start(
    context: &Arc<Context>,
    changes: Receiver<TrackChange>,
    heartbeat: Arc<Heartbeat>,
) -> anyhow::Result<(JoinHandle<()>, Ticks)> {
    let roots = &context.config.enforce.roots;
    let tree = CgroupTree::open(&Roots::new(&roots.proc, &roots.cgroup))
        .context("cannot open the cgroup tree for sampling")?;
    let nofile = raise_nofile(descriptors_needed(tree.layout(), CONTAINERS))?;
    if !nofile.is_enough() {
        tracing::warn!(
            limit = nofile.limit,
            wanted = nofile.wanted,
            "too few descriptors to keep every container's files open on a large node; the rest is opened at each \
             tick, at five times the CPU: raise LimitNOFILE or grant CAP_SYS_RESOURCE"
        );
    }
    let kernel = SampleContext::new(Arc::new(tree), Descriptors::within(nofile.limit), Plan::default())
        .with_networks(&Roots::new(&roots.proc, &roots.cgroup));
    let mut sampler = Sampler {
        context: Arc::clone(context),
        readers: Readers::new(kernel),
        changes,
        first: None,
        ticks: 0,
        clock: Clock::start(context.config.sample.interval),
    };
    let (ends, ticks) = channels();
    let bell = Waker::new().context("cannot make the sampler's waker")?;
    context.enforce.stop.register(bell.clone());
    let work = move || {
        sampler.await_first(&heartbeat);
        while !sampler.context.enforce.stop.is_set() {
            heartbeat.beat();
            let Some(due) = sampler.clock.wait(&bell) else { continue };
            sampler.due(due, &ends);
        }
    };
    let thread = thread::Builder::new().name("sample".to_owned()).spawn(work);
    Ok((thread.context("cannot start the sample thread")?, ticks))
}

/// Makes both channels and puts the empty buffers into circulation.
fn channels() -> (Ends, Ticks) {
    let (full, full_out) = sync_channel(BUFFERS);
    let (empty_in, empty) = sync_channel(BUFFERS);
    for _ in 0..BUFFERS {
        // There is room for all of them.
        let _ignored = empty_in.try_send(Tick::default());
    }
    (Ends { full, empty }, Ticks { full: full_out, empty: empty_in })
}

struct Sampler {
    context: Arc<Context>,
    readers: Readers,
    changes: Receiver<TrackChange>,
    /// The change that ended the wait for the first tick, until that takes it in.
    first: Option<TrackChange>,
    /// Ticks so far; picks the files that are read although nothing moved.
    ticks: u64,
    clock: Clock,
}

impl Sampler {
    /// Waits until there is something to sample, an interval at most: then the first tick is due.
    fn await_first(&mut self, heartbeat: &Heartbeat) {
        while !self.context.enforce.stop.is_set() && !self.clock.left().is_zero() {
            heartbeat.beat();
            match self.changes.recv_timeout(self.clock.left().min(LOOK)) {
                Ok(change) => {
                    self.first = Some(change);
                    self.clock.hasten(TOGETHER);
                    return;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// One tick: take a buffer, take changes in, read, hand over.
    fn due(&mut self, due: Due, ends: &Ends) {
        let stats = &self.context.stats;
        stats.ticks_missed.add(due.missed);
        stats.tick_lateness.observe(due.lateness_usec);
        let Ok(mut tick) = ends.empty.try_recv() else {
            stats.ticks_dropped.add(1);
            return;
        };
        tick.time_usec = due.time_usec;
        tick.lateness_usec = due.lateness_usec;
        tick.samples.clear();
        tick.traffic.clear();
        tick.changes.clear();
        let more = || self.changes.try_recv().ok();
        for change in self.first.take().into_iter().chain(std::iter::from_fn(more)) {
            self.readers.change(&change, stats);
            tick.changes.push(change);
        }
        self.ticks = self.ticks.wrapping_add(1);
        let into = (&mut tick.samples, &mut tick.traffic);
        self.readers.read_all(self.ticks, || self.clock.now(), into, stats);
        stats.ticks.add(1);
        stats.sampled_containers.set(tick.samples.len() as u64);
        stats.samples.add(tick.samples.len() as u64);
        match ends.full.try_send(tick) {
            Ok(()) => {}
            // As many buffers as places: it cannot be full. Without a reader the agent is ending.
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => stats.ticks_dropped.add(1),
        }
    }
}

/// Microseconds, saturating, of a time that is short anyway.
fn usec(duration: Duration) -> u64 {
    evenkeel_enforce::shared::micros(duration)
}
