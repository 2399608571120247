//! Samples to bytes.

use evenkeel_model::narrow::usize_to_u32;
use evenkeel_model::sample::Sample;

use super::bits::BitWriter;
use super::predict::{code_delta, code_fresh};
use super::table::SlotTable;
use super::{FrameError, FrameHeader, FrameKind, MAX_SLOTS, put_header};

/// Writes seconds frames; remembers what the frames before said. Allocates nothing once it has seen the largest
/// number of slots.
#[derive(Debug, Clone)]
pub struct Encoder {
    table: SlotTable,
    /// Index of the next frame since its key frame; `None` before the first.
    next_index: Option<u32>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder that has seen nothing.
    pub const fn new() -> Self {
        Self { table: SlotTable::new(), next_index: None }
    }

    /// Appends one tick's samples to `out` as a frame. `key` starts anew; the first frame is a key frame in any
    /// case. Slots must ascend. `base_interval_usec` is the time since the tick before.
    ///
    /// # Errors
    /// Slots that do not ascend, or more than [`MAX_SLOTS`]: nothing was written.
    pub fn encode_seconds(
        &mut self,
        key: bool,
        time_usec: u64,
        base_interval_usec: u32,
        samples: &[(u32, Sample)],
        out: &mut Vec<u8>,
    ) -> Result<FrameHeader, FrameError> {
        if samples.len() > MAX_SLOTS {
            let count = samples.len() as u64;
            return Err(FrameError::TooMany { what: "samples", count, limit: MAX_SLOTS });
        }
        self.table.expect(samples.iter().map(|(slot, _)| *slot))?;
        let index = self.next_index.filter(|_| !key).unwrap_or(0);
        let header = FrameHeader {
            kind: FrameKind::Seconds,
            key: index == 0,
            time_usec,
            base_interval_usec,
            index,
            count: usize_to_u32(samples.len()),
        };
        put_header(&header, out);
        self.encode_samples(&header, samples, out)?;
        // An index that would not fit begins anew.
        self.next_index = index.checked_add(1);
        Ok(header)
    }

    fn encode_samples(
        &mut self,
        header: &FrameHeader,
        samples: &[(u32, Sample)],
        out: &mut Vec<u8>,
    ) -> Result<(), FrameError> {
        let mut line = BitWriter::new(out);
        self.table.code_slots(&mut line, header.key, samples.len())?;
        if header.key {
            self.table.refresh();
        }
        self.table.intervals.begin(header.base_interval_usec);
        for (entry, (_, sample)) in self.table.entries.iter_mut().zip(samples) {
            if entry.state.fresh {
                code_fresh(&mut line, &mut entry.state, sample);
            } else {
                code_delta(&mut line, &mut entry.state, &mut self.table.intervals, sample);
            }
        }
        line.finish();
        Ok(())
    }
}
