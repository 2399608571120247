//! Owns the form in which history leaves for an engine and comes back: rows of named whole numbers and histograms
//! under labels. Engines know rows and no more; what a row means is in `rows.rs`.

use std::collections::BTreeMap;

use evenkeel_rightsizing::histogram::Histogram;

/// What identifies a series, by name. No value is empty: an empty label and no label are the same to these engines.
pub(crate) type Labels = BTreeMap<String, String>;

/// Every name in an engine begins with this.
pub(crate) const PREFIX: &str = "evenkeel_";

/// Times within a second at which rows of one series and period may lie; see [`EngineRow::time_ms`].
pub(crate) const SLOTS_MS: u64 = 1000;

/// A kind of row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RowKind {
    /// A minute of one container.
    Minute,
    /// An hour of CPU use of a workload's container.
    CpuHour,
    /// An hour of memory use of a workload's container.
    MemoryHour,
    /// A day of CPU use of a subject.
    CpuDay,
    /// A day of memory use of a subject.
    MemoryDay,
    /// A day of CPU use of a subject as far as it has come.
    CpuPart,
    /// The same of memory.
    MemoryPart,
    /// A kill or an eviction.
    Event,
}

impl RowKind {
    /// All of them in the order in which they are read back: what answers most questions with least data comes first.
    pub(crate) const ALL: [Self; 8] = [
        Self::CpuDay,
        Self::MemoryDay,
        Self::CpuPart,
        Self::MemoryPart,
        Self::CpuHour,
        Self::MemoryHour,
        Self::Event,
        Self::Minute,
    ];

    /// Name in an engine, behind the prefix.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Minute => "minute",
            Self::CpuHour => "cpu_hour",
            Self::MemoryHour => "memory_hour",
            Self::CpuDay => "cpu_day",
            Self::MemoryDay => "memory_day",
            Self::CpuPart => "cpu_part",
            Self::MemoryPart => "memory_part",
            Self::Event => "event",
        }
    }

    /// Names of its numbers, each with its unit. These names and their meaning never change.
    pub(crate) const fn numbers(self) -> &'static [&'static str] {
        match self {
            Self::Minute => &[
                "milliseconds",
                "cpu_microcores_count",
                "cpu_microcores_sum",
                "cpu_microcores_min",
                "cpu_microcores_max",
                "memory_bytes_count",
                "memory_bytes_sum",
                "memory_bytes_min",
                "memory_bytes_max",
                "starved_milliseconds",
                "oom_kills",
            ],
            Self::CpuHour => &["max_microcores", "starved_milliseconds"],
            Self::MemoryHour => &["max_bytes", "starved_milliseconds"],
            Self::CpuDay => &["max_microcores"],
            Self::MemoryDay => &["max_bytes"],
            Self::CpuPart => &["max_microcores", "until_minutes"],
            Self::MemoryPart => &["max_bytes", "until_minutes"],
            Self::Event => &["known", "usage_bytes", "request_bytes", "limit_bytes", "age_milliseconds"],
        }
    }

    /// Names of its histograms: weights in milliseconds, but for `minutes`, where each rollup weighs 1.
    pub(crate) const fn histograms(self) -> &'static [&'static str] {
        match self {
            Self::CpuHour | Self::MemoryHour => &["all", "worst"],
            Self::CpuDay | Self::MemoryDay | Self::CpuPart | Self::MemoryPart => &["all", "minutes"],
            Self::Minute | Self::Event => &[],
        }
    }

    /// Rows begin at multiples of this, milliseconds; events begin anywhere.
    pub(crate) const fn period_ms(self) -> u64 {
        match self {
            Self::Minute => 60_000,
            Self::CpuHour | Self::MemoryHour | Self::CpuPart | Self::MemoryPart => 3_600_000,
            Self::CpuDay | Self::MemoryDay => 86_400_000,
            Self::Event => 1,
        }
    }
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EngineRow {
    pub(crate) table: RowKind,
    pub(crate) labels: Labels,
    /// Begin of its period since 1970, milliseconds.
    pub(crate) begin_ms: u64,
    /// In the order of [`RowKind::numbers`].
    pub(crate) numbers: Vec<Option<u64>>,
    /// In the order of [`RowKind::histograms`].
    pub(crate) histograms: Vec<Option<Histogram>>,
}

impl EngineRow {
    /// The time under which an engine keeps it: in the first second of its period, at a millisecond that follows from
    /// its content. So a row that is written again replaces itself, and what arrives late for the same series and
    /// period lies beside what was there, to be merged when it is read. One late row in a thousand meets the time of
    /// the row before it; then it is refused or replaces it, as the engine does.
    pub(crate) fn time_ms(&self) -> u64 {
        if self.table == RowKind::Event {
            return self.begin_ms;
        }
        let mut sum = 0;
        let mut feed = |number: u64| sum = crc32c::crc32c_append(sum, &number.to_le_bytes());
        self.numbers.iter().for_each(|number| feed(number.unwrap_or(u64::MAX)));
        for histogram in &self.histograms {
            let buckets = histogram.as_ref().map(Histogram::buckets);
            feed(buckets.map_or(u64::MAX, |b| b.len() as u64));
            for (bucket, weight) in buckets.unwrap_or_default() {
                feed(u64::from(*bucket));
                feed(*weight);
            }
        }
        self.begin_ms + u64::from(sum) % SLOTS_MS
    }

    /// Whether every number is at most the largest that an engine keeps exactly.
    pub(crate) fn fits(&self, largest: u64) -> bool {
        self.numbers.iter().flatten().all(|number| *number <= largest)
    }
}

/// What was read and is not fit to be a value of the history. It is left out: a gap is shown, never filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Faults {
    /// Points with a number that is not whole, negative, too large or no number.
    pub numbers: u64,
    /// Points outside of the time that was asked for, or where no value of their kind lies.
    pub times: u64,
    /// Rows of which one number has two values.
    pub contradictions: u64,
    /// Rows of which a part is missing or does not fit the rest.
    pub incomplete: u64,
    /// Series whose names or labels are not ours.
    pub labels: u64,
}

impl Faults {
    /// All of them.
    pub(crate) const fn total(&self) -> u64 {
        self.numbers + self.times + self.contradictions + self.incomplete + self.labels
    }
}
