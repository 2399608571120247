//! An append-only log of records in segment files: the one durable log of the project.
//!
//! The agent's spool and decision log and the recommender's ingest log are directories kept by this crate. It owns
//! the file format, the assignment of sequence numbers, the moment a record counts as durable, the bound on disk use,
//! and what happens after a crash, a full disk or a damaged file. It does not own the meaning of a payload, the clock,
//! any thread, and it logs nothing: what happened is returned as a value for the caller to report.
//!
//! # Use
//!
//! ```
//! use evenkeel_log::{Log, Options};
//! # fn main() -> Result<(), evenkeel_log::LogError> {
//! # let dir = tempfile::tempdir().expect("a temporary directory");
//! let (mut log, recovery) = Log::open(dir.path(), Options::default())?;
//! for damage in &recovery.damage {
//!     eprintln!("{damage}");
//! }
//! let seq = log.append(b"hello")?; // in memory
//! log.flush()?; // with the kernel, seen by readers
//! assert_eq!(log.sync()?, Some(seq)); // on the disk: may be acknowledged
//! for record in log.iter_from(seq) {
//!     assert_eq!(record?.payload, b"hello");
//! }
//! log.trim_to(seq)?; // no longer needed
//! # Ok(())
//! # }
//! ```
//!
//! Group sync: the thread that appends calls [`Log::flush`] once per batch; another thread holds a [`SyncHandle`], calls
//! [`SyncHandle::sync`] as often as acknowledgements should be issued (say every 200 ms) and acknowledges everything up
//! to the sequence it returns. `fdatasync` runs without holding anything the appending thread waits for.
//!
//! Small files that are no log share two parts of it: [`private`] (whose directory, no links followed) and [`sealed`]
//! (checksums).
//!
//! # Promises
//!
//! - Sequence numbers begin at 1, are contiguous, and are never assigned twice to records that stay in the log. Only
//!   the numbers of records that recovery had to set aside, or that a failed sync took back, are assigned again; both
//!   are reported ([`Recovery::damage`], [`LogError::Poisoned`]).
//! - A record at or below [`Log::durable`] survives a crash of the process, the kernel and the power supply.
//! - [`Log::open`] recovers the longest valid prefix, whatever is torn, flipped or missing, moves the rest aside and
//!   says so. Everything after it is well-formed again.
//! - A failed write leaves the log as it was; the records stay buffered and the next flush tries again.
//! - After a failed `fdatasync` nothing is claimed: the kernel may have thrown the dirty pages away, so a second
//!   `fdatasync` that succeeds proves nothing. Records that were not durable are cut off and the log is unusable until
//!   it is opened again.
//! - Disk use is at most [`Options::max_bytes`], plus [`Options::quarantine_bytes`] for what was moved aside; memory is
//!   at most the buffer and one record.
//!
//! # Files in the directory
//!
//! | name | content |
//! | --- | --- |
//! | `00000000000000000001.seg` | a segment, named by the first sequence number it may hold (20 digits) |
//! | `head` | the trim pointer: segments below it are gone, whether or not their files still are |
//! | `lock` | held with `flock` while the log is open; holds the process id for the error message |
//! | `000001-00000000000000000001.seg-4711.corrupt` | bytes recovery moved aside: running number, segment, offset |
//!
//! Other names are left alone. All integers are little-endian.
//!
//! A **segment** is a header of 32 bytes and records without padding:
//!
//! | offset | bytes | header field |
//! | --- | --- | --- |
//! | 0 | 8 | magic, `EVKEELOG` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | reserved, 0 |
//! | 16 | 8 | first sequence number, equal to the file's name |
//! | 24 | 4 | salt, random |
//! | 28 | 4 | CRC32C of bytes 0 to 27 |
//!
//! | offset | bytes | record field |
//! | --- | --- | --- |
//! | 0 | 4 | payload length n |
//! | 4 | 4 | CRC32C, continued from the header's CRC, of length, sequence and payload |
//! | 8 | 8 | sequence number |
//! | 16 | n | payload |
//!
//! Since a record's CRC starts from the CRC of its segment's header, which covers a random salt, a record is valid only
//! in the segment it was written to and at its own place in the sequence: stale blocks of a deleted segment and
//! misdirected writes are rejected even when they are whole records.
//!
//! The **head** file has two slots of 512 bytes with the same content, written one after the other and in place, so that
//! one is always whole and a trim works on a full disk. The log begins where it says: if segments from there on are
//! missing, those after them are moved aside. Somebody who deleted old segments by hand deletes `head` as well; the log
//! then begins with the oldest segment found.
//!
//! | offset | bytes | slot field |
//! | --- | --- | --- |
//! | 0 | 8 | magic, `EVKEELHD` |
//! | 8 | 4 | format version, 1 |
//! | 12 | 4 | reserved, 0 |
//! | 16 | 8 | generation; the valid slot with the higher one counts |
//! | 24 | 8 | first sequence number kept |
//! | 32 | 4 | CRC32C of bytes 0 to 31 |

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

mod disk;
mod error;
mod format;
mod head;
mod lock;
mod log;
mod open;
mod options;
pub mod private;
mod quarantine;
mod reader;
mod recovery;
mod scan;
pub mod sealed;
mod segment;
mod seq;
mod shared;
mod snapshot;
mod survey;
mod sync;
#[cfg(test)]
mod tests;

pub use error::{LogError, remedy};
pub use lock::Lock;
pub use log::{Dropped, Log, Trimmed};
pub use options::{MAX_RECORD_BYTES, Options, Overflow};
pub use reader::{LogReader, LogRecord};
pub use recovery::{Damage, DamageOutcome, DamageReason, Recovery};
pub use seq::Seq;
pub use snapshot::{Snapshot, Torn};
pub use survey::{Piece, Survey};
pub use sync::SyncHandle;
