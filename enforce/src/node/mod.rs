//! The node as a whole: its daemons, the conditions that guarantees depend on, the cap of all workloads.
//!
//! A thread of its own, so that a scan of procfs never holds up a container. Owned here: when each of these is looked
//! at, and telling it. Not owned: containers ([`crate::converge`]).

pub mod cap;
mod conditions;
pub mod daemons;
pub mod rules;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use evenkeel_host::action::HostDriver;
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::knob::{Knob, Setting};
use evenkeel_host::node::meminfo;
use evenkeel_host::snapshot::HostReader as _;
use evenkeel_host::write::Target;
use evenkeel_log::private;
use evenkeel_model::units::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::converge::board::Board;
use crate::damage::StateFile;
use crate::decisions::{DecisionLog, Draft};
use crate::journal::Journal;
use crate::kernel::{self, Kernel, Way};
use crate::node::rules::Overcommit;
use crate::restore::give_back;
use crate::restore::may_be_there;
use crate::shared::{Context, Heartbeat, Waker, lock, micros};
use crate::systemd::Purpose;

use cap::{CapView, KernelAccess, WorkloadCap};
use conditions::NodeCondition;
use daemons::{Daemon, Guard};

/// Directory below `state_dir` of the originals of what this thread writes.
const JOURNAL: &str = "node";
/// Time between two looks at the machine's conditions: somebody turns swap on once a year.
const CONDITIONS: Duration = Duration::from_secs(60);
/// Memory that is not needed is given back this often.
pub const GIVE_BACK: Duration = Duration::from_secs(10);
/// Time the sources have to say what they see, before daemons are looked for.
const DISCOVERY: Duration = Duration::from_secs(3);
/// Time between two beats.
const TICK: Duration = Duration::from_secs(1);
/// Originals are rewritten without those of ended processes after so many audits.
const COMPACT_AFTER: u32 = 360;

/// What status shows of the node beyond the rows of the board.
#[derive(Debug, Default)]
pub struct View {
    daemons: Mutex<Vec<Daemon>>,
    cap: Mutex<Option<CapView>>,
}

impl View {
    /// Every daemon found.
    pub fn daemons(&self) -> Vec<Daemon> {
        lock(&self.daemons).clone()
    }

    /// The cap of all workloads; `None` where it is off.
    pub fn cap(&self) -> Option<CapView> {
        lock(&self.cap).clone()
    }
}

/// What the thread is given.
struct NodeParts {
    context: Arc<Context>,
    reader: KernelReader,
    writer: Box<dyn HostDriver + Send>,
    decisions: Arc<DecisionLog>,
    board: Arc<Board>,
    view: Arc<View>,
    give_back_memory: fn(),
}

/// Where the journal of this thread is.
pub(crate) fn journal_dir(state_dir: &Path) -> std::path::PathBuf {
    state_dir.join(JOURNAL)
}

/// The thread's state.
pub struct NodeLoop {
    parts: NodeParts,
    journal: Journal,
    guard: Option<Guard>,
    cap: Option<WorkloadCap>,
    /// A clock that does not go back begins here.
    started: Instant,
    audits: u32,
    /// State last told, by row.
    told: HashMap<&'static str, &'static str>,
}

impl NodeLoop {
    /// A loop that has looked at nothing yet, with a writer of its own. `give_back_memory` is called every
    /// `GIVE_BACK`: it gives memory that is free back to the kernel.
    ///
    /// # Errors
    /// When our own process is not found in procfs.
    pub fn open(
        context: &Arc<Context>,
        kernel: &Kernel,
        board: &Arc<Board>,
        decisions: &Arc<DecisionLog>,
        view: &Arc<View>,
        give_back_memory: fn(),
    ) -> anyhow::Result<Self> {
        let reader = kernel.reader.clone();
        let way = Way::Systemd(Purpose::Keep, kernel.systemd);
        let writer = kernel::open_writer(&context.config, reader.roots(), reader.tree(), way)?;
        let guard = Guard::new(&context.config, &reader).filter(|_| kernel.scores_possible);
        let rules = &context.config.node_memory;
        let cap = rules.cap.clone().map(|cap| WorkloadCap::new(cap, context.config.converge.contended_after));
        let parts = NodeParts {
            context: Arc::clone(context),
            reader,
            writer,
            decisions: Arc::clone(decisions),
            board: Arc::clone(board),
            view: Arc::clone(view),
            give_back_memory,
        };
        let (journal, started) = (open_journal(context), Instant::now());
        Ok(Self { parts, journal, guard, cap, started, audits: 0, told: HashMap::new() })
    }

    /// Runs until the agent ends; `waker` ends the sleep.
    pub fn run(mut self, waker: &Waker, heartbeat: &Heartbeat) {
        self.withdraw();
        let (mut audit_at, mut conditions_at) = (Instant::now(), Instant::now());
        let mut give_back_at = Instant::now() + GIVE_BACK;
        let period = self.parts.context.config.converge.audit_period;
        while !self.parts.context.stop.is_set() {
            heartbeat.beat();
            let now = Instant::now();
            if now >= conditions_at {
                conditions_at = now + CONDITIONS;
                self.conditions();
            }
            if now >= give_back_at {
                give_back_at = now + GIVE_BACK;
                (self.parts.give_back_memory)();
            }
            if now >= audit_at && self.knows_containers() {
                audit_at = now + period;
                self.daemons();
            }
            self.cap();
            sleep(waker, (now + TICK).saturating_duration_since(Instant::now()));
        }
    }

    /// Looks at everything once: for `--once`.
    pub fn once(&mut self) {
        self.withdraw();
        self.conditions();
        self.daemons();
        self.cap();
    }

    /// Puts back what an earlier run set by an option that is off now.
    fn withdraw(&mut self) {
        let sets_overcommit = self.parts.context.config.node_memory.overcommit == Overcommit::Set;
        let is_wished = |target: &Target| match target {
            Target::Node => sets_overcommit,
            Target::Cgroup(_) => self.cap.is_some(),
            Target::Process(_) => self.guard.is_some(),
        };
        let originals = self.journal.originals().filter(|original| !is_wished(&original.target));
        let originals: Vec<_> = originals.cloned().collect();
        let writes = &self.parts.context.stats.writes;
        let count = |knob: Knob, outcome: &_| writes.of(knob).count(outcome);
        let (reader, writer) = (&self.parts.reader, &mut *self.parts.writer);
        let (drafts, _) = give_back(reader, writer, &mut self.journal, originals, count);
        self.record(drafts);
    }

    /// Who is in a container must be known before a daemon is told from its imitation: every source has had time to
    /// say what it sees, and the converger to take it in.
    fn knows_containers(&self) -> bool {
        self.started.elapsed() >= DISCOVERY
    }

    fn cap(&mut self) {
        let Some(cap) = self.cap.as_mut() else { return };
        let (context, reader) = (&self.parts.context, &self.parts.reader);
        let memory = match meminfo(reader.roots()) {
            Ok(memory) => memory,
            Err(error) => {
                tracing::debug!(%error, "ignoring: memory cannot be measured; the cap stays as it is");
                return;
            }
        };
        let kubelet = self.guard.as_ref().is_some_and(Guard::has_kubelet);
        let round = cap.round(
            micros(self.started.elapsed()),
            &memory,
            context.facts.page_bytes,
            reader.tree().layout(),
            kubelet,
            KernelAccess { reader, writer: &mut *self.parts.writer, journal: &mut self.journal },
        );
        let (row, view) = (cap.row(), cap.view().clone());
        let stats = &context.stats;
        stats.workloads_cap_bytes.set(view.cap.map_or(0, Bytes::get));
        stats.outside_workloads_bytes.set(view.outside.get());
        if let Some((knob, outcome)) = &round.wrote {
            stats.writes.of(*knob).count(outcome);
        }
        if self.told.insert(row.name, row.state) != Some(row.state) && !matches!(row.state, "ok") {
            tracing::warn!(what = row.name, why = row.why, remedy = row.remedy, "the node");
        }
        self.parts.board.show_knob(row);
        *lock(&self.parts.view.cap) = Some(view);
        self.record(round.draft.into_iter().collect());
    }

    fn conditions(&mut self) {
        let config = &self.parts.context.config;
        let roots = self.parts.reader.roots();
        let policy = config.node_memory.overcommit;
        let overcommit =
            conditions::overcommit(policy, &self.parts.reader, &mut *self.parts.writer, &mut self.journal);
        self.measure();
        let limited = config.plan.swap_limits && config.knobs.memory_swap;
        let swap = conditions::swap(roots, &self.parts.board.roster(), limited);
        let panic = (policy != Overcommit::Off).then(|| conditions::panic_on_oom(roots));
        for condition in [Some(overcommit), Some(swap), panic].into_iter().flatten() {
            self.take(condition);
        }
    }

    /// What the conditions are, for the metrics.
    fn measure(&self) {
        let (stats, reader) = (&self.parts.context.stats, &self.parts.reader);
        if let Ok(Setting::OvercommitMemory(mode)) = reader.setting(&Target::Node, Knob::OvercommitMemory) {
            stats.overcommit.set(mode.get().into());
        }
        if let Ok(memory) = meminfo(reader.roots()) {
            stats.swap_bytes.set(memory.swap_total.map_or(0, Bytes::get));
        }
    }

    /// Shows a condition, and tells it when its state is news.
    fn take(&mut self, condition: NodeCondition) {
        let NodeCondition { row, draft, wrote } = condition;
        let news = self.told.insert(row.name, row.state) != Some(row.state);
        if news && !matches!(row.state, "ok" | "off") {
            tracing::warn!(what = row.name, why = row.why, remedy = row.remedy, "the node");
        }
        self.parts.board.show_knob(row);
        let stats = &self.parts.context.stats;
        stats.writes.of(Knob::OvercommitMemory).done.add(u64::from(wrote));
        if (news || wrote)
            && let Some(draft) = draft
        {
            self.parts.decisions.record(draft, stats);
        }
    }

    fn daemons(&mut self) {
        let Some(guard) = self.guard.as_mut() else { return };
        let roster = self.parts.board.roster();
        guard.set_excluded(&self.parts.context.live.now().manage.exclude_namespaces);
        let drafts = guard.audit(&roster, &mut *self.parts.writer, &mut self.journal);
        let row = guard.row();
        let (state, why, remedy) = (row.state, row.why.clone(), row.remedy.clone());
        if self.told.insert(row.name, state) != Some(state) && state == "denied" {
            tracing::warn!(why, remedy, "daemons cannot be protected from here; everything else goes on");
        }
        self.parts.board.show_knob(row);
        self.parts.context.stats.daemons.set(guard.daemons().len() as u64);
        self.parts.context.stats.daemons_protected.set(guard.protected() as u64);
        *lock(&self.parts.view.daemons) = guard.daemons();
        self.record(drafts);
        self.audits = self.audits.wrapping_add(1);
        if self.audits.is_multiple_of(COMPACT_AFTER) {
            let reader = &self.parts.reader;
            self.journal.compact(|target| match target {
                Target::Process(_) => may_be_there(reader, target),
                Target::Cgroup(_) | Target::Node => true,
            });
        }
    }

    fn record(&self, drafts: Vec<Draft>) {
        for draft in drafts {
            self.parts.decisions.record(draft, &self.parts.context.stats);
        }
    }
}

fn open_journal(context: &Context) -> Journal {
    let boot = &context.boot_id;
    if context.config.mode == crate::config::Mode::DryRun {
        return Journal::in_memory(boot);
    }
    let dir = journal_dir(&context.config.state_dir);
    let made = private::subdirectory(&dir).map_err(anyhow::Error::from);
    let opened = made.and_then(|()| Ok(Journal::open(&dir, boot)?));
    let opened = opened.inspect(|journal| {
        let path = Journal::path_in(&dir);
        context.stats.damages.take(StateFile::NodeJournal, &path, journal.damaged());
    });
    opened.unwrap_or_else(|error| {
        tracing::error!(error = format!("{error:#}"), dir = %dir.display(), "originals of the node are not journalled; restore will not know them");
        Journal::in_memory(boot)
    })
}

/// Until the time is over or somebody rings.
fn sleep(waker: &Waker, time: Duration) {
    let millis = PollTimeout::from(u16::try_from(time.as_micros().div_ceil(1000)).unwrap_or(u16::MAX));
    let mut fds = [PollFd::new(waker.fd(), PollFlags::POLLIN)];
    // Interrupted or not, the loop looks at the clock.
    let _ = poll(&mut fds, millis);
    waker.drain();
}
