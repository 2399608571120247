//! Owns the content of a record of the ingest log: what happened, when it was received, and to which stream.
//!
//! A record is one byte of format version and a protobuf message, so that fields can be added. Each names its stream in
//! full: a log whose checkpoint is lost can still be read.

use crate::key::StreamKey;
use crate::state::kills::{Kill, Killed};
use crate::state::placed::PlacementWord;
use evenkeel_proto::v1;
use prost::Message;

/// Version of the record format.
pub(crate) const VERSION: u8 = 1;

/// One record.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct LogRecord {
    /// Wall-clock time of reception, microseconds since 1970.
    #[prost(uint64, tag = "1")]
    pub(crate) received_usec: u64,
    #[prost(oneof = "IngestEntry", tags = "2, 3, 4, 5, 6, 7, 12, 13, 14")]
    pub(crate) entry: Option<IngestEntry>,
}

/// What happened.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum IngestEntry {
    /// A stream was opened, or said something new about itself.
    #[prost(message, tag = "2")]
    Opened(v1::Hello),
    /// A frame was taken.
    #[prost(message, tag = "3")]
    Taken(Taken),
    /// A range was given up.
    #[prost(message, tag = "4")]
    Lost(LostFrames),
    /// The panic switch was set.
    #[prost(message, tag = "5")]
    Panic(Panic),
    /// A silent stream's containers were dropped.
    #[prost(message, tag = "6")]
    Retired(StreamKey),
    /// Slots were announced again, outside the numbered frames.
    #[prost(message, tag = "7")]
    Announced(Taken),
    /// A stream belongs to an identity from now on.
    #[prost(message, tag = "12")]
    Owned(Owned),
    /// The API of a cluster says something else of containers of a stream.
    #[prost(message, tag = "13")]
    Judged(Judged),
    /// Kubelets of a cluster told of OOM kills that no agent told of.
    #[prost(message, tag = "14")]
    Killed(Killed),
}

/// What the API of a cluster says of containers of a stream.
#[derive(Clone, PartialEq, Message)]
pub struct Judged {
    #[prost(message, required, tag = "1")]
    pub(crate) key: StreamKey,
    #[prost(message, repeated, tag = "2")]
    pub(crate) words: Vec<PlacementWord>,
}

/// Whose a stream is from now on.
#[derive(Clone, PartialEq, Message)]
pub struct Owned {
    #[prost(message, required, tag = "1")]
    pub(crate) key: StreamKey,
    /// As `Identity::owner` has it.
    #[prost(string, tag = "2")]
    pub(crate) owner: String,
}

/// A frame of a stream.
#[derive(Clone, PartialEq, Message)]
pub struct Taken {
    /// The stream.
    #[prost(message, required, tag = "1")]
    pub key: StreamKey,
    /// The frame.
    #[prost(message, required, tag = "2")]
    pub frame: v1::Frame,
    /// What the API of its cluster says of what it announces.
    #[prost(message, repeated, tag = "3")]
    pub words: Vec<PlacementWord>,
    /// The API was asked: containers without a word wait for one.
    #[prost(bool, tag = "4")]
    pub is_judged: bool,
}

impl Taken {
    /// A frame about which no API says anything.
    pub fn new(key: StreamKey, frame: v1::Frame) -> Self {
        Self { key, frame, words: Vec::new(), is_judged: false }
    }
}

/// Frames of a stream that were given up.
#[derive(Clone, PartialEq, Message)]
pub struct LostFrames {
    #[prost(message, required, tag = "1")]
    pub(crate) key: StreamKey,
    #[prost(uint64, tag = "2")]
    pub(crate) first: u64,
    #[prost(uint64, tag = "3")]
    pub(crate) last: u64,
}

/// The panic switch as it was set.
#[derive(Clone, PartialEq, Message)]
pub struct Panic {
    #[prost(bool, tag = "1")]
    pub(crate) on: bool,
    #[prost(string, tag = "2")]
    pub(crate) reason: String,
    /// With `on`: running containers get back what was asked for. Records without it freeze.
    #[prost(bool, tag = "3")]
    pub(crate) revert: bool,
}

/// Why a record cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Written by a later program.
    #[error("record version {0} is not known here, only {VERSION}; use the newer release")]
    Version(u8),
    /// Not what this program writes.
    #[error("malformed record")]
    Malformed(#[source] prost::DecodeError),
    /// Nothing in it.
    #[error("empty record, or one of a kind only a newer release knows")]
    Empty,
}

impl IngestEntry {
    /// Bytes it takes in memory beside those of its record: messages that say little take much.
    pub(crate) fn unfolded(&self) -> usize {
        let of = |count: usize, size: usize| count.saturating_mul(size);
        let (frame, words) = match self {
            Self::Taken(Taken { frame, words, .. }) | Self::Announced(Taken { frame, words, .. }) => {
                (frame, words)
            }
            Self::Judged(Judged { words, .. }) => return of(words.len(), size_of::<PlacementWord>()),
            Self::Killed(Killed { kills, .. }) => return of(kills.len(), size_of::<Kill>()),
            _ => return 0,
        };
        of(words.len(), size_of::<PlacementWord>())
            + of(frame.announced.len(), size_of::<v1::Announcement>())
            + of(frame.decisions.len(), size_of::<v1::Decision>())
            + of(frame.traffic.len(), size_of::<v1::Traffic>())
    }
}

impl LogRecord {
    pub(crate) fn new(received_usec: u64, entry: IngestEntry) -> Self {
        Self { received_usec, entry: Some(entry) }
    }

    /// Writes the record into a buffer, replacing its content.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.reserve(1 + self.encoded_len());
        buffer.push(VERSION);
        self.encode_raw(buffer);
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<(u64, IngestEntry), RecordError> {
        let (&version, rest) = bytes.split_first().ok_or(RecordError::Empty)?;
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        let record = Self::decode(rest).map_err(RecordError::Malformed)?;
        Ok((record.received_usec, record.entry.ok_or(RecordError::Empty)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_reads_back_and_damage_is_an_error() {
        let key = StreamKey { cluster: "c".into(), node: "n".into(), epoch: 9 };
        let frame = v1::Frame { sequence: 3, samples: vec![1, 2, 3].into(), ..v1::Frame::default() };
        let entry = IngestEntry::Taken(Taken::new(key, frame));
        let mut buffer = vec![7; 3];
        LogRecord::new(5, entry.clone()).write(&mut buffer);
        assert_eq!(LogRecord::read(&buffer).unwrap(), (5, entry));
        for end in 0..buffer.len() {
            assert!(LogRecord::read(&buffer[..end]).is_err(), "cut at {end}");
        }
        buffer[0] = 2;
        assert!(matches!(LogRecord::read(&buffer), Err(RecordError::Version(2))));
    }
}
