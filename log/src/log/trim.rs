//! Deleting from the old end: what the caller no longer needs, and what the bound demands.

use super::Log;
use crate::quarantine::remove_if_there;
use crate::{LogError, Seq, segment};

/// Records deleted because the log reached its bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// The oldest of them.
    pub first: Seq,
    /// The newest of them.
    pub last: Seq,
    /// Bytes of their segments.
    pub bytes: u64,
}

/// What a trim deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trimmed {
    /// Number of segments.
    pub segments: usize,
    /// Their bytes.
    pub bytes: u64,
}

impl Log {
    /// What was dropped to make room since this was last asked ([`DropOldest`](crate::Overflow::DropOldest)).
    #[must_use = "records were lost, and somebody should hear of it"]
    pub fn take_dropped(&mut self) -> Option<Dropped> {
        self.dropped.take()
    }

    /// Deletes the segments all of whose records are at or below `seq`. The active segment is closed for it once it
    /// is half full. Records that stay are not touched, so some at or below `seq` may be seen again after opening.
    ///
    /// # Errors
    /// A system call's failure; what was to be deleted is deleted by a later trim or opening.
    pub fn trim_to(&mut self, seq: Seq) -> Result<Trimmed, LogError> {
        self.trim(seq, self.options.segment_bytes / 2)
    }

    /// Likewise, but the active segment is closed whenever it holds a record: on a full disk every byte counts.
    ///
    /// # Errors
    /// As [`trim_to`](Self::trim_to).
    pub fn trim_closing(&mut self, seq: Seq) -> Result<Trimmed, LogError> {
        self.trim(seq, 0)
    }

    /// Trims; the active segment is closed once it has this many bytes.
    fn trim(&mut self, seq: Seq, close_at: u64) -> Result<Trimmed, LogError> {
        self.trusted()?;
        if Some(seq) >= self.last()
            && self.next > self.active.first
            && self.active_bytes() >= close_at
            && self.write_buffer().is_ok()
        {
            // Closing it only frees space sooner; where it fails, say on a full disk, the rest is trimmed all the same.
            let _ignored = self.roll();
        }
        let count = {
            let state = self.shared.state();
            // The active segment is always kept, so that the log has a place to go on.
            state.segments.partition_point(|s| s.next <= seq.next()).min(state.segments.len() - 1)
        };
        self.remove_oldest(count)
    }

    /// Deletes the oldest closed segments until `need` more bytes are within the bound.
    pub(super) fn drop_oldest(&mut self, need: u64) -> Result<(), LogError> {
        let excess = (self.bytes() + need).saturating_sub(self.options.max_bytes);
        if excess == 0 {
            return Ok(());
        }
        let (count, first) = {
            let state = self.shared.state();
            let closed = state.segments.len() - 1;
            let (mut count, mut bytes) = (0, 0);
            while count < closed && bytes < excess {
                bytes += state.segments[count].bytes;
                count += 1;
            }
            (count, state.segments[0].first)
        };
        let bytes_before = self.closed_bytes;
        let done = self.remove_oldest(count);
        // Also after a failure: what is gone by then is to be told.
        let last = self.shared.state().segments[0].first.prev();
        if let Some(last) = last.filter(|last| *last >= first) {
            let before = self.dropped.take();
            self.dropped = Some(Dropped {
                first: before.map_or(first, |d| d.first),
                last,
                bytes: bytes_before - self.closed_bytes + before.map_or(0, |d| d.bytes),
            });
        }
        done.map(|_| ())
    }

    /// Deletes the `count` oldest segments: first the pointer, durably, then the files.
    fn remove_oldest(&mut self, count: usize) -> Result<Trimmed, LogError> {
        let mut trimmed = Trimmed::default();
        if count == 0 {
            return Ok(trimmed);
        }
        let (first, created, names_behind) = {
            let state = self.shared.state();
            (state.segments[count].first, state.created, state.created > state.created_durable)
        };
        if names_behind {
            self.sync_handle().sync_names(created)?;
        }
        self.head.set(&*self.shared.disk, first)?;
        for _ in 0..count {
            let oldest = self.shared.state().segments[0].first;
            remove_if_there(&segment::path(&self.shared.dir, oldest))?;
            if let Some(gone) = self.shared.state().segments.pop_front() {
                self.closed_bytes -= gone.bytes;
                trimmed.segments += 1;
                trimmed.bytes += gone.bytes;
            }
        }
        Ok(trimmed)
    }
}
