//! The slots of a stream with their predictor states, and how a change of the slot list is coded.
//!
//! States lie in one array in ascending order of slots, so that a frame is one walk over memory. A change of the
//! list moves the kept states into a spare array, which then takes the place of the first: after warm-up nothing
//! is allocated.

use std::mem;

use super::FrameError;
use super::bits::BitStream;
use super::predict::{Intervals, SlotState};

/// Least bits of a slot that is coded afresh: slot, interval, flags, presence, mean misses.
pub(super) const LEAST_FRESH_BITS: usize = 7 + 7 + 2 + 13 + 80;

/// One slot and what is remembered of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotEntry {
    pub(super) slot: u32,
    pub(super) state: SlotState,
}

/// All slots of a stream.
#[derive(Debug, Clone)]
pub(super) struct SlotTable {
    pub(super) entries: Vec<SlotEntry>,
    pub(super) intervals: Intervals,
    spare: Vec<SlotEntry>,
    /// Slots of the coming frame.
    next: Vec<u32>,
    /// Positions in `entries` that end with the coming frame.
    removed: Vec<usize>,
    /// Slots that begin with it.
    added: Vec<u32>,
}

impl SlotTable {
    pub(super) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            intervals: Intervals::new(),
            spare: Vec::new(),
            next: Vec::new(),
            removed: Vec::new(),
            added: Vec::new(),
        }
    }

    /// Begins a key frame: every slot will be coded afresh.
    pub(super) fn refresh(&mut self) {
        self.intervals = Intervals::new();
        for entry in &mut self.entries {
            entry.state.fresh = true;
        }
    }

    /// Takes the slot list of the coming frame and finds what distinguishes it from the present one.
    ///
    /// # Errors
    /// When the slots do not ascend strictly.
    pub(super) fn expect(&mut self, slots: impl Iterator<Item = u32>) -> Result<(), FrameError> {
        self.next.clear();
        self.next.extend(slots);
        self.compare()
    }

    fn compare(&mut self) -> Result<(), FrameError> {
        if let Some(pair) = self.next.windows(2).find(|pair| pair[0] >= pair[1]) {
            return Err(FrameError::Unordered { slot: pair[1] });
        }
        self.removed.clear();
        self.added.clear();
        let mut at = 0;
        for &slot in &self.next {
            while self.entries.get(at).is_some_and(|e| e.slot < slot) {
                self.removed.push(at);
                at += 1;
            }
            if self.entries.get(at).is_some_and(|e| e.slot == slot) {
                at += 1;
            } else {
                self.added.push(slot);
            }
        }
        self.removed.extend(at..self.entries.len());
        Ok(())
    }

    /// Codes the change of the slot list found by [`SlotTable::expect`] and makes it. With `whole` the list is coded
    /// without reference to the present one, whose states are kept as far as their slots go on.
    pub(super) fn code_slots<L: BitStream>(
        &mut self,
        line: &mut L,
        whole: bool,
        count: usize,
    ) -> Result<(), FrameError> {
        if whole {
            code_ascending(line, &mut self.next, count)?;
            self.compare()?;
        } else if line.flag(!self.removed.is_empty() || !self.added.is_empty()) {
            self.code_change(line)?;
        } else {
            self.removed.clear();
            self.added.clear();
        }
        self.apply()?;
        if self.entries.len() == count {
            Ok(())
        } else {
            Err(FrameError::Malformed("the number of samples is not that of the slots"))
        }
    }

    fn code_change<L: BitStream>(&mut self, line: &mut L) -> Result<(), FrameError> {
        let gone = line.wide(self.removed.len() as u64);
        let gone = usize::try_from(gone).ok().filter(|n| *n <= self.entries.len());
        let gone = gone.ok_or(FrameError::Malformed("more slots end than there are"))?;
        self.removed.resize(gone, 0);
        let mut floor = 0;
        for position in &mut self.removed {
            let gap = line.wide((*position as u64).wrapping_sub(floor));
            let at = floor.checked_add(gap).and_then(|at| usize::try_from(at).ok());
            let at = at.filter(|at| *at < self.entries.len());
            *position = at.ok_or(FrameError::Malformed("a slot ends that is not there"))?;
            floor = *position as u64 + 1;
        }
        let come = line.wide(self.added.len() as u64);
        let limit = super::MAX_SLOTS;
        let few = usize::try_from(come).ok().filter(|n| *n <= limit);
        let come = few.ok_or(FrameError::TooMany { what: "new slots", count: come, limit })?;
        if line.room() / LEAST_FRESH_BITS < come {
            return Err(FrameError::Truncated);
        }
        code_ascending(line, &mut self.added, come)
    }

    /// Moves on to the coming frame's slots; new ones are fresh and unknown.
    fn apply(&mut self) -> Result<(), FrameError> {
        if self.removed.is_empty() && self.added.is_empty() {
            return Ok(());
        }
        self.spare.clear();
        let mut removed = self.removed.iter().copied().peekable();
        let mut added = self.added.iter().copied().peekable();
        let fresh = |slot| SlotEntry { slot, state: SlotState::new() };
        for (position, entry) in self.entries.drain(..).enumerate() {
            while let Some(slot) = added.next_if(|slot| *slot < entry.slot) {
                self.spare.push(fresh(slot));
            }
            let stays = removed.next_if_eq(&position).is_none();
            if added.peek() == Some(&entry.slot) {
                return Err(FrameError::Unordered { slot: entry.slot });
            }
            if stays {
                self.spare.push(entry);
            }
        }
        self.spare.extend(added.map(fresh));
        mem::swap(&mut self.entries, &mut self.spare);
        Ok(())
    }
}

/// Codes `count` strictly ascending numbers by their gaps.
fn code_ascending<L: BitStream>(
    line: &mut L,
    numbers: &mut Vec<u32>,
    count: usize,
) -> Result<(), FrameError> {
    numbers.truncate(count);
    let mut floor = 0u64;
    for i in 0..count {
        let known = numbers.get(i).map_or(floor, |n| u64::from(*n));
        let number = floor.checked_add(line.wide(known.wrapping_sub(floor)));
        let number = number.and_then(|n| u32::try_from(n).ok());
        let number = number.ok_or(FrameError::Malformed("a slot is over 32 bits"))?;
        match numbers.get_mut(i) {
            Some(place) => *place = number,
            None => numbers.push(number),
        }
        floor = u64::from(number) + 1;
    }
    Ok(())
}
