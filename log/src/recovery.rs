//! The report of an opening: what was recovered, what was damaged, and where the damaged bytes went.

use std::fmt;
use std::path::PathBuf;

use crate::Seq;

/// What [`Log::open`](crate::Log::open) found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// The oldest record recovered; nothing when the log holds none.
    pub first: Option<Seq>,
    /// The number the next append gets.
    pub next: Seq,
    /// Number of records recovered.
    pub records: u64,
    /// Bytes of all segments, headers included.
    pub bytes: u64,
    /// Files of segments that had been trimmed before a crash and were deleted now.
    pub finished_trims: usize,
    /// Every piece that could not be recovered, in the order of the log. Empty after a clean stop.
    pub damage: Vec<Damage>,
    /// Pieces kept aside, now or earlier, that were deleted to hold the bound on them.
    pub evicted: Vec<PathBuf>,
}

impl Recovery {
    /// Whether every byte found was valid.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damage.is_empty()
    }
}

/// One piece of the log that was not recovered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    /// The file it was found in (or expected as).
    pub path: PathBuf,
    /// Where in that file it begins.
    pub offset: u64,
    /// How many bytes it has, to the end of the file.
    pub bytes: u64,
    /// What is wrong with it.
    pub reason: DamageReason,
    /// What was done with it.
    pub outcome: DamageOutcome,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, offset, bytes, reason, outcome } = self;
        write!(f, "{}: {bytes} bytes at offset {offset} not recovered: {reason}; {outcome}", path.display())
    }
}

/// What became of a damaged piece.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DamageOutcome {
    /// Its bytes were moved to this file.
    SetAside(PathBuf),
    /// Its bytes could not be kept, for this reason.
    Discarded(String),
    /// There were no bytes to keep.
    Nothing,
}

impl fmt::Display for DamageOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SetAside(path) => write!(f, "kept as {}", path.display()),
            Self::Discarded(why) => write!(f, "discarded: {why}"),
            Self::Nothing => f.write_str("nothing to keep"),
        }
    }
}

/// What is wrong with a damaged piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DamageReason {
    /// The file ends inside its header, as when power failed just after it was created.
    #[error("the file ends inside its header")]
    TornHeader,
    /// Magic or checksum of the header do not match.
    #[error("the header does not match its checksum")]
    Header,
    /// The header names another first sequence number than the file's name.
    #[error("the header says the segment begins with {header}, the file's name differs")]
    Misnamed {
        /// The number in the header.
        header: Seq,
    },
    /// The file ends inside a record, as after a crash during a write.
    #[error("the file ends inside a record")]
    TornRecord,
    /// Zeros where a record should be, as some file systems leave after a crash.
    #[error("zeros instead of a record")]
    Zeros,
    /// The record's length is beyond what the format allows.
    #[error("impossible record length {bytes}")]
    Length {
        /// The length found.
        bytes: u32,
    },
    /// A record with another sequence number than its place demands.
    #[error("sequence {found} where {expected} belongs")]
    Sequence {
        /// The number that belongs there.
        expected: Seq,
        /// The number found.
        found: u64,
    },
    /// Length, sequence or payload do not match the record's checksum.
    #[error("the record does not match its checksum")]
    Checksum,
    /// A segment that should be here is missing; what follows it is not contiguous.
    #[error("records {expected} and following are missing before it")]
    Gap {
        /// The number that should have come next.
        expected: Seq,
    },
    /// The segment holds numbers an earlier one already holds.
    #[error("it repeats records before {expected}")]
    Overlap {
        /// The number that should have come next.
        expected: Seq,
    },
    /// Nothing may be wrong with it, but something before it is damaged.
    #[error("it follows a damaged piece")]
    AfterDamage,
    /// Both slots of the trim pointer are unreadable; it was set to the oldest segment found.
    #[error("the trim pointer is unreadable")]
    Pointer,
}
