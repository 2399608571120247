//! The frame codec: samples of one node to and from the bytes of `Frame.samples`.
//!
//! Owned here: the format, its limits, encoder, decoder, and folding seconds into minutes. Not owned: sequence
//! numbers, checksums and announcements (the `Frame` message around the bytes), storage, when to start anew.
//!
//! # Format, version 1
//!
//! A frame begins with bytes and goes on in bits, lowest bit first:
//!
//! | bytes | content |
//! | --- | --- |
//! | 1 | version, 1 |
//! | 1 | kind: 0 seconds, 1 seconds (key), 2 folded with CPU in thousandths (read only), 3 state, 4 folded |
//!
//! All numbers that follow in the head are varints (seven bits per byte, lowest first). A *seconds* frame goes on
//! with its wall-clock time in microseconds since 1970, its base interval in microseconds, its index since the
//! key frame, the number of its samples; then the bits: the change of the slot list against the frame before
//! (all of it in a key frame), and every slot's sample in ascending order of slots. A key frame needs no frame
//! before it: each sample has all values, and what its counters grew by since the sample before, so that no
//! second is lost between two key frames. In the frames between, numbers are Rice codes of what a prediction
//! missed; an unchanged sample is one bit and its interval.
//!
//! A *folded* frame holds exact rollups by minute and slot in varints. A *state* frame holds a decoder's memory.
//!
//! The coding is lossless for every sample, also where counters go back or numbers are absurd.

mod bits;
mod decoder;
mod encoder;
mod folded;
mod predict;
mod state;
pub mod synth;
mod table;
#[cfg(test)]
mod tests;

use evenkeel_model::{rollup::Rollup, sample::Sample};

pub use decoder::Decoder;
pub use encoder::Encoder;
pub use folded::{Folder, encode_folded};

use bits::{put_varint, take_varint};

/// Version of the format this code writes, and the only one there is to read so far.
pub const VERSION: u8 = 1;

/// Most samples of a seconds frame, so that no bytes can ask for unbounded memory.
pub const MAX_SLOTS: usize = 100_000;

/// Most rollups of a folded frame: an hour of a node of 1,000 containers, or ten minutes of one of 6,000.
pub const MAX_ROLLUPS: usize = 1 << 16;

/// Seconds frames after which a writer starts anew with a key frame.
pub const KEY_EVERY: u32 = 60;

/// Microseconds of a minute, the unit rollups are kept in.
pub const MINUTE_USEC: u64 = 60_000_000;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// Samples of one tick.
    Seconds,
    /// Rollups by minute and slot.
    Folded,
    /// The same as earlier agents write them: CPU in thousandths of a core, without times.
    FoldedMilli,
    /// A decoder's memory; no samples.
    State,
}

/// What a frame says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// What it holds.
    pub kind: FrameKind,
    /// It needs no frame before it.
    pub key: bool,
    /// Wall-clock time, microseconds since 1970: of the tick, or of the first minute's beginning.
    pub time_usec: u64,
    /// Time from the tick before to this one, microseconds; zero in folded frames.
    pub base_interval_usec: u32,
    /// Frames since the key frame; zero for a key frame and in folded frames.
    pub index: u32,
    /// Samples or rollups in it.
    pub count: u32,
}

/// Why bytes are not a frame, or a sample list cannot become one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes end too early.
    #[error("the frame ends too early")]
    Truncated,
    /// There is more behind the frame's end.
    #[error("{bits} bits are left behind the frame's end")]
    Trailing {
        /// How many.
        bits: usize,
    },
    /// Written by a later program.
    #[error("frame version {0} is not known here, only {VERSION}; update the reader")]
    Version(u8),
    /// Bytes no writer makes.
    #[error("malformed frame: {0}")]
    Malformed(&'static str),
    /// More than the format allows.
    #[error("{count} {what} are over the limit of {limit} per frame")]
    TooMany {
        /// Samples, rollups.
        what: &'static str,
        /// Number found.
        count: u64,
        /// Number allowed.
        limit: usize,
    },
    /// A delta frame whose predecessor was not decoded; go on with the next key frame.
    #[error("frame {index} after a key frame does not follow what was decoded before; wait for a key frame")]
    NoKey {
        /// Its index.
        index: u32,
    },
    /// Slots (or minutes and slots) not strictly ascending.
    #[error("slot {slot} is out of order; slots must ascend and appear once")]
    Unordered {
        /// The first slot at fault.
        slot: u32,
    },
}

/// Takes what a decoder finds. A frame that turns out damaged after some calls ends in an error: what came from
/// it must then be dropped.
pub trait Visitor {
    /// One sample. `previous` is the same container's sample before it, `None` if this is its first; after a key
    /// frame it may hold the counters only.
    fn sample(&mut self, slot: u32, time_usec: u64, sample: &Sample, previous: Option<&Sample>);

    /// One rollup of the minute that begins `minute` minutes after 1970.
    fn rollup(&mut self, slot: u32, minute: u64, rollup: &Rollup);
}

/// Drops everything: for advancing a decoder.
impl Visitor for () {
    fn sample(&mut self, _: u32, _: u64, _: &Sample, _: Option<&Sample>) {}
    fn rollup(&mut self, _: u32, _: u64, _: &Rollup) {}
}

/// Reads the head of a frame alone.
///
/// # Errors
/// [`FrameError`] when the head is not that of a frame of this version.
pub fn peek(bytes: &[u8]) -> Result<FrameHeader, FrameError> {
    split_header(bytes).map(|(header, _)| header)
}

const SECONDS: u8 = 0;
const SECONDS_KEY: u8 = 1;
const FOLDED_MILLI: u8 = 2;
const STATE: u8 = 3;
const FOLDED: u8 = 4;

fn split_header(bytes: &[u8]) -> Result<(FrameHeader, &[u8]), FrameError> {
    let (&version, rest) = bytes.split_first().ok_or(FrameError::Truncated)?;
    if version != VERSION {
        return Err(FrameError::Version(version));
    }
    let (&tag, mut rest) = rest.split_first().ok_or(FrameError::Truncated)?;
    let kind = match tag {
        SECONDS | SECONDS_KEY => FrameKind::Seconds,
        FOLDED => FrameKind::Folded,
        FOLDED_MILLI => FrameKind::FoldedMilli,
        STATE => FrameKind::State,
        _ => return Err(FrameError::Malformed("unknown kind of frame")),
    };
    let time_usec = take_varint(&mut rest)?;
    let (base_interval_usec, index) = match kind {
        FrameKind::Folded | FrameKind::FoldedMilli => (0, 0),
        _ => (take_u32(&mut rest)?, take_u32(&mut rest)?),
    };
    let count = take_varint(&mut rest)?;
    let (what, limit) = match kind {
        FrameKind::Folded | FrameKind::FoldedMilli => ("rollups", MAX_ROLLUPS),
        _ => ("samples", MAX_SLOTS),
    };
    let few = u32::try_from(count).ok().filter(|_| count <= limit as u64);
    let count = few.ok_or(FrameError::TooMany { what, count, limit })?;
    if tag == SECONDS_KEY && index != 0 || tag == SECONDS && index == 0 {
        return Err(FrameError::Malformed("a key frame has index 0, and no other"));
    }
    Ok((FrameHeader { kind, key: tag != SECONDS, time_usec, base_interval_usec, index, count }, rest))
}

fn put_header(header: &FrameHeader, out: &mut Vec<u8>) {
    let tag = match header.kind {
        FrameKind::Seconds if header.key => SECONDS_KEY,
        FrameKind::Seconds => SECONDS,
        FrameKind::Folded => FOLDED,
        FrameKind::FoldedMilli => FOLDED_MILLI,
        FrameKind::State => STATE,
    };
    out.extend_from_slice(&[VERSION, tag]);
    put_varint(out, header.time_usec);
    if !matches!(header.kind, FrameKind::Folded | FrameKind::FoldedMilli) {
        put_varint(out, u64::from(header.base_interval_usec));
        put_varint(out, u64::from(header.index));
    }
    put_varint(out, u64::from(header.count));
}

fn take_u32(bytes: &mut &[u8]) -> Result<u32, FrameError> {
    u32::try_from(take_varint(bytes)?).map_err(|_| FrameError::Malformed("a number is over 32 bits"))
}
