//! Owns the last seconds of one container: a ring that forgets the oldest, and knows which of them have not been added
//! to hours and days yet.

use evenkeel_model::sample::{Field, Sample};
use evenkeel_rightsizing::histogram::Histogram;
use evenkeel_rightsizing::{Resource, usage};

use super::slots::{Moment, memory_of};
use crate::history::codec::{decode_columns, encode_columns};
use crate::history::replica::Fold;
use crate::history::sealed::at;

/// Seconds kept: one minute and a little.
const KEPT: usize = 64;
/// Stands for a number the kernel did not tell; above any that occurs.
const ABSENT: u32 = u32::MAX;

/// One second in 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct StoredSecond {
    /// Milliseconds after `base_ms`.
    offset_ms: u32,
    /// Time it stands for, milliseconds: a minute at most.
    weight_ms: u16,
    /// The part of it in which somebody waited for memory, milliseconds.
    stalled_ms: u16,
    /// Millionths of a core, at most 4,294 cores.
    cpu_micro: u32,
    /// KiB rounded up, at most 4 TiB: kernels count whole pages.
    memory_kib: u32,
}

impl StoredSecond {
    /// Millionths of a core, or bytes.
    fn value(&self, resource: Resource) -> Option<u64> {
        match resource {
            Resource::Cpu => (self.cpu_micro != ABSENT).then_some(u64::from(self.cpu_micro)),
            Resource::Memory => (self.memory_kib != ABSENT).then_some(u64::from(self.memory_kib) << 10),
        }
    }
}

/// The last seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seconds {
    base_ms: u64,
    ring: Vec<StoredSecond>,
    /// Place of the next one once the ring is full.
    next: usize,
    /// How many of the newest have not been folded.
    unfolded: usize,
}

impl Seconds {
    /// Takes a sample in; the caller has folded before where [`is_full`](Self::is_full) says so.
    pub(crate) fn push(
        &mut self,
        time_usec: u64,
        sample: &Sample,
        previous: Option<&Sample>,
        cpu_micro: Option<u64>,
    ) {
        let time_ms = time_usec / 1000;
        let offset = time_ms.checked_sub(self.base_ms).and_then(|offset| u32::try_from(offset).ok());
        let offset_ms = match offset {
            Some(offset) if !self.ring.is_empty() => offset,
            // The clock was set back, or this is the first: what the ring holds has been folded by now or is of
            // another time; it cannot be told in the same numbers.
            _ if self.unfolded == 0 => {
                self.ring.clear();
                (self.base_ms, self.next) = (time_ms, 0);
                0
            }
            // Set back within the hour: kept at its place in the order, at the time of the base.
            _ => 0,
        };
        let few = |value: u64| u32::try_from(value).unwrap_or(ABSENT).min(ABSENT - 1);
        let ms = |usec: u64| u16::try_from((usec + 500) / 1000).unwrap_or(u16::MAX);
        let stalled_usec = previous.and_then(|p| sample.delta(p, Field::MemoryPressureUsec)).unwrap_or(0);
        let second = StoredSecond {
            offset_ms,
            // A first sample stands for a moment; it must not vanish.
            weight_ms: ms(sample.weight_usec()).max(1),
            stalled_ms: ms(stalled_usec.min(sample.weight_usec())),
            cpu_micro: cpu_micro.map_or(ABSENT, few),
            memory_kib: memory_of(sample).map_or(ABSENT, |bytes| few(bytes.div_ceil(1024))),
        };
        if self.ring.len() < KEPT {
            if self.ring.capacity() == 0 {
                self.ring.reserve_exact(KEPT);
            }
            self.ring.push(second);
        } else {
            self.ring[self.next] = second;
            self.next = (self.next + 1) % KEPT;
        }
        self.unfolded = (self.unfolded + 1).min(KEPT);
    }

    /// Whether the next sample would overwrite one that has not been folded. `stagger` spreads the folding of many
    /// containers over time.
    pub(crate) const fn is_full(&self, stagger: u32) -> bool {
        self.unfolded >= KEPT - (stagger % 16) as usize
    }

    pub(crate) const fn has_unfolded(&self) -> bool {
        self.unfolded > 0
    }

    /// Oldest first.
    fn all(&self) -> impl DoubleEndedIterator<Item = &StoredSecond> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        older.iter().chain(newer)
    }

    /// What has not been folded, of the hour given by the caller.
    pub(crate) fn unfolded(&self, hour: u32) -> Fold {
        let mut fold = Fold { hour, ..Fold::default() };
        for resource in Resource::ALL {
            let peak = &mut fold.peaks[at(resource)];
            let counted = self.unfolded_of(resource).inspect(|(value, _)| *peak = (*peak).max(*value));
            fold.heights[at(resource)] = Histogram::of(counted);
        }
        fold
    }

    /// The same of one resource: height and weight (milliseconds) of each second, newest first.
    pub(crate) fn unfolded_of(&self, resource: Resource) -> impl Iterator<Item = (u64, u64)> {
        let newest = self.all().rev().take(self.unfolded);
        newest.filter_map(move |second| Some((second.value(resource)?, u64::from(second.weight_ms))))
    }

    /// All that are kept of one resource, oldest first.
    pub fn kept(&self, resource: Resource) -> impl Iterator<Item = usage::UsageSecond> {
        self.all().filter_map(move |second| {
            Some(usage::UsageSecond {
                time_ms: self.base_ms + u64::from(second.offset_ms),
                weight_ms: u64::from(second.weight_ms),
                value: second.value(resource)?,
                stalled_ms: u64::from(second.stalled_ms),
            })
        })
    }

    pub(crate) const fn set_folded(&mut self) {
        self.unfolded = 0;
    }

    /// Oldest first, for showing.
    pub(crate) fn moments(&self) -> impl Iterator<Item = Moment> {
        let some = |value: u32| (value != ABSENT).then_some(u64::from(value));
        self.all().map(move |second| Moment {
            time_usec: (self.base_ms + u64::from(second.offset_ms)) * 1000,
            cpu_milli: some(second.cpu_micro).map(|micro| micro / 1000),
            memory_bytes: some(second.memory_kib).map(|kib| kib << 10),
        })
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let column =
            |of: fn(&StoredSecond) -> u32| self.all().map(|s| u64::from(of(s))).collect::<Vec<u64>>();
        let len = self.ring.len();
        encode_columns(&[
            column(|s| s.offset_ms),
            // Checkpoints of before know no stalls: there the upper half is nothing.
            column(|s| u32::from(s.weight_ms) | (u32::from(s.stalled_ms) << 16)),
            column(|s| s.cpu_micro),
            column(|s| s.memory_kib),
            vec![self.base_ms; len],
            vec![self.unfolded as u64; len],
        ])
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [offsets, weights, cpus, memories, bases, unfolded] = decode_columns::<6>(bytes)?;
        if offsets.len() > KEPT {
            return None;
        }
        let mut ring = Vec::with_capacity(if offsets.is_empty() { 0 } else { KEPT });
        let few = |value: u64| u32::try_from(value).ok();
        for i in 0..offsets.len() {
            let times = few(weights[i])?;
            ring.push(StoredSecond {
                offset_ms: few(offsets[i])?,
                weight_ms: (times & 0xffff) as u16,
                stalled_ms: (times >> 16) as u16,
                cpu_micro: few(cpus[i])?,
                memory_kib: few(memories[i])?,
            });
        }
        let unfolded = usize::try_from(unfolded.first().copied().unwrap_or(0)).ok()?;
        Some(Self {
            base_ms: bases.first().copied().unwrap_or(0),
            next: 0,
            unfolded: unfolded.min(ring.len()),
            ring,
        })
    }
}
