//! The valid configuration of enforcement, and the one in force.
//!
//! Owned here: what all parts share, and taking over what changes at run time. Not owned: the rules of one part, which stand
//! beside it; keys, defaults and checks, which whoever reads configuration files owns.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use evenkeel_qos::config::PlanConfig;
use evenkeel_qos::cpu::WeightConversion;
use evenkeel_qos::eviction;

use crate::admission;
use crate::allocatable::Allocatable;
use crate::converge::overlay::rules::OverlayRules;
use crate::converge::rules::{Converge, CpuRules, Switches};
use crate::evict::Acting;
use crate::node::rules::{DaemonRules, NodeMemory};
use crate::oom::OomRules;
use crate::pressure::rules::{PressureRules, StarvationRules};
use crate::reconcile::Manage;

/// What an operator chooses of enforcement, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Whether anything is written.
    pub mode: Mode,
    /// Somebody chose the mode; otherwise it is the default.
    pub mode_is_set: bool,
    /// A permission that is missing ends the start instead of being reported.
    pub strict: bool,
    /// Where the kernel's files are.
    pub roots: Roots,
    /// Sources that are expected to say what they see.
    pub sources: Expected,
    /// What is never written.
    pub manage: Manage,
    /// What becomes of manifests that do not fit.
    pub admission: admission::Mode,
    /// Rules and planned knobs. `cpu_weight` is replaced by what is detected where `weight_conversion` is `None`.
    pub plan: PlanConfig,
    /// Conversion of shares into weight; `None` detects it from containers the runtime made.
    pub weight_conversion: Option<WeightConversion>,
    /// Which knobs are written.
    pub knobs: Switches,
    /// How CPU is given.
    pub cpu: CpuRules,
    /// The machine's memory as a whole.
    pub node_memory: NodeMemory,
    /// What the node cannot live without.
    pub daemons: DaemonRules,
    /// What the node gives to pods.
    pub allocatable: Allocatable,
    /// Subtrees in which inner cgroups are written too: normal paths, none inside another.
    pub own: Vec<String>,
    /// Burstable scores follow use and priority.
    pub dynamic_scores: bool,
    /// What is done about memory that runs short.
    pub pressure: PressureRules,
    /// What is done when a container starves of CPU.
    pub starvation: StarvationRules,
    /// Recommended requests.
    pub overlay: OverlayRules,
    /// What is told of OOM kills.
    pub oom: OomRules,
    /// What is offered for a container that was OOM-killed.
    pub eviction: eviction::EvictionPolicy,
    /// How that is carried out.
    pub acting: Acting,
    /// The converge loop.
    pub converge: Converge,
    /// Directory of journals, decisions and what else must outlive a run.
    pub state_dir: PathBuf,
    /// Features that need a capability.
    pub features: Features,
}

impl Config {
    /// The same, to act on: for what is asked for by a person just now, such as putting originals back.
    #[must_use]
    pub fn enforcing_unless_told(mut self) -> Self {
        if !self.mode_is_set {
            self.mode = Mode::Enforce;
        }
        self
    }
}

/// Whether the agent writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Writes.
    Enforce,
    /// Takes the whole road and writes nothing.
    DryRun,
}

impl Mode {
    /// The name in configuration and output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::DryRun => "dry-run",
        }
    }
}

/// Where the kernel's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Roots {
    /// procfs of the host's pid namespace.
    pub proc: PathBuf,
    /// Directory that holds the cgroup hierarchies.
    pub cgroup: PathBuf,
    /// Directory of what lives until the machine ends: the lock of the one agent.
    pub run: PathBuf,
}

/// Sources that are expected to say what they see; the search by cgroup names always is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expected {
    /// A directory of manifests.
    pub manifests: bool,
    /// systemd's units.
    pub systemd: bool,
    /// How many container runtimes.
    pub cri: usize,
}

impl Expected {
    /// How many say what they see sooner or later, whatever they find. Not systemd: where it is missing it says nothing.
    pub const fn count(&self) -> usize {
        self.manifests as usize + self.cri + 1
    }
}

/// Features that need a capability; off = the capability is dropped before any thread starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Features {
    /// Process events from the kernel (NET_ADMIN).
    pub proc_connector: bool,
    /// Pressure windows shorter than two seconds (SYS_RESOURCE, together with scores).
    pub short_psi: bool,
    /// Killing the rest of a container on cgroup v1 (KILL).
    pub v1_kill: bool,
    /// Victims of OOM kills from the kernel log (opened before SYSLOG is dropped).
    pub kernel_log: bool,
}

/// The configuration in force.
pub struct InForce(RwLock<Arc<Config>>);

impl InForce {
    /// The configuration of the start.
    pub fn new(config: Arc<Config>) -> Self {
        Self(RwLock::new(config))
    }

    /// What is in force now. Ask again at the next use: it may have changed.
    pub fn now(&self) -> Arc<Config> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts those values of a new configuration in force that change at run time.
    pub fn take_over(&self, new: Config) {
        let mut config = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let next = taken_over(&config, new);
        if next != **config {
            *config = Arc::new(next);
        }
    }
}

/// The running configuration with those values of a new one that change at run time.
fn taken_over(running: &Config, new: Config) -> Config {
    let mut next = running.clone();
    next.admission = new.admission;
    next.converge.freeze = new.converge.freeze;
    next.converge.freeze_max = new.converge.freeze_max;
    (next.eviction, next.acting) = (new.eviction, new.acting);
    next.manage.exclude_namespaces = new.manage.exclude_namespaces;
    next.allocatable = new.allocatable;
    next.oom = new.oom;
    next.pressure.enabled = new.pressure.enabled;
    next.starvation = new.starvation;
    next
}
