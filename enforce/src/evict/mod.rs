//! The thread `evict`: carries out what the eviction policy rules, where nobody else does and the configuration says so.
//!
//! Owned here: order, budget, pace and retries, and a decision for each deed. Not owned: the rulings
//! ([`crate::oom::evictions`]), how a unit or pod is ended ([`Hands`]).
//!
//! BestEffort goes before Burstable, and that before Guaranteed, whoever waits. What no service of systemd and no pod
//! of a runtime without a kubelet is stays an offer, which a decision says, as does everything an agent that ended has not
//! come to. So does the restart of one container of a runtime: it cannot start a stopped container again (the CRI has
//! CreateContainer alone, from a configuration that whoever made the container has).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use evenkeel_model::decision::{DecisionKind, DecisionResult};
use evenkeel_model::qos_class::QosClass;
use evenkeel_model::workload::{CgroupBinding, ContainerKind, SourceKind, Workload};
use evenkeel_qos::estimate::kubelet_tier;
use evenkeel_qos::eviction::Remedy;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::Mode;
use crate::converge::board::Board;
use crate::converge::roster::RosterEntry;
use crate::decisions::{DecisionLog, Draft};
use crate::shared::{Context, Heartbeat, Tracked};
use crate::systemd;
use crate::systemd::names::{UnitMembership, standing};

/// Rulings that may wait; what comes when there are more stays an offer.
const TASKS: usize = 256;
/// Longest sleep: the thread says at least so often that it lives.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Waits before a deed that failed is tried again; after the last it stays an offer.
const AGAIN: [Duration; 3] = [Duration::from_secs(2), Duration::from_secs(10), Duration::from_secs(30)];
/// An eviction that the budget holds back is looked at again so often, and given up after so long.
const HELD: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(600));

/// Why nobody carries something out.
const NOBODY: &str = "neither a service of systemd nor a pod of a container runtime runs it";
const OF_KUBELET: &str = "the kubelet that made the pod does it";
const ONE_CONTAINER: &str =
    "a container runtime cannot start a stopped container again; whoever made it has to make another";
const NO_SANDBOX: &str = "the sandbox of its pod is not known";

/// Who carries out what is ruled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CarryOut {
    /// Whoever runs the pod.
    Offer,
    /// Nobody; what would be done is told.
    DryRun,
    /// The agent, where nobody else does.
    Act,
}

/// How rulings are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acting {
    /// By whom.
    pub mode: CarryOut,
    /// Shortest time between two deeds.
    pub pause: Duration,
    /// Pods of a group that an eviction must leave.
    pub min_available: u32,
}

/// Something to carry out.
#[derive(Debug, Clone)]
pub struct Task {
    /// What was ruled.
    pub remedy: Remedy,
    /// The class it was ruled by.
    pub class: QosClass,
    /// The container that failed.
    pub tracked: Arc<Tracked>,
    /// Number of the ruling's decision.
    pub because_of: u64,
}

/// Who can be asked to carry something out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Runner {
    /// systemd, about a service.
    Unit(String),
    /// A container runtime, about a pod's sandbox by its id.
    Sandbox(String),
}

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EvictionResult {
    /// It is so, in words.
    Done(String),
    /// Somebody else does it, or it is so already.
    Unneeded(String),
}

/// Ends and starts what others run. Calls block for seconds, and beat meanwhile.
pub trait Hands {
    /// Carries something out.
    ///
    /// # Errors
    /// In the words of whoever refused or did not answer.
    fn carry_out(
        &mut self,
        runner: &Runner,
        remedy: Remedy,
        beat: &dyn Fn(),
    ) -> Result<EvictionResult, String>;
}

/// A channel for tasks.
pub fn tasks() -> (SyncSender<Task>, Receiver<Task>) {
    sync_channel(TASKS)
}

/// What the thread is given.
pub struct Parts<H> {
    /// Configuration, counters, stop flag.
    pub context: Arc<Context>,
    /// Which containers there are.
    pub board: Arc<Board>,
    /// Where deeds are told.
    pub decisions: Arc<DecisionLog>,
    /// Carries out.
    pub hands: H,
}

/// A task that waits.
#[derive(Debug)]
struct PendingTask {
    task: Task,
    since: Instant,
    not_before: Instant,
    failures: usize,
    /// That the budget holds it back was told.
    is_held: bool,
}

/// The thread's state.
pub struct Evictor<H> {
    parts: Parts<H>,
    waiting: Vec<PendingTask>,
    /// Nothing is done before.
    earliest: Option<Instant>,
    /// This machine's first process is systemd.
    has_systemd: bool,
}

impl<H: Hands> Evictor<H> {
    /// A thread that has done nothing yet.
    pub fn new(parts: Parts<H>) -> Self {
        Self { parts, waiting: Vec::new(), earliest: None, has_systemd: systemd::is_booted() }
    }

    /// Runs until the agent ends.
    pub fn run(mut self, tasks: &Receiver<Task>, beat: &Heartbeat) {
        while !self.parts.context.stop.is_set() {
            beat.beat();
            match tasks.recv_timeout(LONGEST_SLEEP) {
                Ok(task) => self.take(task, Instant::now()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LONGEST_SLEEP),
            }
            self.waiting_from(tasks);
            self.step(Instant::now(), &|| beat.beat());
        }
    }

    fn waiting_from(&mut self, tasks: &Receiver<Task>) {
        for task in tasks.try_iter() {
            self.take(task, Instant::now());
        }
    }

    fn take(&mut self, task: Task, now: Instant) {
        if self.rules().mode == CarryOut::Offer || self.waiting.len() >= TASKS {
            return;
        }
        self.waiting.push(PendingTask { task, since: now, not_before: now, failures: 0, is_held: false });
        self.waiting.sort_by_key(|waiting| (waiting.task.class, waiting.since));
    }

    fn rules(&self) -> Acting {
        let context = &self.parts.context;
        let rules = context.live.now().acting;
        match context.config.mode {
            Mode::DryRun if rules.mode == CarryOut::Act => Acting { mode: CarryOut::DryRun, ..rules },
            _ => rules,
        }
    }

    /// Does the next thing that may be done, at most one.
    fn step(&mut self, now: Instant, beat: &dyn Fn()) {
        let rules = self.rules();
        if rules.mode == CarryOut::Offer {
            self.waiting.clear();
        }
        if self.earliest.is_some_and(|earliest| now < earliest) {
            return;
        }
        let roster = self.parts.board.roster();
        let mut at = 0;
        while let Some(mut waiting) = self.waiting.get(at).is_some().then(|| self.waiting.remove(at)) {
            let (task, is_due) = (&waiting.task, waiting.not_before <= now);
            let runner = match runner(task, &roster, self.has_systemd) {
                Ok(runner) => runner,
                Err(why) => {
                    self.tell(task, format!("it stays an offer: {why}"), DecisionResult::Unsupported);
                    continue;
                }
            };
            if is_due && let Some((left, least)) = over_budget(task, &roster, rules.min_available) {
                if now.duration_since(waiting.since) < HELD.1 {
                    self.hold(&mut waiting, left, least, now);
                    self.waiting.insert(at, waiting);
                    at += 1;
                }
                continue;
            }
            if !is_due {
                self.waiting.insert(at, waiting);
                at += 1;
                continue;
            }
            self.earliest = Some(now + rules.pause);
            if let Some(again) = self.act(waiting, &runner, rules.mode, now, beat) {
                self.waiting.insert(at, again);
            }
            return;
        }
    }

    /// Says once that the budget holds an eviction back.
    fn hold(&self, waiting: &mut PendingTask, left: u32, least: u32, now: Instant) {
        waiting.not_before = now + HELD.0;
        if !std::mem::replace(&mut waiting.is_held, true) {
            let group = &waiting.task.tracked.workload.workload;
            let reason = format!(
                "the eviction is held back: {left} other pods of {group} run and {least} must stay available"
            );
            self.tell(&waiting.task, reason, DecisionResult::Denied);
        }
    }

    /// Carries out one task; what is to be tried again comes back.
    fn act(
        &mut self,
        mut waiting: PendingTask,
        runner: &Runner,
        mode: CarryOut,
        now: Instant,
        beat: &dyn Fn(),
    ) -> Option<PendingTask> {
        let remedy = waiting.task.remedy;
        let what = match (runner, remedy) {
            (Runner::Unit(unit), Remedy::Evict) => format!("systemd to stop {unit}"),
            (Runner::Unit(unit), Remedy::Restart) => format!("systemd to restart {unit}"),
            (Runner::Sandbox(id), _) => format!("the container runtime to stop the pod of sandbox {id}"),
        };
        if mode == CarryOut::DryRun {
            self.tell(&waiting.task, format!("would ask {what}"), DecisionResult::WouldDo);
            return None;
        }
        match self.parts.hands.carry_out(runner, remedy, beat) {
            Ok(EvictionResult::Done(how)) => {
                self.parts.context.stats.rulings_carried_out.add(1);
                self.tell(&waiting.task, format!("asked {what}: {how}"), DecisionResult::Done);
            }
            Ok(EvictionResult::Unneeded(why)) => {
                self.tell(&waiting.task, format!("need not ask {what}: {why}"), DecisionResult::Unchanged);
            }
            Err(why) => {
                let Some(pause) = AGAIN.get(waiting.failures) else {
                    let reason = format!("could not ask {what}: {why}; it stays an offer");
                    self.tell(&waiting.task, reason, DecisionResult::Failed);
                    return None;
                };
                tracing::warn!(why, ?pause, "an eviction or restart failed; it is tried again");
                waiting.failures += 1;
                waiting.not_before = now + *pause;
                return Some(waiting);
            }
        }
        None
    }

    fn tell(&self, task: &Task, reason: String, result: DecisionResult) {
        let kind = match task.remedy {
            Remedy::Evict => DecisionKind::Evict,
            Remedy::Restart => DecisionKind::Restart,
        };
        tracing::warn!(pod = task.tracked.workload.pod.name, because_of = task.because_of, "{reason}");
        let draft = Draft::of(&task.tracked.workload, kind, reason)
            .input("because_of", task.because_of)
            .input("class", task.class)
            .result(result);
        self.parts.decisions.record(draft, &self.parts.context.stats);
    }
}

/// Who can carry a task out, by what runs the container: a service of systemd, or a pod of a runtime that no kubelet
/// made; or why nobody can.
fn runner(task: &Task, roster: &[RosterEntry], has_systemd: bool) -> Result<Runner, &'static str> {
    let workload = &task.tracked.workload;
    let of_systemd = match (&workload.cgroup, workload.source) {
        (CgroupBinding::Unit(unit), _) => Some(unit.clone()),
        (CgroupBinding::Path(_), SourceKind::Manifests | SourceKind::Systemd) => {
            match standing(&task.tracked.cgroup) {
                UnitMembership::Unit(unit) => Some(unit),
                UnitMembership::Below(_) | UnitMembership::Foreign => None,
            }
        }
        _ => None,
    };
    if let Some(unit) = of_systemd.filter(|unit| has_systemd && unit.ends_with(".service")) {
        return Ok(Runner::Unit(unit));
    }
    if workload.source != SourceKind::Cri {
        return Err(NOBODY);
    }
    if kubelet_tier(&task.tracked.cgroup).is_some() {
        return Err(OF_KUBELET);
    }
    if task.remedy == Remedy::Restart {
        return Err(ONE_CONTAINER);
    }
    let is_sandbox = |other: &&RosterEntry| {
        let other = &other.tracked.workload;
        other.source == SourceKind::Cri
            && other.kind == ContainerKind::Infrastructure
            && other.pod == workload.pod
    };
    let sandbox = roster.iter().find(is_sandbox).ok_or(NO_SANDBOX)?;
    Ok(Runner::Sandbox(sandbox.tracked.workload.id.clone()))
}

/// How many other pods of the group run and how many must, where an eviction would leave too few.
fn over_budget(task: &Task, roster: &[RosterEntry], least: u32) -> Option<(u32, u32)> {
    if task.remedy != Remedy::Evict {
        return None;
    }
    let ours = &task.tracked.workload;
    let least = ours.pod_facts.min_available.unwrap_or(least);
    let is_other = |other: &Workload| {
        other.kind != ContainerKind::Infrastructure
            && (&other.pod.namespace, &other.workload) == (&ours.pod.namespace, &ours.workload)
            && other.pod != ours.pod
    };
    let others = roster.iter().map(|entry| &*entry.tracked.workload).filter(|other| is_other(other));
    let pods: BTreeSet<_> = others.map(|other| &other.pod).collect();
    let left = u32::try_from(pods.len()).unwrap_or(u32::MAX);
    (left < least).then_some((left, least))
}

#[cfg(test)]
mod tests;
