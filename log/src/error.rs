//! What can go wrong, as a closed set, each with the path, the errno and the remedy.

use std::io;
use std::path::{Path, PathBuf};

use crate::private::NotPrivate;
use crate::{DamageReason, Seq};

/// Why an operation on a log failed.
///
/// A failed write ([`NoSpace`](Self::NoSpace), [`ReadOnly`](Self::ReadOnly), [`Io`](Self::Io)) leaves the log usable:
/// records already accepted stay buffered and the next flush tries again. [`Poisoned`](Self::Poisoned) does not.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system or the quota is full (ENOSPC, EDQUOT, EFBIG).
    #[error("cannot {op} {}: no space left; free space on that file system or lower the log's size", path.display())]
    NoSpace {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error, with its errno.
        #[source]
        source: io::Error,
    },
    /// The file system is mounted read-only (EROFS), which the kernel also does by itself after an error.
    #[error("cannot {op} {}: the file system is read-only; look for errors in the kernel log and mount it writable", path.display())]
    ReadOnly {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error, with its errno.
        #[source]
        source: io::Error,
    },
    /// The process may not do this (EACCES, EPERM).
    #[error("cannot {op} {}: permission denied; give the directory to the user this process runs as", path.display())]
    Denied {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error, with its errno.
        #[source]
        source: io::Error,
    },
    /// Something put a symbolic link in the place of a file (ELOOP with O_NOFOLLOW).
    #[error("cannot {op} {}: it is a symbolic link, and none is followed here; look who made it, then remove it", path.display())]
    Link {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error, with its errno.
        #[source]
        source: io::Error,
    },
    /// The process, or the machine, has as many files open as it may (EMFILE, ENFILE).
    #[error("cannot {op} {}: too many files are open; raise LimitNOFILE of the unit (ulimit -n), or fs.file-max where it is the machine that has too many", path.display())]
    Descriptors {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error, with its errno.
        #[source]
        source: io::Error,
    },
    /// Any other failure of a system call, such as EIO.
    #[error("cannot {op} {}; look for errors of that disk in the kernel log", path.display())]
    Io {
        /// What was tried.
        op: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's error, with its errno.
        #[source]
        source: io::Error,
    },
    /// Somebody deleted a file of the log while it was in use. What was appended since lies in no file that anybody could
    /// find again.
    #[error("{} was deleted while it was in use; stop this process, put back what can be put back, and start it again", path.display())]
    Deleted {
        /// The file.
        path: PathBuf,
    },
    /// The log has reached its bound and may not drop anything.
    #[error("log {} is full: {bytes} of {max_bytes} bytes used, {needed} more needed; trim it or raise its bound", dir.display())]
    Full {
        /// The log.
        dir: PathBuf,
        /// Bytes in use.
        bytes: u64,
        /// The bound.
        max_bytes: u64,
        /// Bytes the append would add.
        needed: u64,
    },
    /// The record is larger than the log accepts.
    #[error("record of {bytes} bytes is larger than {max} bytes, the most log {} accepts; split it or raise the bound", dir.display())]
    TooLarge {
        /// The log.
        dir: PathBuf,
        /// Size of the payload.
        bytes: u64,
        /// The bound.
        max: u32,
    },
    /// Another process (or another part of this one) has the log open.
    #[error("log {} is in use{}; stop the other process or use another directory", dir.display(), by(*.holder))]
    Locked {
        /// The log.
        dir: PathBuf,
        /// The process that holds it, where it said so.
        holder: Option<u32>,
    },
    /// The directory is not this program's alone.
    #[error(transparent)]
    NotPrivate {
        /// Why, and what to do.
        source: NotPrivate,
    },
    /// The options contradict each other.
    #[error("log options: {what}; correct the configuration")]
    Options {
        /// Which, and why.
        what: String,
    },
    /// The file was written by a newer release.
    #[error("{} has format version {found}, this program reads up to {supported}; use the newer release or another directory", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version it has.
        found: u32,
        /// The newest version known here.
        supported: u32,
    },
    /// A sync failed, so records after `durable` are lost and the log can no longer be trusted. It stays so until it is
    /// opened again.
    #[error(
        "sync of {} failed, records after {} are not durable; check the disk and open the log again",
        path.display(),
        shown(*.durable)
    )]
    Poisoned {
        /// The file whose sync failed.
        path: PathBuf,
        /// The last record known to be on the disk.
        durable: Option<Seq>,
        /// The system's error, with its errno.
        #[source]
        source: io::Error,
    },
    /// A stored record no longer reads as it was written. Opening the log again recovers what is before it.
    #[error("{} is damaged at offset {offset}: {reason}; open the log again to recover what is before it", path.display())]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        reason: DamageReason,
    },
    /// The record a reader was to read next has been trimmed or dropped meanwhile. The reader goes on at `first`.
    #[error("record {wanted} is no longer stored, the oldest is {first}; go on there")]
    Trimmed {
        /// The record asked for.
        wanted: Seq,
        /// The oldest one stored.
        first: Seq,
    },
}

/// What to do about a system call that failed on a file, where that is not a matter of the file: there is no room, or no descriptor.
#[must_use]
pub fn remedy(error: &io::Error) -> Option<&'static str> {
    use nix::libc::{EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOSPC, EROFS};
    match error.raw_os_error()? {
        ENOSPC | EDQUOT | EFBIG => Some("free space on that file system"),
        EROFS => Some("look for errors in the kernel log and mount the file system writable"),
        EMFILE => Some("raise LimitNOFILE of the unit (ulimit -n)"),
        ENFILE => Some("raise the sysctl fs.file-max"),
        EIO => Some("look for errors of that disk in the kernel log"),
        _ => None,
    }
}

fn by(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" by process {pid}"))
}

fn shown(seq: Option<Seq>) -> String {
    seq.map_or_else(|| "the start".to_owned(), |s| s.to_string())
}

impl LogError {
    /// Wraps a failed system call, choosing the variant by errno.
    pub(crate) fn io(op: &'static str, path: &Path, source: io::Error) -> Self {
        use nix::libc::{EACCES, EDQUOT, EFBIG, ELOOP, EMFILE, ENFILE, ENOSPC, EPERM, EROFS};
        let path = path.to_owned();
        match source.raw_os_error() {
            Some(ENOSPC | EDQUOT | EFBIG) => Self::NoSpace { op, path, source },
            Some(EROFS) => Self::ReadOnly { op, path, source },
            Some(ELOOP) => Self::Link { op, path, source },
            Some(EACCES | EPERM) => Self::Denied { op, path, source },
            Some(EMFILE | ENFILE) => Self::Descriptors { op, path, source },
            _ => Self::Io { op, path, source },
        }
    }

    /// The errno behind this error, where a system call failed.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::NoSpace { source, .. }
            | Self::ReadOnly { source, .. }
            | Self::Denied { source, .. }
            | Self::Link { source, .. }
            | Self::Descriptors { source, .. }
            | Self::Io { source, .. }
            | Self::Poisoned { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}

/// Attaches what was tried, and on which file, to the result of a system call.
pub(crate) trait At<T> {
    fn at(self, op: &'static str, path: &Path) -> Result<T, LogError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, op: &'static str, path: &Path) -> Result<T, LogError> {
        self.map_err(|e| LogError::io(op, path, e))
    }
}
