//! Which kernel file gives which fields, in which hierarchy, and when it is read.

use evenkeel_model::sample::{Field, Sample};

use crate::hierarchy::{Controller, Hierarchy, Layout};
use crate::parse::{self, Picked};

/// How often files are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// Every file is read at least once in this many ticks; 1 reads everything always. Never 0.
    refresh_every: u32,
}

impl Default for Plan {
    /// Ten ticks: at one tick a second a stall that moved nothing else shows within ten seconds, the window of
    /// PSI's shortest average (accounting/psi.rst).
    fn default() -> Self {
        Self { refresh_every: 10 }
    }
}

impl Plan {
    /// Reads every file at least once in `ticks` ticks; 0 counts as 1.
    pub const fn refresh_every(ticks: u32) -> Self {
        Self { refresh_every: if ticks == 0 { 1 } else { ticks } }
    }

    pub(super) const fn is_refresh(self, tick: u64, phase: u64) -> bool {
        tick.wrapping_add(phase).is_multiple_of(self.refresh_every as u64)
    }

    /// Whether the charge of a container whose processes did not run is read: twice in `refresh_every` ticks. Without CPU
    /// time nothing is charged; what it is less by is what the kernel reclaimed.
    pub(super) const fn is_idle_memory(self, tick: u64, phase: u64) -> bool {
        let every = if self.refresh_every < 2 { 1 } else { self.refresh_every / 2 };
        tick.wrapping_add(phase).is_multiple_of(every as u64)
    }

    /// Whether block I/O and the network are looked at: at every third refresh, because opening a process's `net/dev`
    /// costs as much as reading all files of its container.
    pub(super) const fn is_traffic(self, tick: u64, phase: u64) -> bool {
        tick.wrapping_add(phase).is_multiple_of(3 * self.refresh_every as u64)
    }
}

/// What must have moved for a file to be read before its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Every tick; gives CPU time.
    EachTickCpu,
    /// Every tick on which CPU time moved, and some others; gives memory charged.
    EachTickMemory,
    /// CPU time moved.
    CpuMoved,
    /// Memory charged moved.
    MemoryMoved,
    /// Either moved.
    EitherMoved,
}

/// One kernel file and how to read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SampledFile {
    CpuacctUsage,
    CpuStatV1,
    CpuStatV2,
    MemoryUsageV1,
    MemoryCurrent,
    MemoryStatV1,
    MemoryStatV2,
    OomControl,
    MemoryEvents,
    SwapCurrent,
    PidsCurrent,
    CpuPressure,
    MemoryPressure,
    IoPressure,
}

impl SampledFile {
    pub(super) const fn file(self) -> &'static str {
        match self {
            Self::CpuacctUsage => "cpuacct.usage",
            Self::CpuStatV1 | Self::CpuStatV2 => "cpu.stat",
            Self::MemoryUsageV1 => "memory.usage_in_bytes",
            Self::MemoryCurrent => "memory.current",
            Self::MemoryStatV1 | Self::MemoryStatV2 => "memory.stat",
            Self::OomControl => "memory.oom_control",
            Self::MemoryEvents => "memory.events",
            Self::SwapCurrent => "memory.swap.current",
            Self::PidsCurrent => "pids.current",
            Self::CpuPressure => "cpu.pressure",
            Self::MemoryPressure => "memory.pressure",
            Self::IoPressure => "io.pressure",
        }
    }

    pub(super) const fn when(self) -> When {
        match self {
            Self::CpuacctUsage | Self::CpuStatV2 => When::EachTickCpu,
            Self::MemoryUsageV1 | Self::MemoryCurrent => When::EachTickMemory,
            Self::CpuStatV1 | Self::PidsCurrent | Self::CpuPressure => When::CpuMoved,
            Self::MemoryStatV1
            | Self::MemoryStatV2
            | Self::OomControl
            | Self::MemoryEvents
            | Self::SwapCurrent => When::MemoryMoved,
            Self::MemoryPressure | Self::IoPressure => When::EitherMoved,
        }
    }

    /// The fields it gives. The working set is listed with `memory.stat`, though it needs the charge as well.
    pub(super) const fn fields(self) -> &'static [Field] {
        match self {
            Self::CpuacctUsage => &[Field::CpuUsageUsec],
            Self::CpuStatV1 => &[Field::CpuPeriods, Field::CpuThrottledPeriods, Field::CpuThrottledUsec],
            Self::CpuStatV2 => {
                &[Field::CpuUsageUsec, Field::CpuPeriods, Field::CpuThrottledPeriods, Field::CpuThrottledUsec]
            }
            Self::MemoryUsageV1 | Self::MemoryCurrent => &[Field::MemoryCurrentBytes],
            Self::MemoryStatV1 => &[Field::MemoryWorkingSetBytes, Field::MemoryAnonBytes, Field::SwapBytes],
            Self::MemoryStatV2 => &[Field::MemoryWorkingSetBytes, Field::MemoryAnonBytes],
            Self::OomControl | Self::MemoryEvents => &[Field::OomKills],
            Self::SwapCurrent => &[Field::SwapBytes],
            Self::PidsCurrent => &[Field::Pids],
            Self::CpuPressure => &[Field::CpuPressureUsec],
            Self::MemoryPressure => &[Field::MemoryPressureUsec],
            Self::IoPressure => &[Field::IoPressureUsec],
        }
    }

    /// Puts what the file says into the sample. Returns the fields, a bit per column, whose text was not
    /// understood; a line this kernel does not have is no error.
    pub(super) fn fill(self, text: &[u8], sample: &mut Sample, inactive_file: &mut Option<u64>) -> u16 {
        match self {
            Self::CpuacctUsage => put(sample, Field::CpuUsageUsec, number(text), 1000),
            Self::MemoryUsageV1 | Self::MemoryCurrent => {
                put(sample, Field::MemoryCurrentBytes, number(text), 1)
            }
            Self::SwapCurrent => put(sample, Field::SwapBytes, number(text), 1),
            Self::PidsCurrent => put(sample, Field::Pids, number(text), 1),
            Self::CpuStatV1 => fill_throttling(
                sample,
                parse::pick(text, [b"nr_periods", b"nr_throttled", b"throttled_time"]),
                1000,
            ),
            Self::CpuStatV2 => {
                let [usage, rest @ ..] =
                    parse::pick(text, [b"usage_usec", b"nr_periods", b"nr_throttled", b"throttled_usec"]);
                put(sample, Field::CpuUsageUsec, usage, 1) | fill_throttling(sample, rest, 1)
            }
            Self::MemoryStatV1 => {
                let [anon, inactive, swap] =
                    parse::pick(text, [b"total_rss", b"total_inactive_file", b"total_swap"]);
                *inactive_file = inactive.value();
                put(sample, Field::MemoryAnonBytes, anon, 1)
                    | put(sample, Field::SwapBytes, swap, 1)
                    | bad(Field::MemoryWorkingSetBytes, inactive)
            }
            Self::MemoryStatV2 => {
                let [anon, inactive] = parse::pick(text, [b"anon", b"inactive_file"]);
                *inactive_file = inactive.value();
                put(sample, Field::MemoryAnonBytes, anon, 1) | bad(Field::MemoryWorkingSetBytes, inactive)
            }
            Self::OomControl | Self::MemoryEvents => {
                let [kills] = parse::pick(text, [b"oom_kill"]);
                put(sample, Field::OomKills, kills, 1)
            }
            Self::CpuPressure => put(sample, Field::CpuPressureUsec, parse::pressure_some_total(text), 1),
            Self::MemoryPressure => {
                put(sample, Field::MemoryPressureUsec, parse::pressure_some_total(text), 1)
            }
            Self::IoPressure => put(sample, Field::IoPressureUsec, parse::pressure_some_total(text), 1),
        }
    }
}

fn number(text: &[u8]) -> Picked {
    parse::uint(parse::first_line(text)).map_or(Picked::Malformed, Picked::Value)
}

fn put(sample: &mut Sample, field: Field, picked: Picked, divisor: u64) -> u16 {
    match picked {
        Picked::Value(v) => sample.set(field, v / divisor),
        Picked::Missing | Picked::Malformed => sample.clear(field),
    }
    bad(field, picked)
}

fn bad(field: Field, picked: Picked) -> u16 {
    if picked == Picked::Malformed { 1 << field.index() } else { 0 }
}

fn fill_throttling(sample: &mut Sample, picked: [Picked; 3], divisor: u64) -> u16 {
    let [periods, throttled, time] = picked;
    put(sample, Field::CpuPeriods, periods, 1)
        | put(sample, Field::CpuThrottledPeriods, throttled, 1)
        | put(sample, Field::CpuThrottledUsec, time, divisor)
}

/// Every file to keep open for a container, with its hierarchy, the ones of each tick first.
pub(super) fn sources_of(layout: &Layout) -> Vec<(SampledFile, Hierarchy)> {
    let mut found = Vec::new();
    match layout.home(Controller::Cpuacct) {
        Some(Hierarchy::V2) => found.push((SampledFile::CpuStatV2, Hierarchy::V2)),
        Some(v1) => found.push((SampledFile::CpuacctUsage, v1)),
        None => {}
    }
    let memory = layout.home(Controller::Memory);
    match memory {
        Some(Hierarchy::V2) => found.push((SampledFile::MemoryCurrent, Hierarchy::V2)),
        Some(v1) => found.push((SampledFile::MemoryUsageV1, v1)),
        None => {}
    }
    if let Some(v1 @ Hierarchy::V1(_)) = layout.home(Controller::Cpu) {
        found.push((SampledFile::CpuStatV1, v1));
    }
    match memory {
        Some(Hierarchy::V2) => found.extend(
            [SampledFile::MemoryStatV2, SampledFile::SwapCurrent, SampledFile::MemoryEvents]
                .map(|s| (s, Hierarchy::V2)),
        ),
        Some(v1) => found.extend([SampledFile::MemoryStatV1, SampledFile::OomControl].map(|s| (s, v1))),
        None => {}
    }
    found.extend(layout.home(Controller::Pids).map(|h| (SampledFile::PidsCurrent, h)));
    if let Some(v2) = layout.pressure_home() {
        found.extend(
            [SampledFile::CpuPressure, SampledFile::MemoryPressure, SampledFile::IoPressure].map(|s| (s, v2)),
        );
    }
    found
}
