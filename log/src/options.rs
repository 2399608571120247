//! What a log is opened with: sizes, bounds and what to do when the bound is reached.

use crate::LogError;
use crate::format::{RECORD_HEADER, SEGMENT_HEADER};

/// The largest payload the file format allows: 64 MiB. A length field above it is damage, so that a flipped bit can
/// never ask for more memory than this.
pub const MAX_RECORD_BYTES: u32 = 64 << 20;

/// What [`Log::append`](crate::Log::append) does when [`Options::max_bytes`] is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Overflow {
    /// Refuse with [`LogError::Full`]; nothing is lost until the caller trims.
    #[default]
    Reject,
    /// Delete the oldest segments; what was lost is told by [`Log::take_dropped`](crate::Log::take_dropped).
    DropOldest,
}

/// Sizes and bounds of a log. They may differ from one opening to the next; the files carry none of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// A segment is closed before it would grow past this many bytes (a single larger record gets its own). Trim and
    /// drop work on whole segments, so this is also their grain. Default 8 MiB.
    pub segment_bytes: u64,
    /// Bound on the bytes of all segments together, headers included. At least twice `segment_bytes` and twice the
    /// largest record. Default 256 MiB.
    pub max_bytes: u64,
    /// Largest accepted payload in bytes, at most [`MAX_RECORD_BYTES`]. Default 16 MiB.
    pub max_record_bytes: u32,
    /// Appended bytes kept in memory before they are written without being asked. Default 256 KiB.
    pub buffer_bytes: usize,
    /// What to do when `max_bytes` is reached. Default: reject.
    pub overflow: Overflow,
    /// Bound on the bytes of damaged pieces kept aside (`*.corrupt`); the oldest are deleted first. Default 64 MiB.
    pub quarantine_bytes: u64,
    /// Bound on the number of damaged pieces kept aside. Default 16.
    pub quarantine_files: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_bytes: 8 << 20,
            max_bytes: 256 << 20,
            max_record_bytes: 16 << 20,
            buffer_bytes: 256 << 10,
            overflow: Overflow::Reject,
            quarantine_bytes: 64 << 20,
            quarantine_files: 16,
        }
    }
}

impl Options {
    /// Refuses combinations with which an append could never succeed or the bound could not be held.
    pub(crate) fn validate(&self) -> Result<(), LogError> {
        let fail = |what: String| Err(LogError::Options { what });
        let smallest = (SEGMENT_HEADER + RECORD_HEADER) as u64;
        if self.segment_bytes < smallest {
            return fail(format!("segment_bytes is {}, the least is {smallest}", self.segment_bytes));
        }
        if self.max_record_bytes > MAX_RECORD_BYTES {
            return fail(format!(
                "max_record_bytes is {}, the most is {MAX_RECORD_BYTES}",
                self.max_record_bytes
            ));
        }
        let half = self.max_bytes / 2;
        if half < self.segment_bytes {
            return fail(format!(
                "max_bytes is {}, less than twice segment_bytes ({})",
                self.max_bytes, self.segment_bytes
            ));
        }
        let largest = u64::from(self.max_record_bytes) + smallest;
        if half < largest {
            return fail(format!(
                "max_bytes is {}, less than twice the largest record ({largest} with its headers)",
                self.max_bytes
            ));
        }
        Ok(())
    }
}
