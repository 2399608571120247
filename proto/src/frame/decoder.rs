//! Bytes to samples.

use evenkeel_model::sample::Sample;

use super::bits::BitReader;
use super::predict::{code_delta, code_fresh};
use super::table::{LEAST_FRESH_BITS, SlotTable};
use super::{FrameError, FrameHeader, FrameKind, Visitor, folded, split_header, state};

/// Least bits of a sample in a delta frame (interval, unchanged flag).
const LEAST_BITS: usize = 2;

/// Reads the frames of one stream in order. Allocates nothing once it has seen the largest number of slots.
#[derive(Debug, Clone)]
pub struct Decoder {
    table: SlotTable,
    /// Header of the seconds frame decoded last; `None` when a key frame is needed.
    last: Option<FrameHeader>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder that has seen nothing and waits for a key frame.
    pub const fn new() -> Self {
        Self { table: SlotTable::new(), last: None }
    }

    /// Decodes one frame and hands what is in it to `visitor`. A state frame replaces this decoder's memory.
    ///
    /// # Errors
    /// [`FrameError`] for bytes that are no frame and for a delta frame that does not follow the frame decoded
    /// last; the decoder then waits for a key frame.
    pub fn decode<V: Visitor>(&mut self, bytes: &[u8], visitor: &mut V) -> Result<FrameHeader, FrameError> {
        let last = self.last.take();
        let (header, rest) = split_header(bytes)?;
        match header.kind {
            FrameKind::Seconds => {
                let follows = last.is_some_and(|last| last.index.checked_add(1) == Some(header.index));
                if !header.key && !follows {
                    return Err(FrameError::NoKey { index: header.index });
                }
                self.decode_seconds(&header, rest, visitor)?;
                self.last = Some(header);
            }
            FrameKind::Folded | FrameKind::FoldedMilli => folded::decode(&header, rest, visitor)?,
            FrameKind::State => {
                self.table = state::decode(&header, rest)?;
                self.last = Some(FrameHeader { kind: FrameKind::Seconds, key: header.index == 0, ..header });
            }
        }
        Ok(header)
    }

    fn decode_seconds<V: Visitor>(
        &mut self,
        header: &FrameHeader,
        bytes: &[u8],
        visitor: &mut V,
    ) -> Result<(), FrameError> {
        let count = header.count as usize;
        let mut line = BitReader::new(bytes);
        let least = if header.key { LEAST_FRESH_BITS } else { LEAST_BITS };
        if line.remaining() / least < count {
            return Err(FrameError::Truncated);
        }
        self.table.code_slots(&mut line, header.key, count)?;
        if header.key {
            self.table.refresh();
        }
        self.table.intervals.begin(header.base_interval_usec);
        let nothing = Sample::default();
        for entry in &mut self.table.entries {
            if entry.state.fresh {
                let (sample, previous) = code_fresh(&mut line, &mut entry.state, &nothing);
                visitor.sample(entry.slot, header.time_usec, &sample, previous.as_ref());
            } else {
                let previous = entry.state.last;
                let sample = code_delta(&mut line, &mut entry.state, &mut self.table.intervals, &nothing);
                visitor.sample(entry.slot, header.time_usec, &sample, Some(&previous));
            }
            if !line.intact() {
                return Err(FrameError::Truncated);
            }
        }
        line.finish()
    }

    /// The memory of this decoder as a state frame: another decoder that decodes it goes on with the next frame
    /// of the stream exactly as this one would. `None` while a key frame is needed: there is nothing to save.
    pub fn snapshot(&self) -> Option<Vec<u8>> {
        self.last.map(|last| state::encode(&last, &self.table))
    }

    /// Slots of the frame decoded last with their samples, ascending.
    pub fn latest(&self) -> impl Iterator<Item = (u32, &Sample)> {
        let entries = if self.last.is_some() { self.table.entries.as_slice() } else { &[] };
        entries.iter().map(|entry| (entry.slot, &entry.state.last))
    }

    /// Header of the frame decoded last; `None` when a key frame is needed.
    pub const fn position(&self) -> Option<&FrameHeader> {
        self.last.as_ref()
    }

    /// Forgets everything and waits for a key frame.
    pub fn reset(&mut self) {
        *self = Self::new();
    }
}
