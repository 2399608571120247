//! Damaged pieces, moved aside for a person to look at, bounded in number and bytes.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::error::At;
use crate::{DamageOutcome, LogError, Options, private};

const SUFFIX: &str = ".corrupt";

/// The damaged pieces of one log directory.
#[derive(Debug)]
pub(crate) struct Quarantine {
    dir: PathBuf,
    /// Running number, path and size, oldest first.
    kept: Vec<(u64, PathBuf, u64)>,
    max_bytes: u64,
    max_files: usize,
}

impl Quarantine {
    /// Takes stock of what earlier recoveries left.
    pub(crate) fn open(dir: &Path, names: &[String], options: &Options) -> Self {
        let mut kept: Vec<_> = names
            .iter()
            .filter_map(|name| {
                let number = name.strip_suffix(SUFFIX)?.split('-').next()?.parse().ok()?;
                let path = dir.join(name);
                // A piece that cannot be inspected counts as empty; it still counts.
                let bytes = fs::metadata(&path).map_or(0, |m| m.len());
                Some((number, path, bytes))
            })
            .collect();
        kept.sort_unstable();
        Self {
            dir: dir.to_owned(),
            kept,
            max_bytes: options.quarantine_bytes,
            max_files: options.quarantine_files,
        }
    }

    /// Moves a whole file aside. The file is gone from its place afterwards.
    pub(crate) fn move_file(&mut self, path: &Path, bytes: u64) -> Result<DamageOutcome, LogError> {
        if let Some(outcome) = self.not_worth_keeping(bytes) {
            fs::remove_file(path).at("delete", path)?;
            return Ok(outcome);
        }
        let target = self.target(path, 0);
        fs::rename(path, &target).at("rename", path)?;
        Ok(self.keep(target, bytes))
    }

    /// Copies the end of a file aside, from `offset` on. The caller cuts it off, whatever the outcome.
    pub(crate) fn copy_tail(&mut self, path: &Path, file: &File, offset: u64, bytes: u64) -> DamageOutcome {
        if let Some(outcome) = self.not_worth_keeping(bytes) {
            return outcome;
        }
        let target = self.target(path, offset);
        match copy(file, offset, bytes, &target) {
            Ok(()) => self.keep(target, bytes),
            Err(e) => {
                let _ignored = fs::remove_file(&target);
                DamageOutcome::Discarded(format!("cannot copy it to {}: {e}", target.display()))
            }
        }
    }

    /// Deletes the oldest pieces until the rest is within the bounds; the deleted ones.
    pub(crate) fn evict(&mut self) -> Result<Vec<PathBuf>, LogError> {
        let mut evicted = Vec::new();
        let mut bytes: u64 = self.kept.iter().map(|k| k.2).sum();
        while self.kept.len() > self.max_files || bytes > self.max_bytes {
            let (_, path, size) = self.kept.remove(0);
            remove_if_there(&path)?;
            bytes -= size;
            evicted.push(path);
        }
        Ok(evicted)
    }

    fn not_worth_keeping(&self, bytes: u64) -> Option<DamageOutcome> {
        if bytes == 0 {
            Some(DamageOutcome::Nothing)
        } else if bytes > self.max_bytes || self.max_files == 0 {
            let why =
                format!("more than the {} bytes in {} files kept aside", self.max_bytes, self.max_files);
            Some(DamageOutcome::Discarded(why))
        } else {
            None
        }
    }

    fn target(&self, path: &Path, offset: u64) -> PathBuf {
        let number = self.kept.last().map_or(1, |k| k.0.saturating_add(1));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        self.dir.join(format!("{number:06}-{name}-{offset}{SUFFIX}"))
    }

    fn keep(&mut self, path: PathBuf, bytes: u64) -> DamageOutcome {
        let number = self.kept.last().map_or(1, |k| k.0.saturating_add(1));
        self.kept.push((number, path.clone(), bytes));
        DamageOutcome::SetAside(path)
    }
}

/// Deletes a file; that it is gone already is what was wanted.
pub(crate) fn remove_if_there(path: &Path) -> Result<(), LogError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(LogError::io("delete", path, e)),
        _ => Ok(()),
    }
}

fn copy(mut file: &File, offset: u64, bytes: u64, target: &Path) -> io::Result<()> {
    let mut out = private::options().write(true).create_new(true).open(target)?;
    file.seek(SeekFrom::Start(offset))?;
    io::copy(&mut file.take(bytes), &mut out)?;
    out.sync_all()
}
