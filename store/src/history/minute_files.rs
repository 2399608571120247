//! Owns reading minutes back: where they lie in their files, and the files that are open for whoever asks.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
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
pub(crate) struct MinuteFiles(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    files: RwLock<BTreeMap<u32, Arc<File>>>,
    /// Extents that could not be read.
    failed: AtomicU64,
}

impl MinuteFiles {
    /// Shows the blocks of an extent. One that cannot be read is a gap, which the log tells.
    pub(crate) fn read(&self, extent: &Extent, mut block: impl FnMut(&[u8])) {
        let file = self.0.files.read().unwrap_or_else(PoisonError::into_inner).get(&extent.day).cloned();
        let Some(file) = file.filter(|_| extent.length <= MAX_EXTENT) else { return };
        let mut bytes = vec![0; extent.length as usize];
        if let Err(error) = file.read_exact_at(&mut bytes, extent.offset) {
            let failed = self.0.failed.fetch_add(1, Ordering::Relaxed) + 1;
            // A disk that fails does so often.
            if failed.is_power_of_two() {
                tracing::warn!(day = extent.day, hour = extent.hour, %error, failed, "minutes of the history cannot be read and are left out of answers; look for errors of that disk in the kernel log");
            }
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
        self.0.files.write().unwrap_or_else(PoisonError::into_inner).insert(day, Arc::clone(file));
    }

    pub(super) fn remove(&self, day: u32) {
        self.0.files.write().unwrap_or_else(PoisonError::into_inner).remove(&day);
    }
}
