//! The journal of originals: what a knob held before the agent first wrote it, and freezes not yet undone.
//!
//! Owned here: the file `journal.jsonl` in the state directory, one JSON object a line behind its checksum (lines of a
//! release before have none). An entry is written before
//! the write it belongs to. It is with the kernel then, which is as durable as it has to be: knobs and processes
//! themselves do not survive a crash of the machine, and entries of an earlier boot are dropped. Not owned: putting
//! originals back ([`crate::restore`]).

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::write::{CgroupRef, ProcessId, Target, Write};
use evenkeel_log::{private, sealed};
use serde::{Deserialize, Serialize};

/// File name in the state directory.
const FILE: &str = "journal.jsonl";
/// Entries below which the file is not rewritten, and the bound above which nothing more is noted: containers that
/// fork hundreds of thousands of wrong processes say the same with each.
const COMPACT_AT: usize = 8192;
const MAX_ENTRIES: usize = 262_144;

/// What is written as one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
enum Line {
    /// First line: which boot the rest belongs to.
    Boot { boot_id: String },
    /// A knob's value before and after our first write.
    Original { target: Place, knob: String, old: String, new: String, container: Option<Place> },
    /// The value before was put back: the entry ends.
    Back { target: Place, knob: String },
    /// A cgroup is about to be frozen.
    Frozen { target: Place },
    /// It was thawed.
    Thawed { target: Place },
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

/// One original, read back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Original {
    /// What was written.
    pub target: Target,
    /// What it held before.
    pub old: Setting,
    /// What we set.
    pub new: Setting,
    /// What we had set before that: it still stands where the last write was noted and not made.
    pub was: Option<Setting>,
    /// For a process, the container it was in.
    pub container: Option<CgroupRef>,
}

/// The journal, open for appending. Without a file (dry run, `--once` without state) it only remembers.
pub struct Journal {
    path: Option<PathBuf>,
    file: Option<File>,
    boot_id: String,
    /// Boxed: a table is half empty right after it grew.
    originals: HashMap<(Target, Knob), Box<Original>>,
    frozen: Vec<CgroupRef>,
    pending: String,
    compact_at: usize,
    /// Entries in the file, of which some may have been replaced by later ones.
    lines: usize,
    complained: bool,
    /// Lines of the file that could not be read.
    damaged: usize,
    /// Told of freezes and thaws as they happen.
    witness: Option<Box<dyn io::Write + Send>>,
}

/// Whether somebody deleted an open file: what is written to it nobody will find.
pub(crate) fn is_deleted(file: &File) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    file.metadata().is_ok_and(|metadata| metadata.nlink() == 0)
}

/// A freeze or its end, as a witness reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Transient {
    /// A cgroup is about to be frozen.
    Frozen(CgroupRef),
    /// It was thawed.
    Thawed(CgroupRef),
}

impl Journal {
    /// Opens (or begins) the journal in `dir`; entries of another boot are dropped.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(dir: &Path, boot_id: &str) -> io::Result<Self> {
        let path = dir.join(FILE);
        let mut journal = Self::in_memory(boot_id);
        match private::read(&path) {
            Ok(bytes) => journal.read(&String::from_utf8_lossy(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        journal.path = Some(path);
        journal.rewrite()?;
        Ok(journal)
    }

    /// A journal that is not kept.
    pub fn in_memory(boot_id: &str) -> Self {
        Self {
            path: None,
            file: None,
            boot_id: boot_id.to_owned(),
            originals: HashMap::new(),
            frozen: Vec::new(),
            pending: String::new(),
            compact_at: COMPACT_AT,
            lines: 0,
            complained: false,
            damaged: 0,
            witness: None,
        }
    }

    /// The file in a state directory.
    pub fn path_in(dir: &Path) -> PathBuf {
        dir.join(FILE)
    }

    /// Lines of this boot that could not be read when the file was opened.
    pub const fn damaged(&self) -> usize {
        self.damaged
    }

    /// Notes what a knob holds before it is written for the first time. Later calls for it keep that, and note what
    /// is set now, by which our own value is known from that of somebody else.
    pub(crate) fn note(
        &mut self,
        target: &Target,
        old: Setting,
        new: Setting,
        container: Option<&CgroupRef>,
    ) {
        let key = (target.clone(), old.knob());
        if let Some(known) = self.originals.get_mut(&key) {
            if known.new != new {
                known.was = Some(known.new);
                known.new = new;
                let line = line_of(known);
                self.lines += 1;
                self.push(&line);
            }
            return;
        }
        if self.originals.len() >= MAX_ENTRIES {
            return;
        }
        self.lines += 1;
        let original =
            Original { target: target.clone(), old, new, was: None, container: container.cloned() };
        self.push(&line_of(&original));
        self.originals.insert(key, Box::new(original));
    }

    /// Hands noted entries to the kernel; called once before the writes they belong to.
    pub(crate) fn flush(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        if self.file.as_ref().is_some_and(is_deleted) {
            tracing::error!(path = ?self.path, "the journal of originals was deleted; it is written anew");
            // Everything is in memory, what is pending too.
            let parent = self.path.as_deref().and_then(Path::parent);
            if let Err(error) = parent.map_or(Ok(()), std::fs::create_dir_all).and_then(|()| self.rewrite()) {
                tracing::error!(%error, path = ?self.path, "originals cannot be journalled; restore will not know them");
            }
            return;
        }
        if let Some(file) = self.file.as_mut()
            && let Err(error) = file.write_all(self.pending.as_bytes())
            && !std::mem::replace(&mut self.complained, true)
        {
            tracing::error!(%error, path = ?self.path, "originals cannot be journalled; restore will not know them");
        }
        self.pending.clear();
    }

    /// Notes that a cgroup is about to be frozen.
    pub(crate) fn begin_transient(&mut self, freeze: &Write) {
        if let Target::Cgroup(at) = &freeze.target {
            self.frozen.push(at.clone());
            self.tell_transient(&Line::Frozen { target: place_of(&freeze.target) });
        }
    }

    /// Notes that it was thawed.
    pub(crate) fn end_transient(&mut self, freeze: &Write) {
        if let Target::Cgroup(at) = &freeze.target {
            self.frozen.retain(|frozen| frozen != at);
            self.tell_transient(&Line::Thawed { target: place_of(&freeze.target) });
        }
    }

    /// From now on freezes and thaws are also written to `witness`, a line each.
    pub(crate) fn set_witness(&mut self, witness: Box<dyn io::Write + Send>) {
        self.witness = Some(witness);
    }

    /// What a line of the witness says; `None` for anything else.
    pub(crate) fn read_transient(line: &str) -> Option<Transient> {
        match serde_json::from_str(line).ok()? {
            Line::Frozen { target } => cgroup_of(&target).map(Transient::Frozen),
            Line::Thawed { target } => cgroup_of(&target).map(Transient::Thawed),
            Line::Boot { .. } | Line::Original { .. } | Line::Back { .. } => None,
        }
    }

    fn tell_transient(&mut self, line: &Line) {
        self.push(line);
        self.flush();
        if let (Some(witness), Ok(text)) = (self.witness.as_mut(), serde_json::to_string(line))
            && let Err(error) =
                witness.write_all(format!("{text}\n").as_bytes()).and_then(|()| witness.flush())
        {
            tracing::warn!(%error, "the guardian does not listen any more; a kill of the agent may leave a cgroup frozen");
            self.witness = None;
        }
    }

    /// Cgroups that an earlier run froze and did not thaw.
    pub(crate) fn left_frozen(&self) -> &[CgroupRef] {
        &self.frozen
    }

    /// Every original, in no particular order.
    pub(crate) fn originals(&self) -> impl Iterator<Item = &Original> {
        self.originals.values().map(AsRef::as_ref)
    }

    /// What one knob held before it was first written, if it was.
    pub(crate) fn original(&self, target: &Target, knob: Knob) -> Option<&Original> {
        self.originals.get(&(target.clone(), knob)).map(AsRef::as_ref)
    }

    /// True when many entries have been noted since the file was last rewritten.
    pub(crate) fn wants_compacting(&self) -> bool {
        self.lines.max(self.originals.len()) > self.compact_at
    }

    /// Drops entries for which `keep` says no (ended processes, removed cgroups) and rewrites the file.
    pub(crate) fn compact(&mut self, mut keep: impl FnMut(&Target) -> bool) {
        self.originals.retain(|(target, _), _| keep(target));
        self.compact_at = COMPACT_AT.max(self.originals.len() * 2);
        if let Err(error) = self.rewrite() {
            tracing::warn!(%error, path = ?self.path, "the journal of originals cannot be rewritten; it goes on growing");
        }
    }

    /// Forgets an original that was put back.
    pub(crate) fn forget(&mut self, target: &Target, knob: Knob) {
        if self.originals.remove(&(target.clone(), knob)).is_some() {
            self.lines += 1;
            self.push(&Line::Back { target: place_of(target), knob: knob.name().to_owned() });
            self.flush();
        }
    }

    /// Writes a new file beside the old one and takes its place, so that there is always a whole one.
    pub(crate) fn rewrite(&mut self) -> io::Result<()> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        let new = path.with_extension("new");
        let file = private::create(&new)?;
        // Line by line: all of them at once would be the largest thing the agent ever holds.
        let mut out = BufWriter::new(file);
        let frozen =
            self.frozen.iter().map(|at| Line::Frozen { target: place_of(&Target::Cgroup(at.clone())) });
        let mut text = String::new();
        let first = Line::Boot { boot_id: self.boot_id.clone() };
        for line in [first].into_iter().chain(self.originals().flat_map(lines_of)).chain(frozen) {
            text.clear();
            sealed::push_line(&mut text, &serde_json::to_string(&line)?);
            out.write_all(text.as_bytes())?;
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        std::fs::rename(&new, &path)?;
        // What was noted and not yet handed over is in the new file.
        self.pending = String::new();
        self.lines = self.originals.len();
        self.file = Some(file);
        Ok(())
    }

    fn push(&mut self, line: &Line) {
        if self.path.is_some()
            && let Ok(text) = serde_json::to_string(line)
        {
            sealed::push_line(&mut self.pending, &text);
        }
    }

    /// Lines that do not read are counted; what an earlier boot wrote is of no use, damaged or not.
    fn read(&mut self, text: &str) {
        // The file is never empty but for the moment before it takes the place of the one before.
        self.damaged += usize::from(text.is_empty());
        let mut ours = None;
        for line in text.lines() {
            let line = text_of(line).and_then(|text| serde_json::from_str::<Line>(text).ok());
            match (line, ours) {
                (Some(Line::Boot { boot_id }), _) => ours = Some(boot_id == self.boot_id),
                (_, Some(false)) => {}
                // Without its first line nobody knows of which boot an entry is.
                (None, _) | (Some(_), None) => self.damaged += 1,
                (Some(line), Some(true)) => {
                    if self.take(line).is_none() {
                        self.damaged += 1;
                    }
                }
            }
        }
    }

    /// Takes in one entry of this boot; nothing where its words mean nothing.
    fn take(&mut self, line: Line) -> Option<()> {
        match line {
            Line::Boot { .. } => {}
            Line::Original { target, knob, old, new, container } => {
                let original = original(&target, &knob, &old, &new, container.as_ref())?;
                if self.originals.len() < MAX_ENTRIES {
                    let key = (original.target.clone(), original.old.knob());
                    let new = original.new;
                    let known = self.originals.entry(key).or_insert_with(|| Box::new(original));
                    if known.new != new {
                        known.was = Some(known.new);
                        known.new = new;
                    }
                }
            }
            Line::Back { target, knob } => {
                self.originals.remove(&(target_of(&target)?, knob.parse().ok()?));
            }
            Line::Frozen { target } => self.frozen.push(cgroup_of(&target)?),
            Line::Thawed { target } => {
                let at = cgroup_of(&target)?;
                self.frozen.retain(|frozen| *frozen != at);
            }
        }
        Some(())
    }
}

/// The text of a line of a journal: sealed, or an object as a release before wrote it.
pub(crate) fn text_of(line: &str) -> Option<&str> {
    if line.starts_with('{') { Some(line) } else { sealed::line(line) }
}

/// All that has to be read back: the value before the last one too.
fn lines_of(original: &Original) -> impl Iterator<Item = Line> {
    let before = original.was.map(|was| line_of(&Original { new: was, ..original.clone() }));
    before.into_iter().chain([line_of(original)])
}

fn line_of(original: &Original) -> Line {
    Line::Original {
        target: place_of(&original.target),
        knob: original.old.knob().name().to_owned(),
        old: original.old.to_string(),
        new: original.new.to_string(),
        container: original.container.clone().map(|at| place_of(&Target::Cgroup(at))),
    }
}

fn original(target: &Place, knob: &str, old: &str, new: &str, container: Option<&Place>) -> Option<Original> {
    let knob: Knob = knob.parse().ok()?;
    Some(Original {
        target: target_of(target)?,
        old: knob.parse(old.as_bytes())?,
        new: knob.parse(new.as_bytes())?,
        was: None,
        container: container.and_then(cgroup_of),
    })
}

fn target_of(place: &Place) -> Option<Target> {
    Some(match place {
        Place::Process { pid, start_time } => {
            Target::Process(ProcessId { pid: *pid, start_time: *start_time })
        }
        place @ Place::Cgroup { .. } => Target::Cgroup(cgroup_of(place)?),
        Place::Node { scope: Scope::Machine } => Target::Node,
    })
}

pub(crate) fn place_of(target: &Target) -> Place {
    match target {
        Target::Process(id) => Place::Process { pid: id.pid, start_time: id.start_time },
        Target::Node => Place::Node { scope: Scope::Machine },
        Target::Cgroup(at) => {
            Place::Cgroup { hierarchy: at.hierarchy.to_string(), path: at.path.clone(), inode: at.inode }
        }
    }
}

pub(crate) fn cgroup_of(place: &Place) -> Option<CgroupRef> {
    let Place::Cgroup { hierarchy, path, inode } = place else { return None };
    let all = Controller::ALL.into_iter().map(Hierarchy::V1).chain([Hierarchy::V2]);
    let hierarchy = all.into_iter().find(|h| h.to_string() == *hierarchy)?;
    Some(CgroupRef { hierarchy, inode: *inode, path: path.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_host::freeze::freeze_write;
    use evenkeel_model::units::{CpuShares, OomScoreAdj};

    fn cgroup() -> CgroupRef {
        CgroupRef { hierarchy: Hierarchy::V1(Controller::Cpu), inode: 7, path: "/a b/\"c\"".into() }
    }

    fn score(value: i64) -> Setting {
        Setting::OomScoreAdj(OomScoreAdj::clamped(value))
    }

    #[test]
    fn the_first_value_is_kept_and_survives_a_restart_but_not_a_boot() {
        let dir = tempfile::tempdir().unwrap();
        let process = Target::Process(ProcessId { pid: 5, start_time: 9 });
        let shares = |n| Setting::CpuShares(CpuShares::clamped(n));
        let mut journal = Journal::open(dir.path(), "boot").unwrap();
        journal.note(&process, score(0), score(500), Some(&cgroup()));
        journal.note(&process, score(500), score(600), Some(&cgroup()));
        journal.note(&Target::Cgroup(cgroup()), shares(1024), shares(2), None);
        journal.flush();
        journal.begin_transient(&freeze_write(&cgroup(), true));
        drop(journal);
        // A torn line at the end does not hide the rest.
        let mut file = std::fs::OpenOptions::new().append(true).open(dir.path().join(FILE)).unwrap();
        file.write_all(b"{\"what\":\"orig").unwrap();
        let mut journal = Journal::open(dir.path(), "boot").unwrap();
        assert_eq!(journal.damaged(), 1);
        assert_eq!(journal.originals().count(), 2);
        let of_process = journal.originals().find(|o| o.target == process).unwrap();
        assert_eq!((of_process.old, of_process.container.clone()), (score(0), Some(cgroup())));
        assert_eq!(journal.left_frozen(), [cgroup()]);
        journal.end_transient(&freeze_write(&cgroup(), true));
        journal.compact(|target| *target == process);
        drop(journal);
        let journal = Journal::open(dir.path(), "boot").unwrap();
        assert_eq!((journal.originals().count(), journal.left_frozen().len()), (1, 0));
        let other = Journal::open(dir.path(), "another").unwrap();
        assert_eq!(other.originals().count(), 0);
    }

    #[test]
    fn the_value_before_the_last_is_known_after_a_restart_too() {
        let dir = tempfile::tempdir().unwrap();
        let at = Target::Cgroup(cgroup());
        let shares = |n| Setting::CpuShares(CpuShares::clamped(n));
        let mut journal = Journal::open(dir.path(), "boot").unwrap();
        journal.note(&at, shares(1024), shares(512), None);
        journal.note(&at, shares(512), shares(256), None);
        journal.flush();
        // The first reading is of the lines as they came, the second of the file written anew.
        for _ in 0..2 {
            let journal = Journal::open(dir.path(), "boot").unwrap();
            let original = journal.original(&at, Knob::CpuShares).unwrap();
            assert_eq!(
                (original.old, original.new, original.was),
                (shares(1024), shares(256), Some(shares(512)))
            );
        }
        let mut journal = Journal::open(dir.path(), "boot").unwrap();
        journal.forget(&at, Knob::CpuShares);
        assert_eq!(Journal::open(dir.path(), "boot").unwrap().originals().count(), 0);
    }

    /// A journal with a process, a cgroup and a freeze, as it is on disk.
    fn written(dir: &Path) -> Vec<u8> {
        let process = Target::Process(ProcessId { pid: 5, start_time: 9 });
        let shares = |n| Setting::CpuShares(CpuShares::clamped(n));
        let mut journal = Journal::open(dir, "boot").unwrap();
        journal.note(&process, score(0), score(500), Some(&cgroup()));
        journal.note(&Target::Cgroup(cgroup()), shares(1024), shares(2), None);
        journal.flush();
        journal.begin_transient(&freeze_write(&cgroup(), true));
        std::fs::read(dir.join(FILE)).unwrap()
    }

    #[test]
    fn every_flipped_bit_and_every_cut_within_a_line_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (file, whole) = (dir.path().join(FILE), written(dir.path()));
        let damaged = |bytes: &[u8], what: &str| {
            std::fs::write(&file, bytes).unwrap();
            let journal = Journal::open(dir.path(), "boot").unwrap();
            assert!(journal.damaged() > 0, "{what}");
        };
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            damaged(&bytes, &format!("flipped at {at}"));
            if at == 0 || whole[at - 1] != b'\n' && whole[at] != b'\n' {
                damaged(&whole[..at], &format!("cut at {at}"));
            }
        }
        std::fs::write(&file, &whole).unwrap();
        assert_eq!(Journal::open(dir.path(), "boot").unwrap().damaged(), 0);
        // What another boot left is of no use, damaged or not.
        std::fs::write(&file, &whole[..whole.len() - 3]).unwrap();
        assert_eq!(Journal::open(dir.path(), "another").unwrap().damaged(), 0);
    }

    #[test]
    fn a_journal_without_checksums_is_still_read() {
        let dir = tempfile::tempdir().unwrap();
        let (file, whole) = (dir.path().join(FILE), String::from_utf8(written(dir.path())).unwrap());
        let plain: String = whole.lines().flat_map(|line| [sealed::line(line).unwrap(), "\n"]).collect();
        std::fs::write(&file, plain).unwrap();
        let journal = Journal::open(dir.path(), "boot").unwrap();
        assert_eq!((journal.damaged(), journal.originals().count(), journal.left_frozen().len()), (0, 2, 1));
    }

    #[test]
    fn a_symbolic_link_in_its_place_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join("journal.new")).unwrap();
        let error = Journal::open(dir.path(), "boot").map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("symbolic link"), "{error}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    }
}
