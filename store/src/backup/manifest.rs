//! Owns the list of a backup's files, which is written last and makes it one; and what is in a state directory besides the store.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use evenkeel_log::{private, sealed};
use serde::{Deserialize, Serialize};

use super::look::{CHECKPOINT, HISTORY, LOG, opened};
use super::{BackupError, BackupReport, Finding, Level, failed};

/// Its name in the backup.
pub(super) const MANIFEST: &str = "backup";
/// Its format.
const VERSION: u32 = 1;
/// Bytes read at once.
pub(super) const PART: usize = 256 << 10;
/// Directories below one another that are looked into.
const DEPTH: usize = 4;
/// Files a state directory has besides the store, at most: the audit record's inbox has the most, 1,000.
const MOST_FILES: usize = 10_000;
/// What is made anew, or belongs to a program that runs.
const LEFT_OUT: [&str; 4] = ["lock", "head", "reserve", MANIFEST];
/// Endings of what is half written or was set aside.
const LEFT_OUT_ENDINGS: [&str; 3] = ["new", "corrupt", "damaged"];

/// One file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BackupFile {
    /// Below the directory.
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    pub(super) crc32c: u32,
}

/// All files of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    pub(super) version: u32,
    /// When it was made, microseconds since 1970.
    pub(super) taken_usec: u64,
    /// The release that made it.
    pub(super) release: String,
    pub(super) files: Vec<BackupFile>,
}

impl Manifest {
    pub(super) fn new(taken_usec: u64, files: Vec<BackupFile>) -> Self {
        Self { version: VERSION, taken_usec, release: env!("CARGO_PKG_VERSION").to_owned(), files }
    }

    /// Writes it durably.
    pub(super) fn write(&self, dir: &Path) -> Result<(), BackupError> {
        let path = dir.join(MANIFEST);
        let text =
            serde_json::to_vec_pretty(self).map_err(io::Error::other).map_err(failed("write", &path))?;
        private::replace(&path, &sealed::file(&text), true).map_err(failed("write", &path))
    }

    /// The one in a directory; nothing where that is no backup.
    ///
    /// # Errors
    /// When it is there and cannot be understood.
    pub(super) fn of(dir: &Path) -> Result<Option<Self>, BackupError> {
        let path = dir.join(MANIFEST);
        let bytes = match private::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed("read", &path)(e)),
        };
        let bad = |why: String| BackupError::NotABackup { path: dir.to_owned(), why };
        let sealed::Body::Whole(body) = sealed::body(&bytes) else {
            return Err(bad("the list of its files does not match its checksum".to_owned()));
        };
        let manifest: Self = serde_json::from_slice(body).map_err(|e| bad(e.to_string()))?;
        if manifest.version != VERSION {
            let found = manifest.version;
            return Err(bad(format!(
                "it has format version {found}, and this program reads version {VERSION}"
            )));
        }
        match manifest.files.iter().find(|entry| !is_below(&entry.path)) {
            Some(entry) => Err(bad(format!("{} is no file of a backup", entry.path.display()))),
            None => Ok(Some(manifest)),
        }
    }

    /// Tells which files are not as they were written.
    pub(super) fn verify(&self, dir: &Path, report: &mut BackupReport) -> Result<(), BackupError> {
        for entry in &self.files {
            let path = dir.join(&entry.path);
            let what = match opened(&path)? {
                None => Some("the file is missing".to_owned()),
                Some(file) => {
                    let (bytes, crc) = sum(&file).map_err(failed("read", &path))?;
                    let is_same = (bytes, crc) == (entry.bytes, entry.crc32c);
                    let what = format!(
                        "it has {bytes} bytes and not the {} with the checksum they had",
                        entry.bytes
                    );
                    (!is_same).then_some(what)
                }
            };
            if let Some(what) = what {
                report.tell(Finding {
                    level: Level::Damage,
                    path,
                    offset: None,
                    bytes: None,
                    what,
                    loses: "what is told of the file beside this; take another backup".to_owned(),
                });
            }
        }
        Ok(())
    }
}

/// Whether a path names something below a directory, whatever is written in a list.
fn is_below(path: &Path) -> bool {
    path.components().all(|part| matches!(part, std::path::Component::Normal(_)))
        && path.components().count() > 0
}

/// Length and CRC32C of a file.
fn sum(mut file: &File) -> io::Result<(u64, u32)> {
    let (mut bytes, mut crc, mut part) = (0, 0, vec![0; PART]);
    loop {
        match file.read(&mut part)? {
            0 => return Ok((bytes, crc)),
            n => {
                bytes += n as u64;
                crc = crc32c::crc32c_append(crc, part.get(..n).unwrap_or_default());
            }
        }
    }
}

/// What is in a state directory besides the store: directories of logs, and files. Symbolic links and sockets are neither.
pub(super) fn logs_and_files(dir: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>), BackupError> {
    let (mut logs, mut files) = (Vec::new(), Vec::new());
    let mut waiting = vec![(PathBuf::new(), 0)];
    while let Some((below, depth)) = waiting.pop() {
        let place = dir.join(&below);
        let entries = match fs::read_dir(&place) {
            Ok(entries) => entries,
            // A directory may go while this is looked at.
            Err(e) if e.kind() == io::ErrorKind::NotFound && depth > 0 => continue,
            Err(e) => return Err(failed("list", &place)(e)),
        };
        for entry in entries {
            let entry = entry.map_err(failed("list", &place))?;
            let Ok(kind) = entry.file_type() else { continue };
            let name = below.join(entry.file_name());
            let is_stores = depth == 0 && [LOG, HISTORY, CHECKPOINT].iter().any(|own| name == Path::new(own));
            if is_stores {
                continue;
            }
            if kind.is_dir() && depth < DEPTH {
                waiting.push((name, depth + 1));
            } else if kind.is_file() && name.extension().is_some_and(|ending| ending == "seg") {
                logs.push(below.clone());
            } else if kind.is_file() && !is_left_out(&name) && files.len() < MOST_FILES {
                files.push(name);
            }
        }
    }
    logs.sort();
    logs.dedup();
    files.sort();
    Ok((logs, files))
}

fn is_left_out(name: &Path) -> bool {
    let ending = name.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
    let word = name.file_name().and_then(|word| word.to_str()).unwrap_or_default();
    LEFT_OUT.contains(&word) || LEFT_OUT_ENDINGS.contains(&ending)
}
