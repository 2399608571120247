//! The decision log: every change made, refused or only proposed, with its reason and its numbers.
//!
//! Owned here: numbering (growing by one, also across restarts), the bounded log on disk, a small ring in memory
//! that keeps answering when the disk does not, and the ways out: live watchers, the stream's queue, and for what
//! must arrive a keeper of its own ([`KeepsDecisions`]). Not owned: what is decided.

mod draft;
mod history;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use evenkeel_log::{Log, LogError, Options, Overflow, Seq, SyncHandle};
use evenkeel_model::decision::{Decision, DecisionKind};

pub use draft::{Draft, result_of, result_of_error};

use crate::shared::lock;
use crate::stats::Stats;
pub use history::History;
use history::{push_bounded, remember};

/// Decisions kept in memory, for when the disk does not answer.
const RING: usize = 256;
/// Decisions that may wait for the stream; the oldest go first, counted.
const STREAM_CAP: usize = 4096;
/// OOM kills remembered for `ListOomKills`, and rulings for `ListEvictions`.
const REMEMBERED: usize = 256;
/// Bound of the log on disk, bytes: about 60,000 decisions.
const DISK_BYTES: u64 = 16 << 20;

/// Kinds that must arrive.
pub const fn must_arrive(kind: DecisionKind) -> bool {
    use DecisionKind::{Evict, Kill, OomKill, Restart};
    matches!(kind, OomKill | Kill | Evict | Restart)
}

/// Keeps decisions that must arrive until they have.
pub trait KeepsDecisions: Send + Sync {
    /// Keeps one.
    ///
    /// # Errors
    /// When it could not be written; it is kept in memory all the same.
    fn add(&self, decision: &Decision) -> Result<(), LogError>;

    /// What makes it durable, where something is not yet; to be used without holding a lock.
    fn unsynced(&self) -> Option<SyncHandle>;
}

/// Told each decision while the log is locked: it must not block, and must not record another.
pub type Tell = Box<dyn Fn(&Arc<Decision>) + Send + Sync>;

/// Records decisions; shared by all threads.
pub struct DecisionLog {
    inner: Mutex<DecisionLogState>,
    /// Called with each decision, in the order of their numbers.
    tell: Tell,
    /// Keeps what must arrive, where somebody takes decisions for a stream.
    kept: Option<Arc<dyn KeepsDecisions>>,
}

struct DecisionLogState {
    next: u64,
    disk: Option<Disk>,
    ring: VecDeque<Arc<Decision>>,
    /// As they are stored, which takes a quarter of the room: thousands wait when an agent starts, and would leave holes in the heap.
    for_stream: VecDeque<Box<[u8]>>,
    oom_kills: VecDeque<Arc<Decision>>,
    rulings: VecDeque<Arc<Decision>>,
    /// The last failure of the disk was logged and nothing has been stored since.
    complained: bool,
}

struct Disk {
    log: Log,
    /// Largest difference between a decision's number and its record's, which grows when the disk refuses one.
    lead: u64,
}

impl DecisionLog {
    /// A log kept in `dir`, going on after its last number. `kept` says that somebody takes decisions for the stream;
    /// otherwise none are queued. `tell` hears of each decision.
    ///
    /// # Errors
    /// When the directory cannot be used or another agent has it open.
    pub fn open(dir: &Path, kept: Option<Arc<dyn KeepsDecisions>>, tell: Tell) -> Result<Self, LogError> {
        let options = Options {
            segment_bytes: DISK_BYTES / 8,
            max_bytes: DISK_BYTES,
            max_record_bytes: 64 << 10,
            buffer_bytes: 64 << 10,
            overflow: Overflow::DropOldest,
            ..Options::default()
        };
        let (log, recovery) = Log::open(dir, options)?;
        for damage in &recovery.damage {
            tracing::warn!(%damage, "the decision log was damaged; what is before the damage is kept");
        }
        let (mut oom_kills, mut rulings) = (VecDeque::new(), VecDeque::new());
        let mut last: Option<(u64, u64)> = None;
        if let Some(first) = log.first() {
            for record in log.iter_from(first).flatten() {
                let Ok(decision) = serde_json::from_slice::<Decision>(&record.payload) else { continue };
                last = Some((decision.seq, record.seq.get()));
                remember(Arc::new(decision), &mut oom_kills, &mut rulings);
            }
        }
        let lead = last.map_or(0, |(decision, record)| decision.saturating_sub(record));
        let next = last.map_or(1, |(decision, _)| decision.saturating_add(1));
        let next = next.max(log.last().map_or(1, |seq| seq.get().saturating_add(1)));
        Ok(Self::with(next, Some(Disk { log, lead }), oom_kills, rulings, kept, tell))
    }

    /// A log in memory alone that loses what must arrive.
    #[cfg(test)]
    pub(crate) fn for_tests() -> Self {
        Self::in_memory(Some(Arc::new(crate::testing::Lost)), Box::new(|_| ()))
    }

    /// A log in memory alone, for a run that may not keep state; `kept` as in [`open`](Self::open).
    pub fn in_memory(kept: Option<Arc<dyn KeepsDecisions>>, tell: Tell) -> Self {
        Self::with(1, None, VecDeque::new(), VecDeque::new(), kept, tell)
    }

    fn with(
        next: u64,
        disk: Option<Disk>,
        oom_kills: VecDeque<Arc<Decision>>,
        rulings: VecDeque<Arc<Decision>>,
        kept: Option<Arc<dyn KeepsDecisions>>,
        tell: Tell,
    ) -> Self {
        let inner = DecisionLogState {
            next,
            disk,
            ring: VecDeque::new(),
            for_stream: VecDeque::new(),
            oom_kills,
            rulings,
            complained: false,
        };
        Self { inner: Mutex::new(inner), tell, kept }
    }

    /// Records one decision made now; returns it with its number.
    pub fn record(&self, draft: Draft, stats: &Stats) -> Arc<Decision> {
        let mut inner = lock(&self.inner);
        let decision = Arc::new(draft.finish(inner.next, now_usec()));
        inner.next += 1;
        stats.decisions.add(1);
        let stored = serde_json::to_vec(&*decision).unwrap_or_default().into_boxed_slice();
        inner.store(decision.seq, &stored, stats);
        push_bounded(&mut inner.ring, Arc::clone(&decision), RING);
        if let Some(kept) = &self.kept {
            if must_arrive(decision.kind) {
                let kept = kept.add(&decision);
                inner.judge(kept.err(), stats);
                // Not merely buffered: it must survive this process.
                inner.flush(stats);
            } else if push_bounded(&mut inner.for_stream, stored, STREAM_CAP) {
                stats.decisions_not_streamed.add(1);
            }
        } else if must_arrive(decision.kind) {
            inner.flush(stats);
        }
        let DecisionLogState { oom_kills, rulings, .. } = &mut *inner;
        remember(Arc::clone(&decision), oom_kills, rulings);
        // Told under the lock, so that watchers see numbers in order.
        (self.tell)(&decision);
        decision
    }

    /// Writes what was recorded to the kernel; called once per pass.
    pub(crate) fn flush(&self, stats: &Stats) {
        lock(&self.inner).flush(stats);
    }

    /// Makes what must arrive durable, where it is not yet. Waits for the disk, but keeps nobody else from recording.
    pub fn make_durable(&self, stats: &Stats) {
        let Some(handle) = self.kept.as_ref().and_then(|kept| kept.unsynced()) else { return };
        let log = {
            let mut inner = lock(&self.inner);
            inner.flush(stats);
            inner.disk.as_ref().map(|disk| disk.log.sync_handle())
        };
        let synced = [Some(handle), log].into_iter().flatten().map(|handle| handle.sync().err());
        let failed = synced.fold(None, |failed, error| failed.or(error));
        if failed.is_some() {
            lock(&self.inner).judge(failed, stats);
        }
    }

    /// Makes everything durable, before the agent ends.
    pub fn sync(&self, stats: &Stats) {
        let mut inner = lock(&self.inner);
        let result = inner.disk.as_mut().and_then(|disk| disk.log.sync().err());
        inner.judge(result, stats);
    }

    /// Everything from number `from` on.
    pub fn history(&self, from: u64) -> History {
        self.watch(from, || ()).0
    }

    /// Everything from number `from` on, and what `subscribe` returns: it is called when each later decision, and none of
    /// these, will be told.
    pub fn watch<T>(&self, from: u64, subscribe: impl FnOnce() -> T) -> (History, T) {
        let mut inner = lock(&self.inner);
        // The reader sees flushed records only.
        let flushed = inner.disk.as_mut().is_some_and(|disk| disk.log.flush().is_ok());
        let disk = inner.disk.as_ref().filter(|_| flushed).map(|disk| {
            let first = Seq::new(from.saturating_sub(disk.lead).max(1)).expect("at least 1");
            disk.log.iter_from(first)
        });
        let history = History { from, disk, ring: inner.ring.clone() };
        (history, subscribe())
    }

    /// The number the next decision gets.
    pub fn next_seq(&self) -> u64 {
        lock(&self.inner).next
    }

    /// Takes up to `max` decisions for the stream, oldest first.
    pub fn take_for_stream(&self, max: usize) -> Vec<Arc<Decision>> {
        let taken: Vec<Box<[u8]>> = {
            let queue = &mut lock(&self.inner).for_stream;
            let count = queue.len().min(max);
            queue.drain(..count).collect()
        };
        taken.iter().filter_map(|stored| serde_json::from_slice(stored).ok()).map(Arc::new).collect()
    }

    /// OOM kills remembered, oldest first.
    pub fn oom_kills(&self) -> Vec<Arc<Decision>> {
        lock(&self.inner).oom_kills.iter().cloned().collect()
    }

    /// Rulings of the eviction policy remembered, oldest first.
    pub fn rulings(&self) -> Vec<Arc<Decision>> {
        lock(&self.inner).rulings.iter().cloned().collect()
    }
}

impl DecisionLogState {
    fn store(&mut self, number: u64, payload: &[u8], stats: &Stats) {
        let Some(disk) = self.disk.as_mut() else { return };
        let result = disk.log.append(payload);
        if let Ok(seq) = result {
            disk.lead = disk.lead.max(number.saturating_sub(seq.get()));
        }
        if result.is_err() {
            stats.decisions_not_stored.add(1);
        }
        self.judge(result.err(), stats);
    }

    /// Writes what was recorded to the kernel.
    fn flush(&mut self, stats: &Stats) {
        let Some(disk) = self.disk.as_mut() else { return };
        let result = disk.log.flush();
        if let Some(dropped) = disk.log.take_dropped() {
            tracing::debug!(first = %dropped.first, last = %dropped.last, "old decisions made room for new ones");
        }
        self.judge(result.err(), stats);
    }

    /// Says once that the disk fails and once that it works again.
    fn judge(&mut self, error: Option<LogError>, _stats: &Stats) {
        match error {
            Some(error) if !self.complained => {
                self.complained = true;
                tracing::error!(error = %error, "decisions cannot be stored; the newest are kept in memory");
            }
            None if self.complained => {
                self.complained = false;
                tracing::info!("decisions are stored again");
            }
            _ => {}
        }
    }
}

/// Wall-clock time in microseconds since 1970; zero on a clock set before that.
pub fn now_usec() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(n: u64) -> Draft {
        Draft::node(DecisionKind::Agent, format!("decision {n}"))
    }

    fn all(log: &DecisionLog, from: u64) -> Vec<u64> {
        let mut history = log.history(from);
        std::iter::from_fn(|| Some(history.next_chunk(7)).filter(|c| !c.is_empty()))
            .flatten()
            .map(|d| d.seq)
            .collect()
    }

    #[test]
    fn numbers_go_on_after_a_restart_and_history_comes_from_disk() {
        let dir = tempfile::tempdir().unwrap();
        let stats = Stats::default();
        let log = DecisionLog::open(dir.path(), None, Box::new(|_| ())).unwrap();
        for n in 0..3 {
            log.record(note(n), &stats);
        }
        assert_eq!(all(&log, 0), [1, 2, 3]);
        drop(log);
        let log = DecisionLog::open(dir.path(), None, Box::new(|_| ())).unwrap();
        log.record(note(3), &stats);
        assert_eq!(all(&log, 0), [1, 2, 3, 4]);
        assert_eq!(all(&log, 3), [3, 4]);
    }

    #[test]
    fn memory_is_bounded_and_drops_are_counted() {
        let stats = Stats::default();
        let log = DecisionLog::for_tests();
        for n in 0..5000 {
            log.record(note(n), &stats);
        }
        assert_eq!(all(&log, 0).len(), RING);
        assert_eq!(stats.decisions_not_streamed.get(), 5000 - STREAM_CAP as u64);
        assert_eq!(log.take_for_stream(10)[0].seq, 5000 - STREAM_CAP as u64 + 1);
    }

    #[test]
    fn only_one_agent_has_the_log() {
        let dir = tempfile::tempdir().unwrap();
        let _log = DecisionLog::open(dir.path(), None, Box::new(|_| ())).unwrap();
        assert!(matches!(
            DecisionLog::open(dir.path(), None, Box::new(|_| ())),
            Err(LogError::Locked { .. })
        ));
    }
}
