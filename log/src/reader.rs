//! Reading a log from a place on, while it is being written.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::error::At;
use crate::format::{self, RECORD_HEADER, SEGMENT_HEADER, Seed};
use crate::shared::{RecordLocation, SharedLog};
use crate::{DamageReason, LogError, Seq, private, segment};

/// Read size in bytes; with one record the memory a reader uses.
const CHUNK: usize = 64 << 10;

/// A stored record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogRecord {
    /// Its number.
    pub seq: Seq,
    /// What was appended.
    pub payload: Vec<u8>,
}

/// Reads records in order, checking each. Owned, so it may go to another thread, and it does not slow the writer down.
///
/// It ends at the last flushed record; asked again later it goes on with what has been flushed meanwhile. When the
/// record it wants is trimmed before it was read it says so once ([`LogError::Trimmed`]) and goes on with the oldest
/// one stored. After any other error the iterator ends.
#[derive(Debug)]
pub struct LogReader {
    shared: Arc<SharedLog>,
    /// The record to return next.
    wanted: Seq,
    open: Option<OpenSegment>,
    failed: bool,
}

/// The segment being read.
#[derive(Debug)]
pub(crate) struct OpenSegment {
    file: File,
    path: PathBuf,
    seed: Seed,
    first: Seq,
    /// Number of the record at `offset`.
    at: Seq,
    offset: u64,
    /// End of the flushed bytes and the number after the last record in them, as last asked.
    limit: u64,
    limit_next: Seq,
    /// Bytes read ahead; `chunk[used..]` lies at `offset`.
    chunk: Vec<u8>,
    used: usize,
}

impl LogReader {
    pub(crate) fn new(shared: Arc<SharedLog>, from: Seq) -> Self {
        let wanted = match shared.locate(from) {
            RecordLocation::Gone(first) => first,
            _ => from,
        };
        Self { shared, wanted, open: None, failed: false }
    }

    /// Reads the next record into `payload`, replacing its content; nothing when everything flushed has been read.
    ///
    /// # Errors
    /// [`LogError::Trimmed`] once when the next record is gone, [`LogError::Damaged`] when it no longer matches its
    /// checksum, or an input error.
    pub fn read_into(&mut self, payload: &mut Vec<u8>) -> Result<Option<Seq>, LogError> {
        loop {
            let wanted = self.wanted;
            let Some(open) = self.position()? else { return Ok(None) };
            if open.at < wanted {
                open.skip()?;
            } else {
                open.read(payload)?;
                self.wanted = wanted.next();
                return Ok(Some(wanted));
            }
        }
    }

    /// The open segment holding the wanted record; nothing when that is not flushed yet.
    fn position(&mut self) -> Result<Option<&mut OpenSegment>, LogError> {
        let wanted = self.wanted;
        if self.open.as_ref().is_none_or(|o| wanted < o.first || wanted >= o.limit_next) {
            match self.shared.locate(wanted) {
                RecordLocation::Ahead => return Ok(None),
                RecordLocation::Gone(first) => return Err(self.skip_to(first)),
                RecordLocation::In { first, bytes, next } => match &mut self.open {
                    Some(open) if open.first == first => (open.limit, open.limit_next) = (bytes, next),
                    _ => self.open = Some(self.open_segment(first, bytes, next)?),
                },
            }
        }
        Ok(self.open.as_mut())
    }

    fn skip_to(&mut self, first: Seq) -> LogError {
        let wanted = self.wanted;
        self.wanted = first;
        LogError::Trimmed { wanted, first }
    }

    fn open_segment(&mut self, first: Seq, limit: u64, limit_next: Seq) -> Result<OpenSegment, LogError> {
        let path = segment::path(&self.shared.dir, first);
        let file = match private::options().read(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                // Trimmed between looking it up and opening it.
                return Err(match self.shared.locate(self.wanted) {
                    RecordLocation::Gone(first) => self.skip_to(first),
                    _ => LogError::io("open", &path, e),
                });
            }
            Err(e) => return Err(LogError::io("open", &path, e)),
        };
        OpenSegment::new(file, path, first, limit, limit_next)
    }
}
impl Iterator for LogReader {
    type Item = Result<LogRecord, LogError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let mut payload = Vec::new();
        match self.read_into(&mut payload) {
            Ok(seq) => seq.map(|seq| Ok(LogRecord { seq, payload })),
            Err(e) => {
                self.failed = !matches!(e, LogError::Trimmed { .. });
                Some(Err(e))
            }
        }
    }
}

impl OpenSegment {
    /// The segment in `file`, of which `limit` bytes with the records below `limit_next` may be read.
    pub(crate) fn new(
        file: File,
        path: PathBuf,
        first: Seq,
        limit: u64,
        limit_next: Seq,
    ) -> Result<Self, LogError> {
        let mut header = [0; SEGMENT_HEADER];
        file.read_exact_at(&mut header, 0).at("read", &path)?;
        let seed = format::decode_header(&header, first).map_err(|_| LogError::Damaged {
            path: path.clone(),
            offset: 0,
            reason: DamageReason::Header,
        })?;
        Ok(Self {
            file,
            path,
            seed,
            first,
            at: first,
            offset: SEGMENT_HEADER as u64,
            limit,
            limit_next,
            chunk: Vec::new(),
            used: 0,
        })
    }

    /// The number of the record that [`read`](Self::read) reads next.
    pub(crate) fn at(&self) -> Seq {
        self.at
    }

    /// Passes over the record at `offset`.
    fn skip(&mut self) -> Result<(), LogError> {
        let header = self.header()?;
        let ahead = self.chunk.len() - self.used;
        let len = header.len as usize;
        self.used += len.min(ahead);
        self.offset += len as u64;
        self.at = self.at.next();
        Ok(())
    }

    /// Reads the record at `offset`.
    pub(crate) fn read(&mut self, payload: &mut Vec<u8>) -> Result<(), LogError> {
        let start = self.offset;
        let header = self.header()?;
        payload.clear();
        payload.resize(header.len as usize, 0);
        self.take(payload)?;
        if crc32c::crc32c_append(header.partial, payload) != header.crc {
            return Err(self.damaged(start, DamageReason::Checksum));
        }
        self.at = self.at.next();
        Ok(())
    }

    fn header(&mut self) -> Result<format::RecordHeader, LogError> {
        let start = self.offset;
        let mut raw = [0; RECORD_HEADER];
        self.take(&mut raw)?;
        let left = self.limit.saturating_sub(self.offset);
        format::decode_record(&raw, self.seed, self.at, left).map_err(|reason| self.damaged(start, reason))
    }

    fn damaged(&self, offset: u64, reason: DamageReason) -> LogError {
        LogError::Damaged { path: self.path.clone(), offset, reason }
    }

    /// Fills `into` from the bytes read ahead, then from the file, never past the flushed bytes.
    fn take(&mut self, into: &mut [u8]) -> Result<(), LogError> {
        let mut done = 0;
        while done < into.len() {
            if self.used == self.chunk.len() {
                self.refill()?;
            }
            let part = (into.len() - done).min(self.chunk.len() - self.used);
            into[done..done + part].copy_from_slice(&self.chunk[self.used..self.used + part]);
            done += part;
            self.used += part;
            self.offset += part as u64;
        }
        Ok(())
    }

    fn refill(&mut self) -> Result<(), LogError> {
        let left = self.limit.saturating_sub(self.offset).min(CHUNK as u64);
        self.used = 0;
        self.chunk.resize(usize::try_from(left).unwrap_or(CHUNK), 0);
        let got = loop {
            match self.file.read_at(&mut self.chunk, self.offset) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => break done,
            }
        };
        let got = got.inspect_err(|_| self.chunk.clear()).at("read", &self.path)?;
        self.chunk.truncate(got);
        if got == 0 { Err(self.damaged(self.offset, DamageReason::TornRecord)) } else { Ok(()) }
    }
}
