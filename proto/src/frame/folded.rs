//! Minutes: exact rollups in varints, and folding seconds into them.

use evenkeel_model::narrow::usize_to_u32;
use std::collections::BTreeMap;

use evenkeel_model::rollup::{Aggregate, Rollup};
use evenkeel_model::sample::Sample;

use super::bits::{put_varint, take_varint};
use super::{Decoder, FrameError, FrameHeader, FrameKind, MAX_ROLLUPS, MINUTE_USEC, Visitor, put_header};

/// Appends rollups, ascending by minute and within a minute by slot, to `out` as a folded frame.
///
/// # Errors
/// Rollups out of order, a minute past the end of time in microseconds, or more than [`MAX_ROLLUPS`]: nothing
/// was written.
pub fn encode_folded(rollups: &[(u64, u32, Rollup)], out: &mut Vec<u8>) -> Result<FrameHeader, FrameError> {
    if let Some(pair) = rollups.windows(2).find(|pair| (pair[0].0, pair[0].1) >= (pair[1].0, pair[1].1)) {
        return Err(FrameError::Unordered { slot: pair[1].1 });
    }
    if rollups.len() > MAX_ROLLUPS {
        let count = rollups.len() as u64;
        return Err(FrameError::TooMany { what: "rollups", count, limit: MAX_ROLLUPS });
    }
    let first = rollups.first().map_or(0, |r| r.0);
    if rollups.last().is_some_and(|last| last.0.checked_mul(MINUTE_USEC).is_none()) {
        return Err(FrameError::Malformed("a minute is past the end of time"));
    }
    let header = FrameHeader {
        kind: FrameKind::Folded,
        key: true,
        time_usec: first * MINUTE_USEC,
        base_interval_usec: 0,
        index: 0,
        count: usize_to_u32(rollups.len()),
    };
    put_header(&header, out);
    let mut before = first;
    for minute in rollups.chunk_by(|a, b| a.0 == b.0) {
        put_varint(out, minute[0].0 - before);
        put_varint(out, minute.len() as u64);
        before = minute[0].0;
        let mut floor = 0;
        for (_, slot, rollup) in minute {
            put_varint(out, u64::from(*slot) - floor);
            floor = u64::from(*slot) + 1;
            put_rollup(out, rollup);
        }
    }
    Ok(header)
}

fn put_rollup(out: &mut Vec<u8>, rollup: &Rollup) {
    put_varint(out, rollup.samples);
    put_varint(out, rollup.time_usec);
    put_varint(out, rollup.throttled_usec);
    put_varint(out, rollup.starved_usec);
    put_varint(out, rollup.oom_kills);
    for part in [&rollup.cpu_micro, &rollup.memory_bytes] {
        // Differences wrap, so that any four numbers come back, however they came about.
        put_varint(out, rollup.samples.wrapping_sub(part.count));
        put_varint(out, part.min.wrapping_add(1));
        put_varint(out, part.max.wrapping_sub(part.min));
        put_varint(out, part.sum.wrapping_sub(part.min.wrapping_mul(part.count)));
    }
}

fn take_rollup(bytes: &mut &[u8]) -> Result<Rollup, FrameError> {
    let mut rollup = Rollup {
        samples: take_varint(bytes)?,
        time_usec: take_varint(bytes)?,
        throttled_usec: take_varint(bytes)?,
        starved_usec: take_varint(bytes)?,
        oom_kills: take_varint(bytes)?,
        ..Rollup::default()
    };
    take_parts(bytes, &mut rollup)?;
    Ok(rollup)
}

/// A rollup of an earlier agent. It told no times: its samples were one second apart, and throttled time is the least
/// in which it was starved.
fn take_rollup_milli(bytes: &mut &[u8]) -> Result<Rollup, FrameError> {
    let mut rollup = Rollup {
        samples: take_varint(bytes)?,
        throttled_usec: take_varint(bytes)?,
        oom_kills: take_varint(bytes)?,
        ..Rollup::default()
    };
    take_parts(bytes, &mut rollup)?;
    rollup.time_usec = rollup.samples.saturating_mul(1_000_000);
    rollup.starved_usec = rollup.throttled_usec.min(rollup.time_usec);
    let cpu = &mut rollup.cpu_micro;
    if cpu.count > 0 {
        (cpu.sum, cpu.min, cpu.max) =
            (cpu.sum.saturating_mul(1000), cpu.min.saturating_mul(1000), cpu.max.saturating_mul(1000));
    }
    Ok(rollup)
}

fn take_parts(bytes: &mut &[u8], rollup: &mut Rollup) -> Result<(), FrameError> {
    for part in [&mut rollup.cpu_micro, &mut rollup.memory_bytes] {
        let count = rollup.samples.wrapping_sub(take_varint(bytes)?);
        let min = take_varint(bytes)?.wrapping_sub(1);
        let max = take_varint(bytes)?.wrapping_add(min);
        let sum = take_varint(bytes)?.wrapping_add(min.wrapping_mul(count));
        *part = Aggregate { count, sum, min, max };
    }
    Ok(())
}

pub(super) fn decode<V: Visitor>(
    header: &FrameHeader,
    mut bytes: &[u8],
    visitor: &mut V,
) -> Result<(), FrameError> {
    let bytes = &mut bytes;
    if !header.time_usec.is_multiple_of(MINUTE_USEC) {
        return Err(FrameError::Malformed("the first minute does not begin at a minute"));
    }
    let mut minute = header.time_usec / MINUTE_USEC;
    let mut left = u64::from(header.count);
    while left > 0 {
        let later = take_varint(bytes)?;
        let checked = minute.checked_add(later).filter(|m| m.checked_mul(MINUTE_USEC).is_some());
        minute = checked.ok_or(FrameError::Malformed("a minute is past the end of time"))?;
        let slots = take_varint(bytes)?;
        left = left.checked_sub(slots).filter(|_| slots > 0).ok_or(WRONG_COUNT)?;
        let mut floor = 0u64;
        for _ in 0..slots {
            let slot = floor.checked_add(take_varint(bytes)?).and_then(|slot| u32::try_from(slot).ok());
            let slot = slot.ok_or(FrameError::Malformed("a slot is over 32 bits"))?;
            let rollup = match header.kind {
                FrameKind::FoldedMilli => take_rollup_milli(bytes)?,
                _ => take_rollup(bytes)?,
            };
            visitor.rollup(slot, minute, &rollup);
            floor = u64::from(slot) + 1;
        }
    }
    if bytes.is_empty() { Ok(()) } else { Err(FrameError::Trailing { bits: bytes.len() * 8 }) }
}

const WRONG_COUNT: FrameError = FrameError::Malformed("the number of rollups is not that of the minutes");

/// Folds frames into minutes: whole runs of seconds frames, each beginning with a key frame, and frames folded
/// before.
#[derive(Debug, Default)]
pub struct Folder {
    decoder: Decoder,
    minutes: Minutes,
}

#[derive(Debug, Default)]
struct Minutes(BTreeMap<(u64, u32), Rollup>);

impl Visitor for Minutes {
    fn sample(&mut self, slot: u32, time_usec: u64, sample: &Sample, previous: Option<&Sample>) {
        self.0.entry((time_usec / MINUTE_USEC, slot)).or_default().add(previous, sample);
    }

    fn rollup(&mut self, slot: u32, minute: u64, rollup: &Rollup) {
        self.0.entry((minute, slot)).or_default().merge(rollup);
    }
}

impl Folder {
    /// A folder that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes one frame in.
    ///
    /// # Errors
    /// Bytes that are no frame, or a delta frame without the frames before it. What was taken in is then no
    /// longer whole: start over without that run of frames.
    pub fn add(&mut self, bytes: &[u8]) -> Result<FrameHeader, FrameError> {
        self.decoder.decode(bytes, &mut self.minutes)
    }

    /// Rollups held so far; to be kept below [`MAX_ROLLUPS`].
    pub fn len(&self) -> usize {
        self.minutes.0.len()
    }

    /// True while nothing was taken in.
    pub fn is_empty(&self) -> bool {
        self.minutes.0.is_empty()
    }

    /// Appends everything taken in to `out` as one folded frame and starts over.
    ///
    /// # Errors
    /// More than [`MAX_ROLLUPS`]; nothing was written.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Result<FrameHeader, FrameError> {
        let rollups: Vec<_> = self.minutes.0.iter().map(|((minute, slot), r)| (*minute, *slot, *r)).collect();
        let header = encode_folded(&rollups, out)?;
        *self = Self::new();
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Seen(Vec<(u32, u64, Rollup)>);

    impl Visitor for Seen {
        fn sample(&mut self, _: u32, _: u64, _: &Sample, _: Option<&Sample>) {}
        fn rollup(&mut self, slot: u32, minute: u64, rollup: &Rollup) {
            self.0.push((slot, minute, *rollup));
        }
    }

    #[test]
    fn what_an_earlier_agent_folded_is_read_in_millionths() {
        let kind = FrameKind::FoldedMilli;
        let header = FrameHeader {
            kind,
            key: true,
            time_usec: 5 * MINUTE_USEC,
            base_interval_usec: 0,
            index: 0,
            count: 1,
        };
        let mut bytes = Vec::new();
        put_header(&header, &mut bytes);
        // Minute, slots, slot; samples, throttled, kills; CPU 20 and 30 thousandths, no memory.
        for number in [0, 1, 9, 2, 700_000, 1, 0, 21, 10, 10, 2, 0, 1, 0] {
            put_varint(&mut bytes, number);
        }
        let mut seen = Seen::default();
        assert_eq!(Decoder::new().decode(&bytes, &mut seen).unwrap(), header);
        let rollup = Rollup {
            samples: 2,
            time_usec: 2_000_000,
            cpu_micro: Aggregate { count: 2, sum: 50_000, min: 20_000, max: 30_000 },
            throttled_usec: 700_000,
            starved_usec: 700_000,
            oom_kills: 1,
            ..Rollup::default()
        };
        assert_eq!(seen.0, [(9, 5, rollup)]);
    }
}
