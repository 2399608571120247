//! What the writer, the syncing thread and readers share: the table of segments and the watermarks.
//!
//! The writer takes the lock once per flush, readers once per segment, a sync twice; nobody holds it during input or
//! output.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::Disk;
use crate::segment::{self, Segment};
use crate::{LogError, Seq};

/// The shared part of an open log.
#[derive(Debug)]
pub(crate) struct SharedLog {
    pub(crate) dir: PathBuf,
    pub(crate) dir_file: File,
    pub(crate) disk: Arc<dyn Disk>,
    state: Mutex<SegmentTable>,
    /// Taken for the whole of a sync, so that a second one waits and then finds its work done.
    pub(crate) turn: Mutex<()>,
    durable: AtomicU64,
    poisoned: AtomicBool,
    deleted: AtomicBool,
}

/// The table of segments, oldest first; the last is the active one and there always is one.
#[derive(Debug)]
pub(crate) struct SegmentTable {
    pub(crate) segments: VecDeque<Segment>,
    /// Segments created since the log was opened, and how many of their names are durable.
    pub(crate) created: u64,
    pub(crate) created_durable: u64,
    fault: Option<Fault>,
}

/// The failed sync that ended trust in this log.
#[derive(Debug)]
struct Fault {
    path: PathBuf,
    errno: Option<i32>,
}

/// Where a record is to be found.
pub(crate) enum RecordLocation {
    /// Not flushed yet.
    Ahead,
    /// No longer stored; the oldest one that is.
    Gone(Seq),
    /// In the segment beginning with `first`, of which `bytes` hold records below `next`.
    In { first: Seq, bytes: u64, next: Seq },
}

impl SharedLog {
    pub(crate) fn new(
        dir: PathBuf,
        dir_file: File,
        disk: Arc<dyn Disk>,
        segments: VecDeque<Segment>,
    ) -> Self {
        let durable = segments.back().and_then(|s| s.durable_next.prev());
        let state = SegmentTable { segments, created: 0, created_durable: 0, fault: None };
        Self {
            dir,
            dir_file,
            disk,
            state: Mutex::new(state),
            turn: Mutex::new(()),
            durable: AtomicU64::new(durable.map_or(0, Seq::get)),
            poisoned: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
        }
    }

    /// The state; a thread that panicked while it held the lock cannot have left it half changed, since every change is
    /// a few assignments.
    pub(crate) fn state(&self) -> MutexGuard<'_, SegmentTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn durable(&self) -> Option<Seq> {
        Seq::new(self.durable.load(Ordering::Acquire))
    }

    pub(crate) fn set_durable(&self, seq: Option<Seq>) {
        self.durable.fetch_max(seq.map_or(0, Seq::get), Ordering::AcqRel);
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Ends trust in this log after a failed sync of `path`, and says so.
    pub(crate) fn poison(&self, path: PathBuf, source: io::Error) -> LogError {
        let mut state = self.state();
        state.fault.get_or_insert_with(|| Fault { path: path.clone(), errno: source.raw_os_error() });
        self.poisoned.store(true, Ordering::Release);
        LogError::Poisoned { path, durable: self.durable(), source }
    }

    /// Fails once the active segment was deleted by somebody else: what is written to it nobody will find. For the writer,
    /// who alone trims.
    pub(crate) fn in_place(&self, file: &File, path: &Path) -> Result<(), LogError> {
        self.in_place_if(file, path, || true)
    }

    /// The same for anybody: a segment that the writer closed and trimmed meanwhile has no name either, but the active one,
    /// if it still is that once its names were counted, is never trimmed.
    pub(crate) fn still_in_place(&self, file: &File, first: Seq) -> Result<(), LogError> {
        let is_active = || self.state().segments.back().is_some_and(|active| active.first == first);
        self.in_place_if(file, &segment::path(&self.dir, first), is_active)
    }

    fn in_place_if(&self, file: &File, path: &Path, is_active: impl Fn() -> bool) -> Result<(), LogError> {
        if self.disk.links(file).is_ok_and(|links| links == 0) && is_active() {
            self.deleted.store(true, Ordering::Release);
        }
        if self.deleted.load(Ordering::Acquire) {
            return Err(LogError::Deleted { path: path.to_owned() });
        }
        Ok(())
    }

    /// Fails when a sync has failed before.
    pub(crate) fn trusted(&self) -> Result<(), LogError> {
        if self.deleted.load(Ordering::Acquire) {
            return Err(LogError::Deleted { path: self.dir.clone() });
        }
        if !self.is_poisoned() {
            return Ok(());
        }
        let state = self.state();
        let (path, errno) =
            state.fault.as_ref().map_or((self.dir.clone(), None), |f| (f.path.clone(), f.errno));
        let source = errno.map_or_else(|| io::ErrorKind::Other.into(), io::Error::from_raw_os_error);
        Err(LogError::Poisoned { path, durable: self.durable(), source })
    }

    /// Where record `wanted` is to be found now.
    pub(crate) fn locate(&self, wanted: Seq) -> RecordLocation {
        let state = self.state();
        let at = state.segments.partition_point(|s| s.next <= wanted);
        match state.segments.get(at) {
            None => RecordLocation::Ahead,
            Some(s) if s.first > wanted => RecordLocation::Gone(s.first),
            Some(s) => RecordLocation::In { first: s.first, bytes: s.bytes, next: s.next },
        }
    }

    /// Cuts off what a failed sync left unproven, so that opening the log again cannot take pages the kernel still
    /// caches, but may have given up writing, for records. Best effort: the disk is failing.
    pub(crate) fn discard_unproven(&self) {
        let mut state = self.state();
        while state.segments.len() > 1 && state.segments.back().is_some_and(|s| s.durable_bytes.is_none()) {
            if let Some(s) = state.segments.pop_back() {
                let _ignored = std::fs::remove_file(segment::path(&self.dir, s.first));
            }
        }
        for s in state.segments.iter_mut().filter(|s| s.is_behind()) {
            let keep = s.durable_bytes.unwrap_or(0);
            if let Some(file) = &s.file {
                let _ignored = self.disk.set_len(file, keep);
            }
            (s.bytes, s.next) = (keep, s.durable_next);
        }
    }
}
