//! Fixtures for tests against real kernels, containers and processes.
//!
//! Owns everything a test needs to be let loose on a real machine and to leave it as it was: test cgroups, a private
//! containerd, a virtual machine on cgroup v2, the project's own programs as child processes, and a workload that burns
//! CPU, holds memory and forks. What is tested stays in the suites under `tests/tests/`; product code never depends
//! on this crate.
//!
//! Two rules hold for every fixture. It waits for the state it wants and never for a time ([`wait`]), and what cannot
//! be had on this machine is said loudly and is an error where `CI` is set ([`require!`]).

mod archive;
pub mod book;
pub mod cgroups;
pub mod chance;
pub mod chart;
pub mod daemon;
pub mod debian13;
pub mod disk;
pub mod figures;
pub mod image;
pub mod kubelet;
pub mod machine;
pub mod matrix;
pub mod places;
pub mod processes;
pub mod product;
pub mod runtime;
pub mod skip;
pub mod stage;
pub mod stalls;
pub mod strict;
pub mod thrash;
pub mod vm;
pub mod wait;
