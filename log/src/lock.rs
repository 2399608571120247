//! One process at a time: the lock file of a log directory.
//!
//! `flock` belongs to the open file: it ends with the process however that ends, and it also keeps out a second opening
//! within the same process. A child that was forked without exec shares it and must close it, or keeps the log locked.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use crate::LogError;
use crate::error::At;

const NAME: &str = "lock";

/// Holds the lock until dropped.
#[derive(Debug)]
pub(crate) struct DirLock(#[allow(dead_code, reason = "held, not used")] File);

impl DirLock {
    /// Locks `dir`, or says who has it.
    pub(crate) fn take(dir: &Path) -> Result<Self, LogError> {
        let path = dir.join(NAME);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .at("open", &path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(LogError::Locked { dir: dir.to_owned(), holder: holder(&mut file) });
            }
            Err(TryLockError::Error(e)) => return Err(LogError::io("lock", &path, e)),
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
