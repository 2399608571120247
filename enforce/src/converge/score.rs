//! A container's scores from dirty to converged.
//!
//! Passes repeat until one finds every process right. That alone is no proof: a fork in flight has copied the old
//! score and is in no list yet. So after a clean pass the container is looked at once more, [`SETTLE`] later. If
//! the same processes are there, all are right and none is younger than [`QUIET`], nobody was forking and it is
//! converged (on a loaded machine a fork may be in flight for longer than [`SETTLE`], but then there are young
//! processes to be seen: these are given time to show what they do). If they changed after
//! some were wrong, or ended before anybody could see their score, the container forks faster than it can be
//! looked at: it is frozen for one pass, because a frozen cgroup has no fork in flight, and a pass over it is a
//! proof. Where freezing is not allowed or does not work, [`UNFROZEN_PROOF`] looks in a row that saw every listed
//! process right stand in; until then it is `converging`, and looked at ever less often.

use std::time::Duration;

use evenkeel_host::error::{Category, HostError};
use evenkeel_host::freeze::{FreezeError, freeze_write, with_frozen};
use evenkeel_host::write::{CgroupRef, Outcome, Refusal};
use evenkeel_model::units::OomScoreAdj;

use super::env::{Env, ticks_per_second};
use super::members::{Members, Target};
use super::pass::{Pass, look, pass};
use crate::converge::rules::FreezeWhen;
use crate::journal::Journal;

/// Time between a clean pass and the look that confirms it: a fork takes 0.1 ms on an idle machine and a few time
/// slices on a loaded one.
const SETTLE: Duration = Duration::from_millis(50);
/// A container without a process younger than this is not one that forks all the time.
const QUIET: Duration = Duration::from_secs(1);
/// Passes in one turn before others get theirs.
const PASSES_PER_TURN: u32 = 4;
/// Clean looks in a row that count as proof where a forking container cannot be frozen.
const UNFROZEN_PROOF: u32 = 5;
/// Times in a row that freezing may fail before passes alone have to do for a while.
const FREEZE_TRIES: u32 = 3;
/// Time between two looks from which freezing is tried again although it failed.
const FREEZE_AGAIN: Duration = Duration::from_secs(1);

/// Where a container's scores stand.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Dirty,
    /// The last pass was clean: the pids it saw, looks in a row that saw everybody right, all looks.
    Settling {
        pids: Vec<u32>,
        clean: u32,
        looks: u32,
    },
    /// Proven; every later process was forked from a right one, moved in, or raised itself.
    Settled,
}

/// Brings one container's processes to their target.
#[derive(Debug)]
pub(super) struct ScoreLoop {
    target: Target,
    members: Members,
    phase: Phase,
    dirty_passes: u32,
    freeze_failures: u32,
    /// The last turn made a pass, so the processes may be others.
    passed: bool,
}

/// What one turn came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Every process verified; so many processes, so many of them respected above the target.
    Verified { processes: u32, respected: u32 },
    /// Not yet; look again after this time.
    Again(Duration),
    /// Not allowed; look again at the audit.
    Denied(HostError),
    /// The writer will not do it.
    Refused(Refusal),
    /// Dry run: so many processes would have been written.
    Would(u32),
    /// Something else failed; look again at the audit.
    Failed(HostError),
}

/// One turn: its verdict and what was done on the way.
#[derive(Debug)]
pub(super) struct Turn {
    /// What it came to.
    pub verdict: Verdict,
    /// Passes made.
    pub passes: u32,
    /// Processes written.
    pub written: u32,
    /// Refusals for lack of permission.
    pub denied: u32,
    /// Processes that ended before they were written.
    pub gone: u32,
    /// Of those written, seen right before.
    pub rewritten_by_others: u32,
    /// First wrong process and the score it had.
    pub first: Option<(u32, OomScoreAdj)>,
    /// When the oldest process seen right began, clock ticks since boot.
    pub oldest: Option<u64>,
    /// The container was frozen for a pass.
    pub froze: bool,
    /// The container was to be frozen, and this is why it was not.
    pub not_frozen: Option<FreezeError>,
}

impl ScoreLoop {
    /// Nothing is known of the processes yet.
    pub(super) fn new(target: Target) -> Self {
        let members = Members::default();
        Self { target, members, phase: Phase::Dirty, dirty_passes: 0, freeze_failures: 0, passed: false }
    }

    /// The target.
    pub(super) fn target(&self) -> Target {
        self.target
    }

    /// True when a process has the target or the score it was respected with.
    pub(super) fn is_as_seen(&self, pid: u32, score: OomScoreAdj) -> bool {
        self.members.is_as_seen(pid, score, self.target)
    }

    /// Pids of the processes seen right, when the last turn made a pass; else nothing.
    pub(super) fn pids_if_changed(&self) -> impl Iterator<Item = u32> {
        let changed = self.passed;
        self.members.pids().filter(move |_| changed)
    }

    /// Takes a new target; processes seen right under the old one are strangers under the new.
    pub(super) fn retarget(&mut self, target: Target) {
        if self.target != target {
            self.target = target;
            self.members.clear();
            self.phase = Phase::Dirty;
            self.dirty_passes = 0;
        }
    }

    /// Looks, writes, and says how far it is. `freezer` is the container's place in the freezer's hierarchy.
    ///
    /// # Errors
    /// `Gone` when the cgroup is no more; other categories when it cannot be listed.
    pub(super) fn turn(
        &mut self,
        env: &mut Env<'_>,
        cgroup: &CgroupRef,
        freezer: Option<&CgroupRef>,
    ) -> Result<Turn, HostError> {
        let mut turn = Turn::new();
        self.passed = false;
        // Proven before: when nothing changed since, nothing has to be proven again.
        if self.phase == Phase::Settled
            && let Some(processes) = look(env.reader, cgroup, self.target, &self.members)?
        {
            turn.verdict = Verdict::Verified { processes, respected: 0 };
            return Ok(turn);
        }
        self.passed = true;
        while turn.passes < PASSES_PER_TURN {
            let done = pass(env, cgroup, self.target, &mut self.members)?;
            turn.take_in(&done);
            if let Some(verdict) = stopping(&done) {
                self.phase = Phase::Dirty;
                turn.verdict = verdict;
                return Ok(turn);
            }
            if !done.is_clean() {
                self.phase = Phase::Dirty;
                self.dirty_passes += 1;
                if self.freezes_now(&done, env.config.freeze)
                    && let Some(verdict) = self.freeze(env, cgroup, freezer, &mut turn)?
                {
                    turn.verdict = verdict;
                    return Ok(turn);
                }
                continue;
            }
            turn.verdict = self.clean(env, cgroup, freezer, done, &mut turn)?;
            return Ok(turn);
        }
        turn.verdict = Verdict::Again(Duration::from_millis(1));
        Ok(turn)
    }

    /// A clean pass: the proof, the beginning of one, or a sign that only freezing will prove it.
    fn clean(
        &mut self,
        env: &mut Env<'_>,
        cgroup: &CgroupRef,
        freezer: Option<&CgroupRef>,
        done: Pass,
        turn: &mut Turn,
    ) -> Result<Verdict, HostError> {
        let verified = Verdict::Verified { processes: done.right, respected: done.respected };
        let before = std::mem::replace(&mut self.phase, Phase::Dirty);
        let whole = done.unjudged == 0;
        let (same, clean, looks) = match &before {
            // Found all right, nobody written, nobody moving: as good as it was when it was proven.
            Phase::Settled if !done.moving => (true, 1, 1),
            Phase::Dirty if self.dirty_passes == 0 && !done.moving => (true, 1, 1),
            Phase::Settling { pids, clean, looks } => {
                let same = *pids == done.pids && !done.moving;
                (same, if whole { clean + 1 } else { 0 }, looks + 1)
            }
            Phase::Dirty | Phase::Settled => (false, 0, 0),
        };
        let young = self.dirty_passes > 0 && is_young(&done, (env.ticks)());
        if (same && !young) || clean >= UNFROZEN_PROOF {
            self.settle();
            return Ok(verified);
        }
        if same {
            self.phase = Phase::Settling { pids: done.pids, clean, looks };
            return Ok(Verdict::Again(QUIET));
        }
        // Where everybody was seen and nobody was ever wrong there is nothing to outrun: clean looks will do.
        let outrun = looks > 0 && (self.dirty_passes > 0 || !whole);
        if outrun
            && env.config.freeze == FreezeWhen::Forking
            && let Some(verdict) = self.freeze(env, cgroup, freezer, turn)?
        {
            return Ok(verdict);
        }
        self.phase = Phase::Settling { pids: done.pids, clean, looks };
        let wait = SETTLE * 2_u32.saturating_pow((looks / UNFROZEN_PROOF).min(16));
        if wait >= FREEZE_AGAIN {
            // What could not be frozen then may be now.
            self.freeze_failures = 0;
        }
        Ok(Verdict::Again(wait.min(env.config.audit_period)))
    }

    fn settle(&mut self) {
        self.phase = Phase::Settled;
        self.dirty_passes = 0;
        self.freeze_failures = 0;
    }

    fn freezes_now(&self, done: &Pass, when: FreezeWhen) -> bool {
        let after = match when {
            FreezeWhen::Never => return false,
            FreezeWhen::Forking => FreezeWhen::DEFAULT_PASSES,
            FreezeWhen::AfterPasses(passes) => passes,
        };
        done.wrong > 0 && self.dirty_passes >= after && self.freeze_failures < FREEZE_TRIES
    }

    /// Freezes, passes until clean, thaws. `None` when it could not be frozen; passes go on then.
    fn freeze(
        &mut self,
        env: &mut Env<'_>,
        cgroup: &CgroupRef,
        freezer: Option<&CgroupRef>,
        turn: &mut Turn,
    ) -> Result<Option<Verdict>, HostError> {
        let Some(freezer) = freezer.filter(|_| self.freeze_failures < FREEZE_TRIES) else { return Ok(None) };
        // Noted before it is made, so that whoever comes after a crash can thaw; frozen by nobody's knowledge it would stay.
        if !env.journal.begin_transient(&freeze_write(freezer, true)) {
            return Ok(None);
        }
        let frozen = self.pass_frozen(env, cgroup, freezer);
        let result = match frozen {
            // Somebody else paused it: it cannot fork either, and thawing is their business.
            Err(FreezeError::AlreadyFrozen { .. }) => self.frozen_passes(env, cgroup),
            Err(error) => {
                self.freeze_failures += 1;
                turn.not_frozen = Some(error);
                return Ok(None);
            }
            Ok(result) => {
                turn.froze = true;
                result
            }
        };
        let done = result?;
        turn.take_in(&done);
        if let Some(verdict) = stopping(&done) {
            self.phase = Phase::Dirty;
            return Ok(Some(verdict));
        }
        if done.is_clean() {
            self.settle();
            return Ok(Some(Verdict::Verified { processes: done.right, respected: done.respected }));
        }
        self.phase = Phase::Dirty;
        Ok(Some(Verdict::Again(Duration::from_millis(1))))
    }

    /// The freeze has been noted; what was undone is noted as well.
    fn pass_frozen(
        &mut self,
        env: &mut Env<'_>,
        cgroup: &CgroupRef,
        freezer: &CgroupRef,
    ) -> Result<Result<Pass, HostError>, FreezeError> {
        let (reader, ticks, config, holds) = (env.reader, env.ticks, env.config, env.holds);
        let journal: &mut Journal = env.journal;
        let result = with_frozen(reader, env.writer, freezer, config.freeze_max, |writer| {
            let mut inner = Env { reader, writer, journal: &mut *journal, ticks, config, holds };
            self.frozen_passes(&mut inner, cgroup)
        });
        let thawed = !matches!(&result, Ok((_, outcome)) if !outcome.is_done());
        if thawed {
            journal.end_transient(&freeze_write(freezer, true));
        }
        result.map(|(pass, thaw)| {
            if let Outcome::Failed { error, .. } = thaw
                && !error.is_gone()
            {
                return Err(error);
            }
            pass
        })
    }

    /// Two passes: one that writes, one that finds everything right. Nobody can fork in between.
    fn frozen_passes(&mut self, env: &mut Env<'_>, cgroup: &CgroupRef) -> Result<Pass, HostError> {
        let first = pass(env, cgroup, self.target, &mut self.members)?;
        if first.is_clean() || stopping(&first).is_some() {
            return Ok(first);
        }
        let mut second = pass(env, cgroup, self.target, &mut self.members)?;
        second.written += first.written;
        second.gone += first.gone;
        second.rewritten_by_others += first.rewritten_by_others;
        second.first = first.first;
        Ok(second)
    }
}

impl Turn {
    fn new() -> Self {
        Self {
            verdict: Verdict::Again(Duration::ZERO),
            passes: 0,
            written: 0,
            denied: 0,
            gone: 0,
            rewritten_by_others: 0,
            first: None,
            oldest: None,
            froze: false,
            not_frozen: None,
        }
    }

    fn take_in(&mut self, pass: &Pass) {
        self.passes += 1;
        self.written += pass.written;
        self.gone += pass.gone;
        self.rewritten_by_others += pass.rewritten_by_others;
        self.denied += pass.denied.as_ref().map_or(0, |(_, count)| *count);
        self.first = self.first.or(pass.first);
        self.oldest = pass.oldest.or(self.oldest);
    }
}

/// Whether some process began less than [`QUIET`] ago.
fn is_young(pass: &Pass, now_ticks: u64) -> bool {
    let quiet = QUIET.as_secs() * ticks_per_second();
    pass.youngest.is_some_and(|start| now_ticks.saturating_sub(start) < quiet)
}

/// A reason to end the turn at once: going on would only fail again.
fn stopping(pass: &Pass) -> Option<Verdict> {
    if let Some((error, _)) = &pass.denied {
        return Some(Verdict::Denied(error.clone()));
    }
    if pass.would > 0 {
        return Some(Verdict::Would(pass.would));
    }
    if let Some(refusal) = &pass.refused {
        return Some(Verdict::Refused(refusal.clone()));
    }
    let failed = pass.failed.as_ref()?;
    Some(match failed.category() {
        Category::Denied => Verdict::Denied(failed.clone()),
        _ => Verdict::Failed(failed.clone()),
    })
}
