//! Owns what the store tells: where something stands in the order of everything, what became of a frame or a greeting,
//! what opening found, and what went wrong.

use std::path::PathBuf;

use evenkeel_log::LogError;

use super::record::RecordError;
use crate::checkpoint::{CheckpointError, TooLarge};
use crate::history::HistoryError;
use crate::history::past::Coverage;

/// A place in the order of everything logged by this process; 0 = before all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Mark(pub u64);

/// The store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The log did.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The checkpoint did.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The history's files did.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// A record was written by a newer release.
    #[error("record {seq} of the ingest log: {source}")]
    Record {
        /// Its number in the log.
        seq: u64,
        /// What is wrong with it.
        source: RecordError,
    },
    /// A sync failed, and the log has not been opened anew yet.
    #[error("the ingest log is closed after a failed sync; it is opened anew as soon as the disk works")]
    Closed,
    /// The thread that counts what is logged has ended by a fault.
    #[error(
        "what is logged is not counted any more, since a thread ended by a fault; restart the recommender"
    )]
    Uncounted,
    /// The room kept for a checkpoint has made way for it.
    #[error(
        "the disk is full: the ingest log waits until a checkpoint is written and the log trimmed; free space"
    )]
    MakingRoom,
    /// A backup was being copied into the state directory, and that was cut off.
    #[error("{} holds half of a backup; restore it again, which begins anew", .0.display())]
    HalfRestored(PathBuf),
    /// The state directory cannot be made.
    #[error(transparent)]
    Directory(#[from] evenkeel_log::private::NotPrivate),
}

/// What opening found.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OpenReport {
    /// Size of the checkpoint read, where there was one.
    pub checkpoint_bytes: Option<u64>,
    /// What it held beyond the bounds of this release.
    pub too_large: TooLarge,
    /// Why a checkpoint that was there could not be used; it was moved aside.
    pub checkpoint_damage: Option<String>,
    /// Records replayed behind it.
    pub records: u64,
    /// Frames among them.
    pub frames: u64,
    /// Container seconds in them.
    pub samples: u64,
    /// Records that could not be understood.
    pub unreadable: u64,
    /// What the log could not recover.
    pub log_damage: Vec<String>,
    /// Records that are neither in the checkpoint nor in the log any more.
    pub missing_records: u64,
    /// Bytes of the history's files.
    pub history_bytes: u64,
    /// What could not be read of them.
    pub history_damage: Vec<String>,
    /// How much of the past there is.
    pub coverage: Coverage,
    /// Why there is no room for a checkpoint on the disk.
    pub no_room: Option<String>,
    /// Time it took, milliseconds.
    pub millis: u64,
}

/// What became of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameOutcome {
    /// Everything up to `last` may be acknowledged once `mark` is durable.
    Acknowledge {
        /// Last sequence counted.
        last: u64,
        /// When it is durable.
        mark: Mark,
    },
    /// Nothing is to be said.
    Nothing,
    /// The frame was given up, durably with `mark`.
    Refused {
        /// When that is durable.
        mark: Mark,
        /// Why.
        why: String,
        /// What the client should do.
        remedy: String,
    },
    /// End the connection.
    Close {
        /// Why, and what to do.
        why: String,
        /// Nothing of this epoch can be taken any more; the client goes on under a new one.
        is_over: bool,
    },
}

/// The answer to a greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Greeting {
    /// Last sequence of the stream.
    pub last: u64,
    /// When it is durable.
    pub mark: Mark,
    /// Whether the slots are known.
    pub knows_slots: bool,
}
