//! Made-up containers for size tests and benchmarks: deterministic from a seed, every field moving or none.

use evenkeel_model::sample::{Field, Sample};

/// A 64-bit linear congruential generator with Knuth's MMIX constants; the high bits are good enough here.
#[derive(Debug, Clone)]
pub struct Lcg(u64);

impl Lcg {
    /// Starts from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(2_862_933_555_777_941_757).wrapping_add(3_037_000_493))
    }

    /// The next 32 bits.
    pub const fn next_u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// A number from 0 to `n - 1`; 0 for `n` 0.
    pub const fn below(&mut self, n: u64) -> u64 {
        (self.next_u32() as u64).wrapping_mul(n) >> 32
    }

    /// `mean` give or take up to `percent` of it.
    pub const fn jitter(&mut self, mean: u64, percent: u64) -> u64 {
        let span = mean * percent / 100;
        mean - span + self.below(2 * span + 1)
    }
}

/// What the made-up containers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// Every field moves: up to four cores with 5 % jitter, memory by pages, pressure, throttling, swap, threads,
    /// now and then an OOM kill.
    Busy,
    /// Nothing moves but the interval.
    Idle,
}

/// One made-up container: its level of each moving thing per second, and where its counters are.
#[derive(Debug, Clone)]
struct SynthContainer {
    slot: u32,
    cpu_usec: u64,
    periods_throttled: u64,
    pressure_usec: [u64; 3],
    sample: Sample,
}

/// A made-up node.
#[derive(Debug, Clone)]
pub struct Synth {
    random: Lcg,
    load: Load,
    containers: Vec<SynthContainer>,
    samples: Vec<(u32, Sample)>,
    time_usec: u64,
}

const PAGE: u64 = 4096;

/// Pressure fields in the order of `SynthContainer::pressure_usec`.
const PRESSURE: [Field; 3] = [Field::CpuPressureUsec, Field::MemoryPressureUsec, Field::IoPressureUsec];

impl Synth {
    /// A node of `containers` containers that do the same kind of thing, each at its own level, with counters as
    /// they are after days.
    pub fn new(seed: u64, containers: u32, load: Load) -> Self {
        let mut random = Lcg::new(seed);
        let containers = (1..=containers).map(|slot| SynthContainer::new(&mut random, slot)).collect();
        Self { random, load, containers, samples: Vec::new(), time_usec: 1_700_000_000_000_000 }
    }

    /// The next second: its wall-clock time, base interval, and samples by slot.
    pub fn tick(&mut self) -> (u64, u32, &[(u32, Sample)]) {
        let base = 999_500 + self.random.below(1000);
        self.time_usec += base;
        self.samples.clear();
        for container in &mut self.containers {
            let interval = base + self.random.below(200) - 100;
            container.sample.set_interval_usec(u32::try_from(interval).unwrap_or(u32::MAX));
            if self.load == Load::Busy {
                container.live(&mut self.random);
            }
            self.samples.push((container.slot, container.sample));
        }
        (self.time_usec, u32::try_from(base).unwrap_or(u32::MAX), &self.samples)
    }
}

impl SynthContainer {
    fn new(random: &mut Lcg, slot: u32) -> Self {
        let mut sample = Sample::with_interval_usec(1_000_000);
        let seconds = random.below(1_000_000);
        let cpu_usec = random.below(4_000_000);
        let periods_throttled = random.below(6);
        let pressure_usec = [random.below(200_000), random.below(20_000), random.below(50_000)];
        sample.set(Field::CpuUsageUsec, cpu_usec * seconds);
        sample.set(Field::CpuPeriods, 10 * seconds);
        sample.set(Field::CpuThrottledPeriods, periods_throttled * seconds);
        sample.set(Field::CpuThrottledUsec, periods_throttled * 30_000 * seconds);
        let pages = 10_000 + random.below(1 << 20);
        sample.set(Field::MemoryCurrentBytes, pages * PAGE);
        sample.set(Field::MemoryWorkingSetBytes, pages * 3 / 4 * PAGE);
        sample.set(Field::MemoryAnonBytes, pages / 2 * PAGE);
        sample.set(Field::SwapBytes, random.below(1000) * PAGE);
        for (field, level) in PRESSURE.into_iter().zip(pressure_usec) {
            sample.set(field, level * seconds);
        }
        sample.set(Field::OomKills, 0);
        sample.set(Field::Pids, 10 + random.below(100));
        Self { slot, cpu_usec, periods_throttled, pressure_usec, sample }
    }

    fn live(&mut self, random: &mut Lcg) {
        let throttled = self.periods_throttled + random.below(4);
        self.grow(Field::CpuUsageUsec, random.jitter(self.cpu_usec, 5));
        self.grow(Field::CpuPeriods, 10);
        self.grow(Field::CpuThrottledPeriods, throttled);
        self.grow(Field::CpuThrottledUsec, random.jitter(throttled * 30_000, 5));
        for (field, level) in PRESSURE.into_iter().zip(self.pressure_usec) {
            self.grow(field, random.jitter(level, 5));
        }
        self.grow(Field::OomKills, u64::from(random.below(100) == 0));
        let moved = self.drift(random, Field::MemoryCurrentBytes, 256, 0);
        let kept = self.drift(random, Field::MemoryWorkingSetBytes, 16, moved);
        self.drift(random, Field::MemoryAnonBytes, 16, kept);
        self.drift(random, Field::SwapBytes, 8, 0);
        let pids = self.sample.get(Field::Pids).unwrap_or(10);
        self.sample.set(Field::Pids, (pids + random.below(3)).saturating_sub(1).max(1));
    }

    fn grow(&mut self, field: Field, by: u64) {
        let before = self.sample.get(field).unwrap_or(0);
        self.sample.set(field, before + by);
    }

    /// Moves a gauge by `along` pages and up to `span` more either way; returns what it moved by.
    fn drift(&mut self, random: &mut Lcg, field: Field, span: i64, along: i64) -> i64 {
        let moved = along + random.below(2 * span.unsigned_abs() + 1).cast_signed() - span;
        let pages = (self.sample.get(field).unwrap_or(0) / PAGE).cast_signed();
        self.sample.set(field, pages.saturating_add(moved).max(1).unsigned_abs() * PAGE);
        moved
    }
}
