//! An epoch under another name, where the recommender claims more of it than was ever written or sent.
//!
//! That happens when a machine is set back to an earlier image of itself, or when somebody else spoke in this agent's
//! name. Whatever goes on under that name would be taken for a repetition and never be counted. So everything that was
//! not acknowledged moves to a new epoch and is numbered anew; nothing is lost, and nothing counts twice that was
//! acknowledged before.
//!
//! The new directory is made beside and takes its place by its name; it says which one it stands for, so that an agent
//! that is killed in between does not deliver both.

use std::fs;
use std::path::Path;

use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::Sample;
use evenkeel_proto::frame::{self, Decoder, Encoder, Visitor};
use evenkeel_proto::v1;

use super::epoch::Epoch;
use super::{Lost, Spool, SpoolError, directory, epoch_dir, options, remove_dir};

/// File that names the epoch a directory stands for.
const INSTEAD_OF: &str = "instead-of";
/// Ending of a directory that is not complete.
pub(super) const PART: &str = "part";

/// What became of an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Renewed {
    /// The epoch that ended.
    pub(crate) old: u64,
    /// The one that goes on in its place.
    pub(crate) new: u64,
    /// Sequence numbers are lower by this much.
    pub(crate) shift: u64,
    /// Frames that moved.
    pub(crate) frames: u64,
}

/// Frames that were coded against others which do not move, coded anew.
#[derive(Debug, Default)]
pub(super) struct Recoder {
    decoder: Decoder,
    encoder: Encoder,
    samples: Vec<(u32, Sample)>,
}

struct Collect<'a>(&'a mut Vec<(u32, Sample)>);

impl Visitor for Collect<'_> {
    fn sample(&mut self, slot: u32, _: u64, sample: &Sample, _: Option<&Sample>) {
        self.0.push((slot, *sample));
    }

    // A folded frame needs no frame before it and moves as it is.
    fn rollup(&mut self, _: u32, _: u64, _: &Rollup) {}
}

impl Recoder {
    /// Remembers what a frame that stays behind says.
    fn skip(&mut self, frame: &v1::Frame) -> Result<(), SpoolError> {
        self.decoder.decode(&frame.samples, &mut ())?;
        Ok(())
    }

    /// Codes a frame anew, against those before it that moved as well.
    pub(super) fn recode(&mut self, mut frame: v1::Frame) -> Result<v1::Frame, SpoolError> {
        self.samples.clear();
        self.decoder.decode(&frame.samples, &mut Collect(&mut self.samples))?;
        let header = frame::peek(&frame.samples)?;
        let mut samples = Vec::new();
        let base = header.base_interval_usec;
        // The encoder's first frame is a key frame.
        self.encoder.encode_seconds(false, header.time_usec, base, &self.samples, &mut samples)?;
        frame.samples_crc32c = crc32c::crc32c(&samples);
        frame.samples = samples.into();
        Ok(frame)
    }
}

impl Spool {
    /// Moves what was not acknowledged of an epoch to the epoch `new`; nothing where there is no such epoch.
    ///
    /// # Errors
    /// When a file cannot be written; the old epoch is as it was then.
    pub(crate) fn renew(&mut self, old: u64, new: u64) -> Result<Option<Renewed>, SpoolError> {
        let options = options(self.limit);
        let at = self.old.iter().position(|epoch| epoch.id == old);
        let (dir, parent) = match at {
            Some(at) => (self.old[at].dir.clone(), self.old[at].dir.parent().map(Path::to_path_buf)),
            None if self.current.id == old => {
                (self.current.dir.clone(), self.current.dir.parent().map(Path::to_path_buf))
            }
            None => return Ok(None),
        };
        let parent = parent.unwrap_or(dir);
        let target = epoch_dir(&parent, new);
        let aside = target.with_extension(PART);
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(|e| directory("delete", &aside, e))?;
        }
        let source = match at {
            Some(at) => &mut self.old[at],
            None => &mut self.current,
        };
        let shift = source.acknowledged;
        let mut lost = Vec::new();
        let (frames, recoder) = {
            let mut copy = Epoch::open(&aside, new, options.clone())?;
            copy.slots.adopt(&source.slots, shift);
            let moved = move_frames(source, &mut copy, &mut lost)?;
            copy.next = copy.next.max(source.next - shift);
            copy.seconds.sync()?;
            copy.slots.save().map_err(|error| SpoolError::Slots { error })?;
            fs::write(aside.join(INSTEAD_OF), format!("{old:016x}\n"))
                .map_err(|e| directory("write in", &aside, e))?;
            moved
        };
        fs::rename(&aside, &target).map_err(|e| directory("rename", &aside, e))?;
        let next = source.next - shift;
        let mut renewed = Epoch::open(&target, new, options)?;
        renewed.next = renewed.next.max(next);
        // Under this name nothing was sent; what was under the other stays as it is.
        (renewed.sent, renewed.told) = (renewed.next - 1, 0);
        self.news.lost.extend(lost);
        let ended = match at {
            Some(at) => std::mem::replace(&mut self.old[at], renewed),
            None => {
                // Frames to come are coded against those before until the next key frame.
                self.recoder = recoder;
                std::mem::replace(&mut self.current, renewed)
            }
        };
        remove_dir(ended)?;
        Ok(Some(Renewed { old, new, shift, frames }))
    }

    /// Begins this run's epoch anew after somebody deleted its directory: what was in it is lost, and told.
    ///
    /// # Errors
    /// When the new directory cannot be made.
    pub(crate) fn start_over(&mut self, new: u64) -> Result<(), SpoolError> {
        let parent = self.current.dir.parent().map_or_else(|| self.current.dir.clone(), Path::to_path_buf);
        fs::create_dir_all(&parent).map_err(|e| directory("create", &parent, e))?;
        let mut fresh = Epoch::open(&epoch_dir(&parent, new), new, options(self.limit))?;
        fresh.slots.adopt(&self.current.slots, self.current.next - 1);
        let ended = std::mem::replace(&mut self.current, fresh);
        self.recoder = None;
        let unacknowledged = ended.entries.iter().find(|entry| entry.last > ended.acknowledged);
        if let (Some(first), Some(last)) = (unacknowledged, ended.entries.back()) {
            // The frame whose writing told of the deletion was told as lost by itself.
            self.news.lost.retain(|lost| lost.epoch != ended.id || lost.last < first.first);
            self.news.lost.push(Lost { epoch: ended.id, first: first.first, last: last.last });
        }
        Ok(())
    }
}

/// Copies every frame behind the last acknowledged one; how many, and what codes those to come.
fn move_frames(
    source: &mut Epoch,
    copy: &mut Epoch,
    lost: &mut Vec<Lost>,
) -> Result<(u64, Option<Recoder>), SpoolError> {
    let shift = source.acknowledged;
    let mut recoder: Option<Recoder> = None;
    let mut frames = 0;
    for at in 0..source.entries.len() {
        let entry = source.entries[at];
        let mut frame = match source.fetch(&entry) {
            Ok(frame) => frame,
            Err(error) => {
                tracing::warn!(%error, sequence = entry.last, "a spooled frame is lost");
                lost.push(Lost { epoch: source.id, first: entry.first, last: entry.last });
                continue;
            }
        };
        if entry.last <= shift {
            let recoder =
                if entry.key { recoder.insert(Recoder::default()) } else { recoder.get_or_insert_default() };
            recoder.skip(&frame)?;
            continue;
        }
        match &mut recoder {
            Some(recoder) if !entry.key => frame = recoder.recode(frame)?,
            _ => recoder = None,
        }
        frame.sequence -= shift;
        frame.replaces_first = frame.replaces_first.saturating_sub(shift);
        copy.put(frame)?;
        frames += 1;
    }
    Ok((frames, recoder))
}

/// Finishes what a kill interrupted: directories that are not complete go, and those that others stand for.
pub(super) fn settle(dir: &Path) -> Result<(), SpoolError> {
    let entries = fs::read_dir(dir).map_err(|e| directory("list", dir, e))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|ending| ending == PART) {
            fs::remove_dir_all(&path).map_err(|e| directory("delete", &path, e))?;
        }
        let Ok(text) = fs::read_to_string(path.join(INSTEAD_OF)) else { continue };
        let old = text.trim();
        if old.len() != 16 || u64::from_str_radix(old, 16).is_err() {
            continue;
        }
        let old = dir.join(old);
        if old.exists() {
            fs::remove_dir_all(&old).map_err(|e| directory("delete", &old, e))?;
        }
    }
    Ok(())
}
