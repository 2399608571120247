//! Reading a log that is not ours to open: a copy from another machine, or one that somebody is writing.
//!
//! Nothing is locked, repaired, moved or deleted, and every valid record of every segment is given, also those after
//! a gap: who looks at evidence wants all of it. [`Log::open`](crate::Log::open) is stricter.

use std::fs;
use std::path::{Path, PathBuf};
use std::vec::IntoIter;

use crate::error::At;
use crate::reader::{LogRecord, OpenSegment};
use crate::scan::scan;
use crate::{DamageReason, LogError, Seq, private, segment};

/// Where a segment stops being valid, and why. At the end of a log that is being written this is nothing unusual.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Torn {
    /// The segment's file.
    pub path: PathBuf,
    /// First byte that is not valid.
    pub offset: u64,
    /// Bytes from there on, none of which are read.
    pub bytes: u64,
    /// What is wrong with them.
    pub reason: DamageReason,
}

/// The records of a log directory as they were found.
#[derive(Debug)]
pub struct Snapshot {
    segments: IntoIter<(PathBuf, Seq, u64, Seq)>,
    open: Option<(OpenSegment, Seq)>,
    torn: Vec<Torn>,
}

impl Snapshot {
    /// Looks through the segments in `dir`.
    ///
    /// # Errors
    /// A system call's failure, or [`LogError::Version`] for a segment of a later version.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, LogError> {
        let dir = dir.as_ref();
        let mut firsts = Vec::new();
        for entry in fs::read_dir(dir).at("list", dir)? {
            let name = entry.at("list", dir)?.file_name();
            firsts.extend(name.to_str().and_then(segment::parse_name));
        }
        firsts.sort_unstable();
        let (mut segments, mut torn) = (Vec::new(), Vec::new());
        for first in firsts {
            let path = segment::path(dir, first);
            let file = private::options().read(true).open(&path).at("open", &path)?;
            let found = scan(&file, &path, first)?;
            if let Some(reason) = found.damage {
                let bytes = found.len.saturating_sub(found.valid);
                torn.push(Torn { path: path.clone(), offset: found.valid, bytes, reason });
            }
            if found.next > first {
                segments.push((path, first, found.valid, found.next));
            }
        }
        Ok(Self { segments: segments.into_iter(), open: None, torn })
    }

    /// Where segments stop being valid.
    pub fn torn(&self) -> &[Torn] {
        &self.torn
    }

    fn read(&mut self) -> Result<Option<LogRecord>, LogError> {
        loop {
            if let Some((open, end)) = &mut self.open
                && open.at() < *end
            {
                let seq = open.at();
                let mut payload = Vec::new();
                open.read(&mut payload)?;
                return Ok(Some(LogRecord { seq, payload }));
            }
            let Some((path, first, limit, next)) = self.segments.next() else { return Ok(None) };
            let file = private::options().read(true).open(&path).at("open", &path)?;
            self.open = Some((OpenSegment::new(file, path, first, limit, next)?, next));
        }
    }
}

impl Iterator for Snapshot {
    type Item = Result<LogRecord, LogError>;

    /// The next record; after an error the segment it is in is left out.
    fn next(&mut self) -> Option<Self::Item> {
        let record = self.read();
        if record.is_err() {
            self.open = None;
        }
        record.transpose()
    }
}
