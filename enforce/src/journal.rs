//! The journal of originals: what a knob held before the agent first wrote it, and freezes not yet undone.
//!
//! Owned here: what stands in the ledger `journal.jsonl` in the state directory. An entry is written before the write it
//! belongs to. Not owned: the file (`ledger`), putting originals back ([`crate::restore`]).

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::write::{CgroupRef, Target, Write};

use crate::ledger::{Ledger, Line, Place};

/// File name in the state directory.
const FILE: &str = "journal.jsonl";
/// Entries below which the file is not rewritten, and the bound above which nothing more is noted: containers that
/// fork hundreds of thousands of wrong processes say the same with each.
const COMPACT_AT: usize = 8192;
const MAX_ENTRIES: usize = 262_144;

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
    ledger: Ledger,
    /// Boxed: a table is half empty right after it grew.
    originals: Originals,
    frozen: Vec<CgroupRef>,
    compact_at: usize,
    /// Entries in the file when it was last rewritten.
    rewritten: usize,
    /// Lines of the file that could not be read.
    damaged: usize,
}

impl Journal {
    /// Opens (or begins) the journal in `dir`; entries of another boot are dropped.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(dir: &Path, boot_id: &str) -> io::Result<Self> {
        let mut journal = Self::in_memory(boot_id);
        let Self { ledger, originals, frozen, .. } = &mut journal;
        journal.damaged = ledger.open(dir.join(FILE), |line| take(originals, frozen, &line).is_some())?;
        journal.rewrite()?;
        Ok(journal)
    }

    /// A journal that is not kept.
    pub fn in_memory(boot_id: &str) -> Self {
        Self {
            ledger: Ledger::in_memory("originals", boot_id),
            originals: HashMap::new(),
            frozen: Vec::new(),
            compact_at: COMPACT_AT,
            rewritten: 0,
            damaged: 0,
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
                self.ledger.push(&line);
            }
            return;
        }
        if self.originals.len() >= MAX_ENTRIES {
            return;
        }
        let original =
            Original { target: target.clone(), old, new, was: None, container: container.cloned() };
        self.ledger.push(&line_of(&original));
        self.originals.insert(key, Box::new(original));
    }

    /// Hands noted entries to the kernel; called once before the writes they belong to.
    pub(crate) fn flush(&mut self) {
        self.ledger.flush(|| standing(&self.originals, &self.frozen));
    }

    /// Notes that a cgroup is about to be frozen. False when the file did not take the note and no guardian has it: then it must not be
    /// frozen.
    #[must_use]
    pub(crate) fn begin_transient(&mut self, freeze: &Write) -> bool {
        let Target::Cgroup(at) = &freeze.target else { return true };
        self.frozen.push(at.clone());
        let is_noted = self.tell(&Line::Frozen { target: at.into() }) || !self.is_kept();
        if !is_noted {
            self.frozen.retain(|frozen| frozen != at);
        }
        is_noted
    }

    /// Whether there is a file.
    pub fn is_kept(&self) -> bool {
        self.ledger.is_kept()
    }

    /// Notes that it was thawed.
    pub(crate) fn end_transient(&mut self, freeze: &Write) {
        if let Target::Cgroup(at) = &freeze.target {
            self.frozen.retain(|frozen| frozen != at);
            self.tell(&Line::Thawed { target: at.into() });
        }
    }

    /// From now on freezes and thaws are also written to `witness`, a line each.
    pub(crate) fn set_witness(&mut self, witness: Box<dyn io::Write + Send>) {
        self.ledger.set_witness(witness);
    }

    /// True when the file or the guardian has the line.
    fn tell(&mut self, line: &Line) -> bool {
        self.ledger.push(line);
        let is_written = self.ledger.flush(|| standing(&self.originals, &self.frozen));
        self.ledger.tell(line) || is_written
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
        (self.rewritten + self.ledger.appended()).max(self.originals.len()) > self.compact_at
    }

    /// Drops entries for which `keep` says no (ended processes, removed cgroups) and rewrites the file.
    pub(crate) fn compact(&mut self, mut keep: impl FnMut(&Target) -> bool) {
        self.originals.retain(|(target, _), _| keep(target));
        self.compact_at = COMPACT_AT.max(self.originals.len() * 2);
        if let Err(error) = self.rewrite() {
            tracing::warn!(%error, "the journal of originals cannot be rewritten; it goes on growing");
        }
    }

    /// Forgets an original that was put back.
    pub(crate) fn forget(&mut self, target: &Target, knob: Knob) {
        if self.originals.remove(&(target.clone(), knob)).is_some() {
            self.ledger.push(&Line::Back { target: target.into(), knob: knob.name().to_owned() });
            self.flush();
        }
    }

    /// Writes the file anew with what stands.
    pub(crate) fn rewrite(&mut self) -> io::Result<()> {
        self.ledger.rewrite(standing(&self.originals, &self.frozen))?;
        self.rewritten = self.originals.len();
        Ok(())
    }
}

type Originals = HashMap<(Target, Knob), Box<Original>>;

/// Everything that has to be known after a restart.
fn standing(originals: &Originals, frozen: &[CgroupRef]) -> impl Iterator<Item = Line> {
    let frozen = frozen.iter().map(|at| Line::Frozen { target: at.into() });
    originals.values().flat_map(|original| lines_of(original)).chain(frozen)
}

/// Takes in one entry of this boot; nothing where its words mean nothing.
fn take(originals: &mut Originals, frozen: &mut Vec<CgroupRef>, line: &Line) -> Option<()> {
    match line {
        Line::Original { target, knob, old, new, container } => {
            let original = original(target, knob, old, new, container.as_ref())?;
            if originals.len() < MAX_ENTRIES {
                let key = (original.target.clone(), original.old.knob());
                let new = original.new;
                let known = originals.entry(key).or_insert_with(|| Box::new(original));
                if known.new != new {
                    known.was = Some(known.new);
                    known.new = new;
                }
            }
        }
        Line::Back { target, knob } => {
            originals.remove(&(target.target()?, knob.parse().ok()?));
        }
        Line::Frozen { target } => frozen.push(target.cgroup()?),
        Line::Thawed { target } => {
            let at = target.cgroup()?;
            frozen.retain(|frozen| *frozen != at);
        }
        Line::Boot { .. } | Line::Held { .. } | Line::Released { .. } => return None,
    }
    Some(())
}

/// All that has to be read back: the value before the last one too.
fn lines_of(original: &Original) -> impl Iterator<Item = Line> {
    let before = original.was.map(|was| line_of(&Original { new: was, ..original.clone() }));
    before.into_iter().chain([line_of(original)])
}

fn line_of(original: &Original) -> Line {
    Line::Original {
        target: (&original.target).into(),
        knob: original.old.knob().name().to_owned(),
        old: original.old.to_string(),
        new: original.new.to_string(),
        container: original.container.as_ref().map(Place::from),
    }
}

fn original(target: &Place, knob: &str, old: &str, new: &str, container: Option<&Place>) -> Option<Original> {
    let knob: Knob = knob.parse().ok()?;
    Some(Original {
        target: target.target()?,
        old: knob.parse(old.as_bytes())?,
        new: knob.parse(new.as_bytes())?,
        was: None,
        container: container.and_then(Place::cgroup),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    use evenkeel_host::freeze::freeze_write;
    use evenkeel_host::hierarchy::{Controller, Hierarchy};
    use evenkeel_host::write::ProcessId;
    use evenkeel_log::sealed;
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
        assert!(journal.begin_transient(&freeze_write(&cgroup(), true)));
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
        assert!(journal.begin_transient(&freeze_write(&cgroup(), true)));
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

    #[test]
    fn a_journal_of_an_earlier_agent_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = include_str!("../tests/fixtures/journal.jsonl");
        std::fs::write(dir.path().join(FILE), text).unwrap();
        let journal = Journal::open(dir.path(), "boot").unwrap();
        assert_eq!((journal.damaged(), journal.originals().count()), (0, 2));
        assert_eq!(journal.left_frozen(), [cgroup()]);
        let shares = |n| Setting::CpuShares(CpuShares::clamped(n));
        let found = journal.original(&Target::Cgroup(cgroup()), Knob::CpuShares).unwrap();
        assert_eq!((found.old, found.new, found.was), (shares(1024), shares(3), Some(shares(2))));
    }
}
