//! Looking back: the second at or before a moment, from the records of the ring.
//!
//! The whole ring is read once by its records' heads, at most 64 MiB by default; frames are decoded from the last one
//! that can be read by itself.

use std::collections::BTreeMap;

use evenkeel_enforce::shared::lock;
use evenkeel_log::{LogError, Reader, Seq};
use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::Sample;
use evenkeel_proto::frame::{Decoder, Visitor};
use evenkeel_proto::v1;
use jiff::Timestamp;
use prost::Message as _;

use super::{HEAD, Kind, Ring};
use crate::shared::Stats;

/// Traffic older than this is not told, microseconds: three looks.
const LOOKS: u64 = 30_000_000;
/// A second farther from the moment asked for is not its answer, microseconds.
const NEAR: u64 = 10_000_000;

/// One second of the past.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Past {
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
    pub(crate) fn at(&self, time_usec: u64, stats: &Stats) -> Result<Past, NotKept> {
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

    /// Records from one on, or from the first; those that waited are written before.
    fn reader(&self, from: Option<Seq>) -> Option<Reader> {
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
struct Found {
    /// Time of the first second that can be told.
    first: Option<u64>,
    last: Option<u64>,
    start: Option<Start>,
}

/// Walks over the heads of all records. After a clock that was set back the last run of records counts.
fn find(mut heads: Reader, time_usec: u64) -> Result<Found, NotKept> {
    let (mut found, mut payload) = (Found::default(), Vec::new());
    loop {
        let seq = match heads.read_into(&mut payload) {
            Ok(Some(seq)) => seq,
            Ok(None) => return Ok(found),
            // The oldest made room meanwhile: the reader goes on with the first there is.
            Err(LogError::Trimmed { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let Some((kind, time, _)) = split(&payload) else { continue };
        if found.first.is_none() && kind != Kind::Whole {
            continue;
        }
        found.first.get_or_insert(time);
        found.last = Some(time);
        match (kind, &mut found.start) {
            _ if time > time_usec => {}
            (Kind::Whole, start) => *start = Some(Start { whole: seq, key: seq }),
            (Kind::Key, Some(start)) => start.key = seq,
            _ => {}
        }
    }
}

/// Kind, time and frame of a record; `None` for one that a later agent wrote.
fn split(payload: &[u8]) -> Option<(Kind, u64, &[u8])> {
    let (head, frame) = payload.split_first_chunk::<HEAD>()?;
    let (&kind, time) = head.split_first()?;
    let kind = [Kind::Whole, Kind::Key, Kind::Delta].into_iter().find(|known| *known as u8 == kind)?;
    Some((kind, u64::from_le_bytes(time.try_into().ok()?), frame))
}

/// The samples of the frame decoded last.
#[derive(Debug, Default)]
struct Second(Vec<(u32, Sample, Option<u64>)>);

impl Visitor for Second {
    fn sample(&mut self, slot: u32, _: u64, sample: &Sample, previous: Option<&Sample>) {
        self.0.push((slot, *sample, previous.and_then(|previous| sample.cpu_milli(previous))));
    }

    fn rollup(&mut self, _: u32, _: u64, _: &Rollup) {}
}

/// Decodes from a start up to the moment.
fn replay(mut frames: Reader, start: &Start, time_usec: u64) -> Result<Past, NotKept> {
    let (mut names, mut traffic, mut decoder) = (BTreeMap::new(), BTreeMap::new(), Decoder::new());
    let (mut last, mut second, mut payload) = (None, Second::default(), Vec::new());
    while let Some(seq) = frames.read_into(&mut payload)? {
        let Some((kind, time, frame)) = split(&payload) else { continue };
        // Another run of records begins: the clock was set back, or the agent was restarted.
        let is_next_run = seq > start.whole && kind == Kind::Whole;
        if time > time_usec || is_next_run {
            break;
        }
        let damaged = |error: &dyn std::fmt::Display| NotKept::Damaged(error.to_string());
        let frame = v1::Frame::decode(frame).map_err(|error| damaged(&error))?;
        for slot in &frame.gone {
            names.remove(slot);
            traffic.remove(slot);
        }
        traffic.extend(frame.traffic.into_iter().map(|look| (look.slot, (time, look))));
        names.extend(frame.announced.into_iter().filter_map(|new| Some((new.slot, new.identity?))));
        if seq >= start.key {
            second.0.clear();
            decoder.decode(&frame.samples, &mut second).map_err(|error| damaged(&error))?;
        }
        last = Some(time);
    }
    let time_usec = last.ok_or_else(|| NotKept::Damaged("it is gone".to_owned()))?;
    let containers = second.0.into_iter().filter_map(|(slot, sample, cpu_milli)| {
        let identity = names.remove(&slot)?;
        let look = traffic.remove(&slot).filter(|(time, _)| time_usec.abs_diff(*time) <= LOOKS);
        Some(PastContainer { identity, sample, cpu_milli, traffic: look.map(|(_, look)| look) })
    });
    let containers = containers.collect();
    Ok(Past { time_usec, containers })
}
