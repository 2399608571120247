//! Owns putting a backup back in place.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, chown, lchown};
use std::path::{Path, PathBuf};

use evenkeel_log::private;

use super::check::check;
use super::copy::{Copy, empty_directory};
use super::look::opened;
use super::manifest::Manifest;
use super::{BackupError, BackupReport, failed};
use crate::pace::Pace;

/// In a state directory that is being restored; a store is not opened beside it.
const MARK: &str = "restoring";

/// Whether a restore of this state directory was begun and not ended.
///
/// # Errors
/// When the system does not say.
pub fn is_half_restored(state_dir: &Path) -> io::Result<bool> {
    state_dir.join(MARK).try_exists()
}

/// Copies a backup to a state directory that is empty or not there, and checks the copy. A restore that was cut off is begun anew.
/// As root, files are given to the directory's owner. With `damaged`, what is not as it was written is taken all the same.
///
/// # Errors
/// When the directory is not empty, the backup is not whole, or something cannot be read or written.
pub fn restore(from: &Path, to: &Path, damaged: bool) -> Result<BackupReport, BackupError> {
    let none = || "there is no list of its files".to_owned();
    let manifest =
        Manifest::of(from)?.ok_or_else(|| BackupError::NotABackup { path: from.to_owned(), why: none() })?;
    let mut found = BackupReport::default();
    manifest.verify(from, &mut found)?;
    if let Some(first) = found.findings.first().filter(|_| !damaged) {
        let first = format!("{}: {}", first.path.display(), first.what);
        return Err(BackupError::Damaged { path: from.to_owned(), first, findings: found.findings });
    }
    let owner = begin(to)?;
    let mut copy = Copy { to, files: Vec::new(), pace: Pace::start() };
    for entry in &manifest.files {
        let path = from.join(&entry.path);
        // With `damaged`, one that is missing has been told.
        if let Some(file) = opened(&path)? {
            let length = file.metadata().map_err(failed("look at", &path))?.len();
            copy.file(&entry.path, &file, length)?;
        }
    }
    let names: Vec<PathBuf> = copy.files.into_iter().map(|entry| entry.path).collect();
    give_away(to, &names, owner)?;
    let mark = to.join(MARK);
    fs::remove_file(&mark).map_err(failed("delete", &mark))?;
    private::sync_directory(&mark).map_err(failed("sync the directory of", &mark))?;
    let mut report = check(to)?;
    found.findings.into_iter().for_each(|finding| report.tell(finding));
    Ok(report)
}

/// Whose a directory is: user and group.
type Owner = (u32, u32);

/// Marks an empty directory, or empties one that is marked; whose it is. Root takes it for the time of the copy, so that its owner
/// cannot exchange what root writes.
fn begin(to: &Path) -> Result<Option<Owner>, BackupError> {
    let mark = to.join(MARK);
    if is_half_restored(to).map_err(failed("look at", &mark))? {
        let text = private::read(&mark).map_err(failed("read", &mark))?;
        let owner = owner_in(&String::from_utf8_lossy(&text));
        take(to)?;
        for entry in fs::read_dir(to).map_err(failed("list", to))? {
            let path = entry.map_err(failed("list", to))?.path();
            let kind = fs::symlink_metadata(&path).map_err(failed("look at", &path))?;
            let gone = match path == mark {
                true => continue,
                false if kind.is_dir() => fs::remove_dir_all(&path),
                false => fs::remove_file(&path),
            };
            gone.map_err(failed("delete", &path))?;
        }
        return Ok(owner);
    }
    empty_directory(to)?;
    let meta = fs::metadata(to).map_err(failed("look at", to))?;
    let owner = (meta.uid(), meta.gid());
    take(to)?;
    let made = private::create(&mark).and_then(|mut file| {
        writeln!(file, "{} {}", owner.0, owner.1)?;
        file.sync_all()
    });
    made.and_then(|()| private::sync_directory(&mark)).map_err(failed("write", &mark))?;
    Ok(Some(owner))
}

fn owner_in(text: &str) -> Option<Owner> {
    let (user, group) = text.trim().split_once(' ')?;
    Some((user.parse().ok()?, group.parse().ok()?))
}

/// Makes root the owner of a directory that it fills.
fn take(to: &Path) -> Result<(), BackupError> {
    if !nix::unistd::geteuid().is_root() {
        return Ok(());
    }
    chown(to, Some(0), Some(0)).map_err(failed("take", to))
}

/// What root wrote belongs to whoever owned the directory, and so does that: the recommender's user.
fn give_away(to: &Path, names: &[PathBuf], owner: Option<Owner>) -> Result<(), BackupError> {
    let Some((user, group)) = owner.filter(|owner| nix::unistd::geteuid().is_root() && owner.0 != 0) else {
        return Ok(());
    };
    let mut all: Vec<PathBuf> = Vec::new();
    for name in names {
        let above = name.ancestors().filter(|part| !part.as_os_str().is_empty());
        all.extend(above.map(|part| to.join(part)));
    }
    all.sort();
    all.dedup();
    all.push(to.to_owned());
    for path in all {
        lchown(&path, Some(user), Some(group)).map_err(failed("give away", &path))?;
    }
    Ok(())
}
