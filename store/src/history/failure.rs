//! Owns what can go wrong with the history's files.

use std::io;
use std::path::PathBuf;

use evenkeel_log::remedy;

use super::files::VERSION;

/// A file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// A system call failed.
    #[error("cannot {op} history {}; {}", path.display(), remedy(source).unwrap_or("give the directory to the user this process runs as"))]
    Io {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The file was written by a newer release.
    #[error("history {} has format version {found}, this program reads up to {VERSION}; use the newer release or another state directory", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version it has.
        found: u32,
    },
}
