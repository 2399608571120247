//! The processes that the agent is made of, where the configuration asks for more than one (`parts.mode`).
//!
//! ```text
//! enforcing: capabilities, files, sockets of runtimes  -- border --  network: addresses, streams
//!     |                                                -- border --  runtime: what container runtimes and engines say
//!     |                                                -- border --  reader: manifests, unit files, the system bus
//!     |  starts before it gives up anything
//!     v
//! starter: a user that is not root; CAP_SETUID, CAP_SETGID, CAP_KILL and nothing else; makes a part anew when it ends
//! ```
//!
//! Where a service manager starts each as a unit of its own there is no starter, and parts connect to the enforcing one ([`activation`]).
//!
//! Owned here: which processes there are, how they begin ([`starter`], [`activation`]), what each may do ([`confine`]), keeping the parts running
//! ([`keeper`]) and giving them their work ([`served`], [`followed`], [`read`]), their own lives ([`network`], [`runtime`], [`reader`], [`connector`]), and showing that the
//! confinement holds ([`probe`]). Not owned: the format between them (`evenkeel_border`), and what is served, called or found.

pub(crate) mod activation;
pub(crate) mod confine;
pub(crate) mod connector;
pub(crate) mod followed;
pub(crate) mod found;
pub(crate) mod keeper;
mod life;
pub(crate) mod network;
pub(crate) mod probe;
pub(crate) mod read;
pub(crate) mod reader;
pub(crate) mod runtime;
pub(crate) mod served;
pub(crate) mod starter;
pub(crate) mod status;
mod units;

use anyhow::Context as _;
use evenkeel_host::caps::{Feature, drop_all_except, needed};
use nix::sys::signal::{SigSet, Signal};

/// A process of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Part {
    /// Writes to the kernel, samples, and keeps everything.
    Enforcing,
    /// Starts the others.
    Starter,
    /// Serves addresses and calls recommenders.
    Network,
    /// Talks with container runtimes and engines.
    Runtime,
    /// Reads manifests, unit files and what systemd tells of units.
    Reader,
    /// Connects to the system bus, and hands the connections over.
    Connector,
}

impl Part {
    /// As it is called on the command line and in status.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Enforcing => "enforcing",
            Self::Starter => "starter",
            Self::Network => "network",
            Self::Runtime => "runtime",
            Self::Reader => "reader",
            Self::Connector => "connector",
        }
    }

    /// Whether it has no capability, and a user of its own.
    pub(crate) fn is_without_rights(self) -> bool {
        Self::STARTED.contains(&self) || self == Self::Connector
    }

    /// Those without rights, which the starter or a service manager starts and which are kept running.
    pub(crate) const STARTED: [Self; 3] = [Self::Network, Self::Runtime, Self::Reader];
}

/// What a part is told on its command line.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Given {
    /// User and group of the part that has the network.
    #[arg(long, default_value_t = 65_530)]
    pub network_uid: u32,
    /// User and group of the part that talks with runtimes.
    #[arg(long, default_value_t = 65_531)]
    pub runtime_uid: u32,
    /// User and group of the part that reads manifests and units.
    #[arg(long, default_value_t = 65_532)]
    pub reader_uid: u32,
    /// Directories that the part may read besides what it always may.
    #[arg(long, value_name = "DIR")]
    pub readable: Vec<std::path::PathBuf>,
    /// Socket of the enforcing part; without, the border is on standard input.
    #[arg(long, value_name = "PATH")]
    pub border: Option<std::path::PathBuf>,
    /// The part runs also where the kernel filters no calls. A drop-in for all units of parts sets it for each of them by its variable, which
    /// the enforcing part reads as its configuration.
    #[arg(long, env = "EVENKEEL_AGENT_PARTS__ALLOW_UNCONFINED")]
    pub allow_unconfined: bool,
}

/// Is a part until it ends; with `victims` only tries what it may do.
///
/// # Errors
/// When it cannot begin.
pub(crate) fn run(
    part: Part,
    given: &Given,
    logging: &starter::Logging,
    victims: Option<&probe::Victims>,
) -> anyhow::Result<()> {
    if part != Part::Enforcing
        && let Err(errno) = nix::sys::prctl::set_name(c"evenkeel-agent")
    {
        tracing::debug!(%errno, "ignoring: the process is named after its file");
    }
    crate::allocator::forget_code();
    match (part, victims) {
        (Part::Starter, None) => starter::run(given, logging),
        (Part::Network, None) => network::run(given),
        (Part::Runtime, None) => runtime::run(given),
        (Part::Reader, None) => reader::run(given, logging),
        (Part::Connector, None) => connector::run(given),
        (Part::Enforcing, None) => {
            anyhow::bail!("the enforcing part is the agent itself: run it without a subcommand")
        }
        (_, Some(victims)) => {
            match part {
                Part::Starter => starter::give_up(given)?,
                Part::Enforcing => {
                    drop_all_except(&needed(Feature::ALL)).context("capabilities of the enforcing part")?;
                    confine::confine(part, given)?;
                }
                _ => confine::confine(part, given)?,
            }
            probe::run(victims)
        }
    }
}

/// A service manager signals every process of a service; a part ends with the enforcing one, and not before. One that is a unit of its own is
/// ended by its own signal.
fn ignore_signals(given: &Given) -> anyhow::Result<()> {
    if given.border.is_some() {
        return Ok(());
    }
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        set.add(signal);
    }
    set.thread_block().context("cannot block signals")
}
