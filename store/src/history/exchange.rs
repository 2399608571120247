//! Owns the seam to engines outside that keep the same past: plain values out as they are sealed, and back at start.
//!
//! Minutes leave as they end. Hours and days leave when nothing more is expected for them; of the day that goes on
//! each subject's content leaves once an hour, so that the engine knows all but the last minutes of everything. A late arrival is a further value of the same name and time,
//! which whoever reads merges: sums add, peaks take the greater, histograms merge. A value may be written twice after a
//! crash, with the same content: engines key by name and time and keep the last.

use evenkeel_model::rollup::Aggregate;

use crate::key::Subject;
use evenkeel_rightsizing::Resource;
use evenkeel_rightsizing::history::{Day, Event, Hour};

/// A minute of one container, both resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MinuteOf {
    /// The container's workload: always [`Subject::Own`].
    pub subject: Subject,
    /// Which replica: its pod's name. It distinguishes values of one minute and means nothing else.
    pub replica: String,
    /// Image without tag, where known.
    pub image: Option<String>,
    /// Tag, or digest where there is no tag.
    pub tag: Option<String>,
    /// Minute since 1970 UTC.
    pub minute: u32,
    /// How much time it stands for, milliseconds.
    pub weight_ms: u64,
    /// CPU use, millionths of a core.
    pub cpu_micro: Aggregate,
    /// Working set, bytes.
    pub memory_bytes: Aggregate,
    /// Time in which the CPU use was held down, milliseconds.
    pub starved_ms: u64,
    /// OOM kills.
    pub oom_kills: u64,
}

/// An hour of one workload's container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HourOf {
    /// Always [`Subject::Own`].
    pub subject: Subject,
    /// Of which resource.
    pub resource: Resource,
    /// The hour.
    pub hour: Hour,
}

/// A day of one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayOf {
    /// Whose.
    pub subject: Subject,
    /// Of which resource.
    pub resource: Resource,
    /// The day.
    pub day: Day,
}

/// A day that goes on, as far as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartOf {
    /// All of the day up to then.
    pub of: DayOf,
    /// Before this minute (since 1970 UTC).
    pub until: u32,
}

/// A kill or an eviction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventOf {
    /// Always [`Subject::Own`].
    pub subject: Subject,
    /// What happened.
    pub event: Event,
}

/// Values that go together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Batch {
    /// Minutes of containers.
    pub minutes: Vec<MinuteOf>,
    /// Hours of workloads.
    pub hours: Vec<HourOf>,
    /// Days of subjects.
    pub days: Vec<DayOf>,
    /// Days of subjects that go on.
    pub parts: Vec<PartOf>,
    /// Events of workloads.
    pub events: Vec<EventOf>,
}

impl Batch {
    /// Number of values.
    pub fn len(&self) -> usize {
        self.minutes.len() + self.hours.len() + self.days.len() + self.parts.len() + self.events.len()
    }

    /// There is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What an engine had of a span that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Coverage {
    /// First and last minute (since 1970 UTC) for which there was any value.
    pub span: Option<(u32, u32)>,
    /// Values read, by kind.
    pub minutes: u64,
    /// Hours of workloads.
    pub hours: u64,
    /// Days of subjects.
    pub days: u64,
    /// The same of days that went on.
    pub parts: u64,
    /// Events.
    pub events: u64,
    /// Values that could not be understood and were left out.
    pub refused: u64,
    /// Hours between the first and the last with a minute or hour of any workload, of which there is nothing.
    pub missing_hours: u32,
}

impl Coverage {
    /// Values read, of all kinds.
    pub const fn values(&self) -> u64 {
        self.minutes + self.hours + self.days + self.parts + self.events
    }
}

/// An engine could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// It cannot be reached, is slow, or is overloaded: the same call may succeed later.
    #[error("{engine}: {what}")]
    Unavailable {
        /// Which engine, with its address.
        engine: String,
        /// What was tried and what came of it.
        what: String,
    },
    /// It refuses this batch for good; trying it again is useless, going on with the next is not.
    #[error("{engine}: refused: {what}; {remedy}")]
    Refused {
        /// Which engine, with its address.
        engine: String,
        /// What was tried and what came of it.
        what: String,
        /// What a person should do.
        remedy: String,
    },
}

impl EngineError {
    /// Whether the same call may succeed later.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }
}

/// A store outside. It lives on a thread of its own and may block; time-outs are its own matter.
pub trait Engine: Send {
    /// For people: kind and address, without credentials.
    fn name(&self) -> String;
    /// Writes values; returns once the engine has acknowledged them.
    ///
    /// # Errors
    /// [`EngineError`]; nothing or a part of the batch was written then, and it may be written again as a whole.
    fn write(&mut self, batch: &Batch) -> Result<(), EngineError>;
    /// Reads what the engine has from one minute (since 1970 UTC) to another, in parts of bounded size, oldest first as
    /// far as it can.
    ///
    /// # Errors
    /// [`EngineError`]; what was handed to `sink` before it is right and stays.
    fn read(&mut self, from: u32, to: u32, sink: &mut dyn FnMut(Batch)) -> Result<Coverage, EngineError>;
}
