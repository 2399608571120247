//! One process at a time: the lock file of a log directory.
//!
//! `flock` belongs to the open file: it ends with the process however that ends, and it also keeps out a second opening
//! within the same process. A forked child shares the open file until it executes another program; so the lock is
//! released by name when it is dropped, not only by closing our descriptor.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use crate::LogError;
use crate::error::At;
use crate::private;

const NAME: &str = "lock";

/// A file that one process has at a time; held until dropped.
#[derive(Debug)]
pub struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing does the rest where this fails.
        let _ignored = self.0.unlock();
    }
}

impl Lock {
    /// Locks a directory of a log, or says who has it.
    pub(crate) fn of_dir(dir: &Path) -> Result<Self, LogError> {
        Self::take(&dir.join(NAME))
    }

    /// Locks a file, made where there is none, and writes this process's number into it.
    ///
    /// # Errors
    /// [`LogError::Locked`] with the holder's number, or why the file cannot be opened.
    pub fn take(path: &Path) -> Result<Self, LogError> {
        let mut options = private::options();
        let opened = options.read(true).write(true).create(true).truncate(false).open(path);
        let mut file = opened.at("open", path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let dir = path.parent().unwrap_or(path).to_owned();
                return Err(LogError::Locked { dir, holder: holder(&mut file) });
            }
            Err(TryLockError::Error(e)) => return Err(LogError::io("lock", path, e)),
        }
        // The number only helps a person reading the error; a full disk must not keep the log from opening.
        let _ignored = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Self(file))
    }
}

fn holder(file: &mut File) -> Option<u32> {
    let mut text = String::new();
    file.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "helpers of tests")]

    use super::*;

    /// A child between fork and exec has the same open file, as a duplicated descriptor has.
    #[test]
    fn a_dropped_lock_is_free_although_a_forked_child_still_has_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let lock = Lock::take(&path).unwrap();
        let of_child = lock.0.try_clone().unwrap();
        assert!(matches!(Lock::take(&path), Err(LogError::Locked { .. })));
        drop(lock);
        let again = Lock::take(&path);
        assert!(again.is_ok(), "{again:?}");
        drop(of_child);
        assert!(
            matches!(Lock::take(&path), Err(LogError::Locked { .. })),
            "closing the old file unlocks nothing"
        );
    }
}
