//! The converge thread: the one reconciler of standing settings.
//!
//! It wakes for a source's snapshot, for process and cgroup events, and for audits, which are spread evenly over
//! the audit period. Owned here: the loop and the order of its work. Not owned: how one container converges
//! (`container`), what is desired ([`crate::reconcile`]), what is shown ([`board`]).

mod admit;
mod audit;
pub mod board;
mod container;
mod cores;
mod desired;
#[cfg(test)]
mod desired_tests;
mod diff;
mod dynamic;
mod effect;
#[cfg(test)]
mod enforce_tests;
mod env;
mod fair;
mod housekeeping;
mod incomplete;
mod knob;
mod knobs;
mod members;
mod nursery;
pub mod overlay;
mod own;
mod pass;
mod queue;
pub(crate) mod roster;
pub mod rules;
mod score;
mod shed;
mod stream;
mod table;
#[cfg(test)]
mod tests;
mod wake;
mod wishes;
mod withdrawn;
#[cfg(test)]
mod withdrawn_tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::time::{Duration, Instant};

use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::error::HostError;
use evenkeel_host::events::ProcConnector;
use evenkeel_host::hierarchy::Controller;
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::node::has_recursive_protection;
use evenkeel_host::write::HostWriter;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use audit::Audit;
use board::Board;
pub use container::State;
use cores::Cores;
pub(crate) use diff::rank;
use dynamic::DynamicScores;
use effect::Survey;
use fair::FairMode;
pub(crate) use knob::limit_would_kill;
pub(crate) use overlay::kept::forget as forget_requests;
use own::{Homes, Owned};
pub use table::source_name;
use table::{Rules, Table};
use wake::{Key, Wake};
use withdrawn::Withdrawn;

use overlay::Overlay;

use crate::admission::Admission;
use crate::config::Config;
use crate::converge::rules::Excess;
use crate::damage::StateFile;
use crate::decisions::DecisionLog;
use crate::holds::Holds;
use crate::journal::Journal;
use crate::reconcile::Snapshots;
use crate::reconcile::bind::Units;
use crate::shared::{Context, Heartbeat, Rescan, SourceProblem, SourceUpdate, TrackChange, Waker};
use crate::systemd;
use crate::usage::Usage;

/// Longest sleep: the thread says at least so often that it lives, and sees the stop flag.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// Containers looked at between two looks at the events.
const TURNS_AT_ONCE: usize = 32;
/// How often bindings whose cgroup is not there are tried without any sign of a change.
const WAITING_PERIOD: Duration = Duration::from_secs(5);
/// Shortest time between two merges because of events: where cgroups come and go all the time, each would ask for one.
const BETWEEN_MERGES: Duration = Duration::from_millis(50);
/// After events were lost everything is looked at, but not more often than this.
const ALL_DIRTY_PERIOD: Duration = Duration::from_secs(2);

/// What the converger is given.
pub struct Parts {
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
    /// What the agent itself set for a while; `None` where nobody does.
    pub holds: Option<Arc<Holds>>,
    /// The latest samples; `None` where nobody samples.
    pub usage: Option<Usage>,
    /// Whether process numbers mean the same here as in procfs; without that scores cannot be written.
    pub scores_possible: bool,
}

/// The converger's state.
pub struct Converger {
    parts: Parts,
    /// The configuration in force at the last look.
    live: Arc<Config>,
    rules: Rules,
    snapshots: Snapshots,
    /// Where units were at the last merge.
    units: Units,
    /// They could not be looked for then.
    is_blind: bool,
    table: Table,
    wake: Wake,
    audit: Audit,
    survey: Survey,
    owned: Owned,
    cores: Option<Cores>,
    fair: Option<FairMode>,
    dynamic: Option<DynamicScores>,
    overlay: Option<Overlay>,
    withdrawn: Withdrawn,
    /// Containers to look at, soonest first, and when each is due.
    queue: BinaryHeap<Reverse<(Instant, Key)>>,
    due: HashMap<Key, Instant>,
    /// The desired state is to be merged again at this time.
    merge_at: Option<Instant>,
    merged_at: Option<Instant>,
    all_dirty_at: Option<Instant>,
    /// When containers are counted by state the next time.
    count_at: Instant,
    /// Conflicts between sources at the last merge.
    conflicts: Vec<SourceProblem>,
    /// Manifests in their order.
    admission: Admission,
    /// Some manifest did not fit at the last look.
    is_short: bool,
    /// The list that other threads look at is to be made anew.
    roster_changed: bool,
}

impl Converger {
    /// A converger that has done nothing yet.
    pub fn new(mut parts: Parts) -> Self {
        let config = &parts.context.config;
        let mut plan = config.plan;
        if !parts.scores_possible {
            plan.knobs.oom_score_adj = false;
        }
        plan.cpu_weight = config.weight_conversion.unwrap_or(plan.cpu_weight);
        let rules = Rules {
            facts: parts.context.facts.clone(),
            plan,
            switches: config.knobs,
            score: config.converge.score,
            own: config.own.clone(),
            agent_started: env::ticks_since_boot(),
            allocation: None,
            detect_weight: config.weight_conversion.is_none(),
        };
        let tree = Arc::clone(parts.reader.tree());
        let wake = Wake::open(parts.connector.take(), Arc::clone(&tree), parts.reader.roots().clone());
        let changes = parts.changes.take();
        let audit = Audit::new(config.converge.audit_period, Instant::now());
        let recursive = has_recursive_protection(parts.reader.roots());
        let layout = tree.layout();
        let homes = Homes { cpu: layout.home(Controller::Cpu), memory: layout.home(Controller::Memory) };
        let claimed = |path: &str| claimed_by_systemd(&tree, path);
        let owned = Owned::new(&config.own, homes, config.converge.audit_period, Instant::now(), claimed);
        if let Some(standing) = owned.standing() {
            parts.board.show_knob(standing);
        }
        for (path, why, remedy) in owned.refused() {
            tracing::warn!(path, why, remedy, "this subtree is not written");
        }
        let cores = match config
            .cpu
            .exclusive_cores
            .then(|| Cores::open(parts.reader.roots().devices(), &config.cpu.kubelet_dir))
        {
            Some(Err(off)) => {
                tracing::warn!(why = off.why, remedy = off.remedy, "no container gets cores of its own");
                parts.board.show_knob(off);
                None
            }
            on => on.and_then(Result::ok),
        };
        let fair = match config.cpu.excess {
            Excess::Fair => parts
                .usage
                .clone()
                .map(|usage| FairMode::new(&config.cpu, &config.own, usage, Instant::now())),
            Excess::Proportional => None,
        };
        let overlay = config.overlay.accept.then(|| Overlay::new(config.overlay, Instant::now()));
        parts.context.overlays.set_bell(parts.waker.clone());
        let ranked = parts.usage.clone().filter(|_| config.dynamic_scores);
        let dynamic = ranked.map(|usage| DynamicScores::new(config.plan.rules, usage, Instant::now()));
        let survey = Survey::new(recursive, config.own.clone(), config.converge.audit_period, Instant::now());
        let keeps = config.mode == crate::config::Mode::Enforce;
        let (admission, damaged) = Admission::open(keeps.then_some(&*config.state_dir), Instant::now());
        let file = Admission::path_in(&config.state_dir);
        parts.context.stats.damages.take(StateFile::Admitted, &file, usize::from(damaged));
        let mut new = Self {
            live: parts.context.live.now(),
            rules,
            snapshots: Snapshots::default(),
            units: Units::default(),
            is_blind: false,
            table: Table::new(changes),
            wake,
            audit,
            survey,
            owned,
            cores,
            fair,
            dynamic,
            overlay,
            withdrawn: Withdrawn::new(Instant::now()),
            queue: BinaryHeap::new(),
            due: HashMap::new(),
            merge_at: None,
            merged_at: None,
            all_dirty_at: None,
            count_at: Instant::now(),
            conflicts: Vec::new(),
            admission,
            is_short: false,
            roster_changed: true,
            parts,
        };
        new.resume_requests(Instant::now());
        new
    }

    /// Runs until the agent ends.
    pub fn run(mut self, heartbeat: &Heartbeat) {
        self.thaw_leftovers();
        self.show_wake();
        while !self.parts.context.stop.is_set() {
            heartbeat.beat();
            self.wait();
            self.parts.waker.drain();
            let now = Instant::now();
            self.take_configuration(now);
            self.take_updates(now);
            self.take_events(now);
            self.take_pokes(now);
            self.resize(now);
            self.reconcile(now);
            self.fair(now);
            self.rank(now);
            self.inner(now);
            self.audit(now);
            self.turns();
            self.withdraw(now);
            self.survey(now);
            self.finish_round();
        }
        self.compact_journal();
        self.parts.decisions.sync(&self.parts.context.stats);
    }

    /// What a reload changed is planned with from now on.
    fn take_configuration(&mut self, now: Instant) {
        let live = self.parts.context.live.now();
        if !Arc::ptr_eq(&live, &self.live) {
            self.live = live;
            self.merge_at = Some(now);
        }
    }

    /// Waits until so many sources have said what they see, or `deadline`, and tells the log where not all have.
    pub fn gather(&mut self, sources: usize, deadline: Instant) {
        while self.snapshots.sources().count() < sources && Instant::now() < deadline {
            // Not for what is due: nothing is done before all is known.
            self.sleep_until(deadline);
            self.parts.waker.drain();
            self.take_updates(Instant::now());
        }
        let said: Vec<_> = self.snapshots.sources().map(|update| source_name(update.source)).collect();
        if said.len() < sources {
            let (said, missing) = (said.join(", "), sources - said.len());
            tracing::warn!(
                said,
                missing,
                "not every source said in time what it sees: what it knows is left out"
            );
        }
    }

    /// Takes in what sources said so far and converges it: for `--once`. Ends when everything is as far as it gets
    /// or at `deadline`.
    pub fn once(&mut self, deadline: Instant) {
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
        let next = [
            self.queue.peek().map(|Reverse((at, _))| *at),
            self.audit.due(self.table.len()),
            self.merge_at,
            self.survey.due(),
            self.wake.due(),
            self.owned.due(),
            self.withdrawn.due(),
            self.fair.as_ref().map(FairMode::due),
            self.dynamic.as_ref().map(DynamicScores::due),
            self.overlay
                .as_ref()
                .and_then(|overlay| overlay.due(self.parts.context.overlays.last().as_ref())),
        ];
        self.sleep_until(next.into_iter().flatten().min().unwrap_or(now + LONGEST_SLEEP));
    }

    /// Sleeps until something happens, or `next`, and not too long.
    fn sleep_until(&self, next: Instant) {
        let sleep = next.saturating_duration_since(Instant::now()).min(LONGEST_SLEEP);
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
}

/// Why a subtree cannot be ours on a machine systemd runs, with the remedy: a service or scope is systemd's own unless
/// it is delegated (systemd.resource-control(5), `Delegate=`). Knobs of slices are set through systemd.
fn claimed_by_systemd(tree: &CgroupTree, path: &str) -> Option<(String, String)> {
    if !systemd::is_booted() {
        return None;
    }
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    let is_unit = |path: &&str| path.ends_with(".service") || path.ends_with(".scope");
    let unit = ends.filter_map(|end| path.get(..end)).filter(is_unit).last()?;
    let dir = tree.layout().mounts().iter().find_map(|mount| tree.dir(mount.hierarchy, unit).ok())?;
    if dir.is_delegated() {
        return None;
    }
    let name = unit.rsplit('/').next().unwrap_or(unit);
    Some((
        format!("it is in {name}, which systemd manages and has not delegated"),
        format!("set Delegate=yes in {name}, or name a slice"),
    ))
}
