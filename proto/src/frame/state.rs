//! A decoder's memory as a frame of its own, exact to the bit, so that a reader's checkpoint need not keep the
//! frames since the last key frame.

use evenkeel_model::sample::{Field, Sample};

use super::bits::{put_varint, take_varint};
use super::predict::{Mean, SlotState};
use super::table::{SlotEntry, SlotTable};
use super::{FrameError, FrameHeader, FrameKind, put_header, take_u32};

pub(super) fn encode(last: &FrameHeader, table: &SlotTable) -> Vec<u8> {
    let mut out = Vec::with_capacity(32 + table.entries.len() * 96);
    put_header(&FrameHeader { kind: FrameKind::State, key: true, ..*last }, &mut out);
    put_varint(&mut out, u64::from(table.intervals.mean.raw()));
    for entry in &table.entries {
        let state = &entry.state;
        put_varint(&mut out, u64::from(entry.slot));
        put_varint(&mut out, u64::from(state.last.interval_usec()));
        put_varint(&mut out, u64::from(state.last.present()));
        out.extend_from_slice(&[u8::from(state.pages), state.age]);
        for value in Field::ALL.into_iter().filter_map(|f| state.last.get(f)) {
            put_varint(&mut out, value);
        }
        for rate in state.rates {
            put_varint(&mut out, u64::from(rate));
        }
        for mean in &state.means {
            put_varint(&mut out, u64::from(mean.raw()));
        }
    }
    out
}

pub(super) fn decode(header: &FrameHeader, mut bytes: &[u8]) -> Result<SlotTable, FrameError> {
    let bytes = &mut bytes;
    let mut table = SlotTable::new();
    table.intervals.mean = take_mean(bytes)?;
    for _ in 0..header.count {
        let entry = take_entry(bytes)?;
        if table.entries.last().is_some_and(|before: &SlotEntry| before.slot >= entry.slot) {
            return Err(FrameError::Unordered { slot: entry.slot });
        }
        table.entries.push(entry);
    }
    if bytes.is_empty() { Ok(table) } else { Err(FrameError::Trailing { bits: bytes.len() * 8 }) }
}

fn take_entry(bytes: &mut &[u8]) -> Result<SlotEntry, FrameError> {
    let slot = take_u32(bytes)?;
    let mut last = Sample::with_interval_usec(take_u32(bytes)?);
    let present = take_u32(bytes)?;
    if present >> Field::COUNT != 0 {
        return Err(FrameError::Malformed("a sample has unknown fields"));
    }
    let (&[pages, age], rest) = bytes.split_first_chunk::<2>().ok_or(FrameError::Truncated)?;
    *bytes = rest;
    if pages > 1 || age > SlotState::SETTLED {
        return Err(FrameError::Malformed("a saved state is out of range"));
    }
    for field in Field::ALL.into_iter().filter(|f| present & (1 << f.index()) != 0) {
        last.set(field, take_varint(bytes)?);
    }
    let mut state = SlotState { last, known: true, fresh: false, pages: pages == 1, age, ..SlotState::new() };
    for rate in &mut state.rates {
        *rate = take_u32(bytes)?;
    }
    for mean in &mut state.means {
        *mean = take_mean(bytes)?;
    }
    Ok(SlotEntry { slot, state })
}

fn take_mean(bytes: &mut &[u8]) -> Result<Mean, FrameError> {
    Mean::from_raw(take_varint(bytes)?).ok_or(FrameError::Malformed("a saved state is out of range"))
}
