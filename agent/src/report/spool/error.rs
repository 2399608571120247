//! What is wrong with a spool.

use std::io;
use std::path::PathBuf;

use evenkeel_log::LogError;
use evenkeel_log::private::NotPrivate;
use evenkeel_proto::frame::FrameError;

/// What can go wrong with the spool.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SpoolError {
    /// A log of frames.
    #[error(transparent)]
    Log(LogError),
    /// The spool's directory is not this program's alone.
    #[error(transparent)]
    NotPrivate(#[from] NotPrivate),
    /// A directory.
    #[error("cannot {op} {}: {error}", path.display())]
    Directory {
        /// What was tried.
        op: &'static str,
        /// On which directory.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// The list of slots.
    #[error("cannot write the list of known slots: {error}; free space on that file system")]
    Slots {
        /// Why it failed.
        error: io::Error,
    },
    /// A stored frame does not decode.
    #[error("a spooled frame is damaged: {0}")]
    Frame(#[from] FrameError),
    /// The recommender claims frames that it was never sent.
    #[error("the recommender claims frames up to {claimed} of epoch {epoch:016x}, of which {sent} were sent")]
    Ahead {
        /// The epoch.
        epoch: u64,
        /// What it claims to have.
        claimed: u64,
        /// What it can have.
        sent: u64,
    },
    /// A frame that the index names is not on disk.
    #[error("a spooled frame is no longer on disk; somebody else changed the spool")]
    Vanished,
}
