//! Looking at a log that somebody may be writing, with its files held open: what they hold stays readable when they are trimmed.
//!
//! Nothing is locked, repaired, moved or deleted. Backups and checks are made of it; [`Log::open`](crate::Log::open) repairs.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::error::At;
use crate::scan::{Scan, scan};
use crate::{DamageReason, LogError, Seq, head, private, segment};

/// A segment as it was found.
#[derive(Debug)]
pub struct Piece {
    /// Its name.
    pub path: PathBuf,
    /// It, open for reading.
    pub file: File,
    /// Number of its first record.
    pub first: Seq,
    /// One past its last valid record.
    pub next: Seq,
    /// Bytes up to the end of the last valid record.
    pub valid: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// What is wrong with those after `valid`, or that something is missing before it. At the end of the last piece a torn
    /// record is what a running program writes.
    pub damage: Option<DamageReason>,
}

/// The segments of a log, oldest first, without those that a trim left behind.
#[derive(Debug, Default)]
pub struct Survey {
    /// The segments.
    pub pieces: Vec<Piece>,
    /// The trim pointer cannot be read.
    pub is_pointer_damaged: bool,
}

impl Survey {
    /// Looks at the log in `dir`. One that is trimmed meanwhile begins with what is left.
    ///
    /// # Errors
    /// A system call's failure, or [`LogError::Version`] for a segment of a later version.
    pub fn open(dir: &Path) -> Result<Self, LogError> {
        let (found, begins) = head::peek(dir)?;
        let mut firsts = Vec::new();
        for entry in fs::read_dir(dir).at("list", dir)? {
            let name = entry.at("list", dir)?.file_name();
            firsts.extend(name.to_str().and_then(segment::parse_name));
        }
        firsts.retain(|first| begins.is_none_or(|begins| *first >= begins));
        firsts.sort_unstable();
        let mut survey = Self { is_pointer_damaged: found == head::PointerState::Damaged, ..Self::default() };
        let mut opened = Vec::new();
        // All are open before the first is read, which takes longer than a trim.
        for first in firsts {
            let path = segment::path(dir, first);
            match private::options().read(true).open(&path) {
                Ok(file) => opened.push((first, path, file)),
                // Trimmed since it was listed, and so is everything before it.
                Err(e) if e.kind() == io::ErrorKind::NotFound => opened.clear(),
                Err(e) => return Err(LogError::io("open", &path, e)),
            }
        }
        for (first, path, file) in opened {
            let Scan { next, valid, len, mut damage, .. } = scan(&file, &path, first)?;
            let expected = survey.pieces.last().map_or(first, |before: &Piece| before.next);
            if expected < first {
                damage = Some(DamageReason::Gap { expected });
            } else if expected > first {
                damage = Some(DamageReason::Overlap { expected });
            }
            survey.pieces.push(Piece { path, file, first, next, valid, bytes: len, damage });
        }
        Ok(survey)
    }

    /// The longest valid prefix, as [`Log::open`](crate::Log::open) would keep it: how many pieces, the last of which may end early.
    #[must_use]
    pub fn whole(&self) -> usize {
        let follows = |piece: &Piece| {
            !matches!(piece.damage, Some(DamageReason::Gap { .. } | DamageReason::Overlap { .. }))
                && piece.valid > 0
        };
        let broken = self.pieces.iter().position(|piece| piece.damage.is_some());
        match broken {
            None => self.pieces.len(),
            Some(at) => at + usize::from(self.pieces.get(at).is_some_and(follows)),
        }
    }

    /// Number of the last record of that prefix.
    #[must_use]
    pub fn last(&self) -> Option<Seq> {
        let last = self.whole().checked_sub(1).and_then(|at| self.pieces.get(at))?;
        Seq::new(last.next.get().saturating_sub(1))
    }

    /// Whether a damage is what is seen of a log whose last record is being written, or was when its program was killed.
    #[must_use]
    pub fn is_torn_end(&self, at: usize) -> bool {
        let reason = self.pieces.get(at).and_then(|piece| piece.damage);
        let torn =
            matches!(reason, Some(DamageReason::TornHeader | DamageReason::TornRecord | DamageReason::Zeros));
        torn && at + 1 == self.pieces.len()
    }
}
