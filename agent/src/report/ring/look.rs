//! Looking back: the second at or before a moment, from the records of the ring.
//!
//! The whole ring is read once by its records' heads, at most 64 MiB by default; frames are decoded from the last one
//! that can be read by itself. The minute before a start of the agent is at the ring's end, so that only the end is read.

use std::collections::BTreeMap;

use evenkeel_enforce::shared::lock;
use evenkeel_log::{LogError, LogReader, Seq};
use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::Sample;
use evenkeel_proto::frame::{Decoder, Visitor};
use evenkeel_proto::v1;
use jiff::Timestamp;
use prost::Message as _;

use super::{HEAD, Ring, RingRecordKind, WHOLE_EVERY};
use crate::report::earlier::Earlier;
use crate::shared::Stats;

/// Traffic older than this is not told, microseconds: three looks.
const LOOKS: u64 = 30_000_000;
/// A second farther from the moment asked for is not its answer, microseconds.
const NEAR: u64 = 10_000_000;
/// Records from the end among which one announces all before the last minute: at a record a second, one in
/// [`WHOLE_EVERY`] and a minute more, as only key frames do, beside the minute itself. Where they are not enough, all are read.
const END: u64 = WHOLE_EVERY / 1_000_000 + 180;

/// One second of the past.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PastSecond {
    /// Its time, microseconds since 1970.
    pub time_usec: u64,
    /// Who ran.
    pub containers: Vec<PastContainer>,
}

/// One container in that second.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PastContainer {
    /// Who it was.
    pub identity: v1::ContainerIdentity,
    /// What the kernel said.
    pub sample: Sample,
    /// CPU use since the sample before, thousandths of a core.
    pub cpu_milli: Option<u64>,
    /// Its last look at traffic, where there was one in the half minute before.
    pub traffic: Option<v1::Traffic>,
}

/// Why a moment is not told.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotKept {
    /// Nothing at all.
    #[error("no second is kept yet{}", failing(.0))]
    Nothing(Option<String>),
    /// Outside of what is kept.
    #[error("it is outside of what is kept, {} to {}{}", time(*.first), time(*.last), failing(.failure))]
    Outside {
        /// The first second that can be told, microseconds since 1970.
        first: u64,
        /// The last one.
        last: u64,
        /// Why no more seconds are kept.
        failure: Option<String>,
    },
    /// No agent ran, or the disk failed.
    #[error("no second was kept in the 10 s before it; the last one before is of {}", time(*.before))]
    Gap {
        /// Microseconds since 1970.
        before: u64,
    },
    /// The files.
    #[error("the ring cannot be read: {0}")]
    Log(#[from] LogError),
    /// A record is not what was written.
    #[error("the ring's record of that second is damaged: {0}")]
    Damaged(String),
}

fn failing(failure: &Option<String>) -> String {
    failure.as_ref().map(|why| format!("; now none is kept: {why}")).unwrap_or_default()
}

fn time(usec: u64) -> String {
    i64::try_from(usec)
        .ok()
        .and_then(|usec| Timestamp::from_microsecond(usec).ok())
        .map_or_else(|| format!("{usec} us"), |time| time.to_string())
}

impl Ring {
    /// The second at or before a moment, microseconds since 1970. Waits for the disk.
    ///
    /// # Errors
    /// [`NotKept`], with what is kept.
    pub(crate) fn at(&self, time_usec: u64, stats: &Stats) -> Result<PastSecond, NotKept> {
        let failure = lock(&stats.ring_failure).clone();
        let Some(heads) = self.reader(None) else { return Err(NotKept::Nothing(failure)) };
        let found = find(heads, time_usec)?;
        let (Some(first), Some(last)) = (found.first, found.last) else {
            return Err(NotKept::Nothing(failure));
        };
        // The second that is going on now was not sampled yet.
        let Some(start) = found.start.filter(|_| time_usec <= last.saturating_add(NEAR)) else {
            return Err(NotKept::Outside { first, last, failure });
        };
        let Some(frames) = self.reader(Some(start.whole)) else { return Err(NotKept::Nothing(failure)) };
        let past = replay(frames, &start, time_usec)?;
        if time_usec - past.time_usec > NEAR {
            return Err(NotKept::Gap { before: past.time_usec });
        }
        Ok(past)
    }

    /// What each container used in the time before a moment, microseconds since 1970, as far as it is kept. Waits for
    /// the disk.
    ///
    /// # Errors
    /// [`NotKept`] where the files cannot be read; what is damaged is left out.
    pub(crate) fn earlier(&self, since_usec: u64, until_usec: u64) -> Result<Earlier, NotKept> {
        let mut earlier = Earlier::until(until_usec);
        let last = lock(&self.inner).log.as_ref().and_then(evenkeel_log::Log::last);
        let Some(last) = last else { return Ok(earlier) };
        let mut start = None;
        for from in [Seq::new(last.get().saturating_sub(END)), None] {
            let Some(heads) = self.reader(from) else { return Ok(earlier) };
            let found = find(heads, since_usec)?;
            start = found.start.or(found.first_whole.map(|whole| Start { whole, key: whole }));
            if found.start.is_some() {
                break;
            }
        }
        let Some((start, mut frames)) =
            start.and_then(|start| Some((start, self.reader(Some(start.whole))?)))
        else {
            return Ok(earlier);
        };
        let (mut reading, mut payload) = (Reading::default(), Vec::new());
        while let Some(seq) = frames.read_into(&mut payload)? {
            let Some((kind, time, frame)) = split(&payload) else { continue };
            if reading.take(kind, time, frame, seq >= start.key).is_err() {
                continue;
            }
            if (since_usec..until_usec).contains(&time) {
                for (slot, sample, cpu) in &reading.second.0 {
                    if let Some(identity) = reading.names.get(slot) {
                        earlier.take(identity, time, sample, *cpu);
                    }
                }
            }
        }
        Ok(earlier)
    }

    /// Records from one on, or from the first; those that waited are written before.
    fn reader(&self, from: Option<Seq>) -> Option<LogReader> {
        let mut inner = lock(&self.inner);
        let log = inner.log.as_mut()?;
        // Where the disk fails, what was written before is told.
        let _ignored = log.flush();
        Some(log.iter_from(from.or(log.first())?))
    }
}

/// Where reading begins.
#[derive(Debug, Clone, Copy)]
struct Start {
    /// The last record at or before the moment that announces all.
    whole: Seq,
    /// The last one whose samples need none before it.
    key: Seq,
}

#[derive(Debug, Default)]
struct RingIndex {
    /// Time of the first second that can be told.
    first: Option<u64>,
    last: Option<u64>,
    /// The first record that announces all.
    first_whole: Option<Seq>,
    start: Option<Start>,
}

/// Walks over the heads of all records. After a clock that was set back the last run of records counts.
fn find(mut heads: LogReader, time_usec: u64) -> Result<RingIndex, NotKept> {
    let (mut found, mut payload) = (RingIndex::default(), Vec::new());
    loop {
        let seq = match heads.read_into(&mut payload) {
            Ok(Some(seq)) => seq,
            Ok(None) => return Ok(found),
            // The oldest made room meanwhile: the reader goes on with the first there is.
            Err(LogError::Trimmed { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let Some((kind, time, _)) = split(&payload) else { continue };
        if found.first.is_none() && kind != RingRecordKind::Whole {
            continue;
        }
        found.first.get_or_insert(time);
        found.first_whole.get_or_insert(seq);
        found.last = Some(time);
        match (kind, &mut found.start) {
            _ if time > time_usec => {}
            (RingRecordKind::Whole, start) => *start = Some(Start { whole: seq, key: seq }),
            (RingRecordKind::Key, Some(start)) => start.key = seq,
            _ => {}
        }
    }
}

/// Kind, time and frame of a record; `None` for one that a later agent wrote.
fn split(payload: &[u8]) -> Option<(RingRecordKind, u64, &[u8])> {
    let (head, frame) = payload.split_first_chunk::<HEAD>()?;
    let (&kind, time) = head.split_first()?;
    let kind = [RingRecordKind::Whole, RingRecordKind::Key, RingRecordKind::Delta]
        .into_iter()
        .find(|known| *known as u8 == kind)?;
    Some((kind, u64::from_le_bytes(time.try_into().ok()?), frame))
}

/// The samples of the frame decoded last, each with the CPU use since the sample before, millionths of a core.
#[derive(Debug, Default)]
struct DecodedSecond(Vec<(u32, Sample, Option<u64>)>);

impl Visitor for DecodedSecond {
    fn sample(&mut self, slot: u32, _: u64, sample: &Sample, previous: Option<&Sample>) {
        self.0.push((slot, *sample, previous.and_then(|previous| sample.cpu_micro(previous))));
    }

    fn rollup(&mut self, _: u32, _: u64, _: &Rollup) {}
}

/// What records say, taken in their order from one that announces all.
#[derive(Debug, Default)]
struct Reading {
    names: BTreeMap<u32, v1::ContainerIdentity>,
    /// Looks with their time.
    traffic: BTreeMap<u32, (u64, v1::Traffic)>,
    decoder: Decoder,
    second: DecodedSecond,
}

impl Reading {
    /// Takes in a record; its samples only where those before it that they rest on were taken in, too.
    fn take(
        &mut self,
        kind: RingRecordKind,
        time: u64,
        frame: &[u8],
        with_samples: bool,
    ) -> Result<(), NotKept> {
        let damaged = |error: &dyn std::fmt::Display| NotKept::Damaged(error.to_string());
        let frame = v1::Frame::decode(frame).map_err(|error| damaged(&error))?;
        if kind == RingRecordKind::Whole {
            self.names.clear();
        }
        for slot in &frame.gone {
            self.names.remove(slot);
            self.traffic.remove(slot);
        }
        self.traffic.extend(frame.traffic.into_iter().map(|look| (look.slot, (time, look))));
        self.names.extend(frame.announced.into_iter().filter_map(|new| Some((new.slot, new.identity?))));
        if with_samples {
            self.second.0.clear();
            self.decoder.decode(&frame.samples, &mut self.second).map_err(|error| damaged(&error))?;
        }
        Ok(())
    }
}

/// Decodes from a start up to the moment.
fn replay(mut frames: LogReader, start: &Start, time_usec: u64) -> Result<PastSecond, NotKept> {
    let (mut reading, mut last, mut payload) = (Reading::default(), None, Vec::new());
    while let Some(seq) = frames.read_into(&mut payload)? {
        let Some((kind, time, frame)) = split(&payload) else { continue };
        // Another run of records begins: the clock was set back, or the agent was restarted.
        let is_next_run = seq > start.whole && kind == RingRecordKind::Whole;
        if time > time_usec || is_next_run {
            break;
        }
        reading.take(kind, time, frame, seq >= start.key)?;
        last = Some(time);
    }
    let time_usec = last.ok_or_else(|| NotKept::Damaged("it is gone".to_owned()))?;
    let Reading { mut names, mut traffic, second, .. } = reading;
    let containers = second.0.into_iter().filter_map(|(slot, sample, cpu_micro)| {
        let identity = names.remove(&slot)?;
        let look = traffic.remove(&slot).filter(|(time, _)| time_usec.abs_diff(*time) <= LOOKS);
        let cpu_milli = cpu_micro.map(|micro| micro / 1000);
        Some(PastContainer { identity, sample, cpu_milli, traffic: look.map(|(_, look)| look) })
    });
    let containers = containers.collect();
    Ok(PastSecond { time_usec, containers })
}
