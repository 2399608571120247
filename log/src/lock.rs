//! One process at a time: the lock file of a log directory.
//!
//! `flock` belongs to the open file: it ends with the process however that ends, and it also keeps out a second opening
//! within the same process. A child that was forked without exec shares it and must close it, or keeps the log locked.

use std::fs::{File, TryLockError};
use std::io::{Read, Write};
use std::path::Path;

use crate::LogError;
use crate::error::At;
use crate::private;

const NAME: &str = "lock";

/// A file that one process has at a time; held until dropped.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code, reason = "held, not used")] File);

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
