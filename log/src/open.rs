//! Opening a log: lock, read the trim pointer, finish interrupted trims, find the longest valid prefix, move the rest
//! aside. Being killed anywhere in here and starting again leads to the same prefix.
//!
//! The prefix begins where the trim pointer says, not with the oldest file found: after a power failure a later segment
//! may have reached the disk without an earlier one, and what it holds must not look as if nothing came before it.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, uninterrupted};
use crate::error::At;
use crate::format::Seed;
use crate::head::{PointerState, TrimPointer};
use crate::lock::Lock;
use crate::private::{self, NotPrivate};
use crate::quarantine::{Quarantine, remove_if_there};
use crate::scan::{Scan, scan};
use crate::segment::{self, Segment};
use crate::{Damage, DamageOutcome, DamageReason, LogError, Options, Recovery, Seq};

/// Everything an open log is made of.
pub(crate) struct Opened {
    pub(crate) lock: Lock,
    pub(crate) head: TrimPointer,
    pub(crate) dir_file: File,
    pub(crate) segments: VecDeque<Segment>,
    /// The seed of the active segment, the last one.
    pub(crate) seed: Seed,
    pub(crate) recovery: Recovery,
}

/// Opens the log in `dir`, creating it where there is none.
pub(crate) fn open(dir: &Path, options: &Options, disk: &dyn Disk) -> Result<Opened, LogError> {
    options.validate()?;
    create_dir(dir)?;
    let lock = Lock::of_dir(dir)?;
    let dir_file = File::open(dir).at("open", dir)?;
    let (mut head, found) = TrimPointer::open(dir)?;
    let names = list(dir)?;
    let mut firsts: Vec<Seq> = names.iter().filter_map(|n| segment::parse_name(n)).collect();
    firsts.sort_unstable();

    let stale = firsts.partition_point(|first| Some(*first) < head.first());
    for first in firsts.drain(..stale) {
        remove_if_there(&segment::path(dir, first))?;
    }
    let mut search = Search {
        dir,
        disk,
        quarantine: Quarantine::open(dir, &names, options),
        segments: VecDeque::new(),
        seed: None,
        next: head.first().or(firsts.first().copied()).unwrap_or(Seq::FIRST),
        damage: head_damage(dir, &head, found, firsts.first().copied()),
    };
    for first in firsts {
        search.visit(first)?;
    }
    let Search { mut quarantine, mut segments, seed, next, damage, .. } = search;
    let seed = match seed {
        Some(seed) => seed,
        None => {
            let (segment, seed) = segment::create(disk, dir, next)?;
            segments.push_back(segment);
            seed
        }
    };
    prove_last(dir, &mut segments, disk)?;
    uninterrupted(|| disk.sync_dir(&dir_file)).at("sync", dir)?;
    let oldest = segments.front().map_or(next, |s| s.first);
    head.set(disk, oldest)?;
    let recovery = Recovery {
        first: (oldest < next).then_some(oldest),
        next,
        records: next.get() - oldest.get(),
        bytes: segments.iter().map(|s| s.bytes).sum(),
        finished_trims: stale,
        damage,
        evicted: quarantine.evict()?,
    };
    Ok(Opened { lock, head, dir_file, segments, seed, recovery })
}

/// The search for the longest valid prefix, segment by segment.
struct Search<'a> {
    dir: &'a Path,
    disk: &'a dyn Disk,
    quarantine: Quarantine,
    segments: VecDeque<Segment>,
    seed: Option<Seed>,
    /// The number the next record must have to belong to the prefix.
    next: Seq,
    damage: Vec<Damage>,
}

impl Search<'_> {
    /// Adds the segment beginning with `first` to the prefix as far as it is valid and follows without a gap. Once a
    /// record is missing every later segment has a gap before it, since their names only grow.
    fn visit(&mut self, first: Seq) -> Result<(), LogError> {
        let path = segment::path(self.dir, first);
        let expected = self.next;
        if first != expected {
            let reason = if first > expected {
                DamageReason::Gap { expected }
            } else {
                DamageReason::Overlap { expected }
            };
            let bytes = fs::metadata(&path).at("inspect", &path)?.len();
            return self.set_aside(&path, bytes, reason);
        }
        let file = private::options().read(true).write(true).open(&path);
        let file = file.at("open", &path)?;
        let Scan { seed, next, valid, len, damage } = scan(&file, &path, first)?;
        let Some(seed) = seed else {
            return self.set_aside(&path, len, damage.unwrap_or(DamageReason::TornHeader));
        };
        if let Some(reason) = damage {
            let outcome = self.quarantine.copy_tail(&path, &file, valid, len - valid);
            self.disk.set_len(&file, valid).at("truncate", &path)?;
            self.damage.push(Damage {
                path: path.clone(),
                offset: valid,
                bytes: len - valid,
                reason,
                outcome,
            });
        }
        // What is read now may be in the kernel's memory only; after this sync all of it counts as durable.
        uninterrupted(|| self.disk.sync_data(&file)).at("sync", &path)?;
        if let Some(previous) = self.segments.back_mut() {
            previous.file = None;
        }
        self.segments.push_back(Segment {
            first,
            next,
            bytes: valid,
            durable_next: next,
            durable_bytes: Some(valid),
            file: Some(Arc::new(file)),
        });
        (self.next, self.seed) = (next, Some(seed));
        Ok(())
    }

    fn set_aside(&mut self, path: &Path, bytes: u64, reason: DamageReason) -> Result<(), LogError> {
        let outcome = self.quarantine.move_file(path, bytes)?;
        self.damage.push(Damage { path: path.to_owned(), offset: 0, bytes, reason, outcome });
        Ok(())
    }
}

/// What the trim pointer tells by itself: it may be unreadable, or nothing of what it promises may be there. Where only
/// the oldest segments are missing, each of the others has a gap before it.
fn head_damage(dir: &Path, head: &TrimPointer, found: PointerState, oldest: Option<Seq>) -> Vec<Damage> {
    let (path, reason) = match (found, head.first()) {
        (PointerState::Damaged, _) => (head.path().to_owned(), DamageReason::Pointer),
        (_, Some(expected)) if oldest.is_none() => {
            (segment::path(dir, expected), DamageReason::Gap { expected })
        }
        _ => return Vec::new(),
    };
    vec![Damage { path, offset: 0, bytes: 0, reason, outcome: DamageOutcome::Nothing }]
}

/// Syncs the active segment where it was created just now.
fn prove_last(dir: &Path, segments: &mut VecDeque<Segment>, disk: &dyn Disk) -> Result<(), LogError> {
    if let Some(last) = segments.back_mut().filter(|s| s.is_behind()) {
        if let Some(file) = &last.file {
            uninterrupted(|| disk.sync_data(file)).at("sync", &segment::path(dir, last.first))?;
        }
        last.durable_bytes = Some(last.bytes);
    }
    Ok(())
}

/// Creates the directory, readable by its owner alone, and makes its name durable. One that is there is private or
/// made so, and no symbolic link.
fn create_dir(dir: &Path) -> Result<(), LogError> {
    let known = dir.is_dir();
    private::subdirectory(dir).map_err(|error| match error {
        NotPrivate::Unusable { path, source } => LogError::io("create", &path, source),
        source => LogError::NotPrivate { source },
    })?;
    if let Some(parent) = dir.parent().filter(|p| !known && !p.as_os_str().is_empty()) {
        File::open(parent).and_then(|p| p.sync_all()).at("sync", parent)?;
    }
    Ok(())
}

/// The names in the directory that are text; others are not ours.
fn list(dir: &Path) -> Result<Vec<String>, LogError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).at("list", dir)? {
        names.extend(entry.at("list", dir)?.file_name().into_string());
    }
    Ok(names)
}
