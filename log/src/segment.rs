//! One segment file: its name, its creation, and its entry in the table of segments.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, write_all_at};
use crate::error::At;
use crate::format::{self, SEGMENT_HEADER, Seed};
use crate::{LogError, Seq, private};

const SUFFIX: &str = ".seg";
const DIGITS: usize = 20;

/// What is known about a segment. Its flushed extent is what readers may see, its durable one what a sync has proven.
#[derive(Debug)]
pub(crate) struct Segment {
    /// The number of its first record, and its name.
    pub(crate) first: Seq,
    /// One past its last flushed record; equal to `first` while it has none.
    pub(crate) next: Seq,
    /// Flushed bytes, header included.
    pub(crate) bytes: u64,
    /// One past its last durable record.
    pub(crate) durable_next: Seq,
    /// Bytes proven durable; nothing before the first sync of the segment.
    pub(crate) durable_bytes: Option<u64>,
    /// Open while it is the active segment or has something to sync.
    pub(crate) file: Option<Arc<File>>,
}

impl Segment {
    /// Whether a sync has work here.
    pub(crate) fn is_behind(&self) -> bool {
        self.durable_bytes != Some(self.bytes)
    }
}

/// Where the segment beginning with `first` is kept.
pub(crate) fn path(dir: &Path, first: Seq) -> PathBuf {
    dir.join(format!("{first:0>DIGITS$}{SUFFIX}"))
}

/// The first sequence number in a segment's file name; nothing for the names of other files.
pub(crate) fn parse_name(name: &str) -> Option<Seq> {
    let digits = name.strip_suffix(SUFFIX)?;
    if digits.len() != DIGITS || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Seq::new(digits.parse().ok()?)
}

/// Creates an empty segment that will begin with `first`, replacing what a failed attempt may have left.
pub(crate) fn create(disk: &dyn Disk, dir: &Path, first: Seq) -> Result<(Segment, Seed), LogError> {
    let path = path(dir, first);
    let mut options = private::options();
    let file = options.read(true).write(true).create(true).truncate(true).open(&path);
    let file = file.at("create", &path)?;
    // RandomState is seeded by the kernel's generator; the salt need only differ between uses of one name.
    let salt = (RandomState::new().hash_one(first) & 0xffff_ffff) as u32;
    let (header, seed) = format::encode_header(first, salt);
    if let Err(e) = write_all_at(disk, &file, &header, 0) {
        // A leftover without a whole header is replaced by the next attempt and recognised by recovery.
        let _ignored = std::fs::remove_file(&path);
        return Err(LogError::io("write", &path, e));
    }
    let segment = Segment {
        first,
        next: first,
        bytes: SEGMENT_HEADER as u64,
        durable_next: first,
        durable_bytes: None,
        file: Some(Arc::new(file)),
    };
    Ok((segment, seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_foreign_names_do_not() {
        let name = path(Path::new(""), Seq::FIRST);
        assert_eq!(name, Path::new("00000000000000000001.seg"));
        assert_eq!(parse_name("00000000000000000001.seg"), Some(Seq::FIRST));
        for foreign in ["1.seg", "0000000000000000000a.seg", "00000000000000000000.seg", "head", "x.corrupt"]
        {
            assert_eq!(parse_name(foreign), None, "{foreign}");
        }
        assert_eq!(parse_name("99999999999999999999.seg"), None);
    }
}
