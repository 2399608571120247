//! One knob of one container's cgroup: read, write when different, read back, and let go when somebody else owns it.

use evenkeel_host::error::Category;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::write::{CgroupRef, Outcome, Target, Write};
use evenkeel_qos::plan::Reason;

use super::env::Env;

/// Looks in a row that found the knob right after which earlier rewrites are forgotten.
const FORGIVEN_AFTER: u32 = 10;

/// Where a knob stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Not looked at yet, or to be tried again.
    Dirty,
    /// Holds what was wished.
    Right,
    /// Somebody else rewrote it; its source is asked whether the wish changed before it is written again.
    Doubted,
    /// Dry run: differs, and is left so.
    Would,
    /// Not allowed, with the kernel's words and the remedy.
    Denied { why: String, remedy: Option<String> },
    /// The kernel lacks it, refused the value, or the writer refused the target.
    Rejected { why: String, remedy: Option<String> },
    /// Somebody else keeps rewriting it.
    Contended,
}

/// Something worth a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Value before.
    pub old: Option<Setting>,
    /// State after.
    pub state: State,
}

/// Keeps one knob at its wish.
#[derive(Debug)]
pub(super) struct KnobLoop {
    /// Where it is written.
    pub place: CgroupRef,
    /// What it should hold.
    pub wanted: Setting,
    /// Why.
    pub reason: Reason,
    /// What it held when last looked at.
    pub actual: Option<Setting>,
    /// Where it stands.
    pub state: State,
    /// What the kernel made of the wish when it was written; it may round.
    kept: Option<Setting>,
    rewrites: u32,
    right_in_a_row: u32,
}

impl KnobLoop {
    /// A knob that was not looked at yet.
    pub(super) fn new(place: CgroupRef, wanted: Setting, reason: Reason) -> Self {
        Self {
            place,
            wanted,
            reason,
            actual: None,
            state: State::Dirty,
            kept: None,
            rewrites: 0,
            right_in_a_row: 0,
        }
    }

    /// The loop among `had` that keeps the same wish already, with the new reason; else this one.
    pub(super) fn or_kept(self, had: &mut Vec<Self>) -> Self {
        let same = had.iter().position(|had| had.wanted == self.wanted && had.place == self.place);
        match same {
            Some(index) => Self { reason: self.reason, ..had.swap_remove(index) },
            None => self,
        }
    }

    /// The knob.
    pub(super) fn knob(&self) -> Knob {
        self.wanted.knob()
    }

    /// Looks and, where that is needed and ours to do, writes. An event is given when something was written or the
    /// state changed; the outcome only when a write was tried.
    pub(super) fn turn(&mut self, env: &mut Env<'_>) -> (Option<Event>, Option<Outcome>) {
        let target = Target::Cgroup(self.place.clone());
        let before = self.state.clone();
        let found = env.reader.setting(&target, self.knob());
        let old = found.as_ref().ok().copied();
        if let Some(value) = old {
            self.actual = Some(value);
            if value == self.kept.unwrap_or(self.wanted) {
                return (self.found_right(&before, value), None);
            }
        }
        if let Err(error) = &found
            && error.is_gone()
        {
            return (None, None);
        }
        if before == State::Contended {
            return (None, None);
        }
        if before == State::Right {
            self.right_in_a_row = 0;
            self.rewrites += 1;
            if self.rewrites >= env.config.contended_after {
                self.state = State::Contended;
                return (Some(Event { old, state: State::Contended }), None);
            }
            // It may be an update of the wish that the source has not told yet: runtimes resize in place.
            self.state = State::Doubted;
            return (None, None);
        }
        if let Some(old) = old {
            env.journal.note(&target, old, self.wanted, None);
            env.journal.flush();
        }
        let outcome = env.writer.apply(&Write::cgroup(self.place.clone(), self.wanted));
        self.take_in(&outcome);
        let told = before != self.state || matches!(outcome, Outcome::Written { .. });
        let event = told.then(|| Event { old: outcome.old().or(old), state: self.state.clone() });
        (event.filter(|event| event.state != State::Dirty), Some(outcome))
    }

    fn found_right(&mut self, before: &State, value: Setting) -> Option<Event> {
        self.right_in_a_row += 1;
        let forgiven = self.right_in_a_row >= FORGIVEN_AFTER;
        if forgiven {
            self.rewrites = 0;
        }
        if *before == State::Right || (*before == State::Contended && !forgiven) {
            return None;
        }
        self.state = State::Right;
        // Nothing to tell where it was right from the beginning, or was only doubted.
        (!matches!(before, State::Dirty | State::Doubted))
            .then_some(Event { old: Some(value), state: State::Right })
    }

    fn take_in(&mut self, outcome: &Outcome) {
        self.state = match outcome {
            Outcome::Written { new, .. } | Outcome::Unchanged { value: new } => {
                self.kept = Some(*new);
                self.actual = Some(*new);
                State::Right
            }
            Outcome::WouldWrite { .. } => State::Would,
            Outcome::Refused(refusal) => State::Rejected { why: refusal.to_string(), remedy: None },
            Outcome::Failed { error, .. } => {
                let (why, remedy) = (error.to_string(), error.remedy().map(str::to_owned));
                match error.category() {
                    Category::Gone | Category::Io | Category::Partial | Category::Malformed => State::Dirty,
                    Category::Denied => State::Denied { why, remedy },
                    Category::Unsupported | Category::Rejected => State::Rejected { why, remedy },
                }
            }
        };
    }
}
