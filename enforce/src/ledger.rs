//! A ledger: a file in which each change of the kernel stands before it is made, so that it can be undone.
//!
//! Owned here: the one format (one JSON object a line behind its checksum; lines of the first release have none), its one
//! reader and its one writer, and the copy for a witness. An entry is with the kernel before the write it belongs to,
//! which is as durable as it has to be: knobs and processes themselves do not survive a crash of the machine, and
//! entries of an earlier boot are dropped. Not owned: what stands at present, which is for originals
//! [`crate::journal`] and for temporary settings [`crate::transients`].

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::write::{CgroupRef, ProcessId, Target};
use evenkeel_log::{private, sealed};
use serde::{Deserialize, Serialize};

/// What is written as one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
pub(crate) enum Line {
    /// First line: which boot the rest belongs to.
    Boot { boot_id: String },
    /// A knob's value before and after our first write.
    Original { target: Place, knob: String, old: String, new: String, container: Option<Place> },
    /// The value before was put back: the entry ends.
    Back { target: Place, knob: String },
    /// A cgroup is about to be frozen for one pass.
    Frozen { target: Place },
    /// It was thawed.
    Thawed { target: Place },
    /// A knob is about to be set temporarily.
    Held { target: Place, knob: String, old: String, new: String },
    /// It was put back.
    Released { target: Place, knob: String },
}

impl Line {
    /// A line as a file has it (sealed, or an object as a release before wrote it), or as a witness is told it.
    pub(crate) fn read(line: &str) -> Option<Self> {
        let text = if line.starts_with('{') { line } else { sealed::line(line)? };
        serde_json::from_str(text).ok()
    }
}

/// A target as a line names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", untagged)]
pub(crate) enum Place {
    Process { pid: u32, start_time: u64 },
    Cgroup { hierarchy: String, path: String, inode: u64 },
    Node { scope: Scope },
}

/// What a knob that is not of a cgroup or process belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Scope {
    Machine,
}

impl Place {
    /// The target; nothing where this machine knows no such hierarchy.
    pub(crate) fn target(&self) -> Option<Target> {
        Some(match self {
            Self::Process { pid, start_time } => {
                Target::Process(ProcessId { pid: *pid, start_time: *start_time })
            }
            Self::Cgroup { .. } => Target::Cgroup(self.cgroup()?),
            Self::Node { scope: Scope::Machine } => Target::Node,
        })
    }

    /// The cgroup, where it is one.
    pub(crate) fn cgroup(&self) -> Option<CgroupRef> {
        let Self::Cgroup { hierarchy, path, inode } = self else { return None };
        let all = Controller::ALL.into_iter().map(Hierarchy::V1).chain([Hierarchy::V2]);
        let hierarchy = all.into_iter().find(|h| h.to_string() == *hierarchy)?;
        Some(CgroupRef { hierarchy, inode: *inode, path: path.as_str().into() })
    }
}

impl From<&Target> for Place {
    fn from(target: &Target) -> Self {
        match target {
            Target::Process(id) => Self::Process { pid: id.pid, start_time: id.start_time },
            Target::Node => Self::Node { scope: Scope::Machine },
            Target::Cgroup(at) => at.into(),
        }
    }
}

impl From<&CgroupRef> for Place {
    fn from(at: &CgroupRef) -> Self {
        Self::Cgroup { hierarchy: at.hierarchy.to_string(), path: at.path.to_string(), inode: at.inode }
    }
}

/// The file, open for appending. Without one (dry run, `--once` without state) only a witness is told.
pub(crate) struct Ledger {
    /// What it holds, for the log: `originals`, `temporary settings`.
    what: &'static str,
    path: Option<PathBuf>,
    file: Option<File>,
    boot_id: String,
    pending: String,
    /// Lines since the file was last rewritten, of which some have been replaced by later ones.
    appended: usize,
    complained: bool,
    /// Told of what is temporary, as it happens.
    witness: Option<Box<dyn io::Write + Send>>,
}

impl Ledger {
    /// A ledger that is not kept.
    pub(crate) fn in_memory(what: &'static str, boot_id: &str) -> Self {
        Self {
            what,
            path: None,
            file: None,
            boot_id: boot_id.to_owned(),
            pending: String::new(),
            appended: 0,
            complained: false,
            witness: None,
        }
    }

    /// Opens (or begins) the file at `path`, whose lines of this boot go to `take`, which says whether it could use one.
    /// Returns how many could not be read or used. The caller rewrites it next.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn open(&mut self, path: PathBuf, mut take: impl FnMut(Line) -> bool) -> io::Result<usize> {
        let damaged = match private::read(&path) {
            Ok(bytes) => self.read(&String::from_utf8_lossy(&bytes), &mut take),
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        self.path = Some(path);
        Ok(damaged)
    }

    /// What an earlier boot wrote is of no use, damaged or not.
    fn read(&self, text: &str, take: &mut impl FnMut(Line) -> bool) -> usize {
        // The file is never empty but for the moment before it takes the place of the one before.
        let mut damaged = usize::from(text.is_empty());
        let mut ours = None;
        for line in text.lines() {
            match (Line::read(line), ours) {
                (Some(Line::Boot { boot_id }), _) => ours = Some(boot_id == self.boot_id),
                (_, Some(false)) => {}
                // Without its first line nobody knows of which boot an entry is.
                (None, _) | (Some(_), None) => damaged += 1,
                (Some(line), Some(true)) => damaged += usize::from(!take(line)),
            }
        }
        damaged
    }

    /// From now on what is temporary is also written to `witness`, a line each.
    pub(crate) fn set_witness(&mut self, witness: Box<dyn io::Write + Send>) {
        self.witness = Some(witness);
    }

    /// Whether there is a file.
    pub(crate) const fn is_kept(&self) -> bool {
        self.path.is_some()
    }

    /// Lines since the file was last rewritten.
    pub(crate) const fn appended(&self) -> usize {
        self.appended
    }

    /// Counts from here: a rewrite failed, and is tried again as long after.
    pub(crate) const fn put_off(&mut self) {
        self.appended = 0;
    }

    /// Notes a line, to be handed over with [`flush`](Self::flush).
    pub(crate) fn push(&mut self, line: &Line) {
        if self.path.is_some()
            && let Ok(text) = serde_json::to_string(line)
        {
            sealed::push_line(&mut self.pending, &text);
            self.appended += 1;
        }
    }

    /// Hands noted lines to the kernel; called before the writes they belong to. `all` is everything that stands, for a
    /// file that somebody deleted. False where no file took them.
    pub(crate) fn flush<I: Iterator<Item = Line>>(&mut self, all: impl FnOnce() -> I) -> bool {
        let pending = std::mem::take(&mut self.pending);
        if pending.is_empty() {
            return self.file.is_some();
        }
        let what = self.what;
        if self.file.as_ref().is_some_and(is_deleted) {
            tracing::error!(path = ?self.path, what, "a ledger was deleted; it is rewritten");
            let parent = self.path.as_deref().and_then(Path::parent);
            if let Err(error) =
                parent.map_or(Ok(()), std::fs::create_dir_all).and_then(|()| self.rewrite(all()))
            {
                tracing::error!(%error, path = ?self.path, what, "a ledger cannot be written; restore will not know what it lacks");
                return false;
            }
        }
        let Some(file) = self.file.as_mut() else { return false };
        match file.write_all(pending.as_bytes()) {
            Ok(()) => true,
            Err(error) => {
                if !std::mem::replace(&mut self.complained, true) {
                    tracing::error!(%error, path = ?self.path, what, "a ledger cannot be written; restore will not know what it lacks");
                }
                false
            }
        }
    }

    /// Tells the witness; true where there is one that listens.
    pub(crate) fn tell(&mut self, line: &Line) -> bool {
        let (Some(witness), Ok(text)) = (self.witness.as_mut(), serde_json::to_string(line)) else {
            return false;
        };
        if let Err(error) = witness.write_all(format!("{text}\n").as_bytes()).and_then(|()| witness.flush()) {
            tracing::warn!(%error, "the guardian does not listen any more; a kill of the agent may leave settings behind");
            self.witness = None;
        }
        self.witness.is_some()
    }

    /// Writes everything that stands into a new file, which takes the place of the old one, so that there is always a
    /// whole one.
    pub(crate) fn rewrite(&mut self, all: impl Iterator<Item = Line>) -> io::Result<()> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        let new = path.with_extension("new");
        let file = private::create(&new)?;
        // Line by line: all of them at once would be the largest thing the agent ever holds.
        let mut out = BufWriter::new(file);
        let mut text = String::new();
        for line in std::iter::once(Line::Boot { boot_id: self.boot_id.clone() }).chain(all) {
            text.clear();
            sealed::push_line(&mut text, &serde_json::to_string(&line)?);
            out.write_all(text.as_bytes())?;
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        std::fs::rename(&new, &path)?;
        // What was noted and not yet handed over is in the new file.
        self.pending = String::new();
        self.appended = 0;
        self.file = Some(file);
        Ok(())
    }
}

/// Whether somebody deleted an open file: what is written to it nobody will find.
fn is_deleted(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of a file that say what stands, and how many could not be read.
    fn read(text: &str, boot_id: &str) -> (Vec<Line>, usize) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger.jsonl");
        std::fs::write(&path, text).unwrap();
        let (mut lines, mut ledger) = (Vec::new(), Ledger::in_memory("lines", boot_id));
        let damaged = ledger.open(path.clone(), |line| {
            lines.push(line);
            true
        });
        // Written anew they are the same.
        ledger.rewrite(lines.clone().into_iter()).unwrap();
        let mut again = Vec::new();
        let opened = Ledger::in_memory("lines", boot_id).open(path, |line| {
            again.push(line);
            true
        });
        assert_eq!((opened.unwrap(), &again), (0, &lines));
        (lines, damaged.unwrap())
    }

    #[test]
    fn files_of_every_release_are_read() {
        const FIRST: &str = "53252c79-ae9e-4160-b363-748821424aa8";
        for (text, boot_id, count) in [
            (include_str!("../tests/fixtures/journal.jsonl"), "boot", 4),
            (include_str!("../tests/fixtures/transients.jsonl"), "boot", 5),
            (include_str!("../../tests/fixtures/first_release/agent/journal.jsonl"), FIRST, 11),
            (include_str!("../../tests/fixtures/first_release/agent/transients.jsonl"), FIRST, 0),
            (include_str!("../../tests/fixtures/first_release/agent/node/journal.jsonl"), FIRST, 0),
        ] {
            let (lines, damaged) = read(text, boot_id);
            assert_eq!((lines.len(), damaged), (count, 0));
            assert_eq!(read(text, "another boot"), (Vec::new(), 0));
        }
    }

    #[test]
    fn a_deleted_file_is_rewritten_with_what_stands_and_what_is_noted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("below").join("ledger.jsonl");
        std::fs::create_dir(dir.path().join("below")).unwrap();
        let line =
            |pid| Line::Back { target: Place::Process { pid, start_time: 1 }, knob: "cpu.idle".into() };
        let mut ledger = Ledger::in_memory("lines", "boot");
        ledger.open(path.clone(), |_| true).unwrap();
        ledger.rewrite([line(1)].into_iter()).unwrap();
        std::fs::remove_dir_all(dir.path().join("below")).unwrap();
        ledger.push(&line(2));
        assert!(ledger.flush(|| [line(1)].into_iter()));
        let (lines, damaged) = read(&std::fs::read_to_string(path).unwrap(), "boot");
        assert_eq!((lines, damaged), (vec![line(1), line(2)], 0));
    }
}
