//! Owns the checkpoint: what is open of the state in one file, so that the log before it can go. What is sealed is in the
//! files of `history::files`, whose lengths the checkpoint holds: the two are valid together only.
//!
//! The file is replaced whole: written beside, synced, renamed, directory synced. Its records number (`applied`) says
//! from where the log is to be replayed. It may be ahead of what the log holds durably: what it contains is counted all
//! the same, and the store makes the two agree at start before anything is appended.
//!
//! | offset | bytes | field |
//! | --- | --- | --- |
//! | 0 | 8 | magic, `EVKEELCP` |
//! | 8 | 4 | format version, 2; of version 1, which held all minutes itself, the minutes are taken over |
//! | 12 | 4 | CRC32C of the body |
//! | 16 | 8 | length of the body |
//! | 24 | 4 | CRC32C of bytes 0 to 23 |
//! | 28 | | body: length-delimited protobuf items, see `messages.rs` |

#[cfg(test)]
mod full_tests;
mod items;
mod messages;
#[cfg(test)]
mod restart_tests;

use std::fs::{self, File};
use std::io::{self, BufReader, Read as _, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use evenkeel_log::{private, remedy};
use prost::Message;

use crate::pace::Pace;
use crate::state::StoreState;
use items::Importer;
use messages::{FilesItem, Item, ItemKind};

const MAGIC: [u8; 8] = *b"EVKEELCP";
const VERSION: u32 = 2;
const HEADER: usize = 28;
/// Bytes written at once: as many as the kernel takes within a fraction of a millisecond.
const PART: usize = 256 << 10;

/// A checkpoint cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A system call failed.
    #[error("cannot {op} checkpoint {}; {}", path.display(), remedy(source).unwrap_or("give the directory to the user this process runs as"))]
    Io {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The file is not whole.
    #[error("checkpoint {} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The file was written by a newer release.
    #[error("checkpoint {} has format version {found}, this program reads up to {VERSION}; use the newer release or another state directory", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version it has.
        found: u32,
    },
}

/// A checkpoint under construction: the state as it was at one moment.
#[derive(Debug)]
pub struct Draft(Vec<u8>);

/// What is open of the state.
pub fn encode(state: &StoreState) -> Draft {
    let (mut draft, mut pace) = (Draft(vec![0; HEADER]), Pace::start());
    items::export(state, |kind| {
        draft.put(kind);
        pace.step();
    });
    draft
}

impl Draft {
    fn put(&mut self, kind: ItemKind) {
        let item = Item { kind: Some(kind) };
        item.encode_length_delimited(&mut self.0).expect("a vector grows as needed");
    }

    /// The bytes of the file, with the lengths of the history's files that belong to it: day, kind, bytes.
    pub fn finish(mut self, files: &[(u32, u32, u64)]) -> Vec<u8> {
        self.put(ItemKind::Files(FilesItem::of(files)));
        let mut out = self.0;
        let (length, crc) = ((out.len() - HEADER) as u64, crc32c::crc32c(&out[HEADER..]));
        out[..8].copy_from_slice(&MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out[16..24].copy_from_slice(&length.to_le_bytes());
        let crc = crc32c::crc32c(&out[..24]);
        out[24..28].copy_from_slice(&crc.to_le_bytes());
        out
    }
}

/// What a checkpoint file holds besides the state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckpointSummary {
    /// Its size.
    pub bytes: u64,
    /// Day, kind and length of every file of the history.
    pub files: Vec<(u32, u32, u64)>,
    /// What was not taken in as it was.
    pub too_large: TooLarge,
}

/// What a store held beyond the bounds, as one that an earlier release filled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TooLarge {
    /// Containers whose labels were dropped.
    pub labels: u64,
    /// Decisions that were cut.
    pub decisions: u64,
    /// Containers that were dropped.
    pub containers: u64,
    /// Series, of all that was read back, whose names were too much together.
    pub series: u64,
    /// Subjects, the same.
    pub subjects: u64,
}

/// Replaces the file durably.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let temporary = path.with_extension("new");
    let at = |op, path: &Path| {
        let path = path.to_owned();
        move |source| CheckpointError::Io { op, path, source }
    };
    let mut pace = Pace::start();
    let written = private::create(&temporary).and_then(|mut file| {
        for part in bytes.chunks(PART) {
            file.write_all(part)?;
            pace.step();
        }
        file.sync_all()
    });
    if let Err(source) = written {
        // Its space may be what is missing elsewhere.
        let _ignored = fs::remove_file(&temporary);
        return Err(at("write", &temporary)(source));
    }
    fs::rename(&temporary, path).map_err(at("replace", path))?;
    let dir = path.parent().unwrap_or(Path::new("."));
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(at("sync the directory of", path))
}

/// Reads the file into an empty state; nothing where there is no file. One item is in memory at a time: the file may hold
/// more than there is room for.
pub fn read(path: &Path, state: &mut StoreState) -> Result<Option<CheckpointSummary>, CheckpointError> {
    let failed = |source| CheckpointError::Io { op: "read", path: path.to_owned(), source };
    let file = match private::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(failed(source)),
    };
    let mut importer = Importer::new(state);
    let length = items(path, &file, |kind| importer.take(kind))?;
    let (files, too_large) = importer.finish();
    Ok(Some(CheckpointSummary { bytes: HEADER as u64 + length, files, too_large }))
}

/// What a checkpoint says of the files that belong to it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// Last record of the log in it.
    pub(crate) applied: u64,
    /// Day, kind and length of every file of the history.
    pub(crate) files: Vec<(u32, u32, u64)>,
    /// Its size.
    pub(crate) bytes: u64,
}

/// Looks through a checkpoint without making a state of it.
pub(crate) fn summary(path: &Path, file: &File) -> Result<Summary, CheckpointError> {
    let mut summary = Summary::default();
    let length = items(path, file, |kind| {
        match kind {
            ItemKind::Meta(meta) => summary.applied = meta.applied,
            ItemKind::Files(files) => summary.files = files.list(),
            _ => {}
        }
        Ok(())
    })?;
    summary.bytes = HEADER as u64 + length;
    Ok(summary)
}

/// Shows the items of a file whose checksums are right; the length of them all.
fn items(
    path: &Path,
    file: &File,
    mut show: impl FnMut(ItemKind) -> Result<(), &'static str>,
) -> Result<u64, CheckpointError> {
    let failed = |source| CheckpointError::Io { op: "read", path: path.to_owned(), source };
    let damaged = |what: &str| CheckpointError::Damaged { path: path.to_owned(), what: what.to_owned() };
    let length = verified(path, file)?;
    let mut body = BufReader::with_capacity(PART, file);
    body.seek(SeekFrom::Start(HEADER as u64)).map_err(failed)?;
    let mut body = body.take(length);
    let mut bytes = Vec::new();
    while let Some(size) = next_length(&mut body).map_err(failed)? {
        if size > body.limit() {
            return Err(damaged("an item is longer than the rest of the file"));
        }
        bytes.clear();
        body.by_ref().take(size).read_to_end(&mut bytes).map_err(failed)?;
        let item = Item::decode(bytes.as_slice()).map_err(|e| damaged(&e.to_string()))?;
        // One huge item must not keep its memory.
        bytes.shrink_to(PART);
        // An item of an unknown kind is of a newer release that kept the format version: it can be done without.
        if let Some(kind) = item.kind {
            show(kind).map_err(damaged)?;
        }
    }
    Ok(length)
}

/// The length before an item, as protobuf writes it; nothing at the end.
fn next_length(body: &mut impl io::Read) -> io::Result<Option<u64>> {
    let mut length = 0;
    for shift in (0..64).step_by(7) {
        let mut byte = [0];
        match body.read(&mut byte)? {
            0 if shift == 0 => return Ok(None),
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            _ => length |= u64::from(byte[0] & 0x7f) << shift,
        }
        if byte[0] < 0x80 {
            return Ok(Some(length));
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

/// The length of the body, once header and checksums are found right.
fn verified(path: &Path, mut file: &File) -> Result<u64, CheckpointError> {
    let damaged = |what: &str| CheckpointError::Damaged { path: path.to_owned(), what: what.to_owned() };
    let failed = |source| CheckpointError::Io { op: "read", path: path.to_owned(), source };
    let size = file.metadata().map_err(failed)?.len();
    let mut header = [0; HEADER];
    match file.read_exact(&mut header) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => {
            return Err(damaged("it ends inside its header"));
        }
        read => read.map_err(failed)?,
    }
    let u32_at = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    if header[..8] != MAGIC || u32_at(24) != crc32c::crc32c(&header[..24]) {
        return Err(damaged("the header does not match its checksum"));
    }
    if !(1..=VERSION).contains(&u32_at(8)) {
        return Err(CheckpointError::Version { path: path.to_owned(), found: u32_at(8) });
    }
    let length = u64::from(u32_at(16)) | u64::from(u32_at(20)) << 32;
    if Some(length) != size.checked_sub(HEADER as u64) {
        return Err(damaged("its length is not what the header says"));
    }
    let (mut crc, mut part) = (0, vec![0; PART]);
    loop {
        match file.read(&mut part).map_err(failed)? {
            0 => break,
            n => crc = crc32c::crc32c_append(crc, &part[..n]),
        }
    }
    if u32_at(12) != crc {
        return Err(damaged("the body does not match its checksum"));
    }
    Ok(length)
}
