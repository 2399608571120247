//! The writer's side: appending, flushing, closing segments. Deleting them is in [`trim`].

mod trim;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, Kernel, write_all_at};
use crate::error::At;
use crate::format::{self, RECORD_HEADER, SEGMENT_HEADER, Seed};
use crate::head::TrimPointer;
use crate::lock::Lock;
use crate::open::{Opened, open};
use crate::shared::SharedLog;
use crate::sync::SyncHandle;
use crate::{LogError, LogReader, Options, Overflow, Recovery, Seq, segment};

pub use trim::{Dropped, Trimmed};

/// Closed segments that may wait for a sync; the writer syncs by itself before there are more.
const MAX_BEHIND: usize = 8;

/// An open log, owned by the one thread that appends.
///
/// Dropping it flushes what is buffered, as far as that succeeds; call [`sync`](Self::sync) before where it matters.
#[derive(Debug)]
pub struct Log {
    shared: Arc<SharedLog>,
    options: Options,
    head: TrimPointer,
    active: Active,
    /// Encoded records of the active segment that are not yet written.
    buffer: Vec<u8>,
    /// The number the next record gets.
    next: Seq,
    /// Bytes of all segments but the active one.
    closed_bytes: u64,
    dropped: Option<Dropped>,
    /// Whether what a failed sync left unproven has been cut off.
    discarded: bool,
    _lock: Lock,
}

/// The segment being appended to.
#[derive(Debug)]
struct Active {
    file: Arc<File>,
    first: Seq,
    seed: Seed,
    /// Bytes of whole records written, header included: where the next write goes.
    bytes: u64,
    /// A failed write may have left bytes after `bytes` that could not be cut off yet.
    ragged: bool,
}

impl Log {
    /// Opens the log in `dir`, creating it where there is none, and recovers its longest valid prefix.
    ///
    /// What is recovered is synced, so all of it is durable. Damage is no error; it is in the returned report, which
    /// the caller must show to somebody.
    ///
    /// # Errors
    /// [`LogError::Options`], [`LogError::Locked`], [`LogError::Version`], or a system call's failure. Nothing valid
    /// was changed then, and opening may be tried again.
    pub fn open(dir: impl AsRef<Path>, options: Options) -> Result<(Self, Recovery), LogError> {
        Self::open_on(dir.as_ref(), options, Arc::new(Kernel))
    }

    pub(crate) fn open_on(
        dir: &Path,
        options: Options,
        disk: Arc<dyn Disk>,
    ) -> Result<(Self, Recovery), LogError> {
        let Opened { lock, head, dir_file, segments, seed, recovery } = open(dir, &options, &*disk)?;
        let last = segments.back().expect("opening creates a segment where none was recovered");
        let active = Active {
            file: last.file.clone().expect("opening leaves the last segment's file open"),
            first: last.first,
            seed,
            bytes: last.bytes,
            ragged: false,
        };
        let log = Self {
            closed_bytes: recovery.bytes - active.bytes,
            next: recovery.next,
            shared: Arc::new(SharedLog::new(dir.to_owned(), dir_file, disk, segments)),
            options,
            head,
            active,
            buffer: Vec::new(),
            dropped: None,
            discarded: false,
            _lock: lock,
        };
        Ok((log, recovery))
    }

    /// Appends one record and returns its number. It is buffered, and written when the buffer is full or on
    /// [`flush`](Self::flush).
    ///
    /// # Errors
    /// On any error the record was not taken and the log is as before, with one exception: segments deleted to make
    /// room stay deleted ([`take_dropped`](Self::take_dropped)). [`LogError::TooLarge`] and [`LogError::Full`] are
    /// about this record; a system call's failure is about writing what was buffered before it, which stays buffered;
    /// [`LogError::Poisoned`] is final.
    pub fn append(&mut self, payload: &[u8]) -> Result<Seq, LogError> {
        self.append_vectored(&[payload])
    }

    /// Appends one record whose payload is the concatenation of `parts`, which need not be joined before.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_vectored(&mut self, parts: &[&[u8]]) -> Result<Seq, LogError> {
        let bytes: u64 = parts.iter().map(|p| p.len() as u64).sum();
        let max = self.options.max_record_bytes;
        let len = u32::try_from(bytes).ok().filter(|len| *len <= max);
        let len = len.ok_or_else(|| LogError::TooLarge { dir: self.shared.dir.clone(), bytes, max })?;
        self.trusted()?;
        self.make_room(RECORD_HEADER as u64 + bytes)?;
        let seq = self.next;
        format::encode_record(&mut self.buffer, self.active.seed, seq, len, parts);
        self.next = seq.next();
        Ok(seq)
    }

    /// Writes what is buffered to the kernel with one system call: readers see it, and it survives this process, but not
    /// a power failure. Returns the last record written.
    ///
    /// # Errors
    /// A system call's failure. The records stay buffered and keep their numbers; flushing again tries again.
    pub fn flush(&mut self) -> Result<Option<Seq>, LogError> {
        self.trusted()?;
        self.write_buffer()?;
        Ok(self.last())
    }

    /// Takes back what is buffered and was not written, as if it had never been appended: for whoever tells that it failed. Their
    /// numbers are given again.
    pub fn take_back(&mut self) {
        self.buffer.clear();
        if let Some(written) = self.shared.state().segments.back() {
            self.next = written.next;
        }
    }

    /// Flushes and makes everything appended so far durable; the last record's number.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), or [`LogError::Poisoned`] when the sync itself failed: then the records after
    /// [`durable`](Self::durable) are lost.
    pub fn sync(&mut self) -> Result<Option<Seq>, LogError> {
        self.flush()?;
        let done = self.sync_handle().sync();
        if done.is_err() {
            self.discard();
        }
        done
    }

    /// A handle that syncs on another thread.
    #[must_use]
    pub fn sync_handle(&self) -> SyncHandle {
        SyncHandle { shared: Arc::clone(&self.shared) }
    }

    /// The number of the newest record, buffered ones included; also when it has been trimmed since. Nothing before
    /// the first append.
    #[must_use]
    pub fn last(&self) -> Option<Seq> {
        self.next.prev()
    }

    /// The number of the oldest record stored; nothing when none is. Trimming works on whole segments, so it may be
    /// older than what was trimmed.
    #[must_use]
    pub fn first(&self) -> Option<Seq> {
        let oldest = self.shared.state().segments.front().map(|s| s.first);
        oldest.filter(|first| *first < self.next)
    }

    /// The newest record known to be on the disk.
    #[must_use]
    pub fn durable(&self) -> Option<Seq> {
        self.shared.durable()
    }

    /// Bytes of all segments, buffered records included.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.closed_bytes + self.active_bytes()
    }

    /// The directory.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// A reader of everything flushed, from `seq` or the oldest record stored, whichever is later.
    #[must_use]
    pub fn iter_from(&self, seq: Seq) -> LogReader {
        LogReader::new(Arc::clone(&self.shared), seq)
    }

    fn active_bytes(&self) -> u64 {
        self.active.bytes + self.buffer.len() as u64
    }

    /// Fails once a sync has failed, and then leaves nothing unproven behind.
    fn trusted(&mut self) -> Result<(), LogError> {
        if self.shared.is_poisoned() {
            self.discard();
        }
        self.shared.trusted()
    }

    fn discard(&mut self) {
        if !self.discarded && self.shared.is_poisoned() {
            self.buffer = Vec::new();
            self.shared.discard_unproven();
            self.discarded = true;
        }
    }

    /// Flushes, closes the active segment and drops the oldest ones as needed for `need` more bytes.
    fn make_room(&mut self, need: u64) -> Result<(), LogError> {
        let holds_records = self.active_bytes() > SEGMENT_HEADER as u64;
        let rolls = holds_records && self.active_bytes() + need > self.options.segment_bytes;
        let growth = if rolls { need + SEGMENT_HEADER as u64 } else { need };
        if self.options.overflow == Overflow::Reject && self.bytes() + growth > self.options.max_bytes {
            return Err(LogError::Full {
                dir: self.shared.dir.clone(),
                bytes: self.bytes(),
                max_bytes: self.options.max_bytes,
                needed: growth,
            });
        }
        let buffered = self.buffer.len() as u64 + need;
        if !self.buffer.is_empty() && (rolls || buffered > self.options.buffer_bytes as u64) {
            self.write_buffer()?;
        }
        if rolls {
            // Before the new segment is created, so that its space is free on a full disk.
            self.drop_oldest(growth)?;
            self.roll()?;
        }
        self.drop_oldest(need)
    }

    /// Writes the buffer at the end of the active segment, or leaves the segment as it was.
    fn write_buffer(&mut self) -> Result<(), LogError> {
        if self.buffer.is_empty() && !self.active.ragged {
            return Ok(());
        }
        let disk = &*self.shared.disk;
        let active = &mut self.active;
        let path = || segment::path(&self.shared.dir, active.first);
        self.shared.in_place(&active.file, &path())?;
        if active.ragged {
            disk.set_len(&active.file, active.bytes).at("truncate", &path())?;
            active.ragged = false;
        }
        if let Err(e) = write_all_at(disk, &active.file, &self.buffer, active.bytes) {
            active.ragged = disk.set_len(&active.file, active.bytes).is_err();
            return Err(LogError::io("write", &path(), e));
        }
        active.bytes += self.buffer.len() as u64;
        if let Some(segment) = self.shared.state().segments.back_mut() {
            (segment.next, segment.bytes) = (self.next, active.bytes);
        }
        self.buffer.clear();
        // A single huge record must not keep its memory for ever.
        self.buffer.shrink_to(self.options.buffer_bytes.saturating_mul(2));
        Ok(())
    }

    /// Closes the active segment, whose records are all written, and begins the next one.
    fn roll(&mut self) -> Result<(), LogError> {
        let behind = self.shared.state().segments.iter().filter(|s| s.is_behind()).count();
        if behind >= MAX_BEHIND {
            self.sync()?;
        }
        let (segment, seed) = segment::create(&*self.shared.disk, &self.shared.dir, self.next)?;
        let Some(file) = segment.file.clone() else { return Ok(()) };
        self.closed_bytes += self.active.bytes;
        self.active = Active { file, first: segment.first, seed, bytes: segment.bytes, ragged: false };
        let mut state = self.shared.state();
        if let Some(closed) = state.segments.back_mut().filter(|s| !s.is_behind()) {
            closed.file = None;
        }
        state.segments.push_back(segment);
        state.created += 1;
        Ok(())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Nobody is left to tell; a caller who must know flushes or syncs before.
        let _ignored = self.flush();
    }
}
