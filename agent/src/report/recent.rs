//! The last minute of one container, from which the agent answers with the resource model's usage record.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use evenkeel_model::name::ResourceName;
use evenkeel_model::sample::{Field, Sample};
use evenkeel_model::traffic::Traffic;
use evenkeel_model::usage::{Confidence, Stats, UsageRecord, UsageWindow};
use evenkeel_rightsizing::{Resource, usage};

use super::throttled::{Throttled, Throttling};

/// Ticks kept: a minute at the default interval, 1 KiB a container.
const KEPT: usize = 60;
/// Looks at traffic kept: three minutes at the default interval, a quarter of a KiB a container.
const LOOKS: usize = 6;

/// A number in 32 bits that leaves room to tell that there is none.
#[derive(Debug, Clone, Copy)]
struct Small(NonZeroU32);

impl Small {
    fn of(number: u64) -> Self {
        Self(NonZeroU32::MIN.saturating_add(few(number)))
    }

    const fn get(self) -> u32 {
        self.0.get() - 1
    }
}

fn few(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// One tick of one container.
#[derive(Debug, Clone, Copy)]
struct RecentSecond {
    /// Since 1970; 32 bits last until 2106.
    time: u32,
    /// Time it stands for, milliseconds.
    weight_ms: u32,
    /// Millionths of a core, at most 4,294 cores.
    cpu_micro: Option<Small>,
    /// Kibibytes, rounded up, 4 TiB at most: cgroups are charged in pages of at least 4 KiB.
    memory_kib: Option<Small>,
}

impl RecentSecond {
    fn text(&self, age: u64) -> String {
        let mut text = if age == 0 { "0s".to_owned() } else { format!("-{age}s") };
        if let Some(kib) = self.memory_kib.map(Small::get) {
            text += &match kib {
                0..10_240 => format!(" {kib}Ki"),
                _ => format!(" {}Mi", kib / 1024),
            };
        }
        if let Some(micro) = self.cpu_micro.map(Small::get) {
            text += &format!(" {}m", micro / 1000);
        }
        text
    }

    /// The same in the form of statistics.
    fn of(&self, resource: Resource) -> Option<usage::UsageSecond> {
        let value = match resource {
            Resource::Cpu => u64::from(self.cpu_micro?.get()),
            Resource::Memory => u64::from(self.memory_kib?.get()) * 1024,
        };
        let (time_ms, weight_ms) = (u64::from(self.time) * 1000, u64::from(self.weight_ms));
        Some(usage::UsageSecond { time_ms, weight_ms, value, stalled_ms: 0 })
    }
}

/// A ring of the latest ticks; made once, never grown.
#[derive(Debug)]
pub(super) struct Recent {
    ring: Vec<RecentSecond>,
    next: usize,
    interval_usec: u64,
    throttled: Throttled,
    /// The latest looks at traffic: time, seconds since 1970, and rates in the order of [`Traffic::TYPES`].
    looks: [Option<(u32, [Option<Small>; 4])>; LOOKS],
    next_look: usize,
}

impl Recent {
    pub(super) fn new() -> Self {
        Self {
            ring: Vec::with_capacity(KEPT),
            next: 0,
            interval_usec: 0,
            throttled: Throttled::default(),
            looks: [None; LOOKS],
            next_look: 0,
        }
    }

    /// Takes in a look at traffic.
    pub(super) fn take_traffic(&mut self, time_usec: u64, traffic: &Traffic) {
        let rates = traffic.rates().map(|rate| rate.map(Small::of));
        self.looks[self.next_look] = Some((few(time_usec / 1_000_000), rates));
        self.next_look = (self.next_look + 1) % LOOKS;
    }

    /// Distributions of the rates of the looks since a moment, by resource type, as far as anything was told.
    fn traffic(&self, since: u64) -> impl Iterator<Item = (ResourceName, Stats)> {
        Traffic::TYPES.into_iter().enumerate().filter_map(move |(column, name)| {
            let looks = self.looks.iter().flatten().filter(|(time, _)| u64::from(*time) >= since);
            let rates: Vec<u64> =
                looks.filter_map(|(_, rates)| rates[column]).map(|rate| rate.get().into()).collect();
            (!rates.is_empty()).then(|| (name, Stats::of(rates)))
        })
    }

    /// Takes in a sample taken at `time_usec` since 1970.
    pub(super) fn take(&mut self, time_usec: u64, sample: &Sample, cpu_micro: Option<u64>) {
        let memory = sample.get(Field::MemoryWorkingSetBytes).or(sample.get(Field::MemoryCurrentBytes));
        let second = RecentSecond {
            time: few(time_usec / 1_000_000),
            // A first sample stands for a moment; it must not vanish.
            weight_ms: few(((sample.weight_usec() + 500) / 1000).max(1)),
            cpu_micro: cpu_micro.map(Small::of),
            memory_kib: memory.map(|bytes| Small::of(bytes.div_ceil(1024))),
        };
        if sample.interval_usec() > 0 {
            self.interval_usec = u64::from(sample.interval_usec());
        }
        match self.ring.get_mut(self.next) {
            Some(oldest) => *oldest = second,
            None => self.ring.push(second),
        }
        self.next = (self.next + 1) % KEPT;
        self.throttled.take(time_usec, sample);
    }

    /// How far its CPU limit held it back; `None` without one.
    pub(super) fn throttling(&self) -> Option<Throttling> {
        self.throttled.told()
    }

    /// What was used in the last `span` before a moment, microseconds since 1970, oldest first: `-1s 64Mi 250m`.
    pub(super) fn text(&self, time_usec: u64, span: Duration) -> String {
        let now = time_usec / 1_000_000;
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        let told = older.iter().chain(newer).filter_map(|second| {
            let age = now.checked_sub(u64::from(second.time))?;
            (age <= span.as_secs() && !span.is_zero()).then(|| second.text(age))
        });
        told.collect::<Vec<_>>().join(", ")
    }

    /// What was used; `None` before the first sample.
    pub(super) fn record(&self) -> Option<UsageRecord> {
        let first = u64::from(self.ring.iter().map(|s| s.time).min()?);
        let end = u64::from(self.ring.iter().map(|s| s.time).max()?) + 1;
        let window = UsageWindow::new(i64::try_from(first).ok()?, i64::try_from(end).ok()?).ok()?;
        let expected = (end - first) * 1_000_000 / self.interval_usec.max(1_000_000);
        let seen = self.ring.len() as u64;
        let of = |resource: Resource| {
            let seconds: Vec<usage::UsageSecond> = self.ring.iter().filter_map(|s| s.of(resource)).collect();
            usage::of_seconds(&seconds, resource)
        };
        let ((cpu, cpu_most), (memory, memory_most)) = (of(Resource::Cpu), of(Resource::Memory));
        Some(UsageRecord {
            usage: [(ResourceName::CPU, cpu), (ResourceName::MEMORY, memory)]
                .into_iter()
                .chain(self.traffic(first))
                .collect(),
            max_usage: BTreeMap::from([(ResourceName::CPU, cpu_most), (ResourceName::MEMORY, memory_most)]),
            predicted: BTreeMap::new(),
            predicted_seconds: None,
            predicted_confidence: None,
            window: Some(window),
            confidence: Some(Confidence::of_coverage(seen, expected)),
            dropped: expected.saturating_sub(seen),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_model::traffic::BlockIo;
    use evenkeel_model::usage::Percentile;

    #[test]
    fn traffic_is_told_by_type_where_there_is_any() {
        let mut recent = Recent::new();
        let block = |read_bytes| BlockIo { read_bytes, reads: 20, ..BlockIo::default() };
        for look in 1..=8 {
            recent.take(look * 10_000_000, &Sample::new(Duration::from_secs(1)), None);
            let block = Some(block(look * 10_000));
            recent.take_traffic(
                look * 10_000_000,
                &Traffic { span_usec: 10_000_000, block, ..Traffic::default() },
            );
        }
        let usage = recent.record().unwrap().usage;
        let of = |name: ResourceName| usage.get(&name).map(|stats| (stats.count, stats.min, stats.max));
        assert_eq!(of(ResourceName::STORAGE_BANDWIDTH), Some((Some(6), Some(3000), Some(8000))));
        assert_eq!(of(ResourceName::STORAGE_IOPS), Some((Some(6), Some(2), Some(2))));
        assert_eq!(of(ResourceName::NETWORK_BANDWIDTH), None);
    }

    #[test]
    fn the_last_minute_is_told_with_what_is_missing() {
        let mut recent = Recent::new();
        assert_eq!(recent.record(), None);
        // 100 seconds from 1000, of which the 95th never came: 41..=100 less one, and the one before those.
        for i in (1..=100).filter(|i| *i != 95) {
            let mut sample = Sample::new(Duration::from_secs(1));
            sample.set(Field::MemoryWorkingSetBytes, i * 1024);
            recent.take((1000 + i) * 1_000_000, &sample, Some(i * 10_000));
        }
        let record = recent.record().unwrap();
        let cpu = &record.usage[&ResourceName::CPU];
        assert_eq!((cpu.count, cpu.min, cpu.max), (Some(60), Some(400), Some(1000)));
        assert_eq!((record.window.unwrap().seconds(), record.dropped), (61, 1));
        // 30 of the 60 seconds are at 690 m and below: the bucket of 690,000 ends at 704,511.
        let at = |tenths| cpu.percentiles[&Percentile::from_tenths(tenths).unwrap()];
        assert_eq!((at(500), at(990)), (704, 1000));
        // Minutes 17 (to 1079) and 18: their largest seconds.
        let largest = &record.max_usage[&ResourceName::MEMORY];
        assert_eq!((largest.count, largest.min, largest.max), (Some(2), Some(79 * 1024), Some(100 * 1024)));
    }
}
