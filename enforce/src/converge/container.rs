//! One container: its scores, its knobs, and where all of it stands.
//!
//! Owned here: the order of a turn, the words of its decisions, backing off from what is denied. Not owned: when a
//! turn is taken ([`super`]), how scores converge ([`super::score`]) and knobs are kept ([`super::knob`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_host::error::HostError;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{CgroupRef, Outcome};
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::units::{Bytes, Limit, OomScoreAdj};
use evenkeel_model::workload::Workload;
use evenkeel_qos::desired::{ContainerInputs, Protection};
use evenkeel_qos::fair::Allotment;
use evenkeel_qos::plan::{ContainerPlan, Wish};
use evenkeel_qos::why::Why;

use super::board::{Cause, LET_ONE_OWN, Trouble};
use super::env::{Env, ticks_per_second};
use super::knob::{self, KnobLoop};
use super::knobs::{Done, Knobs};
use super::members::Target;
use super::pass::KNOB;
use super::score::{ScoreLoop, Turn, Verdict};
use super::wishes::WantedSetting;
use crate::decisions::{Draft, now_usec, result_of};
use crate::shared::{Tracked, micros};

/// Longest time between two tries of what was denied.
const DENIED_MOST: Duration = Duration::from_secs(600);

/// Where a container, or one of its knobs, stands. Order is from best to worst, so that the worst part of a
/// container is the container's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Verified to hold what is wished.
    Converged,
    /// Holds what is wished, but something around it takes the effect away.
    Ineffective,
    /// Not verified since the wish or the processes changed.
    Dirty,
    /// Being brought there.
    Converging,
    /// Left to somebody who keeps rewriting it.
    Contended,
    /// Not allowed here.
    Denied,
    /// Sampled only.
    Unclassified,
}

impl State {
    /// The name in output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Converged => "converged",
            Self::Ineffective => "ineffective",
            Self::Dirty => "dirty",
            Self::Converging => "converging",
            Self::Contended => "contended",
            Self::Denied => "denied",
            Self::Unclassified => "unclassified",
        }
    }
}

/// Scores of a container.
#[derive(Debug)]
pub(super) struct Scores {
    pub(super) looper: ScoreLoop,
    pub(super) reason: Arc<Why>,
    pub(super) state: State,
    /// Why it is not converged, with the remedy.
    pub(super) trouble: Option<(String, Option<String>)>,
    rewrites: u32,
    /// When somebody else was first seen to write, microseconds since 1970.
    rewritten_usec: u64,
    /// What somebody else wrote last.
    rewritten_to: Option<String>,
    /// Until then events do not make what was denied tried again.
    quiet_until: Option<Instant>,
    backoff: Duration,
}

impl Scores {
    /// Scores that nobody has looked at.
    pub(super) fn new(looper: ScoreLoop, reason: Why) -> Self {
        Self {
            looper,
            reason: Arc::new(reason),
            state: State::Dirty,
            trouble: None,
            rewrites: 0,
            rewritten_usec: 0,
            rewritten_to: None,
            quiet_until: None,
            backoff: Duration::ZERO,
        }
    }
}

impl Scores {
    /// Who rewrites them, as status shows it.
    pub(super) fn contended(&self) -> Trouble {
        Trouble {
            count: self.rewrites,
            since_usec: self.rewritten_usec,
            cause: Cause::Rewritten(self.rewritten_to.as_deref().map(Into::into)),
        }
    }

    /// The wish may have changed: nothing is held against it any more.
    pub(super) fn retry(&mut self) {
        self.state = State::Dirty;
        self.trouble = None;
        self.rewrites = 0;
        self.quiet_until = None;
        self.backoff = Duration::ZERO;
    }
}

/// One container.
#[derive(Debug)]
pub(super) struct TrackedContainer {
    pub(super) tracked: Arc<Tracked>,
    /// Where its processes are listed.
    pub(super) processes_at: CgroupRef,
    /// Its place in the freezer's hierarchy.
    pub(super) freezer: Option<CgroupRef>,
    /// Processors of its own that it asks for.
    pub(super) cores: Option<usize>,
    /// Its place in the cpuset controller's hierarchy.
    pub(super) cpuset: Option<CgroupRef>,
    /// Its place in the memory controller's hierarchy.
    pub(super) memory: Option<CgroupRef>,
    /// Its place in the CPU controller's hierarchy.
    pub(super) cpu: Option<CgroupRef>,
    /// Why it is sampled only.
    pub(super) unmanaged: Option<String>,
    pub(super) scores: Option<Scores>,
    pub(super) knobs: Knobs,
    /// Number of the present wish.
    pub(super) generation: u64,
    pub(super) verified_at_usec: Option<u64>,
    pub(super) processes: u32,
    /// Until it was first seen right: when the agent started, clock ticks since boot.
    pub(super) agent_started: Option<u64>,
    /// Since when it may be wrong.
    pub(super) noticed: Option<Instant>,
    /// Its knobs are to be looked at as a whole: something happened to it.
    pub(super) whole: bool,
    /// The survey its knobs were last judged by; 0 = not since one was written.
    pub(super) judged: u64,
    /// Its cgroup has `cpu.idle`.
    pub(super) can_idle: bool,
    /// Its score by use and priority, where those are looked at.
    pub(super) score_by_use: Option<Wish<OomScoreAdj>>,
    /// Its fair part of the CPU, in the fair mode.
    pub(super) part: Option<Box<Allotment>>,
    /// What status shows of it is out of date.
    pub(super) stale: bool,
}

/// What a turn wants next.
#[derive(Debug, Default)]
pub(super) struct Next {
    /// Look again after this time.
    pub(super) again: Option<Duration>,
    /// Decisions made.
    pub(super) drafts: Vec<Draft>,
    /// Knobs that turned out denied, with the remedy: told once per node.
    pub(super) denied: Vec<(Knob, String, Option<String>)>,
    /// Somebody else wrote a knob: its source is asked again before that is undone.
    pub(super) ask_source: bool,
}

impl TrackedContainer {
    /// The worst of its parts. That a knob has no effect where it is says nothing about whether it holds what is wished:
    /// it is told of the knob, not of the container.
    pub(super) fn state(&self) -> State {
        if self.unmanaged.is_some() {
            return State::Unclassified;
        }
        let of = |knob| match state_of(knob) {
            State::Ineffective => State::Converged,
            state => state,
        };
        let knobs = self.knobs.all.iter().map(of);
        self.scores.iter().map(|scores| scores.state).chain(knobs).max().unwrap_or(State::Unclassified)
    }

    /// Closes what a reader keeps open of it.
    pub(super) fn close(&self, reader: &dyn HostReader) {
        reader.forget(&self.processes_at);
        for knob in &self.knobs.all {
            if let evenkeel_host::write::Target::Cgroup(at) = &*knob.target {
                reader.forget(at);
            }
        }
    }

    /// Whether any of its knobs is in this state.
    pub(super) fn has(&self, state: State) -> bool {
        self.knobs.all.iter().any(|knob| state_of(knob) == state)
    }

    /// Something may have changed: it is to be looked at. False when it need not be before its audit.
    pub(super) fn notice(&mut self, now: Instant) -> bool {
        self.whole = true;
        let Some(scores) = self.scores.as_mut() else { return !self.knobs.all.is_empty() };
        if scores.quiet_until.is_some_and(|until| now < until) || scores.state == State::Contended {
            return false;
        }
        if self.noticed.is_none() {
            self.noticed = Some(now);
        }
        true
    }

    /// Whether one process, just seen to fork or exec, has a score it should not have.
    pub(super) fn has_wrong(&self, reader: &dyn HostReader, pid: u32) -> bool {
        let Some(scores) = &self.scores else { return false };
        reader.score(pid).is_ok_and(|score| !scores.looper.is_as_seen(pid, score))
    }

    /// Looks at everything once.
    ///
    /// # Errors
    /// `Gone` when the cgroup is no more; other categories when it cannot be listed now.
    pub(super) fn turn(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        stats: &Counters<'_>,
    ) -> Result<Next, HostError> {
        let mut next = Next::default();
        let before = self.state();
        let whole = std::mem::take(&mut self.whole);
        self.put_back(env, stats, &mut next);
        for done in self.knobs.turn(env, whole) {
            self.judged = 0;
            self.knob_done(env, done, stats, &mut next);
        }
        // A doubted knob is asked about and looked at again soon, whether this turn found it or an earlier one.
        if self.knobs.all.iter().any(|knob| knob.state == knob::KnobState::Doubted) {
            let within = env.config.answer_within;
            next.ask_source = true;
            next.again = Some(next.again.map_or(within, |again| again.min(within)));
        }
        self.score_turn(env, now, stats, &mut next)?;
        self.stale |= !next.drafts.is_empty() || self.state() != before;
        Ok(next)
    }

    fn score_turn(
        &mut self,
        env: &mut Env<'_>,
        now: Instant,
        stats: &Counters<'_>,
        next: &mut Next,
    ) -> Result<(), HostError> {
        let Some(scores) = self.scores.as_mut() else {
            self.noticed = None;
            // Nothing to write, but the cgroup must still be there.
            env.reader.pids(&self.processes_at)?;
            return Ok(());
        };
        if scores.quiet_until.is_some_and(|until| now < until) || scores.state == State::Contended {
            env.reader.pids(&self.processes_at)?;
            return Ok(());
        }
        let turn = scores.looper.turn(env, &self.processes_at, self.freezer.as_ref())?;
        stats.take_in(&turn);
        let before = scores.state;
        self.tell_writes(env, &turn, next);
        self.take_verdict(env, now, before, &turn, stats, next);
        Ok(())
    }

    /// One decision for all processes a turn wrote.
    fn tell_writes(&mut self, env: &Env<'_>, turn: &Turn, next: &mut Next) {
        let Some(scores) = self.scores.as_mut() else { return };
        if turn.written > 0 {
            let mut draft = set(&self.tracked, &scores.looper, &scores.reason, turn)
                .input("written", turn.written)
                .input("passes", turn.passes);
            if turn.froze {
                draft = draft.input("frozen", true);
            }
            next.drafts.push(draft);
        }
        // A refusal verifies nobody, but people want to know how many it concerns.
        if turn.denied > 0
            && let Ok(pids) = env.reader.pids(&self.processes_at)
        {
            self.processes = u32::try_from(pids.len()).unwrap_or(u32::MAX);
        }
        if let Some(error) = &turn.not_frozen {
            tracing::debug!(cgroup = %self.processes_at, %error, "ignoring: not frozen, passes go on");
        }
        if turn.rewritten_by_others == 0 {
            return;
        }
        if scores.rewrites == 0 {
            scores.rewritten_usec = now_usec();
        }
        scores.rewrites += 1;
        scores.rewritten_to = turn.first.map(|(_, score)| score.to_string());
        if scores.rewrites >= env.config.contended_after {
            scores.state = State::Contended;
            let why = format!(
                "somebody else changed scores {} times in a row; they are left alone",
                scores.rewrites
            );
            scores.trouble = Some((why.clone(), Some(LET_ONE_OWN.into())));
            next.drafts.push(
                Draft::of(&self.tracked.workload, DecisionKind::Contended, why)
                    .knob(KNOB.name())
                    .values(None, Some(scores.looper.target().score.to_string())),
            );
        }
    }

    fn take_verdict(
        &mut self,
        env: &Env<'_>,
        now: Instant,
        before: State,
        turn: &Turn,
        stats: &Counters<'_>,
        next: &mut Next,
    ) {
        let Some(scores) = self.scores.as_mut() else { return };
        if scores.state == State::Contended {
            self.noticed = None;
            return;
        }
        match &turn.verdict {
            Verdict::Verified { processes, respected } => {
                scores.state = State::Converged;
                scores.trouble = None;
                scores.backoff = Duration::ZERO;
                if turn.passes == 0 {
                    scores.rewrites = 0;
                }
                self.verified_at_usec = Some(now_usec());
                self.processes = *processes;
                stats.verified(*processes, self.noticed.take());
                // Of those that began before the agent nobody can tell how long it would have taken.
                if let Some(began) = turn.oldest
                    && let Some(agent_started) = self.agent_started.take()
                    && began >= agent_started
                {
                    stats.first_right((env.ticks)().saturating_sub(began));
                }
                if before != State::Converged || turn.written > 0 {
                    next.drafts.push(self.converged(*processes, *respected));
                }
            }
            Verdict::Again(after) => {
                scores.state = State::Converging;
                next.again = Some(*after);
            }
            Verdict::Denied(error) => {
                let remedy = error.remedy().map(str::to_owned);
                next.denied.push((KNOB, error.to_string(), remedy.clone()));
                let told = trouble(scores, State::Denied, error.to_string(), remedy);
                self.back_off(env, now);
                if told {
                    next.drafts.push(self.troubled(DecisionKind::Denied, DecisionResult::Denied, turn));
                }
            }
            Verdict::Refused(refusal) => {
                let told = trouble(scores, State::Denied, refusal.to_string(), None);
                self.back_off(env, now);
                if told {
                    next.drafts.push(self.troubled(DecisionKind::Denied, DecisionResult::Rejected, turn));
                }
            }
            Verdict::Would(count) => {
                let why = format!("dry run: {count} processes would be written");
                if trouble(scores, State::Dirty, why, None) {
                    let draft = set(&self.tracked, &scores.looper, &scores.reason, turn);
                    next.drafts.push(draft.input("processes", count).result(DecisionResult::WouldDo));
                }
                self.noticed = None;
            }
            Verdict::Failed(error) => {
                let remedy = error.remedy().map(str::to_owned);
                if trouble(scores, State::Dirty, error.to_string(), remedy) {
                    next.drafts.push(self.troubled(DecisionKind::Set, DecisionResult::Failed, turn));
                }
            }
        }
    }

    /// What is denied is tried again at audits only, ever less often.
    fn back_off(&mut self, env: &Env<'_>, now: Instant) {
        let Some(scores) = self.scores.as_mut() else { return };
        // The audit period may itself be longer than the longest time between two tries.
        let least = env.config.audit_period;
        scores.backoff = (scores.backoff * 2).clamp(least, DENIED_MOST.max(least));
        scores.quiet_until = Some(now + scores.backoff);
        self.noticed = None;
    }

    fn converged(&self, processes: u32, respected: u32) -> Draft {
        let reason = match (processes, respected) {
            (0, _) => "the container has no process".to_owned(),
            (n, 0) => format!("all {n} processes verified at their score"),
            (n, r) => format!("all {n} processes verified; {r} raised their own score and are left so"),
        };
        let wanted = self.scores.as_ref().map(|scores| scores.looper.target().score.to_string());
        Draft::of(&self.tracked.workload, DecisionKind::Converged, reason)
            .knob(KNOB.name())
            .values(None, wanted)
            .input("processes", processes)
            .input("generation", self.generation)
    }

    fn troubled(&self, kind: DecisionKind, result: DecisionResult, turn: &Turn) -> Draft {
        let scores = self.scores.as_ref();
        let (why, remedy) = scores.and_then(|scores| scores.trouble.clone()).unwrap_or_default();
        let reason = remedy.map_or_else(|| why.clone(), |remedy| format!("{why}; {remedy}"));
        Draft::of(&self.tracked.workload, kind, reason)
            .knob(KNOB.name())
            .values(
                turn.first.map(|(_, score)| score.to_string()),
                scores.map(|scores| scores.looper.target().score.to_string()),
            )
            .result(result)
    }

    /// Takes what is desired of it now, where the knobs are the same ones as before. True when something may have to be
    /// written.
    pub(super) fn take(&mut self, desired: &ContainerPlan, settings: &[WantedSetting<'_>]) -> bool {
        let mut changed = desired.wishes.oom_score_adj.as_ref().is_some_and(|wish| self.take_score(wish));
        for knob in &mut self.knobs.all {
            if let Some(wanted) = settings.iter().find(|wanted| wanted.setting.knob() == knob.knob()) {
                changed |= knob.rewish(wanted.setting, wanted.why);
            }
        }
        self.stale |= changed;
        changed
    }

    fn take_score(&mut self, wish: &Wish<OomScoreAdj>) -> bool {
        let Some(scores) = self.scores.as_mut() else { return false };
        let target = Target { score: wish.value, ..scores.looper.target() };
        if *scores.reason != wish.reason {
            scores.reason = Arc::new(wish.reason.clone());
        }
        if target == scores.looper.target() {
            return false;
        }
        scores.looper.retarget(target);
        // A rewrite by ourselves; who is contended stays so.
        if scores.state != State::Contended {
            scores.retry();
        }
        self.generation += 1;
        true
    }

    /// What is known of it, for the desired state.
    pub(super) fn inputs(&self) -> ContainerInputs<'_> {
        self.inputs_with(&self.tracked.workload)
    }

    /// The same with another wish of its source.
    pub(super) fn inputs_with<'a>(&'a self, workload: &'a Workload) -> ContainerInputs<'a> {
        ContainerInputs {
            workload,
            path: &self.tracked.cgroup,
            can_idle: self.can_idle,
            part: self.part.as_deref(),
            score: self.score_by_use.as_ref(),
            held: self.held(),
        }
    }

    /// Protection it holds, as far as that was looked at.
    pub(super) fn held(&self) -> Protection {
        let held = |knob: Knob| match self.knobs.all.iter().find(|k| k.knob() == knob).and_then(|k| k.actual)
        {
            Some(Setting::MemoryMin(Limit::Value(v)) | Setting::MemoryLow(Limit::Value(v))) => v,
            _ => Bytes::ZERO,
        };
        Protection { min: held(Knob::MemoryMin), low: held(Knob::MemoryLow) }
    }

    /// Whether its weight is ours.
    pub(super) fn has_weight(&self) -> bool {
        self.knobs.all.iter().any(|knob| matches!(knob.knob(), Knob::CpuWeight | Knob::CpuShares))
    }

    /// Puts back what knobs held that are no longer wished.
    fn put_back(&mut self, env: &mut Env<'_>, stats: &Counters<'_>, next: &mut Next) {
        if self.knobs.withdrawn.is_empty() {
            return;
        }
        for (knob, ours, original, outcome) in self.knobs.put_back(env) {
            stats.count(knob, &outcome);
            let reason = "it is no longer wished: what it held before is put back";
            let draft = Draft::of(&self.tracked.workload, DecisionKind::Set, reason)
                .knob(knob.name())
                .values(Some(ours.to_string()), Some(original.to_string()))
                .result(result_of(&outcome));
            next.drafts.push(draft);
        }
    }

    fn knob_done(&self, env: &Env<'_>, done: Done, stats: &Counters<'_>, next: &mut Next) {
        let Some(knob) = self.knobs.all.get(done.index) else { return };
        if let Some(outcome) = done.outcome {
            stats.count(knob.knob(), &outcome);
        }
        let Some(event) = done.event else { return };
        let wanted = knob.wanted.to_string();
        let told = |kind, reason: String, result| {
            Draft::of(&self.tracked.workload, kind, reason)
                .knob(knob.knob().name())
                .values(event.old.map(|old| old.to_string()), Some(wanted.clone()))
                .result(result)
        };
        let draft = match event.state {
            knob::KnobState::Dirty | knob::KnobState::Doubted | knob::KnobState::Held { .. } => return,
            knob::KnobState::Right => {
                told(DecisionKind::Set, knob.reason.text(), DecisionResult::Done).inputs(knob.reason.inputs())
            }
            knob::KnobState::Would => told(DecisionKind::Set, knob.reason.text(), DecisionResult::WouldDo)
                .inputs(knob.reason.inputs()),
            knob::KnobState::Denied { why, remedy } => {
                next.denied.push((knob.knob(), why.clone(), remedy.clone()));
                let reason = remedy.map_or_else(|| why.clone(), |remedy| format!("{why}; {remedy}"));
                told(DecisionKind::Denied, reason, DecisionResult::Denied)
            }
            knob::KnobState::Rejected { why, remedy } => {
                let reason = remedy.map_or_else(|| why.clone(), |remedy| format!("{why}; {remedy}"));
                told(DecisionKind::Denied, reason, DecisionResult::Rejected)
            }
            knob::KnobState::Contended => {
                let count = env.config.contended_after;
                let reason = format!("somebody else rewrote it {count} times in a row; it is left alone");
                told(DecisionKind::Contended, reason, DecisionResult::Unchanged)
                    .input("count", knob.rewrites.count)
                    .input("since_usec", knob.rewrites.since_usec)
            }
        };
        next.drafts.push(draft);
    }
}

/// A Set decision about scores, with the plan's reason and the process it was first seen on.
fn set(tracked: &Tracked, looper: &ScoreLoop, reason: &Why, turn: &Turn) -> Draft {
    let mut draft = Draft::of(&tracked.workload, DecisionKind::Set, reason.text())
        .knob(KNOB.name())
        .inputs(reason.inputs())
        .values(turn.first.map(|(_, score)| score.to_string()), Some(looper.target().score.to_string()));
    if let Some((pid, _)) = turn.first {
        draft = draft.input("first_pid", pid);
    }
    draft
}

/// Takes in a trouble; true when it is news.
fn trouble(scores: &mut Scores, state: State, why: String, remedy: Option<String>) -> bool {
    // The same trouble with another process is no news: the state says it.
    let news = scores.state != state || scores.trouble.is_none();
    scores.state = state;
    scores.trouble = Some((why, remedy));
    news
}

/// A knob's state in the container's words.
pub(super) fn state_of(knob: &KnobLoop) -> State {
    match &knob.state {
        knob::KnobState::Dirty | knob::KnobState::Doubted | knob::KnobState::Would => State::Dirty,
        knob::KnobState::Right if knob.ineffective.is_some() => State::Ineffective,
        // Held: what the agent itself set for a while stands, and the wish comes back by itself.
        knob::KnobState::Right | knob::KnobState::Held { .. } => State::Converged,
        knob::KnobState::Denied { .. } | knob::KnobState::Rejected { .. } => State::Denied,
        knob::KnobState::Contended => State::Contended,
    }
}

/// The converger's counters.
pub(super) struct Counters<'a>(pub(super) &'a crate::stats::Stats);

impl Counters<'_> {
    fn take_in(&self, turn: &Turn) {
        let writes = self.0.writes.of(Knob::OomScoreAdj);
        self.0.converge_passes.add(u64::from(turn.passes));
        self.0.freezes.add(u64::from(turn.froze));
        writes.done.add(u64::from(turn.written));
        writes.denied.add(u64::from(turn.denied));
        writes.gone.add(u64::from(turn.gone));
        match &turn.verdict {
            Verdict::Would(count) => writes.would.add(u64::from(*count)),
            Verdict::Refused(_) => writes.rejected.add(1),
            Verdict::Failed(_) => writes.failed.add(1),
            _ => {}
        }
    }

    /// A new container is right, so many clock ticks after its first process began.
    fn first_right(&self, ticks: u64) {
        self.0.first_pid_to_right.observe(ticks.saturating_mul(1_000_000) / ticks_per_second().max(1));
    }

    fn verified(&self, processes: u32, noticed: Option<Instant>) {
        self.0.processes_verified.add(u64::from(processes));
        if let Some(noticed) = noticed {
            self.0.time_to_right.observe(micros(noticed.elapsed()));
        }
    }

    pub(super) fn count(&self, knob: Knob, outcome: &Outcome) {
        self.0.writes.of(knob).count(outcome);
    }
}
