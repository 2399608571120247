//! The pressure loop: looks at memory and CPU, and has done about it what the rules say.
//!
//! Owned here: the thread that looks and decides (`pressure`, which never blocks) and the one that carries out
//! (`pressure-worker`), and the bounded channels between them. Not owned: the rules (`evenkeel_qos::pressure`,
//! `evenkeel_qos::starvation`), what is in force ([`crate::holds`]), undoing it when we are killed
//! ([`crate::guardian`]).

mod cpu;
mod domain;
mod own_limits;
pub mod rules;
mod samples;
mod sight;
mod squeeze;
#[cfg(test)]
mod tests;
mod thrash;
mod triggers;
pub mod view;
mod worker;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_host::hierarchy::Controller;
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_qos::pressure::{Grade, PressureResult};
use evenkeel_qos::starvation;

use crate::converge::board::Board;
use crate::converge::roster::RosterEntry;
use crate::decisions::DecisionLog;
use crate::holds::Holds;
use crate::kernel::{self, Way};
use crate::oom::evictions::Evictions;
use crate::shared::{Context, Heartbeat, Waker};
use crate::usage::Usage;

use cpu::CpuLook;
use domain::Domain;
use sight::{KernelSight, Sight};
use thrash::ThrashLook;
use triggers::{Fired, Triggers};
use view::View;
use worker::{Finished, Job, Worker};

/// Work that may wait for the worker; more is put off to a later look.
const JOBS: usize = 256;
/// Time between two cheap looks.
const GLANCE: Duration = Duration::from_millis(250);
/// The same while growth has to be stopped at once.
const HASTE: Duration = Duration::from_millis(100);

/// What the loop is given.
pub struct PressureParts<'a> {
    /// Configuration, counters, stop flag.
    pub context: &'a Arc<Context>,
    /// Reads the kernel.
    pub reader: &'a KernelReader,
    /// Which containers there are.
    pub board: &'a Arc<Board>,
    /// Where steps are told.
    pub decisions: &'a Arc<DecisionLog>,
    /// What is in force.
    pub holds: &'a Arc<Holds>,
    /// What status shows.
    pub view: &'a Arc<View>,
    /// Who rules on pods that must go.
    pub evictions: &'a Arc<Evictions>,
    /// The latest samples.
    pub usage: &'a Usage,
}

/// Starts both threads.
///
/// # Errors
/// When our own process is not found in procfs, or a thread cannot be made.
pub fn start(
    parts: &PressureParts<'_>,
    beats: (Arc<Heartbeat>, Arc<Heartbeat>),
) -> anyhow::Result<[JoinHandle<()>; 2]> {
    let PressureParts { context, reader, board, decisions, holds, view, evictions, usage } = *parts;
    let bell = Waker::new().context("no descriptor for the pressure loop's bell")?;
    context.stop.register(bell.clone());
    let (job_sender, jobs) = sync_channel(JOBS);
    let (finished, results) = sync_channel(2 * JOBS);
    let (roots, tree) = (reader.roots(), reader.tree());
    let worker = Worker {
        context: Arc::clone(context),
        reader: Box::new(reader.clone()),
        writer: kernel::open_writer(&context.config, roots, tree, Way::Direct)?,
        holds: Arc::clone(holds),
        decisions: Arc::clone(decisions),
        view: Arc::clone(view),
        evictions: Arc::clone(evictions),
        usage: Arc::clone(usage),
        jobs,
        finished,
        bell: bell.clone(),
    };
    let sight = KernelSight::new(roots.clone(), Arc::clone(tree), Arc::clone(usage));
    let mut pressure = Loop::new(context, board, view, Box::new(sight), job_sender, results);
    pressure.find_tiers(reader);
    pressure.arm(reader);
    let (context, holds, reader) = (Arc::clone(context), Arc::clone(holds), reader.clone());
    let mut undoer = kernel::open_writer(&context.config, reader.roots(), reader.tree(), Way::Direct)?;
    let thread = |name: &str| std::thread::Builder::new().name(name.to_owned());
    let (beat, worker_beat) = beats;
    let hands = thread("pressure-worker")
        .spawn(move || worker.run(&worker_beat))
        .context("cannot start the pressure worker")?;
    let eyes = thread("pressure")
        .spawn(move || {
            pressure.run(&bell, &beat);
            // The worker may be waiting for the kernel; what stands is undone without it.
            let undone = holds.end(&reader, &mut undoer);
            if undone > 0 {
                tracing::info!(undone, "settings that were meant for a while are put back");
            }
        })
        .context("cannot start the pressure loop")?;
    Ok([eyes, hands])
}

/// The thread's state.
struct Loop {
    context: Arc<Context>,
    board: Arc<Board>,
    view: Arc<View>,
    sight: Box<dyn Sight>,
    jobs: SyncSender<Job>,
    results: Receiver<Finished>,
    triggers: Triggers,
    domains: Vec<Domain>,
    cpu: CpuLook,
    thrash: ThrashLook,
    generation: u64,
    /// Slots of the last roster, to tell the worker of those that are gone.
    slots: Vec<u32>,
}

impl Loop {
    fn new(
        context: &Arc<Context>,
        board: &Arc<Board>,
        view: &Arc<View>,
        sight: Box<dyn Sight>,
        jobs: SyncSender<Job>,
        results: Receiver<Finished>,
    ) -> Self {
        let can = sight.can();
        let rules = context.config.pressure.rules;
        let mut loop_ = Self {
            context: Arc::clone(context),
            board: Arc::clone(board),
            view: Arc::clone(view),
            sight,
            jobs,
            results,
            triggers: Triggers::default(),
            domains: Vec::new(),
            cpu: CpuLook::default(),
            thrash: ThrashLook::default(),
            generation: 0,
            slots: Vec::new(),
        };
        loop_.domains.push(Domain::new(None, domain::within(rules, can)));
        loop_
    }

    /// One domain for each owned subtree, which may have a limit of its own.
    fn find_tiers(&mut self, reader: &KernelReader) {
        let tree = reader.tree();
        let Some(home) = tree.layout().home(Controller::Memory) else { return };
        let rules = self.domains[0].rules;
        for path in &self.context.config.own {
            match tree.dir(home, path) {
                Ok(dir) => self.domains.push(Domain::new(Some(dir.at().clone()), rules)),
                Err(error) => tracing::info!(path, %error, "no pressure of its own is seen of this subtree"),
            }
        }
    }

    fn arm(&mut self, reader: &KernelReader) {
        let config = &self.context.config.pressure;
        let (roots, tree) = (reader.roots(), &**reader.tree());
        for (index, domain) in self.domains.iter().enumerate() {
            let bands = &domain.rules.bands;
            self.triggers.arm(index, domain.tier.as_ref(), roots, tree, bands, config.window_usec);
        }
        for why in &self.triggers.missing {
            tracing::warn!(why, "memory pressure is polled");
        }
    }

    fn run(&mut self, bell: &Waker, heartbeat: &Heartbeat) {
        while !self.context.stop.is_set() {
            heartbeat.beat();
            let patience = if self.domains.iter().any(Domain::is_urgent) { HASTE } else { GLANCE };
            let fired = self.triggers.wait(bell, patience);
            self.turn(&fired, Instant::now());
        }
    }

    /// One turn: answers in, looks, work out.
    fn turn(&mut self, fired: &[Fired], woke: Instant) {
        self.context.stats.pressure.triggers.add(fired.len() as u64);
        self.take_results();
        let roster = self.board.roster();
        self.notice_gone(&roster);
        for index in 0..self.domains.len() {
            self.look(index, &roster, fired, woke);
        }
        self.look_for_thrash(&roster);
        self.look_at_cpu(&roster);
        self.show();
    }

    fn look(&mut self, index: usize, roster: &[RosterEntry], fired: &[Fired], woke: Instant) {
        let stats = &self.context.stats.pressure;
        let domain = &mut self.domains[index];
        let fired = fired.iter().filter(|(of, ..)| *of == index).map(|(_, grade, window)| (*grade, *window));
        let fired = fired.max_by_key(|(grade, _)| *grade);
        stats.glances.add(1);
        if !domain.glance(&mut *self.sight, fired) || !self.context.live.now().pressure.enabled {
            return;
        }
        stats.looks.add(1);
        let actions = domain.look(&mut *self.sight, roster, fired.is_some());
        let mut woke = fired.map(|_| woke);
        for (action, entry) in actions {
            if self.domains.iter().enumerate().any(|(other, d)| other != index && d.holds(action.key)) {
                self.domains[index].done(&*self.sight, &action, PressureResult::Deferred);
                continue;
            }
            let job = Job::Memory { domain: index, action, entry, woke: woke.take() };
            if !send(&self.jobs, job) {
                self.context.stats.pressure.deferred.add(1);
                self.domains[index].done(&*self.sight, &action, PressureResult::Deferred);
            }
        }
    }

    /// Names containers that thrash at their own limits, whether or not anything is done about pressure.
    fn look_for_thrash(&mut self, roster: &[RosterEntry]) {
        let [node, ..] = self.domains.as_slice() else { return };
        let least_waited = node.rules.bands.warning.some.enter;
        let held = |key| self.domains.iter().any(|domain| domain.holds(key));
        for named in self.thrash.look(&mut *self.sight, roster, node.node(), least_waited, held) {
            if !send(&self.jobs, Job::Thrash(named)) {
                self.context.stats.pressure.deferred.add(1);
            }
        }
        self.context.stats.pressure.thrashing.set(self.thrash.thrashing() as u64);
    }

    fn look_at_cpu(&mut self, roster: &[RosterEntry]) {
        let live = self.context.live.now();
        if !live.starvation.enabled {
            return;
        }
        let rules = &live.starvation.rules;
        for (action, entry) in self.cpu.look(&mut *self.sight, roster, rules) {
            if !send(&self.jobs, Job::Cpu { action, entry }) {
                self.context.stats.pressure.deferred.add(1);
                self.cpu.done(&action, starvation::StarvationResult::Failed);
            }
        }
        self.context.stats.pressure.starving.set(self.cpu.starving() as u64);
    }

    fn take_results(&mut self) {
        while let Ok(finished) = self.results.try_recv() {
            match finished {
                Finished::Memory { domain, action, verdict } => {
                    self.domains[domain].done(&*self.sight, &action, verdict);
                }
                Finished::Cpu { action, verdict } => self.cpu.done(&action, verdict),
            }
        }
    }

    /// Holds of containers that are gone are let go of: their cgroups are, too.
    fn notice_gone(&mut self, roster: &[RosterEntry]) {
        let generation = self.board.roster_generation();
        if std::mem::replace(&mut self.generation, generation) == generation {
            return;
        }
        let mut slots: Vec<u32> = roster.iter().map(|entry| entry.tracked.slot).collect();
        slots.sort_unstable();
        let before = std::mem::replace(&mut self.slots, slots);
        for slot in before {
            if self.slots.binary_search(&slot).is_err() && !send(&self.jobs, Job::Gone(slot)) {
                // Looked at again at the next turn.
                self.generation = self.generation.wrapping_sub(1);
                self.slots.push(slot);
                self.slots.sort_unstable();
            }
        }
    }

    fn show(&self) {
        let views = self.domains.iter().enumerate();
        let views =
            views.filter_map(|(index, domain)| domain.view(&*self.sight, self.triggers.how(index))).collect();
        self.context.stats.pressure.grade.set(self.domains.first().map_or(Grade::Calm, Domain::grade) as u64);
        self.view.show(self.context.live.now().pressure.enabled, views, self.cpu.starving());
    }
}

/// False when the worker is behind.
fn send(jobs: &SyncSender<Job>, job: Job) -> bool {
    match jobs.try_send(job) {
        Ok(()) => true,
        Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
    }
}
