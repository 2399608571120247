//! Making room: the oldest frames that no recommender may have in part become minutes.

use std::collections::BTreeMap;

use evenkeel_log::Seq;
use evenkeel_model::traffic::Traffic;
use evenkeel_proto::frame::{Folder, MAX_ROLLUPS};
use evenkeel_proto::v1;
use prost::Message;

use super::SpoolError;
use super::epoch::{Epoch, SpoolEntry, SpoolLog, entry_of};

/// Key frames' runs folded into one frame at most: about ten minutes, so that the two minutes cut by its ends
/// weigh little.
const UNITS: usize = 10;

/// Rollups a folded frame is begun to be kept below, half of what the format allows: one more run may add.
const ENOUGH_ROLLUPS: usize = MAX_ROLLUPS / 2;

/// Most bytes of decisions a folded frame carries on; those that must arrive come first, then the newest. The older
/// ones of a longer time are left out.
const DECISION_BYTES: usize = 1 << 20;

/// What folding did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Folded {
    /// Frames that became one.
    pub frames: u64,
    /// Decisions that must arrive and were left out, by epoch and number.
    pub left_out: Vec<(u64, u64)>,
}

/// Folds the oldest run of frames that are complete, and that each recommender either was never sent or has. Nothing where there is none.
pub(super) fn fold_oldest(epoch: &mut Epoch) -> Result<Option<Folded>, SpoolError> {
    let Some((start, mut end)) = oldest_run(epoch) else { return Ok(None) };
    let mut folding = Folding::default();
    let mut begin = start;
    for unit in 1.. {
        for at in begin..end {
            let entry = epoch.entries[at];
            folding.take(epoch.fetch(&entry)?)?;
        }
        let more = unit < UNITS && folding.folder.len() <= ENOUGH_ROLLUPS;
        let next = epoch
            .unit_end(end)
            .filter(|next| more && is_contiguous(epoch, begin, *next) && is_free(epoch, start, *next));
        let Some(next) = next else { break };
        (begin, end) = (end, next);
    }
    let (frame, left_out) = folding.finish(&epoch.entries[start], &epoch.entries[end - 1])?;
    // Everything before goes over unchanged, so that the order of the two logs stays that of the sequence.
    for at in 0..start {
        let entry = epoch.entries[at];
        if entry.place == SpoolLog::Seconds {
            let frame = epoch.fetch(&entry)?;
            epoch.entries[at] = move_over(epoch, &frame)?;
        }
    }
    let entry = move_over(epoch, &frame)?;
    // Durable before the seconds it stands for are deleted.
    epoch.log(SpoolLog::Minutes)?.sync()?;
    epoch.entries.drain(start..end);
    epoch.entries.insert(start, entry);
    epoch.trim(SpoolLog::Seconds)?;
    Ok(Some(Folded { frames: (end - start) as u64, left_out }))
}

/// The oldest complete run of a key frame that is free to be folded and has not been moved over: once in the other log,
/// a frame stays as it is, because there too only the old end can be taken away.
fn oldest_run(epoch: &Epoch) -> Option<(usize, usize)> {
    let begins = |at: &usize| {
        let entry = &epoch.entries[*at];
        entry.place == SpoolLog::Seconds && entry.key
    };
    let runs = (0..epoch.entries.len()).filter(begins).filter_map(|at| Some((at, epoch.unit_end(at)?)));
    // A run with a frame missing cannot be decoded; it waits to be dropped.
    let mut free = runs.filter(|(start, end)| is_free(epoch, *start, *end));
    free.find(|(start, end)| is_contiguous(epoch, *start, *end))
}

/// Whether to each recommender these frames were never sent, or all of them are durable there, which then never asks for them again.
fn is_free(epoch: &Epoch, start: usize, end: usize) -> bool {
    epoch.readers.are_free(epoch.entries[start].first, epoch.entries[end - 1].last)
}

fn is_contiguous(epoch: &Epoch, start: usize, end: usize) -> bool {
    (start + 1..end).all(|at| epoch.entries[at].first == epoch.entries[at - 1].last + 1)
}

fn move_over(epoch: &mut Epoch, frame: &v1::Frame) -> Result<SpoolEntry, SpoolError> {
    let payload = frame.encode_to_vec();
    let log = epoch.log(SpoolLog::Minutes)?;
    let seq: Seq = log.append(&payload)?;
    log.flush()?;
    Ok(entry_of(frame, SpoolLog::Minutes, seq, payload.len()))
}

#[derive(Default)]
struct Folding {
    folder: Folder,
    announced: Vec<v1::Announcement>,
    gone: Vec<u32>,
    traffic: BTreeMap<u32, Traffic>,
    decisions: Vec<v1::Decision>,
}

impl Folding {
    fn take(&mut self, frame: v1::Frame) -> Result<(), SpoolError> {
        self.folder.add(&frame.samples)?;
        self.announced.extend(frame.announced);
        self.gone.extend(frame.gone);
        self.decisions.extend(frame.decisions);
        for look in frame.traffic {
            let sum = self.traffic.entry(look.slot).or_default();
            *sum = sum.and(&(&look).into());
        }
        Ok(())
    }

    fn finish(
        mut self,
        first: &SpoolEntry,
        last: &SpoolEntry,
    ) -> Result<(v1::Frame, Vec<(u64, u64)>), SpoolError> {
        let mut samples = Vec::new();
        self.folder.finish(&mut samples)?;
        let (decisions, left_out) = fitting(self.decisions);
        let frame = v1::Frame {
            sequence: last.last,
            replaces_first: first.first,
            samples_crc32c: crc32c::crc32c(&samples),
            samples: samples.into(),
            announced: self.announced,
            gone: self.gone,
            traffic: self.traffic.iter().map(|(slot, sum)| v1::Traffic::of(*slot, sum)).collect(),
            decisions,
        };
        Ok((frame, left_out))
    }
}

/// The decisions a folded frame has room for, in their order, and which of those that must arrive it has not.
fn fitting(decisions: Vec<v1::Decision>) -> (Vec<v1::Decision>, Vec<(u64, u64)>) {
    let mut room = DECISION_BYTES;
    let mut fits = vec![false; decisions.len()];
    // Only decisions that must arrive bear their epoch.
    for must in [true, false] {
        for (decision, fits) in decisions.iter().zip(&mut fits).rev().filter(|(d, _)| (d.epoch != 0) == must)
        {
            let bytes = decision.encoded_len();
            if bytes > room {
                break;
            }
            room -= bytes;
            *fits = true;
        }
    }
    let (mut kept, mut left_out) = (Vec::new(), Vec::new());
    for (decision, fits) in decisions.into_iter().zip(fits) {
        if fits {
            kept.push(decision);
        } else if decision.epoch != 0 {
            left_out.push((decision.epoch, decision.seq));
        }
    }
    (kept, left_out)
}
