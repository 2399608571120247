//! Enforcement on a node: what sources report becomes what the kernel holds, and stays so.
//!
//! Owned here: the desired state, every write to the kernel, originals and temporary settings, decisions, and the threads
//! that look at pressure, OOM kills and the node as a whole. Not owned: rules (`evenkeel-qos`), kernel files
//! (`evenkeel-host`), and whatever needs a network, an async runtime or the wire: sources of containers, systemd's bus, the
//! stream, what is served. Those reach this crate by types on arrows ([`shared`]) and a few narrow traits:
//! [`usage::LatestSamples`], [`systemd::SetProperties`], [`evict::Hands`], [`decisions::KeepsDecisions`].
//!
//! ```text
//! SourceUpdate -> converge thread (reconcile, converge, decisions) -> writes
//!                       | TrackChange (to the sampler)
//! roster (from converge) -> pressure thread -> worker -> holds; oom thread -> decisions; node thread -> daemons, cap
//! ```

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod admission;
pub mod allocatable;
pub mod config;
pub mod converge;
pub mod damage;
pub mod decisions;
pub mod evict;
pub mod guardian;
pub mod holds;
pub mod journal;
pub mod kernel;
mod ledger;
pub mod node;
pub mod oom;
pub mod overlay;
pub mod pressure;
pub mod reconcile;
pub mod restore;
pub mod shared;
pub mod stats;
pub mod systemd;
#[cfg(test)]
mod testing;
pub mod transients;
pub mod usage;
