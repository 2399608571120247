//! The state machine: looks in, ordered actions out.
//!
//! It remembers the grade, the last second of the node's numbers, and per container what is held, since when, what
//! failed and how often it came back. The memory is bounded by the containers of the last look.

mod memory;

use std::collections::BTreeMap;

use evenkeel_model::qos_class::QosClass;
use evenkeel_model::units::Bytes;

use super::grade::{Band, Bands, Grade, Grader, PressureCause, Signals, part_of};
use super::release::{Giving, Letting, Restriction, let_go};
use super::step::{PressureCase, PressureStep, Rung, decide};
use super::trend::{Point, Trend, share};
use memory::PressureState;

/// What can be done on this machine, and is switched on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Switches {
    /// `memory.reclaim`.
    pub reclaim: bool,
    /// `memory.high`.
    pub high: bool,
    /// `memory.soft_limit_in_bytes`.
    pub soft_limit: bool,
    /// Freezing.
    pub freeze: bool,
    /// Killing.
    pub kill: bool,
}

impl Switches {
    /// The same without one rung.
    #[must_use]
    pub const fn without(mut self, rung: Rung) -> Self {
        match rung {
            Rung::Reclaim => self.reclaim = false,
            Rung::High => {
                self.high = false;
                self.soft_limit = false;
            }
            Rung::Freeze => self.freeze = false,
            Rung::Kill => self.kill = false,
        }
        self
    }
}

/// Everything an operator chooses, and what the machine can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PressureConfig {
    /// Thresholds.
    pub bands: Bands,
    /// What can be done.
    pub can: Switches,
    /// Part of a container's memory taken in one step, hundredths of a percent.
    pub step: u32,
    /// What has to stay available when something is undone, hundredths of a percent of the basis.
    pub reserve: u32,
    /// Killing needs less than this to be available.
    pub floor: Bytes,
    /// A kill needs milder steps to have been in vain for so long, microseconds.
    pub kill_after_usec: u64,
    /// Time after a kill before the next, microseconds: memory comes back slowly.
    pub kill_cool_down_usec: u64,
    /// How long a container may be frozen, microseconds.
    pub freeze_at_most_usec: u64,
    /// Time after undoing before the same is done to the same container again, microseconds.
    pub redo_after_usec: u64,
    /// Re-triggers within this time count towards escalation, microseconds.
    pub retrigger_window_usec: u64,
    /// So many re-triggers take a container one rung higher.
    pub retriggers: u32,
}

/// What is known of stalled time that comes from reclaim at limits of their own: of a container, a pod, a service that
/// uses all it may use, whatever the node has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OwnLimits {
    /// It is not told apart here (cgroup v1, no PSI of cgroups): what is available decides.
    #[default]
    Untold,
    /// It is told apart, and was not asked for at this look.
    Unread,
    /// It is told apart, and not known yet: somebody is at a limit of its own, how long it waits there the next look
    /// will show.
    Pending,
    /// So much since some moment, microseconds.
    Stalled(u64),
}

/// The node at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodePressure {
    /// Time in which some waited for memory since boot, microseconds; `None` where the kernel does not tell.
    pub some_usec: Option<u64>,
    /// Time in which all waited.
    pub full_usec: Option<u64>,
    /// Part of the last ten seconds in which some waited, hundredths of a percent.
    pub some_avg10: Option<u32>,
    /// Part of the last ten seconds in which all waited.
    pub full_avg10: Option<u32>,
    /// The part of the stalled time that cgroups spent at limits of their own.
    pub own_limits: OwnLimits,
    /// Memory.
    pub total: Bytes,
    /// Memory that can be had without swapping (`MemAvailable`).
    pub available: Bytes,
    /// Unused swap.
    pub swap_free: Bytes,
    /// A trigger of the kernel fired: the grade it stands for, and the window it watched, microseconds.
    pub fired: Option<(Grade, u64)>,
}

/// One container at one look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContainerMemory {
    /// Which.
    pub key: u32,
    /// Whether anything may be done to it.
    pub managed: bool,
    /// Its class by memory.
    pub class: QosClass,
    /// What it asked for.
    pub request: Bytes,
    /// Its limit.
    pub limit: Option<Bytes>,
    /// What is charged to it.
    pub current: Bytes,
    /// Anonymous memory.
    pub anon: Bytes,
    /// Pages of files.
    pub file: Bytes,
    /// Time in which some in it waited for memory, microseconds.
    pub some_usec: Option<u64>,
    /// When this was read, on the clock of [`Observation::now_usec`].
    pub read_usec: u64,
}

/// One look at everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Observation {
    /// Monotonic time, microseconds.
    pub now_usec: u64,
    /// The node.
    pub node: NodePressure,
    /// The containers.
    pub containers: Vec<ContainerMemory>,
}

/// What is to be done to a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PressureChange {
    /// A step of the ladder, with what it was decided by.
    Restrict(PressureStep, PressureCase),
    /// Something is undone, with what that was decided by.
    Release(Letting, Giving),
}

/// One action, to be carried out in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PressureAction {
    /// To which container.
    pub key: u32,
    /// What.
    pub deed: PressureChange,
    /// What brought the grade about.
    pub cause: Option<PressureCause>,
    /// The signals of this look.
    pub signals: Signals,
    /// How often it came back within the window.
    pub retriggers: u32,
}

/// What became of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PressureResult {
    /// Done (or rehearsed).
    Done,
    /// Failed; it is not tried again for a while.
    Failed,
    /// Nobody had time for it; it may be tried again at once.
    Deferred,
}

/// A rung that failed for a container is left alone for so long, microseconds.
const FAILED_FOR_USEC: u64 = 60_000_000;
/// The kernel's averages over ten seconds still hold a stall for so long after it, microseconds: three times their
/// time constant (Documentation/accounting/psi.rst).
const AVERAGES_USEC: u64 = 30_000_000;
/// Restrictions at one look when growth has to be stopped at once.
const AT_ONCE: usize = 16;
/// Part of the basis by which a cap is raised at least at a time, hundredths of a percent; half of what is to spare
/// where that is more.
const RAISE: u32 = 200;

/// The machine.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    grader: Grader,
    trend: Trend,
    containers: BTreeMap<u32, PressureState>,
    signals: Signals,
    /// Stalled time of containers that are not held, while somebody is.
    foreign: Option<u32>,
    /// When cgroups last stalled at limits of their own, and for how long they had by then.
    own_limit: Option<(u64, u64)>,
    /// Since when stalled time is told apart: the kernel's averages hold what was before, and nobody knows whose it was.
    apart_since: Option<u64>,
    /// A trigger of the kernel counted at the last look.
    told: bool,
    acted_usec: Option<u64>,
    killed_usec: Option<u64>,
}

impl Machine {
    /// The grade in force.
    pub const fn grade(&self) -> Grade {
        self.grader.grade()
    }

    /// What brought it about.
    pub const fn cause(&self) -> Option<PressureCause> {
        self.grader.cause()
    }

    /// Since when it is in force, on the clock of the looks.
    pub const fn since_usec(&self) -> u64 {
        self.grader.since_usec()
    }

    /// The signals of the last look.
    pub const fn signals(&self) -> &Signals {
        &self.signals
    }

    /// Containers that are remembered.
    pub fn len(&self) -> usize {
        self.containers.len()
    }

    /// True when nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }

    /// True while something is held: the next look is not to be put off.
    pub fn holds(&self) -> bool {
        self.containers.values().any(PressureState::holds)
    }

    /// True while something of this container is held.
    pub fn holds_key(&self, key: u32) -> bool {
        self.containers.get(&key).is_some_and(PressureState::holds)
    }

    /// Takes in one look without containers, the cheap one; true when a whole look is due.
    pub fn glance(&mut self, now_usec: u64, node: &NodePressure, rules: &PressureConfig) -> bool {
        let signals = self.look(now_usec, node, rules);
        let entered = Grade::BAD.iter().filter_map(|grade| rules.bands.of(*grade));
        let entered = entered.into_iter().any(|b| signals.enters(b, &rules.bands).is_some());
        entered || node.fired.is_some() || self.grade() > Grade::Calm || self.holds()
    }

    /// True when growth has to be stopped at once.
    pub fn is_urgent(&self) -> bool {
        self.urgent(self.grade())
    }

    /// Takes in one look and says what is to be done, in order.
    pub fn step(&mut self, seen: &Observation, rules: &PressureConfig) -> Vec<PressureAction> {
        let now = seen.now_usec;
        self.remember(seen, rules);
        self.foreign = self.foreign_stall(seen);
        self.look(now, &seen.node, rules);
        let grade = self.grader.grade();
        let mut actions = Vec::new();
        self.undo(seen, rules, &mut actions);
        if let Some(band) = rules.bands.of(grade)
            && self.is_short(band, rules)
            && (self.acted_usec.is_none_or(|at| now.saturating_sub(at) >= band.cool_down_usec)
                || self.urgent(grade))
        {
            self.restrict(seen, rules, &mut actions);
        }
        actions
    }

    /// Takes in what became of an action.
    pub fn done(&mut self, now_usec: u64, action: &PressureAction, verdict: PressureResult) {
        if let Some(memory) = self.containers.get_mut(&action.key) {
            memory.pending = None;
            if verdict != PressureResult::Done {
                memory.failed();
                if let (PressureChange::Restrict(step, _), PressureResult::Failed) = (action.deed, verdict) {
                    memory.failing.insert(step.rung(), now_usec.saturating_add(FAILED_FOR_USEC));
                }
            }
        }
    }

    fn urgent(&self, grade: Grade) -> bool {
        grade >= Grade::High && self.grader.cause() == Some(PressureCause::Exhaustion)
    }

    /// Whether memory is short at this very look: a grade that lasts only because its end is waited for takes no steps.
    fn is_short(&self, band: &Band, rules: &PressureConfig) -> bool {
        self.told || !self.signals.leaves(band, &rules.bands)
    }

    /// Judges the node; what is known of containers that are not held bounds the stalled time.
    fn look(&mut self, now: u64, node: &NodePressure, rules: &PressureConfig) -> Signals {
        let capped: u64 = self.containers.values().filter_map(PressureState::capped).sum();
        self.trend.push(Point {
            time_usec: now,
            some_usec: node.some_usec,
            full_usec: node.full_usec,
            own_limit_usec: match node.own_limits {
                OwnLimits::Stalled(usec) => Some(usec),
                OwnLimits::Untold | OwnLimits::Unread | OwnLimits::Pending => None,
            },
            free: node.available.get().saturating_add(capped),
        });
        self.note_own_limits(now, node.own_limits);
        let stalled = self.trend.stalled(node.own_limits != OwnLimits::Untold);
        let at_own_limits = self.own_limit.is_some_and(|(at, _)| now.saturating_sub(at) < AVERAGES_USEC);
        let apart = (node.own_limits != OwnLimits::Untold).then(|| self.apart_since.unwrap_or(now));
        self.apart_since = apart;
        let settled = apart.is_none_or(|since| now.saturating_sub(since) >= AVERAGES_USEC);
        let judged = |part: Option<u32>, average: Option<u32>| {
            // The averages do not tell apart who waited.
            let part = if at_own_limits || !settled { part } else { part.max(average) };
            // A container that waits at its cap stalls because it was told to.
            self.foreign.map_or(part, |bound| part.map(|part| part.min(bound)))
        };
        self.signals = Signals {
            some: judged(stalled.some, node.some_avg10),
            full: judged(stalled.full, node.full_avg10),
            own_limit: stalled.own_limit,
            available: node.available,
            basis: rules.bands.basis(node.total),
            exhaustion_usec: self.trend.exhaustion_usec(node.available.get()),
        };
        // What a container at a cap or a limit of its own brings about is no news.
        // Nor is a trigger any while it is not known of this very look who waited; the next one will show.
        let known = node.own_limits != OwnLimits::Unread;
        let fired = node.fired.filter(|_| self.foreign.is_none() && !at_own_limits && known);
        self.told = fired.is_some() && self.signals.stall_counts(&rules.bands);
        self.grader.step(now, &self.signals, &rules.bands, fired);
        self.signals
    }

    /// Notes when somebody stalled at a limit of its own, or might have.
    fn note_own_limits(&mut self, now: u64, own_limits: OwnLimits) {
        let before = self.own_limit.map(|(_, usec)| usec);
        match own_limits {
            OwnLimits::Untold | OwnLimits::Unread => {}
            OwnLimits::Pending => self.own_limit = Some((now, before.unwrap_or(0))),
            OwnLimits::Stalled(usec) if usec > before.unwrap_or(0) => self.own_limit = Some((now, usec)),
            OwnLimits::Stalled(_) => {}
        }
    }

    /// Brings what is remembered of each container up to date; those that are gone are forgotten.
    fn remember(&mut self, seen: &Observation, rules: &PressureConfig) {
        let mut gone = std::mem::take(&mut self.containers);
        let held_before: Vec<u32> = gone.iter().filter(|(_, m)| m.cap.is_some()).map(|(k, _)| *k).collect();
        for facts in &seen.containers {
            let mut memory = gone.remove(&facts.key).unwrap_or_default();
            memory.see(facts, seen.now_usec, rules.retrigger_window_usec);
            self.containers.insert(facts.key, memory);
        }
        if held_before.iter().any(|key| gone.contains_key(key)) {
            self.trend.restart();
        }
    }

    /// While a container waits at its cap, the node's stalled time says nothing about the others; theirs does.
    /// `None` while nobody is capped, or where the kernel does not tell.
    fn foreign_stall(&self, seen: &Observation) -> Option<u32> {
        if !self.containers.values().any(|memory| memory.cap.is_some_and(|cap| cap.binds)) {
            return None;
        }
        let others = seen.containers.iter().filter_map(|facts| {
            let memory = self.containers.get(&facts.key)?;
            (memory.cap.is_none()).then_some(memory.stall?)
        });
        Some(others.max().unwrap_or(0))
    }

    /// Who may be restricted, in order: BestEffort, the largest first, then Burstable by how much it has too much.
    /// When growth has to be stopped, those who grow come first within their class.
    fn ranked<'a>(&self, seen: &'a Observation, urgent: bool) -> Vec<&'a ContainerMemory> {
        let mut ranked: Vec<&ContainerMemory> =
            seen.containers.iter().filter(|f| f.managed && f.class != QosClass::Guaranteed).collect();
        let growth = |f: &ContainerMemory| self.containers.get(&f.key).map_or(0, |m| m.growth);
        ranked.sort_unstable_by_key(|f| {
            let over = match f.class {
                QosClass::BestEffort => f.current,
                _ => f.current.saturating_sub(f.request),
            };
            let growing = if urgent { growth(f) } else { 0 };
            (f.class, std::cmp::Reverse((growing, over)), f.key)
        });
        ranked
    }

    fn restrict(&mut self, seen: &Observation, rules: &PressureConfig, actions: &mut Vec<PressureAction>) {
        let (now, grade) = (seen.now_usec, self.grader.grade());
        let urgent = self.urgent(grade);
        let most = if urgent { AT_ONCE } else { 1 };
        let mut taken = 0;
        let just_undone: Vec<u32> = actions.iter().map(|a| a.key).collect();
        for facts in self.ranked(seen, urgent) {
            if taken >= most {
                break;
            }
            let Some(memory) = self.containers.get(&facts.key) else { continue };
            if memory.pending(now) || just_undone.contains(&facts.key) {
                continue;
            }
            // Whoever does not grow is no cause of haste.
            let hasty = urgent && memory.growth > 0;
            let Some(case) = self.case(facts, memory, seen, rules, hasty) else { continue };
            let Some(step) = decide(&case) else { continue };
            taken += 1;
            self.take(facts, step, case, now, actions);
            if urgent && !hasty {
                break;
            }
        }
    }

    fn case(
        &self,
        facts: &ContainerMemory,
        memory: &PressureState,
        seen: &Observation,
        rules: &PressureConfig,
        urgent: bool,
    ) -> Option<PressureCase> {
        let (now, grade) = (seen.now_usec, self.grader.grade());
        let rung = Rung::of(grade)?;
        let escalated = memory.retriggers() >= rules.retriggers;
        let mut can = memory.able(rules.can, now);
        if self.killed_usec.is_some_and(|at| now.saturating_sub(at) < rules.kill_cool_down_usec) {
            can.kill = false;
        }
        for rung in memory.resting(now, rules.redo_after_usec) {
            can = can.without(rung);
        }
        Some(PressureCase {
            grade,
            urgent,
            rung: if escalated { rung.next() } else { rung },
            available: seen.node.available,
            short_below: matches!(self.grader.cause(), Some(PressureCause::Full | PressureCause::Some))
                .then(|| part_of(rules.bands.basis(seen.node.total), rules.bands.stall_below)),
            floor: rules.floor,
            swap_free: seen.node.swap_free,
            managed: facts.managed,
            class: facts.class,
            request: facts.request,
            current: facts.current,
            anon: facts.anon,
            file: facts.file,
            age_usec: now.saturating_sub(facts.read_usec),
            held_at: memory.cap.map(|cap| cap.at),
            frozen: memory.frozen_usec.is_some(),
            held_for_usec: memory.held_since().map(|since| now.saturating_sub(since)),
            kill_after_usec: rules.kill_after_usec,
            step: rules.step,
            can,
        })
    }

    fn take(
        &mut self,
        facts: &ContainerMemory,
        step: PressureStep,
        case: PressureCase,
        now: u64,
        actions: &mut Vec<PressureAction>,
    ) {
        let Some(memory) = self.containers.get_mut(&facts.key) else { return };
        let newly_capped = memory.cap.is_none() && matches!(step, PressureStep::High(_));
        memory.restricted(step, facts, now);
        let retriggers = memory.retriggers();
        self.acted_usec = Some(now);
        if step == PressureStep::Kill {
            self.killed_usec = Some(now);
        }
        if newly_capped {
            self.trend.restart();
        }
        actions.push(self.action(facts.key, PressureChange::Restrict(step, case), retriggers));
    }

    fn action(&self, key: u32, deed: PressureChange, retriggers: u32) -> PressureAction {
        PressureAction { key, deed, cause: self.grader.cause(), signals: self.signals, retriggers }
    }

    /// Undoes what may be undone, the most entitled first, out of what is to spare.
    fn undo(&mut self, seen: &Observation, rules: &PressureConfig, actions: &mut Vec<PressureAction>) {
        let (now, grade) = (seen.now_usec, self.grader.grade());
        let basis = rules.bands.basis(seen.node.total);
        let reserve = part_of(basis, rules.reserve);
        let mut available = seen.node.available;
        let mut held: Vec<&ContainerMemory> = seen
            .containers
            .iter()
            .filter(|f| self.containers.get(&f.key).is_some_and(|m| m.holds() && !m.pending(now)))
            .collect();
        held.sort_unstable_by_key(|f| (std::cmp::Reverse(f.class), f.current, f.key));
        for facts in held {
            let Some(memory) = self.containers.get_mut(&facts.key) else { continue };
            let Some((held, since)) = memory.last_held() else { continue };
            let giving = Giving {
                held,
                grade,
                protected: !facts.managed || facts.class == QosClass::Guaranteed,
                available,
                reserve,
                current: facts.current,
                limit: facts.limit,
                peak: memory.peak,
                growth: Bytes::new(if held == Restriction::Frozen {
                    memory.growth_then
                } else {
                    memory.growth
                }),
                cap: memory.cap.map(|cap| cap.at).filter(|_| held != Restriction::SoftLimit),
                held_for_usec: now.saturating_sub(since),
                freeze_at_most_usec: rules.freeze_at_most_usec,
                raise: part_of(basis, RAISE).max(part_of(available.saturating_sub(reserve), 5000)),
            };
            if !memory.may_let_go(now, &giving) {
                continue;
            }
            let Some(letting) = let_go(&giving) else { continue };
            let takes = match letting {
                Letting::Raise(_) => giving.raise,
                Letting::Thaw | Letting::Whole => giving.may_take(),
            };
            available = available.saturating_sub(takes);
            memory.let_go(letting, now);
            let retriggers = memory.retriggers();
            if letting == Letting::Whole {
                self.trend.restart();
            }
            actions.push(self.action(facts.key, PressureChange::Release(letting, giving), retriggers));
        }
    }
}
