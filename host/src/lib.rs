//! The kernel's edge: cgroup v1, v2 and hybrid, procfs, kernel events, capabilities.
//!
//! Owned here: every system call and every path of procfs and cgroupfs in this project, behind three narrow traits,
//! [`snapshot::HostReader`] (coarse, cold), [`write::HostWriter`] (one value of a closed set of writes) and
//! [`action::HostActor`] (reclaim, kill), and one hot path, the [`sampler`]. Not owned: what should be written, when, and why. Depends on `model` and on system
//! call crates only.
//!
//! A program begins like this:
//!
//! ```no_run
//! use std::sync::Arc;
//! use evenkeel_host::{cgroup::CgroupTree, kernel_reader::KernelReader, kernel_writer::KernelWriter, roots::Roots};
//!
//! let roots = Roots::default();
//! let tree = Arc::new(CgroupTree::open(&roots)?);
//! let reader = KernelReader::new(roots.clone(), Arc::clone(&tree));
//! let writer = KernelWriter::new(roots, tree, &["/kube-system".to_owned()])?;
//! # Ok::<(), evenkeel_host::error::HostError>(())
//! ```
//!
//! Errors carry a [`error::Category`]; callers act on it and never on text.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod action;
pub mod caps;
pub mod cgroup;
mod deny;
pub mod dry_run;
pub mod error;
pub mod events;
pub mod fake;
pub mod freeze;
pub mod hierarchy;
mod kernel_actor;
pub mod kernel_log;
pub mod kernel_reader;
pub mod kernel_writer;
pub mod node;
pub mod parse;
mod pidfd;
pub mod process;
pub mod programs;
pub mod psi;
pub mod roots;
pub mod run_delay;
pub mod sampler;
pub mod snapshot;
pub mod topology;
pub mod write;

pub use evenkeel_model::knob;
