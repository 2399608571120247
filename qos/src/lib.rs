//! Resource quality of service: which class a container is in and what the kernel should be told about it.
//!
//! Owned here: the two rule sets, `oom_score_adj`, CPU shares, weight and quota, memory protection and limits,
//! the inversion of a runtime's record, and the desired state of a node ([`desired`]) that gathers them with a reason for
//! every number.
//! Not owned: finding containers, writing anything, the clock. Everything is a pure function of its arguments.

// Casts that may lose something; workspace lints cannot leave out tests.
#![cfg_attr(
    not(test),
    warn(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)
)]

pub mod checks;
pub mod config;
pub mod cores;
pub mod cpu;
pub mod desired;
pub mod dynamic;
pub mod effective;
pub mod estimate;
pub mod eviction;
pub mod explain;
pub mod fair;
pub mod memory;
pub mod overlay;
pub mod own;
pub mod plan;
pub mod pod;
pub mod pressure;
pub mod replay;
pub mod reserve;
pub mod rules;
pub mod score;
pub mod starvation;
pub mod why;

mod container;
mod wishes;
