//! Owns the containers of one stream: who each slot is, its latest numbers and its unfinished minute.
//!
//! Slots are kept in ascending order, as frames name them: applying a frame is one walk over memory without hashing.

use std::sync::Arc;

use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::{Field, Sample};
use evenkeel_proto::v1;

use super::history::SeriesId;

/// Moments remembered of each container besides its latest sample.
pub const RECENT: usize = 4;

/// What is remembered of one past second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// Wall-clock time, microseconds since 1970.
    pub time_usec: u64,
    /// CPU use, thousandths of a core.
    pub cpu_milli: Option<u64>,
    /// Working set (or all memory, where the kernel tells no more), bytes.
    pub memory_bytes: Option<u64>,
}

/// One container of one stream.
#[derive(Debug, Clone)]
pub struct Slot {
    /// Its number in the stream.
    pub number: u32,
    /// Who it is.
    pub identity: Arc<v1::ContainerIdentity>,
    /// Where its minutes go.
    pub series: SeriesId,
    /// Latest sample and its time.
    pub latest: Option<(u64, Sample)>,
    /// CPU use of the latest sample.
    pub cpu_milli: Option<u64>,
    /// The last few seconds, newest at `recent_at - 1`.
    recent: [Option<Moment>; RECENT],
    recent_at: usize,
    /// The unfinished minute and its sums.
    pub open: Option<(u32, Rollup)>,
    /// Samples counted.
    pub samples: u64,
}

impl Slot {
    pub(crate) fn new(number: u32, identity: Arc<v1::ContainerIdentity>, series: SeriesId) -> Self {
        Self {
            number,
            identity,
            series,
            latest: None,
            cpu_milli: None,
            recent: [None; RECENT],
            recent_at: 0,
            open: None,
            samples: 0,
        }
    }

    /// Takes a sample of a minute in; what it returns is a minute that has ended.
    pub(crate) fn take(
        &mut self,
        minute: u32,
        time_usec: u64,
        sample: &Sample,
        previous: Option<&Sample>,
    ) -> Option<(u32, Rollup)> {
        let ended = self.turn(minute);
        if let Some((_, rollup)) = &mut self.open {
            rollup.add(previous, sample);
        }
        self.cpu_milli = previous.and_then(|p| sample.cpu_milli(p));
        let moment = Moment { time_usec, cpu_milli: self.cpu_milli, memory_bytes: memory_of(sample) };
        self.recent[self.recent_at % RECENT] = Some(moment);
        self.recent_at = (self.recent_at + 1) % RECENT;
        self.latest = Some((time_usec, *sample));
        self.samples += 1;
        ended
    }

    /// Takes a folded minute in; what it returns is a minute that has ended.
    pub(crate) fn take_rollup(&mut self, minute: u32, rollup: &Rollup) -> Option<(u32, Rollup)> {
        let ended = self.turn(minute);
        if let Some((_, open)) = &mut self.open {
            open.merge(rollup);
        }
        self.samples += rollup.samples;
        ended
    }

    /// Makes `minute` the open one.
    fn turn(&mut self, minute: u32) -> Option<(u32, Rollup)> {
        match &self.open {
            Some((open, _)) if *open == minute => None,
            _ => self.open.replace((minute, Rollup::default())),
        }
    }

    /// The last few seconds, oldest first.
    pub fn recent(&self) -> impl Iterator<Item = &Moment> {
        let (newer, older) = self.recent.split_at(self.recent_at);
        older.iter().chain(newer).flatten()
    }
}

/// Working set, or all memory where the kernel tells no more.
pub fn memory_of(sample: &Sample) -> Option<u64> {
    sample.get(Field::MemoryWorkingSetBytes).or(sample.get(Field::MemoryCurrentBytes))
}

/// The containers of one stream, in the order of their slots.
#[derive(Debug, Clone, Default)]
pub struct Slots {
    slots: Vec<Slot>,
    /// Where the last search ended: frames name slots in order, so the next is usually right behind.
    cursor: usize,
}

impl Slots {
    /// Number of containers.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter()
    }

    /// One by number.
    pub fn get(&self, number: u32) -> Option<&Slot> {
        self.slots.binary_search_by_key(&number, |s| s.number).ok().map(|at| &self.slots[at])
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Slot> {
        let next = self.slots.get(self.cursor).map(|s| s.number);
        if next != Some(number) {
            self.cursor = self.slots.binary_search_by_key(&number, |s| s.number).ok()?;
        }
        self.cursor += 1;
        self.slots.get_mut(self.cursor - 1)
    }

    pub(crate) fn rewind(&mut self) {
        self.cursor = 0;
    }

    /// Puts a slot in its place; the one that had the number before is returned.
    pub(crate) fn insert(&mut self, slot: Slot) -> Option<Slot> {
        if self.slots.last().is_none_or(|last| last.number < slot.number) {
            self.slots.push(slot);
            return None;
        }
        match self.slots.binary_search_by_key(&slot.number, |s| s.number) {
            Ok(at) => Some(std::mem::replace(&mut self.slots[at], slot)),
            Err(at) => {
                self.slots.insert(at, slot);
                None
            }
        }
    }

    /// Takes slots out by number, in one pass.
    pub(crate) fn remove(&mut self, numbers: &[u32]) -> Vec<Slot> {
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        self.slots.extract_if(.., |slot| sorted.binary_search(&slot.number).is_ok()).collect()
    }

    pub(crate) fn take_all(&mut self) -> Vec<Slot> {
        self.cursor = 0;
        std::mem::take(&mut self.slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::history::{Bounds, History, Minutes, SeriesKey};

    fn slot(number: u32) -> Slot {
        let mut history = Minutes::new(Bounds { retention_minutes: 1, per_series: 1, total: 1, series: 1 });
        let (cluster, namespace) = (String::new(), String::new());
        let (workload, container) = (String::new(), String::new());
        let id = history.series(&SeriesKey { cluster, namespace, workload, container, image: None });
        Slot::new(number, Arc::default(), id)
    }

    #[test]
    fn slots_stay_in_order_however_they_come() {
        let mut slots = Slots::default();
        for number in [5, 1, 9, 3] {
            assert!(slots.insert(slot(number)).is_none());
        }
        assert!(slots.insert(slot(9)).is_some());
        for number in [1, 3, 9, 5, 1] {
            assert_eq!(slots.get_mut(number).map(|s| s.number), Some(number));
        }
        assert!(slots.get_mut(4).is_none());
        assert_eq!(slots.remove(&[9, 4, 1]).len(), 2);
        assert_eq!(slots.iter().map(|s| s.number).collect::<Vec<_>>(), [3, 5]);
    }

    #[test]
    fn a_minute_ends_when_the_next_begins() {
        let mut s = slot(1);
        let sample = Sample::default();
        assert!(s.take(7, 1, &sample, None).is_none());
        assert!(s.take(7, 2, &sample, None).is_none());
        let (minute, rollup) = s.take(8, 3, &sample, None).unwrap();
        assert_eq!((minute, rollup.samples), (7, 2));
        assert_eq!(s.recent().map(|m| m.time_usec).collect::<Vec<_>>(), [1, 2, 3]);
        for time in 4..7 {
            s.take(8, time, &sample, None);
        }
        assert_eq!(s.recent().map(|m| m.time_usec).collect::<Vec<_>>(), [3, 4, 5, 6]);
    }
}
