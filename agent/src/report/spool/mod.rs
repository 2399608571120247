//! The spool: frames on disk until the recommender has them, within a bound over all epochs.
//!
//! Owned here: one directory per agent run (`spool/<epoch in hex>/`), what may be folded or dropped when the bound
//! comes near, and what an acknowledgement deletes. Not owned: making frames, sending them.
//!
//! Above three quarters of the bound the oldest frames that were never sent are folded into minutes. A frame that
//! was sent is kept as it is until a handshake says whether it arrived, because a recommender that counted it
//! must never be sent it in another form. At the bound the oldest frames are dropped, and the loss is told.
//!
//! Several recommenders read the same frames, each from where it is. A frame goes when all of them have it; one that
//! is away costs the others nothing, and what it misses becomes minutes and is dropped as above, once the others have it.

mod epoch;
mod error;
mod fold;
mod readers;
mod renew;
#[cfg(test)]
mod several_tests;
mod slots;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use evenkeel_log::Options;
use evenkeel_log::private;
use evenkeel_proto::frame;
use evenkeel_proto::v1;

use epoch::Epoch;
pub(super) use error::SpoolError;
use readers::Names;
use renew::Recoder;
pub(super) use renew::Renewed;

/// Earlier runs kept at most; beyond it the oldest is dropped. An agent that is restarted again and again must
/// not fill the disk with directories.
const MAX_EPOCHS: usize = 16;

/// Frames kept at most as seconds, five hours and a half: the index of one costs 40 bytes of memory.
const MAX_FRAMES: usize = 20_000;

/// Frames that are lost for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LostRange {
    /// Epoch they belong to.
    pub epoch: u64,
    /// First and last sequence number.
    pub first: u64,
    /// Last sequence number.
    pub last: u64,
    /// A recommender has them, and another one does not.
    pub elsewhere: bool,
}

/// What became of frames since this was last asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct News {
    /// Seconds frames that became minutes.
    pub folded: u64,
    /// Frames dropped for want of room.
    pub lost: Vec<LostRange>,
    /// Decisions that must arrive and found no room in a fold, by epoch and number.
    pub left_out: Vec<(u64, u64)>,
}

/// All epochs of this node.
#[derive(Debug)]
pub(super) struct Spool {
    dir: PathBuf,
    limit: u64,
    /// The recommenders that read it.
    names: Names,
    current: Epoch,
    /// Earlier runs with frames not acknowledged, oldest first.
    old: Vec<Epoch>,
    news: News,
    /// Codes frames anew until the next key frame, after this run's epoch was renewed.
    recoder: Option<Recoder>,
}

impl Spool {
    /// Opens the spool in `dir` for recommenders at these addresses and begins `epoch`; `limit` bounds the bytes on disk.
    pub(super) fn open(dir: &Path, epoch: u64, limit: u64, names: &[String]) -> Result<Self, SpoolError> {
        let (options, names): (Options, Names) = (options(limit), names.into());
        private::subdirectory(dir)?;
        renew::settle(dir, &names)?;
        let mut old = open_old(dir, epoch, &options, &names)?;
        old.sort_by_key(|(time, _)| *time);
        let current = Epoch::open(&epoch_dir(dir, epoch), epoch, options, &names)?;
        let old = old.into_iter().map(|(_, epoch)| epoch).collect();
        let (dir, news) = (dir.to_owned(), News::default());
        let mut spool = Self { dir, limit, names, current, old, news, recoder: None };
        while spool.old.len() > MAX_EPOCHS {
            spool.drop_epoch(0)?;
        }
        Ok(spool)
    }

    /// Writes a frame of this run; its sequence number is set here.
    ///
    /// On failure the frame is lost: the next one must be a key frame.
    pub(super) fn append(&mut self, frame: v1::Frame) -> Result<u64, SpoolError> {
        let frame = match &mut self.recoder {
            Some(recoder) if !frame::peek(&frame.samples).is_ok_and(|header| header.key) => {
                recoder.recode(frame)
            }
            _ => {
                self.recoder = None;
                Ok(frame)
            }
        };
        let result = self.make_room().and_then(|()| self.current.append(frame?));
        if result.is_err() {
            let last = self.current.next - 1;
            self.news.lost.push(LostRange { epoch: self.current.id, first: last, last, elsewhere: false });
        }
        result
    }

    /// Epochs with something to deliver to a recommender, oldest first; this run's comes last and is always there.
    pub(super) fn epochs(&self, reader: usize) -> Vec<u64> {
        let old = self.old.iter().filter(|e| !e.readers.of(reader).is_done);
        old.map(|e| e.id).chain([self.current.id]).collect()
    }

    /// This run's epoch.
    pub(super) fn current(&self) -> u64 {
        self.current.id
    }

    /// Frames of an epoch behind `after`, to be sent to a recommender: from now on they stay as they are until its handshake.
    pub(super) fn read(
        &mut self,
        reader: usize,
        epoch: u64,
        after: u64,
        max_frames: usize,
        max_bytes: usize,
    ) -> Vec<v1::Frame> {
        let epochs = self.old.iter_mut().chain([&mut self.current]);
        let Some(epoch) = epochs.into_iter().find(|e| e.id == epoch) else { return Vec::new() };
        let frames = epoch.read(after, max_frames, max_bytes, &mut self.news.lost);
        // Noted before they are sent: between the two they must not be folded.
        if let Some(last) = frames.last() {
            epoch.readers.sends(reader, last.sequence);
        }
        frames
    }

    /// Announcements of every slot that frames of this epoch not yet acknowledged may speak of.
    pub(super) fn announcements(&mut self, epoch: u64) -> Vec<v1::Announcement> {
        self.epoch(epoch).map(|epoch| epoch.slots.all()).unwrap_or_default()
    }

    /// Takes in a handshake with a recommender: everything up to `last` is durable there, nothing behind it is.
    ///
    /// # Errors
    /// [`SpoolError::Ahead`] when it is not what was ever sent: nothing was changed.
    pub(super) fn resume(&mut self, reader: usize, epoch: u64, last: u64) -> Result<(), SpoolError> {
        if let Some(epoch) = self.epoch(epoch) {
            epoch.can_have(reader, last)?;
            epoch.readers.resumes(reader, last);
        }
        self.acknowledge(reader, epoch, last)
    }

    /// Takes in an acknowledgement: what is durable with all recommenders is deleted, and an earlier run wholly delivered goes.
    ///
    /// # Errors
    /// [`SpoolError::Ahead`] when it is not of what was ever sent: nothing was changed.
    pub(super) fn acknowledge(&mut self, reader: usize, epoch: u64, last: u64) -> Result<(), SpoolError> {
        let Some(found) = self.epoch(epoch) else { return Ok(()) };
        found.can_have(reader, last)?;
        found.acknowledge(reader, last)?;
        let Some(at) = self.old.iter().position(|e| e.id == epoch) else { return Ok(()) };
        if self.old[at].is_delivered() {
            let done = self.old.remove(at);
            return remove_dir(done);
        }
        match self.old[at].is_delivered_to(reader) {
            true => self.old[at].readers.done(reader),
            false => Ok(()),
        }
    }

    /// Lists of slots that were not as they were written.
    pub(super) fn damaged(&self) -> usize {
        self.old.iter().chain([&self.current]).filter(|epoch| epoch.slots.damaged()).count()
    }

    /// Bytes on disk.
    pub(super) fn bytes(&self) -> u64 {
        self.old.iter().map(Epoch::bytes).sum::<u64>() + self.current.bytes()
    }

    /// What was folded and lost since this was last asked.
    pub(super) fn take_news(&mut self) -> News {
        std::mem::take(&mut self.news)
    }

    fn epoch(&mut self, id: u64) -> Option<&mut Epoch> {
        self.old.iter_mut().chain([&mut self.current]).find(|e| e.id == id)
    }

    /// Folds above three quarters of the bound, drops at the bound.
    fn make_room(&mut self) -> Result<(), SpoolError> {
        let seconds = self.current.entries.iter().filter(|e| !e.folded).count();
        if self.bytes() > self.limit / 4 * 3 || seconds > MAX_FRAMES {
            match fold::fold_oldest(&mut self.current) {
                Ok(folded) => {
                    let folded = folded.unwrap_or_default();
                    self.news.folded += folded.frames;
                    self.news.left_out.extend(folded.left_out);
                }
                // Frames that cannot be read again make way when their turn comes.
                Err(error) => tracing::warn!(%error, "spooled frames could not be folded"),
            }
        }
        // One more segment may be opened by the next frame.
        while self.bytes() + options(self.limit).segment_bytes > self.limit {
            if !self.drop_oldest()? {
                break;
            }
        }
        Ok(())
    }

    /// Drops the oldest frames there are; false when nothing can be dropped.
    fn drop_oldest(&mut self) -> Result<bool, SpoolError> {
        if let Some(epoch) = self.old.first_mut() {
            match epoch.oldest_unit() {
                Some(count) => drop_unit(epoch, count, &mut self.news)?,
                None => self.drop_epoch(0)?,
            }
            return Ok(true);
        }
        let Some(count) = self.current.oldest_unit() else { return Ok(false) };
        drop_unit(&mut self.current, count, &mut self.news)?;
        Ok(true)
    }

    fn drop_epoch(&mut self, at: usize) -> Result<(), SpoolError> {
        let epoch = self.old.remove(at);
        if let (Some(first), Some(last)) = (epoch.entries.front(), epoch.entries.back()) {
            let elsewhere = last.last <= epoch.readers.acknowledged_by_one();
            self.news.lost.push(LostRange {
                epoch: epoch.id,
                first: first.first,
                last: last.last,
                elsewhere,
            });
        }
        remove_dir(epoch)
    }
}

fn drop_unit(epoch: &mut Epoch, count: usize, news: &mut News) -> Result<(), SpoolError> {
    let (first, last) = (epoch.entries[0].first, epoch.entries[count - 1].last);
    let acknowledged = epoch.acknowledged();
    if last > acknowledged {
        let (first, elsewhere) = (first.max(acknowledged + 1), last <= epoch.readers.acknowledged_by_one());
        news.lost.push(LostRange { epoch: epoch.id, first, last, elsewhere });
    }
    epoch.remove_oldest(count)
}

fn remove_dir(epoch: Epoch) -> Result<(), SpoolError> {
    let dir = epoch.dir.clone();
    drop(epoch);
    fs::remove_dir_all(&dir).map_err(|e| directory("delete", &dir, e))
}

fn directory(op: &'static str, path: &Path, error: io::Error) -> SpoolError {
    SpoolError::Directory { op, path: path.to_owned(), error }
}

fn epoch_dir(dir: &Path, epoch: u64) -> PathBuf {
    dir.join(format!("{epoch:016x}"))
}

/// Small segments, because space is freed by whole ones; the bound itself is kept by [`Spool`] over all logs.
fn options(limit: u64) -> Options {
    Options {
        segment_bytes: (limit / 64).clamp(64 << 10, 1 << 20),
        max_bytes: limit,
        max_record_bytes: u32::try_from(limit / 4).unwrap_or(u32::MAX).min(4 << 20),
        buffer_bytes: 64 << 10,
        ..Options::default()
    }
}

/// Earlier runs that left frames, each with the time of its oldest one. Those without frames are deleted, those
/// that cannot be opened are said and left alone.
fn open_old(
    dir: &Path,
    current: u64,
    options: &Options,
    names: &Names,
) -> Result<Vec<(u64, Epoch)>, SpoolError> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(|e| directory("list", dir, e))? {
        let entry = entry.map_err(|e| directory("list", dir, e))?;
        let name = entry.file_name();
        let id = name.to_str().filter(|n| n.len() == 16).and_then(|n| u64::from_str_radix(n, 16).ok());
        let Some(id) = id.filter(|id| *id != current) else { continue };
        match Epoch::open(&entry.path(), id, options.clone(), names) {
            Ok(epoch) if epoch.entries.is_empty() || epoch.readers.acknowledged_by_all().is_none() => {
                remove_dir(epoch)?;
            }
            Ok(mut epoch) => found.push((epoch.oldest_time(), epoch)),
            Err(error) => {
                let path = entry.path();
                tracing::warn!(path = %path.display(), %error, "an earlier run's spool is left alone");
            }
        }
    }
    Ok(found)
}
