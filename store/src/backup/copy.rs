//! Owns making a backup.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use evenkeel_log::Survey;
use evenkeel_log::private::{self, NotPrivate};

use super::check::check;
use super::look::{CHECKPOINT, HISTORY, LOG, StoreSnapshot, opened};
use super::manifest::{BackupFile, Manifest, PART, logs_and_files};
use super::{BackupError, BackupReport, failed};
use crate::pace::Pace;

/// Copies a state directory to an empty or new one, and checks the copy; a recommender may be writing. `now_usec` is told in the
/// backup. What is damaged is copied as far as it is whole; the report says so.
///
/// # Errors
/// When the target is not empty, or something cannot be read or written; what was written then is no backup.
pub fn back_up(from: &Path, to: &Path, now_usec: u64) -> Result<BackupReport, BackupError> {
    let look = StoreSnapshot::take(from)?;
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    // One that is not there yet is where its parent is.
    let place = if to.exists() { real(to) } else { to.parent().map_or_else(|| real(to), real) };
    if place.starts_with(real(from)) {
        return Err(BackupError::Inside { path: to.to_owned() });
    }
    empty_directory(to)?;
    let mut copy = Copy { to, files: Vec::new(), pace: Pace::start() };
    if let Some((file, summary)) = &look.checkpoint {
        copy.file(Path::new(CHECKPOINT), file, summary.bytes)?;
    }
    for sealed in look.history.values() {
        if let (Some(file), Some(name)) = (&sealed.file, sealed.path.file_name()) {
            copy.file(&Path::new(HISTORY).join(name), file, sealed.length)?;
        }
    }
    let applied = look.checkpoint.as_ref().map_or(0, |(_, summary)| summary.applied);
    copy.log(Path::new(LOG), &look.log, applied)?;
    let (logs, files) = logs_and_files(from)?;
    for log in logs {
        copy.log(&log, &Survey::open(&from.join(&log))?, 0)?;
    }
    for name in files {
        // One that is gone was done with.
        if let Some(file) = opened(&from.join(&name))? {
            let length = file.metadata().map_err(failed("look at", &from.join(&name)))?.len();
            copy.file(&name, &file, length)?;
        }
    }
    let damage = damage_of(from)?;
    Manifest::new(now_usec, copy.files).write(to)?;
    let mut report = check(to)?;
    damage.into_iter().for_each(|finding| report.tell(finding));
    Ok(report)
}

/// What is damaged of the store that is copied: the copy may look whole without it.
fn damage_of(from: &Path) -> Result<Vec<super::Finding>, BackupError> {
    let mut report = check(from)?;
    report.findings.retain(|finding| finding.level == super::Level::Damage);
    Ok(report.findings)
}

/// Makes the directory of a backup or of a restored store, which must have nothing in it.
pub(super) fn empty_directory(dir: &Path) -> Result<(), BackupError> {
    match private::directory(dir) {
        // Root may fill a directory of the recommender's user, and gives it what is written.
        Err(NotPrivate::Foreign { .. }) if nix::unistd::geteuid().is_root() => {}
        taken => taken?,
    }
    let mut entries = std::fs::read_dir(dir).map_err(failed("list", dir))?;
    match entries.next() {
        None => Ok(()),
        Some(Ok(entry)) => {
            let found = entry.file_name().to_string_lossy().into_owned();
            Err(BackupError::NotEmpty { path: dir.to_owned(), found })
        }
        Some(Err(e)) => Err(failed("list", dir)(e)),
    }
}

/// Files that are being copied below a directory.
#[derive(Debug)]
pub(super) struct Copy<'a> {
    pub(super) to: &'a Path,
    pub(super) files: Vec<BackupFile>,
    pub(super) pace: Pace,
}

impl Copy<'_> {
    /// Copies the segments of a log that hold records behind `applied`, and the last one in any case, which says how far the
    /// log's numbers are.
    fn log(&mut self, below: &Path, log: &Survey, applied: u64) -> Result<(), BackupError> {
        let whole = log.pieces.get(..log.whole()).unwrap_or_default();
        for (at, piece) in whole.iter().enumerate() {
            if piece.next.get() <= applied + 1 && at + 1 < whole.len() {
                continue;
            }
            if let Some(name) = piece.path.file_name() {
                self.file(&below.join(name), &piece.file, piece.valid)?;
            }
        }
        Ok(())
    }

    /// Copies the first `length` bytes of a file, durably.
    pub(super) fn file(&mut self, name: &Path, from: &File, length: u64) -> Result<(), BackupError> {
        let path = self.to.join(name);
        if let Some(parent) = path.parent() {
            self.directories(parent)?;
        }
        let mut file = private::create(&path).map_err(failed("create", &path))?;
        let mut from = from;
        io::Seek::rewind(&mut from).map_err(failed("read", &path))?;
        let (mut left, mut crc, mut part) = (length, 0, vec![0; PART]);
        while left > 0 {
            let most = usize::try_from(left).unwrap_or(PART).min(PART);
            let part = part.get_mut(..most).unwrap_or_default();
            let got = from.read(part).map_err(failed("copy to", &path))?;
            if got == 0 {
                break;
            }
            let part = part.get(..got).unwrap_or_default();
            file.write_all(part).map_err(failed("write", &path))?;
            crc = crc32c::crc32c_append(crc, part);
            left -= got as u64;
            self.pace.step();
        }
        file.sync_all().map_err(failed("sync", &path))?;
        private::sync_directory(&path).map_err(failed("sync the directory of", &path))?;
        self.files.push(BackupFile { path: name.to_owned(), bytes: length - left, crc32c: crc });
        Ok(())
    }

    /// Makes the directories between the target and a file, each private.
    fn directories(&self, parent: &Path) -> Result<(), BackupError> {
        let Ok(below) = parent.strip_prefix(self.to) else { return Ok(()) };
        let mut made = PathBuf::from(self.to);
        for part in below.components() {
            made.push(part);
            private::subdirectory(&made)?;
        }
        Ok(())
    }
}
