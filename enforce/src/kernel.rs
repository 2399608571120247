//! What the agent opens of the kernel at start, in the order in which it must happen: everything that needs a
//! capability first, then the capabilities are dropped, then threads start.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::Context as _;
use evenkeel_host::action::HostDriver;
use evenkeel_host::caps::{Feature, UsableCapability, drop_all_except, held, needed};
use evenkeel_host::cgroup::CgroupTree;
use evenkeel_host::dry_run::DryRunWriter;
use evenkeel_host::error::HostError;
use evenkeel_host::events::ProcConnector;
use evenkeel_host::hierarchy::{Controller, Hierarchy};
use evenkeel_host::kernel_log::KernelLog;
use evenkeel_host::kernel_reader::KernelReader;
use evenkeel_host::kernel_writer::KernelWriter;
use evenkeel_host::roots::Roots;
use evenkeel_host::sampler::raise_nofile;
use evenkeel_host::write::HostWriter;

use crate::config::{Config, Mode};
use crate::converge::board::{Board, NodeKnob};
use crate::systemd::{self, OpenSystemd, Purpose, SystemdWriter};

/// Descriptors for about five thousand containers at a dozen each, and everything else.
const NOFILE: u64 = 65_536;

/// The kernel as the agent uses it.
pub struct Kernel {
    /// Reads.
    pub reader: KernelReader,
    /// Writes, or rehearses.
    pub writer: Box<dyn HostWriter + Send>,
    /// Process events; `None` = turned off.
    pub connector: Option<Result<ProcConnector, HostError>>,
    /// The kernel's log, where it is on and can be opened.
    pub kernel_log: Option<KernelLog>,
    /// Whether scores can be written at all from here.
    pub scores_possible: bool,
    /// Capabilities held from now on.
    pub capabilities: Vec<UsableCapability>,
    /// How writers reach systemd.
    pub systemd: OpenSystemd,
}

/// Opens the hierarchies for reading and writing.
///
/// # Errors
/// When there is no cgroup file system or procfs at the roots.
pub fn open_tree(config: &Config) -> anyhow::Result<(Roots, Arc<CgroupTree>)> {
    let roots = Roots::new(&config.roots.proc, &config.roots.cgroup);
    let tree = CgroupTree::open(&roots).map_err(with_remedy).context("cannot use the cgroup file system")?;
    Ok((roots, Arc::new(tree)))
}

/// The way of a writer to the kernel.
#[derive(Clone, Copy)]
pub enum Way {
    /// Units of systemd are set through it, where it manages the cgroups.
    Systemd(Purpose, OpenSystemd),
    /// Never through systemd: for what is temporary and has to be set, or put back, at once. systemd need not know of it,
    /// since it does not stay.
    Direct,
}

/// The one place where a writer is opened. It refuses the configured deny list, and knobs of inner cgroups outside the
/// subtrees given to us; it reclaims and kills under the same refusals, and rehearses in dry run.
///
/// A writer keeps nothing of what it wrote, so that two cannot disagree: what was there before is in the ledgers, and a
/// knob has one owner.
/// Each thread that writes has one of its own, because a deed may take the kernel seconds (`memory.reclaim`, a frozen
/// cgroup), and neither the fork path nor undoing what is temporary may wait for it.
///
/// # Errors
/// When our own process is not found in procfs.
pub fn open_writer(
    config: &Config,
    roots: &Roots,
    tree: &Arc<CgroupTree>,
    way: Way,
) -> anyhow::Result<Box<dyn HostDriver + Send>> {
    let writer = || -> anyhow::Result<KernelWriter> {
        let writer = KernelWriter::new(roots.clone(), Arc::clone(tree), &config.manage.deny)
            .map_err(with_remedy)
            .context("cannot tell our own process from others")?;
        Ok(writer.owning(&config.own))
    };
    Ok(match (config.mode, way) {
        (Mode::DryRun, _) => Box::new(DryRunWriter::new(writer()?)),
        (Mode::Enforce, Way::Systemd(purpose, systemd)) if systemd::manages(tree) => {
            let reader = KernelReader::new(roots.clone(), Arc::clone(tree));
            let rehearsal = DryRunWriter::new(writer()?);
            Box::new(SystemdWriter::new(writer()?, rehearsal, reader, systemd(), purpose))
        }
        (Mode::Enforce, _) => Box::new(writer()?),
    })
}

/// Opens everything and drops what is not needed. Must be called before any thread starts. `events` is a socket for process events where
/// somebody else opened it: in the network namespace of the host, which this process may not be in.
///
/// # Errors
/// As [`open_tree`] and [`open_writer`]; with `strict`, also when a permission for an enabled feature is missing.
pub fn open(
    config: &Config,
    board: &Board,
    systemd: OpenSystemd,
    events: Option<OwnedFd>,
) -> anyhow::Result<Kernel> {
    let (roots, tree) = open_tree(config)?;
    let writer = open_writer(config, &roots, &tree, Way::Systemd(Purpose::Keep, systemd))?;
    let connector = config.features.proc_connector.then(|| match events {
        Some(socket) => ProcConnector::over(socket),
        None => ProcConnector::open(),
    });
    let kernel_log = open_kernel_log(config, &roots);
    let features = features(config);
    let capabilities = match drop_all_except(&needed(features.iter().copied())) {
        Ok(kept) => kept,
        Err(error) => {
            tracing::warn!(error = %with_remedy(error), "capabilities that are not needed could not be dropped");
            held().unwrap_or_default()
        }
    };
    let directories = match raise_nofile(NOFILE) {
        Ok(limit) => {
            tracing::debug!(?limit, "open files");
            limit.directories()
        }
        Err(error) => {
            tracing::warn!(error = %with_remedy(error), "the limit of open files stays as it is");
            0
        }
    };
    let scores_possible = scores_possible(config, &roots, board);
    show_cpu_knob(config, &tree, board);
    let missing: Vec<Feature> =
        features.into_iter().filter(|feature| !capabilities.contains(&feature.needs())).collect();
    for feature in &missing {
        tracing::info!(capability = %feature.needs(), without = feature.without(), "capability is not held");
    }
    let connector_lost = connector.as_ref().and_then(|connector| connector.as_ref().err());
    if config.strict && (!missing.is_empty() || !scores_possible || connector_lost.is_some()) {
        let mut lacks: Vec<String> =
            missing.iter().map(|f| format!("{} is missing, so {}", f.needs(), f.without())).collect();
        lacks.extend(connector_lost.map(ToString::to_string));
        anyhow::bail!(
            "strict = true: {}; grant it, turn the feature off, or set strict = false",
            lacks.join("; ")
        );
    }
    let reader =
        KernelReader::new(roots, tree).keeping_open(usize::try_from(directories).unwrap_or(usize::MAX));
    Ok(Kernel { reader, writer, connector, kernel_log, scores_possible, capabilities, systemd })
}

/// The kernel's log from now on. Reading it needs no capability, opening it does.
fn open_kernel_log(config: &Config, roots: &Roots) -> Option<KernelLog> {
    let log = config.features.kernel_log.then(|| KernelLog::open(roots))?;
    log.inspect_err(|error| {
        let (why, remedy) = (error.to_string(), error.remedy());
        tracing::info!(why, remedy, "OOM kills are counted without the names of their victims");
    })
    .ok()
}

/// Features that are on.
fn features(config: &Config) -> Vec<Feature> {
    // Not the kernel's log: it is opened before capabilities are dropped, and everything works without it.
    let on = [
        (config.plan.knobs.oom_score_adj && config.mode == Mode::Enforce, Feature::LowScores),
        (config.features.short_psi, Feature::ShortPressureWindows),
        (config.mode == Mode::Enforce, Feature::OtherUsersFiles),
        (config.features.v1_kill, Feature::Kill),
        (config.features.proc_connector, Feature::ProcessEvents),
    ];
    on.into_iter().filter(|(on, _)| *on).map(|(_, feature)| feature).collect()
}

/// Scores are written by pid, so pids must mean the same in `cgroup.procs` and in procfs.
fn scores_possible(config: &Config, roots: &Roots, board: &Board) -> bool {
    let knob = |state, why: &str, remedy: &str| {
        board.show_knob(NodeKnob { name: "oom_score_adj", state, why: why.into(), remedy: remedy.into() });
    };
    if !config.plan.knobs.oom_score_adj {
        knob("off", "turned off by knobs.oom_score_adj", "");
        return false;
    }
    let agrees = roots.pids_agree();
    if matches!(agrees, Ok(true)) {
        knob("ok", "", "");
        return true;
    }
    let why = match agrees {
        Err(error) => error.to_string(),
        Ok(_) => "process numbers of procfs are not those of our process namespace".to_owned(),
    };
    let remedy = "run in the host's process namespace (hostPID: true) with its procfs as roots.proc";
    tracing::warn!(why, remedy, "scores cannot be written from here; everything else goes on");
    knob("unsupported", &why, remedy);
    false
}

/// Shows which knob for CPU this machine has and whether it is on.
fn show_cpu_knob(config: &Config, tree: &CgroupTree, board: &Board) {
    let home = tree.layout().home(Controller::Cpu);
    let (name, on, switch) = match home {
        Some(Hierarchy::V1(_)) => ("cpu.shares", config.knobs.cpu_shares, "knobs.cpu_shares"),
        Some(Hierarchy::V2) | None => ("cpu.weight", config.knobs.cpu_weight, "knobs.cpu_weight"),
    };
    let (state, why, remedy) = match (on, home) {
        (false, _) => ("off", format!("turned off by {switch}"), ""),
        (true, Some(_)) => ("ok", String::new(), ""),
        (true, None) => (
            "unsupported",
            "this machine has no cpu controller".to_owned(),
            "enable cpu in cgroup.subtree_control from the root down, or use a kernel that has it",
        ),
    };
    board.show_knob(NodeKnob { name, state, why, remedy: remedy.to_owned() });
}

/// The error with its remedy in one sentence.
pub fn with_remedy(error: HostError) -> anyhow::Error {
    match error.remedy() {
        Some(remedy) => anyhow::anyhow!("{error}; {remedy}"),
        None => error.into(),
    }
}
