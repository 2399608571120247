//! One second of one container: what the sampler reads and everything later is made of.
//!
//! A sample is a fixed set of numbers with a presence bit each, because kernels differ in what they tell. It
//! never allocates. Counters are cumulative since the cgroup was made, as the kernel gives them; whoever wants
//! a rate takes two samples and the true interval between them.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What one number of a [`Sample`] means. The discriminant is the column on the wire: never reorder or reuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum Field {
    /// CPU time used, microseconds, cumulative (`cpu.stat usage_usec`, `cpuacct.usage` / 1000).
    CpuUsageUsec = 0,
    /// Enforcement periods elapsed, cumulative (`cpu.stat nr_periods`).
    CpuPeriods = 1,
    /// Periods in which the container was throttled, cumulative (`cpu.stat nr_throttled`).
    CpuThrottledPeriods = 2,
    /// Time throttled, microseconds, cumulative (`throttled_usec`, `throttled_time` / 1000).
    CpuThrottledUsec = 3,
    /// Memory charged, bytes (`memory.current`, `memory.usage_in_bytes`).
    MemoryCurrentBytes = 4,
    /// Memory charged less inactive file pages, bytes (the kubelet's working set).
    MemoryWorkingSetBytes = 5,
    /// Anonymous memory, bytes (`memory.stat anon`, v1 `total_rss`).
    MemoryAnonBytes = 6,
    /// Swap used, bytes (`memory.swap.current`, v1 `total_swap`).
    SwapBytes = 7,
    /// CPU pressure "some" stall time, microseconds, cumulative (`cpu.pressure total`).
    CpuPressureUsec = 8,
    /// Memory pressure "some" stall time, microseconds, cumulative (`memory.pressure total`).
    MemoryPressureUsec = 9,
    /// I/O pressure "some" stall time, microseconds, cumulative (`io.pressure total`).
    IoPressureUsec = 10,
    /// Processes of this cgroup killed by any OOM killer, cumulative (`memory.events oom_kill`, v1 `oom_control`).
    OomKills = 11,
    /// Processes and threads now (`pids.current`).
    Pids = 12,
}

impl Field {
    /// Number of fields.
    pub const COUNT: usize = 13;

    /// All fields in column order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::CpuUsageUsec,
        Self::CpuPeriods,
        Self::CpuThrottledPeriods,
        Self::CpuThrottledUsec,
        Self::MemoryCurrentBytes,
        Self::MemoryWorkingSetBytes,
        Self::MemoryAnonBytes,
        Self::SwapBytes,
        Self::CpuPressureUsec,
        Self::MemoryPressureUsec,
        Self::IoPressureUsec,
        Self::OomKills,
        Self::Pids,
    ];

    /// True where the number only grows while the cgroup lives.
    pub const fn is_counter(self) -> bool {
        !matches!(
            self,
            Self::MemoryCurrentBytes
                | Self::MemoryWorkingSetBytes
                | Self::MemoryAnonBytes
                | Self::SwapBytes
                | Self::Pids
        )
    }

    /// Column of this field.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// What the kernel said of one container at one moment. The default is a sample in which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sample {
    interval_usec: u32,
    present: u16,
    values: [u64; Field::COUNT],
}

impl Sample {
    /// A sample without any number yet; `interval` is the true time since the container's previous sample
    /// (zero for the first), kept to the microsecond and at most 71 minutes.
    pub fn new(interval: Duration) -> Self {
        let interval_usec = u32::try_from(interval.as_micros()).unwrap_or(u32::MAX);
        Self { interval_usec, present: 0, values: [0; Field::COUNT] }
    }

    /// The same with the interval in microseconds.
    pub const fn with_interval_usec(interval_usec: u32) -> Self {
        Self { interval_usec, present: 0, values: [0; Field::COUNT] }
    }

    /// Sets the true time since the previous sample, microseconds.
    pub const fn set_interval_usec(&mut self, interval_usec: u32) {
        self.interval_usec = interval_usec;
    }

    /// True time since the previous sample of this container; zero when this is the first.
    pub const fn interval(&self) -> Duration {
        Duration::from_micros(self.interval_usec as u64)
    }

    /// The same in microseconds.
    pub const fn interval_usec(&self) -> u32 {
        self.interval_usec
    }

    /// The number, where the kernel gave it.
    pub const fn get(&self, field: Field) -> Option<u64> {
        if self.present & (1 << field.index()) == 0 { None } else { Some(self.values[field.index()]) }
    }

    /// Sets a number.
    pub const fn set(&mut self, field: Field, value: u64) {
        self.present |= 1 << field.index();
        self.values[field.index()] = value;
    }

    /// Takes a number back: it is not known.
    pub const fn clear(&mut self, field: Field) {
        self.present &= !(1 << field.index());
        self.values[field.index()] = 0;
    }

    /// Bit set of the known fields, bit i for column i.
    pub const fn present(&self) -> u16 {
        self.present
    }

    /// Growth of a counter since `earlier`; `None` where either is unknown or the counter went back (the
    /// cgroup was made anew or the kernel reset it: the interval is then not counted).
    pub fn delta(&self, earlier: &Self, field: Field) -> Option<u64> {
        self.get(field)?.checked_sub(earlier.get(field)?)
    }

    /// Mean CPU use since `earlier` in thousandths of a core, from the CPU counter and this sample's interval.
    pub fn cpu_milli(&self, earlier: &Self) -> Option<u64> {
        self.cpu_per(earlier, 1000)
    }

    /// The same in millionths of a core, for which containers that hardly run are still told apart.
    pub fn cpu_micro(&self, earlier: &Self) -> Option<u64> {
        self.cpu_per(earlier, 1_000_000)
    }

    fn cpu_per(&self, earlier: &Self, core: u64) -> Option<u64> {
        let used = self.delta(earlier, Field::CpuUsageUsec)?;
        let parts = match used.checked_mul(core) {
            Some(parts) => parts.checked_div(u64::from(self.interval_usec))?,
            None => {
                let parts =
                    (u128::from(used) * u128::from(core)).checked_div(u128::from(self.interval_usec))?;
                u64::try_from(parts).unwrap_or(u64::MAX)
            }
        };
        Some(parts)
    }

    /// The longest time one sample stands for: what a gauge did in a longer gap is not known.
    pub const MAX_WEIGHT_USEC: u64 = 60_000_000;

    /// Time this sample stands for, microseconds: its interval, up to [`Self::MAX_WEIGHT_USEC`].
    pub fn weight_usec(&self) -> u64 {
        u64::from(self.interval_usec).min(Self::MAX_WEIGHT_USEC)
    }

    /// Whether the CPU use since `earlier` was held down, so that it is the least that was wanted: the container was
    /// throttled, or its tasks waited for the CPU in a tenth of the time or more (PSI "some"; below that it is the
    /// ordinary queueing of any busy machine).
    pub fn is_starved(&self, earlier: &Self) -> bool {
        let grown = |field| self.delta(earlier, field).unwrap_or(0);
        grown(Field::CpuThrottledUsec) > 0
            || (self.interval_usec > 0
                && grown(Field::CpuPressureUsec) >= u64::from(self.interval_usec).div_ceil(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_absent_until_set_and_after_clear() {
        let mut s = Sample::new(Duration::from_secs(1));
        assert_eq!(s.get(Field::Pids), None);
        s.set(Field::Pids, 0);
        assert_eq!(s.get(Field::Pids), Some(0));
        s.clear(Field::Pids);
        assert_eq!((s.get(Field::Pids), s.present()), (None, 0));
    }

    #[test]
    fn cpu_use_is_over_the_true_interval_and_a_reset_counter_counts_nothing() {
        let at = |usec: u64, interval: u64| {
            let mut s = Sample::new(Duration::from_micros(interval));
            s.set(Field::CpuUsageUsec, usec);
            s
        };
        assert_eq!(at(1_500_000, 2_000_000).cpu_milli(&at(500_000, 0)), Some(500));
        assert_eq!(at(10, 1_000_000).cpu_milli(&at(500_000, 0)), None);
        assert_eq!(at(500_007, 2_000_000).cpu_micro(&at(500_000, 0)), Some(3));
        assert_eq!(at(10, 0).cpu_milli(&at(5, 0)), None);
        assert_eq!(at(u64::MAX, 1).cpu_milli(&at(0, 0)), Some(u64::MAX));
    }

    #[test]
    fn throttling_and_waiting_starve_and_a_gap_weighs_a_minute_at_most() {
        let at = |throttled: u64, waited: u64, interval: u64| {
            let mut s = Sample::new(Duration::from_micros(interval));
            s.set(Field::CpuThrottledUsec, throttled);
            s.set(Field::CpuPressureUsec, waited);
            s
        };
        let first = at(7, 7, 0);
        for (throttled, waited, want) in
            [(7, 7, false), (8, 7, true), (7, 100_006, false), (7, 100_007, true), (0, 0, false)]
        {
            assert_eq!(at(throttled, waited, 1_000_000).is_starved(&first), want, "{throttled} {waited}");
        }
        assert_eq!((first.weight_usec(), at(0, 0, 90_000_000).weight_usec()), (0, 60_000_000));
    }

    #[test]
    fn columns_match_their_index() {
        for (i, f) in Field::ALL.into_iter().enumerate() {
            assert_eq!(f.index(), i);
        }
    }
}
