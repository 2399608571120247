//! What an agent is made of, opened in the only order that works: the kernel side, the state directory, other processes.

use std::sync::Arc;

use anyhow::Context as _;
use evenkeel_enforce::config::{InForce, Mode};
use evenkeel_enforce::converge::board::{Board, NodeKnob};
use evenkeel_enforce::damage::StateFile;
use evenkeel_enforce::holds::Holds;
use evenkeel_enforce::journal::Journal;
use evenkeel_enforce::kernel::{self, Kernel, Way, with_remedy};
use evenkeel_enforce::node::daemons::protect_ourselves;
use evenkeel_enforce::overlay::Overlays;
use evenkeel_enforce::shared::Stop;
use evenkeel_enforce::systemd::bus;
use evenkeel_enforce::transients::Transients;
use evenkeel_enforce::{guardian, shared as enforce};
use evenkeel_host::node::{boot_id, hostname, node_facts};
use evenkeel_host::roots::Roots;
use evenkeel_log::LogError;
use evenkeel_log::private::{self, NotPrivate};
use evenkeel_model::node::NodeKey;
use serde_json::Value;

use crate::config::sections::parts::PartsMode;
use crate::config::{Config, Reload};
use crate::decisions::Decisions;
use crate::outward::Outward;
use crate::parts::activation::Handed;
use crate::parts::confine::landlock_lacks;
use crate::parts::starter::Logging;
use crate::pods::Pods;
use crate::report;
use crate::report::kept::Kept;
use crate::shared::{Context, Stats};
use crate::tasks::Apart;
use crate::trust::Trusts;

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
    let (pods, is_damaged) = Pods::open(dir.clone(), node.clone(), config.sources.kubelet.is_some());
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
pub(super) fn show_landlock(board: &Board) {
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
