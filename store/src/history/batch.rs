//! Owns reading the batches of a history file, and what is learnt from them.

use super::files::{BATCH_HEADER, HEADER_BYTES};
use super::item::{Item, Items};
use super::past::SubjectId;
use crate::key::SeriesId;

/// What reading back found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BatchesRead {
    /// Greatest record number of a batch; 0 = no batch.
    pub(crate) applied: u64,
    pub(crate) bytes: u64,
    /// What could not be read, for people.
    pub(crate) damage: Vec<String>,
}

/// Numbers of a file and what they stand for in this process.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(crate) subjects: Vec<Option<SubjectId>>,
    pub(crate) series: Vec<Option<SeriesId>>,
}

/// Shows the items of all whole batches; where the last of them ends.
pub(super) fn batches(bytes: &[u8], found: &mut BatchesRead, mut show: impl FnMut(Item<'_>)) -> u64 {
    let mut at = HEADER_BYTES;
    while let Some(head) = bytes.get(at..at + BATCH_HEADER) {
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let crc = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let Some(checked) = bytes.get(at + 8..at + BATCH_HEADER + length) else { break };
        if crc32c::crc32c(checked) != crc {
            break;
        }
        let (applied, items) = checked.split_at(8);
        let applied = applied.try_into().map_or(0, u64::from_le_bytes);
        found.applied = found.applied.max(applied);
        let mut reader = Items::new(items);
        reader.by_ref().for_each(&mut show);
        if !reader.is_whole() {
            found.damage.push(format!("a batch at byte {at} has items that cannot be understood"));
        }
        at += BATCH_HEADER + length;
    }
    at.min(bytes.len().max(HEADER_BYTES)) as u64
}
