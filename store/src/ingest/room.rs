//! Owns the room kept on the disk for one checkpoint: a file of nothing, which makes way when the disk is full.
//!
//! Without it a log that has filled its disk could never be trimmed, since trimming needs a checkpoint. While the file has
//! made way nothing is appended to the log, so that the checkpoint alone gets the room; the file is back before the log
//! goes on.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::posix_fallocate;

/// Room beside that for the checkpoint itself: sealed history, and a segment of the log.
const BESIDE: u64 = 1 << 20;

/// The room. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    path: PathBuf,
    is_released: Arc<AtomicBool>,
    is_kept: Arc<AtomicBool>,
}

impl Room {
    /// The room in a state directory; nothing is kept yet.
    pub(crate) fn new(state_dir: &Path) -> Self {
        Self { path: state_dir.join("reserve"), is_released: Arc::default(), is_kept: Arc::default() }
    }

    /// Keeps room for a checkpoint that is at most twice as large as the last one.
    ///
    /// # Errors
    /// When the disk has not as much.
    pub(crate) fn keep(&self, last_checkpoint: u64) -> io::Result<()> {
        let kept = self.allocate(last_checkpoint);
        self.is_kept.store(kept.is_ok(), Ordering::SeqCst);
        kept
    }

    fn allocate(&self, last_checkpoint: u64) -> io::Result<()> {
        let wanted = last_checkpoint.saturating_mul(2).saturating_add(BESIDE);
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        let has = file.metadata()?.len();
        if has < wanted {
            let end = i64::try_from(wanted).unwrap_or(i64::MAX);
            posix_fallocate(&file, 0, end)?;
        } else if has / 4 > wanted {
            file.set_len(wanted)?;
        }
        self.is_released.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Gives the room to whoever writes a checkpoint; whether there was any.
    pub(crate) fn release(&self) -> bool {
        let has = fs::metadata(&self.path).map_or(0, |file| file.len());
        if has == 0 || fs::remove_file(&self.path).is_err() {
            return false;
        }
        self.is_released.store(true, Ordering::SeqCst);
        true
    }

    /// Whether there was enough room when it was last to be kept.
    pub(crate) fn is_kept(&self) -> bool {
        self.is_kept.load(Ordering::SeqCst)
    }

    /// Whether nobody else may take room now.
    pub(crate) fn is_released(&self) -> bool {
        self.is_released.load(Ordering::SeqCst)
    }
}

/// Whether there is an error of a full disk, or of a quota that is used up, behind this one.
pub(crate) fn is_full_disk(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        let io = error.downcast_ref::<io::Error>();
        // One that wraps another has that one's source for its own.
        let inner = io.and_then(io::Error::get_ref).and_then(|inner| inner.downcast_ref::<io::Error>());
        let errno = inner.or(io).and_then(io::Error::raw_os_error);
        if errno.is_some_and(|errno| matches!(Errno::from_raw(errno), Errno::ENOSPC | Errno::EDQUOT)) {
            return true;
        }
        next = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_kept_released_and_kept_again() {
        let dir = tempfile::tempdir().unwrap();
        let room = Room::new(dir.path());
        assert!(!room.release(), "there is none yet");
        room.keep(1000).unwrap();
        let size = || fs::metadata(dir.path().join("reserve")).map_or(0, |file| file.len());
        assert_eq!(size(), BESIDE + 2000);
        room.keep(10 << 20).unwrap();
        assert_eq!(size(), BESIDE + (20 << 20));
        room.keep(0).unwrap();
        assert_eq!(size(), BESIDE, "what is far too much is given back");
        assert!(room.release() && room.is_released());
        assert_eq!(size(), 0);
        room.keep(0).unwrap();
        assert!(!room.is_released());
    }

    #[test]
    fn a_full_disk_is_known_behind_other_errors() {
        let full = || io::Error::from_raw_os_error(Errno::ENOSPC as i32);
        assert!(is_full_disk(&full()));
        assert!(is_full_disk(&io::Error::other(full())));
        assert!(!is_full_disk(&io::Error::from_raw_os_error(Errno::EIO as i32)));
    }
}
