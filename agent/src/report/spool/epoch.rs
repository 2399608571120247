//! The frames of one epoch on disk, with an index of them in memory.
//!
//! Two logs: `seconds` takes frames as they are made; `minutes` takes the oldest ones over, folded where that is
//! allowed and unchanged where it is not. So every sequence number in `minutes` is below every one in `seconds`,
//! and both shrink from their old end. A crash between the two steps leaves frames in both; opening drops the
//! second copy.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use evenkeel_log::{Log, LogError, LogReader, Options, Seq};
use evenkeel_proto::frame::{self, FrameKind};
use evenkeel_proto::v1;
use prost::Message;

use super::readers::{Names, Readers};
use super::slots::AnnouncedSlots;
use super::{LostRange, SpoolError};

/// Which of the two logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpoolLog {
    Minutes,
    Seconds,
}

/// One frame on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpoolEntry {
    /// First sequence number it stands for.
    pub first: u64,
    /// Its own, the last it stands for.
    pub last: u64,
    pub place: SpoolLog,
    pub seq: Seq,
    pub bytes: u32,
    /// Needs no frame before it.
    pub key: bool,
    /// Holds minutes.
    pub folded: bool,
}

/// One epoch.
#[derive(Debug)]
pub(super) struct Epoch {
    pub(super) id: u64,
    pub(super) dir: PathBuf,
    options: Options,
    pub(super) seconds: Log,
    pub(super) minutes: Option<Log>,
    pub(super) entries: VecDeque<SpoolEntry>,
    pub(super) slots: AnnouncedSlots,
    /// Sequence number of the next frame.
    pub(super) next: u64,
    /// How far each recommender is, in the order of the configuration.
    pub(super) readers: Readers,
    /// Where the last reads ended, the newest last, so that reading on does not begin anew.
    cursors: Vec<(SpoolLog, Seq, LogReader)>,
}

const MINUTES: &str = "minutes";
const SECONDS: &str = "seconds";

impl Epoch {
    /// Opens an epoch's directory, or makes it, and indexes what is there.
    pub(super) fn open(dir: &Path, id: u64, options: Options, names: &Names) -> Result<Self, SpoolError> {
        let open = |name| {
            let (log, recovery) = Log::open(dir.join(name), options.clone()).map_err(SpoolError::Log)?;
            for damage in &recovery.damage {
                tracing::warn!(%damage, "the spool was damaged; what is before the damage is kept");
            }
            Ok::<Log, SpoolError>(log)
        };
        let minutes = dir.join(MINUTES).exists().then(|| open(MINUTES)).transpose()?;
        let mut epoch = Self {
            id,
            dir: dir.to_owned(),
            seconds: open(SECONDS)?,
            minutes,
            options: options.clone(),
            entries: VecDeque::new(),
            slots: AnnouncedSlots::open(dir),
            next: 1,
            readers: Readers::open(dir, names)?,
            cursors: Vec::new(),
        };
        epoch.index(SpoolLog::Minutes);
        epoch.index(SpoolLog::Seconds);
        // Frames whose key frame is gone were acknowledged with it; their segment was merely not free yet.
        while epoch.entries.front().is_some_and(|e| !e.key) {
            epoch.entries.pop_front();
        }
        // Whatever an earlier run wrote it may have sent.
        epoch.readers.may_have(epoch.next - 1);
        Ok(epoch)
    }

    pub(super) fn log(&mut self, place: SpoolLog) -> Result<&mut Log, SpoolError> {
        match place {
            SpoolLog::Seconds => Ok(&mut self.seconds),
            SpoolLog::Minutes => {
                if self.minutes.is_none() {
                    let (log, _) = Log::open(self.dir.join(MINUTES), self.options.clone())?;
                    self.minutes = Some(log);
                }
                self.minutes.as_mut().ok_or(SpoolError::Vanished)
            }
        }
    }

    fn index(&mut self, place: SpoolLog) {
        let log = match place {
            SpoolLog::Seconds => Some(&self.seconds),
            SpoolLog::Minutes => self.minutes.as_ref(),
        };
        let Some((log, first)) = log.and_then(|log| Some((log, log.first()?))) else { return };
        for record in log.iter_from(first) {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    tracing::warn!(%error, "the rest of this spooled log is lost");
                    return;
                }
            };
            let Ok(frame) = v1::Frame::decode(record.payload.as_slice()) else {
                tracing::warn!(seq = %record.seq, "a spooled frame does not read and is left out");
                continue;
            };
            if frame.sequence >= self.next {
                self.slots.learn(&frame);
                self.entries.push_back(entry_of(&frame, place, record.seq, record.payload.len()));
                self.next = frame.sequence + 1;
            }
        }
    }

    /// Fails where a recommender cannot have `claimed`, since it was never sent as much.
    pub(super) fn can_have(&self, reader: usize, claimed: u64) -> Result<(), SpoolError> {
        let sent = self.readers.of(reader).told;
        if claimed > sent {
            return Err(SpoolError::Ahead { epoch: self.id, claimed, sent });
        }
        Ok(())
    }

    /// Writes one frame with the number it has, above all before.
    pub(super) fn put(&mut self, frame: v1::Frame) -> Result<(), SpoolError> {
        self.next = frame.sequence;
        self.append(frame).map(|_| ())
    }

    /// Writes one frame, whose sequence number it sets. On failure the number is passed over.
    pub(super) fn append(&mut self, mut frame: v1::Frame) -> Result<u64, SpoolError> {
        frame.sequence = self.next;
        self.next += 1;
        // Also when the frame itself is lost: its slots are announced again after the gap.
        self.slots.learn(&frame);
        let payload = frame.encode_to_vec();
        let seq = self.seconds.append(&payload)?;
        self.entries.push_back(entry_of(&frame, SpoolLog::Seconds, seq, payload.len()));
        self.seconds.flush()?;
        Ok(frame.sequence)
    }

    /// Frames behind sequence number `after`, oldest first, at most `max_frames` of them and about `max_bytes`. What
    /// can no longer be read is `lost`.
    pub(super) fn read(
        &mut self,
        after: u64,
        max_frames: usize,
        max_bytes: usize,
        lost: &mut Vec<LostRange>,
    ) -> Vec<v1::Frame> {
        let mut at = self.entries.partition_point(|e| e.last <= after);
        // Folded for another recommender from what this one has in part: it counts none of that again.
        while self.entries.get(at).is_some_and(|e| e.first <= after) {
            at += 1;
        }
        let (mut frames, mut bytes) = (Vec::new(), 0);
        while frames.len() < max_frames {
            let Some(entry) = self.entries.get(at).copied() else { break };
            bytes += entry.bytes as usize;
            if !frames.is_empty() && bytes > max_bytes {
                break;
            }
            match self.fetch(&entry) {
                Ok(frame) => {
                    frames.push(frame);
                    at += 1;
                }
                Err(error) => {
                    tracing::warn!(%error, sequence = entry.last, "a spooled frame is lost");
                    lost.push(LostRange {
                        epoch: self.id,
                        first: entry.first,
                        last: entry.last,
                        elsewhere: false,
                    });
                    self.entries.remove(at);
                }
            }
        }
        frames
    }

    /// Reads one frame.
    pub(super) fn fetch(&mut self, entry: &SpoolEntry) -> Result<v1::Frame, SpoolError> {
        let log = match entry.place {
            SpoolLog::Seconds => &self.seconds,
            SpoolLog::Minutes => self.minutes.as_ref().ok_or(SpoolError::Vanished)?,
        };
        let known =
            self.cursors.iter().position(|(place, seq, _)| (*place, *seq) == (entry.place, entry.seq));
        let mut reader = match known {
            Some(at) => self.cursors.remove(at).2,
            None => log.iter_from(entry.seq),
        };
        let mut payload = Vec::with_capacity(entry.bytes as usize);
        let found = reader.read_into(&mut payload)?;
        if found != Some(entry.seq) {
            return Err(SpoolError::Vanished);
        }
        if self.cursors.len() >= self.readers.len() {
            self.cursors.remove(0);
        }
        self.cursors.push((entry.place, entry.seq.next(), reader));
        v1::Frame::decode(payload.as_slice()).map_err(|_| SpoolError::Vanished)
    }

    /// Number of entries of the oldest unit: a key frame with the frames that need it, or one folded frame.
    /// Nothing while the unit may still grow.
    pub(super) fn oldest_unit(&self) -> Option<usize> {
        self.unit_end(0)
    }

    /// End of the unit that begins at `start`, when another one follows.
    pub(super) fn unit_end(&self, start: usize) -> Option<usize> {
        (start + 1..self.entries.len()).find(|&at| self.entries[at].key)
    }

    /// Takes `count` entries off the old end and frees what disk space that allows.
    pub(super) fn remove_oldest(&mut self, count: usize) -> Result<(), SpoolError> {
        let Some(last) = count.checked_sub(1).and_then(|at| self.entries.get(at)).map(|e| e.last) else {
            return Ok(());
        };
        self.slots.save_before_trim(last).map_err(|error| SpoolError::Slots { error })?;
        self.entries.drain(..count);
        self.trim(SpoolLog::Minutes)?;
        self.trim(SpoolLog::Seconds)
    }

    /// Frees the part of a log that no entry refers to.
    pub(super) fn trim(&mut self, place: SpoolLog) -> Result<(), SpoolError> {
        let oldest = self.entries.iter().find(|e| e.place == place).map(|e| e.seq);
        let log = match place {
            SpoolLog::Seconds => Some(&mut self.seconds),
            SpoolLog::Minutes => self.minutes.as_mut(),
        };
        let Some(log) = log else { return Ok(()) };
        let upto = match oldest {
            Some(seq) => seq.prev(),
            None => log.last(),
        };
        if let Some(upto) = upto {
            log.trim_to(upto)?;
        }
        Ok(())
    }

    /// Takes in that everything up to `sequence` is durable with a recommender.
    pub(super) fn acknowledge(&mut self, reader: usize, sequence: u64) -> Result<(), SpoolError> {
        self.readers.acknowledge(reader, sequence.min(self.next - 1));
        self.release()
    }

    /// Deletes what every recommender has.
    pub(super) fn release(&mut self) -> Result<(), SpoolError> {
        let acknowledged = self.acknowledged();
        while let Some(count) = self.oldest_unit() {
            if self.entries.get(count - 1).is_some_and(|e| e.last > acknowledged) {
                break;
            }
            self.remove_oldest(count)?;
        }
        Ok(())
    }

    /// Frames up to here are durable with every recommender that takes this epoch; all of them where none does.
    pub(super) fn acknowledged(&self) -> u64 {
        self.readers.acknowledged_by_all().unwrap_or(self.next - 1)
    }

    /// True when nothing is left to send to a recommender.
    pub(super) fn is_delivered_to(&self, reader: usize) -> bool {
        let of = self.readers.of(reader);
        of.is_done || self.entries.back().is_none_or(|e| e.last <= of.acknowledged)
    }

    /// True when nothing is left to send.
    pub(super) fn is_delivered(&self) -> bool {
        (0..self.readers.len()).all(|reader| self.is_delivered_to(reader))
    }

    /// Bytes on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.seconds.bytes() + self.minutes.as_ref().map_or(0, Log::bytes)
    }

    /// Time of its oldest frame, microseconds since 1970; zero without frames.
    pub(super) fn oldest_time(&mut self) -> u64 {
        let Some(entry) = self.entries.front().copied() else { return 0 };
        let frame = self.fetch(&entry).ok();
        frame.and_then(|f| frame::peek(&f.samples).ok()).map_or(0, |header| header.time_usec)
    }
}

pub(super) fn entry_of(frame: &v1::Frame, place: SpoolLog, seq: Seq, bytes: usize) -> SpoolEntry {
    let header = frame::peek(&frame.samples).ok();
    SpoolEntry {
        first: if frame.replaces_first == 0 { frame.sequence } else { frame.replaces_first },
        last: frame.sequence,
        place,
        seq,
        bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        key: header.is_some_and(|h| h.key),
        folded: header.is_some_and(|h| matches!(h.kind, FrameKind::Folded | FrameKind::FoldedMilli)),
    }
}

impl From<LogError> for SpoolError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}
