//! The ring: the latest seconds of this node on disk, to look back at.
//!
//! Owned here: one log below the state directory, how a moment is found in it, what is said when the disk fails. Not owned: making
//! frames (`frames`), files (`evenkeel_log`).
//!
//! A record is a head of nine bytes (kind, time) and a frame as it is streamed. At the first key frame after [`WHOLE_EVERY`] every container
//! is announced again, so that what is left when the oldest segment goes can be read by itself. Seconds wait in memory for
//! [`FLUSH_EVERY`] and are written together. Nothing is synced for their sake: a crash of the agent costs those that waited, a power failure up to
//! half a minute. A failure is said once and tried again every [`RETRY_EVERY`]; seconds in between are not kept, and nothing else waits for them.

mod look;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use evenkeel_enforce::damage::StateFile;
use evenkeel_enforce::shared::lock;
use evenkeel_log::{Log, LogError, Options, Overflow};
use evenkeel_proto::{frame, v1};
use prost::Message as _;

use crate::shared::Stats;

pub(crate) use look::{NotKept, PastSecond};

/// Directory of the ring below the state directory.
const DIR: &str = "ring";
/// Time between two announcements of all containers, microseconds: at 200 bytes each they are a fiftieth of the ring.
const WHOLE_EVERY: u64 = 600_000_000;
/// Time for which seconds wait to be written together, microseconds.
const FLUSH_EVERY: u64 = 5_000_000;
/// Time between two attempts while the disk fails, microseconds.
const RETRY_EVERY: u64 = 60_000_000;
/// Bytes before the frame: kind and time, little-endian.
const HEAD: usize = 9;

/// What a reader needs to read a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum RingRecordKind {
    /// Nothing: a key frame that announces every container.
    Whole = 1,
    /// The names of the last whole record.
    Key = 2,
    /// The key frame before it as well.
    Delta = 3,
}

/// The latest seconds; written by the report thread, read by whoever answers questions.
#[derive(Debug)]
pub(crate) struct Ring {
    dir: PathBuf,
    bytes: u64,
    inner: Mutex<RingState>,
}

#[derive(Debug, Default)]
struct RingState {
    log: Option<Log>,
    /// Time of the last record that announced all; `None` = the next must.
    whole_usec: Option<u64>,
    flushed_usec: u64,
    /// When it last failed; `None` while it works.
    failed_usec: Option<u64>,
}

impl Ring {
    /// Opens the ring below `state_dir`, or makes it; `bytes` bounds it on disk. Where that fails, it is tried again later.
    pub(crate) fn open(state_dir: &Path, bytes: u64, stats: &Stats) -> Self {
        let ring = Self { dir: state_dir.join(DIR), bytes, inner: Mutex::default() };
        let mut inner = lock(&ring.inner);
        match ring.open_log(stats) {
            Ok(log) => inner.log = Some(log),
            Err(error) => inner.fail(&error, evenkeel_enforce::decisions::now_usec(), stats),
        }
        drop(inner);
        ring
    }

    fn open_log(&self, stats: &Stats) -> Result<Log, LogError> {
        let options = Options {
            // Space is freed by whole segments.
            segment_bytes: (self.bytes / 32).clamp(32 << 10, 2 << 20),
            max_bytes: self.bytes,
            max_record_bytes: u32::try_from(self.bytes / 4).unwrap_or(u32::MAX).min(8 << 20),
            overflow: Overflow::DropOldest,
            quarantine_bytes: self.bytes / 16,
            quarantine_files: 2,
            ..Options::default()
        };
        let (log, recovery) = Log::open(&self.dir, options)?;
        for damage in &recovery.damage {
            tracing::warn!(%damage, "the ring was damaged; what is before the damage is kept");
        }
        stats.enforce.damages.take(StateFile::Ring, &self.dir, recovery.damage.len());
        stats.ring_bytes.set(log.bytes());
        Ok(log)
    }

    /// Keeps a second. `all` announces every container there is.
    pub(super) fn take(
        &self,
        frame: &v1::Frame,
        time_usec: u64,
        all: impl FnOnce() -> Vec<v1::Announcement>,
        stats: &Stats,
    ) {
        let mut inner = lock(&self.inner);
        let inner = &mut *inner;
        let rests = inner.failed_usec.is_some_and(|failed| failed.abs_diff(time_usec) < RETRY_EVERY);
        let Some(kind) = inner.kind(frame, time_usec).filter(|_| !rests) else {
            stats.ring_seconds_lost.add(1);
            return;
        };
        let announced = if kind == RingRecordKind::Whole { all() } else { frame.announced.clone() };
        let kept = v1::Frame {
            samples: frame.samples.clone(),
            announced: announced.into_iter().map(named).collect(),
            gone: frame.gone.clone(),
            traffic: frame.traffic.clone(),
            ..v1::Frame::default()
        };
        let mut head = [kind as u8; HEAD];
        head[1..].copy_from_slice(&time_usec.to_le_bytes());
        match self.write(inner, &[&head, &kept.encode_to_vec()], time_usec, stats) {
            Ok(()) if kind == RingRecordKind::Whole => inner.whole_usec = Some(time_usec),
            Ok(()) => {}
            Err(error) => {
                stats.ring_seconds_lost.add(1);
                inner.fail(&error, time_usec, stats);
            }
        }
    }

    fn write(
        &self,
        inner: &mut RingState,
        record: &[&[u8]],
        time_usec: u64,
        stats: &Stats,
    ) -> Result<(), LogError> {
        if inner.log.is_none() {
            inner.log = Some(self.open_log(stats)?);
        }
        let Some(log) = inner.log.as_mut() else { return Ok(()) };
        log.append_vectored(record)?;
        if inner.failed_usec.is_some() || inner.flushed_usec.abs_diff(time_usec) >= FLUSH_EVERY {
            log.flush()?;
            inner.flushed_usec = time_usec;
            stats.ring_bytes.set(log.bytes());
            if inner.failed_usec.take().is_some() {
                *lock(&stats.ring_failure) = None;
                tracing::info!(dir = %self.dir.display(), "seconds are kept to look back at again");
            }
        }
        if let Some(dropped) = log.take_dropped() {
            tracing::debug!(first = %dropped.first, last = %dropped.last, "the oldest seconds made room for new ones");
        }
        Ok(())
    }

    /// Writes what waits, before the agent ends.
    pub(super) fn end(&self, stats: &Stats) {
        let mut inner = lock(&self.inner);
        if let Some(error) = inner.log.as_mut().and_then(|log| log.flush().err()) {
            inner.fail(&error, evenkeel_enforce::decisions::now_usec(), stats);
        }
    }
}

impl RingState {
    /// What this frame is; `None` where a reader could not read it.
    fn kind(&self, frame: &v1::Frame, time_usec: u64) -> Option<RingRecordKind> {
        let is_key = frame::peek(&frame.samples).is_ok_and(|header| header.key);
        let is_due = self.whole_usec.is_none_or(|whole| whole.abs_diff(time_usec) >= WHOLE_EVERY);
        match (is_key, is_due) {
            (true, true) => Some(RingRecordKind::Whole),
            (true, false) => Some(RingRecordKind::Key),
            (false, _) => self.whole_usec.map(|_| RingRecordKind::Delta),
        }
    }

    /// Says once that it fails. What is on disk can still be read.
    fn fail(&mut self, error: &LogError, time_usec: u64, stats: &Stats) {
        let is_news = self.failed_usec.replace(time_usec).is_none();
        self.whole_usec = None;
        if matches!(error, LogError::Deleted { .. } | LogError::Poisoned { .. }) {
            self.log = None;
        }
        let why = error.to_string();
        if is_news {
            tracing::error!(error = why, "seconds are not kept to look back at; everything else goes on");
        }
        *lock(&stats.ring_failure) = Some(why);
    }
}

/// What an answer shows of a container; labels and image would be most of the bytes.
fn named(announcement: v1::Announcement) -> v1::Announcement {
    let identity = announcement.identity.map(|identity| v1::ContainerIdentity {
        labels: Default::default(),
        image: String::new(),
        command_hash: None,
        ..identity
    });
    v1::Announcement { identity, ..announcement }
}
