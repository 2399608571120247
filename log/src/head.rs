//! The trim pointer: which sequence number the log begins with, made durable before any segment is deleted.
//!
//! Deletions may reach the disk in any order or not at all. With the pointer first, a segment below it is known to be
//! unneeded if its file came back after a crash, and not missing if its file is gone.
//!
//! Two slots hold the same value. They are written one after the other, so that one is always whole, and in place, so
//! that a trim works on a full disk.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::disk::{Disk, uninterrupted, write_all_at};
use crate::error::At;
use crate::format::{u32_at, u64_at};
use crate::{LogError, Seq, private};

const NAME: &str = "head";
const MAGIC: [u8; 8] = *b"EVKEELHD";
const VERSION: u32 = 1;
/// A sector: the unit a disk writes whole or not at all.
const SLOT: usize = 512;
const USED: usize = 36;

/// The open pointer file.
#[derive(Debug)]
pub(crate) struct TrimPointer {
    file: File,
    path: PathBuf,
    /// Generation of the newest slot; the next one goes first to the other.
    generation: u64,
    first: Option<Seq>,
    /// Whether both slots are known to hold the value.
    both: bool,
}

/// How the pointer file was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PointerState {
    /// With a valid slot.
    Valid,
    /// Absent or empty: the log is new, or the crash came before the first write.
    Absent,
    /// Without a valid slot, though it has bytes.
    Damaged,
}

impl TrimPointer {
    pub(crate) fn open(dir: &Path) -> Result<(Self, PointerState), LogError> {
        let path = dir.join(NAME);
        let mut options = private::options();
        let file = options.read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.at("open", &path)?;
        let PointerFile { newest, both, found } = read(&file, &path)?;
        let (generation, first) = newest.map_or((0, None), |(g, first)| (g, Some(first)));
        Ok((Self { file, path, generation, first, both }, found))
    }

    /// The pointer's value, where it has one.
    pub(crate) fn first(&self) -> Option<Seq> {
        self.first
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the pointer durably; does nothing when both slots already hold this value.
    pub(crate) fn set(&mut self, disk: &dyn Disk, first: Seq) -> Result<(), LogError> {
        if self.both && self.first == Some(first) {
            return Ok(());
        }
        let generation = self.generation.saturating_add(1);
        let slot = encode(generation, first);
        let (one, other) = if generation.is_multiple_of(2) { (0, SLOT as u64) } else { (SLOT as u64, 0) };
        write_all_at(disk, &self.file, &slot, one).at("write", &self.path)?;
        uninterrupted(|| disk.sync_data(&self.file)).at("sync", &self.path)?;
        (self.generation, self.first, self.both) = (generation, Some(first), false);
        // From here on the value holds. The second copy guards against decay of the first and may reach the disk later.
        write_all_at(disk, &self.file, &slot, other).at("write", &self.path)?;
        self.both = true;
        Ok(())
    }
}

/// What the pointer of a log says that somebody else may be writing.
///
/// # Errors
/// When it cannot be read, or is of a later version.
pub(crate) fn peek(dir: &Path) -> Result<(PointerState, Option<Seq>), LogError> {
    let path = dir.join(NAME);
    let file = match private::options().read(true).open(&path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok((PointerState::Absent, None)),
        Err(e) => return Err(LogError::io("open", &path, e)),
    };
    let slots = read(&file, &path)?;
    Ok((slots.found, slots.newest.map(|(_, first)| first)))
}

/// What a pointer file holds.
struct PointerFile {
    /// Generation and value of the newest slot.
    newest: Option<(u64, Seq)>,
    /// Both slots are the same.
    both: bool,
    found: PointerState,
}

fn read(file: &File, path: &Path) -> Result<PointerFile, LogError> {
    let mut bytes = [0; 2 * SLOT];
    let mut have = 0;
    while have < bytes.len() {
        match file.read_at(&mut bytes[have..], have as u64).at("read", path)? {
            0 => break,
            n => have += n,
        }
    }
    let slots: Vec<_> = bytes.as_chunks::<SLOT>().0.iter().filter_map(decode).collect();
    let newest = slots.iter().copied().max_by_key(|slot| slot.0);
    if let Some((_, _, version)) = newest.filter(|slot| slot.2 != VERSION) {
        return Err(LogError::Version { path: path.to_owned(), found: version, supported: VERSION });
    }
    let found = match newest {
        Some(_) => PointerState::Valid,
        None if have == 0 => PointerState::Absent,
        None => PointerState::Damaged,
    };
    let both = slots.len() == 2 && slots[0] == slots[1];
    Ok(PointerFile { newest: newest.map(|(generation, first, _)| (generation, first)), both, found })
}

fn encode(generation: u64, first: Seq) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    slot[..8].copy_from_slice(&MAGIC);
    slot[8..12].copy_from_slice(&VERSION.to_le_bytes());
    slot[16..24].copy_from_slice(&generation.to_le_bytes());
    slot[24..32].copy_from_slice(&first.get().to_le_bytes());
    let crc = crc32c::crc32c(&slot[..USED - 4]);
    slot[USED - 4..USED].copy_from_slice(&crc.to_le_bytes());
    slot
}

/// Generation, first sequence number and version of a slot with a valid checksum.
fn decode(slot: &[u8; SLOT]) -> Option<(u64, Seq, u32)> {
    if slot[..8] != MAGIC || u32_at(slot, USED - 4) != crc32c::crc32c(&slot[..USED - 4]) {
        return None;
    }
    Some((u64_at(slot, 16), Seq::new(u64_at(slot, 24))?, u32_at(slot, 8)))
}
