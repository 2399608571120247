//! The valid configuration: what every part of the agent is given after parsing and checking.
//!
//! Owned here: types that cannot hold a wrong value. Not owned: defaults and file keys (`raw`), merging (`load`).

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use evenkeel_model::resource_type::{CpuConversionFactor, ResourceTypes};
use evenkeel_proto::line::Trust;

use super::sections::parts::PartsRules;
use super::sections::ring::RingRules;
use super::sections::systemd::Units;
use super::sections::trust::TrustRules;
use crate::pods::Kubelet;
use crate::trust::membership::Joining;

/// Everything an operator chooses, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Config {
    /// What enforcement is given.
    pub enforce: Arc<evenkeel_enforce::config::Config>,
    /// Cluster name.
    pub cluster: String,
    /// Node name; `None` takes the host name.
    pub node_name: Option<String>,
    /// Where containers are found.
    pub sources: Sources,
    /// Speed of a core over that of the canonical one.
    pub cpu_factor: CpuConversionFactor,
    /// Resource types.
    pub types: Arc<ResourceTypes>,
    /// The sampler.
    pub sample: SamplerConfig,
    /// Seconds to look back at.
    pub ring: RingRules,
    /// The stream to the recommender.
    pub stream: StreamConfig,
    /// The processes that the agent is made of.
    pub parts: PartsRules,
    /// What the agent serves.
    pub serve: Serve,
    /// How its addresses are served.
    pub trust: TrustRules,
}

impl Config {
    /// The same, to act on: for what is asked for by a person just now, such as putting originals back.
    #[must_use]
    pub(crate) fn enforcing_unless_told(mut self) -> Self {
        self.enforce = Arc::new(Arc::unwrap_or_clone(self.enforce).enforcing_unless_told());
        self
    }
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
    /// How the node's kubelet is asked.
    pub kubelet: Option<Kubelet>,
}

/// The sampler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SamplerConfig {
    /// Time between ticks.
    pub interval: Duration,
}

/// The stream to the recommender.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamConfig {
    /// Addresses such as `unix:///run/evenkeel/recommender.sock` or `http://127.0.0.1:9520`; none = no stream and no spool.
    pub recommenders: Vec<String>,
    /// What vouches for them, and for this node; read at each connection.
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
    /// Address of pages about this node; `None` = off.
    pub dashboard: Option<SocketAddr>,
}
