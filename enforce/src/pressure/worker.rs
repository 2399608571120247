//! The hands of the pressure loop: everything that may block is done here, in order.
//!
//! Owned here: carrying out one action (held first, journalled first, then written), telling it as a decision, and
//! answering what came of it. Not owned: what to do ([`super`]).

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use evenkeel_host::action::HostDriver;
use evenkeel_host::error::HostError;
use evenkeel_host::freeze::freeze_write;
use evenkeel_host::hierarchy::Hierarchy;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, Outcome, Write};
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::units::{Bytes, Limit};
use evenkeel_qos::pressure::{
    Letting, PressureAction, PressureChange, PressureResult, PressureStep, Restriction,
};
use evenkeel_qos::starvation;

use super::squeeze;
use super::thrash::ThrashCase;
use super::view::{LastStep, View};
use crate::converge::roster::RosterEntry;
use crate::decisions::{DecisionLog, Draft, now_usec, result_of, result_of_error};
use crate::holds::{HoldRequest, Holder, Holds};
use crate::oom::evictions::{Evictions, FailureCause};
use crate::shared::{Context, Heartbeat, Waker, lock, micros};
use crate::transients::Left;
use crate::usage::Usage;

/// Longest wait for work, so that the thread says that it lives.
const TICK: Duration = Duration::from_secs(1);

/// One piece of work.
pub(super) enum Job {
    /// An action of a pressure machine.
    Memory {
        domain: usize,
        action: PressureAction,
        entry: RosterEntry,
        /// When the poll returned that led to it, for the first action after a trigger.
        woke: Option<Instant>,
    },
    /// An action of the starvation machine.
    Cpu { action: starvation::StarvationAction, entry: RosterEntry },
    /// A container thrashes at its own limit.
    Thrash(ThrashCase),
    /// A container is gone; nothing of it is held any more.
    Gone(u32),
}

/// What came of it.
pub(super) enum Finished {
    Memory { domain: usize, action: PressureAction, verdict: PressureResult },
    Cpu { action: starvation::StarvationAction, verdict: starvation::StarvationResult },
}

/// What the worker is given.
pub(super) struct Worker {
    pub(super) context: Arc<Context>,
    pub(super) reader: Box<dyn HostReader + Send>,
    pub(super) writer: Box<dyn HostDriver + Send>,
    pub(super) holds: Arc<Holds>,
    pub(super) decisions: Arc<DecisionLog>,
    pub(super) view: Arc<View>,
    /// Who is killed, or starves without end, goes to the eviction policy.
    pub(super) evictions: Arc<Evictions>,
    /// What containers used lately.
    pub(super) usage: Usage,
    pub(super) jobs: Receiver<Job>,
    pub(super) finished: SyncSender<Finished>,
    pub(super) bell: Waker,
}

/// What carrying something out came to.
pub(super) struct Done {
    pub(super) old: Option<String>,
    pub(super) result: DecisionResult,
    pub(super) note: Option<(&'static str, String)>,
}

impl Done {
    pub(super) fn failed(why: String) -> Self {
        Self { old: None, result: DecisionResult::Failed, note: Some(("error", why)) }
    }

    pub(super) fn of(outcome: &Outcome) -> Self {
        let note = match outcome {
            Outcome::Refused(why) => Some(("error", why.to_string())),
            Outcome::Failed { error, .. } => Some(("error", error.to_string())),
            _ => None,
        };
        Self { old: outcome.old().map(|old| old.to_string()), result: result_of(outcome), note }
    }

    fn of_deed<T: ToString>(done: Result<T, HostError>, name: &'static str, rehearsal: bool) -> Self {
        match done {
            Ok(n) if rehearsal => {
                Self { old: None, result: DecisionResult::WouldDo, note: Some((name, n.to_string())) }
            }
            Ok(n) => Self { old: None, result: DecisionResult::Done, note: Some((name, n.to_string())) },
            Err(error) => {
                Self { old: None, result: result_of_error(&error), note: Some(("error", error.to_string())) }
            }
        }
    }

    pub(super) fn is_fine(&self) -> bool {
        use DecisionResult::{Done, Gone, Unchanged, WouldDo};
        matches!(self.result, Done | WouldDo | Unchanged | Gone)
    }
}

impl Worker {
    /// Works until the loop is gone.
    pub(super) fn run(mut self, heartbeat: &Heartbeat) {
        loop {
            heartbeat.beat();
            match self.jobs.recv_timeout(TICK) {
                Ok(job) => self.work(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            let stats = &self.context.stats;
            stats.pressure.held.set(self.holds.len() as u64);
            self.decisions.flush(stats);
        }
    }

    pub(super) fn work(&mut self, job: Job) {
        let finished = match job {
            Job::Memory { domain, action, entry, woke } => {
                let verdict = self.memory(&action, &entry, woke);
                Finished::Memory { domain, action, verdict }
            }
            Job::Cpu { action, entry } => {
                let verdict = self.cpu(&action, &entry);
                Finished::Cpu { action, verdict }
            }
            Job::Thrash(named) => {
                self.thrashes(&named);
                return;
            }
            Job::Gone(slot) => {
                self.holds.drop_gone(slot);
                return;
            }
        };
        // As many answers fit as there were jobs; a loop that has ended asks for none.
        let _ = self.finished.try_send(finished);
        self.bell.wake();
    }

    fn memory(
        &mut self,
        action: &PressureAction,
        entry: &RosterEntry,
        woke: Option<Instant>,
    ) -> PressureResult {
        let why = action.why();
        let reason = why.text();
        let done = match action.deed {
            PressureChange::Restrict(step, _) => self.restrict(step, entry, &reason),
            PressureChange::Release(letting, giving) => self.release(letting, giving.held, entry, &reason),
        };
        let waited = woke.map(|woke| micros(woke.elapsed()));
        let stats = &self.context.stats.pressure;
        if let Some(usec) = waited.filter(|_| done.is_fine()) {
            stats.first_write.observe(usec);
            stats.first_write_last_usec.set(usec);
        }
        let (kind, verdict) = match &action.deed {
            PressureChange::Restrict(PressureStep::Kill, _) => (DecisionKind::Kill, done.is_fine()),
            PressureChange::Restrict(..) => (DecisionKind::Relieve, done.is_fine()),
            PressureChange::Release(..) => (DecisionKind::Release, done.is_fine()),
        };
        match (&action.deed, done.is_fine()) {
            (_, false) => stats.failures.add(1),
            (PressureChange::Restrict(step, _), true) => stats.steps[step.rung() as usize].add(1),
            (PressureChange::Release(..), true) => stats.releases.add(1),
        }
        let v2 = entry.memory.as_ref().is_some_and(|at| at.hierarchy == Hierarchy::V2);
        let mut draft = Draft::of(&entry.tracked.workload, kind, reason).inputs(why.inputs());
        if kind != DecisionKind::Release {
            draft = draft.inputs(self.before(entry));
        }
        if let Some(usec) = waited {
            draft = draft.input("poll_to_write_usec", usec);
        }
        let seq = self.tell(draft, action.knob(v2), action.value(), done, entry);
        if verdict && matches!(action.deed, PressureChange::Restrict(PressureStep::Kill, _)) {
            self.failed(entry, "pressure", "was killed because memory was short", seq);
        }
        if verdict { PressureResult::Done } else { PressureResult::Failed }
    }

    fn cpu(
        &mut self,
        action: &starvation::StarvationAction,
        entry: &RosterEntry,
    ) -> starvation::StarvationResult {
        let why = action.why();
        let reason = why.text();
        let (kind, knob, done) = match action.deed {
            starvation::StarvationChange::Report(_) => (DecisionKind::Starved, "cpu", None),
            starvation::StarvationChange::Evict(_) => (DecisionKind::Starved, "cpu", None),
            starvation::StarvationChange::Squeeze(step, ..) => {
                self.context.stats.pressure.squeezes.add(1);
                (DecisionKind::Relieve, squeeze::knob(step, entry), Some(self.squeeze(step, entry, &reason)))
            }
            starvation::StarvationChange::Release(step) => {
                (DecisionKind::Release, squeeze::knob(step, entry), Some(self.unsqueeze(step, entry)))
            }
        };
        let done = done.unwrap_or(Done { old: None, result: DecisionResult::Done, note: None });
        let fine = done.is_fine();
        let mut draft = Draft::of(&entry.tracked.workload, kind, reason).inputs(why.inputs());
        if kind != DecisionKind::Release {
            draft = draft.inputs(self.before(entry));
        }
        let seq = self.tell(draft, knob, action.value(), done, entry);
        if matches!(action.deed, starvation::StarvationChange::Evict(_)) {
            self.failed(entry, "starvation", "is chosen because a container does not get its CPU", seq);
        }
        if fine { starvation::StarvationResult::Done } else { starvation::StarvationResult::Failed }
    }

    /// Says who thrashes at its own limit, and what limit it should have.
    fn thrashes(&self, named: &ThrashCase) {
        let ThrashCase { case, knob, entry } = named;
        let Some(limit) = case.proposed() else { return };
        let done = Done { old: Some(case.limit.get().to_string()), result: DecisionResult::Done, note: None };
        let why = case.why(knob);
        let draft = Draft::of(&entry.tracked.workload, DecisionKind::Thrash, why.text()).inputs(why.inputs());
        let draft = draft.inputs(self.before(entry));
        self.tell(draft, knob, limit.get().to_string(), done, entry);
    }

    /// What becomes of a container now, by the eviction policy.
    fn failed(&self, entry: &RosterEntry, name: &'static str, what: &str, seq: u64) {
        let cause = FailureCause { name, what, time_usec: now_usec(), decision: Some(seq) };
        self.evictions.failed(&entry.tracked, cause, &self.decisions, &self.context.stats);
    }

    /// What a container used before something is done to it; nothing where its samples are not told.
    fn before(&self, entry: &RosterEntry) -> Option<(&'static str, String)> {
        let history = self.context.live.now().oom.history;
        let before = lock(&self.usage).before(&entry.tracked, now_usec(), history)?;
        (!before.text.is_empty()).then_some(("samples", before.text))
    }

    /// Records a decision; its number.
    fn tell(&self, draft: Draft, knob: &str, value: String, done: Done, entry: &RosterEntry) -> u64 {
        let workload = &entry.tracked.workload;
        let mut draft = draft.knob(knob).values(done.old, Some(value.clone())).result(done.result);
        if let Some((name, text)) = done.note {
            draft = draft.input(name, text);
        }
        let decision = self.decisions.record(draft, &self.context.stats);
        tracing::info!(
            pod = decision.pod,
            container = workload.container,
            knob,
            value,
            result = ?decision.result,
            why = decision.reason,
            "pressure"
        );
        self.view.last(LastStep {
            time_usec: decision.time_usec,
            container: format!("{}/{}/{}", workload.pod.namespace, workload.pod.name, workload.container),
            knob: knob.to_owned(),
            value,
            why: decision.reason.clone(),
        });
        decision.seq
    }

    fn restrict(&mut self, step: PressureStep, entry: &RosterEntry, why: &str) -> Done {
        let Some(memory) = entry.memory.clone() else { return lacks("memory") };
        match step {
            PressureStep::Reclaim { amount, file_only } => {
                let taken = self.writer.reclaim(&memory, amount, file_only);
                if let Ok(taken) = &taken {
                    self.context.stats.pressure.reclaimed_bytes.add(taken.get());
                }
                Done::of_deed(taken.map(Bytes::get), "reclaimed", self.writer.is_rehearsal())
            }
            PressureStep::High(at) => self.hold(&memory, Setting::MemoryHigh(Limit::Value(at)), entry, why),
            PressureStep::SoftLimit(at) => {
                self.hold(&memory, Setting::MemorySoftLimit(Limit::Value(at)), entry, why)
            }
            PressureStep::Freeze => {
                let Some(freezer) = entry.freezer.clone() else { return lacks("freezer") };
                self.hold(&freezer, freeze_write(&freezer, true).setting, entry, why)
            }
            PressureStep::Kill => {
                let killed = self.writer.kill_cgroup(&memory);
                // Whoever is frozen dies once it is thawed (v1).
                self.let_go_all(entry);
                Done::of_deed(killed, "killed", self.writer.is_rehearsal())
            }
        }
    }

    fn release(&mut self, letting: Letting, held: Restriction, entry: &RosterEntry, why: &str) -> Done {
        let (at, knob) = match held {
            Restriction::Frozen => {
                let Some(freezer) = entry.freezer.clone() else { return lacks("freezer") };
                let knob = freeze_write(&freezer, false).knob();
                (freezer, knob)
            }
            Restriction::High | Restriction::SoftLimit => {
                let Some(memory) = entry.memory.clone() else { return lacks("memory") };
                (memory, if held == Restriction::High { Knob::MemoryHigh } else { Knob::MemorySoftLimit })
            }
        };
        match letting {
            Letting::Raise(to) => self.hold(&at, Setting::MemoryHigh(Limit::Value(to)), entry, why),
            Letting::Thaw | Letting::Whole => self.let_go(&at, knob),
        }
    }

    /// Sets something for a while; on a rehearsal nothing is held.
    pub(super) fn hold(&mut self, at: &CgroupRef, value: Setting, entry: &RosterEntry, why: &str) -> Done {
        self.hold_by(Holder::Pressure, at, value, entry, why)
    }

    pub(super) fn hold_by(
        &mut self,
        by: Holder,
        at: &CgroupRef,
        value: Setting,
        entry: &RosterEntry,
        why: &str,
    ) -> Done {
        if self.writer.is_rehearsal() {
            return Done::of(&self.writer.apply(&Write::cgroup(at.clone(), value)));
        }
        let wish = HoldRequest { at, value, tracked: &entry.tracked, by, why: why.to_owned() };
        match self.holds.hold(&*self.reader, &mut self.writer, wish) {
            Ok(outcome) => Done::of(&outcome),
            Err(why) => Done::failed(why),
        }
    }

    /// Puts something back. What somebody else has set since, or what was never held, is nothing to put back.
    pub(super) fn let_go(&mut self, at: &CgroupRef, knob: Knob) -> Done {
        if self.writer.is_rehearsal() {
            return Done { old: None, result: DecisionResult::WouldDo, note: None };
        }
        let done = |result, note| Done { old: None, result, note };
        match self.holds.release(&*self.reader, &mut self.writer, at, knob) {
            None | Some(Err(Left::Back)) => done(DecisionResult::Unchanged, None),
            Some(Err(Left::Theirs(now))) => done(DecisionResult::Unchanged, Some(("now", now.to_string()))),
            Some(Ok(outcome)) => Done::of(&outcome),
        }
    }

    /// Lets go of everything that is held of a container.
    fn let_go_all(&mut self, entry: &RosterEntry) {
        let slot = entry.tracked.slot;
        for hold in self.holds.list().into_iter().filter(|hold| hold.tracked.slot == slot) {
            let done = self.let_go(&hold.at, hold.value.knob());
            if !done.is_fine() {
                tracing::warn!(cgroup = %hold.at, note = ?done.note, "cannot be put back; it is tried again at the end");
            }
        }
    }
}

pub(super) fn lacks(controller: &str) -> Done {
    Done::failed(format!("this machine has no {controller} controller for it"))
}
