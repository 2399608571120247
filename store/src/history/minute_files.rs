//! Owns reading minutes back: where they lie in their files, and the files that are open for whoever asks.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, PoisonError, RwLock};

/// Largest extent that is written or believed: damage must not ask for unbounded memory.
pub(super) const MAX_EXTENT: u32 = 1 << 20;

/// Blocks of one series and hour that lie behind one another in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    pub(crate) day: u32,
    /// Hour since 1970 of its minutes.
    pub(crate) hour: u32,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

/// The files minutes are read from, shared with whoever asks.
#[derive(Debug, Clone, Default)]
pub(crate) struct MinuteFiles(Arc<RwLock<BTreeMap<u32, Arc<File>>>>);

impl MinuteFiles {
    /// Shows the blocks of an extent. One that cannot be read is a gap.
    pub(crate) fn read(&self, extent: &Extent, mut block: impl FnMut(&[u8])) {
        let file = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&extent.day).cloned();
        let Some(file) = file.filter(|_| extent.length <= MAX_EXTENT) else { return };
        let mut bytes = vec![0; extent.length as usize];
        if file.read_exact_at(&mut bytes, extent.offset).is_err() {
            return;
        }
        let mut rest = bytes.as_slice();
        while let Some((length, after)) = rest.split_first_chunk::<4>() {
            let Some((one, after)) = after.split_at_checked(u32::from_le_bytes(*length) as usize) else {
                return;
            };
            block(one);
            rest = after;
        }
    }

    pub(super) fn insert(&self, day: u32, file: &Arc<File>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(day, Arc::clone(file));
    }

    pub(super) fn remove(&self, day: u32) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&day);
    }
}
