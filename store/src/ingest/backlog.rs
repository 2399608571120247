//! Owns the records that are logged and not counted yet: in their order, from the thread that logs to the one that counts.
//!
//! Logging a frame takes microseconds, counting it a thousand times as long where the hours of all containers end at once.
//! An acknowledgement promises that nothing is lost, which is true once the record is durable; so that it need not wait for
//! what others have to be counted for, counting follows in its own time, behind by at most [`MOST_BYTES`].

use std::collections::VecDeque;
use std::mem;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::outcome::Mark;
use super::record::IngestEntry;
use crate::key::StreamKey;

/// Bytes of records that may wait: half a minute of 300,000 busy containers.
const MOST_BYTES: usize = 128 << 20;

/// A record of the log that is not counted yet.
#[derive(Debug)]
pub(crate) struct Logged {
    /// Its number in the log.
    pub(crate) seq: u64,
    pub(crate) mark: Mark,
    pub(crate) received_usec: u64,
    pub(crate) entry: IngestEntry,
    /// Its size in the log, and what it takes in memory beside.
    pub(crate) bytes: usize,
}

/// A frame that turned out to be unreadable when it was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unreadable {
    pub(crate) key: StreamKey,
    pub(crate) sequence: u64,
    pub(crate) mark: Mark,
    pub(crate) why: String,
}

/// The records between the two threads.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    waiting: Mutex<PendingRecords>,
    /// A record has come, or the last one.
    arrived: Condvar,
    /// A record was counted, or none will be any more.
    counted: Condvar,
}

#[derive(Debug, Default)]
struct PendingRecords {
    records: VecDeque<Logged>,
    /// Of all that are not counted, those in the counting thread's hands included.
    bytes: usize,
    /// The newest that was logged, and the newest that was counted.
    logged: Mark,
    counted: Mark,
    unreadable: Vec<Unreadable>,
    /// No more come.
    is_closed: bool,
    /// Nobody counts any more.
    is_abandoned: bool,
}

/// Held by whoever counts: once it is dropped nobody waits for him.
#[derive(Debug)]
pub(crate) struct Counting<'a>(&'a Backlog);

impl Backlog {
    fn waiting(&self) -> MutexGuard<'_, PendingRecords> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a record at the end.
    pub(crate) fn push(&self, record: Logged) {
        let mut waiting = self.waiting();
        waiting.bytes += record.bytes;
        waiting.logged = record.mark;
        waiting.records.push_back(record);
        drop(waiting);
        self.arrived.notify_one();
    }

    /// Bytes that are not counted yet.
    pub(crate) fn bytes(&self) -> usize {
        self.waiting().bytes
    }

    /// Whether nobody counts any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.waiting().is_abandoned
    }

    /// Waits for room for one more record, for so long at most; whether there is.
    pub(crate) fn has_room(&self, within: Duration) -> bool {
        self.until(within, |waiting| waiting.bytes < MOST_BYTES)
    }

    /// Waits until everything up to a mark is counted, for so long at most; whether it is.
    pub(crate) fn is_counted(&self, upto: Mark, within: Duration) -> bool {
        self.until(within, |waiting| waiting.counted >= upto)
    }

    fn until(&self, within: Duration, is_so: impl Fn(&PendingRecords) -> bool) -> bool {
        let deadline = Instant::now() + within;
        let mut waiting = self.waiting();
        while !is_so(&waiting) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || waiting.is_abandoned {
                return false;
            }
            let woken = self.counted.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner);
            waiting = woken.0;
        }
        true
    }

    /// Waits until everything is counted; false where nobody counts any more.
    pub(crate) fn drain(&self) -> bool {
        let upto = self.waiting().logged;
        while !self.is_counted(upto, Duration::from_secs(1)) {
            if self.waiting().is_abandoned {
                return false;
            }
        }
        true
    }

    /// What could not be read since this was last asked.
    pub(crate) fn unreadable(&self) -> Vec<Unreadable> {
        mem::take(&mut self.waiting().unreadable)
    }

    /// No more records come.
    pub(crate) fn close(&self) {
        self.waiting().is_closed = true;
        self.arrived.notify_all();
    }

    /// Begins to count.
    pub(crate) fn counting(&self) -> Counting<'_> {
        Counting(self)
    }
}

impl Counting<'_> {
    /// Waits for records and takes all there are; nothing once no more come.
    pub(crate) fn next(&self) -> Option<VecDeque<Logged>> {
        let mut waiting = self.0.waiting();
        while waiting.records.is_empty() {
            if waiting.is_closed {
                return None;
            }
            waiting = self.0.arrived.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        Some(mem::take(&mut waiting.records))
    }

    /// A record of so many bytes is counted.
    pub(crate) fn counted(&self, mark: Mark, bytes: usize, unreadable: Option<Unreadable>) {
        let mut waiting = self.0.waiting();
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
        waiting.counted = mark;
        waiting.unreadable.extend(unreadable);
        drop(waiting);
        self.0.counted.notify_all();
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        self.0.waiting().is_abandoned = true;
        self.0.counted.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(seq: u64, bytes: usize) -> Logged {
        let key = StreamKey { cluster: "c".into(), node: "n".into(), epoch: 1 };
        Logged { seq, mark: Mark(seq), received_usec: 0, entry: IngestEntry::Retired(key), bytes }
    }

    const NOW: Duration = Duration::ZERO;

    #[test]
    fn records_are_counted_in_their_order_and_bounded_in_bytes() {
        let backlog = Backlog::default();
        let counting = backlog.counting();
        assert!(backlog.has_room(NOW) && backlog.is_counted(Mark(0), NOW));
        backlog.push(record(1, MOST_BYTES - 1));
        assert!(backlog.has_room(NOW), "one byte is left");
        backlog.push(record(2, 1));
        assert!(!backlog.has_room(NOW));
        let taken: Vec<u64> = counting.next().unwrap().iter().map(|record| record.seq).collect();
        assert_eq!(taken, [1, 2]);
        assert!(!backlog.has_room(NOW), "they are in somebody's hands and not counted yet");
        counting.counted(Mark(1), MOST_BYTES - 1, None);
        assert!(backlog.has_room(NOW) && backlog.is_counted(Mark(1), NOW));
        assert!(!backlog.is_counted(Mark(2), NOW));
        counting.counted(Mark(2), 1, None);
        assert!(backlog.drain() && backlog.bytes() == 0);
        backlog.close();
        assert!(counting.next().is_none());
    }

    #[test]
    fn nobody_waits_for_a_thread_that_has_ended() {
        let backlog = Backlog::default();
        drop(backlog.counting());
        backlog.push(record(1, 10));
        assert!(!backlog.drain() && !backlog.is_counted(Mark(1), Duration::from_secs(3600)));
    }
}
