//! The journal of transient settings: what the pressure loop changed for a while and has not put back.
//!
//! Owned here: the file `transients.jsonl` in the state directory, the lines the guardian reads of it, and how a
//! transient setting is undone. An entry is with the kernel and with the guardian before the write it belongs to.
//! Not owned: standing settings and freezes of a single pass ([`crate::journal`]), what is changed and why
//! ([`crate::holds`]).

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use evenkeel_host::freeze::freeze_write;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, HostWriter, Outcome, Target, Write};
use evenkeel_log::{private, sealed};
use evenkeel_model::units::{CpuShares, CpuWeight};
use serde::{Deserialize, Serialize};

use crate::journal::{Place, cgroup_of, is_deleted, place_of, text_of};
use crate::shared::lock;

/// File name in the state directory.
const FILE: &str = "transients.jsonl";
/// Lines after which the file is written anew with what still stands.
const COMPACT_AT: usize = 4096;
/// Settings in force at one time: several for each of five thousand containers. More are refused.
const MAX_ENTRIES: usize = 32_768;
/// What a knob was set to last and before: a crash between the note and the write leaves the value before.
const VALUES_KEPT: usize = 2;

/// What is written as one line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "what")]
enum Line {
    /// First line: which boot the rest belongs to.
    Boot { boot_id: String },
    /// A knob is about to be set for a while.
    Held { target: Place, knob: String, old: String, new: String },
    /// It was put back.
    Released { target: Place, knob: String },
}

/// One transient setting in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Whose.
    pub at: CgroupRef,
    /// What the knob held before the first write.
    pub old: Setting,
    /// What we set it to, oldest first; never empty.
    pub ours: Vec<Setting>,
}

impl Entry {
    fn is(&self, at: &CgroupRef, knob: Knob) -> bool {
        self.old.knob() == knob && self.at == *at
    }
}

/// Entries in the order in which they were first made: what a guardian remembers, and the whole of the journal.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Vec<Entry>,
}

impl Ledger {
    /// Takes in one line; false for anything that is not one of ours.
    pub(crate) fn read(&mut self, line: &str) -> bool {
        match serde_json::from_str(line) {
            Ok(Line::Held { target, knob, old, new }) => {
                let parsed = || {
                    let knob: Knob = knob.parse().ok()?;
                    Some((cgroup_of(&target)?, knob.parse(old.as_bytes())?, knob.parse(new.as_bytes())?))
                };
                let Some((at, old, new)) = parsed() else { return false };
                self.hold(&at, old, new);
            }
            Ok(Line::Released { target, knob }) => {
                let (Some(at), Ok(knob)) = (cgroup_of(&target), knob.parse()) else { return false };
                self.release(&at, knob);
            }
            Ok(Line::Boot { .. }) | Err(_) => return false,
        }
        true
    }

    fn hold(&mut self, at: &CgroupRef, old: Setting, new: Setting) {
        match self.entries.iter_mut().find(|entry| entry.is(at, old.knob())) {
            Some(entry) => {
                entry.ours.push(new);
                let excess = entry.ours.len().saturating_sub(VALUES_KEPT);
                entry.ours.drain(..excess);
            }
            None => self.entries.push(Entry { at: at.clone(), old, ours: vec![new] }),
        }
    }

    fn release(&mut self, at: &CgroupRef, knob: Knob) {
        self.entries.retain(|entry| !entry.is(at, knob));
    }

    /// Everything in force in the order in which it has to be undone: frozen processes first, then the newest.
    pub(crate) fn to_undo(&self) -> Vec<Entry> {
        let is_freeze = |entry: &Entry| matches!(entry.old.knob(), Knob::FreezerState | Knob::CgroupFreeze);
        let (mut frozen, rest): (Vec<Entry>, Vec<Entry>) =
            self.entries.iter().rev().cloned().partition(is_freeze);
        frozen.extend(rest);
        frozen
    }
}

/// The journal, shared by whoever holds settings.
pub struct Transients {
    inner: Mutex<Inner>,
    /// Lines of this boot that could not be read when the file was opened.
    damaged: usize,
}

struct Inner {
    path: Option<PathBuf>,
    file: Option<File>,
    boot_id: String,
    ledger: Ledger,
    lines: usize,
    complained: bool,
    witness: Option<Box<dyn io::Write + Send>>,
}

impl Transients {
    /// Opens (or begins) the journal in `dir`; entries of another boot are dropped.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(dir: &Path, boot_id: &str) -> io::Result<Self> {
        let path = dir.join(FILE);
        let (mut ledger, mut damaged) = (Ledger::default(), 0);
        match private::read(&path) {
            Ok(bytes) => damaged = read_back(&String::from_utf8_lossy(&bytes), boot_id, &mut ledger),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let mut inner = Inner { path: Some(path), ledger, ..Inner::in_memory(boot_id) };
        inner.rewrite()?;
        Ok(Self { inner: Mutex::new(inner), damaged })
    }

    /// The file in a state directory.
    pub fn path_in(dir: &Path) -> PathBuf {
        dir.join(FILE)
    }

    /// Lines of this boot that could not be read when the file was opened.
    pub const fn damaged(&self) -> usize {
        self.damaged
    }

    /// A journal without a file: only a guardian would know of what it holds.
    pub fn in_memory(boot_id: &str) -> Self {
        Self { inner: Mutex::new(Inner::in_memory(boot_id)), damaged: 0 }
    }

    /// From now on each line also goes to `witness`.
    pub(crate) fn set_witness(&self, witness: Box<dyn io::Write + Send>) {
        let mut inner = lock(&self.inner);
        inner.witness = Some(witness);
        for entry in inner.ledger.entries.clone() {
            for line in lines_of(&entry) {
                inner.tell(&line);
            }
        }
    }

    /// Notes that a knob is about to be set to `new` for a while. False when nobody would undo it: neither file nor
    /// guardian took the note, or too many stand already. Then it must not be set.
    #[must_use]
    pub(crate) fn begin(&self, at: &CgroupRef, old: Setting, new: Setting) -> bool {
        let mut inner = lock(&self.inner);
        let known = inner.ledger.entries.iter().any(|entry| entry.is(at, old.knob()));
        if !known && inner.ledger.entries.len() >= MAX_ENTRIES {
            return false;
        }
        let noted = inner.write(&held(at, old, new));
        if noted {
            inner.ledger.hold(at, old, new);
        }
        noted
    }

    /// Notes that it was put back.
    pub(crate) fn end(&self, at: &CgroupRef, knob: Knob) {
        let mut inner = lock(&self.inner);
        inner.ledger.release(at, knob);
        let target = place_of(&Target::Cgroup(at.clone()));
        inner.write(&Line::Released { target, knob: knob.name().to_owned() });
        if inner.lines > COMPACT_AT
            && let Err(error) = inner.rewrite()
        {
            tracing::warn!(%error, path = ?inner.path, "the journal of transient settings cannot be rewritten");
            inner.lines = 0;
        }
    }

    /// Everything in force, in the order in which it has to be undone.
    pub fn to_undo(&self) -> Vec<Entry> {
        lock(&self.inner).ledger.to_undo()
    }
}

impl Inner {
    fn in_memory(boot_id: &str) -> Self {
        Self {
            path: None,
            file: None,
            boot_id: boot_id.to_owned(),
            ledger: Ledger::default(),
            lines: 0,
            complained: false,
            witness: None,
        }
    }

    /// True when a file or the guardian has the line.
    fn write(&mut self, line: &Line) -> bool {
        // The guardian first: the pipe never waits for a disk.
        let told = self.tell(line);
        if self.file.as_ref().is_some_and(is_deleted) {
            tracing::error!(path = ?self.path, "the journal of transient settings was deleted; it is written anew");
            let parent = self.path.as_deref().and_then(Path::parent);
            if let Err(error) = parent.map_or(Ok(()), std::fs::create_dir_all).and_then(|()| self.rewrite()) {
                tracing::error!(%error, path = ?self.path, "transient settings cannot be journalled");
                return told;
            }
        }
        let Some(file) = self.file.as_mut() else { return told };
        let Ok(text) = serde_json::to_string(line) else { return told };
        self.lines += 1;
        let mut line = String::new();
        sealed::push_line(&mut line, &text);
        match file.write_all(line.as_bytes()) {
            Ok(()) => true,
            Err(error) => {
                if !std::mem::replace(&mut self.complained, true) {
                    tracing::error!(%error, path = ?self.path, "transient settings cannot be journalled");
                }
                told
            }
        }
    }

    fn tell(&mut self, line: &Line) -> bool {
        let (Some(witness), Ok(text)) = (self.witness.as_mut(), serde_json::to_string(line)) else {
            return false;
        };
        if let Err(error) = witness.write_all(format!("{text}\n").as_bytes()).and_then(|()| witness.flush()) {
            tracing::warn!(%error, "the guardian does not listen any more; a kill of the agent may leave settings behind");
            self.witness = None;
        }
        self.witness.is_some()
    }

    /// Writes a new file beside the old one and takes its place, so that there is always a whole one.
    fn rewrite(&mut self) -> io::Result<()> {
        let Some(path) = self.path.clone() else { return Ok(()) };
        let new = path.with_extension("new");
        let file = private::create(&new)?;
        let mut out = BufWriter::new(file);
        let mut text = String::new();
        let first = Line::Boot { boot_id: self.boot_id.clone() };
        for line in [first].into_iter().chain(self.ledger.entries.iter().flat_map(lines_of)) {
            text.clear();
            sealed::push_line(&mut text, &serde_json::to_string(&line)?);
            out.write_all(text.as_bytes())?;
        }
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        std::fs::rename(&new, &path)?;
        self.file = Some(file);
        self.lines = 0;
        Ok(())
    }
}

/// Reads a file's lines into a ledger and counts those of this boot that do not read.
fn read_back(text: &str, boot_id: &str, ledger: &mut Ledger) -> usize {
    let mut lines = text.lines();
    let first = lines.next().and_then(text_of).and_then(|line| serde_json::from_str(line).ok());
    match first {
        Some(Line::Boot { boot_id: of }) if of == boot_id => {
            lines.filter(|line| !text_of(line).is_some_and(|line| ledger.read(line))).count()
        }
        // Entries of an earlier boot are of no use.
        Some(Line::Boot { .. }) => 0,
        // Without its first line nobody knows of which boot an entry is. The file is never empty.
        _ => 1 + lines.count(),
    }
}

fn held(at: &CgroupRef, old: Setting, new: Setting) -> Line {
    Line::Held {
        target: place_of(&Target::Cgroup(at.clone())),
        knob: old.knob().name().to_owned(),
        old: old.to_string(),
        new: new.to_string(),
    }
}

fn lines_of(entry: &Entry) -> Vec<Line> {
    entry.ours.iter().map(|new| held(&entry.at, entry.old, *new)).collect()
}

/// Why a transient setting was not undone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Left {
    /// It holds what it held before.
    Back,
    /// Somebody else has set it since.
    Theirs(Setting),
}

/// Puts one setting back, where ours still stands.
///
/// # Errors
/// [`Left`] when there is nothing to put back.
pub(crate) fn undo(
    reader: &dyn HostReader,
    writer: &mut dyn HostWriter,
    entry: &Entry,
) -> Result<Outcome, Left> {
    let write = Write::cgroup(entry.at.clone(), entry.old);
    match reader.setting(&write.target, entry.old.knob()) {
        Ok(now) if now == entry.old => Err(Left::Back),
        Ok(now) if !is_ours(now, entry) => Err(Left::Theirs(now)),
        // What cannot be read is written all the same; the outcome tells.
        Ok(_) | Err(_) => Ok(writer.apply(&write)),
    }
}

/// Whether a value is one we set, as the kernel keeps it.
fn is_ours(now: Setting, entry: &Entry) -> bool {
    let page = evenkeel_host::node::page_size();
    match now {
        // Turning cpu.idle off sets the weight to the kernel's default.
        Setting::CpuWeight(weight) if weight == CpuWeight::clamped(100) => true,
        Setting::CpuShares(shares) if shares == CpuShares::clamped(1024) => true,
        _ => entry.ours.iter().any(|ours| ours.as_kept(page) == now.as_kept(page)),
    }
}

/// Undoes everything in `entries` and tells each result. Those that are settled are told to `done`.
pub(crate) fn undo_all(
    reader: &dyn HostReader,
    writer: &mut dyn HostWriter,
    entries: &[Entry],
    mut done: impl FnMut(&Entry, &Result<Outcome, Left>),
) {
    for entry in entries {
        let result = undo(reader, writer, entry);
        if result.as_ref().map_or(true, |outcome| outcome.is_done() || matches!(outcome, Outcome::Refused(_)))
        {
            done(entry, &result);
        } else {
            tracing::error!(cgroup = %entry.at, knob = %entry.old.knob(), ?result, "a transient setting cannot be undone");
        }
    }
}

/// The freeze of a cgroup as an entry, for whoever only knows that it is frozen.
pub(crate) fn frozen(at: &CgroupRef) -> Entry {
    Entry { at: at.clone(), old: freeze_write(at, false).setting, ours: vec![freeze_write(at, true).setting] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use evenkeel_host::fake::FakeKernel;
    use evenkeel_host::hierarchy::{Hierarchy, Mode};
    use evenkeel_model::units::{Bytes, Limit};

    fn high(mib: u64) -> Setting {
        Setting::MemoryHigh(Limit::Value(Bytes::new(mib << 20)))
    }

    fn place(kernel: &FakeKernel) -> CgroupRef {
        kernel.cgroup("/c").unwrap().place(Hierarchy::V2).unwrap().clone()
    }

    #[test]
    fn what_stands_survives_a_kill_and_not_a_boot() {
        let dir = tempfile::tempdir().unwrap();
        let at = CgroupRef { hierarchy: Hierarchy::V2, inode: 7, path: "/a b".into() };
        let journal = Transients::open(dir.path(), "boot").unwrap();
        let max = Setting::MemoryHigh(Limit::Max);
        assert!(journal.begin(&at, max, high(100)));
        assert!(journal.begin(&at, high(100), high(90)));
        assert!(journal.begin(&at, Setting::CgroupFreeze(false), Setting::CgroupFreeze(true)));
        assert!(journal.begin(&at, Setting::CpuIdle(false), Setting::CpuIdle(true)));
        journal.end(&at, Knob::CpuIdle);
        drop(journal);
        let again = Transients::open(dir.path(), "boot").unwrap().to_undo();
        assert_eq!(again.len(), 2);
        assert_eq!((again[0].old, again[1].old), (Setting::CgroupFreeze(false), max));
        assert_eq!(again[1].ours, [high(100), high(90)]);
        assert!(Transients::open(dir.path(), "other").unwrap().to_undo().is_empty());
    }

    #[test]
    fn without_anybody_who_would_undo_it_nothing_is_held() {
        let at = CgroupRef { hierarchy: Hierarchy::V2, inode: 7, path: "/a".into() };
        let journal = Transients::in_memory("boot");
        assert!(!journal.begin(&at, high(1), high(2)));
        journal.set_witness(Box::new(Vec::new()));
        assert!(journal.begin(&at, high(1), high(2)));
    }

    #[test]
    fn only_our_own_values_are_undone() {
        let kernel = FakeKernel::new(Mode::V2);
        kernel.with(|state| {
            state.add_cgroup("/c");
            state.set("/c", high(90));
        });
        let at = place(&kernel);
        let old = Setting::MemoryHigh(Limit::Max);
        let ours = Entry { at: at.clone(), old, ours: vec![high(100), high(90)] };
        let theirs = Entry { at, old, ours: vec![high(100)] };
        let mut writer = kernel.clone();
        assert_eq!(undo(&kernel, &mut writer, &theirs), Err(Left::Theirs(high(90))));
        assert!(undo(&kernel, &mut writer, &ours).unwrap().is_done());
        assert_eq!(kernel.with(|s| s.value("/c", Knob::MemoryHigh)), Some(old));
        assert_eq!(undo(&kernel, &mut writer, &ours), Err(Left::Back));
    }

    #[test]
    fn a_guardian_reads_what_a_journal_tells() {
        let kernel = FakeKernel::new(Mode::V2);
        kernel.with(|state| state.add_cgroup("/c"));
        let at = place(&kernel);
        let mut ledger = Ledger::default();
        let tell = |line: &Line| serde_json::to_string(line).unwrap();
        ledger.read(&tell(&held(&at, high(1), high(2))));
        ledger.read("{\"what\":\"frozen\",\"target\":{}}");
        ledger.read("noise");
        assert_eq!(ledger.to_undo(), [Entry { at: at.clone(), old: high(1), ours: vec![high(2)] }]);
        let target = place_of(&Target::Cgroup(at));
        ledger.read(&tell(&Line::Released { target, knob: "memory.high".into() }));
        assert!(ledger.to_undo().is_empty());
    }
}
