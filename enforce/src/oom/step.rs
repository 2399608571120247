//! One turn of the thread: what there is to watch, what the witnesses say, what is told.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use evenkeel_host::error::HostError;
use evenkeel_host::events::OomEvent;
use evenkeel_host::hierarchy::Controller;
use evenkeel_host::kernel_log::LogEvent;
use evenkeel_host::knob::Knob;
use evenkeel_host::node;
use evenkeel_host::write::CgroupRef;
use evenkeel_model::workload::Managed;

use super::case::{OomCase, Witness};
use super::evictions::FailureCause;
use super::ledger::Ledger;
use super::lives::Life;
use super::{AUDIT, FULL_AUDIT, Hint, NAMES, OomWatcher, ROSTER_PERIOD, SAVE, counters, facts, rest};
use crate::converge::roster::RosterEntry;
use crate::decisions::now_usec;
use crate::shared::{Tracked, lock};

/// Containers found sooner after the start were there before: their old kills are not news.
const STARTING: Duration = Duration::from_secs(5);
/// Without the kernel's log a case waits so long for more victims, which a container has that goes as a whole.
const TOGETHER: Duration = Duration::from_millis(40);
/// A v1 cgroup that is gone so soon after it was out of memory lost a process.
const PRESUMED: Duration = Duration::from_secs(2);
/// A hint about a container the roster does not have yet waits so long for it.
const HINT_PATIENCE: Duration = Duration::from_secs(2);
/// Cases open at the same time; beyond, the oldest is told without waiting for names.
const CASES: usize = 1024;

/// OOM kills in a container.
#[derive(Debug, Clone, Copy)]
struct OomKills {
    /// Those that are new.
    new: u64,
    /// All so far.
    total: u64,
}

impl OomWatcher {
    /// Looks at everything once.
    pub(super) fn step(&mut self, now: Instant) {
        self.parts.waker.drain();
        self.roster(now);
        self.counters(now);
        self.hints(now);
        self.log(now);
        self.unclaimed(now);
        self.finish(now);
        // Those of other threads, too.
        self.parts.decisions.make_durable(&self.parts.context.stats);
        self.lives.forget(now);
        if now >= self.save_at {
            self.save_at = now + SAVE;
            self.save();
        }
    }

    /// Watches what came and looks a last time at what went.
    fn roster(&mut self, now: Instant) {
        let generation = self.parts.board.roster_generation();
        if self.generation == Some(generation) || now < self.roster_at {
            return;
        }
        self.roster_at = now + ROSTER_PERIOD;
        self.generation = Some(generation);
        let roster = self.parts.board.roster();
        for entry in roster.iter() {
            let Some(at) = &entry.memory else { continue };
            if self.lives.is_present(at) {
                self.lives.update(at, &entry.tracked, entry.managed);
            } else {
                self.begin(now, entry, at);
            }
        }
        let there: HashSet<&CgroupRef> = roster.iter().filter_map(|e| e.memory.as_ref()).collect();
        let gone: Vec<CgroupRef> =
            self.lives.present().map(|(at, _)| at).filter(|at| !there.contains(at)).cloned().collect();
        for at in gone {
            self.end(now, &at);
        }
        self.settle(now);
        self.changed = true;
    }

    /// Settles offers by what is there, once everything that is there has been found.
    fn settle(&self, now: Instant) {
        if now.duration_since(self.started) >= STARTING {
            self.parts.evictions.settle(&self.parts.board.roster(), now_usec());
        }
    }

    fn begin(&mut self, now: Instant, entry: &RosterEntry, at: &CgroupRef) {
        let watched = self.watch.as_mut().map(|watch| watch.watch(at));
        let known = match watched {
            Some(Ok(())) => self.watch.as_ref().and_then(|watch| watch.known(at)),
            Some(Err(error)) if error.is_gone() => return,
            Some(Err(error)) => {
                self.complain(&error);
                None
            }
            None => None,
        };
        let is_old = now.duration_since(self.started) < STARTING;
        let told = match (self.earlier.of(at.inode, &at.path), known) {
            (Some(told), Some(known)) => told.min(known),
            (Some(told), None) => told,
            (None, Some(known)) if is_old => known,
            (None, _) => 0,
        };
        let mut ledger = Ledger::from(told);
        let before = known.unwrap_or(0);
        let news = ledger.counter(before);
        self.lives.insert(
            at.clone(),
            Life {
                tracked: Arc::clone(&entry.tracked),
                managed: entry.managed,
                ledger,
                before,
                ooms: facts::ooms(&self.parts.tree, at),
                watched: known.is_some(),
                out_of_memory: None,
                gone: None,
            },
        );
        if news > 0 {
            self.open(now, at, news, Witness::FirstLook);
        }
    }

    fn end(&mut self, now: Instant, at: &CgroupRef) {
        let mut events = Vec::new();
        if let Some(watch) = self.watch.as_mut() {
            watch.count(at, &mut events);
            watch.unwatch(at);
        }
        self.take(now, &events);
        if let Some(life) = self.lives.get_mut(at) {
            life.gone.get_or_insert(now);
        }
    }

    /// Says once that containers cannot be watched; the sampler still sees them.
    fn complain(&mut self, error: &HostError) {
        if !std::mem::replace(&mut self.complained, true) {
            let (why, remedy) = (error.to_string(), error.remedy());
            tracing::warn!(why, remedy, "OOM kills of some containers are seen by the sampler only");
        }
    }

    /// The kernel's counters.
    fn counters(&mut self, now: Instant) {
        let mut events = std::mem::take(&mut self.events);
        if let Some(watch) = self.watch.as_mut() {
            if let Err(error) = watch.read(&mut events) {
                tracing::debug!(%error, "ignoring: events of OOM kills; the audit finds them");
            }
            if watch.is_expecting() {
                watch.recheck(&mut events);
            }
        }
        if now >= self.audit_at {
            self.audit_at = now + AUDIT;
            self.audit(now, &mut events);
            self.settle(now);
        }
        self.take(now, &events);
        events.clear();
        self.events = events;
    }

    /// Reads every container's counter, unless the machine's says that nothing was killed anywhere.
    fn audit(&mut self, now: Instant, events: &mut Vec<OomEvent>) {
        let kills = node::oom_kills(&self.parts.roots).ok();
        let before = std::mem::replace(&mut self.kills, kills);
        if kills.is_some() && kills == before && now < self.full_audit_at {
            return;
        }
        self.full_audit_at = now + FULL_AUDIT;
        if let Some(watch) = self.watch.as_mut() {
            watch.check(events);
        }
    }

    fn take(&mut self, now: Instant, events: &[OomEvent]) {
        for event in events {
            match event {
                OomEvent::Killed { cgroup, total, .. } => {
                    let Some(life) = self.lives.get_mut(cgroup) else { continue };
                    life.out_of_memory = None;
                    let news = life.ledger.counter(life.before.saturating_add(*total));
                    self.open(now, cgroup, news, Witness::Counter);
                }
                OomEvent::OutOfMemory { cgroup } => {
                    if let Some(life) = self.lives.get_mut(cgroup) {
                        life.out_of_memory = Some(now);
                    }
                }
                OomEvent::Removed { cgroup } => self.removed(now, cgroup),
            }
        }
    }

    /// A cgroup went. Where it was out of memory just before and no log can say more, a process of it was killed.
    fn removed(&mut self, now: Instant, at: &CgroupRef) {
        let has_log = self.parts.log.is_some();
        let Some(life) = self.lives.get_mut(at) else { return };
        life.gone.get_or_insert(now);
        life.watched = false;
        let lately = life.out_of_memory.take().is_some_and(|since| now.duration_since(since) < PRESUMED);
        if lately && !has_log {
            life.ledger.without_counter(1);
            self.open(now, at, 1, Witness::Presumed);
        }
    }

    /// What the sampler saw.
    fn hints(&mut self, now: Instant) {
        let mut waiting = std::mem::take(&mut self.early);
        waiting.extend(self.parts.hints.try_iter().map(|hint| (now, hint)));
        for (since, hint) in waiting {
            let Some(at) = self.lives.of_slot(hint.tracked.slot) else {
                if now.duration_since(since) < HINT_PATIENCE && self.early.len() < CASES {
                    self.early.push((since, hint));
                } else {
                    self.stranger(now, &hint);
                }
                continue;
            };
            let mut events = Vec::new();
            if let Some(watch) = self.watch.as_mut() {
                watch.count(&at, &mut events);
            }
            self.take(now, &events);
            let Some(life) = self.lives.get_mut(&at) else { continue };
            let news = match (life.watched, life.gone) {
                // The watch has counted the whole subtree.
                (true, None) => 0,
                (false, None) => life.ledger.counter(hint.total),
                (_, Some(_)) => life.ledger.last_counter(hint.total),
            };
            let witness = if life.gone.is_none() { Witness::Counter } else { Witness::Sampler };
            self.open(now, &at, news, witness);
        }
    }

    /// A container that came and went before it could be watched. What the sampler first saw of it is news too, unless
    /// it was there before this run.
    fn stranger(&mut self, now: Instant, hint: &Hint) {
        let is_old = now.duration_since(self.started) < STARTING + HINT_PATIENCE;
        let killed = hint.new.unwrap_or(if is_old { 0 } else { hint.total });
        if killed == 0 {
            return;
        }
        let tracked = &hint.tracked;
        let hierarchy = self.lives.present().next().map(|(at, _)| at.hierarchy);
        let Some(hierarchy) = hierarchy.or_else(|| self.parts.tree.layout().home(Controller::Memory)) else {
            return;
        };
        let at = CgroupRef { hierarchy, inode: tracked.inode, path: Arc::clone(&tracked.cgroup) };
        let managed = tracked.workload.managed == Managed::Yes;
        self.case(
            now,
            Arc::clone(tracked),
            managed,
            &at,
            OomKills { new: killed, total: hint.total },
            Witness::Sampler,
        );
    }

    /// What the kernel's log says.
    fn log(&mut self, now: Instant) {
        let Some(log) = self.parts.log.as_mut() else { return };
        let mut told = Vec::new();
        // Bounded: whatever more there is wakes the next turn.
        if let Err(error) = log.read(&mut told) {
            tracing::warn!(%error, "the kernel's log is no longer read; OOM kills are counted without names");
            self.parts.log = None;
        }
        for event in told {
            match event {
                LogEvent::Killed(kill) => {
                    let lives = &self.lives;
                    self.victims.take(now, kill, |path| lives.of_path(path));
                }
                LogEvent::Overrun => self.audit_at = now,
            }
        }
        for case in &mut self.cases {
            let wanted = usize::try_from(case.killed).unwrap_or(usize::MAX);
            let wanted = wanted.saturating_sub(case.victims.len());
            case.victims.extend(self.victims.claim(&case.at, wanted));
        }
    }

    /// Records no counter claimed: the counter is read once more, and where it is gone or says nothing the log is right.
    fn unclaimed(&mut self, now: Instant) {
        for at in self.victims.unclaimed(now) {
            let mut events = Vec::new();
            if let Some(watch) = self.watch.as_mut() {
                watch.count(&at, &mut events);
            }
            self.take(now, &events);
            let count = self.victims.count(&at);
            let is_open = self.cases.iter().any(|case| case.at == at);
            let Some(life) = self.lives.get_mut(&at) else {
                self.victims.claim(&at, count);
                continue;
            };
            if is_open {
                continue;
            }
            if life.gone.is_none() && life.watched {
                // Counted, and told before the log was read; the rest of a group, or a kill of the machine's first turn.
                self.victims.claim(&at, count);
                continue;
            }
            life.ledger.without_counter(count as u64);
            self.open(now, &at, count as u64, Witness::Log);
        }
    }

    /// Opens a case, or adds to the one that is open.
    fn open(&mut self, now: Instant, at: &CgroupRef, killed: u64, witness: Witness) {
        if killed == 0 {
            return;
        }
        let Some(life) = self.lives.get_mut(at) else { return };
        let (tracked, managed, total) = (Arc::clone(&life.tracked), life.managed, life.ledger.total());
        if let Some(case) = self.cases.iter_mut().find(|case| case.at == *at) {
            case.killed += killed;
            case.total = total;
            return;
        }
        self.case(now, tracked, managed, at, OomKills { new: killed, total }, witness);
    }

    /// Opens a case.
    fn case(
        &mut self,
        now: Instant,
        tracked: Arc<Tracked>,
        managed: bool,
        at: &CgroupRef,
        OomKills { new: killed, total }: OomKills,
        witness: Witness,
    ) {
        let (parts, time_usec) = (&mut self.parts, now_usec());
        let config = &parts.context.config;
        let life = self.lives.get_mut(at);
        let facts = facts::read(&parts.tree, at, life.as_ref().and_then(|life| life.ooms));
        if let Some(life) = life {
            life.ooms = facts::ooms(&parts.tree, at).or(life.ooms);
        }
        let default = config.plan.oom_kill;
        let rest = managed
            .then(|| rest::end(&parts.tree, &mut *parts.actor, at, &tracked.workload, default, killed))
            .flatten();
        let before = lock(&parts.usage).before(&tracked, time_usec, parts.context.live.now().oom.history);
        let score = score(&parts.board, tracked.slot);
        if self.cases.len() >= CASES {
            let oldest = self.cases.remove(0);
            self.tell(oldest);
        }
        let victims = Vec::new();
        self.cases.push(OomCase {
            tracked,
            managed,
            at: at.clone(),
            killed,
            total,
            witness,
            since: now,
            time_usec,
            facts,
            before,
            score,
            victims,
            rest,
        });
    }

    /// Tells the cases that have their names, or have waited for them long enough.
    fn finish(&mut self, now: Instant) {
        let patience = if self.parts.log.is_some() { NAMES } else { TOGETHER };
        let mut at = 0;
        while let Some(case) = self.cases.get(at) {
            let named = case.victims.len() as u64 >= case.killed;
            if named || now.duration_since(case.since) >= patience {
                let case = self.cases.remove(at);
                self.tell(case);
            } else {
                at += 1;
            }
        }
    }

    /// Tells a case: the kill, what was done to the rest, and what is offered.
    pub(super) fn tell(&mut self, case: OomCase) {
        let (parts, stats) = (&self.parts, &self.parts.context.stats);
        let workload = &case.tracked.workload;
        let decision = parts.decisions.record(case.draft(), stats);
        stats.oom_kills.of(case.tracked.classes.memory).add(case.killed);
        tracing::warn!(
            pod = workload.pod.name,
            container = workload.container,
            killed = case.killed,
            seq = decision.seq,
            "{}",
            decision.reason
        );
        if let Some(rest) = &case.rest {
            match rest.failure() {
                None => stats.rests_ended.add(1),
                Some(error) => {
                    tracing::warn!(%error, cgroup = &*case.at.path, "the rest of a container could not be ended");
                }
            }
            parts.decisions.record(rest.draft(workload, &case.at, decision.seq), stats);
        }
        if case.managed {
            let cause = FailureCause {
                name: "oom-kill",
                what: "was OOM-killed",
                time_usec: case.time_usec,
                decision: Some(decision.seq),
            };
            parts.evictions.failed(&case.tracked, cause, &parts.decisions, stats);
        }
        self.changed = true;
    }

    /// Remembers on disk what was told.
    pub(super) fn save(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let counts = self.lives.present().filter(|(_, life)| life.watched);
        let counts = counts.map(|(at, life)| (at.inode, life.ledger.counted(), &*at.path));
        if let Err(error) = counters::write(&self.file, &self.parts.context.boot_id, counts) {
            tracing::debug!(%error, "ignoring: the counts of OOM kills were not saved; it is tried again");
            self.changed = true;
        }
    }
}

/// Score a container was given, where it was.
fn score(board: &crate::converge::board::Board, slot: u32) -> Option<String> {
    let views = board.containers();
    let view = views.iter().find(|view| view.tracked.slot == slot)?;
    view.knobs.iter().find(|knob| knob.wanted.knob() == Knob::OomScoreAdj).map(|knob| knob.wanted.to_string())
}
