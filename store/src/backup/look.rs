//! Owns a look at a store that may be written meanwhile: open files that belong together.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use evenkeel_log::{Survey, private};

use super::{BackupError, failed};
use crate::checkpoint::{self, CheckpointError, Summary};
use crate::history::files::{FileId, FileKind};

/// Times a store is looked at before it is given up: checkpoints are seconds apart, a look takes far less.
const TRIES: u32 = 20;
/// Pause between looks: a checkpoint that was just written is followed by deletions.
const PAUSE: Duration = Duration::from_millis(50);

/// The log's directory, the history's and the checkpoint's name in a state directory.
pub(super) const LOG: &str = "log";
pub(super) const HISTORY: &str = "history";
pub(super) const CHECKPOINT: &str = "checkpoint";

/// A file of sealed history.
#[derive(Debug)]
pub(super) struct Sealed {
    pub(super) path: PathBuf,
    /// Absent where it is missing.
    pub(super) file: Option<File>,
    /// Bytes that count.
    pub(super) length: u64,
}

/// Open files that belong together.
#[derive(Debug)]
pub(super) struct StoreSnapshot {
    pub(super) checkpoint: Option<(File, Summary)>,
    /// Why the one that is there cannot be used.
    pub(super) damage: Option<String>,
    pub(super) history: BTreeMap<FileId, Sealed>,
    pub(super) log: Survey,
    /// Records behind the checkpoint that the log no longer has: the first of them, and how many.
    pub(super) missing: Option<(u64, u64)>,
}

impl StoreSnapshot {
    /// Looks until what is seen belongs together.
    ///
    /// # Errors
    /// When a file cannot be read, there is no store, or it changes too fast.
    pub(super) fn take(dir: &Path) -> Result<Self, BackupError> {
        let checkpoint = dir.join(CHECKPOINT);
        for _ in 0..TRIES {
            let before = identity(&checkpoint)?;
            let look = Self::once(dir)?;
            // What is missing may be so because a newer checkpoint does not need it any more.
            if look.belongs_together() || identity(&checkpoint)? == before {
                return Ok(look);
            }
            thread::sleep(PAUSE);
        }
        Err(BackupError::Unsteady { path: dir.to_owned(), tries: TRIES })
    }

    fn belongs_together(&self) -> bool {
        let is_there = |sealed: &Sealed| {
            let length = sealed.file.as_ref().and_then(|file| file.metadata().ok()).map(|meta| meta.len());
            length.is_some_and(|length| length >= sealed.length)
        };
        self.damage.is_none() && self.missing.is_none() && self.history.values().all(is_there)
    }

    fn once(dir: &Path) -> Result<Self, BackupError> {
        let path = dir.join(CHECKPOINT);
        let (checkpoint, damage) = match opened(&path)? {
            None => (None, None),
            Some(file) => match checkpoint::summary(&path, &file) {
                Ok(summary) => (Some((file, summary)), None),
                Err(error @ CheckpointError::Damaged { .. }) => (None, Some(error.to_string())),
                Err(error) => return Err(error.into()),
            },
        };
        let history = match &checkpoint {
            Some((_, summary)) => listed(&dir.join(HISTORY), &summary.files)?,
            None => BTreeMap::new(),
        };
        let in_log = dir.join(LOG);
        let log = match in_log.try_exists().map_err(failed("look at", &in_log))? {
            true => Survey::open(&in_log)?,
            false if checkpoint.is_none() && damage.is_none() => {
                return Err(BackupError::NoStore { path: dir.to_owned() });
            }
            false => Survey::default(),
        };
        let applied = checkpoint.as_ref().map_or(0, |(_, summary)| summary.applied);
        let first = log.pieces.first().map(|piece| piece.first.get());
        let missing =
            first.filter(|first| *first > applied + 1).map(|first| (applied + 1, first - applied - 1));
        // Without a checkpoint, what is sealed counts only where the log cannot make it again.
        let history =
            if checkpoint.is_none() && missing.is_some() { present(&dir.join(HISTORY))? } else { history };
        Ok(Self { checkpoint, damage, history, log, missing })
    }
}

/// What tells a checkpoint from the one before.
fn identity(path: &Path) -> Result<Option<(u64, u64, i64, i64)>, BackupError> {
    match fs::symlink_metadata(path) {
        Ok(meta) => Ok(Some((meta.ino(), meta.len(), meta.mtime(), meta.mtime_nsec()))),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("look at", path)(e)),
    }
}

/// A file that may not be there.
pub(super) fn opened(path: &Path) -> Result<Option<File>, BackupError> {
    match private::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(failed("open", path)(e)),
    }
}

/// The files of a checkpoint's list.
fn listed(dir: &Path, files: &[(u32, u32, u64)]) -> Result<BTreeMap<FileId, Sealed>, BackupError> {
    let mut found = BTreeMap::new();
    for (day, kind, length) in files {
        let Some(kind) = FileKind::of_number(*kind) else { continue };
        let path = dir.join(format!("{day}.{}", kind.as_str()));
        let file = opened(&path)?;
        found.insert((*day, kind), Sealed { path, file, length: *length });
    }
    Ok(found)
}

/// All files of a directory, as long as they are.
fn present(dir: &Path) -> Result<BTreeMap<FileId, Sealed>, BackupError> {
    let mut found = BTreeMap::new();
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(found),
        Err(e) => return Err(failed("list", dir)(e)),
    };
    for entry in entries {
        let entry = entry.map_err(failed("list", dir))?;
        let Some(id) = entry.file_name().to_str().and_then(FileKind::of_name) else { continue };
        let path = entry.path();
        let file = opened(&path)?;
        let length = match &file {
            Some(file) => file.metadata().map_err(failed("look at", &path))?.len(),
            None => continue,
        };
        found.insert(id, Sealed { path, file, length });
    }
    Ok(found)
}
