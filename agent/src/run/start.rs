//! Starting the agent's threads, and giving each what it works with.

use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use evenkeel_enforce::config::Mode;
use evenkeel_enforce::converge::board::Board;
use evenkeel_enforce::converge::{Converger, Parts};
use evenkeel_enforce::kernel::{self, Kernel, Way};
use evenkeel_enforce::node::{self, NodeLoop};
use evenkeel_enforce::oom::evictions::Evictions;
use evenkeel_enforce::oom::{self, OomWatcher};
use evenkeel_enforce::shared::{SOURCE_UPDATES_CAP, TRACK_CHANGES_CAP, TrackChange, UpdateSender, Waker};
use evenkeel_enforce::systemd::Purpose;
use evenkeel_enforce::usage::Usage;
use evenkeel_enforce::{evict, pressure};
use evenkeel_host::caps::UsableCapability;
use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::kernel_reader::KernelReader;
use tokio::sync::{broadcast, watch};

use super::open::Opened;
use super::threads::Threads;
use crate::decisions::Decisions;
use crate::outward::Gate;
use crate::parts::keeper::PartsView;
use crate::report::Outlets;
use crate::shared::{Context, LIVE_TICKS_CAP, LiveBus, Rescan};
use crate::tasks::{SourceOutlets, serve_all};
use crate::{allocator, report, sample, serve};

/// What of an agent that runs is told of a reload and of the end.
pub(super) struct RunningAgent {
    /// Ends the asynchronous part.
    pub(super) stop: watch::Sender<bool>,
    /// Takes a new policy of evictions.
    pub(super) evictions: Arc<Evictions>,
}

/// Starts every thread.
///
/// # Errors
/// When a thread without which the agent is none cannot be made.
pub(super) fn start(
    opened: Opened,
    listener: UnixListener,
    types: String,
    threads: &mut Threads,
) -> anyhow::Result<RunningAgent> {
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
    let outlets =
        Outlets { live: live.clone(), usage: usage.clone(), hints: hint_sender, ring: ring.clone() };
    let sampling = start_sampling(&context, changes, &decisions, outlets, runtime.handle(), threads);
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
    threads.start("oom", move || OomWatcher::new(oom).run(&beat))?;
    let runtimes = apart.as_ref().map(|apart| apart.runtime.clone());
    start_evicting(&context, &board, &decisions, &evictions, runtimes, threads)?;
    let node = start_node(&context, &kernel, &board, &decisions, threads)?;
    let pressure = Arc::new(pressure::view::View::default());
    let watched = pressure::PressureParts {
        context: &context.enforce,
        reader: &kernel.reader,
        board: &board,
        decisions: &decisions.log(),
        holds: &holds,
        view: &pressure,
        evictions: &evictions,
        usage: &(usage.clone() as Usage),
    };
    start_pressure(&watched, threads)?;
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
    let found = SourceOutlets {
        updates: UpdateSender { sender: update_sender, waker: waker.clone() },
        rescan: rescan.clone(),
        cgroup_roots: hierarchies(&kernel.reader),
    };
    let (stop, stopped) = watch::channel(false);
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
    threads.start("converge", move || Converger::new(parts).run(&beat))?;
    let beat = threads.beat("async");
    threads.start("async", move || {
        runtime.block_on(serve_all(agent, listener, types, apart, found, stopped, &beat));
        runtime.shutdown_timeout(Duration::from_millis(200));
    })?;
    Ok(RunningAgent { stop, evictions })
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
    threads.start("evict", move || evict::Evictor::new(parts).run(&tasks, &beat))
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
            threads.start("node", move || node.run(&waker, &beat))?;
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
fn start_pressure(parts: &pressure::PressureParts<'_>, threads: &mut Threads) -> anyhow::Result<()> {
    let beats = (threads.beat("pressure"), threads.beat("pressure-worker"));
    let [eyes, hands] = pressure::start(parts, beats)?;
    threads.keep("pressure", eyes);
    threads.keep("pressure-worker", hands);
    Ok(())
}

fn start_sampling(
    context: &Arc<Context>,
    changes: Receiver<TrackChange>,
    decisions: &Arc<Decisions>,
    outlets: Outlets,
    runtime: &tokio::runtime::Handle,
    threads: &mut Threads,
) -> anyhow::Result<()> {
    let (sampler, ticks) = sample::start(context, changes, threads.beat("sample"))?;
    threads.keep("sample", sampler);
    let reporter = report::start(context, ticks, decisions, outlets, threads.beat("report"), runtime)?;
    threads.keep("report", reporter);
    Ok(())
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
