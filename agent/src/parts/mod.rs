//! The processes that the agent is made of, where the configuration asks for more than one (`parts.mode`).
//!
//! ```text
//! enforcing: capabilities, runtimes' sockets, files  --- border ---  network: addresses, streams; uid of its own, no capability
//!     |  starts before it gives up anything
//!     v
//! starter: CAP_SETUID, CAP_SETGID, CAP_KILL and nothing else; makes the network's part anew when it ends
//! ```
//!
//! Owned here: which processes there are, how they begin ([`starter`]), what each may do ([`confine`]), keeping the network's part
//! running and answering it ([`keeper`]), its own life ([`network`]), and showing that the confinement holds ([`probe`]). Not owned: the
//! format between them (`evenkeel_border`), and what is served or called.

pub(crate) mod confine;
pub(crate) mod keeper;
pub(crate) mod network;
pub(crate) mod probe;
pub(crate) mod starter;
pub(crate) mod status;

use anyhow::Context as _;
use evenkeel_host::caps::{Feature, drop_all_except, needed};

/// A process of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Writes to the kernel, samples, and keeps everything.
    Enforcing,
    /// Starts the others.
    Starter,
    /// Serves addresses and calls recommenders.
    Network,
}

impl Part {
    /// As it is called on the command line and in status.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Enforcing => "enforcing",
            Self::Starter => "starter",
            Self::Network => "network",
        }
    }
}

/// Is a part until it ends; with `victims` only tries what it may do.
///
/// # Errors
/// When it cannot begin.
pub(crate) fn run(
    part: Part,
    uid: u32,
    logging: &starter::Logging,
    victims: Option<&probe::Victims>,
) -> anyhow::Result<()> {
    match (part, victims) {
        (Part::Starter, None) => starter::run(uid, logging),
        (Part::Network, None) => network::run(),
        (Part::Enforcing, None) => anyhow::bail!("the enforcing part is the agent itself: run it without a subcommand"),
        (Part::Enforcing, Some(victims)) => {
            drop_all_except(&needed(Feature::ALL)).context("capabilities of the enforcing part")?;
            confine::confine(part);
            probe::run(victims)
        }
        (Part::Starter | Part::Network, Some(victims)) => {
            confine::confine(part);
            probe::run(victims)
        }
    }
}
