//! Owns the containers of one stream: who each slot is, its latest numbers and its unfinished minute.
//!
//! Slots are kept in ascending order, as frames name them: applying a frame is one walk over memory without hashing.

use std::sync::Arc;

use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::{Field, Sample};

use super::seconds::Seconds;
use super::start::Start;
use super::traffic::Looks;
use crate::history::past::Subjects;
use crate::history::peers::{Caps, NO_CAPS};
use crate::history::replica::{Fold, Replica, ReplicaPart, pod_id};
use crate::history::starts::CPU;
use crate::key::{SeriesId, StreamKey};
use evenkeel_proto::v1;

/// A container was running so long before its first and after its last sample: folded minutes, and a clock that is set.
const RAN_USEC: u64 = 3_600_000_000;

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
pub struct StreamContainer {
    /// Its number in the stream.
    pub number: u32,
    /// Who it is.
    pub identity: Arc<v1::ContainerIdentity>,
    /// What its node calls the workload, where the API of the cluster calls it something else.
    pub(crate) reported: Option<Box<str>>,
    /// Where its minutes go.
    pub series: SeriesId,
    /// Where its hours and days go.
    pub(crate) subjects: Subjects,
    /// Latest sample and its time.
    pub latest: Option<(u64, Sample)>,
    /// CPU use of the latest sample.
    pub cpu_milli: Option<u64>,
    /// Its last seconds.
    pub seconds: Seconds,
    /// The unfinished minute and its sums.
    pub open: Option<(u32, Rollup)>,
    /// The unfinished hour, without the seconds that have not been folded.
    pub(crate) hour: Option<Box<Replica>>,
    /// Its start.
    pub(crate) start: Start,
    /// For how long its CPU use was held down in its start since seconds were folded last, milliseconds.
    pub(crate) start_starved_ms: u64,
    /// Samples counted.
    pub samples: u64,
    /// Block I/O and network, where it is told.
    pub traffic: Option<Box<Looks>>,
    /// What of its use counts; nothing of it is history where its node has too many of the kind.
    pub(crate) caps: Option<Caps>,
}

impl StreamContainer {
    /// The workload as its node calls it.
    pub fn reported(&self) -> &str {
        self.reported.as_deref().unwrap_or(&self.identity.workload)
    }

    /// Who its node says it is.
    pub(crate) fn told(&self) -> v1::ContainerIdentity {
        let mut told = (*self.identity).clone();
        if let Some(reported) = &self.reported {
            told.workload = reported.to_string();
        }
        told
    }

    /// Its latest second as it is told; nothing before its first.
    pub fn usage(&self, key: &StreamKey) -> Option<v1::ContainerUsage> {
        let (time_usec, sample) = self.latest?;
        Some(v1::ContainerUsage {
            cluster: key.cluster.clone(),
            node: key.node.clone(),
            identity: Some((*self.identity).clone()),
            time_usec,
            sample: Some((&sample).into()),
            cpu_milli: self.cpu_milli,
            traffic: self.traffic.as_ref().map(|looks| v1::Traffic::of(0, looks.last())),
        })
    }

    pub(crate) fn new(
        number: u32,
        identity: Arc<v1::ContainerIdentity>,
        series: SeriesId,
        subjects: Subjects,
    ) -> Self {
        Self {
            number,
            identity,
            reported: None,
            series,
            subjects,
            latest: None,
            cpu_milli: None,
            seconds: Seconds::default(),
            open: None,
            hour: None,
            start: Start::Unseen,
            start_starved_ms: 0,
            samples: 0,
            traffic: None,
            caps: Some(NO_CAPS),
        }
    }

    /// Takes a sample of a minute in; what it returns is a minute that has ended. The hour has been turned before.
    pub(crate) fn take(
        &mut self,
        minute: u32,
        time_usec: u64,
        sample: &Sample,
        previous: Option<&Sample>,
    ) -> Option<(u32, Rollup)> {
        let ended = self.turn(minute);
        let cpu_micro = previous.and_then(|p| sample.cpu_micro(p));
        self.cpu_milli = cpu_micro.map(|micro| micro / 1000);
        let capped = self.capped(sample, previous, cpu_micro);
        let (counts, cpu_micro) = match &capped {
            Some(capped) => (capped, previous.and_then(|p| capped.cpu_micro(p))),
            None => (sample, cpu_micro),
        };
        if let Some((_, rollup)) = &mut self.open {
            rollup.add(previous, counts);
        }
        self.seconds.push(time_usec, counts, previous, cpu_micro);
        if previous.is_some_and(|previous| sample.is_starved(previous))
            && let Some(hour) = &mut self.hour
        {
            let starved_ms = sample.weight_usec().div_ceil(1000);
            hour.starved_ms += starved_ms;
            if self.start.goes_on() {
                self.start_starved_ms += starved_ms;
            }
        }
        self.latest = Some((time_usec, *sample));
        self.samples += 1;
        ended
    }

    /// The sample as far as it counts, where that is less.
    fn capped(&self, sample: &Sample, previous: Option<&Sample>, cpu_micro: Option<u64>) -> Option<Sample> {
        let [cpu, memory] = self.caps.unwrap_or(NO_CAPS);
        let is_above = |value: Option<u64>, cap| value.is_some_and(|value| value > cap);
        if !is_above(cpu_micro, cpu) && !is_above(memory_of(sample), memory) {
            return None;
        }
        let mut capped = *sample;
        for field in [Field::MemoryWorkingSetBytes, Field::MemoryCurrentBytes] {
            if let Some(bytes) = sample.get(field) {
                capped.set(field, bytes.min(memory));
            }
        }
        if is_above(cpu_micro, cpu)
            && let Some(before) = previous.and_then(|previous| previous.get(Field::CpuUsageUsec))
        {
            let usec = u128::from(cpu) * u128::from(sample.interval_usec()) / 1_000_000;
            capped.set(Field::CpuUsageUsec, before + u64::try_from(usec).unwrap_or(u64::MAX - before));
        }
        Some(capped)
    }

    /// A folded minute as far as it counts.
    pub(crate) fn capped_minute(&self, rollup: &Rollup) -> Rollup {
        let mut capped = *rollup;
        let caps = self.caps.unwrap_or(NO_CAPS);
        for (part, cap) in [&mut capped.cpu_micro, &mut capped.memory_bytes].into_iter().zip(caps) {
            part.max = part.max.min(cap);
            part.min = part.min.min(cap);
            part.sum = part.sum.min(cap.saturating_mul(part.count));
        }
        capped
    }

    /// Takes a second of a container that is no history.
    pub(crate) fn show(&mut self, time_usec: u64, sample: &Sample, previous: Option<&Sample>) {
        self.cpu_milli = previous.and_then(|p| sample.cpu_micro(p)).map(|micro| micro / 1000);
        self.latest = Some((time_usec, *sample));
        self.samples += 1;
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

    /// Makes `hour` the open one; what it returns is the one before with what had not been folded of it.
    pub(crate) fn turn_hour(&mut self, hour: u32) -> Option<(Fold, Replica)> {
        if self.hour.as_ref().is_some_and(|open| open.hour == hour) {
            return None;
        }
        let before = self.end_hour();
        self.hour = Some(Box::new(Replica { hour, pod: pod_id(&self.identity.pod), ..Replica::default() }));
        before
    }

    /// Ends the open hour.
    pub(crate) fn end_hour(&mut self) -> Option<(Fold, Replica)> {
        let fold = self.fold();
        let hour = self.hour.take()?;
        Some((fold.unwrap_or(Fold { hour: hour.hour, ..Fold::default() }), *hour))
    }

    /// Adds the seconds that have not been added yet to the hour, and returns them.
    pub(crate) fn fold(&mut self) -> Option<Fold> {
        let hour = self.hour.as_mut()?;
        if !self.seconds.has_unfolded() {
            return None;
        }
        let mut fold = self.seconds.unfolded(hour.hour);
        self.seconds.set_folded();
        for (into, from) in hour.heights.iter_mut().zip(&fold.heights) {
            into.merge(from);
        }
        if self.start.goes_on() {
            let starved_ms = std::mem::take(&mut self.start_starved_ms);
            in_start(hour, &mut fold, starved_ms);
        }
        Some(fold)
    }

    /// Before a sample of a time is taken in: the start begins with it where it is awaited, and ends where it is over. What is returned ended
    /// then.
    pub(crate) fn turn_start(&mut self, time_usec: u64, length_usec: u64) -> Option<Fold> {
        if self.start == Start::Awaited {
            // What was before is of no start.
            let fold = self.fold();
            self.start.begin(time_usec);
            return fold;
        }
        if !self.start.ends_at(time_usec, length_usec) {
            return None;
        }
        let fold = self.fold();
        self.start.end();
        fold
    }

    /// Adds a folded minute to the hour. Its seconds are not known one by one: the greatest stands for one of them, the
    /// mean for the rest.
    pub(crate) fn fold_rollup(&mut self, rollup: &Rollup) -> Option<Fold> {
        let hour = self.hour.as_mut()?;
        let mut fold = Fold { hour: hour.hour, ..Fold::default() };
        let time_ms = rollup.time_usec / 1000;
        for (i, part) in [&rollup.cpu_micro, &rollup.memory_bytes].into_iter().enumerate() {
            let Some(mean) = part.mean() else { continue };
            let one = time_ms / part.count;
            fold.heights[i].add(part.max, one);
            fold.heights[i].add(mean, time_ms - one);
            fold.peaks[i] = part.max;
        }
        for (into, from) in hour.heights.iter_mut().zip(&fold.heights) {
            into.merge(from);
        }
        let starved_ms = rollup.starved_usec / 1000;
        hour.starved_ms += starved_ms;
        if self.start.goes_on() {
            in_start(hour, &mut fold, starved_ms);
        }
        Some(fold)
    }

    /// Its part of an hour, with what has not been folded.
    pub(crate) fn part(&self, hour: u32) -> Option<ReplicaPart<'_>> {
        let replica = self.hour.as_deref().filter(|open| open.hour == hour)?;
        Some(ReplicaPart { replica, unfolded: Some(&self.seconds), is_starting: self.start.goes_on() })
    }

    /// Whether it may have been running then: it has a sample of that time or a little before or after, or none yet and the
    /// frame that announced it is of that time.
    pub(crate) fn ran_at(&self, time_usec: u64, told_usec: u64) -> bool {
        let near = |usec: u64| usec.abs_diff(time_usec) <= RAN_USEC;
        let folded = self.hour.as_ref().map(|open| u64::from(open.hour) * RAN_USEC);
        match (&self.latest, folded) {
            (None, None) => near(told_usec),
            (latest, folded) => {
                latest.as_ref().is_some_and(|(latest, _)| near(*latest))
                    || folded.is_some_and(|hour| near(hour) || near(hour + RAN_USEC))
            }
        }
    }

    /// The last seconds, oldest first.
    pub fn recent(&self) -> impl Iterator<Item = Moment> {
        self.seconds.moments()
    }
}

/// What was folded is of a start.
fn in_start(hour: &mut Replica, fold: &mut Fold, starved_ms: u64) {
    fold.start = Some(starved_ms);
    let start = hour.start.get_or_insert_default();
    start.heights.merge(&fold.heights[CPU]);
    start.starved_ms += starved_ms;
}

/// Working set, or all memory where the kernel tells no more.
pub fn memory_of(sample: &Sample) -> Option<u64> {
    sample.get(Field::MemoryWorkingSetBytes).or(sample.get(Field::MemoryCurrentBytes))
}

/// The containers of one stream, in the order of their slots.
#[derive(Debug, Clone, Default)]
pub struct StreamContainers {
    slots: Vec<StreamContainer>,
    /// Where the last search ended: frames name slots in order, so the next is usually right behind.
    cursor: usize,
}

impl StreamContainers {
    /// Number of containers.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &StreamContainer> {
        self.slots.iter()
    }

    /// One by number.
    pub fn get(&self, number: u32) -> Option<&StreamContainer> {
        self.slots.binary_search_by_key(&number, |s| s.number).ok().map(|at| &self.slots[at])
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut StreamContainer> {
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
    pub(crate) fn insert(&mut self, slot: StreamContainer) -> Option<StreamContainer> {
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

    /// Takes one slot out by number.
    pub(crate) fn take(&mut self, number: u32) -> Option<StreamContainer> {
        let at = self.slots.binary_search_by_key(&number, |s| s.number).ok()?;
        Some(self.slots.remove(at))
    }

    /// Takes slots out by number, in one pass.
    pub(crate) fn remove(&mut self, numbers: &[u32]) -> Vec<StreamContainer> {
        if numbers.is_empty() {
            return Vec::new();
        }
        let mut sorted = numbers.to_vec();
        sorted.sort_unstable();
        self.slots.extract_if(.., |slot| sorted.binary_search(&slot.number).is_ok()).collect()
    }

    pub(crate) fn take_all(&mut self) -> Vec<StreamContainer> {
        self.cursor = 0;
        std::mem::take(&mut self.slots)
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_model::key::ContainerKey;
    use evenkeel_rightsizing::Resource;
    use evenkeel_rightsizing::histogram::Histogram;

    use super::*;
    use std::time::Duration;

    use crate::key::SeriesKey;
    use crate::state::history::{History, HistoryBounds, Minutes};

    fn slot(number: u32) -> StreamContainer {
        let mut history = Minutes::new(HistoryBounds { series: 1, retention_minutes: 1, of_node: 1 });
        let id = history.series(&SeriesKey { of: ContainerKey::default(), image: None });
        StreamContainer::new(number, Arc::default(), id, Subjects::default())
    }

    #[test]
    fn slots_stay_in_order_however_they_come() {
        let mut slots = StreamContainers::default();
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
        assert!(s.take(7, 1000, &sample, None).is_none());
        assert!(s.take(7, 2000, &sample, None).is_none());
        let (minute, rollup) = s.take(8, 3000, &sample, None).unwrap();
        assert_eq!((minute, rollup.samples), (7, 2));
        assert_eq!(s.recent().map(|m| m.time_usec).collect::<Vec<_>>(), [1000, 2000, 3000]);
        for time in 4..100 {
            s.take(8, time * 1000, &sample, None);
        }
        let kept: Vec<u64> = s.recent().map(|m| m.time_usec / 1000).collect();
        assert_eq!(kept, (36..100).collect::<Vec<_>>());
    }

    #[test]
    fn every_second_is_folded_once_with_its_true_weight() {
        let mut s = slot(1);
        let mut heights = [Histogram::new(), Histogram::new()];
        let mut add = |fold: Option<Fold>| {
            let Some(fold) = fold else { return };
            heights.iter_mut().zip(&fold.heights).for_each(|(into, from)| into.merge(from));
        };
        let mut before = None;
        for i in 0..200_u64 {
            let mut sample = Sample::new(Duration::from_millis(if i == 0 { 0 } else { 900 + i }));
            sample.set(Field::CpuUsageUsec, i * 1000);
            sample.set(Field::MemoryWorkingSetBytes, 4096 * (1 + i % 3));
            sample.set(Field::MemoryPressureUsec, i * 250_000);
            add(s.turn_hour(if i < 150 { 3 } else { 4 }).map(|(fold, _)| fold));
            s.take(0, i * 1_000_000, &sample, before.as_ref());
            if s.seconds.is_full(s.number) {
                add(s.fold());
            }
            before = Some(sample);
        }
        add(s.end_hour().map(|(fold, _)| fold));
        let all: u64 = (1..200).map(|i| 900 + i).sum();
        assert_eq!(heights[0].total(), all);
        // The first sample weighs a moment: its memory was there, and nothing tells how long.
        assert_eq!(heights[1].total(), all + 1);
        let read = Seconds::decode(&s.seconds.encode()).unwrap();
        assert_eq!(read.moments().collect::<Vec<_>>(), s.recent().collect::<Vec<_>>());
        let kept: Vec<_> = s.seconds.kept(Resource::Memory).collect();
        assert_eq!(read.kept(Resource::Memory).collect::<Vec<_>>(), kept);
        assert!(kept.iter().all(|second| second.stalled_ms == 250 && second.weight_ms > 1_000), "{kept:?}");
    }
}
