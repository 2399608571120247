//! Owns checks, backups and restores of a state directory, also of one that a recommender is writing.
//!
//! What is looked at holds together whatever is written meanwhile (`look.rs`): a checkpoint is replaced whole and says how much of
//! each history file counts, these are only appended to, and the log goes on where the checkpoint ends, or a newer checkpoint has
//! taken the place of that one, and everything is looked at again. Nothing is asked of the recommender, locked or changed.
//!
//! A backup is a directory like a state directory with a list of its files and their checksums, written last (`manifest.rs`). Not
//! owned: what state directories hold besides the store; logs and files are copied as such.

mod check;
mod copy;
mod look;
mod manifest;
mod restore;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

use evenkeel_log::{LogError, private, remedy};
use serde::Serialize;

use crate::checkpoint::CheckpointError;

pub use check::check;
pub use copy::back_up;
pub use restore::{is_half_restored, restore};

/// Findings that are told; a check of a store that is rubbish altogether ends there.
const MOST_FINDINGS: usize = 1000;

/// Why a store was not checked, copied or restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A log cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A system call failed.
    #[error("cannot {op} {}; {}", path.display(), remedy(source).unwrap_or("give the directory to the user this process runs as"))]
    Io {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A directory is not taken.
    #[error(transparent)]
    Directory(#[from] private::NotPrivate),
    /// There is something where a backup or a restored store should be.
    #[error("{} is not empty ({found} is in it); name an empty directory, or one that is not there yet", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
        /// A name in it.
        found: String,
    },
    /// A backup would be a part of what it is a backup of.
    #[error("{} is inside of the state directory; name one elsewhere, best on another disk", path.display())]
    Inside {
        /// The directory.
        path: PathBuf,
    },
    /// There is no store in the directory.
    #[error("{} has no store: neither a checkpoint nor a log; name the state directory of a recommender", path.display())]
    NoStore {
        /// The directory.
        path: PathBuf,
    },
    /// A backup has no list of its files, or one that cannot be read.
    #[error("{} is no whole backup: {why}; name a directory that `store backup` finished", path.display())]
    NotABackup {
        /// The directory.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// Files of a backup are not as they were written.
    #[error("{} of the files in {} are not as they were written ({first}); take another backup, or restore what is whole with --damaged", findings.len(), path.display())]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// What is wrong with the first.
        first: String,
        /// All that is wrong.
        findings: Vec<Finding>,
    },
    /// The store changed faster than it could be looked at.
    #[error("{} changed {tries} times while it was looked at; try again when checkpoints are less frequent (log.checkpoint_interval)", path.display())]
    Unsteady {
        /// The directory.
        path: PathBuf,
        /// How often it was looked at.
        tries: u32,
    },
}

fn failed(op: &'static str, path: &Path) -> impl FnOnce(io::Error) -> BackupError {
    let path = path.to_owned();
    move |source| BackupError::Io { op, path, source }
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing is lost.
    Note,
    /// Something that was kept cannot be had any more.
    Damage,
}

/// Something that is not as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// The file.
    pub path: PathBuf,
    /// Where in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// How many bytes of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// What is wrong.
    pub what: String,
    /// What follows for the store that is opened with it.
    pub loses: String,
}

/// What was looked at, and what was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BackupReport {
    /// The directory.
    pub path: PathBuf,
    /// Files that count.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Last record of the ingest log that the checkpoint covers; 0 without one.
    pub checkpoint_record: u64,
    /// Last record of the ingest log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_record: Option<u64>,
    /// What is wrong, in the order of the files.
    pub findings: Vec<Finding>,
    /// There is more than is told here.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

impl BackupReport {
    /// Whether nothing is lost.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.findings.iter().all(|finding| finding.level == Level::Note)
    }

    fn tell(&mut self, finding: Finding) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(finding);
        } else {
            self.truncated = true;
        }
    }
}
