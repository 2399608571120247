//! The thread `oom`: every OOM kill inside a container is seen once, told, and followed by what was configured.
//!
//! Three witnesses are merged here, so that nobody else tells of kills: the kernel's counters by their own events, the
//! sampler's counter (hints from the report thread) and the kernel's log. The counters say how many, the log says who,
//! and where a cgroup went before its counter was read the last sample or the log says both. Owned here: that merge, the
//! end of the rest of a container, and the ruling that is offered. Not owned: the kernel's files (`evenkeel-host`),
//! the policy (`evenkeel-qos`), keeping decisions until they are acknowledged ([`crate::decisions`]).

mod case;
mod counters;
pub mod evictions;
mod facts;
mod ledger;
mod lives;
mod rest;
mod step;
mod victims;

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use evenkeel_host::action::HostDriver;
use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::events::{OomEvent, OomWatch};
use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::kernel_log::KernelLog;
use evenkeel_host::roots::Roots;
use evenkeel_model::decision::{DecisionKind, DecisionResult};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::config::Mode;
use crate::converge::board::Board;
use crate::decisions::{DecisionLog, Draft};
use crate::shared::{Context, Heartbeat, Tracked, Waker};
use crate::usage::Usage;

use case::OomCase;
use counters::OomCounters;

use crate::damage::StateFile;
use evictions::Evictions;
use lives::Lives;
use victims::Victims;

/// Longest sleep: the thread says at least so often that it lives, and looks at the roster.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);
/// The roster is looked at this often at most; a container is watched so much after it was found.
const ROSTER_PERIOD: Duration = Duration::from_millis(50);
/// Between two counts while the kernel said that a v1 cgroup is out of memory and the kill is not counted yet.
const EXPECTING: Duration = Duration::from_millis(5);
/// Counters of all containers are read this often when the machine's own count of kills grew, whatever else the kernel
/// says: the net below the events.
const AUDIT: Duration = Duration::from_secs(10);
/// And this often in any case: the machine counts a kill a moment before its cgroup does, and cgroups go unannounced.
const FULL_AUDIT: Duration = Duration::from_secs(60);
/// A case waits so long for the kernel's log to name the victims; the log is written before the kill is counted, but
/// read afterwards.
const NAMES: Duration = Duration::from_millis(250);
/// The counts that were told go to disk this often, when they changed.
const SAVE: Duration = Duration::from_secs(5);
/// Hints that may wait; when full a hint is left out and the audit finds what it would have told.
const HINTS_CAP: usize = 4096;

/// What is told of OOM kills.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OomRules {
    /// Length of the samples told with a kill.
    pub history: Duration,
}

/// The sampler saw a counter of kills grow.
#[derive(Debug)]
pub struct Hint {
    /// The container.
    pub tracked: Arc<Tracked>,
    /// Kills since its cgroup was made, of the cgroup itself on v1 and of the subtree on v2.
    pub total: u64,
    /// How many of them since the sample before; `None` at the first sample.
    pub new: Option<u64>,
}

/// How the report thread tells.
#[derive(Clone)]
pub struct HintSender {
    sender: SyncSender<Hint>,
    waker: Waker,
}

impl HintSender {
    /// Offers a hint.
    pub fn send(&self, hint: Hint) {
        match self.sender.try_send(hint) {
            Ok(()) => self.waker.wake(),
            Err(TrySendError::Full(_)) => tracing::debug!("ignoring a hint at OOM kills: too many wait"),
            Err(TrySendError::Disconnected(_)) => {}
        }
    }
}

/// A channel for hints and the thread's bell.
pub fn hints(waker: &Waker) -> (HintSender, Receiver<Hint>) {
    let (sender, receiver) = sync_channel(HINTS_CAP);
    (HintSender { sender, waker: waker.clone() }, receiver)
}

/// What the thread is given.
pub struct OomParts {
    /// Configuration, counters, stop flag.
    pub context: Arc<Context>,
    /// The machine's files.
    pub roots: Roots,
    /// The cgroups.
    pub tree: Arc<CgroupTree>,
    /// Ends the rest of a container.
    pub actor: Box<dyn HostDriver + Send>,
    /// Whether processes of other users may be ended (CAP_KILL).
    pub may_kill: bool,
    /// The kernel's log, opened before capabilities were dropped; `None` where it is off or not readable.
    pub log: Option<KernelLog>,
    /// Which containers there are.
    pub board: Arc<Board>,
    /// Where kills are told.
    pub decisions: Arc<DecisionLog>,
    /// The last seconds of every container.
    pub usage: Usage,
    /// What is offered.
    pub evictions: Arc<Evictions>,
    /// From the sampler.
    pub hints: Receiver<Hint>,
    /// Rung with a hint and at the end.
    pub waker: Waker,
}

impl OomParts {
    /// Says once that a wish cannot be met.
    fn say_what_is_missing(&self) {
        let config = &self.context.config;
        let is_v1 = self.tree.layout().home(Controller::Memory).is_some_and(|home| home != Hierarchy::V2);
        if config.mode == Mode::DryRun || !config.features.v1_kill || self.may_kill || !is_v1 {
            return;
        }
        let reason = "CAP_KILL is missing: the rest of a container that was OOM-killed is ended only where its processes \
                      are of our own user; grant CAP_KILL, or set memory.oom_kill = \"process\"";
        tracing::warn!("{reason}");
        let draft = Draft::node(DecisionKind::Denied, reason).result(DecisionResult::Denied);
        self.decisions.record(draft, &self.context.stats);
    }
}

/// The thread's state.
pub struct OomWatcher {
    parts: OomParts,
    watch: Option<OomWatch>,
    lives: Lives,
    victims: Victims,
    cases: Vec<OomCase>,
    /// Hints about containers the roster does not have yet.
    early: Vec<(Instant, Hint)>,
    earlier: OomCounters,
    file: PathBuf,
    started: Instant,
    generation: Option<u64>,
    roster_at: Instant,
    audit_at: Instant,
    full_audit_at: Instant,
    /// The machine's count of kills at the last audit.
    kills: Option<u64>,
    save_at: Instant,
    changed: bool,
    /// The last failure to watch was said.
    complained: bool,
    events: Vec<OomEvent>,
}

impl OomWatcher {
    /// A thread that has seen nothing yet.
    pub fn new(parts: OomParts) -> Self {
        let watch = OomWatch::new(Arc::clone(&parts.tree));
        let watch = watch.inspect_err(|error| {
            let (error, remedy) = (error.to_string(), error.remedy());
            tracing::warn!(error, remedy, "OOM kills are seen by the sampler only");
        });
        parts.say_what_is_missing();
        parts.board.on_roster(parts.waker.clone());
        let file = counters::path(&parts.context.config.state_dir);
        let earlier = OomCounters::read(&file, &parts.context.boot_id);
        let damages = &parts.context.stats.damages;
        damages.take(StateFile::OomCounters, &file, usize::from(earlier.damaged()));
        let now = Instant::now();
        Self {
            watch: watch.ok(),
            lives: Lives::default(),
            victims: Victims::default(),
            cases: Vec::new(),
            early: Vec::new(),
            earlier,
            file,
            started: now,
            generation: None,
            roster_at: now,
            audit_at: now + AUDIT,
            full_audit_at: now,
            kills: None,
            save_at: now + SAVE,
            changed: false,
            complained: false,
            events: Vec::new(),
            parts,
        }
    }

    /// Runs until the agent stops.
    pub fn run(mut self, beat: &Heartbeat) {
        while !self.parts.context.stop.is_set() {
            beat.beat();
            self.sleep();
            self.step(Instant::now());
        }
        // What is open is told without names rather than not at all.
        while !self.cases.is_empty() {
            let case = self.cases.remove(0);
            self.tell(case);
        }
        self.save();
    }

    fn sleep(&self) {
        let expecting = self.watch.as_ref().is_some_and(OomWatch::is_expecting);
        let now = Instant::now();
        let timeout = if expecting {
            EXPECTING
        } else if !self.cases.is_empty() {
            ROSTER_PERIOD
        } else if self.generation != Some(self.parts.board.roster_generation()) {
            self.roster_at.saturating_duration_since(now).min(ROSTER_PERIOD)
        } else {
            LONGEST_SLEEP
        };
        let timeout = if self.victims.is_waiting() { timeout.min(NAMES) } else { timeout };
        let mut fds = Vec::with_capacity(3);
        fds.push(PollFd::new(self.parts.waker.fd(), PollFlags::POLLIN));
        fds.extend(self.watch.as_ref().map(|watch| PollFd::new(watch.as_fd(), PollFlags::POLLIN)));
        fds.extend(self.parts.log.as_ref().map(|log| PollFd::new(log.as_fd(), PollFlags::POLLIN)));
        let millis = PollTimeout::from(u16::try_from(timeout.as_millis()).unwrap_or(1000));
        // Interrupted or not, everything is looked at.
        let _ = poll(&mut fds, millis);
    }
}
