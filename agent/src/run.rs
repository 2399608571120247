//! The agent's life: open what needs a capability, drop capabilities, start threads, wait, drain.
//!
//! Owned here: order, signals, the watchdog, deadlines. Not owned: anything a thread does.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use evenkeel_enforce::config::{InForce, Mode};
use evenkeel_enforce::converge::board::{Board, NodeKnob};
use evenkeel_enforce::converge::{Converger, Parts};
use evenkeel_enforce::damage::StateFile;
use evenkeel_enforce::decisions::Draft;
use evenkeel_enforce::holds::Holds;
use evenkeel_enforce::journal::Journal;
use evenkeel_enforce::kernel::{self, Kernel, Way, with_remedy};
use evenkeel_enforce::node::daemons::protect_ourselves;
use evenkeel_enforce::node::{self, NodeLoop};
use evenkeel_enforce::oom::evictions::Evictions;
use evenkeel_enforce::oom::{self, HintSender, OomWatcher};
use evenkeel_enforce::overlay::Overlays;
use evenkeel_enforce::shared::{Heartbeat, SOURCE_UPDATES_CAP, Stop, TRACK_CHANGES_CAP, UpdateSender, Waker};
use evenkeel_enforce::systemd::{Purpose, bus};
use evenkeel_enforce::transients::Transients;
use evenkeel_enforce::usage::Usage;
use evenkeel_enforce::{evict, guardian, pressure, shared as enforce};
use evenkeel_host::caps::UsableCapability;
use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::node::{boot_id, hostname, node_facts};
use evenkeel_host::roots::Roots;
use evenkeel_log::LogError;
use evenkeel_log::private::{self, NotPrivate};
use evenkeel_model::decision::DecisionKind;
use evenkeel_model::node::NodeKey;
use evenkeel_model::reload::Reloaded;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use sd_notify::NotifyState;
use serde_json::Value;
use tokio::sync::{broadcast, watch};

use crate::config::sections::parts::PartsMode;
use crate::config::{Config, ConfigError, Reload};
use crate::decisions::Decisions;
use crate::outward::{Gate, Outward};
use crate::parts::Part;
use crate::parts::activation::Handed;
use crate::parts::confine::{confine, landlock_lacks};
use crate::parts::keeper::PartsView;
use crate::parts::starter::Logging;
use crate::pods::Pods;
use crate::report::kept::Kept;
use crate::shared::{Context, LIVE_TICKS_CAP, LiveBus, Rescan, Stats};
use crate::tasks::{Apart, serve_all};
use crate::trust::Trusts;

use crate::{allocator, machine, report, sample, serve};

/// Mode of the agent's socket: root, and whoever is given its group.
const SOCKET_MODE: u32 = 0o660;
/// Time for draining after SIGTERM. The unit's own limit is 15 s.
const DRAIN: Duration = Duration::from_secs(8);
/// A thread without a sign of life for so long is stuck: every one beats at least once a second, and a container is
/// frozen for five seconds at most.
const PATIENCE: Duration = Duration::from_secs(20);

/// The kernel side and the state directory, opened in the only order that works.
pub(crate) struct Opened {
    pub(crate) context: Arc<Context>,
    pub(crate) kernel: Kernel,
    pub(crate) journal: Journal,
    pub(crate) decisions: Arc<Decisions>,
    pub(crate) board: Arc<Board>,
    pub(crate) holds: Arc<Holds>,
    pub(crate) apart: Option<Apart>,
}

/// Opens everything; no thread runs yet. `written` has the configuration's values as JSON, `others` the flags of the log for other processes
/// of the agent and what a service manager handed over: without, there are none.
///
/// # Errors
/// When the kernel's files are not usable, the state directory is not ours alone or another agent has it, or `strict` finds a permission
/// missing.
pub(crate) fn open(
    config: Config,
    written: Value,
    keeps: Keeps,
    others: Option<(&Logging, Handed)>,
) -> anyhow::Result<Opened> {
    let roots = Roots::new(&config.enforce.roots.proc, &config.enforce.roots.cgroup);
    let facts = node_facts(&roots).map_err(with_remedy).context("cannot learn the size of this machine")?;
    let boot_id = boot_id(&roots).map_err(with_remedy).unwrap_or_else(|error| {
        tracing::warn!(%error, "the boot's id is not known; the journal is not kept across restarts");
        format!("unknown-{}", std::process::id())
    });
    let node = match &config.node_name {
        Some(name) => name.clone(),
        None => hostname().map_err(with_remedy).context("cannot learn the host's name; set node.name")?,
    };
    // Before the guardian and every thread, which inherit it.
    protect_ourselves(&config.enforce, &roots);
    let epoch = report::new_epoch()?;
    let decisions = match keeps {
        Keeps::State => {
            make_state_dir(&config)?;
            open_decisions(&config, epoch)?
        }
        Keeps::Nothing => Decisions::in_memory(None),
    };
    let stats = Stats::default();
    let mut journal = open_journal(&config, &boot_id, &stats)?;
    let transients = open_transients(&config, &boot_id, &stats)?;
    // A service manager that holds the borders undoes by the ledgers what stands after each end of this process.
    let is_managed = others.as_ref().is_some_and(|(_, handed)| !handed.borders.is_empty())
        && journal.is_kept()
        && transients.is_kept();
    if config.enforce.mode == Mode::Enforce
        && !is_managed
        && let Err(error) = guardian::start(&config.enforce, &mut journal, &transients)
    {
        tracing::warn!(
            error = format!("{error:#}"),
            "no guardian; a kill of the agent may leave a cgroup frozen"
        );
    }
    let mut events = None;
    let apart = match (others, config.parts.mode) {
        (Some((logging, handed)), PartsMode::ThreeProcesses) => {
            events = handed.events;
            Some(Apart::start(&config, logging, handed.borders)?)
        }
        _ => None,
    };
    let outward = apart.as_ref().map_or(Outward::Here, |apart| Outward::There(apart.network.clone()));
    let board = Arc::new(Board::default());
    show_rehearsal(&config, &board);
    let kernel = kernel::open(&config.enforce, &board, bus::open, events)?;
    let node = NodeKey { cluster: config.cluster.clone(), node };
    let trust = Trusts::open(&config, &node, &outward)?;
    let enforce = Arc::new(enforce::Context {
        live: InForce::new(Arc::clone(&config.enforce)),
        config: Arc::clone(&config.enforce),
        boot_id,
        facts,
        stats: Arc::clone(&stats.enforce),
        stop: Stop::default(),
        overlays: Overlays::default(),
    });
    let reload = Reload::new(written);
    let pods = Arc::new(open_pods(&config, &node, keeps, &stats));
    let context = Context { config, enforce, reload, node, epoch, stats, trust, pods, outward };
    let holds = Arc::new(Holds::new(transients));
    undo_leftovers(&context.config, &kernel, &holds)?;
    Ok(Opened {
        context: Arc::new(context),
        kernel,
        journal,
        decisions: Arc::new(decisions),
        board,
        holds,
        apart,
    })
}

/// What an earlier run was told of the node's pods.
fn open_pods(config: &Config, node: &NodeKey, keeps: Keeps, stats: &Stats) -> Pods {
    if keeps == Keeps::Nothing {
        return Pods::none();
    }
    let dir = &config.enforce.state_dir;
    let (pods, is_damaged) = Pods::open(dir.clone(), node.clone());
    stats.enforce.damages.take(StateFile::Pods, dir, usize::from(is_damaged));
    pods
}

/// What an agent leaves on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeps {
    /// Decisions and originals, in a state directory of its own.
    State,
    /// Nothing: one look that writes nothing needs no state, and may be taken beside a running agent.
    Nothing,
}

/// Says that nothing will be written, and how that is changed where nobody chose it.
fn show_rehearsal(config: &Config, board: &Board) {
    if config.enforce.mode != Mode::DryRun {
        return;
    }
    let (why, remedy) = if config.enforce.mode_is_set {
        ("dry run: nothing is written", "set mode = \"enforce\" where \"dry-run\" is set")
    } else {
        (
            "dry run: nothing is written, because no configuration names a mode",
            "set mode = \"enforce\" in /etc/evenkeel/agent.toml, or EVENKEEL_AGENT_MODE=enforce",
        )
    };
    tracing::warn!(remedy, "{why}");
    board.show_knob(NodeKnob { name: "mode", state: "off", why: why.into(), remedy: remedy.into() });
}

/// Says where the kernel keeps files and processes from the parts by their users and filters alone.
fn show_landlock(board: &Board) {
    if let Some(why) = landlock_lacks() {
        let remedy = "use a kernel of 5.13 or later that starts with landlock among its lsm=";
        board.show_knob(NodeKnob { name: "landlock", state: "off", why, remedy: remedy.into() });
    }
}

/// The state directory is ours alone, or it is refused; one that cannot be had at all is done without.
fn make_state_dir(config: &Config) -> anyhow::Result<()> {
    match private::directory(&config.enforce.state_dir) {
        Ok(()) => Ok(()),
        Err(error @ NotPrivate::Unusable { .. }) if !config.enforce.strict => {
            let (dir, error) = (config.enforce.state_dir.display(), anyhow::Error::from(error));
            let error = format!("{error:#}");
            tracing::error!(%dir, error, "no state directory; decisions and originals are not kept");
            Ok(())
        }
        Err(error) => Err(error).context("state_dir is not used"),
    }
}

fn open_decisions(config: &Config, epoch: u64) -> anyhow::Result<Decisions> {
    let kept = (!config.stream.recommenders.is_empty()).then(|| {
        Kept::open(&config.enforce.state_dir.join("events"), epoch).unwrap_or_else(|error| {
            tracing::error!(%error, "events that must arrive are kept in memory only");
            Kept::in_memory(epoch)
        })
    });
    match Decisions::open(&config.enforce.state_dir.join("decisions"), kept) {
        Ok(log) => Ok(log),
        Err(error @ LogError::Locked { .. }) => Err(error).context("another agent uses this state_dir"),
        Err(error) if config.enforce.strict => Err(error).context("cannot open the decision log"),
        Err(error) => {
            tracing::error!(%error, "decisions are kept in memory only");
            let kept = (!config.stream.recommenders.is_empty()).then(|| Kept::in_memory(epoch));
            Ok(Decisions::in_memory(kept))
        }
    }
}

fn open_journal(config: &Config, boot_id: &str, stats: &Stats) -> anyhow::Result<Journal> {
    if config.enforce.mode == Mode::DryRun {
        return Ok(Journal::in_memory(boot_id));
    }
    match Journal::open(&config.enforce.state_dir, boot_id) {
        Ok(journal) => {
            let path = Journal::path_in(&config.enforce.state_dir);
            stats.enforce.damages.take(StateFile::Journal, &path, journal.damaged());
            Ok(journal)
        }
        Err(error) if config.enforce.strict => Err(error).context("cannot open the journal of originals"),
        Err(error) => {
            tracing::error!(%error, dir = %config.enforce.state_dir.display(), "originals are not journalled; restore will not know them");
            Ok(Journal::in_memory(boot_id))
        }
    }
}

fn open_transients(config: &Config, boot_id: &str, stats: &Stats) -> anyhow::Result<Transients> {
    if config.enforce.mode == Mode::DryRun {
        return Ok(Transients::in_memory(boot_id));
    }
    match Transients::open(&config.enforce.state_dir, boot_id) {
        Ok(transients) => {
            let path = Transients::path_in(&config.enforce.state_dir);
            stats.enforce.damages.take(StateFile::Transients, &path, transients.damaged());
            Ok(transients)
        }
        Err(error) if config.enforce.strict => {
            Err(error).context("cannot open the journal of transient settings")
        }
        Err(error) => {
            tracing::error!(%error, dir = %config.enforce.state_dir.display(), "transient settings are known to the guardian only");
            Ok(Transients::in_memory(boot_id))
        }
    }
}

/// Undoes what an earlier run set for a while and could not put back, nor its guardian.
fn undo_leftovers(config: &Config, kernel: &Kernel, holds: &Holds) -> anyhow::Result<()> {
    if holds.transients().to_undo().is_empty() {
        return Ok(());
    }
    let tree = kernel.reader.tree();
    let mut writer = kernel::open_writer(&config.enforce, kernel.reader.roots(), tree, Way::Direct)?;
    let count = holds.repair(&kernel.reader, &mut *writer);
    tracing::warn!(count, "an earlier run left settings that were meant for a while; they are undone");
    Ok(())
}

/// The configuration with its values as JSON, read anew.
pub(crate) type Reread<'a> = &'a dyn Fn() -> Result<(Config, Value), Vec<ConfigError>>;

/// Runs until a signal ends it; at SIGHUP the configuration is read anew.
///
/// # Errors
/// When it cannot start, or a thread ends by itself.
pub(crate) fn daemon(
    config: Config,
    written: Value,
    reread: Reread<'_>,
    logging: &Logging,
) -> anyhow::Result<()> {
    // First of all: a signal that comes while it starts ends it in order as well.
    let signals = block_signals()?;
    let handed = Handed::take()?;
    let mut socket = evenkeel_net::socket::bind(&config.serve.socket, SOCKET_MODE, "serve.socket")?;
    let _lock = machine::only_agent(&config)?;
    let types = written.get("resources").map_or_else(|| "{}".to_owned(), Value::to_string);
    let opened = open(config, written, Keeps::State, Some((logging, handed)))?;
    if let Some(apart) = &opened.apart {
        confine(Part::Enforcing, apart.given())?;
        show_landlock(&opened.board);
    }
    let context = Arc::clone(&opened.context);
    let stats = &*context.enforce.stats;
    let decisions = Arc::clone(&opened.decisions);
    decisions.record(
        Draft::node(DecisionKind::Agent, format!("the agent {} starts", env!("CARGO_PKG_VERSION")))
            .input("mode", context.config.enforce.mode.as_str())
            .input("rules", context.config.enforce.plan.rules),
        stats,
    );
    let mut threads = Threads::default();
    let listener = socket.take_listener().context("the agent's socket was taken already")?;
    let runtime = start(opened, (listener, types), &mut threads)?;
    allocator::forget_code();
    tell(&[NotifyState::Ready]);
    tracing::info!(node = context.node.node, epoch = context.epoch, "the agent runs");
    let ended = wait(&signals, &threads, || runtime.reload(&context, reread));
    tell(&[NotifyState::Stopping]);
    context.enforce.stop.set();
    runtime.stop.send_replace(true);
    let drained = threads.drain(&signals, Instant::now() + DRAIN);
    decisions.record(Draft::node(DecisionKind::Agent, "the agent ends"), stats);
    decisions.make_durable(stats);
    decisions.sync(stats);
    drop(socket);
    drained?;
    ended
}

/// Ends the asynchronous part.
struct Runtime {
    stop: watch::Sender<bool>,
    evictions: Arc<Evictions>,
}

impl Runtime {
    /// SIGHUP: what can change at run time is put in force, what needs a restart is named, and a configuration that is
    /// wrong changes nothing.
    fn reload(&self, context: &Context, reread: Reread<'_>) {
        let began: Vec<_> = NotifyState::monotonic_usec_now().into_iter().collect();
        tell(&[&[NotifyState::Reloading], &*began].concat());
        let told = match reread() {
            Ok((config, written)) => {
                let Reloaded { applied, restart } =
                    context.reload.take(&context.enforce.live, config, &written);
                self.evictions.set_policy(context.enforce.live.now().eviction);
                let (applied, restart) = (applied.join(", "), restart.join(", "));
                match (applied.is_empty(), restart.is_empty()) {
                    (true, true) => tracing::info!("the configuration is unchanged"),
                    (false, true) => tracing::info!(applied, "the new configuration is in force"),
                    (_, false) => tracing::warn!(
                        applied,
                        restart,
                        "the new configuration is in force but for the keys under restart: restart the agent for those"
                    ),
                }
                match restart.is_empty() {
                    true => "the configuration on disk is in force".to_owned(),
                    false => format!("restart needed for {restart}"),
                }
            }
            Err(errors) => {
                for error in &errors {
                    tracing::error!(%error, "the configuration is wrong; the running one stays in force");
                }
                "the configuration on disk is wrong; the one before is in force".to_owned()
            }
        };
        tell(&[NotifyState::Ready, NotifyState::Status(&told)]);
    }
}

/// Threads with their heartbeats.
#[derive(Default)]
struct Threads {
    handles: Vec<(&'static str, JoinHandle<()>)>,
    beats: Vec<Arc<Heartbeat>>,
}

impl Threads {
    fn beat(&mut self, name: &'static str) -> Arc<Heartbeat> {
        let beat = Arc::new(Heartbeat::new(name, PATIENCE));
        self.beats.push(Arc::clone(&beat));
        beat
    }

    /// The first thread that ended by itself.
    fn ended(&self) -> Option<&'static str> {
        self.handles.iter().find(|(_, handle)| handle.is_finished()).map(|(name, _)| *name)
    }

    /// True when every thread gave a sign of life lately.
    fn alive(&self) -> bool {
        let stuck = self.beats.iter().find(|beat| beat.age() > beat.patience);
        if let Some(beat) = stuck {
            tracing::error!(thread = beat.name, age = ?beat.age(), "a thread is stuck; the watchdog is not told");
        }
        stuck.is_none()
    }

    /// Waits for all to end; a second signal or the deadline ends the waiting.
    fn drain(self, signals: &SignalFd, deadline: Instant) -> anyhow::Result<()> {
        for (name, handle) in self.handles {
            while !handle.is_finished() {
                if Instant::now() >= deadline {
                    anyhow::bail!("thread {name} did not end in time; ending without it");
                }
                if matches!(signals.read_signal(), Ok(Some(_))) {
                    anyhow::bail!("a second signal: ending at once, without waiting for thread {name}");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            if handle.join().is_err() {
                tracing::error!(thread = name, "a thread panicked");
            }
        }
        Ok(())
    }
}

/// Starts every thread.
fn start(
    opened: Opened,
    (listener, types): (std::os::unix::net::UnixListener, String),
    threads: &mut Threads,
) -> anyhow::Result<Runtime> {
    let Opened { context, mut kernel, journal, decisions, board, holds, apart } = opened;
    let waker = Waker::new().context("no descriptor for the converge thread's bell")?;
    context.enforce.stop.register(waker.clone());
    holds.set_bell(waker.clone());
    let (update_sender, updates) = sync_channel(SOURCE_UPDATES_CAP);
    let (change_sender, changes) = sync_channel(TRACK_CHANGES_CAP);
    let rescan = Rescan::default();
    let live: LiveBus = broadcast::Sender::new(LIVE_TICKS_CAP);
    let usage = report::LatestUse::default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .build()
        .context("cannot start the asynchronous runtime")?;
    // The sampler and the report first: they must not miss the first containers. Without them the rest goes on.
    let bell = Waker::new().context("no descriptor for the oom thread's bell")?;
    context.enforce.stop.register(bell.clone());
    let (hint_sender, hints) = oom::hints(&bell);
    let ring = context.config.ring.bytes;
    let ring = ring
        .map(|bytes| Arc::new(report::Ring::open(&context.config.enforce.state_dir, bytes, &context.stats)));
    if let Some(ring) = &ring {
        report::look_back(ring, &usage);
    }
    let reporting = (live.clone(), &usage, hint_sender, ring.clone());
    let sampling = start_sampling(&context, changes, &decisions, reporting, runtime.handle(), threads);
    if let Err(error) = &sampling {
        tracing::error!(
            error = format!("{error:#}"),
            "sampling is off; scores and shares are kept all the same"
        );
    }
    let rehearsal = context.config.enforce.mode == Mode::DryRun;
    let evictions =
        Arc::new(Evictions::new(context.config.enforce.eviction, rehearsal, &decisions.rulings()));
    let oom = oom::OomParts {
        context: Arc::clone(&context.enforce),
        roots: kernel.reader.roots().clone(),
        tree: Arc::clone(kernel.reader.tree()),
        actor: kernel::open_writer(
            &context.config.enforce,
            kernel.reader.roots(),
            kernel.reader.tree(),
            Way::Systemd(Purpose::Keep, kernel.systemd),
        )?,
        log: kernel.kernel_log.take(),
        may_kill: kernel.capabilities.contains(&UsableCapability::Kill),
        board: Arc::clone(&board),
        decisions: decisions.log(),
        usage: usage.clone(),
        evictions: Arc::clone(&evictions),
        hints,
        waker: bell,
    };
    let beat = threads.beat("oom");
    let watcher = spawn("oom", move || OomWatcher::new(oom).run(&beat))?;
    threads.handles.push(("oom", watcher));
    let runtimes = apart.as_ref().map(|apart| apart.runtime.clone());
    start_evicting(&context, &board, &decisions, &evictions, runtimes, threads)?;
    let node = start_node(&context, &kernel, &board, &decisions, threads)?;
    let pressure =
        start_pressure((&context, &kernel), (&board, &usage), (&decisions, &evictions), &holds, threads)?;
    let sampled = usage.clone();
    let names: Vec<String> = kernel.capabilities.iter().map(UsableCapability::to_string).collect();
    let agent = Arc::new(serve::Agent {
        context: Arc::clone(&context),
        board: Arc::clone(&board),
        decisions: Arc::clone(&decisions),
        live,
        usage,
        ring,
        evictions: Arc::clone(&evictions),
        capabilities: names,
        node,
        pressure,
        holds: Arc::clone(&holds),
        parts: PartsView::default(),
    });
    let sender = UpdateSender { sender: update_sender, waker: waker.clone() };
    let (stop, stopped) = watch::channel(false);
    let cgroup_roots = hierarchies(&kernel.reader);
    let parts = Parts {
        context: Arc::clone(&context.enforce),
        reader: kernel.reader,
        writer: kernel.writer,
        journal,
        decisions: decisions.log(),
        board,
        updates,
        waker,
        changes: sampling.is_ok().then_some(change_sender),
        rescan: rescan.bell(),
        connector: kernel.connector,
        holds: Some(Arc::clone(&holds)),
        usage: sampling.is_ok().then_some(sampled as Usage),
        scores_possible: kernel.scores_possible,
    };
    let beat = threads.beat("converge");
    let converge = spawn("converge", move || Converger::new(parts).run(&beat))?;
    threads.handles.push(("converge", converge));
    let beat = threads.beat("async");
    let served = spawn("async", move || {
        runtime.block_on(serve_all(
            agent,
            (listener, types, apart),
            sender,
            rescan,
            cgroup_roots,
            stopped,
            &beat,
        ));
        runtime.shutdown_timeout(Duration::from_millis(200));
    })?;
    threads.handles.push(("async", served));
    Ok(Runtime { stop, evictions })
}

/// Starts the thread that carries out what the eviction policy rules.
fn start_evicting(
    context: &Arc<Context>,
    board: &Arc<Board>,
    decisions: &Arc<Decisions>,
    evictions: &Arc<Evictions>,
    runtimes: Option<Gate>,
    threads: &mut Threads,
) -> anyhow::Result<()> {
    let (sender, tasks) = evict::tasks();
    evictions.hand_to(sender);
    let parts = evict::Parts {
        context: Arc::clone(&context.enforce),
        board: Arc::clone(board),
        decisions: decisions.log(),
        hands: crate::evict::Runners { sockets: context.config.sources.cri.clone(), runtimes },
    };
    let beat = threads.beat("evict");
    let handle = spawn("evict", move || evict::Evictor::new(parts).run(&tasks, &beat))?;
    threads.handles.push(("evict", handle));
    Ok(())
}

/// Starts the thread that looks at the node as a whole. Without it the rest goes on.
fn start_node(
    context: &Arc<Context>,
    kernel: &Kernel,
    board: &Arc<Board>,
    decisions: &Arc<Decisions>,
    threads: &mut Threads,
) -> anyhow::Result<Arc<node::View>> {
    let view = Arc::new(node::View::default());
    match NodeLoop::open(&context.enforce, kernel, board, &decisions.log(), &view, allocator::give_back) {
        Ok(node) => {
            let waker = Waker::new().context("no descriptor for the node thread's bell")?;
            context.enforce.stop.register(waker.clone());
            let beat = threads.beat("node");
            let handle = spawn("node", move || node.run(&waker, &beat))?;
            threads.handles.push(("node", handle));
        }
        Err(error) => {
            tracing::error!(
                error = format!("{error:#}"),
                "daemons and the node's own knobs are not looked at"
            );
        }
    }
    Ok(view)
}

/// Starts the loop against pressure and starvation with its worker.
fn start_pressure(
    (context, kernel): (&Arc<Context>, &Kernel),
    (board, usage): (&Arc<Board>, &report::LatestUse),
    (decisions, evictions): (&Arc<Decisions>, &Arc<Evictions>),
    holds: &Arc<Holds>,
    threads: &mut Threads,
) -> anyhow::Result<Arc<pressure::view::View>> {
    let view = Arc::new(pressure::view::View::default());
    let reader = &kernel.reader;
    let usage: Usage = usage.clone();
    let parts = pressure::PressureParts {
        context: &context.enforce,
        reader,
        board,
        decisions: &decisions.log(),
        holds,
        view: &view,
        evictions,
        usage: &usage,
    };
    let beats = (threads.beat("pressure"), threads.beat("pressure-worker"));
    let [eyes, hands] = pressure::start(&parts, beats)?;
    threads.handles.extend([("pressure", eyes), ("pressure-worker", hands)]);
    Ok(view)
}

fn start_sampling(
    context: &Arc<Context>,
    changes: std::sync::mpsc::Receiver<evenkeel_enforce::shared::TrackChange>,
    decisions: &Arc<Decisions>,
    (live, usage, hints, ring): (LiveBus, &report::LatestUse, HintSender, Option<Arc<report::Ring>>),
    runtime: &tokio::runtime::Handle,
    threads: &mut Threads,
) -> anyhow::Result<()> {
    let beat = Arc::new(Heartbeat::new("sample", PATIENCE));
    let (handle, ticks) = sample::start(context, changes, Arc::clone(&beat))?;
    threads.handles.push(("sample", handle));
    threads.beats.push(beat);
    let beat = Arc::new(Heartbeat::new("report", PATIENCE));
    let handle =
        report::start(context, ticks, decisions, (live, usage, hints), ring, Arc::clone(&beat), runtime)?;
    threads.handles.push(("report", handle));
    threads.beats.push(beat);
    Ok(())
}

fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> anyhow::Result<JoinHandle<()>> {
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .with_context(|| format!("cannot start thread {name}"))
}

/// Where containers may be found by the names of their cgroups: the memory hierarchy and the v2 tree.
pub(crate) fn hierarchies(reader: &KernelReader) -> Vec<std::path::PathBuf> {
    let layout = reader.tree().layout();
    let mut wanted: Vec<Hierarchy> = layout.home(Controller::Memory).into_iter().collect();
    wanted.push(Hierarchy::V2);
    wanted.dedup();
    wanted
        .into_iter()
        .filter_map(|hierarchy| layout.mount(hierarchy))
        .map(|mount| mount.path.clone())
        .collect()
}

/// Signals come through a descriptor, on the main thread only.
fn block_signals() -> anyhow::Result<SignalFd> {
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block().context("cannot block signals")?;
    SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .context("cannot receive signals")
}

/// Waits for the signal to end; tells the watchdog while every thread lives.
fn wait(signals: &SignalFd, threads: &Threads, reread: impl Fn()) -> anyhow::Result<()> {
    let watchdog = sd_notify::watchdog_enabled();
    let period = watchdog.map_or(Duration::from_secs(1), |limit| (limit / 3).min(Duration::from_secs(1)));
    let millis = PollTimeout::from(u16::try_from(period.as_millis()).unwrap_or(1000));
    loop {
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        // Interrupted or not, the descriptor tells.
        let _ = poll(&mut fds, millis);
        while let Ok(Some(signal)) = signals.read_signal() {
            match i32::try_from(signal.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok()) {
                Some(Signal::SIGHUP) => reread(),
                signal => {
                    tracing::info!(?signal, "ending");
                    return Ok(());
                }
            }
        }
        if let Some(name) = threads.ended() {
            anyhow::bail!("thread {name} ended by itself; see the log above");
        }
        if watchdog.is_some() && threads.alive() {
            tell(&[NotifyState::Watchdog]);
        }
    }
}

/// Tells the service manager; without one this does nothing.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::debug!(%error, "ignoring: the service manager was not told");
    }
}
