//! An epoch under another name, where the recommender claims more of it than was ever written or sent.
//!
//! That happens when a machine is set back to an earlier image of itself, or when somebody else spoke in this agent's
//! name. Whatever goes on under that name would be taken for a repetition and never be counted. So everything that was
//! not acknowledged moves to a new epoch and is numbered anew; nothing is lost, and nothing counts twice that was
//! acknowledged before.
//!
//! The new directory is made beside and takes its place by its name; it says which one it stands for, so that an agent
//! that is killed in between does not deliver both.
//!
//! Where several recommenders read the spool, the epoch goes on as it is for the others: what the one does not have is copied for it alone,
//! and where this run's epoch is meant, a fresh one begins for all.

use std::fs;
use std::path::Path;

use evenkeel_model::rollup::Rollup;
use evenkeel_model::sample::Sample;
use evenkeel_proto::frame::{self, Decoder, Encoder, Visitor};
use evenkeel_proto::v1;

use super::epoch::Epoch;
use super::readers::{Names, done_on_disk};
use super::{LostRange, MAX_EPOCHS, Spool, SpoolError, directory, epoch_dir, options, remove_dir};

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
    /// Nothing of the old epoch is left: no other recommender reads it.
    pub(crate) is_whole: bool,
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

    /// What codes frames to come anew that were coded against the last ones of an epoch; nothing where there are none.
    fn behind(epoch: &mut Epoch) -> Result<Option<Self>, SpoolError> {
        let Some(key) = epoch.entries.iter().rposition(|entry| entry.key) else { return Ok(None) };
        let mut recoder = Self::default();
        for at in key..epoch.entries.len() {
            let entry = epoch.entries[at];
            recoder.skip(&epoch.fetch(&entry)?)?;
        }
        Ok(Some(recoder))
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

/// Which epoch of a spool.
#[derive(Clone, Copy)]
enum Which {
    Old(usize),
    Current,
}

impl Spool {
    /// What a recommender has not acknowledged of an epoch goes on for it as the epoch `new`; nothing where there is no such epoch. `next`
    /// names this run's epoch from then on, where that is the one and others read it, too.
    ///
    /// # Errors
    /// When a file cannot be written; the old epoch is as it was then.
    pub(crate) fn renew(
        &mut self,
        reader: usize,
        old: u64,
        new: u64,
        next: u64,
    ) -> Result<Option<Renewed>, SpoolError> {
        let which = match self.old.iter().position(|epoch| epoch.id == old) {
            Some(at) => Which::Old(at),
            None if self.current.id == old => Which::Current,
            None => return Ok(None),
        };
        let is_whole = self.names.len() == 1;
        let shift = self.which(which).readers.of(reader).acknowledged;
        let stands_for = match is_whole {
            true => format!("{old:016x}\n"),
            false => format!("{old:016x} {}\n", self.names.get(reader).map_or("", String::as_str)),
        };
        let (frames, recoder) = self.copy(which, new, shift, (!is_whole).then_some(reader), &stands_for)?;
        let renewed = self.renewed(which, new, shift)?;
        if is_whole {
            let ended = match which {
                Which::Old(at) => std::mem::replace(&mut self.old[at], renewed),
                Which::Current => {
                    // Frames to come are coded against those before until the next key frame.
                    self.recoder = recoder;
                    std::mem::replace(&mut self.current, renewed)
                }
            };
            remove_dir(ended)?;
        } else {
            self.part(which, reader, renewed, next)?;
        }
        Ok(Some(Renewed { old, new, shift, frames, is_whole }))
    }

    fn which(&mut self, which: Which) -> &mut Epoch {
        match which {
            Which::Old(at) => &mut self.old[at],
            Which::Current => &mut self.current,
        }
    }

    /// Makes the new epoch's directory, for all recommenders or for one: how many frames are in it, and what codes those to come.
    fn copy(
        &mut self,
        which: Which,
        new: u64,
        shift: u64,
        only: Option<usize>,
        stands_for: &str,
    ) -> Result<(u64, Option<Recoder>), SpoolError> {
        let target = epoch_dir(&self.dir, new);
        let aside = target.with_extension(PART);
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(|e| directory("delete", &aside, e))?;
        }
        let mut copy = Epoch::open(&aside, new, options(self.limit), &self.names)?;
        let mut lost = Vec::new();
        let source = self.which(which);
        copy.slots.adopt(&source.slots, shift);
        let moved = move_frames(source, &mut copy, shift, &mut lost)?;
        copy.next = copy.next.max(source.next - shift);
        copy.seconds.sync()?;
        copy.slots.save().map_err(|error| SpoolError::Slots { error })?;
        if let Some(reader) = only {
            copy.readers.only(reader)?;
        }
        drop(copy);
        fs::write(aside.join(INSTEAD_OF), stands_for).map_err(|e| directory("write in", &aside, e))?;
        fs::rename(&aside, &target).map_err(|e| directory("rename", &aside, e))?;
        self.news.lost.extend(lost);
        Ok(moved)
    }

    /// The new epoch, of which nothing was sent under this name; what was under the other stays as it is.
    fn renewed(&mut self, which: Which, new: u64, shift: u64) -> Result<Epoch, SpoolError> {
        let next = self.which(which).next - shift;
        let mut renewed = Epoch::open(&epoch_dir(&self.dir, new), new, options(self.limit), &self.names)?;
        renewed.next = renewed.next.max(next);
        let last = renewed.next - 1;
        renewed.readers.renewed(last);
        Ok(renewed)
    }

    /// One recommender goes on with an epoch of its own, the others with the one there is.
    fn part(&mut self, which: Which, reader: usize, own: Epoch, next: u64) -> Result<(), SpoolError> {
        self.which(which).readers.done(reader)?;
        let at = match which {
            Which::Old(at) => at,
            Which::Current => {
                let mut fresh =
                    Epoch::open(&epoch_dir(&self.dir, next), next, options(self.limit), &self.names)?;
                fresh.slots.adopt(&self.current.slots, self.current.next - 1);
                // The next frame is the first of its epoch, so it is coded against none.
                self.recoder = match self.recoder.take() {
                    Some(Recoder { decoder, .. }) => Some(Recoder { decoder, ..Recoder::default() }),
                    None => Recoder::behind(&mut self.current)?,
                };
                self.old.push(std::mem::replace(&mut self.current, fresh));
                self.old.len() - 1
            }
        };
        if own.is_delivered() {
            remove_dir(own)?;
        } else {
            self.old.insert(at + 1, own);
        }
        if self.old[at].is_delivered() {
            remove_dir(self.old.remove(at))?;
        } else {
            self.old[at].release()?;
        }
        while self.old.len() > MAX_EPOCHS {
            self.drop_epoch(0)?;
        }
        Ok(())
    }

    /// Begins this run's epoch anew after somebody deleted its directory: what was in it is lost, and told.
    ///
    /// # Errors
    /// When the new directory cannot be made.
    pub(crate) fn start_over(&mut self, new: u64) -> Result<(), SpoolError> {
        fs::create_dir_all(&self.dir).map_err(|e| directory("create", &self.dir, e))?;
        let mut fresh = Epoch::open(&epoch_dir(&self.dir, new), new, options(self.limit), &self.names)?;
        fresh.slots.adopt(&self.current.slots, self.current.next - 1);
        let ended = std::mem::replace(&mut self.current, fresh);
        self.recoder = None;
        let acknowledged = ended.acknowledged();
        let unacknowledged = ended.entries.iter().find(|entry| entry.last > acknowledged);
        if let (Some(first), Some(last)) = (unacknowledged, ended.entries.back()) {
            // The frame whose writing told of the deletion was told as lost by itself.
            self.news.lost.retain(|lost| lost.epoch != ended.id || lost.last < first.first);
            let elsewhere = last.last <= ended.readers.acknowledged_by_one();
            self.news.lost.push(LostRange {
                epoch: ended.id,
                first: first.first,
                last: last.last,
                elsewhere,
            });
        }
        Ok(())
    }
}

/// Copies every frame behind `shift`; how many, and what codes those to come.
fn move_frames(
    source: &mut Epoch,
    copy: &mut Epoch,
    shift: u64,
    lost: &mut Vec<LostRange>,
) -> Result<(u64, Option<Recoder>), SpoolError> {
    let mut recoder: Option<Recoder> = None;
    let mut frames = 0;
    for at in 0..source.entries.len() {
        let entry = source.entries[at];
        let mut frame = match source.fetch(&entry) {
            Ok(frame) => frame,
            Err(error) => {
                tracing::warn!(%error, sequence = entry.last, "a spooled frame is lost");
                lost.push(LostRange {
                    epoch: source.id,
                    first: entry.first,
                    last: entry.last,
                    elsewhere: false,
                });
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
pub(super) fn settle(dir: &Path, names: &Names) -> Result<(), SpoolError> {
    let entries = fs::read_dir(dir).map_err(|e| directory("list", dir, e))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|ending| ending == PART) {
            fs::remove_dir_all(&path).map_err(|e| directory("delete", &path, e))?;
        }
        let Ok(text) = fs::read_to_string(path.join(INSTEAD_OF)) else { continue };
        let (old, whom) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
        if old.len() != 16 || u64::from_str_radix(old, 16).is_err() {
            continue;
        }
        let old = dir.join(old);
        if !whom.is_empty() {
            done_on_disk(&old, whom, names)?;
        } else if old.exists() {
            fs::remove_dir_all(&old).map_err(|e| directory("delete", &old, e))?;
        }
    }
    Ok(())
}
