//! Owns how minutes and histograms become bytes and come back, without loss.
//!
//! Numbers of one kind are a *column*. A column says in two bits which form it has: all equal, equal steps, distances
//! from the least, or differences from one to the next; the latter two without the low bits in which all agree (memory
//! moves in pages), as Rice codes with the parameter that makes this column shortest.

use evenkeel_model::rollup::Aggregate;
use evenkeel_rightsizing::histogram::{Histogram, Scheme};

use super::bits::{BitReader, BitWriter, rice_cost};
use super::minute::StoredMinute;

/// Most numbers of a column, so that damaged bytes cannot ask for unbounded memory.
const MOST: u64 = 1 << 16;

const EQUAL: u64 = 0;
const STEPS: u64 = 1;
const DISTANCES: u64 = 2;
const DIFFERENCES: u64 = 3;

const fn zigzag(value: i64) -> u64 {
    (value << 1 ^ value >> 63).cast_unsigned()
}

const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

/// The Rice parameter for numbers of this sum, and the bits they take with it.
fn best_k(values: &[u64]) -> (u32, u64) {
    let sum: u128 = values.iter().map(|v| u128::from(*v)).sum();
    let mean = u64::try_from(sum / values.len().max(1) as u128).unwrap_or(u64::MAX);
    let about = 63 - (mean | 1).leading_zeros();
    let cost = |k: u32| values.iter().map(|v| rice_cost(*v, k)).sum::<u64>();
    let tried = (about.saturating_sub(1)..=(about + 1).min(63)).map(|k| (k, cost(k)));
    tried.min_by_key(|(_, cost)| *cost).unwrap_or((0, 0))
}

/// The low bits that are zero in all of them.
fn common_shift(values: &[u64]) -> u32 {
    values.iter().fold(0, |all, v| all | v).trailing_zeros().min(63)
}

fn put_column(out: &mut BitWriter, values: &[u64]) {
    let (Some(first), Some(least)) = (values.first(), values.iter().min()) else { return };
    if values.iter().all(|v| v == first) {
        out.bits(EQUAL, 2);
        out.number(*first);
        return;
    }
    let differences: Vec<i64> = values.windows(2).map(|w| w[1].wrapping_sub(w[0]).cast_signed()).collect();
    if differences.iter().all(|d| d == &differences[0]) {
        out.bits(STEPS, 2);
        out.number(*first);
        out.number(zigzag(differences[0]));
        return;
    }
    let mut near: Vec<u64> = values.iter().map(|v| v - least).collect();
    let near_shift = common_shift(&near);
    near.iter_mut().for_each(|v| *v >>= near_shift);
    let raw: Vec<u64> = differences.iter().map(|d| d.cast_unsigned()).collect();
    let step_shift = common_shift(&raw);
    let steps: Vec<u64> = differences.iter().map(|d| zigzag(d >> step_shift)).collect();
    let ((near_k, near_cost), (steps_k, steps_cost)) = (best_k(&near), best_k(&steps));
    let (form, base, shift, k, codes) = if near_cost <= steps_cost {
        (DISTANCES, *least, near_shift, near_k, near)
    } else {
        (DIFFERENCES, *first, step_shift, steps_k, steps)
    };
    out.bits(form, 2);
    out.number(base);
    out.bits(u64::from(shift), 6);
    out.bits(u64::from(k), 6);
    codes.iter().for_each(|code| out.rice(*code, k));
}

/// Reads a column of so many numbers and gives each with its place to `put`; nothing where the bytes end or `put` wants no
/// more.
#[inline]
fn take_column(
    from: &mut BitReader<'_>,
    count: usize,
    mut put: impl FnMut(usize, u64) -> Option<()>,
) -> Option<()> {
    if count == 0 {
        return Some(());
    }
    let form = from.bits(2)?;
    let base = from.number()?;
    match form {
        EQUAL => (0..count).try_for_each(|i| put(i, base)),
        STEPS => {
            let step = unzigzag(from.number()?).cast_unsigned();
            (0..count).try_for_each(|i| put(i, base.wrapping_add(step.wrapping_mul(i as u64))))
        }
        _ => {
            let (shift, k) = ((from.bits(6)? & 0x3f) as u32, (from.bits(6)? & 0x3f) as u32);
            if form == DISTANCES {
                return (0..count).try_for_each(|i| put(i, base.wrapping_add(from.rice(k)? << shift)));
            }
            let mut value = base;
            put(0, value)?;
            (1..count).try_for_each(|i| {
                value = value.wrapping_add((unzigzag(from.rice(k)?) << shift).cast_unsigned());
                put(i, value)
            })
        }
    }
}

/// The same as a list.
fn take_list(from: &mut BitReader<'_>, count: usize) -> Option<Vec<u64>> {
    let mut values = Vec::with_capacity(count);
    take_column(from, count, |_, value| {
        values.push(value);
        Some(())
    })?;
    Some(values)
}

/// Minutes as bytes.
pub(crate) fn encode_minutes(minutes: &[StoredMinute]) -> Vec<u8> {
    let mut out = BitWriter::default();
    out.number(minutes.len() as u64);
    let mut column = |of: &dyn Fn(&StoredMinute) -> u64| {
        put_column(&mut out, &minutes.iter().map(of).collect::<Vec<_>>());
    };
    column(&|m| u64::from(m.minute));
    column(&|m| u64::from(m.samples));
    // What is beyond a second for each sample: next to nothing, however many there were.
    column(&|m| zigzag(m.weight_ms.wrapping_sub(u64::from(m.samples) * 1000).cast_signed()));
    column(&|m| m.throttled_ms);
    column(&|m| m.starved_ms);
    column(&|m| u64::from(m.oom_kills));
    for part in [|m: &StoredMinute| m.cpu, |m: &StoredMinute| m.memory] {
        // Differences wrap, so that any numbers come back.
        column(&|m| u64::from(m.samples).wrapping_sub(part(m).count));
        column(&|m| part(m).min);
        column(&|m| part(m).max.wrapping_sub(part(m).min));
        column(&|m| part(m).sum.wrapping_sub(part(m).min.wrapping_mul(part(m).count)));
    }
    out.finish()
}

fn put(place: &mut u64, value: u64) -> Option<()> {
    *place = value;
    Some(())
}

/// Minutes of bytes; nothing where these are no minutes.
pub(crate) fn decode_minutes(bytes: &[u8]) -> Option<Vec<StoredMinute>> {
    let mut from = BitReader::new(bytes);
    let count = usize::try_from(from.number().filter(|n| *n <= MOST)?).ok()?;
    let mut minutes = vec![StoredMinute::default(); count];
    let mut each = |set: &dyn Fn(&mut StoredMinute, u64) -> Option<()>| -> Option<()> {
        take_column(&mut from, count, |i, value| set(&mut minutes[i], value))
    };
    each(&|m, v| u32::try_from(v).ok().map(|v| m.minute = v))?;
    each(&|m, v| u32::try_from(v).ok().map(|v| m.samples = v))?;
    each(&|m, v| {
        put(&mut m.weight_ms, unzigzag(v).cast_unsigned().wrapping_add(u64::from(m.samples) * 1000))
    })?;
    each(&|m, v| put(&mut m.throttled_ms, v))?;
    each(&|m, v| put(&mut m.starved_ms, v))?;
    each(&|m, v| u32::try_from(v).ok().map(|v| m.oom_kills = v))?;
    let parts: [fn(&mut StoredMinute) -> &mut Aggregate; 2] = [|m| &mut m.cpu, |m| &mut m.memory];
    for part in parts {
        each(&|m, v| {
            let samples = u64::from(m.samples);
            put(&mut part(m).count, samples.wrapping_sub(v))
        })?;
        each(&|m, v| put(&mut part(m).min, v))?;
        each(&|m, v| put(&mut part(m).max, v))?;
        each(&|m, v| {
            let part = part(m);
            part.max = part.max.wrapping_add(part.min);
            part.sum = v.wrapping_add(part.min.wrapping_mul(part.count));
            Some(())
        })?;
    }
    Some(minutes)
}

fn put_histogram(out: &mut BitWriter, histogram: &Histogram) {
    let buckets = histogram.buckets();
    out.bits(u64::from(histogram.scheme().id()), 4);
    out.number(buckets.len() as u64);
    put_column(out, &buckets.iter().map(|b| u64::from(b.0)).collect::<Vec<_>>());
    put_column(out, &buckets.iter().map(|b| b.1).collect::<Vec<_>>());
}

/// Reads a histogram into the place of another, whose memory it takes over. On failure nothing is counted there.
fn take_histogram(from: &mut BitReader<'_>, into: &mut Histogram) -> Option<()> {
    let mut buckets = std::mem::take(into).into_buckets();
    buckets.clear();
    let scheme = Scheme::from_id((from.bits(4)? & 0xf) as u8)?;
    let count = usize::try_from(from.number().filter(|n| *n <= MOST)?).ok()?;
    take_column(from, count, |_, bucket| {
        buckets.push((u16::try_from(bucket).ok()?, 0));
        Some(())
    })?;
    take_column(from, count, |i, weight| {
        buckets[i].1 = weight;
        Some(())
    })?;
    *into = Histogram::from_buckets(scheme, buckets)?;
    Some(())
}

/// Columns of one length as bytes.
pub(crate) fn encode_columns(columns: &[Vec<u64>]) -> Vec<u8> {
    let mut out = BitWriter::default();
    out.number(columns.first().map_or(0, Vec::len) as u64);
    columns.iter().for_each(|column| put_column(&mut out, column));
    out.finish()
}

/// What [`encode_columns`] was given; nothing where these are other bytes.
pub(crate) fn decode_columns<const N: usize>(bytes: &[u8]) -> Option<[Vec<u64>; N]> {
    let mut from = BitReader::new(bytes);
    let count = usize::try_from(from.number().filter(|n| *n <= MOST)?).ok()?;
    let mut columns = [const { Vec::new() }; N];
    for column in &mut columns {
        *column = take_list(&mut from, count)?;
    }
    Some(columns)
}

/// Histograms and numbers in a fixed order, as whoever reads them knows it. A histogram that is not there takes a bit.
pub(crate) fn encode_parts(numbers: &[u64], histograms: &[Option<&Histogram>]) -> Vec<u8> {
    let mut out = BitWriter::default();
    numbers.iter().for_each(|n| out.number(*n));
    for histogram in histograms {
        out.bits(u64::from(histogram.is_some()), 1);
        if let Some(histogram) = histogram {
            put_histogram(&mut out, histogram);
        }
    }
    out.finish()
}

/// The same with more behind it, where readers of the first part do not look. It begins with a whole byte: `bytes` are those of
/// [`encode_parts`].
pub(crate) fn encode_more(mut bytes: Vec<u8>, numbers: &[u64], histograms: &[Option<&Histogram>]) -> Vec<u8> {
    bytes.extend(encode_parts(numbers, histograms));
    bytes
}

/// What stands behind N numbers and H histograms; nothing where nothing does.
pub(crate) fn decode_more<const N: usize, const H: usize, const M: usize, const K: usize>(
    bytes: &[u8],
) -> Option<([u64; M], [Option<Histogram>; K])> {
    let mut from = BitReader::new(bytes);
    for _ in 0..N {
        from.number()?;
    }
    let mut skipped = Histogram::new();
    for _ in 0..H {
        if from.bits(1)? == 1 {
            take_histogram(&mut from, &mut skipped)?;
        }
    }
    let behind = bytes.get(bytes.len() - from.whole_bytes_left()..)?;
    if behind.is_empty() { None } else { decode_parts(behind) }
}

/// What [`encode_parts`] was given; nothing where these are other bytes.
pub(crate) fn decode_parts<const N: usize, const H: usize>(
    bytes: &[u8],
) -> Option<([u64; N], [Option<Histogram>; H])> {
    let mut histograms = [const { Histogram::new() }; H];
    let (numbers, there) = decode_parts_into(bytes, histograms.each_mut())?;
    let mut there = there.into_iter();
    Some((numbers, histograms.map(|histogram| there.next().unwrap_or(false).then_some(histogram))))
}

/// The same into histograms that are there already, whose memory is used again; which of them are meant.
#[inline]
pub(crate) fn decode_parts_into<const N: usize, const H: usize>(
    bytes: &[u8],
    histograms: [&mut Histogram; H],
) -> Option<([u64; N], [bool; H])> {
    let mut from = BitReader::new(bytes);
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = from.number()?;
    }
    let mut there = [false; H];
    for (histogram, there) in histograms.into_iter().zip(&mut there) {
        *there = from.bits(1)? == 1;
        match *there {
            true => take_histogram(&mut from, histogram)?,
            false => histogram.clear(),
        }
    }
    Some((numbers, there))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers() -> impl Strategy<Value = Vec<u64>> {
        prop_oneof![
            prop::collection::vec(any::<u64>(), 0..70),
            prop::collection::vec(0..9_u64, 0..70),
            prop::collection::vec((1_u64 << 20..1 << 22).prop_map(|pages| pages << 12), 0..70),
            (any::<u64>(), any::<u64>(), 0..70_u64)
                .prop_map(|(a, d, n)| (0..n).map(|i| a.wrapping_add(d.wrapping_mul(i))).collect()),
        ]
    }

    fn aggregate() -> impl Strategy<Value = Aggregate> {
        let made = |(count, sum, min, max)| Aggregate { count, sum, min, max };
        prop_oneof![
            Just(Aggregate::default()),
            any::<(u64, u64, u64, u64)>().prop_map(made),
            (0..60_u64, 0..1_u64 << 40, 0..1_u64 << 30, 0..1_u64 << 34).prop_map(made),
        ]
    }

    fn kept() -> impl Strategy<Value = StoredMinute> {
        (any::<(u32, u32, u64)>(), aggregate(), aggregate(), any::<(u64, u64, u32)>()).prop_map(
            |((minute, samples, weight_ms), cpu, memory, (throttled_ms, starved_ms, oom_kills))| {
                StoredMinute { minute, samples, weight_ms, cpu, memory, throttled_ms, starved_ms, oom_kills }
            },
        )
    }

    fn histogram() -> impl Strategy<Value = Histogram> {
        let pairs = prop::collection::vec((any::<u64>(), 1..1_u64 << 50), 0..40);
        pairs.prop_map(|list| {
            list.into_iter().fold(Histogram::new(), |mut h, (value, weight)| {
                h.add(value, weight);
                h
            })
        })
    }

    proptest! {
        #[test]
        fn columns_come_back(values in numbers()) {
            let mut out = BitWriter::default();
            put_column(&mut out, &values);
            let bytes = out.finish();
            prop_assert_eq!(take_list(&mut BitReader::new(&bytes), values.len()), Some(values));
        }

        #[test]
        fn minutes_come_back(minutes in prop::collection::vec(kept(), 0..65)) {
            prop_assert_eq!(decode_minutes(&encode_minutes(&minutes)), Some(minutes));
        }

        #[test]
        fn parts_come_back(numbers: [u64; 3], one in histogram(), other in histogram()) {
            let bytes = encode_parts(&numbers, &[Some(&one), None, Some(&other)]);
            prop_assert_eq!(decode_parts::<3, 3>(&bytes), Some((numbers, [Some(one), None, Some(other)])));
        }

        #[test]
        fn no_bytes_can_do_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode_minutes(&bytes);
            let _ = decode_parts::<4, 3>(&bytes);
        }
    }

    #[test]
    fn an_hour_of_an_idle_container_is_small() {
        // Ticks drift against minutes, so some have a sample less or more.
        let idle = |minute: u32| {
            let count = 59 + u64::from(minute * 7 % 3);
            StoredMinute {
                minute,
                samples: count as u32,
                weight_ms: count * 1000,
                cpu: Aggregate { count, sum: 0, min: 0, max: 0 },
                memory: Aggregate { count, sum: count << 20, min: 1 << 20, max: 1 << 20 },
                ..StoredMinute::default()
            }
        };
        let bytes = encode_minutes(&(0..60).map(idle).collect::<Vec<_>>());
        assert!(bytes.len() < 50, "{} bytes", bytes.len());
    }
}
