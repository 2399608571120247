//! The converge thread: the one reconciler, and the only one that writes.
//!
//! It wakes for a source's snapshot, for process and cgroup events, and for audits, which are spread evenly over
//! the audit period. Owned here: the loop and the order of its work. Not owned: how one container converges
//! ([`container`]), what is desired ([`crate::reconcile`]), what is shown ([`board`]).

mod audit;
pub(crate) mod board;
mod container;
mod env;
mod knob;
mod members;
mod pass;
mod score;
mod table;
#[cfg(test)]
mod tests;
mod wake;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use evenkeel_host::error::HostError;
use evenkeel_host::events::ProcConnector;
use evenkeel_host::freeze::freeze_write;
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::knob::Knob;
use evenkeel_host::snapshot::HostReader;
use evenkeel_host::write::{HostWriter, Outcome, Target as WriteTarget};
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use audit::Audit;
use board::{Board, NodeKnob, SourceView, WakeView};
pub(crate) use container::State;
use container::{Container, Counters, Next};
use env::{Env, ticks_since_boot};
pub(crate) use table::source_name;
use table::{Applied, Rules, Table};
use wake::{Key, Notices, Wake};

use crate::decisions::{DecisionLog, Draft};
use crate::journal::Journal;
use crate::reconcile::bind::Binder;
use crate::reconcile::{Snapshots, merge};
use crate::shared::{Context, Heartbeat, Rescan, SourceProblem, SourceUpdate, TrackChange, Waker};

/// Longest sleep: the thread says at least so often that it lives, and sees the stop flag.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Containers looked at between two looks at the events.
const TURNS_AT_ONCE: usize = 32;
/// How often bindings whose cgroup is not there are tried without any sign of a change.
const WAITING_PERIOD: Duration = Duration::from_secs(5);
/// After events were lost everything is looked at, but not more often than this.
const ALL_DIRTY_PERIOD: Duration = Duration::from_secs(2);

/// What the converger is given.
pub(crate) struct Parts {
    /// Configuration, counters, stop flag.
    pub context: Arc<Context>,
    /// Reads the kernel.
    pub reader: KernelReader,
    /// The one writer.
    pub writer: Box<dyn HostWriter + Send>,
    /// Originals.
    pub journal: Journal,
    /// Where decisions go.
    pub decisions: Arc<DecisionLog>,
    /// What status shows.
    pub board: Arc<Board>,
    /// Snapshots from the sources.
    pub updates: Receiver<SourceUpdate>,
    /// Rung when there is something in `updates`.
    pub waker: Waker,
    /// Where changes of the tracked set go; `None` where nobody samples.
    pub changes: Option<SyncSender<TrackChange>>,
    /// Rung when sources should list again.
    pub rescan: Rescan,
    /// The subscription to process events, made before capabilities were dropped; `None` = turned off.
    pub connector: Option<Result<ProcConnector, HostError>>,
    /// Whether process numbers mean the same here as in procfs; without that scores cannot be written.
    pub scores_possible: bool,
}

/// The converger's state.
pub(crate) struct Converger {
    parts: Parts,
    rules: Rules,
    snapshots: Snapshots,
    table: Table,
    wake: Wake,
    audit: Audit,
    /// Containers to look at, soonest first, and when each is due.
    queue: BinaryHeap<Reverse<(Instant, Key)>>,
    due: HashMap<Key, Instant>,
    /// The desired state is to be merged again at this time.
    merge_at: Option<Instant>,
    all_dirty_at: Option<Instant>,
    /// When containers are counted by state the next time.
    count_at: Instant,
    /// Conflicts between sources at the last merge.
    conflicts: Vec<SourceProblem>,
}

impl Converger {
    /// A converger that has done nothing yet.
    pub(crate) fn new(mut parts: Parts) -> Self {
        let config = &parts.context.config;
        let mut plan = config.plan;
        if !parts.scores_possible {
            plan.knobs.oom_score_adj = false;
        }
        plan.cpu_weight = config.weight_conversion.unwrap_or(plan.cpu_weight);
        let rules = Rules {
            facts: parts.context.facts.clone(),
            plan,
            switches: config.switches,
            score: config.converge.score,
            detect_weight: config.weight_conversion.is_none(),
        };
        let tree = Arc::clone(parts.reader.tree());
        let wake = Wake::open(parts.connector.take(), tree, parts.reader.roots().clone());
        let changes = parts.changes.take();
        let audit = Audit::new(config.converge.audit_period, Instant::now());
        Self {
            rules,
            snapshots: Snapshots::default(),
            table: Table::new(changes),
            wake,
            audit,
            queue: BinaryHeap::new(),
            due: HashMap::new(),
            merge_at: None,
            all_dirty_at: None,
            count_at: Instant::now(),
            conflicts: Vec::new(),
            parts,
        }
    }

    /// Runs until the agent ends.
    pub(crate) fn run(mut self, heartbeat: &Heartbeat) {
        self.thaw_leftovers();
        self.show_wake();
        while !self.parts.context.stop.is_set() {
            heartbeat.beat();
            self.wait();
            self.parts.waker.drain();
            let now = Instant::now();
            self.take_updates(now);
            self.take_events(now);
            self.reconcile(now);
            self.audit(now);
            self.turns();
            self.finish_round();
        }
        self.compact_journal();
        self.parts.decisions.sync(&self.parts.context.stats);
    }

    /// Waits until so many sources have said what they see, or `deadline`.
    pub(crate) fn gather(&mut self, sources: usize, deadline: Instant) {
        while self.snapshots.sources().count() < sources && Instant::now() < deadline {
            self.wait();
            self.parts.waker.drain();
            self.take_updates(Instant::now());
        }
    }

    /// Takes in what sources said so far and converges it: for `--once`. Ends when everything is as far as it gets
    /// or at `deadline`.
    pub(crate) fn once(&mut self, deadline: Instant) {
        self.thaw_leftovers();
        self.take_updates(Instant::now());
        self.merge_at = Some(Instant::now());
        self.reconcile(Instant::now());
        while !self.queue.is_empty() && Instant::now() < deadline {
            self.turns();
            if let Some(Reverse((at, _))) = self.queue.peek() {
                std::thread::sleep(at.saturating_duration_since(Instant::now()).min(LONGEST_SLEEP));
            }
        }
        self.finish_round();
        self.parts.decisions.sync(&self.parts.context.stats);
    }

    /// Sleeps until something happens or something is due.
    fn wait(&self) {
        let now = Instant::now();
        let next =
            [self.queue.peek().map(|Reverse((at, _))| *at), self.audit.due(self.table.len()), self.merge_at];
        let next = next.into_iter().flatten().min().unwrap_or(now + LONGEST_SLEEP);
        let sleep = next.saturating_duration_since(now).min(LONGEST_SLEEP);
        // Rounded up, or the last fraction of a millisecond would be spent in a busy loop.
        let millis = u16::try_from(sleep.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        let fds: Vec<BorrowedFd<'_>> = self.wake.fds().chain([self.parts.waker.fd()]).collect();
        let mut fds: Vec<PollFd<'_>> = fds.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        if let Err(errno) = poll(&mut fds, PollTimeout::from(millis))
            && errno != nix::errno::Errno::EINTR
        {
            tracing::debug!(%errno, "ignoring a failed poll; sleeping instead");
            std::thread::sleep(sleep.max(Duration::from_millis(10)));
        }
    }

    fn take_updates(&mut self, now: Instant) {
        let mut any = false;
        while let Ok(update) = self.parts.updates.try_recv() {
            any = true;
            let (source, address, healthy) =
                (source_name(update.source), update.address.clone(), update.healthy);
            let change = self.snapshots.take(update);
            if change.workloads {
                self.merge_at = Some(now);
            }
            if change.health && !healthy {
                tracing::warn!(source, address, "source cannot be read; what it last said stays in force");
            } else if change.health {
                tracing::info!(source, address, "source is healthy");
            }
            for problem in change.new_problems {
                self.tell_problem(source, &problem);
            }
        }
        if any {
            self.show_sources(None);
        }
    }

    fn tell_problem(&self, source: &str, problem: &SourceProblem) {
        tracing::warn!(
            source,
            what = problem.what,
            at = problem.where_,
            why = problem.why,
            remedy = problem.remedy,
            "source"
        );
        let reason = format!("cannot {}: {}; {}", problem.what, problem.why, problem.remedy);
        let draft = Draft::node(DecisionKind::Source, reason)
            .input("source", source)
            .input("where", &problem.where_)
            .result(DecisionResult::Failed);
        self.parts.decisions.record(draft, &self.parts.context.stats);
    }

    fn take_events(&mut self, now: Instant) {
        let mut notices = Notices::default();
        self.wake.read(now, &self.parts.context.stats, &mut notices);
        for key in notices.removed {
            self.schedule(key, now);
        }
        for (key, pid) in notices.suspects {
            let reader = &self.parts.reader;
            let wrong = |key| self.table.get(key).is_some_and(|container| container.has_wrong(reader, pid));
            if !notices.dirty.contains(&key) && wrong(key) {
                notices.dirty.insert(key);
            }
        }
        for key in notices.dirty {
            self.notice(key, now);
        }
        if notices.tree_changed {
            self.parts.rescan.ring();
            if !self.parts.board.waiting().is_empty() {
                self.merge_at.get_or_insert(now);
            }
        }
        let recently = self.all_dirty_at.is_some_and(|at| now.duration_since(at) < ALL_DIRTY_PERIOD);
        if notices.all && !recently {
            self.all_dirty_at = Some(now);
            let keys: Vec<Key> = self.table.keys().collect();
            for key in keys {
                self.notice(key, now);
            }
        }
    }

    fn notice(&mut self, key: Key, now: Instant) {
        if self.table.get_mut(key).is_some_and(|container| container.notice(now)) {
            self.schedule(key, now);
        }
    }

    /// Puts a container into the queue unless it is due sooner.
    fn schedule(&mut self, key: Key, at: Instant) {
        if self.due.get(&key).is_none_or(|due| at < *due) {
            self.due.insert(key, at);
            self.queue.push(Reverse((at, key)));
        }
    }

    fn audit(&mut self, now: Instant) {
        for _ in 0..self.audit.take(self.table.len(), now) {
            let Some(key) = self.table.after(self.audit.cursor) else { return };
            self.audit.cursor = key;
            self.schedule(key, now);
        }
    }

    /// Merges again if that is due, and brings the table to the result.
    fn reconcile(&mut self, now: Instant) {
        if self.merge_at.is_none_or(|at| at > now) {
            return;
        }
        self.merge_at = None;
        let mut binder = Binder::default();
        let reader = &self.parts.reader;
        let manage = &self.parts.context.config.manage;
        let merged =
            merge(self.snapshots.workloads(), manage, &mut |binding| binder.resolve(reader, binding));
        for problem in merged.problems.iter().filter(|problem| !self.conflicts.contains(problem)) {
            self.tell_problem("reconcile", problem);
        }
        self.conflicts = merged.problems;
        let weight = self.rules.plan.cpu_weight;
        let applied = self.table.apply(reader, &mut self.rules, merged.bound);
        let waiting: Vec<String> = merged
            .waiting
            .iter()
            .chain(&applied.vanished)
            .map(|w| format!("{}/{}/{}", w.pod.namespace, w.pod.name, w.container))
            .collect();
        if !waiting.is_empty() {
            self.merge_at = Some(now + WAITING_PERIOD);
        }
        self.take_in(applied, now);
        if self.rules.plan.cpu_weight != weight {
            let again = self.table.replan_all(&self.parts.reader, &self.rules);
            self.take_in(again, now);
        }
        self.show_sources(Some(waiting));
    }

    fn take_in(&mut self, applied: Applied, now: Instant) {
        for (key, container) in applied.removed {
            self.wake.remove(key, &container.processes_at);
            self.parts.board.remove(key);
            self.due.remove(&key);
        }
        for draft in applied.drafts {
            self.parts.decisions.record(draft, &self.parts.context.stats);
        }
        for key in applied.changed {
            if let Some(container) = self.table.get(key) {
                self.wake.add(key, &container.processes_at);
                self.parts.board.show(key, container);
            }
            self.schedule(key, now);
        }
        self.table.hand_over(&self.parts.context.stats);
    }

    /// Gives due containers their turns.
    fn turns(&mut self) {
        for _ in 0..TURNS_AT_ONCE {
            let now = Instant::now();
            let Some(&Reverse((at, key))) = self.queue.peek() else { return };
            if at > now {
                return;
            }
            self.queue.pop();
            // An older entry of a container that has been looked at since.
            if self.due.get(&key) == Some(&at) {
                self.due.remove(&key);
                self.turn(key, now);
            }
        }
    }

    fn turn(&mut self, key: Key, now: Instant) {
        let Some(container) = self.table.get_mut(key) else { return };
        let context = &self.parts.context;
        let mut env = Env {
            reader: &self.parts.reader,
            writer: &mut *self.parts.writer,
            journal: &mut self.parts.journal,
            ticks: &ticks_since_boot,
            config: &context.config.converge,
        };
        match container.turn(&mut env, now, &Counters(&context.stats)) {
            Ok(next) => {
                self.wake.learn(key, container.pids_to_learn());
                self.parts.board.show(key, container);
                self.take_next(key, next, now);
            }
            Err(error) if error.is_gone() => {
                let applied = self.table.gone(key);
                self.take_in(applied, now);
                // The path may lead to another cgroup already: a service that was restarted.
                self.merge_at.get_or_insert(now);
                self.parts.rescan.ring();
            }
            Err(error) => {
                tracing::debug!(%error, "ignoring: a container cannot be listed; the next audit tries again");
            }
        }
    }

    fn take_next(&mut self, key: Key, next: Next, now: Instant) {
        let stats = &self.parts.context.stats;
        for draft in next.drafts {
            self.parts.decisions.record(draft, stats);
        }
        for (knob, why, remedy) in next.denied {
            self.tell_denied(knob, &why, remedy);
        }
        if next.ask_source
            && let Some(container) = self.table.get(key)
        {
            self.parts.rescan.ask_about(&container.tracked.workload.id);
        }
        if let Some(after) = next.again {
            self.schedule(key, now + after);
        }
    }

    /// Said once for each knob of the node; containers say the rest.
    fn tell_denied(&self, knob: Knob, why: &str, remedy: Option<String>) {
        let remedy = remedy.unwrap_or_default();
        let shown =
            NodeKnob { name: knob.name(), state: "denied", why: why.to_owned(), remedy: remedy.clone() };
        if self.parts.board.show_knob(shown) {
            tracing::warn!(
                knob = knob.name(),
                why,
                remedy,
                "some writes are not allowed here; everything else goes on"
            );
        }
    }

    fn finish_round(&mut self) {
        if self.parts.journal.wants_compacting() {
            self.compact_journal();
        }
        let stats = &self.parts.context.stats;
        self.table.hand_over(stats);
        self.parts.decisions.flush(stats);
        stats.containers.set(self.table.len() as u64);
        let now = Instant::now();
        if now >= self.count_at {
            self.count_at = now + LONGEST_SLEEP;
            let converged =
                self.table.iter().filter(|container| container.state() == State::Converged).count();
            stats.containers_converged.set(converged as u64);
        }
        if self.queue.len() > 4 * (self.due.len() + 16) {
            self.queue = self.due.iter().map(|(key, at)| Reverse((*at, *key))).collect();
        }
    }

    /// Drops the originals of processes and cgroups that are no more.
    fn compact_journal(&mut self) {
        let reader = &self.parts.reader;
        self.parts.journal.compact(|target| match target {
            WriteTarget::Process(_) => reader.setting(target, Knob::OomScoreAdj).is_ok(),
            WriteTarget::Cgroup(at) => reader.pids(at).is_ok(),
        });
    }

    /// Thaws what an earlier run froze and could not thaw.
    fn thaw_leftovers(&mut self) {
        for at in self.parts.journal.left_frozen().to_vec() {
            let freeze = freeze_write(&at, true);
            let outcome = self.parts.writer.apply(&freeze_write(&at, false));
            tracing::warn!(cgroup = %at, outcome = outcome.name(), "an earlier run left this cgroup frozen");
            if outcome.is_done() || matches!(outcome, Outcome::Refused(_)) {
                self.parts.journal.end_transient(&freeze);
            }
        }
    }

    fn show_wake(&self) {
        let wake = WakeView {
            process_events: self.wake.has_process_events(),
            cgroup_events: self.wake.has_cgroup_events(),
            why: self.wake.why.clone(),
        };
        if let Some(why) = &wake.why {
            tracing::warn!(why, "new processes may be noticed by the audit only");
        }
        self.parts.board.show_wake(wake);
    }

    fn show_sources(&self, waiting: Option<Vec<String>>) {
        let mut sources: Vec<SourceView> = self
            .snapshots
            .sources()
            .map(|update| SourceView {
                kind: update.source,
                address: update.address.clone(),
                healthy: update.healthy,
                containers: update.workloads.len(),
                problems: update.problems.clone(),
            })
            .collect();
        // The first source has the last word in a conflict, so it is shown there.
        if let Some(first) = sources.first_mut() {
            first.problems.extend(self.conflicts.iter().cloned());
        }
        let stats = &self.parts.context.stats;
        stats.sources.set(sources.len() as u64);
        stats.sources_healthy.set(sources.iter().filter(|source| source.healthy).count() as u64);
        let waiting = waiting.unwrap_or_else(|| self.parts.board.waiting());
        self.parts.board.show_sources(sources, waiting);
    }
}

impl Container {
    /// Processes seen right, for remembering whose they are.
    fn pids_to_learn(&self) -> impl Iterator<Item = u32> {
        self.scores.iter().flat_map(|scores| scores.looper.pids_if_changed())
    }
}
