//! Transient settings in force: who holds which knob of which cgroup, since when and why.
//!
//! Owned here: the table that the converger asks before it writes a knob, status shows, and the pressure worker
//! fills; and the bell that has a container looked at once a hold ends. Not owned: when to hold and when to let go
//! (`evenkeel-qos`), the journal of it ([`crate::transients`]).

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, HostWriter, Outcome, Write};

use crate::decisions::now_usec;
use crate::shared::{Pokes, Tracked, Waker, lock};
use crate::transients::{Entry, Left, Transients, undo, undo_all};

/// Who holds a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// The loop against memory pressure.
    Pressure,
    /// The loop against CPU starvation.
    Starvation,
}

impl Holder {
    /// Name in reasons and status.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pressure => "pressure",
            Self::Starvation => "starvation",
        }
    }
}

/// One transient setting in force.
#[derive(Debug, Clone)]
pub struct Hold {
    /// Whose.
    pub at: CgroupRef,
    /// The container it belongs to.
    pub tracked: Arc<Tracked>,
    /// What the knob was set to.
    pub value: Setting,
    /// What it held before.
    pub original: Setting,
    /// Since when, microseconds since 1970.
    pub since_usec: u64,
    /// Who set it.
    pub by: Holder,
    /// Why, in a sentence.
    pub why: String,
}

/// All of them; shared by the converger, the pressure worker and status.
pub struct Holds {
    transients: Transients,
    table: Mutex<HashMap<(u64, Knob), Hold>>,
    pokes: Pokes,
    bell: Mutex<Option<Waker>>,
    /// Held while a setting changes, so that undoing everything is never overtaken; true once it has been undone.
    ended: Mutex<bool>,
}

impl Holds {
    /// Nothing is held yet; entries an earlier run left in the journal are for [`Holds::repair`].
    pub fn new(transients: Transients) -> Self {
        let (table, bell, ended) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { transients, table, pokes: Pokes::default(), bell, ended }
    }

    /// The journal behind it.
    pub fn transients(&self) -> &Transients {
        &self.transients
    }

    /// Containers (by the inode of [`Tracked`]) to be looked at once, because a hold of theirs ended.
    pub(crate) fn pokes(&self) -> &Pokes {
        &self.pokes
    }

    /// The converge thread's bell, rung when a hold ends.
    pub fn set_bell(&self, bell: Waker) {
        *lock(&self.bell) = Some(bell);
    }

    /// The hold on a knob of the cgroup with this inode: whoever keeps standing settings leaves it alone.
    pub(crate) fn held(&self, inode: u64, knob: Knob) -> Option<Hold> {
        lock(&self.table).get(&(inode, knob)).cloned()
    }

    /// Everything held, oldest first.
    pub fn list(&self) -> Vec<Hold> {
        let mut all: Vec<Hold> = lock(&self.table).values().cloned().collect();
        all.sort_by(|a, b| (a.since_usec, &a.at, a.value.knob()).cmp(&(b.since_usec, &b.at, b.value.knob())));
        all
    }

    /// How many settings are held.
    pub(crate) fn len(&self) -> usize {
        lock(&self.table).len()
    }

    /// Sets a knob for a while: journalled first, then held, then written. A knob that is held already keeps its
    /// first original and `since`.
    ///
    /// # Errors
    /// A sentence when it was not tried: the present value cannot be read, somebody else has frozen it, or nobody
    /// would undo it.
    pub(crate) fn hold(
        &self,
        reader: &dyn HostReader,
        writer: &mut dyn HostWriter,
        wish: HoldRequest<'_>,
    ) -> Result<Outcome, String> {
        let ended = lock(&self.ended);
        if *ended {
            return Err("the agent ends".to_owned());
        }
        let HoldRequest { at, value, tracked, by, why } = wish;
        let knob = value.knob();
        let write = Write::cgroup(at.clone(), value);
        let key = (at.inode, knob);
        let known = self.held(at.inode, knob);
        let original = match &known {
            Some(hold) => hold.original,
            None => match reader.setting(&write.target, knob) {
                Ok(now) if now == value && is_freeze(knob) => {
                    return Err("it is frozen already, by somebody else".to_owned());
                }
                Ok(now) => now,
                Err(error) => return Err(error.to_string()),
            },
        };
        if !self.transients.begin(at, original, value) {
            return Err("neither journal nor guardian would undo it".to_owned());
        }
        let since_usec = known.as_ref().map_or_else(now_usec, |hold| hold.since_usec);
        let hold =
            Hold { at: at.clone(), tracked: Arc::clone(tracked), value, original, since_usec, by, why };
        lock(&self.table).insert(key, hold);
        let outcome = writer.apply(&write);
        if !outcome.is_done() && known.is_none() {
            self.forget(at, knob);
        }
        Ok(outcome)
    }

    /// Puts a knob back and lets go of it. `None` when it is not held. When the write fails it stays held, to be
    /// tried again.
    pub(crate) fn release(
        &self,
        reader: &dyn HostReader,
        writer: &mut dyn HostWriter,
        at: &CgroupRef,
        knob: Knob,
    ) -> Option<Result<Outcome, Left>> {
        let _changing = lock(&self.ended);
        let hold = self.held(at.inode, knob)?;
        let entry = Entry { at: at.clone(), old: hold.original, ours: vec![hold.value] };
        let result = undo(reader, writer, &entry);
        let settled = result
            .as_ref()
            .map_or(true, |outcome| outcome.is_done() || matches!(outcome, Outcome::Refused(_)));
        if settled {
            self.forget(at, knob);
            self.poke(hold.tracked.inode);
        }
        Some(result)
    }

    /// Lets go of every hold of cgroups that are gone, by their containers' slots.
    pub(crate) fn drop_gone(&self, slot: u32) {
        let gone: Vec<(CgroupRef, Knob)> = lock(&self.table)
            .values()
            .filter(|hold| hold.tracked.slot == slot)
            .map(|hold| (hold.at.clone(), hold.value.knob()))
            .collect();
        for (at, knob) in gone {
            self.forget(&at, knob);
        }
    }

    /// Undoes everything at the end; nothing can be held any more after it.
    pub(crate) fn end(&self, reader: &dyn HostReader, writer: &mut dyn HostWriter) -> usize {
        let mut ended = lock(&self.ended);
        *ended = true;
        self.repair(reader, writer)
    }

    /// Undoes everything an earlier run left behind.
    pub fn repair(&self, reader: &dyn HostReader, writer: &mut dyn HostWriter) -> usize {
        let mut count = 0;
        undo_all(reader, writer, &self.transients.to_undo(), |entry, _| {
            count += 1;
            self.forget(&entry.at, entry.old.knob());
        });
        count
    }

    fn forget(&self, at: &CgroupRef, knob: Knob) {
        lock(&self.table).remove(&(at.inode, knob));
        self.transients.end(at, knob);
    }

    fn poke(&self, inode: u64) {
        lock(&self.pokes).insert(inode);
        if let Some(bell) = lock(&self.bell).as_ref() {
            bell.wake();
        }
    }
}

/// What is to be held.
#[derive(Debug)]
pub(crate) struct HoldRequest<'a> {
    /// Whose knob.
    pub at: &'a CgroupRef,
    /// Knob and value.
    pub value: Setting,
    /// The container.
    pub tracked: &'a Arc<Tracked>,
    /// Who wants it.
    pub by: Holder,
    /// Why, in a sentence.
    pub why: String,
}

const fn is_freeze(knob: Knob) -> bool {
    matches!(knob, Knob::FreezerState | Knob::CgroupFreeze)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tracked;
    use evenkeel_host::fake::FakeKernel;
    use evenkeel_host::hierarchy::{CgroupMode, Hierarchy};
    use evenkeel_model::units::{Bytes, Limit};

    fn high(mib: u64) -> Setting {
        Setting::MemoryHigh(Limit::Value(Bytes::new(mib << 20)))
    }

    fn holds() -> Holds {
        let transients = Transients::in_memory("boot");
        transients.set_witness(Box::new(Vec::new()));
        Holds::new(transients)
    }

    fn wish<'a>(at: &'a CgroupRef, value: Setting, tracked: &'a Arc<Tracked>) -> HoldRequest<'a> {
        HoldRequest { at, value, tracked, by: Holder::Pressure, why: "because".into() }
    }

    #[test]
    fn a_hold_keeps_the_first_value_and_gives_it_back() {
        let kernel = FakeKernel::new(CgroupMode::V2);
        kernel.with(|state| {
            state.add_cgroup("/c");
            state.set("/c", high(500));
        });
        let at = kernel.cgroup("/c").unwrap().place(Hierarchy::V2).unwrap().clone();
        let (holds, who) = (holds(), Arc::new(tracked("c")));
        let mut writer = kernel.clone();
        for mib in [400, 300] {
            assert!(holds.hold(&kernel, &mut writer, wish(&at, high(mib), &who)).unwrap().is_done());
        }
        let held = holds.held(at.inode, Knob::MemoryHigh).unwrap();
        assert_eq!((held.value, held.original, holds.len()), (high(300), high(500), 1));
        assert!(holds.held(at.inode, Knob::MemoryMax).is_none());
        let released = holds.release(&kernel, &mut writer, &at, Knob::MemoryHigh).unwrap();
        assert!(released.unwrap().is_done());
        assert_eq!(kernel.with(|s| s.value("/c", Knob::MemoryHigh)), Some(high(500)));
        assert!(lock(holds.pokes()).contains(&who.inode));
        assert!(holds.transients().to_undo().is_empty());
    }

    #[test]
    fn what_somebody_else_froze_is_not_ours_to_thaw() {
        let kernel = FakeKernel::new(CgroupMode::V2);
        kernel.with(|state| {
            state.add_cgroup("/c");
            state.set("/c", Setting::CgroupFreeze(true));
        });
        let at = kernel.cgroup("/c").unwrap().place(Hierarchy::V2).unwrap().clone();
        let (holds, who) = (holds(), Arc::new(tracked("c")));
        let error = holds.hold(&kernel, &mut kernel.clone(), wish(&at, Setting::CgroupFreeze(true), &who));
        assert!(error.unwrap_err().contains("by somebody else"));
        assert!(holds.held(at.inode, Knob::CgroupFreeze).is_none());
    }

    #[test]
    fn repair_undoes_everything_at_once() {
        let kernel = FakeKernel::new(CgroupMode::V2);
        kernel.with(|state| state.add_cgroup("/c"));
        let at = kernel.cgroup("/c").unwrap().place(Hierarchy::V2).unwrap().clone();
        let (holds, who) = (holds(), Arc::new(tracked("c")));
        let mut writer = kernel.clone();
        for value in [high(1), Setting::CgroupFreeze(true)] {
            holds.hold(&kernel, &mut writer, wish(&at, value, &who)).unwrap();
        }
        assert!(holds.held(at.inode, Knob::CgroupFreeze).is_some());
        assert_eq!(holds.repair(&kernel, &mut writer), 2);
        assert_eq!(holds.len(), 0);
        assert_eq!(kernel.with(|s| s.value("/c", Knob::CgroupFreeze)), Some(Setting::CgroupFreeze(false)));
    }
}
