//! How far each recommender is with an epoch, and which of them still take it.
//!
//! Positions are in memory: after a restart each handshake states them anew. Which recommenders are done with an epoch that ended is kept
//! beside its frames, because one that has forgotten an epoch must not be sent it again.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_log::private;

use super::SpoolError;

/// Addresses of the recommenders, in the order of the configuration.
pub(super) type Names = Arc<[String]>;

/// File with the addresses of those that still take the epoch; all do where there is none.
const FILE: &str = "readers";

/// One recommender.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    /// Frames up to here may have reached it: they stay as they are.
    pub(super) sent: u64,
    /// Frames up to here were given out to be sent, however long ago.
    pub(super) told: u64,
    /// Frames up to here are durable there.
    pub(super) acknowledged: u64,
    /// It takes nothing more of this epoch.
    pub(super) is_done: bool,
}

/// All of them.
#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    names: Names,
    positions: Vec<Position>,
}

impl Readers {
    /// Those that take the epoch in a directory.
    pub(super) fn open(dir: &Path, names: &Names) -> Result<Self, SpoolError> {
        let path = dir.join(FILE);
        let text = match private::read(&path) {
            Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(SpoolError::Directory { op: "read", path, error }),
        };
        let takes = |name: &String| text.as_deref().is_none_or(|text| text.lines().any(|line| line == name));
        let positions =
            names.iter().map(|name| Position { is_done: !takes(name), ..Position::default() }).collect();
        Ok(Self { path, names: Arc::clone(names), positions })
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    /// How far one is; one that there is not is done.
    pub(super) fn of(&self, reader: usize) -> Position {
        let done = Position { is_done: true, ..Position::default() };
        self.positions.get(reader).copied().unwrap_or(done)
    }

    /// Frames up to `last` may be with any of them.
    pub(super) fn may_have(&mut self, last: u64) {
        for position in &mut self.positions {
            (position.sent, position.told) = (last, last);
        }
    }

    /// Frames up to `last` are given out to one.
    pub(super) fn sends(&mut self, reader: usize, last: u64) {
        if let Some(position) = self.positions.get_mut(reader) {
            (position.sent, position.told) = (position.sent.max(last), position.told.max(last));
        }
    }

    /// One has frames up to `last`, and nothing behind it.
    pub(super) fn resumes(&mut self, reader: usize, last: u64) {
        if let Some(position) = self.positions.get_mut(reader) {
            position.sent = last;
        }
    }

    /// To none of them anything was sent under this epoch's name, and frames up to `last` stay as they are all the same.
    pub(super) fn renewed(&mut self, last: u64) {
        for position in &mut self.positions {
            (position.sent, position.told, position.acknowledged) = (last, 0, 0);
        }
    }

    pub(super) fn acknowledge(&mut self, reader: usize, last: u64) {
        if let Some(position) = self.positions.get_mut(reader) {
            position.acknowledged = position.acknowledged.max(last);
        }
    }

    /// Frames up to here are durable with all that take the epoch; nothing where none does.
    pub(super) fn acknowledged_by_all(&self) -> Option<u64> {
        self.positions.iter().filter(|of| !of.is_done).map(|of| of.acknowledged).min()
    }

    /// Frames up to here are durable with one of them at least.
    pub(super) fn acknowledged_by_one(&self) -> u64 {
        self.positions.iter().map(|of| of.acknowledged).max().unwrap_or(0)
    }

    /// Whether each was never sent any of these frames, or has all of them.
    pub(super) fn are_free(&self, first: u64, last: u64) -> bool {
        self.positions
            .iter()
            .all(|of| of.is_done || first > of.sent.max(of.acknowledged) || last <= of.acknowledged)
    }

    /// One takes nothing more of the epoch; kept on disk.
    pub(super) fn done(&mut self, reader: usize) -> Result<(), SpoolError> {
        if let Some(position) = self.positions.get_mut(reader).filter(|of| !of.is_done) {
            position.is_done = true;
            return self.save();
        }
        Ok(())
    }

    /// Only one takes the epoch; kept on disk.
    pub(super) fn only(&mut self, reader: usize) -> Result<(), SpoolError> {
        for (at, position) in self.positions.iter_mut().enumerate() {
            position.is_done = at != reader;
        }
        self.save()
    }

    fn save(&self) -> Result<(), SpoolError> {
        let taking = self.names.iter().zip(&self.positions).filter(|(_, of)| !of.is_done);
        let text: String = taking.map(|(name, _)| format!("{name}\n")).collect();
        private::replace(&self.path, text.as_bytes(), false).map_err(|error| SpoolError::Directory {
            op: "write",
            path: self.path.clone(),
            error,
        })
    }
}

/// Takes a recommender out of those that take the epoch in a directory that is not open.
pub(super) fn done_on_disk(dir: &Path, name: &str, names: &Names) -> Result<(), SpoolError> {
    if let Some(reader) = names.iter().position(|known| known == name).filter(|_| dir.is_dir()) {
        Readers::open(dir, names)?.done(reader)?;
    }
    Ok(())
}
