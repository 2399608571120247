//! One container's predictor state and how one sample is coded against it, in both directions.
//!
//! Integers only, so that every machine predicts alike. Counters are expected to grow at their recent rate times
//! the sample's true interval; gauges to stay, or to move as `memory.current` did (whichever did better lately).
//! What the prediction misses is written as a Rice code whose parameter follows the misses of this very
//! container and field.

use evenkeel_model::sample::{Field, Sample};

use super::bits::{BitStream, MAX_RICE, unzigzag, zigzag};

/// All field bits.
const ALL_FIELDS: u16 = (1 << Field::COUNT) - 1;

/// Bits below a 4 KiB page, dropped from memory sizes that have none of them set.
const PAGE_SHIFT: u32 = 12;

/// Microseconds of the interval rates are kept for.
const SECOND_USEC: u64 = 1_000_000;

/// Fractional bits of rates and mean misses.
const FRACTION: u32 = 4;

/// Mean misses kept: one per field, then one per second predictor, see [`second_mean`].
const MEANS: usize = Field::COUNT + 3;

/// A mean moves by one part in two to this power of each new miss.
const MEMORY: u32 = 4;

/// Rice parameter a mean starts from when nothing is known.
const FIRST_RICE: u32 = 6;

/// Mean of the misses of one predictor, from which the Rice parameter follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mean(u32);

impl Mean {
    /// The mean that stands for a Rice parameter.
    pub(super) const fn of_rice(k: u32) -> Self {
        if k == 0 { Self(1 << FRACTION >> 1) } else { Self(3 << (k + FRACTION - 1)) }
    }

    /// The Rice parameter: the power of two at or below the mean. For misses spread evenly up to a bound, as
    /// jitter is, this is up to a third of a bit shorter than the next power above, the rule of JPEG-LS (ITU-T
    /// T.87, A.5.1), and no longer for misses that thin out.
    #[inline]
    pub(super) const fn rice(self) -> u32 {
        let mean = ((self.0 >> (FRACTION - 1)) + 1) >> 1;
        31 - (mean | 1).leading_zeros()
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a mean lies between those before it, none of which is below 0 or has more than 32 bits"
    )]
    fn add(&mut self, miss: u64) {
        let miss = (miss.min((2 << MAX_RICE) - 1) << FRACTION).cast_signed();
        let mean = i64::from(self.0);
        self.0 = (mean + ((miss - mean) >> MEMORY)) as u32;
    }

    pub(super) const fn raw(self) -> u32 {
        self.0
    }

    pub(super) fn from_raw(raw: u64) -> Option<Self> {
        u32::try_from(raw).ok().filter(|raw| *raw >> FRACTION < 2 << MAX_RICE).map(Self)
    }
}

/// What both ends remember of one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SlotState {
    /// The sample before.
    pub(super) last: Sample,
    /// `last` is a real sample (and not only the default).
    pub(super) known: bool,
    /// The next sample is coded without reference to any before.
    pub(super) fresh: bool,
    /// Memory sizes are coded in pages.
    pub(super) pages: bool,
    /// Samples since the last fresh one, up to [`SlotState::SETTLED`]; young rates learn faster.
    pub(super) age: u8,
    /// Growth of counters per second, with [`FRACTION`] bits; unused for gauges.
    pub(super) rates: [u32; Field::COUNT],
    /// Mean misses.
    pub(super) means: [Mean; MEANS],
}

impl SlotState {
    /// Age from which a rate learns at its slowest, an eighth of each miss.
    pub(super) const SETTLED: u8 = 3;

    pub(super) const fn new() -> Self {
        Self {
            last: Sample::with_interval_usec(0),
            known: false,
            fresh: true,
            pages: false,
            age: 0,
            rates: [0; Field::COUNT],
            means: [Mean::of_rice(FIRST_RICE); MEANS],
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate moves between two numbers of 32 bits"
    )]
    fn learn_rate(&mut self, field: Field, grown: u64, per_second: u64) {
        let grown = (u128::from(grown.min(1 << 40) << FRACTION) * u128::from(per_second)) >> 32;
        let rate = i64::from(self.rates[field.index()]);
        let seen = i64::try_from(grown).unwrap_or(i64::MAX).min(i64::from(u32::MAX));
        let rate = rate + ((seen - rate) >> self.age);
        self.rates[field.index()] = rate as u32;
    }

    const fn shift(&self, field: Field) -> u32 {
        if self.pages && is_memory(field) { PAGE_SHIFT } else { 0 }
    }
}

/// How the intervals of one frame lie around its base interval; shared by all samples of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Intervals {
    base: u32,
    /// Recent deviation from the base within this frame, with [`FRACTION`] bits.
    deviation: i64,
    pub(super) mean: Mean,
}

impl Intervals {
    pub(super) const fn new() -> Self {
        Self { base: 0, deviation: 0, mean: Mean::of_rice(FIRST_RICE) }
    }

    /// Starts a frame; what was learnt about the size of misses stays.
    pub(super) const fn begin(&mut self, base: u32) {
        self.base = base;
        self.deviation = 0;
    }

    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the interval was clamped to 32 bits"
    )]
    fn code<L: BitStream>(&mut self, line: &mut L, actual: u32) -> u32 {
        let predicted = i64::from(self.base) + (self.deviation >> FRACTION);
        let miss = line.rice(self.mean.rice(), zigzag(i64::from(actual) - predicted));
        self.mean.add(miss);
        // Bytes from a stranger may say anything; a writer's own interval always fits.
        let interval = predicted.wrapping_add(unzigzag(miss)).clamp(0, i64::from(u32::MAX));
        self.deviation += ((interval - i64::from(self.base)) * (1 << FRACTION) - self.deviation) >> 2;
        interval as u32
    }
}

const fn is_memory(field: Field) -> bool {
    matches!(
        field,
        Field::MemoryCurrentBytes | Field::MemoryWorkingSetBytes | Field::MemoryAnonBytes | Field::SwapBytes
    )
}

/// Place of the mean misses of a field's second predictor. Throttled time is also expected to follow the number
/// of throttled periods, working set and anonymous memory to move as all memory did.
const fn second_mean(field: Field) -> Option<usize> {
    match field {
        Field::MemoryWorkingSetBytes => Some(Field::COUNT),
        Field::MemoryAnonBytes => Some(Field::COUNT + 1),
        Field::CpuThrottledUsec => Some(Field::COUNT + 2),
        _ => None,
    }
}

fn whole_pages(sample: &Sample) -> bool {
    let set = Field::ALL.into_iter().filter(|f| is_memory(*f)).filter_map(|f| sample.get(f));
    set.fold(0, |bits, v| bits | v) & ((1 << PAGE_SHIFT) - 1) == 0
}

fn copy_with_interval(values: &Sample, interval_usec: u32) -> Sample {
    let mut sample = *values;
    sample.set_interval_usec(interval_usec);
    sample
}

/// Codes a sample against the one before it and returns it.
#[inline]
pub(super) fn code_delta<L: BitStream>(
    line: &mut L,
    state: &mut SlotState,
    intervals: &mut Intervals,
    actual: &Sample,
) -> Sample {
    let interval = intervals.code(line, actual.interval_usec());
    let idle = copy_with_interval(&state.last, actual.interval_usec()) == *actual;
    if line.flag(idle) {
        state.last.set_interval_usec(interval);
        return state.last;
    }
    let mut present = state.last.present();
    let pages = whole_pages(actual);
    if line.flag(pages != state.pages || actual.present() != present) {
        state.pages = line.flag(pages);
        present = code_set(line, actual.present());
    }
    let sample = code_fields(line, state, present & ALL_FIELDS, interval, actual);
    state.age = (state.age + 1).min(SlotState::SETTLED);
    state.last = sample;
    sample
}

/// A set of fields, one bit each.
#[inline]
fn code_set<L: BitStream>(line: &mut L, fields: u16) -> u16 {
    (line.bits(ALL_FIELDS.count_ones(), u64::from(fields)) & 0xffff) as u16
}

/// What the fields of one sample coded so far tell of those to come.
struct Moved {
    interval: u32,
    /// Parts of a second per interval, with 32 bits.
    per_second: u64,
    /// Throttled periods since the sample before.
    throttled: u64,
    /// What `memory.current` moved by, in the unit sizes are coded in.
    current: i64,
}

#[inline]
fn code_fields<L: BitStream>(
    line: &mut L,
    state: &mut SlotState,
    present: u16,
    interval: u32,
    actual: &Sample,
) -> Sample {
    let mut sample = Sample::with_interval_usec(interval);
    let per_second = (SECOND_USEC << 32) / u64::from(interval.max(1));
    let mut moved = Moved { interval, per_second, throttled: 0, current: 0 };
    for field in Field::ALL {
        if present & (1 << field.index()) == 0 {
            continue;
        }
        let wish = actual.get(field).unwrap_or(0);
        let value = if field.is_counter() {
            code_counter(line, state, field, &mut moved, wish)
        } else {
            code_gauge(line, state, field, &mut moved, wish)
        };
        sample.set(field, value);
    }
    sample
}

#[inline]
fn code_counter<L: BitStream>(
    line: &mut L,
    state: &mut SlotState,
    field: Field,
    moved: &mut Moved,
    wish: u64,
) -> u64 {
    let i = field.index();
    let before = state.last.get(field);
    let rate = u64::from(state.rates[i]);
    let first = rate * u64::from(moved.interval) / (SECOND_USEC << FRACTION);
    let second = second_mean(field).map(|j| {
        let periods = state.rates[Field::CpuThrottledPeriods.index()].max(1);
        (j, rate * moved.throttled / u64::from(periods))
    });
    let base = before.unwrap_or(0);
    let (mean, expected) = better(state, i, first, second);
    let predicted = base.wrapping_add(expected);
    let miss = line.rice(state.means[mean].rice(), zigzag(wish.wrapping_sub(predicted).cast_signed()));
    let value = predicted.wrapping_add(unzigzag(miss).cast_unsigned());
    learn_misses(state, i, value.wrapping_sub(base), first, second);
    if let Some(grown) = before.and_then(|before| value.checked_sub(before)) {
        state.learn_rate(field, grown, moved.per_second);
        if field == Field::CpuThrottledPeriods {
            moved.throttled = grown.min(u64::from(u32::MAX));
        }
    }
    value
}

#[inline]
fn code_gauge<L: BitStream>(
    line: &mut L,
    state: &mut SlotState,
    field: Field,
    moved: &mut Moved,
    wish: u64,
) -> u64 {
    let i = field.index();
    let shift = state.shift(field);
    let before = state.last.get(field).unwrap_or(0) >> shift;
    let second = second_mean(field).map(|j| (j, moved.current.cast_unsigned()));
    let (mean, expected) = better(state, i, 0, second);
    let predicted = before.wrapping_add(expected);
    let wish = zigzag((wish >> shift).wrapping_sub(predicted).cast_signed());
    let miss = unzigzag(line.rice(state.means[mean].rice(), wish));
    let value = predicted.wrapping_add(miss.cast_unsigned());
    let change = value.wrapping_sub(before);
    learn_misses(state, i, change, 0, second);
    if field == Field::MemoryCurrentBytes {
        moved.current = change.cast_signed();
    }
    value << shift
}

/// The change to expect, from the predictor that missed less lately, and where its mean miss is.
#[inline]
fn better(state: &SlotState, first_mean: usize, first: u64, second: Option<(usize, u64)>) -> (usize, u64) {
    match second {
        Some((j, change)) if state.means[j].0 < state.means[first_mean].0 => (j, change),
        _ => (first_mean, first),
    }
}

#[inline]
fn learn_misses(
    state: &mut SlotState,
    first_mean: usize,
    change: u64,
    first: u64,
    second: Option<(usize, u64)>,
) {
    state.means[first_mean].add(zigzag(change.wrapping_sub(first).cast_signed()));
    if let Some((j, second)) = second {
        state.means[j].add(zigzag(change.wrapping_sub(second).cast_signed()));
    }
}

/// Codes a sample that stands by itself: all values, what the counters grew by since the sample before, and how
/// large misses have been. Returns it with the sample before as far as it is told (its counters).
pub(super) fn code_fresh<L: BitStream>(
    line: &mut L,
    state: &mut SlotState,
    actual: &Sample,
) -> (Sample, Option<Sample>) {
    let interval = u32::try_from(line.wide(u64::from(actual.interval_usec()))).unwrap_or(u32::MAX);
    state.pages = line.flag(whole_pages(actual));
    let present = code_set(line, actual.present()) & ALL_FIELDS;
    let known = line.flag(state.known);
    let common = present & state.last.present();
    let told =
        if known && !line.flag(common == present) { code_set(line, common) & present } else { present };
    for mean in &mut state.means {
        *mean = Mean::of_rice(((line.bits(5, u64::from(mean.rice())) & 0x1f) as u32).min(MAX_RICE));
    }
    let mut sample = Sample::with_interval_usec(interval);
    let mut previous = Sample::with_interval_usec(0);
    let per_second = (SECOND_USEC << 32) / u64::from(if interval == 0 { 1_000_000 } else { interval });
    state.age = 0;
    for field in Field::ALL.into_iter().filter(|f| present & (1 << f.index()) != 0) {
        let shift = state.shift(field);
        let value = line.wide(actual.get(field).unwrap_or(0) >> shift) << shift;
        sample.set(field, value);
        state.rates[field.index()] = 0;
        if !known || !field.is_counter() || told & (1 << field.index()) == 0 {
            continue;
        }
        let grown = value.wrapping_sub(state.last.get(field).unwrap_or(0));
        let before = value.wrapping_sub(unzigzag(line.wide(zigzag(grown.cast_signed()))).cast_unsigned());
        previous.set(field, before);
        if let Some(grown) = value.checked_sub(before) {
            state.learn_rate(field, grown, per_second);
        }
    }
    state.age = 1;
    state.fresh = false;
    state.known = true;
    state.last = sample;
    (sample, known.then_some(previous))
}
