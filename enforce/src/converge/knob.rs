//! One knob of one container's cgroup: read, write when different, read back, and let go when somebody else owns it.
//!
//! Owned here: the states of one knob and what counts as a rewrite by somebody else. Not owned: which knobs are looked
//! at when and in which order they are written ([`super::knobs`]), whether a value has its effect ([`super::effect`]).

use std::sync::Arc;
use std::time::Instant;

use evenkeel_host::error::{Category, HostError};
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, Outcome, Target, Write};
use evenkeel_model::units::{Bytes, Limit};
use evenkeel_qos::why::Why;

use super::diff::ObservedKnob;
use super::effect::Ineffective;
use super::env::Env;
use crate::decisions::now_usec;

/// Looks in a row that found the knob right after which earlier rewrites are forgotten.
const FORGIVEN_AFTER: u32 = 10;

/// Where a knob stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KnobState {
    /// Not looked at yet, or to be tried again.
    Dirty,
    /// Holds what was wished.
    Right,
    /// Somebody else rewrote it; its source is asked whether the wish changed before it is written again.
    Doubted,
    /// Dry run: differs, and is left so.
    Would,
    /// Set to something else for a while, by a part of the agent itself.
    Held { why: String },
    /// Not allowed, with the kernel's words and the remedy.
    Denied { why: String, remedy: Option<String> },
    /// The kernel lacks it, refused the value, or the writer refused the target.
    Rejected { why: String, remedy: Option<String> },
    /// Somebody else keeps rewriting it.
    Contended,
}

/// Something worth a decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KnobEvent {
    /// Value before.
    pub old: Option<Setting>,
    /// State after.
    pub state: KnobState,
}

/// What a look found.
#[derive(Debug)]
pub(super) enum KnobObservation {
    /// Nothing is to be written; perhaps something is to be told.
    Settled(Option<KnobEvent>),
    /// It is to be written: it holds this, or cannot be read.
    Differs(Option<Setting>),
}

/// Rewrites by somebody else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Rewrites {
    /// How many were seen since the knob was last right for a while.
    pub count: u32,
    /// When the first of them was seen, microseconds since 1970.
    pub since_usec: u64,
}

/// Keeps one knob at its wish.
#[derive(Debug)]
pub(super) struct KnobLoop {
    /// Where it is written.
    pub target: Arc<Target>,
    /// What it should hold.
    pub wanted: Setting,
    /// Why.
    pub reason: Arc<Why>,
    /// What it held when last looked at.
    pub actual: Option<Setting>,
    /// Where it stands.
    pub state: KnobState,
    /// Rewrites by somebody else.
    pub rewrites: Rewrites,
    /// Why the value, although it stands, has no effect.
    pub ineffective: Option<Box<Ineffective>>,
    /// What the kernel made of the wish when it was written; it may round.
    kept: Option<Setting>,
    right_in_a_row: u32,
    /// When it was found rewritten, while its source has not answered.
    doubted: Option<Instant>,
}

impl KnobLoop {
    /// A knob that was not looked at yet.
    pub(super) fn new(place: CgroupRef, wanted: Setting, reason: Why) -> Self {
        Self::at(Arc::new(Target::Cgroup(place)), wanted, Arc::new(reason))
    }

    /// The same where the place is shared with other knobs.
    pub(super) fn at(target: Arc<Target>, wanted: Setting, reason: Arc<Why>) -> Self {
        Self {
            target,
            wanted,
            reason,
            actual: None,
            state: KnobState::Dirty,
            rewrites: Rewrites::default(),
            ineffective: None,
            kept: None,
            right_in_a_row: 0,
            doubted: None,
        }
    }

    /// The loop among `had` that keeps this knob already: with its state where the wish is the same, and in any case
    /// with what is known of its effect.
    pub(super) fn or_kept(self, had: &mut Vec<Self>) -> Self {
        let same = had.iter().position(|had| had.knob() == self.knob() && had.target == self.target);
        match same.map(|index| had.swap_remove(index)) {
            Some(had) if had.wanted == self.wanted => Self { reason: self.reason, ..had },
            Some(had) => Self { ineffective: had.ineffective, actual: had.actual, ..self },
            None => self,
        }
    }

    /// Wishes another value of the same knob: a rewrite by ourselves. True when it is another one.
    pub(super) fn rewish(&mut self, wanted: Setting, reason: &Why) -> bool {
        if *self.reason != *reason {
            self.reason = Arc::new(reason.clone());
        }
        if self.wanted == wanted {
            return false;
        }
        self.wanted = wanted;
        self.kept = None;
        // What is contended stays so until it was found right, or every new wish would be fought over anew.
        if self.state != KnobState::Contended {
            self.state = KnobState::Dirty;
        }
        true
    }

    /// The knob.
    pub(super) fn knob(&self) -> Knob {
        self.wanted.knob()
    }

    /// Where it is written.
    pub(super) fn place(&self) -> Option<&CgroupRef> {
        match &*self.target {
            Target::Cgroup(place) => Some(place),
            Target::Process(_) | Target::Node => None,
        }
    }

    /// True when an audit may pass it over: it was right when last looked at.
    pub(super) fn is_settled(&self) -> bool {
        matches!(self.state, KnobState::Right | KnobState::Contended)
    }

    /// The write that brings it to what it should hold.
    fn wish(&self) -> Write {
        Write { target: (*self.target).clone(), setting: self.wanted }
    }

    /// What is known of it without a look: it is left as it is.
    pub(super) fn settled(&self) -> ObservedKnob {
        ObservedKnob {
            target: Arc::clone(&self.target),
            desired: self.wanted,
            accepted: self.kept.unwrap_or(self.wanted),
            observed: self.actual,
            is_ours: false,
        }
    }

    /// Looks and, where that is needed and ours to do, writes. An event is given when something was written or the
    /// state changed; the outcome only when a write was tried.
    pub(super) fn turn(&mut self, env: &mut Env<'_>) -> (Option<KnobEvent>, Option<Outcome>) {
        match self.look(env) {
            KnobObservation::Settled(event) => (event, None),
            KnobObservation::Differs(_) => self.write(env, &self.wish()),
        }
    }

    /// Reads it and says whether it is to be written.
    pub(super) fn look(&mut self, env: &Env<'_>) -> KnobObservation {
        let before = self.state.clone();
        if let Some(why) = self.held(env) {
            self.state = KnobState::Held { why };
            return KnobObservation::Settled(None);
        }
        let found = env.reader.setting(&self.target, self.knob());
        if let Ok(value) = found {
            self.actual = Some(value);
            if value == self.kept.unwrap_or(self.wanted) {
                return KnobObservation::Settled(self.found_right(&before, value));
            }
        }
        if found.as_ref().is_err_and(HostError::is_gone) {
            return KnobObservation::Settled(None);
        }
        match before {
            KnobState::Contended => {
                self.rewrites.count = self.rewrites.count.saturating_add(u32::from(self.right_in_a_row > 0));
                self.right_in_a_row = 0;
                KnobObservation::Settled(None)
            }
            KnobState::Right => KnobObservation::Settled(self.found_rewritten(env)),
            // An audit that comes meanwhile is no answer.
            KnobState::Doubted
                if self.doubted.is_some_and(|since| since.elapsed() < env.config.answer_within) =>
            {
                KnobObservation::Settled(None)
            }
            _ => KnobObservation::Differs(found.ok()),
        }
    }

    fn found_rewritten(&mut self, env: &Env<'_>) -> Option<KnobEvent> {
        self.right_in_a_row = 0;
        if self.rewrites.count == 0 {
            self.rewrites.since_usec = now_usec();
        }
        self.rewrites.count += 1;
        if self.rewrites.count >= env.config.contended_after {
            self.state = KnobState::Contended;
            return Some(KnobEvent { old: self.actual, state: KnobState::Contended });
        }
        // It may be an update of the wish that the source has not told yet: runtimes resize in place.
        self.state = KnobState::Doubted;
        self.doubted = Some(Instant::now());
        None
    }

    /// Notes the original and writes.
    pub(super) fn write(&mut self, env: &mut Env<'_>, write: &Write) -> (Option<KnobEvent>, Option<Outcome>) {
        let before = self.state.clone();
        if let Some(why) = self.would_kill(env) {
            let remedy =
                Some("raise the limit, or have the container give memory back; audits try again".into());
            self.state = KnobState::Rejected { why, remedy };
            let news = !matches!(before, KnobState::Rejected { .. });
            return (news.then(|| KnobEvent { old: self.actual, state: self.state.clone() }), None);
        }
        // Read in this turn; what cannot be read has no original, unless systemd is about to bring it.
        if let Some(old) = self.actual.or_else(|| crate::systemd::assumed(&self.target, self.knob())) {
            env.journal.note(&self.target, old, self.wanted, None);
            env.journal.flush();
        }
        let outcome = env.writer.apply(write);
        self.take_in(&outcome);
        let told = before != self.state || matches!(outcome, Outcome::Written { .. });
        let event = told.then(|| KnobEvent { old: outcome.old().or(self.actual), state: self.state.clone() });
        (event.filter(|event| event.state != KnobState::Dirty), Some(outcome))
    }

    fn held(&self, env: &Env<'_>) -> Option<String> {
        let holds = env.holds.filter(|holds| holds.len() > 0)?;
        let hold = holds.held(self.place()?.inode, self.knob())?;
        Some(format!("held by {}: {}", hold.by.as_str(), hold.why))
    }

    /// Why lowering a limit on memory now would make the OOM killer do it: a limit below what the container cannot
    /// easily give up (cgroup-v2.rst, `memory.max`: "the OOM killer is invoked").
    fn would_kill(&self, env: &Env<'_>) -> Option<String> {
        limit_would_kill(env.reader, self.place()?, self.actual, self.wanted)
    }

    fn found_right(&mut self, before: &KnobState, value: Setting) -> Option<KnobEvent> {
        self.right_in_a_row = self.right_in_a_row.saturating_add(1);
        let forgiven = self.right_in_a_row >= FORGIVEN_AFTER;
        if forgiven {
            self.rewrites = Rewrites::default();
        }
        if *before == KnobState::Right || (*before == KnobState::Contended && !forgiven) {
            return None;
        }
        self.state = KnobState::Right;
        // Nothing to tell where it was right from the beginning, or was only doubted or held.
        (!matches!(before, KnobState::Dirty | KnobState::Doubted | KnobState::Held { .. }))
            .then_some(KnobEvent { old: Some(value), state: KnobState::Right })
    }

    fn take_in(&mut self, outcome: &Outcome) {
        self.state = match outcome {
            Outcome::Written { new, .. } | Outcome::Unchanged { value: new } => {
                self.kept = Some(*new);
                self.actual = Some(*new);
                KnobState::Right
            }
            Outcome::WouldWrite { .. } => KnobState::Would,
            Outcome::Refused(refusal) => KnobState::Rejected { why: refusal.to_string(), remedy: None },
            Outcome::Failed { error, .. } => {
                let (why, remedy) = (error.to_string(), error.remedy().map(str::to_owned));
                match error.category() {
                    Category::Gone | Category::Io | Category::Partial | Category::Malformed => {
                        KnobState::Dirty
                    }
                    Category::Denied => KnobState::Denied { why, remedy },
                    Category::Unsupported | Category::Rejected => KnobState::Rejected { why, remedy },
                }
            }
        };
    }
}

/// Why setting a limit on memory now would call the OOM killer; `None` where it would not, or the setting is none.
pub(crate) fn limit_would_kill(
    reader: &dyn HostReader,
    place: &CgroupRef,
    now: Option<Setting>,
    wanted: Setting,
) -> Option<String> {
    let (Setting::MemoryMax(Limit::Value(wanted)) | Setting::MemoryLimit(Limit::Value(wanted))) = wanted
    else {
        return None;
    };
    if let Some(Setting::MemoryMax(now) | Setting::MemoryLimit(now)) = now
        && matches!(now, Limit::Value(now) if now <= wanted)
    {
        return None;
    }
    let used = reader.memory(place).ok()?.working_set();
    (used > wanted).then(|| too_small(wanted, used))
}

fn too_small(wanted: Bytes, used: Bytes) -> String {
    format!(
        "the container uses {used} that are not easily reclaimed, more than the limit of {wanted}: setting it now would \
         call the OOM killer"
    )
}
