//! The valid configuration: what every part of the agent is given after parsing and checking.
//!
//! Owned here: types that cannot hold a wrong value. Not owned: defaults and file keys (`raw`), merging (`load`).

use super::sections::trust::TrustRules;
use crate::trust::membership::Joining;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::resource_type::{CpuConversionFactor, ResourceTypes};
use evenkeel_model::workload::ScorePolicy;
use evenkeel_proto::line::Trust;
use evenkeel_qos::config::PlanConfig;
use evenkeel_qos::cpu::WeightConversion;
use evenkeel_qos::eviction;

use super::sections::admission;
use super::sections::cpu::CpuRules;
use super::sections::daemons::DaemonRules;
use super::sections::eviction::Acting;
use super::sections::knobs::Switches;
use super::sections::memory::MemoryRules;
use super::sections::node::Allocatable;
use super::sections::node_memory::NodeMemory;
use super::sections::oom::OomRules;
use super::sections::overlay::OverlayRules;
use super::sections::pressure::PressureRules;
use super::sections::ring::RingRules;
use super::sections::starvation::StarvationRules;
use super::sections::systemd::Units;

/// Everything an operator chooses, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// Cluster name.
    pub cluster: String,
    /// Node name; `None` takes the host name.
    pub node_name: Option<String>,
    /// Whether anything is written.
    pub mode: Mode,
    /// Somebody chose the mode; otherwise it is the default.
    pub mode_is_set: bool,
    /// A permission that is missing ends the start instead of being reported.
    pub strict: bool,
    /// Where the kernel's files are.
    pub roots: Roots,
    /// Where containers are found.
    pub sources: Sources,
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
    /// How memory is kept and limited.
    pub memory: MemoryRules,
    /// The machine's memory as a whole.
    pub node_memory: NodeMemory,
    /// What the node cannot live without.
    pub daemons: DaemonRules,
    /// What the node gives to pods.
    pub allocatable: Allocatable,
    /// Speed of a core over that of the canonical one.
    pub cpu_factor: CpuConversionFactor,
    /// Resource types.
    pub types: Arc<ResourceTypes>,
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
    pub eviction: eviction::Policy,
    /// How that is carried out.
    pub acting: Acting,
    /// The converge loop.
    pub converge: Converge,
    /// The sampler.
    pub sample: Sample,
    /// Seconds to look back at.
    pub ring: RingRules,
    /// The stream to the recommender.
    pub stream: Stream,
    /// What the agent serves.
    pub serve: Serve,
    /// How its addresses are served.
    pub trust: TrustRules,
    /// Directory of journal, decisions and spool.
    pub state_dir: PathBuf,
    /// Features that need a capability.
    pub features: Features,
}

/// Whether the agent writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Writes.
    Enforce,
    /// Takes the whole road and writes nothing.
    DryRun,
}

impl Config {
    /// The same, to act on: for what is asked for by a person just now, such as putting originals back.
    #[must_use]
    pub(crate) fn enforcing_unless_told(mut self) -> Self {
        if !self.mode_is_set {
            self.mode = Mode::Enforce;
        }
        self
    }
}

impl Mode {
    /// The name in configuration and output.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Enforce => "enforce",
            Self::DryRun => "dry-run",
        }
    }
}

/// Where the kernel's files are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Roots {
    /// procfs of the host's pid namespace.
    pub proc: PathBuf,
    /// Directory that holds the cgroup hierarchies.
    pub cgroup: PathBuf,
    /// Directory of what lives until the machine ends: the lock of the one agent.
    pub run: PathBuf,
}

/// Where containers are found; `None` or empty = the source is off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sources {
    /// Directory of Pod manifests.
    pub manifests: Option<PathBuf>,
    /// CRI sockets.
    pub cri: Vec<PathBuf>,
    /// Sockets of Docker and Podman.
    pub engines: Option<[PathBuf; 2]>,
    /// systemd's units.
    pub systemd: Units,
}

/// What is found but never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manage {
    /// Namespaces whose containers are sampled only.
    pub exclude_namespaces: Vec<String>,
    /// Cgroup paths; each and everything below it is never written.
    pub deny: Vec<String>,
    /// Namespaces whose annotations may go above what a runtime says.
    pub trust_annotations: Vec<String>,
}

/// How processes are brought to their score.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Converge {
    /// Every container is looked at once in this time.
    pub audit_period: Duration,
    /// When a container is frozen for one pass.
    pub freeze: FreezeWhen,
    /// Longest time a cgroup is held frozen.
    pub freeze_max: Duration,
    /// Policy for processes that raised their own score, where the container does not say.
    pub score: ScorePolicy,
    /// Rewrites by somebody else after which a knob counts as contended.
    pub contended_after: u32,
}

/// When a container whose scores are wrong is frozen for one pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FreezeWhen {
    /// As soon as its processes are seen forking, and after [`FreezeWhen::DEFAULT_PASSES`] dirty passes anyway.
    Forking,
    /// After so many passes that found wrong scores.
    AfterPasses(u32),
    /// Never: a container whose forks outrun the passes stays `converging`.
    Never,
}

impl FreezeWhen {
    /// Dirty passes after which passes alone are given up: most containers need one or two.
    pub(crate) const DEFAULT_PASSES: u32 = 3;

    /// Reads `when-forking`, `after-N-passes` (N from 1 to 1000) or `never`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text {
            "when-forking" => Some(Self::Forking),
            "never" => Some(Self::Never),
            _ => {
                let passes = text.strip_prefix("after-")?.strip_suffix("-passes")?.parse().ok()?;
                (1..=1000).contains(&passes).then_some(Self::AfterPasses(passes))
            }
        }
    }
}

/// The sampler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Time between ticks.
    pub interval: Duration,
}

/// The stream to the recommender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stream {
    /// Address such as `unix:///run/evenkeel/recommender.sock` or `http://127.0.0.1:9520`; `None` = no stream and no spool.
    pub recommender: Option<String>,
    /// What vouches for it, and for this node; read at each connection.
    pub trust: Trust,
    /// How the node joins a recommender with an authority of its own.
    pub joining: Option<Joining>,
    /// What is said of a stream that goes over a network in the clear.
    pub in_the_clear: Option<String>,
    /// Bound of the spool on disk, bytes.
    pub spool_bytes: u64,
}

/// What the agent serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Serve {
    /// Unix socket of `AgentService`.
    pub socket: PathBuf,
    /// TCP address of `AgentService`; `None` = the socket alone.
    pub address: Option<SocketAddr>,
    /// Address of `/metrics`; `None` = off.
    pub metrics: Option<SocketAddr>,
}

/// Features that need a capability; off = the capability is dropped before any thread starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Features {
    /// Process events from the kernel (NET_ADMIN).
    pub proc_connector: bool,
    /// Pressure windows shorter than two seconds (SYS_RESOURCE, together with scores).
    pub short_psi: bool,
    /// Killing the rest of a container on cgroup v1 (KILL).
    pub v1_kill: bool,
    /// Victims of OOM kills from the kernel log (opened before SYSLOG is dropped).
    pub kernel_log: bool,
}
