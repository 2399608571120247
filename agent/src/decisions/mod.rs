//! The decision log: every change made, refused or only proposed, with its reason and its numbers.
//!
//! Owned here: numbering (growing by one, also across restarts), the bounded log on disk, a small ring in memory
//! that keeps answering when the disk does not, and the two ways out: live watchers and the stream's queue. Not
//! owned: what is decided.

mod draft;

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};

use evenkeel_log::{Log, LogError, Options, Overflow, Reader, Seq};
use evenkeel_model::decision::{Decision, DecisionKind};
use tokio::sync::broadcast;

pub(crate) use draft::Draft;

use crate::shared::{Stats, Tracked, lock};

/// Decisions kept in memory, for when the disk does not answer.
const RING: usize = 256;
/// Decisions a slow watcher may lag behind before it is told how many it missed.
const WATCH_CAP: usize = 256;
/// Decisions that may wait for the stream; the oldest go first, counted.
const STREAM_CAP: usize = 4096;
/// OOM kills remembered for `ListOomKills`.
const OOM_KILLS: usize = 256;
/// Bound of the log on disk, bytes: about 60,000 decisions.
const DISK_BYTES: u64 = 16 << 20;

/// Records decisions; shared by all threads.
pub(crate) struct DecisionLog {
    inner: Mutex<Inner>,
    live: broadcast::Sender<Arc<Decision>>,
}

struct Inner {
    next: u64,
    disk: Option<Disk>,
    ring: VecDeque<Arc<Decision>>,
    for_stream: VecDeque<Arc<Decision>>,
    streamed: bool,
    oom_kills: VecDeque<Arc<Decision>>,
    /// The last failure of the disk was logged and nothing has been stored since.
    complained: bool,
}

struct Disk {
    log: Log,
    /// Largest difference between a decision's number and its record's, which grows when the disk refuses one.
    lead: u64,
}

/// Decisions from one number on, oldest first: those on disk, then those of the ring that the disk lacks.
pub(crate) struct History {
    from: u64,
    disk: Option<Reader>,
    ring: VecDeque<Arc<Decision>>,
}

impl DecisionLog {
    /// A log kept in `dir`, going on after its last number. `streamed` says that somebody takes decisions for the
    /// stream; otherwise none are queued.
    ///
    /// # Errors
    /// When the directory cannot be used or another agent has it open.
    pub(crate) fn open(dir: &Path, streamed: bool) -> Result<Self, LogError> {
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
        let mut oom_kills = VecDeque::new();
        let mut last: Option<(u64, u64)> = None;
        if let Some(first) = log.first() {
            for record in log.iter_from(first).flatten() {
                let Ok(decision) = serde_json::from_slice::<Decision>(&record.payload) else { continue };
                last = Some((decision.seq, record.seq.get()));
                if decision.kind == DecisionKind::OomKill {
                    push_bounded(&mut oom_kills, Arc::new(decision), OOM_KILLS);
                }
            }
        }
        let lead = last.map_or(0, |(decision, record)| decision.saturating_sub(record));
        let next = last.map_or(1, |(decision, _)| decision.saturating_add(1));
        let next = next.max(log.last().map_or(1, |seq| seq.get().saturating_add(1)));
        Ok(Self::with(next, Some(Disk { log, lead }), oom_kills, streamed))
    }

    /// A log in memory alone, for a run that may not keep state.
    pub(crate) fn in_memory() -> Self {
        Self::with(1, None, VecDeque::new(), true)
    }

    fn with(next: u64, disk: Option<Disk>, oom_kills: VecDeque<Arc<Decision>>, streamed: bool) -> Self {
        let inner = Inner {
            next,
            disk,
            ring: VecDeque::new(),
            for_stream: VecDeque::new(),
            streamed,
            oom_kills,
            complained: false,
        };
        Self { inner: Mutex::new(inner), live: broadcast::Sender::new(WATCH_CAP) }
    }

    /// Records one decision made now; returns it with its number.
    pub(crate) fn record(&self, draft: Draft, stats: &Stats) -> Arc<Decision> {
        let mut inner = lock(&self.inner);
        let decision = Arc::new(draft.finish(inner.next, now_usec()));
        inner.next += 1;
        stats.decisions.add(1);
        inner.store(&decision, stats);
        push_bounded(&mut inner.ring, Arc::clone(&decision), RING);
        if inner.streamed && push_bounded(&mut inner.for_stream, Arc::clone(&decision), STREAM_CAP) {
            stats.decisions_not_streamed.add(1);
        }
        if decision.kind == DecisionKind::OomKill {
            push_bounded(&mut inner.oom_kills, Arc::clone(&decision), OOM_KILLS);
        }
        // Sent under the lock, so that watchers see numbers in order. Without watchers there is nobody to send to.
        let _ = self.live.send(Arc::clone(&decision));
        decision
    }

    /// Records that processes of a container were killed: `killed` since the last look, `total` since its cgroup
    /// was made.
    pub(crate) fn record_oom_kill(&self, tracked: &Tracked, killed: u64, total: u64, stats: &Stats) {
        let class = tracked.classes.memory.map_or("unclassified", |class| class.as_str());
        let draft = Draft::of(
            &tracked.workload,
            DecisionKind::OomKill,
            format!("the OOM killer killed {killed} of this {class} container's processes"),
        )
        .input("killed", killed)
        .input("total", total)
        .input("class", class)
        .input("cgroup", &tracked.cgroup);
        self.record(draft, stats);
        self.flush(stats);
    }

    /// Writes what was recorded to the kernel; called once per pass.
    pub(crate) fn flush(&self, stats: &Stats) {
        let mut inner = lock(&self.inner);
        let Some(disk) = inner.disk.as_mut() else { return };
        let result = disk.log.flush();
        if let Some(dropped) = disk.log.take_dropped() {
            tracing::debug!(first = %dropped.first, last = %dropped.last, "old decisions made room for new ones");
        }
        inner.judge(result.err(), stats);
    }

    /// Makes everything durable, before the agent ends.
    pub(crate) fn sync(&self, stats: &Stats) {
        let mut inner = lock(&self.inner);
        let result = inner.disk.as_mut().and_then(|disk| disk.log.sync().err());
        inner.judge(result, stats);
    }

    /// Everything from number `from` on, and the live decisions after it.
    pub(crate) fn watch(&self, from: u64) -> (History, broadcast::Receiver<Arc<Decision>>) {
        let mut inner = lock(&self.inner);
        // The reader sees flushed records only.
        let flushed = inner.disk.as_mut().is_some_and(|disk| disk.log.flush().is_ok());
        let disk = inner.disk.as_ref().filter(|_| flushed).map(|disk| {
            let first = Seq::new(from.saturating_sub(disk.lead).max(1)).expect("at least 1");
            disk.log.iter_from(first)
        });
        let history = History { from, disk, ring: inner.ring.clone() };
        (history, self.live.subscribe())
    }

    /// The number the next decision gets.
    pub(crate) fn next_seq(&self) -> u64 {
        lock(&self.inner).next
    }

    /// Takes up to `max` decisions for the stream, oldest first.
    pub(crate) fn take_for_stream(&self, max: usize) -> Vec<Arc<Decision>> {
        let queue = &mut lock(&self.inner).for_stream;
        let count = queue.len().min(max);
        queue.drain(..count).collect()
    }

    /// OOM kills remembered, oldest first.
    pub(crate) fn oom_kills(&self) -> Vec<Arc<Decision>> {
        lock(&self.inner).oom_kills.iter().cloned().collect()
    }
}

impl Inner {
    fn store(&mut self, decision: &Decision, stats: &Stats) {
        let Some(disk) = self.disk.as_mut() else { return };
        let Ok(payload) = serde_json::to_vec(decision) else { return };
        let result = disk.log.append(&payload);
        if let Ok(seq) = result {
            disk.lead = disk.lead.max(decision.seq.saturating_sub(seq.get()));
        }
        if result.is_err() {
            stats.decisions_not_stored.add(1);
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

impl History {
    /// Up to `max` more decisions; empty at the end.
    pub(crate) fn next_chunk(&mut self, max: usize) -> Vec<Arc<Decision>> {
        let mut chunk = Vec::new();
        while chunk.len() < max {
            match self.disk.as_mut().and_then(Iterator::next) {
                Some(Ok(record)) => match serde_json::from_slice::<Decision>(&record.payload) {
                    Ok(decision) if decision.seq >= self.from => {
                        self.from = decision.seq + 1;
                        chunk.push(Arc::new(decision));
                    }
                    Ok(_) => {}
                    Err(error) => tracing::debug!(%error, "ignoring a stored decision that does not read"),
                },
                // Trimmed meanwhile: the reader goes on with the oldest one stored.
                Some(Err(LogError::Trimmed { .. })) => {}
                Some(Err(_)) | None => {
                    self.disk = None;
                    break;
                }
            }
        }
        while self.disk.is_none() && chunk.len() < max {
            match self.ring.pop_front() {
                Some(decision) if decision.seq >= self.from => chunk.push(decision),
                Some(_) => {}
                None => break,
            }
        }
        chunk
    }
}

/// Appends, dropping the oldest when full; true when one was dropped.
fn push_bounded<T>(queue: &mut VecDeque<T>, item: T, cap: usize) -> bool {
    let full = queue.len() >= cap;
    if full {
        queue.pop_front();
    }
    queue.push_back(item);
    full
}

/// Wall-clock time in microseconds since 1970; zero on a clock set before that.
pub(crate) fn now_usec() -> u64 {
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
        let (mut history, _) = log.watch(from);
        std::iter::from_fn(|| Some(history.next_chunk(7)).filter(|c| !c.is_empty()))
            .flatten()
            .map(|d| d.seq)
            .collect()
    }

    #[test]
    fn numbers_go_on_after_a_restart_and_history_comes_from_disk() {
        let dir = tempfile::tempdir().unwrap();
        let stats = Stats::default();
        let log = DecisionLog::open(dir.path(), true).unwrap();
        for n in 0..3 {
            log.record(note(n), &stats);
        }
        assert_eq!(all(&log, 0), [1, 2, 3]);
        drop(log);
        let log = DecisionLog::open(dir.path(), true).unwrap();
        log.record(note(3), &stats);
        assert_eq!(all(&log, 0), [1, 2, 3, 4]);
        assert_eq!(all(&log, 3), [3, 4]);
    }

    #[test]
    fn memory_is_bounded_and_drops_are_counted() {
        let stats = Stats::default();
        let log = DecisionLog::in_memory();
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
        let _log = DecisionLog::open(dir.path(), true).unwrap();
        assert!(matches!(DecisionLog::open(dir.path(), true), Err(LogError::Locked { .. })));
    }
}
