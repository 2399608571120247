//! The journal of transient settings: what the pressure loop changed for a while and has not put back.
//!
//! Owned here: what stands in the ledger `transients.jsonl` in the state directory and is told the guardian, and how a
//! transient setting is undone. An entry is with the kernel and with the guardian before the write it belongs to.
//! Not owned: the file (`ledger`), standing settings and freezes of a single pass ([`crate::journal`]), what is
//! changed and why ([`crate::holds`]).

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use evenkeel_host::freeze::freeze_write;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, HostWriter, Outcome, Write};
use evenkeel_model::units::{CpuShares, CpuWeight};

use crate::ledger::{Ledger, Line};
use crate::shared::lock;

/// File name in the state directory.
const FILE: &str = "transients.jsonl";
/// Lines after which the file is written anew with what still stands.
const COMPACT_AT: usize = 4096;
/// Settings in force at one time: several for each of five thousand containers. More are refused.
const MAX_ENTRIES: usize = 32_768;
/// What a knob was set to last and before: a crash between the note and the write leaves the value before.
const VALUES_KEPT: usize = 2;

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
pub(crate) struct Standing {
    entries: Vec<Entry>,
}

impl Standing {
    /// Takes in one line; false for anything that is not one of ours.
    pub(crate) fn take(&mut self, line: &Line) -> bool {
        match line {
            Line::Held { target, knob, old, new } => {
                let parsed = || {
                    let knob: Knob = knob.parse().ok()?;
                    Some((target.cgroup()?, knob.parse(old.as_bytes())?, knob.parse(new.as_bytes())?))
                };
                let Some((at, old, new)) = parsed() else { return false };
                self.hold(&at, old, new);
            }
            Line::Released { target, knob } => {
                let (Some(at), Ok(knob)) = (target.cgroup(), knob.parse()) else { return false };
                self.release(&at, knob);
            }
            Line::Boot { .. }
            | Line::Original { .. }
            | Line::Back { .. }
            | Line::Frozen { .. }
            | Line::Thawed { .. } => return false,
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
    ledger: Ledger,
    standing: Standing,
}

impl Transients {
    /// Opens (or begins) the journal in `dir`; entries of another boot are dropped.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub fn open(dir: &Path, boot_id: &str) -> io::Result<Self> {
        let mut inner = Inner::in_memory(boot_id);
        let Inner { ledger, standing } = &mut inner;
        let damaged = ledger.open(dir.join(FILE), |line| standing.take(&line))?;
        inner.rewrite()?;
        Ok(Self { inner: Mutex::new(inner), damaged })
    }

    /// The file in a state directory.
    pub fn path_in(dir: &Path) -> PathBuf {
        dir.join(FILE)
    }

    /// Whether there is a file.
    pub fn is_kept(&self) -> bool {
        lock(&self.inner).ledger.is_kept()
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
        let Inner { ledger, standing } = &mut *inner;
        ledger.set_witness(witness);
        for line in lines_of(standing) {
            ledger.tell(&line);
        }
    }

    /// Notes that a knob is about to be set to `new` for a while. False when nobody would undo it: neither file nor
    /// guardian took the note, or too many stand already. Then it must not be set.
    #[must_use]
    pub(crate) fn begin(&self, at: &CgroupRef, old: Setting, new: Setting) -> bool {
        let mut inner = lock(&self.inner);
        let known = inner.standing.entries.iter().any(|entry| entry.is(at, old.knob()));
        if !known && inner.standing.entries.len() >= MAX_ENTRIES {
            return false;
        }
        let noted = inner.write(&held(at, old, new));
        if noted {
            inner.standing.hold(at, old, new);
        }
        noted
    }

    /// Notes that it was put back.
    pub(crate) fn end(&self, at: &CgroupRef, knob: Knob) {
        let mut inner = lock(&self.inner);
        inner.standing.release(at, knob);
        inner.write(&Line::Released { target: at.into(), knob: knob.name().to_owned() });
        if inner.ledger.appended() > COMPACT_AT
            && let Err(error) = inner.rewrite()
        {
            tracing::warn!(%error, "the journal of transient settings cannot be rewritten");
            inner.ledger.put_off();
        }
    }

    /// Everything in force, in the order in which it has to be undone.
    pub fn to_undo(&self) -> Vec<Entry> {
        lock(&self.inner).standing.to_undo()
    }
}

impl Inner {
    fn in_memory(boot_id: &str) -> Self {
        Self { ledger: Ledger::in_memory("temporary settings", boot_id), standing: Standing::default() }
    }

    /// True when a file or the guardian has the line.
    fn write(&mut self, line: &Line) -> bool {
        let Self { ledger, standing } = self;
        // The guardian first: the pipe never waits for a disk.
        let told = ledger.tell(line);
        ledger.push(line);
        ledger.flush(|| lines_of(standing)) || told
    }

    fn rewrite(&mut self) -> io::Result<()> {
        self.ledger.rewrite(lines_of(&self.standing))
    }
}

fn held(at: &CgroupRef, old: Setting, new: Setting) -> Line {
    let knob = old.knob().name().to_owned();
    Line::Held { target: at.into(), knob, old: old.to_string(), new: new.to_string() }
}

fn lines_of(standing: &Standing) -> impl Iterator<Item = Line> {
    standing.entries.iter().flat_map(|entry| entry.ours.iter().map(|new| held(&entry.at, entry.old, *new)))
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
    use evenkeel_host::hierarchy::{CgroupMode, Hierarchy};
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
        let kernel = FakeKernel::new(CgroupMode::V2);
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
        let kernel = FakeKernel::new(CgroupMode::V2);
        kernel.with(|state| state.add_cgroup("/c"));
        let at = place(&kernel);
        let mut standing = Standing::default();
        let mut told = |line: &str| Line::read(line).is_some_and(|line| standing.take(&line));
        let tell = |line: &Line| serde_json::to_string(line).unwrap();
        assert!(told(&tell(&held(&at, high(1), high(2)))));
        assert!(!told("{\"what\":\"frozen\",\"target\":{}}") && !told("noise"));
        assert_eq!(standing.to_undo(), [Entry { at: at.clone(), old: high(1), ours: vec![high(2)] }]);
        assert!(standing.take(&Line::Released { target: (&at).into(), knob: "memory.high".into() }));
        assert!(standing.to_undo().is_empty());
    }

    #[test]
    fn a_journal_of_an_earlier_agent_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let text = include_str!("../tests/fixtures/transients.jsonl");
        std::fs::write(dir.path().join(FILE), text).unwrap();
        let journal = Transients::open(dir.path(), "boot").unwrap();
        let at = CgroupRef { hierarchy: Hierarchy::V2, inode: 7, path: "/a b".into() };
        let freeze = Entry {
            at: at.clone(),
            old: Setting::CgroupFreeze(false),
            ours: vec![Setting::CgroupFreeze(true)],
        };
        let high = Entry { at, old: Setting::MemoryHigh(Limit::Max), ours: vec![high(100), high(90)] };
        assert_eq!((journal.damaged(), journal.to_undo()), (0, vec![freeze, high]));
    }
}
